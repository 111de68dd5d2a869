"""A traced launch in the Chrome trace event format, for ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from monomoe_gen.trace import Trace


def trace_json(trace: Trace, provenance: Mapping[str, str]) -> str:
    """One process for each CTA, one thread for each warp, one complete event for each span.

    Timestamps and durations are in microseconds. ``provenance`` goes into the file's metadata.
    """
    events = ",\n".join(json.dumps(e, separators=(",", ":")) for e in _events(trace))
    facts = json.dumps(dict(provenance))
    return f'{{"displayTimeUnit":"ns","otherData":{facts},"traceEvents":[\n{events}\n]}}\n'


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    for cta in range(trace.grid):
        yield _name("process_name", cta, 0, f"CTA {cta}")
    for warp in trace.warps:
        where = {"pid": warp.cta, "tid": warp.warp}
        yield _name("thread_name", warp.cta, warp.warp, f"{warp.warp:02} {warp.role.value}")
        for span in warp.spans():
            yield {
                "ph": "X",
                **where,
                "name": span.name,
                "cat": f"{warp.role.value},{span.kind.value}",
                "ts": round(span.start_us, 4),
                "dur": round(span.us, 4),
                "args": {"until": span.end.event.label, "index": span.end.index},
            }


def _name(what: str, cta: int, warp: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": cta, "tid": warp, "name": what, "args": {"name": name}}
