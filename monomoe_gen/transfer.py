"""Where to begin with kernels that nobody has measured: at the best schedules of the nearest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType

from monomoe_gen import tuning_db
from monomoe_gen.errors import MonomoeError, ShapeError
from monomoe_gen.ledger import Ledger
from monomoe_gen.ranking import medians
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.space import nearest
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import USUAL, Variant
from monomoe_gen.winner import winners

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
    weights: Mapping[str, float] = MappingProxyType({}),
) -> Transfer | None:
    """The best schedules of the recorded shape nearest to ``shape``, as candidates; None if none.

    ``folder`` is that of the GPU in the database. Times of another token count stand in for those
    that are missing; sources may be older. With ``weights`` of several routings, winners are those
    of the mixture (see `winners`).
    """
    others = []
    for path in sorted(folder.glob("*.jsonl")):
        other = _known(path.stem)
        if other and other.name != shape.name:
            others.append((shape_distance(shape, other), other.name, path))
    for distance, model, path in sorted(others):
        records = tuning_db.read(path)
        if best := _best(records, tokens, token_tile, routing, BEST, weights):
            return Transfer(model, distance, _mapped(best, candidates))
    return None


def from_base(
    shape: Shape,
    variant: Variant,
    candidates: Sequence[Schedule],
    tokens: Iterable[int],
    token_tile: int,
    routing: str,
    folder: Path,
    count: int,
    weights: Mapping[str, float] = MappingProxyType({}),
) -> Transfer:
    """The ``count`` best schedules of each token count of the kernels that these are a variant of.

    Those are the usual kernels of the same shape; for a shape that differs from another one in its
    activations alone, where it has no records, those of the other one. The rest is as in
    `from_nearest`.

    Raises:
        MonomoeError: nothing is recorded of them.
    """
    bases = [shape] if variant != USUAL else []
    bases += [
        other
        for path in sorted(folder.glob("*.jsonl"))
        if (other := _known(path.stem)) and other.name != shape.name and _twins(shape, other)
    ]
    for base in bases:
        records = tuning_db.read(folder / f"{base.name}.jsonl")
        if best := _best(records, tokens, token_tile, routing, count, weights):
            return Transfer(base.name, 0.0, _mapped(best, candidates))
    raise MonomoeError(
        f"asked for the winners of the kernels that {shape.name}, {variant}, is a variant of; "
        f"{folder} has no times of {' or '.join(b.name for b in bases) or 'such a shape'} for "
        f"up to {token_tile} tokens under {routing} routing: tune those first, or leave "
        "--from-winners away"
    )


def _twins(a: Shape, b: Shape) -> bool:
    return replace(b, name=a.name, source=a.source, activations=a.activations) == a


def _known(name: str) -> Shape | None:
    """A shape by its name; None if its file is gone, so that nobody knows what it is."""
    try:
        return load_shape(name)
    except ShapeError:
        return None


def _best(
    records: Sequence[Record],
    tokens: Iterable[int],
    token_tile: int,
    routing: str,
    count: int,
    weights: Mapping[str, float],
) -> list[Schedule]:
    """The best schedules of usual kernels at each token count, the winners first."""
    times = {n: medians(records, n, token_tile, routing) for n in {r.tokens for r in records}}
    counts = [n for n, found in times.items() if found]
    own = (r for r in records if r.token_tile == token_tile)
    won = winners(own, routing, weights=weights)
    lists = []
    for n in tokens if counts else ():
        near = min(counts, key=lambda m: abs(math.log2(m / n)))
        found = times[near]
        first = [Schedule.from_dict(won[near].record.schedule)] if near in won else []
        ranked = dict.fromkeys((*first, *sorted(found, key=lambda s: found[s])))
        lists.append(list(ranked)[:count])
    return [s for place in zip_longest(*lists) for s in place if s]


def _mapped(best: Iterable[Schedule], candidates: Sequence[Schedule]) -> tuple[Schedule, ...]:
    """The nearest candidates, each once."""
    found = (nearest(s, candidates) for s in dict.fromkeys(best))
    return tuple(dict.fromkeys(s for s in found if s))


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
