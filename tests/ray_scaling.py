"""Tuning time against the number of Ray actors: the real driver, simulated compilers and GPUs.

``python tests/ray_scaling.py`` starts a Ray cluster on this host that claims to have GPUs, tunes a
model on 1, 2, 4, ... 64 of them and writes ``tuning_db/<gpu>/ray-scaling.json``. Actors, sandboxes
and worker processes are real, and so is all that the driver does: it renders, searches, sends
cubins, writes records. Only compilers and GPUs sleep in place of working.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest import mock

import ray

from monomoe_gen import campaign, jobs, ray_executor, tune
from monomoe_gen.campaign import Campaign, Plan
from monomoe_gen.compile import KernelBinary
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.documents import SCALING, Scaling, ScalingRun
from monomoe_gen.files import write_atomically
from monomoe_gen.ledger import Ledger
from monomoe_gen.paths import checkout
from monomoe_gen.protocol import Image
from monomoe_gen.render import Source
from monomoe_gen.sandbox import Limits, Sandbox
from monomoe_gen.search import Search
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.worker_process import ProcessWorker

FAKE = Path(__file__).parent / "fake_worker.py"
DEVICE = KNOWN[DEFAULT]
ACTORS = (1, 2, 4, 8, 16, 32, 64)
COMPILE_S = 0.75
SETTINGS = ((211, 0.13, 0), (211, 0.13, 8), (128, 1.0, 0))  # schedules, seconds of each, compilers
CUBIN = bytes(40_000)
IMAGE = Image("floor", CUBIN[:4000], DEVICE.sms, 256, 200_000)


def compiled(seconds: float, source: Source, arch: str) -> KernelBinary:
    """A stand-in for the compiler."""
    assert source.spec
    time.sleep(seconds)
    sizes = 168, 0, 0, 0, 200_000, 288
    return KernelBinary(source.spec.kernel_name, CUBIN, *sizes, source.sources_hash, "none", "0")


def search_seconds(
    model: str, actors: int, schedules: int, measure_s: float, compilers: int
) -> float:
    """How long the search takes once all actors are there."""
    shape = load_shape(model)
    candidates = feasible(shape, DEVICE, 8)[:schedules]
    start = partial(ProcessWorker, (sys.executable, str(FAKE), str(measure_s)))
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        plan = Plan(shape, database=folder, folder=folder)
        make = partial(Sandbox, start, Limits(), folder)
        _, made = opened.enter_context(
            ray_executor.gpus(most=actors, make=make, find=lambda: DEVICE)
        )
        boxes = [opened.enter_context(each()) for each in made]
        ledger = Ledger(shape, plan.tokens, 8, plan.routing, folder / DEFAULT / f"{model}.jsonl")
        floors = jobs.Floors((IMAGE,) * 3, IMAGE)
        one = Campaign(plan, DEVICE, ledger, boxes[0], floors, lambda progress: None)
        every = [one, *(dataclasses.replace(one, sandbox=box) for box in boxes[1:])]
        stub = partial(compiled, COMPILE_S if compilers else 0.0)
        opened.enter_context(mock.patch.object(campaign, "compile_source", stub))
        opened.enter_context(mock.patch.object(tune, "preparers", lambda gpus: compilers or 8))
        search = Search(candidates, plan.tokens, 0, (), plan.sampler)
        began = time.monotonic()
        measured, _ = tune._search(every, search, math.inf, threading.Event(), print)
        seconds = time.monotonic() - began
        assert measured == schedules and len(ledger.records) == schedules * len(plan.tokens)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3.5-35b")
    parser.add_argument("--actors", type=int, nargs="*", default=ACTORS)
    asked = parser.parse_args()
    ray.init(
        num_cpus=1,
        num_gpus=max(asked.actors),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    runs = []
    for actors in sorted(asked.actors, reverse=True):  # processes of the largest are used again
        while ray.available_resources().get("GPU") != max(asked.actors):
            time.sleep(0.2)
        for setting in SETTINGS:
            seconds = round(search_seconds(asked.model, actors, *setting), 2)
            runs.append(ScalingRun(*setting, actors, seconds))
            print(runs[-1], flush=True)
    top = checkout()
    assert top
    every = tuple(sorted(runs, key=dataclasses.astuple))
    study = Scaling(1, asked.model, COMPILE_S, os.cpu_count() or 1, every)
    path = top / "tuning_db" / DEFAULT / SCALING
    write_atomically(path, json.dumps(dataclasses.asdict(study), indent=1).encode() + b"\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
