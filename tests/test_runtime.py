"""The runtime's parts that need no GPU: arguments, residency, workspaces, refusals."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from monomoe_gen import dispatch, kernel, runtime, workspaces
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.dispatch import Entry, Kernel, Origin, Table
from monomoe_gen.errors import (
    DatabaseError,
    EnvironmentProblem,
    LaunchError,
    MonomoeError,
    NoKernel,
)
from monomoe_gen.kernel import LayerWeights, LoadedKernel, Workspace, check_residency, launch_moe
from monomoe_gen.schedule import Schedule
from monomoe_gen.shapes import load_shape

SHAPE = load_shape("qwen3.5-35b")
CPU = torch.device("cpu")


def test_the_arguments_are_those_of_the_kernel() -> None:
    """``NAME(x, logits, bias, w13, w13_scale, w2, w2_scale, y, workspace, half_bytes, tokens)``."""
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
        t.x.data_ptr(), t.logits.data_ptr(), 0, *pointers, 256, 3,
    ]  # fmt: skip
    widths = [a.dtype for a in arguments]  # type: ignore[attr-defined]
    assert widths == [np.uint64] * 9 + [np.uint32] * 2


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


def test_a_stream_keeps_its_workspace(cuda: Cuda) -> None:
    spaces = workspaces.Workspaces()
    first = spaces.get(CPU, 256)
    assert first.memory.numel() == 128 + 2 * 256 and not first.memory.any()
    assert spaces.get(CPU, 128) is first
    cuda.stream = 2
    assert spaces.get(CPU, 256) is not first
    cuda.stream = 1
    assert spaces.get(CPU, 256) is first


def test_a_larger_kernel_gets_a_larger_workspace_and_the_old_one_lives(cuda: Cuda) -> None:
    spaces = workspaces.Workspaces()
    first = spaces.get(CPU, 256)
    second = spaces.get(CPU, 512)
    assert second.half_bytes == 512 and spaces.get(CPU, 256) is second
    assert any(space is first for space in spaces._retired)


def test_a_capture_takes_what_was_set_aside_before(cuda: Cuda) -> None:
    spaces = workspaces.Workspaces()
    spaces.reserve(CPU, 256)
    cuda.capturing = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workspace, "allocate", None)  # memory of a capture is not zeroed
        space = spaces.get(CPU, 256)
        assert spaces.get(CPU, 256) is space
        cuda.stream = 2
        with pytest.raises(LaunchError, match="no workspace is left for it"):
            spaces.get(CPU, 256)
    cuda.stream, cuda.capturing = 1, False
    assert spaces.get(CPU, 256) is space  # and sets the next one aside
    cuda.stream, cuda.capturing = 2, True
    assert spaces.get(CPU, 256) is not space


def make_table() -> Table:
    made = Kernel(
        id="k",
        kernel_name="k",
        shape=SHAPE,
        schedule=Schedule(132, 64, 1024, 128, 512, 8, 8),
        token_tile=8,
        threads=608,
        shared_bytes=1000,
        registers=96,
        sources_hash="0" * 64,
        compiler="nvrtc 0.0",
        cubin_sha256="0" * 64,
    )
    origin = Origin("2026-01-01T00:00:00+00:00", "nvrtc 0.0", "0" * 64, "final")
    entries = tuple(Entry(SHAPE.name, n, 8, "k", 10.0 * n, 7.5, origin) for n in (2, 4))
    return Table(KNOWN[DEFAULT], (made,), entries)


def test_the_table_is_the_folder_that_was_named(tmp_path: Path) -> None:
    (tmp_path / dispatch.FILE).write_text(dispatch.dump(make_table()), encoding="utf-8")
    loaded = runtime.load_table(tmp_path)
    assert loaded.folder == tmp_path and len(loaded.table.entries) == 2
    with pytest.raises(DatabaseError):
        runtime.load_table(tmp_path / "elsewhere")


def test_explain_says_which_kernel_and_why() -> None:
    weights = LayerWeights(*[torch.empty(0)] * 4)
    layer = runtime.MoELayer(SHAPE, weights, CPU, make_table(), {}, 128)
    start = "qwen3.5-35b, 3 tokens: g132-u64x1024x8-d128x512x8 (nearest below: tuned at 2, good for"
    assert layer.explain(3).startswith(start)
    assert "(exact: tuned at 4" in layer.explain(4)
    assert "(smallest above: tuned at 2" in layer.explain(1)
    with pytest.raises(NoKernel):
        layer.explain(9)


def test_weights_elsewhere_than_on_a_gpu_are_refused(tmp_path: Path) -> None:
    table = runtime.KernelTable(tmp_path, make_table())
    nothing = torch.empty(0)
    with pytest.raises(EnvironmentProblem, match="the weights are on cpu"):
        runtime.MoELayer.from_weights(table, SHAPE.name, nothing, nothing, nothing, nothing)
    with pytest.raises(NoKernel, match="run `monomoe-gen tune --model other`"):
        runtime.MoELayer.from_weights(table, "other", nothing, nothing, nothing, nothing)


def test_a_tensor_that_does_not_fit_is_described() -> None:
    x = torch.zeros(2, 4).T
    with pytest.raises(
        MonomoeError, match=r"x must be a contiguous torch.bfloat16 \[2, 4\] on cpu, "
    ):
        runtime._require("x", x, (2, 4), torch.bfloat16, CPU)
    with pytest.raises(MonomoeError, match=r"found non-contiguous torch.float32 \[4, 2\] on cpu"):
        runtime._require("x", x, (2, 4), torch.bfloat16, CPU)
    runtime._require("x", torch.zeros(2, 4), (2, 4), torch.float32, CPU)
