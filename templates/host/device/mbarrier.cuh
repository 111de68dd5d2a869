// Host: shared-memory barriers. A phase completes when `count` threads have arrived and every announced byte has landed.
#pragma once

#include "device/qualifiers.cuh"
#include "device/trap.cuh"

namespace device {

using Mbarrier = u64;

MONOMOE_DEVICE u32 shared_address(const void* pointer) { return sim::shared_address(pointer); }

MONOMOE_DEVICE void mbarrier_init(Mbarrier* barrier, u32 count) { sim::barrier_init(barrier, count); }
MONOMOE_DEVICE void mbarrier_init_fence() { sim::barrier_init_fence(); }
MONOMOE_DEVICE void mbarrier_arrive(Mbarrier* barrier) { sim::barrier_arrive(barrier, 0); }
MONOMOE_DEVICE void mbarrier_arrive_expect(Mbarrier* barrier, u32 bytes) { sim::barrier_arrive(barrier, bytes); }
MONOMOE_DEVICE bool mbarrier_try_wait(Mbarrier* barrier, u32 parity) { return sim::barrier_test(barrier, parity); }
MONOMOE_DEVICE void mbarrier_wait(Mbarrier* barrier, u32 parity, u64 limit_ns) { sim::barrier_wait(barrier, parity, limit_ns); }
MONOMOE_DEVICE void mbarrier_wait_cluster(Mbarrier* barrier, u32 parity, u64 limit_ns) {
    sim::barrier_wait(barrier, parity, limit_ns);
}

}  // namespace device
