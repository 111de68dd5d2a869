// Host: one-dimensional bulk copies, which land piece by piece whenever the scheduler likes.
#pragma once

#include "device/mbarrier.cuh"

namespace device {

using CachePolicy = u64;

MONOMOE_DEVICE CachePolicy evict_first_policy() { return 0; }

MONOMOE_DEVICE void bulk_copy(void* shared, const void* global, u32 bytes, Mbarrier* barrier, CachePolicy policy) {
    static_cast<void>(policy);
    sim::bulk_copy(shared, global, bytes, barrier);
}

}  // namespace device
