"""A Qwen3.5-MoE of seeded random weights, made where it is to run; nothing is downloaded.

The layers have a shape's full dimensions, with full attention in each and a shared expert. What
makes its text stable and not degenerate: every token has two likely successors, and the context,
experts included, decides between them. So rounding seldom changes the text, and wrong experts soon
do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from monomoe_gen.errors import MonomoeError
from monomoe_gen.shapes import SCALE_BLOCK, Shape
from monomoe_gen.weights import dequantize_blocks
from monomoe_gen.workload import block_weights

VOCABULARY = 4096
SUCCESSOR = 6.5  # logit of either successor, where those of other tokens have an RMS of 1
# About the RMS of what each part of a layer adds, next to embeddings of 1.
ATTENTION, EXPERTS, SHARED = 0.1, 0.05, 0.2
ROUTER = 2.0  # of the router's logits: the eighth expert weighs little, so that ties decide little
HEAD_DIM = 256


def make_model(shape: Shape, layers: int, device: torch.device, seed: int = 0) -> Any:
    """A Qwen3_5MoeForCausalLM in evaluation mode: bf16, but block-FP8 experts of ``shape``.

    Raises:
        MonomoeError: Qwen3.5-MoE does not route as ``shape`` does.
    """
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
    from transformers.utils.quantization_config import FineGrainedFP8Config

    if shape.activations != "fp8":
        raise MonomoeError(
            f"{shape.name} keeps its activations in bf16, which transformers quantizes; choose the "
            "shape with fp8 activations"
        )
    if (shape.scoring, shape.renormalize, shape.activation) != ("softmax", True, "silu"):
        raise MonomoeError(
            f"{shape.name} is no layer of a Qwen3.5-MoE, which takes the softmax, renormalizes and "
            "has silu; choose another model"
        )
    config = Qwen3_5MoeTextConfig(
        vocab_size=VOCABULARY,
        hidden_size=shape.hidden,
        num_hidden_layers=layers,
        layer_types=["full_attention"] * layers,
        num_attention_heads=max(2, shape.hidden // 128),
        num_key_value_heads=2,
        head_dim=HEAD_DIM,
        moe_intermediate_size=shape.intermediate,
        shared_expert_intermediate_size=shape.intermediate,
        num_experts=shape.experts,
        num_experts_per_tok=shape.top_k,
        dtype=torch.bfloat16,
    )
    with torch.device("meta"):
        model = Qwen3_5MoeForCausalLM._from_config(config, attn_implementation="sdpa")
    names = [name for name, m in model.named_modules() if type(m) is nn.Linear]
    quantization = FineGrainedFP8Config(weight_block_size=(SCALE_BLOCK, SCALE_BLOCK))
    model = replace_with_fp8_linear(model, names, quantization)
    model.lm_head.__class__ = _Head
    model.to_empty(device=device)
    model.lm_head.float()
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(device)
    with torch.no_grad():
        _fill(model, shape, device, seed)
    return model.eval().requires_grad_(False)


class _Head(nn.Linear):
    """The head in fp32, as bf16 logits would often tie."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


def dequantized(experts: Any) -> Any:
    """Experts of transformers' own class for bf16, with the weights of these FP8 ones."""
    from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeExperts

    with torch.device("meta"):
        made = Qwen3_5MoeExperts(experts.config).to(torch.bfloat16)
    made.to_empty(device=experts.gate_up_proj.device)
    with torch.no_grad():
        for name in ("gate_up_proj", "down_proj"):
            codes, scale = getattr(experts, name), getattr(experts, f"{name}_scale_inv")
            for expert in range(len(codes)):
                getattr(made, name)[expert] = dequantize_blocks(codes[expert], scale[expert])
    return made.eval().requires_grad_(False)


def _fill(model: Any, shape: Shape, device: torch.device, seed: int) -> None:
    generator = torch.Generator(device).manual_seed(seed)

    def randn(like: Tensor, scale: float) -> None:
        """Gaussian values, whose products with inputs of RMS 1 have an RMS of ``scale``."""
        drawn = torch.randn(like.shape, generator=generator, device=device)
        like.copy_(drawn * (scale * like.shape[-1] ** -0.5))

    scales = {"o_proj": 2 * ATTENTION, "down_proj": 2 * SHARED, "gate": ROUTER}
    for name, module in model.named_modules():
        kind = name.rpartition(".")[2]
        if hasattr(module, "gate_up_proj"):
            layer = int(name.split(".")[2])
            w = block_weights(shape, "gaussian", seed + 1 + layer, device)
            w.w2_scale.mul_(3 * EXPERTS)
            module.gate_up_proj.copy_(w.w13)
            module.gate_up_proj_scale_inv.copy_(w.w13_scale)
            module.down_proj.copy_(w.w2)
            module.down_proj_scale_inv.copy_(w.w2_scale)
        elif kind.endswith("norm"):
            module.weight.zero_()  # this model's norms multiply by 1 + weight
        elif getattr(module, "weight", None) is not None and kind not in (
            "lm_head",
            "embed_tokens",
        ):
            randn(module.weight, scales.get(kind, 1.0))
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    randn(embedding, shape.hidden**0.5)
    randn(head, 1.0)
    for _ in range(2):
        successor = torch.randperm(VOCABULARY, generator=generator, device=device)
        head[successor] += SUCCESSOR / shape.hidden * embedding
