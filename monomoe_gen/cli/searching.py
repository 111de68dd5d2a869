"""The command that compares samplers on recorded times: search-study."""

from __future__ import annotations

from pathlib import Path

import click

from monomoe_gen.cli.options import device_option, model_option, tokens_option
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.cli.records import counting_times
from monomoe_gen.device import Device
from monomoe_gen.samplers import SAMPLERS
from monomoe_gen.schedule import TOKEN_TILES
from monomoe_gen.shapes import Shape

TILE = TOKEN_TILES[0]


@click.command("search-study")
@model_option()
@tokens_option
@click.option(
    "--sampler",
    "names",
    type=click.Choice(list(SAMPLERS)),
    multiple=True,
    help="A sampler to study; may be repeated. Default: all but gp, which takes minutes.",
)
@click.option("--seeds", type=click.IntRange(1), default=20, show_default=True, help="Searches.")
@click.option(
    "--trials", type=click.IntRange(8), default=128, show_default=True, help="Of each search."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the plot as an HTML page to this file. Needs the extra [report].",
)
@click.option("--store", is_flag=True, help="Keep the result beside the records.")
@device_option
@format_option
def search_study(
    shape: Shape,
    tokens: tuple[int, ...],
    names: tuple[str, ...],
    seeds: int,
    trials: int,
    output: Path | None,
    store: bool,
    device: Device,
    form: str,
) -> None:
    """Compare samplers on recorded times, without a GPU.

    Searches the records as `tune` would search the GPU and prints by how many per cent the best
    schedule found is slower than the best recorded one, after n trials: the mean over token counts
    and seeds, and the worst seed at the end. As good as the records: an exhaustive run tells most.
    Times of older sources count only at token counts where the present ones have too few.
    """
    from monomoe_gen import search_study as studies
    from monomoe_gen import tuning_db
    from monomoe_gen.present import Present
    from monomoe_gen.space import feasible

    if max(tokens) > TILE:
        raise click.UsageError(f"records of more than {TILE} tokens are not studied")
    records = tuning_db.read(tuning_db.database_path(device.slug, shape.name))
    present, least = Present(shape), studies.LEAST
    counting = counting_times(shape.name, present, records, tokens, TILE, least=least)
    times = studies.recorded_times(counting, tokens, TILE)
    names = names or studies.USUAL
    with progress("searching", studies.steps(names, seeds)) as step:
        space = len(feasible(shape, device, TILE))
        found = studies.study(shape, times, space, names, seeds, trials, TILE, step)
    print_rows(studies.rows(found), form, {str(n): ".2f" for n in found.trials} | {"worst": ".2f"})
    say(
        f"{shape.name} on {device.name}: {found.schedules} of {space} schedules are recorded; "
        f"least regret over all numbers of trials and both starts: {studies.favoured([found])}"
    )
    if output:
        from monomoe_gen.pages.page import study_page

        output.write_text(study_page([found], device), encoding="utf-8")
        say(f"wrote {output}")
    if store:
        path = studies.study_path(device.slug)
        studies.store(path, found)
        say(f"wrote {path}")


COMMANDS = (search_study,)
