"""Commands about what is dispatched: show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import ModelType, TokensType, device_option, variant_options
from monomoe_gen.cli.output import format_option, print_rows, say
from monomoe_gen.device import Device
from monomoe_gen.errors import MonomoeError
from monomoe_gen.shapes import Shape
from monomoe_gen.variant import USUAL, Variant

if TYPE_CHECKING:
    from monomoe_gen.dispatch import Entry, Kernel

US = {"time_us": ".2f", "floor_us": ".2f", "ratio": ".2f", "faster": ".2f"}
COMPETITORS = ("published_monomoe_us", "triton_grouped_gemm_us")
BAR = 16
_FOR_PROGRAMS = ("capacity", "registers", "shared_bytes", "compiler")


@click.command()
@click.argument("shape", metavar="[MODEL]", type=ModelType(), required=False)
@click.option(
    "--tokens",
    type=TokensType(),
    help="Answer as the runtime would: which kernel serves these token counts of MODEL, and why.",
)
@click.option("--records", is_flag=True, help="Print every measurement of MODEL, failures too.")
@variant_options
@device_option
@format_option
def show(
    shape: Shape | None,
    tokens: tuple[int, ...] | None,
    records: bool,
    variant: Variant,
    device: Device,
    form: str,
) -> None:
    """Print the dispatch table, of MODEL or of all models.

    MODEL is the name or the file of a shape.

    In a table the bar is the measured time: its full part is the stream floor, the rest is what is
    lost to it. "faster" compares with the better published time on the same kind of card. The other
    formats have more columns.
    """
    model = shape.name if shape else None
    if (tokens or records) and not model:
        raise click.UsageError("--tokens and --records need a MODEL")
    if tokens and records:
        raise click.UsageError("give --tokens or --records, not both")
    if variant != USUAL and not tokens:
        raise click.UsageError("--layout, --router and --pdl say which kernels --tokens is about")
    if records:
        print_rows(_records(device, str(model)), form, US)
        return
    rows = _entries(device, model, tokens, variant)
    if form == "table":
        rows = [_for_reading(row, model) for row in rows]
        if shape:
            say(_summary(shape))
    print_rows(rows, form, US)


def _entries(
    device: Device, model: str | None, tokens: tuple[int, ...] | None, variant: Variant
) -> list[dict[str, Any]]:
    from monomoe_gen import dispatch

    table = dispatch.load(dispatch.table_folder(device.slug))
    published = _published(device)
    if model and tokens:
        matches = [dispatch.lookup(table, model, count, variant) for count in tokens]
        return [
            {"tokens": count, "how": match.how, **_entry(match.entry, match.kernel, published)}
            for count, match in zip(tokens, matches, strict=True)
        ]
    entries = dispatch.entries_of(table, model) if model else table.entries
    return [_entry(entry, table.kernel(entry), published) for entry in entries]


def _summary(shape: Shape) -> str:
    return (
        f"{shape.name}: hidden {shape.hidden}, intermediate {shape.intermediate}, "
        f"{shape.experts} experts, top {shape.top_k}, {shape.expert_bytes / 1e6:.1f} MB per expert"
    )


def _for_reading(row: dict[str, Any], model: str | None) -> dict[str, Any]:
    """What fits a line: a bar beside the ratio, and not the columns of `_FOR_PROGRAMS`."""
    shown = {}
    for name, value in row.items():
        if name in _FOR_PROGRAMS or (name == "model" and model):
            continue
        shown[name] = value
        if name == "ratio":
            shown["floor in time"] = bar(value)
    return shown


def bar(ratio: float | None) -> str:
    """The measured time as `BAR` cells, of which the stream floor fills its share."""
    if ratio is None:
        return ""
    full = min(BAR, round(BAR / ratio))
    return "█" * full + "░" * (BAR - full)


def _published(device: Device) -> dict[tuple[str, int], float]:
    """The better published time of each model and token count, microseconds."""
    from monomoe_gen.dispatch import table_folder
    from monomoe_gen.report import read_anchors

    path = table_folder(device.slug) / "anchors.json"
    shapes = read_anchors(path)["shapes"] if path.exists() else {}
    better = {}
    for model, counts in shapes.items():
        for tokens, figures in counts.items():
            known = [figures[name] for name in COMPETITORS if name in figures]
            if known:
                better[model, int(tokens)] = min(known)
    return better


def _entry(
    entry: Entry, kernel: Kernel, published: Mapping[tuple[str, int], float]
) -> dict[str, Any]:
    other = published.get((entry.model, entry.tuned_at))
    return {
        "model": entry.model,
        "tuned_at": entry.tuned_at,
        "capacity": entry.capacity,
        "time_us": entry.time_us,
        "floor_us": entry.floor_us,
        "ratio": _ratio(entry.time_us, entry.floor_us),
        "faster": _ratio(other, entry.time_us),
        "schedule": kernel.schedule.id,
        "layout": kernel.layout,
        "router": kernel.router,
        "pdl": kernel.pdl,
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
            "layout": r.layout,
            "router": r.router,
            "pdl": r.pdl,
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
