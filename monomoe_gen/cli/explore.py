"""Commands that only look: shapes, space, explain."""

from __future__ import annotations

from dataclasses import asdict

import click

from monomoe_gen.cli.options import (
    device_option,
    model_option,
    schedule_option,
    schedule_text,
    token_tile_option,
)
from monomoe_gen.cli.output import format_option, print_json, print_rows, say
from monomoe_gen.device import Device
from monomoe_gen.rules import RULES, violations
from monomoe_gen.schedule import Geometry, Schedule
from monomoe_gen.shape_table import describe_routing
from monomoe_gen.shapes import Shape, list_shapes
from monomoe_gen.space import nearest_legal, removal_counts


@click.command()
@format_option
def shapes(form: str) -> None:
    """List the shipped shapes."""
    found = list_shapes()
    if form == "table":
        print_rows([_summary(shape) for shape in found], form)
    else:
        print_rows([asdict(shape) for shape in found], form)


def _summary(shape: Shape) -> dict[str, object]:
    return {
        "model": shape.name,
        "hidden": shape.hidden,
        "intermediate": shape.intermediate,
        "experts": shape.experts,
        "top_k": shape.top_k,
        "routing": describe_routing(shape),
        "MB per expert": round(shape.expert_bytes / 1e6, 1),
    }


@click.command()
@model_option()
@token_tile_option
@device_option
@format_option
def space(shape: Shape, token_tile: int, device: Device, form: str) -> None:
    """Count how many schedules each rule removes.

    A schedule counts for the first rule, in this order, that it breaks.
    """
    total, removed, _ = removal_counts(shape, device, token_tile)
    rows = [{"rule": "(enumerated)", "removed": None, "left": total, "reason": ""}]
    left = total
    for rule in RULES:
        left -= removed[rule.name]
        rows.append(
            {
                "rule": rule.name,
                "removed": removed[rule.name],
                "left": left,
                "reason": rule.reason,
            }
        )
    print_rows(rows, form)


@click.command()
@model_option()
@schedule_option()
@token_tile_option
@device_option
@format_option
def explain(shape: Shape, schedule: Schedule, token_tile: int, device: Device, form: str) -> None:
    """Say which rules a schedule breaks and which legal schedule is nearest."""
    broken = violations(shape, schedule, device, token_tile)
    rows = [{"rule": v.rule.name, "found": v.found, "reason": v.rule.reason} for v in broken]
    nearest = nearest_legal(shape, schedule, device, token_tile) if broken else schedule
    hint = schedule_text(nearest) if nearest else None
    if form == "json":
        print_json(
            {"schedule": schedule.id, "feasible": not broken, "rules": rows, "nearest": hint}
        )
    elif rows:
        print_rows(rows, form)
        say(f"refused for {shape.name}; the nearest legal schedule is {hint or 'none'}")
    else:
        geometry = Geometry(shape, schedule, token_tile)
        print_rows(
            [{"component": n, "bytes": b} for n, b in geometry.shared_fields().items()], form
        )
        say(
            f"legal for {shape.name}: {geometry.threads} threads, {geometry.shared_bytes} bytes of "
            f"shared memory, {device.shared_per_block} available"
        )


COMMANDS = (shapes, space, explain)
