"""The sandbox survives whatever its worker does. The workers are real processes without a GPU."""

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.protocol import (
    Cell,
    Event,
    Image,
    Measure,
    ProtocolError,
    Stage,
    Timed,
    Trace,
    Traced,
    decode_event,
    decode_request,
    encode,
)
from monomoe_gen.sandbox import Limits, Sandbox
from monomoe_gen.shapes import load_shape
from monomoe_gen.worker_process import ProcessWorker

FAKE = Path(__file__).parent / "fake_worker.py"
LIMITS = Limits(start_s=20, stage_s=0.7, death_s=10, pause_s=0.01, lock_s=0.2, attempts=2)
EMPTY = Image("empty", b"", 1, 32, 0)


def request(act: str, tokens: Sequence[int] = (1, 4)) -> Measure:
    """Asks the fake worker to do ``act``."""
    return Measure(
        shape=load_shape("qwen3.5-35b").to_dict(),
        kernel=Image(act, b"\x7fELF\0\xff", 132, 608, 1000, half_bytes=128),
        tokens=tuple(tokens),
        routing="uniform",
        validate=True,
        timed=Timed(1, 2, (EMPTY,), EMPTY),
    )


def trace_request(act: str) -> Trace:
    """Asks the fake worker for the time stamps of two launches."""
    image = Image(act, b"\x7fELF\0\xff", 132, 608, 1000, half_bytes=128)
    return Trace(load_shape("qwen3.5-35b").to_dict(), image, 8, "uniform", launches=2)


Open = Callable[..., Sandbox]


@pytest.fixture
def sandbox(tmp_path: Path) -> Open:
    def make(limits: Limits = LIMITS, *command: str) -> Sandbox:
        line = command or (sys.executable, str(FAKE))
        return Sandbox(lambda: ProcessWorker(line), limits, tmp_path)

    return make


def test_a_request_is_answered_and_the_worker_stays(sandbox: Open) -> None:
    heard: list[Event] = []
    with sandbox() as box:
        assert box.env["uuid"] == "GPU-fake"
        first = box.measure(request("fine"), heard.append)
        second = box.measure(request("fine", (2,)))
    assert (first.status, [c.tokens for c in first.cells]) == ("ok", [1, 4])
    assert second.cells[0].samples == (10.0, 10.0, 10.0)
    assert [type(e).__name__ for e in heard] == ["Stage", "Stage", "Cell", "Stage", "Cell", "Done"]
    assert box.restarts == 0


def test_a_hang_is_a_timeout_and_the_next_candidate_is_measured(sandbox: Open) -> None:
    with sandbox() as box:
        began = time.monotonic()
        hung = box.measure(request("hang_at_4"))
        assert time.monotonic() - began < 10
        assert hung.status == "timeout"
        assert hung.message == "time 4 tokens: no answer within 0.7 s, killed"
        assert [c.tokens for c in hung.cells] == [1]
        assert box.restarts == 1
        assert box.measure(request("fine")).status == "ok"


def test_a_stage_may_ask_for_more_time(sandbox: Open) -> None:
    with sandbox() as box:
        assert box.measure(request("slow_stage", (1,))).status == "ok"


def test_a_crash_is_reported_with_what_the_worker_last_said(sandbox: Open) -> None:
    with sandbox() as box:
        crashed = box.measure(request("crash"))
        assert crashed.status == "launch_error"
        assert crashed.message == "load the kernel: the worker died: SIGSEGV\nsomething terrible"
        gone = box.measure(request("exit"))
        assert gone.message == "time 1 tokens: the worker died: exit code 3"
        assert box.measure(request("fine")).status == "ok"
        assert box.restarts == 2


@pytest.mark.parametrize(
    "act", ["gibberish", "no_cells", "no_times", "twice", "other_tokens", "ready_again"]
)
def test_a_worker_that_lies_is_replaced(sandbox: Open, act: str) -> None:
    with sandbox() as box:
        outcome = box.measure(request(act))
        assert outcome.status == "launch_error"
        assert "talks nonsense" in outcome.message
        assert box.measure(request("fine")).status == "ok"


def test_a_kernel_that_does_not_load_costs_no_worker(sandbox: Open) -> None:
    with sandbox() as box:
        outcome = box.measure(request("fail_kernel_mild", (1,)))
        assert (outcome.status, outcome.message) == ("launch_error", "time 1 tokens: as asked")
        assert box.restarts == 0
        assert box.measure(request("fail_kernel_fatal")).status == "launch_error"
        assert box.restarts == 1
        assert box.measure(request("fine")).status == "ok"


def test_a_refused_request_and_a_bug_are_no_results(sandbox: Open) -> None:
    with sandbox() as box:
        with pytest.raises(MonomoeError, match="as asked"):
            box.measure(request("fail_request_mild"))
        assert box.measure(request("fine")).status == "ok"
        with pytest.raises(RuntimeError, match="the GPU worker failed at time 4 tokens"):
            box.measure(request("fail_worker_fatal"))


def test_a_worker_killed_from_outside_is_replaced(tmp_path: Path) -> None:
    workers: list[ProcessWorker] = []

    def start() -> ProcessWorker:
        workers.append(ProcessWorker((sys.executable, str(FAKE))))
        return workers[-1]

    with Sandbox(start, LIMITS, tmp_path) as box:
        os.kill(workers[0].pid, 9)
        outcome = box.measure(request("fine"))
        assert outcome.status == "launch_error"
        assert "SIGKILL" in outcome.message
        assert box.measure(request("fine")).status == "ok"
        assert len(workers) == 2
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid, 0)


def test_a_gpu_that_does_not_answer_is_an_environment_problem(sandbox: Open) -> None:
    began = time.monotonic()
    with (
        pytest.raises(EnvironmentProblem, match=r"2 times: the worker ended: exit code 7\nno luck"),
        sandbox(
            LIMITS, sys.executable, "-c", "import sys; sys.stderr.write('no luck'); sys.exit(7)"
        ),
    ):
        pass
    with (
        pytest.raises(EnvironmentProblem, match=r"no sign of life within 0.5 s"),
        sandbox(dataclasses.replace(LIMITS, start_s=0.5), sys.executable, "-c", "input()"),
    ):
        pass
    assert time.monotonic() - began < 15


def test_a_dead_gpu_is_noticed_after_the_result_is_safe(tmp_path: Path) -> None:
    """The candidate that broke the GPU has its outcome; only the next request complains."""
    starts = 0

    def start() -> ProcessWorker:
        nonlocal starts
        starts += 1
        broken = (sys.executable, "-c", "raise SystemExit(1)")
        return ProcessWorker((sys.executable, str(FAKE)) if starts == 1 else broken)

    with Sandbox(start, LIMITS, tmp_path) as box:
        assert box.measure(request("crash")).status == "launch_error"
        with pytest.raises(EnvironmentProblem, match="small kernel in a fresh process"):
            box.measure(request("fine"))


def test_one_process_measures_on_a_gpu_at_a_time(sandbox: Open) -> None:
    with (
        sandbox(),
        pytest.raises(EnvironmentProblem, match="another process is measuring"),
        sandbox(),
    ):
        pass
    with sandbox() as box:
        assert box.measure(request("fine")).status == "ok"


def test_the_real_worker_says_why_it_cannot_serve(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with (
        pytest.raises(EnvironmentProblem, match="no CUDA device"),
        Sandbox(ProcessWorker, dataclasses.replace(LIMITS, start_s=60), tmp_path),
    ):
        pass


def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    """Whatever kills the tuner, nothing stays on the GPU."""
    (tmp_path / "child.py").write_text(
        "import time\n"
        "from monomoe_gen.worker import _die_with_parent\n"
        "_die_with_parent()\n"
        "print('here', flush=True)\n"
        "time.sleep(100)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(
        "import subprocess, sys, time\n"
        f"command = [sys.executable, {str(tmp_path / 'child.py')!r}]\n"
        "child = subprocess.Popen(command, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if _zombie(child):
            return
        time.sleep(0.05)
    pytest.fail("the worker outlived its parent")


def test_a_worker_outlives_the_thread_that_asked_for_it() -> None:
    """Cards of a search are served by threads, which end before the finals."""
    script = (
        "import sys\n"
        "from monomoe_gen.worker import _die_with_parent\n"
        "_die_with_parent()\n"
        "for line in sys.stdin:\n"
        "    print(line, end='', flush=True)\n"
    )
    made: list[ProcessWorker] = []

    def serve() -> None:
        made.append(ProcessWorker((sys.executable, "-c", script)))
        made[0].send("first\n")
        assert made[0].receive(60) == "first\n"

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    time.sleep(0.2)
    made[0].send("second\n")
    assert made[0].receive(10) == "second\n"
    made[0].kill(10)


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_launches_are_traced_and_the_worker_stays(sandbox: Open) -> None:
    heard: list[Event] = []
    with sandbox() as box:
        found = box.trace(trace_request("fine"), heard.append)
        assert box.measure(request("fine")).status == "ok"
    assert (found.status, [t.records for t in found.launches]) == ("ok", [b"\0\xff", b"\1\xff"])
    assert [type(e).__name__ for e in heard] == ["Stage", "Traced", "Traced", "Done"]
    assert box.restarts == 0


def test_a_missing_launch_is_nonsense(sandbox: Open) -> None:
    with sandbox() as box:
        found = box.trace(trace_request("too_few"))
        assert found.status == "launch_error"
        assert "asked for 2 launches, answered 1" in found.message
        assert box.trace(trace_request("fine")).status == "ok"
    assert box.restarts == 1


def test_messages_survive_the_trip() -> None:
    for asked in (request("x"), trace_request("x")):
        assert decode_request(encode(asked)) == asked
    for event in (
        Traced(b"\xff\0", {"sm_clock_mhz": 1980}),
        Stage("s", 3.0),
        Cell(tokens=1, status="wrong", message="m"),
    ):
        assert decode_event(encode(event)) == event


@pytest.mark.parametrize(
    "line",
    ["", "hello", "{}", '{"kind": "cell"}', '{"kind": "done", "extra": 1}', '{"kind": "what"}'],
)
def test_what_is_no_message_is_refused(line: str) -> None:
    with pytest.raises(ProtocolError):
        decode_event(line)
    with pytest.raises(ProtocolError):
        decode_request(line)


def test_a_fresh_worker_is_no_restart(sandbox: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with sandbox() as box:
        assert box.measure(request("fine")).status == "ok"
        monkeypatch.setenv("FAKE_UUID", "GPU-fresh")
        box.renew()
        box.renew()
        assert box.measure(request("fine")).status == "ok"
        assert (box.env["uuid"], box.restarts) == ("GPU-fresh", 0)
