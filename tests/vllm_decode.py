"""One process of vLLM on a tiny model, for test_vllm.py: writes what it decodes and computes.

vllm_decode.py MODEL RESULT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TOKENS = (1, 3, 8, 21)  # of the layer's input; the kernels of the test's table take 8
PROMPTS = [[7, 301, 12, 55], [400, 3, 9], [88]]
LENGTH = 12


def layer_outputs(model: Any) -> dict[str, Any]:
    """The first layer's experts on seeded inputs, through vLLM's own classes."""
    runner = model.model.layers[0].mlp.experts
    routed, outputs = runner.routed_experts, {}
    for tokens in TOKENS:
        x, logits = inputs(tokens, routed.hidden_size, routed.global_num_experts)
        if routed.quant_method.is_monolithic:
            y = routed.forward_monolithic(x=x, router_logits=logits)
        else:
            weights, ids = runner.router.select_experts(x, logits)
            y = routed.forward_modular(
                x=x,
                topk_weights=weights,
                topk_ids=ids,
                shared_experts=None,
                shared_experts_input=None,
            )
        outputs[str(tokens)] = y.clone()
    kernel = routed.quant_method.moe_kernel.fused_experts
    return {"outputs": outputs, "experts": type(kernel).__name__}


def inputs(tokens: int, hidden: int, experts: int) -> tuple[Tensor, Tensor]:
    """Seeded x and router logits, bf16."""
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, hidden, generator=generator)
    logits = 2 * torch.randn(tokens, experts, generator=generator)
    return x.bfloat16(), logits.bfloat16()


def main(model: str, result: str) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(
        model,
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=64,
        max_num_seqs=4,
        dtype="bfloat16",
        seed=0,
    )
    sampling = SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": p} for p in PROMPTS], sampling, use_tqdm=False)
    tokens = [list(o.outputs[0].token_ids) for o in outputs]
    (layer,) = llm.apply_model(layer_outputs)
    torch.save({"tokens": tokens, **layer}, Path(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
