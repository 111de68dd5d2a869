"""A traced launch as a small JSON file: every warp of a few CTAs, and a summary of all CTAs.

The trace for ui.perfetto.dev has every mark of every CTA and takes megabytes. This file has what a
drawing needs, so that it can be kept beside the sources and drawn again next to a model.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.files import write_atomically
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.strict import read_versioned
from monomoe_gen.trace import Event, Mark, Role, Trace, WarpTrace
from monomoe_gen.trace_format import Cta, File, Warp, spec_of
from monomoe_gen.trace_summary import EventSummary, Spread, summarize

FORMAT = 1
SUFFIX = ".trace.json"


@dataclass(frozen=True)
class Kept:
    """One launch as it is kept. Times are microseconds since the first CTA's start.

    ``us`` is the time of the last mark of all; ``title`` and ``facts`` say what was traced on what;
    ``remarks`` are of the CTAs in ``ctas``, each with its `WARPS` warps.
    """

    spec: KernelSpec
    tokens: int
    routing: str
    us: float
    title: str
    facts: tuple[str, ...]
    summary: tuple[EventSummary, ...]
    remarks: dict[int, str]
    ctas: dict[int, tuple[WarpTrace, ...]]

    def event(self, role: Role, event: Event) -> EventSummary | None:
        """When an event happened over all CTAs; None if it did in none."""
        rows = (row for row in self.summary if (row.role, row.event) == (role, event))
        return next(rows, None)

    @property
    def active(self) -> int | None:
        """Entries in the launch's list of active experts; None if the marks do not tell."""
        stored = self.event(Role.EPILOGUE, Event.UNIT_STORED)
        if stored is None:
            return None
        units, rest = divmod(stored.count, self.spec.schedule.g_up)
        return units if units and not rest else None


def keep(
    trace: Trace,
    spec: KernelSpec,
    tokens: int,
    routing: str,
    title: str,
    facts: tuple[str, ...],
) -> Kept:
    """What is kept of ``trace``: its typical CTAs."""
    remarks = trace.typical_ctas()
    return Kept(
        spec=spec,
        tokens=tokens,
        routing=routing,
        us=trace.us,
        title=title,
        facts=facts,
        summary=tuple(summarize(trace)),
        remarks=remarks,
        ctas={cta: trace.cta(cta) for cta in remarks},
    )


def write(path: Path, kept: Kept) -> None:
    """Writes a file that `read` reads; times are rounded to a nanosecond."""
    spec = kept.spec
    head = {
        "format": FORMAT,
        "shape": spec.shape.to_dict(),
        "schedule": spec.schedule.to_dict(),
        "token_tile": spec.token_tile,
        "layout": spec.layout,
        "tokens": kept.tokens,
        "routing": kept.routing,
        "us": _round(kept.us),
        "title": kept.title,
        "facts": list(kept.facts),
        "summary": [_row(row) for row in kept.summary],
    }
    ctas = [
        {
            "cta": cta,
            "remark": kept.remarks[cta],
            "warps": [asdict(_columns(warp)) for warp in warps],
        }
        for cta, warps in kept.ctas.items()
    ]
    lines = [f" {json.dumps(name)}: {_compact(value)}" for name, value in head.items()]
    each = ",\n".join(f"  {_compact(cta)}" for cta in ctas)
    text = "{\n" + ",\n".join(lines) + f',\n "ctas": [\n{each}\n ]\n}}\n'
    write_atomically(path, text.encode())


def read(path: Path) -> Kept:
    """The launch in a file.

    Raises:
        DatabaseError: no such file, another format, or what no traced launch leaves
            (`trace_format.spec_of`).
    """
    file = read_versioned(File, path, FORMAT)
    try:
        spec = spec_of(file)
    except MonomoeError as error:
        raise DatabaseError(path, 0, f"holds no trace: {error}") from None
    return Kept(
        spec=spec,
        tokens=file.tokens,
        routing=file.routing,
        us=file.us,
        title=file.title,
        facts=file.facts,
        summary=tuple(
            EventSummary(Role(r.role), Event[r.event.upper()], r.ctas, r.count, r.first, r.last)
            for r in file.summary
        ),
        remarks={cta.cta: cta.remark for cta in file.ctas},
        ctas={cta.cta: _warps(cta) for cta in file.ctas},
    )


def require_same(
    path: Path, kept: Kept, shape: Shape, tokens: int | None, schedule: Schedule | None
) -> None:
    """Refuses a trace of something else; None for ``tokens`` or ``schedule`` takes any.

    Raises:
        MonomoeError: which says what differs.
    """
    own = kept.spec.shape
    if own.name != shape.name:
        _refuse(path, f"model {shape.name}", own.name, f"give --model {own.name}")
    theirs = shape.to_dict()
    mine = own.to_dict()
    differ = sorted(n for n in {*mine, *theirs} - {"source"} if mine.get(n) != theirs.get(n))
    if differ:
        name = differ[0]
        _refuse(
            path,
            f"{shape.name} with {name} {theirs.get(name)}",
            f"{name} {mine.get(name)}",
            "the shape has changed since: trace it again",
        )
    if tokens is not None and tokens != kept.tokens:
        _refuse(path, f"{tokens} tokens", str(kept.tokens), f"give --tokens {kept.tokens}")
    if schedule is not None and schedule != kept.spec.schedule:
        found = kept.spec.schedule.id
        _refuse(path, f"schedule {schedule.id}", found, "leave --schedule away")


def _refuse(path: Path, asked: str, found: str, hint: str) -> None:
    raise MonomoeError(
        f"asked for {asked}, and {path} is a trace of {found}; {hint}, or record another with "
        "`monomoe-gen trace`"
    )


def _row(row: EventSummary) -> dict[str, object]:
    def spread(values: Spread) -> dict[str, float]:
        return {name: _round(value) for name, value in asdict(values).items()}

    return {
        "role": row.role.value,
        "event": row.event.name.lower(),
        "ctas": row.ctas,
        "count": row.count,
        "first": spread(row.first),
        "last": spread(row.last),
    }


def _columns(warp: WarpTrace) -> Warp:
    return Warp(
        events=tuple(int(mark.event) for mark in warp.marks),
        indices=tuple(mark.index for mark in warp.marks),
        us=tuple(_round(mark.us) for mark in warp.marks),
        full=warp.full,
    )


def _warps(cta: Cta) -> tuple[WarpTrace, ...]:
    return tuple(
        WarpTrace(
            cta.cta,
            number,
            tuple(
                Mark(Event(event), index, us)
                for event, index, us in zip(warp.events, warp.indices, warp.us, strict=True)
            ),
            warp.full,
        )
        for number, warp in enumerate(cta.warps)
    )


def _round(us: float) -> float:
    return round(us, 3)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
