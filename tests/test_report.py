"""The README's table is what ``bench.json`` and the published figures say, and nothing else."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.paths import checkout, data_dir
from monomoe_gen.report import (
    BEGIN,
    END,
    Result,
    merge_results,
    read_anchors,
    read_results,
    replace_results,
    results_table,
    write_results,
)
from monomoe_gen.shapes import load_shape

GENERATED = data_dir("generated") / "nvidia-h200"
ONE = Result(
    model="qwen3.5-35b",
    tokens=1,
    time_us=14.0,
    floor_us=7.0,
    ratio=2.0,
    bandwidth_gb_s=1797.6,
    distinct_experts=8.0,
    cosine=0.9991,
    schedule="g132-u64x1024x8-d128x512x8",
    routing="uniform",
)


def test_the_readme_shows_the_committed_results() -> None:
    top = checkout()
    assert top is not None
    readme = (top / "README.md").read_text(encoding="utf-8")
    anchors = read_anchors(GENERATED / "anchors.json")
    table = results_table(read_results(GENERATED / "bench.json"), anchors)
    assert readme == replace_results(readme, table), "README.md is stale: run `make readme`"


def test_the_committed_results_agree_with_themselves() -> None:
    for result in read_results(GENERATED / "bench.json"):
        assert result.ratio == pytest.approx(result.time_us / result.floor_us, rel=0.01), result
        streamed = result.distinct_experts * load_shape(result.model).expert_bytes
        assert result.bandwidth_gb_s == pytest.approx(streamed / result.time_us / 1000, rel=0.01)
        assert result.cosine >= 0.998, result


def test_a_row_names_the_better_published_time() -> None:
    anchors = read_anchors(GENERATED / "anchors.json")
    *_, row = results_table([ONE], anchors).splitlines()
    assert row == (
        "| qwen3.5-35b | 1 | **14.0** | 7.0 | 2.00 | 1.80 | 21.5 | 25.1 | 1.53x | 0.99910 |"
    )


def test_only_uniform_routing_is_compared_and_an_unknown_model_has_no_anchor() -> None:
    rows = [replace(ONE, model="toy"), ONE, replace(ONE, routing="zipf", time_us=99.0)]
    table = results_table(rows, read_anchors(GENERATED / "anchors.json"))
    assert "99.0" not in table
    assert table.splitlines()[-1].startswith("| toy | 1 | **14.0** |")
    assert "| - | - | - |" in table.splitlines()[-1]


def test_a_round_trip_is_sorted(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    write_results(path, [replace(ONE, tokens=8), ONE, replace(ONE, model="a")])
    assert [(r.model, r.tokens) for r in read_results(path)] == [
        ("a", 1),
        ("qwen3.5-35b", 1),
        ("qwen3.5-35b", 8),
    ]
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]


def test_new_results_replace_those_of_their_model() -> None:
    old = [ONE, replace(ONE, tokens=2), replace(ONE, model="a"), replace(ONE, routing="same")]
    new = [replace(ONE, time_us=13.0)]
    assert merge_results(old, new) == [*old[2:], new[0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("{}", "must be a list"),
        ("[1]", r"\[0\]: must be an object"),
        (json.dumps([{**asdict(ONE), "extra": 1}]), "extra: unknown field"),
        (json.dumps([asdict(ONE), {"model": "x"}]), r"\[1\].tokens: missing"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DatabaseError, match=words):
        read_results(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "cannot be read"),
        (b"{", "no published figures"),
        (b"{}", "no published figures"),
        (b"[1]", "no published figures"),
        (b"\xff", "no published figures"),
    ],
)
def test_broken_anchors_are_refused(tmp_path: Path, data: bytes | None, words: str) -> None:
    path = tmp_path / "anchors.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(DatabaseError, match=words):
        read_anchors(path)


def test_the_block_is_replaced_and_nothing_else() -> None:
    text = f"above\n{BEGIN}\nold\n{END}\nbelow\n"
    assert replace_results(text, "new") == f"above\n{BEGIN}\n\nnew\n\n{END}\nbelow\n"
    with pytest.raises(MonomoeError, match="no results block"):
        replace_results("no markers", "new")
