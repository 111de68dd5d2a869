"""Commands that make kernels without a GPU: render, compile, emit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import (
    device_option,
    layout_option,
    model_option,
    models_option,
    objective_option,
    pdl_option,
    router_option,
    routing_weights,
    schedule_option,
    token_tile_option,
)
from monomoe_gen.cli.output import FOR_PROGRAMS, format_option, print_rows, progress, say
from monomoe_gen.device import Device
from monomoe_gen.errors import CompileError
from monomoe_gen.files import write_atomically
from monomoe_gen.objective import Objective
from monomoe_gen.schedule import KernelSpec, Layout, Router, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.space import require_feasible

if TYPE_CHECKING:
    from monomoe_gen.compile import Outcome
    from monomoe_gen.render import Source

NOT_REPRODUCED = 3
"""Exit code of ``emit --verify`` when ``generated/`` is not what the sources give."""


@click.command()
@model_option()
@schedule_option()
@token_tile_option
@layout_option
@router_option
@pdl_option
@device_option
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the kernel and its headers as separate files below this folder.",
)
def render(
    shape: Shape,
    schedule: Schedule,
    token_tile: int,
    layout: Layout,
    router: Router,
    pdl: bool,
    device: Device,
    output: Path | None,
) -> None:
    """Print the CUDA text of a kernel as one self-contained file."""
    source = _source(KernelSpec(shape, schedule, token_tile, layout, router, pdl), device)
    if output is None:
        click.echo(source.bundle(), nl=False)
        return
    for name, text in source.texts.items():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    say(f"wrote {len(source.texts)} files below {output}")


def _source(spec: KernelSpec, device: Device) -> Source:
    from monomoe_gen.render import render as render_spec

    require_feasible(spec.shape, spec.schedule, device, spec.token_tile)
    return render_spec(spec)


@click.command("compile")
@models_option("with --dispatched, every dispatched one")
@click.option(
    "--dispatched",
    is_flag=True,
    help="Compile the kernels of the dispatch table, every one or those of --model.",
)
@schedule_option(required=False)
@token_tile_option
@layout_option
@router_option
@pdl_option
@device_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the cubin of the one kernel here.",
)
@format_option
def compile_command(
    shapes: tuple[Shape, ...],
    dispatched: bool,
    schedule: Schedule | None,
    token_tile: int,
    layout: Layout,
    router: Router,
    pdl: bool,
    device: Device,
    output: Path | None,
    form: str,
) -> None:
    """Compile with NVRTC and print what a kernel needs.

    Either one kernel (--model and --schedule) or the dispatched ones. No GPU is used.
    """
    if dispatched:
        if schedule or output:
            raise click.UsageError("--dispatched takes no --schedule or --output")
        sources = _dispatched_sources(device, [shape.name for shape in shapes])
    elif len(shapes) == 1 and schedule:
        spec = KernelSpec(shapes[0], schedule, token_tile, layout, router, pdl)
        sources = [_source(spec, device)]
    else:
        raise click.UsageError("give one --model and --schedule, or --dispatched")
    outcomes = _compile(sources, device)
    if output and not isinstance(outcomes[0], CompileError):
        write_atomically(output, outcomes[0].cubin)
    print_rows(
        [_resources(source, outcome) for source, outcome in zip(sources, outcomes, strict=True)],
        form,
    )
    for outcome in outcomes:
        if isinstance(outcome, CompileError):
            raise outcome


def _dispatched_sources(device: Device, models: Sequence[str]) -> list[Source]:
    from monomoe_gen import dispatch
    from monomoe_gen.render import render as render_spec

    table = dispatch.load(dispatch.table_folder(device.slug))
    return [render_spec(kernel.spec) for kernel in dispatch.part(table, models).kernels]


def _compile(sources: Sequence[Source], device: Device) -> list[Outcome]:
    from monomoe_gen.compile import compile_many

    with progress("compiling", len(sources)) as step:
        return compile_many(
            sources,
            on_result=lambda index, _: step(sources[index].kernel_name),
            arch=device.arch,
        )


def _resources(source: Source, outcome: Outcome) -> dict[str, Any]:
    names = ("registers", "spill_bytes", "local_bytes", "static_shared", "shared_bytes", "threads")
    if isinstance(outcome, CompileError):
        values = dict.fromkeys((*names, "compiler"))
        return {"kernel": source.kernel_name, "status": "compile_error", **values}
    values = {name: getattr(outcome, name) for name in (*names, "compiler")}
    return {"kernel": source.kernel_name, "status": "ok", **values}


@click.command()
@models_option("every shape with records; with --verify, every dispatched one")
@device_option
@click.option(
    "--verify",
    "verify_only",
    is_flag=True,
    help="Change nothing: render and compile the dispatched kernels again, every one or those of "
    "--model, and compare. The C++ header is compared as a whole.",
)
@objective_option(
    "Whose routing patterns decide between finalists, as `tune` measured them. Default: default."
)
@format_option
def emit(
    shapes: tuple[Shape, ...],
    device: Device,
    verify_only: bool,
    objective: Objective | None,
    form: str,
) -> int | None:
    """Write the dispatch table, sources and cubins of the fastest recorded kernels.

    With --verify, exit code 3 means that generated/ is not what the sources give.
    """
    if verify_only:
        return _verify(device, [shape.name for shape in shapes], form)
    from monomoe_gen.emit import emit as emit_table

    with progress("compiling", None) as step:
        models = [shape.name for shape in shapes] or None
        emission = emit_table(device, models, weights=routing_weights(objective), done=step)
    for note in emission.notes:
        say(note)
    rows = [{"file": name, "change": "written"} for name in emission.written]
    rows += [{"file": name, "change": "removed"} for name in emission.removed]
    if rows or form != "table":
        print_rows(rows, form)
    else:
        say("nothing changed")
    return None


def _verify(device: Device, models: list[str], form: str) -> int | None:
    from monomoe_gen.verify import gathered, verify

    with progress("compiling", None) as step:
        findings = verify(device, models, done=step)
    rows = [{"subject": f.subject, "status": f.status, "message": f.message} for f in findings]
    print_rows(rows if form in FOR_PROGRAMS else gathered(rows), form)
    return NOT_REPRODUCED if any(f.status == "wrong" for f in findings) else None


COMMANDS = (render, compile_command, emit)
