"""Times the variants of dispatched kernels beside the usual ones, all in one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from monomoe_gen import dispatch, jobs
from monomoe_gen.bench import QUICK, Timing
from monomoe_gen.compile import compile_all
from monomoe_gen.device import Device
from monomoe_gen.dispatch import Kernel, Table
from monomoe_gen.errors import MonomoeError, NoKernel
from monomoe_gen.protocol import Cell, Event, Image
from monomoe_gen.render import render
from monomoe_gen.sandbox import Outcome, Sandbox
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.shapes import Shape, unquantized
from monomoe_gen.space import nearest_legal
from monomoe_gen.variant import USUAL, Variant
from monomoe_gen.variant_report import KINDS, Cost, Kind

ROUTING = "uniform"
VARIANTS: dict[Kind, Variant] = {
    "usual": USUAL,
    "router": Variant(router="weight"),
    "pdl": Variant(pdl=True),
    "raw": Variant(layout="raw"),
    "bf16": USUAL,  # of another shape
}
AFTER_ROUTER = ("usual", "pdl")


@dataclass(frozen=True)
class Candidate:
    """A kernel, and the token counts that it is timed at.

    ``kernel`` is that of the table, None for one that has to be compiled, with a schedule that is
    not ``tuned`` for its kind.
    """

    kind: Kind
    model: str
    spec: KernelSpec
    tokens: tuple[int, ...]
    kernel: Kernel | None


def choose(
    table: Table, models: Sequence[str], tokens: Sequence[int], device: Device
) -> list[Candidate]:
    """What to time for each model (none: all of the table that quantize their activations).

    A kind has the kernel that the table has for exactly that token count; else that of the usual
    kernel's schedule, or of the nearest feasible one. A shape with a shared gate has no kernel with
    the router inside.

    Raises:
        NoKernel: the table has no usual kernel for a model and token count.
        MonomoeError: a model does not quantize its activations; the table has none that does.
    """
    usual = {e.model: table.kernel(e).shape for e in table.entries if e.variant == USUAL}
    known = [model for model, shape in sorted(usual.items()) if shape.activations == "fp8"]
    found: dict[tuple[Kind, str, KernelSpec, Kernel | None], list[int]] = {}
    if not models and not known:
        raise MonomoeError(
            f"asked for every model with fp8 activations, but the table of {device.name} has no "
            "usual kernel of one to compare variants with; run `monomoe-gen tune --model NAME` for "
            "it first"
        )
    for model in dict.fromkeys(models) or known:
        for kind in KINDS:
            for count in tokens:
                base = dispatch.lookup(table, model, count).kernel
                if base.shape.activations != "fp8":
                    raise MonomoeError(
                        f"{model} is a variant itself: ask for the shape with fp8 activations"
                    )
                if kind == "router" and base.shape.shared_gate:
                    continue
                kernel = base if kind == "usual" else _tuned(table, base, kind, count)
                spec = kernel.spec if kernel else _borrowed(base, kind, device)
                found.setdefault((kind, model, spec, kernel), []).append(count)
    return [
        Candidate(kind, model, spec, tuple(counts), kernel)
        for (kind, model, spec, kernel), counts in found.items()
    ]


def _shape(base: Kernel, kind: Kind) -> Shape:
    return unquantized(base.shape) if kind == "bf16" else base.shape


def _tuned(table: Table, base: Kernel, kind: Kind, tokens: int) -> Kernel | None:
    """The kernel that was tuned for a kind and exactly that token count."""
    try:
        match = dispatch.lookup(table, _shape(base, kind).name, tokens, VARIANTS[kind])
    except NoKernel:
        return None
    return match.kernel if match.how == "exact" else None


def _borrowed(base: Kernel, kind: Kind, device: Device) -> KernelSpec:
    """The kernel of a kind with the usual one's schedule, or the nearest that is feasible."""
    shape, tile = _shape(base, kind), base.token_tile
    schedule = nearest_legal(shape, base.schedule, device, tile)
    if schedule is None:
        raise MonomoeError(f"{shape.name} has no feasible schedule for {tile} tokens")
    return VARIANTS[kind].spec(shape, schedule, tile)


def images(
    candidates: Sequence[Candidate],
    folder: Path,
    device: Device,
    step: Callable[[str], object] = lambda name: None,
) -> list[Image]:
    """The kernels of ``candidates``: cubins of the table in ``folder``, the others compiled now.

    Raises:
        CompileError: one does not compile.
        DatabaseError: a cubin is missing, or not the table's.
    """
    sources = [render(c.spec) for c in candidates if not c.kernel]
    compiled = iter(
        compile_all(sources, lambda i, _: step(sources[i].kernel_name), arch=device.arch)
    )
    found = []
    for candidate in candidates:
        if candidate.kernel:
            cubin = dispatch.read_cubin(folder, candidate.kernel)
            found.append(jobs.dispatched_image(candidate.kernel, cubin))
            continue
        found.append(jobs.image(next(compiled), candidate.spec))
    return found


def measure(
    candidates: Sequence[Candidate],
    kernels: Sequence[Image],
    floors: jobs.Floors,
    box: Sandbox,
    hear: Callable[[Candidate, Cell], object] = lambda candidate, cell: None,
) -> Iterator[tuple[Candidate, Outcome]]:
    """Validates and times the kernels, in the order given; ``hear`` is told of every cell.

    The floors are timed beside the usual kernels only.
    """
    timed = floors.timed(QUICK)
    for candidate, image in zip(candidates, kernels, strict=True):
        gated = candidate.spec.shape.shared_gate
        request = jobs.measure(
            candidate.spec,
            image,
            candidate.tokens,
            ROUTING,
            validate=True,
            timed=timed if candidate.kind == "usual" else replace(timed, streams=()),
            logits_kernel=image if candidate.kind in AFTER_ROUTER and not gated else None,
        )

        def told(event: Event, candidate: Candidate = candidate) -> None:
            if isinstance(event, Cell):
                hear(candidate, event)

        yield candidate, box.measure(request, told)


def costs(measured: Sequence[tuple[Candidate, Outcome]]) -> list[Cost]:
    """What came of the cells that are ok, of every model and token count with a usual kernel."""
    cells = [(c, cell) for c, outcome in measured for cell in outcome.cells if cell.status == "ok"]
    floors = {(c.model, cell.tokens): cell.floor.stream_us for c, cell in cells if cell.floor}
    return [
        Cost(
            model=c.model,
            tokens=cell.tokens,
            kind=c.kind,
            schedule=c.spec.schedule.id,
            tuned=c.kernel is not None,
            time_us=Timing(cell.samples).median_us,
            floor_us=floors[c.model, cell.tokens],
            after_router_us=cell.separate_us,
            cosine=round(min(errors.cosine for errors in cell.errors.values()), 6),
        )
        for c, cell in cells
        if (c.model, cell.tokens) in floors
    ]
