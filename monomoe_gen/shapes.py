"""A `Shape` is one mixture-of-experts layer as one GPU sees it; shapes live in ``shapes/*.yaml``.

Every rule is checked where a shape is made, whether from a file, a dictionary or by hand, so that
the rest of the package may rely on it. YAML is imported only by the functions that read files.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monomoe_gen.errors import ShapeError
from monomoe_gen.paths import shape_dirs

SCALE_BLOCK = 128  # rows and columns that share one weight scale
ROUTING_LANES = 32  # each lane of a warp owns ceil(experts / 32) consecutive experts
MAX_EXPERTS = 1024
UNQUANTIZED = "-bf16"  # after a shape's name: the same with bf16 activations
_WIDEST_LINE = 10_000  # of a shape file: a source is never folded

_CHOICES = {
    "scoring": ("softmax", "sigmoid"),
    "logits_dtype": ("float32", "bfloat16"),
    "activations": ("fp8", "bf16"),
    "activation": ("silu", "gelu_tanh"),
}
_LATER = (
    "activations",
    "activation",
    "swiglu_limit",
    "shared_experts",
    "shared_gate",
)  # added since the first files were written
_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_TYPE_WORDS = {str: "text", int: "an integer", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Shape:
    """The dimensions and the routing policy of one layer.

    ``shapes/README.md`` describes each field. Raises `ShapeError` when a rule is broken.
    """

    name: str
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
    logits_dtype: str = "float32"
    activations: str = "fp8"
    activation: str = "silu"
    swiglu_limit: float = 0.0
    shared_experts: int = 0
    shared_gate: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        where = f"shape {self.name!r}"
        for name, kind in _field_types().items():
            value = getattr(self, name)
            if kind is float and type(value) is int:
                object.__setattr__(self, name, float(value))
            elif type(value) is not kind:
                raise ShapeError(where, name, f"must be {_TYPE_WORDS[kind]}, found {value!r}")
        for name, reason in _problems(self):
            raise ShapeError(where, name, reason)

    @property
    def slug(self) -> str:
        """The name as an identifier: ``qwen3.5-35b`` -> ``qwen3_5_35b``."""
        return re.sub(r"[^a-z0-9]", "_", self.name)

    @property
    def up_rows(self) -> int:
        """Rows of one expert's ``w13``: gate and up."""
        return 2 * self.intermediate

    @property
    def expert_bytes(self) -> int:
        """FP8 bytes of one expert's weights, ``w13`` and ``w2`` together (scales not counted)."""
        return 3 * self.hidden * self.intermediate

    @property
    def all_experts(self) -> int:
        """Experts of the weight tensors: the routed ones, then the shared ones."""
        return self.experts + self.shared_experts

    @property
    def shared_ids(self) -> range:
        """The shared experts' places in the weight tensors."""
        return range(self.experts, self.all_experts)

    @property
    def token_experts(self) -> int:
        """Experts that each token goes to, shared ones included."""
        return self.top_k + self.shared_experts

    @property
    def logit_columns(self) -> int:
        """Router logits of a token: one of each routed expert, then that of the shared gate."""
        return self.experts + self.shared_gate

    @property
    def group_experts(self) -> int:
        """Experts in one routing group (all of them when there is one group)."""
        return self.experts // self.n_group

    def to_dict(self) -> dict[str, Any]:
        """The fields, in declaration order; `from_dict` is the inverse.

        Fields that came later are left out at their default, so that what was written before them
        stays as it is.
        """
        defaults = {f.name: f.default for f in dataclasses.fields(self) if f.name in _LATER}
        values = dataclasses.asdict(self)
        return {k: v for k, v in values.items() if k not in defaults or v != defaults[k]}

    def to_yaml(self) -> str:
        """The text of the shape's file: every field that is not at its default."""
        import yaml

        values = self.to_dict()
        for field in dataclasses.fields(self):
            if field.name in values and values[field.name] == field.default:
                del values[field.name]
        source = {"source": values.pop("source")} if self.source else {}
        ordered: dict[str, Any] = {"name": values.pop("name"), **source, **values}
        return str(yaml.safe_dump(ordered, sort_keys=False, width=_WIDEST_LINE))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "shape") -> Shape:
        """Builds a shape from named fields.

        Raises:
            ShapeError: an unknown, missing or ill-typed field or a broken rule, named by ``where``.
        """
        known = dataclasses.fields(cls)
        for key in values:
            if key not in {f.name for f in known}:
                names = ", ".join(f.name for f in known)
                raise ShapeError(where, str(key), f"unknown field; a shape has {names}")
        for f in known:
            if f.default is dataclasses.MISSING and f.name not in values:
                raise ShapeError(where, f.name, "missing")
        try:
            return cls(**values)
        except ShapeError as error:
            raise ShapeError(where, error.field, error.reason) from None


def _field_types() -> dict[str, type]:
    return {f.name: _TYPES[str(f.type)] for f in dataclasses.fields(Shape)}


def _problems(s: Shape) -> Iterator[tuple[str, str]]:
    """The broken rules as (field, reason); a later rule may rely on the earlier ones."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", s.name):
        yield "name", f"use lower-case letters, digits, '.' and '-', found {s.name!r}"
    for name, choices in _CHOICES.items():
        if getattr(s, name) not in choices:
            yield name, f"must be one of {', '.join(choices)}, found {getattr(s, name)!r}"
    for name in ("hidden", "intermediate"):
        value = getattr(s, name)
        if value <= 0 or value % SCALE_BLOCK:
            yield name, f"must be a positive multiple of {SCALE_BLOCK}, found {value}"
    if not 1 <= s.experts <= MAX_EXPERTS:
        yield "experts", f"must be 1 to {MAX_EXPERTS}, found {s.experts}"
    if not 1 <= s.top_k <= min(s.experts, ROUTING_LANES):
        limit = min(s.experts, ROUTING_LANES)
        yield "top_k", f"must be 1 to {limit} (experts, and at most 32), found {s.top_k}"
    if s.n_group < 1 or s.experts % s.n_group:
        yield "n_group", f"must divide experts ({s.experts}), found {s.n_group}"
    if not 1 <= s.topk_group <= s.n_group:
        yield "topk_group", f"must be 1 to n_group ({s.n_group}), found {s.topk_group}"
    if s.n_group > 1:
        if s.experts % ROUTING_LANES or ROUTING_LANES % s.n_group:
            yield (
                "n_group",
                f"a group must be a whole number of the {ROUTING_LANES} routing lanes: experts "
                f"must be a multiple of {ROUTING_LANES} and n_group a power of two up to "
                f"{ROUTING_LANES}, found {s.experts} experts in {s.n_group} groups",
            )
        if s.group_experts < 2:
            yield "n_group", "a group is scored by its two best experts, found groups of one"
        if s.top_k > s.topk_group * s.group_experts:
            yield (
                "top_k",
                f"the {s.topk_group} chosen groups hold {s.topk_group * s.group_experts} experts, "
                f"found {s.top_k}",
            )
    if not (math.isfinite(s.routed_scaling_factor) and s.routed_scaling_factor > 0):
        yield "routed_scaling_factor", f"must be positive, found {s.routed_scaling_factor}"
    if not 0 <= s.shared_experts <= min(MAX_EXPERTS - s.experts, ROUTING_LANES - s.top_k):
        yield (
            "shared_experts",
            f"must be 0 or more, with top_k ({s.top_k}) at most {ROUTING_LANES} and with experts "
            f"({s.experts}) at most {MAX_EXPERTS}, found {s.shared_experts}",
        )
    if s.shared_gate and not s.shared_experts:
        yield "shared_gate", "gates the shared experts, and there are none"
    if not (math.isfinite(s.swiglu_limit) and s.swiglu_limit >= 0):
        yield "swiglu_limit", f"must be positive, or 0 for none, found {s.swiglu_limit}"


def load_shape(name_or_path: str | Path) -> Shape:
    """A known shape by its name, or any shape file by its path (ending in .yaml or .yml).

    Known are the files of `paths.shape_dirs`; one of the user hides the shipped one of its name.
    With `UNQUANTIZED` behind its name each of them is known with bf16 activations too.

    Raises:
        ShapeError: no such shape, or a file that breaks a rule.
    """
    text = os.fspath(name_or_path)
    if text.endswith((".yaml", ".yml")):
        return _read(Path(text))
    known = _known()
    base = text.removesuffix(UNQUANTIZED)
    if text not in known and base != text and base in known:
        shape = load_shape(base)
        if shape.activations == "bf16":
            raise ShapeError(text, "", f"{base} keeps its activations in bf16: give that name")
        return unquantized(shape)
    if text not in known:
        raise ShapeError(
            text,
            "",
            f"no such shape; known are {', '.join(known) or 'none'}. Give one of these names, one "
            f"with {UNQUANTIZED} behind it for bf16 activations, or the path of a .yaml file",
        )
    shape = _read(known[text])
    if shape.name != text:
        raise ShapeError(str(known[text]), "name", f"must be {text!r}, found {shape.name!r}")
    return shape


def unquantized(shape: Shape) -> Shape:
    """The shape with activations that are not quantized, under a name of its own."""
    if shape.activations == "bf16":
        return shape
    source = f"as {shape.name}, with activations that are not quantized"
    name = shape.name + UNQUANTIZED
    return dataclasses.replace(shape, name=name, activations="bf16", source=source)


def list_shapes() -> list[Shape]:
    """All known shapes, sorted by file name."""
    return [load_shape(name) for name in _known()]


def _known() -> dict[str, Path]:
    """The files of the known shapes by name, in the order of the file names."""
    found = {path.stem: path for folder in reversed(shape_dirs()) for path in folder.glob("*.yaml")}
    return dict(sorted(found.items(), key=lambda item: item[1].name))


def _read(path: Path) -> Shape:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except OSError as error:
        raise ShapeError(str(path), "", f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ShapeError(str(path), "", f"is not YAML: {error}") from None
    except RecursionError:
        raise ShapeError(str(path), "", "is nested too deeply") from None
    if not isinstance(root, yaml.MappingNode):
        raise ShapeError(str(path), "", "must hold one mapping of field names to values")
    keys = [key.value for key, _ in root.value]
    for key in keys:
        if keys.count(key) > 1:
            raise ShapeError(str(path), key, "is given twice")
    return Shape.from_dict(values, where=str(path))
