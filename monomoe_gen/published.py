"""The published quantized operator, in plain torch: what this kernel's accuracy is compared with.

A block-FP8 MoE layer as production serves it: separate kernels for quantization, grouped GEMM,
activation, quantization, grouped GEMM and sum, with bf16 tensors between them. The rounding points
are those of vLLM's Triton path, in its sources: ``fused_experts_impl`` and ``fused_moe_kernel``
(vllm/model_executor/layers/fused_moe/fused_moe.py), ``per_token_group_quant_fp8``
(vllm/model_executor/layers/quantization/utils/fp8_utils.py), ``silu_and_mul``
(csrc/activation_kernels.cu) and ``moe_sum`` (csrc/moe/moe_align_sum_kernels.cu).
"""

from __future__ import annotations

import torch
from torch import Tensor

from monomoe_gen.e4m3 import E4M3, E4M3_MAX
from monomoe_gen.reference import (
    ByExpert,
    activation,
    active_experts,
    assign,
    block_matmul,
    clamp_gate_up,
)
from monomoe_gen.shapes import SCALE_BLOCK, Shape

_SMALLEST_AMAX = 1e-10  # what a smaller amax of a block counts as


def moe_published(
    x: Tensor,
    logits: Tensor,
    w13: ByExpert,
    w13_scale: ByExpert,
    w2: ByExpert,
    w2_scale: ByExpert,
    bias: Tensor | None,
    shape: Shape,
) -> Tensor:
    """x bf16 ``[B, H]`` -> bf16 ``[B, H]``; the arguments are those of `reference.moe_mirror`.

    bf16 are: gate and up, activation(gate), its product with up, and every expert's weighted
    output. The sum over experts is taken in fp32, also for 2 to 4 experts a token, where the
    original adds in bf16. Routing is the shape's own, with fp32 weights.
    """
    codes, scale = _quantize(x)
    y = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert, tokens, weights in active_experts(*assign(logits, bias, shape)):
        up_rows = block_matmul(codes[tokens], scale[tokens], w13[expert], w13_scale[expert])
        gate, up = up_rows.bfloat16().chunk(2, -1)
        gate, up = clamp_gate_up(gate, up, shape)
        h, h_scale = _quantize(activation(gate.float(), shape).bfloat16() * up)
        y[tokens] += (weights * block_matmul(h, h_scale, w2[expert], w2_scale[expert])).bfloat16()
    return y.bfloat16()


def _quantize(values: Tensor) -> tuple[Tensor, Tensor]:
    """bf16 ``[T, K]`` -> e4m3 values in fp32, and scales ``[T, K/128]``: amax / 448, at least tiny.

    Values are divided by the scale, where the kernel multiplies by 448 / amax.
    """
    blocks = values.float().unflatten(-1, (-1, SCALE_BLOCK))
    largest = blocks.abs().amax(-1, keepdim=True).clamp(min=_SMALLEST_AMAX)
    scale = largest / torch.full_like(largest, E4M3_MAX)
    codes = (blocks / scale).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3)
    return codes.float().flatten(-2), scale.squeeze(-1)
