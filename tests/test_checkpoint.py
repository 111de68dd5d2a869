"""Layers out of safetensors files that the tests write, in every naming, whole and in shards."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from monomoe_gen.checkpoint import Shard, find_layer
from monomoe_gen.errors import MonomoeError
from monomoe_gen.shapes import load_shape
from monomoe_gen.weights import BlockWeights, append_shared
from monomoe_gen.workload import block_weights

SHAPE = replace(load_shape("toy"), name="small", experts=4, intermediate=256)
LAYER = block_weights(SHAPE, "gaussian", seed=3)
Tensors = dict[str, Tensor]


def per_expert(
    prefix: str, roles: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
) -> Tensors:
    found = {}
    for e in range(SHAPE.experts):
        for suffix, w13, w2 in (
            ("", LAYER.w13[e], LAYER.w2[e]),
            ("_scale_inv", LAYER.w13_scale[e], LAYER.w2_scale[e]),
        ):
            for role, part in zip(roles, (*w13.chunk(2), w2), strict=True):
                found[f"{prefix}experts.{e}.{role}.weight{suffix}"] = part.contiguous()
    return found


def fused(w13: str, w2: str, scale: str) -> Tensors:
    return {
        w13: LAYER.w13,
        w2: LAYER.w2,
        w13 + scale: LAYER.w13_scale,
        w2 + scale: LAYER.w2_scale,
    }


def others(layer: int) -> Tensors:
    """What else a checkpoint holds near the experts."""
    codes = torch.zeros(256, 256).to(torch.float8_e4m3fn)
    names = (
        "mlp.gate.weight",
        "mlp.shared_experts.down_proj.weight",
        "mlp.shared_expert.w2.weight",
    )
    found = {f"model.layers.{layer}.{name}": codes.clone() for name in names}
    return {**found, "model.layers.0.mlp.down_proj.weight": codes, "lm_head.weight": codes.clone()}


DEEPSEEK = "model.layers.3.mlp."
NAMINGS: dict[str, Callable[[], Tensors]] = {
    "gate_proj": lambda: per_expert(DEEPSEEK),
    "w1": lambda: per_expert("model.layers.3.block_sparse_moe.", ("w1", "w3", "w2")),
    "nested": lambda: per_expert("model.language_model.layers.3.mlp."),
    "gate_up_proj": lambda: fused(
        DEEPSEEK + "experts.gate_up_proj", DEEPSEEK + "experts.down_proj", "_scale_inv"
    ),
    "w13_weight": lambda: fused(
        DEEPSEEK + "experts.w13_weight", DEEPSEEK + "experts.w2_weight", "_scale_inv"
    ),
    "w13": lambda: fused(DEEPSEEK + "w13", DEEPSEEK + "w2", "_scale"),
}


def save(path: Path, tensors: Tensors) -> Path:
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, path)
    return path


def same(found: BlockWeights, expected: BlockWeights) -> bool:
    return all(
        a.dtype == b.dtype and torch.equal(a.float(), b.float())
        for a, b in zip(vars(found).values(), vars(expected).values(), strict=True)
    )


@pytest.mark.parametrize("naming", NAMINGS)
def test_every_naming_gives_the_layer(tmp_path: Path, naming: str) -> None:
    path = save(tmp_path / "a.safetensors", {**others(3), **NAMINGS[naming]()})
    assert same(find_layer([path], 3, SHAPE).read(), LAYER)


@pytest.mark.parametrize("naming", ["gate_proj", "gate_up_proj"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_shard_is_its_part_of_the_intermediate_columns(
    tmp_path: Path, naming: str, index: int
) -> None:
    path = save(tmp_path / "a.safetensors", NAMINGS[naming]())
    half = replace(SHAPE, intermediate=128)
    found = find_layer([path], 3, half, Shard(index, 2)).read()
    part, row = slice(128 * index, 128 * index + 128), slice(index, index + 1)
    expected = BlockWeights(
        torch.cat([matrix[:, part].float() for matrix in LAYER.w13.chunk(2, 1)], 1).to(
            LAYER.w13.dtype
        ),
        torch.cat([scale[:, row] for scale in LAYER.w13_scale.chunk(2, 1)], 1),
        LAYER.w2[:, :, part],
        LAYER.w2_scale[:, :, row],
    )
    assert same(found, expected)


@pytest.mark.parametrize("naming", ["gate_proj", "gate_up_proj"])
@pytest.mark.parametrize("count", [1, 2])
def test_shared_experts_are_cut_out_of_one(tmp_path: Path, naming: str, count: int) -> None:
    """As `append_shared` does of one shard's part: these columns of gate, up and down."""
    one_expert = replace(SHAPE, experts=1, top_k=1, intermediate=256 * count)
    wide = block_weights(one_expert, "gaussian", 5)
    tensors = {}
    for suffix, w13, w2 in (
        ("", wide.w13[0], wide.w2[0]),
        ("_scale_inv", wide.w13_scale[0], wide.w2_scale[0]),
    ):
        for role, part in zip(("gate", "up", "down"), (*w13.chunk(2), w2), strict=True):
            name = f"{DEEPSEEK}shared_experts.{role}_proj.weight{suffix}"
            tensors[name] = part.contiguous()
    gate = {DEEPSEEK + "shared_expert_gate.weight": torch.zeros(1, 256)}
    path = save(tmp_path / "a.safetensors", {**NAMINGS[naming](), **tensors, **gate})
    shape = replace(SHAPE, shared_experts=count)
    one = BlockWeights(*(tensor[0] for tensor in vars(wide).values()))
    assert same(find_layer([path], 3, shape).read(), append_shared(LAYER, one))

    half = replace(shape, intermediate=128)
    routed, units = replace(SHAPE, intermediate=128), 128 * count
    found = find_layer([path], 3, half, Shard(1, 2)).read()
    columns, blocks = slice(units, 2 * units), slice(count, 2 * count)
    part = BlockWeights(
        torch.cat([rows[columns] for rows in one.w13.chunk(2)]),
        torch.cat([rows[blocks] for rows in one.w13_scale.chunk(2)]),
        one.w2[:, columns],
        one.w2_scale[:, blocks],
    )
    expected = append_shared(find_layer([path], 3, routed, Shard(1, 2)).read(), part)
    assert same(found, expected)

    with pytest.raises(MonomoeError, match=r"6 of .* missing, .* shared gate weight"):
        find_layer([save(tmp_path / "b.safetensors", NAMINGS[naming]())], 3, shape)


def test_the_parts_may_lie_in_several_files_of_a_folder(tmp_path: Path) -> None:
    tensors = list(NAMINGS["gate_proj"]().items())
    save(tmp_path / "a.safetensors", dict(tensors[::2]))
    save(tmp_path / "b.safetensors", dict(tensors[1::2]))
    (tmp_path / "config.json").write_text("{}")
    assert same(find_layer([tmp_path], 3, SHAPE).read(), LAYER)
    with pytest.raises(MonomoeError, match="tensors are missing, the first is the gate scale"):
        find_layer([tmp_path / "a.safetensors"], 3, SHAPE)


def test_a_file_of_one_layer_needs_no_number(tmp_path: Path) -> None:
    path = save(tmp_path / "a.safetensors", fused("w13", "w2", "_scale"))
    assert same(find_layer([path], None, SHAPE).read(), LAYER)
    with pytest.raises(MonomoeError, match=r"found no experts of layer 3; .* of none"):
        find_layer([path], 3, SHAPE)


def test_scales_of_other_types_become_fp32(tmp_path: Path) -> None:
    tensors = NAMINGS["gate_proj"]()
    halved = {n: t.bfloat16() if "scale" in n else t for n, t in tensors.items()}
    found = find_layer([save(tmp_path / "a.safetensors", halved)], 3, SHAPE).read()
    assert found.w13_scale.dtype == torch.float32
    assert torch.equal(found.w2_scale, LAYER.w2_scale.bfloat16().float())


def test_layers_that_only_draft_are_not_meant(tmp_path: Path) -> None:
    draft = per_expert("mtp.layers.3.mlp.")
    path = save(tmp_path / "a.safetensors", {**NAMINGS["gate_proj"](), **draft})
    assert same(find_layer([path], 3, SHAPE).read(), LAYER)
    twice = {**NAMINGS["gate_proj"](), **per_expert("other.layers.3.mlp.")}
    with pytest.raises(MonomoeError, match=r"more than once: model\., other\."):
        find_layer([save(tmp_path / "b.safetensors", twice)], 3, SHAPE)


def test_the_layers_that_are_there_are_named(tmp_path: Path) -> None:
    tensors = {}
    for layer in (1, 2, 3, 7):
        tensors |= per_expert(f"model.layers.{layer}.mlp.")
    path = save(tmp_path / "a.safetensors", tensors)
    with pytest.raises(MonomoeError, match=r"experts of layer 5; .* layers 1-3, 7"):
        find_layer([path], 5, SHAPE)
    with pytest.raises(MonomoeError, match="a layer without a number"):
        find_layer([path], None, SHAPE)


def test_wrong_sizes_and_types_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.safetensors", NAMINGS["gate_proj"]())
    with pytest.raises(
        MonomoeError, match=r"is \[256, 256\], the shape asks for \[128, 256\].*--shard"
    ):
        find_layer([path], 3, replace(SHAPE, intermediate=128))
    with pytest.raises(MonomoeError, match="none of the 3 experts"):
        find_layer([path], 3, replace(SHAPE, experts=3))
    with pytest.raises(MonomoeError, match=r"6 of 30 tensors are missing.* of expert 4"):
        find_layer([path], 3, replace(SHAPE, experts=5))
    wide = {n: t if "scale" in n else t.bfloat16() for n, t in NAMINGS["w13"]().items()}
    with pytest.raises(MonomoeError, match="is BF16, must be F8_E4M3"):
        find_layer([save(tmp_path / "b.safetensors", wide)], 3, SHAPE)
    whole = {n: t.double() if "scale" in n else t for n, t in NAMINGS["w13"]().items()}
    with pytest.raises(MonomoeError, match="is F64, must be F32"):
        find_layer([save(tmp_path / "c.safetensors", whole)], 3, SHAPE)


def test_what_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(MonomoeError, match="no safetensors file"):
        find_layer([path], 3, SHAPE)
    path.write_bytes(b"text")
    with pytest.raises(MonomoeError, match="no safetensors file"):
        find_layer([path], 3, SHAPE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(MonomoeError, match=r"holds no \.safetensors file"):
        find_layer([tmp_path / "empty"], 3, SHAPE)
