// Activations to e4m3 with one scale per token and 128 columns.
//
// The input is quantized once: every (token, column block) pair by one warp of the grid, and handed to all CTAs
// through the workspace.
#pragma once

#include "device/memory.cuh"
#include "device/warp.cuh"
#include "ops/handoff.cuh"
#include "ops/given.cuh"

constexpr float kE4m3Max = 448.f;
constexpr float kSmallestAmax = 1.504632769052528e-36f;  // 2^-119: below it kE4m3Max / amax overflows, the block becomes 0
constexpr float kLargestAmax = 8.507059173023462e37f;    // 2^126: above it, and with NaN, the block becomes NaN

struct QuantScale {
    float scale;    // of the stored values
    float inverse;  // what a value is multiplied with

    MONOMOE_DEVICE static QuantScale of(float amax) {
        const bool small = amax < kSmallestAmax, usual = amax <= kLargestAmax;
        const float scale = device::divide_rounded(amax, kE4m3Max), inverse = device::divide_rounded(kE4m3Max, amax);
        return {small ? 0.f : usual ? scale : device::not_a_number(), small ? 0.f : usual ? inverse : device::not_a_number()};
    }
};

// The pairs of the grid's MMA warps: pair 0 to warp 0 of CTA 0, pair 1 to warp 0 of CTA 1 ...
struct InputPair {
    u32 index;  // token * kHiddenBlocks + column block
    U32x2 raw;  // four columns a lane

    MONOMOE_DEVICE static InputPair first(u32 cta, u32 warp) { return {cta + schedule::kGrid * warp, {0, 0}}; }
    MONOMOE_DEVICE void advance() { index += schedule::kGrid * schedule::kMmaWarps; }
    MONOMOE_DEVICE bool valid(const Args& args) const { return index < args.tokens * schedule::kHiddenBlocks; }

    MONOMOE_DEVICE void load(const Args& args, u32 lane) {
        const device::Bf16* const columns = args.x + index * schedule::kScaleBlock;
        if (valid(args)) raw = load_given(reinterpret_cast<const U32x2*>(columns) + lane);
    }
    MONOMOE_DEVICE void publish(InputPacket* packets, u32 lane) const {
        const u32 amax = device::reduce_max(device::bf16x8_absolute_max({raw.x, raw.y, 0, 0}));
        const QuantScale scale = QuantScale::of(device::bf16_to_float(static_cast<device::Bf16>(amax)));
        const F32x2 a = device::bf16x2_to_float(raw.x), b = device::bf16x2_to_float(raw.y);
        const u32 values = device::float_to_e4m3x4(a.x * scale.inverse, a.y * scale.inverse, b.x * scale.inverse, b.y * scale.inverse);
        u32* const words = packets[index].words;
        device::store_relaxed(words + lane, never_zero(values));
        if (lane < 4) device::store_relaxed(words + 32 + lane, lane ? 1 : device::float_to_bits(never_zero(scale.scale)));
    }
};

// Quantizes this warp's pairs; the first one comes loaded. One MMA warp.
//   Reads     args.x
//   Writes    packets of the input in this launch's half of the workspace
//   Waits on  -
//   Signals   the packets themselves
MONOMOE_DEVICE void quantize_inputs(const Args& args, const SharedStorage& s, InputPair pair, u32 lane) {
    InputPacket* const packets = HandOff::of(args, s.epoch).packets(args.tokens);
#pragma unroll 1
    while (pair.valid(args)) {
        pair.publish(packets, lane);
        pair.advance();
        pair.load(args, lane);
    }
}

// What a CTA receives of a packet: all of it, or only the scale.
struct Received {
    static constexpr u32 kFirstWord = schedule::kXInShared ? 0 : InputPacket::kScaleWord;
    static constexpr u32 kWords = InputPacket::kWords - kFirstWord;

    // Stores word `index` of those that are received of a packet.
    MONOMOE_DEVICE static void store(SharedStorage& s, u32 token, u32 block, u32 index, const U32x4& word) {
        if (kFirstWord + index == InputPacket::kScaleWord) {
            s.x_scale[block][token] = device::bits_to_float(word.x);
        } else {
            *reinterpret_cast<U32x4*>(&s.x[token][block * schedule::kScaleBlock + index * 16]) = word;
        }
    }
};

// Asks for a warp's words until all have arrived. `load(i)` is the lane's i-th word, ones if it has none.
template <u32 kLoads, typename Load>
MONOMOE_DEVICE void receive_words(U32x4 (&words)[kLoads], u64 limit_ns, const Load& load) {
    const device::Watchdog watchdog{limit_ns};
#pragma unroll 1
    for (;;) {
        u32 least = 0xffffffffu;
#pragma unroll
        for (u32 i = 0; i < kLoads; ++i) words[i] = load(i);
#pragma unroll
        for (u32 i = 0; i < kLoads; ++i) least = device::minimum(least, least_word(words[i]));
        if (device::all(least != 0)) return;
        watchdog.check();
    }
}

// How few packets are shared out to the requant warps: groups of kPackets at a time, to the warps in turn.
struct FewPackets {
    static constexpr u32 kPackets = 32 / Received::kWords;
    static constexpr u32 kStep = kPackets * schedule::kRequantWarps;  // from a lane's packet to its next one
    static constexpr u32 kLoads = 5;                                  // a lane; more take more code, which has to be fetched
};

// Receives FewPackets::kStep * kLoads packets at most: a lane one word of each of its packets.
MONOMOE_DEVICE void receive_few(const Args& args, SharedStorage& s, const InputPacket* packets, u32 warp, u32 lane) {
    using Few = FewPackets;
    const u32 end = lane < Few::kPackets * Received::kWords ? args.tokens * schedule::kHiddenBlocks : 0;
    const u32 first = warp * Few::kPackets + lane / Received::kWords, index = lane % Received::kWords;
    U32x4 words[Few::kLoads];
    receive_words(words, args.wait_limit_ns, [&](u32 i) {
        U32x4 word = {1, 1, 1, 1};
        if (first + i * Few::kStep < end) word = packets[first + i * Few::kStep].load(Received::kFirstWord + index);
        return word;
    });
#pragma unroll
    for (u32 i = 0; i < Few::kLoads; ++i) {
        const u32 pair = first + i * Few::kStep;
        if (pair >= end) break;
        Received::store(s, pair / schedule::kHiddenBlocks, pair % schedule::kHiddenBlocks, index, words[i]);
    }
    device::sync_warp();
    static_assert(schedule::kInputParts <= 32, "a lane tells of each part");
    if (lane < schedule::kInputParts) device::mbarrier_arrive(&s.barrier.x_ready[lane]);
}

// Many packets are received in items, which go to the warps in turn, all of a part of the columns before the next: a
// part of the packets of as many tokens as a warp can have on their way.
struct InputItem {
    static constexpr u32 kPartWords = schedule::kPartBlocks * Received::kWords;  // of a token
    static constexpr u32 kTokens = kPartWords < schedule::kItemWords ? schedule::kItemWords / kPartWords : 1;
    static constexpr u32 kLoads = (kTokens * kPartWords + 31) / 32;  // a lane

    u32 first_token, first_block;
    u32 tokens;

    // Where the lane's i-th word belongs.
    struct Place {
        u32 token, block, index;  // from the item's first token and block; of the words that are received
    };
    MONOMOE_DEVICE static Place place(u32 i, u32 lane) {
        const u32 at = i * 32 + lane;
        return {at / kPartWords, at % kPartWords / Received::kWords, at % Received::kWords};
    }
    MONOMOE_DEVICE bool has(const Place& at) const {
        return at.token < tokens && (schedule::kHiddenBlocks % schedule::kPartBlocks == 0 || first_block + at.block < schedule::kHiddenBlocks);
    }

    MONOMOE_DEVICE void receive(SharedStorage& s, const InputPacket* packets, u32 lane, u64 limit_ns) const {
        packets += first_token * schedule::kHiddenBlocks + first_block;
        U32x4 words[kLoads];
        receive_words(words, limit_ns, [&](u32 i) {
            const Place at = place(i, lane);
            U32x4 word = {1, 1, 1, 1};
            if (has(at)) word = packets[at.token * schedule::kHiddenBlocks + at.block].load(Received::kFirstWord + at.index);
            return word;
        });
#pragma unroll
        for (u32 i = 0; i < kLoads; ++i) {
            const Place at = place(i, lane);
            if (has(at)) Received::store(s, first_token + at.token, first_block + at.block, at.index, words[i]);
        }
    }
};

// Receives any number of packets.
MONOMOE_DEVICE void receive_items(const Args& args, SharedStorage& s, const InputPacket* packets, u32 warp, u32 lane) {
    const u32 groups = (args.tokens + InputItem::kTokens - 1) / InputItem::kTokens;
#pragma unroll 1
    for (u32 part = 0; part < schedule::kInputParts; ++part) {
#pragma unroll 1
        for (u32 group = (warp - part * groups) % schedule::kRequantWarps; group < groups; group += schedule::kRequantWarps) {
            const u32 token = group * InputItem::kTokens, left = args.tokens - token;
            const InputItem item = {token, part * schedule::kPartBlocks, left < InputItem::kTokens ? left : InputItem::kTokens};
            item.receive(s, packets, lane, args.wait_limit_ns);
        }
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.x_ready[part]);
    }
}

// Receives the packets of all pairs: scales, and values where shared memory has room for them. All requant warps.
//   Reads     packets
//   Writes    x, x_scale
//   Waits on  the packets
//   Signals   x_ready
MONOMOE_DEVICE void receive_inputs(const Args& args, SharedStorage& s, u32 warp, u32 lane) {
    const InputPacket* const packets = HandOff::of(args, s.epoch).packets(args.tokens);
    if (args.tokens * schedule::kHiddenBlocks <= FewPackets::kLoads * FewPackets::kStep) {
        receive_few(args, s, packets, warp, lane);
    } else {
        receive_items(args, s, packets, warp, lane);
    }
}
