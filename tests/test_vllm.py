"""The plugin in a real vLLM, on its CPU build: its classes, its choice of experts, its decoding.

CONTRIBUTING.md has the command. Each test that decodes starts vLLM in a process of its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch
import vllm_decode
from safetensors.torch import load_file, save_file
from serving import TINY, make_table

from monomoe_gen import dispatch
from monomoe_gen.plan import make_plan
from monomoe_gen.reference import moe_fp32, moe_mirror, route
from monomoe_gen.runtime import KernelTable
from monomoe_gen.shapes import Shape
from monomoe_gen.validate import MIRROR_REL_L2_MAX
from monomoe_gen.variant import Variant
from monomoe_gen.weights import BlockWeights, quantize_blocks

pytest.importorskip("vllm", reason="vLLM is not installed here; CONTRIBUTING.md has the command")

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.fused_moe import modular_kernel as mk
from vllm.platforms import current_platform

from monomoe_gen.integrations import vllm as plugin
from monomoe_gen.integrations import vllm_experts, vllm_hook

if not current_platform.is_cpu():
    pytest.skip("for vLLM's CPU build", allow_module_level=True)

VOCABULARY = 512
LAYERS = 2


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3-MoE checkpoint of block-FP8 weights, random, with layers of the shape ``TINY``."""
    folder = tmp_path_factory.mktemp("model")
    h, n = TINY.hidden, TINY.intermediate
    generator = torch.Generator().manual_seed(0)

    def randn(*size: int, scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(*size, generator=generator)

    tensors = {
        "model.embed_tokens.weight": randn(VOCABULARY, h),
        "lm_head.weight": randn(VOCABULARY, h),
        "model.norm.weight": torch.ones(h),
    }
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        for name, size in (
            ("input_layernorm", h),
            ("post_attention_layernorm", h),
            ("self_attn.q_norm", 64),
            ("self_attn.k_norm", 64),
        ):
            tensors[f"{layer}.{name}.weight"] = torch.ones(size)
        tensors[f"{layer}.mlp.gate.weight"] = randn(TINY.experts, h, scale=h**-0.5)
        matrices = {"self_attn.q_proj": (256, h), "self_attn.o_proj": (h, 256)}
        matrices |= {f"self_attn.{name}_proj": (128, h) for name in "kv"}
        for e in range(TINY.experts):
            matrices |= {f"mlp.experts.{e}.{name}_proj": (n, h) for name in ("gate", "up")}
            matrices[f"mlp.experts.{e}.down_proj"] = (h, n)
        for name, size in matrices.items():
            size_of = 0.25 if "down" in name else 2.0  # the experts move tokens, rounding does not
            codes, scale = quantize_blocks(randn(*size, scale=size_of * size[1] ** -0.5))
            tensors[f"{layer}.{name}.weight"] = codes
            tensors[f"{layer}.{name}.weight_scale_inv"] = scale
    kept = {
        name: t.bfloat16() if t.dtype == torch.float32 and "scale" not in name else t
        for name, t in tensors.items()
    }
    save_file({k: v.contiguous() for k, v in kept.items()}, folder / "model.safetensors")
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": h,
        "intermediate_size": 256,
        "moe_intermediate_size": n,
        "num_experts": TINY.experts,
        "num_experts_per_tok": TINY.top_k,
        "norm_topk_prob": TINY.renormalize,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": [f"model.layers.{i}.mlp.gate" for i in range(LAYERS)],
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def first_layer(model: Path) -> BlockWeights:
    """The checkpoint's first layer, one tensor for all experts."""
    tensors = load_file(model / "model.safetensors")

    def stack(*names: str) -> torch.Tensor:
        experts = [f"model.layers.0.mlp.experts.{e}" for e in range(TINY.experts)]
        return torch.stack([torch.cat([tensors[f"{e}.{n}"] for n in names]) for e in experts])

    both = "gate_proj.{0} up_proj.{0}"
    return BlockWeights(
        stack(*both.format("weight").split()),
        stack(*both.format("weight_scale_inv").split()),
        stack("down_proj.weight"),
        stack("down_proj.weight_scale_inv"),
    )


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest relative L2 distance of a token's outputs."""
    one, other = one.float(), other.float()
    return float(((one - other).norm(dim=-1) / other.norm(dim=-1)).max())


def write_table(folder: Path, shape: Shape, layout: Any = "raw") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table = make_table(shape, layout=layout)
    (folder / dispatch.FILE).write_text(dispatch.dump(table))
    return folder


def decode(model: Path, folder: Path, mode: str, table: Path) -> dict[str, Any]:
    """One run of vllm_decode.py, and its log."""
    result = folder / "result.pt"
    environment = {
        **os.environ,
        "MONOMOE_VLLM": mode,
        "MONOMOE_TABLE": str(table),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    done = subprocess.run(
        [sys.executable, vllm_decode.__file__, str(model), str(result)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    log = done.stdout + done.stderr
    assert done.returncode == 0, log[-6000:]
    (folder / f"{mode}-{table.name}.log").write_text(log)
    return {**torch.load(result), "log": log}


@pytest.fixture(scope="session")
def runs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What vLLM does without the plugin, with it, and with one whose table lacks the layer."""
    folder = tmp_path_factory.mktemp("runs")
    other = dataclasses.replace(TINY, top_k=4)
    tables = {
        "without": ("0", write_table(folder / "own", TINY)),
        "with": ("reference", write_table(folder / "own", TINY)),
        "uncovered": ("reference", write_table(folder / "other", other)),
    }
    return {name: decode(model, folder, *how) for name, how in tables.items()}


def test_the_internals_are_where_they_were() -> None:
    """Fails when a vLLM moves what the plugin uses; then `vllm_hook` needs a look."""
    assert vllm_hook.moved() == []


def test_another_version_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vllm.__version__", "0.1.0")
    assert vllm_hook.moved() == ["vLLM 0.32 or 0.33; this is 0.1.0"]
    monkeypatch.setattr(vllm_hook, "install", lambda choose: pytest.fail("patched"))
    plugin.register()
    assert "steps aside; it needs vLLM 0.32 or 0.33; this is 0.1.0" in caplog.text


def test_vllm_finds_the_plugin() -> None:
    found = [e for e in entry_points(group="vllm.general_plugins") if e.name == "monomoe"]
    assert found, "install the package beside vLLM: pip install --no-deps -e ."
    assert found[0].load() is plugin.register


def test_a_covered_layer_gets_the_class(runs: dict[str, dict[str, Any]]) -> None:
    assert runs["with"]["experts"] == "MonomoeExperts"
    assert "serves experts of tiny with the reference on the CPU" in runs["with"]["log"]


def test_an_uncovered_layer_stays_with_vllm_and_the_log_says_why(
    runs: dict[str, dict[str, Any]],
) -> None:
    assert runs["uncovered"]["experts"] == runs["without"]["experts"] == "CPUExpertsFp8"
    assert "which differ in top_k (4, asked for 2)" in runs["uncovered"]["log"]
    assert "monomoe" not in runs["without"]["log"]


def test_outputs_agree_with_those_of_vllm(runs: dict[str, dict[str, Any]], model: Path) -> None:
    """vLLM's CPU experts do not quantize activations: that is the difference between the two.

    So each is also held against what it should be: the kernels' mirror, and exact sums.
    """
    w = first_layer(model)
    for tokens in vllm_decode.TOKENS:
        x, logits = vllm_decode.inputs(tokens, TINY.hidden, TINY.experts)
        mine, own = (runs[name]["outputs"][str(tokens)] for name in ("with", "without"))
        mirror = moe_mirror(x, logits, w.w13, w.w13_scale, w.w2, w.w2_scale, None, TINY)
        exact = moe_fp32(x, logits, w.dequantized, None, TINY)
        assert apart(mine, mirror) <= MIRROR_REL_L2_MAX
        assert apart(own, exact) < 0.01
        assert 0.01 < apart(mine, own) < 0.08


def test_the_same_tokens_are_decoded(runs: dict[str, dict[str, Any]]) -> None:
    assert runs["with"]["tokens"] == runs["without"]["tokens"]
    assert len({token for row in runs["with"]["tokens"] for token in row}) > 5


def test_the_option_that_returns_the_chosen_experts_is_seen() -> None:
    config = VllmConfig()
    with set_current_vllm_config(config):
        assert not plugin._captures_experts()
        config.aux_output_config.enable_return_routed_experts = True
        assert plugin._captures_experts()


SHAPES = (
    TINY,
    Shape("softmax", 256, 128, 64, 4, "softmax", False),
    Shape("groups", 256, 128, 64, 6, "sigmoid", True, True, 8, 4, 2.5),
)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_vllms_router_routes_as_the_kernels_do(shape: Shape) -> None:
    """What serves larger batches, in vLLM's CPU implementation, which has these kinds."""
    table = KernelTable(Path(), make_table(shape, layout="raw"))
    plan = make_plan(table, shape, variant=Variant("raw"))
    x, logits = torch.randn(32, shape.hidden), torch.randn(32, shape.experts)
    bias = torch.randn(shape.experts) if shape.expert_bias else None
    weights, ids = vllm_experts.vllm_router(plan, bias).select_experts(x, logits)
    expected_ids, expected = route(logits, bias, shape)
    dense, mine = torch.zeros(2, 32, shape.experts).unbind()
    dense.scatter_(-1, ids.long(), weights.float())
    mine.scatter_(-1, expected_ids, expected)
    assert torch.allclose(dense, mine, rtol=1e-3, atol=1e-5)


def test_larger_batches_go_to_vllms_triton_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch, with a stand-in for the kernel: Triton experts need a GPU."""
    table = KernelTable(Path(), make_table(TINY, layout="raw"))
    plan = make_plan(table, TINY, variant=Variant("raw"))
    seen: dict[str, Any] = {}

    class Stub:
        class prepare_finalize:
            @staticmethod
            def topk_indices_dtype() -> None:
                return None

        def apply(self, **arguments: Any) -> str:
            seen.update(arguments)
            return "triton"

    def make(**arguments: Any) -> Stub:
        seen["made"] = arguments["experts_cls"].__name__, arguments["fp8_backend"].value
        return Stub()

    monkeypatch.setattr(vllm_experts, "make_fp8_moe_kernel", make)
    experts = object.__new__(vllm_experts.experts_class(plan))
    experts.capacity, experts._larger, experts._router = 8, None, None
    experts.moe_config = experts.quant_config = None
    x, logits = vllm_decode.inputs(9, TINY.hidden, TINY.experts)
    meta = x.to("meta")
    monkeypatch.setattr(type(experts), "larger", lambda *a: "larger")
    w1 = w2 = torch.empty(0)
    assert experts.apply(meta, w1, w2, logits, None, 8, None, None, False) == "larger"
    monkeypatch.undo()
    monkeypatch.setattr(vllm_experts, "make_fp8_moe_kernel", make)
    assert experts.larger(x, w1, w2, logits, "silu", None) == "triton"
    assert seen["made"] == ("TritonExperts", "TRITON")
    names = inspect.signature(mk.FusedMoEKernel.apply).parameters
    assert set(seen) - {"made"} <= set(names)
    assert seen["topk_ids"].shape == (9, TINY.top_k) and seen["w1"] is w1
