"""Every error that a user can cause on the command line: its message and its exit code.

One table for all commands. Each command line runs on a machine without a GPU (unless the case says
H200), with no measurements and with the tables that ship. None may print data or a traceback.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import pytest
from test_cli_measure import save_layer
from test_hf_config import MIXTRAL, QWEN2_57B, without

from monomoe_gen import cli, remeasure, sandbox, tuning_db
from monomoe_gen.cli import tuning_run
from monomoe_gen.cli.options import schedule_text
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.paths import DATA_VARIABLE
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.tuning_db import Record, Time

MODEL = "qwen3.5-35b"
USAGE, ENVIRONMENT = 2, 5


@dataclass(frozen=True)
class Case:
    """A command line, in which {name} is a file of `place` or a schedule, and what comes of it."""

    line: str
    words: str
    code: int = USAGE
    gpu: bool = False
    missing: str = ""  # a library that is not installed

    @property
    def command(self) -> str:
        """The command, with its subcommand if it has some."""
        first, *rest = self.line.split()
        group = cli.monomoe_gen.commands.get(first)
        return f"{first} {rest[0]}" if isinstance(group, click.Group) else first


CASES = (
    Case("nonsense", "No such command 'nonsense'"),
    Case("shapes --format xml", "'xml' is not one of 'table', 'json', 'csv', 'markdown'"),
    Case("space", "Missing option '--model'"),
    Case("space --model qwen9", "qwen9: no such shape; known are"),
    Case("space --model none.yaml", "none.yaml: cannot be read: No such file or directory"),
    Case("space --model {broken.yaml}", "broken.yaml: hidden: must be"),
    Case("space --model {latin.yaml}", "is not YAML"),
    Case(f"space --model {MODEL} --device abacus", "'abacus' is not known; choose from"),
    Case(f"space --model {MODEL} --token-tile 9", "'9' is not one of '8'"),
    Case("demo decode", "there is no CUDA device; --device cpu runs the reference", ENVIRONMENT),
    Case("demo decode --sequences 0", "'0': give numbers from 1 to 32"),
    Case("demo decode --layers 0", "0 is not in the range x>=1"),
    Case("explain --model toy", "Missing option '--schedule'"),
    Case(f"explain --model {MODEL} --schedule grid=1", "missing"),
    Case(f"explain --model {MODEL} --schedule grid", "write an id as tables print it"),
    Case(f"explain --model {MODEL} --schedule g1-u2x3", "or name=integer, comma separated"),
    Case(f"explain --model {MODEL} --schedule g0-u1x1x1-d1x1x1", "grid must be a positive integer"),
    Case(f"explain --model {MODEL} --schedule grid=²", "cannot read 'grid=²'"),
    Case(f"render --model {MODEL}", "Missing option '--schedule'"),
    Case(f"render --model {MODEL} --schedule {{refused}}", "grid_is_resident"),
    Case(f"render --model {MODEL} --schedule {{refused_id}}", "grid_is_resident"),
    Case(f"render --model {MODEL} --schedule {{legal}} -o {{a file}}", "a file"),
    Case("compile", "give one --model and --schedule, or --dispatched"),
    Case(
        f"compile --model {MODEL} --model toy --schedule {{legal}}",
        "give one --model and --schedule, or --dispatched",
    ),
    Case(f"compile --model {MODEL} --schedule {{refused}}", "`monomoe-gen explain`"),
    Case("compile --dispatched --schedule {legal}", "--dispatched takes no --schedule or --output"),
    Case("compile --dispatched --model toy --model toy-bf16", "no kernel for toy-bf16 on NVIDIA"),
    Case(f"compile --model {MODEL} --schedule {{legal}} -o /none/x", "/none/x: No such file"),
    Case("emit --model qwen9", "qwen9: no such shape"),
    Case("emit --verify --model toy-bf16", "no kernel for toy-bf16 on NVIDIA H200; the table has"),
    Case("draw --model toy-bf16", "no kernel for toy-bf16"),
    Case(f"draw --model {MODEL} --tokens 33", "33 is not in the range 1<=x<=32"),
    Case(f"draw --model {MODEL} --with /none.trace.json", "cannot be read: No such file"),
    Case(
        f"draw --model {MODEL} --with /none.trace.json --device nvidia-h100",
        "give --device or --with, not both",
    ),
    Case(
        f"draw --model {MODEL} --with /none.trace.json --token-tile 16",
        "give --token-tile or --with, not both",
    ),
    Case(
        f"draw --model {MODEL} --schedule {{legal}} --tokens 9",
        "the kernel takes 8 tokens, not 9",
    ),
    Case(
        f"draw --model {MODEL} --schedule {{legal}} --cta 132",
        "--cta 132: no such CTA in the grid",
    ),
    Case(f"draw --model {MODEL} -o /none/x.svg", "/none/x.svg: No such file or directory"),
    Case("simulate --model toy --schedule {tiny} --policy luck", "no policy luck: take some of"),
    Case(f"simulate --model {MODEL} --schedule {{odd}}", "up_stage_divides_hidden"),
    Case(f"rank --model {MODEL} --tokens 16", "16 tokens need a larger --token-tile"),
    Case(f"rank --model {MODEL} --recorded", "monomoe-gen tune"),
    Case(f"search-study --model {MODEL}", "tune"),
    Case(f"search-study --model {MODEL} --tokens 16", "records of more than 8 tokens are not"),
    Case(f"search-study --model {MODEL} --sampler luck", "'luck' is not one of"),
    Case(f"cover --model {MODEL}", f"run `monomoe-gen tune --model {MODEL}`"),
    Case(f"cover --model {MODEL} --objective {{broken.yaml}}", "broken.yaml"),
    Case("db show", "no record of NVIDIA H200 is like that; `db show` lists all"),
    Case("db show --status bad", "'bad' is not one of"),
    Case("db merge none", "Path 'none' does not exist"),
    Case("db merge {empty}", "holds no <gpu>/<shape>.jsonl; give a tuning_db or such a file"),
    Case("db export --format csv", "Missing option '-o'"),
    Case("db export --format csv -o {out}", "no record of NVIDIA H200 is like that"),
    Case(
        f"db export --format parquet -o {{out}} --device {DEFAULT} --model toy",
        "[parquet]",
        ENVIRONMENT,
        missing="pyarrow",
    ),
    Case("db export --format t4 -o {out} --tokens 1", "a T4 file is about one model, found"),
    Case("db migrate --model toy", "No such option"),
    Case(f"tune --model {MODEL}", f"run `monomoe-gen tune --model {MODEL}` on a mach", ENVIRONMENT),
    Case(
        f"tune --model {MODEL} --executor ray",
        "pip install 'monomoe-gen[ray]'",
        ENVIRONMENT,
        missing="ray",
    ),
    Case(
        f"tune --model {MODEL} --executor ray --ray-address 127.0.0.1:1",
        "asked for the Ray cluster at 127.0.0.1:1: [Errno 111] Connection refused"
        if importlib.util.find_spec("ray")
        else "[ray]",
        ENVIRONMENT,
    ),
    Case(f"tune --model {MODEL} --ray-address x:1", "--ray-address is for --executor ray"),
    Case(f"tune --model {MODEL} --objective none.yaml", "'none.yaml': no such file; give one, or"),
    Case(f"tune --model {MODEL} --objective {{broken.yaml}}", "broken.yaml"),
    Case(
        f"tune --model {MODEL} --objective default --tokens 1",
        "give --tokens or --objective, not both",
    ),
    Case(
        f"tune --model {MODEL} --objective default --routing zipf",
        "give --routing or --objective, not both",
    ),
    Case(
        f"tune --model {MODEL} --objective {{zipf.yaml}}",
        "--objective: give uniform routing a weight too, found zipf only",
    ),
    Case(
        f"tune --model {MODEL} --objective default --screen-only",
        "--screen-only leaves out the finals, which --objective is for",
    ),
    Case(
        f"tune --model {MODEL} --from-winners 2",
        f"the usual kernels of {MODEL} are no variant of others; give --layout, --router or --pdl",
    ),
    Case("emit --objective {zipf.yaml}", "--objective: give uniform routing a weight too, found"),
    Case(f"tune --model {MODEL} --seed -5", "'--seed': -5 is not in the range"),
    Case("tune --model {elsewhere.yaml}", "home/shapes as toy.yaml, so that the dispatch table"),
    Case(f"tune --model {MODEL} --budget soon", "'soon': give a time such as 90s, 10m or 1.5h"),
    Case(f"tune --model {MODEL} --budget 0s", "'0s': give a time such as"),
    Case(f"tune --model {MODEL} --trials 0", "0 is not in the range x>=1"),
    Case("tune --model toy --simulate -1", "'--simulate': -1 is not in the range x>=0"),
    Case("tune --model toy --prune ten", "'ten': give a percentage such as 10, or none"),
    Case(f"tune --model {MODEL} --tokens 0", "'0': give numbers from 1 to 32, comma separated"),
    Case(f"tune --model {MODEL} --tokens 33", "'33': give numbers from 1 to 32"),
    Case(f"tune --model {MODEL} --tokens 1,,2", "'1,,2': give numbers from 1 to 32"),
    Case(f"tune --model {MODEL} --routing random", "'random' is not one of 'uniform'"),
    Case(f"tune --model {MODEL} --sampler luck", "'luck' is not one of"),
    Case(f"validate --model {MODEL}", "no CUDA device", ENVIRONMENT),
    Case("validate --weights {a.safetensors} --model toy --layer 4", "no experts of layer 4"),
    Case("validate --model toy --layer 3", "say what to take from --weights"),
    Case("validate --model toy --shard 0/2", "say what to take from --weights"),
    Case("validate --model toy --weights x --shard 2/2", "'2/2': write I/N, with I from 0 to N-1"),
    Case(
        f"validate --model toy --model {MODEL} --weights {{a.safetensors}}",
        "--weights needs exactly one --model",
    ),
    Case("validate --model toy --weights nowhere", "no safetensors file"),
    Case(
        "validate --model toy --weights {a.safetensors} --layer 3 --report",
        "--report needs drawn weights",
    ),
    Case("validate --model toy-bf16", "monomoe-gen tune --model toy-bf16", gpu=True),
    Case(f"bench --model {MODEL}", "no CUDA device", ENVIRONMENT),
    Case("bench --routing uniform,ties", "'ties' is not one of uniform, zipf, same, disjoint"),
    Case("bench --model toy-bf16", "monomoe-gen tune --model toy-bf16", gpu=True),
    Case("bench-variants", "no CUDA device", ENVIRONMENT),
    Case("bench-variants --model toy-bf16", "monomoe-gen tune --model toy-bf16", gpu=True),
    Case(f"show {MODEL} --pdl", "say which kernels --tokens is about"),
    Case("tune --model toy --from-winners 0", "0 is not in the range"),
    Case("bench --model glm-5.2-tp8 --layout raw --tokens 9", "1 to 8 tokens", gpu=True),
    Case("bench --tokens 1 --schedule {legal}", "--schedule needs exactly one --model", gpu=True),
    Case(f"bench --model {MODEL} --schedule {{legal}} --write", "leave --schedule away"),
    Case("validate --missing", "--missing looks into the folder of --report"),
    Case("validate --shipped --schedule {legal}", "--shipped chooses schedules"),
    Case(
        "bench --layout raw --router weight --pdl", "run `monomoe-gen tune --layout raw", gpu=True
    ),
    Case(f"trace --model {MODEL}", "Missing option '--tokens'"),
    Case(f"trace --model {MODEL} --tokens 1", "no CUDA device", ENVIRONMENT),
    Case(f"trace --model {MODEL} --tokens 33", "'33': give numbers from 1 to 32"),
    Case(f"trace --model {MODEL} --tokens 1 --launches 33", "33 is not in the range"),
    Case(
        f"trace --model {MODEL} --tokens 9 --schedule {{legal}}",
        "give a larger --token-tile",
        gpu=True,
    ),
    Case(
        f"trace --model {MODEL} --tokens 1 --schedule {{odd}}", "up_stage_divides_hidden", gpu=True
    ),
    Case("check --no-gpu --require-gpu", "--no-gpu and --require-gpu exclude each other"),
    Case("check --processes 8 --max-processes 4", "--max-processes 4 is less than --processes 8"),
    Case("check --fail-on everything", "'everything': choose from"),
    Case("check --fail-on ", "choose from"),
    Case("check --delta 1", "this GPU has not been calibrated"),
    Case("check --write {check.txt}", "the name must end in .md, .json, .xml"),
    Case("check --require-gpu", "there is no CUDA device here", ENVIRONMENT),
    Case("calibrate", "no CUDA device", ENVIRONMENT),
    Case("calibrate --processes 2", "2 is not in the range"),
    Case("init-ci jenkins", "'jenkins' is not one of 'github', 'gitlab'"),
    Case("init-ci github -o {a file}", "is there already"),
    Case("shape import none.json", "File 'none.json' does not exist"),
    Case("shape import {list.json}", "list.json"),
    Case("shape import {lacks.json} --name two --block-fp8", "--set hidden_act=VALUE"),
    Case("shape import {lacks.json} --set hidden_act", "'hidden_act': write FIELD=VALUE"),
    Case("shape import {mixtral.json} --name mixtral --block-fp8", "a larger --tp"),
    Case("shape import {mixtral.json} --name mixtral", "--block-fp8"),
    Case("shape import {mixtral.json} --name m -o {out}", "/out does not; give out.yaml"),
    Case("shape import {mixtral.json} --name m -o {out.yaml}", "/out.yaml is not m.yaml; leave"),
    Case("show nope", "nope: no such shape; known are"),
    Case("show nope --tokens 1", "nope: no such shape; known are"),
    Case("show nope --records", "nope: no such shape; known are"),
    Case("show toy-bf16", "no kernel for toy-bf16 on NVIDIA H200; the table has"),
    Case(
        "show --device nvidia-h100", "so nothing is generated for this GPU; run `monomoe-gen tune`"
    ),
    Case("emit --verify --device nvidia-h100", "so nothing is generated for this GPU"),
    Case("compile --dispatched --device nvidia-h100", "so nothing is generated for this GPU"),
    Case("show --tokens 1", "--tokens and --records need a MODEL"),
    Case(f"show {MODEL} --tokens 1 --records", "give --tokens or --records, not both"),
    Case("show glm-5.2-tp8 --layout raw --tokens 9", "1 to 8 tokens"),
    Case(f"show {MODEL} --records", f"no measurements of {MODEL}: there is no"),
    Case("report", "there are no times of any model on NVIDIA H200"),
    Case("report --model qwen3.5-122b", "there are no times of qwen3.5-122b"),
    Case("report --timeline none.svg", "'none.svg' does not exist"),
    Case("report --model toy --timeline {empty}", "empty holds no .svg file; `monomoe-gen trace"),
    Case("report --model toy --timeline {list.json}", "list.json is no SVG"),
    Case("report --model toy -o {out}", "[report]", ENVIRONMENT, missing="plotly"),
    Case("doctor --device abacus", "'abacus' is not known; choose from"),
)


def record(tokens: int) -> Record:
    return Record(
        tokens=tokens,
        token_tile=8,
        schedule=feasible(load_shape("toy"), KNOWN[DEFAULT])[0].to_dict(),
        sources_hash="0" * 64,
        compiler="nvrtc 0.0",
        status="ok",
        stage="screen",
        routing="uniform",
        time_us=Time(5.0, 5.0, 5.0, 20),
        floor_us=2.0,
        empty_us=0.6,
        distinct_experts=2.0,
        errors={},
        binary=None,
        env={},
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for the names in braces."""
    folder = tmp_path_factory.mktemp("place")
    toy = load_shape("toy")
    (folder / "broken.yaml").write_text(toy.to_yaml().replace("hidden: 256", "hidden: 100"))
    (folder / "zipf.yaml").write_text("routing: {zipf: 1}\n")
    (folder / "latin.yaml").write_bytes(b"name: \xe4\n")
    (folder / "elsewhere.yaml").write_text(replace(toy, top_k=4).to_yaml())
    (folder / "a file").write_text("")
    (folder / "empty").mkdir()
    (folder / "list.json").write_text("[]")
    lacks = without(QWEN2_57B, "norm_topk_prob", "hidden_act")
    (folder / "lacks.json").write_text(json.dumps(lacks))
    (folder / "mixtral.json").write_text(json.dumps(MIXTRAL))
    save_layer(folder / "a.safetensors", toy)
    device = KNOWN[DEFAULT]
    whole = next(s for s in feasible(load_shape(MODEL), device) if s.grid == device.sms)
    return {
        **{path.name: str(path) for path in folder.iterdir()},
        "out": str(folder / "out"),
        "out.yaml": str(folder / "out.yaml"),
        "check.txt": str(folder / "check.txt"),
        "legal": schedule_text(whole),
        "refused": schedule_text(replace(whole, grid=device.sms + 1)),
        "refused_id": replace(whole, grid=device.sms + 1).id,
        "odd": schedule_text(replace(whole, k_up=1000)),
        "tiny": "grid=4,g_up=2,k_up=128,g_down=2,k_down=128,d_up=3,d_down=4",
    }


class NoWorker:
    """Nothing of these gets as far as a worker."""

    def __enter__(self) -> "NoWorker":
        return self

    def __exit__(self, *exception: object) -> None:
        pass


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a GPU, a current folder and a folder for data, both empty."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setattr(sandbox, "Sandbox", NoWorker)
    for module in (remeasure, tuning_run, "monomoe_gen.device"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.current_device", lambda: None)
    return tmp_path / "home"


def filled(line: str, place: dict[str, str]) -> Iterator[str]:
    """The words of a command line with what stands for the names in braces."""
    for word in line.replace("{a file}", "{a_file}").split(" "):
        name = word.strip("{}").replace("_", " ") if word == "{a_file}" else word.strip("{}")
        yield place[name] if word.startswith("{") else word


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_message_and_exit_code(
    case: Case,
    place: dict[str, str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if case.gpu:
        monkeypatch.setattr(remeasure, "current_device", lambda: KNOWN[DEFAULT])
    if case.missing:
        monkeypatch.setitem(sys.modules, case.missing, None)
    if case.missing or "t4" in case.line or "report --model toy" in case.line:
        for model in ("toy", "qwen3.5-122b"):
            tuning_db.append(tuning_db.database_path(DEFAULT, model), record(1))
    code = cli.run(list(filled(case.line, place)))
    out, err = capsys.readouterr()
    assert (code, out) == (case.code, ""), err
    assert case.words in " ".join(err.split()), err
    assert "Traceback" not in err
    assert list(Path().iterdir()) == [] and not Path(place["out"]).exists()
    assert not (home / "generated").exists()


def test_every_command_has_a_case() -> None:
    names = {case.command for case in CASES} - {"nonsense"}
    commands = cli.monomoe_gen.commands
    groups = {n: c for n, c in commands.items() if isinstance(c, click.Group)}
    children = {f"{name} {child}" for name, group in groups.items() for child in group.commands}
    assert names == set(commands) - set(groups) | children
