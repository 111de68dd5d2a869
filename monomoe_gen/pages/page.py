"""The whole page: one HTML file that needs no network."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, select_autoescape
from markupsafe import Markup

from monomoe_gen import __version__, search_study
from monomoe_gen.device import Device
from monomoe_gen.dispatch import Table
from monomoe_gen.pages import result_plots, search_plots, tables
from monomoe_gen.pages.analysis import ModelData
from monomoe_gen.pages.plot import Figure, plotly_script
from monomoe_gen.pages.timelines import legend
from monomoe_gen.search_study import STARTS, Study

_WIDE = 880
"""Pixels below which a crowded plot scrolls sideways instead of shrinking."""
_TIMES = (
    "The last column says where each time is from; one of screening is the least of many "
    "candidates, each timed once, and may flatter."
)


@dataclass(frozen=True)
class Block:
    """A titled part: a remark, a plot (or one for each choice), a picture (SVG text), a table."""

    id: str
    title: str
    remark: str
    plots: Mapping[str, Figure] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] = ()
    min_width: int = 0
    picture: str = ""

    @property
    def picture_uri(self) -> str:
        """As an image, so that its styles and its scripts stay its own."""
        return f"data:image/svg+xml;base64,{b64encode(self.picture.encode()).decode()}"

    @property
    def wide(self) -> bool:
        return bool(self.min_width or self.rows)

    @property
    def data(self) -> Markup:
        """The plots as JSON that may stand inside a script element."""
        return Markup(json.dumps(self.plots, separators=(",", ":")).replace("<", "\\u003c"))


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    remark: str
    blocks: Sequence[Block]
    legend: Mapping[str, str] = field(default_factory=dict)
    """Colours of the section's pictures, by what they stand for."""


def page(
    models: Sequence[ModelData],
    table: Table,
    read_gb_s: float | None,
    timelines: Mapping[str, str] | None = None,
) -> str:
    """The HTML text of the report; `table` is what is dispatched on the models' GPU.

    `timelines` are SVG texts of traced launches by title.

    Raises:
        EnvironmentProblem: plotly is not installed.
    """
    script = plotly_script()
    device = table.device
    sections = [_overview(models, table)]
    sections += [_model(data, device, read_gb_s) for data in models]
    studied = [data.study for data in models if data.study]
    if studied:
        sections.append(_studies(studied))
    if timelines:
        sections.append(_timelines(timelines))
    return _render(sections, device, script)


def study_page(studies: Sequence[Study], device: Device) -> str:
    """The HTML text of a page with `studies` alone.

    Raises:
        EnvironmentProblem: plotly is not installed.
    """
    script = plotly_script()
    return _render([_studies(studies)], device, script)


def _render(sections: Sequence[Section], device: Device, script: str) -> str:
    environment = Environment(autoescape=select_autoescape(default=True), undefined=StrictUndefined)
    environment.filters["numeric_columns"] = _numeric_columns
    template = environment.from_string(
        files("monomoe_gen.pages").joinpath("page.html.j2").read_text(encoding="utf-8")
    )
    return template.render(
        sections=sections, device=device, version=__version__, plotly=Markup(script)
    )


def _numeric_columns(rows: Sequence[Mapping[str, object]]) -> set[str]:
    """The columns of numbers, whose digits stand below each other; a cell may be None."""
    number = re.compile(r"-?[\d,]+(\.\d+)?(e[-+]?\d+)?")
    return {
        name
        for name in rows[0]
        if all(row[name] is None or number.fullmatch(str(row[name])) for row in rows)
    }


def _overview(models: Sequence[ModelData], table: Table) -> Section:
    others = tables.others(table, models)
    speedups = result_plots.speedups(models)
    far = ", ".join(
        f"{name}, {ratio:.1f} or more" for name, ratio in result_plots.far(models).items()
    )
    return Section(
        "overview",
        "Overview",
        "Microseconds per launch, cold weights, uniform routing. The stream floor copies the same "
        "weight bytes into shared memory and does nothing else.",
        (
            Block(
                "overview-ratio",
                "Distance to the limit",
                "Time over the stream floor of the same run; 1 would be the limit."
                + (f" Too far away for this plot: {far}." if far else ""),
                {"": result_plots.ratios(models)},
            ),
            Block(
                "overview-speedup",
                "Against published kernels",
                "How many times faster than the better one of the published MonoMoE and Triton's "
                "grouped GEMM on the same kind of card; models without a published time are left "
                "out."
                if speedups
                else "No time of these models is published.",
                {"": speedups} if speedups else {},
            ),
            Block("overview-table", "All results", _TIMES, rows=tables.results(models)),
            Block(
                "overview-others",
                "Dispatched kernels of other kinds",
                "With raw weights, the router inside, programmatic dependent launch or bf16 "
                "activations. " + _TIMES
                if others
                else "There are none.",
                rows=others,
            ),
        ),
    )


def _studies(studies: Sequence[Study]) -> Section:
    blocks = [
        Block(
            f"study-{found.model}",
            f"Samplers, {found.model}",
            f"{found.schedules} of {found.feasible} schedules are recorded, {found.seeds} seeds; "
            "mean over token counts and seeds.",
            {f"begun with {s}": search_plots.sampler_regret(found, s) for s in STARTS},
            search_study.rows(found),
            min_width=_WIDE,
        )
        for found in studies
    ]
    remark = "How far from the best recorded schedule each way to search is after n trials."
    return Section("samplers", "Samplers", remark, blocks)


def _timelines(timelines: Mapping[str, str]) -> Section:
    blocks = [
        Block(f"timeline-{i}", title, "", min_width=_WIDE, picture=svg)
        for i, (title, svg) in enumerate(timelines.items())
    ]
    remark = (
        "Launches as they were traced and, where they say so, as the cost model draws them. In a "
        "trace a row is a warp, pale while it waits; its colour tells what it is for. A model "
        "beside a trace has one row a role, on the same axis."
    )
    return Section("timelines", "Timelines", remark, blocks, legend())


def _model(data: ModelData, device: Device, read_gb_s: float | None) -> Section:
    shape, tag = data.shape, data.shape.slug
    total, _, left = data.space
    screened = max((len(points) for points in data.points.values()), default=0)
    counts = list(data.points)

    def by_tokens(draw: Any, least: int = 1) -> dict[str, Figure]:
        enough = (tokens for tokens in counts if len(data.points[tokens]) >= least)
        return {f"B = {tokens}": draw(data, tokens) for tokens in enough}

    routing = result_plots.routings(data)
    blocks = [
        Block(
            f"{tag}-times",
            "Time",
            "",
            {"": result_plots.times(data)},
        ),
        Block(
            f"{tag}-bandwidth",
            "Weight bandwidth",
            "FP8 weight bytes of the selected experts over time.",
            {"": result_plots.bandwidth(data, read_gb_s / 1000 if read_gb_s else None)},
        ),
        Block(
            f"{tag}-space",
            "Search space",
            f"One line a schedule, {screened} of {left:,} feasible ones. Drag along an axis to "
            "select a range; click the axis to let go.",
            by_tokens(search_plots.parallel_coordinates),
            min_width=_WIDE,
        ),
        Block(
            f"{tag}-pairs",
            "Pairs of parameters",
            "The best time / floor that any schedule with these two values reached.",
            by_tokens(search_plots.pair_maps, least=2),
            min_width=_WIDE,
        ),
        Block(
            f"{tag}-convergence",
            "Convergence",
            "The best schedule so far, in the order in which they were measured.",
            {"": search_plots.convergence(data)},
        ),
        Block(
            f"{tag}-regret",
            "Regret",
            "Distance to the best known schedule, beside choosing at random among the measured "
            "ones.",
            by_tokens(search_plots.regret),
        ),
        Block(
            f"{tag}-predictions",
            "Predicted and measured",
            "The cost model that orders candidates before any is measured; monomoe-gen rank "
            "lists its predictions.",
            by_tokens(search_plots.predictions),
        ),
        Block(
            f"{tag}-elsewhere",
            "One kernel for several token counts",
            "Time of the schedule that is best for one token count, used for another, over the "
            "best time there.",
            {"": search_plots.elsewhere(data)},
        ),
        Block(
            f"{tag}-rules",
            "What the rules remove",
            f"{total:,} schedules are enumerated, {left:,} can run. A schedule counts for the "
            "first rule, from above, that it breaks; rules that remove none are left out. "
            "Logarithmic scale.",
            {"": search_plots.rules(data)},
        ),
        Block(
            f"{tag}-routing",
            "Routing",
            "Time over the floor under other routing patterns."
            if routing
            else "Timed with uniform routing only so far.",
            {"": routing} if routing else {},
        ),
        Block(
            f"{tag}-resources",
            "Resources",
            "Shared memory of each token count's kernel by component.",
            {"": result_plots.shared_memory(data, device.shared_per_block)},
            tables.resources(data),
        ),
        Block(
            f"{tag}-numerics",
            "Numerics",
            "The worst token against FP32, and against the reference with the kernel's own "
            "rounding points (mirror), for Gaussian and heavy-tailed (Student t) data.",
            rows=tables.numerics(data),
        ),
        Block(
            f"{tag}-outcomes",
            "What became of the candidates",
            "",
            rows=tables.outcomes(data),
        ),
        Block(
            f"{tag}-provenance",
            "Provenance",
            "",
            rows=tables.provenance(data),
        ),
    ]
    remark = (
        f"H = {shape.hidden}, N = {shape.intermediate}, {shape.experts} experts, top {shape.top_k},"
        f" {shape.scoring} routing; {shape.expert_bytes / 1e6:.1f} MB per expert."
    )
    return Section(tag, shape.name, remark, blocks)
