"""The operator as ``torch.ops.monomoe.moe``, for eager code, CUDA graphs and ``torch.compile``.

    moe(x, router_logits, w13, w13_scale, w2, w2_scale, bias, plan) -> Tensor
    moe.out(x, router_logits, w13, w13_scale, w2, w2_scale, bias, plan, *, Tensor(a!) out) -> ()

``x`` and the result are bf16 ``[B, H]``, ``router_logits`` is ``[B, E]`` in the shape's
``logits_dtype`` (with a ``shared_gate`` one column more, the gate's logit), or the router's weight
bf16 ``[E, H]`` where the plan has the router inside, the weights are as in `kernel.LayerWeights`,
and ``plan`` is the name of a `plan.Plan`. CUDA tensors go to the kernel that the plan chooses, CPU
tensors to the reference that rounds where the kernel rounds. There is no gradient. Importing this
module registers the operator.
"""

from __future__ import annotations

import torch
from torch import Tensor

from monomoe_gen.errors import LaunchError, MonomoeError
from monomoe_gen.fallback import moe_in_torch
from monomoe_gen.kernel import LayerWeights, launch_moe
from monomoe_gen.plan import Choice, Plan, announce, find_plan
from monomoe_gen.reference import router_logits
from monomoe_gen.schedule import BLOCK_BYTES, ROW_TILE, Layout
from monomoe_gen.shapes import SCALE_BLOCK, Shape
from monomoe_gen.workspaces import Stream, Workspaces, current_stream

WORKSPACES = Workspaces()
COPY_ALIGNMENT = 16  # bytes, of bulk copies

_ARGUMENTS = (
    "Tensor x, Tensor router_logits, Tensor w13, Tensor w13_scale, Tensor w2, Tensor w2_scale, "
    "Tensor? bias, str plan"
)
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)

_LIBRARY = torch.library.Library("monomoe", "DEF")
_LIBRARY.define(f"moe({_ARGUMENTS}) -> Tensor", tags=_TAGS)
_LIBRARY.define(f"moe.out({_ARGUMENTS}, *, Tensor(a!) out) -> ()", tags=_TAGS)


def _moe(
    x: Tensor,
    router_logits: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    bias: Tensor | None,
    plan: str,
) -> Tensor:
    out = torch.empty_like(x)
    weights = LayerWeights(w13, w13_scale, w2, w2_scale, bias)
    _run(find_plan(plan), x, router_logits, weights, out)
    return out


def _moe_out(
    x: Tensor,
    router_logits: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    bias: Tensor | None,
    plan: str,
    *,
    out: Tensor,
) -> None:
    weights = LayerWeights(w13, w13_scale, w2, w2_scale, bias)
    _run(find_plan(plan), x, router_logits, weights, out)


def _moe_fake(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x)


def _moe_out_fake(x: Tensor, *_: object, out: Tensor) -> None:
    return None


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("moe", _moe, _key)
    _LIBRARY.impl("moe.out", _moe_out, _key)
# Not `torch.library.register_fake`: it looks into every loaded module, and CuPy then loads pytest.
_LIBRARY.impl("moe", _moe_fake, "Meta")
_LIBRARY.impl("moe.out", _moe_out_fake, "Meta")


def _run(plan: Plan, x: Tensor, logits: Tensor, weights: LayerWeights, out: Tensor) -> None:
    """Checks every tensor, then runs what the plan chooses, on torch's current stream."""
    shape, device = plan.shape, x.device
    tokens = x.shape[0] if x.dim() else 0
    logits_dtype = torch.float32 if shape.logits_dtype == "float32" else torch.bfloat16
    require("x", x, (tokens, shape.hidden), torch.bfloat16, device)
    if plan.variant.router == "weight":
        require("router", logits, (shape.experts, shape.hidden), torch.bfloat16, device)
    else:
        require("router_logits", logits, (tokens, shape.logit_columns), logits_dtype, device)
    require("out", out, (tokens, shape.hidden), torch.bfloat16, device)
    require_weights(weights, shape, device, plan.variant.layout)
    if tokens == 0:
        return
    choice = plan.choose(device, tokens)
    if device.type == "cpu":
        moe_in_torch(x, _logits(plan, x, logits), weights, shape, out, plan.variant.layout)
        return
    with torch.cuda.device(device):
        stream = current_stream(device)
        choice = _on_this_stream(plan, choice, stream, tokens)
        if choice.kernel is None:
            _fall_back(plan, choice, x, logits, weights, out)
            return
        workspace = WORKSPACES.get(stream, device, plan.half_bytes)
        try:
            launch_moe(choice.kernel, weights, x, logits, out, workspace)
        except LaunchError:
            WORKSPACES.discard(stream)
            raise


def _on_this_stream(plan: Plan, choice: Choice, stream: Stream, tokens: int) -> Choice:
    """The choice, or the fallback where a green context leaves ``stream`` too few SMs."""
    if choice.kernel is None:
        return choice
    sms = WORKSPACES.sms(stream)
    if sms >= choice.kernel.grid:
        return choice
    error = LaunchError(
        f"{choice.kernel.name} needs {choice.kernel.grid} SMs at once and the current stream has "
        f"{sms}; call it outside of the green context, or from one with more SMs"
    )
    choice = plan.instead(tokens, plan.refuse(error))
    announce(plan, choice)
    return choice


def _fall_back(
    plan: Plan, choice: Choice, x: Tensor, logits: Tensor, weights: LayerWeights, out: Tensor
) -> None:
    if plan.fallback is not None:
        y = plan.fallback(x, _logits(plan, x, logits))
        require("the fallback's result", y, tuple(x.shape), torch.bfloat16, x.device)
        out.copy_(y)
        return
    if torch.cuda.is_current_stream_capturing():
        raise LaunchError(
            f"{choice.line}: a CUDA graph cannot hold the torch fallback, which waits for the GPU; "
            "capture token counts that a kernel serves, or give the layer a fallback of your own"
        )
    moe_in_torch(x, _logits(plan, x, logits), weights, plan.shape, out, plan.variant.layout)


def _logits(plan: Plan, x: Tensor, routed: Tensor) -> Tensor:
    return router_logits(x, routed, plan.shape) if plan.variant.router == "weight" else routed


def require_weights(
    weights: LayerWeights, shape: Shape, device: torch.device, layout: Layout
) -> None:
    """Raises MonomoeError unless these are weights of ``shape`` in ``layout`` on ``device``."""
    e, h, n = shape.all_experts, shape.hidden, shape.intermediate
    up, down, wide = 2 * n // SCALE_BLOCK, n // SCALE_BLOCK, h // SCALE_BLOCK
    byte, fp32 = torch.uint8, torch.float32
    if layout == "packed":
        require("w13", weights.w13, (e, 2 * n // ROW_TILE, wide, BLOCK_BYTES), byte, device)
        require("w2", weights.w2, (e, h // ROW_TILE, down, BLOCK_BYTES), byte, device)
    else:
        require("w13", weights.w13, (e, 2 * n, h), byte, device)
        require("w2", weights.w2, (e, h, n), byte, device)
    for name, tensor in (("w13", weights.w13), ("w2", weights.w2)):
        if tensor.data_ptr() % COPY_ALIGNMENT:
            raise MonomoeError(
                f"{name} begins at {tensor.data_ptr():#x}; kernels read it from a multiple of "
                f"{COPY_ALIGNMENT} bytes: give a tensor that is no odd slice of another"
            )
    require("w13_scale", weights.w13_scale, (e, up, wide), fp32, device)
    require("w2_scale", weights.w2_scale, (e, wide, down), fp32, device)
    if (weights.bias is not None) != shape.expert_bias:
        wants = "needs an" if shape.expert_bias else "has no"
        raise MonomoeError(f"{shape.name} {wants} expert bias")
    if weights.bias is not None:
        require("bias", weights.bias, (shape.experts,), fp32, device)


def require(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """Raises MonomoeError unless ``tensor`` is exactly that, and contiguous."""
    if not isinstance(tensor, Tensor):
        raise MonomoeError(
            f"{name} must be a {dtype} tensor {list(shape)}, found {type(tensor).__name__}; of a "
            "module give the .weight"
        )
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
