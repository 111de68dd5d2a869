"""What the user makes lies where `MONOMOE_DATA` says, in front of what ships."""

import errno
import os
from pathlib import Path

import pytest

from monomoe_gen import cli, dispatch, paths, tuning_db
from monomoe_gen.device import DEFAULT
from monomoe_gen.shapes import list_shapes, load_shape

SHIPPED = paths.data_dir("generated") / DEFAULT


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.DATA_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_checkout_holds_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.DATA_VARIABLE, raising=False)
    assert paths.home() == paths.checkout()
    assert dispatch.table_folder() == dispatch.writable_folder() == SHIPPED
    assert paths.shape_dirs() == (paths.data_dir("shapes"),)


def test_an_installed_package_writes_to_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(paths.DATA_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(paths, "checkout", lambda: None)
    assert paths.home() == tmp_path / "monomoe-gen"
    assert tuning_db.database_path(DEFAULT, "toy").is_relative_to(tmp_path)


def test_the_shipped_table_is_read_until_there_is_another(home: Path) -> None:
    assert dispatch.table_folder() == SHIPPED
    assert not home.exists()
    own = dispatch.writable_folder()
    assert own == home / "generated" / DEFAULT == dispatch.table_folder()
    assert {p.name: p.read_bytes() for p in own.iterdir() if p.is_file()} == {
        p.name: p.read_bytes() for p in SHIPPED.iterdir() if p.is_file()
    }
    (own / dispatch.FILE).write_text("mine")
    assert dispatch.writable_folder() == own, "copied once only"
    assert (own / dispatch.FILE).read_text() == "mine"
    assert [path.name for path in own.parent.iterdir()] == [DEFAULT], "nothing half copied"


def test_a_full_disk_is_told_by_the_first_file_and_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copied: list[Path] = []

    def copyfile(source: Path, target: Path) -> None:
        if len(copied) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))
        copied.append(source)
        target.write_bytes(b"whole")

    monkeypatch.setattr("monomoe_gen.files.shutil.copyfile", copyfile)
    assert cli.run(["emit"]) == 2
    fourth = sorted(p for p in SHIPPED.rglob("*") if p.is_file())[3]
    assert capsys.readouterr().err == (
        f"error: {fourth}: cannot be copied to {home / 'generated' / DEFAULT}: "
        "No space left on device\n"
    )
    assert list((home / "generated").iterdir()) == []


def test_a_gpu_without_a_shipped_table_begins_with_nothing(home: Path) -> None:
    assert dispatch.writable_folder("other") == dispatch.table_folder("other")
    assert not home.exists()


def test_shapes_of_the_user_are_known_by_name_and_go_first(home: Path) -> None:
    shipped = (paths.data_dir("shapes") / "toy.yaml").read_text()
    (home / "shapes").mkdir(parents=True)
    (home / "shapes" / "mine.yaml").write_text(shipped.replace("name: toy", "name: mine"))
    (home / "shapes" / "toy.yaml").write_text(shipped.replace("top_k: 2", "top_k: 4"))
    assert load_shape("mine").hidden == load_shape("toy").hidden
    assert load_shape("toy").top_k == 4
    names = [shape.name for shape in list_shapes()]
    assert len(names) == len(set(names)) and {"mine", "toy", "qwen3.5-35b"} < set(names)
