"""Pruning across token counts: the rule, and what it would have done to recorded searches."""

from __future__ import annotations

import math

import pytest

from monomoe_gen import prune_study, tuning_db
from monomoe_gen.device import DEFAULT
from monomoe_gen.prune import MARGIN, hopeless, likely, turns
from monomoe_gen.search_study import recorded_times
from monomoe_gen.shapes import load_shape


@pytest.mark.parametrize(
    ("tokens", "order"),
    [
        ((1, 2, 4, 8), [(8,), (1,), (2, 4)]),
        ((1, 8), [(8,), (1,)]),
        ((4,), [(4,)]),
        ((3, 1, 2), [(3,), (1,), (2,)]),
    ],
)
def test_the_extremes_come_first(tokens: tuple[int, ...], order: list[tuple[int, ...]]) -> None:
    assert turns(tokens) == order


def test_hopeless_is_slower_everywhere() -> None:
    best = {1: 10.0, 8: 40.0}
    assert hopeless({8: 45.0}, best, 0.1)
    assert not hopeless({8: 43.0}, best, 0.1)
    assert not hopeless({8: 45.0, 1: 10.5}, best, 0.1)
    assert hopeless({8: 45.0, 1: 11.5}, best, 0.1)
    assert not hopeless({}, best, 0.1) and not hopeless({8: 45.0}, {}, 0.1)


def test_what_is_not_timed_is_as_slow_as_the_rest() -> None:
    best = {1: 10.0, 2: 20.0, 8: 40.0}
    found = likely({8: 44.0}, best)
    assert {n: math.exp(v) for n, v in found.items()} == pytest.approx({1: 11, 2: 22, 8: 44})
    assert likely({1: 12.0, 2: 20.0, 8: 50.0}, best)[1] == pytest.approx(math.log(12.0))


def test_on_the_records_it_saves_timings_and_loses_nothing() -> None:
    model = "glm-5.2-tp8"
    records = tuning_db.read(tuning_db.database_path(DEFAULT, model))
    times = recorded_times(records, (1, 2, 4, 8), 8)
    found = prune_study.study(load_shape(model), times, "random", 3, 48, margins=(0.0, MARGIN))
    assert [(p.start, p.margin) for p in found] == [
        (start, margin) for start in prune_study.STARTS for margin in (None, 0.0, MARGIN)
    ]
    for everything, least, usual in (found[:3], found[3:]):
        assert everything.timed == 1.0
        assert 0.25 < least.timed < usual.timed < 0.95
        assert usual.regret == everything.regret
        assert 0 <= usual.regret <= usual.worst
