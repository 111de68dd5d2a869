// Global memory that other CTAs write during the launch (relaxed, GPU scope), inputs, and atomics.
#pragma once

#include "device/mbarrier.cuh"

namespace device {

MONOMOE_DEVICE F32x4 load_relaxed(const F32x4* address) {
    F32x4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

MONOMOE_DEVICE float load_relaxed(const float* address) {
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(address) : "memory");
    return v;
}

MONOMOE_DEVICE U32x4 load_relaxed(const U32x4* address) {
    U32x4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

MONOMOE_DEVICE void store_relaxed(float* address, float value) {
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(address), "f"(value) : "memory");
}

MONOMOE_DEVICE void store_relaxed(u32* address, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// Adds one, back to zero after `last`; returns the old value. Orders what this thread read before it
// before what the thread that gets `last` does after it.
MONOMOE_DEVICE u32 atomic_increment_wrap(u32* address, u32 last) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(last) : "memory");
    return old;
}

// Issued where it stands: the compiler does not sink it to its first use.
MONOMOE_DEVICE U32x4 load_shared_early(const void* address) {
    U32x4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(shared_address(address)));
    return v;
}

// Inputs nobody writes during the launch.
template <typename T>
MONOMOE_DEVICE T load_input(const T* address) {
    return __ldg(address);
}
template <>
MONOMOE_DEVICE F32x4 load_input(const F32x4* address) {
    const float4 v = __ldg(reinterpret_cast<const float4*>(address));
    return {v.x, v.y, v.z, v.w};
}
template <>
MONOMOE_DEVICE U32x2 load_input(const U32x2* address) {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(address));
    return {v.x, v.y};
}
template <>
MONOMOE_DEVICE U32x4 load_input(const U32x4* address) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(address));
    return {v.x, v.y, v.z, v.w};
}

}  // namespace device
