"""The dispatch table: look-up answers with its reason, and no strange file passes for a table."""

import dataclasses
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from serving import TINY, make_table

from monomoe_gen import dispatch
from monomoe_gen.device import KNOWN
from monomoe_gen.dispatch import Entry, Kernel, Origin, Table, lookup
from monomoe_gen.errors import DatabaseError, NoKernel, OlderFormat
from monomoe_gen.schedule import LAYOUTS, ROUTERS, KernelSpec, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.variant import Variant

SHAPE = Shape("tiny", 256, 128, 8, 2, "softmax", True)
SCHEDULE = Schedule(grid=8, g_up=8, k_up=256, g_down=8, k_down=128, d_up=4, d_down=4)


def kernel(token_tile: int, shape: Shape = SHAPE) -> Kernel:
    spec = KernelSpec(shape, SCHEDULE, token_tile)
    return Kernel(
        id=spec.id,
        kernel_name=spec.kernel_name,
        shape=shape,
        schedule=SCHEDULE,
        token_tile=token_tile,
        threads=608,
        shared_bytes=4096,
        workspace_half_bytes=8192,
        registers=64,
        sources_hash="ab" * 32,
        compiler="nvrtc 13.0.88",
        cubin_sha256=hashlib.sha256(b"cubin").hexdigest(),
    )


def entry(tuned_at: int, of: Kernel) -> Entry:
    origin = Origin("2025-11-29T17:00:00+00:00", "nvrtc 13.0.88", "cd" * 32, "final")
    return Entry(of.shape.name, tuned_at, of.token_tile, of.id, 10.5 + tuned_at, 7.5, origin)


SMALL, LARGE = kernel(8), kernel(32)
OTHER = kernel(8, dataclasses.replace(SHAPE, name="other"))
TABLE = Table(
    KNOWN["nvidia-h200"],
    (LARGE, SMALL, OTHER),
    (entry(2, SMALL), entry(1, SMALL), entry(4, SMALL), entry(24, LARGE), entry(4, OTHER)),
)


@pytest.mark.parametrize(
    ("model", "tokens", "tuned_at", "how"),
    [
        ("tiny", 1, 1, "exact"),
        ("tiny", 2, 2, "exact"),
        ("tiny", 3, 2, "nearest_below"),
        ("tiny", 8, 4, "nearest_below"),
        ("tiny", 9, 24, "smallest_above"),
        ("tiny", 24, 24, "exact"),
        ("tiny", 32, 24, "nearest_below"),
        ("other", 1, 4, "smallest_above"),
        ("other", 8, 4, "nearest_below"),
    ],
)
def test_look_up(model: str, tokens: int, tuned_at: int, how: str) -> None:
    match = lookup(TABLE, model, tokens)
    assert (match.entry.model, match.entry.tuned_at, match.how) == (model, tuned_at, how)
    assert match.kernel.id == match.entry.kernel
    assert match.kernel.token_tile >= tokens


@pytest.mark.parametrize(
    ("model", "tokens", "message"),
    [
        ("tiny", 33, "tiny with 33 tokens on NVIDIA H200; the table has 1 to 32 tokens"),
        ("tiny", 0, "tiny with 0 tokens"),
        ("other", 9, "1 to 8 tokens"),
        ("grand", 1, "grand on NVIDIA H200; the table has other, tiny; run"),
    ],
)
def test_look_up_says_what_there_is_instead(model: str, tokens: int, message: str) -> None:
    with pytest.raises(NoKernel, match=message):
        lookup(TABLE, model, tokens)


def write(folder: Path, raw: Any) -> Path:
    path = folder / dispatch.FILE
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw, indent=1))
    return path


def test_a_table_survives_its_text_and_the_text_is_sorted(tmp_path: Path) -> None:
    text = dispatch.dump(TABLE)
    write(tmp_path, text)
    loaded = dispatch.load(tmp_path)
    assert [k.id for k in loaded.kernels] == sorted(k.id for k in TABLE.kernels)
    assert [(e.model, e.tuned_at) for e in loaded.entries] == [
        ("other", 4), ("tiny", 1), ("tiny", 2), ("tiny", 4), ("tiny", 24),
    ]  # fmt: skip
    assert set(loaded.kernels) == set(TABLE.kernels)
    assert dispatch.dump(loaded) == text
    assert loaded.kernels[0].spec.kernel_name == loaded.kernels[0].kernel_name


def change(path: str, value: object) -> Any:
    """The table as plain data with one field set, or removed when the value is None."""
    raw = json.loads(dispatch.dump(TABLE))
    at: Any = raw
    *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    for step in parents:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return raw


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("colour", "red", "colour: unknown field"),
        ("kernels.1.colour", "red", r"kernels\[1\]\.colour: unknown field"),
        ("entries.0.record.colour", "red", r"entries\[0\]\.record\.colour: unknown field"),
        ("entries.0.tuned_at", None, r"entries\[0\]\.tuned_at: missing"),
        ("kernels.0.workspace_half_bytes", None, "workspace_half_bytes: missing"),
        ("format", None, "format: missing"),
        ("format", "1", "format: must be int, found '1'"),
        ("entries.0.tuned_at", "4", r"entries\[0\]\.tuned_at: must be int, found '4'"),
        ("entries.0.tuned_at", True, "must be int"),
        ("entries.0.time_us", "fast", "must be float"),
        ("kernels.0.shape.hidden", 100, r"kernels\[0\]\.shape: .*hidden"),
        ("kernels.0.schedule.grid", 0, r"kernels\[0\]\.schedule: .*grid"),
        ("kernels", {}, "kernels: must be a list"),
        ("entries.0", 3, r"entries\[0\]: must be an object"),
        ("format", 3, "format 3, this program reads format 2; upgrade monomoe-gen$"),
        ("entries.0.kernel", "gone", "entry other, tuned_at 4: no kernel gone"),
        ("entries.0.kernel", SMALL.id, "of this model"),
        ("entries.0.capacity", 16, "capacity 16 must be tuned_at to 8"),
        ("entries.1.tuned_at", 2, "two entries have the same model"),
        ("kernels.2.id", LARGE.id, "two kernels have the same id"),
    ],
)
def test_a_strange_table_is_refused(
    tmp_path: Path, path: str, value: object, complaint: str
) -> None:
    file = write(tmp_path, change(path, value))
    with pytest.raises(DatabaseError, match=complaint) as caught:
        dispatch.load(tmp_path)
    assert caught.value.path == file


def test_a_table_of_an_older_version_is_made_anew(tmp_path: Path) -> None:
    """Its format is told, not the field that it lacks."""
    raw = json.loads(dispatch.dump(TABLE)) | {"format": 1}
    for row in raw["kernels"]:
        del row["workspace_half_bytes"]
    path = write(tmp_path, raw)
    reason = "has format 1, this program reads format 2; run `monomoe-gen emit`"
    with pytest.raises(OlderFormat) as caught:
        dispatch.load(tmp_path)
    assert str(caught.value) == f"{path}: {reason}"
    table, useless = dispatch.load_baseline(tmp_path, TABLE.device)
    assert table == Table(TABLE.device, (), ())
    assert useless == f"nothing is compared with it: {path}: {reason}"
    write(tmp_path, dispatch.dump(TABLE))
    assert dispatch.load_baseline(tmp_path, TABLE.device) == (dispatch.load(tmp_path), "")


def test_a_refusal_names_the_line_of_an_unknown_field(tmp_path: Path) -> None:
    file = write(tmp_path, change("kernels.1.colour", "red"))
    with pytest.raises(DatabaseError) as caught:
        dispatch.load(tmp_path)
    assert '"colour"' in file.read_text().splitlines()[caught.value.line - 1]


def test_what_is_no_json_is_refused_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, '{"format": 1,\n "device" 3}')
    with pytest.raises(DatabaseError, match="is not JSON") as caught:
        dispatch.load(tmp_path)
    assert caught.value.line == 2
    with pytest.raises(DatabaseError, match="nothing is generated for this GPU"):
        dispatch.load(tmp_path / "nowhere")


def test_a_cubin_is_read_only_if_it_is_the_one_listed(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"tiny-t8-.*\.cubin: cannot be read"):
        dispatch.read_cubin(tmp_path, SMALL)
    (tmp_path / f"{SMALL.id}.cubin").write_bytes(b"cubin")
    assert dispatch.read_cubin(tmp_path, SMALL) == b"cubin"
    (tmp_path / f"{SMALL.id}.cubin").write_bytes(b"another")
    with pytest.raises(DatabaseError, match="its hash differs"):
        dispatch.read_cubin(tmp_path, SMALL)


RAW = dataclasses.replace(
    SMALL, id=f"{SMALL.id}-raw", kernel_name=f"{SMALL.kernel_name}_raw", layout="raw"
)
BOTH = dataclasses.replace(
    TABLE,
    kernels=(*TABLE.kernels, RAW),
    entries=(*TABLE.entries, dataclasses.replace(entry(4, RAW), layout="raw")),
)


def test_a_table_carries_both_layouts(tmp_path: Path) -> None:
    write(tmp_path, dispatch.dump(BOTH))
    table = dispatch.load(tmp_path)
    assert lookup(table, "tiny", 4).kernel == SMALL
    assert lookup(table, "tiny", 4, Variant("raw")).kernel == RAW
    assert lookup(table, "tiny", 1, Variant("raw")).how == "smallest_above"
    assert RAW.spec.id == RAW.id and RAW.spec.kernel_name == RAW.kernel_name
    with pytest.raises(NoKernel, match=r"raw weights; the table has packed .* --layout raw`"):
        lookup(table, "other", 4, Variant("raw"))


def test_a_table_without_layouts_is_of_packed_weights(tmp_path: Path) -> None:
    raw = json.loads(dispatch.dump(TABLE))
    for item in (*raw["kernels"], *raw["entries"]):
        del item["layout"]
    write(tmp_path, raw)
    assert dispatch.dump(dispatch.load(tmp_path)) == dispatch.dump(TABLE)


@pytest.mark.parametrize(
    ("layout", "complaint"),
    [
        ("raw", "layout raw, but .* takes packed"),
        ("row", "must be one of packed, raw, found 'row'"),
    ],
)
def test_an_entry_has_the_layout_of_its_kernel(layout: str, complaint: str, tmp_path: Path) -> None:
    write(tmp_path, change("entries.0.layout", layout))
    with pytest.raises(DatabaseError, match=complaint):
        dispatch.load(tmp_path)


def test_a_table_of_usual_kernels_says_nothing_of_variants(tmp_path: Path) -> None:
    assert '"router"' not in dispatch.dump(make_table())
    table = make_table(router="weight")
    (tmp_path / dispatch.FILE).write_text(dispatch.dump(table), encoding="utf-8")
    assert dispatch.load(tmp_path) == table
    inside = Variant(router="weight")
    assert dispatch.lookup(table, TINY.name, 2, inside).kernel.spec.router == "weight"


def test_a_variant_is_found_by_all_that_makes_it(tmp_path: Path) -> None:
    every = [Variant(*v) for v in itertools.product(LAYOUTS, ROUTERS, (False, True))]
    tables = [make_table(TINY, (2,), v.layout, v.router, v.pdl) for v in every]
    kernels = tuple(table.kernels[0] for table in tables)
    entries = tuple(table.entries[0] for table in tables)
    both = Table(tables[0].device, kernels, entries)
    (tmp_path / dispatch.FILE).write_text(dispatch.dump(both), encoding="utf-8")
    loaded = dispatch.load(tmp_path)
    for variant in every:
        match = lookup(loaded, TINY.name, 2, variant)
        assert match.kernel.variant == match.entry.variant == variant
        assert match.kernel.id == match.kernel.spec.id
    early = Variant("raw", "weight", True)
    wanted = r"raw weights, router inside, programmatic dependent launch; the table has packed "
    wanted += r"weights for this model; run `.* --layout raw --router weight --pdl`"
    with pytest.raises(NoKernel, match=wanted):
        lookup(tables[0], TINY.name, 2, early)
    changed = json.loads(dispatch.dump(tables[1]))
    del changed["entries"][0]["pdl"]
    write(tmp_path, changed)
    with pytest.raises(DatabaseError, match=r"pdl False, but .* has pdl True"):
        dispatch.load(tmp_path)
