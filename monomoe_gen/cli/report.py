"""The command that presents everything as a page: report."""

from __future__ import annotations

from pathlib import Path

import click

from monomoe_gen.cli.options import device_option, models_option
from monomoe_gen.cli.output import progress, say
from monomoe_gen.device import Device
from monomoe_gen.files import write_atomically
from monomoe_gen.shapes import Shape


@click.command()
@models_option("every one with measurements")
@device_option
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="report",
    show_default=True,
    help="Write index.html into this folder.",
)
@click.option(
    "--timeline",
    "timelines",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    metavar="PATH",
    help="Show this SVG, which `trace` or `draw` wrote, or the .trace.json of `trace` beside the "
    "model, or all of a folder; may be repeated. Default: those in templates/traces.",
)
def report(
    shapes: tuple[Shape, ...], device: Device, output: Path, timelines: tuple[Path, ...]
) -> None:
    """Write the measurements as one HTML page with plots, which needs no network.

    Reads tuning_db/ and generated/. Needs the extra [report].
    """
    from monomoe_gen.pages.load import load_models, load_table
    from monomoe_gen.pages.page import page
    from monomoe_gen.pages.timelines import read_timelines

    with progress("reading", None) as step:
        models, read_gb_s = load_models(shapes, device, done=step)
    pictures = read_timelines(timelines, [data.shape.name for data in models])
    text = page(models, load_table(device), read_gb_s, pictures)
    output.mkdir(parents=True, exist_ok=True)
    path = output / "index.html"
    write_atomically(path, text.encode())
    say(f"wrote {path}, {len(text) / 1e6:.1f} MB")


COMMANDS = (report,)
