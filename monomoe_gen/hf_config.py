"""A `Shape` from the ``config.json`` of a Hugging Face checkpoint.

Only what the file states, what the model's own code fixes for every checkpoint of its type, and
what the caller states is used. Anything else that decides the result is asked for, and what the
kernel does not compute is refused, both with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from monomoe_gen.errors import ShapeError
from monomoe_gen.hf_families import FAMILIES, REFUSED, Family
from monomoe_gen.hf_quantization import quantization_remarks
from monomoe_gen.shapes import SCALE_BLOCK, Shape

_EXPERT_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts")
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
_SHARED_SIZES = ("shared_expert_intermediate_size", "shared_intermediate_size")
_TOPK_METHODS = ("noaux_tc", "greedy", "group_limited_greedy")


@dataclass(frozen=True)
class Imported:
    """``remarks`` say what a reader of the shape should know and the shape does not hold."""

    shape: Shape
    remarks: tuple[str, ...]


def read_config(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``.

    Raises:
        ShapeError: it cannot be read, or is none.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ShapeError(str(path), "", f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ShapeError(str(path), "", f"is not JSON: {error}") from None
    except RecursionError:
        raise ShapeError(str(path), "", "is nested too deeply") from None
    if not isinstance(config, dict):
        raise ShapeError(str(path), "", "must hold one object, as a config.json does")
    return config


def default_name(path: Path, config: Mapping[str, Any], tp: int) -> str:
    """A name from the config's own, else from the folder or the file; ends in ``-tpN`` for N > 1.

    Raises:
        ShapeError: nothing there is a name.
    """
    own = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    file = path.resolve()
    for candidate in (own, file.parent.name if file.stem == "config" else file.stem):
        name = re.sub(r"[^a-z0-9.]+", "-", candidate.lower()).strip("-.")
        if name and not re.fullmatch(r"[0-9a-f]{40}", name):  # a snapshot in a download cache
            return f"{name}-tp{tp}" if tp > 1 else name
    raise ShapeError(str(path), "name", "cannot be told from the file or its folder; give --name")


def import_shape(
    config: Mapping[str, Any],
    *,
    name: str,
    where: str = "config.json",
    tp: int = 1,
    stated: Mapping[str, Any] | None = None,
    block_fp8: bool = False,
    shared_experts: bool = False,
    logits_dtype: str = "float32",
    source: str | None = None,
) -> Imported:
    """One routed layer of ``config`` on one of ``tp`` tensor-parallel GPUs.

    Args:
        where: how messages name the config.
        stated: fields that the config lacks, in its own names, as the caller knows them.
        block_fp8: the weights will be FP8 with one scale per 128x128 block whatever the config
            says of them.
        shared_experts: make the model's shared experts part of the launch.
        source: the text of the shape's ``source`` field; None describes the config.

    Raises:
        ShapeError: a field is missing or contradicts what was stated, the kernel cannot compute
            this model, or a rule of shapes is broken.
    """
    text = _Fields(where, _text_part(config), stated or {})
    kind = text.get("model_type", str)
    if kind in REFUSED:
        raise ShapeError(where, "model_type", f"{kind} cannot be imported: {REFUSED[kind]}")
    family = FAMILIES.get(kind)
    if family is None:
        raise ShapeError(
            where, "model_type", f"{kind!r} is not known; known are {', '.join(sorted(FAMILIES))}"
        )
    remarks = list(quantization_remarks(where, _quantization_part(config), block_fp8))
    shared, found = _shared_experts(text, family, shared_experts)
    remarks += found
    values = {
        **_activation(text),
        "hidden": text.get("hidden_size", int),
        "intermediate": _shard(text, family.intermediate, tp),
        "experts": _experts(text),
        "top_k": text.get("num_experts_per_tok", int),
        **_routing(text, family),
        **shared,
    }
    text.check_stated_were_used()
    architectures = config.get("architectures") or [family.title]
    described = f"config.json of {name}, {architectures[0]}"
    if tp > 1:
        described += f", on one of {tp} tensor-parallel GPUs"
    shape = Shape.from_dict(
        {
            "name": name,
            **values,
            "logits_dtype": logits_dtype,
            "source": described if source is None else source,
        },
        where=where,
    )
    return Imported(shape, tuple(remarks))


class _Fields:
    """A config's fields, read one by one, with those that the caller states in its place."""

    def __init__(self, where: str, values: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
        self.where, self._values, self._stated = where, values, stated
        self._read: set[str] = set()
        for key, value in stated.items():
            if values.get(key) is not None and values[key] != value:
                self.fail(key, f"is {values[key]!r} in the file, but {value!r} was stated")

    def find(self, key: str, kind: type) -> Any:
        """The field, or None where neither the config nor the caller has it."""
        self._read.add(key)
        value = self._values.get(key)
        if value is None:
            value = self._stated.get(key)
        if kind is float and type(value) is int:
            value = float(value)
        if value is not None and type(value) is not kind:
            self.fail(key, f"must be {kind.__name__}, found {value!r}")
        return value

    def get(self, key: str, kind: type) -> Any:
        """The field, which has to be there."""
        value = self.find(key, kind)
        if value is None:
            self.fail(key, f"missing; if you know it, state it with --set {key}=VALUE")
        return value

    def fail(self, key: str, reason: str) -> NoReturn:
        raise ShapeError(self.where, key, reason)

    def check_stated_were_used(self) -> None:
        for key in self._stated:
            if key not in self._read:
                self.fail(key, "was stated, but decides nothing for this model type")


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _quantization_part(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for part in (config, _text_part(config)):
        found = part.get("quantization_config")
        if isinstance(found, dict):
            return found
    return None


def _experts(text: _Fields) -> int:
    """The routed experts, under whichever name the model type uses."""
    found = {key: text.find(key, int) for key in _EXPERT_COUNTS}
    counts = {value for value in found.values() if value is not None}
    if not counts:
        text.fail(_EXPERT_COUNTS[0], f"missing, as are {' and '.join(_EXPERT_COUNTS[1:])}")
    if len(counts) > 1:
        text.fail(_EXPERT_COUNTS[0], f"the numbers of experts contradict each other: {found}")
    return int(counts.pop())


def _shard(text: _Fields, key: str, tp: int) -> int:
    """The intermediate width on one of ``tp`` GPUs."""
    whole: int = text.get(key, int)
    blocks, rest = divmod(whole, SCALE_BLOCK)
    if rest:
        text.fail(key, f"{whole} is not a multiple of {SCALE_BLOCK}, the block of a weight scale")
    if blocks % tp:
        possible = ", ".join(str(n) for n in range(1, blocks + 1) if blocks % n == 0)
        text.fail(
            key,
            f"{whole} columns on {tp} GPUs are not whole blocks of {SCALE_BLOCK}: --tp may be "
            f"{possible}",
        )
    return whole // tp


def _routing(text: _Fields, family: Family) -> dict[str, Any]:
    scoring = text.find("scoring_func", str) or family.scoring
    bias = text.find("use_routing_bias", bool)
    renormalize = text.find("norm_topk_prob", bool)
    if renormalize is None:
        renormalize = family.renormalize
    if renormalize is None:
        renormalize = text.get("norm_topk_prob", bool)
    routing = {
        "scoring": scoring,
        "renormalize": renormalize,
        "expert_bias": family.expert_bias if bias is None else bias,
    }
    if not family.grouped:
        factor = text.find("routed_scaling_factor", float)
        return routing if factor is None else {**routing, "routed_scaling_factor": factor}
    method = text.find("topk_method", str)
    sum_of_two = family.sum_of_two
    if method is None and not family.expert_bias:
        method = text.get("topk_method", str)
    if method is not None:
        if method not in _TOPK_METHODS:
            text.fail("topk_method", f"{method!r} is not one of {', '.join(_TOPK_METHODS)}")
        routing["expert_bias"] = method == "noaux_tc"
        sum_of_two = method == "noaux_tc"
    groups, chosen = 1, 1
    if method != "greedy":
        groups, chosen = (text.get(key, int) for key in ("n_group", "topk_group"))
        if groups == chosen:  # all groups take part
            groups = chosen = 1
    if groups > 1 and not sum_of_two:
        text.fail(
            "topk_method",
            f"{chosen} of {groups} groups are chosen by their best expert alone; the kernel scores "
            "a group by the sum of its two best",
        )
    factor = text.get("routed_scaling_factor", float)
    if renormalize and factor != 1 and not family.scales_renormalized:
        text.fail(
            "routed_scaling_factor",
            f"implementations of this model type differ in whether {factor:g} multiplies "
            "renormalized weights",
        )
    return {
        **routing,
        "n_group": groups,
        "topk_group": chosen,
        "routed_scaling_factor": factor,
    }


def _activation(text: _Fields) -> dict[str, Any]:
    name = text.get("hidden_act", str)
    if name not in _ACTIVATIONS:
        text.fail(
            "hidden_act",
            f"{name!r} is not one of {', '.join(_ACTIVATIONS)}: the kernel computes "
            "activation(gate) * up with silu, or with gelu by tanh",
        )
    limit = text.find("swiglu_limit", float)
    return {"activation": _ACTIVATIONS[name], "swiglu_limit": max(limit or 0.0, 0.0)}


def _shared_experts(text: _Fields, family: Family, fuse: bool) -> tuple[dict[str, Any], list[str]]:
    """The shape's fields for the model's shared experts, and what to say of them."""
    count = text.find("n_shared_experts", int) or 0
    sizes = {key: text.find(key, int) for key in _SHARED_SIZES}
    key = next((key for key, size in sizes.items() if size), None)
    if not count and key is None:
        if fuse:
            text.fail(
                "n_shared_experts",
                "the config names no shared experts; if the model has some, state them with --set "
                f"n_shared_experts=COUNT or --set {_SHARED_SIZES[0]}=COLUMNS, else leave "
                "--shared-experts away",
            )
        return {}, []
    if not fuse:
        noun = "expert runs" if (count or 1) == 1 else "experts run"
        return {}, [
            f"{count or 1} shared {noun} beside this kernel, not in its launch: add their output "
            "to y; --shared-experts makes them part of the launch"
        ]
    if key is not None:
        width = text.get(family.intermediate, int)
        split, rest = divmod(sizes[key], width)
        if rest or (count and count != split):
            text.fail(
                key,
                f"{sizes[key]} columns are not {count or 'several'} experts of {width} like the "
                "routed ones; import with --no-shared-experts and run them beside the kernel",
            )
        count = split
    if family.shared_gate is None:
        text.fail(
            "model_type",
            f"whether a gate weighs the shared experts of {family.title} is not known; import with "
            "--no-shared-experts and set shared_experts and shared_gate in the file",
        )
    weight = (
        "the sigmoid of a gate, whose logit is one more column of the router logits"
        if family.shared_gate
        else "1"
    )
    return {"shared_experts": count, "shared_gate": family.shared_gate}, [
        f"the launch computes the shared experts too, as {count} of the routed ones' width behind "
        f"them in the weights, in the same blocks of FP8; their weight is {weight}"
        + (", and swiglu_limit clamps them as well" if text.find("swiglu_limit", float) else "")
    ]
