"""Which layers of a server the table's kernels serve, and what the others are told."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from serving import TINY, make_table

from monomoe_gen.dispatch import Table
from monomoe_gen.errors import MonomoeError, NoKernel
from monomoe_gen.integrations import vllm
from monomoe_gen.integrations.coverage import Described, covering_shape

TABLE = make_table(layout="raw")


def layer(**changes: Any) -> Described:
    return dataclasses.replace(Described(256, 128, 8, 2, "softmax", True), **changes)


@pytest.mark.parametrize("logits", ["bfloat16", "float32"])
def test_a_layer_of_the_table_is_covered(logits: str) -> None:
    assert covering_shape(TABLE, layer(logits_dtype=logits)) == TINY


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"top_k": 4}, r"those of tiny, which differ in top_k \(2, asked for 4\)"),
        ({"intermediate": 192}, "intermediate must be a positive multiple of 128, found 192"),
        ({"renormalize": False, "experts": 16}, r"experts \(8, .*, renormalize \(True, "),
        ({"scoring": "tanh"}, "scoring must be one of"),
        ({"activation": "gelu_tanh"}, r"activation \(silu, asked for gelu_tanh\)"),
        ({"expert_bias": True}, r"expert_bias \(False, asked for True\)"),
        ({"obstacles": ("LoRA", "expert maps")}, "it needs LoRA, expert maps, which no kernel has"),
    ],
)
def test_another_layer_is_refused_with_the_reason(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(NoKernel, match=words):
        covering_shape(TABLE, layer(**changes))


def test_logits_are_never_narrowed() -> None:
    table = make_table(dataclasses.replace(TINY, logits_dtype="bfloat16"), layout="raw")
    assert covering_shape(table, layer()).logits_dtype == "bfloat16"
    with pytest.raises(NoKernel, match=r"logits_dtype \(bfloat16, asked for float32\)"):
        covering_shape(table, layer(logits_dtype="float32"))


def test_kernels_of_packed_weights_do_not_serve_raw_ones() -> None:
    with pytest.raises(NoKernel, match=r"tiny, .* layout \(packed, asked for raw\)"):
        covering_shape(make_table(), layer())


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
