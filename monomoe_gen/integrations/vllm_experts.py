"""vLLM's experts class that runs the layer's kernels: routing inside, weights in place.

Token counts beyond the largest kernel go to vLLM's router and Triton experts, which read the same
weights. Importing this module imports vLLM.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from vllm.model_executor.layers.fused_moe import modular_kernel as mk
from vllm.model_executor.layers.fused_moe.config import RoutingMethodType
from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend, make_fp8_moe_kernel
from vllm.model_executor.layers.fused_moe.router.router_factory import create_fused_moe_router
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    kFp8Dynamic128Sym,
    kFp8Static128BlockSym,
)
from vllm.platforms import current_platform

from monomoe_gen import torch_op  # noqa: F401  registers the operator
from monomoe_gen.integrations.coverage import largest
from monomoe_gen.plan import Plan

ROUTING = {  # (scoring, renormalize, expert bias) -> vLLM's names of it
    ("softmax", False, False): (RoutingMethodType.Default,),
    ("softmax", True, False): (RoutingMethodType.Renormalize, RoutingMethodType.RenormalizeNaive),
    ("sigmoid", False, False): (RoutingMethodType.Sigmoid,),
    ("sigmoid", True, False): (RoutingMethodType.SigmoidRenorm,),
    ("sigmoid", True, True): (RoutingMethodType.DeepSeekV3, RoutingMethodType.MiniMax2),
}


class MonomoeExperts(mk.FusedMoEExpertsMonolithic):
    """Experts of one plan; `experts_class` makes the class, vLLM the object of each layer."""

    plan: ClassVar[Plan]
    on_cpu: ClassVar[bool] = False  # whether the reference may stand in where there is no GPU

    def __init__(self, moe_config: Any, quant_config: Any) -> None:
        super().__init__(moe_config=moe_config, quant_config=quant_config)
        self.capacity = largest(self.plan)
        self._larger: Any = None
        self._router: Any = None

    @property
    def expects_unquantized_inputs(self) -> bool:
        return True

    @staticmethod
    def activation_format() -> mk.FusedMoEActivationFormat:
        return mk.FusedMoEActivationFormat.Standard

    @classmethod
    def _supports_current_device(cls) -> bool:
        if current_platform.is_cpu():
            return cls.on_cpu
        return bool(current_platform.is_cuda() and current_platform.is_device_capability(90))

    @staticmethod
    def _supports_no_act_and_mul() -> bool:
        return False

    @staticmethod
    def _supports_quant_scheme(weight_key: Any, activation_key: Any) -> bool:
        return (weight_key, activation_key) == (kFp8Static128BlockSym, kFp8Dynamic128Sym)

    @classmethod
    def _supports_activation(cls, activation: Any) -> bool:
        return bool(activation.value == cls.plan.shape.activation)

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: Any) -> bool:
        """Tensor parallelism only."""
        p = moe_parallel_config
        sizes = p.ep_size, p.dp_size, p.pcp_size
        return sizes == (1, 1, 1) and not (p.use_ep or p.enable_eplb or p.is_sequence_parallel)

    @classmethod
    def _supports_routing_method(
        cls, routing_method: Any, weight_key: Any, activation_key: Any
    ) -> bool:
        shape = cls.plan.shape
        return routing_method in ROUTING.get(
            (shape.scoring, shape.renormalize, shape.expert_bias), ()
        )

    @classmethod
    def _supports_router_logits_dtype(cls, router_logits_dtype: Any, routing_method: Any) -> bool:
        if router_logits_dtype == torch.float32:
            return cls.plan.shape.logits_dtype == "float32"
        return bool(router_logits_dtype == torch.bfloat16)

    @classmethod
    def _supports_shape(cls, hidden_dim: int) -> bool:
        return hidden_dim == cls.plan.shape.hidden

    def apply(
        self,
        hidden_states: Tensor,
        w1: Tensor,
        w2: Tensor,
        router_logits: Tensor,
        activation: Any,
        global_num_experts: int,
        expert_map: Tensor | None,
        a1q_scale: Tensor | None,
        apply_router_weight_on_input: bool,
        num_expert_group: int | None = None,
        e_score_correction_bias: Tensor | None = None,
        routed_scaling_factor: float | None = None,
        topk_group: int | None = None,
        routing_replay_out: Tensor | None = None,
    ) -> Tensor:
        """The layer's output bf16 ``[B, H]``; x bf16 ``[B, H]``, logits ``[B, E]``."""
        bias = e_score_correction_bias
        if hidden_states.shape[0] > self.capacity and hidden_states.device.type != "cpu":
            return self.larger(hidden_states, w1, w2, router_logits, activation, bias)
        shape = self.plan.shape
        dtype = torch.float32 if shape.logits_dtype == "float32" else torch.bfloat16
        result: Tensor = torch.ops.monomoe.moe(
            hidden_states.contiguous(),
            router_logits.to(dtype).contiguous(),
            w1.view(torch.uint8),
            self.w1_scale,
            w2.view(torch.uint8),
            self.w2_scale,
            None if bias is None else bias.float(),
            self.plan.name,
        )
        return result

    def larger(
        self,
        x: Tensor,
        w1: Tensor,
        w2: Tensor,
        logits: Tensor,
        activation: Any,
        bias: Tensor | None,
    ) -> Tensor:
        """The same by vLLM's own router and Triton experts."""
        shape = self.plan.shape
        if self._larger is None:
            self._larger = make_fp8_moe_kernel(
                moe_quant_config=self.quant_config,
                moe_config=self.moe_config,
                experts_cls=TritonExperts,
                fp8_backend=Fp8MoeBackend.TRITON,
            )
            self._router = vllm_router(self.plan, bias)
        weights, ids = self._router.select_experts(
            hidden_states=x,
            router_logits=logits,
            topk_indices_dtype=self._larger.prepare_finalize.topk_indices_dtype(),
        )
        result: Tensor = self._larger.apply(
            hidden_states=x,
            w1=w1,
            w2=w2,
            topk_weights=weights,
            topk_ids=ids,
            activation=activation,
            global_num_experts=shape.experts,
            expert_map=None,
            apply_router_weight_on_input=False,
        )
        return result


def experts_class(plan: Plan, on_cpu: bool = False) -> type[MonomoeExperts]:
    """The class of experts that ``plan`` serves; vLLM wants a class, and makes the objects."""
    return type("MonomoeExperts", (MonomoeExperts,), {"plan": plan, "on_cpu": on_cpu})


def vllm_router(plan: Plan, bias: Tensor | None) -> Any:
    """vLLM's router that does what the kernels of ``plan`` do."""
    shape = plan.shape
    grouped = shape.n_group > 1
    return create_fused_moe_router(
        top_k=shape.top_k,
        global_num_experts=shape.experts,
        renormalize=shape.renormalize,
        use_grouped_topk=grouped,
        num_expert_group=shape.n_group if grouped else None,
        topk_group=shape.topk_group if grouped else None,
        scoring_func=shape.scoring,
        routed_scaling_factor=shape.routed_scaling_factor,
        e_score_correction_bias=bias,
    )
