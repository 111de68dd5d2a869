// Gate and up projection, SwiGLU, and the publication of h.
#pragma once

#include "device/async_copy.cuh"
#include "ops/handoff.cuh"
#include "ops/bf16_input.cuh"
#include "ops/product.cuh"
#include "ops/stream.cuh"
#include "ops/trace.cuh"

// The scales that one MMA warp multiplies its units by. They come by copies, which no register waits for: a load whose
// register is moved on to the next unit would be waited for there, and with it every load behind it.
struct UpScales {
    // Units ahead of the one that is multiplied: loads queue behind a ring full of weights, which may be more than one unit.
    static constexpr u32 kAhead = schedule::kStagesPerUnitUp > 2 ? 2 : 3;
    static_assert(kAhead < schedule::kScaleSlots, "a slot is asked for again behind the sync_warp that ends its unit");

    SharedStorage& storage;
    const float* scales;  // w13_scale
    u32 warp, lane;

    // Asks for those of the unit'th unit of this CTA, in the order of the units. `valid`: there is one.
    MONOMOE_DEVICE void ask(u32 unit, UpUnit which, bool valid) const {
        constexpr u32 kWords = 2 * schedule::kUnitColumns;  // gate and up of each column block
        if (valid) {
            const u32 row_block = which.stripe() * (schedule::kStripeUp / 2) / schedule::kScaleBlock;
            const u32 gate_row = storage.active[which.expert()].expert * (2 * schedule::kIntermediateBlocks) + row_block;
#pragma unroll
            for (u32 first = 0; first < kWords; first += 32) {
                const u32 word = first + lane, entry = word / 2, is_up = word % 2;
                if (word >= kWords) continue;
                const u32 stage = entry / schedule::UpStage::kWarpColumns;
                const u32 column = stage * schedule::UpStage::kColumnBlocks + schedule::UpStage::column_of(warp, entry % schedule::UpStage::kWarpColumns);
                const float* const row = scales + (gate_row + is_up * schedule::kIntermediateBlocks) * schedule::kHiddenBlocks;
                device::copy_async(&storage.up_scale[warp][unit % schedule::kScaleSlots][entry][is_up], row + column);
            }
        }
        device::commit_async();
    }
    // Waits for those of the unit that was asked for kAhead units ago.
    MONOMOE_DEVICE void receive() const {
        device::wait_async<kAhead>();
        device::sync_warp();
    }
    // Gate and up of the warp's i-th block of a stage.
    MONOMOE_DEVICE F32x2 at(u32 unit, u32 stage, u32 i) const {
        const u32 entry = stage * schedule::UpStage::kWarpColumns + i % schedule::UpStage::kWarpColumns;
        return *reinterpret_cast<const F32x2*>(storage.up_scale[warp][unit % schedule::kScaleSlots][entry]);
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

// Multiplies this CTA's up units. One MMA warp.
//   Reads     ring, x, x_scale, active, w13_scale
//   Writes    up partials, up_scale of its own, up_ending_since
//   Waits on  listed, x_ready, full, partial_empty
//   Signals   empty, partial_full, up_ending (warp 0)
// Returns the number of units.
MONOMOE_DEVICE u32 up_project(const Args& args, SharedStorage& s, RingReader& ring, Tracer& trace, u32 cta, u32 warp, u32 lane) {
    using Stage = schedule::UpStage;
    const u32 active_count = s.active_count;
    const InputPacket* const packets = HandOff::of(args, s.epoch).packets(args.tokens);
    const u32 q = lane % 4;
    const u32 count = UpUnit::count(cta, active_count);
    UpUnit unit = UpUnit::first(cta), ahead = unit;
    const UpScales scales = {s, args.w13_scale, warp, lane};
#pragma unroll 1
    for (u32 i = 0; i < UpScales::kAhead; ++i, ahead.advance()) scales.ask(i, ahead, ahead.valid(active_count));
    // `left` units come behind the one that is begun.
    const auto tell_ending = [&](u32 left) {
        if (left >= 2 || warp > 0 || lane > 0) return;
        s.up_ending_since[left] = device::sm_clock();
        device::mbarrier_arrive(&s.barrier.up_ending[left]);
    };
    if (count == 0) tell_ending(0);
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
#pragma unroll 1
    for (u32 units = 0; units < count; ++units) {
        const u32 tokens = s.active[unit.expert()].tokens;
        scales.ask(units + UpScales::kAhead, ahead, ahead.valid(active_count));
        ahead.advance();
        unit.advance();
        tell_ending(count - 1 - units);
        const u32 next_tokens = unit.valid(active_count) ? s.active[unit.expert()].tokens : 0;
        float sums[Stage::kAccumulators][4] = {};
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerUnitUp; ++k) {
            if (units == 0 && (k == 0 || schedule::kInputParts > 1)) {
                device::mbarrier_wait(&s.barrier.x_ready[((k + 1) * Stage::kColumnBlocks - 1) / schedule::kPartBlocks], 0, args.wait_limit_ns);
            }
            ring.wait(args, s);
            trace.mark(Event::kStageFull, units * schedule::kStagesPerUnitUp + k);
            if (k == 0) scales.receive();
#pragma unroll
            for (u32 i = 0; i < Stage::kWarpBlocks; ++i) {
                const u32 block = warp + i * schedule::kMmaWarps;
                if (Stage::kBlocks % schedule::kMmaWarps && block >= Stage::kBlocks) break;
                const u32 column = k * Stage::kColumnBlocks + block % Stage::kColumnBlocks;
                const F32x2 scale = scales.at(units, k, i);
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
                sum[0] += product[0] * (x_scale.x * scale.x);
                sum[1] += product[1] * (x_scale.y * scale.x);
                sum[2] += product[2] * (x_scale.x * scale.y);
                sum[3] += product[3] * (x_scale.y * scale.y);
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
    return count;
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
