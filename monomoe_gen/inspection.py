"""What can be said about dispatched kernels without a GPU, next to a baseline. Nothing is timed.

Registers, spills and loops are compared between binaries of one compiler: where the sources changed
the committed text of the baseline is compiled again by the compiler that is here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from monomoe_gen import dispatch, sass, tuning_db
from monomoe_gen.compile import KernelBinary, compile_many, compiler_version
from monomoe_gen.device import Device
from monomoe_gen.dispatch import Kernel, Table
from monomoe_gen.errors import DatabaseError, EnvironmentProblem, OlderFormat
from monomoe_gen.pipeline import usable_cpus
from monomoe_gen.render import Source
from monomoe_gen.verify import Finding, Rebuilt, findings, rebuild

MAIN_FILE = "monomoe.cu"  # the name under which a bundle gives the bytes of its separate texts
RESOURCES = {
    "registers": "registers",
    "spill_bytes": "B spilled",
    "local_bytes": "B of stack",
    "shared_bytes": "B of shared memory",
    "threads": "threads",
}


@dataclass(frozen=True)
class Remark:
    """One thing found. ``stale`` and ``grew`` are for somebody to act on, ``note`` is to know."""

    check: Literal["files", "resources", "loops"]
    subject: str
    status: Literal["ok", "note", "stale", "grew"]
    message: str


@dataclass(frozen=True)
class Inspection:
    """The table, its kernels as rebuilt, and the remarks about both."""

    table: Table
    rebuilt: tuple[Rebuilt, ...]
    remarks: tuple[Remark, ...]


def inspect(
    device: Device,
    folder: Path,
    baseline: Path | None = None,
    database: Path | None = None,
    done: Callable[[str], object] = lambda kernel_id: None,
) -> Inspection:
    """Rebuilds every kernel of the table in ``folder`` and compares with it and with ``baseline``.

    ``baseline`` is the folder of another table, by default ``folder`` itself: what is committed.
    One of an older format is a remark, and nothing is compared with it.
    A database that cannot be read is a remark about its model. Without a table in ``folder`` that
    can be read, that is the only remark, and the table that is returned is empty.

    Raises:
        DatabaseError: the table of the baseline cannot be read.
        EnvironmentProblem: no usable NVRTC.
    """
    try:
        table = dispatch.load(folder)
    except DatabaseError as error:
        message = str(error)
        if (folder / dispatch.FILE).exists() and not isinstance(error, OlderFormat):
            message += "; `monomoe-gen emit` makes it anew, once that file is away"
        remark = Remark("files", "dispatch table", "stale", message)
        return Inspection(Table(device, (), ()), (), (remark,))
    before, useless = dispatch.load_baseline(baseline, device) if baseline else (table, "")
    rebuilt = tuple(rebuild(device, table, done))
    remarks = [_remark(f) for f in findings(device, table, rebuilt, folder, database)]
    if useless:
        remarks.append(Remark("files", "baseline", "note", useless))
    known = {kernel.id: kernel for kernel in before.kernels}
    pairs = [(known[r.kernel.id], r.outcome) for r in rebuilt if r.kernel.id in known]
    built = [(kernel, now) for kernel, now in pairs if isinstance(now, KernelBinary)]
    spills = _recorded_spills(device, {k.shape.name for k, _ in built}, database)
    references, lost = _references(built, baseline or folder, device, spills)
    remarks += lost
    tool = sass.find_disassembler()
    if tool is None:
        remarks.append(
            Remark("loops", "disassembler", "note", "no nvdisasm or cuobjdump: loops not counted")
        )
    compared = [
        (kernel, references[kernel.id], now) for kernel, now in built if kernel.id in references
    ]
    remarks += [compare_resources(kernel.id, old, now) for kernel, old, now in compared]
    if tool:
        binaries = [
            (b, kernel.kernel_name) for kernel, old, now in compared for b in (old.cubin, now.cubin)
        ]
        loops = _disassemble(binaries, tool)
        for kernel, old, now in compared:
            was, is_now = (loops[b, kernel.kernel_name] for b in (old.cubin, now.cubin))
            remarks.append(_compare_loops(kernel.id, was, is_now))
    return Inspection(table, rebuilt, tuple(remarks))


@dataclass(frozen=True)
class Reference:
    """What a kernel of the baseline needs (None: not recorded), its cubin, and who compiled it."""

    resources: Mapping[str, int | None]
    cubin: bytes
    compiler: str


def compare_resources(subject: str, old: Reference, now: KernelBinary) -> Remark:
    """Whether the kernel needs more than the reference did; a note where compilers differ."""
    found = {name: getattr(now, name) for name in RESOURCES}
    known = {name: value for name, value in old.resources.items() if value is not None}
    changed = [f"{known[n]} -> {found[n]} {RESOURCES[n]}" for n in known if known[n] != found[n]]
    grew = any(found[name] > known[name] for name in known)
    if not changed:
        used = ", ".join(f"{value} {RESOURCES[name]}" for name, value in found.items() if value)
        return Remark("resources", subject, "ok", used)
    message = ", ".join(changed)
    if old.compiler != now.compiler:
        return Remark("resources", subject, "note", f"{message} ({old.compiler} -> {now.compiler})")
    return Remark("resources", subject, "grew" if grew else "note", message)


def _references(
    built: Sequence[tuple[Kernel, KernelBinary]],
    folder: Path,
    device: Device,
    spills: Mapping[str, int],
) -> tuple[dict[str, Reference], list[Remark]]:
    """By kernel id what to compare with, and remarks on what is missing.

    ``spills`` are the recorded bytes by the hash of the cubin, which the table does not tell.
    """
    references: dict[str, Reference] = {}
    lost: list[Remark] = []
    again: list[Source] = []
    for kernel, now in built:
        try:
            if now.sources_hash != kernel.sources_hash:
                again.append(_committed_source(folder, kernel))
                continue
            cubin = dispatch.read_cubin(folder, kernel)
        except DatabaseError as error:
            lost.append(Remark("resources", kernel.id, "note", f"not compared: {error}"))
            continue
        recorded = {n: getattr(kernel, n, None) for n in RESOURCES}
        recorded["spill_bytes"] = spills.get(kernel.cubin_sha256)
        references[kernel.id] = Reference(recorded, cubin, kernel.compiler)
    by_name = {kernel.kernel_name: kernel.id for kernel, _ in built}
    for source, outcome in zip(again, compile_many(again, arch=device.arch), strict=True):
        subject = by_name[source.kernel_name]
        if isinstance(outcome, KernelBinary):
            needs = {n: getattr(outcome, n) for n in RESOURCES}
            references[subject] = Reference(needs, outcome.cubin, outcome.compiler)
        else:
            message = f"not compared: {compiler_version()} refuses the baseline's text"
            lost.append(Remark("resources", subject, "note", message))
    return references, lost


def _recorded_spills(device: Device, models: set[str], database: Path | None) -> dict[str, int]:
    """What the databases tell that can be read; `findings` names the others."""
    spills: dict[str, int] = {}
    for model in models:
        with suppress(DatabaseError):
            records = tuning_db.read(tuning_db.database_path(device.slug, model, database))
            spills |= {r.binary.text_hash: r.binary.spill_bytes for r in records if r.binary}
    return spills


def _committed_source(folder: Path, kernel: Kernel) -> Source:
    """The text beside the table, as a program."""
    text = dispatch.read_source(folder, kernel)
    return Source(
        kernel_name=kernel.kernel_name,
        texts={MAIN_FILE: text},
        sources_hash=hashlib.sha256(text.encode()).hexdigest(),
        threads=kernel.threads,
        shared_bytes=kernel.shared_bytes,
    )


Loops = tuple[sass.Loop, ...] | EnvironmentProblem


def _disassemble(
    binaries: Iterable[tuple[bytes, str]], tool: tuple[str, ...]
) -> dict[tuple[bytes, str], Loops]:
    """The main loops of each cubin and kernel name, or why they are not known; in parallel."""

    def loops(binary: tuple[bytes, str]) -> Loops:
        try:
            return sass.main_loops(*binary, tool)
        except EnvironmentProblem as error:
            return error

    distinct = list(dict.fromkeys(binaries))
    with ThreadPoolExecutor(usable_cpus()) as pool:
        return dict(zip(distinct, pool.map(loops, distinct), strict=True))


def _compare_loops(subject: str, before: Loops, after: Loops) -> Remark:
    """Reports instruction counts; whether they cost time is for a GPU to say."""
    if isinstance(before, EnvironmentProblem) or isinstance(after, EnvironmentProblem):
        lost = before if isinstance(before, EnvironmentProblem) else after
        return Remark("loops", subject, "note", str(lost))
    counts = ", ".join(_loop_text(b, a) for b, a in zip_longest(before, after)) or "none found"
    status: Literal["ok", "note"] = "ok" if before == after else "note"
    return Remark("loops", subject, status, f"instructions of the main loops: {counts}")


def _loop_text(old: sass.Loop | None, new: sass.Loop | None) -> str:
    kinds = " / ".join(dict.fromkeys(loop.kind for loop in (old, new) if loop))
    before, after = (loop.instructions if loop else None for loop in (old, new))
    if before == after:
        return f"{kinds} {after}" + ("" if old == new else " (other opcodes)")
    return f"{kinds} {before or 'none'} -> {after or 'none'}"


def _remark(finding: Finding) -> Remark:
    status: Mapping[str, Literal["ok", "note", "stale"]] = {
        "equal": "ok",
        "compiles": "note",
        "wrong": "stale",
    }
    return Remark("files", finding.subject, status[finding.status], finding.message)
