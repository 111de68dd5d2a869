"""What a check found, for people, for machines, for a pull request and for a CI server."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from monomoe_gen.gate import CellResult, Run
from monomoe_gen.inspection import Remark
from monomoe_gen.regress import Verdict
from monomoe_gen.verify import gathered

ADVICE = {
    Verdict.REGRESSION: "slower than the baseline by more than the threshold",
    Verdict.IMPROVED: "faster than the baseline by more than the threshold",
    Verdict.CLOCK_CHANGED: "the time changed with the clock, the cycles did not",
}
SYMBOLS = {
    Verdict.OK: "✅",
    Verdict.IMPROVED: "🚀",
    Verdict.INCONCLUSIVE: "❔",
    Verdict.CLOCK_CHANGED: "🕑",
    Verdict.ENVIRONMENT: "⚠️",
    Verdict.REGRESSION: "❌",
    Verdict.WRONG: "❌",
}


@dataclass(frozen=True)
class Report:
    """The remarks of the inspection and, unless nothing was timed, the run.

    ``untimed`` says why there is no run. ``noise`` is the A/A floor of the GPU, None if unknown.
    """

    remarks: tuple[Remark, ...]
    run: Run | None
    untimed: str = ""
    noise: float | None = None

    @property
    def headline(self) -> str:
        """One line: what was timed and what came out; or plainly that nothing was."""
        if self.run is None:
            return f"NOTHING WAS TIMED: {self.untimed}"
        counts = Counter(result.verdict for result in self.run.cells)
        found = ", ".join(
            f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]
        )
        noise = "not calibrated" if self.noise is None else f"A/A floor {self.noise:.2%}"
        return (
            f"{len(self.run.cells)} cells on {self.run.env.get('gpu', 'no GPU')}: {found}; "
            f"threshold {self.run.delta:.1%} ({noise}); {self.run.seconds:.0f} s"
        )


def cell_rows(report: Report) -> list[dict[str, Any]]:
    """One row a cell, for a table."""
    return [
        {
            "model": result.cell.model,
            "tokens": result.cell.tokens,
            "routing": result.cell.routing,
            "verdict": result.verdict.value,
            "change": change(result),
            "interval": interval(result),
            "time_us": result.time_us,
            "baseline_us": result.baseline_us,
            "floor_us": result.floor_us,
            "compared": _COMPARED[result.method],
            "processes": result.judgement.processes if result.judgement else None,
            "remark": result.message or ADVICE.get(result.verdict, ""),
        }
        for result in (report.run.cells if report.run else ())
    ]


_COMPARED = {
    "paired": "with the baseline",
    "floor": "with the recorded ratio to the floor",
    "same": "not timed",
    "none": "not timed",
}


def remark_rows(remarks: Iterable[Remark]) -> list[dict[str, Any]]:
    """One row a remark, for a table."""
    return [asdict(remark) for remark in remarks]


def change(result: CellResult) -> str | None:
    """The effect as text: ``+4.1 %``."""
    return _percent(result.judgement.effect) if result.judgement else None


def interval(result: CellResult) -> str | None:
    """The interval of the effect as text."""
    if result.judgement is None:
        return None
    return f"{_percent(result.judgement.low)} .. {_percent(result.judgement.high)}"


def _percent(value: float) -> str:
    return f"{value * 100:+.1f} %" if math.isfinite(value) else "?"


def to_dict(report: Report) -> dict[str, Any]:
    """Everything, as JSON holds it; what is not a finite number is null."""
    run = report.run
    return {
        "headline": report.headline,
        "timed": run is not None,
        "threshold": run.delta if run else None,
        "noise": report.noise,
        "seconds": run.seconds if run else None,
        "gpu": dict(run.env) if run else None,
        "cells": [_cell_dict(result) for result in (run.cells if run else ())],
        "inspection": remark_rows(report.remarks),
    }


def _cell_dict(result: CellResult) -> dict[str, Any]:
    judgement = asdict(result.judgement) if result.judgement else {}
    judgement.pop("verdict", None)
    finite = {k: v if math.isfinite(v) else None for k, v in judgement.items()}
    rest = {k: v for k, v in asdict(result).items() if k not in ("cell", "judgement")}
    return {**asdict(result.cell), **rest, "verdict": result.verdict.value, **finite}


def markdown(report: Report) -> str:
    """A comment for a pull request."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: Report) -> Iterator[str]:
    yield "### Kernel latencies"
    yield ""
    yield f"**{report.headline}**"
    rows = cell_rows(report)
    if rows:
        yield ""
        yield "| model | tokens | routing | verdict | change | interval | µs | baseline, µs | |"
        yield "| --- | ---: | --- | --- | ---: | --- | ---: | ---: | --- |"
        for row in rows:
            symbol = SYMBOLS[Verdict(row["verdict"])]
            yield _line(
                row["model"],
                row["tokens"],
                row["routing"],
                f"{symbol} {row['verdict']}",
                row["change"],
                row["interval"],
                row["time_us"],
                row["baseline_us"],
                row["remark"],
            )
    worse = [remark for remark in report.remarks if remark.status in ("stale", "grew")]
    notes = [remark for remark in report.remarks if remark.status == "note"]
    fine = len(report.remarks) - len(worse) - len(notes)
    yield ""
    yield f"Without a GPU: {fine} checks ok, {len(notes)} notes, {len(worse)} to act on."
    for remark in worse:
        yield f"* ❌ **{remark.status}** {remark.subject}: {_flat(remark.message)}"
    if notes:
        yield ""
        yield "<details><summary>Notes</summary>"
        yield ""
        for note in gathered(remark_rows(notes)):
            yield f"* {note['subject']}: {_flat(note['message'])}"
        yield ""
        yield "</details>"


def _line(*cells: object) -> str:
    return "| " + " | ".join("" if c is None else _flat(str(c)) for c in cells) + " |"


def _flat(text: str) -> str:
    """One line that does not end a table cell, short enough to read."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= 300 else f"{line[:297]}..."


def junit(report: Report, fails: Mapping[str, bool]) -> str:
    """JUnit XML: a test case for each cell and remark.

    ``fails`` says of a verdict's or a status' name whether it fails. INCONCLUSIVE that does not
    fail is a skipped test, and so is the timing if there was none.
    """
    root = ElementTree.Element("testsuites", name="monomoe-gen check")
    timing = ElementTree.SubElement(root, "testsuite", name="timing")
    for result in report.run.cells if report.run else ():
        case = _case(timing, "timing", str(result.cell), result.seconds)
        name = result.verdict.value.lower()
        text = result.message or ADVICE.get(result.verdict, "")
        if result.judgement:
            text = f"{change(result)} ({interval(result)}) {text}".strip()
        if fails.get(name):
            ElementTree.SubElement(case, "failure", type=result.verdict.value, message=text)
        elif result.verdict is Verdict.INCONCLUSIVE:
            ElementTree.SubElement(case, "skipped", message=text)
        else:
            ElementTree.SubElement(case, "system-out").text = f"{result.verdict.value} {text}"
    if report.run is None:
        case = _case(timing, "timing", "all cells", 0.0)
        ElementTree.SubElement(case, "skipped", message=report.headline)
    inspection = ElementTree.SubElement(root, "testsuite", name="inspection")
    for remark in report.remarks:
        case = _case(inspection, f"inspection.{remark.check}", remark.subject, 0.0)
        if fails.get(remark.status):
            ElementTree.SubElement(case, "failure", type=remark.status, message=remark.message)
        else:
            ElementTree.SubElement(case, "system-out").text = remark.message
    for suite in root:
        for attribute, tag in (("failures", "failure"), ("skipped", "skipped")):
            suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
        suite.set("tests", str(len(suite)))
        suite.set("errors", "0")
    for element in root.iter():
        element.text = element.text and _printable(element.text)
        for attribute, value in element.items():
            element.set(attribute, _printable(value))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Without what XML cannot hold, such as the colours of a compiler's message."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _case(suite: ElementTree.Element, group: str, name: str, seconds: float) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite, "testcase", classname=f"monomoe.{group}", name=name, time=f"{seconds:.2f}"
    )
