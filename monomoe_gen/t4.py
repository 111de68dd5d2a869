"""Records in T4, the results format that auto-tuners exchange (schema version 1.0.0).

T4 comes from the Lorentz Center workshop on auto-tuning of March 2022; Kernel Tuner writes it. The
source is the ``results-schema.json`` that Kernel Tuner ships (github.com/odgaard/TuningSchema).
One file is about one problem, so it takes one model, token count and routing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monomoe_gen.errors import MonomoeError
from monomoe_gen.tuning_db import Record, latest_of

SCHEMA = "1.0.0"
INVALIDITY = {
    "ok": "correct",
    "infeasible": "constraints",
    "compile_error": "compile",
    "launch_error": "runtime",
    "timeout": "timeout",
    "wrong": "correctness",
    "unstable": "correctness",
}


def results(records: Sequence[Record]) -> dict[str, Any]:
    """The JSON object of ``records``; each candidate stands for its latest record, finals first.

    Times are milliseconds, as other tuners have them. Single samples and the time spent on a
    candidate are not recorded, so ``times`` holds no more than the empty list of run times.

    Raises:
        MonomoeError: nothing, or more than one problem.
    """
    problems = sorted({(r.tokens, r.token_tile, r.routing) for r in records})
    if len(problems) != 1:
        found = "; ".join(f"{n} tokens, tile {tile}, {r} routing" for n, tile, r in problems)
        raise MonomoeError(
            f"a T4 file is about one problem, found {found or 'no record'}; choose with --tokens "
            "and --routing"
        )
    (_, _, routing) = problems[0]
    return {
        "schema_version": SCHEMA,
        "results": [_result(record) for record in latest_of(records, routing)],
    }


def _result(record: Record) -> dict[str, Any]:
    measurements = []
    if record.time_us:
        us = {
            "time": record.time_us.median,
            "time_p10": record.time_us.p10,
            "time_p90": record.time_us.p90,
            "stream_floor": record.floor_us,
        }
        measurements += [
            {"name": name, "value": round(value / 1000, 7), "unit": "ms"}
            for name, value in us.items()
            if value is not None
        ]
    if record.binary:
        measurements.append(
            {"name": "registers", "value": record.binary.registers, "unit": "per thread"}
        )
    return {
        "timestamp": record.at,
        "configuration": dict(record.schedule),
        "objectives": ["time"],
        "times": {"runtimes": []},
        "invalidity": INVALIDITY[record.status],
        "correctness": 1 if record.status == "ok" else 0,
        "measurements": measurements,
    }
