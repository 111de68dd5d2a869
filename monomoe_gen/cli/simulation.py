"""The command that runs kernels without a GPU: simulate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from monomoe_gen.cli.options import (
    TokensType,
    layout_option,
    model_option,
    pdl_option,
    router_option,
    schedule_option,
    token_tile_option,
)
from monomoe_gen.cli.output import format_option, print_rows, progress, say
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import InfeasibleSchedule
from monomoe_gen.routings import ROUTINGS
from monomoe_gen.rules import violations
from monomoe_gen.schedule import KernelSpec, Layout, Router, Schedule
from monomoe_gen.shapes import Shape

if TYPE_CHECKING:
    from monomoe_gen.simulate import Outcome

WRONG = 6


@click.command()
@model_option()
@schedule_option()
@token_tile_option
@layout_option
@router_option
@pdl_option
@click.option(
    "--tokens",
    type=TokensType(),
    default="1,3,8",
    show_default=True,
    help="Token counts; each is simulated in three launches, with another count between.",
)
@click.option(
    "--routing",
    type=click.Choice(ROUTINGS),
    default=ROUTINGS[0],
    show_default=True,
    help="How tokens choose experts.",
)
@click.option("--seeds", type=click.IntRange(1), default=4, show_default=True, help="For a policy.")
@click.option("--policy", "policies", multiple=True, help="Default: all of them; may be repeated.")
@click.option("--resident", type=click.IntRange(1), help="CTAs that run at once. Default: all.")
@format_option
def simulate(
    shape: Shape,
    schedule: Schedule,
    token_tile: int,
    layout: Layout,
    router: Router,
    pdl: bool,
    tokens: tuple[int, ...],
    routing: str,
    seeds: int,
    policies: tuple[str, ...],
    resident: int | None,
    form: str,
) -> int | None:
    """Run a kernel on the CPU under many schedulers and look for races and deadlocks.

    Meant for small grids and the shape "toy". Needs g++. Schedules may break the rules that only
    keep a kernel fast. Prints one row a policy; findings go to stderr. Exit code 6 means that
    there are some.
    """
    from monomoe_gen import host_build
    from monomoe_gen.refute import launches
    from monomoe_gen.simulate import POLICIES, make_problem, plan
    from monomoe_gen.simulate import simulate as run_simulations

    unknown = sorted(set(policies) - set(POLICIES))
    if unknown:
        raise click.UsageError(
            f"no policy {', '.join(unknown)}: take some of {', '.join(POLICIES)}"
        )
    broken = [
        v
        for v in violations(shape, schedule, KNOWN[DEFAULT], token_tile)
        if v.rule.name not in host_build.PERFORMANCE_RULES
    ]
    if broken:
        raise InfeasibleSchedule([str(v) for v in broken])
    program = host_build.build(KernelSpec(shape, schedule, token_tile, layout, router, pdl))
    chosen = policies or POLICIES
    runs = plan(seeds * len(chosen), chosen)
    tallies = {policy: _Tally(policy) for policy in chosen}
    shown: set[tuple[str, str, str]] = set()
    with progress("simulating", len(runs) * len(tokens)) as step:
        for count in tokens:
            counts = launches(count, token_tile)
            problem = make_problem(shape, counts, routing, layout=layout, router=router)
            for outcome in run_simulations(program, problem, runs, resident):
                run = outcome.run
                step(f"{count} tokens, {run.policy}")
                tallies[run.policy].add(outcome)
                for finding in outcome.findings:
                    if finding.sites not in shown:
                        shown.add(finding.sites)
                        say(f"{count} tokens, {run.policy}, seed {run.seed}: {finding}")
    print_rows([tally.row() for tally in tallies.values()], form, {"seconds": ".2f"})
    return WRONG if shown else None


@dataclass
class _Tally:
    """What the runs of one policy came to."""

    policy: str
    runs: int = 0
    ok: int = 0
    steps: int = 0
    seconds: float = 0.0
    kinds: set[str] = field(default_factory=set)

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.ok += outcome.ok
        self.steps += outcome.steps
        self.seconds += outcome.seconds
        self.kinds |= {finding.kind for finding in outcome.findings}

    def row(self) -> dict[str, Any]:
        return {**vars(self), "kinds": " ".join(sorted(self.kinds))}


COMMANDS = (simulate,)
