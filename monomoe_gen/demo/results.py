"""What `demo decode` found: rows to read, and a JSON value to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from monomoe_gen.demo.decode import OURS, SILENT, Run

FORMAT = 1


@dataclass(frozen=True)
class Difference:
    """Where two texts first differ: a sequence, its new token, and the margins of both there."""

    sequence: int
    token: int
    margin: float
    other_margin: float

    def __str__(self) -> str:
        return (
            f"token {self.token} of sequence {self.sequence}, margins {self.margin:.3f} and "
            f"{self.other_margin:.3f}"
        )


def first_difference(one: Run, other: Run) -> Difference | None:
    """The earliest new token at which two texts of the same length differ."""
    for token in range(len(one.text[0])):
        for i, (mine, its) in enumerate(zip(one.text, other.text, strict=True)):
            if mine[token] != its[token]:
                return Difference(i, token, one.margins[i][token], other.margins[i][token])
    return None


def rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A row of each run, beside the kernels' run of the same number of sequences."""
    ours = {run.sequences: run for run in runs if run.kind == OURS}
    found = []
    for run in sorted(runs, key=lambda r: r.sequences):
        mine = ours.get(run.sequences)
        both = mine and mine is not run and mine.text and run.text
        times = (run.ms_per_token, mine.ms_per_token if mine else None)
        timed = both and run.kind != SILENT and all(times)
        apart = first_difference(mine, run) if mine and both else None
        found.append(
            {
                "sequences": run.sequences,
                "experts": run.kind,
                "ms_per_token": run.ms_per_token,
                "cuda_graph": run.graph,
                "faster": times[0] / times[1] if timed and times[0] and times[1] else None,
                "same_text": apart is None if both else None,
                "first_difference": None if apart is None else str(apart),
                "problems": "; ".join(run.problems) or None,
            }
        )
    return found


def to_json(runs: Sequence[Run], about: dict[str, Any]) -> dict[str, Any]:
    """Everything but the margins; ``about`` says what was run where."""
    ours = {run.sequences: run for run in runs if run.kind == OURS}
    entries = []
    for run, row in zip(sorted(runs, key=lambda r: r.sequences), rows(runs), strict=True):
        mine = ours.get(run.sequences)
        both = mine and mine is not run and mine.text and run.text
        apart = first_difference(mine, run) if mine and both else None
        tokens = {token for text in run.text for token in text}
        smallest = min((m for margins in run.margins for m in margins), default=None)
        entries.append(
            {
                **row,
                "first_difference": asdict(apart) if apart else None,
                "problems": run.problems,
                "distinct_tokens": len(tokens),
                "smallest_margin": smallest,
            }
        )
    return {"format": FORMAT, **about, "runs": entries}
