"""The database survives what happens to files: killed writers, two at once, a full disk, edits."""

import dataclasses
import json
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from monomoe_gen import tuning_db
from monomoe_gen.errors import DatabaseError
from monomoe_gen.schedule import Schedule
from monomoe_gen.tuning_db import Binary, Errors, Record, Time

SCHEDULE = Schedule(grid=132, g_up=64, k_up=1024, g_down=128, k_down=512, d_up=8, d_down=8)


def record(median: float | None = 14.5, **changes: object) -> Record:
    values = {
        "tokens": 1,
        "token_tile": 8,
        "schedule": SCHEDULE.to_dict(),
        "sources_hash": "ab" * 32,
        "compiler": "nvrtc 13.0.88",
        "status": "ok" if median else "wrong",
        "stage": "screen",
        "routing": "uniform",
        "time_us": Time(median, median - 0.1, median + 0.4, 200) if median else None,
        "floor_us": 7.5,
        "empty_us": 0.57,
        "distinct_experts": 8.0,
        "errors": {"gaussian": Errors(0.9991, 0.04, 0.0012)},
        "binary": Binary(64, 0, 196864, "cd" * 32),
        "env": {"driver": "580.159.04", "uuid": "GPU-1", "sms": 132, "power_cap_w": 700.0},
        "message": "",
        "at": "2025-11-29T17:00:00+00:00",
    }
    return Record(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tuning_db.database_path("nvidia-h200", "qwen3.5-35b", tmp_path)


def test_records_come_back_as_they_went(path: Path) -> None:
    sent = [record(), record(None, message="token 3: cosine 0.71 < 0.998", errors={}, binary=None)]
    for item in sent:
        tuning_db.append(path, item)
    assert tuning_db.read(path) == sent
    header = json.loads(path.read_text().splitlines()[0])
    assert header == {"format": 1, "gpu": "nvidia-h200", "shape": "qwen3.5-35b"}
    assert path == path.parents[1] / "nvidia-h200" / "qwen3.5-35b.jsonl"


def test_a_missing_file_holds_no_records(path: Path) -> None:
    assert tuning_db.read(path) == []


@pytest.mark.parametrize("cut", ["header", "record"])
def test_a_torn_last_line_is_reported_and_repaired(
    path: Path, cut: str, caplog: pytest.LogCaptureFixture
) -> None:
    tuning_db.append(path, record(14.5))
    whole = path.read_bytes()
    kept = [record(14.5)] if cut == "record" else []
    torn = whole + whole.splitlines()[1][:300] if cut == "record" else whole[:20]
    path.write_bytes(torn)
    line = 3 if cut == "record" else 1

    with caplog.at_level(logging.WARNING):
        assert tuning_db.read(path) == kept
    assert f"{path}:{line}: an unfinished line" in caplog.text
    assert path.read_bytes() == torn, "reading changes nothing"

    caplog.clear()
    with caplog.at_level(logging.WARNING):
        tuning_db.append(path, record(15.5))
    assert "is removed" in caplog.text
    caplog.clear()
    assert tuning_db.read(path) == [*kept, record(15.5)]
    assert not caplog.text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"colour": "red"}, "colour: unknown field"),
        (
            {"time_us": {"median": 1.0, "p10": 1.0, "p90": 1.0, "n": 3, "mean": 1.0}},
            "unknown field",
        ),
        ({"tokens": "1"}, "tokens"),
        ({"status": "fine"}, "status"),
        ({"time_us": None}, "time_us belongs to status ok"),
        ({"status": "wrong"}, "time_us belongs to status ok"),
        ({"schedule": {"grid": 132}}, "missing"),
        ({"tokens": 9}, "9 tokens do not fit"),
    ],
)
def test_a_strange_record_is_refused_with_file_and_line(
    path: Path, change: dict[str, object], complaint: str
) -> None:
    tuning_db.append(path, record())
    tuning_db.append(path, record())
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), **change})
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DatabaseError, match=complaint) as caught:
        tuning_db.read(path)
    assert (caught.value.path, caught.value.line) == (path, 2)


def test_broken_lines_and_other_formats_are_refused(path: Path) -> None:
    tuning_db.append(path, record())
    header, line = path.read_text().splitlines()
    path.write_text(f"{header}\n{line[:50]}\n{line}\n")
    with pytest.raises(DatabaseError, match=r"qwen3\.5-35b\.jsonl:2: "):
        tuning_db.read(path)
    path.write_text(header.replace('"format":1', '"format":2') + "\n")
    with pytest.raises(DatabaseError, match="format 2 is newer than this program"):
        tuning_db.read(path)
    with pytest.raises(DatabaseError, match="format 2"):
        tuning_db.append(path, record())


def test_a_file_under_another_name_is_refused(path: Path) -> None:
    tuning_db.append(path, record())
    moved = path.with_name("glm-5.2-tp8.jsonl")
    path.rename(moved)
    with pytest.raises(DatabaseError, match=r"its place is nvidia-h200/qwen3\.5-35b\.jsonl"):
        tuning_db.read(moved)


WRITER = """
import sys
from pathlib import Path
from monomoe_gen import tuning_db
path, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
template = tuning_db.read(Path(sys.argv[4]))[0]
import dataclasses
for i in range(count):
    tuning_db.append(path, dataclasses.replace(template, message=f"{who} {i} " + "x" * 3000))
    print(i, flush=True)
"""


def start_writer(path: Path, who: str, count: int) -> "subprocess.Popen[str]":
    template = path.with_name("template.jsonl")
    if not template.exists():
        tuning_db.append(template, record())
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), who, str(count), str(template)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_writers_share_a_file(path: Path) -> None:
    writers = [start_writer(path, who, 60) for who in ("a", "b")]
    for writer in writers:
        _, stderr = writer.communicate(timeout=60)
        assert writer.returncode == 0, stderr
    messages = [r.message.split()[:2] for r in tuning_db.read(path)]
    for who in ("a", "b"):
        assert [int(i) for w, i in messages if w == who] == list(range(60))


def test_a_killed_writer_loses_nothing_it_had_reported(path: Path) -> None:
    writer = start_writer(path, "a", 100000)
    assert writer.stdout
    for _ in range(20):
        reported = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    reported = max([reported, *map(int, writer.stdout.read().split())])
    writer.communicate()
    tuning_db.append(path, record(message="after"))
    messages = [r.message for r in tuning_db.read(path)]
    assert messages[-1] == "after"
    assert len(messages) - 1 in (reported + 1, reported + 2)


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_it_whole(path: Path) -> None:
    tuning_db.append(path, record())
    before = path.read_bytes()
    limit = len(before) + 100  # the next record reaches the disk only in part
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from monomoe_gen import tuning_db\n"
        "path = Path(sys.argv[1])\n"
        "item = tuning_db.read(path)[0]\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "tuning_db.append(path, item)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True
    )
    assert f"DatabaseError: {path}: the record cannot be written" in done.stderr
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nvidia-h200").write_text("in the way")
    with pytest.raises(DatabaseError, match="nvidia-h200"):
        tuning_db.append(tuning_db.database_path("nvidia-h200", "m", tmp_path), record())


def test_merge_adds_what_is_missing_once(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / path.name
    for median in (14.0, 15.0):
        tuning_db.append(other, record(median))
    tuning_db.append(path, record(15.0))
    assert tuning_db.merge(path, other) == 1
    assert tuning_db.merge(path, other) == 0
    assert tuning_db.read(path) == [record(15.0), record(14.0)]


def test_frame_has_a_row_a_record_and_flat_columns() -> None:
    table = tuning_db.frame([record(14.5), record(None, tokens=2)])
    assert list(table["tokens"]) == [1, 2]
    assert table["time_us.median"][0] == 14.5
    assert table["schedule.g_up"][1] == 64
    assert table["errors.gaussian.cosine"][0] == pytest.approx(0.9991)


def test_lines_of_usual_kernels_say_nothing_of_variants(path: Path) -> None:
    inside = dataclasses.replace(record(), router="weight", pdl=True)
    tuning_db.append(path, record())
    tuning_db.append(path, inside)
    usual, varied = path.read_text().splitlines()[1:]
    assert "router" not in usual and "pdl" not in usual
    assert '"layout":"packed","router":"weight","pdl":true,"at"' in varied
    assert tuning_db.read(path) == [record(), inside]


def test_records_without_a_layout_are_of_packed_weights(path: Path) -> None:
    tuning_db.append(path, record())
    path.write_text(path.read_text().replace('"layout":"packed",', ""))
    assert "layout" not in path.read_text()
    assert tuning_db.read(path) == [record()]
