"""A tuning run from start to table, with small templates and a worker that makes up times."""

import contextlib
import dataclasses
import itertools
import math
import queue
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from monomoe_gen import cost, cubin_cache, dispatch, finals, replay, tune, tuning_db
from monomoe_gen.campaign import Plan, Progress, Report
from monomoe_gen.device import KNOWN
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.meter import Speed
from monomoe_gen.protocol import (
    Cell,
    CellErrors,
    Done,
    Event,
    Failed,
    Floor,
    Measure,
    Ready,
    Stage,
    decode_request,
    encode,
)
from monomoe_gen.sandbox import Limits, Sandbox
from monomoe_gen.schedule import LAYOUTS, ROUTERS, KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import USUAL, Variant

H200 = KNOWN["nvidia-h200"]
SHAPE = load_shape("qwen3.5-35b")
SCHEDULES = [
    Schedule(132, g_up, 1024, 128, 512, d_up, 8) for g_up in (16, 32, 64) for d_up in (4, 6, 8)
]
UNQUANTIZED = load_shape(f"{SHAPE.name}-bf16")
VARIANTS = [Variant(*v) for v in itertools.product(LAYOUTS, ROUTERS, (False, True))]
NAMES = {
    variant.spec(shape, s, 8).kernel_name: s
    for s in SCHEDULES
    for variant in VARIANTS
    for shape in (SHAPE, UNQUANTIZED)
}
FILES = {
    "monomoe.cu.j2": "// sources ${sources_hash}\n"
    'extern "C" __global__ void ${kernel_name}(int* out) { *out = ${schedule.d_up}; }\n',
    "stream_floor.cu.j2": 'extern "C" __global__ void monomoe_stream_floor() {}\n',
    "empty.cu": 'extern "C" __global__ void monomoe_empty() {}\n',
}


def made_up_us(s: Schedule, tokens: int) -> float:
    """Best at g_up 32; d_up 4 is best for one token, d_up 8 for eight."""
    wanted = 4 if tokens < 4 else 8
    return 10.0 * tokens + abs(math.log2(s.g_up / 32)) + abs(s.d_up - wanted) / 4


class FakeGpu:
    """Makes workers that answer at once; ``faults`` says what a schedule does instead."""

    def __init__(self) -> None:
        self.faults: dict[Schedule, str] = {}
        self.requests: list[tuple[Schedule, Measure]] = []
        self.on_request: Callable[[int], object] = lambda count: None
        self.workers = 0
        self.slower: dict[tuple[Schedule, int], float] = {}  # all but the first worker, by tokens
        self.fresh_faults: dict[Schedule, str] = {}  # of all but the first worker
        self.served: dict[int, list[Schedule]] = {}  # by the number of the worker

    def start(self) -> "FakeWorker":
        self.workers += 1
        return FakeWorker(self)

    def measured(self) -> list[Schedule]:
        """Schedules in the order of their first request."""
        return list(dict.fromkeys(s for s, _ in self.requests))


class FakeWorker:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.number = gpu, gpu.workers
        self.events: queue.SimpleQueue[Event | Exception] = queue.SimpleQueue()
        self.events.put(Ready({"gpu": "NVIDIA H200", "uuid": "GPU-0", "sms": 132}))

    def send(self, line: str) -> None:
        request = decode_request(line)
        schedule = NAMES[request.kernel.name]
        self.gpu.requests.append((schedule, request))
        self.gpu.on_request(len(self.gpu.requests))
        self.gpu.served.setdefault(self.number, []).append(schedule)
        fault = self.gpu.faults.get(schedule, "")
        if self.number > 1:
            fault = self.gpu.fresh_faults.get(schedule, fault)
        for tokens in request.tokens:
            self.events.put(Stage(f"time {tokens} tokens"))
            if fault == "hang" and tokens == 8:
                self.events.put(TimeoutError())
            elif fault == "crash":
                self.events.put(EOFError("SIGSEGV"))
            elif fault == "launch":
                self.events.put(Failed("kernel", "illegal address", fatal=True))
            elif (fault == "wrong" and tokens == 8) or (fault == "wrong at 5" and tokens == 5):
                self.events.put(Cell(tokens=tokens, status="wrong", message="cosine 0.5"))
            else:
                self.events.put(self.cell(schedule, tokens, request))
        self.events.put(Done())

    def cell(self, schedule: Schedule, tokens: int, request: Measure) -> Cell:
        us = made_up_us(schedule, tokens)
        if self.number > 1:
            us *= self.gpu.slower.get((schedule, tokens), 1.0)
        timed = request.timed
        return Cell(
            tokens=tokens,
            status="ok",
            errors={"gaussian": CellErrors(0.9991, 0.04, 1e-3)} if request.validate else {},
            samples=(us,) * timed.replays if timed else (),
            floor=Floor(7.5 * tokens, 0.57) if timed else None,
            distinct_experts=8.0 * tokens if timed else None,
            reuse_bytes=200_000_000 if timed else None,
            env={"sm_clock_mhz": 1980},
        )

    def receive(self, timeout_s: float) -> str:
        event = self.events.get(timeout=5)
        if isinstance(event, Exception):
            raise event
        return encode(event)

    def kill(self, timeout_s: float) -> None:
        pass


class Bench:
    """A project of its own with nine feasible schedules and a made-up GPU."""

    def __init__(self, root: Path) -> None:
        self.root, self.gpu = root, FakeGpu()
        self.templates = root / "templates"
        self.templates.mkdir()
        for name, text in FILES.items():
            (self.templates / name).write_text(text)
        self.database, self.folder = root / "tuning_db", root / "generated"
        self.said: list[str] = []
        self.progress: list[Progress] = []

    def plan(self, **changes: object) -> Plan:
        places = {"shape": SHAPE, "database": self.database, "folder": self.folder}
        return Plan(**places | changes)  # type: ignore[arg-type]

    def tune(self, **changes: object) -> Report:
        return tune.tune(
            self.plan(**changes),
            H200,
            say=self.said.append,
            observe=self.progress.append,
            sandbox=lambda: Sandbox(self.gpu.start, Limits(pause_s=0), self.root),
        )

    def replay(self, **changes: object) -> Report:
        return replay.replay(
            self.plan(**changes), H200, say=self.said.append, observe=self.progress.append
        )

    def records(self) -> list[Record]:
        return tuning_db.read(tuning_db.database_path(H200.slug, SHAPE.name, self.database))

    def files(self) -> dict[str, bytes]:
        paths = [p for p in self.root.rglob("*") if p.is_file() and p.suffix != ".lock"]
        return {str(p): p.read_bytes() for p in paths if "cache" not in p.parts}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setattr("monomoe_gen.render.data_dir", lambda name: made.templates)
    monkeypatch.setattr(tune, "feasible", lambda shape, device, tile: list(SCHEDULES))
    monkeypatch.setenv(cubin_cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return made


def best(report: Report) -> dict[int, Schedule]:
    return {n: Schedule.from_dict(r.schedule) for n, r in report.best.items()}


FOR_ONE, FOR_EIGHT = SCHEDULES[3], SCHEDULES[5]
WINNERS = {1: FOR_ONE, 2: FOR_ONE, 4: FOR_EIGHT, 8: FOR_EIGHT}


def test_a_run_measures_everything_and_dispatches_the_best(bench: Bench) -> None:
    report = bench.tune()
    assert (report.measured, report.known, report.left) == (9, 0, 0)
    assert not (report.replay or report.interrupted or report.failures)
    assert best(report) == WINNERS
    assert report.emission
    table = dispatch.load(bench.folder)
    for n, schedule in WINNERS.items():
        match = dispatch.lookup(table, SHAPE.name, n)
        assert (match.kernel.schedule, match.entry.time_us) == (schedule, made_up_us(schedule, n))
        assert dispatch.read_cubin(bench.folder, match.kernel)
    assert len(bench.progress) >= 9
    assert bench.progress[-1].note == "best us 1:10 2:20 4:40 8:80"


def test_the_report_says_how_fast_it_went(bench: Bench) -> None:
    first = bench.tune(trials=4).speed
    assert first and first.compiled >= 4 and first.measured >= 4
    assert 0 <= first.idle <= 1 and 0 < first.busy_s <= first.seconds
    again = bench.tune(fresh=True, trials=4).speed
    assert again and again.cached >= 4
    text = str(Speed(30, 10, 60.0, 40, 15.0, 20.0))
    assert text == (
        "compiled 30 (1.5 a second, 2.0 s each), 10 from the cache; "
        "40 requests to the GPU, idle 25% of 20 s"
    )


def test_what_the_cost_model_likes_comes_first(bench: Bench) -> None:
    predicted = cost.favourites([KernelSpec(SHAPE, s) for s in SCHEDULES], (1, 2, 4, 8))
    bench.tune(trials=3)
    assert bench.gpu.measured()[:3] == predicted[:3]
    assert predicted[:3] != SCHEDULES[:3]


def test_each_candidate_is_compiled_once_and_timed_at_every_token_count(bench: Bench) -> None:
    bench.tune()
    screens = bench.gpu.requests[:9]
    assert {r.tokens for _, r in screens} == {(1, 2, 4, 8)}
    assert all(r.validate and r.timed and r.timed.replays == 20 for _, r in screens)
    assert {len(r.timed.streams) for _, r in screens if r.timed} == {3}
    half = KernelSpec(SHAPE, SCHEDULES[0]).geometry.workspace_half_bytes
    assert {r.kernel.half_bytes for _, r in screens} == {half}


def test_a_record_holds_the_evidence(bench: Bench) -> None:
    bench.tune()
    records = bench.records()
    screens = [r for r in records if r.stage == "screen"]
    assert len(screens) == 9 * 4
    (record,) = [r for r in screens if r.tokens == 2 and Schedule.from_dict(r.schedule) == FOR_ONE]
    assert record.status == "ok" and record.time_us
    assert (record.time_us.median, record.time_us.n) == (20.0, 20)
    assert (record.floor_us, record.empty_us, record.distinct_experts) == (15.0, 0.57, 16.0)
    assert record.errors["gaussian"].cosine == 0.9991
    assert record.binary and record.binary.registers > 0
    assert record.env["uuid"] == "GPU-0"
    assert record.env["sm_clock_mhz"] == 1980
    assert record.env["reuse_bytes"] == 200_000_000


def test_finalists_are_validated_for_all_tokens_and_timed_in_turns(bench: Bench) -> None:
    bench.tune()
    last = [(s, r) for s, r in bench.gpu.requests[9:] if not (r.validate and r.timed)]
    gates = [(s, r) for s, r in last if r.timed is None]
    rounds = [(s, r) for s, r in last if r.timed]
    assert {r.tokens for _, r in gates} == {tuple(range(1, 9))}
    assert all(r.validate for _, r in gates)
    order = [s for s, _ in rounds]
    turn = len(gates)
    assert len(order) == finals.ROUNDS * turn
    assert order[:turn] == order[turn : 2 * turn] == order[2 * turn :]
    assert all(r.timed and (r.timed.warmups, r.timed.replays) == (20, 200) for _, r in rounds)
    final = [r for r in bench.records() if r.stage == "final"]
    assert {r.time_us.n for r in final if r.time_us} == {200 * finals.ROUNDS}
    assert all(r.errors for r in final)
    leads = {(Schedule.from_dict(r.schedule), r.tokens) for r in final}
    assert {(s, n) for n, s in WINNERS.items()} <= leads


def test_winners_are_timed_again_in_fresh_processes_and_the_table_carries_that(
    bench: Bench,
) -> None:
    """All that an old process measures for the fourth time is 10 % slower in a fresh one."""
    bench.gpu.slower = {(s, 2): 1.1 for s in SCHEDULES}
    report = bench.tune()
    confirmed = [(s, r) for s, r in bench.gpu.requests if r.validate and r.timed][9:]
    assert [(s, r.tokens) for s, r in confirmed] == [(FOR_ONE, (1, 2)), (FOR_EIGHT, (4, 8))]
    assert all(r.timed and r.timed.replays == 200 for _, r in confirmed)
    first = finals.ROUNDS + 1
    served = {n: own for n, own in bench.gpu.served.items() if n >= first}
    assert served == {first: [FOR_ONE], first + 1: [FOR_EIGHT]}
    assert best(report) == WINNERS and report.restarts == 0
    records = [r for r in bench.records() if r.stage == "confirm"]
    assert [r.tokens for r in records] == [1, 2, 4, 8] and all(r.errors for r in records)
    (final,) = [r for r in bench.records() if r.stage == "final" and r == report.winners[2].record]
    table = dispatch.load(bench.folder)
    entry = dispatch.lookup(table, SHAPE.name, 2).entry
    assert final.time_us and (final.time_us.p10, final.time_us.median) == (20.0, 22.0)
    assert (entry.time_us, entry.record.stage) == (22.0, "confirm")
    assert entry.low_us and entry.high_us and entry.low_us <= 22.0 <= entry.high_us
    bench.gpu.requests.clear()
    bench.tune()
    assert bench.gpu.requests == []


def test_a_finalist_that_was_fast_in_one_process_only_loses(bench: Bench) -> None:
    bench.gpu.slower = {(FOR_EIGHT, n): 1.5 for n in (4, 8)}
    report = bench.tune()
    assert [best(report)[n] for n in (1, 2)] == [FOR_ONE, FOR_ONE]
    assert FOR_EIGHT not in best(report).values()
    rounds = [n for n, own in bench.gpu.served.items() if 1 < n <= finals.ROUNDS and own]
    assert rounds == [2, 3], "each later round of finals has a process of its own"


def test_the_dispatched_kernel_is_a_finalist(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Screening puts it behind four others once the sources have changed."""
    held, usual = SCHEDULES[7], made_up_us
    times = {(held, 8): 1.0}
    monkeypatch.setitem(globals(), "made_up_us", lambda s, n: times.get((s, n), 0) or usual(s, n))
    assert best(bench.tune()) == {**WINNERS, 8: held}
    times.clear()
    (bench.templates / "monomoe.cu.j2").write_text("// newer\n" + FILES["monomoe.cu.j2"])
    bench.gpu.requests.clear()
    assert best(bench.tune(prune=None)) == WINNERS
    assert held in bench.gpu.measured()[:4], "who is dispatched is tried first"
    requests = bench.gpu.requests
    timed = {r.tokens for s, r in requests if s == held and r.timed and not r.validate}
    assert timed == {(8,)}, "and timed again beside the four fastest, where it won"
    bench.gpu.requests.clear()
    (bench.folder / "dispatch.json").unlink()
    assert best(bench.tune(prune=None)) == WINNERS and not bench.gpu.requests


def test_a_late_finalist_is_timed_beside_the_one_that_leads(bench: Bench) -> None:
    bench.tune()
    late = next(s for s in SCHEDULES if s not in WINNERS.values())
    path = tuning_db.database_path(H200.slug, SHAPE.name, bench.database)
    theirs = [r for r in bench.records() if Schedule.from_dict(r.schedule) == late]
    lines = path.read_text().splitlines(keepends=True)
    finals_of = {n for n, r in enumerate(bench.records(), 1) if r in theirs and r.stage == "final"}
    path.write_text("".join(line for n, line in enumerate(lines) if n not in finals_of))
    bench.gpu.requests.clear()
    assert best(bench.tune()) == WINNERS
    again = {(s, r.tokens) for s, r in bench.gpu.requests if r.timed and not r.validate}
    counts = tuple(r.tokens for r in theirs if r.stage == "final")
    leading = {(WINNERS[n], n) for n in counts}
    assert {(s, n) for s, tokens in again for n in tokens} == leading | {(late, n) for n in counts}


def slow_under_zipf(monkeypatch: pytest.MonkeyPatch, spared: Schedule) -> None:
    """Under Zipf routing everything but ``spared`` takes twice the time."""
    usual = FakeWorker.cell

    def cell(self: FakeWorker, schedule: Schedule, tokens: int, request: Measure) -> Cell:
        made = usual(self, schedule, tokens, request)
        slow = request.routing == "zipf" and schedule != spared
        return dataclasses.replace(made, samples=tuple(us * (1 + slow) for us in made.samples))

    monkeypatch.setattr(FakeWorker, "cell", cell)


def test_an_objective_has_finalists_timed_under_its_routings_and_decides(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SCHEDULES[4]
    slow_under_zipf(monkeypatch, shared)
    assert best(bench.tune()) == WINNERS
    plain = [(e.tuned_at, e.kernel) for e in dispatch.load(bench.folder).entries]
    bench.gpu.requests.clear()
    weights = {"uniform": 0.7, "zipf": 0.3}
    report = bench.tune(weights=weights)
    assert report.measured == 0 and best(report) == dict.fromkeys((1, 2, 4, 8), shared)
    timed = [(s, r.routing) for s, r in bench.gpu.requests if r.timed and not r.validate]
    finalists = {s for s, _ in timed}
    turns = [(s, routing) for s in dict.fromkeys(s for s, _ in timed) for routing in weights]
    assert timed == turns * finals.ROUNDS and shared in finalists
    finals_of = [r for r in bench.records() if r.stage == "final" and r.routing == "zipf"]
    assert finals_of and {r.time_us.n for r in finals_of if r.time_us} == {600}
    table = dispatch.load(bench.folder)
    match = dispatch.lookup(table, SHAPE.name, 2)
    assert (match.kernel.schedule, match.entry.time_us) == (shared, made_up_us(shared, 2))
    bench.gpu.requests.clear()
    files = bench.files()
    assert best(bench.tune(weights=weights)) == best(report) == best(bench.replay(weights=weights))
    assert bench.gpu.requests == [] and bench.files() == files, "all is known"
    assert best(bench.tune()) == WINNERS
    again = [(e.tuned_at, e.kernel) for e in dispatch.load(bench.folder).entries]
    assert again == plain, "and without it all is as before"


def test_a_finalist_that_fails_under_another_routing_has_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = FakeWorker.cell

    def cell(self: FakeWorker, schedule: Schedule, tokens: int, request: Measure) -> Cell:
        if request.routing == "zipf" and schedule == FOR_EIGHT:
            return Cell(tokens=tokens, status="unstable", message="as asked")
        return usual(self, schedule, tokens, request)

    monkeypatch.setattr(FakeWorker, "cell", cell)
    report = bench.tune(weights={"uniform": 0.7, "zipf": 0.3})
    assert report.failures == {"unstable": 1}
    assert FOR_EIGHT not in best(report).values() and set(report.best) == {1, 2, 4, 8}


def test_a_winner_that_fails_in_a_fresh_process_has_lost(bench: Bench) -> None:
    bench.gpu.fresh_faults[FOR_EIGHT] = "launch"
    report = bench.tune()
    assert report.failures == {"launch_error": 1}
    assert FOR_EIGHT not in best(report).values()
    assert set(report.best) == {1, 2, 4, 8}
    assert all(winner.confirmed for winner in report.winners.values())
    table = dispatch.load(bench.folder)
    assert FOR_EIGHT not in {k.schedule for k in table.kernels}


def test_a_second_run_continues_and_changes_nothing_when_all_is_known(bench: Bench) -> None:
    first = bench.tune(trials=4)
    assert (first.measured, first.left) == (4, 5)
    before = set(bench.gpu.measured())
    bench.gpu.requests.clear()
    second = bench.tune()
    assert (second.known, second.measured, second.left) == (4, 5, 0)
    screens = [s for s, r in bench.gpu.requests if r.timed and r.timed.replays == 20]
    assert set(screens) == set(SCHEDULES) - before
    bench.gpu.requests.clear()
    files = bench.files()
    third = bench.tune()
    assert (third.known, third.measured) == (9, 0)
    assert bench.gpu.requests == []
    assert bench.files() == files


def test_a_new_token_count_is_all_that_is_measured(bench: Bench) -> None:
    bench.tune(tokens=(1, 8))
    bench.gpu.requests.clear()
    report = bench.tune(tokens=(1, 2, 8))
    assert report.measured == 9
    assert {r.tokens for _, r in bench.gpu.requests[:9]} == {(2,)}


def test_fresh_measures_again(bench: Bench) -> None:
    bench.tune()
    report = bench.tune(fresh=True)
    assert (report.known, report.measured) == (0, 9)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("hang", "timeout"),
        ("crash", "launch_error"),
        ("launch", "launch_error"),
        ("wrong", "wrong"),
    ],
)
def test_a_bad_candidate_is_a_record_for_all_tokens_and_the_run_goes_on(
    bench: Bench, fault: str, status: str
) -> None:
    bench.gpu.faults[FOR_EIGHT] = fault
    report = bench.tune()
    assert report.measured == 9 and report.failures == {status: 1}
    bad = [r for r in bench.records() if Schedule.from_dict(r.schedule) == FOR_EIGHT]
    assert {r.tokens: r.status for r in bad} == dict.fromkeys((1, 2, 4, 8), status)
    assert all(r.message and r.time_us is None for r in bad)
    assert FOR_EIGHT not in best(report).values()
    renewed = len({s.id for s in best(report).values()})
    assert report.restarts == (0 if fault == "wrong" else 1)
    assert bench.gpu.workers == finals.ROUNDS + report.restarts + renewed
    bench.gpu.requests.clear()
    assert bench.tune().known == 9
    assert FOR_EIGHT not in bench.gpu.measured()


def test_a_finalist_that_is_wrong_for_a_count_nobody_asked_for_loses(bench: Bench) -> None:
    """Dispatch would let the kernel serve five tokens."""
    bench.gpu.faults[FOR_EIGHT] = "wrong at 5"
    report = bench.tune()
    assert report.failures == {"wrong": 1}
    assert FOR_EIGHT not in best(report).values()
    final = [r for r in bench.records() if r.stage == "final"]
    assert {r.status for r in final if Schedule.from_dict(r.schedule) == FOR_EIGHT} == {"wrong"}
    table = dispatch.load(bench.folder)
    assert FOR_EIGHT not in {k.schedule for k in table.kernels}


def test_a_candidate_that_does_not_compile_is_a_record(bench: Bench) -> None:
    text = FILES["monomoe.cu.j2"]
    (bench.templates / "monomoe.cu.j2").write_text(
        text + "//% if schedule.g_up == 64\n#error no room\n//% endif\n"
    )
    report = bench.tune()
    assert report.failures == {"compile_error": 3}
    bad = [r for r in bench.records() if r.status == "compile_error"]
    assert len(bad) == 3 * 4
    assert all("no room" in r.message and r.binary is None for r in bad)
    assert best(report) == WINNERS


def test_when_nothing_works_there_is_a_report_and_no_table(bench: Bench) -> None:
    bench.gpu.faults = dict.fromkeys(SCHEDULES, "launch")
    report = bench.tune()
    assert report.failures == {"launch_error": 9}
    assert report.best == {} and report.emission is None
    assert not bench.folder.exists()


def test_ctrl_c_ends_after_the_candidate_and_the_next_run_continues(bench: Bench) -> None:
    def press(count: int) -> None:
        if count == 3:
            signal.raise_signal(signal.SIGINT)

    bench.gpu.on_request = press
    report = bench.tune()
    assert report.interrupted and report.measured == 3 and report.emission is None
    assert len(bench.records()) == 3 * 4
    bench.gpu.on_request = lambda count: None
    assert bench.tune().known == 3


def test_ctrl_c_among_the_finals_keeps_whole_rounds_and_the_next_run_times_all(
    bench: Bench,
) -> None:
    """One round is one process, in which a kernel may be fast by luck."""
    bench.gpu.slower = {(FOR_EIGHT, n): 1.5 for n in (4, 8)}
    fair = best(bench.tune(prune=None))
    assert FOR_EIGHT not in fair.values()
    gates = sum(not r.timed for _, r in bench.gpu.requests)

    def press(count: int) -> None:
        if count == 9 + gates + gates + 1:  # screened, validated, one round, one of the second
            signal.raise_signal(signal.SIGINT)

    bench.gpu.requests.clear()
    bench.gpu.workers = 0
    bench.gpu.on_request = press
    before = len(bench.records())
    report = bench.tune(fresh=True, prune=None)
    assert report.interrupted and report.emission is None
    kept = [r.time_us for r in bench.records()[before:] if r.stage == "final"]
    assert {time.n for time in kept if time} == {200} and bench.progress[-1].stage == "final"
    assert bench.progress[-1].done < bench.progress[-1].total
    bench.gpu.on_request = lambda count: None
    bench.gpu.workers = 0
    assert best(bench.tune(prune=None)) == fair
    last = {(r.tokens, str(r.schedule)): r for r in bench.records() if r.stage == "final"}
    assert {r.time_us.n for r in last.values() if r.time_us} == {600}


def test_finals_with_few_samples_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that gives fewer than asked for is not asked for ever."""
    usual = FakeWorker.cell

    def cell(self: FakeWorker, schedule: Schedule, tokens: int, request: Measure) -> Cell:
        made = usual(self, schedule, tokens, request)
        return dataclasses.replace(made, samples=made.samples[:3])

    monkeypatch.setattr(FakeWorker, "cell", cell)
    report = bench.tune()
    assert best(report) == WINNERS
    assert all(winner.confirmed for winner in report.winners.values())


def test_quick_finals_leave_better_ones_alone(bench: Bench) -> None:
    raw = Variant("raw")
    bench.tune()
    bench.tune(variant=raw)
    entries = dispatch.load(bench.folder).entries
    path = tuning_db.database_path(H200.slug, SHAPE.name, bench.database)
    lines = path.read_text().splitlines(keepends=True)
    second = SCHEDULES[4]
    lost = {
        n
        for n, r in enumerate(bench.records(), 1)
        if Schedule.from_dict(r.schedule) == second and (r.stage, r.layout) == ("final", "raw")
    }
    assert lost
    path.write_text("".join(line for n, line in enumerate(lines) if n not in lost))
    bench.tune(variant=raw, from_winners=2)
    assert dispatch.load(bench.folder).entries == entries, "confirmed, of 600 replays"


def test_ctrl_c_twice_aborts(bench: Bench) -> None:
    def press(count: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    bench.gpu.on_request = press
    with pytest.raises(KeyboardInterrupt):
        bench.tune()
    assert bench.records() == []


def test_the_budget_ends_the_search_and_the_best_so_far_is_dispatched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = 0.0
    monkeypatch.setattr(tune.time, "monotonic", lambda: gone)

    def work(count: int) -> None:
        nonlocal gone
        gone += 10

    bench.gpu.on_request = work
    report = bench.tune(budget_s=50, prune=None)
    assert report.measured == 4  # 40 of 50 seconds, the rest is for the finalists
    assert set(report.best) == {1, 2, 4, 8} and report.emission


def test_optuna_proposes_when_the_space_exceeds_the_trials(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: list[bool] = []
    ask = tune.Search.ask

    def spy(self: tune.Search, in_order: bool) -> Schedule | None:
        orders.append(in_order)
        return ask(self, in_order)

    monkeypatch.setattr(tune.Search, "ask", spy)
    bench.tune(trials=5)
    assert len(orders) == 5 and not any(orders)
    orders.clear()
    bench.tune()
    assert len(orders) >= 4 and all(orders)


def test_what_is_slower_at_most_tokens_is_not_timed_at_fewer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = made_up_us
    slow = set(SCHEDULES[6:])
    monkeypatch.setattr(
        "test_tune.made_up_us", lambda s, n: times(s, n) * (1.2 if s in slow else 1.0)
    )
    monkeypatch.setattr(cost, "favourites", lambda specs, tokens: [FOR_ONE])
    report = bench.tune(trials=9)
    screens = [(s, r) for s, r in bench.gpu.requests if r.timed and r.timed.replays == 20]
    assert {r.tokens for s, r in screens if s in slow} == {(8,)}
    assert [r.tokens for s, r in screens if s == FOR_EIGHT] == [(8,), (1,), (2, 4)]
    assert (report.measured, report.pruned, report.failures) == (9, 3, {})
    assert best(report) == WINNERS
    bench.gpu.requests.clear()
    again = bench.tune(trials=9)
    assert (again.measured, again.pruned, bench.gpu.requests) == (0, 3, [])
    whole = bench.tune()
    assert (whole.measured, whole.pruned) == (3, 0)
    assert {(s, r.tokens) for s, r in bench.gpu.requests} == {(s, (1, 2, 4)) for s in slow}
    assert best(whole) == WINNERS


@pytest.mark.parametrize("options", [{"prune": None}, {"sampler": "exhaustive"}, {"trials": None}])
def test_nothing_is_pruned_when_all_is_wanted(
    options: dict[str, object], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_tune.made_up_us", lambda s, n: 10.0 + 20 * SCHEDULES.index(s))
    report = bench.tune(**{"trials": 9, **options})
    assert (report.measured, report.pruned) == (9, 0)
    assert {r.tokens for s, r in bench.gpu.requests if r.timed and r.timed.replays == 20} == {
        (1, 2, 4, 8)
    }


def test_records_of_older_templates_only_point_the_way(bench: Bench) -> None:
    bench.tune()
    (bench.templates / "monomoe.cu.j2").write_text("// new\n" + FILES["monomoe.cu.j2"])
    bench.gpu.requests.clear()
    report = bench.tune(trials=2)
    assert (report.known, report.measured) == (0, 2)
    assert set(bench.gpu.measured()[:2]) <= {FOR_ONE, *SCHEDULES}
    assert FOR_ONE in bench.gpu.measured()[:2]


def test_a_new_shape_begins_at_the_records_of_the_nearest(bench: Bench) -> None:
    """glm-5.2 is nearer than deepseek; its best schedules and the cost model's take turns."""
    bench.tune(trials=1)
    (template, *_) = bench.records()
    tuning_db.database_path(H200.slug, SHAPE.name, bench.database).unlink()
    wanted = [SCHEDULES[8], SCHEDULES[0]]
    for model, best in (("glm-5.2-tp8", wanted), ("deepseek-v3.1-tp8", SCHEDULES[4:6])):
        for i, schedule in enumerate(best):
            near = dataclasses.replace(schedule, k_down=256, grid=128)
            time_us = tuning_db.Time(20.0 + i, 20.0 + i, 20.0 + i, 20)
            record = dataclasses.replace(
                template, schedule=near.to_dict(), time_us=time_us, tokens=2, env={}
            )
            tuning_db.append(tuning_db.database_path(H200.slug, model, bench.database), record)
    bench.gpu.requests.clear()
    report = bench.tune(trials=4)
    predicted = cost.favourites([KernelSpec(SHAPE, s) for s in SCHEDULES], (1, 2, 4, 8))
    turns = [predicted[0], wanted[0], predicted[1], wanted[1]]
    assert bench.gpu.measured()[: len(set(turns))] == list(dict.fromkeys(turns))
    assert any("2 schedules nearest to the best of glm-5.2-tp8" in text for text in bench.said)
    assert "2 schedules nearest to the best of glm-5.2-tp8" in report.transfer
    assert "% slower; the 9 favourites" in report.transfer
    assert bench.tune(trials=1).transfer == "", "the shape has records of its own now"


def test_a_variant_is_asked_for_recorded_and_dispatched(bench: Bench) -> None:
    bench.tune(tokens=(1,))
    bench.gpu.requests.clear()
    variant = Variant("raw", "weight", True)
    report = bench.tune(tokens=(1,), variant=variant)
    assert (report.known, report.measured) == (0, 9), "records of usual kernels do not count"
    asked = {(r.layout, r.kernel.router, r.kernel.pdl) for _, r in bench.gpu.requests}
    assert asked == {("raw", "weight", True)}
    table = dispatch.load(bench.folder)
    assert {e.variant for e in table.entries} == {USUAL, variant}
    assert dispatch.lookup(table, SHAPE.name, 1, variant).kernel.schedule == FOR_ONE
    records = bench.records()
    assert {Variant.of(r) for r in records} == {USUAL, variant}
    replayed = bench.replay(tokens=(1,), variant=variant)
    assert best(replayed) == {1: FOR_ONE} and replayed.known == 9


@pytest.mark.parametrize("changes", [{"variant": Variant(pdl=True)}, {"shape": UNQUANTIZED}])
def test_from_winners_tries_the_best_of_the_usual_kernels_alone(
    bench: Bench, changes: dict[str, object]
) -> None:
    bench.tune()
    bench.gpu.requests.clear()
    workers = bench.gpu.workers
    report = bench.tune(from_winners=1, **changes)
    assert set(bench.gpu.measured()) == {FOR_ONE, FOR_EIGHT} and report.measured == 2
    assert best(report) == WINNERS and bench.gpu.workers == workers + 1, "nothing is confirmed"
    timed = [r.timed.replays for _, r in bench.gpu.requests if r.timed]
    assert timed == [20, 20, 100, 100], "one round of finals"
    gates = [r.tokens for _, r in bench.gpu.requests if not r.timed]
    assert gates == [tuple(range(1, 9))] * 2, "finalists are validated for every token count"
    assert any("trying 2 schedules nearest to the best of" in text for text in bench.said)
    bench.gpu.requests.clear()
    again = bench.tune(from_winners=1, **changes)
    assert again.measured == 0 and bench.gpu.requests == []
    table = dispatch.load(bench.folder)
    name = getattr(changes.get("shape"), "name", SHAPE.name)
    entry = dispatch.lookup(table, name, 1, changes.get("variant", USUAL)).entry  # type: ignore[arg-type]
    assert entry.record.stage == "final"


def test_from_winners_tries_those_of_the_objective(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SCHEDULES[4]
    slow_under_zipf(monkeypatch, shared)
    weights = {"uniform": 0.7, "zipf": 0.3}
    assert set(best(bench.tune(weights=weights)).values()) == {shared}
    bench.gpu.requests.clear()
    variant = Variant("raw", pdl=True)
    report = bench.tune(weights=weights, variant=variant, from_winners=1)
    assert set(bench.gpu.measured()) == {shared} == set(best(report).values())
    timed = [r.routing for _, r in bench.gpu.requests if r.timed and not r.validate]
    assert timed == ["uniform", "zipf"], "one round"
    own = [r for r in bench.records() if Variant.of(r) == variant]
    assert {(r.stage, r.routing) for r in own} == {
        ("screen", "uniform"),
        ("final", "uniform"),
        ("final", "zipf"),
    }
    bench.gpu.requests.clear()
    again = bench.tune(weights=weights, variant=variant, from_winners=1)
    assert best(again) == best(report) == best(bench.replay(weights=weights, variant=variant))
    assert bench.gpu.requests == [], "all is known"


def test_from_winners_takes_what_won_before_of_the_variant_itself(bench: Bench) -> None:
    bench.tune(trials=1)
    bench.tune(variant=Variant("raw"))
    (bench.templates / "monomoe.cu.j2").write_text("// newer\n" + FILES["monomoe.cu.j2"])
    bench.gpu.requests.clear()
    bench.tune(variant=Variant("raw"), from_winners=1)
    usual = {Schedule.from_dict(r.schedule) for r in bench.records() if Variant.of(r) == USUAL}
    assert set(bench.gpu.measured()) == {*usual, FOR_ONE, FOR_EIGHT}


def test_from_winners_needs_some(bench: Bench) -> None:
    with pytest.raises(MonomoeError, match=r"no times of qwen3\.5-35b for up to 8 tokens"):
        bench.tune(variant=Variant("raw"), from_winners=2)
    with pytest.raises(MonomoeError, match="no times of such a shape"):
        bench.tune(from_winners=2)


def test_two_runs_do_not_measure_at_once(bench: Bench) -> None:
    inside, leave = threading.Event(), threading.Event()

    def wait(count: int) -> None:
        inside.set()
        leave.wait(30)

    bench.gpu.on_request = wait
    first = threading.Thread(target=bench.tune)
    first.start()
    try:
        assert inside.wait(30)
        with pytest.raises(EnvironmentProblem, match="another process is measuring"):
            tune.tune(
                bench.plan(),
                H200,
                sandbox=lambda: Sandbox(bench.gpu.start, Limits(lock_s=0.1), bench.root),
            )
    finally:
        leave.set()
        first.join()


def test_a_replay_finds_what_is_recorded_and_touches_nothing(bench: Bench) -> None:
    bench.tune()
    bench.said.clear()
    bench.progress.clear()
    files = bench.files()
    report = bench.replay()
    assert bench.said[0].startswith("no CUDA device: replaying 9 recorded schedules")
    assert (report.replay, report.measured, report.known) == (True, 0, 9)
    assert best(report) == WINNERS
    assert report.emission and report.emission.written == report.emission.removed == ()
    assert bench.files() == files
    assert [p.done for p in bench.progress] == list(range(1, 10))


def test_a_replay_writes_a_missing_table_from_the_records(bench: Bench) -> None:
    bench.tune()
    files = bench.files()
    for path in bench.folder.iterdir():
        path.unlink()
    report = bench.replay(trials=2)
    assert report.emission and len(report.emission.written) == 6
    assert bench.files() == files


def test_a_replay_counts_failures_and_invents_nothing(bench: Bench) -> None:
    bench.gpu.faults[FOR_EIGHT] = "wrong"
    bench.tune()
    report = bench.replay()
    assert report.failures == {"wrong": 1}
    assert FOR_EIGHT not in best(report).values()


def test_a_replay_without_records_is_refused(bench: Bench) -> None:
    with pytest.raises(EnvironmentProblem, match=r"nothing is recorded for qwen3\.5-35b"):
        bench.replay()
    assert bench.said[0].startswith("no CUDA device")


def test_a_replay_says_which_token_counts_lack_records(bench: Bench) -> None:
    bench.tune(tokens=(1, 2, 4, 8), trials=1)
    wanted = r"none that counts is of 3, 5 tokens; run `monomoe-gen tune --model qwen3\.5-35b`"
    with pytest.raises(EnvironmentProblem, match=wanted):
        bench.replay(tokens=(1, 2, 3, 5))
    template = bench.templates / "monomoe.cu.j2"
    template.write_text("// new\n" + FILES["monomoe.cu.j2"])
    bench.tune(tokens=(8,), trials=1)
    with pytest.raises(EnvironmentProblem, match="none that counts is of 1, 2, 4 tokens"):
        bench.replay()
    assert any("older sources" in text for text in bench.said)


def test_a_replay_needs_one_schedule_with_all_the_token_counts(bench: Bench) -> None:
    bench.tune()
    path = tuning_db.database_path(H200.slug, SHAPE.name, bench.database)
    one = [r for r in bench.records() if (r.tokens == 1) == (r.schedule == FOR_ONE.to_dict())]
    path.unlink()
    for record in one:
        tuning_db.append(path, record)
    with pytest.raises(EnvironmentProblem, match="none that count are of one schedule at all"):
        bench.replay(tokens=(1, 2))


def test_what_cannot_be_simulated_is_refused(bench: Bench) -> None:
    with pytest.raises(MonomoeError, match=r"qwen3\.5-35b, whose launches of 8 tokens"):
        bench.tune(simulate=1)
    with pytest.raises(MonomoeError, match="there is no CUDA device here"):
        bench.replay(simulate=1)
    assert bench.gpu.workers == 0


def test_a_replay_of_older_templates_keeps_the_table_and_says_so(bench: Bench) -> None:
    bench.tune()
    files = bench.files()
    template = bench.templates / "monomoe.cu.j2"
    template.write_text("// new\n" + FILES["monomoe.cu.j2"])
    with pytest.raises(EnvironmentProblem, match="none that counts is of 1, 2, 4, 8 tokens"):
        bench.replay()
    assert any("older sources" in text for text in bench.said)
    template.write_text(FILES["monomoe.cu.j2"])
    assert bench.files() == files


def test_the_token_tile_fits_the_largest_count() -> None:
    plan = Plan(SHAPE, tokens=(1, 9))
    assert plan.token_tile == 16
    assert dataclasses.replace(plan, tokens=(8,)).token_tile == 8


def test_screening_alone_gives_a_table_too(bench: Bench) -> None:
    report = bench.tune(trials=2, screen_only=True)
    assert report.emission and report.measured == 2
    assert {r.stage for r in bench.records()} == {"screen"}
    table = dispatch.load(bench.folder)
    assert {entry.record.stage for entry in table.entries} == {"screen"}
    assert [entry.tuned_at for entry in table.entries] == [1, 2, 4, 8]


def test_one_worker_may_serve_several_runs(bench: Bench) -> None:
    with Sandbox(bench.gpu.start, Limits(pause_s=0), bench.root) as box:
        for seed in (0, 1):
            report = tune.tune(
                bench.plan(trials=1, screen_only=True, fresh=True, seed=seed),
                H200,
                sandbox=lambda: contextlib.nullcontext(box),
            )
            assert report.measured == 1 and report.restarts == 0
    assert bench.gpu.workers == 1
