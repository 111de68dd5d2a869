"""Trace buffers made by hand: marks, spans, summaries, and the files made of them."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from trace_buffers import EPILOGUE, MHZ, MMA, PRODUCER, REQUANT, Buffer

from monomoe_gen import trace_file
from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.paths import data_dir
from monomoe_gen.perfetto import trace_json
from monomoe_gen.role_rows import COLOURS
from monomoe_gen.schedule import WARPS, KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.timeline import timeline_svg
from monomoe_gen.trace import RECORDS, Event, Kind, Role, Trace, pack, parse, unpack
from monomoe_gen.trace_summary import summarize

SPEC = KernelSpec(load_shape("toy"), Schedule(128, 2, 128, 2, 128, 3, 4))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def trace() -> Trace:
    """Two CTAs; the second starts 0.1 us later and takes a microsecond longer for everything."""
    b = Buffer()
    for cta in range(2):
        for warp in range(MMA, REQUANT):
            for i in range(2):
                b.mark(cta, warp, Event.STAGE_FULL, i, 2 + i + cta)
            b.mark(cta, warp, Event.STAGE_DONE, 0, 3.5 + cta + warp / 100)
        b.mark(cta, PRODUCER, Event.LISTED, 0, 1 + cta)
        b.mark(cta, PRODUCER, Event.ISSUED, 0, 1.5 + cta)
    b.mark(0, EPILOGUE, Event.UNIT_STORED, 3, 4)
    return b.parse()


def test_events_are_numbered_as_in_the_kernel() -> None:
    text = (data_dir("templates") / "ops" / "trace.cuh").read_text()
    body = re.search(r"enum class Event : u32 \{(.*?)\};", text, re.DOTALL)
    assert body
    names = re.findall(r"^\s*k(\w+),", body[1], re.MULTILINE)
    assert [re.sub(r"(?<!^)([A-Z])", r"_\1", n).upper() for n in names] == [e.name for e in Event]
    assert f"kTraceRecords = {RECORDS};" in text


def test_roles_follow_the_order_of_the_warps() -> None:
    roles = [Role.of(warp) for warp in range(WARPS)]
    assert roles == [Role.MMA] * 8 + [Role.REQUANT] * 8 + [Role.EPILOGUE] * 2 + [Role.PRODUCER]
    skeleton = (data_dir("templates") / "monomoe.cu.j2").read_text()
    order = re.findall(r"^constexpr u32 kFirst(\w+)Warp|kProducerWarp =", skeleton, re.MULTILINE)
    assert order == ["Requant", "Epilogue", ""]


def test_marks_are_microseconds_since_the_first_start(trace: Trace) -> None:
    assert trace.grid == 2
    first, second = trace.cta(0)[PRODUCER], trace.cta(1)[PRODUCER]
    assert (first.cta, first.warp, first.role, first.full) == (0, PRODUCER, Role.PRODUCER, False)
    assert [m.event for m in first.marks] == [Event.START, Event.LISTED, Event.ISSUED]
    assert [m.us for m in first.marks] == pytest.approx([0.018, 1, 1.5])
    assert [m.us for m in second.marks] == pytest.approx([0.118, 2.1, 2.6])
    stored = trace.cta(0)[EPILOGUE].marks[-1]
    assert (stored.event, stored.index, stored.us) == (Event.UNIT_STORED, 3, pytest.approx(4.0))
    assert trace.us == trace.end_us(1) == pytest.approx(4.67)


def test_spans_say_what_happened_up_to_a_mark(trace: Trace) -> None:
    spans = list(trace.cta(0)[MMA].spans())
    assert [s.name for s in spans] == [
        "wait for weights",
        "multiply, then wait for weights",
        "multiply",
    ]
    assert [s.kind for s in spans] == [Kind.WAITS, Kind.BOTH, Kind.WORKS]
    assert [s.us for s in spans] == pytest.approx([2, 1, 0.5])
    assert [s.end.index for s in spans] == [0, 1, 0]


def test_a_stage_may_be_there_before_h_is() -> None:
    b = Buffer(grid=1)
    before = [Event.H_READY, Event.STAGE_FULL, Event.STAGE_FULL, Event.STAGE_DONE]
    behind = [Event.STAGE_FULL, Event.H_READY, Event.STAGE_FULL, Event.STAGE_DONE]
    for us, event in enumerate([*before, *behind]):
        b.mark(0, MMA, event, 0, float(us))
    assert [s.name for s in b.parse().cta(0)[MMA].spans()] == [
        *("wait for h", "wait for weights", "multiply, then wait for weights", "multiply"),
        *("wait for weights", "wait for h", "multiply, then wait for weights", "multiply"),
    ]


def test_every_event_has_a_name_for_its_span() -> None:
    b = Buffer(grid=1)
    for event in list(Event)[1:]:
        b.mark(0, MMA, event, 0, float(event))
    spans = list(b.parse().cta(0)[MMA].spans())
    assert [s.end.event for s in spans] == list(Event)[1:]
    assert len({s.name for s in spans}) == len(spans)


def test_a_summary_spans_the_ctas(trace: Trace) -> None:
    rows = {(r.role, r.event): r for r in summarize(trace)}
    assert list(rows) == [
        (Role.MMA, Event.STAGE_FULL),
        (Role.MMA, Event.STAGE_DONE),
        (Role.EPILOGUE, Event.UNIT_STORED),
        (Role.PRODUCER, Event.LISTED),
        (Role.PRODUCER, Event.ISSUED),
    ]
    full = rows[Role.MMA, Event.STAGE_FULL]
    assert (full.ctas, full.count) == (2, 2 * 8 * 2)
    assert (full.first.minimum, full.first.maximum) == pytest.approx((2, 3.1))
    assert (full.last.minimum, full.last.median, full.last.maximum) == pytest.approx((3, 3.55, 4.1))
    done = rows[Role.MMA, Event.STAGE_DONE]
    last = (done.last.minimum, done.last.median, done.last.maximum)
    assert last == pytest.approx((3.57, 4.12, 4.67))
    assert rows[Role.EPILOGUE, Event.UNIT_STORED].ctas == 1


def test_a_full_list_is_read_to_its_end() -> None:
    b = Buffer(grid=1)
    for i in range(RECORDS - 2):
        b.mark(0, PRODUCER, Event.ISSUED, i, 1 + i / 100)
    warp = b.parse().cta(0)[PRODUCER]
    assert warp.full and len(warp.marks) == RECORDS - 1
    assert warp.marks[-1].index == RECORDS - 3
    assert not b.parse().cta(0)[MMA].full


def test_the_typical_ctas_are_the_first_the_median_and_the_last() -> None:
    b = Buffer(grid=5)
    for cta, us in enumerate((5, 9, 1, 7, 3)):
        b.mark(cta, MMA, Event.STORED, 0, us)
    assert b.parse().typical_ctas() == {2: "ends first", 0: "median", 1: "ends last"}
    one = Buffer(grid=1)
    assert list(one.parse().typical_ctas()) == [0]


@pytest.mark.parametrize(
    "shape", [(2, WARPS, 10), (2, 3, RECORDS), (WARPS, RECORDS), (0, WARPS, RECORDS)]
)
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(MonomoeError, match="19 warps, 1024 records"):
        parse(np.zeros(shape, dtype=np.uint64), MHZ)


def test_what_is_no_single_launch_is_refused() -> None:
    with pytest.raises(MonomoeError, match="a warp has no start"):
        parse(np.zeros((1, WARPS, RECORDS), dtype=np.uint64), MHZ)
    b = Buffer()
    with pytest.raises(MonomoeError, match="clock is unknown"):
        parse(b.records, 0.0)
    b.mark(1, MMA, Event.STORED, 0, 3)
    b.mark(1, MMA, Event.STAGE_FULL, 0, 2)
    with pytest.raises(MonomoeError, match="CTA 1, warp 0 goes back in time"):
        b.parse()
    b = Buffer()
    b.mark(0, 3, 20, 0, 1)
    with pytest.raises(MonomoeError, match="CTA 0, warp 3 has the unknown event 20"):
        b.parse()
    b = Buffer()
    b.records[0, 2, 1:] = 0
    with pytest.raises(MonomoeError, match="CTA 0, warp 2 does not begin with a start"):
        b.parse()


def test_buffers_travel(trace: Trace) -> None:
    records = Buffer(grid=3).records
    assert len(pack(records)) < records.nbytes / 20
    assert (unpack(pack(records), 3) == records).all()
    with pytest.raises(
        MonomoeError, match=f"time stamps of 2 CTAs, found {3 * WARPS * RECORDS} words"
    ):
        unpack(pack(records), 2)


def test_the_chrome_trace_has_every_span(trace: Trace) -> None:
    value = json.loads(trace_json(trace, {"model": 'a "b"'}))
    assert value["otherData"] == {"model": 'a "b"'}
    events = value["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == sum(len(list(w.spans())) for w in trace.warps) == 2 * (8 * 3 + 2) + 1
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len(names) == 2 * WARPS and names[1, PRODUCER] == "18 producer"
    (stored,) = [e for e in spans if e["args"]["until"] == "unit stored"]
    assert (stored["pid"], stored["tid"], stored["args"]["index"]) == (0, EPILOGUE, 3)
    assert stored["ts"] + stored["dur"] == pytest.approx(4.0)
    assert all(e["dur"] >= 0 for e in spans)


def kept_of(trace: Trace, title: str = "t", facts: tuple[str, ...] = ()) -> trace_file.Kept:
    return trace_file.keep(trace, SPEC, 1, "uniform", title, facts)


def boxes(root: ET.Element) -> list[tuple[str, float, float, float]]:
    """(colour, left, right, top) of every box that a path draws."""
    return [
        (path.attrib["fill"], float(x), float(x) + float(width), float(y))
        for path in root.iter(f"{SVG}path")
        for x, y, width in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v", path.attrib["d"])
    ]


def test_the_timeline_is_one_drawing_without_links(trace: Trace) -> None:
    text = timeline_svg(kept_of(trace, "a < b", ("note & note",)))
    root = ET.fromstring(text)
    assert not re.search(r"href|<script|@import|url\(", text)
    words = [t.text for t in root.iter(f"{SVG}text")]
    assert {"a < b", "note & note", "CTA 0, ends first", "CTA 1, ends last"} <= set(words)
    for role in Role:
        assert words.count(role.value) >= 3  # legend and two groups
    drawn = boxes(root)
    assert len(drawn) == 2 * (8 * 3 + 2) + 1
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 <= left <= right <= width and 0 < top < height for _, left, right, top in drawn)
    assert max(float(t.attrib["y"]) for t in root.iter(f"{SVG}text")) < height
    assert {colour for colour, *_ in drawn} == {
        COLOURS[role] for role in (Role.MMA, Role.EPILOGUE, Role.PRODUCER)
    }
    tips = {title.text for title in root.iter(f"{SVG}title")}
    assert "warp 16: wait for sums, publish h" in tips
    assert "4.67" in text, "the table is of all CTAs"


def test_a_kept_trace_is_what_was_written(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "toy.trace.json"
    kept = kept_of(trace, facts=("on a GPU",))
    trace_file.write(path, kept)
    found = trace_file.read(path)
    assert (found.spec, found.tokens, found.routing) == (SPEC, 1, "uniform")
    assert (found.title, found.facts, found.remarks) == ("t", ("on a GPU",), kept.remarks)
    assert found.us == pytest.approx(trace.us, abs=1e-3)
    for cta, warps in kept.ctas.items():
        for old, new in zip(warps, found.ctas[cta], strict=True):
            assert (new.cta, new.warp, new.full) == (old.cta, old.warp, old.full)
            assert [(m.event, m.index) for m in new.marks] == [
                (m.event, m.index) for m in old.marks
            ]
            assert [m.us for m in new.marks] == pytest.approx([m.us for m in old.marks], abs=1e-3)
    assert timeline_svg(found).count("<path") == timeline_svg(kept).count("<path")
    before = path.read_text()
    trace_file.write(path, found)
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"format": 1', '"format": 7', "format 7"),
        ('"role":"MMA"', '"role":"boss"', "role: must be one of MMA, .*'boss'"),
        ('"event":"issued"', '"event":"slept"', "event: must be one of .*'slept'"),
        ('"events":[0,7', '"events":[0,99', r"events\[1\]: must be from 1 to 13 .* 99"),
        ('"token_tile": 8', '"token_tile": 9', "token_tile: token tile must be one of"),
        ('"tokens": 1', '"tokens": "one"', "tokens: must be int"),
    ],
)
def test_a_damaged_file_is_refused(
    old: str, new: str, message: str, trace: Trace, tmp_path: Path
) -> None:
    path = tmp_path / "toy.trace.json"
    trace_file.write(path, kept_of(trace))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DatabaseError, match=message):
        trace_file.read(path)
