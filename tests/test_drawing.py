"""A schedule rehearsed on paper: all the work once, within the ring, in the right order."""

import dataclasses
import itertools
import json
import math
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trace_buffers import as_rehearsed

from monomoe_gen import cli, dispatch, trace_file
from monomoe_gen.cost import H200, MAX_OUTSTANDING, estimate
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.drawing import drawing_svg
from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.pages.timelines import read_timelines
from monomoe_gen.paths import data_dir
from monomoe_gen.rehearsal import Rehearsal, rehearse
from monomoe_gen.rules import violations
from monomoe_gen.schedule import KernelSpec, Schedule, most_active
from monomoe_gen.shapes import load_shape
from monomoe_gen.side_by_side import modelled_rows, side_by_side_svg
from monomoe_gen.space import feasible
from monomoe_gen.trace import Event, Role
from monomoe_gen.variant import USUAL

SVG = "{http://www.w3.org/2000/svg}"
SHAPE = load_shape("qwen3.5-35b")
PAPER = Schedule(grid=128, g_up=8, k_up=256, g_down=8, k_down=256, d_up=4, d_down=2)
PAIRED = Schedule(grid=132, g_up=64, k_up=1024, g_down=128, k_down=512, d_up=4, d_down=8)
SPECS = [KernelSpec(SHAPE, schedule) for schedule in (PAPER, PAIRED)]
SPECS += [KernelSpec(SHAPE, s) for s in feasible(SHAPE, KNOWN[DEFAULT])[:: 1854 // 4]]


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
    """Of the usual kernels of the paper's shapes for up to 8 tokens: it was fitted to such."""
    paper = "qwen3.5-35b", "qwen3.5-122b", "glm-5.2-tp8", "deepseek-v3.1-tp8"
    table = dispatch.load(dispatch.table_folder())
    usual = [e for e in table.entries if e.tuned_at <= 8 and e.variant == USUAL]
    entries = [e for e in usual if e.model in paper]
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


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launch of four tokens that went as the model says, half a microsecond late."""
    path = tmp_path_factory.mktemp("traces") / "launch.trace.json"
    launch = as_rehearsed(SPECS[0], 4, late_us=0.5).parse()
    facts = ("kernel: x", "gpu: y")
    kept = trace_file.keep(launch, SPECS[0], 4, "uniform", f"{SHAPE.name}, 4 tokens", facts)
    trace_file.write(path, kept)
    return path


def test_a_kept_launch_is_small_and_counts_its_experts(kept: Path) -> None:
    assert kept.stat().st_size < 100_000
    assert trace_file.read(kept).active == rehearse(SPECS[0], 4).active


def test_model_and_trace_share_the_axis_the_ctas_and_the_legend(kept: Path) -> None:
    launch = trace_file.read(kept)
    root = ET.fromstring(side_by_side_svg(launch))
    words = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert words.count("model") == words.count("measured") == len(launch.ctas) + 1
    assert [w for w in words if w.startswith("CTA ")] == [
        f"CTA {cta}, {remark}" for cta, remark in launch.remarks.items()
    ]
    for role in Role:
        assert words.count(role.value) == 1 + 2 * len(launch.ctas), "one legend, two groups a CTA"
    axes = {line.get("x1") for line in root.iter(f"{SVG}line") if line.get("class") == "g"}
    labels = [w for w in words if w.endswith(" us") and w.startswith("0")]
    assert len(labels) == 2 * len(launch.ctas)
    assert len(axes) <= 15, "every group has the same lines"
    tips = {title.text for title in root.iter(f"{SVG}title")}
    assert {"model: multiply", "warp 0: multiply", "model: publish h"} <= tips


def test_the_model_begins_where_the_trace_makes_its_first_request(kept: Path) -> None:
    launch = trace_file.read(kept)
    rehearsal = rehearse(launch.spec, 4, launch.active)
    (cta,) = (c for c, remark in launch.remarks.items() if remark == "ends first")
    rows = {row.role: row.pieces for row in modelled_rows(rehearsal, cta, 3.0)}
    products = [p for p in rows[Role.MMA] if p.name == "multiply"]
    assert len(products) == len(rehearsal.ctas[cta])
    warp = launch.ctas[cta][0]
    received = [m.us for m in warp.marks if m.event == Event.STAGE_FULL]
    assert [p.start_us for p in products] == pytest.approx(received, abs=2e-3)
    assert rows[Role.REQUANT] == ()
    assert len(rows[Role.EPILOGUE]) == sum(
        stage.up and stage.part == launch.spec.geometry.stages_per_unit_up - 1
        for stage in rehearsal.ctas[cta]
    )


def test_the_command_draws_a_pair(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg = tmp_path / "pair.svg"
    arguments = ["draw", "--model", SHAPE.name, "--with", str(kept)]
    assert cli.run([*arguments, "-o", str(svg)]) == 0
    assert svg.read_text() == side_by_side_svg(trace_file.read(kept))
    assert cli.run([*arguments, "--tokens", "4", "-o", str(svg)]) == 0
    capsys.readouterr()
    schedule = ",".join(f"{name}={value}" for name, value in PAIRED.to_dict().items())
    for wrong, message in (
        (["--tokens", "8"], f"asked for 8 tokens, and {kept} is a trace of 4; give --tokens 4"),
        (["--schedule", schedule], f"asked for schedule {PAIRED.id}, and {kept} is a trace of"),
        (["--model", "toy"], f"asked for model toy, and {kept} is a trace of {SHAPE.name}"),
    ):
        assert cli.run([*arguments, *wrong]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert cli.run([*arguments, "--cta", "1"]) == 2


def test_a_trace_of_a_shape_that_changed_is_refused(kept: Path) -> None:
    shape = dataclasses.replace(SHAPE, top_k=4)
    with pytest.raises(MonomoeError, match=r"with top_k 4, and .* is a trace of top_k 8"):
        trace_file.require_same(kept, trace_file.read(kept), shape, None, None)


def test_what_is_kept_with_the_templates_is_small() -> None:
    for path in (data_dir("templates") / "traces").glob("*"):
        assert path.stat().st_size < 300_000, path


(SHIPPED,) = (p.name for p in (data_dir("templates") / "traces").glob("qwen3.5-35b-b1-*.json"))
Values = dict[str, Any]


def reverse(values: Values) -> None:
    values["ctas"][0]["warps"][0]["events"].reverse()


def drop(values: Values) -> None:
    values["ctas"][1]["warps"][2]["indices"].pop()


def multiply(values: Values) -> None:
    for row in values["summary"]:
        row["count"] *= 10000


def count_units(values: Values, units: int) -> None:
    (row,) = (r for r in values["summary"] if r["event"] == "unit_stored")
    row["count"] = units


def repeat(values: Values) -> None:
    values["ctas"][1]["cta"] = values["ctas"][0]["cta"]


def forget(values: Values) -> None:
    values["ctas"][0]["warps"].pop()


def go_back(values: Values) -> None:
    values["ctas"][0]["warps"][0]["us"][3] = 0.0


def put(*places: Any) -> Callable[[Values], None]:
    """Puts the last of ``places`` at the place that the others lead to."""

    def change(values: Any) -> None:
        *way, name, value = places
        for step in way:
            values = values[step]
        values[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("ctas", 0, "cta", 1000000), "ctas[0].cta: must be from 0 to 127"),
        (put("ctas", 0, "cta", -1), "ctas[0].cta: must be from 0 to 127"),
        (repeat, "ctas[1].cta: CTA "),
        (put("ctas", []), "ctas: must have at least one"),
        (put("schedule", "grid", 4), "schedule: g4-"),
        (put("schedule", "k_up", 100), "schedule: g128-u64x100x"),
        (put("schedule", "g_down", 10**9), "schedule: g128-"),
        (put("schedule", "grid", 10**9), "schedule: g1000000000-"),
        (put("schedule", "d_up", 10**9), "schedule: g128-"),
        (put("us", math.nan), "us: must be more than 0"),
        (put("us", math.inf), "us: must be more than 0"),
        (put("us", -5), "us: must be more than 0"),
        (put("us", 10**400), "us: must be more than 0"),
        (put("us", 1.0), "must rise"),
        (put("summary", 0, "first", "minimum", math.nan), "summary[0].first: "),
        (reverse, "ctas[0].warps[0].events: must begin with a start"),
        (go_back, "ctas[0].warps[0].us[3]: must rise"),
        (drop, "ctas[1].warps[2]: events, indices and us must be of one length"),
        (forget, "ctas[0].warps: must be 19, found 18"),
        (multiply, "count: 1 tokens of qwen3.5-35b have at most 512 units"),
        (lambda v: count_units(v, 9 * 64), "at most 512 units of the up-projection, found 576"),
        (put("tokens", 0), "tokens: must be from 1 to the token_tile 8, found 0"),
        (put("tokens", 99), "tokens: must be from 1 to the token_tile 8, found 99"),
        (put("routing", "foo"), "routing: must be one of uniform, "),
        (put("summary", []), "summary: must have at least one row"),
    ],
)
def test_an_edited_launch_is_refused_and_nothing_drawn(
    change: Callable[[Values], None],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = json.loads((data_dir("templates") / "traces" / SHIPPED).read_text())
    change(values)
    path = tmp_path / "edited.trace.json"
    path.write_text(json.dumps(values))
    svg = tmp_path / "pair.svg"
    assert cli.run(["draw", "--model", SHAPE.name, "--with", str(path), "-o", str(svg)]) == 2
    out, err = capsys.readouterr()
    assert not out and not svg.exists()
    assert f"{path}: holds no trace: " in err and words in err
    assert len(err) < len(str(path)) + 400 and err.count("\n") == 1
    with pytest.raises(DatabaseError):
        read_timelines([path], [])


@pytest.mark.parametrize("larger", [{"grid": 188}, {"k_up": 1024, "d_up": 16, "d_down": 12}])
def test_a_launch_on_a_larger_gpu_than_the_known_ones_is_drawn(
    larger: dict[str, int], tmp_path: Path
) -> None:
    values = json.loads((data_dir("templates") / "traces" / SHIPPED).read_text())
    values["schedule"] |= larger
    values["ctas"][0]["cta"] = values["schedule"]["grid"] - 1
    path = tmp_path / "larger.trace.json"
    path.write_text(json.dumps(values))
    kept = trace_file.read(path)
    known = KNOWN.values()
    assert all(violations(SHAPE, kept.spec.schedule, gpu, kept.spec.token_tile) for gpu in known)
    assert f"CTA {max(kept.ctas)}" in side_by_side_svg(kept)


def test_a_launch_may_have_as_many_experts_as_its_tokens_ask_for_and_captured_routing(
    tmp_path: Path,
) -> None:
    values = json.loads((data_dir("templates") / "traces" / SHIPPED).read_text())
    values["tokens"] = 3
    values["routing"] = "trace-0123456789ab"
    count_units(values, 24 * 64)
    path = tmp_path / "edited.trace.json"
    path.write_text(json.dumps(values))
    assert trace_file.read(path).active == 24


def test_many_tokens_list_an_expert_several_times() -> None:
    shared = dataclasses.replace(SHAPE, experts=16, shared_experts=1)
    spec = KernelSpec(shared, PAIRED, 32)
    assert [most_active(spec.shape, n) for n in (1, 8, 9, 32)] == [9, 17, 34, 68]
    assert most_active(spec.shape, 32) == spec.geometry.max_active
