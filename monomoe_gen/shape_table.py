"""What a shape means for a launch, and the table of the shipped shapes."""

from __future__ import annotations

from collections.abc import Sequence

from monomoe_gen.shapes import Shape, list_shapes

TOKENS = (1, 8)
"""The token counts whose weight stream the table shows."""


def describe_routing(shape: Shape) -> str:
    """The routing policy in a few words."""
    words = [shape.scoring]
    words += ["bias"] if shape.expert_bias else []
    words += [f"{shape.topk_group} of {shape.n_group} groups"] if shape.n_group > 1 else []
    words += ["renormalized"] if shape.renormalize else []
    if shape.routed_scaling_factor != 1:
        words.append(f"times {shape.routed_scaling_factor:g}")
    if shape.shared_experts:
        words.append(f"{shape.shared_experts} shared{', gated' if shape.shared_gate else ''}")
    return ", ".join(words)


def distinct_experts(shape: Shape, tokens: int) -> float:
    """The expected number of active experts when every token picks ``top_k`` at random.

    The shared ones are always active.
    """
    missed: float = (1 - shape.top_k / shape.experts) ** tokens
    return shape.experts * (1 - missed) + shape.shared_experts


def streamed_bytes(shape: Shape, tokens: int) -> float:
    """The expected weight bytes of one launch under the same routing."""
    return distinct_experts(shape, tokens) * shape.expert_bytes


def shapes_table() -> str:
    """The shipped shapes as a markdown table."""
    header = ["file", "hidden", "intermediate", "experts", "top_k", "routing", "MB per expert"]
    header += [f"experts at {n}" for n in TOKENS] + [f"MB at {n}" for n in TOKENS]
    rules = ["---" if name in ("file", "routing") else "---:" for name in header]
    return "\n".join(_line(cells) for cells in (header, rules, *map(_row, list_shapes())))


def _row(shape: Shape) -> list[str]:
    return [
        f"`{shape.name}`",
        str(shape.hidden),
        str(shape.intermediate),
        str(shape.experts),
        str(shape.top_k),
        describe_routing(shape),
        f"{shape.expert_bytes / 1e6:.2f}",
        *(f"{distinct_experts(shape, n):.1f}" for n in TOKENS),
        *(f"{streamed_bytes(shape, n) / 1e6:.0f}" for n in TOKENS),
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
