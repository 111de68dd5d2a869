"""The command line: it parses, calls and prints. Exit codes exist only here.

Modules that import torch or CuPy are imported inside the commands, so that ``--help`` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from monomoe_gen import __version__
from monomoe_gen.cli import (
    build,
    covering,
    database,
    demo,
    explore,
    gate,
    health,
    measure,
    ranking,
    report,
    searching,
    serve,
    shape,
    simulation,
    sketch,
    tracing,
    tuning,
    validation,
    variants,
)
from monomoe_gen.cli.exit_codes import INTERRUPTED, OK, USAGE, exit_code
from monomoe_gen.errors import MonomoeError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(
    context_settings=_CONTEXT,
    epilog="Exit codes: 0 ok, 1 internal error or a kernel that does not compile or run, 2 usage "
    "or configuration, 3 something got worse (a slower or larger kernel, generated files that are "
    "not what the sources give), 4 undecided, 5 environment (no GPU, another GPU), 6 wrong "
    "numbers, 130 interrupted.",
)
@click.version_option(__version__, prog_name="monomoe-gen")
def monomoe_gen() -> None:
    """Generate, tune and serve single-launch CUDA kernels for block-FP8 MoE decode."""


def _adopt(parent: click.Group, command: click.Command) -> None:
    """Adds ``command`` with the common settings of its own, as it may be invoked without a parent.

    click makes a command's help option once, from the settings of the first context that asks.
    """
    command.context_settings.update(_CONTEXT)
    parent.add_command(command)
    for child in getattr(command, "commands", {}).values():
        child.context_settings.update(_CONTEXT)


for module in (
    explore,
    shape,
    ranking,
    searching,
    covering,
    database,
    build,
    sketch,
    simulation,
    measure,
    variants,
    validation,
    tracing,
    tuning,
    gate,
    serve,
    demo,
    report,
    health,
):
    for command in module.COMMANDS:
        _adopt(monomoe_gen, command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; deliberate errors become one message."""
    try:
        result = monomoe_gen.main(
            args=None if arguments is None else list(arguments),
            prog_name="monomoe-gen",
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except MonomoeError as error:
        click.echo(f"error: {error}", err=True)
        return exit_code(error)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stdout = None  # nothing is left to flush at exit
        return OK
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {where}{error.strerror or error}", err=True)
        return USAGE
    except UnicodeDecodeError as error:
        click.echo(f"error: a file is not UTF-8 text: {error}", err=True)
        return USAGE
    return result if isinstance(result, int) else OK


def main() -> None:
    """The ``monomoe-gen`` entry point."""
    sys.exit(run())
