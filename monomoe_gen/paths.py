"""Where things are: what ships with the package, what its user makes, how workers find it."""

import os
from pathlib import Path

DATA_VARIABLE = "MONOMOE_DATA"

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent


def checkout() -> Path | None:
    """The top of the source checkout this package runs from, or None for an installed wheel."""
    return _CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else None


def data_dir(name: str) -> Path:
    """The folder ``name`` ("templates", "shapes" or "generated") that ships with this package."""
    return (checkout() or _PACKAGE / "_data") / name


def home() -> Path:
    """Where ``shapes``, ``tuning_db`` and ``generated`` of the user lie, and are written.

    The folder that ``MONOMOE_DATA`` names; else the checkout; else the user's data folder.
    """
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    top = checkout()
    if top:
        return top
    import platformdirs

    return Path(platformdirs.user_data_dir("monomoe-gen"))


def tuning_db_dir() -> Path:
    """The measurements."""
    return home() / "tuning_db"


def shape_dirs() -> tuple[Path, ...]:
    """The folders of shape files: the user's, which goes first, and the one that ships."""
    return tuple(dict.fromkeys((home() / "shapes", data_dir("shapes"))))


def worker_environment() -> dict[str, str]:
    """The environment with which a worker process finds this package where its parent found it."""
    inherited = os.environ.get("PYTHONPATH")
    path = [str(_CHECKOUT), inherited] if inherited else [str(_CHECKOUT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
