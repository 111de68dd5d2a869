"""What compute-sanitizer's racecheck sees of the ways in which the kernels order shared memory.

A script for a machine with a GPU. Each case of ``cpp/racecheck.cu`` is a kernel that uses one of
them, and is there twice: correct, and with a race. A correct one that is reported says that the
tool does not see that order, so its reports of it in the real kernels say nothing; a racy one that
is not reported says that its silence does not either::

    python tests/racecheck_probes.py [--deadline SECONDS] [--sanitizer PATH] [-- OPTION ...]

What follows ``--`` goes to compute-sanitizer. It is ended at the deadline; in the kernels every
wait ends at the bound of `device/trap.cuh`. With ``--launch`` the kernels are launched in this
process, as the sanitizer does it, and what the correct ones give is checked.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from probes import with_device_headers

from monomoe_gen.render import Source, hash_texts

TEXT = Path(__file__).with_name("cpp") / "racecheck.cu"
CASES = (  # in the order of Case in racecheck.cu
    "every_lane_arrives",
    "one_lane_arrives",
    "bulk_copy",
    "named_barrier",
    "sync_warp",
    "ring_every_lane",
    "ring_one_lane",
    "ring_barriers_in_loop",
)
WORDS, ROUNDS = 32, 8
THREADS = 64
SHARED_BYTES = 384  # sizeof(Storage), as the program asserts
PREFIX = "monomoe_racecheck_"


@dataclass(frozen=True)
class Probe:
    case: str
    racy: bool

    @property
    def kernel_name(self) -> str:
        return f"{PREFIX}{self.case}_{'racy' if self.racy else 'correct'}"

    @property
    def source(self) -> Source:
        head = (
            f"#define KERNEL {self.kernel_name}\n"
            f"#define CASE {CASES.index(self.case)}\n"
            f"#define RACY {'true' if self.racy else 'false'}\n"
        )
        texts = with_device_headers(TEXT.name, head + TEXT.read_text(encoding="utf-8"))
        return Source(self.kernel_name, texts, hash_texts(texts), THREADS, SHARED_BYTES)

    def expected(self, words: np.ndarray) -> np.ndarray:
        """What a correct kernel gives for ``words``, uint32 [ROUNDS, WORDS]."""
        if self.case.startswith("ring"):
            return words.sum(axis=0, dtype=np.uint32)
        return words[0, ::-1]


PROBES = tuple(Probe(case, racy) for case in CASES for racy in (False, True))


def launch() -> None:
    """Launches every probe on torch's current GPU, one after another.

    Raises:
        SystemExit: a correct one gives something else than what is expected.
    """
    import torch

    from monomoe_gen.compile import compile_all
    from monomoe_gen.kernel import LoadedKernel, address

    words = np.random.default_rng(3).integers(1, 1 << 20, (ROUNDS, WORDS), np.uint32)
    given = torch.from_numpy(words.view(np.int32)).cuda()
    binaries = compile_all([probe.source for probe in PROBES])
    for probe, binary in zip(PROBES, binaries, strict=True):
        kernel = LoadedKernel.from_cubin(binary.cubin, probe.kernel_name, 1, THREADS, SHARED_BYTES)
        out = torch.zeros(WORDS, dtype=torch.int32, device="cuda")
        kernel.launch((address(given), address(out)), torch.cuda.current_stream().cuda_stream)
        found = out.cpu().numpy().view(np.uint32)
        print(f"launched {probe.kernel_name}", flush=True)
        if not probe.racy and not np.array_equal(found, probe.expected(words)):
            sys.exit(f"{probe.kernel_name} gives {found}, expected {probe.expected(words)}")


def reported(output: str) -> dict[str, int]:
    """Kernel -> its hazards in the analysis reports of ``output``; 0 for one that is only launched.

    A line of a report: ``and Read access at NAME(...)+0x770 in file.cu:5 [248 hazards]``.
    """
    found = dict.fromkeys(re.findall(r"^launched (\w+)$", output, re.MULTILINE), 0)
    for name, count in re.findall(rf"access at ({PREFIX}\w+).*\[(\d+) hazards?\]", output):
        found[name] = found.get(name, 0) + int(count)
    return found


def verdict(correct: int | None, racy: int | None) -> str:
    """What the hazards of a case's two kernels say; None for one that was not launched."""
    if correct is None or racy is None:
        return "not launched"
    if correct and racy:
        return "not seen: the correct one is reported too"
    if correct:
        return "not seen: only the correct one is reported"
    return "seen" if racy else "blind: the race is not reported"


def table(hazards: dict[str, int]) -> str:
    lines = [f"{'order':24}{'correct':>10}{'racy':>10}  verdict"]
    for case in CASES:
        pair = [hazards.get(Probe(case, racy).kernel_name) for racy in (False, True)]
        shown = "".join(f"{'-' if count is None else count:>10}" for count in pair)
        lines.append(f"{case:24}{shown}  {verdict(*pair)}")
    return "\n".join(lines)


def examine(sanitizer: str, options: Sequence[str], deadline: float) -> tuple[str, str]:
    """Output of racecheck over all probes, and how it ended."""
    command = [sanitizer, "--tool", "racecheck", "--kernel-name", f"kns={PREFIX}"]
    command += ["--target-processes", "application-only"]  # not the compilers
    command += [*options, sys.executable, __file__, "--launch"]
    print(" ".join(command), flush=True)
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = child.communicate(timeout=deadline)
        return output, f"exit status {child.returncode}"
    except subprocess.TimeoutExpired:
        end_session(child.pid)
        output, _ = child.communicate()
        return output, f"ended after {deadline:.0f} s"


def end_session(leader: int) -> None:
    """Ends the process group that ``leader`` began: the tool and the program it looks at."""
    os.killpg(leader, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description="See which orders racecheck understands.")
    parser.add_argument("--launch", action="store_true", help="only launch the kernels, here")
    parser.add_argument("--sanitizer", default="compute-sanitizer", help="path of the tool")
    parser.add_argument("--deadline", type=float, default=240, help="seconds (default: 240)")
    parser.add_argument("options", nargs="*", help="for the tool, behind --")
    asked = parser.parse_args()
    if asked.launch:
        launch()
        return
    output, end = examine(asked.sanitizer, asked.options, asked.deadline)
    print(output)
    print(table(reported(output)))
    print(end)


if __name__ == "__main__":
    main()
