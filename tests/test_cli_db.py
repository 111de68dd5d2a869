"""``db``: what is shown, merged and exported, and what it says of other formats."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monomoe_gen import cli, tuning_db
from monomoe_gen.cli import database as module
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible
from monomoe_gen.t4 import INVALIDITY
from monomoe_gen.tuning_db import Record, Time

MODEL, OTHER = "qwen3.5-35b", "glm-5.2-tp8"
A, B, *_ = feasible(load_shape(MODEL), KNOWN[DEFAULT])
GOOD = Record(
    tokens=1,
    token_tile=8,
    schedule=A.to_dict(),
    sources_hash="0" * 64,
    compiler="nvrtc 0.0",
    status="ok",
    stage="screen",
    routing="uniform",
    time_us=Time(12.0, 11.9, 12.5, 20),
    floor_us=8.0,
    empty_us=0.6,
    distinct_experts=8.0,
    errors={},
    binary=None,
    env={"uuid": "GPU-0"},
    at="2026-01-01T00:00:00+00:00",
)
FINAL = replace(GOOD, stage="final", time_us=Time(12.2, 12.0, 12.4, 600))
BAD = replace(
    GOOD, schedule=B.to_dict(), status="timeout", time_us=None, message="hangs\nfor ever", tokens=1
)
EIGHT = replace(GOOD, tokens=8)
RECORDS = [GOOD, BAD, EIGHT, FINAL]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "tuning_db"
    monkeypatch.setattr(tuning_db, "tuning_db_dir", lambda: made)
    for record in RECORDS:
        tuning_db.append(tuning_db.database_path(DEFAULT, MODEL), record)
    tuning_db.append(tuning_db.database_path(DEFAULT, OTHER), EIGHT)
    return made


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert cli.run(["db", "show", "--format", "json", *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert isinstance(rows, list)
    return rows


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ([], 5),
        (["--model", OTHER], 1),
        (["--tokens", "8"], 2),
        (["--status", "timeout", "--status", "wrong"], 1),
        (["--stage", "final"], 1),
        (["--routing", "uniform", "--model", MODEL, "--tokens", "1", "--stage", "screen"], 2),
        (["--last", "2"], 2),
    ],
)
def test_records_are_chosen(
    arguments: list[str], count: int, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(shown(capsys, *arguments)) == count


def test_a_row_says_what_became_of_a_candidate(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = shown(capsys, "--status", "timeout")
    assert (row["schedule"], row["time_us"], row["message"]) == (B.id, None, "hangs")


def test_another_database_is_merged_once(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    new = replace(GOOD, tokens=4)
    for model in (MODEL, "deepseek-v3.1-tp8"):
        tuning_db.append(tuning_db.database_path(DEFAULT, model, elsewhere), new)
    tuning_db.append(tuning_db.database_path(DEFAULT, MODEL, elsewhere), GOOD)
    assert cli.run(["db", "merge", str(elsewhere)]) == 0
    assert capsys.readouterr().err.count("1 records added") == 2
    assert tuning_db.read(root / DEFAULT / f"{MODEL}.jsonl") == [*RECORDS, new]
    assert cli.run(["db", "merge", str(elsewhere / DEFAULT / f"{MODEL}.jsonl")]) == 0
    assert "0 records added" in capsys.readouterr().err


def test_a_table_for_other_programs(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    assert cli.run(["db", "export", "--format", "csv", "-o", str(path)]) == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 5
    assert rows[-1]["model"] == MODEL and float(rows[-1]["time_us.median"]) == 12.2
    assert {r["schedule.grid"] for r in rows} >= {str(A.grid)}


def test_a_parquet_file_reads_back_as_the_records(root: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow: the extra [parquet]")
    path = tmp_path / "out.parquet"
    assert cli.run(["db", "export", "--format", "parquet", "-o", str(path)]) == 0
    rows = parquet.read_table(path).to_pylist()
    assert [row["model"] for row in rows] == [OTHER] + [MODEL] * 4
    for row, record in zip(rows, [EIGHT, *RECORDS], strict=True):
        time_us = record.time_us.median if record.time_us else None
        for name in ("tokens", "stage", "status", "message", "at"):
            assert row[name] == getattr(record, name), name
        assert row["time_us.median"] == time_us and row["env.uuid"] == "GPU-0"
        assert {name: row[f"schedule.{name}"] for name in record.schedule} == record.schedule


def test_t4_has_what_its_schema_requires(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    chosen = ["--model", MODEL, "--tokens", "1"]
    assert cli.run(["db", "export", "--format", "t4", "-o", str(path), *chosen]) == 0
    document = json.loads(path.read_text())
    assert document["schema_version"] == "1.0.0"
    bad, good = sorted(document["results"], key=lambda r: r["correctness"])
    for result in (bad, good):
        assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
        assert set(result["times"]) <= {
            "compilation_time", "runtimes", "framework", "search_algorithm", "validation",
        }  # fmt: skip
    assert good["configuration"] == A.to_dict() and good["invalidity"] == "correct"
    assert {"name": "time", "value": 0.0122, "unit": "ms"} in good["measurements"]
    assert (bad["invalidity"], bad["measurements"]) == ("timeout", [])
    allowed = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
    assert set(INVALIDITY) == set(module.STATUSES) and set(INVALIDITY.values()) <= allowed


def test_there_is_one_format_and_newer_ones_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*.jsonl")}
    assert cli.run(["db", "migrate"]) == 0
    assert capsys.readouterr().err.count("the only one; unchanged") == 2
    assert {path: path.read_bytes() for path in root.rglob("*.jsonl")} == before
    path = root / DEFAULT / f"{MODEL}.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    assert cli.run(["db", "migrate"]) == 2
    assert "format 2 is newer" in capsys.readouterr().err
    with pytest.raises(tuning_db.DatabaseError, match="upgrade monomoe-gen"):
        tuning_db.append(path, GOOD)
