"""Dispatched kernels as a layer for torch: load, pick by token count, launch on the current stream.

    table = load_table()
    layer = MoELayer.from_weights(table, "qwen3.5-35b", w13, w13_scale, w2, w2_scale)
    y = layer(x, router_logits)

Needs torch, and CuPy for CUDA tensors; none of the generator's libraries. `plan` decides what
runs, `torch_op` is the operator itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from monomoe_gen import dispatch
from monomoe_gen.device import DEFAULT, current_device
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.kernel import LayerWeights
from monomoe_gen.plan import Fallback, KernelTable, OnMissing, Plan, make_plan
from monomoe_gen.schedule import Layout
from monomoe_gen.shapes import Shape
from monomoe_gen.torch_op import WORKSPACES, require, require_weights
from monomoe_gen.variant import Variant
from monomoe_gen.wait_limit import wait_limit_ms
from monomoe_gen.weights import lay_out

__all__ = ["KernelTable", "MoELayer", "load_table"]


def load_table(folder: Path | None = None) -> KernelTable:
    """The dispatch table in ``folder``; by default the project's for the current GPU.

    Where the project has none for that GPU, or there is no GPU, it is the table for an H200: a
    layer says then why its kernels may not run.

    Raises:
        DatabaseError: there is no such table, or it cannot be read.
    """
    if folder is None:
        device = current_device()
        folder = dispatch.table_folder(device.slug if device else DEFAULT)
        if not (folder / dispatch.FILE).exists():
            folder = dispatch.table_folder(DEFAULT)
    return KernelTable(folder, dispatch.load(folder))


class MoELayer(torch.nn.Module):
    """One MoE layer. Make it with `from_weights`; it may be called from any stream.

    The weights are buffers that no state dict holds. ``layer.to(device)`` moves them, and
    their types stay. ``plan_name`` is the last argument of ``torch.ops.monomoe.moe``.
    """

    w13: Tensor
    w13_scale: Tensor
    w2: Tensor
    w2_scale: Tensor
    bias: Tensor | None
    router: Tensor | None

    def __init__(self, plan: Plan, weights: LayerWeights, router: Tensor | None = None) -> None:
        super().__init__()
        self.plan = plan
        self.plan_name = plan.name
        for name, tensor in vars(weights).items():
            self.register_buffer(name, tensor, persistent=False)
        if router is None:
            self.router = None
        else:
            self.register_buffer("router", router, persistent=False)

    @classmethod
    def from_weights(
        cls,
        table: KernelTable,
        model: str | Shape,
        w13: Tensor,
        w13_scale: Tensor,
        w2: Tensor,
        w2_scale: Tensor,
        bias: Tensor | None = None,
        *,
        layout: Layout = "packed",
        router: Tensor | None = None,
        pdl: bool = False,
        on_missing: OnMissing = "error",
        fallback: Fallback | None = None,
    ) -> MoELayer:
        """Takes a layer in checkpoint layout and loads every kernel of ``model``.

        Args:
            model: a name of the table; or a `Shape`, which the table's of that name must equal.
            w13: float8_e4m3fn ``[E, 2N, H]``, gate rows first, then up rows. Shared experts follow
                the routed ones in all weights and scales, see `weights.append_shared`; E counts
                them too.
            w13_scale: fp32 ``[E, 2N/128, H/128]``.
            w2: float8_e4m3fn ``[E, H, N]``.
            w2_scale: fp32 ``[E, H/128, N/128]``.
            bias: fp32, of the routed experts, for shapes with an expert bias, else None.
            layout: ``packed`` copies ``w13`` and ``w2`` into the order of the kernels, and the
                given ones may be freed. ``raw`` uses them in place, so that other kernels can
                read the same memory: contiguous, from a multiple of 16 bytes.
            router: the router's weight, bf16 ``[E, H]``, for kernels that compute the logits
                themselves: the layer is then called with x alone.
            pdl: take kernels of programmatic dependent launch, which begin before the kernel ahead
                of them in the stream has ended, and wait for it inside.
            on_missing: what to do where no kernel may run (another GPU, a part of one, a cubin
                that is not the table's, a model that the table lacks): raise, or fall back.
            fallback: serves these cases and token counts beyond the largest kernel. By default it
                is the operator in plain torch: right, slow, and announced once in the log.

        The scales and the bias are used in place. On the CPU the layer runs the reference that
        rounds where the kernel rounds. With the environment variable ``MONOMOE_REQUIRE_TUNED=1``
        only a kernel that was tuned for exactly the token count runs, and anything else raises.

        Raises:
            NoKernel: the table has no kernel for the model, layout, router and pdl.
            MonomoeError: a tensor has another shape, type or device than the model needs, or
                ``MONOMOE_WAIT_LIMIT_MS`` is no limit.
            EnvironmentProblem: the table is for another GPU.
            DatabaseError: a cubin is missing, or is not the table's.
            LaunchError: a kernel does not load, or its grid cannot be resident as a whole.
        """
        wait_limit_ms()  # so that what is wrong with it is told before the first launch
        variant = Variant(layout, "logits" if router is None else "weight", pdl)
        plan = make_plan(table, model, on_missing, fallback, variant)
        shape, device = plan.shape, w13.device
        if device.type not in ("cpu", "cuda"):
            raise EnvironmentProblem(f"the weights are on {device}; move them to a CUDA device")
        e, n, h = shape.all_experts, shape.intermediate, shape.hidden
        require("w13", w13, (e, 2 * n, h), torch.float8_e4m3fn, device)
        require("w2", w2, (e, h, n), torch.float8_e4m3fn, device)
        if router is not None:
            require("router", router, (shape.experts, h), torch.bfloat16, device)
        if device.type == "cuda" and plan.prepare(device):
            WORKSPACES.reserve(device, plan.half_bytes)
        kernel_w13, kernel_w2 = lay_out(layout, w13, w2)
        weights = LayerWeights(kernel_w13, w13_scale, kernel_w2, w2_scale, bias)
        require_weights(weights, shape, device, layout)
        return cls(plan, weights, router)

    @property
    def shape(self) -> Shape:
        return self.plan.shape

    def forward(
        self, x: Tensor, router_logits: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """The layer's output bf16 ``[B, H]``, in ``out`` if given.

        Args:
            x: bf16 ``[B, H]``, contiguous.
            router_logits: ``[B, E]`` in the shape's ``logits_dtype``, contiguous; None for a layer
                that has its router's weight. With a ``shared_gate`` it is ``[B, E + 1]``, and the
                last column the gate's logit.
            out: bf16 ``[B, H]``, contiguous, or None for a new tensor.

        Runs on torch's current stream and does not wait for it. Launches of one stream share a
        workspace; graphs captured on one stream must not be replayed at the same time. Streams
        that serve layers at the same time should have one priority. An error inside a kernel is
        raised by a later call that waits for the GPU, and ends the process's CUDA context; a kernel
        whose wait lasts two seconds, or ``MONOMOE_WAIT_LIMIT_MS``, ends itself so, and never hangs.

        Raises:
            NoKernel, EnvironmentProblem, DatabaseError: no kernel may run, see `from_weights`.
            MonomoeError: a tensor does not fit.
            LaunchError: the driver refuses the launch.
        """
        if (router_logits is None) == (self.router is None):
            raise MonomoeError(
                "a layer made with a router's weight takes x alone, any other one x and "
                f"router_logits; this one has {'a' if self.router is not None else 'no'} router"
            )
        routed = self.router if router_logits is None else router_logits
        arguments = (
            x, routed, self.w13, self.w13_scale, self.w2, self.w2_scale, self.bias,
            self.plan_name,
        )  # fmt: skip
        if out is None:
            return torch.ops.monomoe.moe(*arguments)
        torch.ops.monomoe.moe.out(*arguments, out=out)
        return out

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MoELayer:
        """Moves the weights; ``model.bfloat16()`` does not round the scales."""

        def keeping_type(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(keeping_type, recurse)

    def explain(self, tokens: int) -> str:
        """One line: what serves ``tokens`` tokens where the weights are, and why."""
        return self.plan.choose(self.w13.device, tokens).line
