// The output: sums of the MMA warps, then of the down groups, each in a fixed order; written once as bf16.
#pragma once

#include "device/cluster.cuh"
#include "ops/down_proj.cuh"
#include "ops/up_proj.cuh"

constexpr u32 kMmaThreads = schedule::kMmaWarps * 32;

MONOMOE_DEVICE float receive_partial(const float* source, u64 limit_ns) {
    const device::Watchdog watchdog{limit_ns};
    float value;
    while (!has_arrived(value = device::load_relaxed(source))) watchdog.check();
    return value;
}

// One value of the output stripe.
struct OutputPlace {
    u32 token, row;

    MONOMOE_DEVICE explicit OutputPlace(u32 index) : token(index / schedule::kStripeDown), row(index % schedule::kStripeDown) {}
    // Where its partial sums lie: lane 4g+q of a tile holds rows g and g+8 of columns 2q and 2q+1.
    MONOMOE_DEVICE u32 tile() const { return row / schedule::kRowTile; }
    MONOMOE_DEVICE u32 lane() const { return row % 8 * 4 + token % 8 / 2; }
    MONOMOE_DEVICE u32 component() const { return row % schedule::kRowTile / 8 * 2 + token % 2; }
};

// Values that a thread reduces side by side: one after the other their latencies would add up.
constexpr u32 kOutputRounds = (schedule::kTokenTile * schedule::kStripeDown + kMmaThreads - 1) / kMmaThreads;
constexpr u32 kOutputsAtOnce = kOutputRounds < 4 ? kOutputRounds : 4;

// Reduces and stores this CTA's output stripe. All MMA warps.
//   Reads     sums; peer_sums, or the other groups' partial outputs
//   Writes    down partials; args.y, or this group's partial output or peer_sums of the other CTA
//   Waits on  partial_empty; peer_summed and the start of the other CTA, or the partial outputs
//   Signals   peer_summed of the other CTA, or the partial output itself
MONOMOE_DEVICE void combine(const Args& args, SharedStorage& s, const OutputSums& sums, const DownShare& share, u32 units,
                            u32 warp, u32 lane) {
    using Stage = schedule::DownStage;
    drain_partials(args, s, units);
#pragma unroll
    for (u32 t = 0; t < schedule::kTokenTiles; ++t) store_partials(s.down[t], sums[t], warp, lane);
    device::sync_named(NamedBarrier::kOutput, kMmaThreads);
    if constexpr (schedule::kPaired) {
        if (share.group > 0) {
            device::cluster_wait();  // the peer has made its barriers
        } else if (warp == 0 && lane == 0) {
            device::mbarrier_arrive_expect(&s.barrier.peer_summed, args.tokens * schedule::kStripeDown * static_cast<u32>(sizeof(float)));
        }
    }
    const HandOff handoff = HandOff::of(args, s.epoch);
    const u32 values = args.tokens * schedule::kStripeDown, first_column = share.stripe * schedule::kStripeDown;
#pragma unroll 1
    for (u32 first = warp * 32 + lane; first < values; first += kOutputsAtOnce * kMmaThreads) {
        float sum[kOutputsAtOnce];
#pragma unroll
        for (u32 n = 0; n < kOutputsAtOnce; ++n) {
            const u32 index = first + n * kMmaThreads;
            sum[n] = 0.f;
            if (index >= values) continue;
            const OutputPlace at(index);
#pragma unroll
            for (u32 c = 0; c < Stage::kContributions; ++c) {
                const auto from = Stage::contribution(at.tile(), c);
                sum[n] += reinterpret_cast<const float*>(&s.down[at.token / 8][from.warp][from.accumulator][at.lane()])[at.component()];
            }
            if (share.group == 0) continue;
            if constexpr (schedule::kPaired) {
                device::store_remote(&s.peer_sums[at.token][at.row], sum[n], &s.barrier.peer_summed, 0);
            } else {
                device::store_relaxed(handoff.partial(args.tokens, share.group, at.token) + first_column + at.row, never_zero(sum[n]));
            }
        }
        if (share.group > 0) continue;
        if constexpr (schedule::kPaired) device::mbarrier_wait_cluster(&s.barrier.peer_summed, 0, args.wait_limit_ns);
#pragma unroll
        for (u32 n = 0; n < kOutputsAtOnce; ++n) {
            const u32 index = first + n * kMmaThreads;
            if (index >= values) continue;
            const OutputPlace at(index);
            if constexpr (schedule::kPaired) {
                sum[n] += s.peer_sums[at.token][at.row];
            } else {
#pragma unroll 1
                for (u32 group = 1; group < schedule::kDownGroups; ++group) {
                    sum[n] += receive_partial(handoff.partial(args.tokens, group, at.token) + first_column + at.row, args.wait_limit_ns);
                }
            }
            args.y[at.token * shape::kHidden + first_column + at.row] = device::float_to_bf16(sum[n]);
        }
    }
}
