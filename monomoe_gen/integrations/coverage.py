"""Whether a server's MoE layer is one that the table has kernels for: decided before it is used.

A server describes its layer in the words of `Described`; `covering_shape` answers with the table's
shape, or says what is not covered. `plan_for` is then the plan that serves the layer.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from monomoe_gen.dispatch import Table
from monomoe_gen.errors import NoKernel, ShapeError
from monomoe_gen.plan import REQUIRE_TUNED, KernelTable, OnMissing, Plan, make_plan
from monomoe_gen.schedule import Layout
from monomoe_gen.shapes import Shape
from monomoe_gen.torch_op import WORKSPACES
from monomoe_gen.variant import Variant

_SERVERS_OWN = ("name", "source", "logits_dtype")  # of a Shape, the fields that no layer has


@dataclass(frozen=True)
class Described:
    """A block-FP8 layer as one GPU holds it, the fields of `Shape` that its kernels depend on.

    `logits_dtype` is what the server hands over, "float32" or "bfloat16". `obstacles` are what the
    server asks of the layer and no kernel does, in words, such as "expert parallelism".
    """

    hidden: int
    intermediate: int
    experts: int
    top_k: int
    scoring: str
    renormalize: bool
    expert_bias: bool = False
    n_group: int = 1
    topk_group: int = 1
    routed_scaling_factor: float = 1.0
    logits_dtype: str = "bfloat16"
    activation: str = "silu"
    obstacles: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.experts} experts of {self.hidden} x {self.intermediate}, top {self.top_k}, "
            f"{self.scoring}"
        )


def covering_shape(table: Table, layer: Described, layout: Layout = "raw") -> Shape:
    """The table's shape of ``layer``, with kernels that are given logits and weights of ``layout``.

    Logits are widened to fp32 where a kernel wants that, which changes no value; they are never
    narrowed.

    Raises:
        NoKernel: an obstacle, or no such kernel; the message names the nearest shape and where it
            differs.
    """
    asked = str(layer)
    if layer.obstacles:
        raise NoKernel(asked, f"it needs {', '.join(layer.obstacles)}, which no kernel has")
    fields = {k: v for k, v in vars(layer).items() if k != "obstacles"}
    try:
        wanted = Shape("asked", **fields)
    except ShapeError as error:
        raise NoKernel(asked, f"{error.field} {error.reason}") from None
    differences = {}
    for kernel in table.kernels:
        if kernel.router == "logits" and not kernel.pdl:
            found = _difference(kernel.shape, wanted)
            if kernel.layout != layout:
                found = found or f"layout ({kernel.layout}, asked for {layout})"
            if not found:
                return kernel.shape
            differences[kernel.shape.name, found] = found.count("("), kernel.shape.name, found
    if not differences:
        raise NoKernel(asked, "the table has no kernels that are given logits")
    _, name, found = min(differences.values())
    raise NoKernel(asked, f"the nearest kernels are those of {name}, which differ in {found}")


def plan_for(
    table: KernelTable,
    shape: Shape,
    device: torch.device,
    layout: Layout = "raw",
    on_missing: OnMissing = "error",
) -> Plan:
    """The plan of ``shape``, on a CUDA device with its kernels loaded and a workspace set aside.

    Raises:
        MonomoeError: kernels may not run on ``device``, or only exact ones may.
    """
    plan = make_plan(table, shape, on_missing, variant=Variant(layout))
    if plan.require_tuned:
        raise NoKernel(
            shape.name, f"{REQUIRE_TUNED}=1 allows only exact token counts; a server has all"
        )
    if device.type == "cuda" and plan.prepare(device):
        WORKSPACES.reserve(device, plan.half_bytes)
    return plan


def largest(plan: Plan) -> int:
    """The most tokens that a kernel of ``plan`` takes."""
    asked = plan.shape.name, plan.variant
    entries = plan.table.table.entries
    return max((e.capacity for e in entries if (e.model, e.variant) == asked), default=0)


def _difference(have: Shape, wanted: Shape) -> str:
    """What keeps kernels of ``have`` from serving ``wanted``, in words; "" if nothing."""
    found = [
        f"{name} ({getattr(have, name)}, asked for {getattr(wanted, name)})"
        for name in (f.name for f in dataclasses.fields(Shape))
        if name not in _SERVERS_OWN and getattr(have, name) != getattr(wanted, name)
    ]
    if have.logits_dtype == "bfloat16" and wanted.logits_dtype == "float32":
        found.append("logits_dtype (bfloat16, asked for float32)")
    return ", ".join(found)
