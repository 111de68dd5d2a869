"""Does the gate work on a real GPU? How often it is wrong about equal kernels, what it finds.

    python tests/gate_evidence.py compile
    python tests/gate_evidence.py measure OUT.jsonl --deadline 290
    python tests/gate_evidence.py summary OUT.jsonl... [--plot gate.svg] [--json gate.json]

`measure` judges cells by the default settings of `check`: blocks, processes, looks and threshold.
A/A cells compare kernels with themselves and with the same code at another place; planted ones
compare dispatched kernels with copies that were made slower: clock cycles of waiting that amount
to 2, 4 and 8 % of the recorded time, one ring stage fewer, a lost L2 hint.

A fresh process serves all cells that are still undecided, as it does in `check`, and the next one
imports its libraries meanwhile. Cells are by default the cheapest that there are, one token of the
fastest kernel under all routings, repeated: some five minutes for all.

A line is added to the file for each cell and process; `measure` goes on where the file ends, if
card and kernels are the same, and begins nothing that would end after --deadline. On a machine with
several GPUs run one on each (CUDA_VISIBLE_DEVICES), with a file and a --part of its own. `compile`
fills the cache of compiled kernels (MONOMOE_CACHE), on a machine without a GPU.

`summary` judges each cell alone. A check of many cells claims less, since Holm's procedure divides
the error level among them: false alarms are at most as frequent as shown here, but detection too.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from scipy.special import betaincinv

from monomoe_gen import calibration, candidates, dispatch, jobs, regress
from monomoe_gen.candidates import CellId, Pair, compiled
from monomoe_gen.compile import compile_many
from monomoe_gen.device import DEFAULT, KNOWN, Device
from monomoe_gen.dispatch import Entry, Table
from monomoe_gen.errors import MonomoeError
from monomoe_gen.gate import Plan, refuse_throttling
from monomoe_gen.lab import Lab, Open, State
from monomoe_gen.placement import moved
from monomoe_gen.regress import Block, Verdict
from monomoe_gen.render import Source, render
from monomoe_gen.routings import TIMED_ROUTINGS
from monomoe_gen.sandbox import sandboxes
from monomoe_gen.schedule import KernelSpec
from monomoe_gen.space import violations
from monomoe_gen.variant import USUAL, Variant

DOSES = (0.02, 0.04, 0.08)
CLOCK_MHZ = 1980  # at which doses are converted to cycles
CELLS = ("qwen3.5-35b:1",)
REPEATS = 26  # of the A/A cells: 1 entry, 4 routings, 2 kinds, so 208 cells
PLANTED_REPEATS = 10
PLAN = Plan()
SETTLED = (Verdict.OK, Verdict.IMPROVED, Verdict.REGRESSION, Verdict.CLOCK_CHANGED)


@dataclass(frozen=True)
class Case:
    """A pair and what was done to its candidate; ``study`` is a_a or planted."""

    study: str
    kind: str
    dose: float | None
    repeat: int
    pair: Pair

    @property
    def key(self) -> str:
        """Tells it from all others, of other binaries too."""
        old = self.pair.baseline
        assert old
        binaries = self.pair.candidate.image.cubin + old.image.cubin
        digest = hashlib.sha256(binaries).hexdigest()[:12]
        cell = self.pair.cell
        name = f"{self.study}/{self.kind}/{self.dose}/{self.repeat}"
        return f"{name}/{cell.model}/{cell.tokens}/{cell.routing}/{digest}"


@dataclass(frozen=True)
class Line:
    """What one process said of one cell. ``ratios`` and ``clocks`` are those of its blocks."""

    key: str
    study: str
    kind: str
    dose: float | None
    repeat: int
    model: str
    tokens: int
    routing: str
    process: int
    ratios: list[float]
    clocks: list[float]
    discarded: int
    seconds: float
    uuid: str

    @property
    def blocks(self) -> list[Block]:
        pairs = zip(self.ratios, self.clocks, strict=True)
        return [Block(self.process, ratio, clock) for ratio, clock in pairs]


@dataclass(frozen=True)
class Judged:
    """One cell of one card: the lines that its verdict took; None as long as there are too few."""

    lines: tuple[Line, ...]
    verdict: Verdict | None
    effect: float | None

    @property
    def seconds(self) -> float:
        return sum(line.seconds for line in self.lines)


def judge(lines: Sequence[Line]) -> Judged:
    """The verdict on one cell as `check` reaches it, look by look; the cell is alone in its run."""
    by_process = {line.process: line for line in lines}
    effect = None
    for look in PLAN.looks:
        if not all(process in by_process for process in range(look)):
            return Judged(tuple(by_process.values()), None, effect)
        used = tuple(by_process[process] for process in range(look))
        blocks = [block for line in used for block in line.blocks]
        if not blocks:
            continue
        found = regress.judge({0: blocks}, PLAN.delta, len(PLAN.looks))[0]
        effect = found.effect
        if found.verdict is not Verdict.INCONCLUSIVE:
            return Judged(used, found.verdict, effect)
    return Judged(used, Verdict.INCONCLUSIVE, effect)


def entries(table: Table, cells: Sequence[str]) -> list[Entry]:
    """The dispatched entries that ``model:tokens`` names.

    Raises:
        MonomoeError: there is none of that name.
    """
    found = {f"{e.model}:{e.tuned_at}": e for e in table.entries if Variant.of(e) == USUAL}
    missing = [cell for cell in cells if cell not in found]
    if missing:
        raise MonomoeError(f"asked for {missing[0]}, the table has {', '.join(found)}")
    return [found[cell] for cell in dict.fromkeys(cells)]


def a_a_cases(
    table: Table, device: Device, chosen: Sequence[Entry], repeats: int = 1
) -> list[Case]:
    """Every entry under each routing, against itself and against a copy at another place."""
    sides = {e.kernel: compiled(render(table.kernel(e).spec), device) for e in chosen}
    pairs = [
        Pair(CellId(e.model, e.tuned_at, routing), sides[e.kernel], None, None, "none")
        for e in chosen
        for routing in TIMED_ROUTINGS
    ]
    identical, moved = candidates.a_a_pairs(pairs, device)
    return [
        Case("a_a", kind, None, repeat, pair)
        for repeat in range(repeats)
        for kind, group in (("identical", identical), ("moved", moved))
        for pair in group
    ]


def planted_cases(
    table: Table, device: Device, chosen: Sequence[Entry], repeats: int = 1
) -> list[Case]:
    """Every entry against its slower copies."""
    made = []
    for entry in chosen:
        old = compiled(render(table.kernel(entry).spec), device)
        cell = CellId(entry.model, entry.tuned_at, "uniform")
        for kind, dose, source in slower(entry, table.kernel(entry).spec, device):
            pair = Pair(cell, compiled(source, device), old, None, "paired")
            made += [Case("planted", kind, dose, repeat, pair) for repeat in range(repeats)]
    return made


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


def compile_all(table: Table, device: Device, chosen: Sequence[Entry]) -> None:
    """Fills the cache of cubins, on all CPUs."""
    sources = [render(table.kernel(entry).spec) for entry in chosen]
    sources += [moved(source) for source in sources]
    for entry in chosen:
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
    """The kernel with one stage fewer in flight, where it has most if that is legal, or None."""
    old = spec.schedule
    depths = {"d_up": old.d_up, "d_down": old.d_down}
    for name in sorted(depths, key=depths.__getitem__, reverse=True):
        schedule = dataclasses.replace(old, **{name: depths[name] - 1})
        if not violations(spec.shape, schedule, device, spec.token_tile):
            return dataclasses.replace(spec, schedule=schedule)
    return None


def _changed(source: Source, name: str, change: Callable[[str], str]) -> Source:
    text = change(source.texts[name])
    if text == source.texts[name]:
        raise MonomoeError(f"{name} has no place to plant a slow-down in")
    own = hashlib.sha256(f"{source.sources_hash} {text}".encode()).hexdigest()
    return dataclasses.replace(source, texts={**source.texts, name: text}, sources_hash=own)


def expected_seconds(cases: Iterable[Case], table: Table) -> float:
    """About how long one process takes for ``cases``."""
    times = {(e.model, e.tuned_at): e.time_us for e in table.entries}
    cells = [case.pair.cell for case in cases]
    blocks = sum(calibration.block_seconds(times[c.model, c.tokens]) for c in cells)
    floors = sum(calibration.floor_seconds(times[c.model, c.tokens]) for c in set(cells))
    return calibration.PROCESS_S + PLAN.blocks * blocks + floors


def study(
    cases: Sequence[Case],
    path: Path,
    uuid: str,
    floors: jobs.Floors,
    device: Device,
    deadline: float,
    opener: Callable[[], AbstractContextManager[Open]] = sandboxes,
) -> bool:
    """Measures, process by process, until every case is judged; whether that was so in time.

    A line is written for each case and process. ``deadline`` is one of `time.monotonic`.

    Raises:
        MonomoeError: the GPU throttles, or a kernel does not run.
    """
    known: dict[str, list[Line]] = {}
    for line in read([path]):
        if line.uuid == uuid:
            known.setdefault(line.key, []).append(line)
    states = {case.key: State(case.pair) for case in cases}
    slowest = 0.0

    def open_cases(process: int) -> list[Case]:
        """Those that this process has not measured and that are not judged."""
        return [
            case
            for case in cases
            if process not in {line.process for line in known.get(case.key, ())}
            and judge(known.get(case.key, ())).verdict is None
        ]

    with path.open("a", encoding="utf-8") as file, opener() as open_sandbox:
        lab = Lab(device, floors, open_sandbox, lambda note: None)
        for process in range(PLAN.cap):
            todo = open_cases(process)
            if not todo:
                continue
            began = time.monotonic()
            if began + slowest > deadline:
                return False
            order = {id(states[case.key]): case for case in todo}
            last = began

            def go_on(
                cell: State | None, process: int = process, order: dict[int, Case] = order
            ) -> bool:
                nonlocal last, slowest
                now = time.monotonic()
                if cell is None:
                    slowest = max(slowest, now - last)  # of a start
                else:
                    line = _line(order[id(cell)], cell, process, now - last, uuid)
                    known.setdefault(line.key, []).append(line)
                    file.write(json.dumps(asdict(line)) + "\n")
                    file.flush()
                last = now
                return now < deadline

            lab.measure([states[case.key] for case in todo], process, PLAN.blocks, go_on)
            refuse_throttling(states.values())
            left = len(open_cases(process))
            print(
                f"process {process + 1}: {len(todo) - left} of {len(todo)} cells, "
                f"{time.monotonic() - began:.1f} s, start {slowest:.1f} s",
                flush=True,
            )
    return not any(judge(known.get(case.key, ())).verdict is None for case in cases)


def _line(case: Case, cell: State, process: int, seconds: float, uuid: str) -> Line:
    if cell.verdict:
        raise MonomoeError(f"{case.kind}: {case.pair.cell}: {cell.message}")
    blocks = [block for block in cell.blocks if block.process == process]
    return Line(
        key=case.key,
        study=case.study,
        kind=case.kind,
        dose=case.dose,
        repeat=case.repeat,
        **asdict(case.pair.cell),
        process=process,
        ratios=[block.ratio for block in blocks],
        clocks=[block.clock for block in blocks],
        discarded=PLAN.blocks - len(blocks),
        seconds=round(seconds, 3),
        uuid=uuid,
    )


def measure(
    path: Path,
    cells: Sequence[str],
    repeats: int,
    planted_repeats: int,
    part: tuple[int, int],
    seconds: float,
) -> None:
    """One run on the current GPU."""
    from monomoe_gen.noise import current_uuid
    from monomoe_gen.remeasure import require_device

    deadline = time.monotonic() + seconds
    device = require_device()
    table = dispatch.load(dispatch.table_folder(device.slug))
    chosen = entries(table, cells)
    compile_all(table, device, chosen)
    made = a_a_cases(table, device, chosen, repeats)
    made += planted_cases(table, device, chosen, planted_repeats)
    index, count = part
    cases = sorted(made[index::count], key=lambda case: case.pair.cell.model)
    print(
        f"{sum(case.study == 'a_a' for case in cases)} A/A and "
        f"{sum(case.study == 'planted' for case in cases)} planted cells; about "
        f"{PLAN.processes * expected_seconds(cases, table):.0f} s until the first look; "
        f"{deadline - time.monotonic():.0f} s left",
        flush=True,
    )
    floors = jobs.compile_floors(device)
    done = study(cases, path, current_uuid(), floors, device, deadline)
    print("all cells are judged" if done else "the time is over: call it again to go on")


def read(paths: Iterable[Path]) -> list[Line]:
    """All whole lines of some files; a last line that was cut off is left out."""
    found = []
    for path in paths:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        found += [Line(**json.loads(line)) for line in text.split("\n")[:-1]]
    return found


def judged(lines: Iterable[Line]) -> list[Judged]:
    """Every cell of every card."""
    cells: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        cells.setdefault((line.key, line.uuid), []).append(line)
    return [judge(group) for group in cells.values()]


def summary(cells: Iterable[Judged]) -> list[dict[str, object]]:
    """One row a kind and dose: how many cells, the shares of each verdict, the time spent.

    ``most`` is the upper end of a one-sided 95 % interval for the share of regressions
    (Clopper-Pearson). Cells without a verdict yet are counted as ``unfinished`` only.
    """
    groups: dict[tuple[str, str, float], list[Judged]] = {}
    for cell in cells:
        line = cell.lines[0]
        groups.setdefault((line.study, line.kind, line.dose or 0.0), []).append(cell)
        if line.study == "a_a":
            groups.setdefault((line.study, "all", 0.0), []).append(cell)
    rows: list[dict[str, object]] = []
    for (study_name, kind, dose), group in sorted(groups.items()):
        done = [cell for cell in group if cell.verdict]
        counts = {
            v.value: sum(c.verdict is v for c in done) for v in (*SETTLED, Verdict.INCONCLUSIVE)
        }
        effects = [cell.effect for cell in done if cell.effect is not None]
        n = len(done)
        rows.append(
            {
                "study": study_name,
                "kind": kind,
                "dose": dose or None,
                "cells": n,
                "unfinished": len(group) - n,
                "effect": statistics.median(effects) if effects else None,
                **{name: count / n if n else 0.0 for name, count in counts.items()},
                "most": upper_bound(counts["REGRESSION"], n),
                "processes": statistics.mean(len(c.lines) for c in done) if done else 0.0,
                "seconds": statistics.mean(c.seconds for c in done) if done else 0.0,
            }
        )
    return rows


def upper_bound(found: int, of: int) -> float:
    """The largest share of which ``found`` or fewer in ``of`` have a probability of 5 %."""
    return 1.0 if found >= of else float(betaincinv(found + 1, of - found, 0.95))


def table(rows: Iterable[dict[str, object]]) -> str:
    """The summary in markdown."""
    text = [
        "| study | change | dose | cells | median effect | OK | improved | inconclusive | clock |"
        " **regression** | at most (95 %) | processes | s per cell |",
        "|" + " --- |" * 2 + " ---: |" * 11,
    ]
    for row in rows:
        dose, effect = row["dose"], row["effect"]
        unfinished = f" (+{row['unfinished']} unfinished)" if row["unfinished"] else ""
        shares = " | ".join(
            f"{row[name]:.1%}"
            for name in ("OK", "IMPROVED", "INCONCLUSIVE", "CLOCK_CHANGED", "REGRESSION", "most")
        )
        change = "" if effect is None else f"{effect:+.2%}"
        text.append(
            f"| {row['study']} | {row['kind']} | {f'{dose:.0%}' if dose else ''} | "
            f"{row['cells']}{unfinished} | {change} | {shares} | "
            f"{row['processes']:.1f} | {row['seconds']:.1f} |"
        )
    return "\n".join(text) + "\n"


def plot(cells: Sequence[Judged], path: Path) -> None:
    """Every cell: its effect, its verdict and the time that it took."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    colours = {
        Verdict.OK: "tab:green",
        Verdict.REGRESSION: "tab:red",
        Verdict.INCONCLUSIVE: "tab:orange",
    }
    for study_name, marker in (("a_a", "x"), ("planted", "o")):
        for verdict, colour in colours.items():
            group = [
                c
                for c in cells
                if c.verdict is verdict and c.effect is not None and c.lines[0].study == study_name
            ]
            axes.scatter(
                [100 * (cell.effect or 0) for cell in group],
                [cell.seconds for cell in group],
                s=14,
                marker=marker,
                color=colour,
                label=f"{study_name.replace('_', '/')}, {verdict.value} ({len(group)})",
            )
    axes.axvline(100 * PLAN.delta, color="grey", linewidth=0.8, linestyle="--")
    axes.set(xlabel="measured change of the time, %", ylabel="seconds per cell")
    axes.legend(fontsize="small")
    style = {"svg.fonttype": "none", "svg.hashsalt": "gate"}  # text stays text, ids stay ids
    with pyplot.rc_context(style):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _part(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    return int(index), int(count)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="command", required=True)
    compiling = commands.add_parser("compile")
    measuring = commands.add_parser("measure")
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--deadline", type=float, default=math.inf, metavar="SECONDS")
    measuring.add_argument("--repeats", type=int, default=REPEATS)
    measuring.add_argument("--planted-repeats", type=int, default=PLANTED_REPEATS)
    measuring.add_argument("--part", type=_part, default=(0, 1), metavar="I/N")
    for command in (compiling, measuring):
        command.add_argument("--cell", action="append", default=[], metavar="MODEL:TOKENS")
    telling = commands.add_parser("summary")
    telling.add_argument("files", type=Path, nargs="+")
    telling.add_argument("--plot", type=Path)
    telling.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.command == "compile":
        device = KNOWN[DEFAULT]
        found = dispatch.load(dispatch.table_folder(device.slug))
        compile_all(found, device, entries(found, chosen.cell or CELLS))
        jobs.compile_floors(device)
        return
    if chosen.command == "measure":
        cells = chosen.cell or CELLS
        repeats = chosen.repeats, chosen.planted_repeats
        measure(chosen.out, cells, *repeats, chosen.part, chosen.deadline)
        return
    cells = judged(read(chosen.files))
    rows = summary(cells)
    sys.stdout.write(table(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")
    if chosen.plot:
        plot(cells, chosen.plot)


if __name__ == "__main__":
    main()
