"""What the variants of a kernel cost: ``generated/<gpu>/variants.json`` and the README's table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from monomoe_gen.files import write_atomically
from monomoe_gen.strict import read_json

FILE = "variants.json"
Kind = Literal["usual", "router", "pdl", "raw", "bf16"]
"""The usual kernel; with the router inside; of programmatic dependent launch; of raw weights; with
activations that are not quantized. Those that read the same weights stand together."""
KINDS: tuple[Kind, ...] = get_args(Kind)

_HEADER = (
    "model",
    "tokens",
    "stream floor",
    "usual",
    "raw weights",
    "bf16 activations",
    "router GEMM + usual",
    "router inside",
    "router GEMM + pdl",
)


@dataclass(frozen=True)
class Cost:
    """One kernel at one token count; all of a model and token count are of one run.

    Times are microseconds per launch, weights cold, routing uniform. ``floor_us`` is the stream
    floor, measured once for all kinds. ``after_router_us`` is the time of torch's bf16 GEMM of
    the router and, behind it, the kernel, as two nodes of a graph; None for kinds that it says
    nothing of.
    ``tuned``: the schedule was tuned for this kind and token count; else it is the usual kernel's,
    or the nearest one that is feasible. ``cosine`` is the worst of the validation, against FP32.
    """

    model: str
    tokens: int
    kind: Kind
    schedule: str
    tuned: bool
    time_us: float
    floor_us: float
    after_router_us: float | None
    cosine: float


def read_costs(path: Path) -> list[Cost]:
    """The content of a ``variants.json``; nothing when there is no such file.

    Raises:
        DatabaseError: not a list of exactly these fields.
    """
    return list(read_json(tuple[Cost, ...], path)) if path.exists() else []


def write_costs(path: Path, new: Sequence[Cost]) -> None:
    """Writes costs one a line, in place of what the file has of the same models."""
    measured = {cost.model for cost in new}
    kept = [cost for cost in read_costs(path) if cost.model not in measured]
    ordered = sorted((*kept, *new), key=lambda c: (c.model, c.tokens, KINDS.index(c.kind)))
    lines = ",\n".join(" " + json.dumps(asdict(cost)) for cost in ordered)
    write_atomically(path, (f"[\n{lines}\n]\n" if lines else "[]\n").encode())


def costs_table(costs: Iterable[Cost]) -> str:
    """One row a model and token count, as a markdown table; a star marks what is not tuned."""
    cells: dict[tuple[str, int], dict[Kind, Cost]] = {}
    for cost in costs:
        cells.setdefault((cost.model, cost.tokens), {})[cost.kind] = cost
    rows = [_HEADER, ("---",) + ("---:",) * (len(_HEADER) - 1)]
    rows += [_row(*key, kinds) for key, kinds in cells.items() if "usual" in kinds]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(model: str, tokens: int, kinds: dict[Kind, Cost]) -> tuple[str, ...]:
    usual = kinds["usual"]
    raw, bf16, inside, early = (kinds.get(kind) for kind in ("raw", "bf16", "router", "pdl"))
    apart = usual.after_router_us
    return (
        model,
        str(tokens),
        f"{usual.floor_us:.1f}",
        f"{usual.time_us:.1f}",
        _beside(raw, raw.time_us if raw else None, usual.time_us),
        _beside(bf16, bf16.time_us if bf16 else None, usual.time_us),
        f"{apart:.1f}" if apart else "-",
        _beside(inside, inside.time_us if inside else None, apart),
        _beside(early, early.after_router_us if early else None, apart),
    )


def _beside(cost: Cost | None, time_us: float | None, other_us: float | None) -> str:
    """A time and how it differs from another one."""
    if cost is None or time_us is None:
        return "-"
    star = "" if cost.tuned else "*"
    change = f" ({time_us / other_us - 1:+.1%})" if other_us else ""
    return f"{time_us:.1f}{star}{change}"
