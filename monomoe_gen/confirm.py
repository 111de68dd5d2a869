"""The end of a run: each winner once more, in a process that has measured nothing before.

The fastest of several finalists that are alike is also a lucky one. What the dispatch table says of
the winner comes from here instead.
"""

from __future__ import annotations

import threading

from monomoe_gen.campaign import Campaign
from monomoe_gen.schedule import Schedule


def confirm(campaign: Campaign, stop: threading.Event) -> bool:
    """Validates and times every winner that this has not happened to; whether there was none.

    One that fails has lost, as a finalist would. A confirmed time is compared with no other, since
    those that lost have none.
    """
    ledger, routing = campaign.ledger, campaign.plan.routing
    waiting: dict[Schedule, list[int]] = {}
    for n, winner in ledger.winners().items():
        if winner.confirmed is None:
            waiting.setdefault(Schedule.from_dict(winner.record.schedule), []).append(n)
    for i, (schedule, tokens) in enumerate(waiting.items(), start=1):
        subject, failure = campaign.prepare(schedule, stop.is_set)
        if stop.is_set():
            return False
        if failure:
            campaign.fail(subject, "final", *failure)
            continue
        campaign.sandbox.renew()
        cells = campaign.measure(subject, tokens, "final", validate=True, timed=True)
        for cell in cells or ():
            campaign.ledger.add(subject.success(cell, cell, routing, "confirm", campaign.env))
        campaign.report("confirm", i, len(waiting))
        if stop.is_set():
            return False
    return not waiting
