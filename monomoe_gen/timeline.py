"""A traced launch as one SVG: the warps of a few CTAs over time, and a table over all CTAs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from monomoe_gen.role_rows import (
    LEFT,
    LINE,
    axis,
    document,
    draw,
    height_of,
    legend,
    table_row,
    text,
    warp_rows,
)
from monomoe_gen.trace_file import Kept
from monomoe_gen.trace_summary import EventSummary, Spread

COLUMNS = (110, 190, 340, 410, 500, 570, 640, 740, 810, 880)  # the first two left, the others right


def timeline_svg(kept: Kept) -> str:
    """A self-contained SVG of the CTAs that are kept."""
    body: list[str] = [text(LEFT, 24, kept.title, "t")]
    y = 24
    for note in kept.facts:
        y += LINE
        body.append(text(LEFT, y, note, "s"))
    body += legend(y + 28)
    y += 60
    for cta, warps in kept.ctas.items():
        rows = warp_rows(warps)
        top = y + LINE
        bottom = top + height_of(rows)
        remark = kept.remarks[cta]
        body.append(text(LEFT, y + 8, f"CTA {cta}" + (f", {remark}" if remark else ""), "h"))
        body += axis(kept.us, top, bottom)
        body += draw(rows, kept.us, top)
        y = bottom + 2 * LINE + 8
    body += _table(kept.summary, y)
    return document(body, y + LINE * (len(kept.summary) + 4))


def _table(summary: Iterable[EventSummary], y: int) -> Iterator[str]:
    names = ("role", "event", "CTAs", "count", *("min", "median", "max") * 2)
    yield text(LEFT, y, "When events happen in a CTA for the first and the last time, us", "h")
    y += LINE
    yield text(COLUMNS[5], y, "first", "s n")
    yield text(COLUMNS[8], y, "last", "s n")
    y += LINE
    yield from table_row(y, COLUMNS, names, "s")
    for row in summary:
        y += LINE
        times = [f"{us:.2f}" for spread in (row.first, row.last) for us in _values(spread)]
        cells = (row.role.value, row.event.label, str(row.ctas), str(row.count), *times)
        yield from table_row(y, COLUMNS, cells, "")
    yield f'<line class="g" x1="{LEFT}" y1="{y + 6}" x2="{COLUMNS[-1]}" y2="{y + 6}"/>'


def _values(spread: Spread) -> tuple[float, float, float]:
    return spread.minimum, spread.median, spread.maximum
