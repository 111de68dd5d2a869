// One way to order two accesses of shared memory, right or with a race: what compute-sanitizer's racecheck says of it
// shows whether the tool sees that order. tests/racecheck_probes.py defines KERNEL, CASE and RACY before this text.
//
// One CTA of two warps: the first writes kWords words of each of kRounds rounds, the second reads them and puts their
// sum over the rounds in `out`. Word i of round r is in[r * kWords + i]. Only a race may read something else.

#include "device/bulk_copy.cuh"
#include "device/warp.cuh"

constexpr u32 kWords = 32, kRounds = 8, kSlots = 2;
constexpr u32 kSlotBytes = 4 * kWords;

enum Case : u32 {
    kEveryLaneArrives,   // an mbarrier on which all lanes of the writer arrive
    kOneLaneArrives,     // __syncwarp, then one lane arrives for all
    kBulkCopy,           // a bulk copy that completes on an mbarrier
    kNamedBarrier,       // bar.arrive of the writer, bar.sync of the reader
    kSyncWarp,           // __syncwarp between two lanes
    kRingEveryLane,      // a ring of bulk copies; all lanes give a slot back
    kRingOneLane,        // a ring of bulk copies; __syncwarp, then one lane gives a slot back
    kRingBarriersInLoop  // the same, with barriers that are made in a loop, as the kernels make theirs
};
constexpr Case kCase = static_cast<Case>(CASE);
constexpr bool kRacy = RACY;
constexpr bool kIsRing = kCase >= kRingEveryLane;

struct Storage {
    alignas(128) u32 words[kSlots][kWords];
    alignas(8) device::Mbarrier full[kSlots];
    device::Mbarrier empty[kSlots];
};
static_assert(sizeof(Storage) == 384, "what tests/racecheck_probes.py launches with");

// The compiler leaves these accesses as they are and where they are.
MONOMOE_DEVICE void put(u32& word, u32 value) { *const_cast<volatile u32*>(&word) = value; }
MONOMOE_DEVICE u32 get(const u32& word) { return *const_cast<const volatile u32*>(&word); }

MONOMOE_DEVICE void make_barriers(Storage& s, u32 thread) {
    constexpr u32 kFull = kCase == kEveryLaneArrives ? 32 : 1;
    constexpr u32 kEmpty = kCase == kRingEveryLane ? 32 : 1;
    if (kCase == kRingBarriersInLoop) {
        if (thread % 32 == 0) {
#pragma unroll 1
            for (u32 i = thread / 32; i < 2 * kSlots; i += 2) device::mbarrier_init(&s.full[0] + i, 1);
        }
    } else if (thread == 0) {
        for (u32 slot = 0; slot < kSlots; ++slot) device::mbarrier_init(&s.full[slot], kFull);
        for (u32 slot = 0; slot < kSlots; ++slot) device::mbarrier_init(&s.empty[slot], kEmpty);
    }
    device::mbarrier_init_fence();
    __syncthreads();
}

MONOMOE_DEVICE void copy_round(Storage& s, const u32* in, u32 round) {
    device::Mbarrier* const full = &s.full[round % kSlots];
    device::mbarrier_arrive_expect(full, kSlotBytes);
    device::bulk_copy(s.words[round % kSlots], in + round * kWords, kSlotBytes, full, device::evict_first_policy());
}

// The first warp. What has no ring has one round.
MONOMOE_DEVICE void write(Storage& s, const u32* in, u32 lane) {
    if constexpr (kIsRing) {
        if (lane != 0) return;
#pragma unroll 1
        for (u32 round = 0; round < kRounds; ++round) {
            const u32 use = round / kSlots;
            if (use) device::mbarrier_wait(&s.empty[round % kSlots], (use - 1) & 1, device::kWaitLimitNs);
            copy_round(s, in, round);
        }
    } else if constexpr (kCase == kBulkCopy) {
        if (lane == 0) copy_round(s, in, 0);
    } else {
        put(s.words[0][lane], in[lane]);
        if constexpr (kCase == kOneLaneArrives && !kRacy) device::sync_warp();
        if (kCase == kEveryLaneArrives || (kCase == kOneLaneArrives && lane == 0)) device::mbarrier_arrive(&s.full[0]);
        if constexpr (kCase == kNamedBarrier) device::arrive_named(1, 64);
    }
}

// The second warp.
MONOMOE_DEVICE u32 read(Storage& s, u32 lane) {
    u32 sum = 0;
    if constexpr (kIsRing) {
#pragma unroll 1
        for (u32 round = 0; round < kRounds; ++round) {
            const u32 slot = round % kSlots;
            device::mbarrier_wait(&s.full[slot], round / kSlots & 1, device::kWaitLimitNs);
            if (!kRacy) sum += get(s.words[slot][lane]);
            if (kCase != kRingEveryLane) device::sync_warp();
            if (kCase == kRingEveryLane || lane == 0) device::mbarrier_arrive(&s.empty[slot]);
            if (kRacy) sum += get(s.words[slot][lane]);
        }
    } else if constexpr (kCase == kNamedBarrier) {
        if (kRacy) sum = get(s.words[0][31 - lane]);
        device::sync_named(1, 64);
        if (!kRacy) sum = get(s.words[0][31 - lane]);
    } else {
        const bool waits = !kRacy || kCase == kOneLaneArrives;
        if (waits) device::mbarrier_wait(&s.full[0], 0, device::kWaitLimitNs);
        sum = get(s.words[0][31 - lane]);
        if (!waits) device::mbarrier_wait(&s.full[0], 0, device::kWaitLimitNs);
    }
    return sum;
}

MONOMOE_KERNEL(64) KERNEL(const u32* in, u32* out) {
    Storage& s = device::shared_storage<Storage>();
    const u32 thread = device::thread_index(), lane = thread % 32;
    if constexpr (kCase == kSyncWarp) {
        if (thread >= 32) return;
        put(s.words[0][lane], in[lane]);
        if (!kRacy) device::sync_warp();
        out[lane] = get(s.words[0][31 - lane]);
        return;
    }
    make_barriers(s, thread);
    if (thread < 32) {
        write(s, in, lane);
    } else {
        out[lane] = read(s, lane);
    }
}
