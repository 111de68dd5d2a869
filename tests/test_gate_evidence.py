"""The study of the gate: its slower kernels compile, and its sums are right."""

import dataclasses
import json
from pathlib import Path

import gate_evidence as study
import pytest
from gate_worker import Gpu, image

from monomoe_gen import dispatch, jobs
from monomoe_gen.candidates import CellId, Pair, Side
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.dispatch import Table
from monomoe_gen.errors import MonomoeError
from monomoe_gen.render import render

DEVICE = KNOWN[DEFAULT]
TABLE = dispatch.load(dispatch.table_folder())
ONE = Table(TABLE.device, (TABLE.kernel(TABLE.entries[0]),), TABLE.entries[:1])
SPEC = ONE.kernels[0].spec


def test_slower_kernels_compile_and_differ() -> None:
    cases = study.planted_cases(ONE, DEVICE)
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


def test_equal_kernels_are_all_entries_twice() -> None:
    cases = study.a_a_cases(ONE, DEVICE)
    assert [(c.kind, c.pair.cell.routing) for c in cases] == [
        ("identical", "uniform"),
        ("identical", "zipf"),
        ("moved", "uniform"),
        ("moved", "zipf"),
    ]


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


def test_lines_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def case(kind: str, dose: float | None, words: str, tokens: int) -> study.Case:
        cell = CellId(SPEC.shape.name, tokens, "uniform")
        new, old = (
            Side(SPEC, image(text, text.encode()), "0" * 64, "nvrtc") for text in (words, "old")
        )
        return study.Case(kind, dose, Pair(cell, new, old, None, "paired"))

    cases = [case("waits", 0.08, f"slow={slow}", n) for n, slow in ((1, 1.08), (4, 1.0))]
    cases.append(case("no L2 hint", None, "slow=1.06", 1))
    floors = jobs.Floors((image(),), image())
    lines = list(study.checked("planted", cases, floors, DEVICE, Gpu().sandbox(tmp_path)))
    path = tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines))
    study.main(["summary", str(path), "--json", str(tmp_path / "gate.json")])
    hint, waits = json.loads((tmp_path / "gate.json").read_text())
    assert (hint["kind"], hint["cells"], hint["REGRESSION"]) == ("no L2 hint", 1, 1.0)
    assert (waits["cells"], waits["REGRESSION"], waits["OK"]) == (2, 0.5, 0.5)
    assert "| planted | waits | 8% | 2 |" in capsys.readouterr().out


def test_a_sick_gpu_gives_no_lines(tmp_path: Path) -> None:
    gpu = Gpu()
    gpu.throttled = 1.0
    new, old = (Side(SPEC, image(w, w.encode()), "0" * 64, "nvrtc") for w in ("new", "old"))
    pair = Pair(CellId(SPEC.shape.name, 1, "uniform"), new, old, None, "paired")
    floors = jobs.Floors((image(),), image())
    with pytest.raises(MonomoeError, match="lowered its clocks"):
        list(
            study.checked(
                "a_a", [study.Case("x", None, pair)], floors, DEVICE, gpu.sandbox(tmp_path)
            )
        )
