"""The study of the gate: its slower kernels compile, it goes on where it stopped, its sums."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

import gate_evidence as study
import pytest
from gate_worker import H200, Gpu, image

from monomoe_gen import dispatch, gate, jobs
from monomoe_gen.candidates import CellId, Pair, Side
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import MonomoeError
from monomoe_gen.regress import Verdict
from monomoe_gen.render import render
from monomoe_gen.routings import TIMED_ROUTINGS
from monomoe_gen.variant import USUAL, Variant

DEVICE = KNOWN[DEFAULT]
TABLE = dispatch.load(dispatch.table_folder())
ENTRIES = study.entries(TABLE, study.CELLS[:1])
SPEC = TABLE.kernel(ENTRIES[0]).spec
UUID = str(H200["uuid"])
FLOORS = jobs.Floors((image(),), image())


def test_slower_kernels_compile_and_differ() -> None:
    cases = study.planted_cases(TABLE, DEVICE, study.entries(TABLE, ["glm-5.2-tp8:1"]))
    assert [(c.kind, c.dose) for c in cases] == [
        ("waits", 0.02),
        ("waits", 0.04),
        ("waits", 0.08),
        ("no L2 hint", None),
        ("one stage fewer", None),
    ]
    binaries = {case.pair.candidate.image.cubin for case in cases}
    binaries |= {case.pair.baseline.image.cubin for case in cases if case.pair.baseline}
    assert len(binaries) == 6


def test_equal_kernels_are_every_routing_twice() -> None:
    cases = study.a_a_cases(TABLE, DEVICE, ENTRIES, repeats=2)
    assert [(c.kind, c.pair.cell.routing) for c in cases] == 2 * [
        (kind, routing) for kind in ("identical", "moved") for routing in TIMED_ROUTINGS
    ]
    assert len({case.key for case in cases}) == len(cases)
    for pair in (case.pair for case in cases):
        assert pair.baseline
        cubins = pair.candidate.image.cubin, pair.baseline.image.cubin
        old = dataclasses.replace(pair.baseline.image, cubin=cubins[0])
        assert old == pair.candidate.image, "launched alike, as is no pdl kernel beside another"


def test_the_usual_kernels_are_compared() -> None:
    specs = [TABLE.kernel(e).spec for e in study.entries(TABLE, study.CELLS)]
    assert {Variant.of(spec) for spec in specs} == {USUAL}


def test_the_default_is_two_hundred_cells_in_four_minutes() -> None:
    entries = study.entries(TABLE, study.CELLS)
    cells = len(entries) * len(TIMED_ROUTINGS) * 2 * study.REPEATS
    assert cells >= 200
    pair = Pair(CellId(SPEC.shape.name, 1, "uniform"), *sides("", "old"), None, "paired")
    cases = [study.Case("a_a", "identical", None, i, pair) for i in range(cells)]
    assert gate.Plan() == study.PLAN, "what is shown holds for the default settings"
    assert study.PLAN.processes * study.expected_seconds(cases, TABLE) < 240


def test_the_wait_is_a_share_of_the_time() -> None:
    source = study.waiting(render(SPEC), 1234)
    main = next(iter(source.texts.values()))
    assert main.count("< 1234)") == 1
    assert source.sources_hash != render(SPEC).sources_hash


def test_a_slow_down_that_finds_no_place_is_an_error() -> None:
    source = render(SPEC)
    bare = dataclasses.replace(source, texts=dict.fromkeys(source.texts, "nothing"))
    for plant in (study.without_hint, lambda s: study.waiting(s, 1)):
        with pytest.raises(MonomoeError, match="no place"):
            plant(bare)


def test_an_entry_that_is_not_dispatched_is_refused() -> None:
    with pytest.raises(MonomoeError, match="asked for toy-bf16:1, the table has"):
        study.entries(TABLE, ["toy-bf16:1"])


def sides(new: str, old: str) -> tuple[Side, Side]:
    new_side, old_side = (
        Side(SPEC, image(text, text.encode()), "0" * 64, "nvrtc") for text in (new, old)
    )
    return new_side, old_side


def case(kind: str, words: str, dose: float | None = None, repeat: int = 0) -> study.Case:
    pair = Pair(CellId(SPEC.shape.name, 1, "uniform"), *sides(words, "old"), None, "paired")
    return study.Case("a_a" if kind == "identical" else "planted", kind, dose, repeat, pair)


def run(
    cases: Sequence[study.Case], path: Path, gpu: Gpu, seconds: float = 1e6, uuid: str = UUID
) -> bool:
    opener = gpu.sandbox(path.parent)
    return study.study(
        cases,
        path,
        uuid,
        FLOORS,
        DEVICE,
        time.monotonic() + seconds,
        lambda: contextlib.nullcontext(opener),
    )


def test_cells_are_judged_as_check_judges_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [case("identical", "same", repeat=i) for i in range(3)]
    cases += [case("waits", "slow=1.08", 0.08), case("waits", "slow=1.02", 0.02)]
    path, gpu = tmp_path / "out.jsonl", Gpu()
    assert run(cases, path, gpu)
    verdicts = {
        cell.lines[0].key: (cell.verdict, len(cell.lines))
        for cell in study.judged(study.read([path]))
    }
    assert [verdicts[c.key] for c in cases[:4]] == [(Verdict.OK, 4)] * 3 + [(Verdict.REGRESSION, 4)]
    _, taken = verdicts[cases[4].key]
    assert taken > 4, "at the threshold more processes are asked"
    assert gpu.workers == taken, "a process serves all cells that are undecided"
    text = path.read_text()
    assert run(cases, path, gpu) and path.read_text() == text, "nothing is left to do"
    picture = tmp_path / "gate.svg"
    study.main(
        ["summary", str(path), "--json", str(tmp_path / "gate.json"), "--plot", str(picture)]
    )
    assert "planted, REGRESSION (1)" in picture.read_text()
    again = tmp_path / "again.svg"
    study.main(["summary", str(path), "--plot", str(again)])
    assert again.read_bytes() == picture.read_bytes() and "<dc:date>" not in again.read_text()
    everything, identical, *planted = json.loads((tmp_path / "gate.json").read_text())
    assert (everything["kind"], everything["cells"], everything["OK"]) == ("all", 3, 1.0)
    assert everything["most"] == pytest.approx(1 - 0.05 ** (1 / 3))
    assert identical["unfinished"] == 0
    assert [(row["dose"], row["cells"]) for row in planted] == [(0.02, 1), (0.08, 1)]
    assert planted[1]["REGRESSION"] == 1.0
    assert "| planted | waits | 8% | 1 | +8." in capsys.readouterr().out


def test_it_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case("identical", "same", repeat=i) for i in range(4)]
    path, gpu = tmp_path / "out.jsonl", Gpu()
    clock = iter(range(10**6))  # a tick a look at the clock
    monkeypatch.setattr(study.time, "monotonic", lambda: float(next(clock)))
    runs = 0
    while not run(cases, path, gpu, seconds=9):
        runs += 1
        assert runs < 20
        lines = study.read([path])
        assert len({(line.key, line.process) for line in lines}) == len(lines)
    assert runs > 1
    assert len(study.read([path])) == 4 * 4
    path.write_text(path.read_text() + '{"key": "cut o')
    assert len(study.read([path])) == 4 * 4


def test_another_card_or_binary_begins_anew(tmp_path: Path) -> None:
    path, gpu = tmp_path / "out.jsonl", Gpu()
    assert run([case("identical", "same")], path, gpu)
    gpu.env = lambda worker: {**H200, "uuid": "GPU-two"}
    assert run([case("identical", "same")], path, gpu, uuid="GPU-two")
    assert run([case("identical", "other")], path, gpu, uuid="GPU-two")
    assert len(study.judged(study.read([path]))) == 3


def test_unfinished_cells_are_no_evidence(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert run([case("identical", "same")], path, Gpu())
    cut = study.judged(study.read([path])[:3])
    (row, _) = study.summary(cut)
    assert (row["cells"], row["unfinished"], row["most"]) == (0, 1, 1.0)
    assert "0 (+1 unfinished)" in study.table([row])


def test_the_bound_of_a_share() -> None:
    assert study.upper_bound(0, 299) == pytest.approx(0.00997, abs=1e-4)
    assert study.upper_bound(0, 208) == pytest.approx(1 - 0.05 ** (1 / 208))
    assert study.upper_bound(1, 208) > study.upper_bound(0, 208)


def test_a_sick_gpu_gives_an_error(tmp_path: Path) -> None:
    gpu = Gpu()
    gpu.throttled = 1.0
    with pytest.raises(MonomoeError, match="lowered its clocks"):
        run([case("identical", "same")], tmp_path / "out.jsonl", gpu)
    with pytest.raises(MonomoeError, match="launch_error"):
        run([case("waits", "crash")], tmp_path / "other.jsonl", Gpu())
