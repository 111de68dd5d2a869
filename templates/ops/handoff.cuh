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
MONOMOE_DEVICE bool has_arrived(float value) { return device::float_to_bits(value) != 0; }
MONOMOE_DEVICE bool has_arrived(const F32x4& v) {
    return has_arrived(v.x) && has_arrived(v.y) && has_arrived(v.z) && has_arrived(v.w);
}

// This launch's half: rows of h, one for each (active expert, token) pair, then partial outputs of the down groups.
struct HandOff {
    u8* base;

    MONOMOE_DEVICE static HandOff of(const Args& args, u32 epoch) {
        return {args.workspace + kHeaderBytes + u64{epoch} * args.workspace_half_bytes};
    }
    MONOMOE_DEVICE float* h_row(u32 row) const { return reinterpret_cast<float*>(base) + row * shape::kIntermediate; }
    // Partial output of down group 1, 2, ...
    MONOMOE_DEVICE float* partial(u32 tokens, u32 group, u32 token) const {
        return h_row(tokens * shape::kTopK) + ((group - 1) * tokens + token) * shape::kHidden;
    }
    MONOMOE_DEVICE static u32 bytes(u32 tokens) {
        return tokens * 4 * (shape::kTopK * shape::kIntermediate + (schedule::kDownGroups - 1) * shape::kHidden);
    }
};

// Reads the header, and closes the epoch when every CTA has. One thread.
//   Reads     the workspace header
//   Writes    epoch, dirty_bytes; the header of the next launch
//   Waits on  -
//   Signals   listed
MONOMOE_DEVICE void open_epoch(const Args& args, SharedStorage& s) {
    WorkspaceHeader* const header = reinterpret_cast<WorkspaceHeader*>(args.workspace);
    const U32x4 words = device::load_relaxed(reinterpret_cast<const U32x4*>(header));
    const u32 epoch = words.y;
    s.epoch = epoch;
    s.dirty_bytes = epoch ? words.z : words.w;
    device::mbarrier_arrive(&s.barrier.listed);
    if (device::atomic_increment_wrap(&header->done, schedule::kGrid - 1) == schedule::kGrid - 1) {
        device::store_relaxed(&header->dirty_bytes[epoch], HandOff::bytes(args.tokens));
        device::store_relaxed(&header->epoch, epoch ^ 1);
    }
}

// Clears this CTA's part of the other half. `thread` of `threads`.
//   Reads     epoch, dirty_bytes
//   Writes    the other half of the workspace
//   Waits on  listed (the caller did)
//   Signals   - (the end of the launch)
MONOMOE_DEVICE void clear_other_half(const Args& args, const SharedStorage& s, u32 cta, u32 thread, u32 threads) {
    u8* const other = HandOff::of(args, s.epoch ^ 1).base;
    for (u32 at = (cta * threads + thread) * 16; at < s.dirty_bytes; at += schedule::kGrid * threads * 16) {
        *reinterpret_cast<U32x4*>(other + at) = {0, 0, 0, 0};
    }
}
