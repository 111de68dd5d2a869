// Thread block clusters: CTAs that start together and reach each other's shared memory.
#pragma once

#include "device/mbarrier.cuh"

namespace device {

// Every thread of the cluster arrives, once. Orders barriers that were initialised ahead of it (mbarrier_init_fence).
MONOMOE_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

// Waits until every thread of the cluster has arrived.
MONOMOE_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Stores 16 bytes where `target` lies in CTA `rank` of the cluster, and counts them on the barrier there.
MONOMOE_DEVICE void store_remote(F32x4* target, const F32x4& value, Mbarrier* barrier, u32 rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there, counter;\n"
        "mapa.shared::cluster.u32 there, %0, %6;\n"
        "mapa.shared::cluster.u32 counter, %5, %6;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%1, %2, %3, %4}, [counter];\n"
        "}" ::"r"(shared_address(target)),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(shared_address(barrier)), "r"(rank)
        : "memory");
}

}  // namespace device
