"""Kernels that the simulator proves wrong never reach the GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import test_tune
from mutants import MUTANTS, SPEC, TOY
from test_tune import Bench

from monomoe_gen import cubin_cache, host_build, refute, tune
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.paths import data_dir
from monomoe_gen.refute import Refuter, make_refuter
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.simulate import Finding, Outcome, Run

needs_compiler = pytest.mark.skipif(not host_build.has_compiler(), reason="needs g++")
SOUND, HANGING = Schedule(4, 4, 256, 1, 128, 8, 3), Schedule(4, 2, 256, 1, 128, 4, 3)


def outcomes(*findings: Finding) -> Callable[..., Iterator[Outcome]]:
    """A simulator whose runs find this."""

    def simulate(program: object, problem: object, runs: list[Run]) -> Iterator[Outcome]:
        return (Outcome(run, 0, 1, 0.0, findings) for run in runs)

    return simulate


@pytest.fixture
def refuter(monkeypatch: pytest.MonkeyPatch) -> Refuter:
    monkeypatch.setattr(refute, "build", lambda spec: None)
    monkeypatch.setattr(refute, "compiler_version", lambda: "g++ 0")
    return make_refuter(TOY, (1, 8), 8, "uniform", 2)


def test_every_policy_runs_with_every_seed(
    refuter: Refuter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[tuple[int, ...], int]] = []

    def simulate(program: object, problem: refute.Problem, runs: list[Run]) -> Iterator[Outcome]:
        asked.append((problem.tokens, len(set(runs))))
        return outcomes()(program, problem, runs)

    monkeypatch.setattr(refute, "simulate", simulate)
    assert refuter.refute(SPEC) == ""
    assert asked == [((1, 8, 1), 22), ((8, 1, 8), 22)]


def test_a_finding_is_a_proof_and_a_crash_is_none(
    refuter: Refuter, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash, race = Finding("crash", "no answer for 600 s"), Finding("race", "of two warps")
    monkeypatch.setattr(refute, "simulate", outcomes(crash))
    assert refuter.refute(SPEC) == ""
    monkeypatch.setattr(refute, "simulate", outcomes(crash, race))
    wanted = "simulated with 1 tokens, round_robin, seed 0: race: of two warps"
    assert refuter.refute(SPEC) == wanted


def test_a_simulation_that_was_stopped_says_nothing(
    refuter: Refuter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refute, "simulate", outcomes())
    assert refuter.refute(SPEC, lambda: True) is None
    answers = iter([False, False, True])
    assert refuter.refute(SPEC, lambda: next(answers)) is None


@pytest.mark.parametrize(
    ("shape", "tile", "fits"),
    [
        (TOY, 16, True),
        (replace(TOY, experts=64, top_k=8), 8, True),
        (replace(TOY, experts=128, top_k=8), 16, False),
        (load_shape("qwen3.5-35b"), 8, False),
        (load_shape("mixtral-8x7b-fp8-tp8"), 8, False),
    ],
)
def test_only_small_launches_are_simulated(shape: object, tile: int, fits: bool) -> None:
    assert isinstance(shape, type(TOY))
    if fits:
        refute.require_small(shape, tile)
        return
    with pytest.raises(MonomoeError, match=r"read up to \d+ MiB of weights.* without --simulate"):
        refute.require_small(shape, tile)


def test_without_a_compiler_the_run_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_build, "has_compiler", lambda: False)
    host_build.compiler_version.cache_clear()
    with pytest.raises(EnvironmentProblem, match=r"g\+\+"):
        make_refuter(TOY, (1,), 8, "uniform", 1)


@needs_compiler
def test_a_planted_deadlock_is_a_record_and_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real templates, one hand-off of which is missing from one schedule's kernel."""
    bench = Bench(tmp_path)
    shutil.rmtree(bench.templates)
    fault = next(m for m in MUTANTS if m.name == "requantized h is never announced")
    arrive = f"if (schedule::kGUp != {HANGING.g_up}) {{ {fault.old} }}"
    replace(fault, new=arrive).plant(tmp_path)
    for module in ("render", "host_build"):
        monkeypatch.setattr(
            f"monomoe_gen.{module}.data_dir",
            lambda name: bench.templates if name == "templates" else data_dir(name),
        )
    monkeypatch.setattr(tune, "feasible", lambda shape, device, tile: [HANGING, SOUND])
    monkeypatch.setattr(test_tune, "SHAPE", TOY)
    names = {KernelSpec(TOY, s).kernel_name: s for s in (HANGING, SOUND)}
    monkeypatch.setattr(test_tune, "NAMES", names)
    monkeypatch.setenv(cubin_cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    report = bench.tune(tokens=(1,), simulate=1)
    assert report.failures == {"infeasible": 1}
    assert set(bench.gpu.measured()) == {SOUND}
    bad = [r for r in bench.records() if Schedule.from_dict(r.schedule) == HANGING]
    assert [(r.tokens, r.status, r.time_us) for r in bad] == [(1, "infeasible", None)]
    assert all("seed 0: deadlock" in r.message and "h_full" in r.message for r in bad)
    assert {Schedule.from_dict(r.schedule) for r in report.best.values()} == {SOUND}
    bench.gpu.requests.clear()
    assert bench.tune(tokens=(1,)).known == 2, "what is proven needs no second proof"
    assert bench.gpu.requests == []
