"""The reference, against slow plain Python that shares no code with it."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_e4m3 import MAGNITUDES, round_to_code

from monomoe_gen import e4m3, reference
from monomoe_gen.shapes import Shape
from monomoe_gen.weights import BlockWeights, quantize_blocks

NAN, INF = math.nan, math.inf


def shape(**changes: object) -> Shape:
    values: dict[str, object] = {
        "name": "small",
        "hidden": 256,
        "intermediate": 128,
        "experts": 8,
        "top_k": 2,
        "scoring": "softmax",
        "renormalize": True,
    }
    return Shape(**(values | changes))  # type: ignore[arg-type]


# -- routing in plain Python


def plain_scores(logits: list[float], scoring: str) -> list[float]:
    """Scores in double; a NaN logit counts as minus infinity that weighs nothing."""
    if scoring == "sigmoid":
        scores = [0.0 if v != v or v < -700 else 1 / (1 + math.exp(-v)) for v in logits]
        return [s if s >= 2**-126 else 0.0 for s in scores]
    top = max((v for v in logits if v == v), default=NAN)
    shares = []
    for v in logits:
        if v != v:
            shares.append(0.0)
        elif v == top:
            shares.append(1.0)
        else:
            shares.append(math.exp(v - top) if v != -INF and top != INF else 0.0)
    total = sum(shares)
    return [s / total if total else 0.0 for s in shares]


def before(a: float, b: float) -> int:
    """Compares ranking values: larger first, NaN as if it were minus infinity."""
    a, b = (-INF if v != v else v for v in (a, b))
    return (a < b) - (a > b)


def plain_rank(values: list[float], s: Shape) -> list[int]:
    best_first = functools.cmp_to_key(before)
    size = s.experts // s.n_group
    groups = []
    for g in range(s.n_group):
        members = [-INF if v != v else v for v in values[g * size : (g + 1) * size]]
        best = np.array(sorted(members, reverse=True)[:2], dtype=np.float32)
        with np.errstate(invalid="ignore"):  # +inf and -inf
            groups.append(float(best.sum()))
    order = sorted(range(s.n_group), key=lambda g: best_first(groups[g]))[: s.topk_group]
    ids = [e for e in range(s.experts) if e // size in order]
    return sorted(ids, key=lambda e: best_first(values[e]))[: s.top_k]


def plain_route(
    logits: list[float], bias: list[float] | None, s: Shape
) -> tuple[list[int], list[float]]:
    scores = [float(np.float32(v)) for v in plain_scores(logits, s.scoring)]
    if bias is None and s.scoring == "softmax":
        values = logits
    else:
        added = bias or [0.0] * s.experts
        # a softmax sees a lost logit as one without a share, a sigmoid as no score at all
        lost = [v != v for v in logits]
        if s.scoring == "softmax":
            lost = [all(lost)] * s.experts
        values = [
            NAN if none else float(np.float32(score) + np.float32(b))
            for none, score, b in zip(lost, scores, added, strict=True)
        ]
    ids = plain_rank(values, s)
    weights = [scores[e] for e in ids]
    if s.renormalize and s.scoring == "softmax":
        weights = plain_scores([logits[e] for e in ids], "softmax")
    total = sum(weights) if s.renormalize else 1.0
    return ids, [w / (total or 1.0) * s.routed_scaling_factor for w in weights]


def check_route(logits: torch.Tensor, bias: torch.Tensor | None, s: Shape) -> None:
    ids, weights = reference.route(logits, bias, s)
    assert ids.shape == weights.shape == (len(logits), s.top_k)
    assert ids.dtype == torch.int64 and weights.dtype == torch.float32
    for row, found, weighed in zip(logits.float().tolist(), ids.tolist(), weights, strict=True):
        expected, amounts = plain_route(row, None if bias is None else bias.tolist(), s)
        assert found == expected
        assert weighed.tolist() == pytest.approx(amounts, rel=1e-6, abs=1e-30)


POLICIES = [
    {"scoring": "softmax", "renormalize": True},
    {"scoring": "softmax", "renormalize": False, "routed_scaling_factor": 1.5},
    {"scoring": "softmax", "renormalize": True, "expert_bias": True},
    {"scoring": "sigmoid", "renormalize": True, "expert_bias": True, "routed_scaling_factor": 2.5},
    {"scoring": "sigmoid", "renormalize": False},
]
GROUPS = [
    {"experts": 256, "top_k": 8, "n_group": 8, "topk_group": 4},
    {"experts": 64, "top_k": 6, "n_group": 32, "topk_group": 3},
    {"experts": 64, "top_k": 7, "n_group": 2, "topk_group": 1},
    {"experts": 160, "top_k": 10, "n_group": 8, "topk_group": 3},
]
HARD = [NAN, INF, -INF, 0.0, -0.0, 90.0, -90.0, 1e30, -1e30]


def draw(s: Shape, tokens: int, kind: str, seed: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Logits and a bias; "ties" takes few values, "hard" mixes in NaN, infinities and zeros."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, s.experts, generator=g)
    bias = 0.1 * torch.randn(s.experts, generator=g) if s.expert_bias else None
    if kind == "ties":
        logits = logits.round()
        bias = None if bias is None else bias.sign() / 8
    if kind == "hard":
        picks = torch.randint(2 * len(HARD), logits.shape, generator=g)
        table = torch.tensor(HARD + [0.0] * len(HARD))
        logits = torch.where(picks < len(HARD), table[picks], logits)
    return logits, bias


@pytest.mark.parametrize("kind", ["random", "ties", "hard"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("experts", [1, 8, 10, 60, 384])
def test_routing_agrees_with_a_plain_sort(experts: int, policy: dict, kind: str) -> None:
    for top_k in range(1, min(experts, 10) + 1):
        for dtype in ("float32", "bfloat16"):
            s = shape(experts=experts, top_k=top_k, logits_dtype=dtype, **policy)
            logits, bias = draw(s, 3, kind, seed=100 * experts + top_k)
            check_route(logits.to(getattr(torch, dtype)), bias, s)


@pytest.mark.parametrize("kind", ["random", "ties", "hard"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_group_selection_agrees_with_a_plain_sort(groups: dict, policy: dict, kind: str) -> None:
    s = shape(**groups, **policy)
    check_route(*draw(s, 24, kind, seed=s.experts), s)


def test_top_k_of_32_and_bf16_logits() -> None:
    s = shape(experts=384, top_k=32, logits_dtype="bfloat16")
    logits, _ = draw(s, 8, "random", seed=5)
    assert len(logits.bfloat16().unique()) < logits.numel()  # rounding makes ties
    check_route(logits.bfloat16(), None, s)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_rows_of_one_kind_of_value_have_defined_results(policy: dict) -> None:
    s = shape(experts=40, top_k=3, **policy)
    bias = torch.zeros(40) if s.expert_bias else None
    logits = torch.tensor([[value] * 40 for value in [NAN, INF, -INF, 0.0, -0.0]])
    check_route(logits, bias, s)
    ids, weights = reference.route(logits, bias, s)
    assert (ids == torch.tensor([0, 1, 2])).all()
    assert weights.isfinite().all() and (weights[0] == 0).all()


def test_nan_ranks_as_minus_infinity_and_zeros_are_equal() -> None:
    s = shape(experts=6, top_k=6)
    logits = torch.tensor([[NAN, -INF, -0.0, 0.0, -NAN, -1.0]])
    ids, weights = reference.route(logits, None, s)
    assert ids.tolist() == [[2, 3, 5, 0, 1, 4]]
    assert (weights[0, 3:] == 0).all()


def test_a_sigmoid_puts_nan_below_a_logit_of_minus_infinity() -> None:
    s = shape(experts=3, top_k=2, scoring="sigmoid")
    assert reference.route(torch.tensor([[NAN, -INF, NAN]]), None, s)[0].tolist() == [[1, 0]]


def test_a_softmax_with_a_bias_ranks_nan_by_the_bias_alone() -> None:
    s = shape(experts=4, top_k=2, expert_bias=True)
    bias = torch.tensor([0.0, 0.0, 3.0, 2.0])
    rows = torch.tensor([[1.0, 0.5, NAN, NAN], [NAN] * 4, [-INF] * 3 + [NAN]])
    ids, weights = reference.route(rows, bias, s)
    assert ids.tolist() == [[2, 3], [0, 1], [2, 3]]
    assert weights.tolist() == [[0, 0], [0, 0], [1, 0]]


def test_experts_that_score_next_to_nothing_still_share_the_weight_of_a_softmax() -> None:
    s = shape(experts=4, top_k=2, expert_bias=True)
    bias = torch.tensor([0.0, 0.0, 3.0, 2.0])
    ids, weights = reference.route(torch.tensor([[200.0, 0.0, -50.0, -50.0]]), bias, s)
    assert ids.tolist() == [[2, 3]] and weights.tolist() == [[0.5, 0.5]]


def test_a_sigmoid_that_fp32_cannot_hold_is_zero() -> None:
    scores = reference.router_scores(torch.tensor([-87.0, -87.4, -90.0, -1e30]), "sigmoid")
    assert scores[0] > 0 and (scores[1:] == 0).all()


def test_a_group_with_both_infinities_counts_as_minus_infinity() -> None:
    s = shape(experts=64, top_k=2, n_group=32, topk_group=1)
    logits = torch.full((1, 64), -INF)
    logits[0, 0] = INF  # with -inf, the other of its group: NaN
    logits[0, 2:4] = -9.0
    assert reference.route(logits, None, s)[0].tolist() == [[2, 3]]


def test_bias_ranks_but_does_not_weigh() -> None:
    s = shape(experts=4, top_k=1, scoring="sigmoid", renormalize=False, expert_bias=True)
    ids, weights = reference.route(torch.zeros(1, 4), torch.tensor([0.0, 0, 0.4, 0.3]), s)
    assert ids.item() == 2 and weights.item() == 0.5


def test_groups_are_judged_by_their_two_best_together() -> None:
    s = shape(experts=64, top_k=2, n_group=32, topk_group=1)
    logits = torch.full((1, 64), -9.0)
    logits[0, 10] = 5.0  # the best expert, alone in its group
    logits[0, 40:42] = torch.tensor([3.0, 3.5])
    assert reference.route(logits, None, s)[0].tolist() == [[41, 40]]


# -- quantization and the two references


def plain_quantize(row: np.ndarray) -> np.ndarray:
    """fp32 [K] -> dequantized double [K], rounded block by block in plain Python."""
    result = np.zeros(len(row))
    for start in range(0, len(row), 128):
        block = row[start : start + 128]
        amax = np.abs(block).max()
        if amax == 0:
            continue
        for i, product in enumerate(block * (np.float32(448) / amax)):
            code = round_to_code(float(product))
            number = MAGNITUDES[code & 0x7F] * (-1 if code & 0x80 else 1)
            result[start + i] = number * float(amax / np.float32(448))
    return result


def plain_moe(
    x: torch.Tensor,
    logits: torch.Tensor,
    bias: torch.Tensor | None,
    s: Shape,
    experts: list[tuple[np.ndarray, np.ndarray]],
    rounded: bool,
) -> np.ndarray:
    """The operator token by token in double; ``rounded`` quantizes x and h, but sums exactly."""
    ids, weights = reference.route(logits, bias, s)
    y = np.zeros(x.shape)
    for t in range(len(x)):
        row = x[t].float().numpy()
        row = plain_quantize(row) if rounded else row.astype(float)
        for expert, weight in zip(ids[t].tolist(), weights[t].tolist(), strict=True):
            w13, w2 = experts[expert]
            gate, up = np.split(w13 @ row, 2)
            h = gate / (1 + np.exp(-gate)) * up
            y[t] += weight * (w2 @ (plain_quantize(h.astype(np.float32)) if rounded else h))
    return y


def layer(s: Shape, tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, BlockWeights]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, s.hidden, generator=g).bfloat16()
    logits = torch.randn(tokens, s.experts, generator=g)
    w13 = torch.randn(s.experts, s.up_rows, s.hidden, generator=g) * s.hidden**-0.5
    w2 = torch.randn(s.experts, s.hidden, s.intermediate, generator=g) * s.intermediate**-0.5
    return x, logits, BlockWeights(*quantize_blocks(w13), *quantize_blocks(w2))


def mirror(
    x: torch.Tensor, logits: torch.Tensor, w: BlockWeights, bias: torch.Tensor | None, s: Shape
) -> torch.Tensor:
    return reference.moe_mirror(x, logits, w.w13, w.w13_scale, w.w2, w.w2_scale, bias, s)


def rel_l2(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


CONFIGS = [
    shape(),
    shape(
        hidden=384,
        intermediate=256,
        experts=12,
        top_k=5,
        scoring="sigmoid",
        expert_bias=True,
        routed_scaling_factor=2.5,
    ),
]


@pytest.mark.parametrize("s", CONFIGS, ids=["softmax", "sigmoid"])
def test_both_references_agree_with_plain_python(s: Shape) -> None:
    x, logits, weights = layer(s, 3, seed=1)
    x[1] *= 100
    x[2, :128] = 0
    bias = torch.linspace(-0.1, 0.1, s.experts) if s.expert_bias else None
    experts = [tuple(m.double().numpy() for m in weights.dequantized(e)) for e in range(s.experts)]

    exact = plain_moe(x, logits, bias, s, experts, rounded=False)
    y = reference.moe_fp32(x, logits, weights.dequantized, bias, s)
    assert y.dtype == torch.float32
    assert rel_l2(y, torch.from_numpy(exact)) < 1e-6

    rounded = torch.from_numpy(plain_moe(x, logits, bias, s, experts, rounded=True))
    y = mirror(x, logits, weights, bias, s)
    assert y.dtype == torch.bfloat16
    assert rel_l2(y, rounded) < 2e-3
    # equal up to the last bf16 bit: fp32 sums may put a value on the other side of a boundary
    steps = y.view(torch.int16).int() - rounded.bfloat16().view(torch.int16).int()
    assert (steps.abs() <= 1).all() and (steps == 0).double().mean() > 0.99


@pytest.mark.parametrize("gated", [False, True])
def test_shared_experts_take_every_token(gated: bool) -> None:
    routed = shape(scoring="sigmoid", routed_scaling_factor=2.5)
    s = replace(routed, shared_experts=2, shared_gate=gated)
    x, _, weights = layer(replace(routed, experts=s.all_experts), 4, seed=6)
    logits = torch.randn(4, s.logit_columns, generator=torch.Generator().manual_seed(6))
    gate = torch.tensor([0.3, -200.0, NAN, INF])
    share = torch.tensor([1 / (1 + np.exp(-0.3)), 0, 0, 1]) if gated else torch.ones(4)
    if gated:
        logits[:, -1] = gate
    ids, amounts = reference.assign(logits, None, s)
    expected = reference.route(logits[:, : s.experts], None, routed)
    assert torch.equal(ids[:, : s.top_k], expected[0])
    assert torch.equal(amounts[:, : s.top_k], expected[1])
    assert ids[:, s.top_k :].tolist() == [list(s.shared_ids)] * 4
    assert torch.allclose(amounts[:, s.top_k :], share[:, None].float(), rtol=1e-6)

    y = reference.moe_fp32(x, logits, weights.dequantized, None, s).double()
    y -= reference.moe_fp32(x, logits[:, : s.experts], weights.dequantized, None, routed)
    beside = torch.zeros_like(y)
    for expert in s.shared_ids:
        w13, w2 = weights.dequantized(expert)
        up, down = (x.double() @ w13.double().T).chunk(2, -1)
        beside += torch.nn.functional.silu(up) * down @ w2.double().T
    assert torch.allclose(y, share[:, None] * beside, atol=1e-5)


def test_gelu_is_that_of_torch() -> None:
    s = shape(activation="gelu_tanh")
    gate = torch.linspace(-30, 30, 1001, dtype=torch.float64)
    expected = torch.nn.functional.gelu(gate, approximate="tanh")
    assert torch.allclose(reference.activation(gate, s), expected, rtol=1e-12, atol=1e-15)
    ends = reference.activation(torch.tensor([-1e30, 1e30, INF, NAN]), s)
    assert ends[:3].tolist() == [0.0, pytest.approx(1e30), INF] and ends[3].isnan()


def test_gate_and_up_are_clamped_as_published() -> None:
    s = shape(swiglu_limit=7.0)
    gate, up = torch.tensor([[9.0, -9, 9, NAN, 1], [1.0, 9, -9, 1, NAN]])
    clamped, straight = reference.clamp_gate_up(gate, up, s)
    assert clamped[:3].tolist() == [7, -9, 7] and straight[:3].tolist() == [1, 7, -7]
    h = reference.activate(gate, up, s)
    silu = torch.nn.functional.silu
    assert torch.equal(h[:3], silu(torch.tensor([7.0, -9, 7])) * torch.tensor([1.0, 7, -7]))
    assert h[3:].isnan().all()


@pytest.mark.parametrize("s", CONFIGS, ids=["softmax", "sigmoid"])
def test_bf16_activations_are_rounded_once(s: Shape) -> None:
    """x is not rounded, h to bf16; against the same in double."""
    s = replace(s, activations="bf16")
    x, logits, weights = layer(s, 3, seed=1)
    x[1] *= 1e6  # beyond fp16
    x[2, :128] = 0
    bias = torch.linspace(-0.1, 0.1, s.experts) if s.expert_bias else None
    ids, amounts = reference.route(logits, bias, s)
    expected = torch.zeros(x.shape, dtype=torch.float64)
    for t, slot in np.ndindex(*ids.shape):
        w13, w2 = (m.double() for m in weights.dequantized(int(ids[t, slot])))
        gate, up = (w13 @ x[t].double()).chunk(2)
        h = (gate / (1 + (-gate).exp()) * up).float().bfloat16().double()
        expected[t] += amounts[t, slot].double() * (w2 @ h)
    found = mirror(x, logits, weights, bias, s)
    steps = found.view(torch.int16).int() - expected.bfloat16().view(torch.int16).int()
    assert (steps.abs() <= 1).double().mean() > 0.99 and (steps == 0).double().mean() > 0.95
    exact = reference.moe_fp32(x, logits, weights.dequantized, bias, s)
    assert torch.cosine_similarity(found.double(), exact.double()).min() > 0.99999


@pytest.mark.parametrize("s", CONFIGS, ids=["softmax", "sigmoid"])
def test_the_kernels_rounding_keeps_the_promised_cosine(s: Shape) -> None:
    x, logits, weights = layer(s, 8, seed=2)
    bias = torch.zeros(s.experts) if s.expert_bias else None
    exact = reference.moe_fp32(x, logits, weights.dequantized, bias, s)
    found = mirror(x, logits, weights, bias, s)
    assert torch.cosine_similarity(found.float().flatten(), exact.flatten(), 0) > 0.998
    assert 0.01 < rel_l2(found, exact) < 0.06  # it does round


def test_activations_are_quantized_per_token_and_128_columns() -> None:
    x = torch.randn(2, 3, 384, generator=torch.Generator().manual_seed(3)).bfloat16()
    x[0, 1, 128:256] *= 1e4
    x[1, 2] = 0
    codes, scale = reference.quantize_activations(x)
    assert codes.shape == x.shape and codes.dtype == e4m3.E4M3 and scale.shape == (2, 3, 3)
    found = codes.float() * scale.repeat_interleave(128, -1)
    for row, expected in zip(found.flatten(0, 1), x.flatten(0, 1), strict=True):
        plain = plain_quantize(expected.float().numpy())
        assert torch.allclose(row.double(), torch.from_numpy(plain), rtol=1e-6, atol=0)


def test_scales_meet_the_right_blocks() -> None:
    g = torch.Generator().manual_seed(4)
    x, w = (torch.randn(n, 384, generator=g).to(e4m3.E4M3) for n in (5, 256))
    x_scale, w_scale = torch.rand(5, 3, generator=g), torch.rand(2, 3, generator=g)
    wide_x = x.double() * x_scale.double().repeat_interleave(128, -1)
    wide_w = w.double() * w_scale.double().repeat_interleave(128, -1).repeat_interleave(128, 0)
    found = reference.block_matmul(x, x_scale, w, w_scale)
    assert found.dtype == torch.float32
    assert rel_l2(found, wide_x @ wide_w.T) < 1e-6


def test_only_active_experts_are_read_and_each_once_in_ascending_order() -> None:
    s = shape(experts=40, top_k=3)
    x, _, weights = layer(shape(experts=3), 4, seed=5)
    logits = torch.full((4, 40), -1.0)
    logits[:, [31, 4, 9]] = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
    slot = {4: 0, 9: 1, 31: 2}
    asked = []

    def experts(expert: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(expert)
        return weights.dequantized(slot[expert])

    exact = reference.moe_fp32(x, logits, experts, None, s)
    assert asked == [4, 9, 31]
    tensors = (weights.w13, weights.w13_scale, weights.w2, weights.w2_scale)
    parts = [{e: tensor[i] for e, i in slot.items()} for tensor in tensors]
    found = reference.moe_mirror(x, logits, *parts, None, s)
    assert rel_l2(found, exact) < 0.06


def test_a_bad_token_spoils_no_other() -> None:
    s = CONFIGS[0]
    x, logits, weights = layer(s, 4, seed=6)
    good = mirror(x, logits, weights, None, s)
    x[1, 5] = NAN
    x[2, 7] = INF
    logits[3] = NAN
    found = mirror(x, logits, weights, None, s)
    assert torch.equal(found[0], good[0])
    assert found[1].isnan().all() and found[2].isnan().all()
    assert (found[3] == 0).all()


@pytest.mark.gpu
def test_the_gpu_gives_the_same_and_is_fast() -> None:
    import time

    from monomoe_gen import workload
    from monomoe_gen.shapes import load_shape

    for s in CONFIGS:
        x, logits, weights = layer(s, 8, seed=7)
        bias = torch.linspace(-0.1, 0.1, s.experts) if s.expert_bias else None
        there = BlockWeights(*(t.cuda() for t in vars(weights).values()))
        bias_there = None if bias is None else bias.cuda()
        ids, amounts = reference.route(logits, bias, s)
        ids_there, amounts_there = reference.route(logits.cuda(), bias_there, s)
        assert torch.equal(ids, ids_there.cpu())
        assert torch.allclose(amounts, amounts_there.cpu(), rtol=1e-6)
        for here, other in zip(
            reference.quantize_activations(x), reference.quantize_activations(x.cuda()), strict=True
        ):
            assert torch.equal(here.float(), other.cpu().float())
        y = mirror(x.cuda(), logits.cuda(), there, bias_there, s)
        assert rel_l2(y.cpu(), mirror(x, logits, weights, bias, s)) < 2e-3
        exact = reference.moe_fp32(x.cuda(), logits.cuda(), there.dequantized, bias_there, s)
        assert (
            rel_l2(exact.cpu(), reference.moe_fp32(x, logits, weights.dequantized, bias, s)) < 1e-6
        )

    s = load_shape("qwen3.5-122b")
    weights = workload.block_weights(s, "gaussian", seed=0, device="cuda")
    x = workload.activations(s, 8, "gaussian", seed=0).cuda()
    logits = workload.rotation(s, 8, "uniform", 1, 0, seed=0).logits[0].cuda()
    mirror(x, logits, weights, None, s)
    torch.cuda.synchronize()
    start = time.perf_counter()
    mirror(x, logits, weights, None, s)
    torch.cuda.synchronize()
    assert time.perf_counter() - start < 0.5
