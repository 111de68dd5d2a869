// Programmatic dependent launch: what orders a launch that begins before the kernel ahead of it has ended.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

// Returns when all kernels ahead have ended and what they wrote can be read. Every thread that reads it.
MONOMOE_DEVICE void wait_for_prerequisites() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The kernel behind may begin when every CTA of this one has said so, or has ended.
MONOMOE_DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// What a kernel ahead may have written. It stays behind wait_for_prerequisites, which a load by the read-only path need
// not, and is served by L2.
template <typename T>
MONOMOE_DEVICE T load_behind(const T* address) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one load");
    union {
        T value;
        u16 half;
        u32 word;
        U32x2 two;
        U32x4 four;
    } v;
    if constexpr (sizeof(T) == 2) {
        asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(v.half) : "l"(address) : "memory");
    } else if constexpr (sizeof(T) == 4) {
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v.word) : "l"(address) : "memory");
    } else if constexpr (sizeof(T) == 8) {
        asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.two.x), "=r"(v.two.y) : "l"(address) : "memory");
    } else {
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.four.x), "=r"(v.four.y), "=r"(v.four.z), "=r"(v.four.w)
                     : "l"(address)
                     : "memory");
    }
    return v.value;
}

}  // namespace device
