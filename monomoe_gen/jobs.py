"""Work for the GPU worker, made from compiled kernels, and records made from its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monomoe_gen import tuning_db
from monomoe_gen.bench import Effort, Timing
from monomoe_gen.compile import KernelBinary, compile_source
from monomoe_gen.device import Device
from monomoe_gen.dispatch import Kernel
from monomoe_gen.protocol import Cell, Env, Image, Measure, Timed, Trace, Weights
from monomoe_gen.render import render_empty, render_floor
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.tuning_db import Record, Stage, Status

STREAMS = (
    (16384, 8),
    (16384, 12),
    (8192, 24),
)  # bytes of a copy, copies in flight; the best counts


@dataclass(frozen=True)
class Floors:
    """The kernels of the floors. They are timed beside every kernel, in the same process."""

    streams: tuple[Image, ...]
    empty: Image

    def timed(self, effort: Effort) -> Timed:
        return Timed(effort.warmups, effort.replays, self.streams, self.empty)


def compile_floors(device: Device) -> Floors:
    """Compiles the floors for ``device``.

    Raises:
        CompileError, EnvironmentProblem: as `compile.compile_source`.
    """
    streams = [render_floor(chunk, depth, device.sms) for chunk, depth in STREAMS]
    return Floors(
        tuple(yardstick_image(compile_source(s, device.arch), device.sms) for s in streams),
        yardstick_image(compile_source(render_empty(), device.arch), device.sms),
    )


def image(binary: KernelBinary, spec: KernelSpec) -> Image:
    """A compiled operator kernel as the worker loads it."""
    size = spec.schedule.grid, binary.threads, binary.shared_bytes
    half = spec.geometry.workspace_half_bytes
    return Image(binary.kernel_name, binary.cubin, *size, spec.router, spec.pdl, half)


def yardstick_image(binary: KernelBinary, grid: int) -> Image:
    """The stream floor or the empty kernel as the worker loads it."""
    return Image(binary.kernel_name, binary.cubin, grid, binary.threads, binary.shared_bytes)


def dispatched_image(kernel: Kernel, cubin: bytes) -> Image:
    """A kernel of a dispatch table as the worker loads it."""
    size = kernel.schedule.grid, kernel.threads, kernel.shared_bytes
    half = kernel.workspace_half_bytes
    return Image(kernel.kernel_name, cubin, *size, kernel.router, kernel.pdl, half)


def measure(
    spec: KernelSpec,
    kernel: Image,
    tokens: Sequence[int],
    routing: str,
    *,
    validate: bool,
    timed: Timed | None,
    seed: int = 0,
    weights: Weights | None = None,
    report: bool = False,
    logits_kernel: Image | None = None,
    trace_file: Path | None = None,
) -> Measure:
    """The request to validate and time ``kernel``, which was compiled from ``spec``."""
    return Measure(
        shape=spec.shape.to_dict(),
        kernel=kernel,
        tokens=tuple(tokens),
        routing=routing,
        validate=validate,
        timed=timed,
        seed=seed,
        layout=spec.layout,
        weights=weights,
        report=report,
        logits_kernel=logits_kernel,
        trace_file=str(trace_file.absolute()) if trace_file else None,
    )


def trace(spec: KernelSpec, kernel: Image, tokens: int, routing: str, launches: int) -> Trace:
    """The request to trace ``launches`` launches of ``kernel``, a traced kernel of ``spec``."""
    return Trace(
        shape=spec.shape.to_dict(),
        kernel=kernel,
        tokens=tokens,
        routing=routing,
        launches=launches,
        layout=spec.layout,
    )


@dataclass(frozen=True)
class Subject:
    """What records are about: a spec, its sources, and the binary if it compiled."""

    spec: KernelSpec
    sources_hash: str
    compiler: str
    binary: KernelBinary | None

    def failure(
        self, tokens: int, routing: str, stage: Stage, status: Status, message: str, env: Env
    ) -> Record:
        """The record of a candidate that gave no time."""
        return self._record(tokens, routing, stage, status, message, env, None, None)

    def success(self, cell: Cell, errors: Cell, routing: str, stage: Stage, env: Env) -> Record:
        """The record of a time; ``errors`` is the cell of the validation, often the same."""
        return self._record(cell.tokens, routing, stage, "ok", "", env, cell, errors)

    def _record(
        self,
        tokens: int,
        routing: str,
        stage: Stage,
        status: Status,
        message: str,
        env: Env,
        cell: Cell | None,
        errors: Cell | None,
    ) -> Record:
        b = self.binary
        floor = cell.floor if cell else None
        return Record(
            tokens=tokens,
            token_tile=self.spec.token_tile,
            schedule=self.spec.schedule.to_dict(),
            sources_hash=self.sources_hash,
            compiler=self.compiler,
            status=status,
            stage=stage,
            routing=routing,
            time_us=_time(cell.samples) if cell else None,
            floor_us=floor.stream_us if floor else None,
            empty_us=floor.empty_us if floor else None,
            distinct_experts=cell.distinct_experts if cell else None,
            errors={
                name: tuning_db.Errors(e.cosine, e.rel_l2, e.mirror_rel_l2)
                for name, e in (errors.errors if errors else {}).items()
            },
            binary=tuning_db.Binary(b.registers, b.spill_bytes, b.shared_bytes, b.text_hash)
            if b
            else None,
            env={**env, **(cell.env | {"reuse_bytes": cell.reuse_bytes} if cell else {})},
            message=message,
            layout=self.spec.layout,
            router=self.spec.router,
            pdl=self.spec.pdl,
        )


def _time(samples: Sequence[float]) -> tuning_db.Time:
    timing = Timing(tuple(samples))
    return tuning_db.Time(timing.median_us, timing.p10_us, timing.p90_us, timing.n)
