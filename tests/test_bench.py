"""What is timed, and how samples become a time. The timing itself needs a GPU: test_gpu.py."""

import pytest
import torch

from monomoe_gen.bench import LAUNCHES, Timing, make_inputs
from monomoe_gen.device import KNOWN
from monomoe_gen.errors import MonomoeError
from monomoe_gen.reference import route
from monomoe_gen.shapes import load_shape

L2 = KNOWN["nvidia-h200"].l2_bytes
CPU = torch.device("cpu")


def test_a_time_is_the_median_with_its_deciles() -> None:
    timing = Timing(tuple(float(i) for i in range(101)))
    assert (timing.median_us, timing.p10_us, timing.p90_us, timing.n) == (50.0, 10.0, 90.0, 101)


@pytest.mark.parametrize("model", ["qwen3.5-35b", "deepseek-v3.1-tp8"])
@pytest.mark.parametrize("routing", ["uniform", "zipf", "same"])
@pytest.mark.parametrize("tokens", [1, 8])
def test_every_launch_has_experts_of_its_own_and_they_are_cold(
    model: str, routing: str, tokens: int
) -> None:
    shape = load_shape(model)
    inputs = make_inputs(shape, tokens, routing, L2, 0, CPU)
    assert inputs.reuse_bytes >= 2 * L2
    assert inputs.logits.shape == (LAUNCHES, tokens, shape.experts)
    assert inputs.x.shape == (tokens, shape.hidden) and inputs.x.dtype == torch.bfloat16
    for i in range(LAUNCHES):
        ids, _ = route(inputs.logits[i], inputs.bias, shape)
        listed = inputs.experts[i, : inputs.counts[i]]
        assert listed.dtype == torch.int32
        assert ids.unique().tolist() == listed.tolist()
    assert inputs.distinct_experts == sum(inputs.counts) / LAUNCHES


@pytest.mark.parametrize(
    ("name", "tokens", "launches", "copies"),
    [("toy", 1, 1024, 1024), ("toy", 8, 256, 256), ("mixtral-8x7b-fp8-tp8", 8, 32, 2)],
)
def test_small_layers_are_cold_by_copies_and_more_launches(
    name: str, tokens: int, launches: int, copies: int
) -> None:
    inputs = make_inputs(load_shape(name), tokens, "uniform", L2, 0, CPU)
    assert (inputs.launches, inputs.copies) == (launches, copies)
    assert inputs.reuse_bytes >= 2 * L2
    assert len(inputs.logits) == len(inputs.experts) == launches


def test_weights_that_cannot_be_cold_are_not_timed() -> None:
    with pytest.raises(MonomoeError, match="toy with 1 tokens and uniform routing cannot be"):
        make_inputs(load_shape("toy"), 1, "uniform", 2 * L2, 0, CPU)
