// One-dimensional bulk copies from global to shared memory by the copy engine.
#pragma once

#include "device/mbarrier.cuh"

namespace device {

using CachePolicy = u64;

// Weights are read once per launch: let them leave L2 first.
MONOMOE_DEVICE CachePolicy evict_first_policy() {
    CachePolicy policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// `bytes` and both addresses are multiples of 16. The bytes count towards `barrier`.
MONOMOE_DEVICE void bulk_copy(void* shared, const void* global, u32 bytes, Mbarrier* barrier, CachePolicy policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
        ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
}

}  // namespace device
