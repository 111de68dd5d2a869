"""The command that predicts: rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import (
    device_option,
    layout_option,
    model_option,
    token_tile_option,
    tokens_option,
)
from monomoe_gen.cli.output import format_option, print_rows, say
from monomoe_gen.cli.records import counting_times
from monomoe_gen.device import Device
from monomoe_gen.errors import MonomoeError
from monomoe_gen.schedule import Layout
from monomoe_gen.shapes import Shape
from monomoe_gen.space import feasible
from monomoe_gen.variant import Variant

if TYPE_CHECKING:
    from monomoe_gen.tuning_db import Record

US = dict.fromkeys(("predicted_us", "start", "up", "down", "finish", "measured_us"), ".2f")
AGREEMENT = dict.fromkeys(("spearman", "near_best", "ratio", "error", "regret"), ".3f")


@click.command()
@model_option()
@tokens_option
@token_tile_option
@layout_option
@click.option(
    "--top", type=click.IntRange(1), default=10, show_default=True, help="Schedules to print."
)
@click.option(
    "--recorded",
    is_flag=True,
    help="Compare with the recorded medians instead: rank correlation, error, regret.",
)
@device_option
@format_option
def rank(
    shape: Shape,
    tokens: tuple[int, ...],
    token_tile: int,
    layout: Layout,
    top: int,
    recorded: bool,
    device: Device,
    form: str,
) -> None:
    """Rank all schedules by an analytic cost model, without a GPU.

    Prints the schedules predicted to be fastest, the predicted microseconds by phase, and the
    recorded median where there is one. `tune` measures these first. Times of older sources count
    only at token counts where the present ones have none.
    """
    if max(tokens) > token_tile:
        raise click.UsageError(f"{max(tokens)} tokens need a larger --token-tile")
    variant = Variant(layout)
    records = _records(shape, device, tokens, token_tile, variant)
    if recorded:
        print_rows(_agreement(shape, tokens, token_tile, variant, records), form, AGREEMENT)
    else:
        print_rows(_ranked(shape, tokens, token_tile, variant, top, device, records), form, US)


def _records(
    shape: Shape, device: Device, tokens: tuple[int, ...], token_tile: int, variant: Variant
) -> Sequence[Record]:
    """Those that count; says how many do not."""
    from monomoe_gen import tuning_db
    from monomoe_gen.present import Present

    records = tuning_db.read(tuning_db.database_path(device.slug, shape.name))
    present = Present(shape)
    return counting_times(shape.name, present, records, tokens, token_tile, variant=variant)


def _ranked(
    shape: Shape,
    tokens: tuple[int, ...],
    token_tile: int,
    variant: Variant,
    top: int,
    device: Device,
    records: Sequence[Record],
) -> list[dict[str, Any]]:
    from monomoe_gen import cost, ranking

    specs = [variant.spec(shape, s, token_tile) for s in feasible(shape, device, token_tile)]
    rows = []
    for n in tokens:
        measured = ranking.medians(records, n, token_tile, variant=variant)
        for place, (spec, predicted) in enumerate(cost.ranked(specs, n)[:top], start=1):
            rows.append(
                {
                    "tokens": n,
                    "rank": place,
                    "schedule": spec.schedule.id,
                    "predicted_us": predicted.us,
                    "start": predicted.start_us,
                    "up": predicted.up_us,
                    "down": predicted.down_us,
                    "finish": predicted.finish_us,
                    "measured_us": measured.get(spec.schedule),
                }
            )
    say(f"{shape.name} on {device.name}: the best of {len(specs)} legal schedules; no GPU was used")
    return rows


def _agreement(
    shape: Shape,
    tokens: tuple[int, ...],
    token_tile: int,
    variant: Variant,
    records: Sequence[Record],
) -> list[dict[str, Any]]:
    from monomoe_gen import ranking

    rows = []
    for n in tokens:
        measured = ranking.medians(records, n, token_tile, variant=variant)
        if measured:
            row = ranking.agreement(shape, n, token_tile, measured, variant)
            rows.append({"model": shape.name, **asdict(row)})
    if not rows:
        raise MonomoeError(
            f"nothing is recorded for {shape.name} with uniform routing and these token counts; "
            f"run `monomoe-gen tune --model {shape.name}` on a GPU first"
        )
    return rows


COMMANDS = (rank,)
