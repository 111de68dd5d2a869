// Hand-off between CTAs through the workspace: the payload is the flag.
//
// A launch uses one half of the workspace, which is all zero bits when it starts. A producer never writes zero bits,
// so a consumer that reads something else has read the value; no counter and no fence are needed. Each launch
// clears what the launch before it left in the other half, so the next one finds it clean.
#pragma once

#include "device/memory.cuh"
#include "device/trap.cuh"
#include "ops/storage.cuh"

struct alignas(16) WorkspaceHeader {
    u32 done;            // CTAs of this launch that have read the header
    u32 epoch;           // 0 or 1: the half this launch uses
    u32 dirty_bytes[2];  // what the last launch on that half wrote
};
constexpr u32 kHeaderBytes = 128;

MONOMOE_DEVICE float never_zero(float value) {
    return device::float_to_bits(value) == 0 ? device::bits_to_float(0x80000000u) : value;  // -0
}
MONOMOE_DEVICE u32 never_zero(u32 four_e4m3) { return four_e4m3 ? four_e4m3 : 0x80u; }  // one of them -0
MONOMOE_DEVICE bool has_arrived(float value) { return device::float_to_bits(value) != 0; }
// Zero if any word is: whether many words have arrived is asked without a branch.
MONOMOE_DEVICE u32 least_word(const U32x4& v) { return device::minimum(device::minimum(v.x, v.y), device::minimum(v.z, v.w)); }
MONOMOE_DEVICE u32 least_word(const F32x4& v) {
    return least_word(U32x4{device::float_to_bits(v.x), device::float_to_bits(v.y), device::float_to_bits(v.z), device::float_to_bits(v.w)});
}

// 128 columns of one token's quantized input, then their scale and three words that only fill.
struct alignas(16) InputPacket {
    static constexpr u32 kScaleWord = 8, kWords = 9;  // of 16 bytes
    u32 words[4 * kWords];

    // The 16-byte words of packets that lie one after the other.
    MONOMOE_DEVICE static const U32x4* words_of(const InputPacket* packets) { return reinterpret_cast<const U32x4*>(packets); }
    MONOMOE_DEVICE U32x4 load(u32 word) const { return device::load_relaxed(words_of(this) + word); }
};

// This launch's half: rows of h, one for each (active expert, token) pair, then partial outputs of the down groups
// unless these are paired, then the input, if quantized, by token and column block, then with kRouterWeight the logits.
struct HandOff {
    static constexpr u32 kPartials = schedule::kPaired ? 0 : schedule::kDownGroups - 1;  // of each token
    u8* base;

    MONOMOE_DEVICE static HandOff of(const Args& args, u32 epoch) {
        return {args.workspace + kHeaderBytes + u64{epoch} * args.workspace_half_bytes};
    }
    MONOMOE_DEVICE float* h_row(u32 row) const { return reinterpret_cast<float*>(base) + row * shape::kIntermediate; }
    // Partial output of down group 1, 2, ...
    MONOMOE_DEVICE float* partial(u32 tokens, u32 group, u32 token) const {
        return h_row(tokens * shape::kTokenExperts) + ((group - 1) * tokens + token) * shape::kHidden;
    }
    MONOMOE_DEVICE InputPacket* packets(u32 tokens) const {
        return reinterpret_cast<InputPacket*>(partial(tokens, 1 + kPartials, 0));
    }
    // Router logits of a token.
    MONOMOE_DEVICE float* logits(u32 tokens, u32 token) const {
        return reinterpret_cast<float*>(packets(tokens) + (shape::quantizes() ? tokens * schedule::kHiddenBlocks : 0)) + token * shape::kExperts;
    }
    MONOMOE_DEVICE static u32 bytes(u32 tokens) {
        return tokens * (4 * (shape::kTokenExperts * shape::kIntermediate + kPartials * shape::kHidden) +
                         (shape::quantizes() ? schedule::kHiddenBlocks : 0) * static_cast<u32>(sizeof(InputPacket)) +
                         (schedule::kRouterWeight ? 4 * shape::kExperts : 0));
    }
};

// Reads the header. One thread, before its warp arrives at kMade and kEpoch.
//   Reads     the workspace header
//   Writes    epoch, dirty_bytes
//   Waits on  -
//   Signals   - (the caller)
MONOMOE_DEVICE void open_epoch(const Args& args, SharedStorage& s) {
    const U32x4 words = device::load_relaxed(reinterpret_cast<const U32x4*>(args.workspace));
    s.epoch = words.y;
    s.dirty_bytes = words.y ? words.z : words.w;
}

// Closes the epoch when every CTA has read the header. The thread that read it.
//   Reads     epoch
//   Writes    the header of the next launch
//   Waits on  -
//   Signals   - (the end of the launch)
MONOMOE_DEVICE void close_epoch(const Args& args, const SharedStorage& s) {
    WorkspaceHeader* const header = reinterpret_cast<WorkspaceHeader*>(args.workspace);
    if (device::atomic_increment_wrap(&header->done, schedule::kGrid - 1) == schedule::kGrid - 1) {
        device::store_relaxed(&header->dirty_bytes[s.epoch], HandOff::bytes(args.tokens));
        device::store_relaxed(&header->epoch, s.epoch ^ 1);
    }
}

// Clears this CTA's part of the other half. `thread` of `threads`.
//   Reads     epoch, dirty_bytes
//   Writes    the other half of the workspace
//   Waits on  -
//   Signals   - (the end of the launch)
MONOMOE_DEVICE void clear_other_half(const Args& args, const SharedStorage& s, u32 cta, u32 thread, u32 threads) {
    u8* const other = HandOff::of(args, s.epoch ^ 1).base;
    for (u32 at = (cta * threads + thread) * 16; at < s.dirty_bytes; at += schedule::kGrid * threads * 16) {
        *reinterpret_cast<U32x4*>(other + at) = {0, 0, 0, 0};
    }
}
