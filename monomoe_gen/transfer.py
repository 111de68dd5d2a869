"""Where to begin with a shape that nobody has measured: at the best schedules of the nearest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from monomoe_gen import tuning_db
from monomoe_gen.errors import ShapeError
from monomoe_gen.ledger import Ledger
from monomoe_gen.ranking import medians
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.space import nearest

BEST = 4  # of each token count


@dataclass(frozen=True)
class Transfer:
    """Schedules of a new shape that are nearest to the best ones of ``model``.

    ``distance`` is what `shape_distance` says of the two shapes.
    """

    model: str
    distance: float
    schedules: tuple[Schedule, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.schedules)} schedules nearest to the best of {self.model} "
            f"(distance {self.distance:.1f})"
        )


def shape_distance(a: Shape, b: Shape) -> float:
    """The sum of the log2 ratios of what a schedule depends on: sizes, experts, top-k."""
    pairs = (
        (a.hidden, b.hidden),
        (a.intermediate, b.intermediate),
        (a.experts, b.experts),
        (a.top_k, b.top_k),
    )
    return sum(abs(math.log2(x / y)) for x, y in pairs)


def from_nearest(
    shape: Shape,
    candidates: Sequence[Schedule],
    tokens: Iterable[int],
    token_tile: int,
    routing: str,
    folder: Path,
) -> Transfer | None:
    """The best schedules of the recorded shape nearest to ``shape``, as candidates; None if none.

    ``folder`` is that of the GPU in the database. Times of another token count stand in for those
    that are missing; sources may be older.
    """
    others = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            other = load_shape(path.stem)
        except ShapeError:
            continue  # its file is gone, so nobody knows how near it is
        if other.name != shape.name:
            others.append((shape_distance(shape, other), other.name, path))
    for distance, model, path in sorted(others):
        records = tuning_db.read(path)
        times = {n: medians(records, n, token_tile, routing) for n in {r.tokens for r in records}}
        counts = [n for n, found in times.items() if found]
        if counts:
            best: list[Schedule] = []
            for n in tokens:
                found = times[min(counts, key=lambda m: abs(math.log2(m / n)))]
                best += sorted(found, key=lambda s: found[s])[:BEST]
            mapped = (nearest(s, candidates) for s in dict.fromkeys(best))
            return Transfer(model, distance, tuple(dict.fromkeys(s for s in mapped if s)))
    return None


def worth(transfer: Transfer, favourites: Sequence[Schedule], ledger: Ledger) -> str:
    """How near the transferred schedules came to the best found, beside the cost model's."""
    values = {s: v for s in ledger.schedules() if (v := ledger.values(s))}
    if not values:
        return f"{transfer}: none of them is known to work"

    def regret(among: Sequence[Schedule]) -> str:
        known = [values[s] for s in among if s in values]
        if not known:
            return "none of them works"
        logs = [
            min(v[n] for v in known) - min(v[n] for v in values.values()) for n in ledger.tokens
        ]
        return f"{math.expm1(sum(logs) / len(logs)):.2%} slower"

    return (
        f"{transfer}: the best of them against the best of all {len(values)}: "
        f"{regret(transfer.schedules)}; the {len(favourites)} favourites of the cost model: "
        f"{regret(favourites)} (mean over token counts)"
    )
