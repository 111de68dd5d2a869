"""Every rule with a static_assert twin: NVRTC refuses what the rule refuses, with its reason."""

from dataclasses import replace

import pytest

from monomoe_gen.compile import compile_source
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import CompileError
from monomoe_gen.render import render
from monomoe_gen.rules import RULES, Rule, violations
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape

DEVICE = KNOWN[DEFAULT]
SHAPE = load_shape("qwen3.5-35b")
GOOD = Schedule(grid=132, g_up=64, k_up=1024, g_down=128, k_down=512, d_up=4, d_down=4)
TWINS = [rule for rule in RULES if rule.cuda]

# For each rule a schedule (and a shape) that breaks it.
BROKEN = {
    "up_stripe_is_whole_mma_tiles": {"g_up": 128},
    "up_stripe_has_one_scale_row": {"g_up": 2, "k_up": 128},
    "up_stage_divides_hidden": {"k_up": 768},
    "down_stripe_is_whole_mma_tiles": {"g_down": 96},
    "down_stage_divides_intermediate": {"k_down": 384},
    "down_group_fits_grid": {"grid": 64},
    "down_scales_fit_one_warp": {"g_down": 1, "k_down": 128},
    "ring_has_two_stages": {"d_up": 1},
    "ring_covers_latency": {"d_up": 2, "d_down": 2},
    "ring_is_shared": {"d_up": 8, "d_down": 3},
    "up_stage_feeds_the_mma_warps": {"k_up": 512, "d_up": 8},
    "accumulators_fit_registers": {"g_down": 8, "d_up": 12, "d_down": 2},
}


def test_the_good_schedule_keeps_every_rule() -> None:
    assert not violations(SHAPE, GOOD, DEVICE)


def test_every_twin_has_a_schedule_that_breaks_it() -> None:
    assert list(BROKEN) == [rule.name for rule in TWINS]


@pytest.mark.parametrize("rule", TWINS, ids=lambda rule: rule.name)
def test_the_compiler_refuses_what_the_rule_refuses(rule: Rule) -> None:
    tile = 32 if rule.name == "accumulators_fit_registers" else 8
    schedule = replace(GOOD, **BROKEN[rule.name])
    assert rule.name in [v.rule.name for v in violations(SHAPE, schedule, DEVICE, tile)]
    with pytest.raises(CompileError) as refused:
        compile_source(render(KernelSpec(SHAPE, schedule, tile)))
    assert f"{rule.name}: {rule.reason}" in refused.value.log
