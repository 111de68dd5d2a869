"""The command that searches: tune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.exit_codes import INTERRUPTED, exit_code
from monomoe_gen.cli.options import (
    DurationType,
    ModelType,
    PercentType,
    captured_routing,
    given_options,
    objective_option,
    refuse_beside,
    routing_option,
    routing_weights,
    tokens_option,
    trace_file_option,
    variant_options,
)
from monomoe_gen.cli.output import format_option, print_rows, say
from monomoe_gen.cli.tuning_run import cluster_gpus, own_gpus, run
from monomoe_gen.errors import MonomoeError, ShapeError
from monomoe_gen.objective import Objective
from monomoe_gen.paths import home
from monomoe_gen.samplers import DEFAULT as SAMPLER
from monomoe_gen.samplers import SAMPLERS
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.variant import USUAL, Variant

if TYPE_CHECKING:
    from monomoe_gen.campaign import Report

DEFAULT_BUDGET_S = 600.0
MEASURING = "budget_s", "prune", "from_winners", "gpus", "screen_only", "fresh"
FORMATS = dict.fromkeys(("time_us", "low_us", "high_us", "floor_us", "ratio"), ".2f")


@click.command()
@click.option(
    "--model",
    "shapes",
    type=ModelType(),
    multiple=True,
    required=True,
    help="Name of a shape, or the path of a shape file; may be repeated: one after another, in the "
    "same GPU workers.",
)
@tokens_option
@click.option(
    "--budget",
    "budget_s",
    type=DurationType(),
    help="Time to spend on a model, such as 5m; 'none' measures the whole space. Default: 10m, or "
    "none with --trials or --from-winners.",
)
@click.option("--trials", type=click.IntRange(min=1), help="Most schedules to try.")
@routing_option
@trace_file_option
@objective_option(
    "Tune for the token counts of this objective, time finalists under all its routing patterns "
    "and let the weighted mean of their times decide; the search itself is for uniform routing. "
    "Default: the patterns of `default` with the counts of --tokens; with --routing or "
    "--routing-trace finalists are timed under that routing alone, which the dispatch table does "
    "not take."
)
@variant_options
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Of the inputs and of the search order.",
)
@click.option(
    "--sampler",
    type=click.Choice(list(SAMPLERS)),
    default=SAMPLER,
    show_default=True,
    help="Chooses the next schedule when not all can be tried; see search-study.",
)
@click.option(
    "--simulate",
    type=click.IntRange(0),
    metavar="SEEDS",
    default=0,
    show_default=True,
    help="Have the simulator look for races and deadlocks in a kernel before the GPU runs it, with "
    "so many seeds a policy; for small shapes only, see simulate.",
)
@click.option(
    "--prune",
    type=PercentType(),
    default="10",
    show_default=True,
    help="Do not time a schedule at further token counts that is slower than the best by more at "
    "those timed; 'none' times all, as does a run of the whole space.",
)
@click.option(
    "--from-winners",
    type=click.IntRange(min=1),
    metavar="N",
    help="Try only the N best recorded schedules, of each token count, of the kernels that these "
    "are a variant of (packed weights, logits given, fp8 activations), with short finals: seconds "
    "instead of minutes.",
)
@click.option(
    "--gpus",
    type=click.Choice(["one", "all"]),
    help="Measure on the first visible GPU, or on all of them at once. Default: one, but all with "
    "--executor ray.",
)
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Measure on GPUs of this host, or of a Ray cluster. Needs the extra [ray].",
)
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="The Ray cluster, with --executor ray. Default: what RAY_ADDRESS names, else that of this "
    "host, else one is started for the run.",
)
@click.option(
    "--screen-only",
    is_flag=True,
    help="Leave out finals and confirmation: quick, and the table states screening times.",
)
@click.option("--fresh", is_flag=True, help="Measure again what the database already knows.")
@format_option
def tune(
    shapes: tuple[Shape, ...],
    tokens: tuple[int, ...],
    budget_s: float | None,
    trials: int | None,
    routing: str,
    trace_file: Path | None,
    objective: Objective | None,
    variant: Variant,
    seed: int,
    sampler: str,
    simulate: int,
    prune: float | None,
    from_winners: int | None,
    gpus: str | None,
    executor: str,
    ray_address: str | None,
    screen_only: bool,
    fresh: bool,
    form: str,
) -> int | None:
    """Find the fastest schedules of a model and emit their kernels.

    Every measurement is kept in tuning_db/ at once, so a second run goes on where the first one
    stopped. Ctrl-C once stops after the current candidate. Without a GPU the recorded measurements
    are searched instead, and nothing is timed.

    tuning_db/ and generated/ lie in the folder that MONOMOE_DATA names; by default in the checkout,
    or for an installed package in the user's data folder, which `doctor` prints.
    """
    shapes = tuple(dict.fromkeys(shapes))
    for shape in shapes:
        _require_known(shape)
    from monomoe_gen.campaign import Plan

    if from_winners and variant == USUAL:
        for shape in shapes:
            if shape.activations == "fp8":
                raise click.UsageError(
                    f"--from-winners: the usual kernels of {shape.name} are no variant of others; "
                    "give --layout, --router or --pdl, or a shape with bf16 activations"
                )
    if ray_address and executor != "ray":
        raise click.UsageError("--ray-address is for --executor ray")
    alone = given_options("routing", "trace_file")
    weights = {} if alone else routing_weights(objective)
    if objective:
        refuse_beside("--objective", "tokens", "routing", "trace_file")
        if screen_only:
            raise click.UsageError(
                "--screen-only leaves out the finals, which --objective is for: give one of them"
            )
        tokens = objective.tokens
        shares = ", ".join(f"{name} {weight:.2g}" for name, weight in weights.items())
        say(f"objective: {', '.join(map(str, tokens))} tokens; {shares}")
    if trace_file:
        if len(shapes) > 1:
            raise click.UsageError("--routing-trace is of one model: give exactly one --model")
        routing = captured_routing(trace_file, shapes[0])
        say(f"captured routing, recorded as {routing}")
    if routing != "uniform":
        say(
            f"times under {routing} routing alone are recorded, but do not enter the dispatch "
            "table, which an objective decides"
        )
    if budget_s is None and trials is None and from_winners is None:
        budget_s = DEFAULT_BUDGET_S
    plans = [
        Plan(
            shape=shape,
            tokens=tokens,
            budget_s=budget_s or None,
            trials=trials,
            routing=routing,
            trace_file=trace_file,
            variant=variant,
            seed=seed,
            fresh=fresh,
            sampler=sampler,
            simulate=simulate,
            prune=prune,
            screen_only=screen_only,
            from_winners=from_winners,
            weights=weights,
        )
        for shape in shapes
    ]
    rows: list[dict[str, Any]] = []
    failed: MonomoeError | None = None
    interrupted = False
    if executor == "ray":
        found = cluster_gpus(ray_address, 1 if gpus == "one" else None)
    else:
        found = own_gpus(gpus == "all")
    try:
        for plan, report in run(plans, found, given_options(*MEASURING)):
            if isinstance(report, MonomoeError):
                failed = failed or report
                say(f"{plan.shape.name}: {report}")
                continue
            rows += [{"model": plan.shape.name, **row} for row in _rows(report)]
            _summarize(report)
            interrupted = report.interrupted
    except BaseException:
        if rows:
            print_rows(rows, form, FORMATS)
        raise
    print_rows(rows, form, FORMATS)
    if interrupted:
        return INTERRUPTED
    return exit_code(failed) if failed else None


def _require_known(shape: Shape) -> None:
    """The dispatch table finds a shape by its name: better to fail now than after the search."""
    try:
        known = load_shape(shape.name) == shape
    except ShapeError:
        known = False
    if not known:
        raise ShapeError(
            shape.name,
            "",
            f"is not the known shape of that name; copy its file to {home() / 'shapes'} as "
            f"{shape.name}.yaml, so that the dispatch table can refer to it",
        )


def _rows(report: Report) -> list[dict[str, Any]]:
    from monomoe_gen.schedule import Schedule

    return [
        {
            "tokens": tokens,
            "time_us": record.time_us.median,
            "low_us": winner.low_us,
            "high_us": winner.high_us,
            "floor_us": record.floor_us,
            "ratio": round(record.time_us.median / record.floor_us, 3) if record.floor_us else None,
            "stage": record.stage,
            "schedule": Schedule.from_dict(record.schedule).id,
            "ties": len(winner.ties),
        }
        for tokens, winner in report.winners.items()
        if (record := winner.carried).time_us
    ]


def _summarize(report: Report) -> None:
    failed = ", ".join(f"{count} {status}" for status, count in report.failures.items())
    pruned = f" ({report.pruned} in part)" if report.pruned else ""
    say(
        f"{'replayed' if report.replay else 'measured'}: {report.known} schedules known before, "
        f"{report.measured} new{pruned}, {report.left} left; {failed or 'none failed'}; "
        f"{report.restarts} worker restarts; {report.seconds:.0f} s"
    )
    if report.speed:
        say(str(report.speed))
    if report.transfer:
        say(report.transfer)
    for tokens, winner in report.winners.items():
        if winner.ties:
            say(f"{tokens} tokens: cannot be told apart from {', '.join(winner.ties)}")
    if report.emission:
        for note in report.emission.notes:
            say(note)
        written = len(report.emission.written)
        say(f"dispatch table: {written} files written" if written else "dispatch table: unchanged")


COMMANDS = (tune,)
