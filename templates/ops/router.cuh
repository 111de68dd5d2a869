// The router inside (kRouterWeight): logits = x @ router^T, every logit by one CTA of the grid, for all CTAs.
//
// A logit is the fp32 sum of exact products: lane l of MMA warp w adds the columns 2048i + 256w + 8l + 0 ... 7 for
// i = 0, 1, ..., in this order; lanes are added as a balanced tree, neighbours first; then the warps in order. So its
// bits depend on nothing but the token, the expert and kHidden.
#pragma once

#include "device/warp.cuh"
#include "ops/handoff.cuh"
#include "ops/given.cuh"

constexpr u32 kRouterExperts = 2, kRouterTokens = 8;  // whose logits are summed at a time
constexpr u32 kRouterChunk = 32 * 8;  // columns of a warp at a time
constexpr u32 kRouterRounds = (shape::kHidden + kRouterChunk * schedule::kMmaWarps - 1) / (kRouterChunk * schedule::kMmaWarps);

// A lane's eight columns of a row of kHidden bf16 values; zeros where the row has ended.
MONOMOE_DEVICE U32x4 load_router_columns(const device::Bf16* row, u32 round, u32 warp, u32 lane) {
    const u32 column = (round * schedule::kMmaWarps + warp) * kRouterChunk + lane * 8;
    U32x4 eight = {0, 0, 0, 0};
    if (column < shape::kHidden) eight = load_given(reinterpret_cast<const U32x4*>(row + column));
    return eight;
}

// A warp's columns of the router weights of experts `first` and `first` + kGrid, at most kRouterAhead rounds of them.
constexpr u32 kRouterAhead = kRouterRounds < 2 ? kRouterRounds : 2;

struct RouterRows {
    U32x4 part[kRouterAhead][kRouterExperts];

    MONOMOE_DEVICE void load(const Args& args, u32 first, u32 slot, u32 round, u32 warp, u32 lane) {
#pragma unroll
        for (u32 e = 0; e < kRouterExperts; ++e) {
            const u32 expert = first + e * schedule::kGrid;
            part[slot][e] = {0, 0, 0, 0};
            if (expert < shape::kExperts) part[slot][e] = load_router_columns(args.router + expert * shape::kHidden, round, warp, lane);
        }
    }
    MONOMOE_DEVICE void load(const Args& args, u32 first, u32 warp, u32 lane) {
#pragma unroll
        for (u32 round = 0; round < kRouterAhead; ++round) load(args, first, round, round, warp, lane);
    }
};

MONOMOE_DEVICE void add_products(float& sum, const U32x4& a, const U32x4& b) {
    const u32 left[4] = {a.x, a.y, a.z, a.w}, right[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        const F32x2 l = device::bf16x2_to_float(left[i]), r = device::bf16x2_to_float(right[i]);
        sum += l.x * r.x;
        sum += l.y * r.y;
    }
}

// Adds each of 16 values over the lanes. Lane l < 16 gets the one whose number has the bits of l in reverse.
MONOMOE_DEVICE float sum_over_lanes(float (&value)[16], u32 lane) {
#pragma unroll
    for (u32 mask = 1, half = 8; half; mask *= 2, half /= 2) {
        const bool high = lane & mask;
#pragma unroll
        for (u32 i = 0; i < half; ++i) {
            const float other = device::shuffle_xor(high ? value[i] : value[i + half], mask);
            value[i] = (high ? value[i + half] : value[i]) + other;
        }
    }
    return value[0] + device::shuffle_xor(value[0], 16);
}

// Computes this CTA's logits, those of experts cta, cta + kGrid, ...; `rows` comes loaded with the first two. All MMA
// warps.
//   Reads     args.x, args.router
//   Writes    router partials; logits in this launch's half of the workspace
//   Waits on  -
//   Signals   the logits themselves
MONOMOE_DEVICE void compute_logits(const Args& args, SharedStorage& s, RouterRows& rows, u32 cta, u32 warp, u32 lane) {
    constexpr u32 kThreads = schedule::kMmaWarps * 32;
    static_assert(kRouterExperts * kRouterTokens == 16, "as many as sum_over_lanes takes");
    const HandOff handoff = HandOff::of(args, s.epoch);
#pragma unroll 1
    for (u32 first = cta; first < shape::kExperts; first += kRouterExperts * schedule::kGrid) {
        if (first != cta) rows.load(args, first, warp, lane);
#pragma unroll 1
        for (u32 first_token = 0; first_token < args.tokens; first_token += kRouterTokens) {
            float sums[kRouterExperts * kRouterTokens] = {};
#pragma unroll
            for (u32 round = 0; round < kRouterRounds; ++round) {
                U32x4 columns[kRouterTokens];
#pragma unroll
                for (u32 t = 0; t < kRouterTokens; ++t) {
                    const u32 token = first_token + t;
                    columns[t] = {0, 0, 0, 0};
                    if (token < args.tokens) columns[t] = load_router_columns(args.x + token * shape::kHidden, round, warp, lane);
                }
#pragma unroll
                for (u32 t = 0; t < kRouterTokens; ++t) {
                    if (first_token + t >= args.tokens) break;
#pragma unroll
                    for (u32 e = 0; e < kRouterExperts; ++e) add_products(sums[e * kRouterTokens + t], columns[t], rows.part[kRouterRounds > kRouterAhead ? 0 : round][e]);
                }
                if constexpr (kRouterRounds > kRouterAhead) {  // round after round, and again for the next tokens
                    for (u32 e = 0; e < kRouterExperts; ++e) rows.part[0][e] = rows.part[kRouterAhead - 1][e];
                    const u32 next = round + kRouterAhead;
                    if (next < kRouterRounds || first_token + kRouterTokens < args.tokens) {
                        rows.load(args, first, kRouterAhead - 1, next % kRouterRounds, warp, lane);
                    }
                }
            }
            const float sum = sum_over_lanes(sums, lane);
            const u32 mine = (lane & 1) * 8 + (lane & 2) * 2 + (lane & 4) / 2 + (lane & 8) / 8;
            if (lane < 16) s.routing.router[warp][mine] = sum;
            device::sync_named(NamedBarrier::kLogits, kThreads);
            const u32 expert = first + lane / kRouterTokens * schedule::kGrid, token = first_token + lane % kRouterTokens;
            if (warp == 0 && lane < 16 && expert < shape::kExperts && token < args.tokens) {
                float logit = 0.f;
#pragma unroll
                for (u32 w = 0; w < schedule::kMmaWarps; ++w) logit += s.routing.router[w][lane];
                if constexpr (sizeof(shape::Logit) == 2) logit = device::bf16_to_float(device::float_to_bf16(logit));
                device::store_relaxed(handoff.logits(args.tokens, token) + expert, never_zero(logit));
            }
            device::sync_named(NamedBarrier::kLogits, kThreads);
        }
    }
}
