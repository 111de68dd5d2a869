"""Validation finds what is wrong with a kernel. The kernels here are functions on CPU tensors."""

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from monomoe_gen import e4m3
from monomoe_gen.comparison import COSINE_MIN, COSINE_SLACK, required_cosine
from monomoe_gen.kernel import LayerWeights, Workspace
from monomoe_gen.reference import moe_mirror
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.validate import Problem, Run, Verdict, check, cosines, make_problem
from monomoe_gen.weights import BlockWeights, pack_w2, pack_w13
from monomoe_gen.workload import DISTRIBUTIONS, Case, block_weights, validation_cases

SHAPE = Shape(
    name="tiny",
    hidden=256,
    intermediate=128,
    experts=128,
    top_k=4,
    scoring="sigmoid",
    renormalize=True,
    expert_bias=True,
)
TOKENS = 3


def pack(b: BlockWeights) -> LayerWeights:
    return LayerWeights(pack_w13(b.w13), b.w13_scale, pack_w2(b.w2), b.w2_scale)


@pytest.fixture(scope="module")
def layers() -> dict[str, tuple[BlockWeights, LayerWeights]]:
    made = {}
    for distribution in ("gaussian", "student_t3"):
        block = block_weights(SHAPE, distribution, 0)
        made[distribution] = block, pack(block)
    return made


@pytest.fixture(scope="module")
def problems(layers: dict[str, tuple[BlockWeights, LayerWeights]]) -> list[Problem]:
    return [
        make_problem(SHAPE, *layers[case.weights], TOKENS, case, 0) for case in validation_cases()
    ]


Kernel = Callable[[Tensor], Tensor]


@pytest.fixture
def kernel(layers: dict[str, tuple[BlockWeights, LayerWeights]]) -> Callable[..., Run]:
    """A right kernel whose output goes through ``change`` first."""
    blocks = {packed.w13.data_ptr(): block for block, packed in layers.values()}

    def make(change: Kernel = lambda y: y) -> Run:
        def run(w: LayerWeights, x: Tensor, logits: Tensor, y: Tensor, space: Workspace) -> None:
            b = blocks[w.w13.data_ptr()]
            right = moe_mirror(x, logits, b.w13, b.w13_scale, b.w2, b.w2_scale, w.bias, SHAPE)
            y.copy_(change(right))

        return run

    return make


def judge(run: Run, problems: list[Problem]) -> Verdict:
    return check(run, problems, 256, capture=lambda body: body)


def test_the_cases_cover_every_routing_and_distribution(problems: list[Problem]) -> None:
    assert len({p.case for p in problems}) == 15
    assert len({p.name for p in problems}) == 15


def test_a_right_kernel_passes_with_its_errors(
    kernel: Callable[..., Run], problems: list[Problem]
) -> None:
    verdict = judge(kernel(), problems)
    assert verdict.ok and verdict.message == ""
    assert set(verdict.errors) == set(DISTRIBUTIONS)
    for errors in verdict.errors.values():
        assert 0.998 < errors.cosine < 1
        assert 0 < errors.rel_l2 < 0.07
        assert errors.mirror_rel_l2 == 0


def test_zeros_have_to_be_zero(kernel: Callable[..., Run], problems: list[Problem]) -> None:
    zeros = [p for p in problems if p.case.distribution == "zeros"]
    assert (zeros[0].mirror[0] == 0).all() and zeros[0].mirror[1].any()
    assert judge(kernel(), zeros).ok
    assert judge(kernel(lambda y: y + (y == 0) * 1e-30), zeros).status == "wrong"


def replace_token(y: Tensor, token: int, value: float) -> Tensor:
    y = y.clone()
    y[token] = value
    return y


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda y: y * torch.nan, "token 0: the output holds NaN or infinity"),
        (
            lambda y: y * 0,
            "token 0: the output .* is zero and should not be",
        ),
        (lambda y: replace_token(y, 2, torch.inf), "token 2: the output holds NaN or infinity"),
        (lambda y: replace_token(y, 1, 1.0), "token 1: cosine"),
        (lambda y: y * 1.02, "token 0: relative error 2.0.e-02 against the reference with"),
        (lambda y: y.flip(0), "token 0: cosine"),
    ],
)
def test_wrong_numbers_are_named(
    kernel: Callable[..., Run], problems: list[Problem], change: Kernel, complaint: str
) -> None:
    verdict = judge(kernel(change), problems)
    assert verdict.status == "wrong"
    assert verdict.message.startswith("3 tokens, uniform routing, gaussian: ")
    assert re.search(complaint, verdict.message)


def test_a_kernel_that_quantizes_what_shall_stay_bf16_is_wrong(
    kernel: Callable[..., Run], layers: dict[str, tuple[BlockWeights, LayerWeights]]
) -> None:
    kept = replace(SHAPE, name="kept", activations="bf16")
    problem = make_problem(kept, *layers["gaussian"], TOKENS, validation_cases()[0], 0)
    verdict = judge(kernel(), [problem])
    assert verdict.status == "wrong" and "at least 0.9999 is required" in verdict.message


@pytest.fixture(scope="module")
def short_sums() -> tuple[Problem, int]:
    """A layer so small that the mirror itself misses COSINE_MIN, with the token where it does."""
    shape = load_shape("toy")
    case = Case("ties", "student_t3")
    block = block_weights(shape, case.weights, 1)
    problem = make_problem(shape, block, pack(block), 16, case, 1)
    definition = cosines(problem.mirror, problem.exact)
    assert (definition < COSINE_MIN["fp8"]).sum() == 1
    return problem, int(definition.argmin())


def coarser(problem: Problem) -> Tensor:
    """The right output, rounded to e4m3."""
    codes, scale = e4m3.quantize(problem.mirror.float(), problem.mirror.float().abs().amax())
    return codes.float() * scale


def further_away(problem: Problem) -> Tensor:
    """Each token a tenth further from full precision, though within a percent of the mirror."""
    return problem.mirror.float() * 1.1 - problem.exact * 0.1


def writes(output: Tensor) -> Run:
    def run(w: LayerWeights, x: Tensor, logits: Tensor, y: Tensor, space: Workspace) -> None:
        y.copy_(output)

    return run


def test_no_token_has_to_be_better_than_the_definition(short_sums: tuple[Problem, int]) -> None:
    problem, token = short_sums
    definition = float(cosines(problem.mirror, problem.exact)[token])
    bounds = list(problem.required_cosines)
    assert bounds.pop(token) == definition - COSINE_SLACK < COSINE_MIN["fp8"]
    assert set(bounds) == {COSINE_MIN["fp8"]}
    verdict = judge(writes(problem.mirror), [problem])
    assert verdict.ok and verdict.errors["student_t3"].cosine == definition


@pytest.mark.parametrize("change", [coarser, further_away])
def test_what_the_definition_does_not_allow_is_wrong(
    short_sums: tuple[Problem, int], change: Callable[[Problem], Tensor]
) -> None:
    problem, token = short_sums
    wrong = problem.mirror.clone()
    wrong[token] = change(problem)[token]
    verdict = judge(writes(wrong), [problem])
    assert verdict.status == "wrong"
    required = f"{problem.required_cosines[token]:.5f}"
    assert f"token {token}: cosine 0.99" in verdict.message
    assert f"at least {required} is required: the definition's own rounding" in verdict.message


def test_long_sums_keep_the_fixed_bound(problems: list[Problem]) -> None:
    for problem in problems:
        assert problem.required_cosines == (0.998,) * TOKENS


def test_only_a_definition_below_the_fixed_bound_replaces_it() -> None:
    for activations, usual in COSINE_MIN.items():
        for definition in (usual, 1.0, math.nan):
            assert required_cosine(activations, definition) == usual
        assert required_cosine(activations, usual - 1e-3) == usual - 1e-3 - COSINE_SLACK


def test_a_kernel_that_ignores_the_bias_is_wrong(
    kernel: Callable[..., Run], problems: list[Problem]
) -> None:
    right = kernel()

    def run(w: LayerWeights, x: Tensor, logits: Tensor, y: Tensor, space: Workspace) -> None:
        assert w.bias is not None
        unbiased = LayerWeights(w.w13, w.w13_scale, w.w2, w.w2_scale, torch.zeros_like(w.bias))
        right(unbiased, x, logits, y, space)

    assert judge(run, problems).status == "wrong"


def test_missing_output_keeps_its_poison(problems: list[Problem]) -> None:
    verdict = judge(lambda w, x, logits, y, space: None, problems)
    assert verdict.status == "wrong"
    assert verdict.errors == {}


def test_bits_that_change_are_unstable(kernel: Callable[..., Run], problems: list[Problem]) -> None:
    calls = 0

    def flicker(y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls % 7 == 0:
            y = y.clone()
            y.view(torch.int16)[-1, 0] += 1
        return y

    verdict = judge(kernel(flicker), problems)
    assert verdict.status == "unstable"
    assert "gave other bits" in verdict.message


def test_a_graph_that_does_not_see_new_inputs_is_found(
    kernel: Callable[..., Run], problems: list[Problem]
) -> None:
    """A replay that goes on reading the first x."""
    right = kernel()

    def run(w: LayerWeights, x: Tensor, logits: Tensor, y: Tensor, space: Workspace) -> None:
        right(w, problems[0].x if y.data_ptr() in frozen else x, logits, y, space)

    frozen: set[int] = set()

    def capture(body: Callable[[], None]) -> Callable[[], None]:
        frozen.add(body.args[3].data_ptr())  # type: ignore[attr-defined]
        return body

    verdict = check(run, problems, 256, capture=capture)
    assert verdict.status == "unstable"
    assert "a graph replay gave other bits" in verdict.message


@pytest.mark.parametrize("where", [-1, TOKENS * SHAPE.hidden])
def test_writes_beyond_the_output_are_found(
    kernel: Callable[..., Run], problems: list[Problem], where: int
) -> None:
    right = kernel()

    def run(w: LayerWeights, x: Tensor, logits: Tensor, y: Tensor, space: Workspace) -> None:
        right(w, x, logits, y, space)
        if y.storage_offset():
            y.as_strided((1,), (1,), y.storage_offset() + where).fill_(7)

    verdict = judge(run, problems)
    assert (verdict.status, verdict.message) == ("wrong", "3 tokens: wrote outside the output")


@pytest.mark.parametrize("where", [-1, 128 + 2 * 256])
def test_writes_beyond_the_workspace_are_found(
    kernel: Callable[..., Run], problems: list[Problem], where: int
) -> None:
    right = kernel()

    def run(w: LayerWeights, x: Tensor, logits: Tensor, y: Tensor, space: Workspace) -> None:
        right(w, x, logits, y, space)
        memory = space.memory
        assert memory.numel() == 128 + 2 * 256
        memory.as_strided((1,), (1,), memory.storage_offset() + where).fill_(7)

    verdict = judge(run, problems)
    assert (verdict.status, verdict.message) == ("wrong", "3 tokens: wrote outside the workspace")


def test_the_workspace_is_zeroed_once_for_all_launches(
    kernel: Callable[..., Run], problems: list[Problem]
) -> None:
    right = kernel()
    seen: list[int] = []

    def run(w: LayerWeights, x: Tensor, logits: Tensor, y: Tensor, space: Workspace) -> None:
        seen.append(int(space.memory[0]))
        space.memory[0] = 1
        right(w, x, logits, y, space)

    assert judge(run, problems).ok
    assert seen[0] == 0 and set(seen[1:]) == {1}
    assert len(seen) == 3 * len(problems)


def test_one_case_alone(layers: dict[str, tuple[BlockWeights, LayerWeights]]) -> None:
    problem = make_problem(SHAPE, *layers["gaussian"], 1, Case("same", "gaussian"), 0)
    assert problem.logits.shape == (1, SHAPE.experts) and problem.logits.dtype == torch.float32
    assert problem.weights.bias is not None
