"""Dispatched kernels as a layer for torch: load, pick by token count, launch on the current stream.

    table = load_table()
    layer = MoELayer.from_weights(table, "qwen3.5-35b", w13, w13_scale, w2, w2_scale)
    y = layer(x, router_logits)

Needs torch and CuPy, and none of the generator's libraries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from monomoe_gen import dispatch
from monomoe_gen.device import DEFAULT, current_device
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.kernel import LayerWeights, LoadedKernel, launch_moe
from monomoe_gen.shapes import SCALE_BLOCK, Shape
from monomoe_gen.weights import pack_w2, pack_w13
from monomoe_gen.workspaces import Workspaces, device_index


@dataclass(frozen=True)
class KernelTable:
    """A dispatch table and the folder that holds its cubins."""

    folder: Path
    table: dispatch.Table


def load_table(folder: Path | None = None) -> KernelTable:
    """The dispatch table in ``folder``; by default the project's for the current GPU.

    Raises:
        DatabaseError: there is no such table, or it cannot be read.
    """
    if folder is None:
        device = current_device()
        folder = dispatch.table_folder(device.slug if device else DEFAULT)
    return KernelTable(folder, dispatch.load(folder))


@dataclass
class MoELayer:
    """One MoE layer on one GPU. Make it with `from_weights`; it may be called from any stream."""

    shape: Shape
    weights: LayerWeights
    device: torch.device
    _table: dispatch.Table
    _kernels: dict[str, LoadedKernel]
    _half_bytes: int
    _by_tokens: dict[int, LoadedKernel] = field(default_factory=dict)

    @classmethod
    def from_weights(
        cls,
        table: KernelTable,
        model: str,
        w13: Tensor,
        w13_scale: Tensor,
        w2: Tensor,
        w2_scale: Tensor,
        bias: Tensor | None = None,
    ) -> MoELayer:
        """Packs a layer in checkpoint layout and loads every kernel of ``model``.

        Args:
            w13: float8_e4m3fn ``[E, 2N, H]``, gate rows first, then up rows.
            w13_scale: fp32 ``[E, 2N/128, H/128]``.
            w2: float8_e4m3fn ``[E, H, N]``.
            w2_scale: fp32 ``[E, H/128, N/128]``.
            bias: fp32 ``[E]`` for shapes with an expert bias, else None.

        The packed weights are copies: the given ``w13`` and ``w2`` may be freed. The scales and
        the bias are used in place.

        Raises:
            NoKernel: the table has no kernel for the model.
            MonomoeError: a tensor has another shape, type or device than the model needs.
            EnvironmentProblem: the table is for another GPU.
            LaunchError: a kernel does not load.
        """
        shape = dispatch.lookup(table.table, model, 1).kernel.shape
        device = w13.device
        _require_gpu(table.table, device)
        e, n, h = shape.experts, shape.intermediate, shape.hidden
        up, down, wide = 2 * n // SCALE_BLOCK, n // SCALE_BLOCK, h // SCALE_BLOCK
        _require("w13", w13, (e, 2 * n, h), torch.float8_e4m3fn, device)
        _require("w13_scale", w13_scale, (e, up, wide), torch.float32, device)
        _require("w2", w2, (e, h, n), torch.float8_e4m3fn, device)
        _require("w2_scale", w2_scale, (e, wide, down), torch.float32, device)
        if (bias is not None) != shape.expert_bias:
            wants = "needs an" if shape.expert_bias else "has no"
            raise MonomoeError(f"{model} {wants} expert bias")
        if bias is not None:
            _require("bias", bias, (e,), torch.float32, device)
        chosen = [k for k in table.table.kernels if k.shape.name == model]
        kernels = {k.id: _load(table.folder, k, device) for k in chosen}
        half_bytes = max(k.spec.geometry.workspace_half_bytes for k in chosen)
        WORKSPACES.reserve(device, half_bytes)
        with torch.cuda.device(device):
            weights = LayerWeights(pack_w13(w13), w13_scale, pack_w2(w2), w2_scale, bias)
        return cls(shape, weights, device, table.table, kernels, half_bytes)

    def __call__(self, x: Tensor, router_logits: Tensor, out: Tensor | None = None) -> Tensor:
        """The layer's output bf16 ``[B, H]``, in ``out`` if given.

        Args:
            x: bf16 ``[B, H]``, contiguous.
            router_logits: ``[B, E]`` in the shape's ``logits_dtype``, contiguous.
            out: bf16 ``[B, H]``, contiguous, or None for a new tensor.

        Runs on torch's current stream and does not wait for it. Launches of one stream share a
        workspace; graphs captured on one stream must not be replayed at the same time.

        Raises:
            NoKernel: no kernel takes that many tokens.
            MonomoeError: a tensor does not fit.
            LaunchError: the driver refuses the launch.
        """
        tokens = x.shape[0]
        out = torch.empty_like(x) if out is None else out
        if tokens == 0:
            return out
        s, device = self.shape, self.device
        _require("x", x, (tokens, s.hidden), torch.bfloat16, device)
        logits_dtype = torch.float32 if s.logits_dtype == "float32" else torch.bfloat16
        _require("router_logits", router_logits, (tokens, s.experts), logits_dtype, device)
        _require("out", out, (tokens, s.hidden), torch.bfloat16, device)
        kernel = self._by_tokens.get(tokens)
        if kernel is None:
            match = dispatch.lookup(self._table, s.name, tokens)
            kernel = self._by_tokens[tokens] = self._kernels[match.kernel.id]
        with torch.cuda.device(device):
            workspace = WORKSPACES.get(device, self._half_bytes)
            launch_moe(kernel, self.weights, x, router_logits, out, workspace)
        return out

    def explain(self, tokens: int) -> str:
        """One line: which kernel serves ``tokens`` tokens, and why."""
        match = dispatch.lookup(self._table, self.shape.name, tokens)
        entry = match.entry
        floor = f", stream floor {entry.floor_us:g} us" if entry.floor_us else ""
        return (
            f"{self.shape.name}, {tokens} tokens: {match.kernel.schedule.id} "
            f"({match.how.replace('_', ' ')}: tuned at {entry.tuned_at}, good for up to "
            f"{entry.capacity}; {entry.time_us:g} us when tuned{floor})"
        )


WORKSPACES = Workspaces()
_LOADED: dict[tuple[int, str], LoadedKernel] = {}  # by device and cubin hash


def _load(folder: Path, kernel: dispatch.Kernel, device: torch.device) -> LoadedKernel:
    key = device_index(device), kernel.cubin_sha256
    if key not in _LOADED:
        _LOADED[key] = LoadedKernel.from_cubin(
            dispatch.read_cubin(folder, kernel),
            kernel.kernel_name,
            kernel.schedule.grid,
            kernel.threads,
            kernel.shared_bytes,
            device_index(device),
        )
    return _LOADED[key]


def _require_gpu(table: dispatch.Table, device: torch.device) -> None:
    if device.type != "cuda":
        raise EnvironmentProblem(f"the weights are on {device}; move them to a CUDA device")
    with torch.cuda.device(device):
        found = current_device()
    if found is None or found.slug != table.device.slug:
        name = found.name if found else "nothing"
        raise EnvironmentProblem(
            f"the table was tuned on {table.device.name}, this GPU is {name}; tune for it with "
            "`monomoe-gen tune`"
        )


def _require(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    if (
        tensor.shape != shape
        or tensor.dtype != dtype
        or tensor.device != device
        or not tensor.is_contiguous()
    ):
        layout = "" if tensor.is_contiguous() else "non-contiguous "
        raise MonomoeError(
            f"{name} must be a contiguous {dtype} {list(shape)} on {device}, found "
            f"{layout}{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
        )
