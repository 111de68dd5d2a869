// Activations to e4m3 with one scale per token and 128 columns.
#pragma once

#include "device/memory.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"
#include "ops/trace.cuh"

constexpr float kE4m3Max = 448.f;
constexpr float kSmallestAmax = 1.504632769052528e-36f;  // 2^-119: below it kE4m3Max / amax overflows, the block becomes 0
constexpr float kLargestAmax = 8.507059173023462e37f;    // 2^126: above it, and with NaN, the block becomes NaN

struct QuantScale {
    float scale;    // of the stored values
    float inverse;  // what a value is multiplied with

    MONOMOE_DEVICE static QuantScale of(float amax) {
        if (amax < kSmallestAmax) return {0.f, 0.f};
        if (!(amax <= kLargestAmax)) return {device::not_a_number(), device::not_a_number()};
        return {device::divide_rounded(amax, kE4m3Max), device::divide_rounded(kE4m3Max, amax)};
    }
};

// Eight (column block, token) pairs on their way. Half a warp loads a pair, 8 columns a lane; lane p knows where pair p
// lies and divides for it.
struct QuantizeClaim {
    static constexpr u32 kPairs = 8;
    u32 first;         // pairs are numbered block by block
    u32 block, token;  // of pair first + lane
    U32x4 raw[kPairs / 2];

    MONOMOE_DEVICE bool valid(const Args& args) const { return first < schedule::kHiddenBlocks * args.tokens; }
    MONOMOE_DEVICE static bool valid(const Args& args, u32 pair) { return pair < schedule::kHiddenBlocks * args.tokens; }

    MONOMOE_DEVICE void load(const Args& args, u32 first_pair, u32 lane) {
        const u32 half = lane / 16, column = lane % 16 * 8;
        first = first_pair;
        block = (first + lane) / args.tokens;
        token = first + lane - block * args.tokens;
        const u32 source = token * shape::kHidden + block * schedule::kScaleBlock;
#pragma unroll
        for (u32 i = 0; i < kPairs / 2; ++i) {
            const u32 from = device::shuffle(source, 2 * i + half) + column;
            raw[i] = {0, 0, 0, 0};
            if (valid(args, first + 2 * i + half)) raw[i] = device::load_input(reinterpret_cast<const U32x4*>(args.x + from));
        }
    }

    MONOMOE_DEVICE void quantize(const Args& args, SharedStorage& s, u32 lane) const {
        const u32 half = lane / 16, column = lane % 16 * 8;
        const u32 target = token * (shape::kHidden + schedule::kRowPad) + block * schedule::kScaleBlock;
        u32 my_amax = 0;
#pragma unroll
        for (u32 i = 0; i < kPairs / 2; ++i) {
            const u32 amax = device::bf16x8_absolute_max(raw[i]);
            const u32 low = device::reduce_max(half ? 0 : amax), high = device::reduce_max(half ? amax : 0);
            my_amax = lane == 2 * i ? low : lane == 2 * i + 1 ? high : my_amax;
        }
        const QuantScale mine = QuantScale::of(device::bf16_to_float(static_cast<device::Bf16>(my_amax)));
#pragma unroll
        for (u32 i = 0; i < kPairs / 2; ++i) {
            const float inverse = device::shuffle(mine.inverse, 2 * i + half);
            const u32 to = device::shuffle(target, 2 * i + half) + column;
            const F32x2 a = device::bf16x2_to_float(raw[i].x), b = device::bf16x2_to_float(raw[i].y);
            const F32x2 c = device::bf16x2_to_float(raw[i].z), d = device::bf16x2_to_float(raw[i].w);
            if (valid(args, first + 2 * i + half)) {
                *reinterpret_cast<U32x2*>(s.x[0] + to) = {
                    device::float_to_e4m3x4(a.x * inverse, a.y * inverse, b.x * inverse, b.y * inverse),
                    device::float_to_e4m3x4(c.x * inverse, c.y * inverse, d.x * inverse, d.y * inverse)};
            }
        }
        const bool mine_valid = lane < kPairs && valid(args, first + lane);
        if (mine_valid) s.x_scale[block][token] = mine.scale;
        device::sync_warp();
        if (mine_valid) device::mbarrier_arrive(&s.barrier.x_ready[block / schedule::UpStage::kColumnBlocks]);
    }
};

// Quantizes claims until none is left. One warp; all warps that call it share the claims. The MMA warps' first claims
// are theirs by number and come loaded; those of other warps come empty (first is beyond the last pair).
//   Reads     args.x
//   Writes    x, x_scale, next_pair
//   Waits on  -
//   Signals   x_ready of the stage that a pair's block belongs to
//
// The next claim travels while one is quantized: once the weight stream has started, loads queue behind it.
MONOMOE_DEVICE void quantize_inputs(const Args& args, SharedStorage& s, QuantizeClaim& claim, u32 lane) {
#pragma unroll 1
    for (;;) {
        u32 pair = 0;
        if (lane == 0) pair = device::shared_atomic_add(&s.next_pair, QuantizeClaim::kPairs);
        pair = device::shuffle(pair, 0);
        const bool more = QuantizeClaim::valid(args, pair);
        const QuantizeClaim current = claim;
        if (more) claim.load(args, pair, lane);
        if (current.valid(args)) current.quantize(args, s, lane);
        if (!more) return;
    }
}
