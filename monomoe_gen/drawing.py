"""A rehearsed launch as one SVG: all CTAs, then one of them stage by stage."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from monomoe_gen.rehearsal import Rehearsal, Stage

WIDTH, LEFT, RIGHT = 1280, 96, 24
ROW = 4  # pixels of a CTA
STEP, STEP_GAP = 7, 1  # of a stage
RING = 90  # height of the ring's panel
TITLE, SPACE = 22, 34

STYLE = """svg{background:#fff}text{font:12px system-ui,sans-serif;fill:#1f2937}
.t{font-size:15px;font-weight:600}.h{font-weight:600}.s{fill:#6b7280}.e{text-anchor:end}
.m{text-anchor:middle}.g{stroke:#e5e7eb}.limit{stroke:#c2410c;stroke-dasharray:4 3}
.fly{fill:#9333ea}.lie{fill:#cbd5e1}.h-wait{fill:#d97706}.mul{fill:#2563eb}
.ring{fill:#bfdbfe;stroke:#2563eb}.done{stroke:#059669}"""

LEGEND = (
    ("fly", "requested, on its way"),
    ("lie", "in the ring, waits its turn"),
    ("h-wait", "waits for h"),
    ("mul", "multiplied"),
)


def drawing_svg(rehearsal: Rehearsal, cta: int | None = None) -> str:
    """The drawing; `cta` is drawn stage by stage (default: the one that is done last).

    Raises:
        IndexError: the grid has no such CTA, or it has nothing to do.
    """
    if cta is None:
        cta = max(
            (c for c, stages in enumerate(rehearsal.ctas) if stages),
            key=lambda c: rehearsal.ctas[c][-1].done,
        )
    stages = rehearsal.ctas[cta]
    end = rehearsal.us * 1.01
    all_top = 84
    all_height = len(rehearsal.ctas) * ROW
    one_top = all_top + all_height + SPACE + TITLE
    one_height = len(stages) * (STEP + STEP_GAP)
    ring_top = one_top + one_height + SPACE + TITLE
    height = ring_top + RING + SPACE
    spec = rehearsal.spec
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(spec.id)}, {rehearsal.tokens} tokens</title><style>{STYLE}</style>",
        _text(LEFT, 24, f"{spec.shape.name}, {rehearsal.tokens} tokens: {spec.schedule.id}", "t"),
        _text(
            LEFT,
            44,
            f"A model, not a measurement. {rehearsal.active} active experts, "
            f"{rehearsal.us:.1f} µs from the first request to the last product.",
            "s",
        ),
        _text(LEFT, all_top - 10, "All CTAs: weights as they land, a colour an expert", "h"),
        *_axis(all_top, all_height, end),
        *_everyone(rehearsal, all_top, end),
        _text(LEFT, one_top - 10, f"CTA {cta}, a row a stage", "h"),
        *_legend(one_top - 10),
        *_axis(one_top, one_height, end),
        *_one(stages, one_top, end),
        _text(LEFT, ring_top - 10, f"CTA {cta}: bytes requested and not yet multiplied", "h"),
        *_axis(ring_top, RING, end),
        *_ring(rehearsal, cta, ring_top, end),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(time: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * time / end, 2)


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(text)}</text>'


def _box(start: float, stop: float, y: float, height: float, look: str, end: float) -> str:
    x = _x(start, end)
    return f'<rect x="{x}" y="{y}" width="{_x(stop, end) - x:.2f}" height="{height}" {look}'


def _axis(top: float, height: float, end: float) -> Iterator[str]:
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100, 1e9) if end / s <= 14)
    count = int(end / step)
    for i in range(count + 1):
        x = _x(i * step, end)
        yield f'<line x1="{x}" y1="{top}" x2="{x}" y2="{top + height}" class="g"/>'
        label = f"{i * step:g}" + (" µs" if i == count else "")
        yield _text(x, top + height + 14, label, "s m")


def _everyone(rehearsal: Rehearsal, top: float, end: float) -> Iterator[str]:
    active = rehearsal.active
    for cta, stages in enumerate(rehearsal.ctas):
        y = top + cta * ROW
        before = 0.0
        for stage in stages:
            start = max(before, stage.requested)
            before = stage.landed
            hue = round(360 * 0.618034 * stage.experts[0]) % 360
            light = 45 if stage.up else 72
            look = f'fill="hsl({hue} 60% {light}%)"'
            name = escape(f"CTA {cta}: {_name(stage)}, {start:.2f} to {stage.landed:.2f} µs")
            yield (
                _box(start, stage.landed, y, ROW - 0.5, look, end)
                + f"><title>{name}</title></rect>"
            )
        if cta % 16 == 0:
            yield _text(LEFT - 8, y + 6, f"CTA {cta}", "s e")
    for expert, time in enumerate(rehearsal.h_complete):
        x = _x(time, end)
        yield (
            f'<line x1="{x}" y1="{top - 5}" x2="{x}" y2="{top}" class="done">'
            f"<title>h of expert {expert + 1} of {active} is complete</title></line>"
        )
    yield _text(WIDTH - RIGHT, top - 10, "dark: up, light: down; ticks: h complete", "s e")


def _one(stages: tuple[Stage, ...], top: float, end: float) -> Iterator[str]:
    for i, stage in enumerate(stages):
        y = top + i * (STEP + STEP_GAP)
        spans = (
            ("fly", stage.requested, stage.landed),
            ("lie", stage.landed, stage.started - stage.waits),
            ("h-wait", stage.started - stage.waits, stage.started),
            ("mul", stage.started, stage.done),
        )
        for kind, start, stop in spans:
            if stop > start:
                name = escape(f"{_name(stage)}: {start:.2f} to {stop:.2f} µs")
                look = f'class="{kind}"'
                yield _box(start, stop, y, STEP, look, end) + f"><title>{name}</title></rect>"


def _legend(y: float) -> Iterator[str]:
    x = 420.0
    for kind, words in LEGEND:
        yield f'<rect x="{x}" y="{y - 9}" width="10" height="10" class="{kind}"/>'
        yield _text(x + 15, y, words, "s")
        x += 200


def _ring(rehearsal: Rehearsal, cta: int, top: float, end: float) -> Iterator[str]:
    limit = rehearsal.spec.geometry.ring_bytes
    scale = (RING - 10) / limit
    bottom = top + RING
    path, level = f"M{LEFT},{bottom}", float(bottom)
    for time, held in rehearsal.ring_bytes(cta):
        x, y = _x(time, end), round(bottom - held * scale, 2)
        path += f"L{x},{level}L{x},{y}"
        level = y
    yield f'<path d="{path}" class="ring"/>'
    y = bottom - limit * scale
    yield f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" class="limit"/>'
    yield _text(LEFT - 8, y + 4, f"{limit // 1024} KB", "s e")


def _name(stage: Stage) -> str:
    experts = " and ".join(str(e + 1) for e in stage.experts)
    return f"{'up' if stage.up else 'down'} {experts}/{stage.stripe}"
