"""Every Python snippet of the README's "Use it from torch" runs, in order, in one program.

Without a GPU the model of that name is a small one on the CPU, and what needs `torch.cuda` is left
out; on a GPU it is the table's, and nothing is left out.
"""

import dataclasses
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from serving import TINY, make_table
from torch import Tensor

from monomoe_gen import plan, runtime
from monomoe_gen.paths import checkout
from monomoe_gen.reference import moe_mirror
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.validate import MIRROR_REL_L2_MAX, measure_errors
from monomoe_gen.workload import activations, block_weights, rotation

README = ((checkout() or Path()) / "README.md").read_text(encoding="utf-8")
MODEL = "qwen3.5-35b"
TOKENS = 4


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


SNIPPETS = re.findall(r"```python\n(.*?)```", section("Use it from torch"), re.DOTALL)


def program(shape: Shape, device: str) -> tuple[dict[str, Any], Tensor]:
    """What the snippets take as given, and the mirror's answer."""
    w = block_weights(shape, "gaussian", 0, device)
    x = activations(shape, TOKENS, "gaussian", 0).to(device)
    logits = rotation(shape, TOKENS, "uniform", 1, 0, 0).logits[0].to(device)
    torch.manual_seed(0)
    given = {
        **vars(w),
        "x": x,
        "router_logits": logits,
        "router": torch.nn.Linear(shape.hidden, shape.experts, dtype=x.dtype, device=device),
        "grouped_gemm": lambda x, router_logits: x,
    }
    mirror = moe_mirror(x, logits, w.w13, w.w13_scale, w.w2, w.w2_scale, None, shape)
    return given, mirror


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The logger as it was."""
    level = plan.LOG.level
    yield
    plan.LOG.setLevel(level)


def run(snippets: list[str], given: dict[str, Any], mirror: Tensor) -> None:
    for snippet in snippets:
        with torch.no_grad():
            exec(compile(snippet, "README.md", "exec"), given)
        if "router(x)" not in snippet:
            for name in {"y", "out"} & set(given):
                worst = max(e.mirror_rel_l2 for e in measure_errors(given[name], mirror, mirror))
                assert worst <= MIRROR_REL_L2_MAX, f"{name} after\n{snippet}"


def test_the_section_has_its_snippets() -> None:
    assert len(SNIPPETS) == 6
    assert len([s for s in SNIPPETS if "torch.cuda" in s]) == 1


@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs g++ on the CPU")
def test_the_snippets_run_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = dataclasses.replace(TINY, name=MODEL)
    table = runtime.KernelTable(Path(), make_table(shape, (1, 2, 4, 8)))
    monkeypatch.setattr(runtime, "load_table", lambda: table)
    given, mirror = program(shape, "cpu")
    run([f"import torch\n{s}" for s in SNIPPETS if "torch.cuda" not in s], given, mirror)
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("qwen3.5-35b, 4 tokens: ") and "(exact: tuned at 4" in first
    assert "4096 tokens: " in last and "the fallback (the table has 1 to 8 tokens" in last


@pytest.mark.gpu
def test_the_snippets_run_on_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    given, mirror = program(load_shape(MODEL), "cuda")
    run(SNIPPETS, given, mirror)
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("qwen3.5-35b, 4 tokens: g") and "(exact: tuned at 4" in first
    assert last.startswith("qwen3.5-35b, 4096 tokens: the caller's fallback (the table has 1 to ")


def test_the_cpp_section_quotes_the_example() -> None:
    example = ((checkout() or Path()) / "tests" / "cpp" / "call_kernel.cpp").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", section("Use it from C\\+\\+"), re.DOTALL)
    for line in block.splitlines():
        assert f"//     {line}\n" in example
