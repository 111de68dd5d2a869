"""The command that times kernels, and what it shares with validation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monomoe_gen.cli.options import (
    captured_routing,
    models_option,
    routings_option,
    schedule_option,
    token_tile_option,
    tokens_option,
    trace_file_option,
    variant_options,
)
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.device import DEFAULT, Device
from monomoe_gen.report import (
    Result,
    merge_results,
    read_anchors,
    read_results,
    replace_results,
    results_table,
    write_results,
)
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.variant import Variant

if TYPE_CHECKING:
    from monomoe_gen.protocol import Cell, Env, Timed, Weights
    from monomoe_gen.remeasure import Target
    from monomoe_gen.sandbox import Outcome

    Finish = Callable[[Env, Sequence[tuple[Target, Outcome]], float], object]

FAILED, WRONG = 1, 6
RESULTS, ANCHORS = "bench.json", "anchors.json"


@click.command()
@models_option("every dispatched one")
@tokens_option
@routings_option
@trace_file_option
@schedule_option(required=False)
@token_tile_option
@variant_options
@click.option(
    "--write",
    is_flag=True,
    help=f"Put the results into generated/<gpu>/{RESULTS}, in place of those of the same models, "
    "variant and routing.",
)
@click.option(
    "--readme",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Refresh the results table of this file. Without --write this is all that happens.",
)
@format_option
def bench(
    shapes: tuple[Shape, ...],
    tokens: tuple[int, ...],
    routings: tuple[str, ...],
    trace_file: Path | None,
    schedule: Schedule | None,
    token_tile: int,
    variant: Variant,
    write: bool,
    readme: Path | None,
    form: str,
) -> int | None:
    """Time kernels on cold weights, beside the stream floor of the same run.

    Takes the dispatched kernels, or the one of --schedule. Each is validated before it is timed.
    What a variant costs is for bench-variants to say.
    """
    if write and schedule:
        raise click.UsageError("--write is for dispatched kernels: leave --schedule away")
    if write and trace_file:
        raise click.UsageError("--write is for drawn routing: leave --routing-trace away")
    if trace_file:
        if len(shapes) != 1:
            raise click.UsageError("--routing-trace is of one model: give exactly one --model")
        routings = (captured_routing(trace_file, shapes[0]),)
    if readme and not write:
        _refresh(readme)
        return None
    from monomoe_gen import bench as timing
    from monomoe_gen import dispatch, jobs, remeasure

    device = remeasure.require_device()
    targets = targets_of(device, shapes, tokens, schedule, token_tile, variant)
    timed = jobs.compile_floors(device).timed(timing.FULL)

    def keep(own: Sequence[Measured]) -> None:
        path = dispatch.writable_folder(device.slug) / RESULTS
        write_results(path, merge_results(read_results(path), _results(own)))
        say(f"wrote {own[0].target.spec.shape.name} to {path}")

    measured, code = measure_all(
        targets, routings, timed, keep=keep if write else None, trace_file=trace_file
    )
    good = [m for m in measured if m.cell.status == "ok"]
    rows = [asdict(r) for r in _results(good)]
    print_rows(
        sorted(rows, key=lambda r: (r["model"], routings.index(r["routing"]), r["tokens"])),
        form,
        {"time_us": ".2f", "floor_us": ".2f", "ratio": ".2f", "cosine": ".5f"},
    )
    if good:
        reuse = min(m.cell.reuse_bytes or 0 for m in good)
        say(
            f"cold weights: at least {reuse / 1e6:.0f} MB stream between two uses of an expert, "
            f"the L2 has {device.l2_bytes / 1e6:.0f} MB"
        )
    if readme:
        _refresh(readme)
    return code


def _refresh(readme: Path) -> None:
    from monomoe_gen.dispatch import table_folder

    folder = table_folder(DEFAULT)
    table = results_table(read_results(folder / RESULTS), read_anchors(folder / ANCHORS))
    text = readme.read_text(encoding="utf-8")
    readme.write_text(replace_results(text, table), encoding="utf-8")


def targets_of(
    device: Device,
    shapes: Sequence[Shape],
    tokens: Sequence[int],
    schedule: Schedule | None,
    token_tile: int,
    variant: Variant,
) -> list[Target]:
    """The dispatched kernels of ``shapes`` (none: of all), or the one of ``schedule``."""
    from monomoe_gen import dispatch, remeasure

    if schedule is None:
        folder = dispatch.table_folder(device.slug)
        return remeasure.dispatched_targets(folder, [s.name for s in shapes], tokens, variant)
    if len(shapes) != 1:
        raise click.UsageError("--schedule needs exactly one --model")
    return [remeasure.schedule_target(shapes[0], schedule, device, tokens, token_tile, variant)]


@dataclass(frozen=True)
class Measured:
    """What came of one kernel, routing pattern and token count."""

    target: Target
    routing: str
    cell: Cell


def measure_all(
    targets: Sequence[Target],
    routings: Sequence[str],
    timed: Timed | None,
    weights: Weights | None = None,
    finish: Finish | None = None,
    keep: Callable[[Sequence[Measured]], None] | None = None,
    trace_file: Path | None = None,
    until: float = math.inf,
) -> tuple[list[Measured], int | None]:
    """All cells in order, and the exit code if one of them is not ok or is missing.

    A kernel is validated once, with its first routing; its cells all carry those errors.
    ``trace_file`` holds the captured routing that ``routings`` names.
    ``finish`` asks for comparisons, and hears of every model when it is done: the GPU, what came of
    its kernels, and the seconds that they took. ``keep`` gets the cells of every model that has all
    of them, as soon as it has.
    No model is begun that, if it takes as long as the longest so far, would end after ``until`` of
    `time.monotonic`.
    """
    from monomoe_gen import jobs, protocol
    from monomoe_gen.sandbox import Sandbox

    measured: list[Measured] = []
    code = None
    cells = len(routings) * sum(len(target.tokens) for target in targets)
    by_model = groupby(sorted(targets, key=_model), key=_model)
    longest = 0.0
    left: list[str] = []
    with Sandbox() as box, progress("measuring", cells) as step:
        for model, group in by_model:
            began = time.monotonic()
            if left or began + longest > until:
                left.append(model)
                continue
            outcomes: list[tuple[Target, Outcome]] = []
            before, good = len(measured), True
            for target, routing in product(group, routings):
                first = routing == routings[0]

                def hear(
                    event: protocol.Event, target: Target = target, routing: str = routing
                ) -> None:
                    if isinstance(event, protocol.Cell):
                        step(f"{_model(target)}, {event.tokens} tokens, {routing}")

                request = jobs.measure(
                    target.spec,
                    target.image,
                    target.tokens,
                    routing,
                    validate=first,
                    timed=timed,
                    weights=weights,
                    report=finish is not None,
                    trace_file=trace_file,
                )
                outcome = box.measure(request, hear)
                outcomes.append((target, outcome))
                if first:
                    errors = {cell.tokens: cell.errors for cell in outcome.cells}
                for cell in outcome.cells:
                    validated = replace(cell, errors=errors.get(cell.tokens, {}))
                    measured.append(Measured(target, routing, validated))
                    if cell.status != "ok":
                        code, good = WRONG, False
                        say(f"{target.spec.id}: {cell.status}: {cell.message}")
                if outcome.status != "ok":
                    code, good = code or FAILED, False
                    say(f"{target.spec.id}: {outcome.status}: {outcome.message}")
            longest = max(longest, time.monotonic() - began)
            if finish:
                finish(box.env, outcomes, time.monotonic() - began)
            if keep and good:
                keep(measured[before:])
            elif keep:
                say(f"nothing of {model} is written: not every kernel gave a time")
    if left:
        say(f"the time is over; not measured: {', '.join(left)}")
    return measured, code


def _results(measured: Sequence[Measured]) -> list[Result]:
    from monomoe_gen import remeasure

    return [remeasure.result(m.target.spec, m.cell, m.routing) for m in measured]


def _model(target: Target) -> str:
    return target.spec.shape.name


COMMANDS = (bench,)
