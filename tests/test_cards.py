"""Several GPUs on one queue and one database, as fake workers."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import test_tune
import torch
from test_tune import H200, SCHEDULES, WINNERS, Bench, FakeGpu, FakeWorker, best
from test_tune import bench as bench

from monomoe_gen import sandbox, tune
from monomoe_gen.campaign import Report
from monomoe_gen.cards import spread
from monomoe_gen.cli import tuning_run
from monomoe_gen.device import equal_gpus
from monomoe_gen.errors import DatabaseError, EnvironmentProblem
from monomoe_gen.protocol import Cell, Floor, Measure, Ready
from monomoe_gen.sandbox import Limits, Sandbox
from monomoe_gen.schedule import Schedule
from monomoe_gen.worker_process import Ahead, ProcessWorker


class Card(FakeGpu):
    """A GPU of its own; its stream floor is ``pace`` times the usual."""

    def __init__(self, name: str, pace: float = 1.0) -> None:
        super().__init__()
        self.name, self.pace = name, pace
        self.meet: threading.Barrier | None = None
        self.dies = 0  # at which request the card stops to answer

    def start(self) -> FakeWorker:
        self.workers += 1
        if self.dies and len(self.requests) >= self.dies:
            raise EnvironmentProblem(f"{self.name} does not answer")
        return CardWorker(self)


class CardWorker(FakeWorker):
    def __init__(self, card: Card) -> None:
        super().__init__(card)
        self.events.get()
        self.events.put(Ready({"gpu": "NVIDIA H200", "uuid": card.name, "sms": 132}))
        self.card = card

    def send(self, line: str) -> None:
        if self.card.meet and len(self.card.requests) == 0:
            self.card.meet.wait(30)
        super().send(line)
        if self.card.dies and len(self.card.requests) >= self.card.dies:
            while not self.events.empty():
                self.events.get()
            self.events.put(EOFError("fell off the bus"))

    def cell(self, schedule: Schedule, tokens: int, request: Measure) -> Cell:
        made = super().cell(schedule, tokens, request)
        if made.floor is None:
            return made
        floor = Floor(made.floor.stream_us * self.card.pace, made.floor.empty_us)
        return test_tune.dataclasses.replace(made, floor=floor)


def run(bench: Bench, *cards: Card) -> Report:
    """Every card answers its first request when all have one."""
    meet = threading.Barrier(len(cards))
    for card in cards:
        card.meet = meet
    limits = Limits(pause_s=0, attempts=1)
    first, *others = (
        lambda card=card: Sandbox(card.start, limits, bench.root)  # type: ignore[misc]
        for card in cards
    )
    return tune.tune(bench.plan(), H200, say=bench.said.append, sandbox=first, others=others)


def test_cards_share_the_queue_and_the_database(bench: Bench) -> None:
    cards = [Card("GPU-a"), Card("GPU-b"), Card("GPU-c")]
    report = run(bench, *cards)
    assert (report.measured, report.left, report.failures) == (9, 0, {})
    assert best(report) == WINNERS
    screens = [r for r in bench.records() if r.stage == "screen"]
    times = Counter((Schedule.from_dict(r.schedule), r.tokens) for r in screens)
    assert times == Counter((s, n) for s in SCHEDULES for n in (1, 2, 4, 8))
    for card in cards:
        screened = {s for s, r in card.requests if r.timed and r.timed.replays == 20}
        recorded = {Schedule.from_dict(r.schedule) for r in screens if r.env["uuid"] == card.name}
        assert screened == recorded != set()
    others = [r for r in bench.records() if r.stage != "screen"]
    assert {r.env["uuid"] for r in others} == {"GPU-a"}, "finalists are compared on one card"
    assert not any("cards differ" in text for text in bench.said)


def test_compilers_are_as_many_as_all_cards_want(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = mock.Mock(wraps=tune.prepared_ahead)
    monkeypatch.setattr(tune, "prepared_ahead", ahead)
    monkeypatch.setattr(tune, "preparers", lambda gpus: 10 + gpus)
    run(bench, Card("GPU-a"), Card("GPU-b"))
    assert [call.args[1] for call in ahead.call_args_list] == [12]


def test_a_spread_between_cards_is_reported(bench: Bench) -> None:
    run(bench, Card("GPU-a"), Card("GPU-b", 1.03))
    (remark,) = [text for text in bench.said if "cards differ" in text]
    assert "the stream floor of GPU-b is 3.0% slower than that of GPU-a" in remark
    near = [test_tune.dataclasses.replace(r, floor_us=7.5) for r in bench.records()]
    assert spread(near) == "" and spread([]) == ""


@pytest.mark.parametrize("dying", [0, 1])
def test_a_card_that_dies_loses_only_its_candidate(bench: Bench, dying: int) -> None:
    cards = [Card("GPU-a"), Card("GPU-b")]
    cards[dying].dies = 1
    report = run(bench, *cards)
    name, other = cards[dying].name, cards[1 - dying].name
    assert report.failures == {"launch_error": 1}
    left_out = [t for t in bench.said if t.startswith(f"{name} is left out from now on")]
    assert report.left_out == ({dying} if left_out else set())
    assert len(left_out) <= 1 and report.measured == 9, "what it had is tried on the other card"
    assert len(best(report)) == 4
    assert {r.env["uuid"] for r in bench.records() if r.status == "ok"} == {other}


def test_without_any_card_the_run_ends(bench: Bench) -> None:
    cards = [Card("GPU-a"), Card("GPU-b")]
    for card in cards:
        card.dies = 1
    with pytest.raises(EnvironmentProblem, match="does not answer"):
        run(bench, *cards)


def test_an_error_of_one_ends_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, record: object) -> None:
        raise DatabaseError(path, 0, "no space left")

    monkeypatch.setattr("monomoe_gen.tuning_db.append", full)
    with pytest.raises(DatabaseError, match="no space left"):
        run(bench, Card("GPU-a"), Card("GPU-b"))


def test_gpus_all_makes_a_sandbox_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = [SimpleNamespace(name="H", multi_processor_count=132, uuid=u) for u in "abc"]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
    assert equal_gpus() == ["GPU-b", "GPU-a", "GPU-c"]
    properties[2].multi_processor_count = 114
    with pytest.raises(EnvironmentProblem, match="device 2 is H beside H"):
        equal_gpus()


def test_each_gpu_has_a_sandbox_that_sees_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = (
        "import os\n"
        "from monomoe_gen.protocol import Ready, encode\n"
        "input()\n"
        "print(encode(Ready({'uuid': os.environ['CUDA_VISIBLE_DEVICES']})), flush=True)\n"
        "input()\n"
    )
    monkeypatch.setattr(sandbox, "Ahead", partial(Ahead, (sys.executable, "-c", program)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tuning_run, "current_device", lambda: H200)
    monkeypatch.setattr(tuning_run, "equal_gpus", lambda: ["GPU-a", "GPU-b"])
    with tuning_run.own_gpus(every=True) as (device, makers), ExitStack() as opened:
        boxes = [opened.enter_context(make()) for make in makers]
        assert device == H200 and [box.env["uuid"] for box in boxes] == ["GPU-a", "GPU-b"]


def test_a_worker_sees_its_own_gpu_only() -> None:
    program = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    worker = ProcessWorker((sys.executable, "-c", program), gpu="GPU-7")
    assert worker.receive(30).strip() == "GPU-7"
    worker.kill(10)
