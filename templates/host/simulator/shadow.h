// Shadow memory: who touched each byte pair last, and whether it holds anything yet.
//
// A cell covers two bytes, the smallest unit that the kernel's threads share words in; a one-byte access counts for
// its pair.
#pragma once

#include <vector>

#include "simulator/clocks.h"
#include "simulator/report.h"

namespace sim {

constexpr u32 kNobody = 0xffffffffu;  // the host: ordered before everything
constexpr u32 kCellBytes = 2;

// What writes later than it was asked to. A bulk copy uses another proxy than threads do, the others the same.
enum class Delayed : u8 { kBulkCopy, kRemoteStore, kAsyncCopy };
const char* name_of(Delayed delayed);

enum class Access : u8 { kRead, kWrite, kAtomicRead, kAtomicWrite };
const char* name_of(Access access);

struct Stamp {
    u32 thread = kNobody;
    u32 clock = 0;
    u32 pc = 0;
};

// What an access is checked against: the time of the thread that makes it.
struct Now {
    u32 thread;  // global id
    u32 first, count;  // global ids of its CTA
    u32 clock;
    const Clock* base;
    u32 pc;

    bool ordered(const Stamp& stamp) const {
        if (stamp.thread == thread || stamp.thread == kNobody) return true;
        if (stamp.thread - first < count) return (*base)[stamp.thread - first] >= stamp.clock;
        const Foreign& foreign = base->foreign();
        return foreign && (*foreign)[stamp.thread] >= stamp.clock;
    }
};

class Shadow {
public:
    enum Flag : u8 { kWritten = 1, kPending = 2, kBarrier = 4, kGeneric = 8, kRemote = 16, kAsync = 32 };  // what is pending, if no bulk copy

    // `threads_apart`: readers of one cell are many threads of this CTA only.
    void reset(u64 address, u64 bytes, bool written, u32 first_thread, u32 threads);
    bool covers(u64 address) const { return address - address_ < bytes_; }
    u64 address() const { return address_; }
    u64 bytes() const { return bytes_; }

    void access(Access kind, const Now& now, u64 address, u32 bytes, Reports& reports);
    // Announced when issued, one piece after the other when it lands.
    void announce(Delayed what, const Now& issuer, u64 address, u32 bytes, Reports& reports);
    void land(Delayed what, const Now& engine, u64 address, u32 bytes, Reports& reports);
    void mark_barrier(u64 address);
    bool is_barrier(u64 address) const { return cells_[(address - address_) / kCellBytes].flags & kBarrier; }
    bool ordered_after_write(const Now& now, u64 address, Stamp& writer) const;

private:
    struct Mark : Stamp {
        Access kind;
    };
    struct Others {
        std::vector<Mark> marks;
        std::vector<Stamp> readers;  // by thread of the CTA, once there are many
    };
    struct Cell {
        Stamp write, read;
        u32 others = 0;  // 1 + index, 0: none
        u8 flags = 0;
    };

    bool check_marks(Cell& cell, Access kind, const Now& now, u64 at, u32 bytes, Reports& reports);
    void record(Cell& cell, Access kind, const Now& now);
    Others& others_of(Cell& cell);
    void forget(Cell& cell);
    void conflict(Access kind, const Now& now, Access before, const Stamp& stamp, u64 at, u32 bytes, Reports& reports);

    u64 address_ = 0, bytes_ = 0;
    u32 first_thread_ = 0, threads_ = 0;
    std::vector<Cell> cells_;
    std::vector<Others> others_;
    std::vector<u32> free_;
};

}  // namespace sim
