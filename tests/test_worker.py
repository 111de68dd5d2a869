"""What the worker answers, with the GPU replaced: the order of events, and whose fault it is."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from serving import make_table
from test_validation_report import CASE

from monomoe_gen import bench, testbed, worker
from monomoe_gen.comparison import Comparison
from monomoe_gen.device import KNOWN
from monomoe_gen.errors import MonomoeError
from monomoe_gen.jobs import dispatched_image
from monomoe_gen.protocol import (
    Cell,
    Done,
    Event,
    Image,
    Measure,
    Stage,
    Timed,
    Weights,
    decode_event,
    encode,
)
from monomoe_gen.sandbox import Limits, Sandbox
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.validate import Errors, Verdict
from monomoe_gen.weights import pack_w2
from monomoe_gen.worker_process import Ahead, ProcessWorker
from monomoe_gen.workload import block_weights, validation_cases

SHAPE = load_shape("qwen3.5-35b")
EMPTY = Image("empty", b"", 1, 32, 0)
KERNEL = Image("kernel", b"", 1, 32, 0, half_bytes=256)
TIMED = Timed(3, 20, (EMPTY,), EMPTY)
GOOD = Verdict("ok", "", {"gaussian": Errors(0.9991, 0.04, 1e-3)})
WRONG = Verdict("wrong", "token 1: cosine 0.5", {"gaussian": Errors(0.5, 0.9, 0.8)})


def request(
    shape: Shape = SHAPE, validate: bool = True, timed: Timed | None = TIMED, seed: int = 0
) -> Measure:
    return Measure(shape.to_dict(), KERNEL, (1, 8), "uniform", validate, timed, seed)


class FakeBed:
    made: list[tuple[str, int]] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(
        self,
        shape: Shape,
        device: object,
        seed: int,
        weights: Weights | None,
        layout: str,
        trace_file: str | None,
    ) -> None:
        self.shape, self.seed, self.weights, self.layout = shape, seed, weights, layout
        self.trace_file = trace_file
        self.made.append((shape.name, seed))

    def layer(self, distribution: str) -> tuple[str, str]:
        return "block", "packed"

    def problems(self, tokens: int, router: str) -> int:
        return tokens

    def comparisons(
        self, tokens: int, kernel: Image, workspace: object, router: str
    ) -> tuple[Comparison, ...]:
        return (replace(CASE, tokens=tokens),)

    def inputs(self, tokens: int, routing: str, router: str) -> SimpleNamespace:
        return SimpleNamespace(distinct_experts=7.5, reuse_bytes=10**9, router=router)

    def timed_layers(self, tokens: int, routing: str) -> tuple[str, ...]:
        return ("packed",)

    def floors(self, tokens: int, routing: str, timed: Timed) -> bench.Floors:
        return bench.Floors(7.5, 0.57)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> worker.Server:
    FakeBed.made.clear()
    monkeypatch.setattr(worker, "Testbed", FakeBed)
    monkeypatch.setattr(worker, "CUDA", torch.device("cpu"))
    monkeypatch.setattr(worker, "load", lambda image: image)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(worker, "check", lambda run, problems, half: GOOD)

    def time_kernel(kernel, layers, inputs, workspace, effort):  # type: ignore[no-untyped-def]
        assert layers == ("packed",) and workspace.half_bytes == 256
        return bench.Timing((15.0,) * effort.replays)

    monkeypatch.setattr(bench, "time_kernel", time_kernel)
    gpu = SimpleNamespace(state=lambda: {"sm_clock_mhz": 1980})
    return worker.Server(KNOWN["nvidia-h200"], gpu)  # type: ignore[arg-type]


def names(events: list[Event]) -> list[str]:
    return [e.name if isinstance(e, Stage) else e.kind for e in events]


def test_every_step_that_may_hang_is_announced(server: worker.Server) -> None:
    events = list(server.measure(request()))
    one = [
        "prepare the validation of 1 tokens",
        "validate 1 tokens",
        "prepare the timing of 1 tokens",
        "time 1 tokens",
        "cell",
    ]
    eight = [name.replace("1", "8") for name in one]
    assert names(events) == ["load the kernel", *one, *eight, "done"]
    cell = next(e for e in events if isinstance(e, Cell))
    assert cell.samples == (15.0,) * 20
    assert cell.floor and (cell.floor.stream_us, cell.floor.empty_us) == (7.5, 0.57)
    assert (cell.distinct_experts, cell.reuse_bytes) == (7.5, 10**9)
    assert cell.errors["gaussian"].cosine == 0.9991
    assert cell.env == {"sm_clock_mhz": 1980}


def test_validation_and_timing_have_the_workspace_that_the_image_asks_for(
    server: worker.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated: list[int] = []
    timed: list[int] = []

    def check(run: object, problems: object, half: int) -> Verdict:
        validated.append(half)
        return GOOD

    def time_kernel(kernel, layers, inputs, workspace, effort):  # type: ignore[no-untyped-def]
        timed.append(workspace.half_bytes)
        return bench.Timing((15.0,))

    monkeypatch.setattr(worker, "check", check)
    monkeypatch.setattr(bench, "time_kernel", time_kernel)
    monkeypatch.setattr(bench, "time_separate_router", time_kernel)
    (kernel,) = make_table().kernels
    half = kernel.spec.geometry.workspace_half_bytes + 4096
    image = dispatched_image(replace(kernel, workspace_half_bytes=half), b"")
    asked = replace(request(), kernel=image, tokens=(1,))
    list(server.measure(asked))
    assert (validated, timed) == ([half], [half])
    larger = replace(image, half_bytes=2 * half)
    list(server.measure(replace(asked, logits_kernel=larger)))
    assert (validated, timed) == ([half] * 2, [half, 2 * half, 2 * half])


def test_without_streams_there_is_no_floor(server: worker.Server) -> None:
    events = list(server.measure(request(timed=replace(TIMED, streams=()))))
    assert [e.floor for e in events if isinstance(e, Cell)] == [None, None]
    assert all(e.samples for e in events if isinstance(e, Cell))


def test_a_kernel_is_timed_behind_the_router_too(
    server: worker.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def time_separate_router(kernel, layers, inputs, workspace, effort):  # type: ignore[no-untyped-def]
        assert kernel == EMPTY and inputs.router == "weight"
        return bench.Timing((19.0,) * effort.replays)

    monkeypatch.setattr(bench, "time_separate_router", time_separate_router)
    asked = replace(request(), logits_kernel=EMPTY)
    cells = [e for e in server.measure(asked) if isinstance(e, Cell)]
    assert [c.separate_us for c in cells] == [19.0, 19.0]


def test_what_is_wrong_is_not_timed(server: worker.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "check", lambda run, problems, half: WRONG)
    cells = [e for e in server.measure(request()) if isinstance(e, Cell)]
    assert [(c.status, c.message, c.samples) for c in cells] == [("wrong", WRONG.message, ())] * 2


def test_either_half_can_be_left_out(server: worker.Server) -> None:
    only_valid = names(list(server.measure(request(timed=None))))
    assert not any("tim" in name for name in only_valid)
    only_timed = names(list(server.measure(request(validate=False))))
    assert not any("valid" in name for name in only_timed)


def test_a_report_has_its_comparisons_wrong_or_not(
    server: worker.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verdict in (GOOD, WRONG):
        monkeypatch.setattr(worker, "check", lambda run, problems, half, v=verdict: v)
        events = list(server.measure(replace(request(timed=None), report=True)))
        assert "compare 8 tokens" in names(events)
        cells = [decode_event(encode(e)) for e in events if isinstance(e, Cell)]
        assert [c.cases for c in cells] == [(CASE,), (replace(CASE, tokens=8),)]  # type: ignore[union-attr]
    assert not any(c.cases for c in server.measure(request()) if isinstance(c, Cell))


def test_a_report_of_a_checkpoint_is_refused() -> None:
    bed = testbed.Testbed(SHAPE, KNOWN["nvidia-h200"], 0, Weights(("a.safetensors",), None))
    with pytest.raises(MonomoeError, match="needs drawn weights"):
        bed.comparisons(1, None, None)  # type: ignore[arg-type]


def test_comparisons_cover_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror reference on the CPU stands for the kernel."""
    monkeypatch.setattr(testbed, "CUDA", torch.device("cpu"))
    shape = replace(load_shape("toy"), experts=4)
    bed = testbed.Testbed(shape, KNOWN["nvidia-h200"], 0)
    answers = {p.x.data_ptr(): p.mirror for p in bed.problems(2)}

    def launch(kernel, weights, x, logits, y, workspace):  # type: ignore[no-untyped-def]
        y.copy_(answers[x.data_ptr()] * kernel)

    monkeypatch.setattr(testbed, "launch_moe", launch)
    right = bed.comparisons(2, 1.0, None)  # type: ignore[arg-type]
    assert [(c.routing, c.distribution) for c in right] == [
        (c.routing, c.distribution) for c in validation_cases()
    ]
    assert [c.problem for c in right] == [""] * len(right)
    for case in right:  # quantized weights are further from what they were than from themselves
        near, far = case.kernel_dequantized.rel_l2, case.kernel_unquantized.rel_l2
        assert near is not None and far is not None and 1.1 * near < far < 0.2
    assert all(case.problem for case in bed.comparisons(2, 1.01, None))  # type: ignore[arg-type]


def test_the_layers_of_a_shape_are_kept(server: worker.Server) -> None:
    other = load_shape("glm-5.2-tp8")
    for asked in (request(), request(), request(seed=1), request(other), request(other)):
        assert isinstance(list(server.measure(asked))[-1], Done)
    assert FakeBed.made == [(SHAPE.name, 0), (SHAPE.name, 1), (other.name, 0)]


def test_layers_of_the_other_layout_are_others(server: worker.Server) -> None:
    for asked in (request(), replace(request(), layout="raw"), replace(request(), layout="raw")):
        assert isinstance(list(server.measure(asked))[-1], Done)
    assert FakeBed.made == [(SHAPE.name, 0)] * 2


def test_raw_weights_are_those_that_were_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testbed, "CUDA", torch.device("cpu"))
    bed = testbed.Testbed(load_shape("toy"), KNOWN["nvidia-h200"], 0, layout="raw")
    drawn, raw = bed.layer("gaussian")
    for one, other in ((drawn.w13, raw.w13), (drawn.w2, raw.w2)):
        assert (one.data_ptr(), one.shape) == (other.data_ptr(), other.shape)
        assert other.dtype == torch.uint8


def test_weights_of_a_checkpoint_are_read_once_and_announced(server: worker.Server) -> None:
    asked = replace(request(timed=None), weights=Weights(("a.safetensors",), 3))
    assert names(list(server.measure(asked)))[:2] == ["load the kernel", "read the weights"]
    list(server.measure(asked))
    assert len(FakeBed.made) == 1
    list(server.measure(request()))
    assert len(FakeBed.made) == 2


def test_a_layer_comes_from_the_checkpoint_whatever_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(testbed, "CUDA", torch.device("cpu"))
    toy = load_shape("toy")
    layer = block_weights(toy, "student_t3", seed=5)
    names = ("w13", "w13_scale", "w2", "w2_scale")
    path = tmp_path / "layer.safetensors"
    save_file(dict(zip(names, vars(layer).values(), strict=True)), path)
    bed = testbed.Testbed(toy, KNOWN["nvidia-h200"], 0, Weights((str(path),), None))
    plain, packed = bed.layer("gaussian")
    assert torch.equal(plain.w13.float(), layer.w13.float())
    assert torch.equal(packed.w2, pack_w2(layer.w2))
    assert bed.layer("student_t3")[0] is plain
    problem = bed.problems(2)[0]
    assert problem.exact.isfinite().all() and problem.weights.w13 is packed.w13


SCRIPT = """
import torch
from monomoe_gen import worker
from monomoe_gen.errors import LaunchError, MonomoeError
from monomoe_gen.protocol import Done, Ready, Stage

class Fake:
    def __init__(self, *args): pass
    def answer(self, request):
        print("libraries may print")
        yield Stage("load the kernel")
        error = {
            "launch": LaunchError("no room"),
            "request": MonomoeError("cannot be cold"),
            "bug": TypeError("oops"),
            "cuda": worker.CUDA_ERRORS[0]("CUDA error: an illegal memory access"),
        }.get(request.kernel.name)
        if error:
            raise error
        yield Done()

worker.open_gpu = lambda: (None, None, Ready({"gpu": "g", "uuid": "GPU-1", "sms": 1}))
worker.Server = Fake
worker._gpu_works = lambda: True
worker.serve()
"""


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[Sandbox, str], str]:
    def make(box: Sandbox, act: str) -> str:
        asked = Measure(SHAPE.to_dict(), Image(act, b"", 1, 32, 0), (), "uniform", True, None)
        return box.measure(asked).message

    return make


def test_each_error_is_told_from_the_others(
    ask: Callable[[Sandbox, str], str], tmp_path: Path
) -> None:
    command = (sys.executable, "-c", SCRIPT)
    limits = Limits(start_s=60, stage_s=20, pause_s=0)
    with Sandbox(lambda: ProcessWorker(command), limits, tmp_path) as box:
        assert ask(box, "fine") == ""
        assert ask(box, "launch") == "load the kernel: no room"
        with pytest.raises(MonomoeError, match="cannot be cold"):
            ask(box, "request")
        assert box.restarts == 0
        assert ask(box, "cuda") == "load the kernel: CUDA error: an illegal memory access"
        assert box.restarts == 1
        assert ask(box, "fine") == ""
        with pytest.raises(RuntimeError, match=r"TypeError: oops"):
            ask(box, "bug")


def test_the_next_worker_waits_with_the_gpu(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    script = (
        SCRIPT.replace("lambda: (None,", f"lambda: (open({str(touched)!r}, 'a').write('x'),")
        .replace("worker.serve()", "worker.serve(STANDBY in sys.argv)")
        .replace(
            "import torch", "import sys, torch\nfrom monomoe_gen.worker_process import STANDBY"
        )
    )
    with Ahead((sys.executable, "-c", script)) as start:
        limits = Limits(start_s=60, stage_s=20, pause_s=0)
        for count in (1, 2):
            with Sandbox(start, limits, tmp_path) as box:
                assert box.env["uuid"] == "GPU-1"
                time.sleep(0.1)
                assert len(touched.read_text()) == count
        waiting = start._next
        assert waiting
    with pytest.raises(ProcessLookupError):
        os.kill(waiting.pid, 0)
    assert len(touched.read_text()) == 2
