"""On the GPU: the operator in torch, and what is refused there. The project's own table serves."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from monomoe_gen import dispatch, plan, runtime, torch_op
from monomoe_gen.device import current_device
from monomoe_gen.errors import EnvironmentProblem, LaunchError
from monomoe_gen.plan import KernelTable
from monomoe_gen.reference import moe_mirror
from monomoe_gen.shapes import Shape
from monomoe_gen.validate import MIRROR_REL_L2_MAX, measure_errors
from monomoe_gen.weights import BlockWeights
from monomoe_gen.workload import activations, block_weights, rotation
from monomoe_gen.workspaces import current_stream

pytestmark = pytest.mark.gpu

MODEL, OTHER_MODEL = "qwen3.5-35b", "deepseek-v3.1-tp8"
Problem = tuple[Tensor, Tensor, Tensor]


class Served:
    """A layer of the project's table on a device, and problems for it with the mirror's answer."""

    def __init__(self, model: str, device: str = "cuda", **options: Any) -> None:
        self.table = runtime.load_table()
        self.shape: Shape = dispatch.lookup(self.table.table, model, 1).kernel.shape
        self.device = device
        self.weights: BlockWeights = block_weights(self.shape, "gaussian", 0, device)
        bias = rotation(self.shape, 1, "uniform", 1, 0, 0).bias
        self.bias = None if bias is None else bias.to(device)
        self.layer = self.make(self.table, **options)

    def make(self, table: KernelTable, **options: Any) -> runtime.MoELayer:
        w = self.weights
        tensors = w.w13, w.w13_scale, w.w2, w.w2_scale, self.bias
        return runtime.MoELayer.from_weights(table, self.shape.name, *tensors, **options)

    def problem(self, tokens: int, seed: int = 0) -> Problem:
        x = activations(self.shape, tokens, "gaussian", seed).to(self.device)
        logits = rotation(self.shape, tokens, "uniform", 1, 0, seed).logits[0].to(self.device)
        logits = logits.to(getattr(torch, self.shape.logits_dtype))
        w = self.weights
        y = moe_mirror(x, logits, w.w13, w.w13_scale, w.w2, w.w2_scale, self.bias, self.shape)
        return x, logits, y

    def arguments(self, tokens: int) -> tuple[Any, ...]:
        x, logits, _ = self.problem(tokens)
        buffers = self.layer
        weights = buffers.w13, buffers.w13_scale, buffers.w2, buffers.w2_scale, buffers.bias
        return (x, logits, *weights, self.layer.plan_name)


def assert_close(y: Tensor, mirror: Tensor) -> None:
    worst = max(e.mirror_rel_l2 for e in measure_errors(y, mirror, mirror))
    assert worst <= MIRROR_REL_L2_MAX


@pytest.fixture(scope="module")
def served() -> Served:
    return Served(MODEL)


@pytest.fixture(scope="module")
def other() -> Served:
    return Served(OTHER_MODEL)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is loaded yet, and nothing has been said."""
    monkeypatch.setattr(plan, "_LOADED", {})
    monkeypatch.setattr(plan, "_SAID", set())


def test_the_kernels_of_a_model_load_in_100_ms(served: Served, fresh: None) -> None:
    torch.cuda.synchronize()
    for model in sorted({k.shape.name for k in served.table.table.kernels}):
        made = plan.make_plan(served.table, model)
        start = time.perf_counter()
        assert made.prepare(torch.device("cuda"))
        seconds = time.perf_counter() - start
        assert seconds < 0.1, f"{model}: {1000 * seconds:.0f} ms for {len(made.kernels)} kernels"


def test_torchs_checks_pass_on_the_gpu(served: Served) -> None:
    arguments = served.arguments(3)
    torch.library.opcheck(torch.ops.monomoe.moe.default, arguments)
    out = torch.empty_like(arguments[0])
    torch.library.opcheck(torch.ops.monomoe.moe.out, arguments, {"out": out})


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_layer_sees_new_inputs(served: Served, mode: str) -> None:
    """`reduce-overhead` captures graphs of torch's own, with its own memory pools."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, logits: served.layer(x + 0, logits) + 0, fullgraph=True, mode=mode
    )
    for tokens in (1, 4, 8):
        for seed in range(5):
            x, logits, mirror = served.problem(tokens, seed)
            torch.compiler.cudagraph_mark_step_begin()
            assert_close(compiled(x, logits).clone(), mirror)
            assert_close(served.layer(x, logits), mirror)


def test_more_tokens_than_any_kernel_takes(served: Served) -> None:
    x, logits, mirror = served.problem(40)
    assert "40 tokens: torch fallback (the table has 1 to" in served.layer.explain(40)
    assert_close(served.layer(x, logits), mirror)
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(x)
    stream = torch.cuda.Stream()
    with pytest.raises(LaunchError, match="a CUDA graph cannot hold"), torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            served.layer(x, logits, out)
        finally:
            graph.capture_end()
    torch.cuda.synchronize()
    x, logits, mirror = served.problem(4)
    assert_close(served.layer(x, logits), mirror)


def test_a_call_with_out_allocates_nothing_anywhere(served: Served) -> None:
    import cupy

    x, logits, _ = served.problem(8)
    out = torch.empty_like(x)
    served.layer(x, logits, out)
    torch.cuda.synchronize()

    def allocated() -> tuple[int, int]:
        pool = cupy.get_default_memory_pool()
        return torch.cuda.memory_stats()["allocation.all.allocated"], pool.total_bytes()

    before = allocated()
    for _ in range(3):
        served.layer(x, logits, out)
    assert allocated() == before


def test_layers_of_two_models_on_two_streams(served: Served, other: Served) -> None:
    work = []
    for each, tokens in ((served, 8), (other, 3)):
        x, logits, mirror = each.problem(tokens)
        outs = torch.empty(100, *x.shape, dtype=x.dtype, device="cuda")
        work.append((each.layer, x, logits, mirror, outs, torch.cuda.Stream()))
    torch.cuda.synchronize()
    for i in range(100):
        for layer, x, logits, _, outs, stream in work:
            with torch.cuda.stream(stream):
                layer(x, logits, outs[i])
    torch.cuda.synchronize()
    for _, _, _, mirror, outs, _ in work:
        assert_close(outs[0], mirror)
        assert torch.equal(outs.view(torch.int16), outs[:1].view(torch.int16).expand_as(outs))


def test_a_refused_launch_leaves_the_layer_usable(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver refuses too much shared memory; the next launch has a new workspace."""
    x, logits, mirror = served.problem(4)
    served.layer(x, logits)
    good = served.layer.plan.choose(torch.device("cuda"), 4)
    assert good.kernel
    bad = dataclasses.replace(good, kernel=dataclasses.replace(good.kernel, shared_bytes=2**20))
    half = served.layer.plan.half_bytes
    device = torch.device("cuda", torch.cuda.current_device())
    stream = current_stream(device)
    before = torch_op.WORKSPACES.get(stream, device, half)
    with monkeypatch.context() as patch:
        patch.setattr(type(served.layer.plan), "choose", lambda *_: bad)
        with pytest.raises(LaunchError, match=f"the launch of {good.kernel.name} failed"):
            served.layer(x, logits)
    assert torch_op.WORKSPACES.get(stream, device, half) is not before
    assert_close(served.layer(x, logits), mirror)


@pytest.fixture
def narrow() -> Iterator[None]:
    """A green context of 16 SMs, current."""
    green = pytest.importorskip("torch.cuda.green_contexts")
    if not green.SUPPORTED:
        pytest.skip("this torch knows no green contexts")
    context = green.GreenContext.create(num_sms=16, device_id=0)
    context.set_context()
    yield
    context.pop_context()


def test_a_green_context_is_refused(served: Served, narrow: None) -> None:
    x, logits, _ = served.problem(2)
    with pytest.raises(LaunchError, match=r"SMs at once and the current stream has 16"):
        served.layer(x, logits)


def test_a_green_context_goes_to_the_fallback(served: Served, narrow: None) -> None:
    x, logits, mirror = served.problem(2)
    assert_close(served.make(served.table, on_missing="fallback")(x, logits), mirror)


def test_a_table_of_another_gpu(served: Served, fresh: None) -> None:
    device = current_device()
    assert device
    smaller = dataclasses.replace(device, sms=device.sms - 16)
    table = KernelTable(
        served.table.folder, dataclasses.replace(served.table.table, device=smaller)
    )
    with pytest.raises(EnvironmentProblem, match=rf"\({device.sms - 16} SMs\), this GPU is"):
        served.make(table)
    layer = served.make(table, on_missing="fallback")
    x, logits, mirror = served.problem(2)
    assert_close(layer(x, logits), mirror)
    assert "2 tokens: torch fallback (the kernels were tuned on" in layer.explain(2)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_in_one_process(served: Served) -> None:
    """A layer made on the second, and one moved to it."""
    for layer in (Served(MODEL, "cuda:1").layer, served.make(served.table).to("cuda:1")):
        for tokens in (1, 8):
            x, logits, mirror = served.problem(tokens)
            far = layer(x.to("cuda:1"), logits.to("cuda:1"))
            assert far.device == torch.device("cuda", 1)
            assert_close(far.cpu(), mirror.cpu())
            assert_close(served.layer(x, logits), mirror)


def test_after_a_trap_the_error_says_what_to_do() -> None:
    """In a process of its own, as the trap ends its context."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / "trapped_layer.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert "unspecified launch failure" in lines["torch"], done.stderr
    assert "the CUDA context is lost: restart the process" in lines["layer"], done.stderr
