"""Setting the gate up: calibrate, init-ci."""

from __future__ import annotations

import math
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monomoe_gen.ci import LABEL, SERVICES, write_workflow
from monomoe_gen.cli.options import DurationType, TokensType, models_option
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.errors import MonomoeError
from monomoe_gen.routings import TIMED_ROUTINGS
from monomoe_gen.shapes import Shape

if TYPE_CHECKING:
    from monomoe_gen.candidates import CellId
    from monomoe_gen.dispatch import Table

tokens_option = click.option(
    "--tokens", type=TokensType(), help="Token counts, comma separated. Default: the tuned ones."
)
blocks_option = click.option(
    "--blocks",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Blocks of baseline, candidate, candidate, baseline in a process.",
)


@click.command()
@models_option("every dispatched one")
@tokens_option
@click.option(
    "--processes",
    type=click.IntRange(4, 256),
    default=8,
    show_default=True,
    help="Most fresh processes for each comparison.",
)
@blocks_option
@click.option(
    "--budget",
    "budget_s",
    type=DurationType(),
    default="2m",
    show_default=True,
    help="Time to spend, such as 2m: it decides how many kernels and token counts are compared; "
    "'none' compares all.",
)
@format_option
def calibrate(
    shapes: tuple[Shape, ...],
    tokens: tuple[int, ...] | None,
    processes: int,
    blocks: int,
    budget_s: float,
    form: str,
) -> int | None:
    """Measure how much equal kernels seem to differ on this GPU: its A/A floor.

    Dispatched kernels are compared with themselves, and with a cubin of the same instructions that
    lie elsewhere in memory: as many as --budget allows, each kernel first at the token count where
    it is fastest. `check` takes no threshold below twice what is found. With fewer comparisons that
    number is less sure, and says nothing of the token counts that were left out.
    """
    began = time.monotonic()
    from monomoe_gen import calibration, candidates, dispatch, gate, jobs, noise, regress, remeasure
    from monomoe_gen.sandbox import sandboxes
    from monomoe_gen.verify import rebuild

    device = remeasure.require_device()
    folder = dispatch.table_folder(device.slug)
    table = dispatch.load(folder)
    with progress("compiling", len(table.kernels)) as step:
        rebuilt = rebuild(device, table, step)
    names = [shape.name for shape in shapes]
    pairs, failed = candidates.make_pairs(
        table, rebuilt, folder, names, tokens or (), TIMED_ROUTINGS[:1]
    )
    for cell, reason in failed.items():
        raise MonomoeError(f"{cell}: does not compile: {reason}")
    first_look = gate.Plan().processes
    floors = jobs.compile_floors(device)
    deadline = began + budget_s if budget_s else math.inf
    if budget_s:
        left = deadline - time.monotonic()
        times = {p.cell: _time_us(table, p.cell) for p in pairs}
        chosen = calibration.choose(pairs, times, blocks, processes, left)
        if len(chosen) < len(pairs):
            say(f"{len(chosen)} of {len(pairs)} cells fit into the budget; --budget none takes all")
        pairs = chosen
    identical, moved = candidates.a_a_pairs(pairs, device)
    plan = gate.Plan(processes, blocks=blocks)
    with progress("timing", None) as step, sandboxes() as open_sandbox:
        found, env = gate.compare(
            [*identical, *moved], plan, floors, device, open_sandbox, step, deadline
        )
    measured_in = len({block.process for blocks_of in found for block in blocks_of})
    measured = noise.Noise(
        uuid=str(env["uuid"]),
        driver=None if env.get("driver") is None else str(env["driver"]),
        identical=regress.noise_floor(found[: len(identical)], first_look),
        placement=regress.noise_floor(found[len(identical) :], first_look),
        cells=len(pairs),
        processes=measured_in,
        at=datetime.now(timezone.utc).isoformat("T", "seconds"),
    )
    path = noise.noise_path(device.slug)
    noise.store(path, measured)
    floors_found = {
        "identical cubins": measured.identical,
        "the same code at another place": measured.placement,
        "threshold of a check": regress.threshold(measured.floor),
    }
    print_rows(
        [{"comparison": name, "difference": value} for name, value in floors_found.items()],
        form,
        {"difference": ".2%"},
    )
    say(f"wrote {path}")
    return None


def _time_us(table: Table, cell: CellId) -> float:
    """What the table says of a cell; of a token count it was not tuned at, the kernel's time."""
    from monomoe_gen import dispatch

    return dispatch.lookup(table, cell.model, cell.tokens).entry.time_us


@click.command("init-ci")
@click.argument("service", type=click.Choice(sorted(SERVICES)))
@click.option(
    "--label",
    default=LABEL,
    show_default=True,
    metavar="NAME",
    help="Label or tag of the runners that have the GPU.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write. Default: where the service looks, below the current folder.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init_ci(service: str, label: str, output: Path | None, force: bool) -> None:
    """Write a CI workflow: checks without a GPU on every push, timed ones on a labelled runner.

    It installs the compiler that the dispatch table records, so that bytes can be compared.
    """
    from monomoe_gen import dispatch

    folder = dispatch.table_folder()
    known = dispatch.load(folder).kernels if (folder / dispatch.FILE).exists() else ()
    path = output or Path(SERVICES[service].path)
    write_workflow(service, path, label, [kernel.compiler for kernel in known], force)
    say(f"wrote {path}; commit it, and register a runner with the label {label}")


COMMANDS = (calibrate, init_ci)
