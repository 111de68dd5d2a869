// Time stamps for traces.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

MONOMOE_DEVICE u64 sm_clock() {
    u64 now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now));
    return now;
}

}  // namespace device
