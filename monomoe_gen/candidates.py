"""What a check compares: for each cell the kernel of now and, if there is one, of the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from monomoe_gen import dispatch, jobs, tuning_db
from monomoe_gen.compile import KernelBinary, compile_source
from monomoe_gen.device import Device
from monomoe_gen.dispatch import Entry, Table
from monomoe_gen.emit import origin_of
from monomoe_gen.errors import DatabaseError, MonomoeError, NoKernel
from monomoe_gen.placement import code_of, moved
from monomoe_gen.protocol import Image
from monomoe_gen.render import Source, render
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import Shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import USUAL
from monomoe_gen.verify import Rebuilt

RECORDED_ROUTING = "uniform"  # of the measurements that the table is made from


@dataclass(frozen=True, order=True)
class CellId:
    """What one verdict is about."""

    model: str
    tokens: int
    routing: str

    def __str__(self) -> str:
        return f"{self.model}, {self.tokens} tokens, {self.routing}"


@dataclass(frozen=True)
class Side:
    """A kernel that can be launched, and what it was made from."""

    spec: KernelSpec
    image: Image
    sources_hash: str
    compiler: str


@dataclass(frozen=True)
class Recorded:
    """What the table remembers: time / stream floor, and the SM clock in MHz if it was read."""

    ratio: float
    clock_mhz: float | None


Method = Literal["paired", "floor", "same", "none"]
"""How a cell is judged: candidate against baseline; time / stream floor against the recorded ratio,
where there is no other binary to compare with; not at all, since nothing changed; or not at all,
since nothing is known."""


@dataclass(frozen=True)
class Pair:
    """One cell with its candidate, and what that is compared with."""

    cell: CellId
    candidate: Side
    baseline: Side | None
    recorded: Recorded | None
    method: Method

    @property
    def unchanged(self) -> bool:
        """Whether the candidate is the baseline's own binary."""
        return self.baseline is not None and self.baseline.image == self.candidate.image


def select(
    table: Table, models: Sequence[str], tokens: Sequence[int]
) -> dict[str, dict[int, dispatch.Match]]:
    """The kernel for each model and token count to compare.

    ``models`` and ``tokens``: none means every one that the table was tuned for with the usual
    kernels, which are all that is compared.

    Raises:
        NoKernel: the table has nothing for a model that is named, or for a token count.
    """
    tuned: dict[str, list[int]] = {}
    for entry in table.entries:
        if entry.variant == USUAL:
            tuned.setdefault(entry.model, []).append(entry.tuned_at)
    return {
        model: {
            count: dispatch.lookup(table, model, count)
            for count in tokens or tuned.get(model) or (1,)
        }
        for model in dict.fromkeys(models) or sorted(tuned)
    }


def make_pairs(
    table: Table,
    rebuilt: Iterable[Rebuilt],
    baseline: Path,
    models: Sequence[str],
    tokens: Sequence[int],
    routings: Sequence[str],
    database: Path | None = None,
) -> tuple[list[Pair], dict[CellId, str]]:
    """The pairs of all cells, and the cells whose kernel does not compile, with the reason.

    ``models`` and ``tokens`` are as `select` takes them. ``baseline`` is the folder of a table;
    what it lacks, or holds damaged, is no baseline, nor is anything of an older format. A database
    that cannot be read tells no clock.

    Raises:
        NoKernel: the table has nothing for a model and token count.
        DatabaseError: the table of the baseline cannot be read.
    """
    kernels = {r.kernel.id: r for r in rebuilt}
    before, _ = dispatch.load_baseline(baseline, table.device)
    pairs: list[Pair] = []
    failed: dict[CellId, str] = {}
    for model, matches in select(table, models, tokens).items():
        records: list[Record] = []
        with suppress(DatabaseError):
            records = tuning_db.read(tuning_db.database_path(table.device.slug, model, database))
        for count, match in matches.items():
            found = kernels[match.kernel.id]
            assert found.source.spec, "only operator kernels are dispatched"
            old = _baseline_side(before, baseline, found.source.spec.shape, count)
            recorded = _recorded(match.entry, records) if match.how == "exact" else None
            for routing in routings:
                cell = CellId(model, count, routing)
                if not isinstance(found.outcome, KernelBinary):
                    failed[cell] = str(found.outcome)
                    continue
                new = _side(found.source, found.outcome)
                usable = recorded if routing == RECORDED_ROUTING else None
                pairs.append(Pair(cell, new, old, usable, _method(new, old, usable)))
    return pairs, failed


def compiled(source: Source, device: Device) -> Side:
    """An operator kernel, compiled now.

    Raises:
        CompileError: it does not compile.
    """
    return _side(source, compile_source(source, device.arch))


def a_a_pairs(pairs: Sequence[Pair], device: Device) -> tuple[list[Pair], list[Pair]]:
    """Each candidate against itself, and against the same instructions placed elsewhere.

    Raises:
        CompileError: a moved kernel does not compile.
        MonomoeError: its instructions are others than those of the kernel.
    """
    kernels = {pair.candidate.sources_hash: pair.candidate for pair in pairs}
    copies = {key: _moved(side, device) for key, side in kernels.items()}
    identical = [replace(p, baseline=p.candidate, method="paired") for p in pairs]
    placed = [replace(p, baseline=copies[p.candidate.sources_hash], method="paired") for p in pairs]
    return identical, placed


def _method(new: Side, old: Side | None, recorded: Recorded | None) -> Method:
    if old and old.image != new.image:
        return "paired"
    if recorded:
        return "floor"
    return "same" if old else "none"


def _moved(side: Side, device: Device) -> Side:
    source = moved(render(side.spec))
    copy = compiled(source, device)
    name = side.image.name
    if code_of(copy.image.cubin, name) != code_of(side.image.cubin, name):
        raise MonomoeError(f"{name}: {copy.compiler} compiles it otherwise beside other kernels")
    return copy


def _side(source: Source, binary: KernelBinary) -> Side:
    assert source.spec, "only operator kernels are compared"
    image = jobs.image(binary, source.spec)
    return Side(source.spec, image, binary.sources_hash, binary.compiler)


def _baseline_side(table: Table, folder: Path, shape: Shape, tokens: int) -> Side | None:
    """The kernel of ``table``, unless it is of another problem than ``shape``."""
    try:
        kernel = dispatch.lookup(table, shape.name, tokens).kernel
        cubin = dispatch.read_cubin(folder, kernel)
    except (NoKernel, DatabaseError):
        return None
    if replace(kernel.shape, source=shape.source) != shape:
        return None
    spec = replace(kernel.spec, shape=shape)
    image = jobs.dispatched_image(kernel, cubin)
    return Side(spec, image, kernel.sources_hash, kernel.compiler)


def _recorded(entry: Entry, records: Sequence[Record]) -> Recorded | None:
    if entry.floor_us is None:
        return None
    clocks = [
        record.env.get("sm_clock_mhz")
        for record in records
        if record.tokens == entry.tuned_at and origin_of(record) == entry.record
    ]
    clock = clocks[0] if clocks and isinstance(clocks[0], int | float) else None
    return Recorded(entry.time_us / entry.floor_us, clock)
