"""What `check` finds without a GPU, in a small project of its own with real compilations."""

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from monomoe_gen import candidates, cli, cubin_cache, dispatch, inspection, sass, tuning_db
from monomoe_gen.compile import compile_source
from monomoe_gen.device import KNOWN
from monomoe_gen.dispatch import Table
from monomoe_gen.emit import emit
from monomoe_gen.inspection import Inspection, Reference, Remark, compare_resources, inspect
from monomoe_gen.placement import code_of, moved
from monomoe_gen.render import render
from monomoe_gen.sass import Loop
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.tuning_db import Binary, Record, Time

H200 = KNOWN["nvidia-h200"]
SCHEDULE = Schedule(grid=132, g_up=64, k_up=1024, g_down=128, k_down=512, d_up=8, d_down=8)
TOY_SCHEDULE = Schedule(grid=128, g_up=2, k_up=128, g_down=2, k_down=128, d_up=3, d_down=4)
MODEL = "qwen3.5-35b"
MAIN = """\
// sources ${sources_hash}
#include "body.cuh"
extern "C" __global__ void ${kernel_name}(int* out) { *out = body(out) + ${schedule.grid}; }
"""
BODY = "#pragma once\n__device__ inline int body(int*) { return 1; }\n"
GREEDY = """\
#pragma once
__device__ inline int body(int* p) {
  int v[64], sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = reinterpret_cast<volatile int*>(p)[i];
#pragma unroll
  for (int i = 0; i < 64; ++i) sum += v[i] * v[63 - i] ^ v[(7 * i) % 64];
  return sum;
}
"""


class Place:
    """Templates, database and the folder of the table, with one kernel tuned for 1 token."""

    def __init__(self, root: Path) -> None:
        self.templates, self.database = root / "templates", root / "tuning_db"
        self.folder = root / "generated" / H200.slug
        self.templates.mkdir()
        (self.templates / "monomoe.cu.j2").write_text(MAIN)
        (self.templates / "body.cuh").write_text(BODY)

    def emit(
        self, floor_us: float | None = 8.0, model: str = MODEL, schedule: Schedule = SCHEDULE
    ) -> None:
        binary = compile_source(render(KernelSpec(load_shape(model), schedule)))
        record = Record(
            tokens=1,
            token_tile=8,
            schedule=schedule.to_dict(),
            sources_hash=binary.sources_hash,
            compiler=binary.compiler,
            status="ok",
            stage="final",
            routing="uniform",
            time_us=Time(10.0, 9.9, 10.1, 200),
            floor_us=floor_us,
            empty_us=0.8,
            distinct_experts=8.0,
            errors={},
            binary=Binary(binary.registers, 0, binary.shared_bytes, binary.text_hash),
            env={"sm_clock_mhz": 1980},
        )
        tuning_db.append(self.records(model), record)
        emit(H200, [model], database=self.database, folder=self.folder)

    def records(self, model: str) -> Path:
        return tuning_db.database_path(H200.slug, model, self.database)

    def inspect(self, baseline: Path | None = None) -> Inspection:
        return inspect(H200, self.folder, baseline, self.database)

    def edit_table(self, change: Callable[[Table], Table]) -> None:
        path = self.folder / dispatch.FILE
        path.write_text(dispatch.dump(change(dispatch.load(self.folder))))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    monkeypatch.setattr("monomoe_gen.render.data_dir", lambda name: found.templates)
    monkeypatch.setenv(cubin_cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    found.emit()
    return found


def statuses(found: Inspection) -> Counter[str]:
    return Counter(f"{remark.check} {remark.status}" for remark in found.remarks)


def one(found: Inspection, check: str) -> Remark:
    (remark,) = (r for r in found.remarks if r.check == check)
    return remark


def test_nothing_changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "find_disassembler", lambda: None)
    found = place.inspect()
    assert set(statuses(found)) == {"files ok", "resources ok", "loops note"}
    assert statuses(found)["files ok"] >= 2  # the kernel and its entry
    assert " registers" in one(found, "resources").message
    assert one(found, "loops").message == "no nvdisasm or cuobjdump: loops not counted"


def test_a_template_that_changed_is_stale_and_its_growth_is_seen(place: Place) -> None:
    (place.templates / "body.cuh").write_text(GREEDY)
    found = place.inspect()
    assert statuses(found)["files stale"] == 1
    grown = one(found, "resources")
    assert grown.status == "grew"
    assert " registers" in grown.message and " -> " in grown.message
    (place.templates / "body.cuh").write_text(BODY.replace("return 1", "return 2"))
    assert one(place.inspect(), "resources").status == "ok"


def test_the_baseline_may_be_another_folder(place: Place, tmp_path: Path) -> None:
    """The branch emitted its greedier kernel, so it is consistent, and worse than the main one."""
    before = tmp_path / "before"
    place.folder.rename(before)
    (place.templates / "body.cuh").write_text(GREEDY)
    place.emit()
    assert one(place.inspect(), "resources").status == "ok"
    found = place.inspect(before)
    assert statuses(found)["files stale"] == 0
    assert one(found, "resources").status == "grew"


def test_the_database_and_the_cubins_have_to_agree(place: Place) -> None:
    entry = dispatch.load(place.folder).entries[0]
    faster = dataclasses.replace(entry, time_us=9.0)
    place.edit_table(lambda table: dataclasses.replace(table, entries=(faster,)))
    assert any("no record of the database" in r.message for r in place.inspect().remarks)
    place.edit_table(lambda table: dataclasses.replace(table, entries=(entry,)))
    cubin = next(place.folder.glob("*.cubin"))
    cubin.write_bytes(cubin.read_bytes() + b"x")
    found = place.inspect()
    assert statuses(found)["files stale"] == 1
    assert one(found, "resources").message.startswith("not compared: ")


@pytest.fixture
def check(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[dict[str, str]]]:
    """Runs `check` on the project: the rows of its inspection, as its report has them."""
    monkeypatch.setattr(dispatch, "table_folder", lambda gpu: place.folder)
    monkeypatch.setattr(tuning_db, "tuning_db_dir", lambda: place.database)
    report = tmp_path / "report.json"

    def run(*arguments: str, code: int) -> list[dict[str, str]]:
        report.unlink(missing_ok=True)
        assert cli.run(["check", "--no-gpu", "--write", str(report), *arguments]) == code
        found: list[dict[str, str]] = json.loads(report.read_text())["inspection"]
        return found

    return run


def test_a_bad_database_is_a_row_of_its_model_only(
    place: Place, check: Callable[..., list[dict[str, str]]]
) -> None:
    place.emit(model="toy", schedule=TOY_SCHEDULE)
    before = check(code=0)
    path = place.records(MODEL)
    path.write_text(path.read_text() + '{"tokens": 1}\n')
    rows = check("--model", "toy", code=3)
    (bad,) = (row for row in rows if row["status"] == "stale")
    assert bad["subject"] == f"records of {MODEL}"
    assert f"{path}:3: " in bad["message"] and bad["message"].endswith(tuning_db.MEND)
    assert [row for row in rows if row != bad] == [
        row for row in before if row["subject"] != f"{MODEL}, 1 tokens"
    ], "all the rest is inspected as ever"
    pair = next(p for p in pairs(place) if p.cell.model == MODEL)
    assert pair.recorded == candidates.Recorded(10.0 / 8.0, None), "and it can be timed"


@pytest.mark.parametrize(
    ("text", "words"), [(None, "run `monomoe-gen tune`"), ("{", "`monomoe-gen emit` makes it anew")]
)
def test_a_lost_table_is_a_row(
    place: Place,
    check: Callable[..., list[dict[str, str]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    words: str,
) -> None:
    table = place.folder / dispatch.FILE
    table.unlink() if text is None else table.write_text(text)
    (row,) = check("--model", "toy", code=3)
    assert (row["subject"], row["status"]) == ("dispatch table", "stale")
    assert str(table) in row["message"] and words in row["message"]
    monkeypatch.setattr("monomoe_gen.device.current_device", lambda: H200)
    assert cli.run(["check", "--require-gpu"]) == 5, "there is nothing to time"
    assert "asked for times with --require-gpu: " in capsys.readouterr().err


def test_a_missing_text_of_the_baseline_is_named(place: Place) -> None:
    (place.templates / "body.cuh").write_text(GREEDY)
    next(place.folder.glob("*.cu")).unlink()
    message = one(place.inspect(), "resources").message
    assert message.startswith("not compared: ")
    assert message.endswith(".cu: cannot be read: No such file or directory")


def test_another_compiler_is_told_apart_from_a_change(place: Place) -> None:
    place.edit_table(
        lambda table: dataclasses.replace(
            table,
            kernels=tuple(
                dataclasses.replace(k, compiler="nvrtc 0.0", registers=k.registers - 1)
                for k in table.kernels
            ),
        )
    )
    found = place.inspect()
    assert statuses(found)["files note"] == 1
    remark = one(found, "resources")
    assert remark.status == "note"
    assert "nvrtc 0.0 -> nvrtc" in remark.message


def test_growth_of_anything_counts() -> None:
    binary = compile_source(render(KernelSpec(load_shape(MODEL), SCHEDULE)))
    now = {name: getattr(binary, name) for name in inspection.RESOURCES}
    for name in inspection.RESOURCES:
        before = Reference({**now, name: now[name] - 1}, b"", binary.compiler)
        assert compare_resources("k", before, binary).status == "grew"
        before = Reference({**now, name: now[name] + 1}, b"", binary.compiler)
        assert compare_resources("k", before, binary).status == "note"
        before = Reference({**now, name: None}, b"", binary.compiler)
        assert compare_resources("k", before, binary).status == "ok"


def test_loops_are_reported_next_to_those_of_the_baseline(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = next(place.folder.glob("*.cubin")).read_bytes()
    asked = []

    def main_loops(cubin: bytes, name: str, tool: tuple[str, ...]) -> tuple[Loop, ...]:
        asked.append(cubin)
        if cubin == old:
            return Loop("copy", {"A": 5}), Loop("matrix", {"B": 7})
        return Loop("copy", {"C": 5}), Loop("matrix", {"B": 9}), Loop("matrix", {"D": 1})

    monkeypatch.setattr(sass, "find_disassembler", lambda: ("tool",))
    monkeypatch.setattr(sass, "main_loops", main_loops)
    remark = one(place.inspect(), "loops")
    assert (remark.status, len(asked)) == ("ok", 1)  # the same bytes are looked at once
    (place.templates / "body.cuh").write_text(GREEDY)
    remark = one(place.inspect(), "loops")
    assert remark.status == "note"
    assert remark.message == (
        "instructions of the main loops: copy 5 (other opcodes), matrix 7 -> 9, matrix none -> 1"
    )


def pairs(
    place: Place, baseline: Path | None = None, routings: tuple[str, ...] = ("uniform",)
) -> list[candidates.Pair]:
    found = place.inspect()
    made, failed = candidates.make_pairs(
        found.table, found.rebuilt, baseline or place.folder, [], [], routings, place.database
    )
    assert not failed
    return made


def test_what_is_compared_with_what(place: Place, tmp_path: Path) -> None:
    same, zipf = pairs(place, routings=("uniform", "zipf"))
    assert (same.method, zipf.method) == ("floor", "same")
    assert same.recorded == candidates.Recorded(10.0 / 8.0, 1980)
    (place.templates / "body.cuh").write_text(GREEDY)
    (changed,) = pairs(place)
    assert changed.method == "paired"
    assert changed.baseline and changed.baseline.image.cubin != changed.candidate.image.cubin
    next(place.folder.glob("*.cubin")).unlink()
    (lost,) = pairs(place)
    assert (lost.method, lost.baseline) == ("floor", None)


def test_a_baseline_of_another_problem_is_none(place: Place, tmp_path: Path) -> None:
    before = tmp_path / "before"
    shutil.copytree(place.folder, before)
    (place.templates / "body.cuh").write_text(GREEDY)
    path = before / dispatch.FILE
    text = path.read_text()
    path.write_text(text.replace('"source": "', '"source": "once '))
    (said,) = pairs(place, before)
    assert said.method == "paired" and said.baseline
    assert said.baseline.spec.shape == said.candidate.spec.shape
    path.write_text(text.replace('"renormalize": true', '"renormalize": false'))
    (other,) = pairs(place, before)
    assert (other.method, other.baseline) == ("floor", None)


def test_a_baseline_of_an_older_format_is_none(place: Place, tmp_path: Path) -> None:
    """It does not say how much workspace its cubins need, so none is launched."""
    before = tmp_path / "before"
    shutil.copytree(place.folder, before)
    path = before / dispatch.FILE
    raw = json.loads(path.read_text()) | {"format": 1}
    for row in raw["kernels"]:
        del row["workspace_half_bytes"]
    path.write_text(json.dumps(raw))
    (place.templates / "body.cuh").write_text(GREEDY)
    place.emit()
    found = place.inspect(before)
    (remark,) = (r for r in found.remarks if r.status != "ok" and r.check == "files")
    assert (remark.subject, remark.status) == ("baseline", "note")
    assert "has format 1, this program reads format 2" in remark.message
    assert not any(r.check == "resources" for r in found.remarks)
    uniform, zipf = (
        candidates.make_pairs(
            found.table, found.rebuilt, before, [], [], [routing], place.database
        )[0][0]
        for routing in ("uniform", "zipf")
    )
    assert (uniform.method, uniform.baseline) == ("floor", None)
    assert (zipf.method, zipf.baseline) == ("none", None)


def test_a_baseline_is_launched_with_the_workspace_that_it_asks_for(
    place: Place, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    place.edit_table(
        lambda table: dataclasses.replace(
            table,
            kernels=tuple(
                dataclasses.replace(k, workspace_half_bytes=k.workspace_half_bytes + 4096)
                for k in table.kernels
            ),
        )
    )
    place.folder.rename(before)
    (place.templates / "body.cuh").write_text(GREEDY)
    place.emit()
    (pair,) = pairs(place, before)
    assert pair.method == "paired" and pair.baseline
    needed = pair.candidate.spec.geometry.workspace_half_bytes
    assert pair.candidate.image.half_bytes == needed
    assert pair.baseline.image.half_bytes == needed + 4096


def test_a_kernel_that_does_not_compile_has_no_pair(place: Place) -> None:
    (place.templates / "body.cuh").write_text("#pragma once\nnonsense\n")
    found = place.inspect()
    made, failed = candidates.make_pairs(
        found.table, found.rebuilt, place.folder, [], [1, 3], ["uniform"], place.database
    )
    assert made == []
    assert sorted(cell.tokens for cell in failed) == [1, 3]
    assert all("nonsense" in reason for reason in failed.values())


def test_a_moved_kernel_is_the_same_at_another_place(place: Place) -> None:
    made = pairs(place)
    (identical,), (placed,) = candidates.a_a_pairs(made, H200)
    assert identical.method == placed.method == "paired"
    assert identical.baseline == identical.candidate
    assert placed.baseline
    one, other = placed.candidate.image, placed.baseline.image
    assert one.cubin != other.cubin
    assert code_of(one.cubin, one.name) == code_of(other.cubin, other.name)
    assert one.cubin.index(code_of(one.cubin, one.name)) != other.cubin.index(
        code_of(other.cubin, other.name)
    )


def test_a_dispatched_kernel_can_be_moved() -> None:
    kernel = dispatch.load(dispatch.table_folder()).kernels[0]
    source = render(kernel.spec)
    binary, copy = compile_source(source), compile_source(moved(source))
    assert copy.registers == binary.registers
    assert code_of(copy.cubin, kernel.kernel_name) == code_of(binary.cubin, kernel.kernel_name)
