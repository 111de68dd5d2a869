"""A schedule for shapes that nobody has tuned: the one that the cost model predicts fastest."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from monomoe_gen.cost import ranked
from monomoe_gen.device import Device
from monomoe_gen.errors import MonomoeError
from monomoe_gen.pipeline import usable_cpus
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import Shape
from monomoe_gen.space import feasible
from monomoe_gen.variant import USUAL, Variant


def favourite(
    shape: Shape, device: Device, tokens: int, token_tile: int, variant: Variant = USUAL
) -> KernelSpec:
    """The kernel predicted fastest of all that the rules allow.

    Raises:
        MonomoeError: they allow none.
    """
    specs = [variant.spec(shape, s, token_tile) for s in feasible(shape, device, token_tile)]
    if not specs:
        raise MonomoeError(
            f"no schedule of {shape.name} for {token_tile} tokens is feasible on {device.name}; "
            f"`monomoe-gen space --model {shape.name}` says what each rule removes"
        )
    return ranked(specs, tokens)[0][0]


def favourites(
    shapes: Sequence[Shape], device: Device, tokens: int, token_tile: int, variant: Variant = USUAL
) -> Mapping[str, KernelSpec]:
    """`favourite` of every shape, by name; several are found at the same time.

    Raises:
        MonomoeError: as `favourite`.
    """
    find = partial(favourite, device=device, tokens=tokens, token_tile=token_tile, variant=variant)
    workers = min(len(shapes), usable_cpus())
    if workers < 2:
        return {shape.name: find(shape) for shape in shapes}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        found = list(pool.map(find, shapes))
    return {spec.shape.name: spec for spec in found}
