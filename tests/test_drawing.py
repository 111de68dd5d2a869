"""A schedule rehearsed on paper: all the work once, within the ring, in the right order."""

import itertools
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest

from monomoe_gen import cli, dispatch
from monomoe_gen.cost import H200, MAX_OUTSTANDING, estimate
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.drawing import drawing_svg
from monomoe_gen.rehearsal import Rehearsal, rehearse
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible

SHAPE = load_shape("qwen3.5-35b")
PAPER = Schedule(grid=128, g_up=8, k_up=256, g_down=8, k_down=256, d_up=4, d_down=2)
PAIRED = Schedule(grid=132, g_up=64, k_up=1024, g_down=128, k_down=512, d_up=4, d_down=8)
SPECS = [KernelSpec(SHAPE, schedule) for schedule in (PAPER, PAIRED)]
SPECS += [KernelSpec(SHAPE, s) for s in feasible(SHAPE, KNOWN[DEFAULT])[:: 1896 // 4]]


@pytest.fixture(scope="module", params=SPECS, ids=lambda spec: spec.schedule.id)
def rehearsal(request: pytest.FixtureRequest) -> Rehearsal:
    return rehearse(request.param, 4)


def test_all_the_work_is_done_once(rehearsal: Rehearsal) -> None:
    schedule, geometry = rehearsal.spec.schedule, rehearsal.spec.geometry
    found = Counter(
        (stage.up, expert, stage.stripe, stage.part)
        for stages in rehearsal.ctas
        for stage in stages
        for expert in stage.experts
    )
    expected = {
        (up, expert, stripe, part)
        for up, stripes, parts in (
            (True, schedule.g_up, geometry.stages_per_unit_up),
            (False, schedule.g_down, geometry.stages_per_expert_down),
        )
        for expert in range(rehearsal.active)
        for stripe in range(stripes)
        for part in range(parts)
    }
    assert set(found) == expected and set(found.values()) == {1}
    streamed = sum(stage.bytes for stages in rehearsal.ctas for stage in stages)
    assert streamed == rehearsal.active * SHAPE.expert_bytes


def test_the_ring_is_never_too_full(rehearsal: Rehearsal) -> None:
    geometry = rehearsal.spec.geometry
    for cta, stages in enumerate(rehearsal.ctas):
        assert all(held <= geometry.ring_bytes for _, held in rehearsal.ring_bytes(cta))
        for stage in stages:
            now = stage.requested
            flying = [s for s in stages if s.requested <= now < s.landed]
            largest = max(geometry.stage_bytes_up, geometry.stage_bytes_down)
            assert sum(s.bytes for s in flying) <= max(MAX_OUTSTANDING, largest)


def test_things_happen_in_order(rehearsal: Rehearsal) -> None:
    for stages in rehearsal.ctas:
        assert all(s.requested < s.landed <= s.started < s.done for s in stages)
        assert all(a.done <= b.started for a, b in itertools.pairwise(stages))
        for stage in stages:
            if not stage.up:
                assert stage.started >= max(rehearsal.h_complete[e] for e in stage.experts)


def test_it_comes_near_the_measured_times() -> None:
    """Of the dispatched kernels of up to 8 tokens, for which the cost model is calibrated."""
    table = dispatch.load(dispatch.table_folder())
    entries = [entry for entry in table.entries if entry.tuned_at <= 8]
    assert entries
    for entry in entries:
        spec = table.kernel(entry).spec
        us = rehearse(spec, entry.tuned_at).us + H200.start_us
        us += estimate(spec, entry.tuned_at).finish_us
        assert us == pytest.approx(entry.time_us, rel=0.15), entry.kernel


def test_the_drawing_is_svg_with_a_box_a_stage(rehearsal: Rehearsal) -> None:
    root = ET.fromstring(drawing_svg(rehearsal))
    boxes = root.findall("{http://www.w3.org/2000/svg}rect")
    stages = sum(map(len, rehearsal.ctas))
    assert sum("hsl" in box.get("fill", "") for box in boxes) == stages
    last = max((s for s in rehearsal.ctas if s), key=lambda s: s[-1].done)
    multiplied = [box for box in boxes if box.get("class") == "mul"]
    assert len(multiplied) == len(last) + 1, "the legend has one too"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedule = ",".join(f"{name}={value}" for name, value in PAPER.to_dict().items())
    arguments = ["draw", "--model", SHAPE.name, "--schedule", schedule, "--tokens", "2"]
    assert cli.run(arguments) == 0
    assert capsys.readouterr().out.startswith("<svg")
    assert cli.run([*arguments, "-o", str(tmp_path / "x.svg"), "--cta", "3"]) == 0
    assert "CTA 3, a row a stage" in (tmp_path / "x.svg").read_text()
    assert cli.run(["draw", "--model", SHAPE.name]) == 0, "the dispatched kernel"
