"""The runtime's parts that need no GPU: arguments, residency, workspaces, refusals."""

import contextlib
import copy
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from serving import TINY, make_layer, make_table
from torch import Tensor

from monomoe_gen import dispatch, kernel, launch_attributes, runtime, wait_limit, workspaces
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import (
    DatabaseError,
    EnvironmentProblem,
    LaunchError,
    MonomoeError,
    NoKernel,
)
from monomoe_gen.kernel import (
    LayerWeights,
    LoadedKernel,
    Workspace,
    check_clusters,
    check_residency,
    launch_moe,
)
from monomoe_gen.paths import data_dir
from monomoe_gen.reference import moe_mirror, router_logits
from monomoe_gen.shapes import Shape
from monomoe_gen.torch_op import require
from monomoe_gen.workload import activations, block_weights, router_weight
from monomoe_gen.workspaces import current_stream

CPU = torch.device("cpu")


def test_the_arguments_are_those_of_the_kernel() -> None:
    """``NAME(x, logits, bias, w13, w13_scale, w2, w2_scale, y, workspace, half, tokens, ns)``."""
    calls: list[tuple[object, ...]] = []
    loaded = LoadedKernel("k", 132, 608, 1000, 0, 96, lambda *args: calls.append(args))
    tensors = {n: torch.zeros(3, 4) for n in ("x", "logits", "y", "w13", "s13", "w2", "s2")}
    t = SimpleNamespace(**tensors)
    space = Workspace(torch.zeros(10, dtype=torch.uint8), 256)
    stream = SimpleNamespace(cuda_stream=0xABC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "current_stream", lambda device: stream)
        launch_moe(loaded, LayerWeights(t.w13, t.s13, t.w2, t.s2), t.x, t.logits, t.y, space)
    ((grid, block, arguments, shared, on),) = calls
    assert (grid, block, shared, on.ptr) == ((132,), (608,), 1000, 0xABC)  # type: ignore[attr-defined]
    pointers = [a.data_ptr() for a in (t.w13, t.s13, t.w2, t.s2, t.y, space.memory)]
    assert [int(a) for a in arguments] == [  # type: ignore[attr-defined]
        t.x.data_ptr(), t.logits.data_ptr(), 0, *pointers, 256, 3, 2 * 10**9,
    ]  # fmt: skip
    widths = [a.dtype for a in arguments]  # type: ignore[attr-defined]
    assert widths == [np.uint64] * 9 + [np.uint32] * 2 + [np.uint64]


def test_cupy_takes_these_arguments_and_this_stream() -> None:
    """Up to the driver, which this machine may lack: other types fail before that."""
    from cupy.cuda.function import Function
    from cupy.cuda.runtime import CUDARuntimeError

    if torch.cuda.is_available():
        pytest.skip("there is a driver")
    unbound = Function.__new__(Function)
    arguments = (np.uint64(1 << 47), np.uint32(3))
    with pytest.raises(CUDARuntimeError):
        unbound((132,), (32,), arguments, 1000, kernel._Stream(0xABC))
    with pytest.raises(AttributeError):
        unbound((132,), (32,), arguments, 1000, 0xABC)


def test_a_grid_must_be_resident() -> None:
    check_residency("k", 132, 132, 1)
    with pytest.raises(LaunchError, match="needs 133 SMs at once and this device offers 132"):
        check_residency("k", 133, 132, 2)
    with pytest.raises(LaunchError, match="no CTA of it fits an SM"):
        check_residency("k", 1, 132, 0)


@pytest.mark.parametrize(
    ("width", "answer", "message"),
    [
        (0, None, ""),
        (2, (0, 66), ""),
        (2, (0, 65), "needs 66 clusters of 2 CTAs at once and this device offers 65"),
        (2, (1, 0), "cannot load k .* on a GPU: 1"),
    ],
)
def test_a_kernel_of_clusters_is_loaded_if_all_of_them_are_resident(
    monkeypatch: pytest.MonkeyPatch, width: int, answer: tuple[int, int] | None, message: str
) -> None:
    asked = []

    class Refused(Exception):
        pass

    def resident_clusters(*arguments: int) -> tuple[int, int] | None:
        asked.append(arguments)
        return answer

    loaded = SimpleNamespace(ptr=77)
    module = SimpleNamespace(load=lambda cubin: None, get_function=lambda name: loaded)
    attributes = {4: 96, 11: width}  # CU_FUNC_ATTRIBUTE_NUM_REGS, _REQUIRED_CLUSTER_WIDTH
    driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
        CU_FUNC_ATTRIBUTE_NUM_REGS=4,
        CUDADriverError=Refused,
        funcSetAttribute=lambda function, attribute, value: None,
        funcGetAttribute=lambda attribute, function: attributes[attribute],
        occupancyMaxActiveBlocksPerMultiprocessor=lambda function, threads, shared: 1,
    )
    cupy = driver, SimpleNamespace(Module=lambda: module)
    monkeypatch.setattr(kernel, "require_cupy", lambda: cupy)
    monkeypatch.setattr(kernel, "_driver_errors", lambda: (Refused,))
    monkeypatch.setattr(kernel, "_on_device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(launch_attributes, "resident_clusters", resident_clusters)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    gpu = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    refused = pytest.raises(LaunchError, match=message) if message else contextlib.nullcontext()
    with refused:
        made = LoadedKernel.from_cubin(b"", "k", 132, 608, 1000, device=0)
        assert (made.registers, made.function) == (96, loaded)
    assert asked == ([(77, 2, 132, 608, 1000)] if width else [])


def test_clusters_must_be_resident() -> None:
    check_clusters("k", 132, 2, 66)
    with pytest.raises(LaunchError, match="needs 64 clusters of 2 CTAs at once and this"):
        check_clusters("k", 128, 2, 63)


class Cuda:
    """Stands in for torch's streams."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.stream, self.capturing = 1, False
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.cuda, "synchronize", lambda device: None)
        patch.setattr(
            torch.cuda, "current_stream", lambda index: SimpleNamespace(cuda_stream=self.stream)
        )
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    return Cuda(monkeypatch)


def get(spaces: workspaces.Workspaces, half_bytes: int) -> Workspace:
    return spaces.get(current_stream(CPU), CPU, half_bytes)


def test_a_stream_keeps_its_workspace(cuda: Cuda) -> None:
    spaces = workspaces.Workspaces()
    first = get(spaces, 256)
    assert first.memory.numel() == 128 + 2 * 256 and not first.memory.any()
    assert get(spaces, 128) is first
    cuda.stream = 2
    assert get(spaces, 256) is not first
    cuda.stream = 1
    assert get(spaces, 256) is first


def test_a_larger_kernel_gets_a_larger_workspace_and_the_old_one_lives(cuda: Cuda) -> None:
    spaces = workspaces.Workspaces()
    first = get(spaces, 256)
    second = get(spaces, 512)
    assert second.half_bytes == 512 and get(spaces, 256) is second
    assert any(space is first for space in spaces._retired)


def test_a_capture_takes_what_was_set_aside_before(cuda: Cuda) -> None:
    spaces = workspaces.Workspaces()
    spaces.reserve(CPU, 256)
    cuda.capturing = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workspace, "allocate", None)  # memory of a capture is not zeroed
        space = get(spaces, 256)
        assert get(spaces, 256) is space
        cuda.stream = 2
        with pytest.raises(LaunchError, match="no workspace is left for it"):
            get(spaces, 256)
    cuda.stream, cuda.capturing = 1, False
    assert get(spaces, 256) is space  # and sets the next one aside
    cuda.stream, cuda.capturing = 2, True
    assert get(spaces, 256) is not space


def test_a_failed_launch_costs_the_stream_its_workspace(cuda: Cuda) -> None:
    spaces = workspaces.Workspaces()
    first = get(spaces, 256)
    first.memory.fill_(1)
    spaces.discard(current_stream(CPU))
    second = get(spaces, 256)
    assert second is not first and not second.memory.any()
    assert any(space is first for space in spaces._retired)  # a captured graph may use it
    spaces.discard(current_stream(CPU))
    spaces.discard(current_stream(CPU))


def test_a_stream_is_asked_once_for_its_sms(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    def sms(stream: int | None, every: int) -> int:
        asked.append(stream)
        return every // (stream or 1)

    monkeypatch.setattr(workspaces, "stream_sms", sms)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda index: SimpleNamespace(multi_processor_count=132),
    )
    spaces = workspaces.Workspaces()
    assert [spaces.sms(current_stream(CPU)), spaces.sms(current_stream(CPU))] == [132, 132]
    cuda.stream = 2
    assert spaces.sms(current_stream(CPU)) == 66
    assert asked == [1, 2]
    cuda.stream, cuda.capturing = 4, True
    assert [spaces.sms(current_stream(CPU)), spaces.sms(current_stream(CPU))] == [132, 132]
    assert asked == [1, 2, None, None]


def test_a_failed_launch_is_explained() -> None:
    """The driver's word, and what it means where the context is lost."""
    error = RuntimeError("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure")
    error.status = 719  # type: ignore[attr-defined]
    text = kernel.launch_failure("k", error)
    assert text.startswith("the launch of k failed: CUDA_ERROR_LAUNCH_FAILED")
    assert "a wait inside it lasts 2 s" in text and "restart the process" in text
    error.status = 701  # type: ignore[attr-defined]
    assert kernel.launch_failure("k", error) == f"the launch of k failed: {error}"


def test_the_explained_wait_limit_is_the_kernels() -> None:
    text = (data_dir("templates") / "device" / "trap.cuh").read_text(encoding="utf-8")
    (limit,) = re.findall(r"kWaitLimitNs = ([0-9']+)ull", text)
    assert int(limit.replace("'", "")) == wait_limit.DEFAULT_MS * 10**6


@pytest.fixture
def limit_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], int]]:
    """The limit with this value of the variable, as a new process would read it."""

    def read(text: str) -> int:
        monkeypatch.setenv(wait_limit.VARIABLE, text)
        wait_limit.wait_limit_ms.cache_clear()
        return wait_limit.wait_limit_ms()

    yield read
    wait_limit.wait_limit_ms.cache_clear()


def test_the_wait_limit_is_two_seconds_or_what_is_asked_for(
    limit_of: Callable[[str], int],
) -> None:
    assert [limit_of(text) for text in ("", "1", "60000")] == [wait_limit.DEFAULT_MS, 1, 60000]
    os.environ[wait_limit.VARIABLE] = "7"
    assert wait_limit.wait_limit_ms() == 60000  # read once
    error = RuntimeError("CUDA_ERROR_LAUNCH_FAILED")
    error.status = 719  # type: ignore[attr-defined]
    assert "a wait inside it lasts 60 s" in kernel.launch_failure("k", error)


@pytest.mark.parametrize("text", ["0", "-1", "2s", "1.5", "4000000", "²", "9" * 5000])
def test_a_wait_limit_that_is_none_is_refused(limit_of: Callable[[str], int], text: str) -> None:
    with pytest.raises(MonomoeError, match="MONOMOE_WAIT_LIMIT_MS must be a whole number of milli"):
        limit_of(text)
    with pytest.raises(MonomoeError, match="MONOMOE_WAIT_LIMIT_MS"):
        make_layer()  # and not at the first launch


def test_the_import_is_quick() -> None:
    """Under 150 ms beyond torch and CuPy, the best of three fresh processes."""
    program = (
        "import time, torch, cupy\n"
        "start = time.process_time()\n"
        "import monomoe_gen.runtime\n"
        "print(time.process_time() - start)\n"
    )
    command = [sys.executable, "-c", program]
    times = []
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append(float(done.stdout))
        if times[-1] < 0.15:
            return
    raise AssertionError(f"seconds: {times}")


def test_the_table_is_the_folder_that_was_named(tmp_path: Path) -> None:
    table = make_table()
    (tmp_path / dispatch.FILE).write_text(dispatch.dump(table), encoding="utf-8")
    assert runtime.load_table(tmp_path) == runtime.KernelTable(tmp_path, table)
    with pytest.raises(DatabaseError):
        runtime.load_table(tmp_path / "elsewhere")


def test_a_gpu_without_a_table_gets_that_of_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(KNOWN[DEFAULT], name="Another GPU", slug="another-gpu")
    monkeypatch.setattr(runtime, "current_device", lambda: other)
    assert runtime.load_table().table.device == KNOWN[DEFAULT]


def test_a_layer_on_the_cpu_computes_the_operator() -> None:
    layer, block = make_layer()
    x, logits = activations(TINY, 5, "gaussian", 0), torch.randn(5, TINY.experts)
    mirror = moe_mirror(x, logits, block.w13, block.w13_scale, block.w2, block.w2_scale, None, TINY)
    assert torch.equal(layer(x, logits), mirror)
    out = torch.full_like(x, torch.nan)
    assert layer(x, logits, out) is out
    assert torch.equal(out, mirror)
    assert layer(x[:0], logits[:0]).shape == (0, TINY.hidden)


def test_a_layer_with_shared_experts() -> None:
    shape = dataclasses.replace(TINY, expert_bias=False, shared_experts=2, shared_gate=True)
    layer, block = make_layer(shape=shape)
    assert len(layer.w13) == 10
    x, logits = activations(shape, 3, "gaussian", 0), torch.randn(3, 9)
    parts = vars(block).values()
    assert torch.equal(layer(x, logits), moe_mirror(x, logits, *parts, None, shape))
    with pytest.raises(MonomoeError, match=r"router_logits must be .* \[3, 9\]"):
        layer(x, logits[:, :8].contiguous())
    with pytest.raises(MonomoeError, match=r"w13 must be .* \[10, 256, 256\]"):
        routed = (tensor[:8] for tensor in parts)
        runtime.MoELayer.from_weights(layer.plan.table, shape.name, *routed)


def test_a_layer_is_a_module_without_state() -> None:
    layer, _ = make_layer()
    assert not layer.state_dict()
    assert [name for name, _ in layer.named_buffers()] == ["w13", "w13_scale", "w2", "w2_scale"]
    copied = copy.deepcopy(layer)
    assert copied.plan is layer.plan and copied.w13 is not layer.w13
    torch.nn.ModuleList([copied]).bfloat16()
    assert torch.equal(copied.w13_scale, layer.w13_scale)
    assert copied.to("meta").w13.device.type == "meta"


def test_layers_of_a_model_share_a_plan_and_its_name_is_stable() -> None:
    first, _ = make_layer()
    second, _ = make_layer()
    assert first.plan is second.plan
    assert re.fullmatch(r"tiny@[0-9a-f]{8}", first.plan_name)
    third, _ = make_layer(fallback=lambda x, logits: x)
    assert third.plan_name == f"{first.plan_name}#2"


def test_wrong_weights_are_refused() -> None:
    block = block_weights(TINY, "gaussian", 0, "cpu")
    table = runtime.KernelTable(Path(), make_table())
    good = block.w13, block.w13_scale, block.w2, block.w2_scale

    def make(*weights: Tensor, model: str | Shape = "tiny", **options: Any) -> None:
        runtime.MoELayer.from_weights(table, model, *weights, **options)

    with pytest.raises(MonomoeError, match=r"w13 must be .*float8_e4m3fn \[8, 256, 256\]"):
        make(block.w2, *good[1:])
    with pytest.raises(MonomoeError, match=r"w2_scale must be .*float32 \[8, 2, 1\] on cpu"):
        make(*good[:3], block.w2_scale.double())
    with pytest.raises(MonomoeError, match="tiny has no expert bias"):
        make(*good, bias=torch.zeros(8))
    with pytest.raises(NoKernel, match="run `monomoe-gen tune --model other`"):
        make(*good, model="other")
    with pytest.raises(MonomoeError, match=r'on_missing must be "error" or "fallback", found .no.'):
        make(*good, on_missing="no")
    with pytest.raises(EnvironmentProblem, match="the weights are on meta"):
        make(*(t.to("meta") for t in good))
    wider = dataclasses.replace(TINY, top_k=4)
    with pytest.raises(MonomoeError, match=r"for hidden=256 .*top_k=2 .*asked for .*top_k=4"):
        make(*good, model=wider)
    make(*good, model=dataclasses.replace(TINY, source="elsewhere"))


def test_a_tensor_that_does_not_fit_is_described() -> None:
    x = torch.zeros(2, 4).T
    with pytest.raises(
        MonomoeError, match=r"x must be a contiguous torch.bfloat16 \[2, 4\] on cpu, "
    ):
        require("x", x, (2, 4), torch.bfloat16, CPU)
    with pytest.raises(MonomoeError, match=r"found non-contiguous torch.float32 \[4, 2\] on cpu"):
        require("x", x, (2, 4), torch.bfloat16, CPU)
    require("x", torch.zeros(2, 4), (2, 4), torch.float32, CPU)


def test_a_raw_layer_uses_the_given_weights_in_place() -> None:
    layer, w = make_layer(layout="raw")
    assert layer.w13.data_ptr() == w.w13.data_ptr() and layer.w2.data_ptr() == w.w2.data_ptr()
    packed, _ = make_layer()
    assert layer.plan_name != packed.plan_name
    x = activations(TINY, 3, "gaussian", 0)
    logits = torch.randn(3, TINY.experts, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer(x, logits), packed(x, logits))
    assert "tuned at 2" in layer.explain(3)


def test_raw_weights_that_cannot_be_read_in_place_are_refused() -> None:
    table = runtime.KernelTable(Path(), make_table(layout="raw"))
    w = block_weights(TINY, "gaussian", 0)
    tensors = vars(w)
    for wrong, complaint in (
        ({"w13": w.w13.transpose(1, 2).contiguous().transpose(1, 2)}, "non-contiguous"),
        ({"w2": shifted(w.w2, 8)}, "w2 begins at .*a multiple of 16 bytes"),
    ):
        with pytest.raises(MonomoeError, match=complaint):
            runtime.MoELayer.from_weights(table, "tiny", **{**tensors, **wrong}, layout="raw")
    with pytest.raises(MonomoeError, match="a layout is one of packed, raw, found 'row'"):
        runtime.MoELayer.from_weights(table, "tiny", **tensors, layout="row")  # type: ignore[arg-type]
    with pytest.raises(NoKernel, match="the table has raw weights for this model; run"):
        runtime.MoELayer.from_weights(table, "tiny", **tensors)


def shifted(tensor: Tensor, count: int) -> Tensor:
    """The same values, ``count`` bytes behind a multiple of 64."""
    flat = tensor.view(torch.uint8).flatten()
    room = torch.empty(flat.numel() + 64 + count, dtype=torch.uint8)
    begin = -room.data_ptr() % 64 + count
    moved = room[begin : begin + flat.numel()]
    moved.copy_(flat)
    return moved.view(tensor.dtype).view(tensor.shape)


def test_a_layer_with_its_router_takes_x_alone(tmp_path: Path) -> None:
    weight = router_weight(TINY, 1)
    x = activations(TINY, 3, "gaussian", 0)
    table = runtime.KernelTable(tmp_path, make_table(router="weight"))
    w = block_weights(TINY, "gaussian", 0, "cpu")
    tensors = w.w13, w.w13_scale, w.w2, w.w2_scale
    layer = runtime.MoELayer.from_weights(table, TINY.name, *tensors, router=weight)
    assert layer.plan_name.endswith("-router")
    usual, _ = make_layer(tmp_path)
    expected = usual(x, router_logits(x, weight, TINY))
    assert torch.equal(layer(x), expected)
    out = torch.empty_like(x)
    assert layer(x, out=out) is out and torch.equal(out, expected)
    with pytest.raises(MonomoeError, match="this one has a router"):
        layer(x, router_logits(x, weight, TINY))
    with pytest.raises(MonomoeError, match="this one has no router"):
        usual(x)
    with pytest.raises(NoKernel, match="table has packed weights, router inside for"):
        runtime.MoELayer.from_weights(table, TINY.name, *tensors)
    with pytest.raises(
        NoKernel, match=r"dependent launch; the table has .* --router weight --pdl`"
    ):
        runtime.MoELayer.from_weights(table, TINY.name, *tensors, router=weight, pdl=True)
    early = runtime.KernelTable(tmp_path, make_table(pdl=True))
    assert runtime.MoELayer.from_weights(early, TINY.name, *tensors, pdl=True).plan.variant.pdl
    with pytest.raises(MonomoeError, match="router must be a contiguous"):
        runtime.MoELayer.from_weights(table, TINY.name, *tensors, router=weight.float())
    with pytest.raises(MonomoeError, match=r"found Linear; of a module give the \.weight"):
        runtime.MoELayer.from_weights(table, TINY.name, *tensors, router=torch.nn.Linear(1, 1))
    with pytest.raises(MonomoeError, match="pdl is True or False, found 'yes'"):
        runtime.MoELayer.from_weights(table, TINY.name, *tensors, pdl="yes")
