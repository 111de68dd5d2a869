"""Validation reports: what was compared, as JSON, and the same as a page to read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from monomoe_gen.comparison import (
    COSINE_MIN,
    COSINE_SLACK,
    MIRROR_REL_L2,
    MIRROR_SHARE,
    Accuracy,
    Comparison,
)
from monomoe_gen.files import write_atomically
from monomoe_gen.schedule import Layout, Router
from monomoe_gen.shapes import Shape
from monomoe_gen.strict import read_versioned
from monomoe_gen.variant import USUAL, Variant

FORMAT = 1
FOLDER = "validation"


@dataclass(frozen=True)
class Run:
    """One kernel with one token count.

    ``status`` is ok, wrong or unstable (`validate.Verdict`), or how the run ended without a
    verdict: launch_error or timeout. ``message`` is empty if ok.
    """

    tokens: int
    kernel: str
    cubin_sha256: str
    status: str
    message: str


@dataclass(frozen=True)
class Report:
    """All that was found about a model's kernels of one variant on one GPU."""

    format: int
    gpu: str
    driver: str
    torch: str
    shape: Shape
    runs: tuple[Run, ...]
    cases: tuple[Comparison, ...]
    layout: Layout = "packed"
    router: Router = "logits"
    pdl: bool = False

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong, in words; a report without problems passes."""
        found = [f"B = {r.tokens}: {r.status}: {r.message}" for r in self.runs if r.status != "ok"]
        found += [f"{_name(case)}: {case.problem}" for case in self.cases if case.problem]
        for tokens in sorted({case.tokens for case in self.cases}):
            shares = [c.agreement.share for c in self.cases if c.tokens == tokens]
            share = sum(shares) / len(shares)
            if share < MIRROR_SHARE:
                found.append(
                    f"B = {tokens}: {share:.3%} of the elements equal the mirror's up to the last "
                    f"bit, at least {MIRROR_SHARE:.1%} is required"
                )
        if not self.cases:
            found.append("nothing was compared")
        return found


def stem(model: str, variant: Variant) -> str:
    """What the files of a report are called: ``<model>``, or ``<model>_raw_router_pdl``.

    The underscore is in no model's name.
    """
    return "_".join((model, *variant.names))


def write(folder: Path, report: Report) -> Path:
    """Writes both files of a report and returns the page's path. The folder is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {**asdict(report), "shape": report.shape.to_dict()}
    cases = ",\n".join(f"  {json.dumps(case)}" for case in values.pop("cases"))
    head = json.dumps(values, indent=1).removesuffix("\n}")
    text = f'{head},\n "cases": [\n{cases}\n ]\n}}\n' if cases else f'{head},\n "cases": []\n}}\n'
    name = stem(report.shape.name, Variant.of(report))
    page = folder / f"{name}.md"
    write_atomically(folder / f"{name}.json", text.encode())
    write_atomically(page, render(report).encode())
    return page


def read(path: Path) -> Report:
    """The report in a JSON file.

    Raises:
        DatabaseError: no such file, not such a report, or one of another format.
    """
    return read_versioned(Report, path, FORMAT)


def covers(path: Path, gpu: str, kernels: Mapping[int, str]) -> bool:
    """Whether the report in ``path`` passes, and is of exactly these kernels on this kind of GPU.

    ``kernels`` are hashes of cubins by token count.

    Raises:
        DatabaseError: a file that is no report.
    """
    if not path.exists():
        return False
    report = read(path)
    found = {run.tokens: run.cubin_sha256 for run in report.runs}
    return report.gpu == gpu and found == dict(kernels) and not report.problems


def render(report: Report) -> str:
    """The report as markdown: what is wrong, what was run, and every case, the worst first."""
    problems = report.problems
    verdict = "FAIL" if problems else "pass"
    variant = Variant.of(report)
    what = report.shape.name if variant == USUAL else f"{report.shape.name} ({variant})"
    parts = [f"# {what} on {report.gpu}: {verdict}"]
    if problems:
        parts.append("\n".join(f"* {problem}" for problem in problems))
    parts += [*_summary(report), _meaning(report.shape), _runs_table(report)]
    if report.cases:
        parts.append(_cases_table(report.cases))
    return "\n\n".join(parts) + "\n"


def _summary(report: Report) -> Iterator[str]:
    finite = [c for c in report.cases if not c.problem]
    if not finite:
        return
    worst = max(finite, key=_error)
    ratios = sorted(
        _error(case) / case.operator_dequantized.rel_l2
        for case in finite
        if case.operator_dequantized.rel_l2
    )
    text = (
        f"{len(finite)} of {len(report.cases)} cases are right. At worst ({_name(worst)}) the "
        f"output of a token is {_error(worst):.1%} away from FP32 with the same weights."
    )
    if ratios:
        text += (
            f" That error is {ratios[0]:.2f} to {ratios[-1]:.2f} times the published quantized "
            f"operator's, in the median {median(ratios):.2f} times."
        )
        if report.shape.activations == "fp8":
            text += (
                " Both errors are those of rounding x and h to e4m3, so a few percent either way "
                "are chance."
            )
    yield text


def _meaning(shape: Shape) -> str:
    return (
        f"Every number is the worst token's (B tokens of {shape.hidden} values). Beside FP32 the "
        "first number is this kernel's and the second that of the published quantized operator "
        "(quantize, grouped GEMM, silu, quantize, grouped GEMM, sum, bf16 in between). "
        "*Dequantized*: both sides have the same FP8 weights, so what is left is the rounding of "
        "activations. *Unquantized*: FP32 has the weights from before their quantization, so the "
        "numbers hold everything that FP8 costs. *Mirror*: the reference that rounds where the "
        "kernel rounds; *same* is the share of elements that equal it up to the last bf16 bit, and "
        "*close calls* counts values of h that lie in the middle between two codes as far as "
        "FP32 sums can tell, and that the kernel rounded the other way. A report passes if every "
        f"token has a cosine of at least {COSINE_MIN[shape.activations]} (dequantized; in a case "
        "where the mirror falls below that, the definition's own rounding allows no more, and at "
        f"least the mirror's lowest less {COSINE_SLACK:.0e} is required) and is within "
        f"{MIRROR_REL_L2:.0e} of the mirror, and if {MIRROR_SHARE:.1%} of the elements of a "
        "token count are the same."
    )


def _runs_table(report: Report) -> str:
    rows = [(str(r.tokens), f"`{r.kernel}`", r.status, r.cubin_sha256[:12]) for r in report.runs]
    table = _table(("B", "kernel", "status", "SHA-256 of the cubin"), rows, "rlll")
    return f"{table}\n\nDriver {report.driver}, torch {report.torch}."


_HEADER = (
    "B",
    "data",
    "routing",
    "cosine (dequantized)",
    "rel. L2",
    "max. abs",
    "cosine (unquantized)",
    "rel. L2",
    "max. abs",
    "largest |y|",
    "mirror rel. L2",
    "same",
    "close calls",
)


def _cases_table(cases: Iterable[Comparison]) -> str:
    ordered = sorted(cases, key=lambda case: (not case.problem, -_error(case)))
    rows = [
        (
            f"**{case.tokens}**" if case.problem else str(case.tokens),
            case.distribution,
            case.routing,
            *_beside(case.kernel_dequantized, case.operator_dequantized),
            *_beside(case.kernel_unquantized, case.operator_unquantized),
            f"{case.largest:.1e}",
            _number(case.agreement.rel_l2, ".1e"),
            f"{case.agreement.share:.3%}",
            str(case.agreement.close_calls),
        )
        for case in ordered
    ]
    return _table(_HEADER, rows, "rll" + "r" * 10)


def _beside(kernel: Accuracy, operator: Accuracy) -> Iterator[str]:
    for name, spec in (("cosine", ".5f"), ("rel_l2", ".4f"), ("max_abs", ".1e")):
        yield " / ".join(_number(getattr(side, name), spec) for side in (kernel, operator))


def _number(value: float | None, spec: str) -> str:
    return "not finite" if value is None else format(value, spec)


def _error(case: Comparison) -> float:
    error = case.kernel_dequantized.rel_l2
    return float("inf") if error is None else error


def _name(case: Comparison) -> str:
    return f"B = {case.tokens}, {case.distribution}, {case.routing} routing"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]], align: str) -> str:
    rule = ["---:" if side == "r" else "---" for side in align]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (header, rule, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)
