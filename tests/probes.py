"""Probes of `cpp/probes.cu`: what each gives, and how to run them on either side.

What is expected comes from numpy and torch, not from one of the sides, so that each can be judged
without the other: a machine with a GPU needs no g++, and one with g++ no GPU. The inputs and what
is expected are in `probe_values` (arithmetic) and `probe_traffic` (what threads do together).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monomoe_gen import host_build
from monomoe_gen.paths import data_dir
from monomoe_gen.render import Source, hash_texts
from monomoe_gen.simulate import Run

TEXT = Path(__file__).with_name("cpp") / "probes.cu"
GRID, THREADS = 2, 96
ALL = GRID * THREADS
SHARED_BYTES = 8704  # sizeof(Storage), as the program asserts
HALF_BYTES = 2048  # of the workspace, beside its header
WORKSPACE_WORDS = (128 + 2 * HALF_BYTES) // 4

Array = np.ndarray


@dataclass(frozen=True)
class Column:
    """A part of a probe's output: what is expected, of dtype uint32, float32 or float16.

    Without a ``tolerance`` numbers are equal bit for bit and NaN is NaN; with one they differ by at
    most as much, and the sign of zero is free.
    """

    name: str
    expected: Array
    tolerance: Array | None = None

    @property
    def words(self) -> int:
        return self.expected.nbytes // 4

    @property
    def inexact(self) -> bool:
        return self.tolerance is not None and bool(self.tolerance.any())

    def wrong(self, found: Array) -> Array:
        """Indices where the words ``found`` are not as expected."""
        values, bits = found.view(self.expected.dtype), f"u{self.expected.itemsize}"
        right = values.view(bits) == self.expected.view(bits)
        if self.expected.dtype.kind == "f":
            right |= np.isnan(values) & np.isnan(self.expected)
            if self.tolerance is not None:
                right |= values == self.expected
                right |= self._error(values) <= self.tolerance
        return np.flatnonzero(~right)

    def ulps(self, found: Array) -> float:
        """The largest error of finite fp32 results, in units of what is expected."""
        values = found.view(self.expected.dtype)
        with np.errstate(invalid="ignore"):
            error = self._error(values) / spacing(self.expected)
        return float(np.nanmax(np.where(np.isfinite(self.expected), error, 0)))

    def _error(self, values: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.abs(values.astype(np.float64) - self.expected.astype(np.float64))


@dataclass(frozen=True)
class Probe:
    """One case of the kernel; ``functions`` are those of ``device/`` it covers: ``name(types)``."""

    name: str
    functions: tuple[str, ...]
    count: int
    inputs: Array  # uint32, after a count and three unused words
    columns: tuple[Column, ...]

    @property
    def words(self) -> int:
        """Of the output."""
        return sum(column.words for column in self.columns)

    @property
    def memory(self) -> Array:
        """What the kernel reads, uint32."""
        return np.concatenate([np.array([self.count, 0, 0, 0]), self.inputs.ravel()]).astype("u4")

    def split(self, output: Array) -> Iterator[tuple[Column, Array]]:
        ends = np.cumsum([column.words for column in self.columns])
        yield from zip(self.columns, np.split(output, ends[:-1]), strict=True)

    def complaints(self, output: Array) -> list[str]:
        """What is wrong with the words ``output``; empty when all is as expected."""
        found = []
        for column, words in self.split(output):
            wrong = column.wrong(words)
            if wrong.size:
                i = wrong[0]
                values = words.view(column.expected.dtype)
                found.append(
                    f"{self.name}, {column.name}: {wrong.size} of {column.expected.size} are wrong;"
                    f" row {i} is {values[i]!r}, expected {column.expected[i]!r}"
                )
        return found


def spacing(values: Array) -> Array:
    """One unit in the last place of fp32 ``values``, as float64."""
    return np.spacing(np.abs(values.astype(np.float32))).astype(np.float64)


# -- running them


def with_device_headers(name: str, text: str) -> dict[str, str]:
    """A program and the GPU's headers, by file name."""
    folder = data_dir("templates") / "device"
    return {name: text, **{f"device/{p.name}": p.read_text() for p in sorted(folder.glob("*.cuh"))}}


def gpu_source() -> Source:
    """The probes with the GPU's headers."""
    texts = with_device_headers(TEXT.name, TEXT.read_text())
    return Source("device_probes", texts, hash_texts(texts), THREADS, SHARED_BYTES)


BINDING = """
#include "probes.cu"
namespace sim {
static void entry(const Arguments& a) {
    device_probes(static_cast<const u32*>(a.x), static_cast<u32*>(a.y),
                  static_cast<u32*>(a.workspace), a.tokens);
}
extern const Program kProgram = {kGrid, kGrid, kThreads, sizeof(Storage), entry, nullptr, 0};
}  // namespace sim
"""


def host_program(templates: Path | None = None) -> Path:
    """The probes with the host's headers, in a simulator."""
    host = host_build.simulator_texts(templates or data_dir("templates"))
    texts = {name: text for name, text in host.items() if not name.endswith(".cpp")}
    return host_build.link(
        "probes", {**texts, TEXT.name: TEXT.read_text(), "kernel.cpp": BINDING}, host
    )


def run_on_host(
    program: Path, probes: Sequence[Probe], runs: Sequence[Run], folder: Path
) -> Iterator[Mapping[str, Array]]:
    """Every probe's output, by name, of each run. A probe is a launch of one simulation."""
    lines = [f"launches {len(probes)}", f"half_bytes {HALF_BYTES}"]
    for i, probe in enumerate(probes):
        probe.memory.tofile(folder / f"{probe.name}.bin")
        lines += [
            f"tokens {i} {i}",
            f"y_bytes {i} {4 * probe.words}",
            f"input x {i} {probe.name}.bin",
        ]
    (folder / "manifest.txt").write_text("\n".join(lines) + "\n")
    output = folder / "out.bin"
    output.unlink(missing_ok=True)
    asked = "".join(f"{run.policy} {run.seed}\n" for run in runs)
    command = [str(program), str(folder), str(output)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    assert len(answers) == len(runs), done.stderr
    for answer in answers:
        assert answer["status"] == "ok" and not answer["reports"], answer
    ends = np.cumsum([probe.words for probe in probes])
    for whole in np.fromfile(output, np.uint32).reshape(len(runs), -1):
        parts = np.split(whole, ends[:-1])
        yield {probe.name: part for probe, part in zip(probes, parts, strict=True)}
