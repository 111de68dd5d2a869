"""Measured times next to published ones: ``generated/<gpu>/bench.json`` and the README's table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.files import write_atomically
from monomoe_gen.schedule import Layout, Router
from monomoe_gen.strict import read_json
from monomoe_gen.variant import USUAL, Variant

BEGIN = "<!-- results: written by `make readme` from generated/nvidia-h200 -->"
END = "<!-- end of results -->"

_HEADER = (
    "model",
    "tokens",
    "this kernel, µs",
    "stream floor, µs",
    "ratio",
    "TB/s",
    "published MonoMoE, µs",
    "Triton grouped GEMM, µs",
    "faster than the better one",
    "cosine",
)


@dataclass(frozen=True)
class Result:
    """One dispatched kernel, timed next to the stream floor of the same run.

    Times are microseconds per launch with cold weights, ``ratio`` is time / floor,
    ``distinct_experts`` is the mean over the launches, ``bandwidth_gb_s`` counts their FP8 bytes,
    ``cosine`` compares with the FP32 reference, ``schedule`` is a schedule id, ``layout`` that of
    the weights; ``router`` and ``pdl`` are as in `KernelSpec`.
    """

    model: str
    tokens: int
    time_us: float
    floor_us: float
    ratio: float
    bandwidth_gb_s: float
    distinct_experts: float
    cosine: float
    schedule: str
    routing: str
    layout: Layout = "packed"
    router: Router = "logits"
    pdl: bool = False


def read_results(path: Path) -> list[Result]:
    """The results of a ``bench.json``; none when there is no such file.

    Raises:
        DatabaseError: not a list of exactly these fields.
    """
    return list(read_json(tuple[Result, ...], path)) if path.exists() else []


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Writes results one a line, in order of model, variant, tokens and routing."""
    ordered = sorted(results, key=lambda r: (r.model, Variant.of(r), r.tokens, r.routing))
    lines = ",\n".join(" " + json.dumps(_said(r)) for r in ordered)
    write_atomically(path, (f"[\n{lines}\n]\n" if lines else "[]\n").encode())


def _said(result: Result) -> dict[str, Any]:
    """The fields of a result, without later ones at their default."""
    values = asdict(result)
    for name, usual in (("router", "logits"), ("pdl", False)):
        if values[name] == usual:
            del values[name]
    return values


def merge_results(old: Iterable[Result], new: Sequence[Result]) -> list[Result]:
    """The old results of what was not measured again, and the new ones.

    A model, variant and routing pattern is replaced as a whole.
    """
    measured = {(n.model, Variant.of(n), n.routing) for n in new}
    return [r for r in old if (r.model, Variant.of(r), r.routing) not in measured] + list(new)


def read_anchors(path: Path) -> Mapping[str, Any]:
    """The published figures of ``anchors.json``: ``shapes[model][tokens][field]``.

    Raises:
        DatabaseError: no such file, or not JSON with ``shapes``.
    """
    hint = "restore it from version control"
    try:
        anchors: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        anchors["shapes"]
    except OSError as error:
        raise DatabaseError(path, 0, f"cannot be read: {error.strerror}; {hint}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatabaseError(path, 0, f"holds no published figures ({error}); {hint}") from None
    return anchors


def results_table(results: Iterable[Result], anchors: Mapping[str, Any]) -> str:
    """The results of usual kernels under uniform routing as a markdown table.

    Published times are of uniform routing too; models keep the order of the anchors.
    """
    order = list(anchors["shapes"])
    uniform = [r for r in results if (r.routing, Variant.of(r)) == ("uniform", USUAL)]
    uniform.sort(key=lambda r: (order.index(r.model) if r.model in order else len(order), r.tokens))
    rows = [_HEADER, ("---",) + ("---:",) * (len(_HEADER) - 1)]
    rows += [_row(r, anchors["shapes"].get(r.model, {}).get(str(r.tokens), {})) for r in uniform]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(r: Result, published: Mapping[str, float]) -> tuple[str, ...]:
    monomoe = published.get("published_monomoe_us")
    triton = published.get("triton_grouped_gemm_us")
    known = [t for t in (monomoe, triton) if t is not None]
    return (
        r.model,
        str(r.tokens),
        f"**{r.time_us:.1f}**",
        f"{r.floor_us:.1f}",
        f"{r.ratio:.2f}",
        f"{r.bandwidth_gb_s / 1000:.2f}",
        f"{monomoe:.1f}" if monomoe is not None else "-",
        f"{triton:.1f}" if triton is not None else "-",
        f"{min(known) / r.time_us:.2f}x" if known else "-",
        f"{r.cosine:.5f}",
    )


def replace_results(text: str, table: str) -> str:
    """The README text with ``table`` between the two marker lines.

    Raises:
        MonomoeError: a marker is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MonomoeError(f"the file has no results block: it needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"
