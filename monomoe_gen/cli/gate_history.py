"""What timed checks leave behind, and what can be read from it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from monomoe_gen.cli.output import print_rows, say
from monomoe_gen.device import Device
from monomoe_gen.paths import checkout

if TYPE_CHECKING:
    from monomoe_gen.gate import Run


def record(run: Run, device: Device) -> None:
    """Appends the timed cells of a check to the history."""
    from monomoe_gen import history

    at = datetime.now(timezone.utc).isoformat("T", "seconds")
    commit = _commit()
    driver = run.env.get("driver")
    rows = [
        history.Row(
            at=at,
            commit=commit,
            gpu=device.slug,
            uuid=str(run.env["uuid"]),
            driver=None if driver is None else str(driver),
            model=result.cell.model,
            tokens=result.cell.tokens,
            routing=result.cell.routing,
            kernel=result.kernel,
            sources_hash=result.sources_hash,
            compiler=result.compiler,
            method=result.method,
            verdict=result.verdict.value,
            effect=result.judgement.effect if result.judgement else None,
            time_us=result.time_us,
            floor_us=result.floor_us,
        )
        for result in run.cells
        if result.time_us and result.floor_us
    ]
    if rows:
        history.append(history.history_path(), rows)


def _commit() -> str | None:
    """The commit that CI or git names."""
    for variable in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        if os.environ.get(variable):
            return os.environ[variable]
    command = ["git", "-C", str(checkout() or Path.cwd()), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def show_drift(form: str, models: Collection[str] = ()) -> bool:
    """Prints the level of each series over time; whether one got slower by more than 2 %.

    The series are those of ``models``, none meaning all.
    """
    from monomoe_gen import history, regress

    path = history.history_path()
    known = history.read(path)
    found = history.drift(row for row in known if not models or row.model in models)
    if not found:
        asked = f" of {', '.join(models)}" if models else ""
        say(f"{path} has no timed checks{asked} yet")
    rows = [
        {
            "gpu": series.gpu,
            "model": series.model,
            "tokens": series.tokens,
            "routing": series.routing,
            "runs": series.runs,
            "changes": "; ".join(f"{at} {step:+.1%}" for at, step in series.steps),
            "in_all": f"{series.change:+.1%}",
        }
        for series in found
    ]
    print_rows(rows, form)
    return any(series.change > regress.LEAST_DELTA for series in found)
