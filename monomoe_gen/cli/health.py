"""The command that says what is wrong with the machine and the files: doctor."""

from __future__ import annotations

from dataclasses import asdict

import click

from monomoe_gen.cli.options import device_option
from monomoe_gen.cli.output import format_option, print_rows, progress
from monomoe_gen.device import Device

STALE, ENVIRONMENT = 3, 5


@click.command()
@device_option
@format_option
def doctor(device: Device, form: str) -> int | None:
    """Print versions, GPU, compiler, disk and stale files, and what to do about each.

    Exit code 5 means that the machine has a problem, 3 that only files do. That there is no GPU is
    a note, not a problem.
    """
    from monomoe_gen.doctor import examine

    with progress("looking", None) as step:
        checks = examine(device, done=step)
    print_rows([asdict(check) for check in checks], form)
    problems = {check.area for check in checks if check.status == "problem"}
    return ENVIRONMENT if "machine" in problems else STALE if problems else None


COMMANDS = (doctor,)
