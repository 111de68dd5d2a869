// Routing: every CTA computes the same top-k of every token, and from it the list of active experts.
#pragma once

#include "device/memory.cuh"
#include "device/warp.cuh"
#include "ops/handoff.cuh"
#include "ops/given.cuh"
#include "ops/storage.cuh"

// What a lane knows of one token: the logits (and the biases) of experts lane * kLaneExperts ...
struct LaneLogits {
    float logit[schedule::kLaneExperts];
    float bias[schedule::kLaneExperts];
};

MONOMOE_DEVICE float load_logit(const Args& args, u32 token, u32 expert) {
    const shape::Logit* address = args.logits + token * shape::kLogits + expert;
    if constexpr (sizeof(shape::Logit) == 2) {
        return device::bf16_to_float(load_given(address));
    } else {
        return load_given(address);
    }
}

MONOMOE_DEVICE LaneLogits load_logits(const Args& args, u32 token, u32 lane) {
    LaneLogits lanes;
    if constexpr (sizeof(shape::Logit) == 4 && schedule::kLaneExperts * 32 == shape::kExperts && schedule::kLaneExperts % 4 == 0 &&
                  !shape::kSharedGate) {
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; j += 4) {
            const u32 expert = lane * schedule::kLaneExperts + j;
            const F32x4 four = load_given(reinterpret_cast<const F32x4*>(args.logits + token * shape::kLogits + expert));
            lanes.logit[j] = four.x;
            lanes.logit[j + 1] = four.y;
            lanes.logit[j + 2] = four.z;
            lanes.logit[j + 3] = four.w;
            F32x4 bias = {0.f, 0.f, 0.f, 0.f};
            if constexpr (shape::kExpertBias) bias = load_given(reinterpret_cast<const F32x4*>(args.bias + expert));
            lanes.bias[j] = bias.x;
            lanes.bias[j + 1] = bias.y;
            lanes.bias[j + 2] = bias.z;
            lanes.bias[j + 3] = bias.w;
        }
        return lanes;
    }
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const u32 expert = lane * schedule::kLaneExperts + j;
        const bool valid = schedule::kLaneExperts * 32 == shape::kExperts || expert < shape::kExperts;
        lanes.logit[j] = valid ? load_logit(args, token, expert) : 0.f;
        lanes.bias[j] = shape::kExpertBias && valid ? load_given(args.bias + expert) : 0.f;
    }
    return lanes;
}

// The same where the launch computes the logits (kRouterWeight).
//   Reads     logits in this launch's half of the workspace, args.bias
//   Writes    -
//   Waits on  the logits
//   Signals   -
MONOMOE_DEVICE LaneLogits receive_logits(const Args& args, const SharedStorage& s, u32 token, u32 lane) {
    const float* const row = HandOff::of(args, s.epoch).logits(args.tokens, token);
    constexpr u32 kWidth = schedule::kLaneExperts * 32 == shape::kExperts && schedule::kLaneExperts % 4 == 0 ? 4 : 1;
    LaneLogits lanes;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const u32 expert = lane * schedule::kLaneExperts + j;
        lanes.bias[j] = shape::kExpertBias && expert < shape::kExperts ? load_given(args.bias + expert) : 0.f;
    }
    const device::Watchdog watchdog;
    for (;;) {
        bool arrived = true;
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; j += kWidth) {
            const u32 expert = lane * schedule::kLaneExperts + j;
            if constexpr (kWidth == 4) {
                const F32x4 four = device::load_relaxed(reinterpret_cast<const F32x4*>(row + expert));
                lanes.logit[j] = four.x;
                lanes.logit[j + 1] = four.y;
                lanes.logit[j + 2] = four.z;
                lanes.logit[j + 3] = four.w;
                arrived = arrived && has_arrived(four);
            } else {
                lanes.logit[j] = 0.f;
                if (expert < shape::kExperts) {
                    lanes.logit[j] = device::load_relaxed(row + expert);
                    arrived = arrived && has_arrived(lanes.logit[j]);
                }
            }
        }
        if (device::all(arrived)) return lanes;
        watchdog.check();
    }
}

MONOMOE_DEVICE LaneLogits logits_of(const Args& args, const SharedStorage& s, u32 token, u32 lane) {
    if constexpr (schedule::kRouterWeight) {
        return receive_logits(args, s, token, lane);
    } else {
        return load_logits(args, token, lane);
    }
}

// A logit that this warp has had before.
MONOMOE_DEVICE float logit_again(const Args& args, const SharedStorage& s, u32 token, u32 expert) {
    if constexpr (schedule::kRouterWeight) {
        return device::load_relaxed(HandOff::of(args, s.epoch).logits(args.tokens, token) + expert);
    } else {
        return load_logit(args, token, expert);
    }
}

// NaN counts as -inf.
MONOMOE_DEVICE float number(float value) { return device::maximum(value, device::negative_infinity()); }

// Order-preserving bits of a number, never 0: 0 is for experts that cannot be selected.
MONOMOE_DEVICE u32 rank_key(float score) {
    const u32 bits = device::float_to_bits(number(score) + 0.f);  // -0 is +0
    return bits ^ (static_cast<u32>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

MONOMOE_DEVICE float sigmoid(float logit) { return device::divide_fast(1.f, 1.f + device::exponential_fast(-logit)); }

// exp(logit - top) where top is the largest logit that counts; NaN has no share, equal infinities have equal ones.
MONOMOE_DEVICE float softmax_share(float logit, float top) {
    if (number(logit) == top) return logit == logit ? 1.f : 0.f;
    return device::exponential_fast(number(logit) - top);
}

MONOMOE_DEVICE float sum_lanes(float value) {
#pragma unroll 1
    for (u32 mask = 16; mask; mask >>= 1) value += device::shuffle_xor(value, mask);
    return value;
}

MONOMOE_DEVICE float max_lanes(float value) {
#pragma unroll 1
    for (u32 mask = 16; mask; mask >>= 1) value = device::maximum(value, device::shuffle_xor(value, mask));
    return value;
}

// A lane's extremes, as balanced trees.
MONOMOE_DEVICE u32 greatest_of(const u32 (&value)[schedule::kLaneExperts]) {
    u32 v[schedule::kLaneExperts];
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) v[j] = value[j];
#pragma unroll
    for (u32 width = 1; width < schedule::kLaneExperts; width *= 2) {
#pragma unroll
        for (u32 j = 0; j + width < schedule::kLaneExperts; j += 2 * width) v[j] = device::maximum(v[j], v[j + width]);
    }
    return v[0];
}
MONOMOE_DEVICE u32 least_of(const u32 (&value)[schedule::kLaneExperts]) {
    u32 v[schedule::kLaneExperts];
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) v[j] = ~value[j];
    return ~greatest_of(v);
}

// Sum of `count` (at most kMost) over the lanes before this one.
template <u32 kMost>
MONOMOE_DEVICE u32 count_before(u32 count, u32 lane) {
    u32 before = 0;
#pragma unroll
    for (u32 bit = 1; bit <= kMost; bit <<= 1) {
        before += bit * device::count_bits(device::ballot(count & bit) & ((1u << lane) - 1));
    }
    return before;
}

// The value that ranks an expert: the logit, the sigmoid, or a score plus the bias.
MONOMOE_DEVICE void rank_values(float (&value)[schedule::kLaneExperts], const LaneLogits& lanes, u32 lane) {
    float top = 0.f, sum = 1.f;
    if constexpr (shape::kSoftmax && shape::kExpertBias) {
        top = device::negative_infinity();
        sum = 0.f;
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            if (lane * schedule::kLaneExperts + j < shape::kExperts) top = device::maximum(top, lanes.logit[j]);
        }
        top = max_lanes(top);
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            if (lane * schedule::kLaneExperts + j < shape::kExperts) sum += softmax_share(lanes.logit[j], top);
        }
        sum = sum_lanes(sum);
    }
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        value[j] = lanes.logit[j];
        if constexpr (!shape::kSoftmax) value[j] = sigmoid(value[j]);
        if constexpr (shape::kSoftmax && shape::kExpertBias) value[j] = softmax_share(value[j], top) / sum;
        if constexpr (shape::kExpertBias) value[j] += lanes.bias[j];
    }
}

// Drops the experts outside the kTopKGroups best groups; a group's value is the sum of its two best.
MONOMOE_DEVICE void keep_best_groups(const float (&value)[schedule::kLaneExperts], u32 (&key)[schedule::kLaneExperts],
                                     u32 lane) {
    constexpr u32 kLanes = shape::kExperts / shape::kGroups / schedule::kLaneExperts;  // of one group
    float best = device::negative_infinity(), second = best;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        second = device::maximum(second, device::minimum(best, number(value[j])));
        best = device::maximum(best, value[j]);
    }
#pragma unroll 1
    for (u32 mask = kLanes / 2; mask; mask >>= 1) {
        const float other_best = device::shuffle_xor(best, mask);
        const float other_second = device::shuffle_xor(second, mask);
        second = device::maximum(device::minimum(best, other_best), device::maximum(second, other_second));
        best = device::maximum(best, other_best);
    }
    const u32 mine = rank_key(best + second);
    u32 better = 0;
#pragma unroll 1
    for (u32 group = 0; group < shape::kGroups; ++group) {
        const u32 other = device::shuffle(mine, group * kLanes);
        better += other > mine || (other == mine && group < lane / kLanes);
    }
    if (better >= shape::kTopKGroups) {
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) key[j] = 0;
    }
}

// Selects the experts of one token. One warp. Returns the chosen ones of this lane's experts as bits.
//   Reads     its lanes' logits
//   Writes    expert_tokens
//   Waits on  -
//   Signals   - (the caller arrives on routed after its last token)
//
// The kTopK-th largest lane maximum bounds the kTopK-th largest key from below; a few steps upwards find it.
MONOMOE_DEVICE u32 select_experts(SharedStorage& s, const LaneLogits& lanes, u32 token, u32 lane) {
    float value[schedule::kLaneExperts];
    u32 key[schedule::kLaneExperts];
    rank_values(value, lanes, lane);
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const bool valid = schedule::kLaneExperts * 32 == shape::kExperts || lane * schedule::kLaneExperts + j < shape::kExperts;
        key[j] = valid ? rank_key(value[j]) : 0;
    }
    if constexpr (shape::kGroups > 1) keep_best_groups(value, key, lane);

    u32 bound = 0, rest = greatest_of(key);
#pragma unroll
    for (u32 i = 0; i < shape::kTopK; ++i) {
        bound = device::reduce_max(rest);
        rest = rest == bound ? 0 : rest;
    }

    u32 chosen, above;
#pragma unroll 1
    for (;;) {
        chosen = 0;
        u32 next[schedule::kLaneExperts];
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            chosen += key[j] > bound ? 1u << j : 0;
            next[j] = key[j] > bound ? key[j] : 0xffffffffu;
        }
        above = device::reduce_add(device::count_bits(chosen));
        const u32 least = device::reduce_min(least_of(next));
        if (above < shape::kTopK) break;
        bound = least;
    }
    // Everything above the bound is in; of those equal to it, the lowest experts.
    u32 equal = 0;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) equal += key[j] == bound ? 1u << j : 0;
    const u32 missing = shape::kTopK - above;
    if (device::count_bits(device::ballot(equal != 0)) == missing && device::all((equal & (equal - 1)) == 0)) {
        chosen |= equal;
    } else {
        u32 taken = count_before<schedule::kLaneExperts>(device::count_bits(equal), lane);
#pragma unroll 1
        for (; equal && taken < missing; ++taken, equal &= equal - 1) chosen |= equal & (0 - equal);
    }
#pragma unroll 1
    for (u32 left = chosen; left; left &= left - 1) {
        device::shared_atomic_or(&s.expert_tokens[lane * schedule::kLaneExperts + device::lowest_bit(left)], 1u << token);
    }
    device::sync_warp();
    return chosen;
}

// Routing weights of one token, off the critical path. One warp.
//   Reads     chosen, the logits again
//   Writes    selected[token] (ascending experts, then the shared ones), weight[token]
//   Waits on  -
//   Signals   - (the caller arrives on weighted after its last token)
MONOMOE_DEVICE void weigh_experts(const Args& args, SharedStorage& s, u32 chosen, u32 token, u32 lane) {
    u32 slot = count_before<schedule::kLaneExperts>(device::count_bits(chosen), lane);
#pragma unroll 1
    for (; chosen; chosen &= chosen - 1) {
        s.selected[token][slot++] = static_cast<u16>(lane * schedule::kLaneExperts + device::lowest_bit(chosen));
    }
    device::sync_warp();
    const bool has_expert = lane < shape::kTopK;
    const float logit = has_expert ? logit_again(args, s, token, s.selected[token][lane]) : device::negative_infinity();
    float weight = 0.f, sum = 1.f;
    if constexpr (shape::kSoftmax) {
        float top = number(logit);
        if constexpr (!shape::kRenormalize) {
#pragma unroll 1
            for (u32 e = lane; e < shape::kExperts; e += 32) top = device::maximum(top, logit_again(args, s, token, e));
        }
        top = max_lanes(top);
        if (has_expert) weight = softmax_share(logit, top);
        float share = weight;
        if constexpr (!shape::kRenormalize) {
            share = 0.f;
#pragma unroll 1
            for (u32 e = lane; e < shape::kExperts; e += 32) share += softmax_share(logit_again(args, s, token, e), top);
        }
        sum = sum_lanes(share);
    } else {
        if (has_expert && logit == logit) weight = sigmoid(logit);
        if constexpr (shape::kRenormalize) sum = sum_lanes(weight);
    }
    if (has_expert) s.weight[token][lane] = (sum == 0.f ? 0.f : device::divide_fast(weight, sum)) * shape::kRoutedScaling;
    if constexpr (shape::kSharedExperts > 0) {
        const u32 expert = shape::kExperts + lane;
        if (expert >= shape::kAllExperts) return;
        float share = 1.f;
        if constexpr (shape::kSharedGate) {
            const float gate = load_logit(args, token, shape::kExperts);
            share = gate == gate ? sigmoid(gate) : 0.f;
        }
        s.selected[token][shape::kTopK + lane] = static_cast<u16>(expert);
        s.weight[token][shape::kTopK + lane] = share;
    }
}

// Those of `tokens` that are the first of their column.
MONOMOE_DEVICE u32 first_of_columns(u32 tokens) {
    return schedule::kTokenTiles == 1 ? tokens : tokens & ~(tokens << 8 | tokens << 16 | tokens << 24);
}

// Makes the list of active experts, ascending; the shared ones come last, with all tokens. The producer warp.
//   Reads     expert_tokens
//   Writes    active (experts and tokens), active_count
//   Waits on  routed
//   Signals   listed
MONOMOE_DEVICE void list_experts(SharedStorage& s, u32 tokens_of_launch, u32 lane) {
    device::mbarrier_wait(&s.barrier.routed, 0);
    const u32 tiles = (tokens_of_launch + schedule::kColumns - 1) / schedule::kColumns;
    u32 tokens[schedule::kLaneExperts];
    u32 mine = 0;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        tokens[j] = s.expert_tokens[lane * schedule::kLaneExperts + j];
        for (u32 left = tokens[j]; left; left ^= first_of_columns(left)) ++mine;
    }
    u32 position = count_before<schedule::kLaneExperts * schedule::kTokenTiles>(mine, lane);
    if (lane == 31) s.active_count = position + mine + shape::kSharedExperts * tiles;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        for (u32 left = tokens[j]; left; left ^= first_of_columns(left)) {
            s.active[position].expert = static_cast<u16>(lane * schedule::kLaneExperts + j);
            s.active[position].tokens = first_of_columns(left);
            ++position;
        }
    }
    if constexpr (shape::kSharedExperts > 0) {
        const u32 routed = device::shuffle(position, 31);
        for (u32 i = lane; i < shape::kSharedExperts * tiles; i += 32) {
            s.active[routed + i].expert = static_cast<u16>(shape::kExperts + i / tiles);
            s.active[routed + i].tokens = 0xffffffffu >> (32 - tokens_of_launch) & 0xffu << i % tiles * schedule::kColumns;
        }
    }
    device::sync_warp();
    if (lane == 0) device::mbarrier_arrive(&s.barrier.listed);
}

// Numbers the rows of h. One epilogue warp.
//   Reads     active (tokens), active_count
//   Writes    active (first_row)
//   Waits on  listed (the caller did)
//   Signals   numbered
MONOMOE_DEVICE void number_rows(SharedStorage& s, u32 lane) {
    u32 row = 0;
#pragma unroll 1
    for (u32 first = 0; first < s.active_count; first += 32) {
        const bool valid = first + lane < s.active_count;
        const u32 mine = valid ? device::count_bits(s.active[first + lane].tokens) : 0;
        const u32 before = count_before<schedule::kTokenTile>(mine, lane);
        if (valid) s.active[first + lane].first_row = static_cast<u16>(row + before);
        row += device::reduce_add(mine);
    }
    device::sync_warp();
    if (lane == 0) device::mbarrier_arrive(&s.barrier.numbered);
}
