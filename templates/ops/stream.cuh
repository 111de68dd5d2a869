// Which weights a CTA needs, in which order; the producer that requests them.
#pragma once

#include "ops/ring.cuh"
#include "ops/trace.cuh"

// Up-projection: unit (active expert i, stripe j) belongs to CTA (i * kGUp + j) mod kGrid.
struct UpUnit {
    u32 index;

    MONOMOE_DEVICE static UpUnit first(u32 cta) { return {cta}; }
    MONOMOE_DEVICE void advance() { index += schedule::kGrid; }
    MONOMOE_DEVICE bool valid(u32 active_count) const { return index < active_count * schedule::kGUp; }
    MONOMOE_DEVICE u32 expert() const { return index / schedule::kGUp; }  // position in `active`
    MONOMOE_DEVICE u32 stripe() const { return index % schedule::kGUp; }
};

// Down-projection: CTA c owns output stripe c mod kGDown for the active experts of its group,
// group, group + kDownGroups, ... The CTAs left over have no part in it.
struct DownShare {
    u32 group;
    u32 stripe;
    u32 count;  // experts

    MONOMOE_DEVICE static DownShare of(u32 cta, u32 active_count) {
        const u32 group = cta / schedule::kGDown;
        const u32 stripe = cta % schedule::kGDown;
        if (group >= schedule::kDownGroups || group >= active_count) return {group, stripe, 0};
        return {group, stripe, (active_count - group + schedule::kDownGroups - 1) / schedule::kDownGroups};
    }
    MONOMOE_DEVICE bool owns_output() const { return group < schedule::kDownGroups; }
    // Position in `active` of the local-th expert.
    MONOMOE_DEVICE u32 expert(u32 local) const { return group + local * schedule::kDownGroups; }
};

// Requests all weights of this CTA, up-projection first. One thread.
//   Reads     active, active_count (its own warp wrote them)
//   Writes    ring
//   Waits on  empty
//   Signals   full
MONOMOE_DEVICE void stream_weights(const Args& args, SharedStorage& s, RingWriter& ring, Tracer& trace, u32 cta) {
    constexpr u64 kTileUp = u64{schedule::kHiddenBlocks} * schedule::kBlockBytes;
    constexpr u64 kTileDown = u64{schedule::kIntermediateBlocks} * schedule::kBlockBytes;
    const u32 active_count = s.active_count;

    using Up = schedule::UpStage;
    constexpr u32 kRunUp = Up::kColumnBlocks * schedule::kBlockBytes;
    for (UpUnit unit = UpUnit::first(cta); unit.valid(active_count); unit.advance()) {
        const u64 expert = s.active[unit.expert()].expert;
        const u8* source = args.w13 + (expert * schedule::kGUp + unit.stripe()) * (Up::kTiles * kTileUp);
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerUnitUp; ++k, source += kRunUp) {
            ring.open<Up>(Up::kBytes);
#pragma unroll 1
            for (u32 tile = 0; tile < Up::kTiles; ++tile) ring.copy(tile * kRunUp, source + tile * kTileUp, kRunUp);
            ring.close<Up>();
            trace.mark(Event::kIssued);
        }
    }

    using Down = schedule::DownStage;
    constexpr u32 kRunDown = Down::kColumnBlocks * schedule::kBlockBytes;
    constexpr u32 kExpertBytes = Down::kExpertBlocks * schedule::kBlockBytes;
    const DownShare share = DownShare::of(cta, active_count);
#pragma unroll 1
    for (u32 local = 0; local < share.count; local += schedule::kExpertsPerStageDown) {
        const u32 left = share.count - local;
        const u32 experts = left < schedule::kExpertsPerStageDown ? left : schedule::kExpertsPerStageDown;
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerExpertDown; ++k) {
            ring.open<Down>(experts * kExpertBytes);
#pragma unroll 1
            for (u32 e = 0; e < experts; ++e) {
                const u64 expert = s.active[share.expert(local + e)].expert;
                const u8* source = args.w2 + (expert * schedule::kGDown + share.stripe) * (Down::kTiles * kTileDown);
                if constexpr (schedule::kStagesPerExpertDown == 1) {
                    ring.copy(e * kExpertBytes, source, kExpertBytes);
                } else {
#pragma unroll 1
                    for (u32 tile = 0; tile < Down::kTiles; ++tile) {
                        ring.copy(tile * kRunDown, source + tile * kTileDown + k * kRunDown, kRunDown);
                    }
                }
            }
            ring.close<Down>();
            trace.mark(Event::kIssued);
        }
    }
}
