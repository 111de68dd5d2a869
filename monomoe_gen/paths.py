"""Where the data folders are (checkout or installed package); how workers find the package."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent


def checkout() -> Path | None:
    """The top of the source checkout this package runs from, or None for an installed wheel."""
    return _CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else None


def data_dir(name: str) -> Path:
    """The folder ``name`` ("templates", "shapes" or "generated") that belongs to this package."""
    return (checkout() or _PACKAGE / "_data") / name


def tuning_db_dir() -> Path:
    """The measurements: in the checkout, else under the current folder (a wheel carries none)."""
    return (checkout() or Path.cwd()) / "tuning_db"


def worker_environment() -> dict[str, str]:
    """The environment with which a worker process finds this package where its parent found it."""
    inherited = os.environ.get("PYTHONPATH")
    path = [str(_CHECKOUT), inherited] if inherited else [str(_CHECKOUT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
