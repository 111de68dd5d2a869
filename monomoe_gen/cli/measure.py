"""Commands that measure on a GPU: validate, bench."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import (
    layout_option,
    models_option,
    routing_option,
    schedule_option,
    token_tile_option,
    tokens_option,
)
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.device import DEFAULT, Device
from monomoe_gen.paths import data_dir
from monomoe_gen.report import (
    merge_results,
    read_anchors,
    read_results,
    replace_results,
    results_table,
    write_results,
)
from monomoe_gen.schedule import Layout, Schedule
from monomoe_gen.shapes import Shape

if TYPE_CHECKING:
    from monomoe_gen.protocol import Cell, Timed, Weights
    from monomoe_gen.remeasure import Target

FAILED, WRONG = 1, 6
RESULTS, ANCHORS = "bench.json", "anchors.json"


class _ShardType(click.ParamType):
    name = "i/n"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d+)/(\d+)", value)
        if not match or int(match[1]) >= int(match[2]):
            self.fail(f"{value!r}: write I/N, with I from 0 to N-1", param, ctx)
        return int(match[1]), int(match[2])


@click.command()
@models_option("every dispatched one")
@tokens_option
@schedule_option(required=False)
@token_tile_option
@layout_option
@click.option(
    "--weights",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Take a layer's weights from this .safetensors file, or a folder of them; may be "
    "repeated. Default: drawn weights.",
)
@click.option(
    "--layer",
    type=click.IntRange(min=0),
    help="Number of the layer in --weights. Default: the files' tensors carry none.",
)
@click.option(
    "--shard",
    type=_ShardType(),
    help="Part of the intermediate columns to take from --weights, the first one being 0/N.",
)
@format_option
def validate(
    shapes: tuple[Shape, ...],
    tokens: tuple[int, ...],
    schedule: Schedule | None,
    token_tile: int,
    layout: Layout,
    files: tuple[Path, ...],
    layer: int | None,
    shard: tuple[int, int] | None,
    form: str,
) -> int | None:
    """Run kernels on known inputs and compare with both references.

    Takes the dispatched kernels, or the one of --schedule. Every row is the worst token of one data
    distribution, over all routing patterns. Exit code 6 means that a number is wrong.
    """
    from monomoe_gen.remeasure import require_device

    weights = _weights(shapes, files, layer, shard)
    targets = _targets(require_device(), shapes, tokens, schedule, token_tile, layout)
    measured, code = _measure(targets, "uniform", None, weights)
    rows = [row for target, cell in measured for row in _verdict_rows(target, cell)]
    print_rows(rows, form, {"cosine": ".6f", "rel_l2": ".2e", "mirror_rel_l2": ".2e"})
    return code


def _weights(
    shapes: Sequence[Shape],
    files: Sequence[Path],
    layer: int | None,
    shard: tuple[int, int] | None,
) -> Weights | None:
    """What the worker is to read; a checkpoint that does not fit is found before a GPU is used."""
    if not files:
        if layer is not None or shard:
            raise click.UsageError("--layer and --shard say what to take from --weights")
        return None
    if len(shapes) != 1:
        raise click.UsageError("--weights needs exactly one --model")
    from monomoe_gen.checkpoint import Shard, find_layer
    from monomoe_gen.protocol import Weights

    index, count = shard or (0, 1)
    find_layer(files, layer, shapes[0], Shard(index, count))
    return Weights(tuple(str(path.resolve()) for path in files), layer, index, count)


def _verdict_rows(target: Target, cell: Cell) -> Iterator[dict[str, Any]]:
    for distribution, errors in cell.errors.items():
        yield {
            "model": target.spec.shape.name,
            "tokens": cell.tokens,
            "data": distribution,
            "status": cell.status,
            "cosine": errors.cosine,
            "rel_l2": errors.rel_l2,
            "mirror_rel_l2": errors.mirror_rel_l2,
            "schedule": target.spec.schedule.id,
        }


@click.command()
@models_option("every dispatched one")
@tokens_option
@routing_option
@schedule_option(required=False)
@token_tile_option
@layout_option
@click.option(
    "--write",
    is_flag=True,
    help=f"Put the results into generated/<gpu>/{RESULTS}, in place of those of the same models "
    "and layout.",
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
    routing: str,
    schedule: Schedule | None,
    token_tile: int,
    layout: Layout,
    write: bool,
    readme: Path | None,
    form: str,
) -> int | None:
    """Time kernels on cold weights, beside the stream floor of the same run.

    Takes the dispatched kernels, or the one of --schedule. Each is validated before it is timed.
    """
    if write and schedule:
        raise click.UsageError("--write is for dispatched kernels: leave --schedule away")
    if readme and not write:
        _refresh(readme)
        return None
    from monomoe_gen import bench as timing
    from monomoe_gen import jobs, remeasure

    device = remeasure.require_device()
    targets = _targets(device, shapes, tokens, schedule, token_tile, layout)
    timed = jobs.compile_floors(device).timed(timing.FULL)
    measured, code = _measure(targets, routing, timed)
    good = [(target, cell) for target, cell in measured if cell.status == "ok"]
    results = [remeasure.result(target.spec, cell, routing) for target, cell in good]
    results.sort(key=lambda r: (r.model, r.tokens))
    print_rows(
        [asdict(r) for r in results],
        form,
        {"time_us": ".2f", "floor_us": ".2f", "ratio": ".2f", "cosine": ".5f"},
    )
    if good:
        reuse = min(cell.reuse_bytes or 0 for _, cell in good)
        say(
            f"cold weights: at least {reuse / 1e6:.0f} MB stream between two uses of an expert, "
            f"the L2 has {device.l2_bytes / 1e6:.0f} MB"
        )
    if write and code is not None:
        say("nothing is written: not every kernel gave a time")
    elif write:
        path = data_dir("generated") / device.slug / RESULTS
        write_results(path, merge_results(read_results(path), results))
        say(f"wrote {path}")
        if readme:
            _refresh(readme)
    return code


def _refresh(readme: Path) -> None:
    folder = data_dir("generated") / DEFAULT
    table = results_table(read_results(folder / RESULTS), read_anchors(folder / ANCHORS))
    text = readme.read_text(encoding="utf-8")
    readme.write_text(replace_results(text, table), encoding="utf-8")


def _targets(
    device: Device,
    shapes: Sequence[Shape],
    tokens: Sequence[int],
    schedule: Schedule | None,
    token_tile: int,
    layout: Layout,
) -> list[Target]:
    from monomoe_gen import dispatch, remeasure

    if schedule is None:
        folder = dispatch.table_folder(device.slug)
        return remeasure.dispatched_targets(folder, [s.name for s in shapes], tokens, layout)
    if len(shapes) != 1:
        raise click.UsageError("--schedule needs exactly one --model")
    return [remeasure.schedule_target(shapes[0], schedule, device, tokens, token_tile, layout)]


def _measure(
    targets: Sequence[Target],
    routing: str,
    timed: Timed | None,
    weights: Weights | None = None,
) -> tuple[list[tuple[Target, Cell]], int | None]:
    """All cells in order, and the exit code if one of them is not ok or is missing."""
    from monomoe_gen import jobs, protocol
    from monomoe_gen.sandbox import Sandbox

    measured: list[tuple[Target, Cell]] = []
    code = None
    cells = sum(len(target.tokens) for target in targets)
    with Sandbox() as box, progress("measuring", cells) as step:
        for target in targets:

            def hear(event: protocol.Event, target: Target = target) -> None:
                if isinstance(event, protocol.Cell):
                    step(f"{target.spec.shape.name}, {event.tokens} tokens")

            request = jobs.measure(
                target.spec,
                target.image,
                target.tokens,
                routing,
                validate=True,
                timed=timed,
                weights=weights,
            )
            outcome = box.measure(request, hear)
            measured += [(target, cell) for cell in outcome.cells]
            for cell in outcome.cells:
                if cell.status != "ok":
                    code = WRONG
                    say(f"{target.spec.id}: {cell.status}: {cell.message}")
            if outcome.status != "ok":
                code = code or FAILED
                say(f"{target.spec.id}: {outcome.status}: {outcome.message}")
    return measured, code


COMMANDS = (validate, bench)
