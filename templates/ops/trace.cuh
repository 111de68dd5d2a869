// Time stamps of one warp, rendered away when a kernel is not traced.
#pragma once

#include "device/clock.cuh"
#include "device/trap.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"

enum class Event : u32 {
    kStart,
    kSynced,       // barriers made
    kRouted,       // this warp's tokens have their experts
    kListed,       // active experts known
    kIssued,       // a stage requested
    kQuantized,    // this warp's share of the input quantized
    kReceived,     // the quantized input of all CTAs is there
    kStageFull,    // a stage's weights are there
    kStageDone,    // a unit of up, or a stage of down, multiplied
    kUnitStored,   // h of a unit published
    kRequantized,  // h of an expert requantized
    kHReady,       // h of a down stage is there
    kReduced,      // down-projection done
    kStored,       // output stored
};

constexpr u32 kTraceRecords = 1024;  // per warp; later ones are dropped

template <bool kEnabled>
struct WarpTracer {
    MONOMOE_DEVICE WarpTracer(const Args&, u32, u32, u32) {}
    MONOMOE_DEVICE void begin() {}
    MONOMOE_DEVICE void mark(Event, u32 = 0) {}
    MONOMOE_DEVICE void mark_synced(const SharedStorage&) {}
};

// A record: 1 + event in bits 63..56, index in 47..32, the low half of the SM's clock below. Record 0 is the global
// time of the start; the host clears the buffer, so a zero record ends the list. The start is read when the tracer is
// made and stored by begin, which with kPdl has to come behind the wait for the kernels ahead.
template <>
struct WarpTracer<true> {
    u64* next;
    u32 left;
    u64 start_ns = 0;
    u32 start_clock = 0;

    MONOMOE_DEVICE WarpTracer(const Args& args, u32 cta, u32 warp, u32 lane)
        : next(args.trace + u64{cta * (schedule::kThreads / 32) + warp} * kTraceRecords), left(lane == 0 ? kTraceRecords - 1 : 0) {
        start_ns = device::global_nanoseconds();
        start_clock = device::sm_clock();
    }
    MONOMOE_DEVICE void begin() {
        if (left) *next++ = start_ns;
        record(Event::kStart, 0, start_clock);
    }
    MONOMOE_DEVICE void mark(Event event, u32 index = 0) { record(event, index, device::sm_clock()); }
    // Behind a barrier of the hardware.
    MONOMOE_DEVICE void mark_synced(const SharedStorage& s) { record(Event::kSynced, 0, device::sm_clock_behind(&s.epoch)); }

private:
    MONOMOE_DEVICE void record(Event event, u32 index, u32 clock) {
        if (left == 0) return;
        --left;
        *next++ = u64{(static_cast<u32>(event) + 1) << 24 | (index & 0xffffu)} << 32 | clock;
    }
};

using Tracer = WarpTracer<schedule::kTrace>;
