"""The command line: what it prints where, its exit codes, and that ``--help`` stays light."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from monomoe_gen import cli
from monomoe_gen.cli.options import schedule_text
from monomoe_gen.device import DEFAULT, KNOWN
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
from monomoe_gen.shapes import list_shapes, load_shape
from monomoe_gen.space import feasible

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
    assert set(COMMANDS) == {
        "shapes",
        "space",
        "explain",
        "render",
        "compile",
        "emit",
        "validate",
        "bench",
        "show",
    }


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


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda c: c.name)
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
    assert json.loads(text) == [shape.to_dict() for shape in list_shapes()]
    _, text, _ = ask(capsys, "shapes", "--format", "csv")
    assert [row["name"] for row in csv.DictReader(io.StringIO(text))] == names


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), "No such command"),
        (("space",), "--model"),
        (("space", "--model", "qwen9"), "no such shape; known are"),
        (("space", "--model", "none.yaml"), "cannot be read"),
        (("space", "--model", "qwen3.5-35b", "--device", "abacus"), "nvidia-h200"),
        (("explain", "--model", "qwen3.5-35b", "--schedule", "grid=1"), "missing"),
        (("explain", "--model", "qwen3.5-35b", "--schedule", "grid"), "cannot read"),
        (("shapes", "--format", "xml"), "json"),
    ],
)
def test_what_a_user_can_get_wrong(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ask(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_shape_file_works_as_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(
        "{name: toy, hidden: 1024, intermediate: 512, experts: 8, top_k: 2, scoring: softmax, "
        "renormalize: true}"
    )
    code, out, _ = ask(capsys, "space", "--model", str(path), "--format", "json")
    assert code == 0 and json.loads(out)
