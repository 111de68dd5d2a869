"""What a shape without a tuned kernel is run with."""

from dataclasses import replace

import pytest

from monomoe_gen import untuned
from monomoe_gen.cost import estimate
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import MonomoeError
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible

DEVICE = KNOWN[DEFAULT]
TOY = load_shape("toy")


def test_the_favourite_is_predicted_fastest() -> None:
    found = untuned.favourite(TOY, DEVICE, 4, 8)
    predicted = [estimate(KernelSpec(TOY, s), 4).us for s in feasible(TOY, DEVICE)]
    assert estimate(found, 4).us == min(predicted)


def test_several_are_found_at_once() -> None:
    shapes = [TOY, replace(TOY, name="more", top_k=1)]
    found = untuned.favourites(shapes, DEVICE, 4, 8)
    assert found == {s.name: untuned.favourite(s, DEVICE, 4, 8) for s in shapes}


def test_a_device_without_room_is_an_error() -> None:
    with pytest.raises(MonomoeError, match="no schedule of toy for 8 tokens is feasible"):
        untuned.favourite(TOY, replace(DEVICE, shared_per_block=1024), 4, 8)
