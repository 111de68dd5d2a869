"""Plots of the search: the space, how fast the best was found, what the rules remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monomoe_gen.cost import estimate
from monomoe_gen.pages.analysis import (
    PARAMETERS,
    ModelData,
    best_so_far,
    cross_regret,
    expected_best,
    pair_minimum,
)
from monomoe_gen.pages.plot import FLOOR, GOOD_TO_BAD, KERNEL, TRITON, Figure, figure, line, symbol
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.search_study import Study


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
    return figure([trace], height=420, margin={"l": 48, "r": 48, "t": 56, "b": 24})


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
    return figure(traces, height=760, margin=margin, **layout)


def convergence(data: ModelData) -> Figure:
    """The best ratio to the floor after n schedules, in the order in which they were measured."""
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"shape": "hv", **line(i)},
            "name": f"B = {tokens}",
            "x": list(range(1, len(points) + 1)),
            "y": [round(r, 4) for r in best_so_far(p.ratio for p in points)],
            "hovertemplate": "%{y:.3f} after %{x}",
        }
        for i, (tokens, points) in enumerate(data.points.items())
    ]
    return figure(
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
            "line": style,
            "hovertemplate": "%{y:.2f} % after %{x}",
        }
        for name, xs, ys, style in series
    ]
    return figure(
        traces,
        xaxis={"title": "schedules measured", "type": "log"},
        yaxis={"title": "% slower than the best known", "rangemode": "tozero"},
    )


def sampler_regret(study: Study, start: str) -> Figure:
    """The mean regret of each sampler after n trials, begun with ``start``."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": curve.sampler,
            "x": list(study.trials),
            "y": [round(100 * r, 3) for r in curve.mean],
            "line": line(i),
            "marker": symbol(i),
            "hovertemplate": "%{y:.2f} % after %{x}",
        }
        for i, curve in enumerate(c for c in study.curves if c.start == start)
    ]
    return figure(
        traces,
        xaxis={"title": "schedules measured", "type": "log"},
        yaxis={"title": "% slower than the best recorded", "rangemode": "tozero"},
    )


def predictions(data: ModelData, tokens: int) -> Figure:
    """What the cost model predicts, over what was measured, for every screened schedule."""
    points = data.points[tokens]
    measured = [round(p.time_us, 3) for p in points]
    predicted = [round(estimate(KernelSpec(data.shape, p.schedule), tokens).us, 3) for p in points]
    ends = [min(measured), max(measured)]
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "schedules",
            "x": measured,
            "y": predicted,
            "text": [p.schedule.id for p in points],
            "marker": {"color": KERNEL, "size": 5, "opacity": 0.6},
            "hovertemplate": "%{text}: %{x} measured, %{y} predicted<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "equal",
            "x": ends,
            "y": ends,
            "line": {"color": FLOOR, "dash": "dot"},
            "hoverinfo": "skip",
        },
    ]
    return figure(
        traces,
        xaxis={"title": "measured, µs", "type": "log"},
        yaxis={"title": "predicted, µs", "type": "log"},
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
    return figure(
        [trace],
        xaxis={"title": "used for (tokens)", "type": "category"},
        yaxis={"title": "tuned for (tokens)", "type": "category", "autorange": "reversed"},
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
    return figure(
        [trace],
        xaxis={"title": "schedules", "type": "log", "dtick": 1},
        yaxis={"autorange": "reversed"},
        showlegend=False,
    )
