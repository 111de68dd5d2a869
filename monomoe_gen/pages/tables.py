"""Numbers to the rows of the report's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from monomoe_gen.dispatch import Table
from monomoe_gen.pages.analysis import ModelData
from monomoe_gen.shapes import UNQUANTIZED
from monomoe_gen.tuning_db import Record
from monomoe_gen.variant import USUAL

Row = dict[str, Any]
_STAGES = {
    "bench": "bench",
    "confirm": "confirmation",
    "final": "finals",
    "screen": "screening",
}


def results(models: Sequence[ModelData]) -> list[Row]:
    """One row a model and token count, as text."""
    return [
        {
            "model": row["model"],
            "tokens": row["tokens"],
            "this kernel, µs": _number(row["time_us"], 2),
            "stream floor, µs": _number(row["floor_us"], 2),
            "ratio": _number(row["ratio"], 3),
            "TB/s": _number(row["tb_s"], 2),
            "MonoMoE, µs": _number(row["monomoe_us"], 1),
            "Triton, µs": _number(row["triton_us"], 1),
            "times faster": _number(row["speedup"], 2),
            "schedule": row["schedule"],
            "time of": _STAGES[row["source"]],
        }
        for data in models
        for row in data.rows
    ]


def others(table: Table, models: Sequence[ModelData]) -> list[Row]:
    """The dispatched kernels of `models` that `results` has not: other variants, bf16 activations.

    Their times are those by which they were chosen.
    """
    usual = {data.shape.name for data in models}
    return [
        {
            "model": entry.model,
            "kernel": str(entry.variant),
            "tokens": entry.tuned_at,
            "time, µs": _number(entry.time_us, 2),
            "stream floor, µs": _number(entry.floor_us, 2),
            "ratio": _number(entry.time_us / entry.floor_us if entry.floor_us else None, 3),
            "schedule": table.kernel(entry).schedule.id,
            "time of": _STAGES[entry.record.stage],
        }
        for entry in sorted(table.entries, key=lambda entry: entry.key)
        if entry.model.removesuffix(UNQUANTIZED) in usual
        and (entry.model not in usual or entry.variant != USUAL)
    ]


def resources(data: ModelData) -> list[Row]:
    """What each token count's kernel takes of an SM."""
    rows = []
    for tokens, record in data.best.items():
        geometry, binary = data.geometry(record), record.binary
        rows.append(
            {
                "tokens": tokens,
                "schedule": geometry.schedule.id,
                "threads": geometry.threads,
                "registers": binary.registers if binary else None,
                "spilled bytes": binary.spill_bytes if binary else None,
                "shared bytes": f"{geometry.shared_bytes:,}",
                "workspace bytes": f"{geometry.workspace_bytes:,}",
            }
        )
    return rows


def numerics(data: ModelData) -> list[Row]:
    """The worst token of each distribution: of each token count's kernel and of all candidates."""
    rows = []
    for tokens, best in data.best.items():
        every = data.validated.get(tokens, ())
        for name in sorted({name for r in every for name in r.errors}):
            mine, found = best.errors.get(name), [r.errors[name] for r in every if name in r.errors]
            rows.append(
                {
                    "tokens": tokens,
                    "data": name,
                    "cosine": f"{mine.cosine:.6f}" if mine else None,
                    "relative L2": f"{mine.rel_l2:.4f}" if mine else None,
                    "to the mirror, L2": f"{mine.mirror_rel_l2:.1e}" if mine else None,
                    "worst cosine of all": f"{min(e.cosine for e in found):.6f}",
                    "measured": len(found),
                }
            )
    return rows


def outcomes(data: ModelData) -> list[Row]:
    """How many records there are of each stage, routing and status."""
    counts = Counter((r.stage, r.routing, r.status) for r in data.records)
    return [
        {"stage": stage, "routing": routing, "status": status, "records": count}
        for (stage, routing, status), count in sorted(counts.items())
    ]


def provenance(data: ModelData) -> list[Row]:
    """Where the numbers come from."""
    facts = {
        "GPU": _distinct(r.env.get("gpu") for r in data.records),
        "GPU id": _distinct(r.env.get("uuid") for r in data.records),
        "driver": _distinct(r.env.get("driver") for r in data.records),
        "compiler": _distinct(r.compiler for r in data.records),
        "torch": _distinct(r.env.get("torch") for r in data.records),
        "SM clock, MHz": _distinct(r.env.get("sm_clock_mhz") for r in data.records),
        "power cap, W": _distinct(r.env.get("power_cap_w") for r in data.records),
        "throttling": _distinct(r.env.get("throttle") for r in data.records),
        "least bytes between two uses of an expert": _least(data, "reuse_bytes"),
        "measured": f"{min(r.at for r in data.records)} to {max(r.at for r in data.records)}",
        "records": f"{len(data.records):,}",
    }
    rows: list[Row] = [{"what": name, "value": value} for name, value in facts.items() if value]
    rows += [
        {"what": f"kernel for B = {t}", "value": _kernel(data, r)} for t, r in data.best.items()
    ]
    return rows


def _kernel(data: ModelData, record: Record) -> str:
    binary = f"cubin {record.binary.text_hash[:16]}" if record.binary else "no cubin"
    state = "the present sources" if data.present.has(record) else "OLDER sources: tune again"
    return f"sources {record.sources_hash[:16]} ({state}), {binary}"


def _distinct(values: Iterator[Any]) -> str:
    return ", ".join(sorted({str(value) for value in values if value is not None}))


def _least(data: ModelData, name: str) -> str:
    found = [v for r in data.records if isinstance(v := r.env.get(name), int | float)]
    return f"{min(found):,.0f}" if found else ""


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
