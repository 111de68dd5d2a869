"""Whether a checkpoint's ``quantization_config`` describes the weights that the kernel reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monomoe_gen.errors import ShapeError
from monomoe_gen.shapes import SCALE_BLOCK

_FIELD = "quantization_config"
_WANTED = f"FP8 with one scale per {SCALE_BLOCK}x{SCALE_BLOCK} block"


def quantization_remarks(
    where: str, found: Mapping[str, Any] | None, block_fp8: bool
) -> Iterator[str]:
    """Remarks on the ``quantization_config`` ``found``, None if the config has none.

    Raises:
        ShapeError: it describes no block FP8, and the caller does not say (``block_fp8``) that the
            weights will be converted to that.
    """
    if found is None:
        if not block_fp8:
            raise ShapeError(
                where,
                _FIELD,
                f"missing, so the weights are not known to be {_WANTED}; if they will be quantized "
                "so, say --block-fp8",
            )
        yield f"the config names no quantization: quantize the weights to {_WANTED} before packing"
        return
    scheme = _scheme(found)
    if scheme != _WANTED:
        if not block_fp8:
            raise ShapeError(
                where,
                _FIELD,
                f"the checkpoint holds {scheme}, the kernel reads {_WANTED}; if the weights will "
                "be converted, say --block-fp8",
            )
        yield f"the checkpoint holds {scheme}: convert the weights to {_WANTED} before packing"
        return
    if found.get("activation_scheme") not in (None, "dynamic"):
        raise ShapeError(
            where,
            f"{_FIELD}.activation_scheme",
            f"{found['activation_scheme']!r}: the kernel scales activations per token and "
            f"{SCALE_BLOCK} columns as it reads them (dynamic)",
        )
    if found.get("scale_fmt") == "ue8m0":
        yield "the checkpoint's scales are powers of two (ue8m0); the kernel's own are not rounded"


def _scheme(found: Mapping[str, Any]) -> str:
    """What a ``quantization_config`` describes, in the words of the messages."""
    method = found.get("quant_method")
    block: Any = None
    if method == "fp8":
        block = found.get("weight_block_size")
        if block is None:
            return "FP8 with one scale per tensor"
        if found.get("fmt") not in (None, "e4m3", "float8_e4m3fn"):
            return f"FP8 of the format {found['fmt']}"
    elif method == "compressed-tensors":
        groups = found.get("config_groups")
        weights = [
            group.get("weights") or {}
            for group in (groups.values() if isinstance(groups, dict) else ())
            if isinstance(group, dict)
        ]
        if not weights:
            return "compressed tensors of an unknown scheme"
        first = weights[0]
        if any(other != first for other in weights):
            return "compressed tensors of several schemes"
        number = f"{first.get('type')}{first.get('num_bits')}"
        if number != "float8" or first.get("strategy") != "block":
            return f"compressed tensors, {number} weights scaled per {first.get('strategy')}"
        block = first.get("block_structure")
    else:
        return f"{method} weights"
    if not (isinstance(block, list) and len(block) == 2):
        return f"FP8 with scales per {block!r}"
    return f"FP8 with one scale per {block[0]}x{block[1]} block"
