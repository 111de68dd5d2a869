// Shared-memory barriers. A phase completes when `count` threads have arrived and every announced byte has landed.
#pragma once

#include "device/qualifiers.cuh"
#include "device/trap.cuh"

namespace device {

using Mbarrier = u64;

MONOMOE_DEVICE u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

MONOMOE_DEVICE void mbarrier_init(Mbarrier* barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

// Makes initialised barriers visible to the copy engine.
MONOMOE_DEVICE void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

MONOMOE_DEVICE void mbarrier_arrive(Mbarrier* barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives and announces `bytes` of bulk copies.
MONOMOE_DEVICE void mbarrier_arrive_expect(Mbarrier* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

MONOMOE_DEVICE bool mbarrier_try_wait(Mbarrier* barrier, u32 parity) {
    u32 done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return done != 0;
}

// Waits until the phase of this parity is complete. A caller sees every phase of a barrier in order,
// or the parity cannot tell the phases apart.
MONOMOE_DEVICE void mbarrier_wait(Mbarrier* barrier, u32 parity, u64 limit_ns) {
    if (mbarrier_try_wait(barrier, parity)) return;
    const Watchdog watchdog{limit_ns};
    do {
        watchdog.check();
    } while (!mbarrier_try_wait(barrier, parity));
}

// The same where another CTA of the cluster may complete the phase.
MONOMOE_DEVICE void mbarrier_wait_cluster(Mbarrier* barrier, u32 parity, u64 limit_ns) {
    const Watchdog watchdog{limit_ns};
    for (;;) {
        u32 done;
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
        if (done) return;
        watchdog.check();
    }
}

}  // namespace device
