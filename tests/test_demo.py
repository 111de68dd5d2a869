"""`demo decode` on the CPU: the whole path with a tiny model, and what becomes of failures."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="not installed; the extra [transformers] has it")

from monomoe_gen import cli
from monomoe_gen.demo import decode, standin
from monomoe_gen.demo.model import make_model
from monomoe_gen.demo.results import Difference, first_difference, rows
from monomoe_gen.errors import MonomoeError
from monomoe_gen.shapes import load_shape
from monomoe_gen.weights import dequantize_blocks, quantize_blocks

TINY = decode.Settings(sequences=(2,), prompt=3, tokens=4)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model(load_shape("toy"), 1, torch.device("cpu"))


def test_the_command_compares_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "decode.json"
    line = "demo decode --model toy --device cpu --layers 2 --sequences 1,4 --prompt 3 --tokens 16"
    assert cli.run([*line.split(), "--json", str(target), "--format", "json"]) == 0
    table = json.loads(capsys.readouterr().out)
    result = json.loads(target.read_text())
    assert (result["format"], result["model"], result["device"]) == (1, "toy", "cpu")
    runs = {(r["experts"], r["sequences"]): r for r in result["runs"]}
    for count in (1, 4):
        ours, own = runs[decode.OURS, count], runs[decode.STANDIN, count]
        assert ours["ms_per_token"] > 0 and not ours["cuda_graph"] and not ours["problems"]
        assert own["faster"] == pytest.approx(own["ms_per_token"] / ours["ms_per_token"])
        assert own["same_text"] and own["first_difference"] is None
    silent = runs[decode.SILENT, 4]
    assert silent["first_difference"]["margin"] > 0, "the text does not depend on the experts"
    assert runs[decode.OURS, 4]["distinct_tokens"] > 32
    assert len(table) == len(result["runs"])


def test_a_kind_that_fails_leaves_the_others_their_numbers(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(experts: Any) -> Any:
        raise torch.OutOfMemoryError("no memory\nfor this")

    monkeypatch.setattr(decode, "dequantized", broken)
    runs = {run.kind: run for run in decode.compare(model, TINY)}
    assert runs["bf16 grouped_mm"].problems == ["OutOfMemoryError: no memory"]
    assert runs[decode.OURS].text and runs[decode.SILENT].text
    assert type(model.model.layers[0].mlp.experts).__name__ == "FP8Experts"


def test_a_step_that_fails_is_a_problem_of_its_run(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(standin, "batched_matmul", broken)
    runs = {run.kind: run for run in decode.compare(model, TINY)}
    assert runs[decode.STANDIN].problems == ["RuntimeError: no such kernel"]
    assert runs[decode.STANDIN].ms_per_token is None
    (row,) = (r for r in rows(list(runs.values())) if r["experts"] == decode.STANDIN)
    assert row["same_text"] is None and row["faster"] is None


def test_the_prompt_is_kept_and_each_run_begins_anew(model: Any) -> None:
    with decode._fp8(model, "batched_mm", stand_in=True), torch.no_grad():
        decoder = decode.Decoder(model, TINY, 2)
        decoder.run(decoder.step)
        first = decoder.text.clone()
        decoder.run(decoder.step)
    assert torch.equal(decoder.text, first) and (first >= 0).all()
    assert torch.equal(first[:, :3], decoder.start[:, :3])


def test_a_step_is_captured_wherever_a_run_has_ended(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for the stream and the graph, which only a GPU has."""
    stream = SimpleNamespace(wait_stream=lambda other: None, replay=None)
    for name in ("CUDAGraph", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda: stream)
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, lambda of: nullcontext())
    with decode._fp8(model, "batched_mm", stand_in=True), torch.no_grad():
        decoder = decode.Decoder(model, TINY, 2)
        decoder.run(decoder.step)
        text = decoder.text.clone()
        decoder.capture()
        decoder.run(decoder.step)
    assert torch.equal(decoder.text, text)


def test_decoding_by_steps_is_decoding_at_once(model: Any) -> None:
    """The cache, the mask and the positions of the steps are those that the model would make."""
    with decode._fp8(model, "batched_mm", stand_in=True), torch.no_grad():
        decoder = decode.Decoder(model, TINY, 2)
        decoder.run(decoder.step)
        logits = model(input_ids=decoder.text[:, :-1], use_cache=False).logits
    assert torch.equal(logits[:, 2:].argmax(-1), decoder.text[:, 3:])


def test_the_first_difference_is_the_earliest_token() -> None:
    ours = decode.Run("a", 2, text=[[1, 2, 3], [4, 5, 6]], margins=[[0.5] * 3, [0.25] * 3])
    other = decode.Run("b", 2, text=[[1, 2, 9], [4, 8, 6]], margins=[[0.1] * 3, [0.2] * 3])
    assert first_difference(ours, other) == Difference(1, 1, 0.25, 0.2)
    assert first_difference(ours, ours) is None


def test_the_stand_in_multiplies_each_row_with_its_expert() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, scale = quantize_blocks(torch.randn(3, 128, 256, generator=generator))
    x = torch.randn(4, 256, generator=generator)
    experts = torch.tensor([2, 0, 2, 1])
    y = standin.batched_matmul(x, weight, scale, block_size=(128, 128), expert_ids=experts)
    for row, expert in enumerate(experts.tolist()):
        exact = dequantize_blocks(weight[expert], scale[expert]) @ x[row]
        assert (y[row] - exact).norm() < 0.05 * exact.norm()
    with pytest.raises(MonomoeError, match="blocks of 128 x 128"):
        standin.batched_matmul(x, weight, scale, block_size=(64, 64), expert_ids=experts)


def test_a_model_of_another_routing_is_refused() -> None:
    with pytest.raises(MonomoeError, match=r"deepseek-v3-tp8 is no layer of a Qwen3\.5-MoE"):
        make_model(load_shape("deepseek-v3-tp8"), 1, torch.device("cpu"))


def test_a_model_of_bf16_activations_is_refused() -> None:
    with pytest.raises(MonomoeError, match="toy-bf16 keeps its activations in bf16"):
        make_model(load_shape("toy-bf16"), 1, torch.device("cpu"))


def test_a_place_that_cannot_be_written_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "nowhere" / "decode.json"
    assert cli.run(["demo", "decode", "--device", "cpu", "--json", str(target)]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_extra_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert cli.run(["demo", "decode", "--device", "cpu"]) == 5
    assert "pip install 'monomoe-gen[transformers]'" in capsys.readouterr().err


@pytest.mark.gpu
def test_the_kernels_decode_in_graphs_on_the_gpu(tmp_path: Path) -> None:
    target = tmp_path / "decode.json"
    line = "demo decode --layers 2 --sequences 1,8 --prompt 4 --tokens 12 --format json"
    assert cli.run([*line.split(), "--json", str(target)]) == 0
    runs = {(r["experts"], r["sequences"]): r for r in json.loads(target.read_text())["runs"]}
    for count in (1, 8):
        ours, own = runs[decode.OURS, count], runs[decode.STANDIN, count]
        assert ours["cuda_graph"] and not ours["problems"]
        assert not own["problems"] and own["faster"] > 1
        apart = own["first_difference"]
        assert apart is None or max(apart["margin"], apart["other_margin"]) < 0.1
