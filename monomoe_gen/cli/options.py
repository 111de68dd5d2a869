"""Options and parameter types that commands share."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from monomoe_gen import objective as objectives
from monomoe_gen.device import DEFAULT, KNOWN, Device
from monomoe_gen.objective import Objective
from monomoe_gen.routings import TIMED_ROUTINGS
from monomoe_gen.schedule import LAYOUTS, ROUTERS, TOKEN_TILES, Layout, Router, Schedule
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.variant import Variant

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class ModelType(click.ParamType):
    """The name or file of a shape."""

    name = "model"

    def convert(self, value: Any, param: Any, ctx: Any) -> Shape:
        return value if isinstance(value, Shape) else load_shape(value)


class _ScheduleType(click.ParamType):
    name = "schedule"

    def convert(self, value: Any, param: Any, ctx: Any) -> Schedule:
        return value if isinstance(value, Schedule) else Schedule.parse(value)


class _DeviceType(click.ParamType):
    name = "device"

    def convert(self, value: Any, param: Any, ctx: Any) -> Device:
        if isinstance(value, Device):
            return value
        if value not in KNOWN:
            self.fail(f"{value!r} is not known; choose from {', '.join(KNOWN)}", param, ctx)
        return KNOWN[value]


class TokensType(click.ParamType):
    """Token counts, comma separated: ``1,2,4,8``."""

    name = "n,n,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isdigit() and 1 <= int(part) <= max(TOKEN_TILES) for part in parts):
            self.fail(
                f"{value!r}: give numbers from 1 to {max(TOKEN_TILES)}, comma separated", param, ctx
            )
        return tuple(sorted({int(part) for part in parts}))


class DurationType(click.ParamType):
    """A time such as ``90s``, ``10m`` or ``1.5h``, in seconds; ``none`` is 0."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, int | float):
            return float(value)
        if value == "none":
            return 0.0
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", value.strip())
        if not match or not float(match[1]):
            self.fail(f"{value!r}: give a time such as 90s, 10m or 1.5h, or none", param, ctx)
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


class PercentType(click.ParamType):
    """A percentage such as ``10`` or ``2.5``, as a share; ``none`` is None."""

    name = "percent"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | None:
        if not isinstance(value, str):
            return None if value is None else float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)%?", value.strip())
        if value != "none" and not match:
            self.fail(f"{value!r}: give a percentage such as 10, or none", param, ctx)
        return float(match[1]) / 100 if match else None


def schedule_text(schedule: Schedule) -> str:
    """A schedule as ``--schedule`` takes it."""
    return ",".join(f"{name}={value}" for name, value in schedule.to_dict().items())


def model_option(required: bool = True) -> Decorator:
    """``--model`` as ``shape``: one shape."""
    return click.option(
        "--model",
        "shape",
        type=ModelType(),
        required=required,
        help="Name of a shape, or the path of a shape file.",
    )


def models_option(default: str) -> Decorator:
    """``--model`` as ``shapes``: any number; ``default`` says what none means."""
    return click.option(
        "--model",
        "shapes",
        type=ModelType(),
        multiple=True,
        help=f"Name or file of a shape; may be repeated. Default: {default}.",
    )


class _RoutingsType(click.ParamType):
    """Routing patterns, comma separated."""

    name = "routings"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in value.split(","))
        for name in names:
            if name not in TIMED_ROUTINGS:
                self.fail(f"{name!r} is not one of {', '.join(TIMED_ROUTINGS)}", param, ctx)
        return names


class _ObjectiveType(click.ParamType):
    """An objective file, or ``default``."""

    name = "file|default"

    def convert(self, value: Any, param: Any, ctx: Any) -> Objective:
        if isinstance(value, Objective):
            return value
        if value == "default":
            return objectives.DEFAULT
        if not Path(value).is_file():
            self.fail(f"{value!r}: no such file; give one, or default", param, ctx)
        return objectives.load(Path(value))


def objective_option(effect: str) -> Decorator:
    """``--objective`` as ``objective``, None unless given; ``effect`` says what it does."""
    return click.option(
        "--objective",
        type=_ObjectiveType(),
        help=f"{effect} FILE is YAML with weights, such as `{{tokens: {{1: 1, 8: 2}}, routing: "
        "{uniform: 0.7, zipf: 0.3}}`. What it leaves out is as in `default`: 1 to 8 tokens alike; "
        "uniform 0.6, zipf 0.3, same 0.1.",
    )


def routing_weights(objective: Objective | None) -> dict[str, float]:
    """The weights of its routings, by which winners are chosen; without one those of the default.

    Uniform routing has to be among them: tables tell its times.
    """
    weights = (objective or objectives.DEFAULT).routings
    if "uniform" not in weights:
        raise click.UsageError(
            f"--objective: give uniform routing a weight too, found {', '.join(weights)} only"
        )
    return weights


def refuse_beside(option: str, *parameters: str) -> None:
    """Raises UsageError if one of ``parameters`` was given beside ``option``."""
    for given in given_options(*parameters):
        raise click.UsageError(f"give {given} or {option}, not both")


def given_options(*parameters: str) -> list[str]:
    """The options of ``parameters`` that the command line has, in the order of the help."""
    context = click.get_current_context()
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in parameters
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def captured_routing(trace_file: Path, shape: Shape) -> str:
    """The name of the routing in ``trace_file``, which is given in place of ``--routing``."""
    from monomoe_gen.routing_trace import load

    refuse_beside("--routing-trace", "routing", "routings")
    return load(trace_file, shape).name


def schedule_option(required: bool = True) -> Decorator:
    """``--schedule`` as ``schedule``."""
    return click.option(
        "--schedule",
        type=_ScheduleType(),
        required=required,
        metavar="ID|grid=132,g_up=...",
        help="An id as tables print it, such as g132-u64x1024x8-d128x512x8, or the seven "
        "parameters by name, comma separated.",
    )


token_tile_option = click.option(
    "--token-tile",
    type=click.Choice([str(n) for n in TOKEN_TILES]),
    default=str(TOKEN_TILES[0]),
    show_default=True,
    callback=lambda ctx, param, value: int(value),
    help="Most tokens the kernel can take.",
)
layout_option = click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default=LAYOUTS[0],
    show_default=True,
    help="How the kernel's weights lie in memory: regrouped for it, or as in the checkpoint.",
)
router_option = click.option(
    "--router",
    type=click.Choice(ROUTERS),
    default=ROUTERS[0],
    show_default=True,
    help="What the kernel routes by: logits that it is given, or the router's weight, inside.",
)
pdl_option = click.option(
    "--pdl",
    is_flag=True,
    help="Programmatic dependent launch: begin before the kernel ahead has ended.",
)


def variant_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--layout``, ``--router`` and ``--pdl`` as ``variant``."""

    @functools.wraps(command)
    def with_variant(*args: Any, layout: Layout, router: Router, pdl: bool, **others: Any) -> Any:
        return command(*args, variant=Variant(layout, router, pdl), **others)

    for option in (pdl_option, router_option, layout_option):
        option(with_variant)
    return with_variant


device_option = click.option(
    "--device",
    type=_DeviceType(),
    default=DEFAULT,
    show_default=True,
    help=f"The GPU whose limits count: {', '.join(KNOWN)}.",
)
tokens_option = click.option(
    "--tokens",
    type=TokensType(),
    default="1,2,4,8",
    show_default=True,
    help="Token counts, comma separated.",
)
routings_option = click.option(
    "--routing",
    "routings",
    type=_RoutingsType(),
    multiple=True,
    default=TIMED_ROUTINGS[:1],
    show_default=True,
    callback=lambda ctx, param, value: tuple(dict.fromkeys(itertools.chain(*value))),
    metavar="NAME,NAME,...",
    help=f"How tokens choose experts in timed launches: {', '.join(TIMED_ROUTINGS)}; may be "
    "repeated.",
)
trace_file_option = click.option(
    "--routing-trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Time launches with captured routing, in place of --routing; tuning_db/README.md "
    "describes the file.",
)
routing_option = click.option(
    "--routing",
    type=click.Choice(TIMED_ROUTINGS),
    default=TIMED_ROUTINGS[0],
    show_default=True,
    help="How tokens choose experts in timed launches.",
)
