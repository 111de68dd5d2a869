"""The last stage of a run: the fastest candidates once more, side by side.

Each round is in another process, since where a process happens to have its weights in memory moves
some schedules and not others: one kernel of qwen3.5-122b took 123.6, 131.4 and 137.5 us in three
processes on an H200.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from monomoe_gen.campaign import Campaign
from monomoe_gen.jobs import Subject
from monomoe_gen.ledger import Ledger
from monomoe_gen.protocol import Cell
from monomoe_gen.schedule import Schedule

FINALISTS, ROUNDS = 4, 3  # of each token count, and how often each is timed
QUICK_FINALISTS, QUICK_ROUNDS = 2, 1  # of a run that tries the winners of other kernels only

Place = tuple[Schedule, int]  # and the token count


def finals(campaign: Campaign, stop: threading.Event, done: set[Place]) -> None:
    """Measures the finalists in turns until all of them have final records, or ``stop``.

    ``done`` is where that has happened in this run, and is added to: nobody is due twice.

    One that fails makes room for the next, which is measured beside the one that leads so far.
    Before anything is timed, every token count that a finalist takes is validated, whether it is
    tuned for or not. After ``stop`` whole rounds are kept, and their finalists stay due.
    """
    quick = campaign.plan.from_winners
    count, rounds = (QUICK_FINALISTS, QUICK_ROUNDS) if quick else (FINALISTS, ROUNDS)
    samples = rounds * campaign.plan.final_effort.replays
    while not stop.is_set():
        due = _due(campaign.ledger, count, samples) - done
        if not due:
            return
        done |= due
        _measure(campaign, _with_leaders(campaign.ledger, due, samples), rounds, stop)


def _due(ledger: Ledger, count: int, samples: int) -> set[Place]:
    """Where finalists have fewer ``samples`` than that."""
    places = {(s, n) for s, tokens in ledger.finalists(count).items() for n in tokens}
    return {(s, n) for s, n in places if ledger.final(s, n) < samples}


def _with_leaders(ledger: Ledger, due: set[Place], samples: int) -> dict[Schedule, tuple[int, ...]]:
    """``due`` and who leads at the same token counts, unless it has more ``samples`` already."""
    leading = [(Schedule.from_dict(w.record.schedule), n) for n, w in ledger.winners().items()]
    counts = {n for _, n in due}
    beside = {(s, n) for s, n in leading if n in counts and ledger.final(s, n) <= samples}
    found: dict[Schedule, list[int]] = {}
    for schedule, n in sorted(due | beside, key=lambda place: (place[1], place[0])):
        found.setdefault(schedule, []).append(n)
    return {schedule: tuple(tokens) for schedule, tokens in found.items()}


def _measure(
    campaign: Campaign,
    finalists: dict[Schedule, tuple[int, ...]],
    rounds: int,
    stop: threading.Event,
) -> None:
    total = len(finalists) * (1 + rounds)
    done = 0

    def step() -> bool:
        nonlocal done
        done += 1
        campaign.report("final", done, total)
        return not stop.is_set()

    valid: dict[Schedule, tuple[Subject, dict[int, Cell]]] = {}
    for schedule in finalists:
        subject, failure = campaign.prepare(schedule, stop.is_set)
        if stop.is_set():
            return
        if failure:
            campaign.fail(subject, "final", *failure)
            continue
        every = range(1, campaign.plan.token_tile + 1)
        cells = campaign.measure(subject, every, "final", validate=True, timed=False)
        if cells:
            valid[schedule] = subject, {cell.tokens: cell for cell in cells}
        if not step():
            return
    routings = tuple(campaign.plan.weights) or (campaign.plan.routing,)
    timed: dict[tuple[Schedule, int, str], list[Cell]] = {}
    whole = 0  # rounds
    for i in range(rounds):
        if i:
            campaign.sandbox.renew()
        for schedule, (subject, _cells) in list(valid.items()):
            if stop.is_set():
                break
            for routing in routings:
                cells = campaign.measure(
                    subject,
                    finalists[schedule],
                    "final",
                    validate=False,
                    timed=True,
                    routing=routing,
                )
                if cells is None:
                    del valid[schedule]
                    break
                for cell in cells:
                    timed.setdefault((schedule, cell.tokens, routing), []).append(cell)
            step()
        else:
            whole += 1
        if stop.is_set():
            break
    ledger, replays = campaign.ledger, campaign.plan.final_effort.replays
    better = {(s, n) for s, n, _ in timed if ledger.final(s, n) > whole * replays}
    for (schedule, n, routing), found in timed.items():
        if whole and schedule in valid and (schedule, n) not in better:
            subject, errors = valid[schedule]
            pooled, env = _pool(found[:whole]), campaign.env
            ledger.add(subject.success(pooled, errors[n], routing, "final", env))
    if not stop.is_set():
        campaign.report("final", total, total)


def _pool(cells: Sequence[Cell]) -> Cell:
    """One cell with the samples of all; the rest is the last one's."""
    last = cells[-1]
    return Cell(
        tokens=last.tokens,
        status="ok",
        samples=tuple(sample for cell in cells for sample in cell.samples),
        floor=last.floor,
        distinct_experts=last.distinct_experts,
        reuse_bytes=last.reuse_bytes,
        env=last.env,
    )
