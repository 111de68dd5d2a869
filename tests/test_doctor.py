"""doctor finds what is planted, and says what to do about it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from monomoe_gen import c_header, cli, cubin_cache, dispatch, doctor, tuning_db, wait_limit
from monomoe_gen.cli.output import print_rows
from monomoe_gen.cli.serve import bar
from monomoe_gen.device import DEFAULT, KNOWN, Device
from monomoe_gen.doctor import Check
from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.paths import DATA_VARIABLE
from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.tuning_db import Record, Time

DEVICE = KNOWN[DEFAULT]
TOY = load_shape("toy")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders, a working compiler, no GPU."""
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    monkeypatch.setattr(dispatch, "data_dir", lambda name: tmp_path / "nothing ships" / name)
    monkeypatch.setattr(doctor, "compiler_version", lambda: "nvrtc 0.0")
    monkeypatch.setattr(doctor, "compiler_library", lambda: "libnvrtc.so")
    monkeypatch.setattr(doctor, "current_device", lambda: None)
    monkeypatch.setattr(doctor, "_version", lambda name: "1.0" if name != "cupy" else None)
    monkeypatch.setattr(doctor, "_CUPY", ("cupy-cuda12x",))
    monkeypatch.setenv(cubin_cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return tmp_path


def found(subject: str) -> Check:
    return next(check for check in doctor.examine(DEVICE) if check.subject == subject)


def test_a_bare_machine_without_a_gpu_has_notes_only(place: Path) -> None:
    checks = doctor.examine(DEVICE)
    assert {check.status for check in checks} == {"ok", "note"}
    assert found("GPU").todo and found("dispatch table").status == "note"


def test_two_cupys(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CUPY", ("cupy-cuda12x", "cupy-cuda13x"))
    check = found("CuPy")
    assert check.status == "problem" and "uninstall" in check.todo


def test_a_wait_limit_that_is_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("bound of waits").found == "2000 ms in a kernel"
    monkeypatch.setenv(wait_limit.VARIABLE, "2s")
    wait_limit.wait_limit_ms.cache_clear()
    check = found("bound of waits")
    assert check.status == "problem" and "found '2s'" in check.found


def test_no_compiler(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise EnvironmentProblem("NVRTC cannot be used")

    monkeypatch.setattr(doctor, "compiler_version", fail)
    assert found("NVRTC").status == "problem"


@pytest.mark.parametrize(
    ("device", "status"),
    [
        (DEVICE, "ok"),
        (Device("NVIDIA A100", "nvidia-a100", 108, 166912, 65536, 40 << 20, "sm_80"), "problem"),
        (Device("NVIDIA GH200", "nvidia-gh200", 132, 232448, 65536, 50 << 20, "sm_90a"), "note"),
    ],
)
def test_gpus(device: Device, status: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "current_device", lambda: device)
    check = found("GPU")
    assert check.status == status and device.name in check.found


def test_a_full_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 1 << 60)
    assert found("measurements").status == "problem"


def test_a_folder_that_is_not_there(place: Path) -> None:
    check = found("generated")
    assert check.status == "note" and "not there yet" in check.found and "emit" in check.todo
    (place / "generated" / DEFAULT).mkdir(parents=True)
    assert found("generated").status == "ok" and "0.0 MB" in found("generated").found


def test_records_of_older_sources_are_counted(place: Path) -> None:
    schedules = feasible(TOY, DEVICE)[:2]
    current = render(KernelSpec(TOY, schedules[0], 8)).sources_hash
    path = tuning_db.database_path(DEFAULT, "toy", place / "tuning_db")
    made = [(schedules[0], current, n) for n in (1, 2, 4, 8)] + [(schedules[1], "0" * 64, 1)]
    for schedule, sources, tokens in made:
        values: dict[str, Any] = dict.fromkeys(
            ("floor_us", "empty_us", "distinct_experts", "binary")
        )
        tuning_db.append(
            path,
            Record(
                **values,
                tokens=tokens,
                token_tile=8,
                schedule=schedule.to_dict(),
                sources_hash=sources,
                compiler="nvrtc 0.0",
                status="ok",
                stage="screen",
                routing="uniform",
                time_us=Time(1.0, 1.0, 1.0, 1),
                errors={},
                env={},
            ),
        )
    check = found("records of toy")
    assert check.status == "note"
    assert check.found == (
        "5 records of 2 kernels; 1 schedules known to tune; 1 kernels measured with older sources "
        "only"
    )
    assert "tune --model toy" in check.todo
    with path.open("a") as file:
        file.write("{}")
    check = found("records of toy")
    assert check.status == "note" and f"5 records; {path}:7: an unfinished line" in check.found
    with path.open("a") as file:
        file.write("\n")
    check = found("records of toy")
    assert check.status == "problem" and f"{path}:7: " in check.found
    assert "mend that line" in check.todo
    for text in ("", path.read_text().partition("\n")[0] + "\n"):
        path.write_text(text)
        check = found("records of toy")
        assert (check.status, check.found) == ("note", f"{path} holds no record")
        assert check.todo.startswith("remove it, or `monomoe-gen tune --model toy`")


def test_a_broken_table(place: Path) -> None:
    folder = place / "generated" / DEFAULT
    folder.mkdir(parents=True)
    (folder / dispatch.FILE).write_text("{}")
    assert found("dispatch table").status == "problem"
    assert found("dispatch table").area == "files"


@pytest.mark.parametrize(
    "name",
    [
        "shapes/broken.yaml",
        f"tuning_db/{DEFAULT}/noise.json",
        f"tuning_db/{DEFAULT}/search-study.json",
        "tuning_db/history.jsonl",
        f"generated/{DEFAULT}/anchors.json",
        f"generated/{DEFAULT}/bench.json",
    ],
)
def test_a_broken_file(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "shape_dirs", lambda: (place / "shapes",))
    path = place / name
    path.parent.mkdir(parents=True)
    path.write_text("[[1]]\n")
    check = found(path.name)
    assert (check.area, check.status) == ("files", "problem") and str(path) in check.found


def test_a_table_is_what_lies_beside_it(place: Path) -> None:
    folder = place / "generated" / DEFAULT
    folder.mkdir(parents=True)
    spec = KernelSpec(TOY, feasible(TOY, DEVICE)[0], 8)
    source, cubin = render(spec), b"no code"
    kernel = dispatch.Kernel(
        id="toy",
        kernel_name="k",
        shape=TOY,
        schedule=spec.schedule,
        token_tile=8,
        threads=1,
        shared_bytes=1,
        workspace_half_bytes=1,
        registers=1,
        sources_hash=source.sources_hash,
        compiler="nvrtc 0.0",
        cubin_sha256=hashlib.sha256(cubin).hexdigest(),
    )
    table = dispatch.Table(DEVICE, (kernel,), ())
    files = {
        dispatch.FILE: dispatch.dump(table).encode(),
        c_header.FILE: c_header.c_header(table).encode(),
        "toy.cu": source.bundle().encode(),
        "toy.cubin": cubin,
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    assert found("dispatch table").status == "ok", found("dispatch table").found
    for name, data in files.items():
        (folder / name).write_bytes(data + b"?")
        assert found("dispatch table").status == "problem", name
        (folder / name).unlink()
        assert found("dispatch table").status == "problem", name
        (folder / name).write_bytes(data)
    (folder / "other.cubin").write_bytes(cubin)
    assert "other.cubin: no kernel" in found("dispatch table").found


def test_many_stale_files_are_counted(place: Path) -> None:
    folder = place / "generated" / DEFAULT
    folder.mkdir(parents=True)
    table = dispatch.Table(DEVICE, (), ())
    (folder / dispatch.FILE).write_text(dispatch.dump(table))
    (folder / c_header.FILE).write_text(c_header.c_header(table))
    for i in range(4):
        (folder / f"{i}.cubin").write_bytes(b"")
    assert "more" not in found("dispatch table").found
    for i in range(4, 200):
        (folder / f"{i}.cubin").write_bytes(b"")
    check = found("dispatch table")
    assert check.status == "problem" and check.found.endswith("; and 196 more")
    assert check.found.count("no kernel of the table") == 4 and len(check.found) < 400


@pytest.mark.parametrize(
    ("areas", "code"), [([], 0), (["files"], 3), (["files", "machine"], 5), (["machine"], 5)]
)
def test_exit_codes(
    areas: list[Any],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks = [Check(area, "x", "problem", "y", "z") for area in areas]
    checks.append(Check("machine", "GPU", "note", "none"))
    monkeypatch.setattr(doctor, "examine", lambda device, done: checks)
    assert cli.run(["doctor", "--format", "json"]) == code
    assert len(json.loads(capsys.readouterr().out)) == len(checks)


def test_the_committed_files_are_healthy() -> None:
    wrong = [check for check in doctor._table(DEVICE) if check.status != "ok"]
    assert not wrong


def test_bars() -> None:
    assert bar(1.0) == "█" * 16
    assert bar(2.0) == "█" * 8 + "░" * 8
    assert bar(0.9) == "█" * 16, "the floor is noisy too"
    assert bar(None) == ""


def test_show_draws_bars_in_tables_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show"]) == 0
    assert "█" in capsys.readouterr().out
    assert cli.run(["show", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows and "floor in time" not in rows[0] and "registers" in rows[0]


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"a": "x|y", "b": 1.234}, {"a": None, "b": None}], "markdown", {"b": ".1f"})
    assert capsys.readouterr().out.splitlines() == [
        "| a | b |",
        "| --- | ---: |",
        "| x\\|y | 1.2 |",
        "| - | - |",
    ]
