"""Every error this package raises on purpose.

    MonomoeError
    ├── ShapeError           a shape file or dictionary that breaks a rule
    ├── InfeasibleSchedule   a schedule that breaks rules of the space
    ├── RenderError          a template that cannot be rendered
    ├── CompileError         NVRTC refused, crashed or hung
    ├── LaunchError          a kernel that cannot be loaded or launched
    ├── NoKernel             the dispatch table holds nothing for a request
    ├── DatabaseError        a line of a data file that cannot be read
    │   └── OlderFormat      a data file that an older version wrote
    └── EnvironmentProblem   no GPU, another GPU, a missing library

A message says what was asked, what was found and what to do. Everything else that escapes is a bug.
"""

from collections.abc import Sequence
from pathlib import Path


class MonomoeError(Exception):
    """The root: catch this to catch every deliberate error of the package."""


class ShapeError(MonomoeError):
    """A shape breaks a rule: ``where`` is the file (or "shape"), ``field`` the offending key."""

    def __init__(self, where: str, field: str, reason: str) -> None:
        super().__init__(f"{where}: {field}: {reason}" if field else f"{where}: {reason}")
        self.where = where
        self.field = field
        self.reason = reason


class InfeasibleSchedule(MonomoeError):
    """A schedule breaks rules; ``violations`` says which, each printable on one line."""

    def __init__(self, violations: Sequence[object]) -> None:
        self.violations = tuple(violations)
        super().__init__(
            "the schedule is not feasible; `monomoe-gen explain` gives the nearest legal one\n"
            + "\n".join(f"  {v}" for v in self.violations)
        )


class RenderError(MonomoeError):
    """A template asks for a value it was not given, or does not parse."""


class CompileError(MonomoeError):
    """NVRTC did not produce a cubin.

    ``log`` is the compiler's own text. ``crashed`` is true when the compiler's process died or had
    to be killed, so that there is no diagnostic to fix.
    """

    def __init__(self, message: str, log: str = "", crashed: bool = False) -> None:
        super().__init__(f"{message}\n{log}" if log else message)
        self.log = log
        self.crashed = crashed


class LaunchError(MonomoeError):
    """A kernel does not load, does not fit the device, or failed while it ran."""


class NoKernel(MonomoeError):
    """The dispatch table has no kernel for ``request``; ``nearest`` says what it has instead."""

    def __init__(self, request: str, nearest: str = "") -> None:
        super().__init__(f"no kernel for {request}" + (f"; {nearest}" if nearest else ""))
        self.request = request
        self.nearest = nearest


class DatabaseError(MonomoeError):
    """A data file cannot be read: ``path``, the 1-based ``line`` (0: the whole file), and why."""

    def __init__(self, path: Path | str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")
        self.path = Path(path)
        self.line = line
        self.reason = reason


class OlderFormat(DatabaseError):
    """A data file has a format that older versions of this program wrote."""


class EnvironmentProblem(MonomoeError):
    """The machine lacks what the request needs: a GPU, the right GPU, or a library."""
