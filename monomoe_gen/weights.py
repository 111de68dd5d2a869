"""Block-FP8 weights: quantization, and the packed layout that the kernel streams.

The checkpoint layout of one layer, with H = hidden, N = intermediate, E = experts, the shared ones
last:

    w13        e4m3 [E, 2N, H]        gate rows first, then up rows
    w13_scale  fp32 [E, 2N/128, H/128]
    w2         e4m3 [E, H, N]
    w2_scale   fp32 [E, H/128, N/128]

Packing regroups the bytes of ``w13`` and ``w2``; the scales stay as they are. Rows form tiles of
16: tile j of ``w13`` is the gate rows 8j .. 8j+7 and then the up rows N+8j .. N+8j+7, tile j of
``w2`` is the rows 16j .. 16j+15. A tile is cut into blocks of 128 columns, 2048 contiguous bytes
each, in the order in which the lanes of a warp read the A operands of four m16n8k32 MMAs:

    byte    (2c + p) * 512 + (4g + q) * 16 + 4r + i
    holds   tile row g + 8 (r mod 2), column 64c + 16q + 8p + 4 (r div 2) + i

with c, p < 2, g < 8 and q, r, i < 4. A lane (4g + q) loads 16 bytes per (c, p), and its B operands
for both p are the 16 consecutive activation bytes from column 64c + 16q on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from monomoe_gen import e4m3
from monomoe_gen.errors import MonomoeError
from monomoe_gen.schedule import BLOCK_BYTES, ROW_TILE, Layout
from monomoe_gen.shapes import SCALE_BLOCK

_WORDS = BLOCK_BYTES // 4  # four neighbouring columns always travel together, as one 32-bit word


@dataclass(frozen=True)
class BlockWeights:
    """One layer in checkpoint layout, all four tensors on one device (see the module's text)."""

    w13: Tensor
    w13_scale: Tensor
    w2: Tensor
    w2_scale: Tensor

    def dequantized(self, expert: int) -> tuple[Tensor, Tensor]:
        """``(w13 [2N, H], w2 [H, N])`` of one expert in fp32."""
        return (
            dequantize_blocks(self.w13[expert], self.w13_scale[expert]),
            dequantize_blocks(self.w2[expert], self.w2_scale[expert]),
        )


def append_shared(layer: BlockWeights, shared: BlockWeights) -> BlockWeights:
    """``layer`` with a shared expert behind the routed ones, cut into experts of their width.

    ``shared`` holds one expert of n * N columns without the leading dimension: ``w13 [2nN, H]``,
    ``w2 [H, nN]`` and their scales. It becomes n experts, each with N of the columns: what they
    add up to is the same.

    Raises:
        MonomoeError: nN is no multiple of N.
    """
    width, whole = layer.w2.shape[2], shared.w2.shape[1]
    count, rest = divmod(whole, width)
    if rest or not count:
        raise MonomoeError(
            f"a shared expert of {whole} columns cannot be cut into experts of {width}: pad it "
            "with zeros to a multiple, or run it beside the kernel"
        )

    def w13(whole: Tensor, routed: Tensor) -> Tensor:
        halves = whole.unflatten(0, (2, count, -1)).transpose(0, 1)
        return torch.cat([routed, halves.flatten(1, 2)])

    def w2(whole: Tensor, routed: Tensor) -> Tensor:
        return torch.cat([routed, whole.unflatten(1, (count, -1)).transpose(0, 1)])

    return BlockWeights(
        w13(shared.w13, layer.w13),
        w13(shared.w13_scale, layer.w13_scale),
        w2(shared.w2, layer.w2),
        w2(shared.w2_scale, layer.w2_scale),
    )


def quantize_blocks(weights: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 ``[..., R, C]`` -> e4m3 of the same shape and fp32 scales ``[..., R/128, C/128]``."""
    blocks = _blocks(weights.float())
    codes, scale = e4m3.quantize(blocks, blocks.abs().amax(dim=(-3, -1), keepdim=True))
    return codes.reshape(weights.shape), scale[..., 0, :, 0].contiguous()


def dequantize_blocks(codes: Tensor, scale: Tensor) -> Tensor:
    """e4m3 ``[..., R, C]`` and fp32 ``[..., R/128, C/128]`` -> fp32 ``[..., R, C]``."""
    blocks = _blocks(codes.float())
    expected = (*blocks.shape[:-3], blocks.shape[-2])
    if scale.shape != expected:
        raise MonomoeError(
            f"weights {_dims(codes)} need block scales {list(expected)}, found {_dims(scale)}"
        )
    return (blocks * scale[..., :, None, :, None]).reshape(codes.shape)


def pack_w13(w13: Tensor) -> Tensor:
    """e4m3 ``[E, 2N, H]`` -> uint8 ``[E, 2N/16, H/128, 2048]`` on the same device."""
    half_tiles = _words(w13, rows=2 * SCALE_BLOCK).unflatten(1, (2, -1, ROW_TILE // 2))
    return _pack(half_tiles.transpose(1, 2))


def pack_w2(w2: Tensor) -> Tensor:
    """e4m3 ``[E, H, N]`` -> uint8 ``[E, H/16, N/128, 2048]`` on the same device."""
    return _pack(_words(w2, rows=SCALE_BLOCK).unflatten(1, (-1, 2, ROW_TILE // 2)))


def lay_out(layout: Layout, w13: Tensor, w2: Tensor) -> tuple[Tensor, Tensor]:
    """``(w13, w2)`` of the checkpoint -> uint8 as kernels of ``layout`` read them.

    ``raw`` shares the memory of its arguments, which have to be contiguous.
    """
    if layout == "raw":
        return w13.view(torch.uint8), w2.view(torch.uint8)
    return pack_w13(w13), pack_w2(w2)


def expert_codes(layout: Layout, w13: Tensor, w2: Tensor, expert: int) -> tuple[Tensor, Tensor]:
    """e4m3 ``(w13 [2N, H], w2 [H, N])`` of one expert of what `lay_out` gave."""
    if layout == "raw":
        return w13[expert].view(e4m3.E4M3), w2[expert].view(e4m3.E4M3)
    one = slice(expert, expert + 1)
    return unpack_w13(w13[one])[0], unpack_w2(w2[one])[0]


def unpack_w13(packed: Tensor) -> Tensor:
    """The inverse of `pack_w13`: uint8 ``[E, 2N/16, H/128, 2048]`` -> e4m3 ``[E, 2N, H]``."""
    return _unpack(packed).transpose(1, 2).flatten(1, 3).view(e4m3.E4M3)


def unpack_w2(packed: Tensor) -> Tensor:
    """The inverse of `pack_w2`: uint8 ``[E, H/16, N/128, 2048]`` -> e4m3 ``[E, H, N]``."""
    return _unpack(packed).flatten(1, 3).view(e4m3.E4M3)


def _blocks(matrix: Tensor) -> Tensor:
    """``[..., R, C]`` -> ``[..., R/128, 128, C/128, 128]``."""
    if matrix.dim() < 2 or any(n == 0 or n % SCALE_BLOCK for n in matrix.shape[-2:]):
        raise MonomoeError(
            f"block-scaled weights have rows and columns in multiples of {SCALE_BLOCK}, "
            f"found {_dims(matrix)}"
        )
    return matrix.unflatten(-1, (-1, SCALE_BLOCK)).unflatten(-3, (-1, SCALE_BLOCK))


def _words(codes: Tensor, rows: int) -> Tensor:
    """e4m3 ``[E, R, C]``, R a multiple of ``rows`` -> int32 ``[E, R, C/4]``."""
    shape = codes.shape
    if codes.dtype != e4m3.E4M3 or len(shape) != 3 or shape[1] % rows or shape[2] % SCALE_BLOCK:
        raise MonomoeError(
            f"packing takes float8_e4m3fn [experts, rows, columns] with rows a multiple of {rows} "
            f"and columns of {SCALE_BLOCK}, found {codes.dtype} {_dims(codes)}"
        )
    return codes.contiguous().view(torch.int32)


def _pack(tiles: Tensor) -> Tensor:
    """int32 ``[E, tiles, 2, 8, C/4]``, the dimension of 2 being r mod 2 -> the packed bytes."""
    fields = tiles.unflatten(-1, (-1, 2, 4, 2, 2))  # E tile r%2 g block c q p r//2
    words = fields.permute(0, 1, 4, 5, 7, 3, 6, 8, 2)  # E tile block c p g q r//2 r%2
    return words.contiguous().flatten(3).view(torch.uint8)


def _unpack(packed: Tensor) -> Tensor:
    """uint8 ``[E, tiles, C/128, 2048]`` -> int32 ``[E, tiles, 2, 8, C/4]``, undoing `_pack`."""
    if packed.dtype != torch.uint8 or packed.dim() != 4 or packed.shape[-1] != BLOCK_BYTES:
        raise MonomoeError(
            f"packed weights are uint8 [experts, tiles, blocks, {BLOCK_BYTES}], "
            f"found {packed.dtype} {_dims(packed)}"
        )
    words = packed.contiguous().view(torch.int32).unflatten(-1, (2, 2, 8, 4, 2, 2))
    return words.permute(0, 1, 8, 5, 2, 3, 6, 4, 7).flatten(4)


def _dims(tensor: Tensor) -> list[int]:
    return list(tensor.shape)
