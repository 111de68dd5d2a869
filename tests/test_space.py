"""The search space: what is left of it is what no rule removes."""

from dataclasses import replace

import pytest

from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.rules import violations
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.space import feasible, first_feasible, nearest_legal, removal_counts

DEVICE = KNOWN[DEFAULT]
TOY = load_shape("toy")
TOO_WIDE = replace(TOY, name="wide", hidden=4096, intermediate=14336)


@pytest.mark.parametrize("token_tile", [8, 32])
@pytest.mark.parametrize("shape", [TOY, load_shape("qwen3.5-35b")], ids=lambda s: s.name)
def test_the_legal_schedules_are_those_that_no_rule_removes(shape: Shape, token_tile: int) -> None:
    legal = feasible(shape, DEVICE, token_tile)
    total, removed, survivors = removal_counts(shape, DEVICE, token_tile)
    assert len(legal) == len(set(legal)) == survivors == total - sum(removed.values()) > 0
    assert legal == sorted(legal) and legal[0] == first_feasible(shape, DEVICE, token_tile)
    assert not any(violations(shape, s, DEVICE, token_tile) for s in legal)


def test_a_shape_may_have_no_schedule() -> None:
    assert first_feasible(TOO_WIDE, DEVICE) is None and feasible(TOO_WIDE, DEVICE) == []


def test_where_rings_are_too_deep_the_nearest_has_fewer_stages_of_the_same_size() -> None:
    asked = Schedule.parse("g128-u32x1024x8-d64x256x5")
    assert nearest_legal(load_shape("glm-5.2-tp8"), asked, DEVICE) == asked
    found = nearest_legal(load_shape("glm-5.2-tp8-bf16"), asked, DEVICE)
    assert found == replace(asked, d_up=5, d_down=3)
