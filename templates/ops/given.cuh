// Inputs that the kernel ahead of this one may have written.
#pragma once

#include "device/dependency.cuh"
#include "device/memory.cuh"
#include "schedule.cuh"

template <typename T>
MONOMOE_DEVICE T load_given(const T* address) {
    if constexpr (schedule::kPdl) {
        return device::load_behind(address);
    } else {
        return device::load_input(address);
    }
}
