"""Find the fastest schedules of a shape: render, compile, validate, time, record; then emit.

Every result, failures included, is in the database before the next candidate starts, and a second
run goes on where the first one stopped. Without a GPU see `replay`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

from monomoe_gen import cost, dispatch, jobs, tuning_db
from monomoe_gen.campaign import Campaign, Failure, Plan, Progress, Report
from monomoe_gen.cards import share, spread
from monomoe_gen.confirm import confirm
from monomoe_gen.device import Device
from monomoe_gen.emit import emit
from monomoe_gen.errors import DatabaseError
from monomoe_gen.finals import Place, finals
from monomoe_gen.interrupt import stop_on_interrupt
from monomoe_gen.jobs import Subject
from monomoe_gen.ledger import Ledger
from monomoe_gen.pipeline import prepared_ahead, preparers
from monomoe_gen.refute import make_refuter
from monomoe_gen.sandbox import Box, Sandbox
from monomoe_gen.schedule import Schedule
from monomoe_gen.search import Search
from monomoe_gen.space import feasible
from monomoe_gen.transfer import Transfer, from_base, from_nearest, worth

FINAL_SHARE = 0.2  # of a time budget, kept for the finalists
INCUMBENTS = 8  # of each token count, from records of older sources
FIRST_GUESS_S = 0.5  # per candidate, until some are measured
Open = Callable[[], AbstractContextManager[Box]]


def tune(
    plan: Plan,
    device: Device,
    *,
    say: Callable[[str], object] = lambda text: None,
    observe: Callable[[Progress], object] = lambda progress: None,
    sandbox: Open = Sandbox,
    others: Sequence[Open] = (),
) -> Report:
    """Measures candidates on the GPU ``device`` until the plan is fulfilled, and emits the best.

    ``sandbox`` opens the one to measure in, which may have served another run before. ``others``
    make the sandboxes of further GPUs like ``device``, which share the search; finalists
    are compared on one. ``say`` hears remarks, ``observe`` every finished candidate. Ctrl-C once
    ends the run early with a report, twice aborts.

    Raises:
        EnvironmentProblem: the GPU is busy or does not answer, or there is no NVRTC.
        MonomoeError: the plan cannot be carried out, or kernels are too large to be simulated.
        DatabaseError: a record cannot be read or written.
    """
    began = time.monotonic()
    shape, tile = plan.shape, plan.token_tile
    refuter = None
    if plan.simulate:
        routing = "uniform" if plan.trace_file else plan.routing
        options = routing, plan.simulate, plan.variant
        refuter = make_refuter(shape, tuple(plan.tokens), tile, *options)
    path = tuning_db.database_path(device.slug, shape.name, plan.database)
    held = _dispatched(plan, device)
    ledger = Ledger(shape, plan.tokens, tile, plan.routing, path, plan.variant, plan.weights, held)
    if not plan.fresh:
        ledger.load(tuning_db.read(path))
    candidates = feasible(shape, device, tile)
    transfer: Transfer | None = None
    favourites: list[Schedule] = []
    about = plan.tokens, tile, plan.routing, path.parent
    if plan.from_winners:
        count = plan.from_winners
        transfer = from_base(shape, plan.variant, candidates, *about, count, plan.weights)
        wanted = {*transfer.schedules, *_incumbents(ledger, 1)}
        candidates = [s for s in candidates if s in wanted]
        first = list(transfer.schedules)
    else:
        favourites = cost.favourites([ledger.spec(s) for s in candidates], plan.tokens)
        if not ledger.stale and not ledger.schedules():
            transfer = from_nearest(shape, candidates, *about, plan.weights)
        transferred = transfer.schedules if transfer else ()
        first = [*_incumbents(ledger), *_in_turns(favourites, transferred)]
    search = Search(candidates, plan.tokens, plan.seed, first, plan.sampler)
    known = [s for s in candidates if not ledger.missing(s)]
    for schedule in known:
        search.tell(schedule, ledger.values(schedule))
    say(
        f"{shape.name} on {device.name}: {len(candidates)} schedules, {len(known)} of them known, "
        f"{len(search)} to try for {', '.join(map(str, plan.tokens))} tokens"
    )
    if transfer and plan.from_winners:
        say(f"trying {transfer} and what won before, nothing else")
    elif transfer:
        say(f"nothing is recorded for {shape.name}: beginning with {transfer}")
    floors = jobs.compile_floors(device)
    with stop_on_interrupt(say) as stop, ExitStack() as opened:
        boxes = [opened.enter_context(make()) for make in (sandbox, *others)]
        restarted = sum(box.restarts for box in boxes)
        campaign = Campaign(plan, device, ledger, boxes[0], floors, observe, refuter)
        campaign.meter.workers = len(boxes)
        campaigns = [campaign, *(replace(campaign, sandbox=box) for box in boxes[1:])]
        before = len(ledger.records)
        for schedule in filter(campaign.hopeless, candidates):
            search.tell(schedule, campaign.values(schedule))
        deadline = began + plan.budget_s * (1 - FINAL_SHARE) if plan.budget_s else float("inf")
        measured, alive = _search(campaigns, search, deadline, stop, say)
        left_out = frozenset(i for i, own in enumerate(campaigns) if own not in alive)
        campaign = alive[0]
        if apart := spread(ledger.records[before:]):
            say(apart)
        been_finalists: set[Place] = set()
        while not (stop.is_set() or plan.screen_only):
            finals(campaign, stop, been_finalists)
            if plan.from_winners or confirm(campaign, stop):
                break
        restarts = sum(box.restarts for box in boxes) - restarted
        pruned = sum(map(campaign.hopeless, candidates))
        speed = campaign.meter.speed()
    emission = None
    if ledger.best() and not stop.is_set():
        emission = emit(
            device,
            [shape.name],
            database=plan.database,
            folder=plan.folder,
            weights=plan.weights,
        )
    return Report(
        replay=False,
        interrupted=stop.is_set(),
        known=len(known),
        measured=measured,
        left=len(search),
        failures=dict(campaign.failures),
        winners=ledger.winners(),
        emission=emission,
        seconds=time.monotonic() - began,
        restarts=restarts,
        left_out=left_out,
        pruned=pruned,
        transfer=worth(transfer, favourites, ledger) if transfer and favourites else "",
        speed=speed,
    )


def _incumbents(ledger: Ledger, count: int = INCUMBENTS) -> list[Schedule]:
    """Who is dispatched, and who was fastest under older sources: good places to start."""
    timed = [(r.time_us.median, r) for r in ledger.stale if r.time_us]
    best = list(ledger.dispatched.values())
    for n in sorted({r.tokens for r in ledger.stale}):
        ranked = sorted((t, Schedule.from_dict(r.schedule)) for t, r in timed if r.tokens == n)
        best += [s for _, s in dict.fromkeys(ranked)][:count]
    return list(dict.fromkeys(best))


def _dispatched(plan: Plan, device: Device) -> dict[int, Schedule]:
    """Who serves the plan's token counts in the table so far, as exact entries."""
    try:
        table = dispatch.load(plan.folder or dispatch.table_folder(device.slug))
    except DatabaseError:
        return {}
    own = [e for e in table.entries if (e.model, e.variant) == (plan.shape.name, plan.variant)]
    kernels = {e.tuned_at: table.kernel(e) for e in own if e.tuned_at in plan.tokens}
    return {n: k.schedule for n, k in kernels.items() if k.token_tile == plan.token_tile}


def _in_turns(*lists: Sequence[Schedule]) -> list[Schedule]:
    """All firsts, all seconds, and so on."""
    places = itertools.zip_longest(*lists)
    return list(dict.fromkeys(s for place in places for s in place if s is not None))


def _search(
    campaigns: Sequence[Campaign],
    search: Search,
    deadline: float,
    stop: threading.Event,
    say: Callable[[str], object],
) -> tuple[int, list[Campaign]]:
    """Measures candidates until none is left, the budget is spent or ``stop``.

    Returns how many, and the campaigns of the cards that still answer.
    """
    campaign = campaigns[0]
    failed = threading.Event()
    trials = campaign.plan.trials if campaign.plan.trials is not None else len(search)
    total = min(trials, len(search))
    lock = threading.Lock()
    asked = measured = 0
    began = time.monotonic()

    def affordable() -> bool:
        """Whether all that is left will be measured, so that the order does not matter."""
        each = (time.monotonic() - began) / measured if measured >= 5 else FIRST_GUESS_S
        in_time = len(search) * each <= deadline - time.monotonic()
        return in_time and len(search) <= trials - asked

    def prepare() -> tuple[Subject, Failure | None] | None:
        nonlocal asked
        with lock:
            schedule = search.ask(in_order=affordable()) if asked < trials else None
            asked += 1
        return campaign.prepare(schedule, over) if schedule else None

    def over() -> bool:
        return stop.is_set() or failed.is_set() or time.monotonic() >= deadline

    def work(own: Campaign, prepared: tuple[Subject, Failure | None]) -> None:
        nonlocal measured
        subject, failure = prepared
        if failure:
            own.fail(subject, "screen", *failure)
        else:
            own.screen(subject)
        with lock:
            measured += 1
            search.tell(subject.spec.schedule, own.values(subject.spec.schedule))
            own.report("search", measured, total)

    queue = prepared_ahead(prepare, preparers(len(campaigns)), over)
    alive = share(queue, campaigns, work, over, failed, say)
    return measured, alive
