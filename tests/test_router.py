"""The router inside: its logits against full precision, drawn routers, and what is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from monomoe_gen.reference import route, router_logits
from monomoe_gen.shapes import load_shape
from monomoe_gen.workload import (
    activations,
    rotation,
    router_weight,
    routers_for,
    tied_router,
)

TOY = load_shape("toy")


@pytest.mark.parametrize("hidden", [128, 768, 2048, 4352])
def test_logits_are_the_products_in_their_order(hidden: int) -> None:
    shape = replace(TOY, hidden=hidden, experts=16)
    x, router = activations(shape, 2, "gaussian", 3), router_weight(shape, 3)
    found = router_logits(x, router, shape)
    torch.testing.assert_close(found.double(), x.double() @ router.double().T, rtol=0, atol=1e-5)

    lanes = np.zeros((8, 32), np.float32)
    for column in range(hidden):
        product = x[1, column].float().numpy() * router[5, column].float().numpy()
        lanes[column // 256 % 8, column // 8 % 32] += product
    while lanes.shape[1] > 1:
        lanes = lanes[:, ::2] + lanes[:, 1::2]
    total = np.float32(0)
    for warp in lanes[:, 0]:
        total += warp
    assert found[1, 5].item() == total


def test_bf16_logits_are_rounded_once() -> None:
    shape = replace(TOY, logits_dtype="bfloat16")
    x, router = activations(shape, 3, "gaussian", 0), router_weight(shape, 0)
    exact = router_logits(x, router, replace(shape, logits_dtype="float32"))
    assert torch.equal(router_logits(x, router, shape), exact.bfloat16())
    assert router_logits(x[:0], router, shape).shape == (0, shape.experts)


def test_routers_lead_to_the_drawn_experts() -> None:
    shape = load_shape("qwen3.5-35b")
    x = activations(shape, 8, "gaussian", 0)
    drawn = rotation(shape, 8, "uniform", 3, 0, 0)
    routers = routers_for(x, drawn.logits)
    assert routers.shape == (3, shape.experts, shape.hidden)
    for logits, router in zip(drawn.logits, routers, strict=True):
        found = router_logits(x, router, shape)
        assert (found - logits).abs().max() < 0.01
        same = (
            route(found, None, shape)[0].sort().values
            == route(logits, None, shape)[0].sort().values
        )
        assert same.float().mean() > 0.99


@pytest.mark.parametrize("name", ["toy", "glm-5.2-tp8", "deepseek-v3.1-tp8"])
@pytest.mark.parametrize("tokens", [1, 8])
def test_scores_of_a_tied_router_tie_or_lie_far_apart(name: str, tokens: int) -> None:
    shape = load_shape(name)
    x = activations(shape, tokens, "student_t3", 0)
    scores = router_logits(x, tied_router(x, shape, 0), shape).sigmoid().sort(dim=-1).values
    steps = scores.diff(dim=-1)
    assert ((steps == 0) | (steps > 0.01)).all()
    assert (steps == 0).sum(-1).ge(shape.experts // 2).all()
