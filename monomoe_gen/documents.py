"""The parts of the documents that the program can write itself.

``python -m monomoe_gen.documents`` refreshes them in a checkout; a test fails when one is stale. A
document carries each part between two marker lines, everything else in it is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import click

from monomoe_gen import search_study, trace_file
from monomoe_gen.cost import H200
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import MonomoeError
from monomoe_gen.paths import checkout, data_dir
from monomoe_gen.report import read_anchors
from monomoe_gen.rules import RULES, violations
from monomoe_gen.schedule import TOKEN_TILES, Geometry, Schedule
from monomoe_gen.shape_table import shapes_table
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import domain, nearest_legal, removal_counts
from monomoe_gen.strict import read_versioned
from monomoe_gen.variant_report import FILE as VARIANTS
from monomoe_gen.variant_report import costs_table, read_costs

EXAMPLE_MODEL = "qwen3.5-35b"
EXAMPLE_SCHEDULE = Schedule(grid=128, g_up=64, k_up=1024, g_down=128, k_down=512, d_up=4, d_down=3)
SCALING = "ray-scaling.json"
_LIFETIMES = {
    "ring": "stages of weights, from request to the last read",
    "x": "quantized input; written before the first up unit, read until the last",
    "h": "requantized h, one slot an expert; reused in turn",
    "partials": "routing: chosen experts, until they are listed; up: sums of two units in turn; "
    "down: sums of the output, after the last unit",
    "x_scale": "with `x`",
    "h_scale": "with `h`: h scale x weight scale x routing weight",
    "up_scale": "scales of w13 for each MMA warp's column blocks, from request to the last read; "
    "units in turn",
    "active": "written by the producer warp (and one epilogue warp), read to the end",
    "peer_sums": "with a pair of down groups: the output stripe as the other CTA summed it, "
    "written once",
    "weight": "routing weights; written by the routing warps, read by the requant warps",
    "selected": "with `weight`: the expert of each weight, then none up to a multiple of eight",
    "barriers": "made once, before `kRing` and `kMade`",
    "state": "number of active experts, epoch, dirty bytes, clocks of `up_ending`",
}


def tunables_table() -> str:
    """One row a schedule parameter: its meaning, its CUDA name and the values that are tried."""
    values = domain(load_shape(EXAMPLE_MODEL), KNOWN[DEFAULT])
    rows = []
    for parameter in fields(Schedule):
        name = parameter.name
        cuda = "k" + "".join(part.capitalize() for part in name.split("_"))
        tried = ", ".join(map(str, values[name]))
        rows.append((f"`{name}`", f"`schedule::{cuda}`", parameter.metadata["doc"], tried))
    return _table(("name", "in CUDA", "meaning", f"values tried for {EXAMPLE_MODEL}"), rows)


@cache
def rules_table() -> str:
    """One row a rule: its reason, its static_assert and how much of an example space it removes."""
    total, removed, left = removal_counts(load_shape(EXAMPLE_MODEL), KNOWN[DEFAULT])
    rows = [
        (
            f"`{rule.name}`",
            rule.reason,
            f"`{rule.cuda}`" if rule.cuda else "checked against the device",
            f"{removed[rule.name]:,}",
        )
        for rule in RULES
    ]
    rows.append(("", f"left of {total:,}", "", f"{left:,}"))
    return _table(("rule", "reason", "in CUDA", f"removes ({EXAMPLE_MODEL})"), rows, right=1)


def shared_memory_table() -> str:
    """The members of `SharedStorage` in order, with the bytes of an example and their lifetime."""
    geometry = Geometry(load_shape(EXAMPLE_MODEL), EXAMPLE_SCHEDULE, TOKEN_TILES[0])
    rows = [
        (f"`{name}`", f"{size:,}", _LIFETIMES[name])
        for name, size in geometry.shared_fields().items()
    ]
    rows.append(("in all", f"{geometry.shared_bytes:,}", ""))
    return _table(("member", "bytes", "holds what, for how long"), rows)


def traces_list() -> str:
    """The traces that are kept, as pictures; a sentence if there are none."""
    folder = data_dir("templates") / "traces"
    parts = []
    for path in sorted(folder.glob(f"*{trace_file.SUFFIX}")):
        kept = trace_file.read(path)
        stem = path.name.removesuffix(trace_file.SUFFIX)
        facts = "; ".join(kept.facts)
        if path.with_name(f"{stem}.svg").exists():
            facts += f".\n\n![{kept.title}](traces/{stem}.svg)"
        parts.append(
            f"**{kept.title}**: {kept.us:.1f} us. {facts}\n\nNext to the model: `monomoe-gen draw "
            f"--model {kept.spec.shape.name} --with templates/traces/{path.name} -o pair.svg`"
        )
    return "\n\n".join(parts) or "No trace is kept yet."


@cache
def cost_table() -> str:
    """One row a constant of the cost model: its value on an H200 and what it is."""
    rows = [
        (f"`{constant.name}`", constant.metadata["doc"], f"{getattr(H200, constant.name):g}")
        for constant in fields(H200)
    ]
    return _table(("constant", "what it is, and where it is from", "value"), rows, right=1)


def paper_schedules_table() -> str:
    """The schedules that the paper published, judged by the rules of this kernel."""
    device = KNOWN[DEFAULT]
    rows = []
    for model, values in read_anchors(data_dir("generated") / DEFAULT / "anchors.json")[
        "schedules"
    ].items():
        shape, schedule = load_shape(model), Schedule.from_dict(values)
        broken = {tile: violations(shape, schedule, device, tile) for tile in TOKEN_TILES}
        legal = [str(tile) for tile, found in broken.items() if not found]
        first = broken[TOKEN_TILES[0]]
        if first:
            nearest = nearest_legal(shape, schedule, device)
            remark = "; ".join(f"`{v.rule.name}`: {v.found}" for v in first)
            remark += f"; nearest legal: `{nearest.id if nearest else 'none'}`"
        else:
            remark = f"for kernels of {', '.join(legal)} tokens"
        rows.append((model, f"`{schedule.id}`", "no" if first else "yes", remark))
    return _table(("model", "published schedule", "feasible here", "verdict"), rows)


def sampler_table() -> str:
    """The last study of samplers of each model, from ``search-study.json``."""
    top = checkout()
    assert top is not None, "the documents belong to a checkout"
    parts = []
    studies = search_study.read(top / "tuning_db" / DEFAULT / search_study.FILE)
    for found in studies:
        header = ("sampler", "begins with", *map(str, found.trials), "worst seed")
        lines = [
            [str(v) if isinstance(v, str) else f"{v:.2f}" for v in row.values()]
            for row in search_study.rows(found)
        ]
        parts.append(
            f"`{found.model}`, {found.schedules} of {found.feasible} feasible schedules recorded, "
            f"{found.seeds} seeds; least regret over all columns and both starts: "
            f"`{search_study.favoured([found])}`.\n\n"
            + _table(header, lines, right=len(header) - 2)
        )
    parts.append(f"Least over all of them: `{search_study.favoured(studies)}`.")
    return "\n\n".join(parts)


@dataclass(frozen=True)
class ScalingRun:
    """A simulated search, each of ``schedules`` taking a GPU ``measure_s`` seconds.

    Without ``compilers`` every cubin was in the cache.
    """

    schedules: int
    measure_s: float
    compilers: int
    actors: int
    seconds: float


@dataclass(frozen=True)
class Scaling:
    """What ``tests/ray_scaling.py`` writes; ``cores`` are those of the host that ran all of it."""

    format: int
    model: str
    compile_s: float
    cores: int
    runs: tuple[ScalingRun, ...]


def scaling_table() -> str:
    """Search time against the number of Ray actors, a column a setting."""
    top = checkout()
    assert top is not None, "the documents belong to a checkout"
    study = read_versioned(Scaling, top / "tuning_db" / DEFAULT / SCALING, 1)
    settings = sorted({(r.schedules, r.measure_s, r.compilers) for r in study.runs}, reverse=True)
    header = ["actors"]
    found: dict[int, list[str]] = {}
    for setting in settings:
        schedules, measure_s, compilers = setting
        cubins = f"{compilers} compilers" if compilers else "cubins cached"
        header.append(f"{schedules} schedules of {measure_s:g} s, {cubins}")
        runs = [r for r in study.runs if (r.schedules, r.measure_s, r.compilers) == setting]
        alone = next(r.seconds for r in runs if r.actors == 1)
        for r in sorted(runs, key=lambda r: r.actors):
            cell = f"{r.seconds:.1f} s, {alone / r.seconds:.1f}x"
            found.setdefault(r.actors, [str(r.actors)]).append(cell)
    return (
        f"`{study.model}`, a compilation takes {study.compile_s:g} s, driver and actors share "
        f"{study.cores} cores.\n\n{_table(header, found.values(), right=len(header))}"
    )


def variants_table() -> str:
    """What the variants of the shipped kernels cost, from ``variants.json`` if there is one."""
    costs = read_costs(data_dir("generated") / DEFAULT / VARIANTS)
    if not costs:
        return "Not measured yet: `monomoe-gen bench-variants --write` does it."
    star = any(not cost.tuned for cost in costs)
    return costs_table(costs) + (
        "\n\n\\* with the usual kernel's schedule, or the nearest feasible one: not tuned for it."
        if star
        else ""
    )


def cli_reference() -> str:
    """Every command's ``--help``, as one markdown text."""
    from monomoe_gen.cli import monomoe_gen

    settings = {**monomoe_gen.context_settings, "terminal_width": 100}
    context = click.Context(monomoe_gen, info_name="monomoe-gen", **settings)
    parts = [_code(monomoe_gen.get_help(context))]
    for name, command in sorted(monomoe_gen.commands.items()):
        inner = click.Context(command, info_name=name, parent=context)
        parts.append(f"## {name}\n\n{_code(command.get_help(inner))}")
        if isinstance(command, click.Group):
            for last, leaf in sorted(command.commands.items()):
                leaf_help = leaf.get_help(click.Context(leaf, info_name=last, parent=inner))
                parts.append(f"### {name} {last}\n\n{_code(leaf_help)}")
    return "\n\n".join(parts)


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"variants": variants_table},
    "templates/README.md": {
        "tunables": tunables_table,
        "rules": rules_table,
        "shared memory": shared_memory_table,
        "traces": traces_list,
        "cost": cost_table,
        "paper schedules": paper_schedules_table,
    },
    "monomoe_gen/cli/README.md": {"commands": cli_reference},
    "shapes/README.md": {"shapes": shapes_table},
    "tuning_db/README.md": {"samplers": sampler_table, "scaling": scaling_table},
}


def refresh(name: str, text: str) -> str:
    """The text of document `name` with every generated part as it should be.

    Raises:
        MonomoeError: a marker is missing.
    """
    for part, write in PARTS[name].items():
        begin, end = f"<!-- generated: {part} -->", f"<!-- end: {part} -->"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise MonomoeError(f"{name} needs the lines {begin} and {end}")
        text = f"{before}{begin}\n\n{write()}\n\n{end}{after}"
    return text


def refresh_all(top: Path) -> list[str]:
    """Writes the documents below `top` that are stale and names them."""
    stale = []
    for name in PARTS:
        path = top / name
        old = path.read_text(encoding="utf-8")
        new = refresh(name, old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            stale.append(name)
    return stale


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], right: int = 0) -> str:
    """A markdown table; the last `right` columns are aligned to the right."""
    rule = ["---"] * (len(header) - right) + ["---:"] * right
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (header, rule, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


def _code(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


if __name__ == "__main__":
    top = checkout()
    if top is None:
        sys.exit("the documents belong to a checkout")
    for name in refresh_all(top):
        print(f"refreshed {name}", file=sys.stderr)
