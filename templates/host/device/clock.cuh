// Host: time stamps count the scheduler's decisions.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

MONOMOE_DEVICE u32 sm_clock() { return static_cast<u32>(sim::now()); }
// The scheduler delays whom it likes. `began` is read, as it is there.
MONOMOE_DEVICE void spin_since(u32 began, u32 cycles) { asm volatile("" ::"r"(began)); }
MONOMOE_DEVICE u32 sm_clock_behind(const u32* shared) { return sm_clock(); }

}  // namespace device
