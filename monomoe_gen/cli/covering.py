"""The command that asks for few kernels: cover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import device_option, model_option, objective_option, token_tile_option
from monomoe_gen.cli.output import format_option, print_rows, say
from monomoe_gen.cli.records import counting_times
from monomoe_gen.device import Device
from monomoe_gen.errors import MonomoeError
from monomoe_gen.objective import DEFAULT as OBJECTIVE
from monomoe_gen.objective import Objective
from monomoe_gen.shapes import Shape

if TYPE_CHECKING:
    from monomoe_gen.cover import Cover, Times
    from monomoe_gen.tuning_db import Record

FORMATS = {"worst_regret": ".2%", "mean_regret": ".2%", "us": ".2f"}


@click.command()
@model_option()
@objective_option("Cells and their weights. Default: default.")
@click.option(
    "--kernels",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Print the best sets of 1 up to so many.",
)
@token_tile_option
@device_option
@format_option
def cover(
    shape: Shape,
    objective: Objective | None,
    kernels: int,
    token_tile: int,
    device: Device,
    form: str,
) -> None:
    """Find the few kernels that lose least against one for every cell, from the records.

    A cell is a token count and a routing pattern. The regret of a set is how much slower its best
    member is than the fastest schedule recorded in the cell; sets have the least worst regret, then
    the least mean by the weights of the objective. Cells without records, or with those of
    finalists only, are named and left out. Times of older sources count only in cells where the
    present ones have none.
    """
    from monomoe_gen import cover as covers
    from monomoe_gen import tuning_db
    from monomoe_gen.present import Present

    wanted = objective or OBJECTIVE
    records = tuning_db.read(tuning_db.database_path(device.slug, shape.name))
    present = Present(shape)
    counting: list[Record] = []
    for routing in dict.fromkeys(routing for _, routing in wanted.weights):
        tokens = [n for n, r in wanted.weights if r == routing]
        about = f"{shape.name}, {routing}"
        counting += counting_times(about, present, records, tokens, token_tile, routing)
    times = covers.recorded(counting, wanted, token_tile)
    if times is None:
        raise MonomoeError(
            f"no schedule of {shape.name} is recorded in these cells for kernels of {token_tile} "
            f"tokens; run `monomoe-gen tune --model {shape.name}` with their --tokens and --routing"
        )
    say(f"{len(times.schedules)} schedules are recorded in all of {_names(times.cells)}")
    if times.missing:
        say(f"not searched, left out: {_names(times.missing)}")
    found = []
    for count in range(1, kernels + 1):
        found.append(covers.cover(times.regret, times.weights, count))
        if not found[-1].worst:  # more kernels gain nothing
            break
    print_rows([_row(times, each) for each in found], form, FORMATS)
    say(f"one kernel for each cell: {times.least @ times.weights:.2f} us, weighted")


def _names(cells: tuple[tuple[int, str], ...]) -> str:
    routings = dict.fromkeys(routing for _, routing in cells)
    return "; ".join(
        f"{routing} with {', '.join(str(n) for n, r in cells if r == routing)} tokens"
        for routing in routings
    )


def _row(times: Times, found: Cover) -> dict[str, Any]:
    regret = times.regret[list(found.chosen)].min(axis=0)
    tokens, routing = times.cells[int(regret.argmax())]
    us = times.us[list(found.chosen)].min(axis=0) @ times.weights
    return {
        "kernels": len(found.chosen),
        "worst_regret": found.worst,
        "worst_cell": f"{tokens} {routing}",
        "mean_regret": found.mean,
        "us": float(us),
        "method": found.method,
        "schedules": " ".join(times.schedules[i].id for i in found.chosen),
    }


COMMANDS = (cover,)
