"""The real thing: kernels in the sandbox, timing, and the torch layer, on a GPU."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fault_log
import pytest
import torch
from torch import Tensor

from monomoe_gen import bench, dispatch, jobs, runtime, trace, tracing, variant_bench
from monomoe_gen.compile import compile_source
from monomoe_gen.device import Device, current_device
from monomoe_gen.dispatch import Entry, Kernel, Origin, Table
from monomoe_gen.errors import LaunchError, MonomoeError
from monomoe_gen.kernel import LayerWeights, LoadedKernel, Workspace, capture, launch_moe
from monomoe_gen.protocol import Image
from monomoe_gen.reference import moe_mirror
from monomoe_gen.render import render, render_empty
from monomoe_gen.sandbox import Limits, Sandbox
from monomoe_gen.schedule import LAYOUTS, KernelSpec, Layout, Router, Schedule
from monomoe_gen.shapes import load_shape
from monomoe_gen.space import feasible, nearest_legal
from monomoe_gen.trace_summary import summarize
from monomoe_gen.validate import MIRROR_REL_L2_MAX, measure_errors
from monomoe_gen.variant import Variant
from monomoe_gen.variant_report import KINDS
from monomoe_gen.weights import BlockWeights, pack_w2, pack_w13
from monomoe_gen.worker_process import ProcessWorker
from monomoe_gen.workload import activations, block_weights, rotation

pytestmark = pytest.mark.gpu

MODELS = ("qwen3.5-35b", "qwen3.5-122b", "glm-5.2-tp8", "deepseek-v3.1-tp8")
FAMILIAR = Schedule(132, 64, 1024, 128, 512, 8, 8)


@pytest.fixture(scope="module")
def device() -> Device:
    found = current_device()
    assert found
    return found


def spec_of(model: str, device: Device) -> KernelSpec:
    shape = load_shape(model)
    schedule = nearest_legal(shape, FAMILIAR, device)
    assert schedule
    return KernelSpec(shape, schedule)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One worker for the whole file; its lock does not keep the other tests from the GPU."""
    with Sandbox(ProcessWorker, Limits(), tmp_path_factory.mktemp("lock")) as opened:
        yield opened


@pytest.fixture(scope="module")
def floors(device: Device) -> jobs.Floors:
    return jobs.compile_floors(device)


def image_of(spec: KernelSpec, device: Device) -> Image:
    return jobs.image(compile_source(render(spec), device.arch), spec)


def test_a_second_compilation_knows_as_much_as_the_first(device: Device) -> None:
    """Beside a driver NVRTC has a cache, in which the compiler's report is missing."""
    source = render(spec_of(MODELS[0], device))
    first, second = (compile_source(source, device.arch, fresh=True) for _ in range(2))
    assert first == second
    assert second.registers > 32


# -- right and timed


@pytest.mark.parametrize("model", MODELS)
def test_a_kernel_is_right_for_every_token_count(model: str, device: Device, box: Sandbox) -> None:
    spec = spec_of(model, device)
    asked = jobs.measure(
        spec, image_of(spec, device), range(1, 9), "uniform", validate=True, timed=None
    )
    outcome = box.measure(asked)
    assert outcome.status == "ok", outcome.message
    assert {c.tokens: c.message for c in outcome.cells} == dict.fromkeys(range(1, 9), "")
    worst = min(e.cosine for c in outcome.cells for e in c.errors.values())
    assert worst >= 0.998


@pytest.mark.parametrize("model", MODELS)
def test_a_kernel_of_raw_weights_is_right_for_every_token_count(
    model: str, device: Device, box: Sandbox
) -> None:
    spec = dataclasses.replace(spec_of(model, device), layout="raw")
    asked = jobs.measure(
        spec, image_of(spec, device), range(1, 9), "uniform", validate=True, timed=None
    )
    outcome = box.measure(asked)
    assert outcome.status == "ok", outcome.message
    assert {c.tokens: c.message for c in outcome.cells} == dict.fromkeys(range(1, 9), "")


@pytest.mark.parametrize("pdl", [False, True], ids=["", "pdl"])
@pytest.mark.parametrize("router", ["logits", "weight"])
@pytest.mark.parametrize("model", MODELS)
def test_variants_are_right_for_every_token_count(
    model: str, router: Router, pdl: bool, device: Device, box: Sandbox
) -> None:
    if router == "logits" and not pdl:
        return  # the usual kernel, see above
    spec = dataclasses.replace(spec_of(model, device), router=router, pdl=pdl)
    image = jobs.image(compile_source(render(spec), device.arch), spec)
    asked = jobs.measure(spec, image, range(1, 9), "uniform", validate=True, timed=None)
    outcome = box.measure(asked)
    assert outcome.status == "ok", outcome.message
    assert {c.tokens: c.message for c in outcome.cells} == dict.fromkeys(range(1, 9), "")


def test_a_router_inside_is_timed_beside_a_separate_one(
    device: Device, box: Sandbox, floors: jobs.Floors
) -> None:
    usual = spec_of("qwen3.5-35b", device)
    spec = dataclasses.replace(usual, router="weight")
    image = jobs.image(compile_source(render(spec), device.arch), spec)
    asked = jobs.measure(
        spec,
        image,
        (1, 8),
        "uniform",
        validate=False,
        timed=floors.timed(bench.FULL),
        logits_kernel=image_of(usual, device),
    )
    outcome = box.measure(asked)
    assert outcome.status == "ok", outcome.message
    for cell in outcome.cells:
        inside = bench.Timing(cell.samples).median_us
        print(f"{cell.tokens} tokens: inside {inside:.2f} us, apart {cell.separate_us:.2f} us")
        assert cell.floor and cell.separate_us and cell.separate_us > cell.floor.stream_us
        assert inside < 1.5 * cell.separate_us


def test_all_variants_are_timed_in_one_worker(
    device: Device, box: Sandbox, floors: jobs.Floors
) -> None:
    folder = dispatch.table_folder(device.slug)
    chosen = variant_bench.choose(dispatch.load(folder), ["qwen3.5-35b"], (1, 8), device)
    kernels = variant_bench.images(chosen, folder, device)
    outcomes = list(variant_bench.measure(chosen, kernels, floors, box))
    assert [o.message for _, o in outcomes if o.status != "ok"] == []
    found = variant_bench.costs(outcomes)
    assert {(c.tokens, c.kind) for c in found} == {(n, kind) for n in (1, 8) for kind in KINDS}
    assert all(c.floor_us < c.time_us < 3 * c.floor_us for c in found)
    assert all((c.after_router_us or 0) > c.time_us for c in found if c.kind in ("usual", "pdl"))
    assert min(c.cosine for c in found if c.kind == "bf16") >= 0.9999


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", MODELS)
def test_bf16_activations_are_right_for_every_token_count(
    model: str, layout: Layout, device: Device, box: Sandbox
) -> None:
    shape = dataclasses.replace(load_shape(model), name=f"{model}-wide", activations="bf16")
    schedule = nearest_legal(shape, FAMILIAR, device)
    assert schedule
    spec = KernelSpec(shape, schedule, layout=layout)
    asked = jobs.measure(
        spec, image_of(spec, device), range(1, 9), "uniform", validate=True, timed=None
    )
    outcome = box.measure(asked)
    assert outcome.status == "ok", outcome.message
    assert {c.tokens: c.message for c in outcome.cells} == dict.fromkeys(range(1, 9), "")
    worst = min(e.cosine for c in outcome.cells for e in c.errors.values())
    assert worst >= 0.9999


def test_bf16_input_beyond_shared_memory_is_right(device: Device, box: Sandbox) -> None:
    shape = dataclasses.replace(load_shape("deepseek-v3.1-tp8"), name="wide", activations="bf16")
    schedule = nearest_legal(shape, FAMILIAR, device, 16)
    assert schedule
    spec = KernelSpec(shape, schedule, 16)
    assert not spec.geometry.x_in_shared
    asked = jobs.measure(
        spec, image_of(spec, device), (1, 9, 16), "uniform", validate=True, timed=None
    )
    outcome = box.measure(asked)
    assert (outcome.status, [c.message for c in outcome.cells]) == ("ok", ["", "", ""])


VARIANTS = (
    {"name": "shared", "shared_experts": 1, "swiglu_limit": 1.0},
    {"name": "gated", "shared_experts": 3, "shared_gate": True, "activation": "gelu_tanh"},
)


@pytest.mark.parametrize("model", ["qwen3.5-35b", "deepseek-v3.1-tp8"])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v["name"])
def test_shared_experts_and_activations_are_right(
    model: str, variant: dict[str, Any], device: Device, box: Sandbox
) -> None:
    plain = spec_of(model, device)
    spec = dataclasses.replace(plain, shape=dataclasses.replace(plain.shape, **variant))
    asked = jobs.measure(
        spec, image_of(spec, device), (1, 3, 8), "uniform", validate=True, timed=None
    )
    outcome = box.measure(asked)
    assert (outcome.status, [c.message for c in outcome.cells]) == ("ok", ["", "", ""])


def test_launches_with_shared_experts_are_timed_cold(
    device: Device, box: Sandbox, floors: jobs.Floors
) -> None:
    """The floor streams the same experts, and a ninth of the bytes belongs to the shared one."""
    plain = spec_of("qwen3.5-35b", device)
    shape = dataclasses.replace(plain.shape, name="shared", shared_experts=1, shared_gate=True)
    cells = []
    for spec in (plain, dataclasses.replace(plain, shape=shape)):
        image, timed = image_of(spec, device), floors.timed(bench.FULL)
        outcome = box.measure(
            jobs.measure(spec, image, (1,), "uniform", validate=False, timed=timed)
        )
        assert outcome.status == "ok", outcome.message
        cells += outcome.cells
    routed, shared = cells
    assert (routed.distinct_experts, shared.distinct_experts) == (8, 9)
    assert shared.reuse_bytes and shared.reuse_bytes >= 2 * device.l2_bytes
    assert routed.floor and shared.floor
    assert 1.02 < shared.floor.stream_us / routed.floor.stream_us < 1.25


@pytest.mark.parametrize("k_up", [256, 1024, 2048])
def test_raw_rows_of_any_length_are_right(k_up: int, device: Device, box: Sandbox) -> None:
    shape = load_shape("qwen3.5-35b")
    wanted = [s for s in feasible(shape, device) if s.k_up == k_up]
    spec = KernelSpec(shape, wanted[len(wanted) // 2], layout="raw")
    asked = jobs.measure(
        spec, image_of(spec, device), (1, 3, 8), "uniform", validate=True, timed=None
    )
    outcome = box.measure(asked)
    assert (outcome.status, [c.message for c in outcome.cells]) == ("ok", ["", "", ""])


def test_times_are_plausible_and_repeat(device: Device, box: Sandbox, floors: jobs.Floors) -> None:
    """Microseconds of the stream floor on an H200: 7.5 and 40.8 for 1 and 8 tokens."""
    spec = spec_of("qwen3.5-35b", device)
    timed = floors.timed(bench.FULL)
    asked = jobs.measure(
        spec, image_of(spec, device), (1, 8), "uniform", validate=False, timed=timed
    )
    first, second = box.measure(asked), box.measure(asked)
    assert first.status == second.status == "ok", first.message + second.message
    for a, b, anchor in zip(first.cells, second.cells, (7.5, 40.8), strict=True):
        assert a.floor and a.reuse_bytes and a.distinct_experts
        assert 0.6 * anchor < a.floor.stream_us < 1.5 * anchor
        assert 0.2 < a.floor.empty_us < 2
        one, two = (bench.Timing(cell.samples).median_us for cell in (a, b))
        assert a.floor.stream_us < one
        assert abs(one / two - 1) < 0.05
        assert a.reuse_bytes >= 2 * device.l2_bytes
        assert a.env["sm_clock_mhz"] is None or int(a.env["sm_clock_mhz"]) > 0
    assert first.cells[0].distinct_experts == 8


# -- broken kernels


def test_broken_kernels_become_results_and_leave_no_trace(device: Device, tmp_path: Path) -> None:
    """The time of a good kernel is the same before and after each of them."""
    log = fault_log.measure(device, tmp_path, fault_log.Workers())
    assert all(entry["fine"] for entry in log["entries"]), log


def test_what_cannot_run_is_refused_when_it_is_loaded(device: Device) -> None:
    binary = compile_source(render_empty(), device.arch)

    def load(cubin: bytes = binary.cubin, name: str = "", grid: int = 1, shared: int = 0) -> None:
        LoadedKernel.from_cubin(cubin, name or binary.kernel_name, grid, 32, shared)

    load(grid=device.sms)
    with pytest.raises(LaunchError, match=f"offers {device.sms}"):
        load(grid=device.sms + 1)
    with pytest.raises(LaunchError, match="cannot load"):
        load(shared=device.shared_per_block + 1024)
    with pytest.raises(LaunchError, match="cannot load no_such_kernel"):
        load(name="no_such_kernel")
    with pytest.raises(LaunchError, match="cannot load"):
        load(cubin=b"this is no cubin" * 8)
    torch.cuda.synchronize()


# -- the layer


@pytest.fixture(scope="module")
def spec(device: Device) -> KernelSpec:
    return spec_of("qwen3.5-35b", device)


@pytest.fixture(scope="module")
def weights(spec: KernelSpec) -> BlockWeights:
    return block_weights(spec.shape, "gaussian", 3, "cuda")


def layer_of(
    spec: KernelSpec, weights: BlockWeights, device: Device, folder: Path
) -> runtime.MoELayer:
    """A layer served by the one kernel of ``spec``, from a table in ``folder``."""
    binary = compile_source(render(spec), device.arch)
    origin = Origin("2026-01-01T00:00:00+00:00", binary.compiler, binary.text_hash, "final")
    kernel = Kernel(
        id=spec.id,
        kernel_name=binary.kernel_name,
        shape=spec.shape,
        schedule=spec.schedule,
        token_tile=8,
        threads=binary.threads,
        shared_bytes=binary.shared_bytes,
        workspace_half_bytes=spec.geometry.workspace_half_bytes,
        registers=binary.registers,
        sources_hash=binary.sources_hash,
        compiler=binary.compiler,
        cubin_sha256=hashlib.sha256(binary.cubin).hexdigest(),
        layout=spec.layout,
    )
    entry = Entry(spec.shape.name, 1, 8, spec.id, 15.0, 7.5, origin, spec.layout)
    table = Table(device, (kernel,), (entry,))
    (folder / dispatch.FILE).write_text(dispatch.dump(table), encoding="utf-8")
    (folder / f"{spec.id}.cubin").write_bytes(binary.cubin)
    w = weights
    tensors = w.w13, w.w13_scale, w.w2, w.w2_scale
    return runtime.MoELayer.from_weights(
        runtime.load_table(folder), spec.shape.name, *tensors, layout=spec.layout
    )


@pytest.fixture(scope="module")
def layer(
    spec: KernelSpec,
    weights: BlockWeights,
    device: Device,
    tmp_path_factory: pytest.TempPathFactory,
) -> runtime.MoELayer:
    return layer_of(spec, weights, device, tmp_path_factory.mktemp("table"))


Problem = tuple[Tensor, Tensor, Tensor]


@pytest.fixture(scope="module")
def problem(spec: KernelSpec, weights: BlockWeights) -> Callable[[int, int], Problem]:
    """x, logits and the mirror's answer for a token count and seed."""

    def make(tokens: int, seed: int) -> Problem:
        shape, w = spec.shape, weights
        x = activations(shape, tokens, "gaussian", seed).cuda()
        logits = rotation(shape, tokens, "uniform", 1, 0, seed).logits[0].cuda()
        y = moe_mirror(x, logits, w.w13, w.w13_scale, w.w2, w.w2_scale, None, shape)
        return x, logits, y

    return make


def assert_close(y: Tensor, mirror: Tensor) -> None:
    worst = max(e.mirror_rel_l2 for e in measure_errors(y, mirror.float(), mirror))
    assert worst <= MIRROR_REL_L2_MAX


@pytest.mark.parametrize("tokens", [1, 3, 8])
def test_the_layer_computes_the_operator(
    layer: runtime.MoELayer, problem: Callable[[int, int], Problem], tokens: int
) -> None:
    x, logits, mirror = problem(tokens, tokens)
    assert_close(layer(x, logits), mirror)
    out = torch.full_like(x, torch.nan)
    assert layer(x, logits, out) is out
    assert_close(out, mirror)


def test_a_layer_shares_raw_weights_and_computes_the_same(
    spec: KernelSpec,
    weights: BlockWeights,
    device: Device,
    problem: Callable[[int, int], Problem],
    tmp_path: Path,
) -> None:
    raw = layer_of(dataclasses.replace(spec, layout="raw"), weights, device, tmp_path)
    assert raw.w13.data_ptr() == weights.w13.data_ptr()
    assert raw.w2.data_ptr() == weights.w2.data_ptr()
    for tokens in (1, 3, 8):
        x, logits, mirror = problem(tokens, tokens)
        assert_close(raw(x, logits), mirror)


def test_the_layer_in_a_graph_sees_new_inputs(
    layer: runtime.MoELayer, problem: Callable[[int, int], Problem]
) -> None:
    """Captured on a stream that never ran the layer before, then mixed with eager calls."""
    x, logits, _ = problem(4, 0)
    x, logits, out = x.clone(), logits.clone(), torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        layer(x, logits, out)
        layer(x, logits, out)
    for seed in range(5):
        new_x, new_logits, mirror = problem(4, seed)
        x.copy_(new_x)
        logits.copy_(new_logits)
        out.fill_(torch.nan)
        graph.replay()
        assert_close(out, mirror)
        assert_close(layer(new_x, new_logits), mirror)


def test_a_call_with_out_allocates_nothing(
    layer: runtime.MoELayer, problem: Callable[[int, int], Problem]
) -> None:
    x, logits, _ = problem(8, 1)
    out = torch.empty_like(x)
    layer(x, logits, out)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    layer(x, logits, out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


def test_the_layer_refuses_what_it_cannot_do(
    layer: runtime.MoELayer, problem: Callable[[int, int], Problem]
) -> None:
    x, logits, _ = problem(2, 1)
    with pytest.raises(MonomoeError, match="x must be"):
        layer(x.float(), logits)
    with pytest.raises(MonomoeError, match="router_logits must be"):
        layer(x, logits.bfloat16())
    with pytest.raises(MonomoeError, match="out must be"):
        layer(x, logits, torch.empty_like(x)[:1])
    assert layer(x[:0], logits[:0]).shape == (0, layer.shape.hidden)


def test_one_workspace_serves_kernels_of_several_shapes(device: Device) -> None:
    """Launches of two shapes in turn on one stream, in a graph that is replayed."""
    specs = [spec_of(model, device) for model in ("qwen3.5-35b", "glm-5.2-tp8")]
    half = max(spec.geometry.workspace_half_bytes for spec in specs)
    space = Workspace.allocate(half, torch.device("cuda"))
    work = []
    for spec in specs:
        shape = spec.shape
        block = block_weights(shape, "gaussian", 0, "cuda")
        drawn = rotation(shape, 5, "uniform", 1, 0, 0)
        bias = None if drawn.bias is None else drawn.bias.cuda()
        x, logits = activations(shape, 5, "gaussian", 0).cuda(), drawn.logits[0].cuda()
        logits = logits.to(getattr(torch, shape.logits_dtype))
        mirror = moe_mirror(
            x, logits, block.w13, block.w13_scale, block.w2, block.w2_scale, bias, shape
        )
        packed = LayerWeights(
            pack_w13(block.w13),
            block.w13_scale,
            pack_w2(block.w2),
            block.w2_scale,
            bias,
        )
        binary = compile_source(render(spec), device.arch)
        loaded = LoadedKernel.from_cubin(
            binary.cubin,
            binary.kernel_name,
            spec.schedule.grid,
            binary.threads,
            binary.shared_bytes,
        )
        work.append((loaded, packed, x, logits, torch.empty_like(x), mirror))

    def both() -> None:
        for loaded, packed, x, logits, y, _ in work:
            launch_moe(loaded, packed, x, logits, y, space)

    graph = capture(both)
    for _ in range(10):
        for *_, y, _ in work:
            y.fill_(torch.nan)
        graph.replay()
        both()
        for *_, y, mirror in work:
            assert_close(y, mirror)


# -- tuning


def test_a_small_tuning_run_on_the_gpu(device: Device, tmp_path: Path) -> None:
    from monomoe_gen import tune, tuning_db
    from monomoe_gen.campaign import Plan

    shape = load_shape("qwen3.5-35b")
    plan = Plan(
        shape, tokens=(1, 8), trials=6, database=tmp_path / "db", folder=tmp_path / "generated"
    )
    report = tune.tune(plan, device)
    assert report.measured == 6
    assert report.emission and set(report.best) == {1, 8}
    assert not report.failures
    records = tuning_db.read(tuning_db.database_path(device.slug, shape.name, plan.database))
    assert len([r for r in records if r.stage == "screen"]) == 12
    again = tune.tune(dataclasses.replace(plan, trials=0), device)
    assert again.known == 6
    table = runtime.load_table(tmp_path / "generated")
    assert dispatch.lookup(table.table, shape.name, 1).how == "exact"
    variant = Variant("raw", "weight", True)
    short = tune.tune(
        dataclasses.replace(plan, trials=None, variant=variant, from_winners=1), device
    )
    assert 1 <= short.measured <= 2 and set(short.best) == {1, 8} and not short.failures
    table = runtime.load_table(tmp_path / "generated")
    assert dispatch.lookup(table.table, shape.name, 8, variant).how == "exact"


# -- tracing


@pytest.mark.parametrize("tokens", [1, 8])
def test_a_traced_kernel_tells_what_its_warps_did(
    tokens: int, device: Device, box: Sandbox, tmp_path: Path
) -> None:
    spec = spec_of("qwen3.5-35b", device)
    found = tracing.record(spec, device, tokens, "uniform", 4, box)
    assert len(found.launches) == 4
    for launch in found.launches:
        assert launch.grid == spec.schedule.grid
        assert 5 < launch.us < 200
        events = {(row.role, row.event): row for row in summarize(launch)}
        assert {event for _, event in events} == set(trace.Event) - {trace.Event.START}
        units = events[trace.Role.EPILOGUE, trace.Event.UNIT_STORED].count
        assert units % spec.schedule.g_up == 0
        assert 8 <= units // spec.schedule.g_up <= 8 * tokens
        owners = spec.geometry.down_groups * spec.schedule.g_down
        assert events[trace.Role.MMA, trace.Event.STORED].ctas == owners
        for cta in range(launch.grid):
            mma, producer = launch.cta(cta)[0].marks, launch.cta(cta)[-1].marks
            issued = [mark.us for mark in producer if mark.event == trace.Event.ISSUED]
            full = [mark.us for mark in mma if mark.event == trace.Event.STAGE_FULL]
            assert len(issued) == len(full)
            assert all(asked < there for asked, there in zip(issued, full, strict=True))
            late = trace.Role.REQUANT, trace.Role.PRODUCER  # they wait for all who route
            marks = [m for warp in launch.cta(cta) if warp.role in late for m in warp.marks]
            routed = max(mark.us for mark in marks if mark.event == trace.Event.ROUTED)
            synced = min(mark.us for mark in marks if mark.event == trace.Event.SYNCED)
            assert routed <= synced
    svg, chrome = tracing.write(found, tmp_path)
    assert svg.stat().st_size > 10_000 and chrome.stat().st_size > 10_000


# -- last, because grids that wait for each other would end every test after it


def test_two_streams_do_not_disturb_each_other(
    layer: runtime.MoELayer, problem: Callable[[int, int], Problem]
) -> None:
    problems = [problem(8, 10), problem(2, 11)]
    streams = [torch.cuda.Stream() for _ in problems]
    outs = [torch.empty(200, *x.shape, dtype=x.dtype, device="cuda") for x, _, _ in problems]
    torch.cuda.synchronize()
    for i in range(200):
        for (x, logits, _), stream, out in zip(problems, streams, outs, strict=True):
            with torch.cuda.stream(stream):
                layer(x, logits, out[i])
    torch.cuda.synchronize()
    for (_, _, mirror), out in zip(problems, outs, strict=True):
        assert_close(out[0], mirror)
        assert torch.equal(out.view(torch.int16), out[:1].view(torch.int16).expand_as(out))
