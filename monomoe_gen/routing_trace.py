"""Captured routing: which experts a model chose, by decode step and layer, in an ``.npz`` file.

| array | type | meaning |
|---|---|---|
| ``experts`` | integer, no dimension | routed experts of a layer |
| ``step``, ``layer`` | integer ``[launches]`` | where each launch was captured; no pair twice |
| ``tokens`` | integer ``[launches]`` | its number of tokens, at least 1 |
| ``ids`` | integer ``[sum of tokens, top_k]`` | the experts of each token, launch after launch |

A launch is one layer in one step. The order of the experts of a token says nothing.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.files import write_atomically
from monomoe_gen.shapes import Shape

ARRAYS = ("experts", "step", "layer", "tokens", "ids")
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class RoutingTrace:
    """The launches of a file: int64 ``[tokens, top_k]`` each, in its order.

    ``name`` stands for the content wherever a routing pattern is named, as in records.
    """

    name: str
    launches: tuple[Tensor, ...]

    def sample(self, tokens: int, launches: int, generator: torch.Generator) -> list[Tensor]:
        """``launches`` launches of ``tokens`` tokens, int64 ``[tokens, top_k]``.

        They are the first ``tokens`` tokens of captured launches that have as many, drawn without
        repetition as far as there are enough, in captured order.

        Raises:
            MonomoeError: no launch has so many tokens.
        """
        fitting = [ids[:tokens] for ids in self.launches if len(ids) >= tokens]
        if not fitting:
            most = max(map(len, self.launches))
            raise MonomoeError(
                f"asked for launches of {tokens} tokens of {self.name}, its largest has {most}; "
                "capture a larger batch, or leave that token count away"
            )
        order = torch.randperm(len(fitting), generator=generator).tolist()
        places = sorted(i % len(fitting) for i in range(launches))
        return [fitting[i] for i in sorted(order[place] for place in places)]


def save(path: Path, experts: int, launches: Iterable[tuple[int, int, Tensor]]) -> RoutingTrace:
    """Writes captured routing: ``(step, layer, ids)`` of each launch, in any order.

    ``ids`` are the experts that the router chose, integers ``[tokens, top_k]`` on any device,
    without shared experts. For instance, with a hook on each router of a model::

        captured.append((step, layer, logits.topk(top_k).indices))
        ...
        save(Path("routing.npz"), experts, captured)

    Raises:
        DatabaseError: this is no routing trace, as `load` says; nothing is written.
    """
    ordered = sorted(launches, key=lambda launch: launch[:2])
    ids = [ids.detach().cpu().numpy() for _, _, ids in ordered]
    if not ids or {i.ndim for i in ids} != {2} or len({i.shape[1] for i in ids}) != 1:
        found = sorted({i.shape for i in ids})
        raise DatabaseError(path, 0, f"ids are [tokens, top_k] with one top_k, found {found}")
    arrays = {
        "experts": np.array(experts),
        "step": np.array([step for step, _, _ in ordered]),
        "layer": np.array([layer for _, layer, _ in ordered]),
        "tokens": np.array([len(i) for i in ids]),
        "ids": np.concatenate(ids),
    }
    trace = _trace(path, arrays)
    file = io.BytesIO()
    small = {name: array.astype(np.int32) for name, array in arrays.items()}
    np.savez_compressed(file, allow_pickle=False, **small)
    write_atomically(path, file.getvalue())
    return trace


def load(path: Path, shape: Shape) -> RoutingTrace:
    """Reads captured routing of a model of ``shape``.

    Raises:
        DatabaseError: an array is missing, unknown or not what the module describes; an id is no
            expert, or a token has one twice; experts or top_k are not those of ``shape``.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise DatabaseError(path, 0, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise DatabaseError(path, 0, f"is no .npz file of numbers: {error}") from error
    trace = _trace(path, arrays)
    found = int(arrays["experts"]), trace.launches[0].shape[1]
    if found != (shape.experts, shape.top_k):
        raise DatabaseError(
            path,
            0,
            f"holds {found[0]} experts, {found[1]} for a token; {shape.name} has {shape.experts}, "
            f"{shape.top_k} for a token: take the routing of that model",
        )
    return trace


def _trace(path: Path, arrays: dict[str, NDArray[np.integer]]) -> RoutingTrace:
    """Raises `DatabaseError` unless the arrays are what the module describes."""

    def require(fine: bool, reason: str) -> None:
        if not fine:
            raise DatabaseError(path, 0, reason)

    wanted = ", ".join(ARRAYS)
    require(set(arrays) == set(ARRAYS), f"holds {', '.join(sorted(arrays))}; wanted are {wanted}")
    for name, array in arrays.items():
        require(array.dtype.kind in "iu", f"{name} is of {array.dtype}, not of integers")
        limit = 0 if array.size == 0 else int(array.max())
        require(limit <= _INT32.max, f"{name}: {limit} is more than {_INT32.max}")
        least = 0 if array.size == 0 else int(array.min())
        require(least >= 0, f"{name}: {least} is negative")
    experts, step, layer, tokens, ids = (arrays[name].astype(np.int64) for name in ARRAYS)
    require(experts.ndim == 0, f"experts is one number, found {experts.shape}")
    count = (len(tokens),) if tokens.ndim else ()
    require(
        step.shape == layer.shape == tokens.shape == count and tokens.size > 0,
        f"step {step.shape}, layer {layer.shape} and tokens {tokens.shape} are one number a launch",
    )
    require(int(tokens.min()) >= 1, "tokens: a launch without tokens")
    require(
        ids.ndim == 2 and ids.shape[1] > 0 and len(ids) == tokens.sum(),
        f"ids {ids.shape} should have a row for each of {tokens.sum()} tokens",
    )
    pairs = set(zip(step.tolist(), layer.tolist(), strict=True))
    require(len(pairs) == len(step), "a pair of step and layer comes twice")
    wrong = np.argwhere(ids >= experts)
    if wrong.size:
        row, column = wrong[0]
        require(False, f"ids, row {row}: {ids[row, column]} is none of {experts} experts")
    ranked = np.sort(ids, axis=1)
    twice = np.flatnonzero((ranked[:, 1:] == ranked[:, :-1]).any(1))
    require(not twice.size, f"ids, row {twice[0] if twice.size else 0}: an expert comes twice")
    text = b"".join(a.astype("<i8").tobytes() for a in (experts, tokens, ranked))
    name = f"trace-{hashlib.sha256(text).hexdigest()[:12]}"
    parts = torch.from_numpy(ids).split(tokens.tolist())
    return RoutingTrace(name, tuple(parts))
