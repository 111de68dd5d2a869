// Host: time stamps count the scheduler's decisions.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

MONOMOE_DEVICE u32 sm_clock() { return static_cast<u32>(sim::now()); }
MONOMOE_DEVICE void spin_since(u32 began, u32) { asm volatile("" ::"r"(began)); }  // only reads; the scheduler delays whom it likes
MONOMOE_DEVICE u32 sm_clock_behind(const u32* shared) { return sm_clock(); }

}  // namespace device
