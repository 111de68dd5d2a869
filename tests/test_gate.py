"""The gate's driver on simulated GPUs: what it measures, in which order, what it makes of it."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from gate_worker import BASE_US, CLOCK_MHZ, FLOOR_US, H200, LIMITS, Gpu, image

from monomoe_gen import gate, regress
from monomoe_gen.candidates import CellId, Pair, Recorded, Side
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import EnvironmentProblem
from monomoe_gen.gate import CellResult, Plan, Run
from monomoe_gen.jobs import Floors
from monomoe_gen.lab import BLOCK
from monomoe_gen.regress import Verdict
from monomoe_gen.sandbox import Sandbox
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.worker_process import ProcessWorker

DEVICE = KNOWN[DEFAULT]
SHAPE = load_shape("qwen3.5-35b")
SPEC = KernelSpec(SHAPE, feasible(SHAPE, DEVICE)[0])
FLOORS = Floors((image(),), image())
RATIO = BASE_US / FLOOR_US
PLAN = Plan()
Check = Callable[..., Run]


def side(words: str = "", binary: bytes = b"candidate") -> Side:
    return Side(SPEC, image(words, binary), "0" * 64, "nvrtc 0.0")


def pair(words: str = "", tokens: int = 1, old: str = "") -> Pair:
    """A candidate that behaves as ``words`` say next to another binary."""
    cell = CellId(SHAPE.name, tokens, "uniform")
    return Pair(cell, side(words, words.encode()), side(old, b"baseline"), None, "paired")


def recorded(words: str, ratio: float = RATIO, clock: float | None = CLOCK_MHZ) -> Pair:
    cell = CellId(SHAPE.name, 1, "uniform")
    return Pair(cell, side(words), None, Recorded(ratio, clock), "floor")


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def run(gpu: Gpu, *pairs: Pair, plan: Plan = PLAN) -> Run:
        return gate.check(pairs, plan, FLOORS, DEVICE, gpu.sandbox(tmp_path))

    return run


def only(run: Run) -> CellResult:
    (result,) = run.cells
    return result


@pytest.mark.parametrize(
    ("slow", "verdict"),
    [(1.0, Verdict.OK), (1.06, Verdict.REGRESSION), (0.94, Verdict.IMPROVED)],
)
def test_a_clear_case_is_decided_at_the_first_look(
    check: Check, slow: float, verdict: Verdict
) -> None:
    gpu = Gpu()
    result = only(check(gpu, pair(f"slow={slow}")))
    assert result.verdict is verdict
    assert result.judgement
    assert result.judgement.effect == pytest.approx(slow - 1, abs=0.008)
    assert result.judgement.processes == 4
    assert result.judgement.blocks == 8
    assert gpu.workers == 1 + 4  # the validation's and one a process
    assert result.time_us == pytest.approx(BASE_US * slow, rel=0.02)
    assert result.baseline_us == pytest.approx(BASE_US, rel=0.02)


def test_blocks_are_baseline_candidate_candidate_baseline(check: Check) -> None:
    gpu = Gpu()
    check(gpu, pair())
    *validations, _ = gpu.asked[:3]
    timings = gpu.asked[2:]
    assert all(v.validate and v.timed is None for v in validations)
    assert [v.kernel.cubin for v in validations] == [b"", b"baseline"]
    assert len(timings) == 4 * 2 * 4
    old, new = b"baseline", b""
    turns = [old, new, new, old, new, old, old, new]  # the other way round in every second block
    assert [t.kernel.cubin for t in timings[:8]] == turns
    assert [t.kernel.cubin for t in timings[8:16]] == turns[4:] + turns[:4]
    assert all(t.timed and t.timed.replays == BLOCK.replays and not t.validate for t in timings)


def test_processes_double_while_a_cell_is_undecided(check: Check) -> None:
    gpu = Gpu(noise=0.02)
    run = check(gpu, pair("slow=1.02", tokens=1), pair("slow=1.5", tokens=4))
    close, clear = run.cells
    assert close.verdict is Verdict.INCONCLUSIVE
    assert close.message == "undecided after 16 processes"
    assert close.judgement and clear.judgement
    assert close.judgement.processes == 16
    assert clear.verdict is Verdict.REGRESSION
    assert clear.judgement.processes < 16, "what is decided is not measured again"
    assert gpu.workers == 1 + 16


def test_a_budget_ends_the_measuring_and_keeps_what_was_decided(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(noise=0.02)
    clock = SimpleNamespace(monotonic=lambda: 100.0 if gpu.workers > 1 + 4 else 0.0)
    monkeypatch.setattr(gate, "time", clock)
    cells = pair("slow=1.02", tokens=1), pair("slow=1.5", tokens=4)
    close, clear = check(gpu, *cells, plan=replace(PLAN, budget_s=60)).cells
    assert (close.verdict, close.message) == (
        Verdict.INCONCLUSIVE,
        "undecided when its 60 s were over",
    )
    assert close.judgement and close.judgement.processes == 4
    assert clear.verdict is Verdict.REGRESSION
    assert gpu.workers == 1 + 4 + 1


def test_an_interrupt_ends_the_measuring_and_keeps_what_was_decided(tmp_path: Path) -> None:
    gpu = Gpu(noise=0.02)
    cells = pair("slow=1.02", tokens=1), pair("slow=1.5", tokens=4)
    close, clear = gate.check(
        cells, PLAN, FLOORS, DEVICE, gpu.sandbox(tmp_path), stop=lambda: gpu.workers > 1 + 4
    ).cells
    assert (close.verdict, close.message) == (
        Verdict.INCONCLUSIVE,
        "undecided when it was interrupted",
    )
    assert clear.verdict is Verdict.REGRESSION
    (untimed,) = gate.check(
        cells[:1], PLAN, FLOORS, DEVICE, gpu.sandbox(tmp_path), stop=lambda: True
    ).cells
    assert untimed.judgement is None


def test_what_was_not_validated_is_not_ok(tmp_path: Path) -> None:
    gpu = Gpu()
    same = replace(pair(), method="same")
    for stop, verdict in ((False, Verdict.OK), (True, Verdict.INCONCLUSIVE)):
        run = gate.check(
            [same], PLAN, FLOORS, DEVICE, gpu.sandbox(tmp_path), stop=lambda stop=stop: stop
        )
        assert only(run).verdict is verdict
    assert only(run).message == "undecided when it was interrupted"


def test_a_look_that_is_complete_when_the_time_is_over_decides(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu()
    last = 2 + 4 * PLAN.blocks * 4  # validations of both sides, then four processes
    clock = SimpleNamespace(monotonic=lambda: 100.0 if len(gpu.asked) >= last else 0.0)
    monkeypatch.setattr(gate, "time", clock)
    assert only(check(gpu, pair("slow=1.5"), plan=replace(PLAN, budget_s=60))).verdict is (
        Verdict.REGRESSION
    )
    assert len(gpu.asked) == last


def test_wrong_numbers_are_not_timed(check: Check) -> None:
    gpu = Gpu()
    run = check(gpu, pair("wrong slow=0.5", tokens=1), pair("wrong slow=0.5", tokens=4))
    assert [r.verdict for r in run.cells] == [Verdict.WRONG] * 2
    assert run.cells[0].message == "wrong: cosine 0.9"
    assert gpu.workers == len(gpu.asked) == 1
    assert gpu.asked[0].tokens == (1, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("hang", "timeout: load the kernel: no answer within 1 s, killed"),
        ("crash", "launch_error: load the kernel: the worker died: the worker ended: SIGSEGV"),
        ("refuse", "launch_error: load the kernel: too much shared memory"),
        ("hang_timed", "timeout: load the kernel: no answer within 1 s, killed"),
    ],
)
def test_a_candidate_that_does_not_run_is_wrong_and_the_others_go_on(
    check: Check, words: str, message: str
) -> None:
    run = check(Gpu(), pair(words, tokens=1), pair("slow=1.1", tokens=4))
    assert [r.verdict for r in run.cells] == [Verdict.WRONG, Verdict.REGRESSION]
    assert run.cells[0].message == message


def test_a_baseline_that_stops_running_is_not_the_candidates_fault(check: Check) -> None:
    result = only(check(Gpu(), pair(old="hang_timed")))
    assert result.verdict is Verdict.ENVIRONMENT
    assert "the baseline does not run here: timeout" in result.message


@pytest.mark.parametrize("old", ["crash", "hang", "wrong", "refuse"])
def test_a_baseline_that_is_not_right_is_none(check: Check, old: str) -> None:
    lost = pair(old=old)
    result = only(check(Gpu(), lost))
    assert (result.verdict, result.method) == (Verdict.INCONCLUSIVE, "none")
    assert result.message.startswith("the baseline's cubin is of no use: ")
    assert result.message.endswith(", and no recorded ratio to compare with")
    known = replace(lost, recorded=Recorded(RATIO, CLOCK_MHZ))
    result = only(check(Gpu(noise=0.001), known))
    assert (result.verdict, result.method) == (Verdict.OK, "floor")
    assert result.message.startswith("the baseline's cubin is of no use: ")


def test_without_a_baseline_the_ratio_to_the_floor_decides(check: Check) -> None:
    for slow, verdict in ((1.0, Verdict.OK), (1.08, Verdict.REGRESSION), (0.9, Verdict.IMPROVED)):
        gpu = Gpu(noise=0.001)
        result = only(check(gpu, recorded(f"slow={slow}")))
        assert result.verdict is verdict
        assert result.judgement
        assert result.judgement.effect == pytest.approx(slow - 1, abs=0.01)
        assert result.baseline_us is None
        assert {t.timed.replays for t in gpu.asked if t.timed} == {BLOCK.replays}


def test_an_unchanged_kernel_need_only_not_seem_slower(check: Check) -> None:
    """Its ratio to the floor is as noisy as processes and cards are; nobody has changed it."""
    changed = recorded("slow=1.02")
    unchanged = replace(changed, baseline=changed.candidate)
    assert only(check(Gpu(noise=0.02), changed)).verdict is Verdict.INCONCLUSIVE
    result = only(check(Gpu(noise=0.02), unchanged))
    assert (result.verdict, result.method) == (Verdict.OK, "floor")
    assert result.message == "unchanged, not seen to be slower in 16 processes"
    assert result.judgement and result.judgement.processes == 16
    slower = replace(recorded("slow=1.08"), baseline=unchanged.baseline)
    assert only(check(Gpu(noise=0.001), slower)).verdict is Verdict.REGRESSION
    cut = replace(PLAN, budget_s=0.0)
    assert only(check(Gpu(noise=0.02), unchanged, plan=cut)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("words", ["slow=1.06 clock=0.96", "slow=1.06 clock=0.965", "slow=1.05"])
def test_an_unchanged_kernel_that_seems_slower_is_not_ok(check: Check, words: str) -> None:
    """Where the clock changed too, the regression is not claimed, but not denied either."""
    pair = recorded(words)
    unchanged = replace(pair, baseline=pair.candidate)
    for noise in (0.01, 0.02, 0.03):
        assert only(check(Gpu(noise=noise), unchanged)).verdict is not Verdict.OK


def test_a_slower_clock_is_no_regression(check: Check) -> None:
    slow = only(check(Gpu(), pair("slow=1.06 clock=0.944")))
    assert slow.verdict is Verdict.CLOCK_CHANGED
    assert slow.judgement and slow.judgement.cycles == pytest.approx(0, abs=0.01)
    since = only(check(Gpu(noise=0.001), recorded("slow=1.1", clock=CLOCK_MHZ * 1.1)))
    assert since.verdict is Verdict.CLOCK_CHANGED
    unknown = only(check(Gpu(noise=0.001), recorded("slow=1.1", clock=None)))
    assert unknown.verdict is Verdict.REGRESSION


def test_what_cannot_be_compared_is_not_timed(check: Check) -> None:
    gpu = Gpu()
    same = replace(pair(tokens=1), method="same")
    none = replace(pair(tokens=2), baseline=None, method="none")
    run = check(gpu, same, none)
    assert [r.verdict for r in run.cells] == [Verdict.OK, Verdict.INCONCLUSIVE]
    assert gpu.workers == 1, "they are validated all the same"


def test_another_gpu_is_an_environment_problem(check: Check) -> None:
    gpu = Gpu()
    gpu.env = lambda worker: {**H200, "gpu": "NVIDIA A100"}
    result = only(check(gpu, pair()))
    assert result.verdict is Verdict.ENVIRONMENT
    assert result.message == "this is a check for NVIDIA H200, the GPU is NVIDIA A100"


def test_a_gpu_that_changes_on_the_way_ends_the_run(check: Check) -> None:
    gpu = Gpu()
    gpu.env = lambda worker: {**H200, "uuid": "GPU-one" if worker < 4 else "GPU-two"}
    result = only(check(gpu, pair()))
    assert result.verdict is Verdict.ENVIRONMENT
    assert "the GPU changed from GPU-one to GPU-two" in result.message


def test_a_gpu_that_dies_keeps_what_was_decided(check: Check) -> None:
    gpu = Gpu(noise=0.02)
    gpu.dead_after = 1 + 4
    run = check(gpu, pair("slow=1.02", tokens=1), pair("slow=1.5", tokens=4))
    assert [r.verdict for r in run.cells] == [Verdict.ENVIRONMENT, Verdict.REGRESSION]
    assert "fresh process" in run.cells[0].message


def test_throttled_blocks_do_not_count_and_too_many_end_the_run(check: Check) -> None:
    gpu = Gpu()
    gpu.throttled = 0.03
    result = only(check(gpu, pair(), plan=Plan(blocks=8)))
    assert result.verdict is Verdict.OK
    assert result.judgement
    assert result.discarded > 0
    assert result.discarded + result.judgement.blocks == 4 * 8
    gpu.throttled = 0.3
    result = only(check(gpu, pair()))
    assert result.verdict is Verdict.ENVIRONMENT
    assert "lowered its clocks" in result.message


def test_a_gpu_at_its_power_limit_is_measured(check: Check) -> None:
    gpu = Gpu()
    gpu.throttled, gpu.throttle = 1.0, "sw_power_cap"
    result = only(check(gpu, pair("slow=1.1")))
    assert (result.verdict, result.discarded) == (Verdict.REGRESSION, 0)


def test_another_process_on_the_gpu_is_an_environment_problem(check: Check, tmp_path: Path) -> None:
    gpu = Gpu()
    with gpu.sandbox(tmp_path)():
        assert only(check(gpu, pair())).verdict is Verdict.ENVIRONMENT


def test_real_processes_that_hang_and_crash_are_survived(tmp_path: Path) -> None:
    """The same driver over pipes; `fake_worker.py` times 10 us and 8 us whatever it is asked."""
    fake = Path(__file__).with_name("fake_worker.py")

    def start() -> ProcessWorker:
        return ProcessWorker((sys.executable, str(fake)))

    def open_sandbox() -> Sandbox:
        return Sandbox(start, replace(LIMITS, start_s=30, stage_s=2, death_s=10), tmp_path)

    pairs = [replace(pair(words), cell=CellId(words, 1, "uniform")) for words in ("fine", "crash")]
    device = replace(DEVICE, slug="fake")
    run = gate.check(pairs, Plan(2, 2, 1), FLOORS, device, open_sandbox)
    assert [r.verdict for r in run.cells] == [Verdict.OK, Verdict.WRONG]


def test_a_cell_that_does_not_compile_joins_the_run(check: Check) -> None:
    run = check(Gpu(), pair(tokens=4))
    failed = {CellId(SHAPE.name, 1, "uniform"): "error: no"}
    first, second = gate.with_failed(run, failed).cells
    assert (first.verdict, first.message) == (Verdict.WRONG, "does not compile: error: no")
    assert second.verdict is Verdict.OK


def compare(gpu: Gpu, folder: Path, pairs: Sequence[Pair]) -> list[list[regress.Block]]:
    plan = Plan(processes=6, blocks=1)
    return gate.compare(pairs, plan, FLOORS, DEVICE, gpu.sandbox(folder))[0]


def test_a_calibration_hands_out_the_blocks(tmp_path: Path) -> None:
    (blocks,) = compare(Gpu(noise=0.01), tmp_path, [pair()])
    assert [block.process for block in blocks] == list(range(6))
    assert regress.noise_floor([blocks], 4) == pytest.approx(0.01 * math.sqrt(2), rel=0.9)


def test_a_calibration_does_not_go_on_with_less(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="uniform: timeout"):
        compare(Gpu(), tmp_path, [pair("hang")])
    gpu = Gpu()
    gpu.throttled = 0.5
    with pytest.raises(EnvironmentProblem, match="lowered its clocks"):
        compare(gpu, tmp_path, [pair()])
