// A wait that outlives its bound ends the launch with an error instead of hanging the GPU.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

constexpr u64 kWaitLimitNs = 2'000'000'000ull;  // unless the launch says otherwise

MONOMOE_DEVICE u64 global_nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

MONOMOE_DEVICE void trap() { asm volatile("trap;"); }

// Made when a wait has failed once, or before it begins; asked after every failure.
struct Watchdog {
    const u64 limit_ns;
    const u64 start = global_nanoseconds();

    MONOMOE_DEVICE void check() const {
        if (global_nanoseconds() - start > limit_ns) trap();
    }
};

}  // namespace device
