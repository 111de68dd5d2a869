"""The exit codes that deliberate errors end a command with."""

from __future__ import annotations

from monomoe_gen.errors import (
    CompileError,
    EnvironmentProblem,
    LaunchError,
    MonomoeError,
    RenderError,
)

OK, INTERNAL, USAGE, ENVIRONMENT, INTERRUPTED = 0, 1, 2, 5, 130


def exit_code(error: MonomoeError) -> int:
    """The exit code that a deliberate error ends a command with."""
    if isinstance(error, EnvironmentProblem):
        return ENVIRONMENT
    if isinstance(error, CompileError | LaunchError | RenderError):
        return INTERNAL
    return USAGE
