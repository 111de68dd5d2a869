"""A sparse-MoE block of transformers: what it is in this project's words, and its two new forwards.

A block computes ``_, weights, ids = gate(x)`` and ``experts(x, ids, weights)``, and adds its shared
experts. `serve` gives gate and experts subclasses of their own classes: the gate hands on its
logits and no ids, and the experts then run the operator, which routes. All else of the block stays:
shared experts, parameters and their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from monomoe_gen import torch_op  # noqa: F401  registers the operator
from monomoe_gen.errors import MonomoeError
from monomoe_gen.integrations.coverage import refuse
from monomoe_gen.kernel import LayerWeights
from monomoe_gen.plan import Plan
from monomoe_gen.schedule import Layout
from monomoe_gen.shapes import SCALE_BLOCK, Shape
from monomoe_gen.weights import lay_out

SOFTMAX, SIGMOID = "softmax", "sigmoid"
FAMILIES = {  # the module under transformers.models -> how its gate scores experts
    "qwen2_moe": SOFTMAX,
    "qwen3_moe": SOFTMAX,
    "qwen3_next": SOFTMAX,
    "qwen3_5_moe": SOFTMAX,
    "deepseek_v3": SIGMOID,
    "glm4_moe": SIGMOID,
    "glm_moe_dsa": SIGMOID,
}
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_CLASSES: dict[tuple[type[nn.Module], type[nn.Module]], type[nn.Module]] = {}
_PACKED = ("monomoe_w13", "monomoe_w2")
_RECORDERS = "transformers.utils.output_capturing"  # whose hooks only look


@dataclass(frozen=True)
class Served:
    """How a block is served; its gate is here because the experts need the gate's bias."""

    plan: Plan
    capacity: int | None  # the most tokens that the kernels take; None: any
    gate: nn.Module

    def takes(self, x: Tensor) -> bool:
        """Whether the operator runs x ``[B, H]``; else the block's own experts do."""
        return self.capacity is None or x.device.type != "cuda" or x.shape[0] <= self.capacity


def family(module: nn.Module) -> str:
    """The model of transformers that a module's class belongs to, "" if to none."""
    parts = type(module).__module__.split(".")
    return parts[2] if parts[:2] == ["transformers", "models"] and len(parts) > 2 else ""


def blocks(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module with a gate and experts, by name."""
    for name, module in model.named_modules():
        children = dict(module.named_children())
        if {"gate", "experts"} <= set(children):
            yield name, module


def describe(block: Any, dtype: torch.dtype) -> Shape:
    """A block of a model of ``dtype`` in this project's words.

    Raises:
        MonomoeError: it is not one of `FAMILIES`, its experts are not block-FP8, or the model asks
            of it what no kernel does.
        ShapeError: it is like no shape.
    """
    from transformers.integrations.finegrained_fp8 import FP8Experts

    gate, experts = block.gate, block.experts
    kind = family(block)
    if kind not in FAMILIES or family(gate) != kind:
        raise MonomoeError(
            f"{type(block).__name__} is no block of {', '.join(FAMILIES)}, which are known"
        )
    if not isinstance(experts, FP8Experts):
        raise MonomoeError(f"its experts are {type(experts).__name__}, not block-FP8 (FP8Experts)")
    if not experts.has_gate:
        raise MonomoeError("its experts have no gate projection")
    count, up_rows, hidden = experts.gate_up_proj.shape
    scoring = FAMILIES[kind]
    biased = scoring == SIGMOID
    logits = torch.float32 if biased else gate.weight.dtype
    config = experts.config
    hidden_act = getattr(config, "hidden_activation", None) or config.hidden_act
    asks = {
        "scales of other blocks than 128 x 128": (
            tuple(experts.block_size or ()) != (SCALE_BLOCK, SCALE_BLOCK)
        ),
        "activation scales from the checkpoint": experts.activation_scheme != "dynamic",
        "weights that are not float8_e4m3fn": experts.gate_up_proj.dtype != torch.float8_e4m3fn,
        "scales that are not fp32": experts.gate_up_proj_scale_inv.dtype != torch.float32,
        "biases of the projections": experts.has_bias,
        "a limit of the activation": any(
            getattr(experts, name, None) is not None for name in ("swiglu_limit", "swiglu_alpha")
        ),
        "activations that are not bf16": dtype != torch.bfloat16,
        "other experts than the router's (expert parallelism)": (
            tuple(gate.weight.shape) != (count, hidden) or experts.num_experts != count
        ),
        "tensor parallelism": 2 * experts.intermediate_dim != up_rows,
        "hooks around its gate or experts (parallelism, offloading)": any(
            _hooked(module) for module in (gate, experts)
        ),
    }
    refuse(asks)
    return Shape(
        "layer",
        hidden=hidden,
        intermediate=up_rows // 2,
        experts=count,
        top_k=gate.top_k,
        scoring=scoring,
        renormalize=bool(getattr(gate, "norm_topk_prob", True)),
        expert_bias=biased,
        n_group=gate.num_group if biased else 1,
        topk_group=gate.topk_group if biased else 1,
        routed_scaling_factor=float(gate.routed_scaling_factor) if biased else 1.0,
        logits_dtype=str(logits).removeprefix("torch."),
        activation=_ACTIVATIONS.get(hidden_act, hidden_act),
    )


def weights_of(gate: Any, experts: Any, layout: Layout) -> LayerWeights:
    """A block's weights as kernels of ``layout`` read them.

    They share the model's memory, but for packed ``w13`` and ``w2``: those are the copies that
    `pack` has made.
    """
    if layout == "raw":
        w13, w2 = lay_out("raw", experts.gate_up_proj.detach(), experts.down_proj.detach())
    else:
        w13, w2 = experts.monomoe_w13, experts.monomoe_w2
    scales = experts.gate_up_proj_scale_inv.detach(), experts.down_proj_scale_inv.detach()
    bias = getattr(gate, "e_score_correction_bias", None)
    return LayerWeights(w13, scales[0], w2, scales[1], None if bias is None else bias.float())


def pack(experts: Any) -> int:
    """Adds copies of the weights in the order of the kernels, which no state dict holds. Bytes."""
    copies = lay_out("packed", experts.gate_up_proj.detach(), experts.down_proj.detach())
    for name, tensor in zip(_PACKED, copies, strict=True):
        experts.register_buffer(name, tensor, persistent=False)
    return sum(tensor.nbytes for tensor in copies)


def serve(block: Any, plan: Plan, capacity: int | None) -> None:
    """Makes ``block`` run the operator. `release` undoes it."""
    served = Served(plan, capacity, block.gate)
    for module, base in ((block.gate, _Gate), (block.experts, _Experts)):
        own: type[nn.Module] = type(module)
        module.__class__ = _between(base, own)
        module.monomoe = served


def release(block: Any) -> bool:
    """Gives a block its own forwards back, and frees packed copies. Whether it was served."""
    if not is_served(block):
        return False
    for module in (block.gate, block.experts):
        module.__class__ = type(module).monomoe_original
        del module.monomoe
    unpack(block.experts)
    return True


def unpack(experts: Any) -> None:
    """Frees the copies of `pack`, if there are any."""
    for name in _PACKED:
        if hasattr(experts, name):
            delattr(experts, name)


def is_served(block: Any) -> bool:
    """Whether `serve` has been here."""
    return isinstance(block.gate, _Gate)


class _Gate(nn.Module):
    """A gate that hands on its logits, and leaves the choice to the experts."""

    monomoe: Served
    weight: Tensor

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """``(logits, logits, None)``, logits ``[B, E]``; or what the model's own gate gives."""
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        if not self.monomoe.takes(x):
            own: tuple[Tensor, Tensor, Tensor] = super().forward(hidden_states)
            return own
        weight = self.weight
        if self.monomoe.plan.shape.scoring == SIGMOID:  # these models' gates compute in fp32
            x, weight = x.float(), weight.float()
        logits = nn.functional.linear(x, weight)
        return logits, logits, None


class _Experts(nn.Module):
    """Experts that route and compute by the operator where the gate has made no choice."""

    monomoe: Served

    def forward(
        self, hidden_states: Tensor, top_k_index: Tensor | None, top_k_weights: Tensor
    ) -> Tensor:
        """bf16 ``[B, H]`` of x ``[B, H]``; without ids the weights are the logits ``[B, E]``."""
        if top_k_index is not None:
            own: Tensor = super().forward(hidden_states, top_k_index, top_k_weights)
            return own
        if torch.is_grad_enabled() and self.training:
            raise MonomoeError(
                "the operator has no gradient; call model.eval(), or unpatch(model) to train"
            )
        plan = self.monomoe.plan
        dtype = torch.float32 if plan.shape.logits_dtype == "float32" else torch.bfloat16
        w = weights_of(self.monomoe.gate, self, plan.variant.layout)
        result: Tensor = torch.ops.monomoe.moe(
            hidden_states.detach().contiguous(),
            top_k_weights.detach().to(dtype).contiguous(),
            w.w13,
            w.w13_scale,
            w.w2,
            w.w2_scale,
            w.bias,
            plan.name,
        )
        return result


def _between(base: type[nn.Module], own: type[nn.Module]) -> type[nn.Module]:
    """``own`` with the forward of ``base``."""
    if (base, own) not in _CLASSES:
        names = {"monomoe_original": own, "__module__": own.__module__}
        _CLASSES[base, own] = type(own.__name__, (base, own), names)
    return _CLASSES[base, own]


def _hooked(module: nn.Module) -> bool:
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return "forward" in vars(module) or any(
        getattr(hook, "__module__", "") != _RECORDERS for hook in hooks
    )
