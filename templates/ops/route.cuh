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
    constexpr bool kWhole = schedule::kLaneExperts * 32 == shape::kExperts;  // lanes
    if constexpr (sizeof(shape::Logit) == 4 && kWhole && schedule::kLaneExperts % 4 == 0 && !shape::kSharedGate) {
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
    } else {
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            const u32 expert = lane * schedule::kLaneExperts + j;
            const bool valid = kWhole || expert < shape::kExperts;
            lanes.logit[j] = valid ? load_logit(args, token, expert) : 0.f;
            lanes.bias[j] = shape::kExpertBias && valid ? load_given(args.bias + expert) : 0.f;
        }
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
    const device::Watchdog watchdog{args.wait_limit_ns};
    for (;;) {
        u32 least = 0xffffffffu;
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; j += kWidth) {
            const u32 expert = lane * schedule::kLaneExperts + j;
            if constexpr (kWidth == 4) {
                const F32x4 four = device::load_relaxed(reinterpret_cast<const F32x4*>(row + expert));
                lanes.logit[j] = four.x;
                lanes.logit[j + 1] = four.y;
                lanes.logit[j + 2] = four.z;
                lanes.logit[j + 3] = four.w;
                least = device::minimum(least, least_word(four));
            } else {
                lanes.logit[j] = 0.f;
                if (expert < shape::kExperts) {
                    lanes.logit[j] = device::load_relaxed(row + expert);
                    least = device::minimum(least, device::float_to_bits(lanes.logit[j]));
                }
            }
        }
        if (device::all(least != 0)) return lanes;
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

// The two greatest keys of a lane; 0 where there is none.
struct TwoBest {
    u32 first, second;

    MONOMOE_DEVICE static TwoBest of(const u32 (&key)[schedule::kLaneExperts]) {
        TwoBest best[schedule::kLaneExperts];
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) best[j] = {key[j], 0};
#pragma unroll
        for (u32 width = 1; width < schedule::kLaneExperts; width *= 2) {
#pragma unroll
            for (u32 j = 0; j + width < schedule::kLaneExperts; j += 2 * width) {
                const TwoBest a = best[j], b = best[j + width];
                best[j] = {device::maximum(a.first, b.first),
                           device::maximum(device::minimum(a.first, b.first), device::maximum(a.second, b.second))};
            }
        }
        return best[0];
    }
};

// The least of a lane's keys that is greater than `bound`.
MONOMOE_DEVICE u32 least_above(const u32 (&key)[schedule::kLaneExperts], u32 bound) {
    u32 least = 0xffffffffu;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) least = device::minimum(least, key[j] > bound ? key[j] : 0xffffffffu);
    return least;
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

// The keys by which a lane's experts are ranked, the lowest expert first among equals; 0 for those that cannot be
// selected. The producer's copy of this code and that of the routing warps agree to the last bit: on the way to a key
// no product is added to anything, so the compiler has nothing to fuse in one and not in the other.
MONOMOE_DEVICE void rank_keys(u32 (&key)[schedule::kLaneExperts], const LaneLogits& lanes, u32 lane) {
    float value[schedule::kLaneExperts];
    rank_values(value, lanes, lane);
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const bool valid = schedule::kLaneExperts * 32 == shape::kExperts || lane * schedule::kLaneExperts + j < shape::kExperts;
        key[j] = valid ? rank_key(value[j]) : 0;
    }
    if constexpr (shape::kGroups > 1) keep_best_groups(value, key, lane);
}

// The best expert of a token among those whose keys are left, whose key it takes away. One warp.
MONOMOE_DEVICE u32 take_best(u32 (&key)[schedule::kLaneExperts], u32 lane) {
    u32 best = key[0];
#pragma unroll
    for (u32 j = 1; j < schedule::kLaneExperts; ++j) best = device::maximum(best, key[j]);
    best = device::reduce_max(best);
    u32 expert = shape::kExperts;
#pragma unroll
    for (u32 j = schedule::kLaneExperts; j-- > 0;) expert = key[j] == best ? lane * schedule::kLaneExperts + j : expert;
    expert = device::reduce_min(expert);
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) key[j] = lane * schedule::kLaneExperts + j == expert ? 0 : key[j];
    return expert;
}

// The experts of one token, as bits of this lane's. One warp.
//
// The kTopK-th largest of the two best keys of every lane bounds the kTopK-th largest key from below, and is nearly
// always equal to it; else a few steps upwards find it.
MONOMOE_DEVICE u32 select_experts(const LaneLogits& lanes, u32 lane) {
    u32 key[schedule::kLaneExperts];
    rank_keys(key, lanes, lane);
    TwoBest lane_best = TwoBest::of(key);
    u32 bound = 0;
#pragma unroll 1
    for (u32 i = 0; i < shape::kTopK; ++i) {
        bound = device::reduce_max(lane_best.first);
        if (lane_best.first == bound) lane_best = {lane_best.second, 0};
    }

    u32 above, equal, counts;  // those above the bound, and those equal to it
#pragma unroll 1
    for (;;) {
        above = equal = 0;
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            above |= key[j] > bound ? 1u << j : 0;
            equal |= key[j] == bound ? 1u << j : 0;
        }
        counts = device::reduce_add(device::count_bits(above) | device::count_bits(equal) << 16);
        if ((counts & 0xffff) < shape::kTopK) break;
        bound = device::reduce_min(least_above(key, bound));
    }
    const u32 missing = shape::kTopK - (counts & 0xffff);
    if (counts >> 16 == missing) return above | equal;
    // Of those equal to the bound the lowest experts.
    u32 taken = count_before<schedule::kLaneExperts>(device::count_bits(equal), lane);
#pragma unroll 1
    for (; equal && taken < missing; ++taken, equal &= equal - 1) above |= equal & (0 - equal);
    return above;
}

// Routing weights of one token, whose experts are `chosen` as bits of each lane's, off the critical path. One warp.
//   Reads     the logits again
//   Writes    selected[token] (ascending experts, then the shared ones, then none), weight[token]
//   Waits on  -
//   Signals   - (the caller arrives on weighted after its last token)
MONOMOE_DEVICE void weigh_experts(const Args& args, SharedStorage& s, u32 chosen, u32 token, u32 lane) {
    u32 slot = count_before<schedule::kLaneExperts>(device::count_bits(chosen), lane);
#pragma unroll 1
    for (; chosen; chosen &= chosen - 1) {
        s.selected[token][slot++] = static_cast<u16>(lane * schedule::kLaneExperts + device::lowest_bit(chosen));
    }
    if (lane >= shape::kTokenExperts && lane < 8 * schedule::kSelectedWords) s.selected[token][lane] = kNoExpert;
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

// The kLeads best experts of token 0, best first, with which the list of active experts begins: they are known before
// anything else of it. The same in every lane. They are among those that select_experts chooses, which ranks by the
// same keys.
struct Leads {
    static_assert(schedule::kLeads <= 4 && schedule::kLeads <= shape::kTopK && shape::kExperts <= 1u << 16, "they fit");
    u64 packed = 0;

    MONOMOE_DEVICE void add(u32 i, u32 expert) { packed |= u64{expert} << 16 * i; }
    MONOMOE_DEVICE u32 expert(u32 i) const { return static_cast<u32>(packed >> 16 * i) & 0xffff; }
};

// Which tokens have chosen the experts of one lane: what the list of active experts is made of. The producer warp.
struct LaneTurns {
    static constexpr u32 kMasks = 4 / sizeof(schedule::LaneMask);  // in a word, each of a token
    static constexpr u32 kWords = schedule::kTokenTile / kMasks;
    u32 words[kWords];
    u32 any = 0;  // experts with a token, as bits

    //   Reads     chosen
    //   Writes    -
    //   Waits on  routed, or kMade without the router inside (the caller did)
    //   Signals   -
    MONOMOE_DEVICE LaneTurns(const SharedStorage& s, u32 lane) {
#pragma unroll
        for (u32 w = 0; w < kWords; w += 4) {
            const U32x4 four = *reinterpret_cast<const U32x4*>(&s.routing.chosen[lane][w * kMasks]);
            words[w] = four.x;
            words[w + 1] = four.y;
            words[w + 2] = four.z;
            words[w + 3] = four.w;
            any |= four.x | four.y | four.z | four.w;
        }
        if (kMasks == 2) any = (any | any >> 16) & 0xffff;
    }

    // The tokens of this lane's expert j, as bits.
    MONOMOE_DEVICE u32 tokens_of(u32 j) const {
        u32 tokens = 0;
#pragma unroll
        for (u32 w = 0; w < kWords; ++w) {
            const u32 bits = words[w] >> j;
            tokens |= (kMasks == 2 ? (bits & 1) | (bits >> 15 & 2) : bits & 1) << w * kMasks;
        }
        return tokens;
    }

    // The number of turns of all of them.
    MONOMOE_DEVICE u32 count() const {
        if constexpr (schedule::kTokenTiles == 1) {
            return device::count_bits(any);
        } else {
            u32 turns = 0;
#pragma unroll 1
            for (u32 experts = any; experts; experts &= experts - 1) {
                for (u32 left = tokens_of(device::lowest_bit(experts)); left; left ^= first_of_columns(left)) ++turns;
            }
            return turns;
        }
    }
};

// Writes the list of active experts: the first turn of each lead, best first; all other turns, ascending by expert; the
// shared experts, with all tokens. The producer warp.
//   Reads     -
//   Writes    active (experts and tokens), active_count
//   Waits on  -
//   Signals   listed
MONOMOE_DEVICE void list_experts(SharedStorage& s, const LaneTurns& lane_turns, const Leads& leads, u32 tokens_of_launch, u32 lane) {
    const u32 tiles = (tokens_of_launch + schedule::kColumns - 1) / schedule::kColumns;
    u32 count = lane_turns.count();
#pragma unroll
    for (u32 i = 0; i < schedule::kLeads; ++i) count -= leads.expert(i) / schedule::kLaneExperts == lane;
    u32 position = schedule::kLeads + count_before<schedule::kLaneExperts * schedule::kTokenTiles>(count, lane);
    if (lane == 31) s.active_count = position + count + shape::kSharedExperts * tiles;
#pragma unroll 1
    for (u32 experts = lane_turns.any; experts; experts &= experts - 1) {
        const u32 j = device::lowest_bit(experts), expert = lane * schedule::kLaneExperts + j;
        u32 lead = schedule::kLeads;
#pragma unroll
        for (u32 i = 0; i < schedule::kLeads; ++i) lead = leads.expert(i) == expert ? i : lead;
        for (u32 left = lane_turns.tokens_of(j); left; left ^= first_of_columns(left)) {
            const u32 at = lead < schedule::kLeads ? lead : position++;
            lead = schedule::kLeads;
            s.active[at].expert = static_cast<u16>(expert);
            s.active[at].tokens = first_of_columns(left);
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
        const u32 before = count_before<schedule::kColumns>(mine, lane);
        if (valid) s.active[first + lane].first_row = static_cast<u16>(row + before);
        row += device::reduce_add(mine);
    }
    device::sync_warp();
    if (lane == 0) device::mbarrier_arrive(&s.barrier.numbered);
}
