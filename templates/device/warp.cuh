// Exchange within a warp, and barriers of the hardware among warps. Every function here needs all 32 lanes unless it
// says otherwise.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

constexpr u32 kAllLanes = 0xffffffffu;

MONOMOE_DEVICE u32 shuffle(u32 value, u32 source) { return __shfl_sync(kAllLanes, value, source); }
MONOMOE_DEVICE float shuffle(float value, u32 source) { return __shfl_sync(kAllLanes, value, source); }
MONOMOE_DEVICE float shuffle_xor(float value, u32 mask) { return __shfl_xor_sync(kAllLanes, value, mask); }
MONOMOE_DEVICE u32 ballot(bool predicate) { return __ballot_sync(kAllLanes, predicate); }
MONOMOE_DEVICE bool all(bool predicate) { return __all_sync(kAllLanes, predicate); }
MONOMOE_DEVICE u32 reduce_max(u32 value) { return __reduce_max_sync(kAllLanes, value); }
MONOMOE_DEVICE u32 reduce_min(u32 value) { return __reduce_min_sync(kAllLanes, value); }
MONOMOE_DEVICE u32 reduce_add(u32 value) { return __reduce_add_sync(kAllLanes, value); }
MONOMOE_DEVICE void sync_warp() { __syncwarp(); }

// True in one lane, always the same one. The compiler knows that a branch on it has a single thread.
MONOMOE_DEVICE bool elect() {
    u32 elected;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
}

MONOMOE_DEVICE u32 count_bits(u32 mask) { return __popc(mask); }
MONOMOE_DEVICE u32 lowest_bit(u32 mask) { return __ffs(mask) - 1; }  // mask != 0

// Waits until all `threads` threads of a hardware barrier have come, here or in arrive_named. Whole warps.
MONOMOE_DEVICE void sync_named(u32 barrier, u32 threads) {
    __syncwarp();  // the barrier counts warps, not threads
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// One of those for whom sync_named waits, without waiting.
MONOMOE_DEVICE void arrive_named(u32 barrier, u32 threads) {
    __syncwarp();
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace device
