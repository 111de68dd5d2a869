"""What the requests to one GPU worker share: the layers of a shape, inputs, answers, floors."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from monomoe_gen import bench
from monomoe_gen.agreement import compare
from monomoe_gen.checkpoint import Shard, find_layer
from monomoe_gen.comparison import Comparison
from monomoe_gen.device import Device
from monomoe_gen.errors import MonomoeError
from monomoe_gen.kernel import LayerWeights, LoadedKernel, Workspace, launch_moe
from monomoe_gen.protocol import Image, Timed, Weights
from monomoe_gen.reference import ExpertWeights
from monomoe_gen.routing_trace import RoutingTrace
from monomoe_gen.routing_trace import load as load_trace
from monomoe_gen.schedule import Layout, Router
from monomoe_gen.shapes import Shape
from monomoe_gen.validate import Problem, make_problem
from monomoe_gen.weights import BlockWeights, lay_out
from monomoe_gen.workload import block_weights, expert_weights, validation_cases

TIMED_LAYER = "gaussian"
CUDA = torch.device("cuda")
T = TypeVar("T")


class Testbed:
    """One shape on the GPU, with weights in one layout.

    Everything in it is made when it is first asked for, and kept.
    """

    def __init__(
        self,
        shape: Shape,
        device: Device,
        seed: int,
        weights: Weights | None = None,
        layout: Layout = "packed",
        trace_file: str | None = None,
    ) -> None:
        self.shape, self.device, self.seed, self.weights = shape, device, seed, weights
        self.layout, self.trace_file = layout, trace_file
        self._kept: dict[Hashable, Any] = {}

    def layer(self, distribution: str) -> tuple[BlockWeights, LayerWeights]:
        """A layer as drawn and as kernels read it; that of a checkpoint for any distribution."""

        def make() -> tuple[BlockWeights, LayerWeights]:
            if self.weights:
                b = read_layer(self.weights, self.shape)
            else:
                b = block_weights(self.shape, distribution, self.seed, CUDA)
            w13, w2 = lay_out(self.layout, b.w13, b.w2)
            return b, LayerWeights(w13, b.w13_scale, w2, b.w2_scale)

        return self._once(("layer", "checkpoint" if self.weights else distribution), make)

    def timed_layers(self, tokens: int, routing: str) -> tuple[LayerWeights, ...]:
        """The copies of the layer that the timed launches under these `inputs` take in turn."""
        (_, first), copies = self.layer(TIMED_LAYER), self.inputs(tokens, routing).copies

        def make() -> LayerWeights:
            parts = (first.w13, first.w13_scale, first.w2, first.w2_scale)
            return LayerWeights(*(tensor.clone() for tensor in parts))

        return (first, *(self._once(("copy", i), make) for i in range(1, copies)))

    def problems(self, tokens: int, router: Router = "logits") -> tuple[Problem, ...]:
        """Every validation case with its answers."""

        def make() -> tuple[Problem, ...]:
            return tuple(
                make_problem(self.shape, *self.layer(case.weights), tokens, case, self.seed, router)
                for case in validation_cases()
            )

        return self._once(("problems", tokens, router), make)

    def comparisons(
        self, tokens: int, kernel: LoadedKernel, workspace: Workspace, router: Router = "logits"
    ) -> tuple[Comparison, ...]:
        """What ``kernel`` gives for every validation case, next to full precision.

        Raises:
            MonomoeError: the weights are a checkpoint's, which has no unquantized ones.
        """
        if self.weights:
            raise MonomoeError("a report needs drawn weights: leave the checkpoint away")

        def launch(problem: Problem, y: Tensor) -> None:
            launch_moe(kernel, problem.weights, problem.x, problem.routed, y, workspace)

        def unquantized(distribution: str) -> ExpertWeights:
            return lambda expert: expert_weights(self.shape, expert, distribution, self.seed, CUDA)

        return tuple(
            compare(
                self.shape,
                self.layer(problem.case.weights)[0],
                unquantized(problem.case.weights),
                problem,
                launch,
            )
            for problem in self.problems(tokens, router)
        )

    def inputs(self, tokens: int, routing: str, router: Router = "logits") -> bench.Inputs:
        """What timed launches read."""

        def make() -> bench.Inputs:
            return bench.make_inputs(
                self.shape,
                tokens,
                routing,
                self.device.l2_bytes,
                self.seed,
                CUDA,
                router,
                self._trace(),
            )

        return self._once(("inputs", tokens, routing, router), make)

    def floors(self, tokens: int, routing: str, timed: Timed) -> bench.Floors:
        """The floors under the same inputs, measured as ``timed`` says."""

        def make() -> bench.Floors:
            return bench.time_floors(
                [load(image) for image in timed.streams],
                load(timed.empty),
                self.timed_layers(tokens, routing),
                self.inputs(tokens, routing),
                effort(timed),
            )

        return self._once(("floors", tokens, routing, timed), make)

    def _trace(self) -> RoutingTrace | None:
        """The captured routing that a request may name."""
        file, shape = self.trace_file, self.shape
        return self._once(("trace",), lambda: load_trace(Path(file), shape) if file else None)

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        return cast("T", self._kept[key])


def read_layer(weights: Weights, shape: Shape) -> BlockWeights:
    """Reads a layer of a checkpoint onto the GPU."""
    paths = [Path(file) for file in weights.files]
    return find_layer(paths, weights.layer, shape, Shard(weights.shard, weights.shards)).read(CUDA)


def load(image: Image) -> LoadedKernel:
    """Loads a compiled kernel on the current device."""
    return LoadedKernel.from_cubin(
        image.cubin,
        image.name,
        image.grid,
        image.threads,
        image.shared_bytes,
        pdl=image.pdl,
    )


def effort(timed: Timed) -> bench.Effort:
    """How often a request wants graphs replayed."""
    return bench.Effort(timed.warmups, timed.replays)
