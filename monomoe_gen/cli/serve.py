"""Commands about what is dispatched: show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import TokensType, device_option
from monomoe_gen.cli.output import format_option, print_rows
from monomoe_gen.device import Device
from monomoe_gen.errors import MonomoeError

if TYPE_CHECKING:
    from monomoe_gen.dispatch import Entry, Kernel

US = {"time_us": ".2f", "floor_us": ".2f", "ratio": ".2f"}


@click.command()
@click.argument("model", required=False)
@click.option(
    "--tokens",
    type=TokensType(),
    help="Answer as the runtime would: which kernel serves these token counts of MODEL, and why.",
)
@click.option("--records", is_flag=True, help="Print every measurement of MODEL, failures too.")
@device_option
@format_option
def show(
    model: str | None,
    tokens: tuple[int, ...] | None,
    records: bool,
    device: Device,
    form: str,
) -> None:
    """Print the dispatch table, of MODEL or of all models."""
    if (tokens or records) and not model:
        raise click.UsageError("--tokens and --records need a MODEL")
    if tokens and records:
        raise click.UsageError("give --tokens or --records, not both")
    rows = _records(device, str(model)) if records else _entries(device, model, tokens)
    print_rows(rows, form, US)


def _entries(
    device: Device, model: str | None, tokens: tuple[int, ...] | None
) -> list[dict[str, Any]]:
    from monomoe_gen import dispatch

    table = dispatch.load(dispatch.table_folder(device.slug))
    if model and tokens:
        matches = [dispatch.lookup(table, model, count) for count in tokens]
        return [
            {"tokens": count, "how": match.how, **_entry(match.entry, match.kernel)}
            for count, match in zip(tokens, matches, strict=True)
        ]
    if model:
        dispatch.lookup(table, model, 1)
    entries = [entry for entry in table.entries if model in (None, entry.model)]
    return [_entry(entry, table.kernel(entry)) for entry in entries]


def _entry(entry: Entry, kernel: Kernel) -> dict[str, Any]:
    return {
        "model": entry.model,
        "tuned_at": entry.tuned_at,
        "capacity": entry.capacity,
        "time_us": entry.time_us,
        "floor_us": entry.floor_us,
        "ratio": _ratio(entry.time_us, entry.floor_us),
        "schedule": kernel.schedule.id,
        "registers": kernel.registers,
        "shared_bytes": kernel.shared_bytes,
        "compiler": kernel.compiler,
    }


def _records(device: Device, model: str) -> list[dict[str, Any]]:
    from monomoe_gen import tuning_db
    from monomoe_gen.schedule import Schedule

    path = tuning_db.database_path(device.slug, model)
    if not path.exists():
        raise MonomoeError(f"no measurements of {model}: there is no {path}")
    return [
        {
            "tokens": r.tokens,
            "routing": r.routing,
            "schedule": Schedule.from_dict(r.schedule).id,
            "stage": r.stage,
            "status": r.status,
            "time_us": r.time_us.median if r.time_us else None,
            "floor_us": r.floor_us,
            "ratio": _ratio(r.time_us.median if r.time_us else None, r.floor_us),
            "cosine": min((e.cosine for e in r.errors.values()), default=None),
            "at": r.at,
            "message": r.message,
        }
        for r in tuning_db.read(path)
    ]


def _ratio(time_us: float | None, floor_us: float | None) -> float | None:
    return round(time_us / floor_us, 3) if time_us and floor_us else None


COMMANDS = (show,)
