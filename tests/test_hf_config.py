"""Shapes from config.json files: the dimensions of public models, and what has to be asked for.

A config here carries the fields that decide the routed experts, with the values of the public one.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from test_cli import ask

from monomoe_gen.errors import ShapeError
from monomoe_gen.hf_config import default_name, import_shape, read_config
from monomoe_gen.paths import DATA_VARIABLE
from monomoe_gen.shapes import Shape, load_shape

BLOCK_FP8 = {
    "quantization_config": {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
}
PER_CHANNEL = {
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "weights": {"type": "float", "num_bits": 8, "strategy": "channel"},
                "input_activations": {"type": "float", "num_bits": 8, "strategy": "token"},
            }
        },
    }
}
NOAUX = {
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "n_shared_experts": 1,
    "hidden_act": "silu",
}


def config(kind: str, **fields: object) -> dict[str, Any]:
    return {"model_type": kind, "hidden_act": "silu", **fields}


QWEN3_30B = config(
    "qwen3_moe",
    architectures=["Qwen3MoeForCausalLM"],
    hidden_size=2048,
    intermediate_size=6144,
    moe_intermediate_size=768,
    num_experts=128,
    num_experts_per_tok=8,
    norm_topk_prob=True,
    **BLOCK_FP8,
)
QWEN3_235B = {**QWEN3_30B, "hidden_size": 4096, "moe_intermediate_size": 1536}
QWEN3_NEXT = {
    **QWEN3_30B,
    "model_type": "qwen3_next",
    "moe_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "shared_expert_intermediate_size": 512,
}
QWEN2_57B = config(
    "qwen2_moe",
    hidden_size=3584,
    moe_intermediate_size=2560,
    num_experts=64,
    num_experts_per_tok=8,
    norm_topk_prob=False,
    shared_expert_intermediate_size=20480,
)
QWEN3_5_35B = {
    "model_type": "qwen3_5_moe",
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "text_config": config(
        "qwen3_5_moe_text",
        hidden_size=2048,
        moe_intermediate_size=512,
        num_experts=256,
        num_experts_per_tok=8,
        shared_expert_intermediate_size=512,
    ),
    "vision_config": {"hidden_size": 1152, "intermediate_size": 4304},
    **BLOCK_FP8,
}
DEEPSEEK_V3 = config(
    "deepseek_v3",
    hidden_size=7168,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    n_routed_experts=256,
    num_experts_per_tok=8,
    n_group=8,
    topk_group=4,
    routed_scaling_factor=2.5,
    **NOAUX,
    **BLOCK_FP8,
)
KIMI_K2 = {
    **DEEPSEEK_V3,
    "model_type": "kimi_k2",
    "n_routed_experts": 384,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 2.827,
}
GLM_5 = {
    **DEEPSEEK_V3,
    "model_type": "glm_moe_dsa",
    "hidden_size": 6144,
    "n_group": 1,
    "topk_group": 1,
}
GLM_4_5_AIR = config(
    "glm4_moe",
    hidden_size=4096,
    intermediate_size=10944,
    moe_intermediate_size=1408,
    n_routed_experts=128,
    num_experts_per_tok=8,
    n_shared_experts=1,
    n_group=1,
    topk_group=1,
    norm_topk_prob=True,
    routed_scaling_factor=1.0,
)
MINIMAX_M2 = config(
    "minimax_m2",
    hidden_size=3072,
    intermediate_size=1536,
    num_local_experts=256,
    num_experts_per_tok=8,
    scoring_func="sigmoid",
    use_routing_bias=True,
    shared_intermediate_size=0,
    quantization_config={**BLOCK_FP8["quantization_config"], "fmt": "float8_e4m3fn"},
)
MIXTRAL = config(
    "mixtral",
    hidden_size=4096,
    intermediate_size=14336,
    num_local_experts=8,
    num_experts_per_tok=2,
)
DEEPSEEK_V2 = config(
    "deepseek_v2",
    hidden_size=5120,
    moe_intermediate_size=1536,
    n_routed_experts=160,
    num_experts_per_tok=6,
    n_shared_experts=2,
    scoring_func="softmax",
    topk_method="group_limited_greedy",
    n_group=8,
    topk_group=3,
    norm_topk_prob=False,
    routed_scaling_factor=16.0,
)
DEEPSEEK_V2_LITE = {
    **DEEPSEEK_V2,
    "hidden_size": 2048,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "topk_method": "greedy",
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
}


def shape_of(values: dict[str, Any], name: str = "model", **options: Any) -> Shape:
    return import_shape(values, name=name, **options).shape


def refusal(values: dict[str, Any], **options: Any) -> ShapeError:
    with pytest.raises(ShapeError) as caught:
        shape_of(values, **options)
    return caught.value


def without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


SHIPPED = [
    ("qwen3-30b-a3b", QWEN3_30B, 1),
    ("qwen3-235b-a22b", QWEN3_235B, 1),
    ("qwen3-235b-a22b-tp2", QWEN3_235B, 2),
    ("qwen3-235b-a22b-tp4", QWEN3_235B, 4),
    ("qwen3-next-80b-a3b", QWEN3_NEXT, 1),
    ("qwen3.5-35b", QWEN3_5_35B, 1),
    ("glm-4.5-air", GLM_4_5_AIR, 1),
    ("glm-5.2-tp8", GLM_5, 8),
    ("kimi-k2-tp8", KIMI_K2, 8),
    ("minimax-m2", MINIMAX_M2, 1),
    ("deepseek-v3-tp8", DEEPSEEK_V3, 8),
    ("deepseek-v3-tp16", DEEPSEEK_V3, 16),
    ("deepseek-v3.1-tp8", DEEPSEEK_V3, 8),
    ("mixtral-8x7b-fp8-tp8", MIXTRAL, 8),
]


@pytest.mark.parametrize(("name", "values", "tp"), SHIPPED, ids=[s[0] for s in SHIPPED])
def test_a_shipped_shape_is_what_its_config_gives(
    name: str, values: dict[str, Any], tp: int
) -> None:
    shipped = load_shape(name)
    converted = values in (GLM_4_5_AIR, MIXTRAL)  # the others state their blocks
    made = shape_of(values, name, tp=tp, block_fp8=converted, source=shipped.source)
    assert made == shipped


def test_models_without_a_shipped_shape() -> None:
    two = shape_of(QWEN2_57B, block_fp8=True)
    assert (two.hidden, two.intermediate, two.experts, two.top_k) == (3584, 2560, 64, 8)
    assert (two.scoring, two.renormalize) == ("softmax", False)
    lite = shape_of(DEEPSEEK_V2_LITE, block_fp8=True)
    assert (lite.experts, lite.top_k, lite.scoring, lite.expert_bias) == (64, 6, "softmax", False)


def test_a_multimodal_config_is_read_in_its_text_part() -> None:
    shape = shape_of(QWEN3_5_35B)
    assert (shape.hidden, shape.intermediate, shape.renormalize) == (2048, 512, True)
    inner = {**QWEN3_5_35B["text_config"], **BLOCK_FP8}
    nested = {**without(QWEN3_5_35B, "quantization_config"), "text_config": inner}
    assert shape_of(nested) == shape


@pytest.mark.parametrize("key", ["norm_topk_prob", "hidden_size", "num_experts_per_tok"])
def test_what_is_missing_is_asked_for_and_may_be_stated(key: str) -> None:
    bare = without(QWEN3_30B, key)
    error = refusal(bare)
    assert error.field == key and f"--set {key}=VALUE" in error.reason
    assert shape_of(bare, stated={key: QWEN3_30B[key]}) == shape_of(QWEN3_30B)


@pytest.mark.parametrize("key", ["n_group", "topk_group", "routed_scaling_factor"])
def test_a_null_is_missing(key: str) -> None:
    assert refusal({**DEEPSEEK_V3, key: None}).field == key


def test_a_statement_may_not_contradict_the_file_nor_be_useless() -> None:
    error = refusal(QWEN3_30B, stated={"hidden_size": 4096})
    assert error.field == "hidden_size" and "is 2048 in the file" in error.reason
    assert shape_of(QWEN3_30B, stated={"hidden_size": 2048}) == shape_of(QWEN3_30B)
    error = refusal(QWEN3_30B, stated={"n_group": 8})
    assert error.field == "n_group" and "decides nothing" in error.reason


@pytest.mark.parametrize(
    ("field", "changes", "words"),
    [
        ("model_type", {"model_type": "gpt_oss"}, "MXFP4"),
        ("model_type", {"model_type": "llama4"}, "input of an expert"),
        ("model_type", {"model_type": "qwen3"}, "qwen3_moe"),
        ("model_type", {"model_type": None}, "missing"),
        ("hidden_act", {"hidden_act": "gelu"}, "gelu by tanh"),
        ("swiglu_limit", {"swiglu_limit": [7.0]}, "must be float"),
        ("hidden_size", {"hidden_size": "2048"}, "must be int"),
        ("hidden", {"hidden_size": 2000}, "multiple of 128"),
        ("moe_intermediate_size", {"moe_intermediate_size": 760}, "not a multiple of 128"),
        ("num_experts", {"n_routed_experts": 64}, "contradict"),
        ("num_experts", {"num_experts": None}, "missing"),
        ("top_k", {"num_experts_per_tok": 40}, "1 to 32"),
        ("scoring", {"scoring_func": "sqrtsoftplus"}, "softmax, sigmoid"),
    ],
)
def test_what_the_kernel_cannot_do_is_refused(
    field: str, changes: dict[str, Any], words: str
) -> None:
    error = refusal({**QWEN3_30B, **changes})
    assert error.field == field and words in error.reason


def test_groups_judged_by_their_best_expert_alone_are_refused() -> None:
    error = refusal(DEEPSEEK_V2, block_fp8=True)
    assert error.field == "topk_method" and "sum of its two best" in error.reason
    error = refusal(without(DEEPSEEK_V2, "topk_method"), block_fp8=True)
    assert error.field == "topk_method" and "--set" in error.reason
    assert shape_of({**DEEPSEEK_V2, "topk_group": 8}, block_fp8=True).n_group == 1


def test_a_scaling_factor_that_implementations_treat_differently_is_refused() -> None:
    error = refusal(
        {**DEEPSEEK_V2_LITE, "norm_topk_prob": True, "routed_scaling_factor": 16.0}, block_fp8=True
    )
    assert error.field == "routed_scaling_factor"


def test_the_intermediate_columns_are_shared_in_whole_blocks() -> None:
    error = refusal(QWEN3_30B, tp=4)
    assert error.field == "moe_intermediate_size"
    assert error.reason.endswith("--tp may be 1, 2, 3, 6")


QUANTIZATIONS = [
    ({"quant_method": "fp8", "activation_scheme": "static"}, "one scale per tensor"),
    ({"quant_method": "fp8", "weight_block_size": [64, 128]}, "64x128"),
    ({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}, "e5m2"),
    ({"quant_method": "awq", "bits": 4}, "awq weights"),
    (PER_CHANNEL["quantization_config"], "float8 weights scaled per channel"),
    ({"quant_method": "compressed-tensors"}, "unknown scheme"),
]


@pytest.mark.parametrize(
    ("quantization", "words"), QUANTIZATIONS, ids=[q[1] for q in QUANTIZATIONS]
)
def test_other_weights_are_refused_unless_they_will_be_converted(
    quantization: dict[str, Any], words: str
) -> None:
    values = {**QWEN3_30B, "quantization_config": quantization}
    error = refusal(values)
    assert error.field == "quantization_config" and words in error.reason
    made = import_shape(values, name="model", block_fp8=True)
    assert made.shape == shape_of(QWEN3_30B) and words in made.remarks[0]


def test_no_quantization_is_no_block_fp8() -> None:
    bare = without(QWEN3_30B, "quantization_config")
    assert "--block-fp8" in refusal(bare).reason
    assert "quantize the weights" in import_shape(bare, name="m", block_fp8=True).remarks[0]


def test_blocks_of_compressed_tensors_are_understood() -> None:
    weights = {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [128, 128]}
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
    }
    assert shape_of({**QWEN3_30B, "quantization_config": quantization}) == shape_of(QWEN3_30B)


def test_static_activation_scales_are_refused() -> None:
    quantization = {**BLOCK_FP8["quantization_config"], "activation_scheme": "static"}
    error = refusal({**QWEN3_30B, "quantization_config": quantization})
    assert error.field == "quantization_config.activation_scheme"


def test_remarks_say_what_the_shape_does_not_hold() -> None:
    assert import_shape(QWEN3_30B, name="m").remarks == ()
    (shared,) = import_shape(QWEN3_NEXT, name="m").remarks
    assert shared.startswith("1 shared expert runs beside")
    assert import_shape(MINIMAX_M2, name="m").remarks == ()
    quantization = {**BLOCK_FP8["quantization_config"], "scale_fmt": "ue8m0"}
    remarks = import_shape({**QWEN3_30B, "quantization_config": quantization}, name="m").remarks
    assert "ue8m0" in remarks[0]


def shared(values: dict[str, Any], **options: Any) -> tuple[int, bool, int]:
    s = shape_of(values, shared_experts=True, **options)
    return s.shared_experts, s.shared_gate, s.intermediate


def test_shared_experts_are_fused_on_demand() -> None:
    assert shape_of(DEEPSEEK_V3).shared_experts == 0
    assert shared(DEEPSEEK_V3) == (1, False, 2048)
    assert shared(DEEPSEEK_V3, tp=8) == (1, False, 256)
    assert shared(GLM_4_5_AIR, block_fp8=True) == (1, False, 1408)
    assert shared(DEEPSEEK_V2_LITE, block_fp8=True)[:2] == (2, False)
    assert shared(QWEN3_NEXT) == (1, True, 512)
    assert shared(QWEN3_5_35B)[:2] == (1, True)
    assert shared(QWEN2_57B, block_fp8=True)[:2] == (8, True)
    (note,) = import_shape(QWEN3_NEXT, name="m", shared_experts=True).remarks
    assert "one more column" in note
    clamped = import_shape({**DEEPSEEK_V3, "swiglu_limit": 10.0}, name="m", shared_experts=True)
    assert clamped.remarks[-1].endswith("swiglu_limit clamps them as well")


def test_shared_experts_that_cannot_be_fused_are_refused() -> None:
    error = refusal(QWEN3_30B, shared_experts=True)
    assert error.field == "n_shared_experts" and "names no shared experts" in error.reason
    odd = {**QWEN3_NEXT, "shared_expert_intermediate_size": 768}
    error = refusal(odd, shared_experts=True)
    assert error.field == "shared_expert_intermediate_size" and "beside" in error.reason
    error = refusal({**MINIMAX_M2, "shared_intermediate_size": 1536}, shared_experts=True)
    assert error.field == "model_type" and "not known" in error.reason
    told = {"n_shared_experts": 1}
    assert refusal(QWEN3_30B, shared_experts=True, stated=told).field == "model_type"
    silent = without(DEEPSEEK_V3, "n_shared_experts")
    assert shape_of(silent, shared_experts=True, stated=told).shared_experts == 1


def test_activations() -> None:
    plain = shape_of(QWEN3_30B)
    assert (plain.activation, plain.swiglu_limit) == ("silu", 0.0)
    gelu = shape_of({**QWEN3_30B, "hidden_act": "gelu_pytorch_tanh"})
    assert gelu.activation == "gelu_tanh"
    assert shape_of({**QWEN3_30B, "swiglu_limit": 10}).swiglu_limit == 10.0
    assert shape_of({**QWEN3_30B, "swiglu_limit": 0.0}) == plain


def test_the_source_describes_the_config() -> None:
    assert shape_of(QWEN3_30B, "a-tp2", tp=2).source == (
        "config.json of a-tp2, Qwen3MoeForCausalLM, on one of 2 tensor-parallel GPUs"
    )


def test_a_name_comes_from_the_config_or_its_place(tmp_path: Path) -> None:
    path = tmp_path / "Qwen3-30B-A3B_FP8" / "config.json"
    assert default_name(path, {}, 1) == "qwen3-30b-a3b-fp8"
    assert default_name(path, {"_name_or_path": "Org/Other-7B/"}, 8) == "other-7b-tp8"
    assert default_name(tmp_path / "Mixtral 8x7B.json", {}, 1) == "mixtral-8x7b"
    with pytest.raises(ShapeError, match="--name"):
        default_name(tmp_path / ("0123456789" * 4) / "config.json", {}, 1)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_file_that_is_no_config(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ShapeError, match=r"config\.json"):
        read_config(path)


# -- the command


def save(folder: Path, values: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return str(path)


def test_the_command_prints_or_writes_a_shape_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, QWEN3_NEXT)
    code, out, err = ask(capsys, "shape", "import", path, "--name", "next")
    assert code == 0 and "shared expert" in err
    target = tmp_path / "next.yaml"
    code, nothing, _ = ask(capsys, "shape", "import", path, "--name", "next", "-o", str(target))
    assert code == 0 and nothing == "" and target.read_text() == out
    assert load_shape(target) == shape_of(QWEN3_NEXT, "next")
    again = ("shape", "import", path, "--tp", "2", "-o", str(target))
    code, _, err = ask(capsys, *again)
    assert code == 2 and "--force" in err and target.read_text() == out
    assert ask(capsys, *again, "--force")[0] == 0
    assert load_shape(target) == shape_of(QWEN3_NEXT, "next", tp=2)
    code, out, err = ask(capsys, "shape", "import", path, "--name", "next", "--shared-experts")
    assert code == 0 and "shared_experts: 1\nshared_gate: true\n" in out
    assert "one more column" in err


def test_an_imported_shape_is_known_by_the_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    (tmp_path / "shapes").mkdir()
    path = save(tmp_path, {**QWEN3_30B, "_name_or_path": "somebody/model"})
    target = tmp_path / "shapes" / "mine.yaml"
    assert ask(capsys, "shape", "import", path, "-o", str(target))[0] == 0
    code, out, err = ask(capsys, "shapes")
    assert code == 0 and "\nmine " in out, err
    assert load_shape("mine").name == "mine"


def test_the_command_takes_what_the_file_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, without(QWEN2_57B, "norm_topk_prob", "hidden_act"))
    common = ("shape", "import", path, "--name", "two", "--block-fp8")
    code, out, _ = ask(capsys, *common, "--set", "hidden_act=silu", "--set", "norm_topk_prob=false")
    assert code == 0 and "renormalize: false" in out
