// The output: sums of the MMA warps, then of the down groups, each in a fixed order; written once as bf16.
#pragma once

#include "ops/down_proj.cuh"
#include "ops/up_proj.cuh"

constexpr u32 kMmaThreads = schedule::kMmaWarps * 32;

MONOMOE_DEVICE float receive_partial(const float* source, u64 limit_ns) {
    const device::Watchdog watchdog{limit_ns};
    float value;
    while (!has_arrived(value = device::load_relaxed(source))) watchdog.check();
    return value;
}

// Reduces and stores this CTA's output stripe. All MMA warps.
//   Reads     sums; the other groups' partial outputs
//   Writes    down partials; args.y, or this group's partial output
//   Waits on  partial_empty; the partial outputs
//   Signals   the partial output itself
MONOMOE_DEVICE void combine(const Args& args, SharedStorage& s, const OutputSums& sums, const DownShare& share, u32 units,
                            u32 warp, u32 lane) {
    using Stage = schedule::DownStage;
    drain_partials(args, s, units);
#pragma unroll
    for (u32 t = 0; t < schedule::kTokenTiles; ++t) store_partials(s.down[t], sums[t], warp, lane);
    device::sync_named(NamedBarrier::kOutput, kMmaThreads);
    const HandOff handoff = HandOff::of(args, s.epoch);
#pragma unroll 1
    for (u32 i = warp * 32 + lane; i < args.tokens * schedule::kStripeDown; i += kMmaThreads) {
        const u32 token = i / schedule::kStripeDown, row = i % schedule::kStripeDown;
        const u32 tile = row / schedule::kRowTile, r = row % schedule::kRowTile;
        // Lane 4g+q of a tile holds rows g and g+8 of columns 2q and 2q+1.
        const u32 source_lane = r % 8 * 4 + token % 8 / 2, component = r / 8 * 2 + token % 2;
        float sum = 0.f;
#pragma unroll
        for (u32 c = 0; c < Stage::kContributions; ++c) {
            const auto from = Stage::contribution(tile, c);
            sum += reinterpret_cast<const float*>(&s.down[token / 8][from.warp][from.accumulator][source_lane])[component];
        }
        const u32 column = share.stripe * schedule::kStripeDown + row;
        if (share.group > 0) {
            device::store_relaxed(handoff.partial(args.tokens, share.group, token) + column, never_zero(sum));
            continue;
        }
#pragma unroll 1
        for (u32 group = 1; group < schedule::kDownGroups; ++group) {
            sum += receive_partial(handoff.partial(args.tokens, group, token) + column, args.wait_limit_ns);
        }
        args.y[token * shape::kHidden + column] = device::float_to_bf16(sum);
    }
}
