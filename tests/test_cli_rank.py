"""rank: what it prints with and without records."""

import json
from pathlib import Path
from typing import Any

import pytest

from monomoe_gen import cli, tuning_db
from monomoe_gen.cost import estimate
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.tuning_db import Record, Time

MODEL = "qwen3.5-35b"
SHAPE = load_shape(MODEL)
GOOD = Schedule(128, 64, 1024, 128, 512, 4, 3)
OTHERS = [s for s in feasible(SHAPE, KNOWN[DEFAULT])[::400] if s != GOOD]


def record(schedule: Schedule, us: float, **changes: Any) -> Record:
    values = {
        "tokens": 1,
        "token_tile": 8,
        "schedule": schedule.to_dict(),
        "sources_hash": "0" * 64,
        "compiler": "nvrtc 13.0",
        "status": "ok",
        "stage": "screen",
        "routing": "uniform",
        "time_us": Time(median=us, p10=us, p90=us, n=20),
        "floor_us": 7.5,
        "empty_us": 0.6,
        "distinct_experts": 8.0,
        "errors": {},
        "binary": None,
        "env": {},
        "message": "",
        "at": "2026-01-01T00:00:00+00:00",
    }
    return Record(**{**values, **changes})


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty database of the project."""
    monkeypatch.setattr(tuning_db, "tuning_db_dir", lambda: tmp_path)
    return tuning_db.database_path(DEFAULT, MODEL)


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert cli.run(["rank", "--model", MODEL, *arguments, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


def test_the_best_schedules_of_every_token_count(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning_db.append(database, record(GOOD, 10.77))
    tuning_db.append(database, record(GOOD, 50.0, routing="zipf"))
    found = rows(capsys, "--tokens", "1,8", "--top", "3")
    assert [(r["tokens"], r["rank"]) for r in found] == [(n, i) for n in (1, 8) for i in (1, 2, 3)]
    for n in (1, 8):
        times = [r["predicted_us"] for r in found if r["tokens"] == n]
        assert times == sorted(times)
        assert times[0] <= min(estimate(KernelSpec(SHAPE, s), n).us for s in (GOOD, *OTHERS))
    for row in found:
        phases = row["start"] + row["up"] + row["down"] + row["finish"]
        assert row["predicted_us"] == pytest.approx(phases)
        known = row["schedule"] == GOOD.id and row["tokens"] == 1
        assert row["measured_us"] == (10.77 if known else None)
    assert any(r["measured_us"] for r in found)


def test_predictions_are_compared_with_screened_medians(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The made-up GPU is twice as slow as predicted; other records do not count."""
    for schedule in OTHERS:
        us = 2 * estimate(KernelSpec(SHAPE, schedule), 1).us
        tuning_db.append(database, record(schedule, 99.0))
        tuning_db.append(database, record(schedule, us))
        tuning_db.append(database, record(schedule, 1.0, stage="final"))
        tuning_db.append(database, record(schedule, 1.0, token_tile=16))
    failed = {"status": "timeout", "time_us": None, "message": "hangs"}
    tuning_db.append(database, record(GOOD, 1.0, **failed))
    (found,) = rows(capsys, "--recorded", "--tokens", "1,2")
    assert (found["model"], found["tokens"], found["schedules"]) == (MODEL, 1, len(OTHERS))
    assert found["spearman"] == pytest.approx(1)
    assert found["ratio"] == pytest.approx(0.5, rel=1e-3)
    assert found["error"] == pytest.approx(0.693, rel=1e-2)
    assert found["regret"] == 0


def test_times_of_older_sources_step_back_for_present_ones(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For one token three schedules were timed again, for two none."""
    for schedule in OTHERS:
        tuning_db.append(database, record(schedule, 5.0))
        tuning_db.append(database, record(schedule, 9.0, tokens=2))
    for schedule in OTHERS[:3]:
        now = render(KernelSpec(SHAPE, schedule)).sources_hash
        us = estimate(KernelSpec(SHAPE, schedule), 1).us
        tuning_db.append(database, record(schedule, us, sources_hash=now))
    assert cli.run(["rank", "--model", MODEL, "--recorded", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    found = {row["tokens"]: row for row in json.loads(out)}
    assert {n: row["schedules"] for n, row in found.items()} == {1: 3, 2: len(OTHERS)}
    assert found[1]["ratio"] == pytest.approx(1)
    assert f"{MODEL}: times of older sources left out: {len(OTHERS)}; " in err
    assert "older times count at 2 tokens, where the present sources have few or none" in err


def test_without_records_there_are_predictions_only(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rows(capsys, "--tokens", "1", "--top", "1")[0]["measured_us"] is None
