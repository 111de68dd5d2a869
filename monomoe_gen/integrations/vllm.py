"""The vLLM plugin: block-FP8 MoE layers that the table covers run its kernels, others run vLLM's.

vLLM finds `register` by the entry point ``monomoe`` of the group ``vllm.general_plugins``.
``MONOMOE_VLLM=0`` in the environment turns the plugin off; ``MONOMOE_VLLM=reference`` lets it also
take layers where there is no GPU, which then run the operator's reference: right, slow, for tests.
``MONOMOE_TABLE`` names the folder of a table to use instead of the project's for the GPU.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch

from monomoe_gen.errors import MonomoeError, NoKernel
from monomoe_gen.integrations.coverage import covering_shape, largest, plan_for, refuse
from monomoe_gen.runtime import load_table
from monomoe_gen.shapes import Shape

SWITCH = "MONOMOE_VLLM"
TABLE = "MONOMOE_TABLE"
_MODES = ("0", "1", "reference")
_SAID: set[str] = set()


def register() -> None:
    """Hooks into vLLM, unless it is switched off or vLLM is not one that the plugin knows."""
    from monomoe_gen.integrations import vllm_hook

    if mode() == "0":
        return
    try:
        moved = vllm_hook.moved()
    except (ImportError, AttributeError) as error:
        moved = [str(error)]
    if moved:
        say(f"steps aside; it needs {'; '.join(moved)}", logging.WARNING)
        return
    vllm_hook.install(choose)


def mode() -> str:
    """The value of ``MONOMOE_VLLM``, "1" if it is not set.

    Raises:
        MonomoeError: it is none of those.
    """
    value = os.environ.get(SWITCH) or "1"
    if value not in _MODES:
        raise MonomoeError(f"{SWITCH} must be one of {', '.join(_MODES)}, found {value!r}")
    return value


def choose(method: Any, layer: Any) -> type | None:
    """The experts class for a layer that vLLM has chosen its own for, or None; the log says why."""
    try:
        experts = _experts(method, layer)
    except MonomoeError as error:
        say(f"leaves experts to vLLM: {error}")
        return None
    plan, to = experts.plan, largest(experts.plan)
    say(
        f"serves experts of {plan.shape.name} for 1 to {to} tokens with the kernels of "
        f"{plan.table.folder}, more with vLLM's Triton experts"
        if torch.cuda.is_available()
        else f"serves experts of {plan.shape.name} with the reference on the CPU"
    )
    return experts


def describe(layer: Any) -> Shape:
    """vLLM's `RoutedExperts` in this project's words. Its weights need not be there yet.

    Raises:
        MonomoeError: vLLM asks of it what no kernel does.
        ShapeError: it is like no shape.
    """
    moe = layer.moe_config
    grouped = layer.use_grouped_topk and (layer.num_expert_group or 1) > 1
    biased = layer.e_score_correction_bias is not None
    scaled = float(layer.routed_scaling_factor or 1.0)
    asks = {
        "other experts than the router's (expert parallelism, fused shared experts)": (
            moe.num_local_experts != moe.num_experts
        ),
        "biases of the projections": moe.has_bias,
        "a routing function of the model's own": layer.custom_routing_function is not None,
        "router weights applied to the input": layer.apply_router_weight_on_input,
        "padding of the hidden dimension": moe.hidden_dim != moe.hidden_dim_unpadded,
        "activations that are not bf16": moe.in_dtype != torch.bfloat16,
        "vLLM's SwiGLU parameters": any(
            getattr(layer, f"swiglu_{name}") is not None for name in ("limit", "alpha", "beta")
        ),
        "the chosen experts of each token": _captures_experts(),
        "groups of experts scored by their best one": grouped and not biased,
        "a routed scaling factor without an expert bias": scaled != 1.0 and not biased,
    }
    refuse(asks)
    return Shape(
        "layer",
        hidden=moe.hidden_dim,
        intermediate=moe.intermediate_size_per_partition,
        experts=moe.num_experts,
        top_k=moe.experts_per_token,
        scoring=layer.scoring_func,
        renormalize=bool(layer.renormalize),
        expert_bias=biased,
        n_group=layer.num_expert_group if grouped else 1,
        topk_group=layer.topk_group if grouped else 1,
        routed_scaling_factor=scaled,
        logits_dtype=str(moe.router_logits_dtype).removeprefix("torch."),
        activation=moe.activation.value,
    )


def say(words: str, level: int = logging.INFO) -> None:
    """One line in vLLM's log, once. Before vLLM configures its log, only warnings are seen."""
    if words not in _SAID:
        _SAID.add(words)
        from vllm.logger import init_logger

        init_logger("vllm.monomoe_gen").log(level, "monomoe_gen %s", words)


def _experts(method: Any, layer: Any) -> Any:
    """The class for a covered layer.

    Raises:
        MonomoeError: why it is not covered.
    """
    from vllm.model_executor.layers.fused_moe import modular_kernel as mk
    from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts
    from vllm.model_executor.layers.quantization.utils.quant_utils import (
        GroupShape,
        create_fp8_quant_key,
        kFp8Dynamic128Sym,
    )

    from monomoe_gen.integrations.vllm_experts import experts_class

    on_cpu = not torch.cuda.is_available()
    if on_cpu and mode() != "reference":
        raise MonomoeError(f"there is no CUDA device, and {SWITCH} is not reference")
    if not method.block_quant:
        raise MonomoeError("the weights have no 128 x 128 block scales")
    if not on_cpu and method.experts_cls is not TritonExperts:
        own = method.experts_cls.__name__ if method.experts_cls else "no class"
        raise MonomoeError(
            f"vLLM takes {own} for this layer, which may change the weights' layout; with "
            "--moe-backend triton it would leave them as the kernels read them"
        )
    folder = os.environ.get(TABLE)
    table = load_table(Path(folder) if folder else None)
    shape = covering_shape(table.table, describe(layer))
    device = torch.device("cpu") if on_cpu else torch.device("cuda", torch.cuda.current_device())
    experts = experts_class(plan_for(table, shape, device), on_cpu)
    weight_key = create_fp8_quant_key(static=True, group_shape=GroupShape(*method.moe_block_shape))
    supported, reason = experts.is_supported_config(
        experts,
        layer.moe_config,
        weight_key,
        kFp8Dynamic128Sym,
        mk.FusedMoEActivationFormat.Standard,
    )
    if not supported:
        raise NoKernel(shape.name, str(reason))
    return experts


def _captures_experts() -> bool:
    from vllm.config import get_current_vllm_config

    return bool(get_current_vllm_config().aux_output_config.enable_return_routed_experts)
