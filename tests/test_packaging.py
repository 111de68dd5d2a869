"""The wheel and the sdist: what they hold, and that the wheel works where no checkout is.

Nothing is downloaded: the wheel is installed without its dependencies, beside those of the
environment that runs the tests.
"""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from monomoe_gen import __version__, dispatch, tuning_db
from monomoe_gen.cubin_cache import FOLDER_VARIABLE
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.paths import DATA_VARIABLE, checkout
from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.tuning_db import Record, Time

pytest.importorskip("hatchling")

TOP = checkout() or Path()
FOLDERS = ("templates", "shapes", "generated")
MODULES = {p.relative_to(TOP).as_posix() for p in (TOP / "monomoe_gen").rglob("*.py")}


def build(kind: str, source: Path, target: Path) -> Path:
    """The sdist or the wheel of a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = target.iterdir()
    return path


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", TOP, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip makes it of the sdist."""
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(place)
    (source,) = place.iterdir()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


def data_files() -> list[Path]:
    every = (p for name in FOLDERS for p in (TOP / name).rglob("*") if p.is_file())
    return [p.relative_to(TOP) for p in every if not any(part[0] == "." for part in p.parts)]


def test_the_sdist_holds_the_sources(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = {path.as_posix() for path in data_files()}
    others = {"LICENSE", "README.md", "pyproject.toml", "monomoe_gen/py.typed"}
    assert names >= files | others | MODULES
    assert not [name for name in names if name.startswith(("tuning_db", ".ci", ".venv"))]


def test_the_wheel_holds_templates_shapes_and_kernels(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for path in data_files():
            inside = archive.read(f"monomoe_gen/_data/{path.as_posix()}")
            assert inside == (TOP / path).read_bytes(), path
    assert names >= {"monomoe_gen/py.typed", "monomoe_gen/pages/page.html.j2"} | MODULES
    assert wheel.name in (TOP / "README.md").read_text(encoding="utf-8")
    tops = {name.split("/")[0] for name in names}
    assert tops == {"monomoe_gen", f"monomoe_gen-{__version__}.dist-info"}


@dataclass
class Installed:
    """The wheel in an environment of its own, and a folder to be in."""

    python: Path
    root: Path

    def run(self, *arguments: str, data: Path | None = None, code: int = 0) -> tuple[str, str]:
        """stdout and stderr of `monomoe-gen` where there is neither a checkout nor a GPU."""
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        environment |= {
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_DATA_HOME": str(self.root / "user"),
            FOLDER_VARIABLE: str(self.root / "cache"),
        }
        environment.pop(DATA_VARIABLE, None)
        if data:
            environment[DATA_VARIABLE] = str(data)
        done = subprocess.run(
            [str(self.python.with_name("monomoe-gen")), *arguments],
            cwd=self.root / "elsewhere", env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout, done.stderr

    def package(self) -> dict[str, tuple[int, int]]:
        """Size and time of every file of the installed package."""
        (package,) = self.python.parents[1].glob("lib/python*/site-packages/monomoe_gen")
        every = ((path, path.stat()) for path in package.rglob("*"))
        return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in every}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    root = tmp_path_factory.mktemp("installed")
    (root / "elsewhere").mkdir()
    venv.create(root / "venv", with_pip=True)
    python = root / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", wheel]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    # A plain path: the .pth files in it, an editable install among them, are not followed.
    (packages,) = (root / "venv").glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "dependencies.pth").write_text("\n".join(others) + "\n")
    return Installed(python, root)


def record(us: float, index: int) -> Record:
    spec = KernelSpec(TOY, feasible(TOY, KNOWN[DEFAULT])[index])
    return Record(
        tokens=1,
        token_tile=8,
        schedule=spec.schedule.to_dict(),
        sources_hash=render(spec).sources_hash,
        compiler="nvrtc 0.0",
        status="ok",
        stage="screen",
        routing="uniform",
        time_us=Time(us, us, us, 20),
        floor_us=2.0,
        empty_us=0.6,
        distinct_experts=2.0,
        errors={},
        binary=None,
        env={},
    )


TOY = load_shape("toy")


def test_the_installed_package_works_and_stays_as_it_is(
    installed: Installed, tmp_path: Path
) -> None:
    before = installed.package()
    out, _ = installed.run("shapes")
    assert {"toy", "qwen3.5-35b"} <= {line.split()[0] for line in out.splitlines()}
    out, _ = installed.run("show", "qwen3.5-35b", "--tokens", "4")
    assert "exact" in out

    _, err = installed.run("tune", "--model", "toy", code=5)
    user = installed.root / "user" / "monomoe-gen"
    assert f"nothing is recorded for toy on NVIDIA H200 ({user}" in err
    assert not user.exists()

    named = tmp_path / "named"
    database = tuning_db.database_path(DEFAULT, "toy", named / "tuning_db")
    for index, us in enumerate((5.0, 4.0)):
        tuning_db.append(database, record(us, index))
    out, err = installed.run("tune", "--model", "toy", "--tokens", "1", data=named)
    assert feasible(TOY, KNOWN[DEFAULT])[1].id in out
    assert "dispatch table: 4 files written" in err
    table = dispatch.load(named / "generated" / DEFAULT)
    assert {"toy", "qwen3.5-35b"} <= {entry.model for entry in table.entries}
    for kernel in table.kernels:
        dispatch.read_cubin(named / "generated" / DEFAULT, kernel)
    out, _ = installed.run("show", "toy", data=named)
    assert feasible(TOY, KNOWN[DEFAULT])[1].id in out

    out, _ = installed.run("doctor", "--format", "csv", data=named)
    assert str(named / "tuning_db") in out and str(named / "generated") in out
    assert not user.exists()
    installed.run("db", "merge", str(named / "tuning_db"))
    installed.run("emit", "--model", "toy")
    assert (user / "generated" / DEFAULT / dispatch.FILE).read_bytes() == (
        named / "generated" / DEFAULT / dispatch.FILE
    ).read_bytes()
    assert list((installed.root / "elsewhere").iterdir()) == []
    assert installed.package() == before
