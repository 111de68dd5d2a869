"""Block quantization and the packed layout, against direct loops over the documented formulas."""

import numpy as np
import pytest
import torch

from monomoe_gen import e4m3
from monomoe_gen.errors import MonomoeError
from monomoe_gen.schedule import LAYOUTS
from monomoe_gen.shapes import load_shape
from monomoe_gen.weights import (
    BlockWeights,
    append_shared,
    dequantize_blocks,
    expert_codes,
    lay_out,
    pack_w2,
    pack_w13,
    quantize_blocks,
    unpack_w2,
    unpack_w13,
)
from monomoe_gen.workload import block_weights


def random_codes(*size: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)
    return codes.view(e4m3.E4M3)


def bytes_of(codes: torch.Tensor) -> torch.Tensor:
    return codes.view(torch.uint8)


def placed(rows_of_tile: np.ndarray) -> np.ndarray:
    """One tile, uint8 [16, columns] -> its packed bytes [columns / 128, 2048], byte by byte."""
    blocks = rows_of_tile.shape[1] // 128
    packed = np.zeros((blocks, 2048), dtype=np.uint8)
    written = np.zeros(2048, dtype=int)
    for c in range(2):
        for p in range(2):
            for lane in range(32):
                g, q = divmod(lane, 4)
                for r in range(4):
                    for i in range(4):
                        address = (2 * c + p) * 512 + lane * 16 + 4 * r + i
                        row = g + 8 * (r & 1)
                        column = 64 * c + 16 * q + 8 * p + 4 * (r >> 1) + i
                        packed[:, address] = rows_of_tile[row, column::128]
                        written[address] += 1
    assert (written == 1).all()
    return packed


def test_w13_bytes_are_where_the_formula_says() -> None:
    experts, intermediate, hidden = 2, 128, 256
    w13 = random_codes(experts, 2 * intermediate, hidden)
    packed = pack_w13(w13)
    assert packed.shape == (experts, 2 * intermediate // 16, hidden // 128, 2048)
    assert packed.dtype == torch.uint8 and packed.is_contiguous()
    raw = bytes_of(w13).numpy()
    for expert in range(experts):
        for tile in range(2 * intermediate // 16):
            gate = raw[expert, 8 * tile : 8 * tile + 8]
            up = raw[expert, intermediate + 8 * tile : intermediate + 8 * tile + 8]
            expected = placed(np.concatenate([gate, up]))
            assert np.array_equal(packed[expert, tile].numpy(), expected)


def test_w2_bytes_are_where_the_formula_says() -> None:
    experts, hidden, intermediate = 2, 256, 384
    w2 = random_codes(experts, hidden, intermediate)
    packed = pack_w2(w2)
    assert packed.shape == (experts, hidden // 16, intermediate // 128, 2048)
    for expert in range(experts):
        for tile in range(hidden // 16):
            rows = bytes_of(w2)[expert, 16 * tile : 16 * tile + 16].numpy()
            assert np.array_equal(packed[expert, tile].numpy(), placed(rows))


@pytest.mark.parametrize(("hidden", "intermediate"), [(128, 128), (384, 128), (256, 640)])
def test_unpacking_undoes_packing(hidden: int, intermediate: int) -> None:
    w13 = random_codes(3, 2 * intermediate, hidden, seed=hidden)
    w2 = random_codes(3, hidden, intermediate, seed=intermediate)
    assert torch.equal(bytes_of(unpack_w13(pack_w13(w13))), bytes_of(w13))
    assert torch.equal(bytes_of(unpack_w2(pack_w2(w2))), bytes_of(w2))


def test_a_part_of_the_experts_packs_to_the_same_bytes() -> None:
    w13 = random_codes(4, 256, 256)
    assert torch.equal(pack_w13(w13[1:3]), pack_w13(w13)[1:3])
    strided = w13.repeat_interleave(2, 0)[::2]
    assert not strided.is_contiguous()
    assert torch.equal(pack_w13(strided), pack_w13(w13))


def test_blocks_are_quantized_one_by_one() -> None:
    weights = torch.randn(2, 256, 384, generator=torch.Generator().manual_seed(1))
    weights[0, :128, 128:256] *= 1000
    weights[1, 128:, :128] = 0
    codes, scale = quantize_blocks(weights)
    assert codes.shape == weights.shape and codes.dtype == e4m3.E4M3
    assert scale.shape == (2, 2, 3) and scale.dtype == torch.float32 and scale.is_contiguous()
    for e in range(2):
        for r in range(2):
            for c in range(3):
                where = (e, slice(128 * r, 128 * r + 128), slice(128 * c, 128 * c + 128))
                block = weights[where]
                expected, one = e4m3.quantize(block, block.abs().max().reshape(1, 1))
                assert torch.equal(bytes_of(codes[where].contiguous()), bytes_of(expected))
                assert scale[e, r, c] == one
    assert scale[1, 1, 0] == 0


def test_dequantizing_multiplies_each_block_by_its_scale() -> None:
    codes = random_codes(256, 384).float().nan_to_num(0.0).to(e4m3.E4M3)
    scale = torch.rand(2, 3, generator=torch.Generator().manual_seed(2))
    expected = codes.float() * scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    assert torch.equal(dequantize_blocks(codes, scale), expected)
    weights = BlockWeights(codes[None], scale[None], codes[None, :128], scale[None, :1])
    w13, w2 = weights.dequantized(0)
    assert torch.equal(w13, expected) and torch.equal(w2, expected[:128])


def test_quantization_error_is_that_of_four_significant_bits() -> None:
    weights = torch.randn(256, 256, generator=torch.Generator().manual_seed(3))
    error = dequantize_blocks(*quantize_blocks(weights)) - weights
    # half a unit of the last of 4 bits at most, except in the subnormals below 2**-6 * scale
    limit = torch.maximum(weights.abs() / 16, torch.tensor(2.0**-10 * 5 / 448))
    assert (error.abs() <= limit).all()
    assert 0.02 < error.norm() / weights.norm() < 0.03


@pytest.mark.parametrize(
    "call",
    [
        lambda: quantize_blocks(torch.zeros(128, 100)),
        lambda: quantize_blocks(torch.zeros(128)),
        lambda: dequantize_blocks(torch.zeros(128, 256), torch.zeros(2, 1)),
        lambda: pack_w13(random_codes(1, 128, 128)),
        lambda: pack_w13(random_codes(256, 128)),
        lambda: pack_w2(random_codes(1, 128, 64)),
        lambda: pack_w2(torch.zeros(1, 128, 128)),
        lambda: unpack_w2(torch.zeros(1, 8, 1, 1024, dtype=torch.uint8)),
        lambda: unpack_w13(random_codes(1, 8, 1, 2048)),
    ],
)
def test_wrong_tensors_are_refused_with_their_sizes(call: object) -> None:
    with pytest.raises(MonomoeError, match=r"found .*\[[\d, ]+\]"):
        call()  # type: ignore[operator]


@pytest.mark.gpu
def test_the_gpu_packs_and_quantizes_to_the_same_bytes() -> None:
    w13, w2 = random_codes(3, 512, 384), random_codes(3, 384, 256)
    assert torch.equal(pack_w13(w13.cuda()).cpu(), pack_w13(w13))
    assert torch.equal(pack_w2(w2.cuda()).cpu(), pack_w2(w2))
    assert torch.equal(bytes_of(unpack_w13(pack_w13(w13.cuda()))).cpu(), bytes_of(w13))
    weights = torch.randn(2, 256, 384, generator=torch.Generator().manual_seed(4))
    here, there = quantize_blocks(weights), quantize_blocks(weights.cuda())
    assert torch.equal(bytes_of(there[0]).cpu(), bytes_of(here[0]))
    assert torch.equal(there[1].cpu(), here[1])
    assert torch.equal(dequantize_blocks(*there).cpu(), dequantize_blocks(*here))


def test_either_layout_gives_an_expert_back() -> None:
    layer = block_weights(load_shape("toy"), "gaussian", 0)
    for layout in LAYOUTS:
        w13, w2 = lay_out(layout, layer.w13, layer.w2)
        assert (w13.dtype, w2.dtype) == (torch.uint8, torch.uint8)
        assert (w13.data_ptr() == layer.w13.data_ptr()) == (layout == "raw")
        one = expert_codes(layout, w13, w2, 3)
        for found, given in zip(one, (layer.w13[3], layer.w2[3]), strict=True):
            assert torch.equal(found.view(torch.uint8), given.view(torch.uint8))


def test_a_wide_shared_expert_is_cut_into_experts() -> None:
    """Each has its columns of gate, up and down; together they compute what the whole one does."""
    layer = block_weights(load_shape("toy"), "gaussian", 0)
    generator = torch.Generator().manual_seed(1)
    w13, w2 = (torch.randn(*size, generator=generator) for size in ((768, 256), (256, 384)))
    whole = BlockWeights(*quantize_blocks(w13), *quantize_blocks(w2))
    joined = append_shared(layer, whole)
    for name, tensor in vars(joined).items():
        assert len(tensor) == 11 and tensor.dtype == getattr(layer, name).dtype
        assert torch.equal(tensor[:8].float(), getattr(layer, name).float())
    x = torch.randn(3, 256, generator=generator)

    def expert(w13: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
        gate, up = (x @ w13.T).chunk(2, -1)
        return torch.nn.functional.silu(gate) * up @ w2.T

    exact = expert(
        dequantize_blocks(whole.w13, whole.w13_scale), dequantize_blocks(whole.w2, whole.w2_scale)
    )
    parts = sum(expert(*joined.dequantized(e)) for e in (8, 9, 10))
    assert torch.allclose(parts, exact, rtol=1e-4, atol=1e-3)
    with pytest.raises(MonomoeError, match="768 columns cannot be cut into experts of 512"):
        wide = BlockWeights(*(torch.zeros(1, 128, 512),) * 4)
        append_shared(wide, BlockWeights(*(torch.zeros(128, 768),) * 4))
