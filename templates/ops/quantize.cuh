// Activations to e4m3 with one scale per token and 128 columns.
#pragma once

#include "device/memory.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"
#include "ops/trace.cuh"

constexpr float kE4m3Max = 448.f;
constexpr float kSmallestAmax = 1.504632769052528e-36f;  // 2^-119: below it kE4m3Max / amax overflows, the block becomes 0

struct QuantScale {
    float scale;    // of the stored values
    float inverse;  // what a value is multiplied with

    MONOMOE_DEVICE static QuantScale of(float amax) {
        if (amax < kSmallestAmax) return {0.f, 0.f};
        return {amax / kE4m3Max, kE4m3Max / amax};
    }
};

// Quantizes column blocks first, first + stride, ... of all tokens. One warp.
//   Reads     args.x
//   Writes    x, x_scale
//   Waits on  -
//   Signals   x_ready of the stage that the block belongs to
//
// Half a warp takes one token, 8 columns a lane; four token pairs are in flight.
MONOMOE_DEVICE void quantize_inputs(const Args& args, SharedStorage& s, u32 first, u32 stride, u32 lane) {
    constexpr u32 kPairs = 4;
    const u32 half = lane / 16, column = lane % 16 * 8;
#pragma unroll 1
    for (u32 block = first; block < schedule::kHiddenBlocks; block += stride) {
#pragma unroll 1
        for (u32 base = 0; base < args.tokens; base += 2 * kPairs) {
            U32x4 raw[kPairs];
#pragma unroll
            for (u32 p = 0; p < kPairs; ++p) {
                const u32 token = base + 2 * p + half;
                raw[p] = {0, 0, 0, 0};
                if (token < args.tokens) {
                    const device::Bf16* source = args.x + token * shape::kHidden + block * schedule::kScaleBlock + column;
                    raw[p] = device::load_input(reinterpret_cast<const U32x4*>(source));
                }
            }
#pragma unroll
            for (u32 p = 0; p < kPairs; ++p) {
                if (base + 2 * p >= args.tokens) break;
                const u32 token = base + 2 * p + half;
                const F32x2 v[4] = {device::bf16x2_to_float(raw[p].x), device::bf16x2_to_float(raw[p].y),
                                    device::bf16x2_to_float(raw[p].z), device::bf16x2_to_float(raw[p].w)};
                float amax = 0.f;
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    amax = device::maximum(amax, device::maximum(device::absolute(v[i].x), device::absolute(v[i].y)));
                }
#pragma unroll
                for (u32 mask = 8; mask; mask >>= 1) amax = device::maximum(amax, device::shuffle_xor(amax, mask));
                const QuantScale q = QuantScale::of(amax);
                if (token < args.tokens) {
                    U32x2 bytes;
                    bytes.x = device::float_to_e4m3x4(v[0].x * q.inverse, v[0].y * q.inverse, v[1].x * q.inverse, v[1].y * q.inverse);
                    bytes.y = device::float_to_e4m3x4(v[2].x * q.inverse, v[2].y * q.inverse, v[3].x * q.inverse, v[3].y * q.inverse);
                    *reinterpret_cast<U32x2*>(&s.x[token][block * schedule::kScaleBlock + column]) = bytes;
                    if (column == 0) s.x_scale[block][token] = q.scale;
                }
            }
        }
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.x_ready[block / schedule::UpStage::kColumnBlocks]);
    }
}
