"""What serves a token count, what is refused, and what is said about it. The GPU is pretended."""

import contextlib
import dataclasses
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from serving import CUBIN, TINY, make_layer, make_table
from torch import Tensor

from monomoe_gen import partition, plan, torch_op
from monomoe_gen.device import DEFAULT, KNOWN, Device, mismatch
from monomoe_gen.errors import (
    DatabaseError,
    EnvironmentProblem,
    LaunchError,
    MonomoeError,
    NoKernel,
)
from monomoe_gen.kernel import LoadedKernel, Workspace
from monomoe_gen.plan import REQUIRE_TUNED, KernelTable, Plan, make_plan
from monomoe_gen.workspaces import Workspaces, current_stream

H200 = KNOWN[DEFAULT]
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
STREAM = (0, 5, 0)


class Machine:
    """A pretended GPU with the table's cubin in a folder; `loaded` counts what was loaded."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.device, self.loaded = folder, H200, 0
        self.table = KernelTable(folder, make_table())
        self.cubin = folder / f"{self.table.table.kernels[0].id}.cubin"
        self.cubin.write_bytes(CUBIN)
        self.refusal: Exception | None = None
        patch.setattr(plan, "_LOADED", {})
        patch.setattr(plan, "_SAID", set())
        patch.setattr(plan, "current_device", lambda: self.device)
        patch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
        patch.setattr(LoadedKernel, "from_cubin", self.load)

    def load(self, cubin: bytes, name: str, grid: int, *rest: int) -> LoadedKernel:
        if self.refusal:
            raise self.refusal
        assert cubin == CUBIN
        self.loaded += 1
        return LoadedKernel(name, grid, 608, 1000, 0, 96, None)

    def plan(self, **options: Any) -> Plan:
        return make_plan(self.table, "tiny", **options)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv(REQUIRE_TUNED, raising=False)
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="monomoe_gen"):
        yield caplog


@pytest.mark.parametrize(
    ("tokens", "how"),
    [
        (1, "smallest above: tuned at 2"),
        (2, "exact: tuned at 2"),
        (3, "nearest below: tuned at 2"),
        (4, "exact: tuned at 4"),
        (8, "nearest below: tuned at 4"),
    ],
)
def test_a_choice_says_which_kernel_and_why(machine: Machine, tokens: int, how: str) -> None:
    choice = machine.plan().choose(GPU, tokens)
    assert choice.kernel and not choice.reason
    time = 40 if "at 4" in how else 20
    assert choice.line == (
        f"tiny, {tokens} tokens: g128-u8x256x4-d8x128x4 ({how}, good for up to 8; {time} us when "
        "tuned, stream floor 7.5 us)"
    )


def test_a_decision_is_logged_once(machine: Machine, log: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        for tokens in (2, 3):
            machine.plan().choose(GPU, tokens)
    assert [(r.levelname, r.getMessage()[:15]) for r in log.records] == [
        ("INFO", "tiny, 2 tokens:"),
        ("INFO", "tiny, 3 tokens:"),
    ]
    assert machine.loaded == 1


def test_more_tokens_than_any_kernel_takes(machine: Machine, log: pytest.LogCaptureFixture) -> None:
    """They go to the fallback whatever `on_missing` is; it is announced once."""
    made = machine.plan()
    for tokens in (9, 10):
        choice = made.choose(GPU, tokens)
        assert choice.kernel is None
        assert choice.line == (
            f"tiny, {tokens} tokens: torch fallback (the table has 1 to 8 tokens for this model)"
        )
    assert [(r.levelname, r.getMessage()[:15]) for r in log.records] == [
        ("WARNING", "tiny, 9 tokens:")
    ]
    own = machine.plan(fallback=lambda x, logits: x).choose(GPU, 9)
    assert "tiny, 9 tokens: the caller's fallback (" in own.line


OTHER_GPUS = {
    "name": (
        dataclasses.replace(H200, name="Another GPU", slug="another-gpu"),
        "tuned on NVIDIA H200, this GPU is Another GPU; tune for it with `monomoe-gen tune`",
    ),
    "SMs": (
        dataclasses.replace(H200, sms=60),
        r"tuned on NVIDIA H200 \(132 SMs\), this GPU is NVIDIA H200 \(60 SMs\)",
    ),
    "capability": (
        dataclasses.replace(H200, arch="sm_100"),
        r"this GPU is NVIDIA H200 \(compute target sm_100\)",
    ),
}


@pytest.mark.parametrize(("device", "message"), OTHER_GPUS.values(), ids=list(OTHER_GPUS))
def test_another_gpu_is_refused(machine: Machine, device: Device, message: str) -> None:
    machine.device = device
    made = machine.plan()
    with pytest.raises(EnvironmentProblem, match=message):
        made.prepare(GPU)
    with pytest.raises(EnvironmentProblem, match=message):
        made.choose(GPU, 2)
    assert machine.loaded == 0


def test_no_gpu_and_the_same_gpu() -> None:
    assert mismatch(H200, H200) == ""
    assert "there is no CUDA device" in mismatch(H200, None)


def test_a_strange_cubin_is_refused(machine: Machine) -> None:
    machine.cubin.write_bytes(b"another")
    with pytest.raises(DatabaseError, match="its hash differs"):
        machine.plan().prepare(GPU)


def test_a_grid_that_is_not_resident_is_refused(machine: Machine) -> None:
    machine.refusal = LaunchError("k needs 128 SMs at once and this device offers 60")
    with pytest.raises(LaunchError, match="offers 60"):
        machine.plan().prepare(GPU)


def other_gpu(machine: Machine) -> None:
    machine.device = OTHER_GPUS["SMs"][0]


def strange_cubin(machine: Machine) -> None:
    machine.cubin.write_bytes(b"another")


def no_cupy(machine: Machine) -> None:
    machine.refusal = EnvironmentProblem("CuPy cannot be imported")


@pytest.mark.parametrize("spoil", [other_gpu, strange_cubin, no_cupy])
def test_what_is_refused_goes_to_the_fallback(
    machine: Machine, log: pytest.LogCaptureFixture, spoil: Any
) -> None:
    spoil(machine)
    made = machine.plan(on_missing="fallback")
    assert made.prepare(GPU) is False
    choices = [made.choose(GPU, tokens) for tokens in (1, 2, 8)]
    assert all(c.kernel is None and c.reason for c in choices)
    assert len([r for r in log.records if r.levelname == "WARNING"]) == 1


def test_a_model_that_the_table_lacks(machine: Machine) -> None:
    strange = dataclasses.replace(TINY, name="strange")
    with pytest.raises(NoKernel, match="the table has tiny; run"):
        make_plan(machine.table, strange)
    with pytest.raises(NoKernel, match="the table has tiny; run"):
        make_plan(machine.table, "strange", on_missing="fallback")  # without dimensions
    made = make_plan(machine.table, strange, on_missing="fallback")
    assert made.half_bytes == 0 and made.prepare(GPU) is False
    assert "strange, 1 tokens: torch fallback (the table has tiny; run" in made.choose(GPU, 1).line


def test_a_workspace_is_as_large_as_the_table_says(machine: Machine) -> None:
    """The cubin may be of older sources, which needed more than the present ones do."""
    (kernel,) = machine.table.table.kernels
    half = kernel.spec.geometry.workspace_half_bytes + 4096
    larger = dataclasses.replace(kernel, workspace_half_bytes=half)
    table = dataclasses.replace(machine.table.table, kernels=(larger,))
    assert make_plan(KernelTable(machine.folder, table), "tiny").half_bytes == half


def test_only_exactly_tuned_kernels(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE_TUNED, "1")
    made = machine.plan(on_missing="fallback", fallback=lambda x, logits: x)
    assert made.choose(GPU, 2).kernel
    for device, tokens in ((GPU, 1), (GPU, 3), (CPU, 2)):
        with pytest.raises(NoKernel, match="MONOMOE_REQUIRE_TUNED=1 allows only a kernel tuned"):
            made.choose(device, tokens)
    with pytest.raises(NoKernel, match="1 to 8 tokens"):
        made.choose(GPU, 9)
    with pytest.raises(NoKernel, match="the table has tiny"):
        make_plan(machine.table, dataclasses.replace(TINY, name="strange"), "fallback")
    machine.device = OTHER_GPUS["SMs"][0]
    monkeypatch.setattr(plan, "_LOADED", {})
    with pytest.raises(EnvironmentProblem):
        made.choose(GPU, 4)
    monkeypatch.setenv(REQUIRE_TUNED, "yes")
    with pytest.raises(MonomoeError, match="MONOMOE_REQUIRE_TUNED must be 0 or 1, found 'yes'"):
        machine.plan()
    monkeypatch.setenv(REQUIRE_TUNED, "0")
    machine.device = H200
    assert machine.plan().choose(GPU, 3).kernel


def test_on_the_cpu_the_reference_serves_and_says_so(machine: Machine) -> None:
    made = machine.plan()
    assert made.choose(CPU, 3).line == (
        "tiny, 3 tokens: the reference in torch, as the tensors are on cpu; on NVIDIA H200: "
        "g128-u8x256x4-d8x128x4 (nearest below: tuned at 2, good for up to 8; 20 us when tuned, "
        "stream floor 7.5 us)"
    )
    assert "on NVIDIA H200: the fallback (the table has 1 to 8" in made.choose(CPU, 9).line


def test_a_plan_lives_as_long_as_someone_has_it(machine: Machine) -> None:
    made = machine.plan(fallback=lambda x, logits: x)
    name = made.name
    assert plan.find_plan(name) is made
    del made
    with pytest.raises(MonomoeError, match=r"no plan .* make the layer with MoELayer.from_weights"):
        plan.find_plan(name)


def test_a_narrow_stream_is_refused_or_falls_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_op.WORKSPACES, "sms", lambda stream: 127)
    strict = machine.plan()
    with pytest.raises(LaunchError, match="needs 128 SMs at once and the current stream has 127"):
        torch_op._on_this_stream(strict, strict.choose(GPU, 2), STREAM, 2)
    made = machine.plan(on_missing="fallback")
    choice = torch_op._on_this_stream(made, made.choose(GPU, 2), STREAM, 2)
    assert choice.kernel is None and "torch fallback (monomoe_tiny_t8" in choice.line
    monkeypatch.setattr(torch_op.WORKSPACES, "sms", lambda stream: 128)
    assert torch_op._on_this_stream(made, made.choose(GPU, 2), STREAM, 2).kernel


def test_a_launch_looks_its_stream_up_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a default stream that asks the driver; tensors of ``meta`` stand in for the GPU's."""
    seen: list[Any] = []
    handle = SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: seen.append(index) or handle)
    spaces, meta = Workspaces(), torch.device("meta")
    monkeypatch.setattr(torch_op, "WORKSPACES", spaces)
    spaces._sms[0, 7, 0] = 132
    made = machine.plan()
    space = Workspace.allocate(made.half_bytes, meta)
    spaces._by_stream[0, 7, 0] = spaces._spare[0] = space
    choice = made.choose(GPU, 2)
    monkeypatch.setattr(Plan, "choose", lambda *_: choice)
    launches: list[Any] = []
    monkeypatch.setattr(torch_op, "launch_moe", lambda *arguments: launches.append(arguments))
    layer, _ = make_layer(machine.folder)
    tensors = (layer.w13, layer.w13_scale, layer.w2, layer.w2_scale)
    weights = torch_op.LayerWeights(*(t.to(meta) for t in tensors))
    x = torch.empty(2, TINY.hidden, dtype=torch.bfloat16, device=meta)
    logits = torch.empty(2, TINY.experts, device=meta)
    torch_op._run(made, x, logits, weights, torch.empty_like(x))
    assert [arguments[-1] for arguments in launches] == [space]
    assert seen == [0]


def test_the_fallback_computes_what_the_reference_does(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, _ = make_layer(machine.folder, on_missing="fallback")
    x = torch.randn(9, TINY.hidden).bfloat16()
    logits = torch.randn(9, TINY.experts)
    weights = torch_op.LayerWeights(layer.w13, layer.w13_scale, layer.w2, layer.w2_scale)
    capturing = SimpleNamespace(now=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing.now)

    def run(made: Plan) -> Tensor:
        out = torch.full_like(x, torch.nan)
        torch_op._fall_back(made, made.choose(GPU, 9), x, logits, weights, out)
        return out

    made = machine.plan()
    assert torch.equal(run(made), layer(x, logits))
    monkeypatch.setattr("monomoe_gen.fallback.TOKENS_AT_ONCE", 4)
    assert torch.equal(run(made), layer(x, logits))
    assert torch.equal(run(machine.plan(fallback=lambda x, logits: 2 * x)), 2 * x)
    with pytest.raises(MonomoeError, match="the fallback's result must be a contiguous"):
        run(machine.plan(fallback=lambda x, logits: x.float()))
    capturing.now = True
    with pytest.raises(LaunchError, match="a CUDA graph cannot hold the torch fallback"):
        run(made)


class Driver:
    """Stands in for libcuda: a stream may be in a green context, and a context has SMs."""

    def __init__(self, green: int | None, current: int) -> None:
        self.green, self.current, self.context = green, current, 0x20

    def cuStreamGetGreenCtx(self, stream: Any, context: Any) -> int:
        context._obj.value = None if self.green is None else 0x10
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:
        context._obj.value = self.context
        return 0

    def cuGreenCtxGetDevResource(self, context: Any, resource: Any, kind: int) -> int:
        assert (context.value, kind) == (0x10, 1)
        resource[96:98] = self.green.to_bytes(2, "little")  # type: ignore[union-attr]
        return 0

    def cuCtxGetDevResource(self, context: Any, resource: Any, kind: int) -> int:
        assert (context.value, kind) == (self.context, 1)
        resource[96:98] = self.current.to_bytes(2, "little")
        return 0


def test_a_stream_has_the_sms_of_its_green_context() -> None:
    assert partition.partition_sms(Driver(None, 132), 0) == 132
    assert partition.partition_sms(Driver(16, 132), 5) == 16
    assert partition.partition_sms(Driver(None, 40), 5) == 40
    assert partition.partition_sms(Driver(16, 132), None) == 132
    assert partition.partition_sms(SimpleNamespace(), 0) is None  # a driver without them
    failing = Driver(None, 132)
    failing.cuCtxGetDevResource = lambda *_: 801  # type: ignore[method-assign]
    assert partition.partition_sms(failing, 0) is None


def test_a_default_stream_is_told_apart_by_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another context than before may be current: a green one, which has fewer SMs."""
    driver = Driver(None, 132)
    monkeypatch.setattr(partition, "load_driver", lambda: driver)
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    handle = 0
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda index: SimpleNamespace(cuda_stream=handle)
    )
    spaces, device = Workspaces(), torch.device("cuda", 0)
    assert spaces.sms(current_stream(device)) == 132
    driver.current, driver.context = 16, 0x30
    assert spaces.sms(current_stream(device)) == 16
    driver.current, driver.context = 132, 0x20
    assert spaces.sms(current_stream(device)) == 132
    handle = 5  # a stream of its own stays where it is
    assert (spaces.sms(current_stream(device)), partition.stream_owner(5)) == (132, 0)
    driver.current, driver.context = 16, 0x30
    assert spaces.sms(current_stream(device)) == 132


def test_without_a_driver_a_stream_has_every_sm() -> None:
    program = (
        "import ctypes\n"
        "def none(name):\n    raise OSError\n"
        "ctypes.CDLL = none\n"
        "from monomoe_gen.partition import stream_sms\n"
        "assert stream_sms(0, 132) == 132\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
