"""The order in which kernels add: as they do in the simulator, to the last bit of fp32."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from monomoe_gen import host_build, simulate
from monomoe_gen.paths import data_dir
from monomoe_gen.reference import moe_mirror
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.simulate import Problem, make_problem, plan

TOY = load_shape("toy")
SIGMOID = replace(
    TOY, name="toy-sigmoid", scoring="sigmoid", expert_bias=True, routed_scaling_factor=2.5
)
BIASED = replace(TOY, name="toy-biased", expert_bias=True, experts=40, top_k=5, renormalize=False)
LONG = replace(TOY, name="toy-long", hidden=2048, experts=4)
WIDE = replace(TOY, name="toy-wide", intermediate=256)
BF16 = replace(WIDE, name="toy-bf16", activations="bf16")
CLAMPED = replace(TOY, name="toy-clamped", swiglu_limit=0.75)
SHARED = replace(TOY, name="toy-shared", shared_experts=2)
GATED = replace(SIGMOID, name="toy-gated", shared_experts=1, shared_gate=True)
GELU = replace(TOY, name="toy-gelu", activation="gelu_tanh", swiglu_limit=1.5)

CASES = [
    (TOY, (7, 4, 256, 2, 128, 2, 2), 8, (8, 3), "uniform"),  # three down groups
    (TOY, (3, 8, 128, 2, 128, 2, 3), 16, (16, 5), "zipf"),  # two chains
    (SIGMOID, (3, 2, 256, 1, 128, 2, 2), 8, (1, 8), "uniform"),  # several tiles a warp
    (BIASED, (8, 2, 128, 8, 128, 3, 2), 8, (3, 8), "uniform"),  # four experts in a stage
    (LONG, (4, 16, 1024, 4, 128, 2, 2), 8, (3, 8), "uniform"),  # a tile in all warps, two stages
    (WIDE, (4, 4, 256, 2, 128, 2, 2), 8, (8, 1), "disjoint"),  # two stages an expert
    (WIDE, (8, 4, 128, 8, 256, 2, 4), 8, (8, 3), "same"),  # two column blocks, two experts a stage
    (BF16, (7, 4, 256, 2, 128, 2, 2), 8, (8, 3), "uniform"),  # activations that stay bf16
    (CLAMPED, (4, 2, 256, 2, 128, 2, 2), 8, (3, 8), "uniform"),
    (SHARED, (7, 4, 256, 2, 128, 2, 2), 8, (8, 3), "uniform"),
    (GATED, (4, 2, 128, 2, 128, 2, 2), 8, (1, 8), "zipf"),
    (GELU, (4, 2, 128, 4, 128, 2, 2), 8, (3, 8), "zipf"),
]  # fmt: skip


def spec_of(case: tuple) -> KernelSpec:
    return KernelSpec(case[0], Schedule(*case[1]), case[2])


def case_id(case: tuple) -> str:
    return spec_of(case).id


class LowHalf(Problem):
    """Expects the half of the fp32 sums that rounding to bf16 drops."""

    def expected(self, spec: KernelSpec) -> list[Tensor]:
        return [s.view(torch.int32).to(torch.int16).view(torch.bfloat16) for s in self.sums(spec)]


@pytest.mark.skipif(not host_build.has_compiler(), reason="needs g++")
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_kernels_add_in_this_order(case: tuple, tmp_path: Path) -> None:
    """The kernel stores the low half of its sums; h enters by its scales, as exact as up's sums."""
    templates = tmp_path / "templates"
    shutil.copytree(data_dir("templates"), templates)
    path = templates / "ops" / "combine.cuh"
    text = path.read_text(encoding="utf-8")
    assert text.count("device::float_to_bf16(sum[c])") == 1
    path.write_text(
        text.replace("device::float_to_bf16(sum[c])", "device::Bf16(device::float_to_bits(sum[c]))")
    )
    problem = make_problem(case[0], case[3], case[4])
    problem = LowHalf(*(getattr(problem, f.name) for f in fields(problem)))
    program = host_build.build(spec_of(case), templates)
    for outcome in simulate.simulate(program, problem, plan(3)):
        assert outcome.ok, "\n".join(map(str, outcome.findings))


def test_the_cases_take_every_path() -> None:
    plans = [spec_of(case).geometry for case in CASES]
    for path in (
        lambda g: g.down_groups > 1,
        lambda g: g.experts_per_stage_down > 1,
        lambda g: g.stages_per_expert_down > 1,
        lambda g: g.stages_per_unit_up > 1,
        lambda g: g.schedule.k_up >= 1024,
        lambda g: g.token_tile > 8,
    ):
        assert {path(geometry) for geometry in plans} == {False, True}


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_only_the_order_differs_from_the_mirror(case: tuple) -> None:
    problem = make_problem(case[0], case[3], case[4])
    given = {(name, launch): tensor for name, launch, tensor in problem.inputs}
    layer = problem.layer
    for i, sums in enumerate(problem.sums(spec_of(case))):
        weights = (layer.w13, layer.w13_scale, layer.w2, layer.w2_scale)
        bias = given.get(("bias", i))
        mirror = moe_mirror(given["x", i], given["logits", i], *weights, bias, case[0]).double()
        error = (sums.double() - mirror).norm(dim=-1) / mirror.norm(dim=-1).clamp(min=1e-30)
        assert error.max() < 1e-2


def test_another_schedule_adds_in_another_order() -> None:
    long, biased = (make_problem(shape, (8,), "uniform") for shape in (LONG, BIASED))
    for problem, specs in (
        (long, [KernelSpec(LONG, Schedule(4, 4, k, 2, 128, 2, 2)) for k in (128, 512, 1024)]),
        (biased, [KernelSpec(BIASED, Schedule(8, 2, 128, g, 128, 2, 2)) for g in (4, 8)]),
    ):
        sums = [problem.sums(spec)[0] for spec in specs]
        for i, one in enumerate(sums):
            assert not any(torch.equal(one, other) for other in sums[:i])
