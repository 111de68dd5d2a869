"""Does the gate work on a real GPU? How often it is wrong about equal kernels, what it finds.

    python tests/gate_evidence.py measure OUT.jsonl --seconds 500 [--study a_a] [--model M]
    python tests/gate_evidence.py summary OUT.jsonl... [--plot gate.svg] [--json gate.json]

`measure` runs checks at the default settings on the GPU until the time is over and adds a line a
cell; it may be repeated, and run on several GPUs at once with a file each. A/A
checks compare kernels with themselves and with the same code at another place; planted ones compare
dispatched kernels with copies that were made slower: clock cycles of waiting that amount to 2, 4
and 8 % of the recorded time, one ring stage fewer, a lost L2 hint.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from monomoe_gen import candidates, dispatch, gate, jobs
from monomoe_gen.candidates import CellId, Pair, Side
from monomoe_gen.compile import compile_many, compile_source
from monomoe_gen.device import Device
from monomoe_gen.dispatch import Entry, Table
from monomoe_gen.errors import MonomoeError
from monomoe_gen.gate import Plan
from monomoe_gen.lab import Open
from monomoe_gen.placement import moved
from monomoe_gen.regress import Verdict
from monomoe_gen.render import Source, render
from monomoe_gen.sandbox import Sandbox
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.space import violations

DOSES = (0.02, 0.04, 0.08)
CLOCK_MHZ = 1980  # at which doses are converted to cycles
ROUTINGS = ("uniform", "zipf")


@dataclass(frozen=True)
class Line:
    """One judged cell. ``study`` is a_a or planted; ``seconds`` is its share of the whole check."""

    study: str
    kind: str
    dose: float | None
    model: str
    tokens: int
    routing: str
    verdict: str
    effect: float | None
    processes: int
    seconds: float
    delta: float
    uuid: str


@dataclass(frozen=True)
class Case:
    """A pair and what was done to its candidate."""

    kind: str
    dose: float | None
    pair: Pair


def sides(table: Table, device: Device) -> dict[str, Side]:
    """Every dispatched kernel by id, compiled by the compiler that is here."""
    return {k.id: compiled(render(k.spec), device) for k in table.kernels}


def compiled(source: Source, device: Device) -> Side:
    assert source.spec
    binary = compile_source(source, device.arch)
    image = jobs.image(binary, source.spec.schedule.grid)
    return Side(source.spec, image, binary.sources_hash, binary.compiler)


def a_a_cases(table: Table, device: Device) -> list[Case]:
    """Every entry under each routing, against itself and against a copy at another place."""
    known = sides(table, device)
    pairs = [
        Pair(CellId(e.model, e.tuned_at, routing), known[e.kernel], None, None, "none")
        for e in table.entries
        for routing in ROUTINGS
    ]
    identical, moved = candidates.a_a_pairs(pairs, device)
    return [Case("identical", None, p) for p in identical] + [Case("moved", None, p) for p in moved]


def planted_cases(table: Table, device: Device) -> list[Case]:
    """Every entry against its slower copies."""
    known = sides(table, device)
    return [
        Case(
            kind,
            dose,
            Pair(
                CellId(entry.model, entry.tuned_at, "uniform"),
                compiled(source, device),
                known[entry.kernel],
                None,
                "paired",
            ),
        )
        for entry in table.entries
        for kind, dose, source in slower(entry, table.kernel(entry).spec, device)
    ]


def slower(
    entry: Entry, spec: KernelSpec, device: Device
) -> Iterator[tuple[str, float | None, Source]]:
    """What was done to the entry's kernel, how much in parts of its time, and the result."""
    source = render(spec)
    for dose in DOSES:
        yield "waits", dose, waiting(source, round(dose * entry.time_us * CLOCK_MHZ))
    yield "no L2 hint", None, without_hint(source)
    fewer = one_stage_fewer(spec, device)
    if fewer:
        yield "one stage fewer", None, render(fewer)


def compile_all(table: Table, device: Device) -> None:
    """Fills the cache of cubins, on all CPUs."""
    sources = [render(kernel.spec) for kernel in table.kernels]
    sources += [moved(source) for source in sources]
    for entry in table.entries:
        sources += [s for _, _, s in slower(entry, table.kernel(entry).spec, device)]
    compile_many(sources, arch=device.arch)


def waiting(source: Source, cycles: int) -> Source:
    """Every warp waits ``cycles`` before it begins."""
    loop = f"\n    {{ const long long t = clock64(); while (clock64() - t < {cycles}) {{ }} }}\n"
    entry = re.compile(rf"\b{source.kernel_name}\([^)]*\)\s*\{{")
    return _changed(
        source,
        next(iter(source.texts)),
        lambda text: entry.sub(lambda found: found[0] + loop, text, count=1),
    )


def without_hint(source: Source) -> Source:
    """Weights stay in L2 as long as anything does."""
    return _changed(
        source,
        "device/bulk_copy.cuh",
        lambda text: text.replace("L2::evict_first.b64", "L2::evict_normal.b64"),
    )


def one_stage_fewer(spec: KernelSpec, device: Device) -> KernelSpec | None:
    """The kernel with one stage fewer in flight where it has most; None if that is not legal."""
    old = spec.schedule
    name = "d_up" if old.d_up >= old.d_down else "d_down"
    schedule = dataclasses.replace(old, **{name: getattr(old, name) - 1})
    if violations(spec.shape, schedule, device, spec.token_tile):
        return None
    return dataclasses.replace(spec, schedule=schedule)


def _changed(source: Source, name: str, change: Callable[[str], str]) -> Source:
    text = change(source.texts[name])
    if text == source.texts[name]:
        raise MonomoeError(f"{name} has no place to plant a slow-down in")
    own = hashlib.sha256(f"{source.sources_hash} {text}".encode()).hexdigest()
    return dataclasses.replace(source, texts={**source.texts, name: text}, sources_hash=own)


STUDIES = {"a_a": a_a_cases, "planted": planted_cases}


def checked(
    study: str,
    cases: Sequence[Case],
    floors: jobs.Floors,
    device: Device,
    open_sandbox: Open = Sandbox,
) -> Iterator[Line]:
    """The lines of one check of all cases at the default settings."""
    pairs = [case.pair for case in cases]
    run = gate.check(pairs, Plan(), floors, device, open_sandbox, validate=False)
    for case, result in zip(cases, run.cells, strict=True):
        if result.verdict in (Verdict.ENVIRONMENT, Verdict.WRONG):
            raise MonomoeError(f"{case.kind}: {result.cell}: {result.message}")
        judgement = result.judgement
        yield Line(
            study=study,
            kind=case.kind,
            dose=case.dose,
            **asdict(result.cell),
            verdict=result.verdict.value,
            effect=judgement.effect if judgement else None,
            processes=judgement.processes if judgement else 0,
            seconds=round(run.seconds / len(run.cells), 2),
            delta=run.delta,
            uuid=str(run.env["uuid"]),
        )


def measure(path: Path, seconds: float, studies: Sequence[str], models: Sequence[str]) -> None:
    """Checks in turns, study by study and model by model, until another may take too long."""
    from monomoe_gen.remeasure import require_device

    deadline = time.monotonic() + seconds
    device = require_device()
    table = dispatch.load(dispatch.table_folder(device.slug))
    compile_all(table, device)
    floors = jobs.compile_floors(device)
    made = {name: STUDIES[name](table, device) for name in studies}
    groups = [
        (study, [case for case in cases if case.pair.cell.model == model])
        for model in models or sorted({entry.model for entry in table.entries})
        for study, cases in made.items()
    ]
    longest = 0.0
    for study, cases in itertools.cycle(groups):
        began = time.monotonic()
        if began + longest > deadline:
            return
        with path.open("a") as file:
            for line in checked(study, cases, floors, device):
                file.write(json.dumps(asdict(line)) + "\n")
                file.flush()
        longest = max(longest, time.monotonic() - began)
        print(f"{study} {cases[0].pair.cell.model}: {time.monotonic() - began:.0f} s", flush=True)


def read(paths: Iterable[Path]) -> list[Line]:
    """All lines of some files."""
    return [
        Line(**json.loads(line))
        for path in paths
        if path.exists()
        for line in path.read_text().splitlines()
    ]


def summary(lines: Iterable[Line]) -> list[dict[str, object]]:
    """One row a kind and dose: how many cells, the shares of each verdict, the time spent."""
    groups: dict[tuple[str, str, float], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.study, line.kind, line.dose or 0.0), []).append(line)
    rows: list[dict[str, object]] = []
    for (study, kind, dose), group in sorted(groups.items()):
        effects = [line.effect for line in group if line.effect is not None]
        shares = {
            verdict: sum(line.verdict == verdict for line in group) / len(group)
            for verdict in ("OK", "IMPROVED", "INCONCLUSIVE", "CLOCK_CHANGED", "REGRESSION")
        }
        rows.append(
            {
                "study": study,
                "kind": kind,
                "dose": dose or None,
                "cells": len(group),
                "effect": statistics.median(effects) if effects else None,
                **shares,
                "processes": statistics.mean(line.processes for line in group),
                "seconds": statistics.mean(line.seconds for line in group),
            }
        )
    return rows


def table(rows: Iterable[dict[str, object]]) -> str:
    """The summary in markdown."""
    text = [
        "| study | change | dose | cells | median effect | OK | improved | inconclusive | clock |"
        " **regression** | processes | s per cell |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        dose, effect, cells = row["dose"], row["effect"], row["cells"]
        shares = " | ".join(
            f"{row[name]:.1%}"
            for name in ("OK", "IMPROVED", "INCONCLUSIVE", "CLOCK_CHANGED", "REGRESSION")
        )
        text.append(
            f"| {row['study']} | {row['kind']} | {f'{dose:.0%}' if dose else ''} | {cells} | "
            f"{'' if effect is None else f'{effect:+.2%}'} | {shares} | {row['processes']:.1f} | "
            f"{row['seconds']:.1f} |"
        )
    return "\n".join(text) + "\n"


def plot(lines: Sequence[Line], path: Path) -> None:
    """Every planted cell: its effect, its verdict and how many processes that took."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    colours = {"OK": "tab:green", "REGRESSION": "tab:red", "INCONCLUSIVE": "tab:orange"}
    for verdict, colour in colours.items():
        group = [line for line in lines if line.verdict == verdict and line.effect is not None]
        axes.scatter(
            [100 * (line.effect or 0) for line in group],
            [line.seconds for line in group],
            s=14,
            color=colour,
            label=f"{verdict} ({len(group)})",
        )
    axes.axvline(2, color="grey", linewidth=0.8, linestyle="--")
    axes.set(xlabel="measured change of the time, %", ylabel="seconds per cell")
    axes.legend()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--seconds", type=float, default=500)
    measuring.add_argument("--study", choices=STUDIES, action="append")
    measuring.add_argument("--model", action="append", default=[])
    telling = commands.add_parser("summary")
    telling.add_argument("files", type=Path, nargs="+")
    telling.add_argument("--plot", type=Path)
    telling.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.command == "measure":
        measure(chosen.out, chosen.seconds, chosen.study or list(STUDIES), chosen.model)
        return
    lines = read(chosen.files)
    rows = summary(lines)
    sys.stdout.write(table(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")
    if chosen.plot:
        plot(lines, chosen.plot)


if __name__ == "__main__":
    main()
