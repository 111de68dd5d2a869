// The simulated GPU: threads, warps, CTAs, barriers, copies, and the policy that decides who goes next.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "simulator/clocks.h"
#include "simulator/fibers.h"
#include "simulator/shadow.h"

namespace sim {

// Writes into one CTA that may be in flight and be told apart: 64 KB of bulk copies in rows of 128 bytes. Whoever is
// ordered behind one of more counts as ordered behind the earlier ones of its slot.
constexpr u32 kEngineSlots = 512;
constexpr u32 kLanes = 32;

enum class State : u8 { kWaitsForSm, kRunnable, kBlocked, kDone };
enum class Wait : u8 { kNothing, kBarrier, kWarp, kNamed, kPoll, kCluster, kAsync };

// Asynchronous copies that a thread committed together.
struct CopyGroup {
    u32 in_flight = 0;
    std::vector<std::pair<u32, u32>> landed;  // slot and clock of each
};

struct Thread {
    Context context = nullptr;
    u32 id = 0;  // global, engine slots of every CTA included
    u32 cta = 0, index = 0;
    State state = State::kWaitsForSm;
    Wait wait = Wait::kNothing;
    u64 object = 0;  // address of the barrier or of the word polled, number of the named barrier, kind of exchange
    u32 parity = 0;
    u64 limit_ns = 0;  // of the wait
    u32 pc = 0;
    Clock base;
    u32 clock = 1;
    u32 fences = 0;  // mbarrier_init_fence calls
    u32 fences_at_arrival = 0;  // at the barrier of the cluster
    bool cluster_arrived = false, cluster_waited = false;
    u32 poll_version = 0;
    bool polled = false;
    u64 polled_at = 0;
    std::vector<CopyGroup> groups;  // not waited for yet; the last one is open
    u32 first_group = 0;            // number of the first of them
};

enum class Exchange : u8 { kShuffle, kShuffleXor, kBallot, kMax, kMin, kAdd, kSync, kMma, kMmaBf16, kCluster };

// The lanes of a warp on their way to one exchange.
struct Warp {
    Exchange kind = Exchange::kSync;
    u32 pc = 0;
    u32 arrived = 0;  // lanes, as bits
    u32 turn = 0;     // which of the two result buffers the lanes fill
    u32 values[2][kLanes];
    u32 result[2];
    u32 a[kLanes][4], b[kLanes][2];
    float d[kLanes][4];
    u32 poll_version = 0;
};

struct Barrier {
    u32 count = 0;
    u32 pending = 0;
    long long bytes = 0;  // announced, not yet landed
    u32 phase = 0;
    Clock gathering, released, last_base;
    std::vector<Thread*> waiters;
    std::vector<u32> seen;  // phases each thread of the CTA has seen complete
    u32 init_thread = 0, init_fences = 0;
};

struct NamedBarrier {
    u32 threads = 0, arrived = 0;
    Clock gathering, last_base;
    std::vector<Thread*> waiters;
};

// A copy or a remote store on its way.
struct Copy {
    Delayed what = Delayed::kBulkCopy;
    u32 cta = 0, slot = 0;  // where it lands
    u64 to = 0, from = 0;
    u8 value[16] = {};  // of a remote store, in place of `from`
    u32 bytes = 0, landed = 0;
    u64 barrier = 0;  // 0 for an asynchronous copy
    Thread* asker = nullptr;  // of an asynchronous copy, and the number of its group
    u32 group = 0;
    u32 issuer = 0;  // global thread id
    u32 pc = 0, clock = 0;
    Clock knows;  // what whoever waits for it learns
    u64 issued_at = 0;
};

struct Cta {
    char* shared = nullptr;
    Shadow shadow;
    std::vector<Warp> warps;
    std::unordered_map<u64, Barrier> barriers;
    NamedBarrier named[16];
    u32 alive = 0;
    u32 copies_issued = 0;  // and remote stores into it
    bool started = false;
};

// The barrier of a cluster, of one phase.
struct Cluster {
    u32 arrived = 0;
    std::vector<Thread*> waiters;
};

// A global buffer.
struct Region {
    std::string name;
    char* memory = nullptr;
    u64 bytes = 0;
    bool writable = false;
    Shadow shadow;                     // of a writable one
    std::vector<std::vector<u32>> pollers;  // warps (global) that polled a 16-byte line since it was written last
};

enum class Starve : u8 { kNothing, kMma, kRequant, kEpilogue, kProducer, kCta };
enum class Landing : u8 { kAtOnce, kSoon, kRandom, kLast };

struct Policy {
    std::string name;
    bool random = false;
    Starve starve = Starve::kNothing;
    Landing landing = Landing::kSoon;
    u32 cta = 0;             // the starved or the late one
    bool late = false;       // that CTA starts when nothing else can go on
    u32 yield_one_in = 0;    // 0: a thread runs until it has to wait
};

struct Limits {
    u32 resident = 0;  // CTAs that may run at once, 0: all
    u64 steps = 200'000'000;
};

struct Machine {
    Limits limits;
    std::vector<Thread> threads;  // CTA by CTA, without engine slots
    std::vector<Cta> ctas;
    std::vector<Cluster> clusters;
    std::deque<Region> regions;  // of this launch, by address
    std::unique_ptr<Stacks> stacks;
    std::vector<Copy> copies;
    std::unordered_map<u64, std::vector<u32>> released;  // knowledge that acq_rel operations left at an address
    Reports reports;
    Policy policy;
    std::mt19937_64 random;
    Context scheduler = nullptr;
    Thread* current = nullptr;
    std::deque<Thread*> ready;        // round robin
    std::vector<Thread*> candidates;  // random
    std::vector<Thread*> starving;    // run when nothing else can
    Arguments arguments{};
    u64 steps = 0;
    u32 live = 0;
    u32 unstarted = 0;
    bool stopped = false;  // by a fault that leaves nothing to go on with

    u32 ids_per_cta() const { return kProgram.threads + kEngineSlots; }
    Cta& cta() { return ctas[current->cta]; }
    Cluster& cluster(u32 cta) { return clusters[cta / kProgram.cluster]; }
    Warp& warp(const Thread& thread) { return ctas[thread.cta].warps[thread.index / kLanes]; }
    Now now(u32 pc) const;
    bool one_in(u32 n) { return n && random() % n == 0; }
};

extern Machine machine;

Policy make_policy(const std::string& name, std::mt19937_64& random);

// The scheduler. `run` returns "ok", "deadlock", "fault" or "livelock".
const char* run();
void wake(Thread& thread);
void block(Wait wait, u64 object, u32 parity, u32 pc);
void maybe_yield();
void yield_now();
[[noreturn]] void stop();

Barrier& barrier_at(u64 address, u32 cta, const Thread* user, u32 pc);
void land(size_t index, u32 bytes);
void publish(Clock& gathering, Clock& last_base, Thread& thread);

// A checked access to shared or global memory; false: it must not be carried out.
bool check_access(Access kind, u64 address, u32 bytes, u32 pc);
Region* region_at(u64 address, u64 bytes);

inline u32 return_address(void* address) { return static_cast<u32>(reinterpret_cast<u64>(address)); }
#define MONOMOE_CALLER ::sim::return_address(__builtin_return_address(0))

}  // namespace sim
