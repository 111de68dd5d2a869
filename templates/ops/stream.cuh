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
    // Units of a CTA.
    MONOMOE_DEVICE static u32 count(u32 cta, u32 active_count) {
        const u32 units = active_count * schedule::kGUp;
        return cta < units ? (units - cta - 1) / schedule::kGrid + 1 : 0;
    }
    // The round in which the last unit of an expert is multiplied; a CTA has a unit of each round until it has none.
    MONOMOE_DEVICE static u32 last_round(u32 expert) { return ((expert + 1) * schedule::kGUp - 1) / schedule::kGrid; }
};

// Down-projection: CTA c owns output stripe c / kDownGroups for the active experts of its group c mod kDownGroups,
// which are group, group + kDownGroups, ... The CTAs left over have no part in it.
struct DownShare {
    u32 group;
    u32 stripe;
    u32 count;  // experts

    MONOMOE_DEVICE static DownShare of(u32 cta, u32 active_count) {
        const u32 group = cta % schedule::kDownGroups;
        const u32 stripe = cta / schedule::kDownGroups;
        if (stripe >= schedule::kGDown || group >= active_count) return {group, stripe, 0};
        return {group, stripe, (active_count - group + schedule::kDownGroups - 1) / schedule::kDownGroups};
    }
    MONOMOE_DEVICE bool owns_output() const { return stripe < schedule::kGDown; }
    // Position in `active` of the local-th expert.
    MONOMOE_DEVICE u32 expert(u32 local) const { return group + local * schedule::kDownGroups; }
};

// One expert's stripe as the copy engine sees it: the part of it in a stage is kCount runs of kBytes, which lie kPitch
// bytes apart in memory and one after the other in the ring. Packed, a run is of a tile; raw, of a row. Raw stripes of
// w13 are two, one of gate rows and one of up rows.
template <typename Stage, u32 kStripes, u32 kStages>
struct Runs {
    static constexpr u32 kParts = schedule::kRaw && Stage::kIsUp ? 2 : 1;
    static constexpr u32 kCount = Stage::kTiles * (schedule::kRaw ? schedule::kRowTile / kParts : 1);
    static constexpr u32 kBytes = Stage::kExpertBlocks * schedule::kBlockBytes / (kParts * kCount);
    static constexpr u32 kPitch = kStages * kBytes;
    static constexpr u32 kPartBytes = kCount * kBytes;
    static constexpr u64 kPartPitch = u64{kStripes} * kCount * kPitch;
    static constexpr u32 kUnroll = schedule::kRaw ? 8 : 1;  // runs of rows are many and short

    // Where the first stage of a stripe begins; every stage is kBytes further.
    MONOMOE_DEVICE static const u8* source(const u8* weights, u64 expert, u32 stripe) {
        return weights + expert * (kParts * kPartPitch) + stripe * (kCount * kPitch);
    }
    MONOMOE_DEVICE static void request(RingWriter& ring, u32 at, const u8* source) {
#pragma unroll
        for (u32 part = 0; part < kParts; ++part, at += kPartBytes, source += kPartPitch) {
            if constexpr (kStages == 1) {
                ring.copy<kPartBytes>(at, source);
            } else {
#pragma unroll kUnroll
                for (u32 run = 0; run < kCount; ++run) ring.copy<kBytes>(at + run * kBytes, source + run * kPitch);
            }
        }
    }
};

using UpRuns = Runs<schedule::UpStage, schedule::kGUp, schedule::kStagesPerUnitUp>;
using DownRuns = Runs<schedule::DownStage, schedule::kGDown, schedule::kStagesPerExpertDown>;

// Stages of a CTA's first unit that are requested before the list is written, if the unit is of a lead: 32 KB take as
// long as writing it; one stage if it is larger.
constexpr u32 early_stages() {
    using Up = schedule::UpStage;
    constexpr u32 kMost = Up::kBytes < 32 * 1024 ? 32 * 1024 / Up::kBytes : 1;
    constexpr u32 kStages = schedule::kStagesPerUnitUp < Up::kInFlight ? schedule::kStagesPerUnitUp : Up::kInFlight;
    return kStages < kMost ? kStages : kMost;
}

// Requests the early stages of this CTA's first unit, of `expert`, into the empty ring. One thread.
//   Reads     -
//   Writes    ring
//   Waits on  -
//   Signals   full
MONOMOE_DEVICE void stream_early(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 expert) {
    RingWriter ring(args, s);
    const u8* source = UpRuns::source(args.w13, expert, UpUnit::first(cta).stripe());
#pragma unroll
    for (u32 k = 0; k < early_stages(); ++k, source += UpRuns::kBytes) {
        ring.announce(schedule::UpStage::kBytes);
        UpRuns::request(ring, 0, source);
        ring.close<schedule::UpStage>();
        trace.mark(Event::kIssued);
    }
}

// Requests all weights of this CTA, up-projection first, but for those that stream_early has requested because the
// first unit is of a lead. One thread.
//   Reads     active, active_count (its own warp wrote them)
//   Writes    ring
//   Waits on  empty, full
//   Signals   full
MONOMOE_DEVICE void stream_weights(const Args& args, SharedStorage& s, Tracer& trace, u32 cta) {
    const u32 active_count = s.active_count;
    RingWriter ring(args, s);

    using Up = schedule::UpStage;
    u32 k = 0;
    if (UpUnit::first(cta).expert() < schedule::kLeads) {
#pragma unroll
        for (; k < early_stages(); ++k) ring.close<Up>();
    }
    for (UpUnit unit = UpUnit::first(cta); unit.valid(active_count); unit.advance()) {
        const u8* source = UpRuns::source(args.w13, s.active[unit.expert()].expert, unit.stripe()) + k * UpRuns::kBytes;
#pragma unroll 1
        for (; k < schedule::kStagesPerUnitUp; ++k, source += UpRuns::kBytes) {
            ring.open<Up>(Up::kBytes);
            UpRuns::request(ring, 0, source);
            ring.close<Up>();
            trace.mark(Event::kIssued);
        }
        k = 0;
    }

    using Down = schedule::DownStage;
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
                const u8* const source = DownRuns::source(args.w2, s.active[share.expert(local + e)].expert, share.stripe);
                DownRuns::request(ring, e * kExpertBytes, source + k * DownRuns::kBytes);
            }
            ring.close<Down>();
            trace.mark(Event::kIssued);
        }
    }
}
