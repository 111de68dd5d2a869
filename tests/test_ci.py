"""The workflows of init-ci: they parse, and their commands run, in a repository made for it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from monomoe_gen import c_header, ci, cli
from monomoe_gen.dispatch import Table, dump, load, table_folder
from monomoe_gen.paths import checkout

TOP = checkout() or Path()
MODEL = "glm-5.2-tp8"


def parsed(service: str, label: str = ci.LABEL) -> dict[Any, Any]:
    found = yaml.safe_load(ci.workflow(service, label))
    assert isinstance(found, dict)
    return found


def test_github_runs_without_a_gpu_on_every_push_and_on_a_labelled_runner() -> None:
    found = parsed("github", "big-gpu")
    assert found[True] == {"push": None, "workflow_dispatch": None}  # YAML reads `on` as a boolean
    inspect, timed = found["jobs"]["inspect"], found["jobs"]["time"]
    assert inspect["runs-on"] == "ubuntu-latest"
    assert timed["runs-on"] == ["self-hosted", "big-gpu"]
    assert timed["needs"] == "inspect"
    for job in (inspect, timed):
        assert job["timeout-minutes"]
        assert all({"uses", "run"} & set(step) for step in job["steps"])


def test_gitlab_runs_without_a_gpu_on_every_push_and_on_a_tagged_runner() -> None:
    found = parsed("gitlab", "big-gpu")
    assert set(found) == {"stages", ".check", "kernels-inspect", "kernels-time"}
    assert found["kernels-time"]["tags"] == ["big-gpu"]
    for name in ("kernels-inspect", "kernels-time"):
        assert found[name]["stage"] in found["stages"]
        assert found[name]["extends"] == ".check"
    assert found[".check"]["artifacts"]["reports"]["junit"] == "check.xml"


@pytest.mark.parametrize("service", sorted(ci.SERVICES))
def test_every_command_line_parses(service: str) -> None:
    text = ci.workflow(service).replace("\\\n", " ")
    text = re.sub(r"baseline/generated\n\s+--write", "baseline/generated --write", text)
    lines = re.findall(r"monomoe-gen check (.*)", text)
    assert len(lines) == 2
    for line in lines:
        arguments = line.replace("baseline/generated", str(TOP / "generated")).split()
        context = cli.monomoe_gen.commands["check"].make_context("check", arguments)
        assert context.params["baseline"]
        assert [path.suffix for path in context.params["files"]] == [".md", ".xml", ".json"]
    extras = set(re.findall(r"'\.\[([a-z0-9,]+)\]'", text))
    project = (TOP / "pyproject.toml").read_text()
    for extra in ",".join(extras).split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)


def test_init_ci_writes_where_the_service_looks_and_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["init-ci", "github", "--label", "x1"]) == 0
    path = tmp_path / ".github" / "workflows" / "kernels.yml"
    assert "runs-on: [self-hosted, x1]" in path.read_text()
    assert cli.run(["init-ci", "github"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert cli.run(["init-ci", "github", "--force"]) == 0
    assert "runs-on: [self-hosted, h200]" in path.read_text()
    assert cli.run(["init-ci", "gitlab", "-o", "other.yml"]) == 0
    compilers = [kernel.compiler for kernel in load(table_folder()).kernels]
    assert (tmp_path / "other.yml").read_text() == ci.workflow("gitlab", compilers=compilers)


@pytest.mark.parametrize("label", ["", " ", "two words", "a, b", "-x", "a]", "a:", "7"])
def test_a_label_is_one_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], label: str
) -> None:
    target = tmp_path / "other.yml"
    assert cli.run(["init-ci", "gitlab", "--label", label, "-o", str(target)]) == 2
    assert "give one label" in capsys.readouterr().err and not target.exists()


@pytest.mark.parametrize(
    ("compilers", "packages"),
    [
        ((), "'.[cuda12,sass]'"),
        (("nvrtc 0.0",), "'.[cuda12,sass]'"),
        (("nvrtc 12.9.86",), "'.[cuda12,sass]' nvidia-cuda-nvrtc-cu12==12.9.86"),
        (
            ("nvrtc 12.9.86", "nvrtc 13.0.88", "nvrtc 13.0.88"),
            "'.[cuda13,sass]' nvidia-cuda-nvrtc==13.0.88",
        ),
    ],
)
def test_the_recorded_compiler_is_installed(compilers: tuple[str, ...], packages: str) -> None:
    for service in ci.SERVICES:
        text = ci.workflow(service, compilers=compilers)
        assert f"--editable {packages}\n" in text
        yaml.safe_load(text)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with a table of one kernel, two commits, and its origin beside it."""
    root = tmp_path_factory.mktemp("ci")
    origin = root / "origin"
    origin.mkdir()
    for name in ("monomoe_gen", "templates", "shapes"):
        shutil.copytree(TOP / name, origin / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(TOP / name, origin / name)
    table = load(table_folder())
    entry = next(e for e in table.entries if e.model == MODEL)
    small = Table(table.device, (table.kernel(entry),), (entry,))
    folder, database = (origin / n / table.device.slug for n in ("generated", "tuning_db"))
    folder.mkdir(parents=True)
    database.mkdir(parents=True)
    for suffix in ("cu", "cubin"):
        shutil.copy(table_folder() / f"{entry.kernel}.{suffix}", folder)
    (folder / "dispatch.json").write_text(dump(small), encoding="utf-8")
    (folder / c_header.FILE).write_text(c_header.c_header(small), encoding="utf-8")
    shutil.copy(TOP / "tuning_db" / table.device.slug / f"{MODEL}.jsonl", database)

    def git(*arguments: str, cwd: Path = origin) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *who, *arguments], cwd=cwd, check=True, capture_output=True)

    git("init", "--initial-branch", "main")
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    git("add", "--all", "--force")
    git("commit", "-m", "first")
    git("clone", str(origin), str(root / "clone"), cwd=root)
    git("commit", "--allow-empty", "-m", "second", cwd=root / "clone")
    return root / "clone"


def run_script(script: str, repository: Path, **variables: str) -> None:
    """Runs a step as the service does; pip does nothing, monomoe-gen is the clone's."""
    tools = repository.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name, body in {
        "pip": 'echo "$@" >>"$PIP_LOG"',
        "monomoe-gen": f'exec {sys.executable} -c "from monomoe_gen.cli import main; main()" "$@"',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    script = script.replace("python3 -m venv .venv", "true").replace(".venv/bin/", "")
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(repository),
        "PIP_LOG": str(repository.parent / "pip.log"),
        "CUDA_VISIBLE_DEVICES": "",
        **variables,
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("base", ["main", "0" * 40], ids=["branch", "first push of a branch"])
def test_the_steps_of_github_run(repository: Path, base: str) -> None:
    summary = repository.parent / "summary.md"
    summary.unlink(missing_ok=True)
    shutil.rmtree(repository / "baseline", ignore_errors=True)
    scripts = [s["run"] for s in parsed("github")["jobs"]["inspect"]["steps"] if "run" in s]
    if base != "main":  # the check itself is the same
        scripts = scripts[:2]
    for script in scripts:
        run_script(
            script, repository, BASE=base, DEFAULT_BRANCH="main", GITHUB_STEP_SUMMARY=str(summary)
        )
    assert list((repository / "baseline" / "generated").rglob("dispatch.json"))
    assert "--editable" in (repository.parent / "pip.log").read_text()
    if base == "main":
        assert "NOTHING WAS TIMED: --no-gpu was given" in summary.read_text()
        assert (repository / "check.xml").exists() and (repository / "check.json").exists()


def test_the_preparation_of_gitlab_runs(repository: Path) -> None:
    shutil.rmtree(repository / "baseline", ignore_errors=True)
    found = parsed("gitlab")
    script = "\n".join(found[".check"]["before_script"])
    variables = {"CI_COMMIT_BRANCH": "topic", "CI_DEFAULT_BRANCH": "main"}
    run_script(script, repository, CI_COMMIT_BEFORE_SHA="0" * 40, **variables)
    assert list((repository / "baseline" / "generated").rglob("dispatch.json"))
    (command,) = found["kernels-inspect"]["script"]
    run_script(f"{command} --help", repository, **variables)


def test_a_gpu_job_without_a_gpu_fails(repository: Path) -> None:
    (command,) = parsed("gitlab")["kernels-time"]["script"]
    with pytest.raises(AssertionError, match="asked for times with --require-gpu"):
        run_script(command.replace("baseline/generated", "generated"), repository)
