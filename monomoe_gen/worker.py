"""The process that touches the GPU: ``python -m monomoe_gen.worker`` speaks `protocol`.

What requests share stays on the GPU between them, see `testbed`. A CUDA error may leave the context
unusable, so it ends the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from functools import partial

import torch

from monomoe_gen import bench, recorder
from monomoe_gen.comparison import Comparison
from monomoe_gen.device import Device, current_device
from monomoe_gen.errors import EnvironmentProblem, LaunchError, MonomoeError
from monomoe_gen.kernel import Workspace, launch_moe, require_cupy
from monomoe_gen.protocol import (
    Cell,
    CellErrors,
    Done,
    Event,
    Failed,
    Floor,
    Measure,
    Ready,
    Request,
    Stage,
    Trace,
    Traced,
    decode_request,
    encode,
)
from monomoe_gen.shapes import Shape
from monomoe_gen.telemetry import Gpu, Values
from monomoe_gen.testbed import CUDA, TIMED_LAYER, Testbed, effort, load
from monomoe_gen.trace import pack
from monomoe_gen.validate import Verdict, check
from monomoe_gen.worker_process import STANDBY

READ_S = 900.0  # to read a layer of a checkpoint: up to 15 GB, perhaps from a network
PREPARE_S = 180.0  # to draw the weights of a layer, or to compute the answers of all cases
CUDA_ERRORS = (torch.AcceleratorError,) if hasattr(torch, "AcceleratorError") else (RuntimeError,)


class Server:
    """Answers requests one after the other."""

    def __init__(self, device: Device, gpu: Gpu) -> None:
        self.device, self.gpu = device, gpu
        self.testbed: Testbed | None = None

    def answer(self, request: Request) -> Iterator[Event]:
        """The events that answer ``request``, each when it happens."""
        return self.trace(request) if isinstance(request, Trace) else self.measure(request)

    def trace(self, request: Trace) -> Iterator[Event]:
        """Launches a traced kernel."""
        bed = self._bed(request)
        yield Stage("load the kernel")
        kernel = load(request.kernel)
        workspace = Workspace.allocate(request.kernel.half_bytes, CUDA)
        yield Stage(f"prepare the tracing of {request.tokens} tokens", PREPARE_S)
        inputs = bed.inputs(request.tokens, request.routing, request.kernel.router)
        layer = bed.layer(TIMED_LAYER)[1]
        torch.cuda.synchronize()
        yield Stage(f"trace {request.tokens} tokens")
        launches = recorder.record(kernel, layer, inputs, workspace, request.launches)
        state = self.gpu.state()
        for records in launches:
            yield Traced(pack(records), state)
        yield Done()

    def measure(self, request: Measure) -> Iterator[Event]:
        """Validates and times a kernel."""
        bed = self._bed(request)
        yield Stage("load the kernel")
        kernel = load(request.kernel)
        images = [image for image in (request.kernel, request.logits_kernel) if image]
        workspace = Workspace.allocate(max(image.half_bytes for image in images), CUDA)
        if request.weights:
            yield Stage("read the weights", READ_S)
            bed.layer(TIMED_LAYER)
        for tokens in request.tokens:
            verdict = Verdict("ok", "", {})
            if request.validate:
                yield Stage(f"prepare the validation of {tokens} tokens", PREPARE_S)
                problems = bed.problems(tokens, request.kernel.router)
                torch.cuda.synchronize()
                yield Stage(f"validate {tokens} tokens")
                run = partial(launch_moe, kernel)
                verdict = check(run, problems, request.kernel.half_bytes)
            cases: tuple[Comparison, ...] = ()
            if request.report:
                yield Stage(f"compare {tokens} tokens", PREPARE_S)
                cases = bed.comparisons(tokens, kernel, workspace, request.kernel.router)
            if not verdict.ok or request.timed is None:
                yield _cell(tokens, verdict, cases)
                continue
            yield Stage(f"prepare the timing of {tokens} tokens", PREPARE_S)
            inputs = bed.inputs(tokens, request.routing, request.kernel.router)
            layers = bed.timed_layers(tokens, request.routing)
            floors = None
            if request.timed.streams:
                floors = bed.floors(tokens, request.routing, request.timed)
            yield Stage(f"time {tokens} tokens")
            timing = bench.time_kernel(kernel, layers, inputs, workspace, effort(request.timed))
            separate = None
            if request.logits_kernel:
                other = load(request.logits_kernel)
                routed = bed.inputs(tokens, request.routing, "weight")
                yield Stage(f"time {tokens} tokens with the router apart")
                separate = bench.time_separate_router(
                    other, layers, routed, workspace, effort(request.timed)
                )
            state = self.gpu.state()
            yield _cell(tokens, verdict, cases, timing, floors, inputs, state, separate)
        yield Done()

    def _bed(self, request: Request) -> Testbed:
        """The shape of ``request`` on the GPU."""
        shape = Shape.from_dict(request.shape)
        weights = request.weights if isinstance(request, Measure) else None
        bed = self.testbed
        file = request.trace_file if isinstance(request, Measure) else None
        key = shape, request.seed, weights, request.layout, file
        if bed and (bed.shape, bed.seed, bed.weights, bed.layout, bed.trace_file) == key:
            return bed
        bed = self.testbed = None  # frees the old layers first
        self.testbed = Testbed(shape, self.device, request.seed, weights, request.layout, file)
        return self.testbed


def _cell(
    tokens: int,
    verdict: Verdict,
    cases: tuple[Comparison, ...],
    timing: bench.Timing | None = None,
    floors: bench.Floors | None = None,
    inputs: bench.Inputs | None = None,
    state: Values | None = None,
    separate: bench.Timing | None = None,
) -> Cell:
    errors = {
        name: CellErrors(e.cosine, e.rel_l2, e.mirror_rel_l2) for name, e in verdict.errors.items()
    }
    return Cell(
        tokens=tokens,
        status=verdict.status,
        message=verdict.message,
        errors=errors,
        samples=timing.samples if timing else (),
        floor=Floor(floors.stream_us, floors.empty_us) if floors else None,
        separate_us=separate.median_us if separate else None,
        distinct_experts=inputs.distinct_experts if inputs else None,
        reuse_bytes=inputs.reuse_bytes if inputs else None,
        env=state or {},
        cases=cases,
    )


def open_gpu() -> tuple[Device, Gpu, Ready]:
    """Runs a small kernel on the current CUDA device and describes it.

    Raises:
        EnvironmentProblem: there is none, the kernels cannot run on it, or CuPy is missing.
    """
    device = current_device()
    if device is None:
        raise EnvironmentProblem("no CUDA device: run this on a machine with an H200 or H100")
    if device.arch != "sm_90a":
        raise EnvironmentProblem(
            f"the kernels need sm_90a (Hopper), {device.name} is {device.arch}"
        )
    require_cupy()
    if int(torch.arange(1000, device="cuda").sum()) != 499_500:
        raise EnvironmentProblem(f"{device.name} cannot add")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = f"GPU-{properties.uuid}"
    gpu = Gpu(uuid)
    identity: Values = {"gpu": device.name, "uuid": uuid, "sms": device.sms}
    return device, gpu, Ready({**identity, **gpu.facts(), "torch": str(torch.__version__)})


def serve(standby: bool = False) -> None:
    """Reads requests from stdin until it ends; events go to what was stdout.

    On ``standby`` the GPU is first touched when a line has come.
    """
    _die_with_parent()
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing that a library prints may reach the pipe

    def emit(event: Event) -> None:
        pipe.write(encode(event))
        pipe.flush()

    try:
        if standby:
            require_cupy()
            if not sys.stdin.readline():
                return
        device, gpu, ready = open_gpu()
    except MonomoeError as error:
        emit(Failed("request", str(error), fatal=True))
        return
    emit(ready)
    server = Server(device, gpu)
    for line in sys.stdin:
        failure = None
        try:
            for event in server.answer(decode_request(line)):
                emit(event)
        except LaunchError as error:
            failure = Failed("kernel", str(error), fatal=not _gpu_works())
        except CUDA_ERRORS as error:
            failure = Failed("kernel", str(error).strip(), fatal=True)
        except MonomoeError as error:
            failure = Failed("request", str(error), fatal=False)
        except Exception as error:
            if isinstance(error, RuntimeError) and not _gpu_works():
                failure = Failed("kernel", str(error).strip(), fatal=True)
            else:
                failure = Failed("worker", traceback.format_exc(), fatal=True)
        if failure:
            emit(failure)
        if failure and failure.fatal:
            pipe.flush()
            os._exit(1)  # a broken context would only add errors on the way out


def _gpu_works() -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _die_with_parent() -> None:
    """Has the kernel kill this process when its parent ends, however that happens.

    To Linux the parent is the thread that started the process.
    """
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    serve(STANDBY in sys.argv[1:])
