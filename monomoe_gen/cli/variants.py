"""The command that says what the variants of a kernel cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.measure import FAILED, WRONG
from monomoe_gen.cli.options import models_option, tokens_option
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.shapes import Shape
from monomoe_gen.variant_report import FILE, KINDS, Cost, write_costs

if TYPE_CHECKING:
    from monomoe_gen.protocol import Cell
    from monomoe_gen.sandbox import Outcome
    from monomoe_gen.variant_bench import Candidate

_US = dict.fromkeys(("time_us", "floor_us", "ratio", "after_router_us"), ".2f")


@click.command("bench-variants")
@models_option("every dispatched one with fp8 activations")
@tokens_option
@click.option(
    "--write",
    is_flag=True,
    help=f"Put the results into generated/<gpu>/{FILE}, in place of those of the same models.",
)
@format_option
def bench_variants(
    shapes: tuple[Shape, ...], tokens: tuple[int, ...], write: bool, form: str
) -> int | None:
    """Time the variants of dispatched kernels beside the usual ones, in one process.

    The kinds are: usual; router (inside); pdl; raw (weights); bf16 (activations). Each is validated
    first. A kind that the table has no kernel of, for exactly that token count, is compiled with
    the usual kernel's schedule; "tuned" is false then. after_router_us is torch's bf16 GEMM of the
    router and the kernel behind it, as two nodes of a graph: it is what the router inside has to be
    compared with, and where programmatic dependent launch has something to overlap with.

    Weights are cold and routing is uniform; the stream floor is timed once for all kinds.
    """
    from monomoe_gen import dispatch, jobs, remeasure, variant_bench
    from monomoe_gen.sandbox import Sandbox

    device = remeasure.require_device()
    folder = dispatch.table_folder(device.slug)
    names = [shape.name for shape in shapes]
    candidates = variant_bench.choose(dispatch.load(folder), names, tokens, device)
    with progress("compiling", sum(not c.kernel for c in candidates)) as step:
        kernels = variant_bench.images(candidates, folder, device, step)
    floors = jobs.compile_floors(device)
    code = None
    measured: list[tuple[Candidate, Outcome]] = []
    cells = sum(len(c.tokens) for c in candidates)
    last = {candidate.model: candidate for candidate in candidates}
    with Sandbox() as box, progress("measuring", cells) as step:

        def hear(candidate: Candidate, cell: Cell) -> None:
            step(f"{candidate.model}, {candidate.kind}, {cell.tokens} tokens")

        for candidate, outcome in variant_bench.measure(candidates, kernels, floors, box, hear):
            measured.append((candidate, outcome))
            for cell in outcome.cells:
                if cell.status != "ok":
                    code = WRONG
                    say(f"{candidate.spec.id}: {cell.status}: {cell.message}")
            if outcome.status != "ok":
                code = code or FAILED
                say(f"{candidate.spec.id}: {outcome.status}: {outcome.message}")
            if write and candidate is last[candidate.model]:
                path = dispatch.writable_folder(device.slug) / FILE
                _keep(path, [m for m in measured if m[0].model == candidate.model])
    found = variant_bench.costs(measured)
    print_rows(_rows(found), form, {**_US, "cosine": ".5f", "slower": "+.1%"})
    return code


def _keep(path: Path, own: Sequence[tuple[Candidate, Outcome]]) -> None:
    """Writes all of one model, at once, so that an interruption loses only the next one."""
    from monomoe_gen import variant_bench

    model = own[0][0].model
    if all(o.status == "ok" and all(c.status == "ok" for c in o.cells) for _, o in own):
        write_costs(path, variant_bench.costs(own))
        say(f"wrote {model} to {path}")
    else:
        say(f"nothing of {model} is written: not every kernel gave a time")


def _rows(found: list[Cost]) -> list[dict[str, Any]]:
    """Sorted by model and token count; "slower" is than the usual kernel."""
    usual = {(c.model, c.tokens): c.time_us for c in found if c.kind == "usual"}
    return [
        {
            "model": c.model,
            "tokens": c.tokens,
            "kind": c.kind,
            "time_us": c.time_us,
            "slower": round(c.time_us / usual[c.model, c.tokens] - 1, 4),
            "floor_us": c.floor_us,
            "ratio": round(c.time_us / c.floor_us, 3),
            "after_router_us": c.after_router_us,
            "cosine": c.cosine,
            "tuned": c.tuned,
            "schedule": c.schedule,
        }
        for c in sorted(found, key=lambda c: (c.model, c.tokens, KINDS.index(c.kind)))
    ]


COMMANDS = (bench_variants,)
