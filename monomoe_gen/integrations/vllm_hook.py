"""The one place where vLLM is patched, and the list of what the plugin relies on in it.

vLLM has no registry for experts from outside, so the constructor of its method for block-FP8
experts, `Fp8MoEMethod`, is wrapped: after it has chosen the experts class, this plugin may choose
another one. Nothing else of vLLM is replaced.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

VERSIONS = ("0.32", "0.33")

Choose = Callable[[Any, Any], "type | None"]
"""``(Fp8MoEMethod, RoutedExperts)`` -> the experts class to take, or None for vLLM's own."""


def moved() -> list[str]:
    """What the plugin relies on and this vLLM does not have, each in words."""
    import vllm
    from vllm.config import VllmConfig
    from vllm.model_executor.layers.fused_moe import modular_kernel as mk
    from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
    from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts
    from vllm.model_executor.layers.fused_moe.oracle import fp8 as oracle
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
    from vllm.model_executor.layers.fused_moe.router import fused_moe_router, router_factory
    from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod

    found = []
    version = ".".join(vllm.__version__.split(".")[:2])
    if version not in VERSIONS:
        found.append(f"vLLM {' or '.join(VERSIONS)}; this is {vllm.__version__}")
    exactly = {
        Fp8MoEMethod.__init__: "self quant_config layer",
        mk.FusedMoEExpertsMonolithic.apply: (
            "self hidden_states w1 w2 router_logits activation global_num_experts expert_map "
            "a1q_scale apply_router_weight_on_input num_expert_group e_score_correction_bias "
            "routed_scaling_factor topk_group routing_replay_out"
        ),
        mk.FusedMoEExperts.is_supported_config: (
            "cls moe_config weight_key activation_key activation_format"
        ),
    }
    for function, names in exactly.items():
        if " ".join(inspect.signature(function).parameters) != names:
            found.append(f"{function.__qualname__}({names.replace(' ', ', ')})")
    at_least = {
        RoutedExperts.__init__: (
            "renormalize use_grouped_topk num_expert_group topk_group custom_routing_function "
            "scoring_func routed_scaling_factor swiglu_limit swiglu_alpha swiglu_beta "
            "e_score_correction_bias apply_router_weight_on_input"
        ),
        FusedMoEConfig.__init__: (
            "num_experts experts_per_token hidden_dim num_local_experts activation in_dtype "
            "router_logits_dtype hidden_dim_unpadded moe_parallel_config routing_method has_bias"
        ),
        oracle.make_fp8_moe_kernel: "moe_quant_config moe_config experts_cls fp8_backend",
        router_factory.create_fused_moe_router: (
            "top_k global_num_experts renormalize use_grouped_topk num_expert_group topk_group "
            "scoring_func routed_scaling_factor e_score_correction_bias"
        ),
        fused_moe_router.FusedMoERouter.select_experts: (
            "hidden_states router_logits topk_indices_dtype"
        ),
        VllmConfig: "aux_output_config",
        mk.FusedMoEKernel.apply: (
            "hidden_states w1 w2 topk_weights topk_ids activation global_num_experts expert_map "
            "apply_router_weight_on_input"
        ),
    }
    for function, names in at_least.items():
        lost = set(names.split()) - set(inspect.signature(function).parameters)
        if lost:
            found.append(f"{function.__qualname__} with {', '.join(sorted(lost))}")
    source = inspect.getsource(inspect.unwrap(Fp8MoEMethod.__init__))
    for name in ("fp8_backend", "experts_cls", "moe_block_shape", "block_quant"):
        if f"self.{name}" not in source:
            found.append(f"Fp8MoEMethod.{name}, set by the constructor")
    if not hasattr(oracle.Fp8MoeBackend, "TRITON"):
        found.append("Fp8MoeBackend.TRITON")
    elif TritonExperts not in oracle.backend_to_kernel_cls(oracle.Fp8MoeBackend.TRITON):
        found.append("TritonExperts as the class of Fp8MoeBackend.TRITON")
    return found


def install(choose: Choose) -> None:
    """Lets ``choose`` choose for every `Fp8MoEMethod` made from now on. A second call does nothing.

    Experts of this plugin read the weights as the checkpoint has them, so that the backend becomes
    Triton's, for which vLLM leaves them so.
    """
    from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
    from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod

    original = Fp8MoEMethod.__init__
    if hasattr(original, "monomoe_original"):
        return

    @functools.wraps(original)
    def __init__(self: Any, quant_config: Any, layer: Any) -> None:
        original(self, quant_config, layer)
        experts = choose(self, layer)
        if experts is not None:
            self.experts_cls = experts
            self.fp8_backend = Fp8MoeBackend.TRITON

    __init__.monomoe_original = original  # type: ignore[attr-defined]
    Fp8MoEMethod.__init__ = __init__


def uninstall() -> None:
    """Undoes `install`."""
    from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod

    Fp8MoEMethod.__init__ = getattr(
        Fp8MoEMethod.__init__, "monomoe_original", Fp8MoEMethod.__init__
    )
