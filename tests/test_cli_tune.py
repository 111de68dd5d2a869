"""``tune`` as a command: what it makes of its options, what it prints, how it ends."""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from monomoe_gen import cli, ray_executor, tuning_db
from monomoe_gen import replay as replay_module
from monomoe_gen import tune as tune_module
from monomoe_gen.campaign import Plan, Report
from monomoe_gen.cli import tuning_run
from monomoe_gen.device import DEFAULT, KNOWN, Device
from monomoe_gen.dispatch import Table
from monomoe_gen.emit import Emission
from monomoe_gen.errors import CompileError, EnvironmentProblem, MonomoeError
from monomoe_gen.routing_trace import save
from monomoe_gen.sandbox import Sandbox
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.tuning_db import Record, Time
from monomoe_gen.variant import Variant
from monomoe_gen.winner import Winner

MODEL = "qwen3.5-35b"
RECORD = Record(
    tokens=1,
    token_tile=8,
    schedule=feasible(load_shape(MODEL), KNOWN[DEFAULT])[0].to_dict(),
    sources_hash="0" * 64,
    compiler="nvrtc 0.0",
    status="ok",
    stage="final",
    routing="uniform",
    time_us=Time(12.0, 11.9, 12.5, 200),
    floor_us=8.0,
    empty_us=0.6,
    distinct_experts=8.0,
    errors={},
    binary=None,
    env={},
)
REPORT = Report(
    replay=False,
    interrupted=False,
    known=3,
    measured=40,
    left=2,
    failures={"timeout": 1},
    winners={1: Winner(RECORD, 11.9, 12.1, ("other",))},
    emission=Emission(Table(KNOWN[DEFAULT], (), ()), ("dispatch.json",), (), ("a note",)),
    seconds=61.0,
    restarts=1,
)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that a machine with an H200 is asked to carry out."""
    asked: list[Plan] = []

    def carry_out(plan: Plan, device: Device, **_: Any) -> Report:
        asked.append(plan)
        return REPORT

    monkeypatch.setattr(tuning_run, "current_device", lambda: KNOWN[DEFAULT])
    monkeypatch.setattr(tune_module, "tune", carry_out)
    return asked


def test_the_best_is_data_and_the_summary_is_not(
    plans: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["tune", "--model", MODEL, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert (row["tokens"], row["time_us"], row["ratio"]) == (1, 12.0, 1.5)
    assert (row["low_us"], row["high_us"], row["ties"]) == (11.9, 12.1, 1)
    assert "1 tokens: cannot be told apart from other" in err
    assert "40 new, 2 left; 1 timeout; 1 worker restarts; 61 s" in err
    assert "a note" in err and "1 files written" in err


@pytest.mark.parametrize(
    ("arguments", "budget_s", "trials"),
    [
        ([], 600, None),
        (["--budget", "5m"], 300, None),
        (["--budget", "none"], None, None),
        (["--trials", "7"], None, 7),
        (["--trials", "7", "--budget", "1.5h"], 5400, 7),
        (["--from-winners", "2", "--pdl"], None, None),
    ],
)
def test_how_much_to_spend(
    arguments: list[str], budget_s: float | None, trials: int | None, plans: list[Plan]
) -> None:
    assert cli.run(["tune", "--model", MODEL, *arguments]) == 0
    (plan,) = plans
    assert (plan.budget_s, plan.trials) == (budget_s, trials)


def test_what_to_tune(plans: list[Plan]) -> None:
    arguments = ["--tokens", "4,1", "--routing", "zipf", "--seed", "3", "--fresh"]
    arguments += ["--sampler", "random", "--simulate", "2"]
    arguments += ["--prune", "7.5", "--router", "weight", "--pdl", "--from-winners", "3"]
    assert cli.run(["tune", "--model", MODEL, *arguments]) == 0
    (plan,) = plans
    assert (plan.tokens, plan.routing, plan.seed, plan.fresh) == ((1, 4), "zipf", 3, True)
    assert (plan.sampler, plan.simulate, plan.prune) == ("random", 2, 0.075)
    assert (plan.variant, plan.from_winners) == (Variant(router="weight", pdl=True), 3)


def test_an_objective_says_what_to_tune_for(
    plans: list[Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objective.yaml"
    path.write_text("{tokens: {2: 1, 8: 3}, routing: {zipf: 1, uniform: 4}}")
    arguments = ["tune", "--model", MODEL, "--objective"]
    assert cli.run(["tune", "--model", MODEL]) == 0
    assert cli.run([*arguments, str(path)]) == 0
    assert "objective: 2, 8 tokens; zipf 0.2, uniform 0.8" in capsys.readouterr().err
    assert cli.run([*arguments, "default"]) == 0
    assert cli.run(["tune", "--model", MODEL, "--routing", "uniform"]) == 0
    assert cli.run(["tune", "--model", MODEL, "--screen-only"]) == 0
    found = [(p.tokens, p.routing, {r: round(w, 9) for r, w in p.weights.items()}) for p in plans]
    default = {"uniform": 0.6, "zipf": 0.3, "same": 0.1}
    assert found == [
        ((1, 2, 4, 8), "uniform", default),
        ((2, 8), "uniform", {"zipf": 0.2, "uniform": 0.8}),
        (tuple(range(1, 9)), "uniform", default),
        ((1, 2, 4, 8), "uniform", {}),
        ((1, 2, 4, 8), "uniform", default),
    ]
    capsys.readouterr()
    assert cli.run(["tune", "--model", MODEL, "--routing", "zipf"]) == 0
    assert "times under zipf routing alone are recorded, but do not" in capsys.readouterr().err


def test_all_gpus_take_part(monkeypatch: pytest.MonkeyPatch, plans: list[Plan]) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        tune_module, "tune", lambda plan, device, **given: seen.append(given) or REPORT
    )
    monkeypatch.setattr(tuning_run, "equal_gpus", lambda: ["GPU-a", "GPU-b", "GPU-c"])
    assert cli.run(["tune", "--model", MODEL]) == 0
    assert cli.run(["tune", "--model", MODEL, "--gpus", "all"]) == 0
    one, every = seen
    assert one["others"] == [] and len(every["others"]) == 2
    assert isinstance(one["sandbox"](), Sandbox) and isinstance(every["sandbox"](), Sandbox)


def test_gpus_of_a_cluster_take_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[dict[str, Any]] = []
    asked: list[tuple[str | None, int | None]] = []

    @contextlib.contextmanager
    def gpus(address: str | None, most: int | None) -> Iterator[tuple[Device, list[Any]]]:
        asked.append((address, most))
        yield KNOWN[DEFAULT], ["a", "b", "c"][:most]

    monkeypatch.setattr(
        tune_module, "tune", lambda plan, device, **given: seen.append(given) or REPORT
    )
    monkeypatch.setattr(ray_executor, "gpus", gpus)
    monkeypatch.setattr(tuning_run, "current_device", lambda: None)
    arguments = ["tune", "--model", MODEL, "--executor", "ray"]
    assert cli.run(arguments) == 0
    assert cli.run([*arguments, "--gpus", "one", "--ray-address", "head:6379"]) == 0
    assert asked == [(None, None), ("head:6379", 1)]
    assert [(g["sandbox"], g["others"]) for g in seen] == [("a", ["b", "c"]), ("a", [])]
    assert "3 NVIDIA H200 of the Ray cluster" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "share"), [(None, 0.1), ("none", None), ("5%", 0.05)])
def test_how_much_slower_is_pruned(
    text: str | None, share: float | None, plans: list[Plan]
) -> None:
    assert cli.run(["tune", "--model", MODEL, *(["--prune", text] if text else [])]) == 0
    assert plans[0].prune == share


def test_captured_routing_is_recorded_under_its_name(
    plans: list[Plan], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "routing.npz"
    trace = save(path, 256, [(0, 0, torch.arange(8)[None])])
    arguments = ["tune", "--model", MODEL, "--routing-trace", str(path)]
    assert cli.run(arguments) == 0
    (plan,) = plans
    assert (plan.routing, plan.trace_file) == (trace.name, path)
    assert trace.name in capsys.readouterr().err
    assert cli.run([*arguments, "--routing", "zipf"]) == 2
    path.write_bytes(b"")
    assert cli.run(arguments) != 0
    assert "is no .npz file" in capsys.readouterr().err
    assert len(plans) == 1


def test_an_interrupted_run_ends_with_130(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = replace(REPORT, interrupted=True, emission=None)
    monkeypatch.setattr(tune_module, "tune", lambda plan, device, **_: stopped)
    assert cli.run(["tune", "--model", MODEL, "--format", "json"]) == 130
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_without_a_gpu_the_first_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning_run, "current_device", lambda: None)
    monkeypatch.setattr(tuning_db, "tuning_db_dir", lambda: tmp_path)
    assert cli.run(["tune", "--model", MODEL]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith("no CUDA device: replaying 0 recorded schedules")


def test_without_a_gpu_the_records_are_searched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning_run, "current_device", lambda: None)
    replayed = replace(REPORT, replay=True, measured=0)
    monkeypatch.setattr(replay_module, "replay", lambda plan, device, **_: replayed)
    assert cli.run(["tune", "--model", MODEL]) == 0
    assert "replayed: 3 schedules known before, 0 new" in capsys.readouterr().err


def test_several_models_share_a_worker(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[object] = []
    boxes: list[object] = []

    @contextlib.contextmanager
    def sandboxes(gpu: str | None) -> Iterator[Callable[[], contextlib.nullcontext[object]]]:
        yield lambda: contextlib.nullcontext(opened.append("one") or object())

    def carry_out(plan: Plan, device: Device, sandbox: Any, **_: Any) -> Report:
        plans.append(plan)
        with sandbox() as box:
            boxes.append(box)
        return REPORT

    monkeypatch.setattr("monomoe_gen.sandbox.sandboxes", sandboxes)
    monkeypatch.setattr(tune_module, "tune", carry_out)
    arguments = ["--model", "toy", "--model", MODEL, "--model", "toy", "--screen-only"]
    assert cli.run(["tune", *arguments, "--budget", "10s", "--format", "json"]) == 0
    assert [(plan.shape.name, plan.budget_s) for plan in plans] == [("toy", 10), (MODEL, 10)]
    assert all(plan.screen_only for plan in plans)
    assert opened == ["one"] and boxes[0] is boxes[1]
    assert [row["model"] for row in json.loads(capsys.readouterr().out)] == ["toy", MODEL]


def test_several_models_share_the_gpus_of_a_cluster_that_still_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    served: list[tuple[str, dict[str, float], list[str]]] = []

    @contextlib.contextmanager
    def gpus(address: str | None, most: int | None) -> Iterator[tuple[Device, list[Any]]]:
        names = ("a", "b", "c")
        yield KNOWN[DEFAULT], [functools.partial(once, name) for name in names]
        opened.append("none")

    @contextlib.contextmanager
    def once(name: str) -> Iterator[str]:
        opened.append(name)
        yield name
        opened.remove(name)

    def carry_out(plan: Plan, device: Device, sandbox: Any, others: Any, **_: Any) -> Report:
        with contextlib.ExitStack() as stack:
            boxes = [stack.enter_context(make()) for make in (sandbox, *others)]
            served.append((plan.shape.name, dict(plan.weights), boxes))
        assert opened == ["a", "b", "c"], "open until the last model is through"
        return replace(REPORT, left_out=frozenset({0}))

    monkeypatch.setattr(ray_executor, "gpus", gpus)
    monkeypatch.setattr(tune_module, "tune", carry_out)
    arguments = ["--executor", "ray", "--objective", "default"]
    assert cli.run(["tune", "--model", "toy", "--model", MODEL, *arguments]) == 0
    assert [(model, boxes) for model, _, boxes in served] == [
        ("toy", ["a", "b", "c"]),
        (MODEL, ["b", "c"]),
    ]
    assert all(weights.keys() == {"uniform", "zipf", "same"} for _, weights, _ in served)
    assert opened == ["none"]


def test_an_interrupted_model_ends_the_run(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "monomoe_gen.sandbox.sandboxes", lambda gpu: contextlib.nullcontext(contextlib.nullcontext)
    )
    stopped = replace(REPORT, interrupted=True)
    monkeypatch.setattr(
        tune_module, "tune", lambda plan, device, **_: plans.append(plan) or stopped
    )
    assert cli.run(["tune", "--model", "toy", "--model", MODEL]) == 130
    assert [plan.shape.name for plan in plans] == ["toy"]


def test_a_model_that_cannot_be_tuned_does_not_keep_others_from_it(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def carry_out(plan: Plan, device: Device, **_: Any) -> Report:
        if plan.shape.name == "toy":
            raise MonomoeError("toy cannot be timed cold")
        return REPORT

    monkeypatch.setattr(
        "monomoe_gen.sandbox.sandboxes", lambda gpu: contextlib.nullcontext(contextlib.nullcontext)
    )
    monkeypatch.setattr(tune_module, "tune", carry_out)
    both = ["tune", "--model", "toy", "--model", MODEL, "--format", "json"]
    assert cli.run(both) == 2
    out, err = capsys.readouterr()
    assert [row["model"] for row in json.loads(out)] == [MODEL]
    assert "toy: toy cannot be timed cold" in err
    assert cli.run(["tune", "--model", "toy"]) == 2


@pytest.mark.parametrize("models", [("toy", MODEL), (MODEL, "toy")])
def test_without_a_gpu_a_model_without_records_does_not_keep_others_from_it(
    models: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def carry_out(plan: Plan, device: Device, **_: Any) -> Report:
        if plan.shape.name == "toy":
            raise EnvironmentProblem("nothing is recorded for toy")
        return replace(REPORT, replay=True)

    monkeypatch.setattr(tuning_run, "current_device", lambda: None)
    monkeypatch.setattr(replay_module, "replay", carry_out)
    both = [word for model in models for word in ("--model", model)]
    assert cli.run(["tune", *both, "--format", "json"]) == 5
    out, err = capsys.readouterr()
    assert [row["model"] for row in json.loads(out)] == [MODEL]
    assert "toy: nothing is recorded for toy" in err


def test_what_is_found_before_the_gpu_is_lost_is_printed(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def carry_out(plan: Plan, device: Device, **_: Any) -> Report:
        if plan.shape.name == "toy":
            raise EnvironmentProblem("the GPU does not answer")
        return REPORT

    monkeypatch.setattr(
        "monomoe_gen.sandbox.sandboxes", lambda gpu: contextlib.nullcontext(contextlib.nullcontext)
    )
    monkeypatch.setattr(tune_module, "tune", carry_out)
    arguments = ["tune", "--model", MODEL, "--model", "toy", "--format", "json"]
    assert cli.run(arguments) == 5
    out, err = capsys.readouterr()
    assert [row["model"] for row in json.loads(out)] == [MODEL]
    assert "error: the GPU does not answer" in err


def test_the_first_error_of_several_models_sets_the_exit_code(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: dict[str, MonomoeError] = {
        "toy": CompileError("NVRTC refused"),
        MODEL: MonomoeError("cannot be timed cold"),
    }

    def carry_out(plan: Plan, device: Device, **_: Any) -> Report:
        raise errors[plan.shape.name]

    monkeypatch.setattr(
        "monomoe_gen.sandbox.sandboxes", lambda gpu: contextlib.nullcontext(contextlib.nullcontext)
    )
    monkeypatch.setattr(tune_module, "tune", carry_out)
    assert cli.run(["tune", "--model", "toy", "--model", MODEL]) == 1
    assert cli.run(["tune", "--model", MODEL, "--model", "toy"]) == 2


def test_without_a_gpu_the_options_that_do_not_count_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Plan] = []
    replayed = replace(REPORT, replay=True)
    monkeypatch.setattr(tuning_run, "current_device", lambda: None)
    monkeypatch.setattr(
        replay_module, "replay", lambda plan, *_, **__: asked.append(plan) or replayed
    )
    arguments = ["tune", "--model", MODEL, "--trials", "3"]
    assert cli.run(arguments) == 0
    assert "without effect" not in capsys.readouterr().err
    arguments += ["--screen-only", "--from-winners", "2", "--pdl", "--budget", "5m"]
    assert cli.run(arguments) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.endswith("without effect: --budget, --from-winners, --screen-only")
    assert len(asked) == 2


def test_on_a_gpu_no_option_is_said_not_to_count(
    plans: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["tune", "--model", MODEL, "--screen-only", "--prune", "none"]) == 0
    assert plans[0].screen_only and "--screen-only" not in capsys.readouterr().err
