"""What is installed, what the machine has, which files are stale, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Literal

from monomoe_gen import (
    __version__,
    c_header,
    cubin_cache,
    dispatch,
    history,
    noise,
    report,
    search_study,
    tuning_db,
)
from monomoe_gen.campaign import Plan
from monomoe_gen.compile import compiler_library, compiler_version
from monomoe_gen.device import KNOWN, Device, current_device
from monomoe_gen.emit import orphans
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.ledger import Ledger
from monomoe_gen.paths import shape_dirs, tuning_db_dir
from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import Variant
from monomoe_gen.wait_limit import wait_limit_ms

LEAST_FREE_BYTES = 1 << 30
_NAMED = 4  # stale files, before they are counted
_CUPY = ("cupy-cuda12x", "cupy-cuda13x", "cupy")


Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Check:
    """One finding. A ``note`` limits what can be done here; a ``problem`` should be mended.

    `area` is ``machine`` or ``files``, `todo` is what to do ("" when nothing).
    """

    area: Literal["machine", "files"]
    subject: str
    status: Status
    found: str
    todo: str = ""


def examine(device: Device, done: Callable[[str], object] = lambda subject: None) -> list[Check]:
    """All checks, for the files of `device`. Never raises a deliberate error: it is a finding."""
    checks: list[Check] = []
    for check in _checks(device):
        checks.append(check)
        done(check.subject)
    return checks


def _checks(device: Device) -> Iterator[Check]:
    yield Check(
        "machine", "monomoe-gen", "ok", f"{__version__}, Python {platform.python_version()}"
    )
    yield _torch()
    yield _cupy()
    yield _compiler()
    yield _gpu()
    yield _wait_limit()
    for subject, folder, maker in (
        ("measurements", tuning_db_dir(), "`monomoe-gen tune`"),
        ("generated", dispatch.table_folder(device.slug), "`monomoe-gen tune` or `emit`"),
        ("compile cache", cubin_cache.folder(), "the first compilation"),
    ):
        yield _folder(subject, folder, maker)
    database = tuning_db_dir() / device.slug
    for path in sorted(database.glob("*.jsonl")):
        yield _records(path)
    generated = dispatch.table_folder(device.slug)
    shapes = [path for folder in shape_dirs() for path in sorted(folder.glob("*.yaml"))]
    readers: tuple[tuple[Path, Callable[[Path], object]], ...] = (
        *((path, _shape) for path in shapes),
        (database / noise.FILE, noise.read),
        (database / search_study.FILE, search_study.read),
        (tuning_db_dir() / history.FILE, history.read),
        (generated / "anchors.json", report.read_anchors),
        (generated / "bench.json", report.read_results),
    )
    for path, read in readers:
        yield from _unreadable(path, read)
    yield from _table(device)


def _torch() -> Check:
    version = _version("torch")
    if version is None:
        return Check("machine", "torch", "problem", "not installed", "pip install torch")
    return Check("machine", "torch", "ok", version)


def _cupy() -> Check:
    found = {name: version for name in _CUPY if (version := _version(name))}
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    if not found:
        todo = "install the extra [cuda12] or [cuda13] to compile and to launch"
        return Check("machine", "CuPy", "problem", "not installed", todo)
    if len(found) > 1:
        todo = "they share their files: uninstall all of them, then install one"
        return Check("machine", "CuPy", "problem", text, todo)
    return Check("machine", "CuPy", "ok", text)


def _wait_limit() -> Check:
    try:
        return Check("machine", "bound of waits", "ok", f"{wait_limit_ms()} ms in a kernel")
    except MonomoeError as error:
        return Check("machine", "bound of waits", "problem", str(error), "unset or correct it")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _compiler() -> Check:
    try:
        return Check("machine", "NVRTC", "ok", f"{compiler_version()}, {compiler_library()}")
    except EnvironmentProblem as error:
        return Check("machine", "NVRTC", "problem", str(error), "install one of the CUDA extras")


def _gpu() -> Check:
    try:
        found = current_device()
    except ImportError as error:
        return Check(
            "machine", "GPU", "problem", f"torch does not load: {error}", "reinstall torch"
        )
    if found is None:
        todo = "tune replays records here; validate and bench need a GPU"
        return Check("machine", "GPU", "note", "torch sees no CUDA device", todo)
    text = f"{found.name}, {found.sms} SMs, {found.arch}, driver {_driver() or 'unknown'}"
    if found.arch != "sm_90a":
        return Check("machine", "GPU", "problem", text, "the kernels need a Hopper GPU (sm_90)")
    if found.slug not in KNOWN:
        todo = f"no table of it ships: tune writes one below generated/{found.slug}/"
        return Check("machine", "GPU", "note", text, todo)
    return Check("machine", "GPU", "ok", text)


def _driver() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except (ImportError, OSError):
        return ""
    except pynvml.NVMLError:
        return ""


def _folder(subject: str, folder: Path, maker: str) -> Check:
    """About the room there; ``maker`` is the command that makes the folder."""
    there = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(there).free
    used = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    size = f"{used / 1e6:.1f} MB" if folder.exists() else "not there yet"
    text = f"{folder}: {size}, {free / 1e9:.1f} GB free"
    if not os.access(there, os.W_OK):
        return Check("machine", subject, "note", text, "this user may not write there")
    if free < LEAST_FREE_BYTES:
        return Check("machine", subject, "problem", text, "free some space before tuning")
    if not folder.exists():
        return Check("machine", subject, "note", text, f"{maker} makes it")
    return Check("machine", subject, "ok", text)


def _records(path: Path) -> Check:
    subject = f"records of {path.stem}"
    try:
        records = tuning_db.read(path)
        shape = load_shape(path.stem)
        kernels, stale, known = _count(shape, records)
    except MonomoeError as error:
        return Check("files", subject, "problem", str(error), tuning_db.MEND)
    tune = f"`monomoe-gen tune --model {shape.name}` on the GPU"
    unfinished = tuning_db.unfinished(path)
    if unfinished:
        todo = f"nothing: it is passed over, and {tune} removes it with the next record"
        return Check("files", subject, "note", f"{len(records)} records; {unfinished}", todo)
    if not records:
        return Check(
            "files", subject, "note", f"{path} holds no record", f"remove it, or {tune} fills it"
        )
    text = f"{len(records)} records of {kernels} kernels; {known} schedules known to tune"
    if stale:
        todo = f"{tune} measures them again"
        text += f"; {stale} kernels measured with older sources only"
        return Check("files", subject, "note", text, todo)
    return Check("files", subject, "ok", f"{text}; all of the present sources")


def _shape(path: Path) -> Shape:
    return load_shape(path.stem)  # a shipped one: its name has to be the file's


def _unreadable(path: Path, read: Callable[[Path], object]) -> Iterator[Check]:
    """Nothing for a file that is fine, or that is not there."""
    try:
        if path.exists():
            read(path)
    except MonomoeError as error:
        yield Check("files", path.name, "problem", str(error), "mend or remove the file")


def _count(shape: Shape, records: list[Record]) -> tuple[int, int, int]:
    """Kernels with records, those without one of the present sources, schedules known to `tune`."""
    plan = Plan(shape)
    ledger = Ledger(shape, plan.tokens, plan.token_tile, plan.routing, None)
    ledger.load(records)
    hashes: dict[KernelSpec, set[str]] = {}
    for r in records:
        spec = Variant.of(r).spec(shape, Schedule.from_dict(r.schedule), r.token_tile)
        hashes.setdefault(spec, set()).add(r.sources_hash)

    sources_hash = ledger.present.sources_hash
    stale = sum(sources_hash(spec) not in found for spec, found in hashes.items())
    known = sum(not ledger.missing(schedule) for schedule in ledger.schedules())
    return len(hashes), stale, known


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _few(wrong: list[str]) -> str:
    """The first findings, each without what follows its first line, and how many there are more."""
    shown = "; ".join(finding.partition("\n")[0] for finding in wrong[:_NAMED])
    more = len(wrong) - _NAMED
    return f"{shown}; and {more} more" if more > 0 else shown


def _table(device: Device) -> Iterator[Check]:
    folder = dispatch.table_folder(device.slug)
    if not (folder / dispatch.FILE).exists():
        todo = "`monomoe-gen emit` makes it from the measurements"
        status: Status = "problem" if any(folder.glob("*.cubin")) else "note"
        yield Check("files", "dispatch table", status, f"no {folder / dispatch.FILE}", todo)
        return
    try:
        table = dispatch.load(folder)
    except MonomoeError as error:
        yield Check("files", "dispatch table", "problem", str(error), "`monomoe-gen emit`")
        return
    wrong: list[str] = []
    for kernel in table.kernels:
        try:
            dispatch.read_cubin(folder, kernel)
            shape = load_shape(kernel.shape.name)
            source = render(replace(kernel.spec, shape=shape))
            if source.sources_hash != kernel.sources_hash:
                wrong.append(f"{kernel.id}: made from older sources")
            elif _text(folder / f"{kernel.id}.cu") != source.bundle():
                wrong.append(f"{kernel.id}.cu: missing, or not what the templates give")
        except MonomoeError as error:
            wrong.append(str(error))
    if _text(folder / c_header.FILE) != c_header.c_header(table):
        wrong.append(f"{c_header.FILE}: missing, or not what the table gives")
    wrong += [
        f"{path.name}: no kernel of the table has this file" for path in orphans(folder, table)
    ]
    models = len({entry.model for entry in table.entries})
    text = f"{len(table.entries)} entries of {models} models, {len(table.kernels)} kernels"
    if wrong:
        todo = "tune these models on the GPU, or `monomoe-gen emit` if their records are current"
        yield Check("files", "dispatch table", "problem", f"{text}; {_few(wrong)}", todo)
    else:
        yield Check("files", "dispatch table", "ok", f"{text}, all of the present sources")
