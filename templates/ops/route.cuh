// Routing: every CTA computes the same top-k of every token, and from it the list of active experts.
#pragma once

#include "ops/storage.cuh"
#include "device/memory.cuh"
#include "device/warp.cuh"
#include "ops/trace.cuh"

// Scores of one token, lane l holds experts l * kLaneExperts ... of it.
struct LaneLogits {
    float logit[schedule::kLaneExperts];
    float bias[schedule::kLaneExperts];
};

MONOMOE_DEVICE float load_logit(const Args& args, u32 token, u32 expert) {
    const shape::Logit* address = args.logits + token * shape::kExperts + expert;
    if constexpr (sizeof(shape::Logit) == 2) {
        return device::bf16_to_float(device::load_input(address));
    } else {
        return device::load_input(address);
    }
}

MONOMOE_DEVICE LaneLogits load_logits(const Args& args, u32 token, u32 lane) {
    LaneLogits lanes;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const u32 expert = lane * schedule::kLaneExperts + j;
        const bool valid = expert < shape::kExperts;
        lanes.logit[j] = valid ? load_logit(args, token, expert) : device::negative_infinity();
        lanes.bias[j] = shape::kExpertBias && valid ? device::load_input(args.bias + expert) : 0.f;
    }
    return lanes;
}

// Order-preserving bits, all above 1; NaN ranks below everything as 1, and 0 means "not eligible".
MONOMOE_DEVICE u32 rank_key(float score) {
    if (score != score) return 1;
    const u32 bits = device::float_to_bits(score + 0.f);  // -0 is +0
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

MONOMOE_DEVICE float sigmoid(float logit) { return 1.f / (1.f + device::exponential(-logit)); }

MONOMOE_DEVICE float sum_lanes(float value) {
#pragma unroll
    for (u32 mask = 16; mask; mask >>= 1) value += device::shuffle_xor(value, mask);
    return value;
}

MONOMOE_DEVICE float max_lanes(float value) {
#pragma unroll
    for (u32 mask = 16; mask; mask >>= 1) value = device::maximum(value, device::shuffle_xor(value, mask));
    return value;
}

// Drops the experts outside the kTopKGroups best groups; a group's score is the sum of its two best.
MONOMOE_DEVICE void keep_best_groups(const float (&score)[schedule::kLaneExperts], u32 (&key)[schedule::kLaneExperts],
                                     u32 lane) {
    constexpr u32 kLanes = shape::kExperts / shape::kGroups / schedule::kLaneExperts;  // of one group
    float best = device::negative_infinity(), second = best;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const float s = score[j] == score[j] ? score[j] : device::negative_infinity();
        second = device::maximum(second, best < s ? best : s);
        best = device::maximum(best, s);
    }
#pragma unroll
    for (u32 mask = kLanes / 2; mask; mask >>= 1) {
        const float other_best = device::shuffle_xor(best, mask);
        const float other_second = device::shuffle_xor(second, mask);
        const float lower = best < other_best ? best : other_best;
        best = device::maximum(best, other_best);
        second = device::maximum(lower, device::maximum(second, other_second));
    }
    const u32 mine = rank_key(best + second);
    u32 better = 0;
#pragma unroll
    for (u32 group = 0; group < shape::kGroups; ++group) {
        const u32 other = device::shuffle(mine, group * kLanes);
        better += other > mine || (other == mine && group < lane / kLanes);
    }
    if (better >= shape::kTopKGroups) {
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) key[j] = 0;
    }
}

// Selects the experts of one token. One warp.
//   Reads     its lanes' logits
//   Writes    selected[token], expert_tokens, its row of candidates
//   Waits on  -
//   Signals   - (the caller arrives on routed after its last token)
//
// The kTopK-th largest lane maximum bounds the kTopK-th largest score from below, so only scores of at least
// that can be selected: usually a dozen, which are then ranked by counting.
MONOMOE_DEVICE void select_experts(SharedStorage& s, const LaneLogits& lanes, Tracer& trace, u32 token, u32 warp,
                                   u32 lane) {
    float score[schedule::kLaneExperts];
    u32 key[schedule::kLaneExperts];
    u32 lane_best = 0;
    float scale = 1.f, top = 0.f;
    if constexpr (shape::kSoftmax && shape::kExpertBias) {
        top = device::negative_infinity();
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) top = device::maximum(top, lanes.logit[j]);
        top = max_lanes(top);
        float sum = 0.f;
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) sum += device::exponential(lanes.logit[j] - top);
        scale = sum_lanes(sum);
    }
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        score[j] = lanes.logit[j];
        if constexpr (!shape::kSoftmax) score[j] = sigmoid(score[j]);
        if constexpr (shape::kSoftmax && shape::kExpertBias) score[j] = device::exponential(score[j] - top) / scale;
        if constexpr (shape::kExpertBias) score[j] += lanes.bias[j];
        key[j] = lane * schedule::kLaneExperts + j < shape::kExperts ? rank_key(score[j]) : 0;
    }
    if constexpr (shape::kGroups > 1) keep_best_groups(score, key, lane);
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) lane_best = key[j] > lane_best ? key[j] : lane_best;

    trace.mark(Event::kScored);
    // Rank of this lane's maximum among the 32, by counting. The low bits make the maxima distinct; without them
    // the bound is at most a little lower.
    u32* const bests = reinterpret_cast<u32*>(s.candidates[warp]);
    const u32 distinct = (lane_best & ~31u) + (31 - lane);
    bests[lane] = distinct;
    device::sync_warp();
    u32 better = 0;
#pragma unroll
    for (u32 i = 0; i < 32; i += 4) {
        const U32x4 four = *reinterpret_cast<const U32x4*>(bests + i);
        better += (four.x > distinct) + (four.y > distinct) + (four.z > distinct) + (four.w > distinct);
    }
    const u32 bound_lane = device::lowest_bit(device::ballot(better == shape::kTopK - 1));
    const u32 found = device::shuffle(lane_best & ~31u, bound_lane);
    const u32 bound = found ? found : 1;

    trace.mark(Event::kBounded);
    u32 count = 0;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const u32 mask = device::ballot(key[j] >= bound);
        if (key[j] >= bound) {
            const u32 expert = lane * schedule::kLaneExperts + j;
            s.candidates[warp][count + device::count_bits(mask & ((1u << lane) - 1))] = u64{key[j]} << 32 | (~expert & 0xffffffffu);
        }
        count += device::count_bits(mask);
    }
    if (count + lane < (count + 3) / 4 * 4) s.candidates[warp][count + lane] = 0;
    device::sync_warp();
    for (u32 c = lane; c < count; c += 32) {
        const Candidate mine = s.candidates[warp][c];
        u32 rank = 0;
#pragma unroll 1
        for (u32 other = 0; other < count; other += 4) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) rank += s.candidates[warp][other + i] > mine;
        }
        if (rank < shape::kTopK) {
            const u32 expert = ~static_cast<u32>(mine);
            s.selected[token][rank] = static_cast<u16>(expert);
            device::shared_atomic_or(&s.expert_tokens[expert], 1u << token);
        }
    }
    device::sync_warp();
}

// Routing weights of one token, off the critical path. One warp.
//   Reads     selected[token] (written by this warp), the logits again
//   Writes    weight[token]
//   Waits on  -
//   Signals   - (the caller arrives on weighted after its last token)
MONOMOE_DEVICE void weigh_experts(const Args& args, SharedStorage& s, u32 token, u32 lane) {
    const bool chosen = lane < shape::kTopK;
    const float logit = chosen ? load_logit(args, token, s.selected[token][lane]) : device::negative_infinity();
    float weight;
    if constexpr (shape::kSoftmax) {
        float top, sum;
        if constexpr (shape::kRenormalize) {
            top = max_lanes(logit);
            weight = chosen ? device::exponential(logit - top) : 0.f;
            sum = sum_lanes(weight);
        } else {
            top = device::negative_infinity();
            for (u32 e = lane; e < shape::kExperts; e += 32) top = device::maximum(top, load_logit(args, token, e));
            top = max_lanes(top);
            sum = 0.f;
            for (u32 e = lane; e < shape::kExperts; e += 32) sum += device::exponential(load_logit(args, token, e) - top);
            sum = sum_lanes(sum);
            weight = chosen ? device::exponential(logit - top) : 0.f;
        }
        weight /= sum;
    } else {
        weight = chosen ? sigmoid(logit) : 0.f;
        if constexpr (shape::kRenormalize) weight /= sum_lanes(weight);
    }
    if (chosen) s.weight[token][lane] = weight * shape::kRoutedScaling;
}

// Makes the list of active experts, ascending. One warp.
//   Reads     expert_tokens
//   Writes    active, active_count
//   Waits on  routed
//   Signals   listed
MONOMOE_DEVICE void list_experts(SharedStorage& s, u32 lane) {
    device::mbarrier_wait(&s.routed, 0);
    u32 tokens[schedule::kLaneExperts];
    u32 mine = 0;  // experts in the low half, rows of h in the high half
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        tokens[j] = s.expert_tokens[lane * schedule::kLaneExperts + j];
        mine += (tokens[j] != 0) + (device::count_bits(tokens[j]) << 16);
    }
    u32 before = mine;
#pragma unroll
    for (u32 delta = 1; delta < 32; delta <<= 1) {
        const u32 other = device::shuffle_up(before, delta);
        if (lane >= delta) before += other;
    }
    if (lane == 31) s.active_count = before & 0xffffu;
    before -= mine;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        if (tokens[j]) {
            s.active[before & 0xffffu] = {static_cast<u16>(lane * schedule::kLaneExperts + j), static_cast<u16>(before >> 16), tokens[j]};
            before += 1 + (device::count_bits(tokens[j]) << 16);
        }
    }
    device::sync_warp();
    if (lane == 0) device::mbarrier_arrive(&s.listed);
}
