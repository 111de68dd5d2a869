"""Emission: chosen by measurement, reproducible, and never changed by a mere replay."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from monomoe_gen import c_header, cubin_cache, dispatch, tuning_db
from monomoe_gen.compile import compile_source, compiler_version
from monomoe_gen.device import KNOWN
from monomoe_gen.emit import Emission, emit
from monomoe_gen.errors import CompileError, MonomoeError, NoKernel
from monomoe_gen.render import render
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.tuning_db import Binary, Record, Time
from monomoe_gen.variant import USUAL, Variant
from monomoe_gen.verify import Finding, verify

H200 = KNOWN["nvidia-h200"]
FAST = Schedule(grid=132, g_up=64, k_up=1024, g_down=128, k_down=512, d_up=8, d_down=8)
SLOW = dataclasses.replace(FAST, grid=128)
MODEL, OTHER_MODEL = "qwen3.5-35b", "glm-5.2-tp8"

MAIN = """\
// sources ${sources_hash}
#include "body.cuh"
extern "C" __global__ void ${kernel_name}(int* out) { *out = body() + ${schedule.grid}; }
"""
BODY = "#pragma once\n__device__ inline int body() { return 1; }\n"


class Place:
    """A project of its own: templates, database and output folder."""

    def __init__(self, root: Path) -> None:
        self.templates = root / "templates"
        self.database = root / "tuning_db"
        self.folder = root / "generated" / H200.slug
        self.templates.mkdir()
        (self.templates / "monomoe.cu.j2").write_text(MAIN)
        (self.templates / "body.cuh").write_text(BODY)

    def record(
        self,
        tokens: int,
        median: float,
        schedule: Schedule = FAST,
        model: str = MODEL,
        **changes: object,
    ) -> Record:
        """Adds a measurement of what the present templates and compiler give."""
        fields = ("layout", "router", "pdl")
        variant = {name: changes[name] for name in fields if name in changes}
        source = render(KernelSpec(load_shape(model), schedule, **variant))  # type: ignore[arg-type]
        values: dict[str, object] = {
            "tokens": tokens,
            "token_tile": 8,
            "schedule": schedule.to_dict(),
            "sources_hash": source.sources_hash,
            "compiler": compiler_version(),
            "status": "ok",
            "stage": "final",
            "routing": "uniform",
            "time_us": Time(median, median, median, 200),
            "floor_us": 7.5,
            "empty_us": 0.57,
            "distinct_experts": 8.0,
            "errors": {},
            "binary": None,
            "env": {},
            "at": f"2025-11-29T17:00:0{tokens}+00:00",
        }
        if "binary" not in changes:
            values["binary"] = Binary(32, 0, 0, compile_source(source).text_hash)
        made = Record(**{**values, **changes})  # type: ignore[arg-type]
        tuning_db.append(tuning_db.database_path(H200.slug, model, self.database), made)
        return made

    def emit(self, *models: str) -> Emission:
        return emit(H200, models or None, database=self.database, folder=self.folder)

    def verify(self) -> list[Finding]:
        return verify(H200, database=self.database, folder=self.folder)

    def wrong(self) -> dict[str, str]:
        return {f.subject: f.message for f in self.verify() if f.status == "wrong"}

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.setattr("monomoe_gen.render.data_dir", lambda name: made.templates)
    monkeypatch.setenv(cubin_cache.FOLDER_VARIABLE, str(tmp_path / "cache"))
    return made


def test_the_fastest_kernels_are_written_and_listed(place: Place) -> None:
    place.record(1, 14.0)
    place.record(1, 15.0, SLOW)
    place.record(2, 20.0)
    place.record(4, 33.0)
    place.record(4, 31.0, SLOW)
    emission = place.emit()
    fast, slow = (KernelSpec(load_shape(MODEL), s).id for s in (FAST, SLOW))
    assert sorted(emission.written) == sorted(
        [c_header.FILE, dispatch.FILE, f"{fast}.cu", f"{fast}.cubin", f"{slow}.cu", f"{slow}.cubin"]
    )
    assert not emission.notes
    table = dispatch.load(place.folder)
    assert table == emission.table
    assert [(e.tuned_at, e.kernel, e.time_us, e.capacity) for e in table.entries] == [
        (1, fast, 14.0, 8), (2, fast, 20.0, 8), (4, slow, 31.0, 8),
    ]  # fmt: skip
    match = dispatch.lookup(table, MODEL, 4)
    cubin = dispatch.read_cubin(place.folder, match.kernel)
    source = render(match.kernel.spec)
    assert cubin == compile_source(source).cubin
    assert match.entry.record.text_hash == match.kernel.cubin_sha256
    assert (place.folder / f"{slow}.cu").read_text() == source.bundle()


def test_each_layout_has_its_own_fastest_kernel(place: Place) -> None:
    place.record(1, 14.0)
    place.record(1, 15.0, layout="raw")
    place.record(1, 16.0, SLOW, layout="raw")
    table = place.emit().table
    packed, raw = (dispatch.lookup(table, MODEL, 1, v) for v in (USUAL, Variant("raw")))
    assert (packed.entry.time_us, raw.entry.time_us) == (14.0, 15.0)
    assert (packed.kernel.layout, raw.kernel.layout) == ("packed", "raw")
    assert raw.kernel.id == f"{packed.kernel.id}-raw"
    assert (place.folder / f"{raw.kernel.id}.cubin").exists()
    assert not place.wrong()
    assert place.emit().written == ()


def test_every_variant_has_entries_that_say_what_it_is(place: Place) -> None:
    place.record(1, 14.0)
    place.record(1, 15.0, router="weight")
    place.record(1, 13.0, pdl=True)
    place.record(1, 16.0, layout="raw", router="weight", pdl=True)
    table = place.emit().table
    found = {
        e.variant: (e.time_us, table.kernel(e).id.partition("-d128x512x8")[2])
        for e in table.entries
    }
    assert found == {
        USUAL: (14.0, ""),
        Variant(router="weight"): (15.0, "-router"),
        Variant(pdl=True): (13.0, "-pdl"),
        Variant("raw", "weight", True): (16.0, "-raw-router-pdl"),
    }
    assert not place.wrong()
    assert place.emit().written == ()
    text = (place.folder / dispatch.FILE).read_text()
    assert text.count('"pdl": true') == 4 and text.count('"router": "weight"') == 4
    (place.templates / "body.cuh").write_text(BODY.replace("1", "2"))
    place.record(1, 14.0)
    (note, *_) = place.emit().notes
    assert "packed weights, programmatic dependent launch: every record is of older" in note
    assert "`monomoe-gen tune --pdl`" in note


def test_emitting_again_changes_nothing(place: Place) -> None:
    place.record(1, 14.0)
    place.emit()
    before = place.files()
    emission = place.emit()
    assert (emission.written, emission.removed, emission.notes) == ((), (), ())
    assert place.files() == before
    assert Counter(f.status for f in place.verify()) == {"equal": 3}


def test_a_kernel_that_lost_is_removed_and_other_files_stay(place: Place) -> None:
    place.record(1, 14.0)
    place.emit()
    (place.folder / "bench.json").write_text("[]\n")
    place.record(1, 13.0, SLOW)
    emission = place.emit()
    lost = KernelSpec(load_shape(MODEL), FAST).id
    assert emission.removed == (f"{lost}.cu", f"{lost}.cubin")
    assert (place.folder / "bench.json").exists()


def test_one_model_can_be_emitted_alone(place: Place) -> None:
    place.record(1, 14.0)
    place.record(1, 18.0, model=OTHER_MODEL)
    place.emit()
    place.record(1, 13.0, SLOW)
    place.record(1, 17.0, SLOW, model=OTHER_MODEL)
    table = place.emit(MODEL).table
    assert {e.model: e.time_us for e in table.entries} == {MODEL: 13.0, OTHER_MODEL: 18.0}
    assert not place.wrong()


def test_one_model_can_be_verified_alone(place: Place) -> None:
    place.record(1, 14.0)
    place.record(1, 18.0, SLOW, model=OTHER_MODEL)
    table = place.emit().table
    own = next(kernel for kernel in table.kernels if kernel.shape.name == MODEL)
    (place.folder / f"{own.id}.cu").write_text("changed")
    found = verify(H200, [MODEL], database=place.database, folder=place.folder)
    assert [(f.subject, f.status) for f in found] == [
        (own.id, "wrong"),
        (f"{MODEL}, 1 tokens", "equal"),
        (c_header.FILE, "equal"),
    ]
    other = verify(H200, [OTHER_MODEL], database=place.database, folder=place.folder)
    assert Counter(f.status for f in other) == {"equal": 3}
    with pytest.raises(NoKernel, match="no kernel for toy on"):
        verify(H200, ["toy"], database=place.database, folder=place.folder)


def test_a_table_without_any_records_beside_it_is_not_wrong(place: Place) -> None:
    """That is how an installed table lies; a single missing database is another matter."""
    place.record(1, 14.0)
    place.record(1, 18.0, SLOW, model=OTHER_MODEL)
    place.emit()
    own, other = (
        tuning_db.database_path(H200.slug, model, place.database) for model in (MODEL, OTHER_MODEL)
    )
    own.unlink()
    assert place.wrong() == {f"{MODEL}, 1 tokens": "no record of the database has this time"}
    other.unlink()
    assert not place.wrong()
    (note,) = [f for f in place.verify() if f.status == "compiles"]
    assert note.message == "there are none, so the times of entries are not compared"


def as_if_by_another_compiler(place: Place) -> None:
    """The kernel in the folder and its record, had `nvrtc 99.0.1` made them."""
    cubin = b"\x7fELF of another compiler"
    digest = hashlib.sha256(cubin).hexdigest()
    place.record(1, 14.0, compiler="nvrtc 99.0.1", binary=Binary(40, 0, 0, digest))
    place.emit()
    table = dispatch.load(place.folder)
    kernel = dataclasses.replace(
        table.kernels[0], compiler="nvrtc 99.0.1", registers=40, cubin_sha256=digest
    )
    (place.folder / f"{kernel.id}.cubin").write_bytes(cubin)
    table = dataclasses.replace(table, kernels=(kernel,))
    (place.folder / dispatch.FILE).write_text(dispatch.dump(table))
    (place.folder / c_header.FILE).write_text(c_header.c_header(table))


def test_another_compiler_only_checks_and_says_so(place: Place) -> None:
    as_if_by_another_compiler(place)
    before = place.files()
    emission = place.emit()
    assert place.files() == before
    assert emission.written == ()
    (note,) = emission.notes
    assert "kept as compiled by nvrtc 99.0.1" in note
    assert f"{compiler_version()} only checked" in note
    kernel, entry, header = place.verify()
    assert (kernel.status, entry.status, header.status) == ("compiles", "equal", "equal")
    assert "bytes not compared" in kernel.message


def test_a_newly_measured_binary_replaces_an_older_one(place: Place) -> None:
    as_if_by_another_compiler(place)
    place.record(1, 13.9)
    emission = place.emit()
    assert emission.table.kernels[0].compiler == compiler_version()
    assert emission.notes == ()
    assert Counter(f.status for f in place.verify()) == {"equal": 3}


def test_a_missing_cubin_is_compiled_and_the_difference_is_said(place: Place) -> None:
    as_if_by_another_compiler(place)
    for path in place.folder.glob("*.cubin"):
        path.unlink()
    (note,) = place.emit().notes
    assert "the recorded time is of a binary by nvrtc 99.0.1" in note
    assert place.emit().written == ()


def test_a_lost_table_costs_no_kernel(place: Place) -> None:
    as_if_by_another_compiler(place)
    place.record(1, 18.0, model=OTHER_MODEL)
    place.emit()
    before = place.files()
    (place.folder / dispatch.FILE).unlink()
    emission = place.emit(OTHER_MODEL)
    assert emission.removed == ()
    assert place.files() == before


def test_a_table_of_an_older_version_costs_no_kernel(place: Place) -> None:
    as_if_by_another_compiler(place)
    place.record(1, 18.0, model=OTHER_MODEL)
    place.emit()
    before = place.files()
    outdate(place)
    emission = place.emit(OTHER_MODEL)
    assert "dispatch.json was of an older format: made anew" in emission.notes[0]
    assert emission.removed == ()
    assert place.files() == before


def test_kernels_of_older_sources_go_with_their_older_table(place: Place) -> None:
    place.record(1, 14.0)
    place.emit()
    before = place.files()
    outdate(place)
    (place.templates / "body.cuh").write_text(BODY.replace("1", "2"))
    with pytest.raises(MonomoeError, match="no record of a kernel of the present sources"):
        place.emit()
    place.record(2, 20.0)
    emission = place.emit()
    assert [e.tuned_at for e in emission.table.entries] == [2]
    assert "1 tokens: every record is of older sources" in emission.notes[1]
    assert place.files().keys() == before.keys()
    assert not place.wrong()


def test_two_emissions_at_once_keep_both_models(place: Place) -> None:
    place.record(1, 14.0)
    place.record(1, 18.0, model=OTHER_MODEL)
    with ThreadPoolExecutor() as pool:
        list(pool.map(place.emit, (MODEL, OTHER_MODEL)))
    assert {e.model for e in dispatch.load(place.folder).entries} == {MODEL, OTHER_MODEL}
    assert not place.wrong()


def test_records_of_older_sources_do_not_speak_for_new_ones(place: Place) -> None:
    place.record(1, 14.0)
    place.record(2, 20.0)
    place.emit()
    before = place.files()
    (place.templates / "body.cuh").write_text(BODY.replace("1", "2"))
    emission = place.emit()
    assert place.files() == before
    assert len(emission.notes) == 2
    assert "1 tokens: every record is of older sources" in emission.notes[0]
    (message,) = place.wrong().values()
    assert "the templates or the shape changed" in message

    place.record(1, 16.0)
    table = place.emit().table
    assert {e.tuned_at: e.time_us for e in table.entries} == {1: 16.0, 2: 20.0}


def test_nothing_to_dispatch_is_an_error(place: Place) -> None:
    with pytest.raises(MonomoeError, match="nothing to dispatch on nvidia-h200"):
        place.emit()
    place.record(1, 14.0, status="wrong", time_us=None)
    with pytest.raises(MonomoeError, match="nothing to dispatch"):
        place.emit()
    assert not place.folder.exists()


def test_a_chosen_kernel_that_does_not_compile_is_an_error(place: Place) -> None:
    (place.templates / "body.cuh").write_text(BODY + "#error out of order\n")
    place.record(1, 14.0, binary=None)
    with pytest.raises(CompileError, match="out of order"):
        place.emit()
    assert not place.folder.exists()


def edit(suffix: str, change: Callable[[bytes], bytes]) -> Callable[[Place], None]:
    def apply(place: Place) -> None:
        (path,) = place.folder.glob(f"*{suffix}")
        path.write_bytes(change(path.read_bytes()))

    return apply


def outdate(place: Place) -> None:
    """Gives the table the format that it had before it told of workspaces."""
    path = place.folder / dispatch.FILE
    raw = json.loads(path.read_text()) | {"format": 1}
    for row in raw["kernels"]:
        del row["workspace_half_bytes"]
    path.write_text(json.dumps(raw))


def relist(place: Place, change: Callable[[Any], None]) -> None:
    """Changes the table, and the header with it."""
    path = place.folder / dispatch.FILE
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    (place.folder / c_header.FILE).write_text(c_header.c_header(dispatch.load(place.folder)))


def small_workspace(place: Place) -> None:
    relist(place, lambda raw: raw["kernels"][0].update(workspace_half_bytes=128))


def another_time(place: Place) -> None:
    relist(place, lambda raw: raw["entries"][0].update(time_us=12.0))


def source_missing(place: Place) -> None:
    (path,) = place.folder.glob("*.cu")
    path.unlink()


def longer_cubin_listed(place: Place) -> None:
    """A cubin that is whole and listed, but not what the compiler gives."""
    edit(".cubin", lambda data: data + b"\0")(place)
    (path,) = place.folder.glob("*.cubin")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    relist(place, lambda raw: raw["kernels"][0].update(cubin_sha256=digest))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (edit(".cubin", lambda data: data[:-1]), "its hash differs"),
        (longer_cubin_listed, "gives other bytes"),
        (edit(".cu", lambda data: data + b"//\n"), "is not what the templates give"),
        (edit(".cu", lambda data: b"\xff" + data), ".cu: is not UTF-8 text"),
        (source_missing, ".cu: cannot be read: No such file"),
        (small_workspace, "workspace_half_bytes is 128, its sources need "),
        (another_time, "no record of the database"),
        (edit(".h", lambda data: data.replace(b"14.0", b"12.0")), "is not what the table gives"),
        (lambda place: (place.folder / c_header.FILE).unlink(), "cannot be read"),
        (lambda place: (place.folder / "left.cu").touch(), "no kernel of the table has this file"),
    ],
)
def test_verification_finds_damage_and_emission_repairs_it(
    place: Place, damage: Callable[[Place], None], message: str
) -> None:
    place.record(1, 14.0)
    place.emit()
    good = place.files()
    damage(place)
    assert [message in found for found in place.wrong().values()] == [True]
    place.emit()
    assert place.files() == good
    assert not place.wrong()


def test_the_default_objective_decides_and_a_faster_finalist_without_it_is_told(
    place: Place,
) -> None:
    for routing, median in (("uniform", 12.0), ("zipf", 12.0), ("same", 12.0)):
        place.record(1, median, SLOW, routing=routing)
    place.record(1, 10.0, FAST)
    emission = place.emit()
    (kernel,) = emission.table.kernels
    assert kernel.schedule == SLOW
    (note,) = emission.notes
    assert f"{MODEL}, 1 tokens: {FAST.id} took 10.00 us in finals under uniform routing" in note
    assert "was not timed under uniform, zipf, same, which decide; run `monomoe-gen tune" in note
    place.record(1, 20.0, FAST, routing="zipf")
    place.record(1, 20.0, FAST, routing="same")
    emission = place.emit()
    assert emission.notes == () and emission.table.kernels == (kernel,)
