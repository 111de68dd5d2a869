"""``torch.ops.monomoe.moe`` on CPU tensors: torch's own checks, compilation, refusals."""

from typing import Any

import pytest
import torch
from serving import TINY, make_layer
from torch import Tensor

from monomoe_gen import runtime
from monomoe_gen.errors import MonomoeError
from monomoe_gen.torch_op import LayerWeights

MOE = torch.ops.monomoe.moe


@pytest.fixture(scope="module")
def layer() -> runtime.MoELayer:
    return make_layer()[0]


def inputs(tokens: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, TINY.hidden, generator=generator).bfloat16()
    return x, torch.randn(tokens, TINY.experts, generator=generator)


def arguments(layer: runtime.MoELayer, tokens: int) -> tuple[Any, ...]:
    weights = layer.w13, layer.w13_scale, layer.w2, layer.w2_scale, layer.bias
    return (*inputs(tokens), *weights, layer.plan_name)


def test_the_schemas_declare_what_is_written() -> None:
    assert not MOE.default._schema.is_mutable
    written = [a.name for a in MOE.out._schema.arguments if a.alias_info and a.alias_info.is_write]
    assert written == ["out"]


def test_torchs_checks_pass(layer: runtime.MoELayer) -> None:
    passed = dict.fromkeys(
        (
            "test_schema",
            "test_autograd_registration",
            "test_faketensor",
            "test_aot_dispatch_dynamic",
        ),
        "SUCCESS",
    )
    assert torch.library.opcheck(MOE.default, arguments(layer, 3)) == passed
    out = {"out": torch.empty(3, TINY.hidden, dtype=torch.bfloat16)}
    assert torch.library.opcheck(MOE.out, arguments(layer, 3), out) == passed


def test_meta_tensors_give_the_results_shape(layer: runtime.MoELayer) -> None:
    meta = [a.to("meta") if isinstance(a, Tensor) else a for a in arguments(layer, 3)]
    y = MOE(*meta)
    assert (y.device.type, y.shape, y.dtype) == ("meta", (3, TINY.hidden), torch.bfloat16)
    assert MOE(*meta, out=torch.empty_like(y)) is None


class Block(torch.nn.Module):
    """What a model does around the layer: a router before, a residual after."""

    def __init__(self, layer: runtime.MoELayer) -> None:
        super().__init__()
        self.layer = layer
        self.router = torch.nn.Linear(TINY.hidden, TINY.experts, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.router(x).float()
        return x + self.layer(2 * x, logits)


def test_a_model_compiles_as_one_graph(layer: runtime.MoELayer) -> None:
    """For a token count, then for any: the second compilation takes it as a symbol.

    The README's snippets are compiled by the default backend, which takes longer.
    """
    torch.manual_seed(0)
    block = Block(layer).eval()
    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for tokens in (2, 5, 7, 9):
            x, _ = inputs(tokens, seed=tokens)
            torch.testing.assert_close(compiled(x), block(x), rtol=2e-2, atol=2e-2)


def test_a_compiled_write_is_seen(layer: runtime.MoELayer) -> None:
    def write(x: Tensor, logits: Tensor, out: Tensor) -> Tensor:
        before = out + 1
        layer(x, logits, out)
        return before + out

    torch._dynamo.reset()
    x, logits = inputs(3)
    out = torch.zeros_like(x)
    y = torch.compile(write, fullgraph=True, backend="aot_eager")(x, logits, out)
    assert torch.equal(out, layer(x, logits))
    assert torch.equal(y, out + 1)


def test_the_op_refuses_what_does_not_fit(layer: runtime.MoELayer) -> None:
    x, logits, *rest = arguments(layer, 3)
    with pytest.raises(MonomoeError, match=r"x must be a contiguous torch.bfloat16 \[3, 256\]"):
        MOE(x.float(), logits, *rest)
    with pytest.raises(MonomoeError, match=r"found non-contiguous torch.bfloat16"):
        MOE(x.T.contiguous().T, logits, *rest)
    with pytest.raises(MonomoeError, match="router_logits must be"):
        MOE(x, logits.bfloat16(), *rest)
    with pytest.raises(MonomoeError, match="out must be"):
        MOE(x, logits, *rest, out=torch.empty(2, TINY.hidden, dtype=torch.bfloat16))
    with pytest.raises(
        MonomoeError, match=r"w13 must be a contiguous torch.uint8 \[8, 16, 2, 2048"
    ):
        MOE(x, logits, rest[0][:4], *rest[1:])
    with pytest.raises(MonomoeError, match="no plan 'nothing' in this process"):
        MOE(x, logits, *rest[:-1], "nothing")


def test_the_op_takes_the_layers_weights(layer: runtime.MoELayer) -> None:
    """In the order of `LayerWeights`, which is that of the layer's buffers."""
    assert list(LayerWeights.__dataclass_fields__) == list(layer._buffers)
    x, logits = inputs(2)
    assert torch.equal(MOE(*arguments(layer, 2)), layer(x, logits))
