// Gate and up projection, SwiGLU, and the publication of h.
#pragma once

#include "ops/handoff.cuh"
#include "ops/bf16_input.cuh"
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

// A column block of the routed tokens' input, straight from the packets.
struct InputPackets {
    const InputPacket* first;  // of token 0
    u32 tokens;                // routed, as bits

    // Asks for the operands, which may not be there yet.
    MONOMOE_DEVICE void ask(Operands& operands, u32 lane) const {
        const u32 token = token_of(tokens, lane / 4), word = lane % 4;
        const InputPacket& packet = first[token * schedule::kHiddenBlocks];
        operands = {};
        if (tokens >> token & 1) operands = {packet.load(word), packet.load(4 + word)};
    }
    // Asks again until those that were asked for have arrived.
    MONOMOE_DEVICE void receive(Operands& operands, u32 lane, u64 limit_ns) const {
        if (complete(operands, lane)) return;
        const device::Watchdog watchdog{limit_ns};
        for (;;) {
            ask(operands, lane);
            if (complete(operands, lane)) return;
            watchdog.check();
        }
    }

private:
    MONOMOE_DEVICE bool complete(const Operands& operands, u32 lane) const {
        const bool routed = tokens >> token_of(tokens, lane / 4) & 1;
        return device::all(!routed || device::minimum(least_word(operands.part[0]), least_word(operands.part[1])) != 0);
    }
};

// The scales of a column block of the input for the columns 2q and 2q+1.
MONOMOE_DEVICE F32x2 input_scales(const SharedStorage& s, u32 block, u32 tokens, u32 q) {
    const float(&scales)[schedule::kTokenTile] = s.x_scale[block];
    if constexpr (schedule::kTokenTiles == 1) return *reinterpret_cast<const F32x2*>(&scales[2 * q]);
    return {scales[token_of(tokens, 2 * q)], scales[token_of(tokens, 2 * q + 1)]};
}

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
    // Packets are asked for one stage ahead.
    constexpr bool kPackets = !schedule::kXInShared && shape::quantizes();
    Operands asked[kPackets ? Stage::kWarpBlocks : 1];
    const auto input = [&](u32 tokens, u32 k, u32 i) {
        return InputPackets{packets + k * Stage::kColumnBlocks + (warp + i * schedule::kMmaWarps) % Stage::kColumnBlocks, tokens};
    };
    if (kPackets && unit.valid(active_count)) {
#pragma unroll
        for (u32 i = 0; i < Stage::kWarpBlocks; ++i) input(s.active[unit.expert()].tokens, 0, i).ask(asked[i], lane);
    }
    for (; unit.valid(active_count); ++units) {
        const UnitScales scales = queue[0];
        const u32 tokens = s.active[unit.expert()].tokens;
#pragma unroll
        for (u32 i = 1; i < kScalesAhead; ++i) queue[i - 1] = queue[i];
        if (ahead.valid(active_count)) queue[kScalesAhead - 1].load(args, s, ahead, lane);
        ahead.advance();
        unit.advance();
        if (!unit.valid(active_count) && warp == 0 && lane == 0) device::mbarrier_arrive(&s.barrier.up_ending);
        const u32 next_tokens = unit.valid(active_count) ? s.active[unit.expert()].tokens : 0;
        float sums[Stage::kAccumulators][4] = {};
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerUnitUp; ++k) {
            if (units == 0 && (k == 0 || schedule::kInputParts > 1)) {
                device::mbarrier_wait(&s.barrier.x_ready[((k + 1) * Stage::kColumnBlocks - 1) / schedule::kPartBlocks], 0, args.wait_limit_ns);
            }
            ring.wait(args, s);
            trace.mark(Event::kStageFull, units * schedule::kStagesPerUnitUp + k);
#pragma unroll
            for (u32 i = 0; i < Stage::kWarpBlocks; ++i) {
                const u32 block = warp + i * schedule::kMmaWarps;
                if (Stage::kBlocks % schedule::kMmaWarps && block >= Stage::kBlocks) break;
                const u32 column = k * Stage::kColumnBlocks + block % Stage::kColumnBlocks;
                const float gate = scales.gate.at(column), up = scales.up.at(column);
                float product[4];
                const BlockOperand weights = ring.block<Stage>(s, block, lane);
                Operands activations;
                if constexpr (kPackets) {
                    input(tokens, k, i).receive(asked[i], lane, args.wait_limit_ns);
                    activations = asked[i];
                    const bool last = k + 1 == schedule::kStagesPerUnitUp;
                    input(last ? next_tokens : tokens, last ? 0 : k + 1, i).ask(asked[i], lane);
                } else if constexpr (schedule::kXInShared) {
                    activations = shared_operands(s.x[token_of(tokens, lane / 4)] + column * schedule::kScaleBlock, lane);
                } else {
                    activations = InputColumns{args.x + column * schedule::kScaleBlock, tokens}.operands(lane);
                }
                multiply_block(product, weights, activations);
                F32x2 x_scale = {1.f, 1.f};
                if constexpr (shape::quantizes()) x_scale = input_scales(s, column, tokens, q);
                float(&sum)[4] = sums[Stage::accumulator(i)];
                sum[0] += product[0] * (x_scale.x * gate);
                sum[1] += product[1] * (x_scale.y * gate);
                sum[2] += product[2] * (x_scale.x * up);
                sum[3] += product[3] * (x_scale.y * up);
            }
            ring.release<Stage>(s, lane);
        }
        const u32 buffer = units % 2;
        if (units >= 2) device::mbarrier_wait(&s.barrier.partial_empty[buffer], (units / 2 - 1) & 1, args.wait_limit_ns);
        store_partials(s.up[buffer], sums, warp, lane);
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.partial_full[buffer]);
        trace.mark(Event::kStageDone, units);
    }
    return units;
}

// Waits until the epilogue warps have read both partial buffers. One MMA warp, after `units` units.
MONOMOE_DEVICE void drain_partials(const Args& args, SharedStorage& s, u32 units) {
#pragma unroll
    for (u32 back = 1; back <= 2; ++back) {
        if (units >= back) device::mbarrier_wait(&s.barrier.partial_empty[(units - back) % 2], ((units - back) / 2) & 1, args.wait_limit_ns);
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
        device::mbarrier_wait(&s.barrier.partial_full[which], parity, args.wait_limit_ns);
        parity ^= 1;
        const u32 token = token_of(expert.tokens, 2 * q), next = token_of(expert.tokens, 2 * q + 1);
#pragma unroll 1
        for (u32 tile = 0; tile < Stage::kTiles; ++tile) {
            const u32 column = (unit.stripe() * Stage::kTiles + tile) * 8 + g;
            const F32x4 sum = sum_contributions<Stage>(s.up[which], tile, lane);
            if (expert.has(token)) {
                device::store_relaxed(handoff.h_row(expert.row(token)) + column, never_zero(swiglu(sum.x, sum.z)));
            }
            if (expert.has(next)) {
                device::store_relaxed(handoff.h_row(expert.row(next)) + column, never_zero(swiglu(sum.y, sum.w)));
            }
        }
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.partial_empty[which]);
        trace.mark(Event::kUnitStored, i);
    }
}
