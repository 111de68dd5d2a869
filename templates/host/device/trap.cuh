// Host: a wait that never ends is a deadlock, which the scheduler sees at once; no clock is needed.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

constexpr u64 kWaitLimitNs = 2'000'000'000ull;  // unless the launch says otherwise

MONOMOE_DEVICE u64 global_nanoseconds() { return sim::now(); }

MONOMOE_DEVICE void trap() { sim::trap(); }

// Made before a thread polls, asked after every failure: the thread sleeps until what it polled is written. A deadlock
// names the limit.
struct Watchdog {
    const u64 limit_ns;

    MONOMOE_DEVICE void check() const { sim::poll_failed(limit_ns); }
};

}  // namespace device
