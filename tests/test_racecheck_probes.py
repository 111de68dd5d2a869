"""The probes of racecheck compile, are what they say, and a report of the tool is read right."""

from __future__ import annotations

import re

import pytest
from racecheck_probes import CASES, PREFIX, PROBES, TEXT, Probe, reported, table, verdict

from monomoe_gen.compile import compile_source


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.kernel_name)
def test_a_probe_compiles(probe: Probe) -> None:
    binary = compile_source(probe.source)
    assert binary.warnings == ""
    assert binary.static_shared == 0


def test_the_cases_are_those_of_the_program() -> None:
    listed = re.search(r"enum Case : u32 \{(.*?)\};", TEXT.read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    names = re.findall(r"^ +k(\w+)", listed[1], re.MULTILINE)
    assert [name.lower() for name in names] == [case.replace("_", "") for case in CASES]


def test_a_racy_probe_is_another_program() -> None:
    for case in CASES:
        correct, racy = (compile_source(Probe(case, racy).source).cubin for racy in (False, True))
        assert correct.replace(b"correct", b"") != racy.replace(b"racy", b""), case


def test_reports_are_counted_by_kernel() -> None:
    output = (
        f"launched {PREFIX}sync_warp_correct\n"
        f"========= Error: Race reported between Write access at {PREFIX}sync_warp_racy+0x100\n"
        f"=========     and Read access at {PREFIX}sync_warp_racy+0x770 [248 hazards]\n"
        f"=========     and Read access at {PREFIX}sync_warp_racy+0x7a0 in a.cu:5 [1 hazard]\n"
        f"launched {PREFIX}sync_warp_racy\n"
    )
    hazards = reported(output)
    assert hazards == {f"{PREFIX}sync_warp_correct": 0, f"{PREFIX}sync_warp_racy": 249}
    lines = table(hazards).splitlines()
    assert re.fullmatch(r"sync_warp +0 +249  seen", lines[1 + CASES.index("sync_warp")])
    assert lines[1].split() == ["every_lane_arrives", "-", "-", "not", "launched"]


@pytest.mark.parametrize(
    ("correct", "racy", "says"),
    [(0, 5, "seen"), (0, 0, "blind"), (5, 5, "not seen"), (5, 0, "not seen"), (0, None, "not l")],
)
def test_verdicts(correct: int, racy: int | None, says: str) -> None:
    assert verdict(correct, racy).startswith(says)
