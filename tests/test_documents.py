"""The generated parts of the documents are what the program says today."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from monomoe_gen import documents
from monomoe_gen.cli import monomoe_gen
from monomoe_gen.device import DEFAULT, KNOWN
from monomoe_gen.errors import MonomoeError
from monomoe_gen.paths import checkout, data_dir
from monomoe_gen.report import read_anchors
from monomoe_gen.rules import RULES, violations
from monomoe_gen.schedule import Geometry, Schedule
from monomoe_gen.shapes import load_shape

TOP = checkout()
assert TOP is not None
KERNEL = (TOP / "templates" / "README.md").read_text(encoding="utf-8")
PUBLISHED = read_anchors(data_dir("generated") / DEFAULT / "anchors.json")["schedules"]


@pytest.mark.parametrize("name", documents.PARTS)
def test_no_document_is_stale(name: str) -> None:
    text = (TOP / name).read_text(encoding="utf-8")
    assert text == documents.refresh(name, text), "run `make docs`"


def test_a_stale_part_is_replaced_and_nothing_else() -> None:
    stale = KERNEL.replace(documents.tunables_table(), "old")
    assert stale != KERNEL
    assert documents.refresh("templates/README.md", stale) == KERNEL


def test_a_document_without_its_markers_is_refused() -> None:
    with pytest.raises(MonomoeError, match="generated: tunables"):
        documents.refresh("templates/README.md", "no markers")


def test_the_tables_name_every_parameter_rule_and_member() -> None:
    for parameter in fields(Schedule):
        assert f"| `{parameter.name}` |" in documents.tunables_table()
    for rule in RULES:
        assert f"| `{rule.name}` |" in documents.rules_table()
    geometry = Geometry(
        load_shape(documents.EXAMPLE_MODEL), documents.EXAMPLE_SCHEDULE, token_tile=8
    )
    for member in geometry.shared_fields():
        assert f"| `{member}` |" in documents.shared_memory_table()


def test_the_text_about_the_example_speaks_of_the_example() -> None:
    assert f"`{documents.EXAMPLE_SCHEDULE.id}`" in KERNEL


DOCUMENTS = sorted(
    path for path in (*TOP.glob("*.md"), *TOP.glob("*/README.md"), *TOP.glob("*/*/README.md"))
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(TOP)))
def test_documents_name_what_exists(path: Path) -> None:
    """Commands, make targets and files of this project in code marks."""
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"`monomoe-gen ([a-z][a-z-]*)", text):
        assert name in monomoe_gen.commands, name
    targets = re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text("utf-8"), re.MULTILINE)
    for name in re.findall(r"`make ([a-z-]+)`", text):
        assert name in targets, name
    for name in re.findall(r"`((?:monomoe_gen|templates|shapes|tests)/[\w./-]*)`", text):
        assert (TOP / name).exists(), name


def test_every_barrier_is_documented() -> None:
    storage = (TOP / "templates" / "ops" / "storage.cuh").read_text(encoding="utf-8")
    members = re.search(r"struct Barriers \{(.*?)static constexpr", storage, re.DOTALL)
    assert members
    names = re.findall(r"device::Mbarrier (\w+)", members[1])
    assert len(names) == 13
    for name in names:
        assert re.search(rf"^\| `{name}(\[\w+\])?` \|", KERNEL, re.MULTILINE), name


@pytest.mark.parametrize(
    ("model", "broken"),
    [("qwen3.5-35b", []), ("qwen3.5-122b", []), ("glm-5.2-tp8", ["shared_memory_fits"])],
)
def test_the_published_schedules(model: str, broken: list[str]) -> None:
    schedule = Schedule.from_dict(PUBLISHED[model])
    found = violations(load_shape(model), schedule, KNOWN[DEFAULT])
    assert [violation.rule.name for violation in found] == broken


def test_what_glm_lacks() -> None:
    """The numbers that the text gives: 12032 bytes too many, less than one unit's partial sums."""
    geometry = Geometry(load_shape("glm-5.2-tp8"), Schedule.from_dict(PUBLISHED["glm-5.2-tp8"]), 8)
    excess = geometry.shared_bytes - KNOWN[DEFAULT].shared_per_block
    assert excess == 12032 < geometry.shared_fields()["partials"] // 2
    assert set(PUBLISHED) == {"qwen3.5-35b", "qwen3.5-122b", "glm-5.2-tp8"}
