"""The kernel itself, run on the CPU under many schedulers; and the simulator it runs on.

``SIMULATION_SEEDS`` is the number of seeds of every policy (`make torture` sets it).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from mutants import BLOCK, DENSE, MUTANTS, TALL, Builder, build_parts, build_unshared

from monomoe_gen import host_build, simulate
from monomoe_gen.cli import run as run_cli
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import CompileError, MonomoeError
from monomoe_gen.paths import data_dir
from monomoe_gen.routings import ROUTINGS
from monomoe_gen.rules import violations
from monomoe_gen.schedule import COLUMNS, KernelSpec, Schedule
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.simulate import POLICIES, Run, make_problem, plan

TEMPLATES = data_dir("templates")
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "1"))

TOY = load_shape("toy")
SIGMOID = replace(
    TOY, name="toy-sigmoid", scoring="sigmoid", expert_bias=True, routed_scaling_factor=2.5
)
GROUPS = replace(SIGMOID, name="toy-groups", experts=32, top_k=4, n_group=8, topk_group=4)
PLAIN = replace(
    TOY, name="toy-plain", renormalize=False, experts=40, top_k=3, logits_dtype="bfloat16"
)
WIDE = replace(TOY, name="toy-wide", intermediate=256)
ODD = replace(TOY, name="toy-odd", hidden=768)
BROAD = replace(TOY, name="toy-broad", hidden=4608)
FIVE = replace(TOY, name="toy-five", hidden=640)  # column blocks
CLAMPED = replace(TOY, name="toy-clamped", swiglu_limit=0.75)
GELU = replace(TOY, name="toy-gelu", activation="gelu_tanh")
SHARED = replace(TOY, name="toy-shared", shared_experts=1)
NINE = replace(TOY, name="toy-nine", experts=16, top_k=8, shared_experts=1)  # more than 8 a token
GATED = replace(SIGMOID, name="toy-gated", shared_experts=2, shared_gate=True)
GATED_PLAIN = replace(PLAIN, name="toy-gated-plain", shared_experts=1, shared_gate=True)
FOUR_SLOTS = replace(TOY, name="toy-1152", intermediate=1152, experts=16)  # rows asked for in time
TWO_SLOTS = replace(TOY, name="toy-1280", intermediate=1280, experts=16)
PAIR = replace(TOY, name="toy-pair", experts=2)  # every token takes both
BIASED = replace(TOY, name="toy-biased", expert_bias=True, experts=64, top_k=8)
SINGLE = replace(TOY, name="toy-single", top_k=1)
THREE = replace(PLAIN, name="toy-three", experts=128, logits_dtype="float32")
EIGHT = replace(SIGMOID, name="toy-eight", hidden=128, experts=288, top_k=8)
MOST = replace(TOY, name="toy-most", hidden=128, experts=544, top_k=4)  # more than 16 a lane
BF16 = replace(TOY, name="toy-bf16", activations="bf16")
BF16_WIDE = replace(WIDE, name="toy-wide-bf16", activations="bf16")
BF16_LONG = replace(TOY, name="toy-long-bf16", hidden=2048, experts=4, activations="bf16")

# Together: ring depths from 2 up, stages of equal and different sizes, one or several down groups,
# two of them paired or, in an odd grid, not, CTAs without a part in the down-projection, several
# stages a unit, more experts than h slots, and than a requant warp notes the rows of at once, rows
# of a slot shared by 2, 4 and 8 of them, and blocks of an MMA warp that share scales.
CASES = [
    # shape, schedule, token tile, launches, routing
    (TOY, (4, 2, 128, 2, 128, 3, 4), 8, (1, 8, 1), "uniform"),
    (TOY, (4, 4, 256, 4, 128, 2, 2), 8, (3, 1, 3), "uniform"),
    (TOY, (8, 16, 256, 8, 128, 4, 2), 8, (3, 8, 3), "uniform"),
    (TOY, (8, 8, 128, 2, 128, 3, 5), 16, (1, 16, 1), "uniform"),
    (TOY, (3, 1, 128, 1, 128, 2, 2), 8, (8, 8, 8), "zipf"),
    (TOY, (3, 4, 128, 1, 128, 8, 3), 8, (3, 8, 3), "disjoint"),
    (TOY, (5, 2, 256, 4, 128, 2, 3), 16, (16, 3, 8), "ties"),
    (TOY, (7, 16, 128, 1, 128, 2, 2), 8, (1, 3, 1), "same"),
    (TOY, (4, 2, 256, 1, 128, 3, 3), 8, (8, 1, 8), "disjoint"),
    (TOY, (3, 8, 128, 2, 128, 2, 3), 8, (1, 1, 1), "uniform"),
    (SIGMOID, (3, 4, 128, 2, 128, 2, 3), 8, (1, 8, 3), "uniform"),
    (SIGMOID, (6, 4, 128, 2, 128, 3, 4), 16, (8, 16, 1), "zipf"),
    (SIGMOID, (4, 2, 128, 4, 128, 3, 2), 8, (3, 3, 3), "ties"),
    (GROUPS, (4, 4, 128, 2, 128, 4, 2), 8, (1, 3, 1), "uniform"),
    (GROUPS, (3, 2, 256, 2, 128, 2, 2), 8, (3, 1, 3), "disjoint"),
    (GROUPS, (8, 8, 256, 8, 128, 2, 3), 8, (3, 8, 1), "same"),
    (PLAIN, (4, 4, 256, 4, 128, 2, 2), 8, (1, 8, 1), "uniform"),
    (PLAIN, (5, 8, 128, 2, 128, 4, 3), 16, (3, 16, 1), "zipf"),
    (PLAIN, (3, 2, 128, 1, 128, 2, 4), 8, (3, 3, 3), "ties"),
    (BIASED, (3, 2, 256, 2, 128, 2, 2), 8, (1, 5, 1), "uniform"),
    (BIASED, (6, 8, 128, 4, 128, 3, 2), 8, (1, 3, 1), "disjoint"),
    (WIDE, (4, 4, 128, 2, 128, 3, 2), 8, (3, 8, 1), "same"),
    (TALL, (4, 4, 128, 4, 128, 2, 3), 8, (8, 1, 3), "uniform"),
    (WIDE, (3, 4, 256, 2, 256, 2, 3), 8, (3, 8, 3), "zipf"),
    (CLAMPED, (4, 4, 256, 2, 128, 2, 2), 8, (3, 8, 1), "uniform"),
    (SHARED, (4, 4, 256, 2, 128, 2, 2), 8, (1, 3, 8), "uniform"),
    (SHARED, (3, 2, 128, 1, 128, 2, 3), 16, (16, 8, 1), "same"),
    (SHARED, (5, 2, 128, 2, 128, 2, 3), 24, (23, 17, 1), "zipf"),
    (NINE, (4, 4, 256, 2, 128, 2, 2), 8, (3, 8, 1), "uniform"),
    (FOUR_SLOTS, (2, 18, 128, 2, 128, 2, 2), 16, (9, 1, 3), "uniform"),
    (TWO_SLOTS, (3, 20, 128, 1, 128, 2, 2), 8, (8, 3, 8), "same"),
    (TWO_SLOTS, (2, 20, 128, 2, 128, 2, 2), 8, (3, 1), "uniform"),
    (PAIR, (3, 4, 128, 1, 128, 2, 3), 32, (32, 27, 9), "uniform"),
    (GATED, (6, 4, 128, 2, 128, 3, 4), 8, (3, 8, 1), "uniform"),
    (GATED, (4, 2, 256, 4, 128, 2, 2), 8, (8, 1, 3), "zipf"),
    (GATED_PLAIN, (4, 4, 256, 4, 128, 2, 2), 8, (1, 8, 3), "disjoint"),
    (GELU, (5, 2, 128, 2, 128, 2, 3), 8, (8, 3, 8), "zipf"),
    (TOY, (6, 2, 128, 2, 128, 2, 3), 8, (8, 3, 1), "zipf"),
    (SIGMOID, (10, 4, 128, 4, 128, 2, 3), 16, (16, 1, 9), "uniform"),  # a pair without a part
    (DENSE.shape, (3, 4, 256, 2, 128, 2, 2), 16, (13, 3, 16), "same"),
    (DENSE.shape, (4, 4, 256, 2, 128, 2, 2), 24, (23, 3), "same"),
    (BLOCK.shape, (4, 8, 2048, 4, 128, 2, 2), 8, (3, 8, 1), "uniform"),
]  # fmt: skip

# Raw weights: one and several tiles a stripe, rows in one piece and in several, stages that cross
# the end of the ring, several experts in a down stage.
RAW_CASES = [
    (TOY, (4, 4, 256, 4, 128, 2, 2), 8, (3, 1, 8), "uniform"),
    (TOY, (8, 16, 256, 8, 128, 4, 2), 8, (3, 8, 1), "uniform"),
    (TOY, (7, 16, 128, 4, 128, 5, 3), 8, (1, 8, 3), "zipf"),
    (TOY, (3, 4, 128, 1, 128, 8, 3), 8, (3, 8, 1), "disjoint"),
    (TOY, (5, 2, 256, 4, 128, 2, 3), 16, (16, 3, 8), "ties"),
    (GROUPS, (3, 2, 256, 2, 128, 2, 2), 8, (3, 1, 8), "same"),
    (GATED, (4, 4, 256, 4, 128, 2, 2), 8, (3, 1, 8), "uniform"),
    (WIDE, (4, 4, 128, 2, 128, 3, 2), 8, (3, 8, 1), "uniform"),
    (WIDE, (8, 8, 256, 8, 256, 3, 4), 8, (1, 3, 8), "zipf"),
    (TALL, (4, 4, 128, 4, 128, 2, 3), 8, (8, 1, 3), "uniform"),
    (TALL, (8, 16, 256, 8, 128, 4, 3), 8, (3, 8, 1), "disjoint"),
    (ODD, (6, 4, 384, 6, 128, 3, 5), 8, (3, 8, 1), "uniform"),  # the ring ends within a row
]  # fmt: skip

# Every token tile; the input fits shared memory. One share of it for some warps and several, one
# down group and three.
TILE_CASES = [
    (TOY, (4, 4, 128, 2, 128, 3, 4), 16, (16, 3, 16), "uniform"),
    (SIGMOID, (5, 2, 256, 4, 128, 2, 3), 24, (24, 16, 24), "zipf"),
    (TOY, (6, 4, 128, 2, 128, 3, 4), 32, (16, 32, 1), "ties"),
    (TALL, (3, 4, 128, 1, 128, 4, 4), 32, (32, 16, 32), "uniform"),
    (FIVE, (6, 4, 640, 5, 128, 2, 2), 32, (32, 31), "uniform"),  # parts of three and two blocks
]  # fmt: skip

# What is requested ahead of the list: of one to four experts of the first token, and of none where
# the first units are of more of them. Leads of one turn and of several; scores that are equal; few
# and many experts in a lane's mask.
LEAD_CASES = [
    (SINGLE, (4, 2, 128, 2, 128, 2, 3), 8, (1, 8, 3), "uniform"),
    (TOY, (6, 1, 128, 2, 128, 2, 2), 8, (1, 8, 2), "ties"),
    (THREE, (6, 2, 128, 2, 128, 2, 3), 16, (16, 1, 10), "same"),
    (THREE, (5, 2, 256, 2, 128, 2, 2), 8, (3, 1, 8), "ties"),
    (EIGHT, (8, 2, 128, 4, 128, 2, 2), 8, (1, 3, 1), "uniform"),
    (EIGHT, (6, 1, 128, 1, 128, 2, 2), 24, (2, 17), "ties"),
    (MOST, (5, 1, 128, 1, 128, 2, 2), 32, (27, 1), "same"),
]  # fmt: skip

# The input does not fit.
BROAD_CASE = (BROAD, (9, 4, 384, 9, 128, 2, 2), 32, (32, 3), "uniform")


# The router inside: fewer and more experts than twice the CTAs, one and several tiles of tokens,
# rows that end within a round of columns; ties, bf16 logits, biases, groups.
ROUTER_CASES = [
    (TOY, (4, 4, 256, 4, 128, 2, 2), 8, (3, 1, 8), "uniform"),
    (TOY, (8, 8, 128, 2, 128, 3, 5), 16, (16, 9, 1), "ties"),
    (PLAIN, (3, 2, 128, 1, 128, 2, 4), 8, (3, 8, 3), "ties"),
    (GROUPS, (8, 8, 256, 8, 128, 2, 3), 8, (3, 8, 1), "uniform"),
    (BIASED, (6, 8, 128, 4, 128, 3, 2), 8, (1, 3, 1), "uniform"),
    (ODD, (6, 4, 384, 6, 128, 3, 5), 16, (3, 9, 1), "uniform"),
    (THREE, (6, 2, 128, 2, 128, 2, 3), 16, (1, 9, 1), "ties"),
    (EIGHT, (7, 2, 128, 4, 128, 2, 2), 8, (1, 3, 1), "uniform"),
    (SIGMOID, (4, 4, 128, 2, 128, 3, 4), 8, (8, 1, 3), "zipf"),
]  # fmt: skip
LONG = replace(TOY, name="toy-long", hidden=4352, experts=20)  # columns of three rounds

# Activations that stay bf16, in shared memory and not.
BF16_CASES = [
    (BF16, (4, 4, 256, 4, 128, 2, 2), 8, (1, 3, 8), "uniform", "packed"),
    (BF16, (5, 2, 128, 4, 128, 3, 2), 8, (8, 1, 3), "zipf", "packed"),
    (BF16, (4, 4, 256, 4, 128, 2, 2), 8, (1, 3, 8), "uniform", "raw"),
    (BF16, (8, 8, 128, 2, 128, 3, 5), 8, (3, 8, 1), "disjoint", "raw"),
    (BF16_WIDE, (4, 4, 128, 2, 128, 3, 2), 16, (1, 16, 3), "same", "packed"),
    (BF16_LONG, (4, 16, 1024, 4, 128, 2, 2), 32, (3, 11), "uniform", "packed"),
]

needs_compiler = pytest.mark.skipif(not host_build.has_compiler(), reason="needs g++")


def half(index: int) -> list[Run]:
    """Every other policy, other ones for the next index: what a variant of the kernel runs under.

    All of them where there are more seeds.
    """
    runs = plan(SEEDS * len(POLICIES))
    return runs if SEEDS > 1 else runs[index % 2 :: 2]


def case_id(case: tuple) -> str:
    shape, schedule, tile, tokens, routing = case
    return f"{shape.name}-t{tile}-{Schedule(*schedule).id}-{'.'.join(map(str, tokens))}-{routing}"


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_the_kernel_is_right_under_every_scheduler(case: tuple) -> None:
    shape, schedule, tile, tokens, routing = case
    program = host_build.build(KernelSpec(shape, Schedule(*schedule), tile))
    problem = make_problem(shape, tokens, routing)
    for outcome in simulate.simulate(program, problem, plan(SEEDS * len(POLICIES))):
        assert outcome.ok, f"{outcome.run}\n" + "\n".join(map(str, outcome.findings))


@needs_compiler
@pytest.mark.parametrize("case", RAW_CASES, ids=case_id)
def test_raw_weights_give_the_same_layer(case: tuple) -> None:
    shape, schedule, tile, tokens, routing = case
    program = host_build.build(KernelSpec(shape, Schedule(*schedule), tile, "raw"))
    problem = make_problem(shape, tokens, routing, layout="raw")
    for outcome in simulate.simulate(program, problem, half(RAW_CASES.index(case))):
        assert outcome.ok, f"{outcome.run}\n" + "\n".join(map(str, outcome.findings))


@needs_compiler
@pytest.mark.parametrize(
    "build",
    [host_build.build, build_unshared, build_parts],
    ids=["shared", "unshared", "in parts"],
)
@pytest.mark.parametrize("case", TILE_CASES, ids=case_id)
def test_every_token_tile_is_right_wherever_the_input_lies(case: tuple, build: Builder) -> None:
    shape, schedule, tile, tokens, routing = case
    spec = KernelSpec(shape, Schedule(*schedule), tile)
    assert spec.geometry.x_in_shared
    problem = make_problem(shape, tokens, routing)
    runs = half(TILE_CASES.index(case) + (build is not host_build.build))
    for outcome in simulate.simulate(build(spec), problem, runs):
        assert outcome.ok, f"{outcome.run}\n" + "\n".join(map(str, outcome.findings))


@needs_compiler
@pytest.mark.parametrize("case", LEAD_CASES, ids=case_id)
def test_the_list_begins_with_the_best_of_the_first_token(case: tuple) -> None:
    shape, schedule, tile, tokens, routing = case
    program = host_build.build(KernelSpec(shape, Schedule(*schedule), tile))
    problem = make_problem(shape, tokens, routing)
    for outcome in simulate.simulate(program, problem, half(LEAD_CASES.index(case))):
        assert outcome.ok, f"{outcome.run}\n" + "\n".join(map(str, outcome.findings))


@needs_compiler
@pytest.mark.parametrize("shape", [THREE, GROUPS, BIASED], ids=lambda shape: shape.name)
def test_leads_of_scores_that_are_no_numbers(shape: Shape) -> None:
    spec = KernelSpec(shape, Schedule(6, 2, 128, 2, 128, 2, 3))
    assert spec.geometry.leads == 3
    problem = make_problem(shape, (1, 2, 3, 2), "uniform")
    logits = {launch: tensor for name, launch, tensor in problem.inputs if name == "logits"}
    logits[0][0] = 0.5
    logits[1][0] = torch.nan
    logits[2][0] = -torch.inf
    logits[2][0, 5::7] = torch.nan
    logits[3][0, ::2] = -torch.inf
    logits[3][0, 1::2] = torch.inf
    runs = [Run("round_robin", 0), Run("starve_requant", 0), Run("starve_producer", 0)]
    for outcome in simulate.simulate(host_build.build(spec), problem, runs):
        assert outcome.ok, f"{outcome.run}\n" + "\n".join(map(str, outcome.findings))


def test_lead_cases_take_every_path() -> None:
    plans = [KernelSpec(case[0], Schedule(*case[1]), case[2]).geometry for case in LEAD_CASES]
    assert {geometry.leads for geometry in plans} == {1, 2, 3, 4}
    first_units = [-(-g.schedule.grid // g.schedule.g_up) for g in plans]
    late = [units > g.leads for units, g in zip(first_units, plans, strict=True)]
    assert set(late) == {False, True}
    assert {geometry.lane_mask_bytes for geometry in plans} == {2, 4}
    assert {geometry.token_tiles for geometry in plans} == {1, 2, 3, 4}
    inside = [KernelSpec(case[0], Schedule(*case[1]), case[2]).geometry for case in ROUTER_CASES]
    assert {geometry.leads for geometry in inside} == {1, 2, 3, 4}


@needs_compiler
@pytest.mark.parametrize("pdl", [False, True], ids=["", "pdl"])
@pytest.mark.parametrize("case", ROUTER_CASES, ids=case_id)
def test_a_kernel_with_the_router_inside_is_right(case: tuple, pdl: bool) -> None:
    shape, schedule, tile, tokens, routing = case
    spec = KernelSpec(shape, Schedule(*schedule), tile, router="weight", pdl=pdl)
    problem = make_problem(shape, tokens, routing, router="weight")
    runs = half(ROUTER_CASES.index(case)) if not pdl else [Run("mixed", 0)]
    for outcome in simulate.simulate(host_build.build(spec), problem, runs):
        assert outcome.ok, f"{outcome.run}\n" + "\n".join(map(str, outcome.findings))


@needs_compiler
def test_an_input_that_does_not_fit_stays_in_the_workspace() -> None:
    shape, schedule, tile, tokens, routing = BROAD_CASE
    spec = KernelSpec(shape, Schedule(*schedule), tile)
    assert not spec.geometry.x_in_shared
    program, problem = host_build.build(spec), make_problem(shape, tokens, routing)
    (outcome,) = simulate.simulate(program, problem, [Run("mixed", 0)])
    assert outcome.ok, "\n".join(map(str, outcome.findings))


@needs_compiler
def test_a_router_of_several_rounds_is_right() -> None:
    spec = KernelSpec(LONG, Schedule(8, 4, 128, 8, 128, 2, 4), 16, router="weight")
    problem = make_problem(LONG, (10,), "uniform", router="weight")
    (outcome,) = simulate.simulate(host_build.build(spec), problem, [Run("random", 0)])
    assert outcome.ok, "\n".join(map(str, outcome.findings))


@needs_compiler
def test_a_kernel_that_waits_for_the_one_ahead_is_right() -> None:
    program = host_build.build(KernelSpec(GROUPS, Schedule(4, 4, 128, 2, 128, 4, 2), pdl=True))
    problem = make_problem(GROUPS, (1, 3, 8), "uniform")
    for outcome in simulate.simulate(program, problem, plan(len(POLICIES))):
        assert outcome.ok, f"{outcome.run}\n" + "\n".join(map(str, outcome.findings))


@needs_compiler
@pytest.mark.parametrize("case", BF16_CASES, ids=lambda case: f"{case_id(case[:5])}-{case[5]}")
def test_bf16_activations_are_right_under_every_scheduler(case: tuple) -> None:
    shape, schedule, tile, tokens, routing, layout = case
    program = host_build.build(KernelSpec(shape, Schedule(*schedule), tile, layout))
    problem = make_problem(shape, tokens, routing, layout=layout)
    for outcome in simulate.simulate(program, problem, half(BF16_CASES.index(case))):
        assert outcome.ok, f"{outcome.run}\n" + "\n".join(map(str, outcome.findings))


def test_bf16_input_lies_in_shared_memory_or_not() -> None:
    plans = [KernelSpec(case[0], Schedule(*case[1]), case[2]).geometry for case in BF16_CASES]
    assert {geometry.x_in_shared for geometry in plans} == {False, True}


def test_down_groups_are_paired_or_not() -> None:
    plans = [KernelSpec(case[0], Schedule(*case[1]), case[2]).geometry for case in CASES]
    found = {(geometry.down_groups, geometry.cluster_ctas) for geometry in plans}
    assert {(1, 1), (2, 1), (2, 2), (3, 1), (4, 1)} <= found
    pairs = [g for g in plans if g.cluster_ctas > 1]
    assert {g.schedule.grid > 2 * g.schedule.g_down for g in pairs} == {False, True}
    for cases in (RAW_CASES, TILE_CASES, LEAD_CASES, ROUTER_CASES, BF16_CASES):
        geometries = [KernelSpec(c[0], Schedule(*c[1]), c[2]).geometry for c in cases]
        assert {geometry.cluster_ctas for geometry in geometries} == {1, 2}


def test_rows_of_a_requant_warp_are_noted_in_one_turn_or_several() -> None:
    plans = [KernelSpec(case[0], Schedule(*case[1]), case[2]).geometry for case in CASES]
    assert {geometry.slot_warps for geometry in plans} == {2, 4, 8}
    several = set()  # whether they are, and whether all requant warps share a slot
    for geometry, (shape, _, _, tokens, routing) in zip(plans, CASES, strict=True):
        if routing == "same":
            turns = shape.top_k * -(-max(tokens) // COLUMNS)
            experts = turns / geometry.down_groups  # of a CTA; 32 are noted at a time
            several.add((experts > 32, geometry.slot_warps == geometry.requant_warps))
    assert several == set(itertools.product((False, True), repeat=2))


def test_scales_of_up_units_take_every_path() -> None:
    every = [KernelSpec(case[0], Schedule(*case[1]), case[2]).geometry for case in CASES]
    whole = [g for g in every if g.accumulators_up * g.mma_warps < g.stage_blocks_up]
    assert any(g.tiles_up > 1 for g in whole)  # scales that several blocks share
    assert {g.stages_per_unit_up > 2 for g in every} == {False, True}
    cycles = [g.unit_columns // g.stages_per_unit_up for g in every]
    blocks = [-(-g.stage_blocks_up // g.mma_warps) for g in every]
    assert {cycle < n for cycle, n in zip(cycles, blocks, strict=True)} == {False, True}
    shape, schedule, tile, *_ = BROAD_CASE
    assert KernelSpec(shape, Schedule(*schedule), tile).geometry.unit_columns > 16  # by 32 lanes


def test_raw_cases_take_every_path() -> None:
    plans = [KernelSpec(case[0], Schedule(*case[1]), case[2]).geometry for case in RAW_CASES]
    for value_of in (
        lambda g: g.tiles_up > 1,
        lambda g: g.stages_per_unit_up > 1,
        lambda g: g.stages_per_expert_down > 1,
        lambda g: g.experts_per_stage_down > 1,
        lambda g: g.stage_bytes_up != g.stage_bytes_down,
    ):
        assert {value_of(geometry) for geometry in plans} == {False, True}


@needs_compiler
def test_a_kernel_of_the_other_layout_is_wrong() -> None:
    program = host_build.build(KernelSpec(TOY, Schedule(4, 4, 256, 4, 128, 2, 2), layout="raw"))
    problem = make_problem(TOY, (3,), "uniform", layout="packed")
    (outcome,) = simulate.simulate(program, problem, [Run("round_robin", 0)])
    assert {finding.kind for finding in outcome.findings} == {"wrong_numbers"}


def test_there_are_500_pairs_of_kernel_and_scheduler() -> None:
    variants = [*RAW_CASES, *TILE_CASES, *TILE_CASES, *LEAD_CASES, *ROUTER_CASES, *BF16_CASES]
    pairs = len(CASES) * len(POLICIES) * SEEDS + len(variants) * min(len(half(0)), len(half(1)))
    assert pairs >= 500
    assert {case[-1] for case in CASES} == set(ROUTINGS)


def test_cases_break_no_rule_but_those_of_speed() -> None:
    cases = [*CASES, *RAW_CASES, *TILE_CASES, *LEAD_CASES, *ROUTER_CASES, *BF16_CASES]
    every = [*cases, BROAD_CASE]
    for shape, schedule, tile, *_ in every:
        broken = violations(shape, Schedule(*schedule), KNOWN[DEFAULT], tile)
        assert {v.rule.name for v in broken} <= set(host_build.PERFORMANCE_RULES)


# -- what a finding says


def find(name: str, folder: Path) -> tuple[str, list[simulate.Finding]]:
    mutant = next(m for m in MUTANTS if m.name == name)
    program = mutant.build(folder)
    spec = mutant.spec
    problem = make_problem(
        spec.shape, mutant.tokens, mutant.routing, layout=spec.layout, router=spec.router
    )
    runs = [Run("round_robin", 0)]
    (outcome,) = simulate.simulate(program, problem, runs, mutant.resident, wait_limit_ms=7)
    return "\n".join(map(str, outcome.findings)), list(outcome.findings)


@needs_compiler
def test_a_deadlock_says_who_waits_for_what(tmp_path: Path) -> None:
    text, findings = find("requantized h is never announced", tmp_path)
    assert findings[0].kind == "deadlock"
    assert re.search(
        r"CTA 0, mma \(warps 0-7, all lanes\): waits for a phase of parity 0 of CTA 0: "
        r"h_full\[\d\] .* at ops/down_proj.cuh:\d+ \(down_project\); complete are phases up to -1, "
        r"phase 0 \(parity 0\) lacks (\d) of \1 arrivals and 0 bytes; traps after 7 ms",
        text,
    ), text


@needs_compiler
def test_a_deadlock_says_who_has_not_arrived_in_a_cluster(tmp_path: Path) -> None:
    text, _ = find("the producer does not arrive in its cluster", tmp_path)
    assert re.search(
        r"CTA 1, mma \(warps 0-7, all lanes\): waits at ops/combine.cuh:\d+ \(combine\) for its "
        r"cluster, of which 1152 of 1216 threads have arrived\n",
        text,
    ), text
    assert "a thread of a cluster ends without having arrived" in text


@needs_compiler
def test_a_grid_that_is_not_resident_waits_for_an_sm(tmp_path: Path) -> None:
    text, _ = find("the grid is larger than what can be resident", tmp_path)
    assert "waits for an SM" in text
    assert re.search(r"polls workspace half 0 .* at ops/\w+.cuh:\d+.*; traps after 7 ms", text)


@needs_compiler
def test_a_race_names_both_sites_and_the_data(tmp_path: Path) -> None:
    _, findings = find("partials are announced before every lane has written them", tmp_path)
    races = [f for f in findings if f.kind == "race"]
    assert any(
        re.match(r"read by CTA \d, epilogue .* at ops/product.cuh:\d+ \(sum_contr", f.here)
        and re.match(r"write by CTA \d, mma .* at ops/product.cuh:\d+ \(store_part", f.there)
        and re.match(r"CTA \d: up\[\d\]\[\d\]\[\d\]\[\d\] \+ \d+ or down\[", f.where)
        for f in races
    ), races


@needs_compiler
def test_a_crash_ends_a_run_and_not_the_next(tmp_path: Path) -> None:
    mutant = replace(
        MUTANTS[0], file="ops/combine.cuh", old="    drain_partials(args, s, units);\n"
    )
    mutant = replace(mutant, new="    __builtin_trap();\n")
    program = mutant.build(tmp_path)
    problem = make_problem(mutant.spec.shape, (1,), "uniform")
    outcomes = list(simulate.simulate(program, problem, plan(3)))
    assert [f.kind for outcome in outcomes for f in outcome.findings] == ["crash"] * 3


@needs_compiler
def test_a_run_repeats_itself() -> None:
    program = host_build.build(KernelSpec(TOY, Schedule(4, 4, 256, 4, 128, 2, 2), 8))
    problem = make_problem(TOY, (3,), "uniform")
    runs = [Run("mixed", 5), Run("mixed", 6), Run("mixed", 5)]
    first, other, again = simulate.simulate(program, problem, runs)
    assert first.steps == again.steps != other.steps


@needs_compiler
def test_too_many_tokens_are_refused() -> None:
    program = host_build.build(KernelSpec(TOY, Schedule(4, 4, 256, 4, 128, 2, 2), 8))
    with pytest.raises(MonomoeError, match="token-tile"):
        list(simulate.simulate(program, make_problem(TOY, (9,), "uniform"), plan(1)))


@needs_compiler
def test_a_kernel_that_does_not_compile_is_reported(tmp_path: Path) -> None:
    mutant = replace(MUTANTS[0], new="#error no such thing")
    with pytest.raises(CompileError, match="no such thing"):
        mutant.build(tmp_path)


# -- the command


@needs_compiler
def test_the_command_prints_a_row_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = "grid=4,g_up=4,k_up=256,g_down=4,k_down=128,d_up=2,d_down=2"
    arguments = ["simulate", "--model", "toy", "--schedule", schedule, "--tokens", "1"]
    arguments += ["--seeds", "1", "--format", "csv"]
    assert run_cli([*arguments, "--policy", "random", "--policy", "late_cta"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "policy,runs,ok,steps,seconds,kinds"
    assert [line.split(",")[:3] for line in lines[1:]] == [
        ["random", "1", "1"],
        ["late_cta", "1", "1"],
    ]
    assert run_cli([*arguments, "--resident", "3", "--policy", "random"]) == 6
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].endswith(",deadlock")
    assert "waits for an SM" in captured.err
    assert run_cli([*arguments, "--policy", "sideways"]) == 2
    assert run_cli([*arguments[:4], schedule.replace("g_down=4", "g_down=8")]) == 2


# -- the host versions of templates/device


def declarations(folder: Path) -> dict[str, list[str]]:
    """Per header: signatures, types and constants, without template specialisations."""
    found = {}
    for path in sorted(folder.glob("*.cuh")):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        text = re.sub(r"template <>\s*\w[^{]*", "", text)
        functions = re.findall(r"MONOMOE_DEVICE (\w[^{;]*\)(?: const)?) \{", text)
        names = re.findall(
            r"^(?:using (\w+)|struct (?:alignas\(\d+\) )?(\w+)|constexpr (\w+ \w+ = [^;]+))",
            text,
            re.M,
        )
        found[path.name] = sorted(
            [" ".join(f.split()) for f in functions] + ["".join(n) for n in names]
        )
    return found  # fmt: skip


def test_both_sides_declare_the_same() -> None:
    assert declarations(TEMPLATES / "host" / "device") == declarations(TEMPLATES / "device")


@pytest.fixture(scope="module")
def numeric(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The simulator's arithmetic as a library."""
    if not host_build.has_compiler():
        pytest.skip("needs g++")
    path = tmp_path_factory.mktemp("numeric") / "numeric.so"
    unit = TEMPLATES / "host" / "simulator" / "numeric.cpp"
    command = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", f"-I{TEMPLATES / 'host'}"]
    subprocess.run([*command, str(unit), "-o", str(path)], check=True)
    library = ctypes.CDLL(str(path))
    library._ZN3sim15e4m3_from_floatEf.argtypes = [ctypes.c_float]
    library._ZN3sim15bf16_from_floatEf.argtypes = [ctypes.c_float]
    library._ZN3sim15bf16_from_floatEf.restype = ctypes.c_uint16
    return library


def neighbours(values: torch.Tensor) -> torch.Tensor:
    """The values, the halves between them, and the floats next to each, of both signs."""
    points = torch.cat([values, (values[1:] + values[:-1]) / 2])
    infinity = torch.full_like(points, torch.inf)
    points = torch.cat([points, points.nextafter(infinity), points.nextafter(-infinity)])
    return torch.cat([points, -points])


def test_e4m3_rounds_halves_to_even(numeric: ctypes.CDLL) -> None:
    codes = torch.arange(127, dtype=torch.uint8)
    points = neighbours(codes.view(torch.float8_e4m3fn).float())
    expected = points.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8).tolist()
    found = [numeric._ZN3sim15e4m3_from_floatEf(v) for v in points.tolist()]
    assert found == expected
    for value, code in ((1e9, 0x7E), (-1e9, 0xFE), (float("inf"), 0x7E), (464.0, 0x7E)):
        assert numeric._ZN3sim15e4m3_from_floatEf(value) == code
    assert numeric._ZN3sim15e4m3_from_floatEf(float("nan")) == 0x7F


def test_e4m3_becomes_fp16_exactly(numeric: ctypes.CDLL) -> None:
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    expected = codes.view(torch.float8_e4m3fn).to(torch.float16)
    found = [numeric._ZN3sim14half_from_e4m3Ej(code) for code in range(256)]
    halves = torch.tensor(found, dtype=torch.int32).to(torch.int16).view(torch.float16)
    assert torch.equal(halves.isnan(), expected.isnan())
    numbers = ~expected.isnan()
    assert torch.equal(halves[numbers].view(torch.int16), expected[numbers].view(torch.int16))


def test_bf16_rounds_halves_to_even(numeric: ctypes.CDLL) -> None:
    bits = torch.arange(0, 0x7F80, 37, dtype=torch.int32)
    points = neighbours((bits << 16).view(torch.float32))
    expected = (points.bfloat16().view(torch.int16).int() & 0xFFFF).tolist()
    assert [numeric._ZN3sim15bf16_from_floatEf(v) for v in points.tolist()] == expected


def test_the_product_follows_the_fragment_layout(numeric: ctypes.CDLL) -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(16, 16, generator=generator).half()
    right = torch.randn(16, 8, generator=generator).half()
    start = torch.randn(16, 8, generator=generator)
    a = torch.empty(32, 4, 2, dtype=torch.float16)
    b = torch.empty(32, 2, 2, dtype=torch.float16)
    d = torch.empty(32, 4)
    for g, q in itertools.product(range(8), range(4)):
        lane, pair = 4 * g + q, slice(2 * q, 2 * q + 2)
        high = slice(2 * q + 8, 2 * q + 10)
        a[lane] = torch.stack([left[g, pair], left[g + 8, pair], left[g, high], left[g + 8, high]])
        b[lane] = torch.stack([right[pair, g], right[high, g]])
        d[lane] = torch.cat([start[g, pair], start[g + 8, pair]])
    call = numeric._ZN3sim18multiply_fragmentsEPA4_fPA4_KjPA2_S2_
    call(*(ctypes.c_void_p(t.data_ptr()) for t in (d, a, b)))
    exact = (start.double() + left.double() @ right.double()).float()
    for g, q in itertools.product(range(8), range(4)):
        pair = slice(2 * q, 2 * q + 2)
        assert torch.equal(d[4 * g + q], torch.cat([exact[g, pair], exact[g + 8, pair]]))
