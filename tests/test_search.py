"""Every candidate is proposed at most once, and Optuna finds good ones before the rest."""

import itertools
import math
import random

import pytest

from monomoe_gen.schedule import Schedule
from monomoe_gen.search import Search

TOKENS = (1, 8)
# A space with holes: 4 x 4 x 3 x 1 x 1 x 4 x 4 points, of which the even sums are there.
POINTS = [
    Schedule(132, g, k, d, 512, up, down)
    for (i, g), (j, k), (m, d), (n, up), (o, down) in itertools.product(
        enumerate((16, 32, 64, 128)),
        enumerate((128, 256, 512, 1024)),
        enumerate((32, 64, 128)),
        enumerate((2, 3, 4, 6)),
        enumerate((2, 3, 4, 6)),
    )
    if (i + j + m + n + o) % 2 == 0
]


def cost(s: Schedule) -> dict[int, float]:
    """One valley for each token count."""
    up = abs(math.log2(s.g_up / 64)) + abs(math.log2(s.k_up / 512)) / 2
    return {1: up + abs(s.d_up - 4), 8: up + abs(s.d_up - 6) + abs(math.log2(s.g_down / 32))}


@pytest.mark.parametrize("in_order", [True, False])
def test_every_candidate_comes_exactly_once(in_order: bool) -> None:
    search = Search(POINTS[:60], TOKENS)
    asked = []
    while schedule := search.ask(in_order):
        asked.append(schedule)
        search.tell(schedule, cost(schedule))
    assert sorted(asked) == sorted(POINTS[:60])
    assert len(search) == 0


def test_the_order_is_random_and_reproducible() -> None:
    def order(seed: int) -> list[Schedule | None]:
        search = Search(POINTS, TOKENS, seed)
        return [search.ask(in_order=True) for _ in range(20)]

    assert order(1) == order(1) != order(2)
    assert order(1) != sorted(POINTS)[:20]


def test_what_is_known_or_asked_for_is_not_proposed_again() -> None:
    search = Search(POINTS[:40], TOKENS)
    for schedule in POINTS[:30]:
        search.tell(schedule, cost(schedule))
    rest = {search.ask(in_order=False) for _ in range(10)}
    assert rest == set(POINTS[30:40])
    assert search.ask(in_order=False) is None


def test_incumbents_come_first_in_their_order() -> None:
    wanted = [POINTS[50], POINTS[7], Schedule(1, 1, 1, 1, 1, 1, 1)]
    search = Search(POINTS, TOKENS, first=wanted)
    assert [search.ask(in_order=False), search.ask(in_order=True)] == wanted[:2]
    assert search.ask(in_order=False) in set(POINTS) - set(wanted)


def test_what_is_known_already_does_not_use_up_the_places_of_the_first() -> None:
    wanted = POINTS[10:20]
    search = Search(POINTS, TOKENS, first=wanted)
    for schedule in wanted[:9]:
        search.tell(schedule, cost(schedule))
    assert search.ask(in_order=False) == wanted[9]
    for schedule in POINTS[100:150]:
        search.tell(schedule, cost(schedule))
    plain = Search(POINTS, TOKENS)
    known = {*wanted, *POINTS[100:150]}
    order = [s for _ in POINTS if (s := plain.ask(in_order=True)) not in known]
    assert [search.ask(in_order=False) for _ in range(8)] != order[:8]


def test_failures_are_forgotten_but_not_repeated() -> None:
    search = Search(POINTS, TOKENS)
    asked = []
    for _ in range(80):
        schedule = search.ask(in_order=False)
        assert schedule
        asked.append(schedule)
        search.tell(schedule, None if schedule.d_up == 2 else cost(schedule))
    assert len(set(asked)) == 80


def test_optuna_beats_chance_for_every_token_count() -> None:
    """Mean regret after 60 of 384 candidates, over ten seeds."""
    best = {n: min(cost(s)[n] for s in POINTS) for n in TOKENS}
    proposed = dict.fromkeys(TOKENS, 0.0)
    chance = dict.fromkeys(TOKENS, 0.0)
    for seed in range(10):
        search = Search(POINTS, TOKENS, seed)
        seen = []
        for _ in range(60):
            schedule = search.ask(in_order=False)
            assert schedule
            seen.append(schedule)
            search.tell(schedule, cost(schedule))
        drawn = random.Random(seed).sample(POINTS, 60)
        for n in TOKENS:
            proposed[n] += min(cost(s)[n] for s in seen) - best[n]
            chance[n] += min(cost(s)[n] for s in drawn) - best[n]
    for n in TOKENS:
        assert proposed[n] < chance[n] / 2


def test_one_candidate_is_no_search() -> None:
    search = Search(POINTS[:1], TOKENS)
    assert search.ask(in_order=False) == POINTS[0]
    search.tell(POINTS[0], cost(POINTS[0]))
    assert search.ask(in_order=False) is None
