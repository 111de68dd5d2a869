"""Every planted fault is caught, by what `templates/host/mutants.md` says.

``MUTANTS_WRITE=1`` rewrites the table from what is found now.
"""

import os
import re
from pathlib import Path

import pytest
from mutants import MUTANTS, Mutant

from monomoe_gen import host_build
from monomoe_gen.paths import data_dir
from monomoe_gen.simulate import Outcome, make_problem, plan, simulate

TABLE = data_dir("templates") / "host" / "mutants.md"
RUNS = 22  # two seeds of every policy
HEAD = """\
# Planted faults and what catches them

Written by `MUTANTS_WRITE=1 pytest tests/test_mutants.py`; the test plants each fault again and
wants one of these findings.

| fault | planted in | findings | runs until the first |
|---|---|---|---:|
"""

pytestmark = pytest.mark.skipif(not host_build.has_compiler(), reason="needs g++")


def hunt(mutant: Mutant, folder: Path) -> tuple[int, Outcome | None]:
    """The number of runs until something is found, and that run.

    Each run has numbers of its own: another order of sums shows in the results of some alone.
    """
    program = mutant.build(folder)
    spec = mutant.spec
    for seed, run in enumerate(plan(RUNS)):
        problem = make_problem(
            spec.shape, mutant.tokens, mutant.routing, seed, spec.layout, spec.router
        )
        (outcome,) = simulate(program, problem, [run], mutant.resident)
        if not outcome.ok:
            return seed + 1, outcome
    return RUNS, None


def recorded() -> dict[str, list[str]]:
    """Fault -> the findings that the table lists for it."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|", TABLE.read_text(), re.MULTILINE)
    return {name: kinds.split(", ") for name, kinds in rows[1:]}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name.replace(" ", "-"))
def test_a_planted_fault_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    _, outcome = hunt(mutant, tmp_path)
    assert outcome is not None, f"nothing found in {RUNS} runs"
    assert {f.kind for f in outcome.findings} & set(recorded()[mutant.name]), outcome.findings


def test_the_table_lists_the_planted_faults() -> None:
    assert len(MUTANTS) >= 15
    assert sorted(recorded()) == sorted(mutant.name for mutant in MUTANTS)


@pytest.mark.skipif("MUTANTS_WRITE" not in os.environ, reason="writes the table")
def test_write_the_table(tmp_path: Path) -> None:
    lines = []
    for i, mutant in enumerate(MUTANTS):
        count, outcome = hunt(mutant, tmp_path / str(i))
        kinds = sorted({f.kind for f in outcome.findings}) if outcome else ["NOTHING"]
        place = f"`{mutant.file}`" if mutant.file else "the launch"
        lines.append(f"| {mutant.name} | {place} | {', '.join(kinds)} | {count} |\n")
    TABLE.write_text(HEAD + "".join(lines), encoding="utf-8")
