// Who runs next, and what happens when nobody can.
#include <algorithm>

#include "simulator/state.h"

namespace sim {

Machine machine;

namespace {

constexpr u32 kMmaWarps = 8, kRequantWarps = 8, kEpilogueWarps = 2;  // see templates/monomoe.cu.j2

bool starves(const Thread& thread) {
    const u32 warp = thread.index / kLanes;
    switch (machine.policy.starve) {
        case Starve::kMma: return warp < kMmaWarps;
        case Starve::kRequant: return warp >= kMmaWarps && warp < kMmaWarps + kRequantWarps;
        case Starve::kEpilogue: return warp >= kMmaWarps + kRequantWarps && warp < kMmaWarps + kRequantWarps + kEpilogueWarps;
        case Starve::kProducer: return warp >= kMmaWarps + kRequantWarps + kEpilogueWarps;
        case Starve::kCta: return thread.cta == machine.policy.cta;
        default: return false;
    }
}

void make_ready(Thread& thread) {
    if (starves(thread)) {
        machine.starving.push_back(&thread);
    } else if (machine.policy.random) {
        machine.candidates.push_back(&thread);
    } else {
        machine.ready.push_back(&thread);
    }
}

void thread_body() {
    kProgram.entry(machine.arguments);
    machine.current->state = State::kDone;
    switch_context(&machine.current->context, machine.scheduler);
}

void start(u32 index) {
    Cta& cta = machine.ctas[index];
    cta.started = true;
    --machine.unstarted;
    for (u32 i = 0; i < kProgram.threads; ++i) {
        Thread& thread = machine.threads[index * kProgram.threads + i];
        thread.context = make_context(machine.stacks->low(index * kProgram.threads + i), thread_body);
        thread.state = State::kRunnable;
        make_ready(thread);
    }
}

// Starts CTAs in order as long as there are SMs; the late one when it is its turn last.
void start_ctas(bool late_too) {
    const u32 resident = machine.limits.resident ? machine.limits.resident : kProgram.grid;
    u32 running = 0;
    for (const Cta& cta : machine.ctas) running += cta.started && cta.alive > 0;
    for (u32 i = 0; i < kProgram.grid && running < resident; ++i) {
        if (machine.ctas[i].started || (machine.policy.late && i == machine.policy.cta && !late_too)) continue;
        start(i);
        ++running;
    }
}

Thread* take(std::vector<Thread*>& from) {
    std::swap(from[machine.random() % from.size()], from.back());
    Thread* const thread = from.back();
    from.pop_back();
    return thread;
}

Thread* pick() {
    if (!machine.ready.empty()) {
        Thread* const thread = machine.ready.front();
        machine.ready.pop_front();
        return thread;
    }
    if (!machine.candidates.empty()) return take(machine.candidates);
    return nullptr;
}

void land_some(bool idle) {
    while (!machine.copies.empty()) {
        const Landing landing = machine.policy.landing;
        const bool oldest = landing == Landing::kAtOnce || landing == Landing::kSoon;
        const size_t index = oldest ? 0 : machine.random() % machine.copies.size();
        const Copy& copy = machine.copies[index];
        const bool due = idle || landing == Landing::kAtOnce ||
                         (landing == Landing::kSoon && machine.steps > copy.issued_at + 200) ||
                         (landing == Landing::kRandom && machine.one_in(64));
        if (!due) return;
        const u32 left = copy.bytes - copy.landed;
        const u32 piece = oldest ? left : 16 + static_cast<u32>(machine.random() % left) / 16 * 16;
        land(index, std::min(piece, left));
        if (landing != Landing::kAtOnce) return;
    }
}

void exit_thread(Thread& thread) {
    Cta& cta = machine.ctas[thread.cta];
    --machine.live;
    if (kProgram.cluster > 1 && !thread.cluster_arrived) {
        machine.reports.add("cluster_barrier", {thread.id, 0, "exit"}, {}, 0, 0, "a thread of a cluster ends without having arrived");
    }
    if (--cta.alive) return;
    for (const Copy& copy : machine.copies) {
        if (copy.cta == thread.cta) {
            machine.reports.add("copy_outlives_cta", {thread.id, 0, "exit"}, {copy.issuer, copy.pc, name_of(copy.what)}, copy.to, copy.bytes);
        }
    }
    std::erase_if(machine.copies, [&](const Copy& copy) { return copy.cta == thread.cta; });
    if (machine.unstarted) start_ctas(false);
}

}  // namespace

Now Machine::now(u32 pc) const {
    return {current->id, current->cta * ids_per_cta(), ids_per_cta(), current->clock, &current->base, pc};
}

Policy make_policy(const std::string& name, std::mt19937_64& random) {
    Policy policy;
    policy.name = name;
    policy.cta = static_cast<u32>(random() % kProgram.grid);
    if (name == "round_robin") return policy;
    policy.random = true;
    policy.landing = Landing::kRandom;
    policy.yield_one_in = 4;
    if (name == "starve_mma") policy.starve = Starve::kMma;
    if (name == "starve_requant") policy.starve = Starve::kRequant;
    if (name == "starve_epilogue") policy.starve = Starve::kEpilogue;
    if (name == "starve_producer") policy.starve = Starve::kProducer;
    if (name == "starve_cta") policy.starve = Starve::kCta;
    if (name == "slow_copies") policy.landing = Landing::kLast;
    if (name == "fast_copies") policy.landing = Landing::kAtOnce;
    if (name == "late_cta") policy.late = true;
    if (name == "mixed") {
        policy.random = random() % 4;
        policy.starve = static_cast<Starve>(random() % 6);
        policy.landing = static_cast<Landing>(random() % 4);
        policy.late = random() % 4 == 0;
        policy.yield_one_in = 1u << random() % 6;
    }
    return policy;
}

const char* run() {
    machine.steps = 0;
    machine.live = kProgram.grid * kProgram.threads;
    machine.unstarted = kProgram.grid;
    machine.stopped = false;
    start_ctas(false);
    while (machine.live) {
        if (!machine.copies.empty()) land_some(false);
        Thread* thread = pick();
        if (!thread && !machine.copies.empty() && machine.policy.landing != Landing::kLast) {
            land_some(true);
            continue;
        }
        if (!thread && !machine.starving.empty()) thread = take(machine.starving);
        if (!thread && !machine.copies.empty()) {
            land_some(true);
            continue;
        }
        if (!thread && machine.unstarted) {
            start_ctas(true);
            if ((thread = pick()) == nullptr && !machine.starving.empty()) thread = take(machine.starving);
        }
        if (!thread) return "deadlock";
        if (++machine.steps > machine.limits.steps) return "livelock";
        machine.current = thread;
        switch_context(&machine.scheduler, thread->context);
        if (machine.stopped) return "fault";
        if (thread->state == State::kDone) exit_thread(*thread);
    }
    return "ok";
}

void wake(Thread& thread) {
    thread.state = State::kRunnable;
    thread.wait = Wait::kNothing;
    make_ready(thread);
}

void block(Wait wait, u64 object, u32 parity, u32 pc) {
    Thread& thread = *machine.current;
    thread.state = State::kBlocked;
    thread.wait = wait;
    thread.object = object;
    thread.parity = parity;
    thread.pc = pc;
    switch_context(&thread.context, machine.scheduler);
}

void yield_now() {
    make_ready(*machine.current);
    switch_context(&machine.current->context, machine.scheduler);
}

void maybe_yield() {
    if (machine.one_in(machine.policy.yield_one_in)) yield_now();
}

void stop() {
    machine.stopped = true;
    switch_context(&machine.current->context, machine.scheduler);
    __builtin_unreachable();
}

}  // namespace sim
