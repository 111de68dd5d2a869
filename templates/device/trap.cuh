// A wait that outlives its bound ends the launch with an error instead of hanging the GPU.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

constexpr u64 kWaitLimitNs = 2'000'000'000ull;
constexpr u32 kTriesPerClockRead = 1024;

MONOMOE_DEVICE u64 global_nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

MONOMOE_DEVICE void trap() { asm volatile("trap;"); }

// Counts the tries of one wait; the clock is read only once in kTriesPerClockRead.
struct Watchdog {
    u32 tries = 0;
    u64 start = 0;

    MONOMOE_DEVICE void tick() {
        if (++tries % kTriesPerClockRead) return;
        const u64 now = global_nanoseconds();
        if (start == 0) {
            start = now;
        } else if (now - start > kWaitLimitNs) {
            trap();
        }
    }
};

}  // namespace device
