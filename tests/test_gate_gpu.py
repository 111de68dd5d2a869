"""The gate on a GPU with the real worker: equal, slower, wrong and hanging kernels."""

import dataclasses
from pathlib import Path

import gate_evidence as study
import pytest

from monomoe_gen import candidates, cli, dispatch, gate, jobs
from monomoe_gen.candidates import CellId, Pair, Recorded, Side
from monomoe_gen.device import Device, current_device
from monomoe_gen.gate import Plan
from monomoe_gen.regress import Verdict
from monomoe_gen.render import Source, render

pytestmark = pytest.mark.gpu

SHORT = Plan(processes=3, cap=6, blocks=1)


@pytest.fixture(scope="module")
def device() -> Device:
    found = current_device()
    assert found
    return found


@pytest.fixture(scope="module")
def floors(device: Device) -> jobs.Floors:
    return jobs.compile_floors(device)


@pytest.fixture(scope="module")
def source(device: Device) -> Source:
    return render(dispatch.load(dispatch.table_folder(device.slug)).kernels[-1].spec)


def side(source: Source, device: Device) -> Side:
    return candidates.compiled(source, device)


def pair(new: Side, old: Side, tokens: int = 4) -> Pair:
    cell = CellId(old.spec.shape.name, tokens, "uniform")
    return Pair(cell, new, old, None, "paired")


def test_equal_kernels_and_a_slower_one(
    device: Device, floors: jobs.Floors, source: Source
) -> None:
    old = side(source, device)
    slow = side(study.waiting(source, 3000), device)  # 1.5 of some 7 us
    identical, moved = candidates.a_a_pairs([pair(old, old)], device)
    run = gate.check([*identical, *moved, pair(slow, old)], SHORT, floors, device)
    assert [r.verdict for r in run.cells] == [Verdict.OK, Verdict.OK, Verdict.REGRESSION]
    slower = run.cells[2].judgement
    assert slower and 0.05 < slower.effect < 0.4
    assert all(r.floor_us and r.time_us and r.time_us > r.floor_us for r in run.cells)


def test_wrong_and_hanging_kernels(device: Device, floors: jobs.Floors, source: Source) -> None:
    old = side(source, device)
    hangs = side(study.waiting(source, 10**15), device)
    silent = dataclasses.replace(
        old, image=dataclasses.replace(floors.empty, grid=1), sources_hash="0" * 64
    )
    run = gate.check([pair(silent, old), pair(hangs, old)], SHORT, floors, device)
    assert [r.verdict for r in run.cells] == [Verdict.WRONG, Verdict.WRONG]
    assert "timeout" in run.cells[1].message


def test_the_recorded_ratio_decides_without_a_baseline(
    device: Device, floors: jobs.Floors, source: Source
) -> None:
    new = side(source, device)
    (seen,) = gate.check([pair(new, new)], SHORT, floors, device, validate=False).cells
    assert seen.time_us and seen.floor_us
    ratio = seen.time_us / seen.floor_us
    pairs = [
        dataclasses.replace(
            pair(new, new), baseline=None, recorded=Recorded(recorded, None), method="floor"
        )
        for recorded in (ratio, ratio / 1.3)
    ]
    plan = dataclasses.replace(SHORT, delta=0.08)
    run = gate.check(pairs, plan, floors, device, validate=False)
    assert [r.verdict for r in run.cells] == [Verdict.OK, Verdict.REGRESSION]


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "check.md"
    arguments = ["--require-gpu", "--no-record", "--model", "qwen3.5-35b", "--tokens", "4"]
    arguments += ["--processes", "2", "--max-processes", "4", "--fail-on", "wrong,environment"]
    assert cli.run(["check", *arguments, "--write", str(out)]) == 0
    assert "1 cells on" in out.read_text()
