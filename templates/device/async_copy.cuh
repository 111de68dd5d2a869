// Copies from global to shared memory that the thread which asked for them waits for.
#pragma once

#include "device/mbarrier.cuh"

namespace device {

// One float of an input.
MONOMOE_DEVICE void copy_async(float* shared, const float* global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}

// What this thread has asked for since the last call becomes a group, of none perhaps.
MONOMOE_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `kPending` groups of this thread have landed. Other lanes may read them once they have met it.
template <u32 kPending>
MONOMOE_DEVICE void wait_async() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace device
