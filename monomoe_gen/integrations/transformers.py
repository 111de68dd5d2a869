"""transformers: sparse-MoE blocks with block-FP8 experts run the table's kernels.

    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3.5-35B-A3B-FP8", device_map="cuda")
    print(patch(model))

transformers is imported when a model is patched. `transformers_blocks` has the new forwards.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn

from monomoe_gen.errors import EnvironmentProblem, MonomoeError, NoKernel
from monomoe_gen.integrations.coverage import covering_shape, largest, plan_for
from monomoe_gen.integrations.transformers_blocks import (
    blocks,
    describe,
    is_served,
    pack,
    release,
    serve,
    unpack,
    weights_of,
)
from monomoe_gen.plan import KernelTable, Plan
from monomoe_gen.runtime import load_table
from monomoe_gen.schedule import Layout
from monomoe_gen.shapes import Shape
from monomoe_gen.torch_op import require_weights

LOG = logging.getLogger("monomoe_gen")
OLDEST, NEWEST = (5, 17), (5, 24)  # releases of transformers whose sources were read

Uncovered = Literal["leave", "fallback"]


@dataclass(frozen=True)
class Patched:
    """What `patch` did, by the name of the block in the model."""

    served: dict[str, str] = field(default_factory=dict)
    """Blocks that run the operator, and what serves them: the shape and its layout."""
    left: dict[str, str] = field(default_factory=dict)
    """Blocks that stay as transformers made them, and why."""
    copied_bytes: int = 0
    """Memory for weights in the order of the kernels. Raw kernels read the model's own: 0."""

    def __str__(self) -> str:
        lines = [f"{_names(n)} served by {how}" for how, n in _by_value(self.served).items()]
        lines += [
            f"{_names(n)} left to transformers: {why}" for why, n in _by_value(self.left).items()
        ]
        if self.copied_bytes:
            lines.append(
                f"{self.copied_bytes / 1e9:.2f} GB of weights copied, beside the model's own"
            )
        return "\n".join(lines) or "no sparse-MoE block in the model"


def patch(
    model: nn.Module, table: KernelTable | None = None, *, on_missing: Uncovered = "leave"
) -> Patched:
    """Makes the sparse-MoE blocks of ``model`` that the table covers run its kernels, in place.

    Covered are block-FP8 experts of Qwen2-MoE, Qwen3-MoE, Qwen3-Next, Qwen3.5-MoE, DeepSeek-V3,
    GLM-4-MoE and GLM-MoE-DSA on one GPU. With raw kernels the model's weights are read in place;
    packed kernels get a copy of ``w13`` and ``w2``, as large as the experts. Gate weights, shared
    experts and the names of parameters stay. Token counts beyond the largest kernel go to the
    experts of transformers, from the model's own weights. On the CPU the operator's reference
    runs. Blocks that are patched already stay as they are. Before the dtype of the model is changed
    or the whole module is pickled, `unpatch` it; ``state_dict`` and ``save_pretrained`` need not.

    Args:
        model: in evaluation mode and where it is to run, bf16 but for its FP8 weights.
        table: by default the project's for the GPU, see `runtime.load_table`.
        on_missing: what becomes of a known block that no kernel serves: ``leave`` it to
            transformers, or ``fallback`` to the operator in plain torch, which is right and slow.

    Raises:
        EnvironmentProblem: transformers is missing, or of another version.
        MonomoeError: ``on_missing`` is misspelt; ``model`` is no module, ``table`` no table.
        DatabaseError: there is no table.
    """
    if on_missing not in ("leave", "fallback"):
        raise MonomoeError(f'on_missing must be "leave" or "fallback", found {on_missing!r}')
    if not isinstance(model, nn.Module):
        raise MonomoeError(f"patch takes a model, found {type(model).__name__}")
    if table is not None and not isinstance(table, KernelTable):
        raise MonomoeError(
            f"table must be what load_table(folder) gives, found {type(table).__name__}"
        )
    require_transformers()
    table = table or load_table()
    dtype = next((p.dtype for p in model.parameters() if p.dtype.itemsize > 1), torch.float32)
    served, left, copied = {}, {}, 0
    for name, block in list(blocks(model)):
        if is_served(block):
            left[name] = "it is patched already; unpatch(model) first to use another table"
            continue
        try:
            how, extra = _serve(block, describe(block, dtype), table, on_missing)
        except MonomoeError as error:
            left[name] = str(error)
        else:
            copied += extra
            served[name] = how
    result = Patched(served, left, copied)
    for line in str(result).splitlines():
        LOG.log(logging.INFO if served and not left else logging.WARNING, line)
    return result


def unpatch(model: nn.Module) -> int:
    """Gives every patched block its own forwards back, and frees copies. The number of blocks."""
    return sum(release(block) for _, block in list(blocks(model)))


def _serve(block: Any, layer: Shape, table: KernelTable, on_missing: Uncovered) -> tuple[str, int]:
    """What serves the block from now on, in words, and the bytes copied for it.

    Raises:
        MonomoeError: why none may.
    """
    device = block.experts.gate_up_proj.device
    if device.type not in ("cpu", "cuda"):
        raise EnvironmentProblem(f"its weights are on {device}; load the model onto a GPU")
    plan = _plan(layer, table, device, on_missing)
    extra = pack(block.experts) if plan.variant.layout == "packed" else 0
    try:
        weights = weights_of(block.gate, block.experts, plan.variant.layout)
        require_weights(weights, plan.shape, device, plan.variant.layout)
    except MonomoeError:
        unpack(block.experts)
        raise
    serve(block, plan, largest(plan) or None)
    return f"{plan.shape.name}, {_how(plan, device)}", extra


def _how(plan: Plan, device: torch.device) -> str:
    if device.type == "cpu":
        return "the reference on the CPU"
    return (
        f"{plan.variant.layout} kernels"
        if plan.choose(device, 1).kernel
        else "the operator in torch"
    )


def _plan(layer: Shape, table: KernelTable, device: torch.device, on_missing: Uncovered) -> Plan:
    missing: Literal["error", "fallback"] = "error" if on_missing == "leave" else "fallback"
    try:
        shape, layout = _covered(layer, table)
    except NoKernel:
        if on_missing == "leave":
            raise
        name = f"e{layer.experts}-h{layer.hidden}-n{layer.intermediate}-top{layer.top_k}"
        shape, layout = replace(layer, name=name), "raw"
    return plan_for(table, shape, device, layout, missing)


def _covered(layer: Shape, table: KernelTable) -> tuple[Shape, Layout]:
    """The table's shape of a layer; raw kernels go before packed ones."""
    try:
        return covering_shape(table.table, layer, "raw"), "raw"
    except NoKernel:
        return covering_shape(table.table, layer, "packed"), "packed"


def require_transformers() -> None:
    """Raises EnvironmentProblem unless there is a transformers that this module was written for."""
    try:
        import transformers
    except ImportError as error:
        raise EnvironmentProblem(
            f"transformers does not import ({error}); install it: "
            "pip install 'monomoe-gen[transformers]'"
        ) from None
    found = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    if not OLDEST <= found <= NEWEST:
        raise EnvironmentProblem(
            f"this needs transformers {'.'.join(map(str, OLDEST))} to "
            f"{'.'.join(map(str, NEWEST))}; found {transformers.__version__}"
        )


def _by_value(words: dict[str, str]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in words.items():
        grouped.setdefault(value, []).append(name)
    return grouped


def _names(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{more}"
