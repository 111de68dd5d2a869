// Barriers, bulk copies, remote stores, and what the lanes of a warp do together.
#include <algorithm>
#include <cstring>
#include <utility>

#include "simulator/state.h"

namespace sim {

namespace {

constexpr long long kMostBytes = (1 << 20) - 1;  // what a barrier can count

u64 number(const void* pointer) { return reinterpret_cast<u64>(pointer); }

[[noreturn]] void fault(const char* kind, u32 pc, u64 address, std::string note) {
    machine.reports.add(kind, {machine.current->id, pc, ""}, {}, address, 0, std::move(note));
    stop();
}

void complete_phase(Barrier& barrier) {
    if (barrier.pending || barrier.bytes) return;
    barrier.released = barrier.gathering;
    barrier.gathering = Clock();
    barrier.last_base = Clock();
    barrier.pending = barrier.count;
    ++barrier.phase;
    for (Thread* waiter : barrier.waiters) wake(*waiter);
    barrier.waiters.clear();
}

void acquire(Thread& thread, const Clock& clock) {
    struct Known {
        Clock base, clock, joined;
    };
    static Known known[256];  // the lanes of a warp, and many warps, ask for the same
    if (!clock) return;
    Known& entry = known[(thread.base.key() * 31 + clock.key()) % std::size(known)];
    if (!(entry.base == thread.base && entry.clock == clock)) entry = {thread.base, clock, Clock::join(thread.base, clock)};
    thread.base = entry.joined;
}

u32& phases_seen(Barrier& barrier, const Thread& thread) {
    if (barrier.seen.empty()) barrier.seen.resize(kProgram.threads);
    return barrier.seen[thread.index];
}

// A waiter that misses a phase may take one for another. A thread that arrives cannot miss the phases before its own.
void see(Barrier& barrier, u64 address, Thread& thread, u32 pc) {
    u32& seen = phases_seen(barrier, thread);
    const u32 completed = barrier.phase - 1;
    if (completed > seen) {
        machine.reports.add("phase_skipped", {thread.id, pc, "wait"}, {}, address, 8,
                            "saw phase " + std::to_string(completed) + " complete without phase " + std::to_string(seen));
    }
    seen = std::max(seen, completed + 1);
    acquire(thread, barrier.released);
}

}  // namespace

u32 thread_index() { return machine.current->index; }
u32 cta_index() { return machine.current->cta; }
u64 now() { return machine.steps; }

void* shared_storage(u64 bytes) {
    if (bytes > kProgram.shared_bytes) fault("out_of_range", MONOMOE_CALLER, 0, "the kernel asks for more shared memory than it is launched with");
    return machine.cta().shared;
}

void trap() {
    machine.reports.add("trap", {machine.current->id, MONOMOE_CALLER, "trap"}, {}, 0, 0);
    stop();
}

u32 shared_address(const void* pointer) { return static_cast<u32>(number(pointer) - number(machine.cta().shared)); }

// Adds what a thread knows, itself included, to a clock that is being gathered.
void publish(Clock& gathering, Clock& last_base, Thread& thread) {
    const u32 own = thread.id % machine.ids_per_cta();
    if (!gathering) {
        gathering = thread.base.copy();
    } else if (!(last_base == thread.base)) {
        gathering.raise_to(thread.base);
    }
    last_base = thread.base;
    gathering.set(own, std::max(gathering[own], thread.clock));
    ++thread.clock;
}

Barrier& barrier_at(u64 address, u32 cta_index, const Thread* user, u32 pc) {
    Cta& cta = machine.ctas[cta_index];
    const auto found = cta.barriers.find(address);
    if (found == cta.barriers.end()) fault("barrier_not_initialised", pc, address, "");
    if (user) {
        Stamp writer;
        if (!cta.shadow.ordered_after_write(machine.now(pc), address, writer)) {
            machine.reports.add("race", {user->id, pc, "barrier use"}, {writer.thread, writer.pc, "barrier init"}, address, 8);
        }
    }
    return found->second;
}

void barrier_init(u64* address, u32 count) {
    const u32 pc = MONOMOE_CALLER;
    Cta& cta = machine.cta();
    Thread& thread = *machine.current;
    if (!cta.shadow.covers(number(address)) || number(address) % 8) fault("out_of_range", pc, number(address), "a barrier lies in shared memory, 8-byte aligned");
    if (count == 0 || count > kMostBytes) fault("barrier_count", pc, number(address), "count " + std::to_string(count));
    if (cta.barriers.count(number(address))) {
        machine.reports.add("barrier_initialised_twice", {thread.id, pc, "barrier init"}, {}, number(address), 8);
    } else {
        check_access(Access::kWrite, number(address), 8, pc);
    }
    cta.shadow.mark_barrier(number(address));
    Barrier& barrier = cta.barriers[number(address)];
    barrier = Barrier();
    barrier.count = barrier.pending = count;
    barrier.init_thread = static_cast<u32>(&thread - machine.threads.data());
    barrier.init_fences = thread.fences;
    maybe_yield();
}

void barrier_init_fence() { ++machine.current->fences; }

void barrier_arrive(u64* address, u32 bytes) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    Thread& thread = *machine.current;
    Barrier& barrier = barrier_at(number(address), thread.cta, &thread, pc);
    publish(barrier.gathering, barrier.last_base, thread);
    barrier.bytes += bytes;
    if (barrier.bytes > kMostBytes) fault("barrier_count", pc, number(address), "more than 2^20 - 1 bytes announced");
    if (barrier.pending == 0) fault("barrier_count", pc, number(address), "more arrivals than its count");
    u32& seen = phases_seen(barrier, thread);
    seen = std::max(seen, barrier.phase);
    --barrier.pending;
    complete_phase(barrier);
}

bool barrier_test(u64* address, u32 parity) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    Thread& thread = *machine.current;
    Barrier& barrier = barrier_at(number(address), thread.cta, &thread, pc);
    if ((barrier.phase & 1) == parity) {
        yield_now();
        return false;
    }
    see(barrier, number(address), thread, pc);
    return true;
}

void barrier_wait(u64* address, u32 parity, u64 limit_ns) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    Thread& thread = *machine.current;
    Barrier& barrier = barrier_at(number(address), thread.cta, &thread, pc);
    if (parity > 1) fault("barrier_parity", pc, number(address), "parity " + std::to_string(parity));
    thread.limit_ns = limit_ns;
    while ((barrier.phase & 1) == parity) {
        barrier.waiters.push_back(&thread);
        block(Wait::kBarrier, number(address), parity, pc);
    }
    see(barrier, number(address), thread, pc);
}

namespace {

// Sends a write of the current thread on its way to a CTA.
void issue(Copy& copy, u32 cta_index, u64 to, u32 bytes, u64 barrier, u32 pc) {
    Cta& cta = machine.ctas[cta_index];
    cta.shadow.announce(copy.what, machine.now(pc), to, bytes, machine.reports);
    copy.cta = cta_index;
    copy.slot = kProgram.threads + cta.copies_issued % kEngineSlots;
    copy.clock = 1 + cta.copies_issued / kEngineSlots;
    ++cta.copies_issued;
    copy.to = to;
    copy.bytes = bytes;
    copy.barrier = barrier;
    copy.issuer = machine.current->id;
    copy.pc = pc;
    if (copy.what == Delayed::kBulkCopy) {
        Clock last;
        publish(copy.knows, last, *machine.current);
    } else {  // not ordered behind what its issuer did
        copy.knows = Clock::zero();
    }
    copy.knows.set(copy.slot, copy.clock);
    copy.issued_at = machine.steps;
    machine.copies.push_back(copy);
}

// A copy goes to shared memory of the current thread's CTA and comes from an input.
void require_ends(Delayed what, u64 to, u64 from, u32 bytes, u32 pc) {
    const Cta& cta = machine.cta();
    const std::string name = name_of(what);
    if (!cta.shadow.covers(to) || !cta.shadow.covers(to + bytes - 1)) fault("out_of_range", pc, to, name + " to outside of shared memory");
    const Region* const region = region_at(from, bytes);
    if (!region) fault("out_of_range", pc, from, name + " from no buffer");
    if (region->writable) fault("out_of_range", pc, from, name + " from a buffer that launches write");
}

}  // namespace

void bulk_copy(void* shared, const void* global, u32 bytes, u64* barrier_address) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    Thread& thread = *machine.current;
    const u64 to = number(shared), from = number(global);
    if (bytes == 0 || bytes % 16 || to % 16 || from % 16) {
        fault("misaligned", pc, to, "bulk copy of " + std::to_string(bytes) + " bytes: sizes and addresses are multiples of 16");
    }
    require_ends(Delayed::kBulkCopy, to, from, bytes, pc);
    Barrier& barrier = barrier_at(number(barrier_address), thread.cta, &thread, pc);
    const Thread& maker = machine.threads[barrier.init_thread];
    if (maker.fences == barrier.init_fences) {
        machine.reports.add("init_fence_missing", {thread.id, pc, "bulk copy"}, {maker.id, 0, "barrier init"}, number(barrier_address), 8);
    }
    Copy copy;
    copy.from = from;
    issue(copy, thread.cta, to, bytes, number(barrier_address), pc);
}

void store_remote(void* target, const void* value, u64* barrier_address, u32 rank) {
    constexpr u32 bytes = 16;
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    Thread& thread = *machine.current;
    const Cta& here = machine.cta();
    if (rank >= kProgram.cluster) {
        fault("out_of_range", pc, number(target), "rank " + std::to_string(rank) + " in a cluster of " + std::to_string(kProgram.cluster));
    }
    if (number(target) % bytes || number(barrier_address) % 8) {
        fault("misaligned", pc, number(target), "remote store of 16 bytes: at a multiple of them");
    }
    if (!here.shadow.covers(number(target)) || !here.shadow.covers(number(target) + bytes - 1) || !here.shadow.covers(number(barrier_address))) {
        fault("out_of_range", pc, number(target), "remote store to outside of shared memory");
    }
    const u32 there = thread.cta / kProgram.cluster * kProgram.cluster + rank;
    Cta& cta = machine.ctas[there];
    const u64 away = number(cta.shared) - number(here.shared);
    const u64 to = number(target) + away, counter = number(barrier_address) + away;
    if (!thread.cluster_waited) {
        machine.reports.add("peer_not_there", {thread.id, pc, "remote store"}, {}, to, bytes, "no cluster_wait of this thread is ahead of it");
    }
    if (cta.alive == 0) fault("peer_not_there", pc, to, "the other CTA has ended");
    const Barrier& barrier = barrier_at(counter, there, nullptr, pc);
    const Thread& maker = machine.threads[barrier.init_thread];
    if (maker.fences_at_arrival <= barrier.init_fences) {
        machine.reports.add("init_fence_missing", {thread.id, pc, "remote store"}, {maker.id, 0, "barrier init"}, counter, 8);
    }
    Copy copy;
    copy.what = Delayed::kRemoteStore;
    std::memcpy(copy.value, value, bytes);
    issue(copy, there, to, bytes, counter, pc);
}

void copy_async(void* shared, const void* global, u32 bytes) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    Thread& thread = *machine.current;
    const u64 to = number(shared), from = number(global);
    if ((bytes != 4 && bytes != 8 && bytes != 16) || to % bytes || from % bytes) {
        fault("misaligned", pc, to, "asynchronous copy of " + std::to_string(bytes) + " bytes: 4, 8 or 16, and at multiples");
    }
    require_ends(Delayed::kAsyncCopy, to, from, bytes, pc);
    if (thread.groups.empty()) thread.groups.emplace_back();
    Copy copy;
    copy.what = Delayed::kAsyncCopy;
    copy.from = from;
    copy.asker = &thread;
    copy.group = thread.first_group + static_cast<u32>(thread.groups.size()) - 1;
    ++thread.groups.back().in_flight;
    issue(copy, thread.cta, to, bytes, 0, pc);
}

void commit_async() {
    std::vector<CopyGroup>& groups = machine.current->groups;
    groups.resize(std::max<size_t>(groups.size(), 1) + 1);
}

void wait_async(u32 pending) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    Thread& thread = *machine.current;
    while (thread.groups.size() > pending + 1) {
        while (thread.groups.front().in_flight) block(Wait::kAsync, thread.first_group, 0, pc);
        Clock base = thread.base.copy();
        for (const auto& [slot, clock] : thread.groups.front().landed) base.set(slot, std::max(base[slot], clock));
        thread.base = std::move(base);
        thread.groups.erase(thread.groups.begin());
        ++thread.first_group;
    }
}

// Some bytes of a copy arrive. Runs on the scheduler's stack.
void land(size_t index, u32 bytes) {
    Copy& copy = machine.copies[index];
    Cta& cta = machine.ctas[copy.cta];
    if (copy.what == Delayed::kRemoteStore) {
        std::memcpy(reinterpret_cast<void*>(copy.to + copy.landed), copy.value + copy.landed, bytes);
    } else {
        std::memcpy(reinterpret_cast<void*>(copy.to + copy.landed), reinterpret_cast<const void*>(copy.from + copy.landed), bytes);
    }
    const u32 first = copy.cta * machine.ids_per_cta();
    const Now engine{first + copy.slot, first, machine.ids_per_cta(), copy.clock, &copy.knows, copy.pc};
    cta.shadow.land(copy.what, engine, copy.to + copy.landed, bytes, machine.reports);
    copy.landed += bytes;
    if (copy.what != Delayed::kAsyncCopy) {
        Barrier& barrier = cta.barriers.at(copy.barrier);
        barrier.bytes -= bytes;
        barrier.last_base = Clock();
        if (!barrier.gathering) {
            barrier.gathering = copy.knows.copy();
        } else {
            barrier.gathering.raise_to(copy.knows);
        }
        complete_phase(barrier);
    } else if (copy.landed == copy.bytes) {
        CopyGroup& group = copy.asker->groups[copy.group - copy.asker->first_group];
        group.landed.emplace_back(copy.slot, copy.clock);
        if (--group.in_flight == 0 && copy.asker->state == State::kBlocked && copy.asker->wait == Wait::kAsync) wake(*copy.asker);
    }
    if (copy.landed == copy.bytes) {
        if (index + 1 != machine.copies.size()) machine.copies.erase(machine.copies.begin() + static_cast<long>(index));
        else machine.copies.pop_back();
    }
}

// ---- warps

namespace {

const char* const kNames[] = {"shuffle", "shuffle_xor", "ballot", "reduce_max", "reduce_min", "reduce_add", "sync_warp", "mma", "mma_bf16", "the barrier of the cluster"};

// Waits for the other lanes. True for the lane that came last, before the others go on.
template <typename Finish>
u32 meet(Exchange kind, u32 value, u32 pc, Finish finish) {
    Thread& thread = *machine.current;
    Warp& warp = machine.warp(thread);
    const u32 lane = thread.index % kLanes, first = static_cast<u32>(&thread - machine.threads.data()) - lane;
    if (warp.arrived == 0) {
        warp.kind = kind;
        warp.pc = pc;
        for (u32 i = 0; i < kLanes; ++i) {  // they are waited for
            Thread& other = machine.threads[first + i];
            if (other.state == State::kBlocked && other.wait == Wait::kPoll) wake(other);
        }
    } else if (warp.kind != kind || warp.pc != pc) {
        const u32 before = static_cast<u32>(__builtin_ctz(warp.arrived));
        machine.reports.add("lanes_diverge", {thread.id, pc, kNames[static_cast<u32>(kind)]},
                            {machine.threads[first + before].id, warp.pc, kNames[static_cast<u32>(warp.kind)]}, 0, 0);
        if (warp.kind != kind) stop();
    }
    const u32 turn = warp.turn;
    warp.values[turn][lane] = value;
    warp.arrived |= 1u << lane;
    if (warp.arrived != 0xffffffffu) {
        block(Wait::kWarp, static_cast<u64>(kind), 0, pc);
        return turn;
    }
    warp.arrived = 0;
    warp.turn ^= 1;
    finish(warp, turn, first);
    for (u32 i = 0; i < kLanes; ++i) {
        if (i != lane) wake(machine.threads[first + i]);
    }
    return turn;
}

void nothing(Warp&, u32, u32) {}

template <typename Combine>
u32 reduce(Exchange kind, u32 value, u32 pc, Combine combine) {
    const u32 turn = meet(kind, value, pc, [&](Warp& warp, u32 t, u32) {
        u32 result = warp.values[t][0];
        for (u32 i = 1; i < kLanes; ++i) result = combine(result, warp.values[t][i]);
        warp.result[t] = result;
    });
    return machine.warp(*machine.current).result[turn];
}

u32 lane_of(const Thread& thread) { return thread.index % kLanes; }

// All the threads learn what any of them knows.
void join_all(const std::vector<Thread*>& threads) {
    Clock gathering, last_base;
    for (Thread* thread : threads) publish(gathering, last_base, *thread);
    for (Thread* thread : threads) thread->base = gathering;
}

}  // namespace

u32 shuffle(u32 value, u32 source) {
    const u32 turn = meet(Exchange::kShuffle, value, MONOMOE_CALLER, nothing);
    return machine.warp(*machine.current).values[turn][source % kLanes];
}

u32 shuffle_xor(u32 value, u32 mask) {
    const u32 turn = meet(Exchange::kShuffleXor, value, MONOMOE_CALLER, nothing);
    return machine.warp(*machine.current).values[turn][(lane_of(*machine.current) ^ mask) % kLanes];
}

u32 ballot(bool predicate) {
    const u32 bit = predicate ? 1u << lane_of(*machine.current) : 0;
    return reduce(Exchange::kBallot, bit, MONOMOE_CALLER, [](u32 a, u32 b) { return a | b; });
}

u32 reduce_max(u32 value) {
    return reduce(Exchange::kMax, value, MONOMOE_CALLER, [](u32 a, u32 b) { return std::max(a, b); });
}
u32 reduce_min(u32 value) {
    return reduce(Exchange::kMin, value, MONOMOE_CALLER, [](u32 a, u32 b) { return std::min(a, b); });
}
u32 reduce_add(u32 value) {
    return reduce(Exchange::kAdd, value, MONOMOE_CALLER, [](u32 a, u32 b) { return a + b; });
}

// The only exchange that orders memory.
void sync_warp() {
    meet(Exchange::kSync, 0, MONOMOE_CALLER, [](Warp&, u32, u32 first) {
        std::vector<Thread*> lanes;
        for (u32 i = 0; i < kLanes; ++i) lanes.push_back(&machine.threads[first + i]);
        join_all(lanes);
    });
}

namespace {

template <void (*kMultiply)(float (*)[4], const u32 (*)[4], const u32 (*)[2])>
void multiply(Exchange kind, float* d, const u32* a, const u32* b, u32 pc) {
    Warp& warp = machine.warp(*machine.current);
    const u32 lane = lane_of(*machine.current);
    std::copy_n(a, 4, warp.a[lane]);
    std::copy_n(b, 2, warp.b[lane]);
    std::copy_n(d, 4, warp.d[lane]);
    meet(kind, 0, pc, [](Warp& w, u32, u32) { kMultiply(w.d, w.a, w.b); });
    std::copy_n(warp.d[lane], 4, d);
}

}  // namespace

void mma_16x8x16(float* d, const u32* a, const u32* b) { multiply<multiply_fragments>(Exchange::kMma, d, a, b, MONOMOE_CALLER); }
void mma_bf16_16x8x16(float* d, const u32* a, const u32* b) {
    multiply<multiply_bf16_fragments>(Exchange::kMmaBf16, d, a, b, MONOMOE_CALLER);
}

// ---- CTAs

namespace {

// One of `threads` at a named barrier; the last one wakes those who wait there.
void meet_threads(u32 barrier, u32 threads, bool waits, u32 pc) {
    Thread& thread = *machine.current;
    if (barrier > 15 || threads == 0 || threads % kLanes || threads > kProgram.threads) {
        fault("named_barrier", pc, barrier, "barrier " + std::to_string(barrier) + " of " + std::to_string(threads) + " threads, thread " + std::to_string(thread.index));
    }
    NamedBarrier& named = machine.cta().named[barrier];
    if (named.arrived == 0) named.threads = threads;
    if (named.threads != threads) fault("named_barrier", pc, barrier, "threads disagree about the count");
    publish(named.gathering, named.last_base, thread);
    if (waits) named.waiters.push_back(&thread);
    if (++named.arrived < threads) {
        if (waits) block(Wait::kNamed, barrier, 0, pc);
        return;
    }
    const NamedBarrier full = std::exchange(named, NamedBarrier());
    for (Thread* waiter : full.waiters) {
        waiter->base = full.gathering;
        if (waiter != &thread) wake(*waiter);
    }
}

}  // namespace

void sync_named(u32 barrier, u32 threads) { meet_threads(barrier, threads, true, MONOMOE_CALLER); }
void arrive_named(u32 barrier, u32 threads) { meet_threads(barrier, threads, false, MONOMOE_CALLER); }

// ---- clusters

// The instructions are `.aligned`: a warp executes them together, once in a launch. The arrival is relaxed: what the
// others may rely on are barriers alone that were fenced ahead of it.
void cluster_arrive() {
    const u32 pc = MONOMOE_CALLER;
    meet(Exchange::kCluster, 0, pc, nothing);
    Thread& thread = *machine.current;
    if (thread.cluster_arrived) fault("cluster_barrier", pc, 0, "a thread arrives a second time");
    thread.cluster_arrived = true;
    thread.fences_at_arrival = thread.fences;
    Cluster& cluster = machine.cluster(thread.cta);
    if (++cluster.arrived < kProgram.cluster * kProgram.threads) return;
    for (Thread* waiter : cluster.waiters) wake(*waiter);
    cluster.waiters.clear();
}

void cluster_wait() {
    const u32 pc = MONOMOE_CALLER;
    meet(Exchange::kCluster, 0, pc, nothing);
    Thread& thread = *machine.current;
    if (!thread.cluster_arrived) fault("cluster_barrier", pc, 0, "a thread waits without having arrived");
    if (thread.cluster_waited) fault("cluster_barrier", pc, 0, "a thread waits a second time");
    Cluster& cluster = machine.cluster(thread.cta);
    if (cluster.arrived < kProgram.cluster * kProgram.threads) {
        cluster.waiters.push_back(&thread);
        block(Wait::kCluster, 0, 0, pc);
    }
    thread.cluster_waited = true;
}

}  // namespace sim
