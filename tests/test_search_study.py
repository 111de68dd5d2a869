"""The comparison of samplers: what it measures, keeps and shows."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from monomoe_gen import cli, cost, search_study, tuning_db
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.paths import checkout
from monomoe_gen.render import render
from monomoe_gen.samplers import DEFAULT as SAMPLER
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.search import Search
from monomoe_gen.search_study import STARTS, Curve, Study
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.tuning_db import Time

MODEL = "qwen3.5-35b"
SHAPE = load_shape(MODEL)
SPACE = feasible(SHAPE, KNOWN[DEFAULT])
SAMPLE = SPACE[:: len(SPACE) // 90]


def made_up(s: Schedule) -> dict[int, float]:
    valley = abs(math.log2(s.g_up / 64)) + abs(math.log2(s.k_up / 512)) + abs(s.d_up - 5) / 4
    return {1: 10 + valley, 8: 40 + valley + abs(s.d_down - 4)}


TIMES = {s: made_up(s) for s in SAMPLE}


@pytest.mark.parametrize("sampler", search_study.USUAL)
def test_every_sampler_hands_out_each_candidate_once(sampler: str) -> None:
    search = Search(SAMPLE, (1, 8), sampler=sampler)
    asked = []
    while schedule := search.ask(in_order=False):
        asked.append(schedule)
        search.tell(schedule, TIMES[schedule] if len(asked) % 7 else None)
    assert sorted(asked) == sorted(SAMPLE)


def test_a_genetic_search_learns_from_what_it_did_not_propose() -> None:
    known = SAMPLE[:40]
    search = Search(SAMPLE, (1, 8), sampler="nsga2")
    for schedule in known:
        search.tell(schedule, TIMES[schedule])
    (each,) = search._studies
    told = each.study.get_trials()
    assert len(told) == len(known)
    assert [t.values for t in told] == [list(TIMES[s].values()) for s in known]
    assert {t.system_attrs["NSGAIISampler:generation"] for t in told} == {0, 1, 2}


def test_regret_falls_to_nothing_when_all_is_tried() -> None:
    found = search_study.study(SHAPE, TIMES, len(SPACE), seeds=2, trials=1000)
    assert found.trials[0] == 8 and found.trials[-1] == len(SAMPLE)
    assert len(found.curves) == len(search_study.USUAL) * len(STARTS)
    for curve in found.curves:
        assert list(curve.mean) == sorted(curve.mean, reverse=True)
        assert curve.mean[-1] == curve.worst[-1] == 0
        assert all(w >= m for w, m in zip(curve.worst, curve.mean, strict=True))


def test_the_favoured_one_is_best_over_both_starts() -> None:
    curves = (
        Curve("random", STARTS[0], (0.02, 0.0), (0.03, 0.0)),
        Curve("tpe", STARTS[0], (0.02, 0.01), (0.03, 0.02)),
        Curve("random", STARTS[1], (0.05, 0.04), (0.1, 0.1)),
        Curve("tpe", STARTS[1], (0.05, 0.02), (0.1, 0.1)),
    )
    found = Study(MODEL, (1,), 40, 40, 1, (8, 16), curves)
    assert search_study.favoured([found]) == "tpe"
    other = Study("other", (1,), 40, 40, 1, (8,), (Curve("tpe", STARTS[0], (0.3,), (0.3,)),))
    other = replace(other, curves=(*other.curves, Curve("random", STARTS[0], (0.1,), (0.1,))))
    assert search_study.favoured([found, other]) == "random"


def test_too_few_records_are_no_study() -> None:
    with pytest.raises(MonomoeError, match="monomoe-gen tune"):
        search_study.study(SHAPE, dict(list(TIMES.items())[:5]), len(SPACE))


def test_a_study_is_kept_by_model(tmp_path: Path) -> None:
    path = tmp_path / DEFAULT / search_study.FILE
    assert search_study.read(path) == ()
    first = Study("b", (1,), 40, 40, 1, (8,), (Curve("tpe", STARTS[0], (0.1,), (0.2,)),))
    for new in (first, Study("a", (1,), 40, 40, 1, (8,), ()), first):
        search_study.store(path, new)
    assert [s.model for s in search_study.read(path)] == ["a", "b"]
    assert search_study.read(path)[1] == first
    path.write_text(path.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(DatabaseError, match="format 9"):
        search_study.read(path)


def test_the_default_is_what_the_recorded_studies_favour() -> None:
    path = (checkout() or Path()) / "tuning_db" / DEFAULT / search_study.FILE
    studies = search_study.read(path)
    assert studies and search_study.favoured(studies) == SAMPLER
    assert all(s.seeds >= 20 for s in studies)


def test_the_command_prints_stores_and_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    recorded = tuning_db.read(tuning_db.database_path(DEFAULT, MODEL))
    known = next(r for r in recorded if r.time_us and r.token_tile == 8)
    path = tmp_path / DEFAULT / f"{MODEL}.jsonl"
    absurd = {"time_us": Time(0.1, 0.1, 0.1, 20), "sources_hash": "0" * 64, "stage": "screen"}
    for s in SAMPLE:
        own = render(KernelSpec(SHAPE, s)).sources_hash
        for n in (1, 2, 4, 8):
            us = cost.estimate(KernelSpec(SHAPE, s), n).us  # which its favourites then are best at
            made = {"schedule": s.to_dict(), "tokens": n, "sources_hash": own, "stage": "screen"}
            tuning_db.append(path, replace(known, **made, time_us=Time(us, us, us, 20)))
    for n in (1, 2, 4, 8):
        tuning_db.append(path, replace(known, schedule=SAMPLE[0].to_dict(), tokens=n, **absurd))
    monkeypatch.setattr(tuning_db, "tuning_db_dir", lambda: tmp_path)
    monkeypatch.setattr(search_study, "tuning_db_dir", lambda: tmp_path)
    page = tmp_path / "study.html"
    arguments = ["search-study", "--model", MODEL, "--seeds", "2", "--trials", "8", "--store"]
    arguments += ["--sampler", "exhaustive", "-o", str(page), "--format", "json"]
    assert cli.run(arguments) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [(r["sampler"], r["start"]) for r in rows] == [("exhaustive", s) for s in STARTS]
    assert rows[0]["8"] <= rows[1]["8"] < 100, "older sources count"
    assert rows[1]["8"] > 0, "there is something to find"
    assert "times of older sources left out: " in err
    (kept,) = search_study.read(tmp_path / DEFAULT / search_study.FILE)
    assert kept.schedules == len(SAMPLE) and kept.feasible == len(SPACE)
    assert f"Samplers, {MODEL}" in page.read_text(encoding="utf-8")
