"""`tune` without a GPU: the same search over recorded times, then the same emission.

Nothing is timed and nothing is added to the database: no record, no time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from monomoe_gen import cost, tuning_db
from monomoe_gen.campaign import Plan, Progress, Report
from monomoe_gen.device import Device
from monomoe_gen.emit import emit
from monomoe_gen.errors import EnvironmentProblem, MonomoeError
from monomoe_gen.ledger import Ledger
from monomoe_gen.schedule import Schedule
from monomoe_gen.search import Search


def replay(
    plan: Plan,
    device: Device,
    *,
    say: Callable[[str], object] = lambda text: None,
    observe: Callable[[Progress], object] = lambda progress: None,
) -> Report:
    """Searches the records of ``device`` as `tune` would search the GPU, and emits the best.

    ``budget_s`` has no meaning here: without ``trials`` every recorded candidate is looked at. The
    table is made from all records, whatever the search found.

    Raises:
        EnvironmentProblem: nothing of today's sources is recorded for the shape with all the token
            counts, or there is no NVRTC.
        DatabaseError: the database cannot be read.
        MonomoeError: the plan asks for simulations.
    """
    if plan.simulate:
        raise MonomoeError(
            "asked to simulate kernels before the GPU runs them, but there is no CUDA device here "
            "and recorded times are searched; take `monomoe-gen simulate` for one kernel"
        )
    began = time.monotonic()
    shape = plan.shape
    path = tuning_db.database_path(device.slug, shape.name, plan.database)
    about = plan.tokens, plan.token_tile, plan.routing
    ledger = Ledger(shape, *about, None, plan.variant, plan.weights)
    records = tuning_db.read(path)
    ledger.load(records)
    recorded = [s for s in ledger.schedules() if not ledger.missing(s)]
    say(
        f"no CUDA device: replaying {len(recorded)} recorded schedules of {shape.name} on "
        f"{device.name}; nothing is timed"
    )
    if not records:
        raise EnvironmentProblem(
            f"nothing is recorded for {shape.name} on {device.name} ({path}); run "
            f"`monomoe-gen tune --model {shape.name}` on a machine with that GPU"
        )
    if ledger.stale:
        say(f"{len(ledger.stale)} records are of older sources and do not count")
    if not recorded:
        raise EnvironmentProblem(
            f"asked for {_listed(plan.tokens)} tokens, {plan.routing} routing and {plan.variant}; "
            f"of the {len(records)} records of {shape.name} ({path}) {_lack(ledger)}; run "
            f"`monomoe-gen tune --model {shape.name}` with these options on a machine with that GPU"
        )
    favourites = cost.favourites([ledger.spec(s) for s in recorded], plan.tokens)
    search = Search(recorded, plan.tokens, plan.seed, favourites, plan.sampler)
    trials = len(search) if plan.trials is None else min(plan.trials, len(search))
    seen: set[Schedule] = set()
    failures: Counter[str] = Counter()
    while len(seen) < trials:
        schedule = search.ask(in_order=len(search) <= trials - len(seen))
        assert schedule, "trials are at most the candidates"
        seen.add(schedule)
        failures.update(ledger.failure(schedule))
        search.tell(schedule, ledger.values(schedule))
        observe(Progress("search", len(seen), trials, ledger.best(seen), dict(failures)))
    return Report(
        replay=True,
        interrupted=False,
        known=len(recorded),
        measured=0,
        left=len(search),
        failures=dict(failures),
        winners=ledger.winners(seen),
        emission=emit(
            device,
            [shape.name],
            database=plan.database,
            folder=plan.folder,
            weights=plan.weights,
        ),
        seconds=time.monotonic() - began,
    )


def _lack(ledger: Ledger) -> str:
    """Why no schedule counts, when none has records of all the token counts."""
    found = {n for schedule in ledger.schedules() for n in ledger.recorded_tokens(schedule)}
    without = [n for n in ledger.tokens if n not in found]
    if without:
        return f"none that counts is of {_listed(without)} tokens"
    return "none that count are of one schedule at all these token counts"


def _listed(tokens: Iterable[int]) -> str:
    return ", ".join(map(str, tokens))
