"""Launches of a traced kernel under the conditions of `bench`: back to back, on cold weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from monomoe_gen.bench import LAUNCHES, Inputs
from monomoe_gen.kernel import LayerWeights, LoadedKernel, Workspace, capture, launch_moe
from monomoe_gen.schedule import WARPS
from monomoe_gen.trace import RECORDS

WARMUPS = 3  # replays of the graph before the one that counts


def record(
    kernel: LoadedKernel,
    weights: LayerWeights,
    inputs: Inputs,
    workspace: Workspace,
    launches: int,
) -> list[NDArray[np.uint64]]:
    """The trace buffers, ``[grid, WARPS, RECORDS]``, of the last ``launches`` launches of a graph.

    The graph has `bench.LAUNCHES` launches, each with a buffer of its own. Synchronises.
    """
    weights = replace(weights, bias=inputs.bias)
    y = torch.empty_like(inputs.x)
    size = (LAUNCHES, kernel.grid, WARPS, RECORDS)
    buffers = torch.zeros(size, dtype=torch.int64, device=inputs.x.device)

    routed = inputs.logits if inputs.routers is None else inputs.routers

    def body() -> None:
        for i in range(LAUNCHES):
            launch_moe(kernel, weights, inputs.x, routed[i], y, workspace, buffers[i])

    graph = capture(body)
    for _ in range(WARMUPS):
        graph.replay()
    buffers.zero_()
    graph.replay()
    torch.cuda.synchronize()
    return list(buffers[LAUNCHES - launches :].cpu().numpy().view(np.uint64))
