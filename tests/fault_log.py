"""Deliberately broken candidates on a GPU: what becomes of each, and of the good one after it.

``python tests/fault_log.py`` sends every fault the way of a tuning run, times a good kernel before
and after it, and writes ``generated/<gpu>/faults.json`` and ``faults.md``. The exit code is 1 if a
fault became something else than expected or the good kernel changed by more than `LIMIT`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from monomoe_gen import bench, dispatch, jobs, tuning_db
from monomoe_gen import compile as compiling
from monomoe_gen.campaign import Campaign, Plan
from monomoe_gen.compile import KernelBinary, compile_source, compiler_version
from monomoe_gen.device import Device, current_device
from monomoe_gen.files import write_atomically
from monomoe_gen.jobs import Subject
from monomoe_gen.ledger import Ledger
from monomoe_gen.protocol import Stage, decode_event
from monomoe_gen.render import Source, hash_texts, render
from monomoe_gen.sandbox import Limits, Sandbox
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.worker_process import COMMAND, ProcessWorker

MODEL, TOKENS = "qwen3.5-35b", 1
LIMIT = 0.05  # of the good kernel's time
LIMITS = Limits(stage_s=5)
SIGNATURE = """
extern "C" __global__ void bad(const unsigned short* x, const float* logits, const float* bias,
    const unsigned char* w13, const float* w13_scale, const unsigned char* w2,
    const float* w2_scale, unsigned short* y, unsigned char* workspace,
    unsigned workspace_half_bytes, unsigned tokens, unsigned long long wait_limit_ns) { %s }
"""
Act = Literal["launch", "kill the worker", "kill the compiler"]


@dataclass(frozen=True)
class Fault:
    """A kernel with a broken ``body``, or a good one to which something is done."""

    name: str
    expected: tuning_db.Status
    words: str = ""  # that the message has
    body: str | None = None
    act: Act = "launch"
    grid: int | None = None


FAULTS = (
    Fault("compiler crash", "compile_error", "crashed", body="int i;", act="kill the compiler"),
    Fault("NaN output (nothing written)", "wrong", "NaN", body=""),
    Fault(
        "wrong result (all zero)",
        "wrong",
        "is zero and should not be",
        body="for (unsigned i = threadIdx.x; i < tokens * 2048; i += blockDim.x) y[i] = 0;",
    ),
    Fault("launch failure (grid beyond the GPU)", "launch_error", "offers", body="", grid=1 << 14),
    Fault("illegal address", "launch_error", "illegal", body="*(volatile int*)16 = 1;"),
    Fault(
        "misaligned access",
        "launch_error",
        "misaligned",
        body="*(volatile int*)(workspace + 1) = 1;",
    ),
    Fault(
        "infinite spin",
        "timeout",
        "no answer",
        body="while (*(volatile unsigned char*)workspace == 0) {}",
    ),
    Fault("worker killed from outside", "launch_error", "SIGKILL", act="kill the worker"),
)


@dataclass(frozen=True)
class Entry:
    """What became of a fault: its record's status and message, and times of the good kernel."""

    fault: str
    expected: str
    status: str
    message: str
    before_us: float
    after_us: float
    worker_replaced: bool
    seconds: float
    fine: bool

    @property
    def change(self) -> float:
        return self.after_us / self.before_us - 1


class Workers:
    """Starts workers; when ``armed``, the present one is killed as it begins to time a kernel."""

    def __init__(self, command: tuple[str, ...] = COMMAND) -> None:
        self.command, self.armed = command, False

    def start(self) -> MortalWorker:
        return MortalWorker(self)


class MortalWorker(ProcessWorker):
    def __init__(self, workers: Workers) -> None:
        super().__init__(workers.command)
        self._workers = workers

    def receive(self, timeout_s: float) -> str:
        line = super().receive(timeout_s)
        event = decode_event(line)
        if self._workers.armed and isinstance(event, Stage) and event.name.startswith("time "):
            self._workers.armed = False
            os.kill(self.pid, signal.SIGKILL)
        return line


def broken_source(body: str) -> Source:
    texts = {"bad.cu": SIGNATURE % body}
    return Source("bad", texts, hash_texts(texts), 32, 0)


def good_spec(device: Device) -> KernelSpec:
    """The kernel that the project dispatches."""
    table = dispatch.load(dispatch.table_folder(device.slug))
    return dispatch.lookup(table, MODEL, TOKENS).kernel.spec


def compiled(fault: Fault | None, spec: KernelSpec, device: Device) -> KernelBinary:
    """The binary of a fault, or of the good kernel."""
    good = fault is None or fault.body is None
    source = render(spec) if good else broken_source(fault.body)  # type: ignore
    return compile_source(source, device.arch)


def measure(
    device: Device,
    folder: Path,
    workers: Workers,
    binary_of: Callable[[Fault | None, KernelSpec, Device], KernelBinary] = compiled,
    limits: Limits = LIMITS,
    say: Callable[[str], object] = print,
) -> dict[str, Any]:
    """The log. Records go to a database below ``folder``, where the GPU's lock is too."""
    began = time.monotonic()
    shape, spec = load_shape(MODEL), good_spec(device)
    path = tuning_db.database_path(device.slug, MODEL, folder)
    ledger = Ledger(shape, (TOKENS,), spec.token_tile, "uniform", path)
    floors = jobs.compile_floors(device)
    good = binary_of(None, spec, device)
    asked = jobs.measure(
        spec,
        jobs.image(good, spec),
        (TOKENS,),
        "uniform",
        validate=False,
        timed=floors.timed(bench.FULL),
    )
    with Sandbox(workers.start, limits, folder) as box:
        campaign = Campaign(Plan(shape, (TOKENS,)), device, ledger, box, floors, lambda p: None)

        def good_us() -> float:
            outcome = box.measure(asked)
            assert outcome.status == "ok", outcome.message
            return bench.Timing(outcome.cells[0].samples).median_us

        entries = []
        after = good_us()
        for fault, schedule in zip(FAULTS, feasible(shape, device), strict=False):
            before, start, restarts = after, time.monotonic(), box.restarts
            if fault.grid:
                schedule = dataclasses.replace(schedule, grid=fault.grid)
            own = KernelSpec(shape, schedule, spec.token_tile)
            if fault.act == "kill the compiler":
                with dying_compiler():
                    subject, failure = campaign.prepare(schedule)
                assert failure, "it compiles without a compiler"
                campaign.fail(subject, "screen", *failure)
            else:
                own = own if fault.body is not None else spec
                binary = binary_of(fault, own, device)
                workers.armed = fault.act == "kill the worker"
                campaign.screen(Subject(own, binary.sources_hash, compiler_version(), binary))
                workers.armed = False
            record = ledger.record(own.schedule, TOKENS)
            assert record, "every fault becomes a record"
            after = good_us()
            fine = (record.status, abs(after / before - 1) <= LIMIT) == (fault.expected, True)
            entries.append(
                Entry(
                    fault.name,
                    fault.expected,
                    record.status,
                    record.message.partition("\n")[0][:200],
                    before,
                    after,
                    box.restarts > restarts,
                    round(time.monotonic() - start, 1),
                    fine and fault.words in record.message,
                )
            )
            say(f"{fault.name}: {record.status}, {before:.2f} us before, {after:.2f} us after")
        env = {k: v for k, v in box.env.items() if k in ("gpu", "uuid", "driver", "torch")}
    assert [r.status for r in tuning_db.read(path)] == [e.status for e in entries]
    return {
        "format": 1,
        **env,
        "at": datetime.now(timezone.utc).isoformat("T", "seconds"),
        "good_kernel": spec.id,
        "tokens": TOKENS,
        "seconds": round(time.monotonic() - began, 1),
        "entries": [dataclasses.asdict(e) | {"change": round(e.change, 5)} for e in entries],
    }


@contextmanager
def dying_compiler() -> Iterator[None]:
    """The next compilation's process is killed as soon as it has its work."""
    acquire = compiling.acquire

    def doomed() -> Any:
        worker = acquire()
        submit = worker.submit

        def submit_and_die(*arguments: Any) -> None:
            submit(*arguments)
            worker.process.kill()

        worker.submit = submit_and_die  # type: ignore[method-assign]
        return worker

    compiling.acquire = doomed
    fresh = os.environ.get("MONOMOE_CACHE")
    with tempfile.TemporaryDirectory() as empty:  # or the cache would answer
        os.environ["MONOMOE_CACHE"] = empty
        try:
            yield
        finally:
            compiling.acquire = acquire
            del os.environ["MONOMOE_CACHE"]
            if fresh is not None:
                os.environ["MONOMOE_CACHE"] = fresh


def markdown(log: dict[str, Any]) -> str:
    """The log as a page."""
    lines = [
        "# Broken candidates and what becomes of them",
        "",
        f"`make faults` on {log.get('gpu')} ({log.get('uuid')}, driver {log.get('driver')}), "
        f"{log['at']}, {log['seconds']} s. Each fault went the way of a tuning run and became the "
        f"record named here. `{log['good_kernel']}` was timed at {log['tokens']} token before and "
        "after it; a replaced worker is a fresh process.",
        "",
        "| fault | record | worker replaced | before, us | after, us | change | message |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for e in log["entries"]:
        mark = "" if e["fine"] else " (unexpected)"
        message = e["message"].replace("|", "\\|")
        replaced = "yes" if e["worker_replaced"] else "no"
        lines.append(
            f"| {e['fault']} | {e['status']}{mark} | {replaced} | {e['before_us']:.2f} | "
            f"{e['after_us']:.2f} | {e['change']:+.2%} | {message} |"
        )
    return "\n".join(lines) + "\n"


def write(log: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "faults.json", (json.dumps(log, indent=1) + "\n").encode())
    write_atomically(folder / "faults.md", markdown(log).encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, help="folder; default: generated/<gpu>")
    output = parser.parse_args().output
    device = current_device()
    if device is None:
        print("no CUDA device: the faults need one", file=sys.stderr)
        return 5
    with tempfile.TemporaryDirectory() as folder:
        log = measure(device, Path(folder), Workers())
    write(log, output or dispatch.table_folder(device.slug))
    return 0 if all(e["fine"] for e in log["entries"]) else 1


if __name__ == "__main__":
    sys.exit(main())
