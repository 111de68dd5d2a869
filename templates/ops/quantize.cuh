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
        if (amax < kSmallestAmax) return {0.f, 0.f};
        if (!(amax <= kLargestAmax)) return {device::not_a_number(), device::not_a_number()};
        return {device::divide_rounded(amax, kE4m3Max), device::divide_rounded(kE4m3Max, amax)};
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

// How the packets are shared out to the requant warps: groups of kPackets at a time, to the warps in turn.
struct PacketShare {
    static constexpr u32 kFirstWord = schedule::kXInShared ? 0 : InputPacket::kScaleWord;
    static constexpr u32 kWords = InputPacket::kWords - kFirstWord;  // that are received of a packet
    static constexpr u32 kPackets = 32 / kWords;
    static constexpr u32 kStep = kPackets * schedule::kRequantWarps;  // from a lane's packet to its next one
};

// Receives packets at, at + kStep, ... below `end`, kCount of them at most: a lane one `word` of each.
template <u32 kCount>
MONOMOE_DEVICE void receive_packets(SharedStorage& s, const InputPacket* packets, u32 at, u32 end, u32 word, u64 limit_ns) {
    U32x4 words[kCount];
    const device::Watchdog watchdog{limit_ns};
#pragma unroll 1
    for (;;) {
        bool arrived = true;
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) {
            if (at + i * PacketShare::kStep < end) words[i] = packets[at + i * PacketShare::kStep].load(word);
        }
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) arrived = arrived && (at + i * PacketShare::kStep >= end || has_arrived(words[i]));
        if (device::all(arrived)) break;
        watchdog.check();
    }
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
        const u32 pair = at + i * PacketShare::kStep;
        if (pair >= end) break;
        const u32 token = pair / schedule::kHiddenBlocks, block = pair % schedule::kHiddenBlocks;
        if (word == InputPacket::kScaleWord) {
            s.x_scale[block][token] = device::bits_to_float(words[i].x);
        } else {
            *reinterpret_cast<U32x4*>(&s.x[token][block * schedule::kScaleBlock + word * 16]) = words[i];
        }
    }
}

// Receives any number of packets: the warps take their words in turn, 32 at a time.
MONOMOE_DEVICE void receive_words(const Args& args, SharedStorage& s, const InputPacket* packets, u32 warp, u32 lane) {
    constexpr u32 kBatch = 8;  // words a lane has on their way
    constexpr u32 kThreads = 32 * schedule::kRequantWarps;
    constexpr u32 kFirstWord = PacketShare::kFirstWord, kWords = PacketShare::kWords;
    const u32 count = args.tokens * schedule::kHiddenBlocks * kWords;
    const U32x4* const words = InputPacket::words_of(packets);
#pragma unroll 1
    for (u32 first = (schedule::kRequantWarps - 1 - warp) * 32; first < count; first += kBatch * kThreads) {
        U32x4 word[kBatch];
        const device::Watchdog watchdog{args.wait_limit_ns};
#pragma unroll 1
        for (;;) {
            bool arrived = true;
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) {
                const u32 at = first + i * kThreads + lane;
                word[i] = {1, 1, 1, 1};
                if (at < count) word[i] = device::load_relaxed(words + (kFirstWord ? at * InputPacket::kWords + kFirstWord : at));
            }
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) arrived = arrived && has_arrived(word[i]);
            if (device::all(arrived)) break;
            watchdog.check();
        }
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            const u32 at = first + i * kThreads + lane;
            const u32 pair = at / kWords, token = pair / schedule::kHiddenBlocks, block = pair % schedule::kHiddenBlocks;
            const bool is_scale = kFirstWord + at % kWords == InputPacket::kScaleWord;
            if (at < count && is_scale) s.x_scale[block][token] = device::bits_to_float(word[i].x);
            if (at < count && !is_scale) {
                *reinterpret_cast<U32x4*>(&s.x[token][block * schedule::kScaleBlock + at % kWords * 16]) = word[i];
            }
        }
    }
}

// Receives the packets of all pairs: scales, and values where shared memory has room for them. All requant warps.
//   Reads     packets
//   Writes    x, x_scale
//   Waits on  the packets
//   Signals   x_ready
MONOMOE_DEVICE void receive_inputs(const Args& args, SharedStorage& s, u32 warp, u32 lane) {
    using Share = PacketShare;
    const InputPacket* const packets = HandOff::of(args, s.epoch).packets(args.tokens);
    const u32 count = lane < Share::kPackets * Share::kWords ? args.tokens * schedule::kHiddenBlocks : 0;
    const u32 word = Share::kFirstWord + lane % Share::kWords;
    const u32 first = warp * Share::kPackets + lane / Share::kWords;
    constexpr u32 kFew = 3;  // a lane; so few take less code, and code has to be fetched
    if (args.tokens * schedule::kHiddenBlocks <= kFew * Share::kStep) {
        receive_packets<kFew>(s, packets, first, count, word, args.wait_limit_ns);
    } else {
        receive_words(args, s, packets, warp, lane);
    }
    device::sync_warp();
    if (lane == 0) device::mbarrier_arrive(&s.barrier.x_ready);
}
