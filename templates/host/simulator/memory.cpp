// Loads and stores: the hooks that the compiler plants for every plain access, and the atomics.
#include <algorithm>
#include <cstring>

#include "simulator/state.h"

extern "C" char __executable_start, _end;  // of the program: constants and tables

namespace sim {

Region* region_at(u64 address, u64 bytes) {
    for (Region& region : machine.regions) {
        const u64 at = address - reinterpret_cast<u64>(region.memory);
        if (at < region.bytes && at + bytes <= region.bytes) return &region;
    }
    return nullptr;
}

namespace {

void written(Region& region, u64 address, u32 bytes) {
    const u64 at = address - reinterpret_cast<u64>(region.memory);
    for (u64 line = at / 16; line <= (at + bytes - 1) / 16; ++line) {
        for (const u32 warp : region.pollers[line]) {
            const u32 per_cta = kProgram.threads / kLanes, cta = warp / per_cta;
            ++machine.ctas[cta].warps[warp % per_cta].poll_version;
            for (u32 lane = 0; lane < kLanes; ++lane) {
                Thread& thread = machine.threads[warp * kLanes + lane];
                if (thread.state == State::kBlocked && thread.wait == Wait::kPoll) wake(thread);
            }
        }
        region.pollers[line].clear();
    }
}

void watch(Region& region, u64 address, u32 bytes) {
    Thread& thread = *machine.current;
    if (!thread.polled) {
        thread.polled = true;
        thread.poll_version = machine.warp(thread).poll_version;
    }
    thread.polled_at = address;
    const u32 warp = static_cast<u32>(&thread - machine.threads.data()) / kLanes;
    const u64 at = address - reinterpret_cast<u64>(region.memory);
    for (u64 line = at / 16; line <= (at + bytes - 1) / 16; ++line) {
        std::vector<u32>& pollers = region.pollers[line];
        if (pollers.empty() || pollers.back() != warp) pollers.push_back(warp);
    }
}

// Whether a lane of this thread's warp waits for a word that it polled.
bool lane_sleeps(const Thread& thread) {
    const Thread* const first = &thread - thread.index % kLanes;
    return std::any_of(first, first + kLanes, [](const Thread& lane) { return lane.state == State::kBlocked && lane.wait == Wait::kPoll; });
}

[[noreturn]] void wild(Access kind, u64 address, u32 bytes, u32 pc, const char* note) {
    machine.reports.add("out_of_range", {machine.current->id, pc, name_of(kind)}, {}, address, bytes, note);
    stop();
}

}  // namespace

bool check_access(Access kind, u64 address, u32 bytes, u32 pc) {
    Thread& thread = *machine.current;
    const u64 stack = reinterpret_cast<u64>(machine.stacks->low(static_cast<size_t>(&thread - machine.threads.data())));
    if (address - stack < kStackBytes) return true;
    Cta& cta = machine.cta();
    if (cta.shadow.covers(address) && cta.shadow.covers(address + bytes - 1)) {
        if (address % (bytes > 16 ? 1 : bytes)) machine.reports.add("misaligned", {thread.id, pc, name_of(kind)}, {}, address, bytes);
        cta.shadow.access(kind, machine.now(pc), address, bytes, machine.reports);
        return true;
    }
    const bool writes = kind == Access::kWrite || kind == Access::kAtomicWrite;
    if (Region* const region = region_at(address, bytes)) {
        if (address % (bytes > 16 ? 1 : bytes)) machine.reports.add("misaligned", {thread.id, pc, name_of(kind)}, {}, address, bytes);
        if (!region->writable) {
            if (writes) wild(kind, address, bytes, pc, "an input is written");
            return true;
        }
        region->shadow.access(kind, machine.now(pc), address, bytes, machine.reports);
        if (writes) written(*region, address, bytes);
        return true;
    }
    const u64 program = reinterpret_cast<u64>(&__executable_start);
    if (address - program < reinterpret_cast<u64>(&_end) - program) return true;
    for (const Cta& other : machine.ctas) {
        if (other.shadow.covers(address)) wild(kind, address, bytes, pc, "shared memory of another CTA");
    }
    wild(kind, address, bytes, pc, "no buffer holds it");
}

namespace {

template <typename T>
u64 number(T* pointer) {
    return reinterpret_cast<u64>(pointer);
}

Region& require_global(Access kind, const void* address, u32 bytes, u32 pc) {
    Region* const region = region_at(number(address), bytes);
    if (!region) wild(kind, number(address), bytes, pc, "no buffer holds it");
    check_access(kind, number(address), bytes, pc);
    return *region;
}

}  // namespace

void load_relaxed(void* to, const void* address, u32 words) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    for (u32 i = 0; i < words; ++i) {  // a vector is not read at once
        const char* const word = static_cast<const char*>(address) + 4 * i;
        Region& region = require_global(Access::kAtomicRead, word, 4, pc);
        if (region.writable) watch(region, number(word), 4);
        std::memcpy(static_cast<char*>(to) + 4 * i, word, 4);
        if (i + 1 < words && machine.policy.random && machine.one_in(32)) yield_now();
    }
}

void store_relaxed(void* address, const void* word) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    u32 value;
    std::memcpy(&value, word, 4);
    require_global(Access::kAtomicWrite, address, 4, pc);
    std::memcpy(address, &value, 4);
}

u32 atomic_increment_wrap(u32* address, u32 last) {
    const u32 pc = MONOMOE_CALLER;
    maybe_yield();
    require_global(Access::kAtomicWrite, address, 4, pc);
    Thread& thread = *machine.current;
    std::vector<u32>& left = machine.released[number(address)];
    auto known = std::make_shared<std::vector<u32>>(left);  // acquire
    known->resize(kProgram.grid * machine.ids_per_cta());
    const u32 first = thread.cta * machine.ids_per_cta();
    Clock base = thread.base.copy();
    if (thread.base.foreign()) *known = *join_foreign(known, thread.base.foreign());
    for (u32 i = 0; i < machine.ids_per_cta(); ++i) {
        const u32 own = first + i == thread.id ? thread.clock : base[i];
        (*known)[first + i] = std::max((*known)[first + i], own);
        base.set(i, std::max(base[i], (*known)[first + i]));
    }
    left = *known;  // release
    base.set_foreign(std::move(known));
    thread.base = base;
    ++thread.clock;
    const u32 old = *address;
    *address = old >= last ? 0 : old + 1;
    return old;
}

void load_shared(void* to, const void* address, u32 bytes) {
    const u32 pc = MONOMOE_CALLER;
    if (!machine.cta().shadow.covers(number(address))) wild(Access::kRead, number(address), bytes, pc, "not shared memory");
    check_access(Access::kRead, number(address), bytes, pc);
    std::memcpy(to, address, bytes);
}

void load_input(void* to, const void* address, u32 bytes) {
    const u32 pc = MONOMOE_CALLER;
    const Region& region = require_global(Access::kRead, address, bytes, pc);
    if (region.writable) wild(Access::kRead, number(address), bytes, pc, "read as an input, but launches write it");
    std::memcpy(to, address, bytes);
}

void poll_failed(u64 limit_ns) {
    const u32 pc = MONOMOE_CALLER;
    Thread& thread = *machine.current;
    thread.limit_ns = limit_ns;
    Warp& warp = machine.warp(thread);
    if (!thread.polled) {  // asks with its warp, which it follows: asleep when another lane is, on when one goes on
        while (!warp.arrived && !lane_sleeps(thread)) yield_now();
    }
    const bool changed = warp.arrived || (thread.polled && warp.poll_version != thread.poll_version);
    thread.polled = false;
    if (changed) {
        yield_now();
    } else {
        block(Wait::kPoll, thread.polled_at, 0, pc);
    }
}

}  // namespace sim

// What -fsanitize=thread calls before each access.
#define MONOMOE_HOOK(name, access, bytes)                                                                      \
    extern "C" void name(void* address) {                                                                      \
        ::sim::check_access(::sim::Access::access, reinterpret_cast<::sim::u64>(address), bytes, MONOMOE_CALLER); \
    }
#define MONOMOE_HOOKS(bytes)                                   \
    MONOMOE_HOOK(__tsan_read##bytes, kRead, bytes)             \
    MONOMOE_HOOK(__tsan_write##bytes, kWrite, bytes)           \
    MONOMOE_HOOK(__tsan_unaligned_read##bytes, kRead, bytes)   \
    MONOMOE_HOOK(__tsan_unaligned_write##bytes, kWrite, bytes) \
    MONOMOE_HOOK(__tsan_volatile_read##bytes, kRead, bytes)    \
    MONOMOE_HOOK(__tsan_volatile_write##bytes, kWrite, bytes)
MONOMOE_HOOKS(1)
MONOMOE_HOOKS(2)
MONOMOE_HOOKS(4)
MONOMOE_HOOKS(8)
MONOMOE_HOOKS(16)

extern "C" {
void __tsan_read_range(void* address, unsigned long bytes) {
    ::sim::check_access(::sim::Access::kRead, reinterpret_cast<::sim::u64>(address), static_cast<::sim::u32>(bytes), MONOMOE_CALLER);
}
void __tsan_write_range(void* address, unsigned long bytes) {
    ::sim::check_access(::sim::Access::kWrite, reinterpret_cast<::sim::u64>(address), static_cast<::sim::u32>(bytes), MONOMOE_CALLER);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}

// What -fsanitize=bounds calls for an index outside its array.
void __ubsan_handle_out_of_bounds(void*, unsigned long index) {
    const ::sim::u32 pc = MONOMOE_CALLER;
    ::sim::machine.reports.add("index_out_of_bounds", {::sim::machine.current->id, pc, "index"}, {}, 0, 0,
                               "index " + std::to_string(static_cast<long>(index)));
}
}
