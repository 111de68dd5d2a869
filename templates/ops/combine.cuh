// The output: sums of the MMA warps, then of the down groups, each in a fixed order; written once as bf16.
#pragma once

#include "device/cluster.cuh"
#include "ops/down_proj.cuh"
#include "ops/up_proj.cuh"

// Lane 4g+q's four values of a tile of the output stripe, in the order of an MMA's sums: row g of the tokens 2q and
// 2q+1, then row g+8 of both.
struct OutputPlace {
    u32 first_token, first_row;

    MONOMOE_DEVICE OutputPlace(u32 token_tile, u32 tile, u32 lane)
        : first_token(token_tile * schedule::kColumns + lane % 4 * 2), first_row(tile * schedule::kRowTile + lane / 4) {}
    MONOMOE_DEVICE u32 token(u32 c) const { return first_token + c % 2; }
    MONOMOE_DEVICE u32 row(u32 c) const { return first_row + c / 2 * 8; }
};

// Adds what the other groups have summed, group by group, as it comes.
MONOMOE_DEVICE void receive_partials(float (&sum)[4], const HandOff& handoff, const OutputPlace& at, u32 first_column, const Args& args) {
#pragma unroll 1
    for (u32 group = 1; group < schedule::kDownGroups; ++group) {
        const device::Watchdog watchdog{args.wait_limit_ns};
        for (;;) {
            float value[4] = {1.f, 1.f, 1.f, 1.f};  // of tokens that are not there
#pragma unroll
            for (u32 c = 0; c < 4; ++c) {
                if (at.token(c) < args.tokens) value[c] = device::load_relaxed(handoff.partial(args.tokens, group, at.token(c)) + first_column + at.row(c));
            }
            if (least_word(F32x4{value[0], value[1], value[2], value[3]}) != 0) {
#pragma unroll
                for (u32 c = 0; c < 4; ++c) sum[c] += value[c];
                break;
            }
            watchdog.check();
        }
    }
}

// Reduces and stores this CTA's output stripe, a tile by each warp in turn. All MMA warps.
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
    device::sync_named(NamedBarrier::kOutput, schedule::kMmaWarps * 32);
    if constexpr (schedule::kPaired) {
        if (share.group > 0) {
            device::cluster_wait();  // the peer has made its barriers
        } else if (warp == 0 && lane == 0) {
            const u32 values = (args.tokens + args.tokens % 2) * schedule::kStripeDown;  // lanes send those of two tokens
            device::mbarrier_arrive_expect(&s.barrier.peer_summed, values * static_cast<u32>(sizeof(float)));
        }
    }
    const HandOff handoff = HandOff::of(args, s.epoch);
    const u32 first_column = share.stripe * schedule::kStripeDown;
#pragma unroll 1
    for (u32 index = warp; index < schedule::kTokenTiles * Stage::kTiles; index += schedule::kMmaWarps) {
        const u32 token_tile = index / Stage::kTiles, tile = index % Stage::kTiles;
        const OutputPlace at(token_tile, tile, lane);
        if (at.first_token >= args.tokens) continue;
        const F32x4 own = sum_contributions<Stage>(s.down[token_tile], tile, lane);
        float sum[4] = {own.x, own.y, own.z, own.w};
        if constexpr (schedule::kPaired) {
            F32x4& theirs = s.peer_sums[token_tile][tile][lane];
            if (share.group > 0) {
                device::store_remote(&theirs, own, &s.barrier.peer_summed, 0);
                continue;
            }
            device::mbarrier_wait_cluster(&s.barrier.peer_summed, 0, args.wait_limit_ns);
            sum[0] += theirs.x;
            sum[1] += theirs.y;
            sum[2] += theirs.z;
            sum[3] += theirs.w;
        } else if (share.group == 0) {
            receive_partials(sum, handoff, at, first_column, args);
        }
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
            if (at.token(c) >= args.tokens) continue;
            const u32 column = first_column + at.row(c);
            if (share.group > 0) {
                device::store_relaxed(handoff.partial(args.tokens, share.group, at.token(c)) + column, never_zero(sum[c]));
            } else {
                args.y[at.token(c) * shape::kHidden + column] = device::float_to_bf16(sum[c]);
            }
        }
    }
}
