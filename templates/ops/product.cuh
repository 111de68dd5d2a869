// One 16x128 weight block times the activations of an expert's tokens.
#pragma once

#include "device/memory.cuh"
#include "device/mma.cuh"
#include "device/numeric.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"
#include "ops/weights.cuh"

// One 16x128 block times 8 columns is eight MMAs, in independent chains.
constexpr u32 kChains = 4;

// 128 values of the activations in eight columns as B operands: lane 4g+q has the values 16q ... 16q+15 and
// 64+16q ... 64+16q+15 of column g, in this order.
struct Operands {
    enum : u32 { kWords = 2 * sizeof(shape::Activation) };  // of 16 bytes
    U32x4 part[kWords];
};

// From where a column's activations begin in shared memory.
MONOMOE_DEVICE Operands shared_operands(const shape::Activation* first, u32 lane) {
    first += lane % 4 * 16;
    if constexpr (shape::quantizes()) {
        return {device::load_shared_early(first), device::load_shared_early(first + 64)};
    } else {
        Operands got;
#pragma unroll
        for (u32 i = 0; i < Operands::kWords; ++i) got.part[i] = device::load_shared_early(first + i / 2 * 64 + i % 2 * 8);
        return got;
    }
}

// product = block (16 rows x 128 columns) * activations, each as the lane's operands (RingReader::block). Lane 4g+q gets
// rows g and g+8 of the columns 2q and 2q+1. See monomoe_gen/weights.py for the byte order.
MONOMOE_DEVICE void multiply_block(float (&product)[4], const BlockOperand& block, const Operands& b) {
    const U32x4(&a)[4] = block.part;
    float chain[kChains][4] = {};
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
#pragma unroll
    for (u32 c = 0; c < 4; ++c) product[c] = (chain[0][c] + chain[1][c]) + (chain[2][c] + chain[3][c]);
}

// Sum of a tile's partial sums, in a fixed order.
template <typename Stage, typename Partials>
MONOMOE_DEVICE F32x4 sum_contributions(const Partials& partials, u32 tile, u32 lane) {
    F32x4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (u32 c = 0; c < Stage::kContributions; ++c) {
        const auto from = Stage::contribution(tile, c);
        const F32x4 part = partials[from.warp][from.accumulator][lane];
        sum.x += part.x;
        sum.y += part.y;
        sum.z += part.z;
        sum.w += part.w;
    }
    return sum;
}

// Writes a warp's accumulators where sum_contributions finds them.
template <u32 kCount, typename Partials>
MONOMOE_DEVICE void store_partials(Partials& partials, const float (&sums)[kCount][4], u32 warp, u32 lane) {
#pragma unroll
    for (u32 a = 0; a < kCount; ++a) partials[warp][a][lane] = {sums[a][0], sums[a][1], sums[a][2], sums[a][3]};
}
