"""A traced launch as one SVG: the warps of a few CTAs over time, and a table over all CTAs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from monomoe_gen.trace import ROLE_WARPS, Kind, Role, Trace, WarpTrace
from monomoe_gen.trace_summary import Spread, summarize

WIDTH = 1280
LEFT, RIGHT = 110, 24  # of the plot
ROW, GAP, ROLE_GAP = 8, 1, 4  # a warp, between warps, between roles
LINE = 16  # a line of text
COLOURS = {
    Role.MMA: "#2563eb",
    Role.REQUANT: "#d97706",
    Role.EPILOGUE: "#059669",
    Role.PRODUCER: "#9333ea",
}
OPACITY = {Kind.WORKS: 1.0, Kind.BOTH: 0.55, Kind.WAITS: 0.2}
COLUMNS = (110, 190, 340, 410, 500, 570, 640, 740, 810, 880)  # the first two left, the others right
STYLE = """text{font:12px system-ui,sans-serif;fill:#1f2937}
.h{font-weight:600}.t{font-size:15px;font-weight:600}.s{font-size:11px;fill:#6b7280}
.n{text-anchor:end;font-variant-numeric:tabular-nums}.m{text-anchor:middle}
.g{stroke:#e5e7eb}.r{stroke:#fff;stroke-width:.3}"""


def timeline_svg(
    trace: Trace,
    title: str,
    notes: Sequence[str] = (),
    ctas: Mapping[int, str] | None = None,
) -> str:
    """A self-contained SVG.

    Args:
        title, notes: what was traced; printed on top.
        ctas: which CTAs to draw, each with a remark; by default `Trace.typical_ctas`.
    """
    chosen = trace.typical_ctas() if ctas is None else ctas
    body: list[str] = [_text(LEFT, 24, title, "t")]
    y = 24
    for note in notes:
        y += LINE
        body.append(_text(LEFT, y, note, "s"))
    body += _legend(y + 28)
    y += 60
    for cta, remark in chosen.items():
        top = y + LINE
        bottom = top + _group_height()
        note = f"CTA {cta}" + (f", {remark}" if remark else "")
        body.append(_text(LEFT, y + 8, note, "h"))
        body += _axis(trace.us, top, bottom)
        body += _group(trace.cta(cta), trace.us, top)
        y = bottom + 2 * LINE + 8
    rows = list(_table(trace, y))
    body += rows
    height = y + LINE * (len(summarize(trace)) + 4)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _legend(y: int) -> Iterator[str]:
    x = LEFT
    for role, colour in COLOURS.items():
        for kind in (Kind.WAITS, Kind.BOTH, Kind.WORKS):
            yield _rect(x, y - 9, 14, 10, colour, kind)
            x += 15
        yield _text(x + 4, y, role.value)
        x += 40 + 7 * len(role.value)
    yield _text(x, y, "pale: waits; medium: waits, then works; full: works", "s")


def _group_height() -> int:
    return sum(count * (ROW + GAP) + ROLE_GAP for count in ROLE_WARPS.values())


def _group(warps: Sequence[WarpTrace], total_us: float, top: int) -> Iterator[str]:
    y = top
    scale = (WIDTH - LEFT - RIGHT) / total_us
    role = None
    for warp in warps:
        if warp.role != role:
            y += ROLE_GAP if role else 0
            role = warp.role
            yield _text(LEFT - 8, y + ROW, role.value, "n")
        for span in warp.spans():
            tip = (
                f"warp {warp.warp}: {span.name} ({span.end.event.label} {span.end.index}), "
                f"{span.start_us:.2f} to {span.end.us:.2f} us"
            )
            yield _rect(
                LEFT + span.start_us * scale, y, span.us * scale, ROW, COLOURS[role], span.kind, tip
            )
        y += ROW + GAP


def _axis(total_us: float, top: int, bottom: int) -> Iterator[str]:
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1e9) if total_us / s <= 14)
    scale = (WIDTH - LEFT - RIGHT) / total_us
    for i in range(int(total_us / step) + 1):
        x = LEFT + i * step * scale
        yield f'<line class="g" x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{bottom}"/>'
        yield _text(x, bottom + 12, f"{i * step:g}" + (" us" if i == 0 else ""), "s m")


def _table(trace: Trace, y: int) -> Iterator[str]:
    names = ("role", "event", "CTAs", "count", *("min", "median", "max") * 2)
    yield _text(LEFT, y, "When events happen in a CTA for the first and the last time, us", "h")
    y += LINE
    yield _text(COLUMNS[5], y, "first", "s n")
    yield _text(COLUMNS[8], y, "last", "s n")
    y += LINE
    yield from _row(y, names, "s")
    for row in summarize(trace):
        y += LINE
        times = [f"{us:.2f}" for spread in (row.first, row.last) for us in _values(spread)]
        cells = (row.role.value, row.event.label, str(row.ctas), str(row.count), *times)
        yield from _row(y, cells, "")
    yield f'<line class="g" x1="{LEFT}" y1="{y + 6}" x2="{COLUMNS[-1]}" y2="{y + 6}"/>'


def _row(y: int, cells: Sequence[str], style: str) -> Iterator[str]:
    for i, (x, cell) in enumerate(zip(COLUMNS, cells, strict=True)):
        yield _text(x, y, cell, style if i < 2 else f"{style} n")


def _values(spread: Spread) -> tuple[float, float, float]:
    return spread.minimum, spread.median, spread.maximum


def _rect(
    x: float, y: float, width: float, height: float, colour: str, kind: Kind, tip: str = ""
) -> str:
    shape = (
        f'<rect class="r" x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{height:g}" '
        f'fill="{colour}" fill-opacity="{OPACITY[kind]:g}"'
    )
    return f"{shape}><title>{escape(tip)}</title></rect>" if tip else f"{shape}/>"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    style = f' class="{style.strip()}"' if style.strip() else ""
    return f'<text x="{x:.1f}" y="{y:g}"{style}>{escape(text)}</text>'
