// Host: thread block clusters. Stores into another CTA land whenever the scheduler likes.
#pragma once

#include "device/mbarrier.cuh"

namespace device {

MONOMOE_DEVICE void cluster_arrive() { sim::cluster_arrive(); }
MONOMOE_DEVICE void cluster_wait() { sim::cluster_wait(); }

MONOMOE_DEVICE void store_remote(F32x4* target, const F32x4& value, Mbarrier* barrier, u32 rank) {
    sim::store_remote(target, &value, barrier, rank);
}

}  // namespace device
