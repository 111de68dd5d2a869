"""Which layers of a server the table's kernels serve, and what the others are told."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from serving import TINY, make_table

from monomoe_gen.dispatch import Table
from monomoe_gen.errors import MonomoeError, NoKernel, ShapeError
from monomoe_gen.integrations import vllm
from monomoe_gen.integrations.coverage import covering_shape, refuse
from monomoe_gen.shapes import Shape

TABLE = make_table(layout="raw")


def layer(**changes: Any) -> Shape:
    asked = Shape("layer", 256, 128, 8, 2, "softmax", True, logits_dtype="bfloat16")
    return dataclasses.replace(asked, **changes)


@pytest.mark.parametrize("logits", ["bfloat16", "float32"])
def test_a_layer_of_the_table_is_covered(logits: str) -> None:
    assert covering_shape(TABLE, layer(logits_dtype=logits)) == TINY


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"top_k": 4}, r"those of tiny, which differ in top_k \(2, asked for 4\)"),
        ({"renormalize": False, "experts": 16}, r"experts \(8, .*, renormalize \(True, "),
        ({"scoring": "sigmoid"}, r"scoring \(softmax, asked for sigmoid\)"),
        ({"activation": "gelu_tanh"}, r"activation \(silu, asked for gelu_tanh\)"),
        ({"expert_bias": True}, r"expert_bias \(False, asked for True\)"),
    ],
)
def test_another_layer_is_refused_with_the_reason(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(NoKernel, match=words):
        covering_shape(TABLE, layer(**changes))


def test_what_no_kernel_does_is_named() -> None:
    refuse({"LoRA": False})
    with pytest.raises(MonomoeError, match="it needs LoRA, expert maps, which no kernel has"):
        refuse({"LoRA": True, "biases": False, "expert maps": True})


def test_logits_are_never_narrowed() -> None:
    table = make_table(dataclasses.replace(TINY, logits_dtype="bfloat16"), layout="raw")
    assert covering_shape(table, layer()).logits_dtype == "bfloat16"
    with pytest.raises(NoKernel, match=r"logits_dtype \(bfloat16, asked for float32\)"):
        covering_shape(table, layer(logits_dtype="float32"))


def test_kernels_of_packed_weights_do_not_serve_raw_ones() -> None:
    with pytest.raises(NoKernel, match=r"tiny, .* layout \(packed, asked for raw\)"):
        covering_shape(make_table(), layer())


def test_packed_kernels_of_the_same_shape_are_nearer_than_raw_ones_of_another() -> None:
    raw = make_table(dataclasses.replace(TINY, name="another", top_k=4), layout="raw")
    both = dataclasses.replace(raw, kernels=(*raw.kernels, *make_table().kernels))
    with pytest.raises(NoKernel, match=r"tiny, which differ in layout \(packed, asked for raw\)"):
        covering_shape(both, layer())


def test_kernels_with_the_router_inside_do_not_serve_logits() -> None:
    inside = make_table(layout="raw", router="weight")
    with pytest.raises(NoKernel, match="no kernels that are given logits"):
        covering_shape(inside, layer())
    with pytest.raises(NoKernel, match="no kernels that are given logits"):
        covering_shape(Table(TABLE.device, (), ()), layer())


def test_the_switch_has_three_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(vllm.SWITCH, raising=False)
    assert vllm.mode() == "1"
    monkeypatch.setenv(vllm.SWITCH, "reference")
    assert vllm.mode() == "reference"
    monkeypatch.setenv(vllm.SWITCH, "off")
    with pytest.raises(MonomoeError, match="MONOMOE_VLLM must be one of 0, 1, reference"):
        vllm.mode()


def routed_experts(moe: dict[str, Any] | None = None, **changes: Any) -> SimpleNamespace:
    """What the plugin reads of vLLM's layer."""
    config = {
        "num_experts": 8, "num_local_experts": 8, "experts_per_token": 2, "hidden_dim": 256,
        "hidden_dim_unpadded": 256, "intermediate_size_per_partition": 128, "has_bias": False,
        "in_dtype": torch.bfloat16, "router_logits_dtype": torch.bfloat16,
        "activation": SimpleNamespace(value="silu"),
    }  # fmt: skip
    layer = {
        "scoring_func": "softmax", "renormalize": True, "use_grouped_topk": False,
        "num_expert_group": None, "topk_group": None, "custom_routing_function": None,
        "routed_scaling_factor": 1.0, "e_score_correction_bias": None,
        "apply_router_weight_on_input": False, "swiglu_limit": None, "swiglu_alpha": None,
        "swiglu_beta": None,
    }  # fmt: skip
    return SimpleNamespace(moe_config=SimpleNamespace(**config | (moe or {})), **layer | changes)


@pytest.fixture
def no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "_captures_experts", lambda: False)


def test_vllms_layer_is_described(no_capture: None) -> None:
    assert vllm.describe(routed_experts()) == layer()
    grouped = {"use_grouped_topk": True, "num_expert_group": 4, "topk_group": 2}
    biased = {"e_score_correction_bias": torch.zeros(8), "routed_scaling_factor": 2.5}
    more = {"num_experts": 32, "num_local_experts": 32}
    described = vllm.describe(routed_experts(more, scoring_func="sigmoid", **grouped, **biased))
    expected = {"expert_bias": True, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}
    assert described == layer(experts=32, scoring="sigmoid", **expected)
    one_group = {"use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1}
    assert vllm.describe(routed_experts(**one_group)) == layer()


@pytest.mark.parametrize(
    ("moe", "changes", "words"),
    [
        ({"num_local_experts": 4}, {}, "expert parallelism"),
        ({"has_bias": True}, {}, "biases of the projections"),
        ({"in_dtype": torch.float16}, {}, "activations that are not bf16"),
        ({"hidden_dim_unpadded": 200}, {}, "padding of the hidden dimension"),
        ({}, {"custom_routing_function": print}, "routing function"),
        ({}, {"apply_router_weight_on_input": True}, "router weights applied to the input"),
        ({}, {"swiglu_limit": 7.0}, "SwiGLU"),
        ({}, {"routed_scaling_factor": 2.5}, "scaling factor without an expert bias"),
        (
            {},
            {"use_grouped_topk": True, "num_expert_group": 4, "topk_group": 2},
            "scored by their best one",
        ),
    ],
)
def test_what_vllm_asks_and_no_kernel_does_is_refused(
    moe: dict[str, Any], changes: dict[str, Any], words: str, no_capture: None
) -> None:
    with pytest.raises(MonomoeError, match=f"it needs .*{words}.*, which no kernel has"):
        vllm.describe(routed_experts(moe, **changes))


@pytest.mark.parametrize(
    ("moe", "changes", "words"),
    [
        ({"intermediate_size_per_partition": 192}, {}, "intermediate: must be a positive multiple"),
        ({}, {"scoring_func": "tanh"}, "scoring: must be one of"),
    ],
)
def test_a_layer_like_no_shape_is_refused(
    moe: dict[str, Any], changes: dict[str, Any], words: str, no_capture: None
) -> None:
    with pytest.raises(ShapeError, match=words):
        vllm.describe(routed_experts(moe, **changes))
