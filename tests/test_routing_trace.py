"""Captured routing: the file, and the launches that are made of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from monomoe_gen import testbed
from monomoe_gen.bench import LAUNCHES, make_inputs
from monomoe_gen.device import KNOWN
from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.reference import route
from monomoe_gen.routing_trace import load, save
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.workload import rotation

QWEN = load_shape("qwen3.5-35b")
L2 = 50 * 2**20


def captured(
    shape: Shape, tokens: int = 4, launches: int = 40
) -> list[tuple[int, int, torch.Tensor]]:
    """Two layers, a decode step after the other; neighbouring tokens share an expert."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for i in range(launches):
        first = torch.randint(shape.experts, (1,), generator=generator)
        ids = (
            first + 7 * torch.arange(tokens)[:, None] + 7 * torch.arange(shape.top_k)
        ) % shape.experts
        made.append((i // 2, i % 2, ids))
    return made


def overlap(ids: torch.Tensor) -> list[int]:
    """How many tokens choose each chosen expert, whatever its name."""
    return sorted(Counter(ids.flatten().tolist()).values())


def test_a_file_gives_back_what_was_captured(tmp_path: Path) -> None:
    path = tmp_path / "routing.npz"
    launches = captured(QWEN)
    saved = save(path, QWEN.experts, reversed(launches))
    read = load(path, QWEN)
    assert read.name == saved.name and read.name.startswith("trace-")
    assert len(read.launches) == 40
    assert all(torch.equal(a, b) for a, (_, _, b) in zip(read.launches, launches, strict=True))
    other = [(s, n, ids.flip(-1)) for s, n, ids in launches]
    assert save(path, QWEN.experts, other).name == read.name, "order within a token says nothing"
    assert save(path, QWEN.experts, launches[1:]).name != read.name


@pytest.mark.parametrize("model", ["qwen3.5-35b", "deepseek-v3.1-tp8", "glm-4.5-air"])
def test_launches_share_experts_as_captured_and_find_them_cold(tmp_path: Path, model: str) -> None:
    shape = load_shape(model)
    trace = save(tmp_path / "routing.npz", shape.experts, within_groups(shape))
    rotated = rotation(shape, 3, trace.name, LAUNCHES, L2, 0, trace)
    assert rotated.reuse_bytes >= 2 * L2
    wanted = Counter(tuple(overlap(ids[:3])) for ids in trace.launches)
    for logits in rotated.logits:
        ids, _ = route(logits[:, : shape.experts], rotated.bias, shape)
        assert tuple(overlap(ids)) in wanted
    again = rotation(shape, 3, trace.name, LAUNCHES, L2, 0, trace)
    assert torch.equal(again.logits, rotated.logits)


def within_groups(shape: Shape) -> list[tuple[int, int, torch.Tensor]]:
    """Launches that the shape's own policy chose."""
    drawn = rotation(shape, 4, "zipf", 40, 0, 5)
    return [
        (i, 0, route(logits[:, : shape.experts], drawn.bias, shape)[0])
        for i, logits in enumerate(drawn.logits)
    ]


def test_launches_that_are_large_enough_are_drawn_and_cut(tmp_path: Path) -> None:
    few, many = captured(QWEN, 2, 50), [(s + 99, n, i) for s, n, i in captured(QWEN, 8, 10)]
    trace = save(tmp_path / "routing.npz", QWEN.experts, few + many)
    for tokens, available in ((1, 60), (2, 60), (3, 10), (8, 10)):
        drawn = trace.sample(tokens, 32, torch.Generator().manual_seed(0))
        assert {ids.shape for ids in drawn} == {(tokens, QWEN.top_k)}
        distinct = len({ids.numpy().tobytes() for ids in drawn})
        assert distinct <= min(32, available) and distinct >= min(32, available) - 4
    with pytest.raises(MonomoeError, match=r"asked for launches of 9 tokens of trace-.*has 8"):
        trace.sample(9, 32, torch.Generator())


def test_a_trace_that_would_be_warm_is_not_timed(tmp_path: Path) -> None:
    small = replace(QWEN, name="small", experts=8, top_k=8, hidden=256, intermediate=128)
    trace = save(tmp_path / "routing.npz", 8, [(0, 0, torch.arange(8).expand(2, 8))])
    inputs = make_inputs(small, 2, trace.name, L2, 0, torch.device("cpu"), trace=trace)
    assert inputs.copies > 1 and inputs.reuse_bytes >= 2 * L2
    with pytest.raises(MonomoeError, match="cannot be timed cold"):
        make_inputs(small, 2, trace.name, 10 * L2, 0, torch.device("cpu"), trace=trace)


def test_experts_that_no_token_may_choose_together(tmp_path: Path) -> None:
    shape = load_shape("deepseek-v3.1-tp8")
    spread = (torch.arange(8) * shape.group_experts)[None]  # one of each of eight groups
    trace = save(tmp_path / "routing.npz", shape.experts, [(0, 0, spread)])
    with pytest.raises(MonomoeError, match="do not let a token choose together"):
        rotation(shape, 1, trace.name, 32, L2, 0, trace)


GOOD = {
    "experts": np.array(QWEN.experts),
    "step": np.array([0, 1]),
    "layer": np.array([0, 0]),
    "tokens": np.array([1, 2]),
    "ids": np.arange(3 * QWEN.top_k).reshape(3, QWEN.top_k),
}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"ids": None}, "holds experts, layer, step, tokens; wanted"),
        ({"more": np.array(1)}, "holds experts, ids, layer, more"),
        ({"ids": GOOD["ids"] * 1.0}, "ids is of float64"),
        ({"ids": GOOD["ids"] - 1}, "ids: -1 is negative"),
        ({"ids": GOOD["ids"] + QWEN.experts - 23}, "row 2: 256 is none of 256 experts"),
        ({"ids": GOOD["ids"] // 2}, "row 0: an expert comes twice"),
        ({"ids": GOOD["ids"][:2]}, "should have a row for each of 3 tokens"),
        ({"ids": GOOD["ids"][0]}, "should have a row"),
        ({"tokens": np.array([3, 0])}, "a launch without tokens"),
        ({"tokens": np.array([3])}, "one number a launch"),
        ({"tokens": np.array(3)}, "one number a launch"),
        ({"step": np.array([1, 1])}, "step and layer comes twice"),
        ({"step": np.array([2**40, 1])}, "is more than"),
        ({"experts": np.array([256])}, "experts is one number"),
        ({"experts": np.array(512)}, "holds 512 experts, 8 for a token; qwen3.5-35b has 256, 8"),
        ({"ids": GOOD["ids"][:, :4]}, "256 experts, 4 for a token"),
    ],
)
def test_a_file_that_is_refused(
    changes: dict[str, np.ndarray | None], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "routing.npz"
    arrays = {name: array for name, array in (GOOD | changes).items() if array is not None}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(DatabaseError, match=complaint) as caught:
        load(path, QWEN)
    assert str(path) in str(caught.value)
    np.savez(path, **GOOD)  # type: ignore[arg-type]
    assert len(load(path, QWEN).launches) == 2


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 torn"])
def test_a_file_of_something_else(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "routing.npz"
    path.write_bytes(content)
    with pytest.raises(DatabaseError):
        load(path, QWEN)


def test_nothing_is_written_when_ids_are_out_of_range(tmp_path: Path) -> None:
    path = tmp_path / "routing.npz"
    for launches in ([], [(0, 0, torch.tensor([300]))], [(0, 0, torch.tensor([[300]]))]):
        with pytest.raises(DatabaseError):
            save(path, QWEN.experts, launches)
    assert not path.exists()


def test_the_worker_reads_the_file_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testbed, "CUDA", torch.device("cpu"))
    path = tmp_path / "routing.npz"
    trace = save(path, QWEN.experts, captured(QWEN))
    bed = testbed.Testbed(QWEN, KNOWN["nvidia-h200"], 0, trace_file=str(path))
    wanted = make_inputs(QWEN, 2, trace.name, L2, 0, torch.device("cpu"), trace=trace)
    assert torch.equal(bed.inputs(2, trace.name).logits, wanted.logits)
    with pytest.raises(MonomoeError, match="take at least one of each and one of"):
        testbed.Testbed(QWEN, KNOWN["nvidia-h200"], 0).inputs(2, trace.name)
