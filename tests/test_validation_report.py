"""Reports: what they hold survives writing and reading, and what is wrong stands on top."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from monomoe_gen import validation_report
from monomoe_gen.comparison import Accuracy, Agreement, Comparison
from monomoe_gen.errors import DatabaseError
from monomoe_gen.shapes import load_shape
from monomoe_gen.validation_report import Report, Run

KERNEL, OPERATOR = Accuracy(0.99903, 0.0441, 0.0312), Accuracy(0.99899, 0.0449, 0.0330)
CASE = Comparison(
    tokens=1,
    distribution="gaussian",
    routing="uniform",
    largest=1.5,
    kernel_dequantized=KERNEL,
    kernel_unquantized=Accuracy(0.9979, 0.064, 0.05),
    operator_dequantized=OPERATOR,
    operator_unquantized=Accuracy(0.9978, 0.065, 0.06),
    agreement=Agreement(1.2e-5, 1.0, 2),
)
GOOD = Report(
    format=1,
    gpu="NVIDIA H200",
    driver="580.1",
    torch="2.11",
    shape=load_shape("toy"),
    runs=(Run(1, "toy-t8", "ab" * 32, "ok", ""), Run(8, "toy-t8", "ab" * 32, "ok", "")),
    cases=(
        CASE,
        replace(CASE, distribution="zeros", kernel_dequantized=Accuracy(1.0, 0.0, 0.0)),
        replace(CASE, tokens=8, routing="zipf", kernel_dequantized=replace(KERNEL, rel_l2=0.046)),
    ),
)


def with_case(**changes: object) -> Report:
    return replace(GOOD, cases=(*GOOD.cases, replace(CASE, routing="ties", **changes)))  # type: ignore[arg-type]


def rows(page: str) -> list[list[str]]:
    lines = page[page.index("| B | data") :].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_a_report_survives_writing_and_reading(tmp_path: Path) -> None:
    lost = with_case(kernel_dequantized=Accuracy(None, None, None))
    for report in (GOOD, lost, with_case(required_cosine=0.9968), replace(GOOD, cases=())):
        page = validation_report.write(tmp_path / "new" / "folder", report)
        assert page == tmp_path / "new" / "folder" / "toy.md"
        assert page.read_text() == validation_report.render(report)
        assert validation_report.read(page.with_suffix(".json")) == report
    assert sorted(path.name for path in page.parent.iterdir()) == ["toy.json", "toy.md"]


def test_a_variant_has_files_of_its_own(tmp_path: Path) -> None:
    usual = validation_report.write(tmp_path, GOOD)
    raw = validation_report.write(tmp_path, replace(GOOD, layout="raw"))
    every = replace(GOOD, layout="raw", router="weight", pdl=True)
    page = validation_report.write(tmp_path, every)
    assert [p.name for p in (usual, raw, page)] == ["toy.md", "toy_raw.md", "toy_raw_router_pdl.md"]
    assert raw.read_text().startswith("# toy (raw weights) on NVIDIA H200: pass")
    assert validation_report.read(usual.with_suffix(".json")) == GOOD
    assert validation_report.read(page.with_suffix(".json")) == every


def test_a_report_without_a_variant_is_of_the_usual_kernels(tmp_path: Path) -> None:
    path = validation_report.write(tmp_path, GOOD).with_suffix(".json")
    values = json.loads(path.read_text())
    for name in ("layout", "router", "pdl"):
        del values[name]
    path.write_text(json.dumps(values))
    assert validation_report.read(path) == GOOD


def test_a_case_is_one_line_of_strict_json(tmp_path: Path) -> None:
    page = validation_report.write(tmp_path, with_case(agreement=Agreement(None, 0.0, 0)))
    text = page.with_suffix(".json").read_text()
    assert sum('"distribution"' in line for line in text.splitlines()) == 4

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    values = json.loads(text, parse_constant=refuse)
    assert values["cases"][3]["agreement"]["rel_l2"] is None
    assert values["shape"]["name"] == "toy"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v.update(format=2), "has format 2"),
        (lambda v: v["cases"][0].pop("largest"), "largest: missing"),
        (lambda v: v.update(more=1), "unknown field"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: object, words: str) -> None:
    path = validation_report.write(tmp_path, GOOD).with_suffix(".json")
    values = json.loads(path.read_text())
    change(values)  # type: ignore[operator]
    path.write_text(json.dumps(values))
    with pytest.raises(DatabaseError, match=words):
        validation_report.read(path)


def test_a_page_opens_with_the_verdict_and_the_worst_case() -> None:
    page = validation_report.render(GOOD)
    assert GOOD.problems == []
    assert page.startswith("# toy on NVIDIA H200: pass\n\n3 of 3 cases are right.")
    assert "At worst (B = 8, gaussian, zipf routing)" in page and "4.6% away from FP32" in page
    assert "0.00 to 1.02 times the published" in page and "in the median 0.98 times" in page
    assert "| 8 | `toy-t8` | ok | abababababab |" in page
    found = rows(page)
    assert [row[:3] for row in found] == [
        ["8", "gaussian", "zipf"],
        ["1", "gaussian", "uniform"],
        ["1", "zeros", "uniform"],
    ]
    assert found[1][3:] == [
        "0.99903 / 0.99899",
        "0.0441 / 0.0449",
        "3.1e-02 / 3.3e-02",
        "0.99790 / 0.99780",
        "0.0640 / 0.0650",
        "5.0e-02 / 6.0e-02",
        "1.5e+00",
        "1.2e-05",
        "100.000%",
        "2",
    ]


def test_a_case_has_to_be_no_better_than_the_definition() -> None:
    low = replace(KERNEL, cosine=0.9969)
    allowed = with_case(kernel_dequantized=low, required_cosine=0.9968)
    assert allowed.problems == []
    page = validation_report.render(allowed)
    assert "a cosine of at least 0.998 (dequantized; in a case where the mirror falls" in page
    assert "at least the mirror's lowest less 1e-04 is required" in page
    (problem,) = with_case(kernel_dequantized=low, required_cosine=0.998).problems
    assert problem.endswith("cosine 0.99690 against FP32, at least 0.998 is required")


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (
            with_case(kernel_dequantized=replace(KERNEL, cosine=0.99)),
            "routing: cosine 0.99000 against FP32, at least 0.998 is required",
        ),
        (
            with_case(kernel_dequantized=replace(KERNEL, cosine=0.9967), required_cosine=0.9968),
            "cosine 0.99670 against FP32, at least 0.99680 is required: the definition's own",
        ),
        (with_case(agreement=Agreement(3e-3, 1.0, 0)), "ties routing: relative L2 3.0e-03"),
        (with_case(agreement=Agreement(None, 0.0, 0)), "ties routing: the output is not finite"),
        (with_case(agreement=Agreement(1e-4, 0.99, 0)), "B = 1: 99.667% of the elements"),
        (replace(GOOD, runs=(replace(GOOD.runs[0], status="wrong", message="why"),)), "wrong: why"),
        (replace(GOOD, cases=()), "nothing was compared"),
    ],
)
def test_what_is_wrong_stands_on_top(report: Report, words: str) -> None:
    assert any(words in problem for problem in report.problems)
    title, verdict = validation_report.render(report).split("\n\n")[:2]
    assert title.endswith(": FAIL")
    assert verdict.startswith("* ") and words in verdict
    if report.cases and report.cases[-1].problem:
        assert rows(validation_report.render(report))[0][:3] == ["**1**", "gaussian", "ties"]
