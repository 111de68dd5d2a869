"""validate, bench and show over a made-up table: what they print, write and end with.

The GPU worker is replaced by one that answers with fixed numbers.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import save_file
from test_validation_report import CASE

from monomoe_gen import cli, dispatch, jobs, remeasure, sandbox, untuned, validation_report
from monomoe_gen.cli import measure
from monomoe_gen.cli.options import schedule_text
from monomoe_gen.comparison import Agreement
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.dispatch import Entry, Kernel, Origin, Table
from monomoe_gen.paths import DATA_VARIABLE
from monomoe_gen.protocol import Cell, CellErrors, Env, Event, Floor, Image, Measure, Weights
from monomoe_gen.remeasure import Target
from monomoe_gen.report import BEGIN, END, read_results
from monomoe_gen.routing_trace import save
from monomoe_gen.sandbox import Outcome
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.space import feasible
from monomoe_gen.workload import block_weights

MODEL = "qwen3.5-35b"
CUBIN = b"no real cubin"
SHAPE = load_shape(MODEL)
NOTHING = Image("nothing", b"", 1, 32, 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ``generated/`` with one kernel, tuned with 1 and 4 tokens."""
    spec = KernelSpec(SHAPE, feasible(SHAPE, KNOWN[DEFAULT])[0])
    kernel = Kernel(
        id=spec.id,
        kernel_name=spec.kernel_name,
        shape=SHAPE,
        schedule=spec.schedule,
        token_tile=8,
        threads=spec.geometry.threads,
        shared_bytes=spec.geometry.shared_bytes,
        workspace_half_bytes=spec.geometry.workspace_half_bytes,
        registers=100,
        sources_hash="0" * 64,
        compiler="nvrtc 0.0",
        cubin_sha256=hashlib.sha256(CUBIN).hexdigest(),
    )
    origin = Origin("2026-01-01T00:00:00+00:00", "nvrtc 0.0", kernel.cubin_sha256, "final")
    entries = tuple(Entry(MODEL, n, 8, spec.id, 10.0 * n, 8.0, origin) for n in (1, 4))
    generated = tmp_path / "generated"
    place = generated / DEFAULT
    place.mkdir(parents=True)
    (place / "dispatch.json").write_text(
        dispatch.dump(Table(KNOWN[DEFAULT], (kernel,), entries)), encoding="utf-8"
    )
    (place / f"{spec.id}.cubin").write_bytes(CUBIN)
    (place / "anchors.json").write_text('{"shapes": {}}')
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    return place


GOOD = Cell(
    tokens=1,
    status="ok",
    errors={
        "gaussian": CellErrors(0.9991, 0.04, 1e-3),
        "student_t3": CellErrors(0.9985, 0.05, 2e-3),
    },
    samples=(15.0, 16.0, 17.0),
    floor=Floor(8.0, 0.6),
    distinct_experts=8.0,
    reuse_bytes=200_000_000,
)


class FakeSandbox:
    """Answers every token count with the same cell."""

    cell = GOOD
    status = "ok"
    env: ClassVar[Env] = {"gpu": "NVIDIA H200", "driver": "580.1", "torch": "2.11"}
    requests: ClassVar[list[Measure]] = []

    def __enter__(self) -> "FakeSandbox":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def measure(self, request: Measure, on_event: Callable[[Event], Any]) -> Outcome:
        self.requests.append(request)
        cases = [replace(c, tokens=n) for n in request.tokens for c in self.cell.cases]
        cells = tuple(
            replace(
                self.cell, tokens=n, cases=[c for c in cases if c.tokens == n and request.report]
            )
            for n in request.tokens
        )
        for cell in cells:
            on_event(cell)
        return Outcome(self.status, "", cells if self.status == "ok" else ())


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[FakeSandbox]:
    """A machine that seems to have an H200."""
    fake = type("Fake", (FakeSandbox,), {"requests": []})
    monkeypatch.setattr(remeasure, "current_device", lambda: KNOWN[DEFAULT])
    monkeypatch.setattr(sandbox, "Sandbox", fake)
    monkeypatch.setattr(jobs, "compile_floors", lambda device: jobs.Floors((NOTHING,), NOTHING))
    return fake


def rows(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert cli.run([*arguments, "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_bench_prints_and_writes_the_dispatched_kernels(
    folder: Path,
    gpu: type[FakeSandbox],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")
    found = rows(capsys, "bench", "--tokens", "1,4", "--write", "--readme", str(readme))
    assert [(r["tokens"], r["time_us"], r["ratio"], r["cosine"]) for r in found] == [
        (1, 16.0, 2.0, 0.9985),
        (4, 16.0, 2.0, 0.9985),
    ]
    assert found[0]["bandwidth_gb_s"] == pytest.approx(8 * SHAPE.expert_bytes / 16e3, rel=1e-4)
    assert [r.tokens for r in read_results(folder / "bench.json")] == [1, 4]
    assert f"| {MODEL} | 4 | **16.0** |" in readme.read_text()
    (request,) = gpu.requests
    assert request.kernel.cubin == CUBIN
    assert request.validate and request.timed and request.timed.replays == 200


def test_a_model_named_twice_is_measured_once(
    folder: Path, gpu: type[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    twice = ["--model", MODEL, "--model", MODEL]
    found = rows(capsys, "bench", "--tokens", "1,4", *twice)
    assert [row["tokens"] for row in found] == [1, 4]
    assert [n for request in gpu.requests for n in request.tokens] == [1, 4]


def test_what_an_interruption_leaves_of_a_bench(
    folder: Path, gpu: type[FakeSandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that was done is written, the one under way is not."""
    path = folder / "dispatch.json"
    table = dispatch.load(folder)
    (kernel,), second = table.kernels, replace(SHAPE, name="second")
    other = KernelSpec(second, kernel.schedule)
    kernels = kernel, replace(kernel, id=other.id, kernel_name=other.kernel_name, shape=second)
    entries = (
        *table.entries,
        *(replace(e, model="second", kernel=other.id) for e in table.entries),
    )
    path.write_text(dispatch.dump(Table(table.device, kernels, entries)), encoding="utf-8")
    (folder / f"{other.id}.cubin").write_bytes(CUBIN)
    usual = FakeSandbox.measure

    def measure(self: FakeSandbox, request: Measure, on_event: Callable[[Event], Any]) -> Outcome:
        if request.shape["name"] == "second":
            raise KeyboardInterrupt
        return usual(self, request, on_event)

    monkeypatch.setattr(gpu, "measure", measure)
    assert cli.run(["bench", "--tokens", "1,4", "--write"]) == 130
    found = [(r.model, r.tokens) for r in read_results(folder / "bench.json")]
    assert found == [(MODEL, 1), (MODEL, 4)]


def test_wrong_numbers_end_with_6_and_write_nothing(
    folder: Path, gpu: type[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.cell = replace(GOOD, status="wrong", message="token 0: cosine", samples=(), floor=None)
    assert rows(capsys, "bench", "--write", code=6) == []
    assert not (folder / "bench.json").exists()
    assert [r["status"] for r in rows(capsys, "validate", "--tokens", "1", code=6)] == ["wrong"] * 2


def test_a_kernel_that_hangs_ends_with_1(
    folder: Path, gpu: type[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.status = "timeout"
    assert rows(capsys, "validate", code=1) == []


def test_validate_prints_each_distribution(
    folder: Path, gpu: type[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    found = rows(capsys, "validate", "--tokens", "2")
    assert [(r["data"], r["cosine"]) for r in found] == [
        ("gaussian", 0.9991),
        ("student_t3", 0.9985),
    ]
    (request,) = gpu.requests
    assert request.timed is None


# -- reports


@pytest.mark.parametrize("arguments", [("--report", "{place}"), ("--report",)])
def test_every_model_gets_its_report_when_it_is_done(
    folder: Path,
    gpu: type[FakeSandbox],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    place = tmp_path / "reports" if len(arguments) > 1 else folder / "validation"
    filled = [text.replace("{place}", str(place)) for text in arguments]
    gpu.cell = replace(GOOD, cases=[CASE, replace(CASE, distribution="zeros")])
    assert cli.run(["validate", "--tokens", "1,4", "--format", "json", *filled]) == 0
    out, err = capsys.readouterr()
    assert {row["tokens"] for row in json.loads(out)} == {1, 4}
    assert f"{MODEL}: 4 cases, " in err and err.rstrip().endswith(": pass")
    report = validation_report.read(place / f"{MODEL}.json")
    assert (report.gpu, report.shape) == ("NVIDIA H200", SHAPE)
    assert [case.tokens for case in report.cases] == [1, 1, 4, 4]
    assert {run.cubin_sha256 for run in report.runs} == {hashlib.sha256(CUBIN).hexdigest()}
    assert [run.tokens for run in report.runs] == [1, 4]
    assert (place / f"{MODEL}.md").read_text().startswith(f"# {MODEL} on NVIDIA H200: pass\n")


def test_a_report_shows_a_wrong_kernel_and_the_command_fails(
    folder: Path, gpu: type[FakeSandbox], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(CASE, agreement=Agreement(0.01, 0.5, 0))
    gpu.cell = replace(GOOD, cases=[CASE, wrong])  # within what validation itself lets pass
    assert cli.run(["validate", "--tokens", "1", "--report", str(tmp_path / "r")]) == 6
    assert "FAIL: B = 1, gaussian, uniform routing: relative L2 1.0e-02" in capsys.readouterr().err
    assert (
        (tmp_path / "r" / f"{MODEL}.md").read_text().startswith(f"# {MODEL} on NVIDIA H200: FAIL")
    )


def test_a_kernel_that_hangs_has_a_report_that_says_so(
    folder: Path, gpu: type[FakeSandbox], tmp_path: Path
) -> None:
    gpu.status = "timeout"
    assert cli.run(["validate", "--tokens", "1,4", "--report", str(tmp_path)]) == 1
    report = validation_report.read(tmp_path / f"{MODEL}.json")
    assert [run.status for run in report.runs] == ["timeout", "timeout"]
    assert report.problems


def test_models_are_reported_one_by_one(
    gpu: type[FakeSandbox], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [
        Target(KernelSpec(shape, feasible(shape, KNOWN[DEFAULT])[0]), NOTHING, (tokens,))
        for tokens in (1, 8)
        for shape in (load_shape("toy"), SHAPE)
    ]
    gpu.cell = replace(GOOD, cases=[CASE])
    done = []

    def finish(env: Env, outcomes: list[tuple[Target, Outcome]], seconds: float) -> None:
        done.append((len(gpu.requests), [t.spec.shape.name for t, _ in outcomes], seconds < 60))

    measured, code = measure.measure_all(targets, ("uniform",), None, None, finish)
    assert done == [(2, [MODEL] * 2, True), (4, ["toy"] * 2, True)]
    assert code is None and all(m.cell.cases for m in measured)


def test_shapes_without_a_kernel_get_the_one_predicted_fastest(
    folder: Path, gpu: type[FakeSandbox], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "reports"
    gpu.cell = replace(GOOD, cases=[CASE])
    arguments = ["validate", "--shipped", "--tokens", "1,4", "--report", str(place)]
    asked = ["--model", "toy", "--model", MODEL, "--model", "toy"]
    assert cli.run([*arguments, *asked]) == 0
    assert len(gpu.requests) == 2, "a model that is named twice is measured once"
    assert "not dispatched, so as predicted fastest: toy" in capsys.readouterr().err
    toy = validation_report.read(place / "toy.json")
    spec = untuned.favourite(load_shape("toy"), KNOWN[DEFAULT], 4, 8)
    assert {run.kernel for run in toy.runs} == {spec.id}
    assert validation_report.read(place / f"{MODEL}.json").runs[0].kernel != spec.id

    gpu.requests.clear()
    assert cli.run([*arguments, *asked, "--missing"]) == 0
    assert "nothing to do" in capsys.readouterr().err and not gpu.requests
    (place / "toy.json").unlink()
    assert cli.run([*arguments, *asked, "--missing"]) == 0
    assert {r.shape["name"] for r in gpu.requests} == {"toy"}

    gpu.requests.clear()
    usual = (place / "toy.json").read_bytes()
    raw = [*arguments, "--model", "toy", "--layout", "raw", "--missing"]
    assert cli.run(raw) == 0
    assert gpu.requests and (place / "toy.json").read_bytes() == usual
    assert validation_report.read(place / "toy_raw.json").layout == "raw"
    gpu.requests.clear()
    assert cli.run(raw) == 0
    assert not gpu.requests
    assert cli.run([*arguments, "--model", "toy", "--missing"]) == 0
    assert not gpu.requests


def test_a_report_is_missing_unless_it_passes_for_the_same_kernels(
    folder: Path, gpu: type[FakeSandbox], tmp_path: Path
) -> None:
    gpu.cell = replace(GOOD, cases=[CASE])
    arguments = ["validate", "--tokens", "1,4", "--report", str(tmp_path), "--missing"]
    assert cli.run(arguments) == 0 and len(gpu.requests) == 1
    assert cli.run(arguments) == 0 and len(gpu.requests) == 1
    path = tmp_path / f"{MODEL}.json"
    path.write_text(path.read_text().replace(hashlib.sha256(CUBIN).hexdigest(), "0" * 64))
    assert cli.run(arguments) == 0 and len(gpu.requests) == 2
    path.write_text(path.read_text().replace("NVIDIA H200", "NVIDIA H100"))
    assert cli.run(arguments) == 0 and len(gpu.requests) == 3
    gpu.cell = replace(GOOD, cases=[replace(CASE, agreement=Agreement(0.01, 0.5, 0))])
    path.unlink()
    assert cli.run(arguments) == 6 and len(gpu.requests) == 4
    assert cli.run(arguments) == 6 and len(gpu.requests) == 5, "a failure is looked at again"


def test_when_the_time_is_over_no_model_is_begun(
    gpu: type[FakeSandbox], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [
        Target(KernelSpec(shape, feasible(shape, KNOWN[DEFAULT])[0]), NOTHING, (1,))
        for shape in (load_shape("toy"), SHAPE)
    ]
    clock = iter(range(100))
    monkeypatch.setattr(measure.time, "monotonic", lambda: float(next(clock)))
    measured, code = measure.measure_all(targets, ("uniform",), None, until=1.5)
    assert [m.target.spec.shape.name for m in measured] == [MODEL] and code is None
    assert "not measured: toy" in capsys.readouterr().err


def test_one_run_times_every_routing_and_validates_once(
    folder: Path, gpu: type[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "--tokens", "1,4", "--routing", "uniform,same", "--format", "json"]
    assert cli.run(command) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["routing"], r["tokens"]) for r in rows] == [
        ("uniform", 1), ("uniform", 4), ("same", 1), ("same", 4)
    ]  # fmt: skip
    assert len({r["cosine"] for r in rows}) == 1
    asked = [(r.routing, r.validate) for r in gpu.requests]
    assert asked == [("uniform", True), ("same", False)] * (len(asked) // 2)


def test_a_schedule_of_ones_own_is_compiled_and_measured(
    gpu: type[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = feasible(SHAPE, KNOWN[DEFAULT])[-1]
    arguments = ("bench", "--tokens", "1", "--schedule", schedule_text(schedule))
    (found,) = rows(capsys, *arguments, "--model", MODEL)
    assert found["schedule"] == schedule.id
    assert gpu.requests[0].kernel.cubin.startswith(b"\x7fELF")


def test_show_prints_the_table_and_answers_look_ups(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [r["tuned_at"] for r in rows(capsys, "show")] == [1, 4]
    assert [r["ratio"] for r in rows(capsys, "show", MODEL)] == [1.25, 5.0]
    found = rows(capsys, "show", MODEL, "--tokens", "1,3,5")
    assert [(r["tokens"], r["how"], r["tuned_at"]) for r in found] == [
        (1, "exact", 1),
        (3, "nearest_below", 1),
        (5, "nearest_below", 4),
    ]


def test_show_and_bench_take_variants(
    folder: Path, gpu: type[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    table = dispatch.load(folder)
    kernel, entry = table.kernels[0], table.entries[0]
    spec = replace(kernel.spec, router="weight", pdl=True)
    early = replace(kernel, id=spec.id, kernel_name=spec.kernel_name, router="weight", pdl=True)
    entry = replace(entry, kernel=spec.id, router="weight", pdl=True, tuned_at=2)
    both = Table(table.device, (kernel, early), (*table.entries, entry))
    (folder / "dispatch.json").write_text(dispatch.dump(both), encoding="utf-8")
    (folder / f"{spec.id}.cubin").write_bytes(CUBIN)
    asked = ("--router", "weight", "--pdl")
    (found,) = rows(capsys, "show", MODEL, "--tokens", "2", *asked)
    assert (found["router"], found["pdl"], found["how"]) == ("weight", True, "exact")
    assert cli.run(["show", MODEL, "--pdl"]) == 2
    assert "say which kernels --tokens is about" in capsys.readouterr().err
    (row,) = rows(capsys, "bench", "--tokens", "2", "--write", *asked)
    assert (row["router"], row["pdl"]) == ("weight", True)
    assert (gpu.requests[-1].kernel.router, gpu.requests[-1].kernel.pdl) == ("weight", True)
    (result,) = read_results(folder / "bench.json")
    assert result.router == "weight" and result.pdl
    rows(capsys, "bench", "--tokens", "1", "--write")
    written = (folder / "bench.json").read_text()
    assert len(read_results(folder / "bench.json")) == 2 and written.count('"pdl"') == 1


# -- weights of a checkpoint


def save_layer(path: Path, shape: Shape) -> Path:
    layer = block_weights(shape, "gaussian", seed=1)
    prefix = "model.layers.3.mlp.experts."
    save_file(
        {
            f"{prefix}gate_up_proj": layer.w13,
            f"{prefix}gate_up_proj_scale_inv": layer.w13_scale,
            f"{prefix}down_proj": layer.w2,
            f"{prefix}down_proj_scale_inv": layer.w2_scale,
        },
        path,
    )
    return path


def toy_schedule() -> str:
    return schedule_text(feasible(load_shape("toy"), KNOWN[DEFAULT])[0])


def test_validate_hands_a_checkpoint_to_the_worker(
    gpu: type[FakeSandbox], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_layer(tmp_path / "a.safetensors", load_shape("toy"))
    base = ("validate", "--model", "toy", "--schedule", toy_schedule(), "--tokens", "1")
    (row, _) = rows(capsys, *base, "--weights", str(path), "--layer", "3")
    assert row["model"] == "toy" and row["status"] == "ok"
    assert gpu.requests[-1].weights == Weights((str(path.resolve()),), 3)
    rows(capsys, *base)
    assert gpu.requests[-1].weights is None


def test_a_shard_of_a_checkpoint_is_asked_for(
    gpu: type[FakeSandbox], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = load_shape("toy")
    save_layer(tmp_path / "a.safetensors", replace(toy, intermediate=2 * toy.intermediate))
    base = ("validate", "--model", "toy", "--schedule", toy_schedule(), "--tokens", "1")
    take = ("--weights", str(tmp_path), "--layer", "3")
    assert cli.run([*base, *take]) == 2
    assert "--shard" in capsys.readouterr().err and not gpu.requests
    rows(capsys, *base, *take, "--shard", "1/2")
    assert gpu.requests[-1].weights == Weights((str(tmp_path.resolve()),), 3, 1, 2)


def test_bench_takes_captured_routing_of_one_model(
    folder: Path, gpu: type[FakeSandbox], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "routing.npz"
    trace = save(path, SHAPE.experts, [(0, 0, torch.arange(8)[None])])
    arguments = ["bench", "--tokens", "1", "--routing-trace", str(path)]
    (row,) = rows(capsys, *arguments, "--model", MODEL)
    assert row["routing"] == trace.name
    (asked,) = gpu.requests
    assert (asked.routing, asked.trace_file) == (trace.name, str(path))
    assert cli.run(arguments) == 2, "of which model?"
    assert cli.run([*arguments, "--model", MODEL, "--write"]) == 2
    assert cli.run([*arguments, "--model", MODEL, "--routing", "same"]) == 2
