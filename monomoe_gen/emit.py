"""From measurements to ``generated/<gpu>/``: choose, compile, write. `verify` is the check of it.

Replaying the same database leaves the folder byte for byte as it is, whatever NVRTC is installed:
a cubin whose sources are unchanged is kept, and another compiler than the recorded one only checks
that the kernel still compiles.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from monomoe_gen import c_header, dispatch, tuning_db
from monomoe_gen.compile import KernelBinary, compile_all
from monomoe_gen.device import Device
from monomoe_gen.dispatch import Entry, Kernel, Origin, Table
from monomoe_gen.errors import DatabaseError, MonomoeError, OlderFormat
from monomoe_gen.files import write_atomically
from monomoe_gen.objective import DEFAULT
from monomoe_gen.render import Source, render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import USUAL, Variant
from monomoe_gen.winner import Winner, winners

Done = Callable[[str], object]
"""Called with the id of each kernel as it has been compiled."""


@dataclass(frozen=True)
class Emission:
    """The new table, the names of the files that changed, and remarks for the person who waits."""

    table: Table
    written: tuple[str, ...]
    removed: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Choice:
    """The record that decided one (model, variant, tokens), and the sources it speaks for."""

    model: str
    winner: Winner
    source: Source

    @property
    def record(self) -> Record:
        return self.winner.record

    @property
    def kernel_id(self) -> str:
        return _spec(self.source).id


def emit(
    device: Device,
    models: Sequence[str] | None = None,
    *,
    database: Path | None = None,
    folder: Path | None = None,
    weights: Mapping[str, float] = MappingProxyType({}),
    done: Done = lambda kernel_id: None,
) -> Emission:
    """Writes the winning kernels (see `winner`), and the table of them.

    There is one for each model, variant and token count that is recorded.

    `models` are names of shapes, by default all that have records of `device`; entries of other
    models stay. So do entries whose records speak of older sources: they are named in the notes.
    A folder that has lost its table, or has one of an older format, is rebuilt for every recorded
    model. One emission at a time works in a folder; another one waits.
    `weights` of routings make their mixture decide (see `winners`), by default those of
    `objective.DEFAULT`.
    `database` and `folder` default to ``tuning_db`` and ``generated/<gpu>`` of `paths.home`.

    Raises:
        MonomoeError: there is nothing to dispatch.
        CompileError: a chosen kernel does not compile here.
        EnvironmentProblem: no usable NVRTC.
    """
    folder = folder or dispatch.writable_folder(device.slug)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _alone_in(folder):
            return _emit(device, models, database, folder, weights or DEFAULT.routings, done)
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()


def _emit(
    device: Device,
    models: Sequence[str] | None,
    database: Path | None,
    folder: Path,
    weights: Mapping[str, float],
    done: Done,
) -> Emission:
    notes: list[str] = []
    present = _present_table(folder, notes)
    old = present or Table(device, (), ())
    if present is None and models and orphans(folder, old):
        models = None  # the kernels of other models would be taken for orphans
    choices: list[_Choice] = []
    for model in models or _recorded_models(device, database):
        choices += _choose(device, model, database, weights, notes)
    chosen = {_entry(choice).key for choice in choices}
    kept = [e for e in old.entries if e.key not in chosen]
    if not choices and not kept:
        raise MonomoeError(
            f"nothing to dispatch on {device.slug}: no record of a kernel of the present sources "
            "that worked; run `monomoe-gen tune`"
        )

    by_id: dict[str, list[_Choice]] = {}
    for choice in choices:
        by_id.setdefault(choice.kernel_id, []).append(choice)
    sources = [group[0].source for group in by_id.values()]
    files: dict[str, bytes] = {}
    kernels = [old.kernel(entry) for entry in kept]
    for group, binary in zip(by_id.values(), _compile(sources, device, done), strict=True):
        kernel, cubin = _settle(group, binary, old, folder, notes)
        kernels.append(kernel)
        files[f"{kernel.id}.cu"] = group[0].source.bundle().encode()
        files[f"{kernel.id}.cubin"] = cubin
    table = Table(
        device,
        tuple({kernel.id: kernel for kernel in kernels}.values()),
        (*kept, *(_entry(choice) for choice in choices)),
    )
    files[dispatch.FILE] = dispatch.dump(table).encode()
    files[c_header.FILE] = c_header.c_header(table).encode()
    written = tuple(name for name, data in files.items() if _replace(folder / name, data))
    removed = tuple(path.name for path in orphans(folder, table))
    for name in removed:
        (folder / name).unlink()
    return Emission(dispatch.load(folder), written, removed, tuple(notes))


def _present_table(folder: Path, notes: list[str]) -> Table | None:
    """The table of the folder; one that an older version wrote is as good as none."""
    if not (folder / dispatch.FILE).exists():
        return None
    try:
        return dispatch.load(folder)
    except OlderFormat:
        notes.append(f"{dispatch.FILE} was of an older format: made anew from the records alone")
        return None


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; it goes with the process, whatever ends it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _recorded_models(device: Device, database: Path | None) -> list[str]:
    folder = tuning_db.database_path(device.slug, "any", database).parent
    return sorted(path.stem for path in folder.glob("*.jsonl"))


def _choose(
    device: Device,
    model: str,
    database: Path | None,
    weights: Mapping[str, float],
    notes: list[str],
) -> Iterator[_Choice]:
    """The winners of each variant among the records that speak of the present sources."""
    shape = load_shape(model)
    records = tuning_db.read(tuning_db.database_path(device.slug, model, database))
    sources: dict[KernelSpec, Source] = {}

    def source_of(record: Record) -> Source:
        schedule = Schedule.from_dict(record.schedule)
        spec = Variant.of(record).spec(shape, schedule, record.token_tile)
        if spec not in sources:
            sources[spec] = render(spec)
        return sources[spec]

    timed: dict[Variant, set[int]] = {}
    for record in tuning_db.latest_of(records):
        if record.time_us:
            timed.setdefault(Variant.of(record), set()).add(record.tokens)

    for variant, counts in sorted(timed.items()):
        best = winners(
            records,
            valid=lambda record: record.sources_hash == source_of(record).sources_hash,
            variant=variant,
            weights=weights,
        )
        which = "" if variant == USUAL else f", {variant}"
        for tokens, winner in best.items():
            faster = winner.overlooked
            if faster and faster.time_us:
                notes.append(
                    f"{model}, {tokens} tokens{which}: {Schedule.from_dict(faster.schedule).id} "
                    f"took {faster.time_us.median:.2f} us in finals under uniform routing, less "
                    f"than the winner, but was not timed under {', '.join(weights)}, which decide; "
                    f"run `monomoe-gen tune --model {model}{variant.options}` on the GPU"
                )
        for tokens in sorted(counts - set(best)):
            notes.append(
                f"{model}, {tokens} tokens{which}: every record is of older sources, so nothing is "
                f"chosen anew; run `monomoe-gen tune{variant.options}` on the GPU"
            )
        for winner in best.values():
            yield _Choice(model, winner, source_of(winner.record))


def _compile(sources: Sequence[Source], device: Device, done: Done) -> list[KernelBinary]:
    return compile_all(sources, lambda i, _: done(_spec(sources[i]).id), arch=device.arch)


def _settle(
    choices: Sequence[_Choice], binary: KernelBinary, old: Table, folder: Path, notes: list[str]
) -> tuple[Kernel, bytes]:
    """The kernel to list and its cubin: the present one, unless only the new one was timed."""
    spec = _spec(choices[0].source)
    measured = {c.record.binary.text_hash for c in choices if c.record.binary}
    present = _present(spec, binary.sources_hash, old, folder)
    if present:
        kernel, cubin = present
        if kernel.cubin_sha256 in measured or binary.text_hash not in measured:
            if kernel.compiler != binary.compiler:
                notes.append(
                    f"{spec.id}: kept as compiled by {kernel.compiler}; {binary.compiler} only "
                    "checked that it compiles"
                )
            half = spec.geometry.workspace_half_bytes
            same = dataclasses.replace(kernel, shape=spec.shape, workspace_half_bytes=half)
            return same, cubin
    if binary.text_hash not in measured:
        timed = _timed(choices, binary, folder)
        if timed:
            return timed
        compilers = " and ".join(sorted({c.record.compiler for c in choices}))
        notes.append(
            f"{spec.id}: compiled by {binary.compiler}, but the recorded time is of a binary by "
            f"{compilers}"
        )
    return _kernel(spec, binary), binary.cubin


def _timed(
    choices: Sequence[_Choice], binary: KernelBinary, folder: Path
) -> tuple[Kernel, bytes] | None:
    """The cubin in the folder, if it is the binary that a record timed: no table has to say so."""
    spec = _spec(choices[0].source)
    path = folder / f"{spec.id}.cubin"
    data = path.read_bytes() if path.exists() else b""
    digest = hashlib.sha256(data).hexdigest()
    for record in (choice.record for choice in choices):
        if record.binary and record.binary.text_hash == digest:
            kernel = dataclasses.replace(
                _kernel(spec, binary),
                registers=record.binary.registers,
                compiler=record.compiler,
                cubin_sha256=digest,
            )
            return kernel, data
    return None


def _present(
    spec: KernelSpec, sources_hash: str, old: Table, folder: Path
) -> tuple[Kernel, bytes] | None:
    """The kernel of the present table and its cubin, if both are whole and of these sources."""
    for kernel in old.kernels:
        if kernel.id == spec.id and kernel.sources_hash == sources_hash:
            try:
                return kernel, dispatch.read_cubin(folder, kernel)
            except DatabaseError:
                return None
    return None


def _kernel(spec: KernelSpec, binary: KernelBinary) -> Kernel:
    return Kernel(
        id=spec.id,
        kernel_name=binary.kernel_name,
        shape=spec.shape,
        schedule=spec.schedule,
        token_tile=spec.token_tile,
        threads=binary.threads,
        shared_bytes=binary.shared_bytes,
        workspace_half_bytes=spec.geometry.workspace_half_bytes,
        registers=binary.registers,
        sources_hash=binary.sources_hash,
        compiler=binary.compiler,
        cubin_sha256=binary.text_hash,
        layout=spec.layout,
        router=spec.router,
        pdl=spec.pdl,
    )


def _entry(choice: _Choice) -> Entry:
    record = choice.winner.carried
    assert record.time_us, "winners are timed"
    return Entry(
        model=choice.model,
        tuned_at=record.tokens,
        capacity=record.token_tile,
        kernel=choice.kernel_id,
        time_us=record.time_us.median,
        floor_us=record.floor_us,
        record=origin_of(record),
        layout=record.layout,
        router=record.router,
        pdl=record.pdl,
        low_us=choice.winner.low_us,
        high_us=choice.winner.high_us,
        ties=choice.winner.ties,
    )


def origin_of(record: Record) -> Origin:
    """How an entry refers to its record."""
    text_hash = record.binary.text_hash if record.binary else ""
    return Origin(record.at, record.compiler, text_hash, record.stage)


def _spec(source: Source) -> KernelSpec:
    assert source.spec, "only operator kernels are dispatched"
    return source.spec


def orphans(folder: Path, table: Table) -> list[Path]:
    """Sources and cubins that no kernel of the table has."""
    known = {kernel.id for kernel in table.kernels}
    files = [*folder.glob("*.cu"), *folder.glob("*.cubin")]
    return sorted(path for path in files if path.stem not in known)


def _replace(path: Path, data: bytes) -> bool:
    """Writes the file unless it is already so; whether it was written."""
    if path.exists() and path.read_bytes() == data:
        return False
    write_atomically(path, data)
    return True
