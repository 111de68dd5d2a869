"""Comparisons tell a right kernel, whatever the order of its sums, from one that is a little wrong.

The kernels here are the mirror reference on the CPU, changed.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from monomoe_gen import e4m3, host_build, reference, simulate
from monomoe_gen.agreement import bf16_steps, compare, follow
from monomoe_gen.comparison import COSINE_SLACK, Comparison
from monomoe_gen.kernel import LayerWeights
from monomoe_gen.schedule import KernelSpec, Schedule
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.validate import Problem, make_problem
from monomoe_gen.weights import BlockWeights, pack_w2, pack_w13
from monomoe_gen.workload import Case, block_weights, expert_weights, validation_cases

SHAPE = Shape(
    name="small",
    hidden=512,
    intermediate=256,
    experts=16,
    top_k=4,
    scoring="sigmoid",
    renormalize=True,
    expert_bias=True,
)
KEPT = replace(SHAPE, name="kept", activations="bf16")
UNIFORM = Case("uniform", "gaussian")


@pytest.fixture(scope="module")
def weights() -> BlockWeights:
    return block_weights(SHAPE, "gaussian", 0)


@pytest.fixture(scope="module")
def packed(weights: BlockWeights) -> LayerWeights:
    b = weights
    return LayerWeights(pack_w13(b.w13), b.w13_scale, pack_w2(b.w2), b.w2_scale)


def problem_of(
    weights: BlockWeights,
    packed: LayerWeights,
    case: Case = UNIFORM,
    tokens: int = 4,
    shape: Shape = SHAPE,
) -> Problem:
    return make_problem(shape, weights, packed, tokens, case, 0)


def mirror(
    problem: Problem,
    w: BlockWeights,
    change: Callable[[Tensor], Tensor] = lambda h: h,
    shape: Shape = SHAPE,
) -> Tensor:
    """The mirror with ``change`` applied to every h."""
    y = torch.zeros(problem.x.shape)
    bias = problem.weights.bias
    for expert, tokens, amounts, h in reference.mirror_hidden(
        problem.x, problem.logits, w.w13, w.w13_scale, bias, shape
    ):
        codes, scale = reference.round_activations(change(h), shape)
        y[tokens] += amounts * reference.block_matmul(
            codes, scale, w.w2[expert], w.w2_scale[expert]
        )
    return y.bfloat16()


def judge(
    problem: Problem, w: BlockWeights, y: Tensor, shape: Shape = SHAPE, seed: int = 0
) -> Comparison:
    def launch(asked: Problem, out: Tensor) -> None:
        assert asked is problem and out.isnan().all()
        out.copy_(y)

    def unquantized(expert: int) -> tuple[Tensor, Tensor]:
        return expert_weights(shape, expert, problem.case.weights, seed)

    return compare(shape, w, unquantized, problem, launch)


def noisy(size: float) -> Callable[[Tensor], Tensor]:
    g = torch.Generator().manual_seed(3)
    return lambda h: h * (1 + size * torch.randn(h.shape, generator=g))


def test_a_right_kernel_agrees_in_every_bit(weights: BlockWeights, packed: LayerWeights) -> None:
    problem = problem_of(weights, packed)
    found = judge(problem, weights, problem.mirror)
    assert (found.tokens, found.distribution, found.routing) == (4, "gaussian", "uniform")
    assert found.problem == "" and found.required_cosine == 0.998
    agreement = found.agreement
    assert (agreement.rel_l2, agreement.share, agreement.close_calls) == (0.0, 1.0, 0)
    kernel, operator = found.kernel_dequantized, found.operator_dequantized
    assert kernel.cosine and 0.998 < kernel.cosine < 1
    assert kernel.rel_l2 and operator.rel_l2 and 0.9 < kernel.rel_l2 / operator.rel_l2 < 1.1
    assert kernel.max_abs and kernel.max_abs < 0.1 * found.largest
    lost = found.kernel_unquantized
    assert lost.rel_l2 and 1.2 * kernel.rel_l2 < lost.rel_l2 < 2 * kernel.rel_l2
    assert found.operator_unquantized.rel_l2 == pytest.approx(lost.rel_l2, rel=0.1)


def test_no_token_has_to_be_better_than_the_definition() -> None:
    """A layer whose sums are so short that the mirror itself misses the usual bound."""
    shape = load_shape("toy")
    case = Case("ties", "student_t3")
    w = block_weights(shape, case.weights, 1)
    packed = LayerWeights(pack_w13(w.w13), w.w13_scale, pack_w2(w.w2), w.w2_scale)
    problem = make_problem(shape, w, packed, 16, case, 1)
    found = judge(problem, w, problem.mirror, shape, 1)
    cosine = found.kernel_dequantized.cosine
    assert found.problem == "" and cosine and cosine < 0.998
    assert found.required_cosine == cosine - COSINE_SLACK
    further_away = (problem.mirror.float() * 1.1 - problem.exact * 0.1).bfloat16()
    wrong = judge(problem, w, further_away, shape, 1)
    assert "cosine 0.99" in wrong.problem and "the definition's own rounding" in wrong.problem


def test_sums_in_another_order_agree_once_close_calls_are_followed(
    weights: BlockWeights, packed: LayerWeights
) -> None:
    problem = problem_of(weights, packed, tokens=8)
    y = mirror(problem, weights, noisy(1e-5))  # more than fp32 sums ever differ
    before = (bf16_steps(y, problem.mirror) <= 1).double().mean()
    found = judge(problem, weights, y)
    assert found.problem == ""
    assert found.agreement.close_calls > 0
    assert found.agreement.share >= 0.999 and found.agreement.share > before
    assert found.agreement.rel_l2 is not None and found.agreement.rel_l2 < 1e-3


def test_close_calls_of_bf16_are_followed_too(weights: BlockWeights, packed: LayerWeights) -> None:
    problem = problem_of(weights, packed, tokens=8, shape=KEPT)
    y = mirror(problem, weights, noisy(1e-5), KEPT)
    before = (bf16_steps(y, problem.mirror) == 0).double().mean()
    found = judge(problem, weights, y, KEPT)
    assert found.problem == "" and found.activations == "bf16"
    assert found.agreement.close_calls > 0 and found.agreement.share >= 0.999
    same = bf16_steps(y, follow(y, problem, weights, KEPT)[0]) == 0
    assert same.double().mean() > before
    cosine = found.kernel_dequantized.cosine
    assert cosine and cosine > 0.99999


def test_a_kernel_that_quantizes_is_too_coarse_for_bf16(
    weights: BlockWeights, packed: LayerWeights
) -> None:
    quantized = problem_of(weights, packed)
    problem = problem_of(weights, packed, shape=KEPT)
    assert "cosine" in judge(problem, weights, quantized.mirror, KEPT).problem
    assert "at least 0.9999" in judge(problem, weights, quantized.mirror, KEPT).problem


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h * 1.001,  # an activation that is off by a thousandth
        lambda h: h.bfloat16().float(),  # h rounded where the kernel does not
        lambda h: h * (h.abs() > 0.01 * h.abs().amax()),  # small values lost
    ],
)
def test_a_kernel_that_is_a_little_wrong_has_no_excuse(
    weights: BlockWeights, packed: LayerWeights, change: Callable[[Tensor], Tensor]
) -> None:
    problem = problem_of(weights, packed)
    found = judge(problem, weights, mirror(problem, weights, change))
    assert found.kernel_dequantized.cosine and found.kernel_dequantized.cosine > 0.998
    assert found.problem or found.agreement.share < 0.999


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: y * torch.nan, "not finite"),
        (lambda y: y * 0, "zero where it should not be"),
        (lambda y: y.flip(0), "cosine"),
        (lambda y: y * 1.01, "against the mirror"),
    ],
)
def test_wrong_outputs_are_called_wrong(
    weights: BlockWeights,
    packed: LayerWeights,
    change: Callable[[Tensor], Tensor],
    words: str,
) -> None:
    problem = problem_of(weights, packed)
    assert words in judge(problem, weights, change(problem.mirror)).problem


@pytest.mark.parametrize("tokens", [1, 4])
def test_zeros_compare_as_equal(weights: BlockWeights, packed: LayerWeights, tokens: int) -> None:
    problem = problem_of(weights, packed, Case("uniform", "zeros"), tokens)
    found = judge(problem, weights, -problem.mirror * 0 if tokens == 1 else problem.mirror)
    assert found.problem == "" and found.agreement.share == 1
    if tokens == 1:
        assert found.largest == 0
        assert vars(found.operator_dequantized) == {"cosine": 1.0, "rel_l2": 0.0, "max_abs": 0.0}


def test_a_close_call_is_followed_to_the_last_bit(
    weights: BlockWeights, packed: LayerWeights
) -> None:
    """A kernel that takes the upper of two codes wherever the lower was barely nearer."""
    problem = problem_of(weights, packed, tokens=8)
    calls = []

    def other(h: Tensor) -> Tensor:
        blocks = h.unflatten(-1, (-1, 128))
        amax = blocks.abs().amax(-1, keepdim=True)
        up = blocks * (1 + 2.0**-14)
        codes, moved = (e4m3.quantize(values, amax)[0].float() for values in (blocks, up))
        calls.append(int((moved != codes).sum()))
        return torch.where(moved != codes, up, blocks).flatten(-2)

    y = mirror(problem, weights, other)
    followed, count = follow(y, problem, weights, SHAPE)
    assert 0 < count <= sum(calls)
    assert torch.equal(followed, y)
    assert not torch.equal(problem.mirror, y)


@pytest.mark.skipif(not host_build.has_compiler(), reason="needs g++")
def test_the_kernel_itself_is_right_on_every_distribution() -> None:
    """In the simulator: its bits are those of the ordered sums, which agree with the mirror."""
    shape = load_shape("toy")
    b = block_weights(shape, "gaussian", 0)
    packed = LayerWeights(pack_w13(b.w13), b.w13_scale, pack_w2(b.w2), b.w2_scale)
    cases = [c for c in validation_cases() if c.weights == "gaussian" and c.routing == "uniform"]
    assert len(cases) == 6
    problems = [make_problem(shape, b, packed, 4, case, 0) for case in cases]
    names = ("w13", "w13_scale", "w2", "w2_scale")
    inputs = [(name, None, getattr(packed, name)) for name in names]
    for i, problem in enumerate(problems):
        inputs += [("x", i, problem.x), ("logits", i, problem.logits)]  # type: ignore[list-item]
    asked = simulate.Problem(shape, (4,) * len(cases), b, tuple(inputs))
    schedule = Schedule(grid=3, g_up=4, k_up=128, g_down=2, k_down=128, d_up=3, d_down=4)
    program = host_build.build(KernelSpec(shape, schedule))
    (outcome,) = simulate.simulate(program, asked, [simulate.Run("random", 0)])
    assert outcome.ok, "\n".join(map(str, outcome.findings))
    for problem, y in zip(problems, asked.expected(program.spec), strict=True):
        followed, _ = follow(y, problem, b, shape)
        assert (bf16_steps(y, followed) <= 1).double().mean() >= 0.999, problem.case


def test_steps_count_bf16_numbers() -> None:
    numbers = torch.tensor([0.0, -0.0, 1.0, -1.0, 448.0, 1e-30]).bfloat16()
    next_up = (numbers.view(torch.int16) + 1).view(torch.bfloat16)
    assert bf16_steps(numbers, numbers).tolist() == [0] * 6
    assert bf16_steps(numbers, next_up).tolist() == [1] * 6
    assert bf16_steps(numbers[:1], numbers[1:2]).item() == 0
    tiny = torch.tensor([1, 1 - 2**15], dtype=torch.int16).view(torch.bfloat16)
    assert bf16_steps(tiny[:1], tiny[1:]).item() == 2  # on both sides of zero
    nan = torch.tensor([torch.nan]).bfloat16()
    assert (bf16_steps(numbers, nan) > 1).all() and (bf16_steps(nan, nan) > 1).all()
