"""The command line: what it prints where, its exit codes, and that ``--help`` stays light."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import click
import pytest

from monomoe_gen import cli, dispatch
from monomoe_gen import emit as emit_module
from monomoe_gen import objective as objectives
from monomoe_gen import verify as verify_module
from monomoe_gen.cli.options import schedule_text
from monomoe_gen.device import DEFAULT, KNOWN, Device
from monomoe_gen.dispatch import Table
from monomoe_gen.emit import Emission
from monomoe_gen.errors import (
    CompileError,
    DatabaseError,
    EnvironmentProblem,
    InfeasibleSchedule,
    LaunchError,
    MonomoeError,
    NoKernel,
    RenderError,
    ShapeError,
)
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import list_shapes, load_shape
from monomoe_gen.space import feasible
from monomoe_gen.strict import read_json
from monomoe_gen.verify import Finding

COMMANDS = cli.monomoe_gen.commands


@pytest.fixture(scope="module")
def legal() -> str:
    """A legal schedule of qwen3.5-35b that uses the whole grid, as ``--schedule`` takes it."""
    device = KNOWN[DEFAULT]
    every = feasible(load_shape("qwen3.5-35b"), device)
    return schedule_text(next(s for s in every if s.grid == device.sms))


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command line."""
    code = cli.run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_commands() -> None:
    expected = (
        "shapes shape space explain rank render compile emit draw simulate validate bench trace "
        "bench-variants tune search-study cover db check calibrate init-ci show demo report "
        "doctor"
    )
    assert set(COMMANDS) == set(expected.split())


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_loads_neither_torch_nor_cupy(command: str | None) -> None:
    arguments = [command, "--help"] if command else ["--help"]
    program = (
        "import sys\n"
        "from monomoe_gen import cli\n"
        f"code = cli.run({arguments!r})\n"
        "heavy = {'torch', 'cupy', 'optuna', 'pandas', 'numpy'} & set(sys.modules)\n"
        "sys.exit(code or ', '.join(heavy) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: monomoe-gen" in done.stdout


EVERY = [
    *COMMANDS.values(),
    *(c for g in COMMANDS.values() for c in getattr(g, "commands", {}).values()),
]


@pytest.mark.parametrize("command", EVERY, ids=lambda c: c.name)
def test_every_option_is_explained(command: click.Command) -> None:
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{command.name} {parameter.opts}"


def test_shapes_in_three_formats(capsys: pytest.CaptureFixture[str]) -> None:
    names = [shape.name for shape in list_shapes()]
    code, table, _ = ask(capsys, "shapes")
    assert code == 0
    assert [line.split()[0] for line in table.splitlines()[1:]] == names
    _, text, _ = ask(capsys, "shapes", "--format", "json")
    assert json.loads(text) == [asdict(shape) for shape in list_shapes()]
    _, text, _ = ask(capsys, "shapes", "--format", "csv")
    assert [row["name"] for row in csv.DictReader(io.StringIO(text))] == names


def test_what_is_nested_too_deeply_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = "[" * 100_000
    config, shape, objective = (tmp_path / name for name in ("config.json", "s.yaml", "o.yaml"))
    for path in (config, shape, objective):
        path.write_text(deep)
    for arguments in (
        ("shape", "import", str(config)),
        ("shape", "import", str(config), "--set", f"a={deep}"),
        ("space", "--model", str(shape)),
    ):
        code, _, err = ask(capsys, *arguments)
        assert code == 2 and "nested too deeply" in err
    with pytest.raises(MonomoeError, match="nested too deeply"):
        objectives.load(objective)
    with pytest.raises(DatabaseError, match="nested too deeply"):
        read_json(Device, config)


def test_space_counts_down_to_the_survivors(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "space", "--model", "qwen3.5-35b", "--format", "json")
    assert code == 0
    first, *rules = json.loads(out)
    left = first["left"]
    for row in rules:
        assert row["left"] == left - row["removed"]
        left = row["left"]
    assert 0 < left < first["left"]


def test_explain_a_legal_schedule(legal: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("explain", "--model", "qwen3.5-35b", "--schedule", legal)
    code, out, err = ask(capsys, *arguments)
    assert code == 0
    assert "legal for qwen3.5-35b" in err
    assert out.splitlines()[0].split() == ["component", "bytes"]
    assert json.loads(ask(capsys, *arguments, "--format", "json")[1])["feasible"] is True


def test_a_schedule_may_be_given_as_tables_print_it(
    legal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = Schedule(grid=1, g_up=2, k_up=3, g_down=5, k_down=6, d_up=4, d_down=7)
    assert Schedule.parse(schedule.id) == Schedule.parse(schedule_text(schedule)) == schedule
    arguments = ("explain", "--model", "qwen3.5-35b", "--schedule", Schedule.parse(legal).id)
    code, out, _ = ask(capsys, *arguments, "--format", "json")
    assert code == 0
    assert json.loads(out)["schedule"] == Schedule.parse(legal).id


def test_explain_names_the_rule_and_the_nearest_legal_schedule(
    legal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = legal.replace("grid=132", "grid=133")
    arguments = ("explain", "--model", "qwen3.5-35b", "--schedule", refused)
    code, out, err = ask(capsys, *arguments)
    assert code == 0
    assert "grid_is_resident" in out
    assert f"the nearest legal schedule is {legal}" in err
    answer = json.loads(ask(capsys, *arguments, "--format", "json")[1])
    assert answer["nearest"] == legal
    assert [row["rule"] for row in answer["rules"]] == ["grid_is_resident"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ShapeError("file", "field", "reason"), 2),
        (InfeasibleSchedule(["rule"]), 2),
        (RenderError("bad template"), 1),
        (CompileError("refused", "log"), 1),
        (LaunchError("no"), 1),
        (NoKernel("toy, 3 tokens", "nothing"), 2),
        (DatabaseError("file", 3, "reason"), 2),
        (EnvironmentProblem("no GPU"), 5),
        (MonomoeError("other"), 2),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), 2),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes_of_errors(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(COMMANDS["shapes"], "callback", lambda form: fail())
    found, out, err = ask(capsys, "shapes")
    assert (found, out) == (code, "")
    assert str(error) in err
    assert "Traceback" not in err


def test_a_shape_file_works_as_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(
        "{name: toy, hidden: 1024, intermediate: 512, experts: 8, top_k: 2, scoring: softmax, "
        "renormalize: true}"
    )
    code, out, _ = ask(capsys, "space", "--model", str(path), "--format", "json")
    assert code == 0 and json.loads(out)


def test_render_prints_one_text_or_writes_the_files(
    legal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("render", "--model", "qwen3.5-35b", "--schedule", legal)
    code, out, _ = ask(capsys, *arguments)
    assert code == 0
    assert f"--token-tile 8 --schedule {legal}" in out.splitlines()[1], "the rebuild command"
    code, out, _ = ask(capsys, *arguments, "--layout", "raw")
    assert code == 0 and "_raw(" in out
    assert f"--token-tile 8 --layout raw --schedule {legal}" in out.splitlines()[1]
    code, out, err = ask(capsys, *arguments, "-o", str(tmp_path / "new"))
    assert (code, out) == (0, "")
    files = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert f"wrote {len(files)} files" in err
    assert (tmp_path / "new" / "monomoe.cu").read_text().startswith("// ")


def test_compile_prints_resources_and_writes_the_cubin(
    legal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernel.cubin"
    arguments = ("compile", "--model", "qwen3.5-35b", "--schedule", legal, "-o", str(path))
    code, out, _ = ask(capsys, *arguments, "--format", "json")
    assert code == 0
    (row,) = json.loads(out)
    assert row["status"] == "ok"
    assert row["threads"] > 0 and row["shared_bytes"] > 0
    assert path.read_bytes().startswith(b"\x7fELF")


def test_compile_takes_the_dispatched_kernels_of_a_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("compile", "--dispatched", "--model", "toy", "--format", "json")
    code, out, _ = ask(capsys, *arguments)
    kernels = dispatch.load(dispatch.table_folder()).kernels
    wanted = [kernel.kernel_name for kernel in kernels if kernel.shape.name == "toy"]
    assert code == 0 and [row["kernel"] for row in json.loads(out)] == wanted != []


def test_emit_reports_what_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(KNOWN[DEFAULT], (), ())
    changed = Emission(table, ("dispatch.json",), ("old.cu",), ("a note",))
    monkeypatch.setattr(emit_module, "emit", lambda device, models, weights, done: changed)
    code, out, err = ask(capsys, "emit", "--format", "json")
    assert code == 0
    assert json.loads(out) == [
        {"file": "dispatch.json", "change": "written"},
        {"file": "old.cu", "change": "removed"},
    ]
    assert "a note" in err


@pytest.mark.parametrize(("status", "code"), [("equal", 0), ("compiles", 0), ("wrong", 3)])
def test_emit_verify_ends_with_3_when_something_differs(
    status: Literal["equal", "compiles", "wrong"],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    findings = [Finding("one", "equal", ""), Finding("two", status, "because")]
    asked: list[list[str]] = []

    def verify(device: Device, models: list[str], done: object) -> list[Finding]:
        asked.append(models)
        return findings

    monkeypatch.setattr(verify_module, "verify", verify)
    command = ("emit", "--verify", "--format", "json", "--model", "toy")
    found, out, _ = ask(capsys, *command)
    assert asked == [["toy"]]
    assert found == code
    assert json.loads(out)[1] == {"subject": "two", "status": status, "message": "because"}


def test_emit_verify_says_once_that_the_compiler_is_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "bytes not compared: compiled by nvrtc 1.0, installed is nvrtc 2.0"
    findings = [Finding(name, "compiles", message) for name in ("one", "two")]
    monkeypatch.setattr(verify_module, "verify", lambda device, models, done: findings)
    _, out, _ = ask(capsys, "emit", "--verify")
    assert out.count(message) == 1 and "2 kernels" in out
    for form in ("json", "csv"):
        _, out, _ = ask(capsys, "emit", "--verify", "--format", form)
        assert out.count(message) == 2
