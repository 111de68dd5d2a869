"""Which records count, what is missing, and who leads."""

import dataclasses
import math
from pathlib import Path

import pytest

from monomoe_gen import present, tuning_db
from monomoe_gen.ledger import Ledger
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.tuning_db import Record, Time
from monomoe_gen.variant import Variant

SHAPE = load_shape("qwen3.5-35b")
A, B, C = (Schedule(132, 64, 1024, 128, 512, depth, 8) for depth in (4, 6, 8))
TODAY, OLD = "1" * 64, "0" * 64


def record(schedule: Schedule, tokens: int, us: float | None = None, **changes: object) -> Record:
    """A screened time, or a failure without one."""
    values: dict[str, object] = {
        "tokens": tokens,
        "token_tile": 8,
        "schedule": schedule.to_dict(),
        "sources_hash": TODAY,
        "compiler": "nvrtc 0.0",
        "status": "ok" if us else "wrong",
        "stage": "screen",
        "routing": "uniform",
        "time_us": Time(us, us, us, 20) if us else None,
        "floor_us": None,
        "empty_us": None,
        "distinct_experts": None,
        "errors": {},
        "binary": None,
        "env": {},
        **changes,
    }
    return Record(**values)  # type: ignore[arg-type]


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    source = dataclasses.make_dataclass("Source", ["sources_hash"])(TODAY)
    monkeypatch.setattr(present, "render", lambda spec: source)
    return Ledger(SHAPE, (1, 8), 8, "uniform", None)


def leaders(ledger: Ledger) -> dict[int, tuple[Schedule, float]]:
    return {
        n: (Schedule.from_dict(r.schedule), r.time_us.median)
        for n, r in ledger.best().items()
        if r.time_us
    }


def test_only_records_of_this_run_count(ledger: Ledger) -> None:
    stale = record(A, 1, 5.0, sources_hash=OLD)
    ledger.load(
        [
            stale,
            record(A, 1, 15.0),
            record(A, 8, 5.0, routing="zipf"),
            record(A, 8, 5.0, token_tile=16),
            record(A, 8, 5.0, layout="raw"),
        ]
    )
    assert ledger.stale == [stale]
    assert ledger.missing(A) == (8,)
    assert ledger.missing(B) == (1, 8)
    assert ledger.values(A) is None
    ledger.add(record(A, 8, 50.0))
    assert ledger.missing(A) == ()
    assert ledger.values(A) == {1: math.log(15.0), 8: math.log(50.0)}


def test_one_failure_disqualifies_for_every_token_count(ledger: Ledger) -> None:
    ledger.load([record(A, 1, 10.0), record(A, 8), record(B, 1, 15.0), record(B, 8, 50.0)])
    assert ledger.missing(A) == () and ledger.values(A) is None
    assert ledger.failure(A) == ["wrong"] and ledger.failure(B) == []
    assert leaders(ledger) == {1: (B, 15.0), 8: (B, 50.0)}
    assert ledger.finalists(2) == {B: (1, 8)}


def test_a_final_time_outweighs_screened_ones(ledger: Ledger) -> None:
    """A later screening of the same candidate does not replace it either."""
    ledger.load(
        [
            record(A, 1, 10.0),
            record(A, 1, 14.0, stage="final"),
            record(A, 1, 9.0),
            record(A, 8, 50.0),
            record(B, 1, 12.0),
            record(B, 8, 60.0),
        ]
    )
    assert leaders(ledger) == {1: (A, 14.0), 8: (A, 50.0)}
    assert {s: v[1] for s in (A, B) if (v := ledger.values(s))} == {
        A: math.log(14.0),
        B: math.log(12.0),
    }
    assert ledger.best(among={B})[1].time_us == Time(12.0, 12.0, 12.0, 20)


def test_finalists_lead_somewhere(ledger: Ledger) -> None:
    times = {A: (10.0, 70.0), B: (11.0, 50.0), C: (12.0, 60.0)}
    for schedule, (one, eight) in times.items():
        ledger.add(record(schedule, 1, one))
        ledger.add(record(schedule, 8, eight))
    assert ledger.finalists(1) == {A: (1,), B: (8,)}
    assert ledger.finalists(2) == {A: (1,), B: (1, 8), C: (8,)}
    assert ledger.recorded_tokens(A) == {1, 8}


def test_an_honest_final_time_does_not_call_up_the_next_lucky_one(ledger: Ledger) -> None:
    ledger.load([record(s, n, us) for s, us in ((A, 10.0), (B, 10.1), (C, 10.2)) for n in (1, 8)])
    assert set(ledger.finalists(1)) == {A}
    for n in (1, 8):
        ledger.add(record(A, n, 10.5, stage="final"))
    assert set(ledger.finalists(1)) == {A}
    ledger.add(record(A, 1, None, stage="final"))
    assert set(ledger.finalists(1)) == {B}


def test_what_is_added_is_on_disk(ledger: Ledger, tmp_path: Path) -> None:
    ledger.path = tmp_path / "nvidia-h200" / "qwen3.5-35b.jsonl"
    first, second = record(A, 1, 15.0), record(A, 8)
    ledger.add(first)
    ledger.add(second)
    assert tuning_db.read(ledger.path) == [first, second]


def test_a_ledger_of_raw_weights_renders_and_counts_raw_kernels(ledger: Ledger) -> None:
    raw = dataclasses.replace(ledger, variant=Variant("raw"))
    raw.load([record(A, 1, 10.0), record(A, 8, 50.0, layout="raw")])
    assert raw.missing(A) == (1,)
    assert raw.spec(A).layout == "raw"
