"""What the README tells people to type exists: commands, options, make targets, exit codes."""

import re
import shlex
from pathlib import Path

import pytest

from monomoe_gen import cli
from monomoe_gen.paths import checkout

TOP = checkout() or Path()
README = (TOP / "README.md").read_text(encoding="utf-8")
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL)).replace("\\\n", " ")
LINES = [line for line in SHELL.splitlines() if line.startswith("monomoe-gen ")]


@pytest.mark.parametrize("line", LINES)
def test_command_lines_parse(line: str) -> None:
    _, name, *arguments = shlex.split(line, comments=True)
    command = cli.monomoe_gen.commands[name]
    command.make_context(name, arguments)


def test_there_are_command_lines() -> None:
    assert len(LINES) > 5


def test_make_targets_exist() -> None:
    makefile = (TOP / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    documents = [README] + [p.read_text(encoding="utf-8") for p in TOP.glob("*/README.md")]
    for text in documents:
        assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets


def test_exit_codes_are_the_documented_ones() -> None:
    stated = re.search(r"Exit codes: (.*?)\.\n", README, re.DOTALL)
    assert stated
    codes = re.findall(r"(?:^|, )(\d+) ", stated[1].replace("\n", " "))
    assert codes == ["0", "1", "2", "3", "4", "5", "6", "130"]


def test_environment_variables_and_extras_are_explained() -> None:
    contributing = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sources = "".join(p.read_text(encoding="utf-8") for p in (TOP / "monomoe_gen").rglob("*.py"))
    variables = set(re.findall(r'"(MONOMOE_[A-Z_]+)"', sources))
    assert set(re.findall(r"^\| `(MONOMOE_\w+)` ", contributing, re.MULTILINE)) == variables
    project = (TOP / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    for extra in re.findall(r"^(\w+) = \[", extras, re.MULTILINE):
        assert f"`[{extra}]`" in contributing


def test_every_command_is_introduced() -> None:
    text = (TOP / "monomoe_gen" / "cli" / "README.md").read_text(encoding="utf-8")
    introduction = text.partition("<!-- generated")[0]
    assert set(re.findall(r"`([a-z-]+)`", introduction)) == set(cli.monomoe_gen.commands)
