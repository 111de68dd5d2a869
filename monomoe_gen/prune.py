"""Leaving out timings: what is clearly slower at some token counts is not timed at the others.

Optuna's `WilcoxonPruner` asks for this with the signs and ranks of a candidate's differences to the
best one. Four token counts are too few for that: a candidate that is slower at three of them still
has one chance in eight to be no worse. But how much slower it is says enough, since times at
different token counts go together (`prune_study`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

MARGIN = 0.1  # twice what still finds the best of every recorded shape; tuning_db/README.md


def turns(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """The token counts in the order of timing: the largest, the smallest, all others at once."""
    ordered = sorted(set(tokens), reverse=True)
    groups = (tuple(ordered[:1]), tuple(ordered[1:][-1:]), tuple(sorted(ordered[1:-1])))
    return [group for group in groups if group]


def hopeless(times: Mapping[int, float], best: Mapping[int, float], margin: float) -> bool:
    """Whether a candidate is slower than ``best`` by more than ``margin`` at all that it was timed.

    Both are microseconds by token count.
    """
    known = [(us, best[n]) for n, us in times.items() if n in best]
    return bool(known) and all(us > (1 + margin) * least for us, least in known)


def likely(times: Mapping[int, float], best: Mapping[int, float]) -> dict[int, float]:
    """Log of the time at every token count of ``best``, for a search to learn from.

    Where a candidate was not timed it is as much slower than ``best`` as on average elsewhere.
    """
    lag = sum(math.log(us / best[n]) for n, us in times.items()) / len(times)
    return {n: math.log(times[n]) if n in times else math.log(us) + lag for n, us in best.items()}
