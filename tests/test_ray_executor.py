"""Ray in place of local cards: a cluster on this host, with fake GPU workers in its actors."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from test_sandbox import FAKE, LIMITS, request
from test_tune import H200, SCHEDULES, Bench
from test_tune import bench as bench

from monomoe_gen import ray_executor, tune, tuning_db
from monomoe_gen.campaign import Report
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.ray_executor import RaySandbox
from monomoe_gen.sandbox import Sandbox
from monomoe_gen.schedule import Schedule
from monomoe_gen.tuning_db import Record
from monomoe_gen.worker_process import ProcessWorker

ray = pytest.importorskip("ray", reason="Ray is not installed: the extra [ray]")

CARDS = 2
FAKE_DEVICE = replace(H200, name="fake")


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    ray.init(
        num_cpus=1,
        num_gpus=CARDS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield
    ray.shutdown()


@pytest.fixture
def cluster(started: None) -> None:
    """All its GPUs are free."""
    for _ in range(300):
        if ray.available_resources().get("GPU") == CARDS:
            return
        time.sleep(0.1)
    raise AssertionError("actors of an earlier test still hold a GPU")


def sandboxes(folder: Path, *arguments: str, gpu: str | None = None) -> partial[Sandbox]:
    """What makes a sandbox with the fake worker."""
    start = partial(ProcessWorker, (sys.executable, str(FAKE), *arguments), gpu=gpu)
    return partial(Sandbox, start, replace(LIMITS, stage_s=10), folder)


def run(bench: Bench, *arguments: str, cards: int | None = None) -> Report:
    made = sandboxes(bench.root, *arguments)
    with ray_executor.gpus(most=cards, make=made, find=lambda: H200) as (device, boxes):
        assert device == H200 and len(boxes) == (cards or CARDS)
        first, *others = boxes
        return tune.tune(bench.plan(), device, say=bench.said.append, sandbox=first, others=others)


def told(
    records: list[Record], stages: tuple[str, ...] = ("screen", "final", "confirm")
) -> set[str]:
    """The records without when and on which card."""
    return {str(replace(r, at="", env={})) for r in records if r.stage in stages}


def test_the_records_are_those_of_a_local_run(
    bench: Bench, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, Path]] = []
    append = tuning_db.append

    def spy(path: Path, record: Record) -> None:
        written.append((os.getpid(), path))
        append(path, record)

    monkeypatch.setattr(tuning_db, "append", spy)
    report = run(bench, "0.05")
    over_ray = bench.records()
    assert (report.measured, report.left, report.failures, report.restarts) == (9, 0, {}, 0)
    assert [pid for pid, _ in written] == [os.getpid()] * len(over_ray), "one writer: the driver"
    screens = [r for r in over_ray if r.stage == "screen"]
    times = Counter((Schedule.from_dict(r.schedule), r.tokens) for r in screens)
    assert times == Counter((s, n) for s in SCHEDULES for n in (1, 2, 4, 8))
    assert {r.env["uuid"] for r in screens} == {"GPU-0", "GPU-1"}
    assert len({r.env["uuid"] for r in over_ray if r.stage != "screen"}) == 1

    written[0][1].unlink()
    local = sandboxes(bench.root, "0.01", gpu="0")
    again = tune.tune(bench.plan(), H200, sandbox=local)
    assert again.winners.keys() == report.winners.keys()
    assert told(bench.records()) == told(over_ray) and len(bench.records()) == len(over_ray)


def test_an_actor_that_is_killed_loses_only_its_candidate(
    bench: Bench, cluster: None, tmp_path: Path
) -> None:
    """Its candidate is tried again on the other card."""
    fuse = tmp_path / "fuse"
    fuse.touch()
    report = run(bench, "0.05", str(fuse))
    assert not fuse.exists()
    (remark,) = [text for text in bench.said if "is left out from now on" in text]
    assert "its actor is gone" in remark
    assert (report.measured, report.left, report.failures) == (9, 0, {})
    records = bench.records()
    assert {r.status for r in records} == {"ok"} and set(report.best) == {1, 2, 4, 8}
    screens = Counter(
        (Schedule.from_dict(r.schedule), r.tokens) for r in records if r.stage == "screen"
    )
    assert screens == Counter((s, n) for s in SCHEDULES for n in (1, 2, 4, 8))


def test_without_another_card_the_next_run_goes_on(
    bench: Bench, cluster: None, tmp_path: Path
) -> None:
    fuse = tmp_path / "fuse"
    fuse.touch()
    with pytest.raises(EnvironmentProblem, match="its actor is gone"):
        run(bench, "0", str(fuse), cards=1)
    report = run(bench, "0", str(fuse), cards=1)
    assert (report.measured, report.left, report.failures) == (9, 0, {})


def test_the_sandbox_works_inside_the_actor(cluster: None, tmp_path: Path) -> None:
    make = partial(Sandbox, partial(ProcessWorker, (sys.executable, str(FAKE))), LIMITS, tmp_path)
    with RaySandbox(FAKE_DEVICE, make) as box:
        assert box.env["uuid"] == "GPU-fake"
        hung = box.measure(request("hang_at_4"))
        assert (hung.status, [c.tokens for c in hung.cells]) == ("timeout", [1])
        assert box.measure(request("crash")).status == "launch_error"
        assert box.restarts == 2
        box.renew()
        assert box.measure(request("fine")).cells[0].samples == (10.0, 10.0, 10.0)
        assert box.restarts == 2
        with pytest.raises(MonomoeError, match="as asked"):
            box.measure(request("fail_request_no"))
        with pytest.raises(RuntimeError, match="the GPU worker failed"):
            box.measure(request("fail_worker_no"))
        with pytest.raises(EnvironmentProblem, match="another process is measuring"):
            RaySandbox(FAKE_DEVICE, make).__enter__()


def test_what_cannot_be_had_is_said(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = partial(Sandbox, partial(ProcessWorker, (sys.executable, str(FAKE))), LIMITS, tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"one is fake \(132 SMs\) beside NVIDIA H200"):
        RaySandbox(H200, make).__enter__()
    with (
        pytest.raises(EnvironmentProblem, match="torch finds no CUDA device there"),
        ray_executor.gpus(find=lambda: None),
    ):
        pass
    with (
        pytest.raises(
            EnvironmentProblem, match=r"division by zero.*needs this version of monomoe-gen"
        ),
        ray_executor.gpus(find=lambda: 1 / 0 if os.getpid() else None),  # type: ignore[arg-type]
    ):
        pass
    monkeypatch.setattr(ray, "available_resources", dict)
    with (
        pytest.raises(EnvironmentProblem, match="has 2 GPUs and none of them is free"),
        ray_executor.gpus(),
    ):
        pass


def test_the_scaling_study_measures_all_on_so_many_actors(cluster: None) -> None:
    from ray_scaling import search_seconds

    assert search_seconds("toy", CARDS, 6, 0.1, 8) >= 0.3
