// Host: exchange within a warp, and barriers of the hardware among warps. The simulator checks that all lanes meet at the same call.
#pragma once

#include <bit>

#include "device/qualifiers.cuh"

namespace device {

constexpr u32 kAllLanes = 0xffffffffu;

MONOMOE_DEVICE u32 shuffle(u32 value, u32 source) { return sim::shuffle(value, source); }
MONOMOE_DEVICE float shuffle(float value, u32 source) {
    return std::bit_cast<float>(sim::shuffle(std::bit_cast<u32>(value), source));
}
MONOMOE_DEVICE float shuffle_xor(float value, u32 mask) {
    return std::bit_cast<float>(sim::shuffle_xor(std::bit_cast<u32>(value), mask));
}
MONOMOE_DEVICE u32 ballot(bool predicate) { return sim::ballot(predicate); }
MONOMOE_DEVICE bool all(bool predicate) { return sim::ballot(predicate) == kAllLanes; }
MONOMOE_DEVICE u32 reduce_max(u32 value) { return sim::reduce_max(value); }
MONOMOE_DEVICE u32 reduce_min(u32 value) { return sim::reduce_min(value); }
MONOMOE_DEVICE u32 reduce_add(u32 value) { return sim::reduce_add(value); }
MONOMOE_DEVICE void sync_warp() { sim::sync_warp(); }

MONOMOE_DEVICE bool elect() {
    const u32 lane = sim::thread_index() % 32;
    return sim::reduce_min(lane) == lane;
}

MONOMOE_DEVICE u32 count_bits(u32 mask) { return static_cast<u32>(std::popcount(mask)); }
MONOMOE_DEVICE u32 lowest_bit(u32 mask) { return static_cast<u32>(std::countr_zero(mask)); }  // mask != 0

// Waits until all `threads` threads of a hardware barrier have come, here or in arrive_named. Whole warps.
MONOMOE_DEVICE void sync_named(u32 barrier, u32 threads) { sim::sync_named(barrier, threads); }

// One of those for whom sync_named waits, without waiting.
MONOMOE_DEVICE void arrive_named(u32 barrier, u32 threads) { sim::arrive_named(barrier, threads); }

}  // namespace device
