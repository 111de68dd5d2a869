"""Rows of an SVG that show what warps do over time: their roles are colours, waiting is pale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from monomoe_gen.trace import Kind, Role, WarpTrace

WIDTH = 1280
LEFT, RIGHT = 110, 24  # of the plot
ROW, GAP, ROLE_GAP = 8, 1, 4  # a row, between rows, between roles
LINE = 16  # a line of text
COLOURS = {
    Role.MMA: "#2563eb",
    Role.REQUANT: "#d97706",
    Role.EPILOGUE: "#059669",
    Role.PRODUCER: "#9333ea",
}
OPACITY = {Kind.WORKS: 1.0, Kind.BOTH: 0.55, Kind.WAITS: 0.2}
_STYLE = """text{font:12px system-ui,sans-serif;fill:#1f2937}
.h{font-weight:600}.t{font-size:15px;font-weight:600}.s{font-size:11px;fill:#6b7280}
.n{text-anchor:end;font-variant-numeric:tabular-nums}.m{text-anchor:middle}
.g{stroke:#e5e7eb}.r{stroke:#fff;stroke-width:.3}"""


@dataclass(frozen=True)
class Piece:
    """What goes on from ``start_us`` to ``end_us``."""

    name: str
    kind: Kind
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Row:
    """One line of pieces; ``who`` does it."""

    role: Role
    who: str
    pieces: tuple[Piece, ...]


def warp_rows(warps: Iterable[WarpTrace]) -> list[Row]:
    """The spans of traced warps, a row each."""
    return [
        Row(
            warp.role,
            f"warp {warp.warp}",
            tuple(Piece(s.name, s.kind, s.start_us, s.end.us) for s in warp.spans()),
        )
        for warp in warps
    ]


def height_of(rows: Sequence[Row]) -> int:
    """Pixels that `draw` takes for ``rows``."""
    return len(rows) * (ROW + GAP) + ROLE_GAP * len({row.role for row in rows})


def draw(rows: Sequence[Row], total_us: float, top: float) -> Iterator[str]:
    """The rows below ``top``. Rows of a role follow each other.

    All pieces of a row that have one name and kind are one path, which keeps files small.
    """
    scale = (WIDTH - LEFT - RIGHT) / total_us
    y, role = top, None
    for row in rows:
        if row.role != role:
            y += ROLE_GAP if role else 0
            role = row.role
            yield text(LEFT - 8, y + ROW, role.value, "n")
        paths: dict[tuple[str, Kind], list[str]] = {}
        for piece in row.pieces:
            start, end = (round(LEFT + us * scale, 1) for us in (piece.start_us, piece.end_us))
            width = max(round(end - start, 1), 0.1)
            box = f"M{start:g} {y:g}h{width:g}v{ROW}h-{width:g}z"
            paths.setdefault((piece.name, piece.kind), []).append(box)
        for (name, kind), boxes in paths.items():
            yield (
                f'<path class="r" fill="{COLOURS[role]}" fill-opacity="{OPACITY[kind]:g}" '
                f'd="{"".join(boxes)}"><title>{escape(f"{row.who}: {name}")}</title></path>'
            )
        y += ROW + GAP


def legend(y: float) -> Iterator[str]:
    """What colours and shades mean."""
    x = LEFT
    for role, colour in COLOURS.items():
        for kind in (Kind.WAITS, Kind.BOTH, Kind.WORKS):
            yield (
                f'<rect class="r" x="{x}" y="{y - 9:g}" width="14" height="10" fill="{colour}" '
                f'fill-opacity="{OPACITY[kind]:g}"/>'
            )
            x += 15
        yield text(x + 4, y, role.value)
        x += 40 + 7 * len(role.value)
    yield text(x, y, "pale: waits; medium: waits, then works; full: works", "s")


def axis(total_us: float, top: float, bottom: float) -> Iterator[str]:
    """Lines of time, and their labels below ``bottom``."""
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1e9) if total_us / s <= 14)
    scale = (WIDTH - LEFT - RIGHT) / total_us
    for i in range(int(total_us / step) + 1):
        x = LEFT + i * step * scale
        yield f'<line class="g" x1="{x:.1f}" y1="{top - 4:g}" x2="{x:.1f}" y2="{bottom:g}"/>'
        yield text(x, bottom + 12, f"{i * step:g}" + (" us" if i == 0 else ""), "s m")


def table_row(y: float, columns: Sequence[int], cells: Sequence[str], style: str) -> Iterator[str]:
    """Cells at their columns: the first two begin there, the others end there."""
    for i, (x, cell) in enumerate(zip(columns, cells, strict=True)):
        yield text(x, y, cell, style if i < 2 else f"{style} n")


def text(x: float, y: float, words: str, style: str = "") -> str:
    """Text that begins at ``x``, or ends or is centred there as ``style`` says."""
    style = f' class="{style.strip()}"' if style.strip() else ""
    return f'<text x="{x:.1f}" y="{y:g}"{style}>{escape(words)}</text>'


def document(body: Iterable[str], height: float) -> str:
    """A whole SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
        f'viewBox="0 0 {WIDTH} {height:g}">\n<style>{_STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height:g}" fill="#fff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )
