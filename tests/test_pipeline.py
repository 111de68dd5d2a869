"""Candidates are prepared ahead, within bounds; Ctrl-C stops once and aborts twice."""

import os
import signal
import threading
import time

import pytest

from monomoe_gen import pipeline
from monomoe_gen.interrupt import stop_on_interrupt
from monomoe_gen.pipeline import prepared_ahead, preparers, usable_cpus


class Source:
    """Prepares 1, 2, ... ``last`` and counts how far it is ahead."""

    def __init__(self, last: int) -> None:
        self.last, self.made = last, 0
        self.lock = threading.Lock()

    def __call__(self) -> int | None:
        with self.lock:
            if self.made == self.last:
                return None
            self.made += 1
            return self.made


def test_everything_comes_once() -> None:
    assert sorted(prepared_ahead(Source(50), 3, lambda: False)) == list(range(1, 51))
    assert list(prepared_ahead(Source(0), 3, lambda: False)) == []


def test_it_stays_a_little_ahead_and_no_more() -> None:
    source = Source(1000)
    got = prepared_ahead(source, 4, lambda: False)
    for taken in range(1, 20):
        next(got)
        time.sleep(0.005)
        assert source.made <= taken + 8
    got.close()
    assert source.made < 40


def test_preparation_goes_on_while_a_result_is_used() -> None:
    source = Source(8)
    got = prepared_ahead(source, 4, lambda: False)
    next(got)
    time.sleep(0.2)
    assert source.made >= 7


def test_stop_ends_it_without_another_result() -> None:
    taken: list[int] = []
    for item in prepared_ahead(Source(1000), 2, lambda: len(taken) == 5):
        taken.append(item)
    assert len(taken) == 5


def test_errors_pass_on() -> None:
    def broken() -> int:
        raise ValueError("no such template")

    with pytest.raises(ValueError, match="no such template"):
        list(prepared_ahead(broken, 2, lambda: False))


def test_ctrl_c_once_asks_and_twice_aborts() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stop_on_interrupt(said.append) as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(5)
        assert len(said) == 1
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_cannot_be_interrupted() -> None:
    seen = []

    def body() -> None:
        with stop_on_interrupt(lambda text: None) as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [False]


@pytest.mark.parametrize(
    ("cpus", "gpus", "threads"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (4, 1, 2),
        (16, 1, 14),  # one CPU for the tuner, one for the worker of the GPU
        (128, 1, 16),
        (16, 2, 13),
        (128, 8, 119),
        (192, 8, 128),
        (32, 64, 16),  # GPUs of a cluster: their workers are on other hosts
        (1, 8, 1),
    ],
)
def test_compilers_leave_cpus_to_the_gpus(
    cpus: int, gpus: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "usable_cpus", lambda: cpus)
    assert preparers(gpus) == threads


def test_only_cpus_of_this_process_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 12, raising=False)
    assert usable_cpus() == 12
    monkeypatch.delattr(os, "process_cpu_count")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert usable_cpus() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cpus() == 64
