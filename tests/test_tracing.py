"""Tracing from request to files, with the GPU worker replaced by made-up time stamps."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from trace_buffers import MHZ, MMA, PRODUCER, Buffer

from monomoe_gen import cli, dispatch, recorder, remeasure, sandbox, trace_file, tracing, worker
from monomoe_gen.compile import compile_source
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import LaunchError, MonomoeError
from monomoe_gen.kernel import LayerWeights, Workspace
from monomoe_gen.protocol import Done, Event, Image, Stage, Trace, Traced
from monomoe_gen.render import render
from monomoe_gen.sandbox import TraceOutcome
from monomoe_gen.schedule import WARPS, KernelSpec, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.trace import RECORDS, pack
from monomoe_gen.trace import Event as Mark
from monomoe_gen.variant import Variant

H200 = KNOWN[DEFAULT]
SHAPE = load_shape("qwen3.5-35b")
SCHEDULE = Schedule(128, 64, 1024, 128, 512, 4, 3)
SPEC = KernelSpec(SHAPE, SCHEDULE)
TEXT = "grid=128,g_up=64,k_up=1024,g_down=128,k_down=512,d_up=4,d_down=3"


def traced(us: float, grid: int = 128) -> Traced:
    """A launch whose last mark comes after ``us``."""
    buffer = Buffer(grid)
    for cta in range(grid):
        buffer.mark(cta, PRODUCER, Mark.LISTED, 0, 1.0)
    buffer.mark(0, MMA, Mark.STORED, 0, us)
    return Traced(pack(buffer.records), {"sm_clock_mhz": MHZ})


class FakeSandbox:
    """Answers with launches of 20, 30 and 25 us."""

    env: ClassVar[dict[str, Any]] = {"gpu": "NVIDIA H200", "driver": "580"}
    requests: ClassVar[list[Trace]] = []
    outcome = TraceOutcome("ok", "", (traced(20), traced(30), traced(25)))

    def __enter__(self) -> "FakeSandbox":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def trace(self, request: Trace, on_event: Callable[[Event], Any]) -> TraceOutcome:
        self.requests.append(request)
        on_event(Stage("trace 1 tokens"))
        return self.outcome


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[FakeSandbox]:
    """A machine that seems to have an H200, and a compiler that is quick."""
    fake = type("Fake", (FakeSandbox,), {"requests": []})
    binary = SimpleNamespace(
        kernel_name=SPEC.kernel_name + "_trace",
        cubin=b"cubin",
        threads=608,
        shared_bytes=1000,
        compiler="nvrtc 13.0",
    )
    monkeypatch.setattr(remeasure, "current_device", lambda: H200)
    monkeypatch.setattr(sandbox, "Sandbox", fake)
    monkeypatch.setattr(tracing, "compile_source", lambda source, arch: binary)
    return fake


def test_a_traced_kernel_compiles() -> None:
    source = render(KernelSpec(SHAPE, SCHEDULE), trace=True)
    binary = compile_source(source)
    assert binary.kernel_name == SPEC.kernel_name + "_trace"
    assert binary.spill_bytes == 0


def test_the_command_writes_the_median_launch(
    gpu: type[FakeSandbox], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["trace", "--model", SHAPE.name, "--tokens", "1", "--schedule", TEXT]
    folder = tmp_path / "deep" / "traces"
    assert cli.run([*asked, "--launches", "3", "-o", str(folder), "--format", "json"]) == 0
    (request,) = gpu.requests
    assert (request.tokens, request.launches, request.routing) == (1, 3, "uniform")
    half = SPEC.geometry.workspace_half_bytes
    assert request.kernel == Image(
        SPEC.kernel_name + "_trace", b"cubin", 128, 608, 1000, half_bytes=half
    )
    out, err = capsys.readouterr()
    rows = {(r["role"], r["event"]): r for r in json.loads(out)}
    assert rows["MMA", "stored"]["last_max"] == 25
    assert rows["producer", "listed"]["ctas"] == 128
    assert "20.00 to 30.00 us" in err and "SM clock 2000.0 MHz" in err
    name = f"{SHAPE.name}-b1-{SCHEDULE.id}"
    files = [f"{name}.json.gz", f"{name}.svg", f"{name}.trace.json"]
    assert sorted(p.name for p in folder.iterdir()) == files
    kept = trace_file.read(folder / files[-1])
    assert (kept.spec, kept.tokens, kept.us) == (SPEC, 1, 25)
    svg = (folder / f"{name}.svg").read_text()
    assert svg.startswith("<svg") and "NVIDIA H200" in svg and SCHEDULE.id in svg
    chrome = json.loads(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
    assert chrome["otherData"]["sources"].startswith(render(SPEC, trace=True).sources_hash[:16])
    assert {e["pid"] for e in chrome["traceEvents"]} == set(range(128))


def test_without_a_schedule_the_dispatched_kernel_is_traced(
    gpu: type[FakeSandbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, str]] = []

    def lookup(table: object, model: str, tokens: int, variant: Variant) -> SimpleNamespace:
        asked.append((model, tokens, variant.layout))
        return SimpleNamespace(kernel=SimpleNamespace(spec=SPEC))

    monkeypatch.setattr(dispatch, "load", lambda folder: None)
    monkeypatch.setattr(dispatch, "lookup", lookup)
    arguments = ["trace", "--model", SHAPE.name, "--tokens", "8", "-o", str(tmp_path)]
    assert cli.run(arguments) == 0
    assert cli.run([*arguments, "--layout", "raw"]) == 0
    assert asked == [(SHAPE.name, 8, "packed"), (SHAPE.name, 8, "raw")]
    assert gpu.requests[0].tokens == 8
    assert cli.run([*arguments[:4], "1,8", *arguments[5:], "--no-perfetto"]) == 0
    assert [request.tokens for request in gpu.requests[-2:]] == [1, 8]
    assert {p.name.partition("-b")[2][0] for p in tmp_path.glob("*.trace.json")} == {"1", "8"}


def test_missing_events_are_admitted(gpu: type[FakeSandbox], tmp_path: Path) -> None:
    buffer = Buffer(128)
    for i in range(RECORDS):
        if buffer.count[5, PRODUCER] < RECORDS:
            buffer.mark(5, PRODUCER, Mark.ISSUED, i, 1 + i / 100)
    gpu.outcome = TraceOutcome("ok", "", (Traced(pack(buffer.records), {"sm_clock_mhz": MHZ}),))
    found = tracing.record(SPEC, H200, 1, "uniform", 1, gpu())  # type: ignore[arg-type]
    svg, _ = tracing.write(found, tmp_path, perfetto=False)
    assert "1 warps had more events than room" in svg.read_text()
    gpu.outcome = TraceOutcome("ok", "", (traced(20),))
    whole = tracing.record(SPEC, H200, 1, "uniform", 1, gpu())  # type: ignore[arg-type]
    assert "missing" not in whole.provenance


def test_a_kernel_that_hangs_is_an_error(gpu: type[FakeSandbox]) -> None:
    gpu.outcome = TraceOutcome("timeout", "trace 1 tokens: no answer within 30 s, killed", ())
    with pytest.raises(LaunchError, match="no answer within 30 s"):
        tracing.record(SPEC, H200, 1, "uniform", 3, gpu())  # type: ignore[arg-type]


def test_an_unknown_clock_is_an_error(gpu: type[FakeSandbox]) -> None:
    stamps = Traced(traced(20).records, {"sm_clock_mhz": None})
    gpu.outcome = TraceOutcome("ok", "", (stamps,))
    with pytest.raises(MonomoeError, match="clock is unknown"):
        tracing.record(SPEC, H200, 1, "uniform", 1, gpu())  # type: ignore[arg-type]


def test_the_worker_returns_what_the_launches_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch of the graph has its own buffer, and no buffer keeps a warm-up's stamps."""
    launched: list[tuple[int, torch.Tensor]] = []
    replays: list[int] = []

    def launch(kernel, weights, x, logits, y, workspace, records):  # type: ignore[no-untyped-def]
        launched.append((int(logits[0, 0]), records))

    def capture(body: Callable[[], None]) -> SimpleNamespace:
        body()

        def replay() -> None:
            replays.append(1)
            for i, records in launched:
                assert len(replays) != recorder.WARMUPS + 1 or not records.any()
                records[0, 0, len(replays)] = i

        return SimpleNamespace(replay=replay)

    monkeypatch.setattr(recorder, "launch_moe", launch)
    monkeypatch.setattr(recorder, "capture", capture)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(worker, "load", lambda image: SimpleNamespace(grid=2))
    monkeypatch.setattr(worker, "CUDA", torch.device("cpu"))
    logits = torch.arange(recorder.LAUNCHES).reshape(-1, 1, 1)
    nothing = torch.zeros(1)
    bed = SimpleNamespace(
        shape=SHAPE,
        seed=0,
        weights=None,
        layout="packed",
        trace_file=None,
        inputs=lambda tokens, routing, router: SimpleNamespace(
            x=nothing, logits=logits, bias=None, routers=None
        ),
        layer=lambda distribution: (None, LayerWeights(nothing, nothing, nothing, nothing)),
    )
    allocated: list[int] = []
    monkeypatch.setattr(Workspace, "allocate", lambda half, device: allocated.append(half))
    server = worker.Server(H200, SimpleNamespace(state=lambda: {"sm_clock_mhz": 1}))  # type: ignore[arg-type]
    server.testbed = bed  # type: ignore[assignment]
    image = Image("k", b"", 2, 608, 0, half_bytes=256)
    asked = Trace(SHAPE.to_dict(), image, 4, "uniform", launches=3)
    events = list(server.answer(asked))
    assert allocated == [256]
    stages = ["load the kernel", "prepare the tracing of 4 tokens", "trace 4 tokens"]
    assert [e.name for e in events if isinstance(e, Stage)] == stages
    found = [e for e in events if isinstance(e, Traced)]
    assert isinstance(events[-1], Done) and len(found) == 3
    for i, event in enumerate(found, start=recorder.LAUNCHES - 3):
        stamps = tracing.unpack(event.records, 2)
        assert stamps.shape == (2, WARPS, RECORDS)
        assert stamps.nonzero()[2].tolist() == [recorder.WARMUPS + 1]
        assert stamps.max() == i
        assert event.env == {"sm_clock_mhz": 1}
