"""What the model code of each ``model_type`` fixes about its routed experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """What the code of one model type fixes, whatever its ``config.json`` says.

    ``renormalize`` None: the config has to say it (``norm_topk_prob``). ``grouped``: the config has
    to give groups of experts and a scaling factor. ``sum_of_two``: a group is scored by its two
    best experts, else by its best one.
    """

    title: str
    scoring: str
    intermediate: str = "moe_intermediate_size"
    renormalize: bool | None = None
    expert_bias: bool = False
    grouped: bool = False
    sum_of_two: bool = True
    scales_renormalized: bool = True  # the scaling factor applies to renormalized weights too
    shared_gate: bool | None = (
        None  # a sigmoid gate weighs its shared experts, else 1; None: unknown
    )


_QWEN = Family("Qwen MoE", "softmax")
_QWEN_SHARED = Family("Qwen MoE", "softmax", shared_gate=True)
_QWEN_3_5 = Family("Qwen3.5-MoE", "softmax", renormalize=True, shared_gate=True)
_NOAUX = Family("DeepSeek-V3", "sigmoid", expert_bias=True, grouped=True, shared_gate=False)
_GLM = Family("GLM-MoE", "sigmoid", expert_bias=True, grouped=True, shared_gate=False)

FAMILIES: Mapping[str, Family] = {
    "qwen2_moe": _QWEN_SHARED,
    "qwen3_moe": _QWEN,
    "qwen3_next": _QWEN_SHARED,
    "qwen3_vl_moe_text": _QWEN,
    "qwen3_5_moe": _QWEN_3_5,
    "qwen3_5_moe_text": _QWEN_3_5,
    "deepseek_v2": Family(
        "DeepSeek-V2",
        "softmax",
        grouped=True,
        sum_of_two=False,
        scales_renormalized=False,
        shared_gate=False,
    ),
    "deepseek_v3": _NOAUX,
    "deepseek_v32": _NOAUX,
    "kimi_k2": _NOAUX,
    "glm4_moe": _GLM,
    "glm4_moe_lite": _GLM,
    "glm4v_moe_text": _GLM,
    "glm_moe_dsa": _GLM,
    "minimax_m2": Family(
        "MiniMax-M2",
        "sigmoid",
        intermediate="intermediate_size",
        renormalize=True,
        expert_bias=True,
    ),
    "mixtral": Family("Mixtral", "softmax", intermediate="intermediate_size", renormalize=True),
}
"""By ``model_type``; the text part of a multimodal config has a type of its own."""

REFUSED: Mapping[str, str] = {
    "gpt_oss": "its experts are MXFP4 with biases on both projections, and its activation is a "
    "clamped SwiGLU with a gain of 1.702 and an added 1; the kernel reads block FP8 without biases "
    "and computes silu(gate) * up",
    "llama4": "it multiplies the input of an expert by the routing weight, before the activation; "
    "the kernel multiplies the output",
    "llama4_text": "it multiplies the input of an expert by the routing weight, before the "
    "activation; the kernel multiplies the output",
}
