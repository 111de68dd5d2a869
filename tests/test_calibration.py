"""What a calibration has time for."""

import itertools
import time
from pathlib import Path

import pytest
from gate_worker import Gpu, image

from monomoe_gen import calibration, gate, jobs
from monomoe_gen.candidates import CellId, Pair, Side
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible

SHAPE = load_shape("qwen3.5-35b")
DEVICE = KNOWN[DEFAULT]
SPEC = KernelSpec(SHAPE, feasible(SHAPE, DEVICE)[0])
TIMES = {1: ("a", 10.0), 2: ("b", 16.0), 4: ("b", 27.0), 8: ("c", 46.0), 16: ("d", 85.0)}


def pairs() -> list[Pair]:
    return [
        Pair(
            CellId(SHAPE.name, tokens, "uniform"),
            Side(SPEC, image(kernel, kernel.encode()), kernel * 64, "nvrtc"),
            None,
            None,
            "none",
        )
        for tokens, (kernel, _) in TIMES.items()
    ]


def chosen(budget_s: float, processes: int = 8) -> list[int]:
    times = {pair.cell: TIMES[pair.cell.tokens][1] for pair in pairs()}
    found = calibration.choose(pairs(), times, 2, processes, budget_s)
    return [pair.cell.tokens for pair in found]


def test_every_kernel_comes_once_before_any_comes_again() -> None:
    assert chosen(1) == [1], "one at least"
    assert chosen(1e6) == [1, 2, 4, 8, 16]
    everything = [chosen(budget) for budget in range(10, 200, 2)]
    assert all(len(a) <= len(b) for a, b in itertools.pairwise(everything))
    assert [1, 2, 8, 16] in everything
    assert [1, 2, 4, 8] not in everything


def test_what_is_chosen_fits() -> None:
    for budget in (60, 90, 120):
        seconds = calibration.PROCESS_S + sum(
            calibration.cell_seconds(TIMES[tokens][1], 2) for tokens in chosen(budget, 4)
        )
        assert 4 * seconds <= budget


@pytest.mark.parametrize(("left", "processes"), [(-1.0, 4), (1e6, 8)])
def test_a_deadline_ends_it_after_the_least_number_of_processes(
    left: float, processes: int, tmp_path: Path
) -> None:
    side = Side(SPEC, image("", b"a"), "0" * 64, "nvrtc")
    pair = Pair(CellId(SHAPE.name, 1, "uniform"), side, side, None, "paired")
    floors = jobs.Floors((image(),), image())
    found, _ = gate.compare(
        [pair],
        gate.Plan(8),
        floors,
        DEVICE,
        Gpu().sandbox(tmp_path),
        deadline=time.monotonic() + left,
    )
    assert {block.process for block in found[0]} == set(range(processes))
