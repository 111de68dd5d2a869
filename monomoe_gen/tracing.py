"""Trace a kernel on the GPU: compile it with time stamps, launch it cold, write files."""

from __future__ import annotations

import gzip
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from monomoe_gen import dispatch, jobs, trace_file
from monomoe_gen.compile import compile_source
from monomoe_gen.device import Device
from monomoe_gen.errors import LaunchError, MonomoeError
from monomoe_gen.files import write_atomically
from monomoe_gen.perfetto import trace_json
from monomoe_gen.protocol import Env, Event, Traced
from monomoe_gen.render import render
from monomoe_gen.sandbox import Sandbox
from monomoe_gen.schedule import KernelSpec, Layout, Schedule
from monomoe_gen.shapes import Shape
from monomoe_gen.space import require_feasible
from monomoe_gen.timeline import timeline_svg
from monomoe_gen.trace import Trace, parse, unpack
from monomoe_gen.variant import Variant


@dataclass(frozen=True)
class Recording:
    """Traced launches of one kernel and token count, and what they were traced with."""

    spec: KernelSpec
    tokens: int
    routing: str
    sources_hash: str
    compiler: str
    env: Env
    launches: tuple[Trace, ...]

    @property
    def typical(self) -> Trace:
        """The launch of median duration, the shorter one of two."""
        middle = statistics.median_low(trace.us for trace in self.launches)
        return next(trace for trace in self.launches if trace.us == middle)

    @property
    def name(self) -> str:
        """What its files are called."""
        raw = "" if self.spec.layout == "packed" else f"-{self.spec.layout}"
        return f"{self.spec.shape.name}-b{self.tokens}-{self.spec.schedule.id}{raw}"

    @property
    def provenance(self) -> dict[str, str]:
        """What a reader of the files has to know."""
        spec, env = self.spec, self.env
        spread = sorted(trace.us for trace in self.launches)
        facts = {
            "kernel": f"{spec.shape.name}, up to {spec.token_tile} tokens, {spec.schedule.id}, "
            f"{spec.layout} weights",
            "sources": f"{self.sources_hash[:16]} (rendered with time stamps), {self.compiler}",
            "launch": f"{self.tokens} tokens, {self.routing} routing, cold weights; the median of "
            f"{len(spread)} launches, {spread[0]:.2f} to {spread[-1]:.2f} us from the first start "
            "to the last mark",
            "gpu": f"{env.get('gpu')}, driver {env.get('driver')}, SM clock "
            f"{env.get('sm_clock_mhz')} MHz",
        }
        full = sum(warp.full for warp in self.typical.warps)
        if full:
            facts["missing"] = (
                f"{full} warps had more events than room: their last ones are missing"
            )
        return facts


def dispatched_spec(
    device: Device, model: str, tokens: int, layout: Layout = "packed"
) -> KernelSpec:
    """The kernel that the dispatch table of ``device`` has for a model and token count.

    Raises:
        NoKernel, DatabaseError: as `dispatch.lookup`.
    """
    table = dispatch.load(dispatch.table_folder(device.slug))
    return dispatch.lookup(table, model, tokens, Variant(layout)).kernel.spec


def schedule_spec(
    shape: Shape,
    schedule: Schedule,
    device: Device,
    token_tile: int,
    layout: Layout = "packed",
) -> KernelSpec:
    """The kernel of one schedule.

    Raises:
        InfeasibleSchedule: it breaks a rule.
    """
    require_feasible(shape, schedule, device, token_tile)
    return KernelSpec(shape, schedule, token_tile, layout)


def record(
    spec: KernelSpec,
    device: Device,
    tokens: int,
    routing: str,
    launches: int,
    box: Sandbox,
    on_event: Callable[[Event], object] = lambda event: None,
) -> Recording:
    """Traces ``launches`` launches of the kernel on the GPU of ``box``.

    Raises:
        CompileError, LaunchError: the traced kernel does not compile or run.
        MonomoeError: too many tokens, or the time stamps make no sense.
    """
    if tokens > spec.token_tile:
        raise MonomoeError(
            f"asked for {tokens} tokens of a kernel for up to {spec.token_tile}; give a larger "
            "--token-tile"
        )
    source = render(spec, trace=True)
    binary = compile_source(source, device.arch)
    image = jobs.image(binary, spec)
    outcome = box.trace(jobs.trace(spec, image, tokens, routing, launches), on_event)
    if outcome.status != "ok":
        raise LaunchError(f"cannot trace {spec.id}: {outcome.message}")
    return Recording(
        spec=spec,
        tokens=tokens,
        routing=routing,
        sources_hash=source.sources_hash,
        compiler=binary.compiler,
        env={**box.env, **outcome.launches[-1].env},
        launches=tuple(_trace(traced, spec.schedule.grid) for traced in outcome.launches),
    )


def _trace(traced: Traced, grid: int) -> Trace:
    """The trace in a worker's answer."""
    return parse(unpack(traced.records, grid), float(traced.env.get("sm_clock_mhz") or 0))


def write(recording: Recording, folder: Path, perfetto: bool = True) -> list[Path]:
    """Writes the typical launch into ``folder`` and says where.

    An SVG timeline, what is kept of the trace (`trace_file`) and, with ``perfetto``, a Chrome trace
    of all CTAs (gzip).
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = recording.provenance
    spec, tokens = recording.spec, recording.tokens
    title = f"{spec.shape.name}, {tokens} tokens, {recording.env.get('gpu')}"
    trace = recording.typical
    kept = trace_file.keep(trace, spec, tokens, recording.routing, title, tuple(facts.values()))
    svg = folder / f"{recording.name}.svg"
    write_atomically(svg, timeline_svg(kept).encode())
    record = folder / f"{recording.name}{trace_file.SUFFIX}"
    trace_file.write(record, kept)
    if not perfetto:
        return [svg, record]
    chrome = folder / f"{recording.name}.json.gz"
    write_atomically(chrome, gzip.compress(trace_json(trace, facts).encode(), mtime=0))
    return [svg, record, chrome]
