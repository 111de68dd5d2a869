// Host: global memory that other CTAs write during the launch, inputs, and atomics.
#pragma once

#include "device/mbarrier.cuh"

namespace device {

MONOMOE_DEVICE F32x4 load_relaxed(const F32x4* address) {
    F32x4 v;
    sim::load_relaxed(&v, address, 4);
    return v;
}
MONOMOE_DEVICE float load_relaxed(const float* address) {
    float v;
    sim::load_relaxed(&v, address, 1);
    return v;
}
MONOMOE_DEVICE U32x4 load_relaxed(const U32x4* address) {
    U32x4 v;
    sim::load_relaxed(&v, address, 4);
    return v;
}

MONOMOE_DEVICE void store_relaxed(float* address, float value) { sim::store_relaxed(address, &value); }
MONOMOE_DEVICE void store_relaxed(u32* address, u32 value) { sim::store_relaxed(address, &value); }

MONOMOE_DEVICE u32 atomic_increment_wrap(u32* address, u32 last) { return sim::atomic_increment_wrap(address, last); }

MONOMOE_DEVICE U32x4 load_shared_early(const void* address) {
    U32x4 v;
    sim::load_shared(&v, address, sizeof v);
    return v;
}

// Inputs nobody writes during the launch.
template <typename T>
MONOMOE_DEVICE T load_input(const T* address) {
    T v;
    sim::load_input(&v, address, sizeof v);
    return v;
}

}  // namespace device
