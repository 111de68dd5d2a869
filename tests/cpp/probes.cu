// What each function of device/ gives on known inputs: compiled for the GPU with the headers of templates/device, and
// for the simulator with those of templates/host/device. tests/probes.py has the inputs and what is expected.
//
// A launch runs one probe. It reads `in` (a count, three unused words, the inputs) and writes every word of `out` once:
// columns, one after another, of as many rows as there are inputs unless the probe says otherwise. `workspace` is zero.

#include "device/async_copy.cuh"
#include "device/bulk_copy.cuh"
#include "device/clock.cuh"
#include "device/cluster.cuh"
#include "device/dependency.cuh"
#include "device/memory.cuh"
#include "device/mma.cuh"
#include "device/numeric.cuh"
#include "device/trap.cuh"
#include "device/warp.cuh"

constexpr u32 kGrid = 2;
constexpr u32 kThreads = 96;  // of a CTA
constexpr u32 kAllThreads = kGrid * kThreads;
constexpr u32 kRingBytes = 8192;

struct Storage {
    alignas(128) u8 ring[kRingBytes];
    alignas(16) u32 words[kThreads];
    alignas(8) device::Mbarrier full;
    device::Mbarrier empty;
};
static_assert(sizeof(Storage) == 8704, "what tests/probes.py launches with");

struct Probe {
    const u32* in;
    u32* out;
    u32* workspace;
    u32 count, cta, thread, lane, index;  // index: of the thread in the launch

    MONOMOE_DEVICE void put(u32 column, u32 row, u32 value) const { out[column * count + row] = value; }
    MONOMOE_DEVICE void put(u32 column, u32 row, float value) const { put(column, row, device::float_to_bits(value)); }
};

MONOMOE_DEVICE u32 fold(U32x2 v) { return v.x + 3 * v.y; }
MONOMOE_DEVICE u32 fold(U32x4 v) { return v.x + 3 * v.y + 5 * v.z + 7 * v.w; }
MONOMOE_DEVICE u32 fold(F32x4 v) {
    return fold(U32x4{device::float_to_bits(v.x), device::float_to_bits(v.y), device::float_to_bits(v.z), device::float_to_bits(v.w)});
}

// Where a thread is. A row is a thread of the launch.
MONOMOE_DEVICE void probe_places(const Probe& p) {
    Storage& s = device::shared_storage<Storage>();
    p.put(0, p.index, device::thread_index());
    p.put(1, p.index, device::cta_index());
    p.put(2, p.index, device::shared_address(s.ring + 16 * p.thread) - device::shared_address(s.ring));
    p.put(3, p.index, device::negative_infinity());
    p.put(4, p.index, device::not_a_number());
    p.put(5, p.index, device::kAllLanes);
}

// Rows are a word and another one; the first is not zero.
MONOMOE_DEVICE void probe_words(const Probe& p) {
    for (u32 i = p.index; i < p.count; i += kAllThreads) {
        const u32 a = p.in[2 * i], b = p.in[2 * i + 1];
        const F32x2 pair = device::bf16x2_to_float(a);
        const U32x2 half = device::e4m3x4_to_half(a);
        p.put(0, i, device::bits_to_float(a));
        p.put(1, i, device::count_bits(a));
        p.put(2, i, device::lowest_bit(a));
        p.put(3, i, device::maximum(a, b));
        p.put(4, i, device::bf16_to_float(static_cast<device::Bf16>(b)));
        p.put(5, i, pair.x);
        p.put(6, i, pair.y);
        p.put(7, i, half.x);
        p.put(8, i, half.y);
        const U32x2 wide = device::e4m3x4_to_bf16(a);
        const F32x2 first = device::bf16x2_to_float(wide.x), last = device::bf16x2_to_float(wide.y);
        p.put(9, i, first.x);
        p.put(10, i, first.y);
        p.put(11, i, last.x);
        p.put(12, i, last.y);
        p.put(13, i, device::minimum(a, b));
    }
}

// Rows are four floats, or eight bf16.
MONOMOE_DEVICE void probe_floats(const Probe& p) {
    for (u32 i = p.index; i < p.count; i += kAllThreads) {
        const u32* const row = p.in + 4 * i;
        const float a = device::bits_to_float(row[0]), b = device::bits_to_float(row[1]);
        const float c = device::bits_to_float(row[2]), d = device::bits_to_float(row[3]);
        p.put(0, i, device::absolute(a));
        p.put(1, i, device::maximum(a, b));
        p.put(2, i, device::minimum(a, b));
        p.put(3, i, static_cast<u32>(device::float_to_bf16(a)));
        p.put(4, i, device::float_to_e4m3x4(a, b, c, d));
        p.put(5, i, device::bf16x8_absolute_max({row[0], row[1], row[2], row[3]}));
    }
}

// Rows are a dividend and a divisor.
MONOMOE_DEVICE void probe_quotients(const Probe& p) {
    for (u32 i = p.index; i < p.count; i += kAllThreads) {
        const float a = device::bits_to_float(p.in[2 * i]), b = device::bits_to_float(p.in[2 * i + 1]);
        p.put(0, i, device::divide_rounded(a, b));
        p.put(1, i, device::divide_fast(a, b));
    }
}

MONOMOE_DEVICE void probe_exponentials(const Probe& p) {
    for (u32 i = p.index; i < p.count; i += kAllThreads) {
        p.put(0, i, device::exponential_fast(device::bits_to_float(p.in[i])));
    }
}

// Rows are (round, thread of the launch), each with a value, a source lane, and the round's mask.
MONOMOE_DEVICE void probe_exchanges(const Probe& p) {
    for (u32 i = p.index; i < p.count; i += kAllThreads) {
        const u32 value = p.in[3 * i], source = p.in[3 * i + 1], mask = p.in[3 * i + 2];
        p.put(0, i, device::shuffle(value, source));
        p.put(1, i, device::shuffle(device::bits_to_float(value), source));
        p.put(2, i, device::shuffle_xor(device::bits_to_float(value), mask));
        p.put(3, i, device::ballot(value & 1));
        p.put(4, i, static_cast<u32>(device::all(value & 2)));
        p.put(5, i, device::reduce_max(value));
        p.put(6, i, device::reduce_min(value));
        p.put(7, i, device::reduce_add(value));
        p.put(8, i, device::count_bits(device::ballot(device::elect())));
    }
}

// Shared memory, and what orders it. A row is a thread of the launch.
MONOMOE_DEVICE void probe_shared(const Probe& p) {
    Storage& s = device::shared_storage<Storage>();
    const u32 t = p.thread;
    s.words[t] = p.in[p.index];
    device::sync_warp();
    p.put(0, p.index, s.words[t ^ 1]);
    device::sync_named(0, kThreads);
    p.put(1, p.index, s.words[kThreads - 1 - t]);
    p.put(2, p.index, fold(device::load_shared_early(s.words + t / 4 * 4)));
    device::sync_named(0, kThreads);
    u32 received = 0;
    s.words[t] = p.in[p.index] + 1;
    if (t < 64) {
        device::sync_named(1, kThreads);
        received = s.words[kThreads - 1 - t];
    } else {
        device::arrive_named(1, kThreads);
    }
    p.put(3, p.index, received);
}

// Global memory. A row is a thread of the launch, with four words.
MONOMOE_DEVICE void probe_memory(const Probe& p) {
    const u32* const row = p.in + 4 * p.index;
    p.put(0, p.index, device::load_input(row));
    p.put(1, p.index, device::load_input(reinterpret_cast<const float*>(row) + 1));
    p.put(2, p.index, static_cast<u32>(device::load_input(reinterpret_cast<const device::Bf16*>(row) + 5)));
    p.put(3, p.index, fold(device::load_input(reinterpret_cast<const U32x4*>(row))));
    p.put(4, p.index, fold(device::load_input(reinterpret_cast<const F32x4*>(row))));

    // within the CTA
    float* const values = reinterpret_cast<float*>(p.workspace + 256 + p.cta * kThreads);
    device::store_relaxed(values + p.thread, device::bits_to_float(row[0]));
    device::sync_named(0, kThreads);
    p.put(5, p.index, device::load_relaxed(values + kThreads - 1 - p.thread));
    p.put(6, p.index, fold(device::load_relaxed(reinterpret_cast<const F32x4*>(values) + p.thread / 4)));
    p.put(7, p.index, fold(device::load_relaxed(reinterpret_cast<const U32x4*>(values) + p.thread / 4)));

    // to the other CTA, where the value is the flag
    float* const mail = reinterpret_cast<float*>(p.workspace + 512);
    device::store_relaxed(mail + p.index, device::bits_to_float(row[0] | 1));
    const device::Watchdog watchdog{device::kWaitLimitNs};
    float received;
    while (device::float_to_bits(received = device::load_relaxed(mail + kAllThreads - 1 - p.index)) == 0) watchdog.check();
    p.put(8, p.index, received);

    // a counter of its own that wraps after 4, and one that all share
    u32* const own = p.workspace + 32 + p.index;
    device::store_relaxed(own, p.index % 8);
    for (u32 i = 0; i < 6; ++i) p.put(9 + i, p.index, device::atomic_increment_wrap(own, 4));
    p.put(15, p.index, device::load_relaxed(reinterpret_cast<const float*>(own)));
    const u32 old = device::atomic_increment_wrap(p.workspace, kAllThreads - 1);
    p.put(16, old, 1u);  // every value comes once
    const float left = device::load_relaxed(reinterpret_cast<const float*>(p.workspace));
    p.put(17, old, old == kAllThreads - 1 ? device::float_to_bits(left) : 0u);

    // of a launch with nothing ahead
    device::wait_for_prerequisites();
    device::launch_dependents();
    const U32x2 two = device::load_behind(reinterpret_cast<const U32x2*>(row));
    const U32x2 read = device::load_input(reinterpret_cast<const U32x2*>(row));
    p.put(22, p.index, read.x + 3 * read.y);
    p.put(18, p.index, device::load_behind(row));
    p.put(19, p.index, static_cast<u32>(device::load_behind(reinterpret_cast<const device::Bf16*>(row) + 5)));
    p.put(20, p.index, two.x + 3 * two.y);
    p.put(21, p.index, fold(device::load_behind(reinterpret_cast<const F32x4*>(row))));
}

MONOMOE_DEVICE void copy_to_ring(const Probe& p, Storage& s, u32 offset, u32 source, u32 bytes, device::CachePolicy policy) {
    if (bytes == 0) return;
    const u8* const from = reinterpret_cast<const u8*>(p.in) + source;
    const u32 start = offset % kRingBytes, room = kRingBytes - start, first = bytes < room ? bytes : room;
    device::bulk_copy(s.ring + start, from, first, &s.full, policy);
    if (first < bytes) device::bulk_copy(s.ring, from + first, bytes - first, &s.full, policy);
}

// Bulk copies. A row is a phase: where in the inputs its bytes lie, and the sizes of two copies to a running offset of
// the ring. Columns: every CTA's words of all phases; what mbarrier_try_wait says, by (CTA, phase, thread).
MONOMOE_DEVICE void probe_copies(const Probe& p) {
    Storage& s = device::shared_storage<Storage>();
    if (p.thread == 0) {
        device::mbarrier_init(&s.full, 1);
        device::mbarrier_init(&s.empty, kThreads);
        device::mbarrier_init_fence();
    }
    device::sync_named(0, kThreads);
    const device::CachePolicy policy = device::evict_first_policy();
    u32 words = 0;
    for (u32 k = 0; k < p.count; ++k) words += (p.in[4 * k + 1] + p.in[4 * k + 2]) / 4;
    u32* const copied = p.out + p.cta * words;
    u32* const ready = p.out + kGrid * words + p.cta * p.count * kThreads;
    for (u32 k = 0, offset = 0; k < p.count; ++k) {
        const u32 source = p.in[4 * k], first = p.in[4 * k + 1], second = p.in[4 * k + 2], parity = k & 1;
        if (p.thread == 0) {
            if (k) device::mbarrier_wait(&s.empty, parity ^ 1, device::kWaitLimitNs);
            device::mbarrier_arrive_expect(&s.full, first + second);
            copy_to_ring(p, s, offset, source, first, policy);
            copy_to_ring(p, s, offset + first, source + first, second, policy);
        }
        device::mbarrier_wait(&s.full, parity, device::kWaitLimitNs);
        const bool past = device::mbarrier_try_wait(&s.full, parity), next = device::mbarrier_try_wait(&s.full, parity ^ 1);
        ready[k * kThreads + p.thread] = past + 2 * next;
        for (u32 at = 4 * p.thread; at < first + second; at += 4 * kThreads) {
            copied[(offset + at) / 4] = *reinterpret_cast<const u32*>(s.ring + (offset + at) % kRingBytes);
        }
        device::mbarrier_arrive(&s.empty);
        offset += first + second;
    }
}

// Matrix products of e4m3 codes. A row is a word of a case's result: (case, lane, component). A lane's inputs are four
// codes of row g of a, four of row g + 8, four of column g of b, an unused word, and four floats of d.
MONOMOE_DEVICE void probe_products(const Probe& p) {
    for (u32 i = p.index / 32; i < p.count; i += kAllThreads / 32) {
        const u32* const row = p.in + (32 * i + p.lane) * 8;
        const U32x2 low = device::e4m3x4_to_half(row[0]), high = device::e4m3x4_to_half(row[1]);
        const U32x2 b = device::e4m3x4_to_half(row[2]);
        float d[4];
        for (u32 c = 0; c < 4; ++c) d[c] = device::bits_to_float(row[4 + c]);
        device::mma_16x8x16(d, low.x, high.x, low.y, high.y, b.x, b.y);
        for (u32 c = 0; c < 4; ++c) p.out[(32 * i + p.lane) * 4 + c] = device::float_to_bits(d[c]);
    }
}

// Matrix products of bf16 pairs. A row is a word of a case's result, as above. A lane's inputs are its four words of a, two
// of b, two unused ones, and four floats of d.
MONOMOE_DEVICE void probe_wide_products(const Probe& p) {
    for (u32 i = p.index / 32; i < p.count; i += kAllThreads / 32) {
        const u32* const row = p.in + (32 * i + p.lane) * 12;
        float d[4];
        for (u32 c = 0; c < 4; ++c) d[c] = device::bits_to_float(row[8 + c]);
        device::mma_bf16_16x8x16(d, row[0], row[1], row[2], row[3], row[4], row[5]);
        for (u32 c = 0; c < 4; ++c) p.out[(32 * i + p.lane) * 4 + c] = device::float_to_bits(d[c]);
    }
}

// Whether the clocks go forward. A row is a thread of the launch.
MONOMOE_DEVICE void probe_clocks(const Probe& p) {
    const u32 cycles = device::sm_clock();
    const u64 time = device::global_nanoseconds();
    device::sync_named(0, kThreads);
    device::sync_named(0, kThreads);
    const u32 more = device::sm_clock() - cycles;
    u32(&words)[kThreads] = device::shared_storage<u32[kThreads]>();
    words[p.thread] = p.thread;
    const u32 last = device::sm_clock_behind(words + p.thread) - cycles;
    p.put(0, p.index, static_cast<u32>(more > 0 && more < 0x80000000u));
    p.put(1, p.index, static_cast<u32>(device::global_nanoseconds() >= time));
    p.put(2, p.index, static_cast<u32>(last >= more && last < 0x80000000u));
#ifdef __CUDACC__
    constexpr u32 kLeast = 100;
#else
    constexpr u32 kLeast = 0;  // the host's clock counts decisions, and nobody waits for them
#endif
    const u32 before = device::sm_clock();
    device::spin_since(before, 100);
    const u32 passed = device::sm_clock() - before;
    p.put(3, p.index, static_cast<u32>(passed >= kLeast && passed < 0x80000000u));
}

// Stores in the other CTA of the cluster, counted on a barrier there. A row is a thread of the launch, with four words.
// Columns: each of them.
MONOMOE_DEVICE void probe_cluster(const Probe& p) {
    Storage& s = device::shared_storage<Storage>();
    if (p.thread == 0) {
        device::mbarrier_init(&s.full, 1);
        device::mbarrier_init_fence();
        device::mbarrier_arrive_expect(&s.full, kThreads * sizeof(F32x4));
    }
    device::sync_named(0, kThreads);
    device::cluster_arrive();
    device::cluster_wait();
    F32x4* const received = reinterpret_cast<F32x4*>(s.ring);
    const F32x4 sent = reinterpret_cast<const F32x4*>(p.in)[p.index];
    device::store_remote(received + kThreads - 1 - p.thread, sent, &s.full, p.cta ^ 1);
    device::mbarrier_wait_cluster(&s.full, 0, device::kWaitLimitNs);
    const F32x4 got = received[p.thread];
    p.put(0, p.index, got.x);
    p.put(1, p.index, got.y);
    p.put(2, p.index, got.z);
    p.put(3, p.index, got.w);
}

// Copies that a thread asks for, in groups of some and of none. A row is a thread of the launch, with a word for each
// copy. Columns: each copy, as the thread has it that asked or another.
MONOMOE_DEVICE void probe_async_copies(const Probe& p) {
    Storage& s = device::shared_storage<Storage>();
    const u32 t = p.thread;
    float* const words = reinterpret_cast<float*>(s.ring);  // of copy i those of all threads, then of copy i + 1
    const float* const row = reinterpret_cast<const float*>(p.in) + 8 * p.index;
    const auto ask = [&](u32 i) { device::copy_async(words + i * kThreads + t, row + i); };
    const auto put = [&](u32 i, u32 thread) { p.put(i, p.index, words[i * kThreads + thread]); };
    device::wait_async<0>();  // none is asked for
    ask(0);
    device::commit_async();
    ask(1);
    ask(2);
    device::commit_async();
    device::commit_async();
    if (t % 2) ask(3);  // a group of none for half of the lanes
    device::commit_async();
    device::wait_async<3>();
    put(0, t);
    device::sync_warp();
    ask(4);
    device::commit_async();
    device::wait_async<2>();
    device::sync_warp();
    put(1, t ^ 31);
    put(2, t ^ 1);
    ask(5);  // in no group yet
    device::wait_async<1>();
    device::sync_warp();
    put(3, t | 1);
    device::wait_async<0>();
    put(4, t);
    ask(0);  // over what it has read itself
    device::commit_async();
    device::wait_async<0>();
    device::sync_named(0, kThreads);
    put(5, kThreads - 1 - t);
    p.put(6, p.index, words[(t + 32) % kThreads]);
}

MONOMOE_KERNEL(kThreads) MONOMOE_CLUSTER(kGrid) device_probes(const u32* in, u32* out, u32* workspace, u32 probe) {
    const u32 thread = device::thread_index(), cta = device::cta_index();
    const Probe p = {in + 4, out, workspace, in[0], cta, thread, thread % 32, cta * kThreads + thread};
    if (probe != 12) device::cluster_arrive();  // that one arrives when its barrier is made
    switch (probe) {
        case 0: return probe_places(p);
        case 1: return probe_words(p);
        case 2: return probe_floats(p);
        case 3: return probe_quotients(p);
        case 4: return probe_exponentials(p);
        case 5: return probe_exchanges(p);
        case 6: return probe_shared(p);
        case 7: return probe_memory(p);
        case 8: return probe_copies(p);
        case 9: return probe_products(p);
        case 10: return probe_clocks(p);
        case 11: return probe_wide_products(p);
        case 12: return probe_cluster(p);
        case 13: return probe_async_copies(p);
    }
}
