"""One layer's experts out of safetensors files, in the namings that block-FP8 checkpoints use.

    <prefix>.layers.<L>.<block>.experts.<e>.gate_proj.weight   up_proj, down_proj; or w1, w3, w2
    <prefix>.layers.<L>.<block>.experts.gate_up_proj           all experts in one, and down_proj
    <prefix>.layers.<L>.<block>.w13_weight                     all experts in one, and w2_weight

    <prefix>.layers.<L>.<block>.shared_experts.gate_proj.weight   shared_expert; up_proj, down_proj

A fused tensor holds the gate rows first. Every weight is e4m3 with a tensor of factors beside it,
one per 128x128 block, whose name adds ``_scale_inv`` or ``_scale``. A file that holds a single
layer may leave the part up to the block away.

Shared experts are read only for a shape that has some. In a checkpoint they are one expert of as
many times the columns, which becomes several, as by `weights.append_shared`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from monomoe_gen import e4m3
from monomoe_gen.errors import MonomoeError
from monomoe_gen.shapes import SCALE_BLOCK, Shape
from monomoe_gen.weights import BlockWeights

_LAYER = re.compile(r"(?P<prefix>.*?)layers\.(?P<layer>\d+)\.(?P<rest>.*)")
_SCALE = r"(?P<scale>_scale_inv|_scale)?"
_ONE = re.compile(rf"(?:.*\.)?experts\.(?P<expert>\d+)\.(?P<role>\w+)\.weight{_SCALE}")
_ALL = re.compile(
    rf"(?:(?:.*\.)?experts\.(?P<role>gate_up_proj|down_proj)"
    rf"|(?:.*\.)?(?P<short>w13|w2))(?:[._]weight)?{_SCALE}"
)
_SHARED = re.compile(rf"(?:.*\.)?shared_experts?\.(?P<role>\w+)\.weight{_SCALE}")
_ROLES = {
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "w1": "gate",
    "w3": "up",
    "w2": "down",
    "gate_up_proj": "w13",
    "w13": "w13",
}
_PARTS = ("gate", "up", "down")
_ORDER = ("w13", *_PARTS, *(f"shared {part}" for part in _PARTS))
_DRAFT = "mtp."  # layers that guess further tokens are numbered from 0 again
_SCALE_TYPES = ("F32", "BF16", "F16")

_Key = tuple[str, int | None, bool]  # role, expert (None: all of them), whether it is the scale


@dataclass(frozen=True)
class Shard:
    """Which of ``count`` equal parts of the intermediate columns to take, counted from 0."""

    index: int = 0
    count: int = 1


@dataclass(frozen=True)
class Layer:
    """A layer whose tensors have been found and fit ``shape``; nothing is read yet."""

    shape: Shape
    shard: Shard
    tensors: Mapping[_Key, tuple[Path, str]]

    def read(self, device: torch.device | str = "cpu") -> BlockWeights:
        """The layer on ``device``; on the CPU there is one expert at a time beside it."""
        s = self.shape
        sizes = ((s.up_rows, s.hidden), (s.hidden, s.intermediate))
        codes, scales = (
            [
                torch.empty(
                    s.all_experts, rows // unit, columns // unit, dtype=dtype, device=device
                )
                for rows, columns in sizes
            ]
            for unit, dtype in ((1, e4m3.E4M3), (SCALE_BLOCK, torch.float32))
        )
        with ExitStack() as files:
            opened = _Files(files)
            for expert in range(s.all_experts):
                for scale, (w13, w2) in ((False, codes), (True, scales)):
                    gate, up, down = self._expert(opened, expert, scale)
                    half = gate.shape[0]
                    w13[expert, :half], w13[expert, half:], w2[expert] = gate, up, down
        return BlockWeights(codes[0], scales[0], codes[1], scales[1])

    def _expert(self, files: _Files, expert: int, scale: bool) -> tuple[Tensor, Tensor, Tensor]:
        """This shard's gate ``[N, H]``, up ``[N, H]`` and down ``[H, N]``, or their scales."""
        width = self.shape.intermediate // (SCALE_BLOCK if scale else 1)
        first = self.shard.index * width
        if expert in self.shape.shared_ids:
            first = first * self.shape.shared_experts + (expert - self.shape.experts) * width
        mine = slice(first, first + width)
        if expert in self.shape.shared_ids:
            gate, up, down = (
                files.slice(self.tensors[f"shared {role}", None, scale]) for role in _PARTS
            )
            return gate[mine], up[mine], down[:, mine]
        if ("w13", None, scale) in self.tensors:
            both, down = (files.slice(self.tensors[role, None, scale]) for role in ("w13", "down"))
            other = slice(first + width * self.shard.count, first + width * (self.shard.count + 1))
            one = slice(expert, expert + 1)
            return both[one, mine][0], both[one, other][0], down[one, :, mine][0]
        gate, up, down = (files.slice(self.tensors[role, expert, scale]) for role in _PARTS)
        return gate[mine], up[mine], down[:, mine]


class _Files:
    """Safetensors files, each opened once."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._opened: dict[Path, Any] = {}

    def slice(self, place: tuple[Path, str]) -> Any:
        """The tensor at ``place``, of which only what is indexed will be read."""
        path, name = place
        return self.open(path).get_slice(name)

    def open(self, path: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        if path not in self._opened:
            try:
                file = safe_open(path, framework="pt")
                self._opened[path] = self._stack.enter_context(file)
            except (OSError, SafetensorError) as error:
                raise MonomoeError(f"{path} is no safetensors file: {error}") from None
        return self._opened[path]


def find_layer(
    paths: Sequence[Path], layer: int | None, shape: Shape, shard: Shard | None = None
) -> Layer:
    """Finds the experts of ``layer`` in ``paths``: files, or folders of ``.safetensors`` files.

    Args:
        layer: its number; None for files whose tensors carry none.
        shape: what the kernel computes; its intermediate size is that of one shard.

    Raises:
        MonomoeError: no such layer, tensors that are missing, of another type, or of a size that
            does not fit ``shape`` and ``shard``. The message names them.
    """
    shard = shard or Shard()
    with ExitStack() as stack:
        files = _Files(stack)
        places = _places(files, _expand(paths), layer, shape.shared_experts > 0)
        found = Layer(shape, shard, places)
        _check_complete(found, layer)
        for key in sorted(places, key=_reading_order):
            place = places[key]
            _check_tensor(files.slice(place), place, _size(shape, shard, key), scale=key[2])
    return found


def _expand(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not inside:
            raise MonomoeError(f"{path} holds no .safetensors file")
        files += inside
    return files


def _places(
    files: _Files, paths: Sequence[Path], layer: int | None, shared: bool
) -> dict[_Key, tuple[Path, str]]:
    """Where each tensor of the layer's experts is."""
    by_prefix: dict[str, dict[_Key, tuple[Path, str]]] = {}
    layers: set[int] = set()
    for path in paths:
        for name in files.open(path).keys():  # noqa: SIM118 - not a mapping
            match = _LAYER.fullmatch(name)
            key = _key(match["rest"] if match else name, shared)
            if key is None:
                continue
            if match:
                layers.add(int(match["layer"]))
            if layer == (int(match["layer"]) if match else None):
                prefix = match["prefix"] if match else ""
                by_prefix.setdefault(prefix, {})[key] = (path, name)
    if len(by_prefix) > 1:
        by_prefix = {p: found for p, found in by_prefix.items() if not p.startswith(_DRAFT)}
    if len(by_prefix) > 1:
        raise MonomoeError(f"layer {layer} occurs more than once: {', '.join(sorted(by_prefix))}")
    if not by_prefix:
        there = f"layers {_ranges(layers)}" if layers else "none"
        wanted = "a layer without a number" if layer is None else f"layer {layer}"
        raise MonomoeError(f"found no experts of {wanted}; the files hold experts of {there}")
    (found,) = by_prefix.values()
    if any(expert is not None for _, expert, _ in found):  # else a dense w2 would look fused
        found = {k: place for k, place in found.items() if k[1] is not None or "shared" in k[0]}
    return found


def _key(name: str, shared: bool) -> _Key | None:
    """What the tensor is for, from its name after the layer's number; None for all others."""
    one, every = _ONE.fullmatch(name), _ALL.fullmatch(name)
    if "shared_expert" in name:
        both = _SHARED.fullmatch(name) if shared else None
        if both is None or both["role"] not in _ROLES:
            return None
        return f"shared {_ROLES[both['role']]}", None, both["scale"] is not None
    if one and one["role"] in _ROLES:
        return _ROLES[one["role"]], int(one["expert"]), one["scale"] is not None
    if every:
        return _ROLES[every["role"] or every["short"]], None, every["scale"] is not None
    return None


def _reading_order(key: _Key) -> tuple[int, int, bool]:
    role, expert, scale = key
    return -1 if expert is None else expert, _ORDER.index(role), scale


def _check_complete(layer: Layer, number: int | None) -> None:
    fused = any(expert is None and "shared" not in role for role, expert, _ in layer.tensors)
    roles = ("w13", "down") if fused else _PARTS
    experts: Sequence[int | None] = [None] if fused else range(layer.shape.experts)
    wanted = {(role, e, scale) for role in roles for e in experts for scale in (False, True)}
    if layer.shape.shared_experts:
        wanted |= {(f"shared {part}", None, scale) for part in _PARTS for scale in (False, True)}
    missing, extra = wanted - layer.tensors.keys(), layer.tensors.keys() - wanted
    what = "the layer" if number is None else f"layer {number}"
    if missing:
        role, expert, scale = min(missing, key=_reading_order)
        name = f"{role} {'scale' if scale else 'weight'}"
        raise MonomoeError(
            f"{what}: {len(missing)} of {len(wanted)} tensors are missing, the first is the {name}"
            + ("" if expert is None else f" of expert {expert}")
            + "; give every file that holds a part of it"
        )
    if extra:
        _, name = layer.tensors[min(extra, key=_reading_order)]
        raise MonomoeError(f"{what}: {name} is none of the {layer.shape.experts} experts' weights")


def _size(shape: Shape, shard: Shard, key: _Key) -> list[int]:
    """The size of the whole tensor in the checkpoint."""
    role, expert, scale = key
    width = shape.intermediate * shard.count
    if "shared" in role:
        width *= shape.shared_experts
    rows, columns = {"w13": (2 * width, shape.hidden), "down": (shape.hidden, width)}.get(
        role.removeprefix("shared "), (width, shape.hidden)
    )
    unit = SCALE_BLOCK if scale else 1
    return [
        *([shape.experts] if expert is None and "shared" not in role else []),
        rows // unit,
        columns // unit,
    ]


def _check_tensor(tensor: Any, place: tuple[Path, str], size: list[int], scale: bool) -> None:
    path, name = place
    types = _SCALE_TYPES if scale else ("F8_E4M3",)
    if tensor.get_dtype() not in types:
        raise MonomoeError(
            f"{path}: {name} is {tensor.get_dtype()}, must be {' or '.join(types)}: the kernel "
            "reads e4m3 weights with one scale per 128x128 block"
        )
    if tensor.get_shape() != size:
        raise MonomoeError(
            f"{path}: {name} is {tensor.get_shape()}, the shape asks for {size}; if the checkpoint "
            "is not split over GPUs as the shape is, say which part to take (--shard 0/8)"
        )


def _ranges(numbers: set[int]) -> str:
    """``{0, 1, 2, 5}`` -> ``0-2, 5``."""
    return ", ".join(_runs(sorted(numbers)))


def _runs(numbers: Sequence[int]) -> Iterator[str]:
    start = 0
    for i, number in enumerate(numbers):
        if i + 1 == len(numbers) or numbers[i + 1] != number + 1:
            yield str(number) if i == start else f"{numbers[start]}-{number}"
            start = i + 1
