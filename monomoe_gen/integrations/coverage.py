"""Whether a server's MoE layer is one that the table has kernels for: decided before it is used.

A server describes its layer, as one GPU holds it, as a `Shape`, and lets `refuse` hear what else it
asks of it. `covering_shape` answers with the table's own shape, or says what is not covered.
`plan_for` is then the plan that serves the layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from monomoe_gen.dispatch import Table
from monomoe_gen.errors import MonomoeError, NoKernel
from monomoe_gen.plan import REQUIRE_TUNED, KernelTable, OnMissing, Plan, make_plan
from monomoe_gen.schedule import Layout
from monomoe_gen.shapes import Shape
from monomoe_gen.torch_op import WORKSPACES
from monomoe_gen.variant import Variant

_SERVERS_OWN = ("name", "source", "logits_dtype")  # fields that may differ in the table's shape


def refuse(asks: Mapping[str, bool]) -> None:
    """Refuses a layer of which a server asks what no kernel does; the keys say it in words.

    Raises:
        MonomoeError: one of ``asks`` is true.
    """
    if asked := [words for words, true in asks.items() if true]:
        raise MonomoeError(f"it needs {', '.join(asked)}, which no kernel has")


def covering_shape(table: Table, layer: Shape, layout: Layout = "raw") -> Shape:
    """The table's shape of ``layer``, with kernels that are given logits and weights of ``layout``.

    ``logits_dtype`` of ``layer`` is what the server hands over. Logits are widened to fp32 where a
    kernel wants that, which changes no value; they are never narrowed.

    Raises:
        NoKernel: the message names the nearest shape and where it differs.
    """
    asked = (
        f"{layer.experts} experts of {layer.hidden} x {layer.intermediate}, top {layer.top_k}, "
        f"{layer.scoring}"
    )
    others = []
    for kernel in table.kernels:
        if kernel.router == "logits" and not kernel.pdl:
            found = _differences(kernel.shape, layer)
            laid_out = kernel.layout == layout
            if laid_out and not found:
                return kernel.shape
            words = ", ".join(found) or f"layout ({kernel.layout}, asked for {layout})"
            others.append((len(found), not laid_out, kernel.shape.name, words))
    if not others:
        raise NoKernel(asked, "the table has no kernels that are given logits")
    *_, name, words = min(others)
    raise NoKernel(asked, f"the nearest kernels are those of {name}, which differ in {words}")


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


def _differences(have: Shape, wanted: Shape) -> list[str]:
    """What keeps kernels of ``have`` from serving ``wanted``, in words."""
    found = [
        f"{name} ({getattr(have, name)}, asked for {getattr(wanted, name)})"
        for name in (f.name for f in dataclasses.fields(Shape))
        if name not in _SERVERS_OWN and getattr(have, name) != getattr(wanted, name)
    ]
    if have.logits_dtype == "bfloat16" and wanted.logits_dtype == "float32":
        found.append("logits_dtype (bfloat16, asked for float32)")
    return found
