"""Every shipped shape, and a checkpoint's weights, in the sandbox on a GPU."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import save_file

from monomoe_gen import jobs, validation_report
from monomoe_gen.compile import compile_source
from monomoe_gen.device import Device, current_device
from monomoe_gen.protocol import Image, Weights
from monomoe_gen.render import render
from monomoe_gen.sandbox import Limits, Sandbox
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape, list_shapes, load_shape
from monomoe_gen.space import nearest_legal
from monomoe_gen.validation_report import Run
from monomoe_gen.worker_process import ProcessWorker
from monomoe_gen.workload import block_weights, validation_cases

pytestmark = pytest.mark.gpu

FAMILIAR = Schedule(132, 64, 1024, 128, 512, 8, 8)


@pytest.fixture(scope="module")
def device() -> Device:
    found = current_device()
    assert found
    return found


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(ProcessWorker, Limits(), tmp_path_factory.mktemp("lock")) as opened:
        yield opened


def built(shape: Shape, device: Device) -> tuple[KernelSpec, Image]:
    schedule = nearest_legal(shape, FAMILIAR, device)
    assert schedule
    spec = KernelSpec(shape, schedule)
    return spec, jobs.image(compile_source(render(spec), device.arch), schedule.grid)


@pytest.mark.parametrize("shape", list_shapes(), ids=lambda s: s.name)
def test_a_shape_is_right(shape: Shape, device: Device, box: Sandbox) -> None:
    asked = jobs.measure(*built(shape, device), (1, 3, 8), "uniform", validate=True, timed=None)
    outcome = box.measure(asked)
    assert outcome.status == "ok", outcome.message
    assert {c.tokens: c.message for c in outcome.cells} == {1: "", 3: "", 8: ""}


@pytest.mark.parametrize("name", ["qwen3.5-35b", "deepseek-v3.1-tp8"])
def test_a_report_finds_nothing_wrong_and_is_quick(name: str, device: Device, box: Sandbox) -> None:
    spec, image = built(load_shape(name), device)
    tokens = (1, 2, 4, 8)
    began = time.monotonic()
    outcome = box.measure(
        jobs.measure(spec, image, tokens, "uniform", validate=True, timed=None, report=True)
    )
    assert time.monotonic() - began < 20
    assert outcome.status == "ok", outcome.message
    digest = hashlib.sha256(image.cubin).hexdigest()
    report = validation_report.Report(
        format=validation_report.FORMAT,
        gpu="",
        driver="",
        torch="",
        shape=spec.shape,
        runs=tuple(Run(c.tokens, spec.id, digest, c.status, c.message) for c in outcome.cells),
        cases=tuple(case for cell in outcome.cells for case in cell.cases),
    )
    assert len(report.cases) == len(tokens) * len(validation_cases())
    assert report.problems == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_of_either_type_are_right(dtype: str, device: Device, box: Sandbox) -> None:
    shape = replace(load_shape("qwen3-next-80b-a3b"), name="typed", logits_dtype=dtype)
    asked = jobs.measure(*built(shape, device), (8,), "uniform", validate=True, timed=None)
    outcome = box.measure(asked)
    assert (outcome.status, [c.message for c in outcome.cells]) == ("ok", [""])


def test_weights_may_come_from_a_checkpoint(device: Device, box: Sandbox, tmp_path: Path) -> None:
    shape = load_shape("qwen3.5-35b")
    layer = block_weights(replace(shape, intermediate=2 * shape.intermediate), "student_t3", seed=9)
    prefix = "model.layers.3.mlp.experts."
    names = ("gate_up_proj", "gate_up_proj_scale_inv", "down_proj", "down_proj_scale_inv")
    path = tmp_path / "layer.safetensors"
    save_file({prefix + n: t for n, t in zip(names, vars(layer).values(), strict=True)}, path)
    asked = jobs.measure(
        *built(shape, device),
        (1, 8),
        "uniform",
        validate=True,
        timed=None,
        weights=Weights((str(path),), 3, 1, 2),
    )
    outcome = box.measure(asked)
    assert outcome.status == "ok", outcome.message
    assert [c.message for c in outcome.cells] == ["", ""]
