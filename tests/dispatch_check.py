"""Serves every entry of the dispatch table with the generator's libraries blocked.

A script, run by ``make dispatch-check``. Every table of ``generated/`` is read, every token count
up to the largest capacity looked up, every cubin's hash checked. On a GPU that has a table every
model is also loaded by `monomoe_gen.runtime` and called with 1 to its largest number of tokens,
and the outputs are compared with the reference that rounds where the kernel does.

``--model`` and ``--tokens`` call less, as ``make sanitize`` does.
"""

import argparse
import sys
from collections.abc import Sequence

BLOCKED = ("jinja2", "optuna", "yaml", "pandas", "click", "pydantic", "rich")
sys.modules.update(dict.fromkeys(BLOCKED))  # type: ignore[arg-type]

from monomoe_gen import dispatch  # noqa: E402
from monomoe_gen.device import KNOWN, current_device  # noqa: E402
from monomoe_gen.dispatch import Table  # noqa: E402
from monomoe_gen.shapes import Shape  # noqa: E402
from monomoe_gen.variant import Variant  # noqa: E402

WORST_REL_L2 = 5e-3  # of a token, against the mirroring reference


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve every entry of the dispatch table.")
    parser.add_argument("--model", action="append", default=[], help="repeatable; default: all")
    parser.add_argument("--tokens", help="such as 1,3,8; default: all that the table serves")
    asked = parser.parse_args()
    counts = [int(count) for count in asked.tokens.split(",")] if asked.tokens else []
    checked = 0
    for slug in KNOWN:
        folder = dispatch.table_folder(slug)
        if not (folder / dispatch.FILE).exists():
            continue
        table = dispatch.load(folder)
        for kernel in table.kernels:
            dispatch.read_cubin(folder, kernel)
        for (shape, variant), most in served(table).items():
            for tokens in range(1, most + 1):
                dispatch.lookup(table, shape.name, tokens, variant)
                checked += 1
    print(f"{checked} look-ups, every cubin is the table's")
    device = current_device()
    if device is None:
        print("no CUDA device: no kernel was launched")
    elif (dispatch.table_folder(device.slug) / dispatch.FILE).exists():
        launch(asked.model, counts)
    else:
        print(f"no table for {device.name}: no kernel was launched")


def served(table: Table) -> dict[tuple[Shape, Variant], int]:
    """The models of a table in each variant, with the largest capacity."""
    most: dict[tuple[Shape, Variant], int] = {}
    for entry in table.entries:
        key = table.kernel(entry).shape, entry.variant
        most[key] = max(entry.capacity, most.get(key, 0))
    return most


def launch(models: Sequence[str], counts: Sequence[int]) -> None:
    """Calls the layers of ``models`` with those of ``counts`` that they take; none means all."""
    import torch

    from monomoe_gen.reference import moe_mirror, router_logits
    from monomoe_gen.runtime import MoELayer, load_table
    from monomoe_gen.workload import activations, block_weights, rotation, router_weight

    table = load_table()
    for (shape, variant), most in served(dispatch.part(table.table, models)).items():
        w = block_weights(shape, "gaussian", 0, "cuda")
        bias = rotation(shape, 1, "uniform", 1, 0, 0).bias
        bias = None if bias is None else bias.cuda()
        weight = router_weight(shape, 0).cuda() if variant.router == "weight" else None
        layer = MoELayer.from_weights(
            table,
            shape.name,
            w.w13,
            w.w13_scale,
            w.w2,
            w.w2_scale,
            bias,
            layout=variant.layout,
            router=weight,
            pdl=variant.pdl,
        )
        for tokens in range(1, most + 1):
            if counts and tokens not in counts:
                continue
            x = activations(shape, tokens, "gaussian", 0).cuda()
            dtype = getattr(torch, shape.logits_dtype)
            logits = rotation(shape, tokens, "uniform", 1, 0, 0).logits[0].to("cuda", dtype)
            if weight is None:
                y = layer(x, logits).double()
            else:
                y, logits = layer(x).double(), router_logits(x, weight, shape)
            want = moe_mirror(x, logits, w.w13, w.w13_scale, w.w2, w.w2_scale, bias, shape).double()
            worst = float(((y - want).norm(dim=-1) / want.norm(dim=-1)).max())
            print(f"{layer.explain(tokens)}, {variant}: relative error {worst:.1e}")
            if not worst <= WORST_REL_L2:
                sys.exit(f"{shape.name} with {tokens} tokens is wrong: relative error {worst:.1e}")


if __name__ == "__main__":
    main()
