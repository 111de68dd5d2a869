"""The kernel's routing against the reference's, on the CPU: all policies, logits of every kind."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch
from torch import Tensor

from monomoe_gen import host_build
from monomoe_gen.reference import moe_mirror
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.simulate import Problem, Run, simulate
from monomoe_gen.weights import BlockWeights, pack_w2, pack_w13
from monomoe_gen.workload import activations, block_weights

TOY = load_shape("toy")
SCHEDULE = Schedule(grid=3, g_up=4, k_up=128, g_down=2, k_down=128, d_up=3, d_down=4)
HARD = [nan, inf, -inf, 0.0, -0.0, 90.0, -90.0, 1e30, -1e30]

SHAPES = [
    replace(TOY, name="every-one", experts=10, top_k=10),
    replace(TOY, name="one-of-many", experts=33, top_k=1, scoring="sigmoid"),
    replace(TOY, name="few-plain", experts=40, top_k=3, renormalize=False, logits_dtype="bfloat16"),
    replace(TOY, name="many", experts=512, top_k=10),
    replace(TOY, name="softmax-bias", experts=60, top_k=4, expert_bias=True),
    replace(
        TOY,
        name="sigmoid-bias",
        experts=384,
        top_k=8,
        scoring="sigmoid",
        expert_bias=True,
        routed_scaling_factor=2.827,
    ),
    replace(
        TOY,
        name="groups",
        experts=64,
        top_k=7,
        scoring="sigmoid",
        expert_bias=True,
        n_group=8,
        topk_group=2,
    ),
]


def few_weights(shape: Shape) -> BlockWeights:
    """Weights of eight experts, which the others repeat."""
    drawn = block_weights(replace(TOY, experts=8), "gaussian", seed=0)
    pick = torch.arange(shape.experts) % 8
    return BlockWeights(
        *(
            part.view(torch.uint8)[pick].contiguous().view(part.dtype)
            for part in vars(drawn).values()
        )
    )


def hard_logits(shape: Shape, g: torch.Generator) -> list[Tensor]:
    """Launches of three tokens: ordinary ones, half of them special, and rows of one value."""
    random = torch.randn(3, shape.experts, generator=g)
    special = torch.tensor(HARD)[torch.randint(len(HARD), random.shape, generator=g)]
    mixed = torch.where(torch.rand(random.shape, generator=g) < 0.5, special, random)
    constant = torch.tensor([[nan], [-inf], [-90.0]]).repeat(1, shape.experts)
    constant[1, :2] = nan
    return [random, mixed, constant]


@pytest.mark.skipif(not host_build.has_compiler(), reason="needs g++")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_the_kernel_routes_as_the_reference_says(shape: Shape) -> None:
    g = torch.Generator().manual_seed(shape.experts)
    bias = 0.1 * torch.randn(shape.experts, generator=g) if shape.expert_bias else None
    layer = few_weights(shape)
    inputs: list[tuple[str, int | None, Tensor]] = [
        ("w13", None, pack_w13(layer.w13)),
        ("w13_scale", None, layer.w13_scale),
        ("w2", None, pack_w2(layer.w2)),
        ("w2_scale", None, layer.w2_scale),
    ]
    mirror = []
    for i, drawn in enumerate(hard_logits(shape, g)):
        logits = drawn.to(getattr(torch, shape.logits_dtype))
        x = activations(shape, len(logits), "gaussian", seed=i)
        inputs += [("x", i, x), ("logits", i, logits)]
        inputs += [] if bias is None else [("bias", i, bias)]
        mirror.append(moe_mirror(x, logits, *vars(layer).values(), bias, shape))
    problem = Problem(shape, (3, 3, 3), layer, tuple(inputs))
    program = host_build.build(KernelSpec(shape, SCHEDULE))
    (outcome,) = simulate(program, problem, [Run("random", 0)])
    assert outcome.ok, "\n".join(map(str, outcome.findings))
    for y, right in zip(problem.expected(program.spec), mirror, strict=True):
        torch.testing.assert_close(y, right, rtol=0.02, atol=1e-2, equal_nan=True)
