"""How long a launch takes: replays of a CUDA graph whose launches find their weights cold.

A graph holds `LAUNCHES` launches or more, each with router logits of its own, so that the active
experts rotate over the whole layer. Times are microseconds per launch; floors are measured alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from monomoe_gen.errors import MonomoeError
from monomoe_gen.kernel import (
    LayerWeights,
    LoadedKernel,
    Workspace,
    address,
    capture,
    launch_moe,
)
from monomoe_gen.routing_trace import RoutingTrace
from monomoe_gen.schedule import Router
from monomoe_gen.shapes import Shape
from monomoe_gen.workload import activations, rotation, routers_for

LAUNCHES = 32  # nodes of a graph
MOST_LAUNCHES = 1024  # of a layer so small that it takes more until its weights are cold again


@dataclass(frozen=True)
class Effort:
    """Replays of a graph: first those that warm up, then those that are timed one by one."""

    warmups: int
    replays: int


SCREEN = Effort(warmups=3, replays=20)
FULL = Effort(warmups=20, replays=200)
QUICK = Effort(warmups=10, replays=100)


@dataclass(frozen=True)
class Timing:
    """Microseconds per launch over ``n`` timed replays, which ``samples`` lists."""

    samples: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.samples)

    @property
    def median_us(self) -> float:
        return self._quantile(0.5)

    @property
    def p10_us(self) -> float:
        return self._quantile(0.1)

    @property
    def p90_us(self) -> float:
        return self._quantile(0.9)

    def _quantile(self, q: float) -> float:
        return round(float(np.quantile(self.samples, q)), 3)


@dataclass(frozen=True)
class Inputs:
    """What the launches of one graph read.

    x bf16 ``[B, H]`` for all launches, logits ``[launches, B, Shape.logit_columns]`` in the shape's
    type, bias fp32 ``[E]`` or None, ``experts`` int32 ``[launches, most]``: the active experts of
    each launch, ``counts`` of them. ``reuse_bytes`` stream between two uses of the same weights, of
    which there are ``copies`` that the launches take in turn (`workload.Rotation`). ``routers``
    bf16 ``[launches, E, H]`` give the logits for kernels that have the router inside, else None.
    """

    x: Tensor
    logits: Tensor
    bias: Tensor | None
    experts: Tensor
    counts: tuple[int, ...]
    reuse_bytes: int
    copies: int = 1
    routers: Tensor | None = None

    @property
    def launches(self) -> int:
        return len(self.counts)

    @property
    def distinct_experts(self) -> float:
        """Mean number of active experts of a launch."""
        return sum(self.counts) / len(self.counts)


@dataclass(frozen=True)
class Floors:
    """Lower bounds of the same run: the fastest stream of the same weights, and an empty kernel."""

    stream_us: float
    empty_us: float


def make_inputs(
    shape: Shape,
    tokens: int,
    routing: str,
    l2_bytes: int,
    seed: int,
    device: torch.device,
    router: Router = "logits",
    trace: RoutingTrace | None = None,
) -> Inputs:
    """The inputs of a graph, on ``device``; ``trace`` is what ``routing`` names, if captured.

    A router of its own gives each launch its logits, as close to the drawn ones as bf16 allows: the
    active experts are the same but for near-ties. There are `LAUNCHES` launches, of small layers
    more, each with a copy of the weights if need be.

    Raises:
        MonomoeError: the weights would not be cold: less than twice ``l2_bytes`` between two uses.
    """
    launches = LAUNCHES
    drawn = rotation(shape, tokens, routing, launches, l2_bytes, seed, trace)
    while drawn.reuse_bytes < 2 * l2_bytes and launches < MOST_LAUNCHES:
        launches *= 2
        drawn = rotation(shape, tokens, routing, launches, l2_bytes, seed, trace)
    if drawn.reuse_bytes < 2 * l2_bytes:
        raise MonomoeError(
            f"{shape.name} with {tokens} tokens and {routing} routing cannot be timed cold: "
            f"{drawn.reuse_bytes} bytes stream between two uses of the same weights, and twice the "
            f"L2 ({2 * l2_bytes} bytes) are needed; time a larger layer or another routing"
        )
    experts = np.zeros((launches, max(drawn.distinct)), dtype=np.int32)
    for row, active in zip(experts, drawn.active, strict=True):
        row[: len(active)] = active
    x = activations(shape, tokens, "gaussian", seed)
    return Inputs(
        x=x.to(device),
        logits=drawn.logits.to(device, getattr(torch, shape.logits_dtype)),
        bias=None if drawn.bias is None else drawn.bias.to(device),
        experts=torch.from_numpy(experts).to(device),
        counts=tuple(drawn.distinct),
        reuse_bytes=drawn.reuse_bytes,
        routers=routers_for(x, drawn.logits.to(device)) if router == "weight" else None,
        copies=drawn.copies,
    )


def time_kernel(
    kernel: LoadedKernel,
    layers: Sequence[LayerWeights],
    inputs: Inputs,
    workspace: Workspace,
    effort: Effort,
) -> Timing:
    """Times one kernel on the copies ``layers`` of a layer.

    With routers it is one that has them inside.
    """
    layers = [replace(weights, bias=inputs.bias) for weights in layers]
    y = torch.empty_like(inputs.x)
    routed = inputs.logits if inputs.routers is None else inputs.routers

    def launch(i: int) -> None:
        weights = layers[i % len(layers)]
        launch_moe(kernel, weights, inputs.x, routed[i], y, workspace)

    return time_launches(launch, inputs.launches, effort)


def time_separate_router(
    kernel: LoadedKernel,
    layers: Sequence[LayerWeights],
    inputs: Inputs,
    workspace: Workspace,
    effort: Effort,
) -> Timing:
    """Times torch's bf16 GEMM of the routers, and behind each a kernel that is given logits.

    The GEMM's result goes nowhere, so that nothing is spent on converting it.
    """
    layers = [replace(weights, bias=inputs.bias) for weights in layers]
    assert inputs.routers is not None, "inputs without routers"
    y, routers = torch.empty_like(inputs.x), inputs.routers
    product = inputs.x.new_empty(inputs.logits[0].shape)

    def launch(i: int) -> None:
        torch.mm(inputs.x, routers[i].T, out=product)
        weights = layers[i % len(layers)]
        launch_moe(kernel, weights, inputs.x, inputs.logits[i], y, workspace)

    launch(0)  # cuBLAS starts up outside of the graph
    return time_launches(launch, inputs.launches, effort)


def time_floors(
    streams: Sequence[LoadedKernel],
    empty: LoadedKernel,
    layers: Sequence[LayerWeights],
    inputs: Inputs,
    effort: Effort,
) -> Floors:
    """Times the best of several stream-floor kernels over the same experts, and an empty kernel.

    A stream-floor kernel takes (w13, w2, experts, count, bytes of w13 and of w2 per expert).
    """

    def stream(kernel: LoadedKernel, i: int) -> None:
        weights = layers[i % len(layers)]
        kernel.launch(
            (
                address(weights.w13),
                address(weights.w2),
                address(inputs.experts[i]),
                np.uint32(inputs.counts[i]),
                np.uint32(weights.w13[0].numel()),
                np.uint32(weights.w2[0].numel()),
            ),
            torch.cuda.current_stream().cuda_stream,
        )

    def nothing(i: int) -> None:
        empty.launch((), torch.cuda.current_stream().cuda_stream)

    count = inputs.launches
    timings = [time_launches(partial(stream, kernel), count, effort) for kernel in streams]
    return Floors(
        stream_us=min(timing.median_us for timing in timings),
        empty_us=time_launches(nothing, count, effort).median_us,
    )


def time_launches(launch: Callable[[int], None], launches: int, effort: Effort) -> Timing:
    """Captures ``launch(0) ... launch(launches - 1)`` in one graph and times its replays."""

    def body() -> None:
        for i in range(launches):
            launch(i)

    graph = capture(body)
    for _ in range(effort.warmups):
        graph.replay()
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(effort.replays)
    ]
    for start, end in pairs:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    milliseconds = (start.elapsed_time(end) for start, end in pairs)
    return Timing(tuple(round(ms * 1000 / launches, 4) for ms in milliseconds))
