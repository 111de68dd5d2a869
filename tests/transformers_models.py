"""Tiny models of transformers with random weights, whose experts are block-FP8, on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.integrations.finegrained_fp8 import FP8Experts, replace_with_fp8_linear
from transformers.utils.quantization_config import FineGrainedFP8Config

from monomoe_gen.shapes import Shape
from monomoe_gen.workload import block_weights

HIDDEN, INTERMEDIATE, EXPERTS = 256, 128, 8
VOCABULARY = 64

_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "moe_intermediate_size": INTERMEDIATE,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_QWEN = {"num_experts": EXPERTS, "norm_topk_prob": True}
_SHARED = {**_QWEN, "shared_expert_intermediate_size": 128}
_GROUPS = {
    "n_routed_experts": 64,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 6,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
}
_LATENT = {
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "head_dim": 32,
    "v_head_dim": 64,
    "num_key_value_heads": 4,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2_moe": ("Qwen2Moe", {**_SHARED, "norm_topk_prob": False, "head_dim": None}),
    "qwen3_moe": ("Qwen3Moe", _QWEN),
    "qwen3_next": ("Qwen3Next", {**_SHARED, "layer_types": ["full_attention"] * 2}),
    "qwen3_5_moe": ("Qwen3_5Moe", {**_SHARED, "layer_types": ["full_attention"] * 2}),
    "deepseek_v3": ("DeepseekV3", {**_GROUPS, **_LATENT}),
    "glm4_moe": ("Glm4Moe", {**_GROUPS, "n_group": 1, "topk_group": 1}),
    "glm_moe_dsa": (
        "GlmMoeDsa",
        {
            **_GROUPS,
            **_LATENT,
            "n_group": 1,
            "topk_group": 1,
            "index_topk": 16,
            "index_head_dim": 64,
            "index_n_heads": 2,
            "mlp_layer_types": ["dense", "sparse"],
        },
    ),
}


def make(kind: str, **changes: Any) -> Any:
    """A causal model of transformers in bf16, its experts block-FP8, its other weights random."""
    import transformers

    name, fields = MODELS[kind]
    text = "TextConfig" if kind == "qwen3_5_moe" else "Config"
    values = {**_COMMON, **fields, **changes}
    config = getattr(transformers, name + text)(
        **{k: v for k, v in values.items() if v is not None}
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")._from_config(config, dtype=torch.bfloat16)
    linear = [n for n, m in model.named_modules() if type(m) is nn.Linear]
    replace_with_fp8_linear(model, linear, FineGrainedFP8Config(weight_block_size=(128, 128)))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for index, module in enumerate(model.modules()):
            if isinstance(module, FP8Experts):
                fill(module, index)
            elif hasattr(module, "e_score_correction_bias"):
                module.e_score_correction_bias.uniform_(-0.05, 0.05, generator=generator)
            elif isinstance(module, nn.Embedding):
                module.weight.copy_(torch.randn(module.weight.shape, generator=generator))
            if "Top" in type(module).__name__:
                drawn = torch.randn(module.weight.shape, generator=generator)
                module.weight.copy_(2 * HIDDEN**-0.5 * drawn)
    return model.eval()


def fill(experts: Any, seed: int) -> None:
    """Random block-FP8 weights, on the CPU."""
    count, up_rows, hidden = experts.gate_up_proj.shape
    shape = Shape("drawn", hidden, up_rows // 2, count, 1, "softmax", True)
    w = block_weights(shape, "gaussian", seed)
    w.w2_scale.mul_(0.25)  # the experts move tokens, rounding does not
    for name, tensor in {
        "gate_up_proj": w.w13,
        "gate_up_proj_scale_inv": w.w13_scale,
        "down_proj": w.w2,
        "down_proj_scale_inv": w.w2_scale,
    }.items():
        setattr(experts, name, nn.Parameter(tensor, requires_grad=False))
