// Host: copies that a thread waits for, which land whenever the scheduler likes.
#pragma once

#include "device/mbarrier.cuh"

namespace device {

MONOMOE_DEVICE void copy_async(float* shared, const float* global) { sim::copy_async(shared, global, sizeof(float)); }

MONOMOE_DEVICE void commit_async() { sim::commit_async(); }

template <u32 kPending>
MONOMOE_DEVICE void wait_async() {
    sim::wait_async(kPending);
}

}  // namespace device
