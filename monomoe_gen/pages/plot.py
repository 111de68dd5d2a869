"""What all plots share: colours, axes, and the plotting library itself.

A plot is plain data (dicts and lists) that plotly has validated. Colours are chosen for a light and
a dark page alike; the page itself sets the colour of text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from monomoe_gen.errors import EnvironmentProblem

Figure = dict[str, Any]

KERNEL, FLOOR, MONOMOE, TRITON = "#178f78", "#8a8f98", "#dd7a33", "#9069cc"
_COLORS = ("#178f78", "#3d84c6", "#dd7a33", "#9069cc", "#b5a327", "#c75080")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star")
_PATTERNS = ("", "/", ".", "-", "x", "|", "+", "\\")
GOOD_TO_BAD = [[0, "#178f78"], [0.35, "#3d84c6"], [0.7, "#9069cc"], [1, "#d4627a"]]
GRID = "rgba(128,128,128,0.28)"
_HEIGHT, _LEGEND_ROW = 340, 20  # pixels


def plotly_script() -> str:
    """The library's JavaScript, to be put into the page."""
    return str(_plotly().offline.get_plotlyjs())


def _plotly() -> Any:
    try:
        import plotly
        import plotly.offline
    except ImportError:
        raise EnvironmentProblem(
            "the report needs plotly, which is not installed: install the extra [report], for "
            "instance with `pip install 'monomoe-gen[report]'`"
        ) from None
    return plotly


def line(i: int) -> Figure:
    """The line of series `i`: the colours in turn, then again with another dash."""
    return {"color": _COLORS[i % len(_COLORS)], "dash": _DASHES[i // len(_COLORS) % len(_DASHES)]}


def symbol(i: int) -> Figure:
    """The markers on `line`; the two together are distinct for the first 210 series."""
    return {"symbol": _SYMBOLS[i // len(_COLORS) % len(_SYMBOLS)], "size": 7}


def fill(i: int) -> Figure:
    """The bars of series `i`, distinct for the first 48: the colours in turn, then hatched."""
    shape = _PATTERNS[i // len(_COLORS) % len(_PATTERNS)]
    return {"color": _COLORS[i % len(_COLORS)], "pattern": {"shape": shape, "size": 6}}


def legend_height(names: int) -> int:
    """Pixels for a figure whose legend has a row for each name, as on a narrow window.

    A legend that takes more than half of its figure's height would scroll.
    """
    return max(_HEIGHT, 2 * _LEGEND_ROW * (names + 1))


def figure(traces: Sequence[Figure], **layout: Any) -> Figure:
    """Validates the traces with plotly and returns plain data."""
    import plotly.graph_objects as go

    axes = {"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "automargin": True}
    for axis in [value for name, value in layout.items() if name[1:5] == "axis"]:
        axis["title"] = {"text": axis.get("title", ""), "font": {"size": 13}, "standoff": 12}
    common = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 28, "b": 8},
        "height": _HEIGHT,
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
        },
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "xaxis": {**axes, **layout.pop("xaxis", {})},
        "yaxis": {**axes, **layout.pop("yaxis", {})},
        **layout,
    }
    checked = go.Figure(data=list(traces), layout=common)
    checked.layout.template = None
    plain: Figure = json.loads(checked.to_json())
    return plain
