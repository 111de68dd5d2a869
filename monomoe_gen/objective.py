"""What a kernel is good for: a mixture of token counts and routing patterns, from a YAML file.

    tokens: {1: 1, 2: 1, 4: 2}                    # weight of each token count
    routing: {uniform: 0.6, zipf: 0.3, same: 0.1} # weight of each routing pattern

Weights are relative; a cell (tokens, routing) weighs the product. What is left out is as in the
default: 1 to 8 tokens alike, and the routing patterns above.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from monomoe_gen.errors import MonomoeError
from monomoe_gen.routings import TIMED_ROUTINGS

Cell = tuple[int, str]
"""Token count and routing pattern."""

TOKENS = dict.fromkeys(range(1, 9), 1.0)
ROUTING = {"uniform": 0.6, "zipf": 0.3, "same": 0.1}
MOST_TOKENS = 32


@dataclass(frozen=True)
class Objective:
    """The weight of each cell; they sum to 1."""

    weights: Mapping[Cell, float]

    @property
    def tokens(self) -> tuple[int, ...]:
        """Its token counts."""
        return tuple(sorted({n for n, _ in self.weights}))

    @property
    def routings(self) -> dict[str, float]:
        """The weight of each routing pattern; they sum to 1."""
        found: dict[str, float] = {}
        for (_, routing), weight in self.weights.items():
            found[routing] = found.get(routing, 0.0) + weight
        return found

    @classmethod
    def mixture(cls, tokens: Mapping[int, float], routing: Mapping[str, float]) -> Objective:
        """The products of two sets of relative weights."""
        all_tokens, all_routing = sum(tokens.values()), sum(routing.values())
        return cls(
            {
                (n, r): (a / all_tokens) * (b / all_routing)
                for n, a in tokens.items()
                for r, b in routing.items()
            }
        )


DEFAULT = Objective.mixture(TOKENS, ROUTING)


def load(path: Path) -> Objective:
    """Reads an objective.

    Raises:
        MonomoeError: the file says something else than the module describes.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise MonomoeError(f"{path} is not YAML: {error}") from None
    except RecursionError:
        raise MonomoeError(f"{path} is nested too deeply") from None
    if not isinstance(raw, dict) or not raw or set(raw) - {"tokens", "routing"}:
        raise MonomoeError(f"{path}: give `tokens` and `routing`, found {raw!r}")
    tokens = raw.get("tokens", TOKENS)
    routing = raw.get("routing", ROUTING)
    _check(path, "tokens", tokens, f"token counts from 1 to {MOST_TOKENS}", _is_count)
    _check(path, "routing", routing, f"of {', '.join(TIMED_ROUTINGS)}", TIMED_ROUTINGS.__contains__)
    return Objective.mixture(tokens, routing)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST_TOKENS


def _check(path: Path, name: str, raw: Any, wanted: str, legal: Any) -> None:
    fine = (
        isinstance(raw, dict)
        and raw
        and all(legal(key) for key in raw)
        and all(type(weight) in (int, float) and 0 < weight < math.inf for weight in raw.values())
        and sum(raw.values()) < math.inf
    )
    if not fine:
        raise MonomoeError(
            f"{path}: `{name}` maps {wanted} to positive, finite weights, found {raw!r}"
        )
