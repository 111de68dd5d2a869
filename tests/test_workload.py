"""Seeded inputs: their statistics; rotations select what they say and keep the weights cold."""

import itertools
from collections import Counter
from dataclasses import replace

import pytest
import torch

from monomoe_gen import patterns, workload
from monomoe_gen.errors import MonomoeError
from monomoe_gen.reference import route
from monomoe_gen.routings import ROUTINGS, TIMED_ROUTINGS
from monomoe_gen.shapes import Shape, load_shape
from monomoe_gen.weights import quantize_blocks

L2 = 60 * 2**20
SHIPPED = ["qwen3.5-35b", "qwen3.5-122b", "glm-5.2-tp8", "deepseek-v3.1-tp8"]


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


UNUSUAL = [
    shape(),
    shape(experts=10, top_k=10),
    shape(experts=1, top_k=1, scoring="sigmoid"),
    shape(experts=100, top_k=7, scoring="softmax", expert_bias=True),
    shape(experts=64, top_k=4, scoring="sigmoid", expert_bias=True, n_group=32, topk_group=3),
    shape(experts=96, top_k=10, n_group=4, topk_group=2),
    shape(experts=256, top_k=8, logits_dtype="bfloat16"),
    shape(
        experts=256,
        top_k=8,
        logits_dtype="bfloat16",
        scoring="sigmoid",
        expert_bias=True,
        n_group=8,
        topk_group=4,
    ),
    shape(experts=384, top_k=32, logits_dtype="bfloat16", expert_bias=True),
]


def selected(s: Shape, rotation: workload.Rotation) -> list[list[set[int]]]:
    """The experts of every token of every launch."""
    return [
        [set(ids) for ids in route(launch, rotation.bias, s)[0].tolist()]
        for launch in rotation.logits
    ]


# -- activations and weights


@pytest.mark.parametrize("distribution", workload.WEIGHTS)
def test_activations_have_rms_one_and_the_tails_of_their_distribution(distribution: str) -> None:
    x = workload.activations(load_shape("qwen3.5-35b"), 32, distribution, seed=3)
    assert x.shape == (32, 2048) and x.dtype == torch.bfloat16
    assert torch.allclose(x.float().square().mean(-1).sqrt(), torch.ones(32), atol=5e-3)
    # beyond 5 sigma: nothing of 65536 Gaussian samples, about 0.3 % of Student-t with 3 degrees
    outliers = (x.float().abs() > 5).double().mean()
    assert outliers == 0 if distribution == "gaussian" else 0.001 < outliers < 0.01
    quartile = x.float().abs().median()
    assert abs(quartile - (0.674 if distribution == "gaussian" else 0.765 / 3**0.5)) < 0.04


def test_outliers_stay_in_their_channels() -> None:
    x = workload.activations(load_shape("qwen3.5-35b"), 8, "outlier_channels", seed=3).float()
    assert torch.allclose(x.square().mean(-1).sqrt(), torch.ones(8), atol=5e-3)
    size = x.square().mean(0).sqrt()
    outliers = size > 10 * size.median()
    assert 4 <= outliers.sum() <= 40
    assert size[outliers].mean() / size[~outliers].mean() == pytest.approx(50, rel=0.2)
    tiny = workload.activations(shape(hidden=128), 1, "outlier_channels", seed=0).float()
    assert (tiny.abs() > 10 * tiny.abs().median()).any()


@pytest.mark.parametrize(("distribution", "rms"), [("tiny_1e-3", 1e-3), ("tiny_1e-6", 1e-6)])
def test_tiny_activations_are_tiny(distribution: str, rms: float) -> None:
    x = workload.activations(load_shape("qwen3.5-35b"), 4, distribution, seed=3).float()
    assert x.square().mean(-1).sqrt().tolist() == pytest.approx([rms] * 4, rel=5e-3)


def test_zeros_are_whole_tokens_whole_blocks_and_single_values() -> None:
    x = workload.activations(shape(hidden=512), 3, "zeros", seed=3).view(3, 4, 128)
    assert (x[0] == 0).all()
    assert (x[1:, ::2] == 0).all()
    assert 0.4 < (x[1:, 1::2] == 0).double().mean() < 0.6
    assert x[1:].float().square().mean((1, 2)).sqrt().tolist() == pytest.approx([1, 1], rel=5e-3)


def test_one_token_is_huge_and_the_others_are_as_ever() -> None:
    s = shape(hidden=512)
    x = workload.activations(s, 3, "huge_token", seed=3)
    assert torch.equal(x[:2], workload.activations(s, 3, "gaussian", seed=3)[:2])
    assert x[2].float().square().mean().sqrt() == pytest.approx(1e4, rel=5e-3)


def test_unknown_distributions_are_refused() -> None:
    with pytest.raises(MonomoeError, match="take one of gaussian, student_t3, outlier_channels"):
        workload.activations(shape(), 1, "cauchy", seed=0)
    with pytest.raises(MonomoeError, match=r"take one of gaussian, student_t3$"):
        workload.expert_weights(shape(), 0, "huge_token", seed=0)


@pytest.mark.parametrize("distribution", workload.WEIGHTS)
def test_weights_keep_the_scale_of_their_inputs(distribution: str) -> None:
    s = shape(hidden=512)
    w13, w2 = workload.expert_weights(s, 5, distribution, seed=1)
    assert w13.shape == (256, 512) and w2.shape == (512, 128)
    assert w13.square().mean().sqrt() == pytest.approx(512**-0.5, rel=1e-5)
    assert w2.square().mean().sqrt() == pytest.approx(128**-0.5, rel=1e-5)
    again = workload.expert_weights(s, 5, distribution, seed=1)
    assert torch.equal(w13, again[0]) and torch.equal(w2, again[1])
    for other in (
        workload.expert_weights(s, 6, distribution, seed=1),
        workload.expert_weights(s, 5, distribution, seed=2),
    ):
        assert not torch.equal(w13, other[0])


def test_a_layer_holds_the_quantized_weights_of_its_experts() -> None:
    s = shape(hidden=384)
    layer = workload.block_weights(s, "student_t3", seed=9)
    assert layer.w13.shape == (8, 256, 384) and layer.w2.shape == (8, 384, 128)
    for expert in range(s.experts):
        w13, w2 = workload.expert_weights(s, expert, "student_t3", seed=9)
        for matrix, code, scale in (
            (w13, layer.w13[expert], layer.w13_scale[expert]),
            (w2, layer.w2[expert], layer.w2_scale[expert]),
        ):
            expected, expected_scale = quantize_blocks(matrix)
            assert torch.equal(code.view(torch.uint8), expected.view(torch.uint8))
            assert torch.equal(scale, expected_scale)
        for found, exact in zip(layer.dequantized(expert), (w13, w2), strict=True):
            assert (found - exact).norm() < 0.03 * exact.norm()


def test_draws_depend_on_their_seed_alone() -> None:
    s = shape()
    torch.manual_seed(1)
    first = workload.activations(s, 4, "gaussian", seed=7)
    rotation = workload.rotation(s, 4, "zipf", 3, 0, seed=7)
    torch.manual_seed(2)
    assert torch.equal(first, workload.activations(s, 4, "gaussian", seed=7))
    assert not torch.equal(first, workload.activations(s, 4, "gaussian", seed=8))
    assert torch.equal(rotation.logits, workload.rotation(s, 4, "zipf", 3, 0, seed=7).logits)
    assert not torch.equal(rotation.logits, workload.rotation(s, 4, "zipf", 3, 0, seed=8).logits)


def test_cases_cover_every_routing_and_every_distribution() -> None:
    cases = workload.validation_cases()
    pairs = [(case.routing, case.distribution) for case in cases]
    assert len(set(pairs)) == len(pairs) == 15
    assert {(r, d) for r in ROUTINGS for d in workload.WEIGHTS} < set(pairs)
    assert {("uniform", d) for d in workload.DISTRIBUTIONS} < set(pairs)
    assert {case.weights for case in cases} == set(workload.WEIGHTS)
    for routing, distribution in pairs:
        workload.rotation(shape(), 2, routing, 1, 0, seed=0)
        workload.activations(shape(), 2, distribution, seed=0)


# -- rotations


def test_shared_experts_are_in_every_launch_and_cold() -> None:
    routed = load_shape("qwen3.5-35b")
    s = replace(routed, name="shared", shared_experts=1, shared_gate=True)
    for tokens, copies in ((1, 8), (8, 1)):
        found = workload.rotation(s, tokens, "uniform", 32, L2, seed=0)
        plain = workload.rotation(routed, tokens, "uniform", 32, L2, seed=0)
        assert torch.equal(found.logits[..., :-1], plain.logits) and plain.copies == 1
        assert found.logits[..., -1].std() == pytest.approx(1, abs=0.3)
        assert found.active == tuple((*active, 256) for active in plain.active)
        assert found.reuse_bytes >= 2 * L2 and found.copies == copies
    layer = workload.block_weights(shape(shared_experts=2), "gaussian", seed=0)
    assert len(layer.w13) == len(layer.w2_scale) == 10


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("s", [load_shape(name) for name in SHIPPED] + UNUSUAL, ids=str)
def test_rotations_say_what_they_select(s: Shape, routing: str) -> None:
    for tokens, launches in ((1, 3), (8, 5)):
        found = workload.rotation(s, tokens, routing, launches, 0, seed=4)
        assert found.logits.shape == (launches, tokens, s.experts)
        assert found.logits.dtype == torch.float32 and found.logits.isfinite().all()
        assert torch.equal(found.logits, found.logits.to(getattr(torch, s.logits_dtype)).float())
        assert (found.bias is not None) == s.expert_bias
        for active, tokens_of_launch in zip(found.active, selected(s, found), strict=True):
            assert list(active) == sorted(set().union(*tokens_of_launch))
        assert found.distinct == [len(active) for active in found.active]


@pytest.mark.parametrize("routing", TIMED_ROUTINGS)
@pytest.mark.parametrize("name", SHIPPED)
def test_replayed_rotations_are_cold(name: str, routing: str) -> None:
    s = load_shape(name)
    for tokens, launches in itertools.product((1, 2, 4, 8), (7, 20, 33)):
        found = workload.rotation(s, tokens, routing, launches, L2, seed=launches)
        assert found.reuse_bytes >= 2 * L2


@pytest.mark.parametrize("routing", TIMED_ROUTINGS)
@pytest.mark.parametrize("name", ["qwen3.5-35b", "deepseek-v3.1-tp8"])
def test_no_expert_returns_before_its_group_was_walked(name: str, routing: str) -> None:
    s = load_shape(name)
    found = workload.rotation(s, 2, routing, 64, L2, seed=2)
    for first in range(0, s.experts, s.group_experts):
        group = set(range(first, first + s.group_experts))
        used = [group & set(active) for active in found.active]
        for start in range(len(used)):
            seen: set[int] = set()
            for experts in itertools.islice(itertools.cycle(used), start, start + len(used)):
                if seen & experts:
                    break
                seen |= experts
            # less than half of an order is skipped to make ends meet
            assert len(seen) >= s.group_experts / 2 - s.top_k or len(seen) == sum(map(len, used))


def slow_reuse_bytes(s: Shape, active: tuple[tuple[int, ...], ...]) -> int:
    stream = [
        ((part, expert), size * s.hidden * s.intermediate)
        for experts in active
        for part, size in (("w13", 2), ("w2", 1))
        for expert in experts
    ]
    gaps = []
    for i, (key, _) in enumerate(stream):
        gap = 0
        for other, size in (stream[i + 1 :] + stream)[: len(stream)]:
            if other == key:
                break
            gap += size
        gaps.append(gap)
    return min(gaps)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_reuse_is_the_shortest_distance_in_the_repeated_stream(routing: str) -> None:
    for s, tokens, launches in itertools.product(
        (shape(experts=40, top_k=3), UNUSUAL[4]), (1, 4), (1, 2, 9)
    ):
        found = workload.rotation(s, tokens, routing, launches, 0, seed=1)
        assert found.reuse_bytes == slow_reuse_bytes(s, found.active)


def test_a_rotation_that_would_replay_warm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    s = load_shape("qwen3.5-35b")
    same = torch.arange(s.experts)
    monkeypatch.setattr(patterns, "fresh_names", lambda shape, used, generator: [same] * len(used))
    with pytest.raises(MonomoeError, match=r"stream only \d+ bytes between two uses"):
        workload.rotation(s, 2, "uniform", 40, L2, seed=0)
    assert workload.rotation(s, 2, "uniform", 40, 0, seed=0).reuse_bytes < 2 * L2


@pytest.mark.parametrize("name", SHIPPED)
def test_same_means_one_set_for_all_tokens_and_another_per_launch(name: str) -> None:
    s = load_shape(name)
    found = selected(s, workload.rotation(s, 8, "same", 6, L2, seed=0))
    assert all(tokens == [tokens[0]] * 8 for tokens in found)
    assert not any(a[0] & b[0] for a, b in itertools.pairwise(found))
    groups = {expert // s.group_experts for tokens in found for expert in tokens[0]}
    assert groups == set(range(s.n_group))


@pytest.mark.parametrize("name", SHIPPED)
def test_disjoint_means_that_no_two_tokens_share(name: str) -> None:
    s = load_shape(name)
    rotation = workload.rotation(s, 8, "disjoint", 6, L2, seed=0)
    assert rotation.distinct == [8 * s.top_k] * 6
    crowded = workload.rotation(shape(), 8, "disjoint", 1, 0, seed=0)  # 16 picks of 8 experts
    assert crowded.distinct == [8]


def test_uniform_and_zipf_share_experts_as_their_distributions_do() -> None:
    s = load_shape("qwen3.5-35b")
    uniform = workload.rotation(s, 8, "uniform", 64, L2, seed=0)
    expected = 256 * (1 - (1 - 8 / 256) ** 8)
    assert sum(uniform.distinct) / 64 == pytest.approx(expected, rel=0.03)
    zipf = workload.rotation(s, 8, "zipf", 64, L2, seed=0)
    assert 38 < sum(zipf.distinct) / 64 < 47
    # the most popular expert of a launch serves nearly all of its tokens
    crowd = [max(Counter(itertools.chain(*tokens)).values()) for tokens in selected(s, zipf)]
    assert sum(crowd) / 64 > 6


@pytest.mark.parametrize("s", [load_shape(name) for name in SHIPPED] + UNUSUAL[3:], ids=str)
def test_small_errors_of_the_scores_select_the_same_experts(s: Shape) -> None:
    found = workload.rotation(s, 8, "uniform", 8, 0, seed=6)
    noise = torch.randn(found.logits.shape, generator=torch.Generator().manual_seed(0))
    disturbed = workload.Rotation(found.logits + 1e-4 * noise, found.bias, found.active, 0)
    assert selected(s, disturbed) == selected(s, found)


@pytest.mark.parametrize("name", SHIPPED)
def test_ties_leave_the_choice_to_the_ids(name: str) -> None:
    s = load_shape(name)
    found = workload.rotation(s, 8, "ties", 8, L2, seed=0)
    assert len(found.logits.unique()) == 3
    decided = 0
    for launch, tokens in zip(found.logits, selected(s, found), strict=True):
        for row, ids in zip(launch.tolist(), tokens, strict=True):
            least = min(row[e] for e in ids)
            losers = [e for e in range(s.experts) if row[e] == least and e not in ids]
            if s.n_group == 1:
                assert max(e for e in ids if row[e] == least) < min(losers)
            decided += bool(losers)
    assert decided == 64


def test_bias_decides_in_part() -> None:
    s = load_shape("glm-5.2-tp8")
    found = workload.rotation(s, 8, "uniform", 4, L2, seed=0)
    without = workload.Rotation(found.logits, torch.zeros(s.experts), found.active, 0)
    assert selected(s, found) != selected(s, without)


@pytest.mark.parametrize("request_", [("unifrm", 1, 1), ("uniform", 0, 1), ("uniform", 1, 0)])
def test_nonsense_is_refused(request_: tuple[str, int, int]) -> None:
    routing, tokens, launches = request_
    with pytest.raises(MonomoeError, match="one of uniform, zipf, same, disjoint, ties"):
        workload.rotation(shape(), tokens, routing, launches, 0, seed=0)
    with pytest.raises(MonomoeError, match="gaussian, student_t3"):
        workload.activations(shape(), 1, "normal", seed=0)
