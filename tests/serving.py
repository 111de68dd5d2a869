"""A small model with a table of its own, for the tests of what serves it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from monomoe_gen import runtime
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.dispatch import Entry, Kernel, Origin, Table
from monomoe_gen.schedule import Layout, Router, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.variant import Variant
from monomoe_gen.weights import BlockWeights
from monomoe_gen.workload import block_weights

TINY = Shape("tiny", 256, 128, 8, 2, "softmax", True)
SCHEDULE = Schedule(grid=128, g_up=8, k_up=256, g_down=8, k_down=128, d_up=4, d_down=4)
CUBIN = b"cubin"


def make_table(
    shape: Shape = TINY,
    tuned_at: tuple[int, ...] = (2, 4),
    layout: Layout = "packed",
    router: Router = "logits",
    pdl: bool = False,
) -> Table:
    """One kernel for up to 8 tokens, on an H200."""
    spec = Variant(layout, router, pdl).spec(shape, SCHEDULE, 8)
    kernel = Kernel(
        id=spec.id,
        kernel_name=spec.kernel_name,
        shape=shape,
        schedule=SCHEDULE,
        token_tile=8,
        threads=608,
        shared_bytes=1000,
        workspace_half_bytes=spec.geometry.workspace_half_bytes,
        registers=96,
        sources_hash="0" * 64,
        compiler="nvrtc 0.0",
        cubin_sha256=hashlib.sha256(CUBIN).hexdigest(),
        layout=layout,
        router=router,
        pdl=pdl,
    )
    origin = Origin("2026-01-01T00:00:00+00:00", "nvrtc 0.0", "0" * 64, "final")
    entries = tuple(
        Entry(shape.name, n, 8, kernel.id, 10.0 * n, 7.5, origin, layout, router=router, pdl=pdl)
        for n in tuned_at
    )
    return Table(KNOWN[DEFAULT], (kernel,), entries)


def make_layer(
    folder: Path | None = None,
    shape: Shape = TINY,
    layout: Layout = "packed",
    router: Router = "logits",
    **options: Any,
) -> tuple[runtime.MoELayer, BlockWeights]:
    """A layer on the CPU with seeded weights, and these weights in checkpoint layout."""
    table = runtime.KernelTable(folder or Path(), make_table(shape, layout=layout, router=router))
    w = block_weights(shape, "gaussian", 0, "cpu")
    layer = runtime.MoELayer.from_weights(
        table, shape.name, w.w13, w.w13_scale, w.w2, w.w2_scale, layout=layout, **options
    )
    return layer, w
