// Activations to e4m3 with one scale per token and 128 columns.
#pragma once

#include "device/memory.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"
#include "ops/trace.cuh"

constexpr float kE4m3Max = 448.f;
constexpr float kSmallestAmax = 1.504632769052528e-36f;  // 2^-119: below it kE4m3Max / amax overflows, the block becomes 0

// Few tokens leave loads to spare: a long row is then taken several blocks at a time.
constexpr bool kClaimsWide = schedule::kHiddenBlocks > 2 * schedule::kQuantizeWarps;

struct QuantScale {
    float scale;    // of the stored values
    float inverse;  // what a value is multiplied with

    MONOMOE_DEVICE static QuantScale of(float amax) {
        if (amax < kSmallestAmax) return {0.f, 0.f};
        return {amax / kE4m3Max, kE4m3Max / amax};
    }
};

// Quantizes column blocks until none is left. One warp; all warps that call it share the blocks.
//   Reads     args.x
//   Writes    x, x_scale, next_block
//   Waits on  -
//   Signals   x_ready of the stage that a block belongs to
//
// A round takes eight (block, token) pairs: the blocks of one claim, kPairs / tokens of them when there are
// few tokens. A lane holds four columns of every pair; lane p divides for pair p.
MONOMOE_DEVICE void quantize_inputs(const Args& args, SharedStorage& s, u32 lane) {
    constexpr u32 kPairs = 8;
    // tokens rounded up to a power of two, at most kPairs: pair p is token p % width of block p / width
    const u32 shift = args.tokens <= 1 ? 0 : args.tokens <= 2 ? 1 : args.tokens <= 4 ? 2 : 3;
    const u32 width = 1u << shift;
    const u32 claim = kClaimsWide && shift < 2 ? 4 >> shift : 1;
    for (;;) {
        u32 first = 0;
        if (lane == 0) first = device::shared_atomic_add(&s.next_block, claim);
        first = device::shuffle(first, 0);
        if (first >= schedule::kHiddenBlocks) return;
#pragma unroll 1
        for (u32 base = 0; base < args.tokens; base += kPairs) {
            U32x2 raw[kPairs];
#pragma unroll
            for (u32 p = 0; p < kPairs; ++p) {
                const u32 block = first + (p >> shift), token = base + (p & (width - 1));
                raw[p] = {0, 0};
                if ((p >> shift) < claim && block < schedule::kHiddenBlocks && token < args.tokens) {
                    const device::Bf16* source = args.x + token * shape::kHidden + block * schedule::kScaleBlock + 4 * lane;
                    raw[p] = device::load_input(reinterpret_cast<const U32x2*>(source));
                }
            }
            u32 my_amax = 0;
#pragma unroll
            for (u32 p = 0; p < kPairs; ++p) {
                const u32 amax = device::reduce_max(device::bf16x4_absolute_max(raw[p]));
                my_amax = lane == p ? amax : my_amax;
            }
            const QuantScale mine = QuantScale::of(device::bf16_to_float(static_cast<device::Bf16>(my_amax)));
#pragma unroll
            for (u32 p = 0; p < kPairs; ++p) {
                const u32 block = first + (p >> shift), token = base + (p & (width - 1));
                const float inverse = device::shuffle(mine.inverse, p);
                if ((p >> shift) < claim && block < schedule::kHiddenBlocks && token < args.tokens) {
                    const F32x2 low = device::bf16x2_to_float(raw[p].x), high = device::bf16x2_to_float(raw[p].y);
                    *reinterpret_cast<u32*>(&s.x[token][block * schedule::kScaleBlock + 4 * lane]) =
                        device::float_to_e4m3x4(low.x * inverse, low.y * inverse, high.x * inverse, high.y * inverse);
                    if (lane == p) s.x_scale[block][token] = mine.scale;
                }
            }
        }
        device::sync_warp();
        const u32 block = first + lane;
        if (lane < claim && block < schedule::kHiddenBlocks) {
            device::mbarrier_arrive(&s.x_ready[block / schedule::UpStage::kColumnBlocks]);
        }
    }
}
