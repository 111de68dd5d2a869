"""The commands about recorded measurements: db show, merge, export and migrate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import TokensType, device_option, models_option
from monomoe_gen.cli.output import format_option, print_rows, say
from monomoe_gen.device import Device
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.shapes import Shape

if TYPE_CHECKING:
    from monomoe_gen.tuning_db import Record

STATUSES = ("ok", "infeasible", "compile_error", "launch_error", "wrong", "timeout", "unstable")
STAGES = ("screen", "final", "confirm")
Found = list[tuple[str, "Record"]]


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose records."""
    for option in (
        device_option,
        click.option("--routing", help="Only this routing pattern."),
        click.option("--stage", type=click.Choice(STAGES), help="Only this stage."),
        click.option(
            "--status", type=click.Choice(STATUSES), multiple=True, help="Only this; repeatable."
        ),
        click.option("--tokens", type=TokensType(), default=None, help="Only these token counts."),
        models_option("every one with records"),
    ):
        command = option(command)
    return command


@click.group()
def db() -> None:
    """Look at, merge and export the recorded measurements."""


@db.command()
@_filters
@click.option("--last", type=click.IntRange(1), help="Only the last so many records.")
@format_option
def show(last: int | None, form: str, device: Device, **chosen: Any) -> None:
    """Print records, one a row, in the order in which they were added."""
    found = _records(device, **chosen)
    rows = [_row(model, record) for model, record in found[-last if last else 0 :]]
    print_rows(rows, form, {"time_us": ".2f", "floor_us": ".2f"})
    say(f"{len(rows)} of {len(found)} records")


@db.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
def merge(source: Path) -> None:
    """Add the records of SOURCE that this database lacks.

    SOURCE is a file <gpu>/<shape>.jsonl of another tuning_db, or such a tuning_db.
    """
    from monomoe_gen import tuning_db

    files = sorted(source.glob("*/*.jsonl")) if source.is_dir() else [source]
    if not files:
        raise MonomoeError(
            f"{source} holds no <gpu>/<shape>.jsonl; give a tuning_db or such a file"
        )
    for path in files:
        target = tuning_db.database_path(path.resolve().parent.name, path.stem)
        say(f"{target}: {tuning_db.merge(target, path)} records added")


@db.command()
@_filters
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet", "t4"]),
    required=True,
    help="A row a record, or T4, the JSON of the auto-tuning community, for one problem.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Write this file.",
)
def export(form: str, output: Path, device: Device, **chosen: Any) -> None:
    """Write records to a file that other programs read. Parquet needs the extra [parquet]."""
    from monomoe_gen import t4, tuning_db
    from monomoe_gen.files import write_atomically

    found = _records(device, **chosen)
    records = [record for _, record in found]
    if form == "t4":
        models = sorted({model for model, _ in found})
        if len(models) > 1:
            raise MonomoeError(f"a T4 file is about one model, found {', '.join(models)}")
        data = json.dumps(t4.results(records), indent=1).encode() + b"\n"
    else:
        table = tuning_db.frame(records)
        table.insert(0, "model", [model for model, _ in found])
        if form == "csv":
            data = table.to_csv(index=False).encode()
        else:
            try:
                data = table.to_parquet(index=False)
            except ImportError:
                raise EnvironmentProblem(
                    "Parquet needs pyarrow, which is not installed: install the extra [parquet], "
                    "for instance with `pip install 'monomoe-gen[parquet]'`, or take csv"
                ) from None
    write_atomically(output, data)
    say(f"wrote {len(found)} records to {output}")


@db.command()
@device_option
def migrate(device: Device) -> None:
    """Bring files of older record formats up to date.

    There has been one format so far, so this only says that there is nothing to do. A file of a
    newer format is an error: a newer program wrote it.
    """
    from monomoe_gen import tuning_db

    for path in _files((), device):
        count = len(tuning_db.read(path))
        say(f"{path}: {count} records of format {tuning_db.FORMAT}, the only one; unchanged")


def _files(shapes: tuple[Shape, ...], device: Device) -> list[Path]:
    from monomoe_gen import tuning_db

    if shapes:
        return [tuning_db.database_path(device.slug, shape.name) for shape in shapes]
    return sorted(tuning_db.database_path(device.slug, "any").parent.glob("*.jsonl"))


def _records(
    device: Device,
    shapes: tuple[Shape, ...],
    tokens: tuple[int, ...] | None,
    status: tuple[str, ...],
    stage: str | None,
    routing: str | None,
) -> Found:
    from monomoe_gen import tuning_db

    found = [
        (path.stem, record)
        for path in _files(shapes, device)
        for record in tuning_db.read(path)
        if (not tokens or record.tokens in tokens)
        and (not status or record.status in status)
        and stage in (None, record.stage)
        and routing in (None, record.routing)
    ]
    if not found:
        raise MonomoeError(f"no record of {device.name} is like that; `db show` lists all")
    return found


def _row(model: str, record: Record) -> dict[str, Any]:
    from monomoe_gen.schedule import Schedule

    return {
        "model": model,
        "tokens": record.tokens,
        "routing": record.routing,
        "stage": record.stage,
        "status": record.status,
        "time_us": record.time_us.median if record.time_us else None,
        "floor_us": record.floor_us,
        "schedule": Schedule.from_dict(record.schedule).id,
        "sources": record.sources_hash[:8],
        "at": record.at,
        "message": record.message.partition("\n")[0][:80],
    }


COMMANDS = (db,)
