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


def finals(campaign: Campaign, stop: threading.Event) -> None:
    """Measures the finalists in turns until all of them have final records, or ``stop``.

    One that fails makes room for the next, which is measured beside the one that leads so far.
    Before anything is timed, every token count that a finalist takes is validated, whether it is
    tuned for or not. After ``stop`` what has been through a round is kept.
    """
    quick = campaign.plan.from_winners
    while not stop.is_set():
        due = _due(campaign.ledger, QUICK_FINALISTS if quick else FINALISTS)
        if not due:
            return
        _measure(campaign, due, stop)


def _due(ledger: Ledger, count: int) -> dict[Schedule, tuple[int, ...]]:
    """The finalists without final records, and those who lead at the same token counts."""
    finalists = ledger.finalists(count)
    due = {(s, n) for s, tokens in finalists.items() for n in tokens if not ledger.final(s, n)}
    if not due:
        return {}
    leading = {n: Schedule.from_dict(w.record.schedule) for n, w in ledger.winners().items()}
    due |= {(s, n) for n, s in leading.items() if any(n == m for _, m in due)}
    schedules = dict.fromkeys((*finalists, *leading.values()))
    wanted = {s: tuple(n for n in ledger.tokens if (s, n) in due) for s in schedules}
    return {s: tokens for s, tokens in wanted.items() if tokens}


def _measure(
    campaign: Campaign, finalists: dict[Schedule, tuple[int, ...]], stop: threading.Event
) -> None:
    rounds_each = QUICK_ROUNDS if campaign.plan.from_winners else ROUNDS
    total = len(finalists) * (1 + rounds_each)
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
    for i in range(rounds_each):
        if i:
            campaign.sandbox.renew()
        for schedule, (subject, _cells) in list(valid.items()):
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
            if not step():
                break
        if stop.is_set():
            break
    for (schedule, n, routing), rounds in timed.items():
        if schedule in valid:
            subject, errors = valid[schedule]
            pooled, env = _pool(rounds), campaign.env
            campaign.ledger.add(subject.success(pooled, errors[n], routing, "final", env))
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
