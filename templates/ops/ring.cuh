// The ring of weight stages: one byte ring that both projections share, with a full/empty barrier pair per stage.
//
// A stage is a run of whole blocks at a running offset modulo kRingBytes, so stages of the up- and the
// down-projection may differ in size. Stages are written, read and released in order. What lies where in a stage is
// said in ops/weights.cuh; kRingBytes and the offsets are multiples of kBlockBytes.
#pragma once

#include "device/bulk_copy.cuh"
#include "device/warp.cuh"
#include "ops/storage.cuh"
#include "ops/weights.cuh"

// Position in the barrier ring.
struct RingSlot {
    u32 index = 0;
    u32 parity = 0;

    MONOMOE_DEVICE void advance() {
        if (++index == schedule::kRingStages) {
            index = 0;
            parity ^= 1;
        }
    }
};

MONOMOE_DEVICE u32 ring_wrap(u32 offset) { return offset >= schedule::kRingBytes ? offset - schedule::kRingBytes : offset; }

// Whether a stage may begin near the end of the ring and go on at its beginning.
constexpr bool kStagesCross = schedule::UpStage::kBytes != schedule::DownStage::kBytes;

// The place `at` bytes behind the beginning `offset` of a stage.
MONOMOE_DEVICE u32 ring_at(u32 offset, u32 at) { return kStagesCross ? ring_wrap(offset + at) : offset + at; }

// Bytes of weights that a CTA may have on their way. Enough to cover the latency of memory; more only makes every
// other load of the CTA queue behind them. The rest of the ring is slack between the copies and the MMA warps.
constexpr u32 kMaxOutstanding = 64 * 1024;

// One thread.
struct RingWriter {
    const Args& args;
    SharedStorage& storage;
    device::CachePolicy policy;
    RingSlot head, tail, landing;
    u32 offset = 0;
    u32 in_flight = 0;
    u32 free_bytes = schedule::kRingBytes;
    u32 up_in_flight = 0;  // the oldest of the stages in flight
    u32 outstanding = 0;   // stages on their way, the newest of those in flight
    u32 outstanding_bytes = 0;
    u32 up_outstanding = 0;  // the oldest of the stages that have not landed

    MONOMOE_DEVICE RingWriter(const Args& args, SharedStorage& s) : args(args), storage(s), policy(device::evict_first_policy()) {}

    // The oldest stage on its way has arrived.
    MONOMOE_DEVICE void land() {
        landing.advance();
        --outstanding;
        outstanding_bytes -= up_outstanding ? schedule::UpStage::kBytes : schedule::DownStage::kBytes;
        if (up_outstanding) --up_outstanding;
    }

    // Of this kind.
    template <typename Stage>
    MONOMOE_DEVICE u32 stages_in_flight() const {
        return Stage::kIsUp ? up_in_flight : in_flight - up_in_flight;
    }

    // Waits on: empty, until a stage of this kind fits; full, until few enough bytes are on their way. Announces
    // `bytes` of copies.
    template <typename Stage>
    MONOMOE_DEVICE void open(u32 bytes) {
        while (stages_in_flight<Stage>() >= Stage::kInFlight || in_flight == schedule::kRingStages ||
               free_bytes < Stage::kBytes) {
            device::mbarrier_wait(&storage.barrier.empty[tail.index], tail.parity, args.wait_limit_ns);
            tail.advance();
            if (outstanding == in_flight) land();
            --in_flight;
            free_bytes += up_in_flight ? schedule::UpStage::kBytes : schedule::DownStage::kBytes;
            if (up_in_flight) --up_in_flight;
        }
        while (outstanding && outstanding_bytes + Stage::kBytes > kMaxOutstanding) {
            device::mbarrier_wait(&storage.barrier.full[landing.index], landing.parity, args.wait_limit_ns);
            land();
        }
        announce(bytes);
    }
    MONOMOE_DEVICE void announce(u32 bytes) { device::mbarrier_arrive_expect(&storage.barrier.full[head.index], bytes); }

    // Copies kBytes to `at` bytes from the stage's beginning, a multiple of kBytes. What divides a block never crosses
    // the end of the ring.
    template <u32 kBytes>
    MONOMOE_DEVICE void copy(u32 at, const u8* source) {
        const u32 start = ring_at(offset, at);
        u32 first = kBytes;
        if constexpr (kStagesCross && schedule::kBlockBytes % kBytes != 0) {
            if (first > schedule::kRingBytes - start) first = schedule::kRingBytes - start;
        }
        device::bulk_copy(storage.ring + start, source, first, &storage.barrier.full[head.index], policy);
        if (first < kBytes) {
            device::bulk_copy(storage.ring, source + first, kBytes - first, &storage.barrier.full[head.index], policy);
        }
    }

    template <typename Stage>
    MONOMOE_DEVICE void close() {
        offset = ring_wrap(offset + Stage::kBytes);
        free_bytes -= Stage::kBytes;
        ++in_flight;
        up_in_flight += Stage::kIsUp;
        ++outstanding;
        outstanding_bytes += Stage::kBytes;
        up_outstanding += Stage::kIsUp;
        head.advance();
    }
};

// One MMA warp; all of them read every stage.
struct RingReader {
    RingSlot slot;
    u32 offset = 0;

    // Block `index` of the stage, as this lane multiplies it.
    template <typename Stage>
    MONOMOE_DEVICE BlockOperand block(const SharedStorage& s, u32 index, u32 lane) const {
        if constexpr (schedule::kRaw) {
            const u32 low = RawStage<Stage>::row_at(index, lane), high = low + RawStage<Stage>::kHighRows;
            return raw_operand(s.ring + ring_at(offset, low), s.ring + ring_at(offset, high), lane);
        } else {
            return packed_operand(s.ring + ring_at(offset, index * schedule::kBlockBytes), lane);
        }
    }
    MONOMOE_DEVICE void wait(const Args& args, SharedStorage& s) const { device::mbarrier_wait(&s.barrier.full[slot.index], slot.parity, args.wait_limit_ns); }
    template <typename Stage>
    MONOMOE_DEVICE void release(SharedStorage& s, u32 lane) {
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.empty[slot.index]);
        offset = ring_wrap(offset + Stage::kBytes);
        slot.advance();
    }
};
