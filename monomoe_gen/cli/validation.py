"""The command that says whether kernels are right, and writes the reports that show it."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.measure import WRONG, measure_all, targets_of
from monomoe_gen.cli.options import (
    DurationType,
    models_option,
    schedule_option,
    token_tile_option,
    tokens_option,
    variant_options,
)
from monomoe_gen.cli.output import format_option, print_rows, say
from monomoe_gen.device import Device
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.variant import Variant

if TYPE_CHECKING:
    from monomoe_gen.protocol import Cell, Env, Weights
    from monomoe_gen.remeasure import Target
    from monomoe_gen.sandbox import Outcome
    from monomoe_gen.validation_report import Report

_DEFAULT_FOLDER = "-"


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
@variant_options
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
@click.option(
    "--report",
    "folder",
    is_flag=False,
    flag_value=_DEFAULT_FOLDER,
    metavar="[DIR]",
    help="Write <model>.json and <model>.md of every model into this folder, each when its model "
    "is done; of a variant <model>_raw.json and so on. Without DIR: generated/<gpu>/validation.",
)
@click.option(
    "--shipped",
    is_flag=True,
    help="Every shape that ships, or any --model: what is not dispatched is compiled with the "
    "schedule that the cost model predicts fastest.",
)
@click.option(
    "--missing",
    is_flag=True,
    help="With --report: leave out models whose report there passes, and is of the same kernels.",
)
@click.option(
    "--budget",
    "budget_s",
    type=DurationType(),
    default="none",
    help="Begin no further model when it may take longer than that, such as 4m. Default: none.",
)
@format_option
def validate(
    shapes: tuple[Shape, ...],
    tokens: tuple[int, ...],
    schedule: Schedule | None,
    token_tile: int,
    variant: Variant,
    files: tuple[Path, ...],
    layer: int | None,
    shard: tuple[int, int] | None,
    folder: str | None,
    shipped: bool,
    missing: bool,
    budget_s: float,
    form: str,
) -> int | None:
    """Run kernels on known inputs and compare with both references.

    Takes the dispatched kernels, or the one of --schedule. Every row is the worst token of one data
    distribution, over all routing patterns. Exit code 6 means that a number is wrong.

    A report holds every case by itself: cosine, relative L2 and largest error against FP32 with
    dequantized and with unquantized weights, the same of the published quantized operator, and how
    closely the kernel follows the reference that rounds where it rounds.
    """
    until = time.monotonic() + budget_s if budget_s else math.inf
    from monomoe_gen import dispatch, validation_report
    from monomoe_gen.remeasure import require_device

    if folder is not None and files:
        raise click.UsageError(
            "--report needs drawn weights, since a checkpoint holds no unquantized ones: leave "
            "--report or --weights away"
        )
    if shipped and schedule:
        raise click.UsageError("--shipped chooses schedules: leave --schedule away")
    if missing and folder is None:
        raise click.UsageError("--missing looks into the folder of --report: give it too")
    weights = _weights(shapes, files, layer, shard)
    device = require_device()
    if shipped:
        targets = _shipped_targets(device, shapes, tokens, token_tile, variant)
    else:
        targets = targets_of(device, shapes, tokens, schedule, token_tile, variant)
    place = Path(folder or "")
    if folder == _DEFAULT_FOLDER:
        place = dispatch.writable_folder(device.slug) / validation_report.FOLDER
    if missing:
        targets = _not_covered(targets, place, device)
        if not targets:
            say(f"nothing to do: {place} has a report of every kernel")
            return None
    failed = []

    def finish(env: Env, outcomes: Sequence[tuple[Target, Outcome]], seconds: float) -> None:
        report = _report(env, outcomes)
        page = validation_report.write(place, report)
        problems = report.problems
        failed.extend(problems)
        verdict = f"FAIL: {problems[0]}" if problems else "pass"
        say(f"{report.shape.name}: {len(report.cases)} cases, {seconds:.1f} s, {page}: {verdict}")

    reporting = finish if folder is not None else None
    measured, code = measure_all(targets, ("uniform",), None, weights, reporting, until=until)
    code = code or (WRONG if failed else None)
    rows = [row for m in measured for row in _verdict_rows(m.target, m.cell)]
    print_rows(rows, form, {"cosine": ".6f", "rel_l2": ".2e", "mirror_rel_l2": ".2e"})
    return code


def _shipped_targets(
    device: Device,
    shapes: Sequence[Shape],
    tokens: Sequence[int],
    token_tile: int,
    variant: Variant,
) -> list[Target]:
    """The kernels of ``shapes`` (none: of all that ship), dispatched or not."""
    from monomoe_gen import dispatch
    from monomoe_gen.remeasure import dispatched_targets, untuned_targets
    from monomoe_gen.shapes import list_shapes

    folder = dispatch.table_folder(device.slug)
    tuned = {e.model for e in dispatch.load(folder).entries if Variant.of(e) == variant}
    wanted = list({shape.name: shape for shape in shapes}.values()) or list_shapes()
    given = [shape.name for shape in wanted if shape.name in tuned]
    others = [shape for shape in wanted if shape.name not in tuned]
    targets = dispatched_targets(folder, given, tokens, variant) if given else []
    if others:
        say(f"not dispatched, so as predicted fastest: {', '.join(s.name for s in others)}")
        targets += untuned_targets(others, device, tokens, token_tile, variant)
    return targets


def _not_covered(targets: Sequence[Target], place: Path, device: Device) -> list[Target]:
    """The targets, all of one variant, without a report of their kernels in ``place``."""
    from monomoe_gen.validation_report import covers, stem

    models: dict[str, list[Target]] = {}
    for target in targets:
        models.setdefault(target.spec.shape.name, []).append(target)
    left: list[Target] = []
    for model, own in models.items():
        kernels = {n: _digest(target) for target in own for n in target.tokens}
        name = stem(model, Variant.of(own[0].spec))
        if not covers(place / f"{name}.json", device.name, kernels):
            left += own
    return left


def _digest(target: Target) -> str:
    return hashlib.sha256(target.image.cubin).hexdigest()


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


def _report(env: Env, outcomes: Sequence[tuple[Target, Outcome]]) -> Report:
    """What is to be said of one model's kernels."""
    from monomoe_gen.validation_report import FORMAT, Report, Run

    runs, cases = [], []
    for target, outcome in outcomes:
        verdicts = {cell.tokens: (cell.status, cell.message) for cell in outcome.cells}
        for tokens in target.tokens:
            status, message = verdicts.get(tokens, (outcome.status, outcome.message))
            runs.append(Run(tokens, target.spec.id, _digest(target), status, message))
        cases += [case for cell in outcome.cells for case in cell.cases]
    spec = outcomes[0][0].spec
    return Report(
        format=FORMAT,
        gpu=str(env.get("gpu")),
        driver=str(env.get("driver")),
        torch=str(env.get("torch")),
        shape=spec.shape,
        runs=tuple(sorted(runs, key=lambda run: run.tokens)),
        cases=tuple(sorted(cases, key=lambda case: case.tokens)),
        layout=spec.layout,
        router=spec.router,
        pdl=spec.pdl,
    )


COMMANDS = (validate,)
