// Time stamps for traces.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

// Cycles of this SM, modulo 2^32.
MONOMOE_DEVICE u32 sm_clock() {
    u32 now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
}

}  // namespace device
