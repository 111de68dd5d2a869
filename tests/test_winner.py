"""Who wins: intervals from recorded medians, ties, and what decides between equals."""

import dataclasses

import numpy as np
import pytest

from monomoe_gen import tuning_db, winner
from monomoe_gen.schedule import Schedule
from monomoe_gen.tuning_db import Record, Time
from monomoe_gen.variant import Variant
from monomoe_gen.winner import interval, run_to_run, winners

SCHEDULE = Schedule(grid=132, g_up=64, k_up=1024, g_down=128, k_down=512, d_up=8, d_down=8)


def record(median: float, spread: float = 0.0, **changes: object) -> Record:
    values: dict[str, object] = {
        "tokens": 1,
        "token_tile": 8,
        "schedule": SCHEDULE.to_dict(),
        "sources_hash": "ab" * 32,
        "compiler": "nvrtc 13.0.88",
        "status": "ok",
        "stage": "screen",
        "routing": "uniform",
        "time_us": Time(median, median - spread, median + spread, 200),
        "floor_us": 7.5,
        "empty_us": 0.57,
        "distinct_experts": 8.0,
        "errors": {},
        "binary": None,
        "env": {"uuid": "GPU-1", "driver": "580"},
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]


def fastest(records: list[Record], **options: object) -> dict[int, Record]:
    return {n: w.record for n, w in winners(records, **options).items()}  # type: ignore[arg-type]


def with_grid(grid: int) -> dict[str, int]:
    return dataclasses.replace(SCHEDULE, grid=grid).to_dict()


def test_best_prefers_final_measurements_and_believes_the_latest() -> None:
    fast_but_screened = record(12.0, schedule=with_grid(100))
    lucky = record(13.0, schedule=with_grid(120))
    records = [
        fast_but_screened,
        lucky,
        dataclasses.replace(lucky, stage="final", status="unstable", time_us=None),
        record(14.0, stage="final"),
        record(14.6, stage="final"),
        record(14.4, stage="final", schedule=with_grid(131)),
        record(1.0, stage="final", routing="same"),
        record(30.0, tokens=4),
    ]
    best = fastest(records)
    assert list(best) == [1, 4]
    assert best[1].schedule["grid"] == 131, "14.0 was superseded by 14.6"
    assert fastest(records, routing="same")[1].time_us == Time(1.0, 1.0, 1.0, 200)
    only_old = fastest(records, valid=lambda r: r.schedule["grid"] == 100)
    assert only_old == {1: fast_but_screened}
    assert fastest([*records, lucky]) == best, "a later screening does not undo a final"


def final(median: float, depth: int, tokens: int = 1, spread: float = 0.0) -> Record:
    schedule = dataclasses.replace(SCHEDULE, d_up=depth).to_dict()
    return record(median, spread, stage="final", schedule=schedule, tokens=tokens)


def depth(found: winner.Winner) -> int:
    return found.record.schedule["d_up"]


def repeated(sigma: float, candidates: int = 8, runs: int = 6, drift: float = 0.0) -> list[Record]:
    """Finals of slow schedules whose medians move from run to run; ``drift`` moves all alike."""
    random = np.random.default_rng(1)
    return [
        dataclasses.replace(
            final(50.0 * float(np.exp(random.normal(drift * run, sigma))), 100 + i),
            at=f"2026-01-01T00:{run:02}:00+00:00",
        )
        for run in range(runs)
        for i in range(candidates)
    ]


def test_equals_go_to_the_schedule_of_most_token_counts() -> None:
    """8 leads by nothing at one token, but 4 is as good there and the best elsewhere."""
    noise = repeated(0.002)
    records = [final(10.0, 8), final(10.01, 4), final(10.5, 6)]
    records += [final(20.0, 4, 2), final(20.8, 8, 2), final(30.0, 4, 4)]
    found = winners([*noise, *records])
    assert {n: depth(w) for n, w in found.items()} == {1: 4, 2: 4, 4: 4}
    eight = Schedule.from_dict(records[0].schedule).id
    assert found[1].ties == (eight,) and found[2].ties == ()
    low, high = found[1].low_us, found[1].high_us
    assert low and high and low < 10.01 < high


def test_what_is_really_faster_wins_although_another_is_shared() -> None:
    records = [*repeated(0.0005), final(10.0, 8), final(10.1, 4), final(20.0, 4, 2)]
    assert depth(winners(records)[1]) == 8


def test_the_interval_is_as_wide_as_runs_differ() -> None:
    """About two standard deviations to either side; what moves all kernels alike is left out."""
    spread = run_to_run(repeated(0.002, candidates=40, drift=0.05))
    low, high = interval(Time(10.0, 9.99, 10.01, 600), spread)
    assert 10 - low == pytest.approx(0.039, rel=0.25)
    assert high - 10 == pytest.approx(0.039, rel=0.25)


def test_with_few_runs_only_the_scatter_within_one_is_known() -> None:
    assert len(run_to_run(repeated(0.002, candidates=2))) == 0
    low, high = interval(Time(10.0, 9.0, 11.0, 400), np.zeros(0))
    drawn = np.random.default_rng(0).random((4000, 400))
    medians = np.median(np.interp(drawn, [0, 1], [8.75, 11.25]), axis=1)
    assert (low, high) == pytest.approx(np.quantile(medians, [0.025, 0.975]), abs=0.02)


def test_runs_on_another_card_or_of_other_sources_are_no_repetition() -> None:
    records = repeated(0.002, candidates=4, runs=6)
    assert len(run_to_run(records)) == 24
    moved = [dataclasses.replace(r, env={"uuid": f"GPU-{r.at}"}) for r in records]
    assert len(run_to_run(moved)) == 0


def test_invalid_records_neither_win_nor_tie() -> None:
    records = [*repeated(0.002), final(10.0, 8), final(10.0, 4), final(10.0, 6)]
    found = winners(records, valid=lambda r: r.schedule["d_up"] != 4)[1]
    assert depth(found) == 6 and len(found.ties) == 1


def test_screened_times_are_ranked_without_intervals() -> None:
    found = winners([record(10.0), record(9.0, tokens=2)])
    assert found[1] == winner.Winner(record(10.0, at=found[1].record.at))


def test_the_fastest_of_a_layout_is_of_that_layout() -> None:
    records = [record(14.0), record(15.0, layout="raw"), record(13.0, tokens=2, layout="raw")]
    assert fastest(records) == {1: records[0]}
    assert fastest(records, variant=Variant("raw")) == {1: records[1], 2: records[2]}


def test_a_confirmed_time_is_told_and_decides_nothing() -> None:
    noise = repeated(0.002)
    fast, slow = final(10.0, 8), final(10.5, 4)
    confirmed = dataclasses.replace(fast, stage="confirm", time_us=Time(11.0, 10.9, 11.1, 200))
    found = winners([*noise, fast, slow, confirmed])[1]
    assert depth(found) == 8 and found.record == fast
    assert found.carried == found.confirmed == confirmed
    assert found.low_us and found.high_us and found.low_us < 11.0 < found.high_us
    lucky = dataclasses.replace(slow, stage="confirm", time_us=Time(1.0, 1.0, 1.0, 200))
    assert winners([*noise, fast, slow, confirmed, lucky])[1] == found
    assert winners([lucky]) == {}, "alone it is no measurement of a candidate"


def test_a_confirmed_time_is_of_the_last_final_and_of_its_binary() -> None:
    first = final(10.0, 8)
    confirmed = dataclasses.replace(first, stage="confirm")
    assert winners([first, confirmed, final(10.2, 8)])[1].confirmed is None
    other = tuning_db.Binary(100, 0, 200_000, "cd" * 32)
    assert winners([first, dataclasses.replace(confirmed, binary=other)])[1].confirmed is None
    assert winners([first, confirmed, record(9.0)])[1].confirmed == confirmed


WEIGHTS = {"uniform": 0.6, "zipf": 0.3, "same": 0.1}


def finalist(depth: int, tokens: int = 1, **us: float) -> list[Record]:
    """A final record under each routing."""
    return [
        dataclasses.replace(final(median, depth, tokens), routing=routing)
        for routing, median in us.items()
    ]


def test_a_mixture_of_routings_decides_and_the_uniform_record_is_told() -> None:
    """8 leads under uniform routing by 5 %; 4 wins back more than that under the others."""
    eight = finalist(8, uniform=10.0, zipf=12.0, same=9.0)  # 10.5
    four = finalist(4, uniform=10.5, zipf=10.0, same=7.0)  # 10.0
    records = [*repeated(0.0005), *eight, *four]
    assert depth(winners(records)[1]) == 8
    found = winners(records, weights=WEIGHTS)[1]
    assert found.record == four[0] and found.ties == ()
    assert found.low_us and found.high_us and found.low_us < 10.5 < found.high_us
    weights = {"uniform": 6.0, "zipf": 0.5, "same": 0.5}
    assert depth(winners(records, weights=weights)[1]) == 8, "weights are relative"
    confirmed = dataclasses.replace(four[0], stage="confirm", time_us=Time(10.7, 10.6, 10.8, 200))
    assert winners([*records, confirmed], weights=WEIGHTS)[1].carried == confirmed


def test_a_finalist_that_lacks_a_routing_of_the_mixture_does_not_win() -> None:
    whole = finalist(4, uniform=10.5, zipf=10.0, same=7.0)
    part = finalist(8, uniform=9.0, zipf=9.0)
    screened = record(5.0)
    records = [*repeated(0.0005), *whole, *part, screened]
    assert depth(winners(records, weights=WEIGHTS)[1]) == 4
    assert depth(winners(records)[1]) == 8
    assert depth(winners([*part, *whole[:1]], weights=WEIGHTS)[1]) == 8, "none is complete"
    current = winners(records, weights=WEIGHTS, valid=lambda r: r.schedule["d_up"] != 4)
    assert depth(current[1]) == 8, "none that is valid is complete"


def test_a_faster_finalist_that_lacks_a_routing_is_told() -> None:
    def told(*others: Record) -> Record | None:
        whole = finalist(4, uniform=10.5, zipf=10.0, same=7.0)
        return winners([*repeated(0.0005), *whole, *others], weights=WEIGHTS)[1].overlooked

    (fast,) = finalist(8, uniform=9.0)
    assert told(fast) == fast
    assert told(*finalist(8, uniform=10.499)) is None, "it cannot be told apart"
    assert told(record(5.0)) is None, "it was only screened"
    assert told(*finalist(8, uniform=9.0, zipf=20.0, same=20.0)) is None, "the mixture decided"
    assert winners([*repeated(0.0005), fast], weights=WEIGHTS)[1].overlooked is None
