"""``bench-variants``: what it times, with which schedules, and what the file and the README say."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from monomoe_gen import cli, dispatch, documents, jobs, remeasure, sandbox, variant_bench
from monomoe_gen.compile import compile_source
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.dispatch import Entry, Kernel, Origin, Table
from monomoe_gen.errors import DatabaseError, MonomoeError
from monomoe_gen.paths import DATA_VARIABLE
from monomoe_gen.protocol import Cell, CellErrors, Env, Event, Floor, Image, Measure
from monomoe_gen.render import render_empty
from monomoe_gen.rules import violations
from monomoe_gen.sandbox import Outcome
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import load_shape, unquantized
from monomoe_gen.space import feasible
from monomoe_gen.variant import Variant
from monomoe_gen.variant_report import KINDS, Cost, costs_table, read_costs, write_costs

MODEL = "qwen3.5-35b"
SHAPE = load_shape(MODEL)
H200 = KNOWN[DEFAULT]
USUAL, OTHER = feasible(SHAPE, H200)[:2]
CUBIN = b"no real cubin"
NOTHING = Image("nothing", b"", 1, 32, 0)


def kernel(spec: KernelSpec) -> Kernel:
    digest = hashlib.sha256(CUBIN).hexdigest()
    geometry = spec.geometry
    size = geometry.threads, geometry.shared_bytes, geometry.workspace_half_bytes
    variant = spec.layout, spec.router, spec.pdl
    return Kernel(
        spec.id, spec.kernel_name, spec.shape, spec.schedule, 8, *size, 100, "0" * 64,
        "nvrtc 0.0", digest, *variant,
    )  # fmt: skip


def table(*tuned: tuple[KernelSpec, int]) -> Table:
    origin = Origin("2026-01-01T00:00:00+00:00", "nvrtc 0.0", "0" * 64, "final")
    entries = [
        Entry(s.shape.name, n, 8, s.id, 10.0 * n, 8.0, origin, s.layout, router=s.router, pdl=s.pdl)
        for s, n in tuned
    ]
    return Table(H200, tuple({s.id: kernel(s) for s, _ in tuned}.values()), tuple(entries))


PLAIN = KernelSpec(SHAPE, USUAL)
RAW = KernelSpec(SHAPE, OTHER, layout="raw")
TABLE = table((PLAIN, 1), (PLAIN, 4), (RAW, 4))


def test_every_kind_is_timed_with_what_the_table_has_or_the_usual_schedule() -> None:
    chosen = variant_bench.choose(TABLE, [], (1, 4), H200)
    found = [(c.kind, c.tokens, c.spec.schedule, c.kernel is not None) for c in chosen]
    assert found[:3] == [
        ("usual", (1, 4), USUAL, True),
        ("router", (1, 4), USUAL, False),
        ("pdl", (1, 4), USUAL, False),
    ]
    assert found[3:5] == [("raw", (1,), USUAL, False), ("raw", (4,), OTHER, True)]
    assert {c.kind for c in chosen} == set(KINDS) and {c.model for c in chosen} == {MODEL}
    for c in chosen:
        assert Variant.of(c.spec) == variant_bench.VARIANTS[c.kind]
        assert c.spec.shape == (unquantized(SHAPE) if c.kind == "bf16" else SHAPE)
        assert not violations(c.spec.shape, c.spec.schedule, H200, 8)


def test_a_kernel_of_bf16_activations_is_found_under_its_shapes_name() -> None:
    kept = KernelSpec(unquantized(SHAPE), USUAL)
    both = table((PLAIN, 1), (kept, 1))
    (bf16,) = [c for c in variant_bench.choose(both, [], (1,), H200) if c.kind == "bf16"]
    assert bf16.model == MODEL and bf16.kernel and bf16.kernel.shape == kept.shape
    with pytest.raises(MonomoeError, match="is a variant itself"):
        variant_bench.choose(both, [kept.shape.name], (1,), H200)


def test_a_model_named_twice_is_timed_once() -> None:
    once = variant_bench.choose(TABLE, [MODEL], (1, 4), H200)
    assert variant_bench.choose(TABLE, [MODEL, MODEL], (1, 4), H200) == once


@pytest.mark.parametrize("specs", [(), (RAW,), (KernelSpec(unquantized(SHAPE), USUAL),)])
def test_a_table_without_usual_kernels_has_nothing_to_compare(specs: tuple[KernelSpec]) -> None:
    with pytest.raises(MonomoeError, match="has no usual kernel of one to compare variants with"):
        variant_bench.choose(table(*((spec, 1) for spec in specs)), [], (1,), H200)


def test_a_shared_gate_has_no_router_inside() -> None:
    gated = replace(SHAPE, name="gated", shared_experts=1, shared_gate=True)
    spec = KernelSpec(gated, feasible(gated, H200)[0])
    kinds = {c.kind for c in variant_bench.choose(table((spec, 1)), [], (1,), H200)}
    assert kinds == {"usual", "pdl", "raw", "bf16"}


class FakeSandbox:
    """Times in the order of the requests: the first kernel takes 10 us, the second 11, ..."""

    env: ClassVar[Env] = {"gpu": "NVIDIA H200"}
    requests: ClassVar[list[Measure]] = []
    status = "ok"

    def __enter__(self) -> "FakeSandbox":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def measure(self, request: Measure, on_event: Callable[[Event], Any]) -> Outcome:
        time_us = 10.0 + len(self.requests)
        self.requests.append(request)
        assert request.timed
        cells = tuple(
            Cell(
                tokens=n,
                status=self.status,  # type: ignore[arg-type]
                errors={"gaussian": CellErrors(0.9991, 0.04, 1e-3)},
                samples=(time_us * n,),
                floor=Floor(8.0 * n, 0.6) if request.timed.streams else None,
                separate_us=(time_us + 4) * n if request.logits_kernel else None,
                distinct_experts=8.0,
                reuse_bytes=10**9,
            )
            for n in request.tokens
        )
        for cell in cells:
            on_event(cell)
        return Outcome("ok", "", cells)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeSandbox]:
    """A machine that seems to have an H200, with a table of two kernels."""
    place = tmp_path / "generated" / DEFAULT
    place.mkdir(parents=True)
    (place / dispatch.FILE).write_text(dispatch.dump(TABLE), encoding="utf-8")
    for item in TABLE.kernels:
        (place / f"{item.id}.cubin").write_bytes(CUBIN)
    fake = type("Fake", (FakeSandbox,), {"requests": []})
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    monkeypatch.setattr(remeasure, "current_device", lambda: H200)
    monkeypatch.setattr(sandbox, "Sandbox", fake)
    monkeypatch.setattr(jobs, "compile_floors", lambda device: jobs.Floors((NOTHING,), NOTHING))
    some = compile_source(render_empty())

    def compile_all(sources: list[Any], *_: object, **__: object) -> list[Any]:
        return [replace(some, kernel_name=source.kernel_name) for source in sources]

    monkeypatch.setattr(variant_bench, "compile_all", compile_all)
    return fake


def test_one_run_times_all_beside_one_floor_and_writes_it(
    gpu: type[FakeSandbox], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench-variants", "--tokens", "1,4", "--write", "--format", "json"]
    assert cli.run(arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["tokens"], r["kind"]) for r in rows] == [(n, k) for n in (1, 4) for k in KINDS]
    usual, router, pdl, raw, _ = rows[:5]
    assert (usual["time_us"], usual["slower"], usual["after_router_us"]) == (10.0, 0.0, 14.0)
    assert (router["time_us"], router["slower"], router["after_router_us"]) == (11.0, 0.1, None)
    assert (pdl["after_router_us"], raw["tuned"]) == (16.0, False)
    assert {r["floor_us"] / r["tokens"] for r in rows} == {8.0}
    assert [r["tuned"] for r in rows if r["kind"] == "raw"] == [False, True]
    assert [bool(r.timed and r.timed.streams) for r in gpu.requests] == [True] + [False] * 5
    assert all(r.validate and r.timed and r.timed.replays == 100 for r in gpu.requests)
    assert [(r.layout, r.kernel.router, r.kernel.pdl) for r in gpu.requests[:4]] == [
        ("packed", "logits", False),
        ("packed", "weight", False),
        ("packed", "logits", True),
        ("raw", "logits", False),
    ]
    assert [r.logits_kernel for r in gpu.requests] == [
        gpu.requests[0].kernel, None, gpu.requests[2].kernel, None, None, None,
    ]  # fmt: skip
    path = tmp_path / "generated" / DEFAULT / "variants.json"
    assert [(c.tokens, c.kind) for c in read_costs(path)] == [(n, k) for n in (1, 4) for k in KINDS]


def test_nothing_is_written_of_a_run_with_wrong_numbers(
    gpu: type[FakeSandbox], tmp_path: Path
) -> None:
    gpu.status = "wrong"
    assert cli.run(["bench-variants", "--tokens", "1", "--write"]) == 6
    assert not (tmp_path / "generated" / DEFAULT / "variants.json").exists()


def cost(kind: str, time_us: float, **changes: Any) -> Cost:
    values = {"model": MODEL, "tokens": 1, "kind": kind, "schedule": "s", "tuned": True}
    values |= {"time_us": time_us, "floor_us": 8.0, "after_router_us": None, "cosine": 0.999}
    return Cost(**values | changes)


COSTS = [
    cost("usual", 10.0, after_router_us=14.0),
    cost("router", 12.6),
    cost("pdl", 9.9, after_router_us=13.3, tuned=False),
    cost("raw", 10.4),
    cost("usual", 20.0, tokens=2),
]


def test_the_file_keeps_other_models(tmp_path: Path) -> None:
    path = tmp_path / "variants.json"
    assert read_costs(path) == []
    others = [replace(c, model="another") for c in COSTS]
    write_costs(path, others)
    write_costs(path, COSTS[:1])
    write_costs(path, COSTS[::-1])
    assert read_costs(path) == [*others, *COSTS]
    path.write_text(path.read_text().replace('"usual"', '"usal"'))
    with pytest.raises(DatabaseError, match="usal"):
        read_costs(path)


def test_the_table_compares_and_marks_what_is_not_tuned() -> None:
    _, _, one, two = costs_table(COSTS).splitlines()
    assert one == (
        f"| {MODEL} | 1 | 8.0 | 10.0 | 10.4 (+4.0%) | - | 14.0 | 12.6 (-10.0%) | 13.3* (-5.0%) |"
    )
    assert two == f"| {MODEL} | 2 | 8.0 | 20.0 | - | - | - | - | - |"


def test_the_readme_has_the_table_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "data_dir", lambda name: tmp_path)
    assert documents.variants_table().startswith("Not measured yet: `monomoe-gen bench-variants")
    (tmp_path / DEFAULT).mkdir()
    write_costs(tmp_path / DEFAULT / "variants.json", COSTS)
    assert documents.variants_table().startswith(costs_table(COSTS) + "\n\n\\* with the usual")
