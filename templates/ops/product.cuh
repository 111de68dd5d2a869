// One 16x128 weight block times the token tiles.
#pragma once

#include "device/memory.cuh"
#include "device/mma.cuh"
#include "device/numeric.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"
#include "ops/weights.cuh"

// One 16x128 block times 8 tokens is eight MMAs. A single token tile spreads them over independent chains,
// several tiles are independent already.
constexpr u32 kChains = schedule::kTokenTiles == 1 ? 4 : 2;

// 128 columns of eight tokens' activations as B operands: lane 4g+q has columns 16q ... 16q+15 and 64+16q ... 64+16q+15 of
// token g, in this order.
struct Operands {
    enum : u32 { kWords = 2 * sizeof(shape::Activation) };  // of 16 bytes
    U32x4 part[kWords];
};

// Activations in shared memory, from token 0 and a block's first column on.
template <u32 kStride>
struct SharedRows {
    const shape::Activation* first;

    MONOMOE_DEVICE Operands operands(u32 token_tile, u32 lane) const {
        const shape::Activation* const row = first + (8 * token_tile + lane / 4) * kStride + lane % 4 * 16;
        if constexpr (shape::quantizes()) {
            return {device::load_shared_early(row), device::load_shared_early(row + 64)};
        } else {
            Operands got;
#pragma unroll
            for (u32 i = 0; i < Operands::kWords; ++i) got.part[i] = device::load_shared_early(row + i / 2 * 64 + i % 2 * 8);
            return got;
        }
    }
};

// product[t] = block (16 rows x 128 columns) * tokens 8t ... 8t+7 for every token tile with a bit in `tokens`.
// `block` is the lane's operand of it (RingReader::block).
// Lane 4g+q gets rows g and g+8 of tokens 2q and 2q+1. See monomoe_gen/weights.py for the byte order.
template <typename Activations>
MONOMOE_DEVICE void multiply_block(float (&product)[schedule::kTokenTiles][4], const BlockOperand& block, const Activations& activations,
                                   u32 tokens, u32 lane) {
    const U32x4(&a)[4] = block.part;
#pragma unroll
    for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
        float chain[kChains][4] = {};
        if (schedule::kTokenTiles == 1 || (tokens >> 8 * t & 0xff) != 0) {
            const Operands b = activations.operands(t, lane);
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                if constexpr (!shape::quantizes()) {
                    const U32x4& columns = b.part[i];
                    const U32x2 w0 = device::e4m3x4_to_bf16(a[i].x), w1 = device::e4m3x4_to_bf16(a[i].y);
                    const U32x2 w2 = device::e4m3x4_to_bf16(a[i].z), w3 = device::e4m3x4_to_bf16(a[i].w);
                    device::mma_bf16_16x8x16(chain[2 * i % kChains], w0.x, w1.x, w0.y, w1.y, columns.x, columns.y);
                    device::mma_bf16_16x8x16(chain[(2 * i + 1) % kChains], w2.x, w3.x, w2.y, w3.y, columns.z, columns.w);
                    continue;
                }
                const U32x2 a0 = device::e4m3x4_to_half(a[i].x), a1 = device::e4m3x4_to_half(a[i].y);
                const U32x2 a2 = device::e4m3x4_to_half(a[i].z), a3 = device::e4m3x4_to_half(a[i].w);
                const U32x2 b0 = device::e4m3x4_to_half(i % 2 ? b.part[i / 2].z : b.part[i / 2].x);
                const U32x2 b1 = device::e4m3x4_to_half(i % 2 ? b.part[i / 2].w : b.part[i / 2].y);
                device::mma_16x8x16(chain[2 * i % kChains], a0.x, a1.x, a0.y, a1.y, b0.x, b0.y);
                device::mma_16x8x16(chain[(2 * i + 1) % kChains], a2.x, a3.x, a2.y, a3.y, b1.x, b1.y);
            }
        }
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
            product[t][c] = kChains == 4 ? (chain[0][c] + chain[1][c]) + (chain[2 % kChains][c] + chain[3 % kChains][c])
                                         : chain[0][c] + chain[1][c];
        }
    }
}

// Sum of a tile's partial sums, in a fixed order.
template <typename Stage, typename Partials>
MONOMOE_DEVICE F32x4 sum_contributions(const Partials& partials, u32 tile, u32 token_tile, u32 lane) {
    F32x4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (u32 c = 0; c < Stage::kContributions; ++c) {
        const auto from = Stage::contribution(tile, c);
        const F32x4 part = partials[from.warp][from.accumulator][token_tile][lane];
        sum.x += part.x;
        sum.y += part.y;
        sum.z += part.z;
        sum.w += part.w;
    }
    return sum;
}

// Writes a warp's accumulators where sum_contributions finds them.
template <u32 kCount, typename Partials>
MONOMOE_DEVICE void store_partials(Partials& partials, const float (&sums)[kCount][schedule::kTokenTiles][4], u32 warp, u32 lane) {
#pragma unroll
    for (u32 a = 0; a < kCount; ++a) {
#pragma unroll
        for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
            partials[warp][a][t][lane] = {sums[a][t][0], sums[a][t][1], sums[a][t][2], sums[a][t][3]};
        }
    }
}
