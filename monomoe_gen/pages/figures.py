"""Numbers to plots. Every function returns a plotly figure as plain data (dicts and lists).

Colours are chosen for a light and a dark page alike; the page itself sets the colour of text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.pages.analysis import (
    PARAMETERS,
    ModelData,
    best_so_far,
    cross_regret,
    expected_best,
    pair_minimum,
    routing_times,
)

Figure = dict[str, Any]

KERNEL, FLOOR, MONOMOE, TRITON = "#178f78", "#8a8f98", "#dd7a33", "#9069cc"
SERIES = ("#178f78", "#3d84c6", "#dd7a33", "#9069cc", "#b5a327", "#c75080")
GOOD_TO_BAD = [[0, "#178f78"], [0.35, "#3d84c6"], [0.7, "#9069cc"], [1, "#d4627a"]]
GRID = "rgba(128,128,128,0.28)"
SHARED_FIELDS = ("ring", "x", "h", "partials")


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


def _figure(traces: Sequence[Figure], **layout: Any) -> Figure:
    """Validates the traces with plotly and returns plain data."""
    import plotly.graph_objects as go

    axes = {"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "automargin": True}
    for axis in [value for name, value in layout.items() if name[1:5] == "axis"]:
        axis["title"] = {"text": axis.get("title", ""), "font": {"size": 13}, "standoff": 12}
    common = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 28, "b": 8},
        "height": 340,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "xaxis": {**axes, **layout.pop("xaxis", {})},
        "yaxis": {**axes, **layout.pop("yaxis", {})},
        **layout,
    }
    figure = go.Figure(data=list(traces), layout=common)
    figure.layout.template = None
    plain: Figure = json.loads(figure.to_json())
    return plain


def ratios(models: Sequence[ModelData]) -> Figure:
    """Time over stream floor, all models."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": data.shape.name,
            "x": [str(row["tokens"]) for row in data.rows],
            "y": [row["ratio"] for row in data.rows],
            "line": {"color": color},
            "hovertemplate": "%{y:.3f} x the floor at B = %{x}",
        }
        for data, color in zip(models, SERIES, strict=False)
    ]
    return _figure(
        traces,
        xaxis={"title": "tokens", "type": "category"},
        yaxis={"title": "time / stream floor"},
    )


def speedups(models: Sequence[ModelData]) -> Figure:
    """How many times faster than the better published time, all models."""
    traces = [
        {
            "type": "bar",
            "name": data.shape.name,
            "x": [str(row["tokens"]) for row in data.rows],
            "y": [row["speedup"] for row in data.rows],
            "marker": {"color": color},
            "hovertemplate": "%{y:.2f} x at B = %{x}",
        }
        for data, color in zip(models, SERIES, strict=False)
    ]
    return _figure(
        traces,
        barmode="group",
        xaxis={"title": "tokens", "type": "category"},
        yaxis={"title": "times faster than the better one"},
    )


def times(data: ModelData) -> Figure:
    """Time, floor and competitors by token count."""
    series = (
        ("stream floor", "floor_us", FLOOR),
        ("this kernel", "time_us", KERNEL),
        ("published MonoMoE", "monomoe_us", MONOMOE),
        ("Triton grouped GEMM", "triton_us", TRITON),
    )
    return _figure(
        _bars(data, series, "%{y:.2f} µs"),
        barmode="group",
        xaxis={"title": "tokens", "type": "category"},
        yaxis={"title": "µs per launch"},
    )


def bandwidth(data: ModelData, read_tb_s: float | None) -> Figure:
    """Weight bytes per second by token count."""
    series = (("stream floor", "floor_tb_s", FLOOR), ("this kernel", "tb_s", KERNEL))
    traces = _bars(data, series, "%{y:.2f} TB/s")
    if read_tb_s:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"read bandwidth, {read_tb_s:.2f} TB/s",
                "x": [str(row["tokens"]) for row in data.rows],
                "y": [read_tb_s] * len(data.rows),
                "line": {"color": MONOMOE, "dash": "dot"},
                "hoverinfo": "skip",
            }
        )
    return _figure(
        traces,
        barmode="group",
        xaxis={"title": "tokens", "type": "category"},
        yaxis={"title": "TB/s", "rangemode": "tozero"},
    )


def _bars(
    data: ModelData, series: Sequence[tuple[str, str, str]], hover: str
) -> list[dict[str, Any]]:
    return [
        {
            "type": "bar",
            "name": name,
            "x": [str(row["tokens"]) for row in data.rows],
            "y": [row[key] for row in data.rows],
            "marker": {"color": color},
            "hovertemplate": hover,
        }
        for name, key, color in series
        if any(row[key] is not None for row in data.rows)
    ]


def parallel_coordinates(data: ModelData, tokens: int) -> Figure:
    """The seven parameters and the ratio of every screened schedule, one line each."""
    points = sorted(data.points[tokens], key=lambda p: -p.ratio)  # good lines are drawn last
    found = [p.ratio for p in points]
    dimensions: list[dict[str, Any]] = []
    for name in PARAMETERS:
        values = sorted({getattr(p.schedule, name) for p in points})
        place = {value: i for i, value in enumerate(values)}
        dimensions.append(
            {
                "label": name,
                "range": [-0.4, len(values) - 0.6],
                "tickvals": list(range(len(values))),
                "ticktext": [str(value) for value in values],
                # Lines of equal values are spread a little, evenly and always the same way.
                "values": [
                    round(place[getattr(p.schedule, name)] + (i * 0.618034 % 1 - 0.5) * 0.3, 3)
                    for i, p in enumerate(points)
                ],
            }
        )
    worst = _percentile(found, 0.9)
    label = "time / floor" if worst == max(found) else f"ratio, ≤ {worst:.2f}"
    dimensions.append({"label": label, "values": [round(min(r, worst), 4) for r in found]})
    trace = {
        "type": "parcoords",
        "dimensions": dimensions,
        "line": {
            "color": [round(r, 4) for r in found],
            "colorscale": GOOD_TO_BAD,
            "cmin": min(found),
            "cmax": worst,
        },
        "labelangle": 0,
    }
    return _figure([trace], height=420, margin={"l": 48, "r": 48, "t": 56, "b": 24})


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def pair_maps(data: ModelData, tokens: int) -> Figure:
    """The best ratio for every pair of values of every two parameters: a triangle of heat maps."""
    points = data.points[tokens]
    varied = [n for n in PARAMETERS if len({getattr(p.schedule, n) for p in points}) > 1]
    count = len(varied) - 1
    gap = 0.012
    size = (1 - gap * (count - 1)) / count if count > 0 else 1.0
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    for row in range(count):
        for column in range(row + 1):
            across, down = varied[column], varied[row + 1]
            least = pair_minimum(points, across, down)
            xs, ys = sorted({x for x, _ in least}), sorted({y for _, y in least})
            number = str(len(traces) + 1)
            left, bottom = column * (size + gap), 1 - (row + 1) * size - row * gap
            traces.append(
                {
                    "type": "heatmap",
                    "x": [str(x) for x in xs],
                    "y": [str(y) for y in ys],
                    "z": [[least.get((x, y)) for x in xs] for y in ys],
                    "coloraxis": "coloraxis",
                    "xaxis": f"x{number}",
                    "yaxis": f"y{number}",
                    "hovertemplate": f"{across} %{{x}}, {down} %{{y}}: %{{z:.3f}}<extra></extra>",
                }
            )
            last, first = row == count - 1, column == 0
            layout[f"xaxis{number}"] = {
                "domain": [left, left + size],
                "anchor": f"y{number}",
                "type": "category",
                "showgrid": False,
                "showticklabels": last,
                "title": across if last else "",
                "tickfont": {"size": 10},
                "tickangle": -60,
            }
            layout[f"yaxis{number}"] = {
                "domain": [max(0.0, bottom), bottom + size],
                "anchor": f"x{number}",
                "type": "category",
                "showgrid": False,
                "showticklabels": first,
                "title": down if first else "",
                "tickfont": {"size": 10},
            }
    found = [p.ratio for p in points]
    layout["coloraxis"] = {
        "colorscale": GOOD_TO_BAD,
        "cmin": min(found),
        "cmax": _percentile(found, 0.75),
        "colorbar": {
            "title": "time / floor",
            "x": 1,
            "xanchor": "right",
            "y": 1,
            "yanchor": "top",
            "len": 0.45,
            "thickness": 12,
        },
    }
    margin = {"l": 84, "r": 12, "t": 12, "b": 84}
    return _figure(traces, height=760, margin=margin, **layout)


def convergence(data: ModelData) -> Figure:
    """The best ratio to the floor after n schedules, in the order in which they were measured."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"shape": "hv", "color": color},
            "name": f"B = {tokens}",
            "x": list(range(1, len(points) + 1)),
            "y": [round(r, 4) for r in best_so_far(p.ratio for p in points)],
            "hovertemplate": "%{y:.3f} after %{x}",
        }
        for (tokens, points), color in zip(data.points.items(), SERIES, strict=False)
    ]
    return _figure(
        traces,
        xaxis={"title": "schedules measured", "type": "log"},
        yaxis={"title": "best time / floor so far"},
    )


def regret(data: ModelData, tokens: int) -> Figure:
    """How far the best of the first n schedules is from the best known, beside blind chance."""
    found = [p.time_us for p in data.points[tokens]]
    least, total = min(found), len(found)
    draws = sorted({round(total ** (i / 40)) for i in range(41)})
    chance = expected_best(found, draws)
    seen = best_so_far(found)
    series = (
        ("this search", list(range(1, total + 1)), seen, {"shape": "hv", "color": KERNEL}),
        ("random choice, mean", draws, chance, {"color": FLOOR, "dash": "dot"}),
    )
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": xs,
            "y": [round(100 * (y / least - 1), 4) for y in ys],
            "line": line,
            "hovertemplate": "%{y:.2f} % after %{x}",
        }
        for name, xs, ys, line in series
    ]
    return _figure(
        traces,
        xaxis={"title": "schedules measured", "type": "log"},
        yaxis={"title": "% slower than the best known", "rangemode": "tozero"},
    )


def elsewhere(data: ModelData) -> Figure:
    """What a schedule tuned for one token count costs at another."""
    matrix = cross_regret(data.points)
    labels = [str(tokens) for tokens in data.points]
    trace = {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "z": [[matrix.get((tuned, used)) for used in data.points] for tuned in data.points],
        "texttemplate": "%{z:.3f}",
        "colorscale": GOOD_TO_BAD,
        "zmin": 1,
        "zmax": max(1.05, *matrix.values()),
        "showscale": False,
        "hovertemplate": "tuned for %{y}, used for %{x}: %{z:.4f} x the best<extra></extra>",
        "textfont": {"color": "#ffffff"},
    }
    return _figure(
        [trace],
        xaxis={"title": "used for (tokens)", "type": "category"},
        yaxis={"title": "tuned for (tokens)", "type": "category", "autorange": "reversed"},
    )


def routings(data: ModelData) -> Figure | None:
    """Ratio to the floor under each routing pattern; None with one pattern only."""
    found = routing_times(data.records)
    names = sorted({routing for _, routing in found})
    if not names:
        return None
    tokens = sorted({count for count, _ in found})
    traces = []
    for name, color in zip(names, SERIES, strict=False):
        records = [found.get((count, name)) for count in tokens]
        ys = [
            r.time_us.median / r.floor_us if r and r.time_us and r.floor_us else None
            for r in records
        ]
        traces.append(
            {
                "type": "bar",
                "name": name,
                "x": [str(t) for t in tokens],
                "y": ys,
                "marker": {"color": color},
                "hovertemplate": "%{y:.3f}",
            }
        )
    return _figure(
        traces,
        barmode="group",
        xaxis={"title": "tokens", "type": "category"},
        yaxis={"title": "time / stream floor"},
    )


def rules(data: ModelData) -> Figure:
    """How many schedules each rule removes, in the order of the rules."""
    total, removed, left = data.space
    counts: Mapping[str, int] = {"enumerated": total, **removed, "feasible": left}
    shown = {name: count for name, count in counts.items() if count}
    colors = [FLOOR if n == "enumerated" else KERNEL if n == "feasible" else TRITON for n in shown]
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": [name.replace("_", " ") for name in shown],
        "x": list(shown.values()),
        "text": [f"{count:,}" for count in shown.values()],
        "textposition": "auto",
        "marker": {"color": colors},
        "hovertemplate": "%{x:,} schedules<extra></extra>",
    }
    return _figure(
        [trace],
        xaxis={"title": "schedules", "type": "log", "dtick": 1},
        yaxis={"autorange": "reversed"},
        showlegend=False,
    )


def shared_memory(data: ModelData, limit: int) -> Figure:
    """Shared memory by component of each token count's kernel."""
    fields = {t: data.geometry(record).shared_fields() for t, record in data.best.items()}
    labels = [f"B = {t}" for t in fields]
    groups = {name: [f[name] for f in fields.values()] for name in SHARED_FIELDS}
    groups["other"] = [
        sum(size for name, size in f.items() if name not in SHARED_FIELDS) for f in fields.values()
    ]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": labels,
            "x": [round(size / 1024, 1) for size in sizes],
            "marker": {"color": color},
            "hovertemplate": "%{x} KB",
        }
        for (name, sizes), color in zip(groups.items(), SERIES, strict=False)
    ]
    line = {
        "type": "line",
        "x0": limit / 1024,
        "x1": limit / 1024,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": MONOMOE, "dash": "dot"},
    }
    return _figure(
        traces,
        barmode="stack",
        shapes=[line],
        xaxis={"title": f"KB (dotted: the limit of a block, {limit / 1024:.0f} KB)"},
        yaxis={"autorange": "reversed"},
    )
