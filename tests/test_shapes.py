"""Shapes: the shipped files, and every way a file can be wrong, named by file, field and reason."""

import dataclasses
from pathlib import Path

import pytest

from monomoe_gen import cost, shape_table
from monomoe_gen.compile import compile_source
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import ShapeError
from monomoe_gen.paths import DATA_VARIABLE, data_dir
from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape, list_shapes, load_shape, unquantized
from monomoe_gen.space import feasible

GOOD = {
    "name": "toy",
    "hidden": 256,
    "intermediate": 128,
    "experts": 64,
    "top_k": 2,
    "scoring": "softmax",
    "renormalize": True,
}


def write(folder: Path, text: str) -> Path:
    path = folder / "toy.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def as_yaml(**changes: object) -> str:
    values = {k: v for k, v in {**GOOD, **changes}.items() if v is not None}
    return "".join(
        f"{k}: {str(v).lower() if isinstance(v, bool) else v}\n" for k, v in values.items()
    )


def test_the_shipped_shapes() -> None:
    facts = {s.name: (s.hidden, s.intermediate, s.experts, s.top_k) for s in list_shapes()}
    assert facts["qwen3.5-35b"] == (2048, 512, 256, 8)
    assert facts["qwen3.5-122b"] == (3072, 1024, 256, 8)
    assert facts["glm-5.2-tp8"] == (6144, 256, 256, 8)
    assert facts["deepseek-v3.1-tp8"] == (7168, 256, 256, 8)
    deepseek = load_shape("deepseek-v3.1-tp8")
    assert (deepseek.n_group, deepseek.topk_group, deepseek.group_experts) == (8, 4, 32)
    assert (deepseek.scoring, deepseek.expert_bias) == ("sigmoid", True)
    assert deepseek.routed_scaling_factor == load_shape("glm-5.2-tp8").routed_scaling_factor == 2.5
    assert not load_shape("qwen3.5-35b").expert_bias
    assert all(s.renormalize and s.source for s in list_shapes())


def test_derived_values() -> None:
    shape = load_shape("qwen3.5-35b")
    assert shape.slug == "qwen3_5_35b"
    assert shape.up_rows == 1024
    assert shape.expert_bytes == 3 * 2048 * 512


@pytest.mark.parametrize("shape", list_shapes(), ids=lambda s: s.name)
def test_a_dictionary_holds_the_whole_shape(shape: Shape) -> None:
    assert Shape.from_dict(shape.to_dict()) == shape


@pytest.mark.parametrize(
    ("field", "changes", "words"),
    [
        ("flavour", {"flavour": 1}, "unknown field"),
        ("top_k", {"top_k": None}, "missing"),
        ("name", {"name": "Toy Model"}, "lower-case"),
        ("hidden", {"hidden": "'256'"}, "an integer"),
        ("hidden", {"hidden": 256.5}, "an integer"),
        ("hidden", {"hidden": True}, "an integer"),
        ("renormalize", {"renormalize": 1}, "true or false"),
        ("hidden", {"hidden": 200}, "multiple of 128"),
        ("hidden", {"hidden": 0}, "multiple of 128"),
        ("intermediate", {"intermediate": 192}, "multiple of 128"),
        ("intermediate", {"intermediate": -128}, "multiple of 128"),
        ("experts", {"experts": 0}, "1 to 1024"),
        ("experts", {"experts": 1025}, "1 to 1024"),
        ("top_k", {"top_k": 0}, "1 to 32"),
        ("top_k", {"top_k": 33}, "1 to 32"),
        ("top_k", {"experts": 4, "top_k": 5}, "1 to 4"),
        ("scoring", {"scoring": "argmax"}, "softmax, sigmoid"),
        ("logits_dtype", {"logits_dtype": "float16"}, "float32, bfloat16"),
        ("activations", {"activations": "fp16"}, "fp8, bf16"),
        ("activations", {"activations": 8}, "text"),
        ("n_group", {"n_group": 3}, "divide experts"),
        ("n_group", {"n_group": 0}, "divide experts"),
        ("topk_group", {"topk_group": 2}, "1 to n_group (1)"),
        ("topk_group", {"n_group": 4, "topk_group": 0}, "1 to n_group (4)"),
        ("n_group", {"experts": 48, "n_group": 4}, "routing lanes"),
        ("n_group", {"experts": 192, "n_group": 64}, "routing lanes"),
        ("n_group", {"experts": 32, "n_group": 32, "topk_group": 8}, "two best"),
        ("top_k", {"n_group": 32, "topk_group": 2, "top_k": 5}, "hold 4 experts"),
        ("routed_scaling_factor", {"routed_scaling_factor": 0}, "positive"),
        ("routed_scaling_factor", {"routed_scaling_factor": ".nan"}, "positive"),
        ("routed_scaling_factor", {"routed_scaling_factor": "big"}, "a number"),
        ("activation", {"activation": "gelu"}, "silu, gelu_tanh"),
        ("swiglu_limit", {"swiglu_limit": -7.0}, "positive"),
        ("swiglu_limit", {"swiglu_limit": ".inf"}, "positive"),
        ("shared_experts", {"shared_experts": -1}, "0 or more"),
        ("shared_experts", {"shared_experts": 31}, "at most 32"),
        ("shared_experts", {"experts": 1024, "shared_experts": 1}, "at most 1024"),
        ("shared_gate", {"shared_gate": True}, "there are none"),
    ],
)
def test_a_wrong_file_is_refused(
    tmp_path: Path, field: str, changes: dict[str, object], words: str
) -> None:
    path = write(tmp_path, as_yaml(**changes))
    with pytest.raises(ShapeError) as caught:
        load_shape(path)
    assert (caught.value.where, caught.value.field) == (str(path), field)
    assert words in caught.value.reason
    assert str(caught.value).startswith(f"{path}: {field}: ")


def test_the_unchanged_file_is_accepted(tmp_path: Path) -> None:
    assert load_shape(write(tmp_path, as_yaml())) == Shape(**GOOD)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [\n", "name: toy\nname: toy\n", "1: 2\n"])
def test_a_file_that_is_no_mapping_of_fields_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ShapeError) as caught:
        load_shape(path)
    assert caught.value.where == str(path)


def test_a_missing_file_and_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ShapeError, match="cannot be read"):
        load_shape(tmp_path / "none.yaml")
    with pytest.raises(ShapeError, match=r"no such shape; known are .*qwen3\.5-35b"):
        load_shape("qwen9")


def test_a_whole_number_is_a_number() -> None:
    shape = Shape.from_dict({**GOOD, "routed_scaling_factor": 2})
    assert isinstance(shape.routed_scaling_factor, float)


def test_the_folder_readme_covers_every_field_and_every_file() -> None:
    readme = (data_dir("shapes") / "README.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(Shape):
        assert f"| `{field.name}` |" in readme
    assert shape_table.shapes_table() in readme, "run `make docs`"


def test_a_shape_that_does_not_say_quantizes_its_activations() -> None:
    plain, kept = load_shape("qwen3.5-35b"), load_shape("qwen3.5-35b-bf16")
    assert (plain.activations, kept.activations) == ("fp8", "bf16")
    assert "activations" not in plain.to_dict()
    assert Shape.from_dict(plain.to_dict()) == plain
    assert "activations" not in plain.to_yaml() and "activations: bf16" in kept.to_yaml()


def test_every_shape_is_known_with_unquantized_activations() -> None:
    for shape in list_shapes():
        kept = load_shape(f"{shape.name}-bf16")
        assert (
            dataclasses.replace(kept, name=shape.name, activations="fp8", source=shape.source)
            == shape
        )
        assert kept == unquantized(kept) == unquantized(shape) and shape.name in kept.source
    with pytest.raises(ShapeError, match=r"no such shape.* one with -bf16 behind it"):
        load_shape("qwen3.5-35b-bf16-bf16")


def test_a_shape_of_bf16_activations_has_no_second_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shapes").mkdir()
    text = dataclasses.replace(load_shape("toy"), name="nat", activations="bf16").to_yaml()
    (tmp_path / "shapes" / "nat.yaml").write_text(text)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert load_shape("nat").activations == "bf16"
    with pytest.raises(ShapeError, match="nat keeps its activations in bf16: give that name"):
        load_shape("nat-bf16")


def test_the_table_says_what_a_launch_streams() -> None:
    toy = load_shape("toy")
    assert shape_table.distinct_experts(toy, 1) == pytest.approx(2)
    assert shape_table.distinct_experts(toy, 2) == pytest.approx(8 * (1 - 0.75**2))
    row = next(line for line in shape_table.shapes_table().splitlines() if "`qwen3.5-35b`" in line)
    numbers = [cell.strip() for cell in row.split("|")[7:-1]]
    assert numbers == ["3.15", "8.0", "57.4", "25", "181"]


def test_a_file_written_from_a_shape_gives_the_shape_again(tmp_path: Path) -> None:
    for shape in list_shapes():
        text = shape.to_yaml()
        assert load_shape(write(tmp_path, text)) == shape
        assert "logits_dtype" not in text and max(map(len, text.splitlines())) < 200


def test_later_fields_are_written_only_where_they_say_something(tmp_path: Path) -> None:
    plain = load_shape("toy")
    assert "activation" not in plain.to_dict() and "swiglu_limit" not in plain.to_dict()
    assert not any(name.startswith("shared") for name in plain.to_dict())
    other = dataclasses.replace(
        plain, activation="gelu_tanh", swiglu_limit=7, shared_experts=2, shared_gate=True
    )
    assert Shape.from_dict(other.to_dict()) == other
    assert load_shape(write(tmp_path, other.to_yaml())) == other
    added = ["activation", "swiglu_limit", "shared_experts", "shared_gate"]
    assert list(other.to_dict())[-5:] == [*added, "source"]


def test_shared_experts_are_counted() -> None:
    shape = dataclasses.replace(load_shape("toy"), shared_experts=2, shared_gate=True)
    assert (shape.all_experts, list(shape.shared_ids)) == (10, [8, 9])
    assert (shape.token_experts, shape.logit_columns) == (4, 9)
    assert shape_table.distinct_experts(shape, 1) == pytest.approx(4)
    assert shape_table.describe_routing(shape).endswith("2 shared, gated")
    routed, shared = (
        KernelSpec(s, Schedule(4, 4, 256, 2, 128, 2, 2)).geometry
        for s in (load_shape("toy"), shape)
    )
    assert (routed.max_active, shared.max_active) == (8, 10)
    assert shared.workspace_half_bytes - routed.workspace_half_bytes == 8 * 2 * 128 * 4
    active, chances = cost.active_experts(shape, 32)
    assert (active.tolist(), chances.tolist()) == ([10.0], [1.0])


@pytest.mark.parametrize(
    ("grid", "g_up", "top_k", "leads"),
    [
        (128, 64, 8, 2),
        (132, 64, 8, 3),
        (4, 4, 8, 1),
        (128, 16, 8, 4),
        (128, 1, 8, 4),
        (128, 1, 1, 1),
    ],
)
def test_leads_are_the_experts_of_first_units(grid: int, g_up: int, top_k: int, leads: int) -> None:
    shape = dataclasses.replace(load_shape("qwen3.5-35b"), top_k=top_k)
    assert KernelSpec(shape, Schedule(grid, g_up, 1024, 64, 512, 4, 3)).geometry.leads == leads


@pytest.mark.parametrize(
    ("experts", "lane", "mask"), [(8, 1, 2), (257, 9, 2), (512, 16, 2), (513, 17, 4), (1024, 32, 4)]
)
def test_a_lane_notes_its_experts_as_bits(experts: int, lane: int, mask: int) -> None:
    shape = dataclasses.replace(load_shape("toy"), experts=experts)
    geometry = KernelSpec(shape, Schedule(4, 4, 256, 2, 128, 2, 2), 32).geometry
    assert (geometry.lane_experts, geometry.lane_mask_bytes) == (lane, mask)


# -- every shipped shape can be built: at least one schedule keeps the rules and compiles


@pytest.mark.parametrize("shape", list_shapes(), ids=lambda s: s.name)
def test_a_shape_has_schedules_and_the_middle_one_compiles(shape: Shape) -> None:
    device = KNOWN[DEFAULT]
    legal = feasible(shape, device)
    assert len(legal) > 100
    full = [s for s in legal if s.grid == device.sms]
    spec = KernelSpec(shape, full[len(full) // 2])
    binary = compile_source(render(spec), device.arch)
    assert binary.shared_bytes == spec.geometry.shared_bytes <= device.shared_per_block
    assert binary.spill_bytes < 64
