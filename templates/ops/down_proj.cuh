// Requantization of h and the down projection.
#pragma once

#include "device/clock.cuh"
#include "ops/handoff.cuh"
#include "ops/product.cuh"
#include "ops/quantize.cuh"
#include "ops/stream.cuh"
#include "ops/trace.cuh"

// A row of h. Lane l has the columns 128 * b + 4 * l ... of block b.
using HRow = F32x4[schedule::kIntermediateBlocks];

// Cycles from the beginning of an up unit until rows of h may be asked for: those of the round before, and, in the last
// unit, those of its own round. So far behind is the slowest CTA, and a row that is not there when it is asked for comes
// a trip later and delays what others wait for. A CTA's share of the memory's bandwidth is 18 bytes a cycle, so in the
// second case the unit is nearly over. Both are the best of several that were measured (templates/README.md, 73).
constexpr u32 kUnitBytes = schedule::kStagesPerUnitUp * schedule::UpStage::kBytes;
constexpr u32 ask_after(u32 cycles) { return cycles > 512 ? cycles - 256 : 256; }
constexpr u32 kAskBefore = ask_after(kUnitBytes / 32);
constexpr u32 kAskLast = ask_after(kUnitBytes / 18);

// Asks for a row that may not be there yet.
MONOMOE_DEVICE void load_row(HRow& row, const float* source, u32 lane) {
#pragma unroll
    for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) {
        row[b] = device::load_relaxed(reinterpret_cast<const F32x4*>(source + b * schedule::kScaleBlock) + lane);
    }
}

MONOMOE_DEVICE bool row_has_arrived(const HRow& row) {
    u32 least = 0xffffffffu;
#pragma unroll
    for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) least = device::minimum(least, least_word(row[b]));
    return device::all(least != 0);
}

// Asks again until all of a row that was asked for has arrived.
MONOMOE_DEVICE void receive_row(HRow& row, const float* source, u32 lane, u64 limit_ns) {
    if (row_has_arrived(row)) return;
    const device::Watchdog watchdog{limit_ns};
    for (;;) {
        load_row(row, source, lane);
        if (row_has_arrived(row)) return;
        watchdog.check();
    }
}

// Stores a row of h as bf16.
MONOMOE_DEVICE void round_row(shape::Activation* target, const HRow& row, u32 lane) {
    const auto pair = [](float low, float high) { return u32{device::float_to_bf16(low)} | u32{device::float_to_bf16(high)} << 16; };
#pragma unroll
    for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) {
        const F32x4 v = row[b];
        *reinterpret_cast<U32x2*>(target + b * schedule::kScaleBlock + 4 * lane) = {pair(v.x, v.y), pair(v.z, v.w)};
    }
}

// Stores a row of h as e4m3. Returns the scale of block lane % kIntermediateBlocks.
MONOMOE_DEVICE float quantize_row(shape::Activation* target, const HRow& row, u32 lane) {
    constexpr u32 kBlocks = schedule::kIntermediateBlocks;
    u32 my_amax = 0;
#pragma unroll
    for (u32 b = 0; b < kBlocks; ++b) {
        const F32x4 v = row[b];
        const float high = device::maximum(device::maximum(device::absolute(v.x), device::absolute(v.y)),
                                           device::maximum(device::absolute(v.z), device::absolute(v.w)));
        const u32 amax = device::reduce_max(device::float_to_bits(high));
        my_amax = lane % kBlocks == b ? amax : my_amax;
    }
    const QuantScale mine = QuantScale::of(device::bits_to_float(my_amax));
#pragma unroll
    for (u32 b = 0; b < kBlocks; ++b) {
        const F32x4 v = row[b];
        const float inverse = device::shuffle(mine.inverse, b);
        *reinterpret_cast<u32*>(target + b * schedule::kScaleBlock + 4 * lane) =
            device::float_to_e4m3x4(v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse);
    }
    return mine.scale;
}

// The rows of h that one requant warp rounds, with all that can be known of them before they are there: little is left
// to do between two rows, each of which is a chain of latencies. Every kTeams-th expert of the share belongs to the same
// kSlotWarps warps, who take its rows in turn, beginning with another one at each expert; so a slot always has the same
// warps. Lane l notes row l % kMost of those that the warp has of expert l / kMost, of kExperts at a time.
struct RowNotes {
    static constexpr u32 kTeams = schedule::kRequantWarps / schedule::kSlotWarps;
    static constexpr u32 kMost = schedule::kColumns / schedule::kSlotWarps;  // rows of an expert that one warp has
    static constexpr u32 kExperts = 32 / kMost;
    static constexpr u32 kStep = kExperts * kTeams;  // from the first expert noted to the first one noted next
    static_assert(schedule::kHSlots % kTeams == 0, "a slot belongs to one team");
    static_assert(shape::kTokenExperts * schedule::kTokenTile <= 0xffff && schedule::kMaxActive <= 0x1fff, "a note holds both");

    u32 place;     // row of the workspace, its expert of the share << 16, its column << 29
    float weight;  // routing weight
    u32 left;      // lanes whose rows are left, as bits

    MONOMOE_DEVICE static u32 row(u32 place) { return place & 0xffffu; }
    MONOMOE_DEVICE static u32 local(u32 place) { return place >> 16 & 0x1fffu; }
    MONOMOE_DEVICE static u32 column(u32 place) { return place >> 29; }

    // Notes the rows of this warp's experts from `first` on.
    MONOMOE_DEVICE void take(const SharedStorage& s, const DownShare& share, u32 first, u32 warp, u32 lane) {
        const u32 local = first + lane / kMost * kTeams;
        const bool valid = local < share.count;
        const ActiveExpert expert = s.active[valid ? share.expert(local) : 0];
        const u32 rank = (warp / kTeams + local / kTeams) % schedule::kSlotWarps + lane % kMost * schedule::kSlotWarps;
        u32 tokens = valid ? expert.tokens : 0;
#pragma unroll
        for (u32 i = 0; i + 1 < schedule::kColumns; ++i) tokens = i < rank ? tokens & (tokens - 1) : tokens;
        const u32 token = tokens ? device::lowest_bit(tokens) : 0;
        place = (expert.first_row + rank) | local << 16 | token % schedule::kColumns << 29;
        u32 which = 0;
#pragma unroll
        for (u32 w = 0; w < schedule::kSelectedWords; ++w) {
            const U32x4 eight = reinterpret_cast<const U32x4*>(s.selected[token])[w];
            const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (u32 i = 0; i < 8; ++i) {
                which = (words[i / 2] >> i % 2 * 16 & 0xffff) == expert.expert ? w * 8 + i : which;
            }
        }
        weight = s.weight[token][which];
        left = device::ballot(tokens != 0);
    }
};

// Requantizes h of the experts of this CTA's down group into the slots. One requant warp. h that is not quantized is
// rounded to bf16.
//   Reads     rows of h in the workspace, w2_scale, active, selected, weight, up_ending_since
//   Writes    h, h_scale
//   Waits on  listed and weighted (the caller did), numbered, up_ending, the rows of h, h_empty
//   Signals   h_full
MONOMOE_DEVICE void requantize(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 warp, u32 lane) {
    constexpr u32 kBlocks = schedule::kIntermediateBlocks;
    constexpr u32 kScales = schedule::kDownScaleRows * kBlocks;  // <= 32
    const HandOff handoff = HandOff::of(args, s.epoch);
    const DownShare share = DownShare::of(cta, s.active_count);
    const u32 scale_row = share.stripe * schedule::kStripeDown / schedule::kScaleBlock + lane / kBlocks;
    const bool has_scale = lane < kScales && scale_row < schedule::kHiddenBlocks;
    const auto wait_empty = [&](u32 local) {
        const u32 use = local / schedule::kHSlots;
        if (use) device::mbarrier_wait(&s.barrier.h_empty[local % schedule::kHSlots], (use - 1) & 1, args.wait_limit_ns);
    };
    const auto scale_of = [&](u32 local) {
        const u32 expert = s.active[share.expert(local)].expert;
        return device::load_input(args.w2_scale + (expert * schedule::kHiddenBlocks + scale_row) * kBlocks + lane % kBlocks);
    };
    device::mbarrier_wait(&s.barrier.numbered, 0, args.wait_limit_ns);
    RowNotes notes;
    u32 first = warp % RowNotes::kTeams;
    notes.take(s, share, first, warp, lane);
    // Waits until rows of an expert may be asked for: in the last unit of this CTA, or in the last but one if the expert
    // is complete by then, some time into it if that is the unit behind the expert's last, or is of the same round. Asking
    // for rows earlier would only compete with the weight stream, and asking for those that find no free slot would gain
    // nothing.
    const u32 rounds = UpUnit::count(cta, s.active_count);
    u32 ending = 2;  // what it has waited for last
    const auto wait_to_ask = [&](u32 local) {
        const u32 round = UpUnit::last_round(share.expert(local));
        const u32 until = local < schedule::kHSlots && round + 2 < rounds ? 1 : 0;
        if (until < ending) device::mbarrier_wait(&s.barrier.up_ending[until], 0, args.wait_limit_ns);
        ending = until;
        if (round + 2 + until >= rounds) device::spin_since(s.up_ending_since[until], round + 1 < rounds ? kAskBefore : kAskLast);
    };
    u32 next = first;  // the first expert that is not published
    // Publishes the experts before `end`, which have all rows of this warp.
    const auto publish = [&](u32 end) {
#pragma unroll 1
        for (; next < end && next < share.count; next += RowNotes::kTeams) {
            wait_empty(next);
            device::sync_warp();
            if (lane == 0) device::mbarrier_arrive(&s.barrier.h_full[next % schedule::kHSlots]);
            trace.mark(Event::kRequantized, next);
        }
    };
    for (; first < share.count; notes.take(s, share, first, warp, lane)) {
#pragma unroll 1
        while (notes.left) {
            const u32 from = device::lowest_bit(notes.left);
            const u32 place = device::shuffle(notes.place, from);
            const u32 local = RowNotes::local(place), column = RowNotes::column(place), slot = local % schedule::kHSlots;
            const float* const source = handoff.h_row(RowNotes::row(place));
            wait_to_ask(local);
            HRow row;
            load_row(row, source, lane);
            float scale = 0.f;
            if (has_scale) scale = scale_of(local);
            const float weight = device::shuffle(notes.weight, from);
            notes.left &= notes.left - 1;
            const u32 behind = device::shuffle(notes.place, device::lowest_bit(notes.left | 1u << 31));
            publish(local);
            receive_row(row, source, lane, args.wait_limit_ns);
            wait_empty(local);
            if constexpr (shape::quantizes()) {
                scale *= quantize_row(s.h[slot][column], row, lane);
            } else {
                round_row(s.h[slot][column], row, lane);
            }
            if (lane < kScales) s.h_scale[slot][lane / kBlocks][lane % kBlocks][column] = scale * weight;
            // At once, and not when the next row is there.
            publish(notes.left ? RowNotes::local(behind) : first + RowNotes::kStep);
        }
        first += RowNotes::kStep;
        publish(first);
    }
}

using OutputSums = float[schedule::kTokenTiles][schedule::DownStage::kAccumulators][4];

// Adds weight * (h @ w2^T) of this CTA's experts to the sums of its output stripe. One MMA warp.
//   Reads     ring, h, h_scale, active
//   Writes    -
//   Waits on  full, h_full
//   Signals   empty, h_empty
MONOMOE_DEVICE void down_project(const Args& args, SharedStorage& s, RingReader& ring, Tracer& trace, OutputSums& sums, const DownShare& share,
                                 u32 warp, u32 lane) {
    using Stage = schedule::DownStage;
    const u32 q = lane % 4;
    const u32 beside = schedule::kExpertsPerStageDown > 1 ? warp / Stage::kExpertBlocks : 0;  // which of a stage's experts
    const u32 first_row = share.stripe * schedule::kStripeDown;
#pragma unroll 1
    for (u32 local = 0; local < share.count; local += schedule::kExpertsPerStageDown) {
        const u32 mine = local + beside;
        const bool present = mine < share.count;
        const u32 slot = mine % schedule::kHSlots;
        const u32 tokens = present ? s.active[share.expert(mine)].tokens : 0;
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerExpertDown; ++k) {
            // The only block of a stage is in registers before h is waited for. More would take too many of them.
            constexpr bool kOnlyBlock = Stage::kWarpBlocks == 1;
            BlockOperand only;
            if constexpr (kOnlyBlock) {
                ring.wait(args, s);
                trace.mark(Event::kStageFull, local);
                if (present && warp < Stage::kBlocks) only = ring.block<Stage>(s, warp, lane);
            }
            if (present && k == 0) device::mbarrier_wait(&s.barrier.h_full[slot], (mine / schedule::kHSlots) & 1, args.wait_limit_ns);
            if (k == 0) trace.mark(Event::kHReady, local);
            if constexpr (!kOnlyBlock) {
                ring.wait(args, s);
                trace.mark(Event::kStageFull, local);
            }
            if (present) {
#pragma unroll
                for (u32 i = 0; i < Stage::kWarpBlocks; ++i) {
                    const u32 block = warp + i * schedule::kMmaWarps;
                    if (Stage::kBlocks % schedule::kMmaWarps && block >= Stage::kBlocks) break;
                    const u32 in_expert = block % Stage::kExpertBlocks;
                    const u32 tile = in_expert / Stage::kColumnBlocks;
                    const u32 column = k * Stage::kColumnBlocks + in_expert % Stage::kColumnBlocks;
                    const u32 scale_row = (first_row + tile * schedule::kRowTile) / schedule::kScaleBlock - first_row / schedule::kScaleBlock;
                    float product[4];
                    const shape::Activation* const first = s.h[slot][lane / 4] + column * schedule::kScaleBlock;
                    multiply_block(product, kOnlyBlock ? only : ring.block<Stage>(s, block, lane), shared_operands(first, lane));
                    const F32x2 scale = *reinterpret_cast<const F32x2*>(&s.h_scale[slot][scale_row][column][2 * q]);
#pragma unroll
                    for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
                        const u32 token = schedule::kColumns * t + 2 * q;
                        float(&sum)[4] = sums[t][Stage::accumulator(i)];
                        // Columns without a token hold anything, NaN included.
                        if (tokens >> token & 1) {
                            sum[0] += product[0] * scale.x;
                            sum[2] += product[2] * scale.x;
                        }
                        if (tokens >> token & 2) {
                            sum[1] += product[1] * scale.y;
                            sum[3] += product[3] * scale.y;
                        }
                    }
                }
            }
            ring.release<Stage>(s, lane);
        }
        if (present && lane == 0) device::mbarrier_arrive(&s.barrier.h_empty[slot]);
        trace.mark(Event::kStageDone, local);
    }
}
