// Requantization of h and the down projection.
#pragma once

#include "ops/handoff.cuh"
#include "ops/product.cuh"
#include "ops/quantize.cuh"
#include "ops/stream.cuh"
#include "ops/trace.cuh"

// Warps that share the rows of one h slot.
constexpr u32 kSlotWarps = schedule::kRequantWarps / schedule::kHSlots;

// Polls one row of h until all of it has arrived. Lane l gets columns 128 * b + 4 * l ... of block b.
MONOMOE_DEVICE void receive_row(F32x4 (&row)[schedule::kIntermediateBlocks], const float* source, u32 lane) {
    const device::Watchdog watchdog;
    for (;;) {
        bool arrived = true;
#pragma unroll
        for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) {
            row[b] = device::load_relaxed(reinterpret_cast<const F32x4*>(source + b * schedule::kScaleBlock) + lane);
        }
#pragma unroll
        for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) arrived = arrived && has_arrived(row[b]);
        if (device::all(arrived)) return;
        watchdog.check();
    }
}

// Stores a row of h as bf16, lane l its columns of receive_row.
MONOMOE_DEVICE void round_row(shape::Activation* target, const F32x4 (&row)[schedule::kIntermediateBlocks], u32 lane) {
    const auto pair = [](float low, float high) { return u32{device::float_to_bf16(low)} | u32{device::float_to_bf16(high)} << 16; };
#pragma unroll
    for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) {
        const F32x4 v = row[b];
        *reinterpret_cast<U32x2*>(target + b * schedule::kScaleBlock + 4 * lane) = {pair(v.x, v.y), pair(v.z, v.w)};
    }
}

// Requantizes h of the experts of this CTA's down group into the slots. One requant warp; warp r serves slot
// r % kHSlots, so every slot has the same warps as producers in every phase. h that is not quantized is rounded to bf16.
//   Reads     rows of h in the workspace, w2_scale, active, selected, weight
//   Writes    h, h_scale
//   Waits on  listed, numbered and weighted (the caller did), the rows of h, h_empty
//   Signals   h_full
MONOMOE_DEVICE void requantize(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 warp, u32 lane) {
    constexpr u32 kBlocks = schedule::kIntermediateBlocks;
    constexpr u32 kScales = schedule::kDownScaleRows * kBlocks;  // <= 32
    const HandOff handoff = HandOff::of(args, s.epoch);
    const DownShare share = DownShare::of(cta, s.active_count);
    const u32 slot = warp % schedule::kHSlots, part = warp / schedule::kHSlots;
    const u32 scale_row = share.stripe * schedule::kStripeDown / schedule::kScaleBlock + lane / kBlocks;
    const bool has_scale = lane < kScales && scale_row < schedule::kHiddenBlocks;
#pragma unroll 1
    for (u32 local = slot, round = 0; local < share.count; local += schedule::kHSlots, ++round) {
        const ActiveExpert expert = s.active[share.expert(local)];
        const float weight_scale =
            has_scale ? device::load_input(args.w2_scale + (expert.expert * schedule::kHiddenBlocks + scale_row) * kBlocks + lane % kBlocks)
                      : 0.f;
        if (round) device::mbarrier_wait(&s.barrier.h_empty[slot], (round - 1) & 1);
        u32 rank = 0;
#pragma unroll 1
        for (u32 left = expert.tokens; left; left &= left - 1, ++rank) {
            if (rank % kSlotWarps != part) continue;
            const u32 token = device::lowest_bit(left);
            const bool here = lane < shape::kTokenExperts && s.selected[token][lane] == expert.expert;
            const float routing_weight = s.weight[token][device::lowest_bit(device::ballot(here))];
            F32x4 row[kBlocks];
            receive_row(row, handoff.h_row(expert.first_row + rank), lane);
            if constexpr (!shape::quantizes()) {
                round_row(s.h[slot][token], row, lane);
                if (lane < kScales) s.h_scale[slot][lane / kBlocks][lane % kBlocks][token] = weight_scale * routing_weight;
                continue;
            }
            u32 my_amax = 0;  // of block lane % kBlocks
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
                *reinterpret_cast<u32*>(&s.h[slot][token][b * schedule::kScaleBlock + 4 * lane]) =
                    device::float_to_e4m3x4(v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse);
            }
            if (lane < kScales) s.h_scale[slot][lane / kBlocks][lane % kBlocks][token] = mine.scale * weight_scale * routing_weight;
        }
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.h_full[slot]);
        trace.mark(Event::kRequantized, local);
    }
}

using OutputSums = float[schedule::DownStage::kAccumulators][schedule::kTokenTiles][4];

// Adds weight * (h @ w2^T) of this CTA's experts to the sums of its output stripe. One MMA warp.
//   Reads     ring, h, h_scale, active
//   Writes    -
//   Waits on  full, h_full
//   Signals   empty, h_empty
MONOMOE_DEVICE void down_project(SharedStorage& s, RingReader& ring, Tracer& trace, OutputSums& sums, const DownShare& share,
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
            if (present && k == 0) device::mbarrier_wait(&s.barrier.h_full[slot], (mine / schedule::kHSlots) & 1);
            if (k == 0) trace.mark(Event::kHReady, local);
            ring.wait(s);
            trace.mark(Event::kStageFull, local);
            if (present) {
#pragma unroll
                for (u32 i = 0; i < Stage::kWarpBlocks; ++i) {
                    const u32 block = warp + i * schedule::kMmaWarps;
                    if (Stage::kBlocks % schedule::kMmaWarps && block >= Stage::kBlocks) break;
                    const u32 in_expert = block % Stage::kExpertBlocks;
                    const u32 tile = in_expert / Stage::kColumnBlocks;
                    const u32 column = k * Stage::kColumnBlocks + in_expert % Stage::kColumnBlocks;
                    const u32 scale_row = (first_row + tile * schedule::kRowTile) / schedule::kScaleBlock - first_row / schedule::kScaleBlock;
                    float product[schedule::kTokenTiles][4];
                    const SharedRows<shape::kIntermediate + schedule::kRowPad> rows = {s.h[slot][0] + column * schedule::kScaleBlock};
                    multiply_block(product, ring.block<Stage>(s, block, lane), rows, tokens, lane);
#pragma unroll
                    for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
                        const u32 token = 8 * t + 2 * q;
                        const F32x2 scale = *reinterpret_cast<const F32x2*>(&s.h_scale[slot][scale_row][column][token]);
                        float(&sum)[4] = sums[Stage::accumulator(i)][t];
                        // Rows of tokens that are not routed hold anything, NaN included.
                        if (tokens >> token & 1) {
                            sum[0] += product[t][0] * scale.x;
                            sum[2] += product[t][2] * scale.x;
                        }
                        if (tokens >> token & 2) {
                            sum[1] += product[t][1] * scale.y;
                            sum[3] += product[t][3] * scale.y;
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
