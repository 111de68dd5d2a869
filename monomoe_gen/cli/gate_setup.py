"""Setting the gate up: calibrate, init-ci."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import click

from monomoe_gen.ci import LABEL, SERVICES, write_workflow
from monomoe_gen.cli.options import TIMED_ROUTINGS, TokensType, models_option
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.errors import MonomoeError
from monomoe_gen.shapes import Shape

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
    help="Fresh processes for each comparison.",
)
@blocks_option
@format_option
def calibrate(
    shapes: tuple[Shape, ...],
    tokens: tuple[int, ...] | None,
    processes: int,
    blocks: int,
    form: str,
) -> int | None:
    """Measure how much equal kernels seem to differ on this GPU: its A/A floor.

    Every dispatched kernel is compared with itself, and with a cubin of the same instructions that
    lie elsewhere in memory. `check` takes no threshold below twice what is found.
    """
    from monomoe_gen import candidates, dispatch, gate, jobs, noise, regress, remeasure
    from monomoe_gen.sandbox import Sandbox
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
    identical, moved = candidates.a_a_pairs(pairs, device)
    floors = jobs.compile_floors(device)
    with progress("timing", None) as step:
        found, env = gate.compare(
            [*identical, *moved], gate.Plan(processes, blocks=blocks), floors, device, Sandbox, step
        )
    first_look = gate.Plan().processes
    measured = noise.Noise(
        uuid=str(env["uuid"]),
        driver=None if env.get("driver") is None else str(env["driver"]),
        identical=regress.noise_floor(found[: len(identical)], first_look),
        placement=regress.noise_floor(found[len(identical) :], first_look),
        cells=len(pairs),
        processes=processes,
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
