"""A compiled kernel on the GPU: load, prove that its whole grid is co-resident, launch.

CuPy binds the driver and torch owns memory and streams. A launch copies its arguments by value, so
it can be captured in a CUDA graph; the caller keeps the tensors alive for as long as the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from monomoe_gen import launch_attributes
from monomoe_gen.errors import EnvironmentProblem, LaunchError
from monomoe_gen.schedule import HEADER_BYTES
from monomoe_gen.wait_limit import wait_limit_ms

# The driver's codes after which every call fails: ECC, illegal address, launch timeout, assert,
# hardware stack, illegal instruction, misaligned address, address space, program counter, launch
# failed (a trap).
CONTEXT_LOST = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})
_REQUIRED_CLUSTER_WIDTH = 11  # CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, which CuPy does not name


@dataclass(frozen=True)
class LayerWeights:
    """One layer as the kernel reads it, every tensor contiguous on one CUDA device.

    Packed (`weights`): ``w13`` uint8 ``[E, 2N/16, H/128, 2048]``, ``w2`` uint8 ``[E, H/16, N/128,
    2048]``. Raw: uint8 ``[E, 2N, H]`` and ``[E, H, N]``, 16-byte aligned. Either way as in the
    checkpoint: ``w13_scale`` fp32 ``[E, 2N/128, H/128]``, ``w2_scale`` fp32 ``[E, H/128, N/128]``,
    ``bias`` fp32 ``[E]`` or None. Shared experts follow the routed ones, and have no bias.
    """

    w13: Tensor
    w13_scale: Tensor
    w2: Tensor
    w2_scale: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True)
class Workspace:
    """Scratch of the launches of one stream: a header and two halves that alternate.

    It is zeroed once; every launch leaves it ready for the next. Kernels of any shape may share it
    as long as ``half_bytes`` covers the largest of them. Two launches that may run at the same time
    need two workspaces.
    """

    memory: Tensor
    half_bytes: int

    @classmethod
    def allocate(cls, half_bytes: int, device: torch.device) -> Workspace:
        """A workspace on ``device``, zeroed on its current stream."""
        size = workspace_bytes(half_bytes)
        if device.type != "cuda":
            return cls(torch.zeros(size, dtype=torch.uint8, device=device), half_bytes)
        import cupy

        # Not from torch's allocator: during the warm-up of a graph its memory is the graph's.
        with cupy.cuda.Device(
            torch.cuda.current_device() if device.index is None else device.index
        ):
            memory = torch.as_tensor(cupy.empty(size, cupy.uint8), device=device)
        return cls(memory.zero_(), half_bytes)


def workspace_bytes(half_bytes: int) -> int:
    """Size of a workspace whose halves have ``half_bytes``."""
    return HEADER_BYTES + 2 * half_bytes


class _Stream(NamedTuple):
    """What CuPy's launcher wants of a stream: the raw handle."""

    ptr: int


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel of a cubin, loaded on one CUDA device. Use `from_cubin`."""

    name: str
    grid: int
    threads: int
    shared_bytes: int
    device: int
    registers: int
    function: Any
    pdl: bool = False

    @classmethod
    def from_cubin(
        cls,
        cubin: bytes,
        kernel_name: str,
        grid: int,
        threads: int,
        shared_bytes: int,
        device: int | None = None,
        pdl: bool = False,
    ) -> LoadedKernel:
        """Loads ``kernel_name`` on CUDA ``device`` (None: torch's current one).

        Args:
            grid: CTAs of a launch; all of them must be resident at the same time, one per SM.
            threads: threads of a CTA.
            shared_bytes: dynamic shared memory of a CTA.
            pdl: launches may begin before the kernel ahead of them in the stream has ended; only
                for a kernel that waits for it itself (`KernelSpec.pdl`).

        Raises:
            LaunchError: the driver refuses the cubin, or the grid cannot be co-resident.
            EnvironmentProblem: CuPy is not installed, or the driver is too old for a kernel of
                clusters.
        """
        driver, function = require_cupy()
        index = torch.cuda.current_device() if device is None else device
        with _on_device(index):
            try:
                module = function.Module()
                module.load(cubin)
                loaded = module.get_function(kernel_name)
                driver.funcSetAttribute(
                    loaded.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes
                )
                resident = driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    loaded.ptr, threads, shared_bytes
                )
                registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, loaded.ptr)
                cluster = driver.funcGetAttribute(_REQUIRED_CLUSTER_WIDTH, loaded.ptr)
                clusters = 0
                if cluster > 1:
                    code, clusters = launch_attributes.resident_clusters(
                        loaded.ptr, cluster, grid, threads, shared_bytes
                    )
                    _require_success(code)
            except _driver_errors() as error:
                raise LaunchError(
                    f"cannot load {kernel_name} ({threads} threads, {shared_bytes} bytes of shared "
                    f"memory) on {torch.cuda.get_device_name(index)}: {error}"
                ) from error
        sms = torch.cuda.get_device_properties(index).multi_processor_count
        check_residency(kernel_name, grid, sms, resident)
        if cluster > 1:
            check_clusters(kernel_name, grid, cluster, clusters)
        return cls(kernel_name, grid, threads, shared_bytes, index, registers, loaded, pdl)

    def launch(self, arguments: Sequence[np.generic], stream: int) -> None:
        """Enqueues one launch on the raw CUDA ``stream`` handle of this kernel's device.

        ``arguments`` are NumPy scalars of exactly the parameters' widths; `address` gives pointers.
        """
        try:
            if self.pdl:
                self._launch_early(arguments, stream)
                return
            self.function(
                (self.grid,), (self.threads,), arguments, self.shared_bytes, _Stream(stream)
            )
        except _driver_errors() as error:
            raise LaunchError(launch_failure(self.name, error)) from error

    def _launch_early(self, arguments: Sequence[np.generic], stream: int) -> None:
        with torch.cuda.device(self.device):
            code = launch_attributes.launch_early(
                self.function.ptr, self.grid, self.threads, self.shared_bytes, stream, arguments
            )
        _require_success(code)


def launch_failure(name: str, error: Exception) -> str:
    """What to tell about a launch that the driver refused with ``error``.

    A kernel that fails while it runs is noticed by a later call, and ends the process's context.
    """
    text = f"the launch of {name} failed: {error}"
    if getattr(error, "status", None) in CONTEXT_LOST:
        text += (
            "; a kernel enqueued earlier failed while it ran, and the CUDA context is lost: "
            "restart the process. A MonoMoE kernel traps (launch failed) when a wait inside it "
            f"lasts {wait_limit_ms() / 1000:g} s: SMs were taken from its grid, or two launches "
            "shared a workspace at the same time. Compute-sanitizer names a kernel that reads or "
            "writes astray"
        )
    return text


def check_residency(name: str, grid: int, sms: int, resident_per_sm: int) -> None:
    """Refuses a grid that would wait for CTAs that are not running.

    The kernel's CTAs wait for each other, and its schedule assumes one per SM.
    """
    if resident_per_sm < 1:
        raise LaunchError(
            f"{name} cannot run: no CTA of it fits an SM (registers or shared memory); "
            "choose a schedule with smaller stages"
        )
    if grid > sms:
        raise LaunchError(
            f"{name} needs {grid} SMs at once and this device offers {sms}; choose grid <= {sms}"
        )


def check_clusters(name: str, grid: int, cluster: int, resident: int) -> None:
    """Refuses a grid of which not all thread block clusters run at the same time."""
    if grid > resident * cluster:
        raise LaunchError(
            f"{name} needs {grid // cluster} clusters of {cluster} CTAs at once and this device "
            f"offers {resident}; choose a smaller grid, or g_down = grid, which has no clusters"
        )


def address(tensor: Tensor | None) -> np.uint64:
    """A tensor's device address as a kernel argument; None is the null pointer."""
    return np.uint64(0 if tensor is None else tensor.data_ptr())


def launch_moe(
    kernel: LoadedKernel,
    weights: LayerWeights,
    x: Tensor,
    logits: Tensor,
    y: Tensor,
    workspace: Workspace,
    records: Tensor | None = None,
) -> None:
    """One layer on torch's current stream: x ``[B, H]``, logits ``[B, E]`` -> y ``[B, H]``.

    ``logits`` is the router's weight ``[E, H]`` for a kernel that has the router inside. With a
    shared gate, the logits have one column more.

    ``records`` is the buffer that a traced kernel, and no other, fills (see `trace.parse`).

    Nothing is checked here: the tensors are contiguous, on the kernel's device and of the dtypes
    the kernel was compiled for, B is within its capacity, and the workspace's halves are large
    enough. Nothing is allocated. A wait inside the kernel is bounded by `wait_limit_ms`.
    """
    kernel.launch(
        (
            address(x),
            address(logits),
            address(weights.bias),
            address(weights.w13),
            address(weights.w13_scale),
            address(weights.w2),
            address(weights.w2_scale),
            address(y),
            address(workspace.memory),
            np.uint32(workspace.half_bytes),
            np.uint32(x.shape[0]),
            np.uint64(wait_limit_ms() * 10**6),
            *(() if records is None else (address(records),)),
        ),
        torch.cuda.current_stream(kernel.device).cuda_stream,
    )


def capture(body: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A CUDA graph of what ``body`` enqueues on torch's current stream without allocating."""
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            body()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def require_cupy() -> tuple[Any, Any]:
    """CuPy's driver and function modules.

    Raises:
        EnvironmentProblem: CuPy is not installed, or cannot be imported.
    """
    try:
        from cupy.cuda import driver, function
    except ImportError as error:
        raise EnvironmentProblem(
            f"CuPy cannot be imported ({error}); install monomoe-gen[cuda12] or monomoe-gen[cuda13]"
        ) from error
    return driver, function


def _require_success(code: int) -> None:
    """Raises CuPy's error for a code that the driver gave to a call of our own."""
    if code:
        raise require_cupy()[0].CUDADriverError(code)


def _driver_errors() -> tuple[type[Exception], ...]:
    from cupy.cuda import driver, runtime

    return driver.CUDADriverError, runtime.CUDARuntimeError


class _on_device:
    """Makes ``index`` the current device of torch and of CuPy, with its context created."""

    def __init__(self, index: int) -> None:
        import cupy

        torch.cuda.init()
        self._guards = (torch.cuda.device(index), cupy.cuda.Device(index))

    def __enter__(self) -> None:
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *exception: object) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(*exception)
