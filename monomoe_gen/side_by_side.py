"""A traced launch and the cost model's idea of it on one time axis, CTA by CTA.

The model counts time from its first weight request, the trace from the first start of a CTA. Here
the model begins where the trace made its first request, so that the prologue, which the model does
not have, moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from monomoe_gen.cost import Estimate, estimate
from monomoe_gen.rehearsal import Rehearsal, rehearse
from monomoe_gen.role_rows import (
    LEFT,
    LINE,
    Piece,
    Row,
    axis,
    document,
    draw,
    height_of,
    legend,
    table_row,
    text,
    warp_rows,
)
from monomoe_gen.trace import Event, Kind, Role
from monomoe_gen.trace_file import Kept

_COLUMNS = (110, 400, 520, 640, 760)
_UNKNOWN = "-"


def side_by_side_svg(kept: Kept) -> str:
    """A self-contained SVG: for each kept CTA the model's rows, then the measured ones."""
    rehearsal = rehearse(kept.spec, kept.tokens, kept.active)
    shift = _first_request(kept)
    end = max(kept.us, shift + rehearsal.us) * 1.01
    active = kept.active
    experts = f"{rehearsal.active} active experts, " + (
        "as traced" if active is not None else "the mean of random routing"
    )
    body = [text(LEFT, 24, f"{kept.title}: the model and the trace", "t")]
    y = 24
    for note in (
        *kept.facts,
        f"model: {experts}; begins at the first weight request of the trace, {shift:.2f} us. It "
        "knows no routing, no quantization and no combination: those rows stay empty",
    ):
        y += LINE
        body.append(text(LEFT, y, note, "s"))
    body += legend(y + 28)
    y += 60
    for cta, warps in kept.ctas.items():
        remark = kept.remarks[cta]
        body.append(text(LEFT, y + 8, f"CTA {cta}" + (f", {remark}" if remark else ""), "h"))
        y += LINE
        for what, rows in (
            ("model", modelled_rows(rehearsal, cta, shift)),
            ("measured", warp_rows(warps)),
        ):
            body.append(text(LEFT, y + 8, what, "s"))
            top = y + LINE
            bottom = top + height_of(rows)
            body += axis(end, top, bottom)
            body += draw(rows, end, top)
            y = bottom + 2 * LINE
        y += 8
    rows_of_table = list(_table(kept, rehearsal, estimate(kept.spec, kept.tokens), shift))
    body.append(text(LEFT, y, "When, over all CTAs, us", "h"))
    y += LINE
    body += table_row(y, _COLUMNS, ("", "", "model", "measured", "difference"), "s")
    for cells in rows_of_table:
        y += LINE
        body += table_row(y, _COLUMNS, cells, "")
    return document(body, y + 2 * LINE)


def modelled_rows(rehearsal: Rehearsal, cta: int, shift: float) -> list[Row]:
    """What the model says of one CTA, a row a role, ``shift`` microseconds later.

    The MMA warps are one row, since all of them work on every stage.
    """
    requests: list[Piece] = []
    products: list[Piece] = []
    published: list[Piece] = []
    asked = done = shift
    for stage in rehearsal.ctas[cta]:
        requested, landed = stage.requested + shift, stage.landed + shift
        started, ended = stage.started + shift, stage.done + shift
        requests.append(Piece("wait for room, request weights", Kind.BOTH, asked, requested))
        h_wait = started - stage.waits
        products.append(Piece("wait for weights", Kind.WAITS, done, min(landed, h_wait)))
        if stage.waits > 0:
            products.append(Piece("wait for h", Kind.WAITS, h_wait, started))
        products.append(Piece("multiply", Kind.WORKS, started, ended))
        if stage.up and stage.part == rehearsal.spec.geometry.stages_per_unit_up - 1:
            stored = ended + rehearsal.publish_us
            published.append(Piece("publish h", Kind.WORKS, ended, stored))
        asked, done = requested, ended
    made = (
        (Role.MMA, products),
        (Role.REQUANT, list[Piece]()),
        (Role.EPILOGUE, published),
        (Role.PRODUCER, requests),
    )
    return [
        Row(role, "model", tuple(p for p in pieces if p.end_us > p.start_us))
        for role, pieces in made
    ]


def _first_request(kept: Kept) -> float:
    issued = kept.event(Role.PRODUCER, Event.ISSUED)
    return issued.first.minimum if issued else 0.0


def _table(
    kept: Kept, rehearsal: Rehearsal, expected: Estimate, shift: float
) -> Iterator[tuple[str, ...]]:
    working = [stages for stages in rehearsal.ctas if stages]
    full = kept.event(Role.MMA, Event.STAGE_FULL)
    stored = kept.event(Role.EPILOGUE, Event.UNIT_STORED)
    rounded = kept.event(Role.REQUANT, Event.REQUANTIZED)
    multiplied = kept.event(Role.MMA, Event.STAGE_DONE)
    last_up = max(s.done for stages in working for s in stages if s.up)
    rows: tuple[tuple[str, str, float, float | None], ...] = (
        (
            "weights have arrived",
            "first CTA",
            min(stages[0].landed for stages in working),
            full.first.minimum if full else None,
        ),
        (
            "h published",
            "last CTA",
            last_up + rehearsal.publish_us,
            stored.last.maximum if stored else None,
        ),
        (
            "h requantized",
            "last CTA",
            max(rehearsal.h_complete),
            rounded.last.maximum if rounded else None,
        ),
        (
            "last product",
            "last CTA",
            rehearsal.us,
            multiplied.last.maximum if multiplied else None,
        ),
        ("output stored", "last CTA", rehearsal.us + expected.finish_us, kept.us),
    )
    for what, which, model, measured in rows:
        at = model + shift
        yield (
            what,
            which,
            f"{at:.2f}",
            _UNKNOWN if measured is None else f"{measured:.2f}",
            _UNKNOWN if measured is None else f"{measured - at:+.2f}",
        )
