// Time stamps of one warp, rendered away when a kernel is not traced.
#pragma once

#include "device/clock.cuh"
#include "device/trap.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"

enum class Event : u32 {
    kStart,
    kRouted,
    kListed,
    kQuantized,
    kStageFull,
    kStageDone,
    kUnitStored,
    kHandOff,
    kRequantized,
    kHReady,
    kReduced,
    kStored,
    kScored,
    kBounded,
};

constexpr u32 kTraceRecords = 256;  // per warp; later ones are dropped

template <bool kEnabled>
struct WarpTracer {
    MONOMOE_DEVICE WarpTracer(const Args&, u32, u32, u32) {}
    MONOMOE_DEVICE void mark(Event, u32 = 0) {}
};

// A record: event in bits 63..56, index in 55..40, SM clock in 39..0. Record 0 holds globaltimer, record 1 the count.
template <>
struct WarpTracer<true> {
    u64* records;
    bool recording;
    u32 count = 2;

    MONOMOE_DEVICE WarpTracer(const Args& args, u32 cta, u32 warp, u32 lane)
        : records(args.trace + u64{cta * (schedule::kThreads / 32) + warp} * kTraceRecords), recording(lane == 0) {
        if (recording) records[0] = device::global_nanoseconds();
        mark(Event::kStart);
    }
    MONOMOE_DEVICE void mark(Event event, u32 index = 0) {
        if (!recording || count == kTraceRecords) return;
        records[count++] = u64{static_cast<u32>(event)} << 56 | u64{index & 0xffffu} << 40 | (device::sm_clock() & 0xffffffffffull);
        records[1] = count;
    }
};

using Tracer = WarpTracer<schedule::kTrace>;
