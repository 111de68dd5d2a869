"""Objectives, and few kernels for many cells."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from monomoe_gen import cli, cover, objective, tuning_db
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import MonomoeError
from monomoe_gen.objective import Objective
from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.tuning_db import Record, Time

MODEL = "qwen3.5-35b"
SPACE = feasible(load_shape(MODEL), KNOWN[DEFAULT])
A, B, C = SPACE[:3]


def record(schedule: Schedule, tokens: int, us: float, routing: str = "uniform") -> Record:
    return Record(
        tokens=tokens,
        token_tile=8,
        schedule=schedule.to_dict(),
        sources_hash="0" * 64,
        compiler="nvrtc 13.0",
        status="ok",
        stage="screen",
        routing=routing,
        time_us=Time(us, us, us, 20),
        floor_us=7.5,
        empty_us=0.6,
        distinct_experts=8.0,
        errors={},
        binary=None,
        env={},
    )


def test_the_default_is_what_the_documents_say() -> None:
    weights = objective.DEFAULT.weights
    assert set(weights) == {(n, r) for n in range(1, 9) for r in ("uniform", "zipf", "same")}
    assert sum(weights.values()) == pytest.approx(1)
    assert weights[3, "zipf"] == pytest.approx(0.3 / 8)


def test_an_objective_is_read(tmp_path: Path) -> None:
    path = tmp_path / "objective.yaml"
    path.write_text("tokens: {1: 3, 8: 1}\nrouting: {uniform: 2, same: 2}\n")
    assert objective.load(path).weights == {
        (1, "uniform"): 0.375, (1, "same"): 0.375, (8, "uniform"): 0.125, (8, "same"): 0.125,
    }  # fmt: skip
    path.write_text("tokens: {4: 1}\n")
    assert set(objective.load(path).weights) == {(4, r) for r in objective.ROUTING}


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "token: {1: 1}", "tokens: {0: 1}", "tokens: {1: -1}", "tokens: {one: 1}",
     "tokens: {1: yes}", "tokens: {}", "routing: {random: 1}", "tokens: {1: 1", "tokens: {33: 1}",
     "tokens: {1: .inf}", "routing: {same: .inf}", "tokens: {1: 1.e308, 2: 1.e308}"],
)  # fmt: skip
def test_an_objective_that_makes_no_sense_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "objective.yaml"
    path.write_text(text)
    with pytest.raises(MonomoeError, match=r"objective\.yaml"):
        objective.load(path)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_exact_covers_are_the_best_of_all_subsets(count: int) -> None:
    random = np.random.default_rng(count)
    weights = np.full(5, 0.2)
    for _ in range(20):
        regret = random.exponential(0.1, (12, 5))
        found = cover.cover(regret, weights, count)
        worst = min(regret[list(c)].min(axis=0).max() for c in combinations(range(12), count))
        assert found.worst == pytest.approx(worst) and found.method.startswith("exact")
        assert regret[list(found.chosen)].min(axis=0).max() == pytest.approx(worst)


def test_greedy_covers_are_nearly_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    weights = np.full(6, 1 / 6)
    ratios = []
    for _ in range(20):
        regret = random.exponential(0.1, (40, 6))
        exact = cover.cover(regret, weights, 3)
        with monkeypatch.context() as patch:
            patch.setattr(cover, "MOST_SUBSETS", 0)
            greedy = cover.cover(regret, weights, 3)
        assert greedy.method.startswith("greedy")
        assert len(set(greedy.chosen)) == 3 and greedy.worst >= exact.worst
        ratios.append(greedy.worst / exact.worst)
    assert np.mean(ratios) < 1.2


def test_more_kernels_than_are_worth_having() -> None:
    regret = np.array([[0.0, 0.3], [0.2, 0.0], [0.3, 0.4], [0.0, 0.3]])
    found = cover.cover(regret, np.array([0.5, 0.5]), 4)
    assert found.chosen == (0, 1) and found.worst == 0, "row 2 is dominated, row 3 equals row 0"


def test_cells_without_records_are_named_and_left_out() -> None:
    records = [record(A, 1, 10.0), record(B, 1, 11.0), record(C, 1, 9.0)]
    records += [record(A, 8, 50.0), record(B, 8, 40.0)]
    wanted = Objective.mixture({1: 1, 8: 3}, {"uniform": 1, "zipf": 1})
    times = cover.recorded(records, wanted, 8)
    assert times and times.schedules == (A, B)
    assert times.missing == ((1, "zipf"), (8, "zipf"))
    assert times.weights.tolist() == [0.25, 0.75]
    assert times.least.tolist() == [9.0, 40.0], "C is the fastest in its cell all the same"
    assert cover.recorded(records[2:4], wanted, 8) is None
    assert cover.recorded([], wanted, 8) is None


def test_cells_of_finalists_are_left_out() -> None:
    """Finals time few schedules under other routings, and others at each token count."""
    records = [record(s, n, 10.0 + i) for i, s in enumerate(SPACE[:5]) for n in (1, 8)]
    finals = [record(A, 1, 10.0, "zipf"), record(B, 1, 9.0, "zipf"), record(C, 8, 50.0, "zipf")]
    finals = [replace(r, stage="final") for r in finals]
    wanted = Objective.mixture({1: 1, 8: 1}, {"uniform": 1, "zipf": 1})
    times = cover.recorded([*records, *finals], wanted, 8)
    assert times and set(times.schedules) == set(SPACE[:5])
    assert times.missing == ((1, "zipf"), (8, "zipf"))
    times = cover.recorded([*records, *finals, record(C, 1, 8.0, "zipf")], wanted, 8)
    assert times and times.schedules == (A, B, C) and times.missing == ((8, "zipf"),)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuning_db, "tuning_db_dir", lambda: tmp_path)
    arguments = ["cover", "--model", MODEL, "--kernels", "3", "--format", "json"]
    path = tuning_db.database_path(DEFAULT, MODEL)
    for item in (record(A, 1, 10), record(B, 1, 11), record(A, 8, 50), record(B, 8, 40)):
        tuning_db.append(path, item)
    assert cli.run(arguments) == 0
    out, err = capsys.readouterr()
    one, two = json.loads(out)
    assert (one["schedules"], one["worst_cell"]) == (B.id, "1 uniform")
    assert one["worst_regret"] == pytest.approx(0.1) and one["mean_regret"] == pytest.approx(0.05)
    assert (two["kernels"], two["worst_regret"], two["us"]) == (2, 0, 25.0)
    assert "uniform with 2, 3, 4, 5, 6, 7 tokens" in err and "zipf with 1, 2" in err


def test_older_times_count_in_cells_without_present_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A was timed again under uniform routing alone; B was faster there before."""
    monkeypatch.setattr(tuning_db, "tuning_db_dir", lambda: tmp_path)
    path = tuning_db.database_path(DEFAULT, MODEL)
    now = render(KernelSpec(load_shape(MODEL), A)).sources_hash
    again = replace(record(A, 1, 12), sources_hash=now)
    zipf = [record(A, 1, 14, "zipf"), record(B, 1, 13, "zipf")]
    for item in (record(A, 1, 10), record(B, 1, 9), again, *zipf):
        tuning_db.append(path, item)
    assert cli.run(["cover", "--model", MODEL, "--kernels", "1", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert row["schedules"] == A.id and row["worst_cell"] == "1 zipf"
    assert row["mean_regret"] == pytest.approx((14 / 13 - 1) / 3)
    assert "uniform: times of older sources left out: 2" in err
    assert "zipf: older times count at 1 tokens" in err
