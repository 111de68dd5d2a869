"""The search space: every schedule of a shape, those that keep the rules, the nearest legal one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from itertools import product
from math import log2
from operator import itemgetter

from monomoe_gen.device import Device
from monomoe_gen.errors import InfeasibleSchedule
from monomoe_gen.rules import RULES, Rule, violations
from monomoe_gen.schedule import ROW_TILE, Geometry, Schedule
from monomoe_gen.shapes import SCALE_BLOCK, Shape

DEPTHS = (2, 3, 4, 5, 6, 8, 10, 12)
_WEIGHTS = {"d_up": 0.25, "d_down": 0.25}


def domain(shape: Shape, device: Device) -> dict[str, tuple[int, ...]]:
    """The values of each parameter that are worth asking the rules about."""
    whole_groups = device.sms - device.sms % 32  # divides by the usual group sizes
    return {
        "grid": tuple(sorted({device.sms, whole_groups})),
        "g_up": _divisors(2 * shape.intermediate // ROW_TILE),
        "k_up": tuple(SCALE_BLOCK * n for n in _divisors(shape.hidden // SCALE_BLOCK)),
        "g_down": tuple(g for g in _divisors(shape.hidden // ROW_TILE) if g <= device.sms),
        "k_down": tuple(SCALE_BLOCK * n for n in _divisors(shape.intermediate // SCALE_BLOCK)),
        "d_up": DEPTHS,
        "d_down": DEPTHS,
    }


def feasible(shape: Shape, device: Device, token_tile: int = 8) -> list[Schedule]:
    """Every schedule of the domain that keeps all rules, in lexicographic order."""
    return list(_legal(shape, device, token_tile))


def first_feasible(shape: Shape, device: Device, token_tile: int = 8) -> Schedule | None:
    """One schedule that keeps all rules, without looking for the others; None if there is none."""
    return next(_legal(shape, device, token_tile), None)


def removal_counts(
    shape: Shape, device: Device, token_tile: int = 8
) -> tuple[int, dict[str, int], int]:
    """``(schedules in the domain, {rule: schedules it is the first to remove}, survivors)``."""
    removed: Counter[str] = Counter()
    total = survivors = 0
    for _, rule in _judged(shape, device, token_tile):
        total += 1
        if rule is None:
            survivors += 1
        else:
            removed[rule.name] += 1
    return total, {rule.name: removed[rule.name] for rule in RULES}, survivors


def nearest_legal(
    shape: Shape, schedule: Schedule, device: Device, token_tile: int = 8
) -> Schedule | None:
    """The feasible schedule `nearest` to this one, if there is any."""
    return nearest(schedule, feasible(shape, device, token_tile))


def nearest(schedule: Schedule, candidates: Iterable[Schedule]) -> Schedule | None:
    """The candidate with the least weighted sum of log ratios to `schedule`, if there is any.

    A ring depth counts a quarter of what the others do: where a ring is too deep, fewer stages of
    the same size cost less than stages of another size.
    """

    def distance(other: Schedule) -> tuple[float, Schedule]:
        pairs = zip(schedule.to_dict().items(), other.to_dict().values(), strict=True)
        return sum(_WEIGHTS.get(k, 1.0) * abs(log2(a / b)) for (k, a), b in pairs), other

    return min(candidates, key=distance, default=None)


def require_feasible(shape: Shape, schedule: Schedule, device: Device, token_tile: int = 8) -> None:
    """Raises `InfeasibleSchedule` with every broken rule."""
    broken = violations(shape, schedule, device, token_tile)
    if broken:
        raise InfeasibleSchedule([str(v) for v in broken])


def _legal(shape: Shape, device: Device, token_tile: int) -> Iterator[Schedule]:
    """The schedules that keep all rules.

    Parameters are chosen one by one, and a rule is asked as soon as all that it depends on are.
    """
    values = list(domain(shape, device).values())
    first = Schedule(*(choices[0] for choices in values))  # stands in for what is not chosen yet
    names, defaults = list(first.to_dict()), tuple(first.to_dict().values())
    due: list[list[tuple[Rule, Callable[[tuple[int, ...]], object], dict[object, bool]]]] = [
        [] for _ in names
    ]
    for rule in RULES:
        places = [names.index(name) for name in rule.parameters]
        due[max(places)].append((rule, itemgetter(*places), {}))

    def extend(point: tuple[int, ...]) -> Iterator[Schedule]:
        depth = len(point)
        if depth == len(names):
            yield Schedule(*point)
            return
        for value in values[depth]:
            longer = (*point, value)
            if all(holds(longer, *judged) for judged in due[depth]):
                yield from extend(longer)

    def holds(
        point: tuple[int, ...],
        rule: Rule,
        parameters: Callable[[tuple[int, ...]], object],
        known: dict[object, bool],
    ) -> bool:
        key = parameters(point)
        if key not in known:
            geometry = Geometry(shape, Schedule(*point, *defaults[len(point) :]), token_tile)
            known[key] = rule.holds(geometry, device)
        return known[key]

    yield from extend(())


def _judged(
    shape: Shape, device: Device, token_tile: int
) -> Iterator[tuple[Schedule, Rule | None]]:
    """Each schedule of the domain with the first rule it breaks.

    A rule is asked once for each combination of the parameters it depends on.
    """
    names = [f.name for f in fields(Schedule)]
    values = domain(shape, device)
    verdicts: list[dict[tuple[int, ...], bool]] = [{} for _ in RULES]
    places = [tuple(names.index(n) for n in rule.parameters) for rule in RULES]
    for point in product(*(values[name] for name in names)):
        schedule = Schedule(*point)
        broken = None
        for rule, known, where in zip(RULES, verdicts, places, strict=True):
            key = tuple(point[i] for i in where)
            holds = known.get(key)
            if holds is None:
                holds = rule.holds(Geometry(shape, schedule, token_tile), device)
                known[key] = holds
            if not holds:
                broken = rule
                break
        yield schedule, broken


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, number + 1) if number % n == 0)
