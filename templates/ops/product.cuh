// One 16x128 weight block times the token tiles.
#pragma once

#include "device/mma.cuh"
#include "device/numeric.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"

// product[t] = block (16 rows x 128 columns) * tokens 8t ... 8t+7 for every token tile with a bit in `tokens`.
// `activations` points to the block's first column of token 0; rows are `stride` bytes apart.
// Lane 4g+q holds rows g and g+8 of tokens 2q and 2q+1. See monomoe_gen/weights.py for the byte order.
MONOMOE_DEVICE void multiply_block(float (&product)[schedule::kTokenTiles][4], const u8* block, const u8* activations,
                                   u32 stride, u32 tokens, u32 lane) {
    const u32 g = lane / 4, q = lane % 4;
    const u8* const row = activations + g * stride + q * 16;
#pragma unroll
    for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) product[t][i] = 0.f;
    }
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        U32x2 a[8];  // a[4 * p + r]: register r of step p, as fp16 pairs
#pragma unroll
        for (u32 p = 0; p < 2; ++p) {
            const U32x4 bytes = *reinterpret_cast<const U32x4*>(block + (2 * half + p) * 512 + lane * 16);
            a[4 * p + 0] = device::e4m3x4_to_half(bytes.x);
            a[4 * p + 1] = device::e4m3x4_to_half(bytes.y);
            a[4 * p + 2] = device::e4m3x4_to_half(bytes.z);
            a[4 * p + 3] = device::e4m3x4_to_half(bytes.w);
        }
#pragma unroll
        for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
            if (schedule::kTokenTiles > 1 && (tokens >> 8 * t & 0xff) == 0) continue;
            const U32x4 bytes = *reinterpret_cast<const U32x4*>(row + t * 8 * stride + half * 64);
            const U32x2 b[4] = {device::e4m3x4_to_half(bytes.x), device::e4m3x4_to_half(bytes.y),
                                device::e4m3x4_to_half(bytes.z), device::e4m3x4_to_half(bytes.w)};
#pragma unroll
            for (u32 step = 0; step < 4; ++step) {
                device::mma_16x8x16(product[t], a[2 * step].x, a[2 * step + 1].x, a[2 * step].y, a[2 * step + 1].y,
                                    b[step].x, b[step].y);
            }
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
