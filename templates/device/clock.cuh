// The SM's clock: time stamps for traces, and short waits.
#pragma once

#include "device/mbarrier.cuh"
#include "device/qualifiers.cuh"

namespace device {

// Cycles of this SM, modulo 2^32.
MONOMOE_DEVICE u32 sm_clock() {
    u32 now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
}

// Waits until this many cycles have passed since the clock showed `began`.
MONOMOE_DEVICE void spin_since(u32 began, u32 cycles) {
    while (sm_clock() - began < cycles) {}
}

// The clock, not before a word of shared memory is loaded: behind a barrier of the hardware the clock may be read before
// the barrier is over, memory may not.
MONOMOE_DEVICE u32 sm_clock_behind(const u32* shared) {
    u32 now;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        ".reg .u32 word;\n"
        "ld.volatile.shared.u32 word, [%1];\n"
        "setp.eq.u32 p, word, 0;\n"
        "@p mov.u32 %0, %%clock;\n"
        "@!p mov.u32 %0, %%clock;\n"
        "}"
        : "=r"(now)
        : "r"(shared_address(shared))
        : "memory");
    return now;
}

}  // namespace device
