// Gate and up projection, SwiGLU, and the publication of h.
#pragma once

#include "ops/handoff.cuh"
#include "ops/copy_input.cuh"
#include "ops/product.cuh"
#include "ops/stream.cuh"
#include "ops/trace.cuh"

// The weight scales of one row block over all of H, spread over the lanes.
struct ScaleRow {
    static constexpr u32 kRegisters = (schedule::kHiddenBlocks + 31) / 32;
    float values[kRegisters];

    MONOMOE_DEVICE void load(const float* row, u32 lane) {
#pragma unroll
        for (u32 r = 0; r < kRegisters; ++r) {
            const u32 block = r * 32 + lane;
            values[r] = block < schedule::kHiddenBlocks ? device::load_input(row + block) : 0.f;
        }
    }
    MONOMOE_DEVICE float at(u32 block) const {
        float value = values[0];
#pragma unroll
        for (u32 r = 1; r < kRegisters; ++r) value = block / 32 == r ? values[r] : value;
        return device::shuffle(value, block % 32);
    }
};

// The gate and the up scales of a unit: its stripe lies in one row block of either.
struct UnitScales {
    ScaleRow gate, up;

    MONOMOE_DEVICE void load(const Args& args, const SharedStorage& s, UpUnit unit, u32 lane) {
        const u32 row_block = unit.stripe() * (schedule::kStripeUp / 2) / schedule::kScaleBlock;
        const u32 expert = s.active[unit.expert()].expert;
        const float* const rows = args.w13_scale + expert * (2 * schedule::kIntermediateBlocks * schedule::kHiddenBlocks);
        gate.load(rows + row_block * schedule::kHiddenBlocks, lane);
        up.load(rows + (schedule::kIntermediateBlocks + row_block) * schedule::kHiddenBlocks, lane);
    }
};

// The input of a column block, where it lies in shared memory.
using InputRows = SharedRows<shape::kHidden + schedule::kRowPad>;

// The same straight from the packets of the routed tokens.
struct InputPackets {
    const InputPacket* packets;  // of token 0
    u32 tokens;                  // routed, as bits

    MONOMOE_DEVICE Operands operands(u32 token_tile, u32 lane) const {
        const u32 token = 8 * token_tile + lane / 4, word = lane % 4;
        const InputPacket& packet = packets[token * schedule::kHiddenBlocks];
        const bool routed = tokens >> token & 1;
        Operands got = {};
        const device::Watchdog watchdog;
        for (;;) {
            if (routed) got = {packet.load(word), packet.load(4 + word)};
            if (device::all(!routed || (has_arrived(got.part[0]) && has_arrived(got.part[1])))) return got;
            watchdog.check();
        }
    }
};

// Units whose scales are on their way: loads queue behind a ring full of weights, which may be more than one unit.
constexpr u32 kScalesAhead = schedule::kStagesPerUnitUp > 2 ? 2 : 3;

// Multiplies this CTA's up units. One MMA warp.
//   Reads     ring, x, x_scale, active
//   Writes    up partials
//   Waits on  listed, x_ready, full, partial_empty
//   Signals   empty, partial_full, up_ending (warp 0)
// Returns the number of units.
MONOMOE_DEVICE u32 up_project(const Args& args, SharedStorage& s, RingReader& ring, Tracer& trace, u32 cta, u32 warp, u32 lane) {
    using Stage = schedule::UpStage;
    const u32 active_count = s.active_count;
    const InputPacket* const packets = HandOff::of(args, s.epoch).packets(args.tokens);
    const u32 q = lane % 4;
    u32 units = 0;
    UnitScales queue[kScalesAhead];
    UpUnit unit = UpUnit::first(cta), ahead = unit;
#pragma unroll
    for (u32 i = 0; i < kScalesAhead; ++i, ahead.advance()) {
        if (ahead.valid(active_count)) queue[i].load(args, s, ahead, lane);
    }
    if (!unit.valid(active_count) && warp == 0 && lane == 0) device::mbarrier_arrive(&s.barrier.up_ending);
    for (; unit.valid(active_count); ++units) {
        const UnitScales scales = queue[0];
        const u32 tokens = s.active[unit.expert()].tokens;
#pragma unroll
        for (u32 i = 1; i < kScalesAhead; ++i) queue[i - 1] = queue[i];
        if (ahead.valid(active_count)) queue[kScalesAhead - 1].load(args, s, ahead, lane);
        ahead.advance();
        unit.advance();
        if (!unit.valid(active_count) && warp == 0 && lane == 0) device::mbarrier_arrive(&s.barrier.up_ending);
        float sums[Stage::kAccumulators][schedule::kTokenTiles][4] = {};
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerUnitUp; ++k) {
            if (units == 0 && k == 0) device::mbarrier_wait(&s.barrier.x_ready, 0);
            ring.wait(s);
            trace.mark(Event::kStageFull, units * schedule::kStagesPerUnitUp + k);
#pragma unroll
            for (u32 i = 0; i < Stage::kWarpBlocks; ++i) {
                const u32 block = warp + i * schedule::kMmaWarps;
                if (Stage::kBlocks % schedule::kMmaWarps && block >= Stage::kBlocks) break;
                const u32 column = k * Stage::kColumnBlocks + block % Stage::kColumnBlocks;
                const float gate = scales.gate.at(column), up = scales.up.at(column);
                float product[schedule::kTokenTiles][4];
                const BlockOperand weights = ring.block<Stage>(s, block, lane);
                if constexpr (schedule::kXInShared) {
                    multiply_block(product, weights, InputRows{s.x[0] + column * schedule::kScaleBlock}, tokens, lane);
                } else if constexpr (!shape::quantizes()) {
                    multiply_block(product, weights, InputColumns{args.x + column * schedule::kScaleBlock, tokens}, tokens, lane);
                } else {
                    multiply_block(product, weights, InputPackets{packets + column, tokens}, tokens, lane);
                }
#pragma unroll
                for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
                    F32x2 x_scale = {1.f, 1.f};
                    if constexpr (shape::quantizes()) x_scale = *reinterpret_cast<const F32x2*>(&s.x_scale[column][8 * t + 2 * q]);
                    float(&sum)[4] = sums[Stage::accumulator(i)][t];
                    sum[0] += product[t][0] * (x_scale.x * gate);
                    sum[1] += product[t][1] * (x_scale.y * gate);
                    sum[2] += product[t][2] * (x_scale.x * up);
                    sum[3] += product[t][3] * (x_scale.y * up);
                }
            }
            ring.release<Stage>(s, lane);
        }
        const u32 buffer = units % 2;
        if (units >= 2) device::mbarrier_wait(&s.barrier.partial_empty[buffer], (units / 2 - 1) & 1);
        store_partials(s.up[buffer], sums, warp, lane);
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.partial_full[buffer]);
        trace.mark(Event::kStageDone, units);
    }
    return units;
}

// Waits until the epilogue warps have read both partial buffers. One MMA warp, after `units` units.
MONOMOE_DEVICE void drain_partials(SharedStorage& s, u32 units) {
#pragma unroll
    for (u32 back = 1; back <= 2; ++back) {
        if (units >= back) device::mbarrier_wait(&s.barrier.partial_empty[(units - back) % 2], ((units - back) / 2) & 1);
    }
}

// gate * sigmoid(slope) * up. The slope of silu is the gate itself; gelu_tanh is the same with another, as
// (1 + tanh(z)) / 2 = sigmoid(2z). A NaN passes the clamps.
MONOMOE_DEVICE float swiglu(float gate, float up) {
    if constexpr (shape::swiglu_limit() > 0.f) {
        constexpr float kLimit = shape::swiglu_limit();
        gate = gate > kLimit ? kLimit : gate;
        up = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
    }
    float slope = gate;
    if constexpr (shape::kGeluTanh) {
        constexpr float kLinear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
        constexpr float kCubic = 0.07135481627260025f;  // times 0.044715
        slope = gate * (kLinear + kCubic * (gate * gate));
    }
    return device::divide_fast(gate, 1.f + device::exponential_fast(-slope)) * up;
}

// Sums the partials of every second unit, applies SwiGLU and publishes h of the routed tokens. One epilogue warp.
//   Reads     up partials, active
//   Writes    rows of h in this launch's half of the workspace
//   Waits on  listed and numbered (the caller did), partial_full[which]
//   Signals   partial_empty[which]; h itself
MONOMOE_DEVICE void publish_h(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 which, u32 lane) {
    using Stage = schedule::UpStage;
    const HandOff handoff = HandOff::of(args, s.epoch);
    const u32 active_count = s.active_count;
    const u32 g = lane / 4, q = lane % 4;
    UpUnit unit = UpUnit::first(cta);
    u32 parity = 0;
    for (u32 i = 0; unit.valid(active_count); ++i, unit.advance()) {
        if (i % 2 != which) continue;
        const ActiveExpert expert = s.active[unit.expert()];
        device::mbarrier_wait(&s.barrier.partial_full[which], parity);
        parity ^= 1;
#pragma unroll 1
        for (u32 tile = 0; tile < Stage::kTiles; ++tile) {
            const u32 column = (unit.stripe() * Stage::kTiles + tile) * 8 + g;
#pragma unroll
            for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
                const F32x4 sum = sum_contributions<Stage>(s.up[which], tile, t, lane);
                const u32 token = 8 * t + 2 * q;
                if (expert.has(token)) {
                    device::store_relaxed(handoff.h_row(expert.row(token)) + column, never_zero(swiglu(sum.x, sum.z)));
                }
                if (expert.has(token + 1)) {
                    device::store_relaxed(handoff.h_row(expert.row(token + 1)) + column, never_zero(swiglu(sum.y, sum.w)));
                }
            }
        }
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.partial_empty[which]);
        trace.mark(Event::kUnitStored, i);
    }
}
