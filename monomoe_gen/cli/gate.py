"""The regression gate on the command line: check; with it come calibrate and init-ci."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.exit_codes import INTERRUPTED
from monomoe_gen.cli.gate_history import record, show_drift
from monomoe_gen.cli.gate_setup import COMMANDS as SETUP
from monomoe_gen.cli.gate_setup import blocks_option, tokens_option
from monomoe_gen.cli.options import DurationType, models_option, refuse_beside, routings_option
from monomoe_gen.cli.output import format_option, print_json, print_rows, progress, say
from monomoe_gen.device import DEFAULT, KNOWN, Device
from monomoe_gen.errors import DatabaseError, EnvironmentProblem
from monomoe_gen.interrupt import stop_on_interrupt
from monomoe_gen.shapes import Shape

if TYPE_CHECKING:
    from monomoe_gen.candidates import CellId, Pair
    from monomoe_gen.gate import Plan, Run
    from monomoe_gen.gate_report import Report
    from monomoe_gen.inspection import Inspection

WORSE, UNDECIDED, ENVIRONMENT, WRONG = 3, 4, 5, 6
CODES = {
    "wrong": WRONG,
    "regression": WORSE,
    "stale": WORSE,
    "grew": WORSE,
    "environment": ENVIRONMENT,
    "clock_changed": ENVIRONMENT,
    "inconclusive": UNDECIDED,
}
"""What may fail a check, the most serious first, and its exit code."""

BESIDE_HISTORY = (
    "tokens",
    "routings",
    "baseline",
    "delta",
    "processes",
    "cap",
    "blocks",
    "budget_s",
    "no_gpu",
    "require_gpu",
    "fail_on",
    "files",
    "no_record",
)
"""What says how to check, and so nothing about ``--history``."""

PERCENT = click.FloatRange(min=0, min_open=True, max=50)


class _Failures(click.ParamType):
    name = "name,name,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip().lower() for part in value.split(",") if part.strip())
        if value != "none" and not (names and set(names) <= set(CODES)):
            self.fail(f"{value!r}: choose from {', '.join(CODES)}, or none", param, ctx)
        return () if value == "none" else names


processes_option = click.option(
    "--processes",
    type=click.IntRange(2, 64),
    default=4,
    show_default=True,
    help="Fresh processes before a first verdict.",
)


@click.command()
@models_option("every dispatched one")
@tokens_option
@routings_option
@click.option(
    "--baseline",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="generated/ to compare with, for instance of the main branch. Default: the committed one.",
)
@click.option(
    "--delta",
    type=PERCENT,
    help="Threshold in percent. Default: 2, or twice the calibrated A/A floor if that is more.",
)
@processes_option
@click.option(
    "--max-processes",
    "cap",
    type=click.IntRange(2, 256),
    default=16,
    show_default=True,
    help="Fresh processes before giving up; they double from --processes.",
)
@blocks_option
@click.option(
    "--budget",
    "budget_s",
    type=DurationType(),
    default="none",
    show_default=True,
    help="Time to spend on the GPU, such as 10m; what is undecided then is INCONCLUSIVE.",
)
@click.option("--no-gpu", is_flag=True, help="Time nothing, even with a GPU here.")
@click.option("--require-gpu", is_flag=True, help="End with 5 if nothing can be timed.")
@click.option(
    "--fail-on",
    type=_Failures(),
    default=",".join(CODES),
    show_default=True,
    help="What makes the exit code other than 0, or none.",
)
@click.option(
    "--write",
    "files",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="Also write the report to FILE.md, FILE.json or FILE.xml (JUnit); may be repeated.",
)
@click.option("--no-record", is_flag=True, help="Do not append to tuning_db/history.jsonl.")
@click.option(
    "--history",
    is_flag=True,
    help="Check nothing: look for slow drift in earlier checks, of --model if that is given.",
)
@format_option
def check(
    shapes: tuple[Shape, ...],
    tokens: tuple[int, ...] | None,
    routings: tuple[str, ...],
    baseline: Path | None,
    delta: float | None,
    processes: int,
    cap: int,
    blocks: int,
    budget_s: float | None,
    no_gpu: bool,
    require_gpu: bool,
    fail_on: tuple[str, ...],
    files: tuple[Path, ...],
    no_record: bool,
    history: bool,
    form: str,
) -> int | None:
    """Did the dispatched kernels get slower, larger or stale?

    Every dispatched kernel is rendered and compiled again and compared with the baseline: its
    bytes, registers, spills, shared memory, and the instructions of its main loops. On a GPU it is
    validated and then timed against the baseline's cubin in fresh processes; without one, the
    report says that nothing was timed. --model and --tokens choose what is timed.

    Exit codes: 6 wrong numbers, 3 something got worse (a kernel slower or larger, or generated/ not
    what the sources give), 5 environment, 4 undecided.
    """
    names = [shape.name for shape in shapes]
    if history:
        refuse_beside("--history", *BESIDE_HISTORY)
        return WORSE if show_drift(form, names) else None
    if no_gpu and require_gpu:
        raise click.UsageError("--no-gpu and --require-gpu exclude each other")
    if cap < processes:
        raise click.UsageError(f"--max-processes {cap} is less than --processes {processes}")
    writers = [(path, _writer(path)) for path in files]
    device, untimed = _device(no_gpu)
    kernels, unreadable = _select(device, names, tokens or ())
    untimed = untimed or unreadable
    if untimed and require_gpu:
        raise EnvironmentProblem(f"asked for times with --require-gpu: {untimed}")
    from monomoe_gen.gate import Plan
    from monomoe_gen.gate_report import Report

    threshold, noise = _threshold(device, delta, timed=not untimed)
    before = _table_of(baseline, device)
    inspection = _inspect(device, before, kernels)
    run, interrupted = None, False
    if not untimed:
        plan = Plan(processes, cap, blocks, threshold, budget_s or math.inf)
        run, interrupted = _run(device, inspection, before, names, tokens or (), routings, plan)
        if not no_record:
            record(run, device)
    report = Report(inspection.remarks, run, untimed, noise)
    _print(report, form)
    fails = dict.fromkeys(fail_on, True)
    for path, write in writers:
        path.write_text(write(report, fails), encoding="utf-8")
    return INTERRUPTED if interrupted else exit_code(report, fail_on)


def exit_code(report: Report, fail_on: Sequence[str]) -> int | None:
    """The code of the most serious thing found that ``fail_on`` names."""
    found: set[str] = {remark.status for remark in report.remarks}
    found |= {result.verdict.value.lower() for result in (report.run.cells if report.run else ())}
    return next((code for name, code in CODES.items() if name in fail_on and name in found), None)


def _select(device: Device, models: Sequence[str], tokens: Sequence[int]) -> tuple[int, str]:
    """Refuses, before anything is compiled or timed, what the table has nothing for.

    Returns how many kernels it has, and why nothing of it can be timed ("": it can).
    """
    from monomoe_gen import candidates, dispatch

    try:
        table = dispatch.load(dispatch.table_folder(device.slug))
    except DatabaseError:  # the inspection says which
        return 0, "the dispatch table cannot be read"
    candidates.select(table, models, tokens)
    return len(table.kernels), ""


def _writer(path: Path) -> Callable[[Report, Mapping[str, bool]], str]:
    from monomoe_gen import gate_report

    writers: dict[str, Callable[[Report, Mapping[str, bool]], str]] = {
        ".md": lambda report, fails: gate_report.markdown(report),
        ".json": lambda report, fails: json.dumps(gate_report.to_dict(report), indent=1) + "\n",
        ".xml": gate_report.junit,
    }
    if path.suffix not in writers:
        raise click.UsageError(f"--write {path}: the name must end in {', '.join(writers)}")
    return writers[path.suffix]


def _device(no_gpu: bool) -> tuple[Device, str]:
    """The GPU to check for, and why it cannot be timed ("": it can)."""
    if no_gpu:
        return KNOWN[DEFAULT], "--no-gpu was given"
    from monomoe_gen import dispatch
    from monomoe_gen.device import current_device

    found = current_device()
    if found is None:
        return KNOWN[DEFAULT], "there is no CUDA device here"
    if not (dispatch.table_folder(found.slug) / dispatch.FILE).exists():
        return KNOWN[
            DEFAULT
        ], f"generated/ has no kernels for the GPU of this machine, {found.name}"
    return found, ""


def _threshold(device: Device, percent: float | None, timed: bool) -> tuple[float, float | None]:
    """The threshold and the A/A floor of this GPU, both relative.

    Raises:
        MonomoeError: asked for less than this GPU can tell apart.
    """
    from monomoe_gen import noise, regress

    floor = None
    if timed:
        known = noise.find(noise.noise_path(device.slug), noise.current_uuid())
        floor = known.floor if known else None
        if known is None:
            say("this GPU is not calibrated: `monomoe-gen calibrate` measures how fine it can tell")
    return regress.threshold(floor, None if percent is None else percent / 100), floor


def _inspect(device: Device, baseline: Path | None, kernels: int) -> Inspection:
    from monomoe_gen import dispatch
    from monomoe_gen.inspection import inspect

    with progress("compiling", kernels) as step:
        return inspect(device, dispatch.table_folder(device.slug), baseline, done=step)


def _table_of(baseline: Path | None, device: Device) -> Path | None:
    """``baseline`` is generated/ or the folder of one GPU in it; None: compare with one's own."""
    from monomoe_gen import dispatch

    if baseline is None:
        return None
    for folder in (baseline / device.slug, baseline):
        if (folder / dispatch.FILE).is_file():
            return folder
    say(f"{baseline} has no table for {device.slug}: comparing with the committed one")
    return None


def _run(
    device: Device,
    inspection: Inspection,
    baseline: Path | None,
    models: Sequence[str],
    tokens: Sequence[int],
    routings: Sequence[str],
    plan: Plan,
) -> tuple[Run, bool]:
    """The run, and whether Ctrl-C cut it off."""
    from monomoe_gen import gate, jobs
    from monomoe_gen.sandbox import sandboxes

    pairs, failed = _pairs(device, inspection, baseline, models, tokens, routings)
    floors = jobs.compile_floors(device)
    with (
        stop_on_interrupt(say) as stop,
        progress("timing", None) as step,
        sandboxes() as open_sandbox,
    ):
        run = gate.check(pairs, plan, floors, device, open_sandbox, step, stop=stop.is_set)
    return gate.with_failed(run, failed), stop.is_set()


def _pairs(
    device: Device,
    inspection: Inspection,
    baseline: Path | None,
    models: Sequence[str],
    tokens: Sequence[int],
    routings: Sequence[str],
) -> tuple[list[Pair], dict[CellId, str]]:
    from monomoe_gen import candidates, dispatch

    before = baseline or dispatch.table_folder(device.slug)
    return candidates.make_pairs(
        inspection.table, inspection.rebuilt, before, models, tokens, routings
    )


def _print(report: Report, form: str) -> None:
    from monomoe_gen import gate_report
    from monomoe_gen.verify import gathered

    if form == "json":
        print_json(gate_report.to_dict(report))
        return
    if form == "markdown":
        click.echo(gate_report.markdown(report), nl=False)
        return
    cells, remarks = gate_report.cell_rows(report), gate_report.remark_rows(report.remarks)
    if form == "csv":
        print_rows(cells or remarks, form)
        say(report.headline)
        return
    print_rows(gathered(remarks), form)
    if cells:
        click.echo()
        print_rows(cells, form, {"time_us": ".2f", "baseline_us": ".2f", "floor_us": ".2f"})
    click.echo(f"\n{report.headline}")


COMMANDS = (check, *SETUP)
