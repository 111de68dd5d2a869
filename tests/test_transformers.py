"""`patch` on real models of transformers, with tiny random block-FP8 weights, on the CPU.

What transformers computes with its own experts is compared: their kernel, which has to be
downloaded, is replaced by the stand-in that `demo decode` uses too.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from serving import TINY, make_table
from torch import Tensor, nn

pytest.importorskip("transformers", reason="not installed; the extra [transformers] has it")

import transformers
import transformers_models as models

from monomoe_gen import paths
from monomoe_gen.demo.standin import standing_in
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.integrations import transformers as integration
from monomoe_gen.integrations.transformers import patch, unpatch
from monomoe_gen.integrations.transformers_blocks import FAMILIES, Served, blocks
from monomoe_gen.plan import REQUIRE_TUNED
from monomoe_gen.reference import moe_mirror
from monomoe_gen.runtime import KernelTable
from monomoe_gen.schedule import Layout
from monomoe_gen.shapes import Shape
from monomoe_gen.validate import MIRROR_REL_L2_MAX

pytestmark = pytest.mark.usefixtures("one_thread")


def table_of(shape: Shape = TINY, layout: Layout = "raw") -> KernelTable:
    return KernelTable(Path(), make_table(shape, layout=layout))


def apart(one: Tensor, other: Tensor) -> float:
    """The largest relative L2 distance of a token's outputs."""
    one, other = one.float(), other.float()
    return float(((one - other).norm(dim=-1) / other.norm(dim=-1)).max())


def own(model: nn.Module, run: Callable[[], Any]) -> Any:
    """``run()`` by the experts of transformers."""
    model.config._experts_implementation = "batched_mm"
    with standing_in(), torch.no_grad():
        return run()


def inputs(tokens: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(tokens)
    return torch.randn(1, tokens, models.HIDDEN, generator=generator).bfloat16()


def ids() -> Tensor:
    return torch.randint(3, models.VOCABULARY, (2, 8), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def qwen() -> Any:
    return models.make("qwen3_moe")


@pytest.fixture
def block(qwen: Any) -> Any:
    return qwen.model.layers[0].mlp


def test_every_family_has_a_model_here() -> None:
    assert set(models.MODELS) == set(FAMILIES)


@pytest.mark.parametrize("kind", models.MODELS)
def test_a_block_gives_what_it_gave(kind: str) -> None:
    """Shared experts, expert bias, groups and scaling factors included.

    Both round activations to FP8 alike, but transformers keeps more intermediate results in bf16.
    """
    model = models.make(kind)
    name, block = list(blocks(model))[-1]
    x = inputs()
    before = own(model, lambda: block(x))
    keys = list(model.state_dict())
    done = patch(model, table_of(), on_missing="fallback")
    assert name in done.served and not done.left and done.copied_bytes == 0
    with torch.no_grad():
        after = block(x)
    assert 0 < apart(after, before) < 0.05
    assert list(model.state_dict()) == keys
    assert unpatch(model) == len(done.served)
    assert torch.equal(own(model, lambda: block(x)), before)


@pytest.mark.parametrize("layout", ["raw", "packed"])
def test_experts_run_the_operator(block: Any, qwen: Any, layout: Layout) -> None:
    done = patch(qwen, table_of(layout=layout))
    assert list(done.served.values()) == ["tiny, the reference on the CPU"] * 2
    experts, x = block.experts, inputs()[0]
    with torch.no_grad():
        logits, _, choice = block.gate(x)
        y = experts(x, choice, logits)
    assert choice is None and logits.dtype == torch.bfloat16
    w13, w2 = experts.gate_up_proj, experts.down_proj
    scales = experts.gate_up_proj_scale_inv, experts.down_proj_scale_inv
    mirror = moe_mirror(x, logits.float(), w13, scales[0], w2, scales[1], None, TINY)
    assert apart(y, mirror) <= MIRROR_REL_L2_MAX
    copies = sum(t.nbytes for n, t in qwen.named_buffers() if "monomoe" in n)
    assert copies == done.copied_bytes == (0 if layout == "raw" else 2 * (w13.nbytes + w2.nbytes))
    assert ("GB of weights copied" in str(done)) == (layout == "packed")
    assert not [name for name in qwen.state_dict() if "monomoe" in name]
    unpatch(qwen)
    assert not [name for name, _ in qwen.named_buffers() if "monomoe" in name]


def test_raw_kernels_go_before_packed_ones(qwen: Any) -> None:
    raw, packed = make_table(layout="raw"), make_table()
    both = dataclasses.replace(
        raw, kernels=packed.kernels + raw.kernels, entries=packed.entries + raw.entries
    )
    assert patch(qwen, KernelTable(Path(), both)).copied_bytes == 0


@pytest.fixture
def checkpoint(
    qwen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], nn.Module]:
    """Saves a block-FP8 checkpoint, and loads it as transformers does beside a GPU."""
    quantization = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": [n for n, m in qwen.named_modules() if type(m) is nn.Linear],
    }
    tensors = {}
    for name, tensor in qwen.state_dict().items():
        prefix, _, kind = name.rpartition(".experts.")
        if not prefix:
            tensors[name] = tensor
            continue
        suffix = "_scale_inv" if kind.endswith("scale_inv") else ""
        parts = ("down_proj",) if kind.startswith("down") else ("gate_proj", "up_proj")
        for expert, matrix in enumerate(tensor):
            for part, rows in zip(parts, matrix.chunk(len(parts)), strict=True):
                full = f"{prefix}.experts.{expert}.{part}.weight{suffix}"
                tensors[full] = rows.contiguous()
    from safetensors.torch import save_file

    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    qwen.config.quantization_config = quantization
    qwen.config.save_pretrained(tmp_path)

    def load() -> nn.Module:
        with monkeypatch.context() as patched:
            patched.setattr(torch.cuda, "is_available", lambda: True)
            patched.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
            loaded = transformers.AutoModelForCausalLM.from_pretrained(
                tmp_path, dtype=torch.bfloat16, device_map=None
            )
        return loaded.eval()

    return load


def test_a_checkpoint_decodes_the_same_text(checkpoint: Callable[[], nn.Module], qwen: Any) -> None:
    pytest.importorskip("accelerate")
    model = checkpoint()
    assert torch.equal(
        model.model.layers[1].mlp.experts.gate_up_proj.view(torch.uint8),
        qwen.model.layers[1].mlp.experts.gate_up_proj.view(torch.uint8),
    )
    prompt = ids()
    arguments = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}

    def text() -> list[list[int]]:
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), **arguments).tolist()

    before = own(model, text)
    assert len(patch(model, table_of()).served) == 2
    assert text() == before
    assert len({token for row in before for token in row[8:]}) > 4
    unpatch(model)
    for layer in model.model.layers:
        layer.mlp.experts.down_proj_scale_inv.data.zero_()
    assert own(model, text) != before, "the text does not depend on the experts"


def test_uncovered_blocks_are_left_alone_with_the_reason(
    qwen: Any, block: Any, caplog: pytest.LogCaptureFixture
) -> None:
    classes = type(block.gate), type(block.experts)
    done = patch(qwen, table_of(dataclasses.replace(TINY, top_k=4)))
    assert done.served == {} and set(done.left) == {"model.layers.0.mlp", "model.layers.1.mlp"}
    words = "those of tiny, which differ in top_k (4, asked for 2)"
    assert words in done.left["model.layers.0.mlp"] and words in str(done)
    assert (type(block.gate), type(block.experts)) == classes
    assert "model.layers.0.mlp and 1 more left to transformers: no kernel for 8 exp" in caplog.text
    assert caplog.records[-1].levelno == logging.WARNING


def set_experts(**values: Any) -> Callable[[Any], None]:
    return lambda block: [setattr(block.experts, name, v) for name, v in values.items()]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_experts(block_size=(64, 128)), "scales of other blocks than 128 x 128"),
        (set_experts(block_size=None), "scales of other blocks than 128 x 128"),
        (set_experts(activation_scheme="static"), "activation scales from the checkpoint"),
        (set_experts(swiglu_limit=7.0), "a limit of the activation"),
        (set_experts(has_gate=False), "its experts have no gate projection"),
        (set_experts(intermediate_dim=256), "tensor parallelism"),
        (set_experts(num_experts=16), "expert parallelism"),
        (lambda b: b.experts.register_forward_hook(lambda *_: None), "hooks around its gate"),
        (lambda b: setattr(b.gate, "forward", b.gate.forward), "hooks around its gate"),
        (lambda b: setattr(b, "experts", nn.Identity()), "experts are Identity, not block-FP8"),
        (lambda b: b.experts.to("meta"), "its weights are on meta"),
        (
            lambda b: setattr(
                b.experts, "gate_up_proj_scale_inv", nn.Parameter(torch.ones(8, 1, 2))
            ),
            r"w13_scale must be a contiguous torch.float32 \[8, 2, 2\]",
        ),
    ],
)
@pytest.mark.parametrize("on_missing", ["leave", "fallback"])
def test_what_the_operator_does_not_do_is_left(
    qwen: Any, block: Any, change: Callable[[Any], None], words: str, on_missing: Any
) -> None:
    change(block)
    done = patch(qwen, table_of(), on_missing=on_missing)
    assert set(done.served) == {"model.layers.1.mlp"}
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(done.left["model.layers.0.mlp"])


def test_other_models_are_left() -> None:
    config = transformers.MixtralConfig(
        hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=2, vocab_size=16,
    )  # fmt: skip
    done = patch(transformers.MixtralForCausalLM(config), table_of())
    (reason,) = done.left.values()
    assert "MixtralSparseMoeBlock is no block of qwen2_moe, qwen3_moe" in reason
    assert str(patch(nn.Linear(1, 1), table_of())) == "no sparse-MoE block in the model"


def test_other_activations_than_bf16_are_left(qwen: Any) -> None:
    for name, parameter in qwen.named_parameters():
        if "experts" not in name:
            parameter.data = parameter.data.half()
    assert "activations that are not bf16" in str(patch(qwen, table_of()))


def test_a_hook_that_only_looks_is_no_obstacle(qwen: Any) -> None:
    own(qwen, lambda: qwen(ids(), output_hidden_states=True, output_router_logits=True))
    assert not patch(qwen, table_of()).left


def test_router_logits_are_still_returned(qwen: Any) -> None:
    before = own(qwen, lambda: qwen(ids(), output_router_logits=True))
    patch(qwen, table_of())
    with torch.no_grad():
        after = qwen(ids(), output_router_logits=True)
    assert len(after.router_logits) == 2
    assert torch.equal(after.router_logits[0], before.router_logits[0])


def test_patching_twice_is_patching_once(qwen: Any) -> None:
    first = patch(qwen, table_of())
    with torch.no_grad():
        logits = qwen(ids()).logits
    again = patch(qwen, table_of())
    assert again.served == {} and set(again.left) == set(first.served)
    assert "it is patched already" in str(again)
    with torch.no_grad():
        assert torch.equal(qwen(ids()).logits, logits)
    assert (unpatch(qwen), unpatch(qwen)) == (2, 0)


def test_a_copy_of_a_patched_model_runs(qwen: Any) -> None:
    patch(qwen, table_of(layout="packed"))
    twin = copy.deepcopy(qwen)
    unpatch(qwen)
    for layer in qwen.model.layers:
        layer.mlp.gate.weight.data.zero_()
    with torch.no_grad():
        assert twin(ids()).logits.isfinite().all()
    assert twin.model.layers[0].mlp.experts.monomoe.gate is twin.model.layers[0].mlp.gate


def test_more_tokens_than_a_kernel_takes_go_to_the_models_experts(
    qwen: Any, block: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = inputs()
    before = own(qwen, lambda: block(x))
    patch(qwen, table_of())
    served = block.experts.monomoe
    assert served.capacity == 8
    on = {place: SimpleNamespace(device=torch.device(place), shape=(9, 256)) for place in
          ("cpu", "cuda")}  # fmt: skip
    assert served.takes(on["cpu"]) and not served.takes(on["cuda"])
    assert Served(served.plan, None, block.gate).takes(on["cuda"])
    monkeypatch.setattr(Served, "takes", lambda self, x: False)
    assert torch.equal(own(qwen, lambda: block(x)), before)


def test_training_is_refused(qwen: Any) -> None:
    patch(qwen, table_of())
    qwen.train()
    with pytest.raises(MonomoeError, match=r"no gradient; call model\.eval"):
        qwen(ids())


def test_only_exact_kernels_means_none(qwen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE_TUNED, "1")
    assert "allows only exact token counts" in str(patch(qwen, table_of()))


def test_another_transformers_is_refused(qwen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "5.99.0")
    with pytest.raises(EnvironmentProblem, match=r"transformers 5.17 to 5.24; found 5.99.0"):
        patch(qwen, table_of())
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(EnvironmentProblem, match=r"install it: pip install 'monomoe-gen\[transf"):
        patch(qwen, table_of())


def test_an_option_that_is_misspelt_is_refused(qwen: Any) -> None:
    with pytest.raises(MonomoeError, match='must be "leave" or "fallback", found \'torch\''):
        patch(qwen, table_of(), on_missing="torch")  # type: ignore[arg-type]


def test_what_is_no_model_or_no_table_is_refused(qwen: Any) -> None:
    with pytest.raises(MonomoeError, match="patch takes a model, found NoneType"):
        patch(None, table_of())  # type: ignore[arg-type]
    with pytest.raises(MonomoeError, match=r"table must be what load_table\(folder\) gives"):
        patch(qwen, "generated")  # type: ignore[arg-type]


def test_the_projects_table_is_the_default(qwen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration, "load_table", table_of)
    assert len(patch(qwen).served) == 2


def test_the_readmes_snippet_runs(
    checkpoint: Callable[[], nn.Module],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("accelerate")
    readme = ((paths.checkout() or Path()) / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Use it in your server\n")[2].partition("\n## ")[0]
    (snippet,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    model = checkpoint()
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: model
    )
    monkeypatch.setattr(integration, "load_table", table_of)
    exec(compile(snippet, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said == "model.layers.0.mlp and 1 more served by tiny, the reference on the CPU\n"
    assert unpatch(model) == 0
