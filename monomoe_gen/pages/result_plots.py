"""Plots of results: times, bandwidth, routing, shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monomoe_gen.pages.analysis import ModelData, routing_times
from monomoe_gen.pages.plot import (
    FLOOR,
    KERNEL,
    MONOMOE,
    TRITON,
    Figure,
    figure,
    fill,
    legend_height,
    line,
    symbol,
)

FAR = 2.5  # times the stream floor at the least: such a model would squeeze all others
SHARED_FIELDS = ("ring", "x", "h", "partials")


def far(models: Sequence[ModelData]) -> dict[str, float]:
    """The least ratio of the models that `ratios` leaves out; none if it would leave out all."""
    least = {
        data.shape.name: min(known)
        for data in models
        if (known := [row["ratio"] for row in data.rows if row["ratio"]])
    }
    found = {name: ratio for name, ratio in least.items() if ratio > FAR}
    return {} if len(found) == len(least) else found


def ratios(models: Sequence[ModelData]) -> Figure:
    """Time over stream floor, all models but those `far` from it."""
    left_out = far(models)
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": data.shape.name,
            "x": [str(row["tokens"]) for row in data.rows],
            "y": [row["ratio"] for row in data.rows],
            "line": line(i),
            "marker": symbol(i),
            "hovertemplate": "%{y:.3f} x the floor at B = %{x}",
        }
        for i, data in enumerate(models)
        if data.shape.name not in left_out
    ]
    return figure(
        traces,
        height=legend_height(len(traces)),
        xaxis={"title": "tokens", "type": "category"},
        yaxis={"title": "time / stream floor"},
    )


def speedups(models: Sequence[ModelData]) -> Figure | None:
    """How many times faster than the better published time; None if no model has one."""
    published = [m for m in models if any(row["speedup"] is not None for row in m.rows)]
    if not published:
        return None
    traces = [
        {
            "type": "bar",
            "name": data.shape.name,
            "x": [str(row["tokens"]) for row in data.rows],
            "y": [row["speedup"] for row in data.rows],
            "marker": fill(i),
            "hovertemplate": "%{y:.2f} x at B = %{x}",
        }
        for i, data in enumerate(published)
    ]
    return figure(
        traces,
        barmode="group",
        height=legend_height(len(traces)),
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
    return figure(
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
    return figure(
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


def routings(data: ModelData) -> Figure | None:
    """Ratio to the floor under each routing pattern; None with one pattern only."""
    found = routing_times(data)
    names = sorted({routing for _, routing in found})
    if not names:
        return None
    tokens = sorted({count for count, _ in found})
    traces = []
    for i, name in enumerate(names):
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
                "marker": fill(i),
                "hovertemplate": "%{y:.3f}",
            }
        )
    return figure(
        traces,
        barmode="group",
        xaxis={"title": "tokens", "type": "category"},
        yaxis={"title": "time / stream floor"},
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
            "marker": fill(i),
            "hovertemplate": "%{x} KB",
        }
        for i, (name, sizes) in enumerate(groups.items())
    ]
    limit_line = {
        "type": "line",
        "x0": limit / 1024,
        "x1": limit / 1024,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": MONOMOE, "dash": "dot"},
    }
    return figure(
        traces,
        barmode="stack",
        shapes=[limit_line],
        xaxis={"title": f"KB (dotted: the limit of a block, {limit / 1024:.0f} KB)"},
        yaxis={"autorange": "reversed"},
    )
