// Host: programmatic dependent launch. A simulated launch begins when the one ahead has ended.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

MONOMOE_DEVICE void wait_for_prerequisites() {}
MONOMOE_DEVICE void launch_dependents() {}

template <typename T>
MONOMOE_DEVICE T load_behind(const T* address) {
    T v;
    sim::load_input(&v, address, sizeof v);
    return v;
}

}  // namespace device
