#include "simulator/shadow.h"

#include <algorithm>

namespace sim {

namespace {
constexpr size_t kManyReaders = 16;

// What keeps others away from a cell that is pending or a barrier.
const char* holder(u8 flags) {
    if (!(flags & Shadow::kPending)) return "barrier";
    if (flags & Shadow::kRemote) return name_of(Delayed::kRemoteStore);
    return name_of(flags & Shadow::kAsync ? Delayed::kAsyncCopy : Delayed::kBulkCopy);
}
}

const char* name_of(Access access) {
    switch (access) {
        case Access::kRead: return "read";
        case Access::kWrite: return "write";
        case Access::kAtomicRead: return "atomic read";
        default: return "atomic write";
    }
}

const char* name_of(Delayed delayed) {
    switch (delayed) {
        case Delayed::kBulkCopy: return "bulk copy";
        case Delayed::kRemoteStore: return "remote store";
        default: return "asynchronous copy";
    }
}

void Shadow::reset(u64 address, u64 bytes, bool written, u32 first_thread, u32 threads) {
    address_ = address;
    bytes_ = bytes;
    first_thread_ = first_thread;
    threads_ = threads;
    Cell fresh;
    if (written) fresh.flags = kWritten;
    cells_.assign((bytes + kCellBytes - 1) / kCellBytes, fresh);
    free_.clear();
    for (u32 i = 0; i < others_.size(); ++i) {
        others_[i].marks.clear();
        others_[i].readers.clear();
        free_.push_back(i);
    }
}

Shadow::Others& Shadow::others_of(Cell& cell) {
    if (!cell.others) {
        if (free_.empty()) {
            others_.emplace_back();
            cell.others = static_cast<u32>(others_.size());
        } else {
            cell.others = free_.back() + 1;
            free_.pop_back();
        }
    }
    return others_[cell.others - 1];
}

void Shadow::forget(Cell& cell) {
    cell.read = {};
    if (!cell.others) return;
    others_[cell.others - 1].marks.clear();
    others_[cell.others - 1].readers.clear();
    free_.push_back(cell.others - 1);
    cell.others = 0;
}

void Shadow::conflict(Access kind, const Now& now, Access before, const Stamp& stamp, u64 at, u32 bytes, Reports& reports) {
    reports.add("race", {now.thread, now.pc, name_of(kind)}, {stamp.thread, stamp.pc, name_of(before)}, at, bytes);
}

// Checks an access against everything but the last plain write. False after a conflict.
bool Shadow::check_marks(Cell& cell, Access kind, const Now& now, u64 at, u32 bytes, Reports& reports) {
    const bool writes = kind == Access::kWrite || kind == Access::kAtomicWrite;
    if (writes && !now.ordered(cell.read)) {
        conflict(kind, now, Access::kRead, cell.read, at, bytes, reports);
        return false;
    }
    if (!cell.others) return true;
    const Others& others = others_[cell.others - 1];
    if (writes) {
        for (const Stamp& reader : others.readers) {
            if (!now.ordered(reader)) {
                conflict(kind, now, Access::kRead, reader, at, bytes, reports);
                return false;
            }
        }
    }
    for (const Mark& mark : others.marks) {
        const bool against = kind == Access::kWrite || (kind == Access::kRead && mark.kind == Access::kAtomicWrite) ||
                             (kind == Access::kAtomicWrite && mark.kind == Access::kRead);
        if (against && !now.ordered(mark)) {
            conflict(kind, now, mark.kind, mark, at, bytes, reports);
            return false;
        }
    }
    return true;
}

// Remembers a read or an atomic. One that is ordered before this one says nothing new: whoever is ordered after this
// one is ordered after both.
void Shadow::record(Cell& cell, Access kind, const Now& now) {
    const Stamp stamp{now.thread, now.clock, now.pc};
    if (kind == Access::kRead && (cell.read.thread == kNobody || now.ordered(cell.read)) && !cell.others) {
        cell.read = stamp;
        return;
    }
    Others& others = others_of(cell);
    if (kind == Access::kRead && !others.readers.empty() && now.thread - first_thread_ < threads_) {
        others.readers[now.thread - first_thread_] = stamp;
        return;
    }
    for (Mark& mark : others.marks) {
        if (mark.kind == kind && now.ordered(mark)) {
            mark = {stamp, kind};
            return;
        }
    }
    others.marks.push_back({stamp, kind});
    if (threads_ && kind == Access::kRead && others.marks.size() > kManyReaders) {
        others.readers.resize(threads_);
        std::erase_if(others.marks, [&](const Mark& mark) {
            const bool moves = mark.kind == Access::kRead && mark.thread - first_thread_ < threads_;
            if (moves) others.readers[mark.thread - first_thread_] = mark;
            return moves;
        });
    }
}

void Shadow::access(Access kind, const Now& now, u64 address, u32 bytes, Reports& reports) {
    const bool reads = kind != Access::kWrite;
    const u64 first = (address - address_) / kCellBytes, last = (address - address_ + bytes - 1) / kCellBytes;
    bool clean = true;  // one report an access
    for (u64 i = first; i <= last; ++i) {
        Cell& cell = cells_[i];
        const u64 at = std::max(address, address_ + i * kCellBytes);
        if (clean && cell.flags & (kPending | kBarrier)) {
            reports.add(cell.flags & kPending ? "copy_in_flight" : "barrier_touched", {now.thread, now.pc, name_of(kind)},
                        {cell.write.thread, cell.write.pc, holder(cell.flags)}, at, bytes);
            clean = false;
        }
        if (clean && reads && !(cell.flags & kWritten)) {
            reports.add("never_written", {now.thread, now.pc, name_of(kind)}, {}, at, bytes);
            clean = false;
        }
        if (clean && !now.ordered(cell.write)) {
            conflict(kind, now, Access::kWrite, cell.write, at, bytes, reports);
            clean = false;
        }
        if (clean) clean = check_marks(cell, kind, now, at, bytes, reports);
        if (kind == Access::kWrite) {
            if (cell.read.thread != kNobody || cell.others) forget(cell);
            if (!(cell.flags & kPending)) cell.write = {now.thread, now.clock, now.pc};
            cell.flags |= kWritten | kGeneric;
        } else {
            record(cell, kind, now);
            if (kind == Access::kAtomicWrite) cell.flags |= kWritten | kGeneric;
        }
    }
}

void Shadow::announce(Delayed what, const Now& issuer, u64 address, u32 bytes, Reports& reports) {
    bool clean = true;
    for (u64 i = (address - address_) / kCellBytes; i < (address - address_ + bytes) / kCellBytes; ++i) {
        Cell& cell = cells_[i];
        const u64 at = address_ + i * kCellBytes;
        const Site here{issuer.thread, issuer.pc, name_of(what)};
        if (clean && cell.flags & (kPending | kBarrier)) {
            reports.add(cell.flags & kPending ? "copy_in_flight" : "barrier_touched", here,
                        {cell.write.thread, cell.write.pc, holder(cell.flags)}, at, bytes);
            clean = false;
        }
        if (clean && !issuer.ordered(cell.write)) {
            reports.add("race", here, {cell.write.thread, cell.write.pc, "write"}, at, bytes);
            clean = false;
        }
        if (clean && what == Delayed::kBulkCopy && cell.flags & kGeneric) {
            reports.add("proxy_fence_missing", here, {cell.write.thread, cell.write.pc, "write"}, at, bytes);
            clean = false;
        }
        if (clean) {
            Now as_writer = issuer;
            clean = check_marks(cell, Access::kWrite, as_writer, at, bytes, reports);
        }
        if (cell.read.thread != kNobody || cell.others) forget(cell);
        cell.write = {issuer.thread, issuer.clock, issuer.pc};
        cell.flags = kPending;
        if (what == Delayed::kRemoteStore) cell.flags |= kRemote;
        if (what == Delayed::kAsyncCopy) cell.flags |= kAsync;
    }
}

void Shadow::land(Delayed what, const Now& engine, u64 address, u32 bytes, Reports& reports) {
    bool clean = true;
    for (u64 i = (address - address_) / kCellBytes; i < (address - address_ + bytes) / kCellBytes; ++i) {
        Cell& cell = cells_[i];
        // Whoever read it since it was announced was reported then; a second writer of the same bytes too.
        if (clean && !(cell.flags & kPending)) {
            reports.add("copy_in_flight", {engine.thread, engine.pc, name_of(what)}, {cell.write.thread, cell.write.pc, "write"},
                        address_ + i * kCellBytes, bytes);
            clean = false;
        }
        if (cell.read.thread != kNobody || cell.others) forget(cell);
        cell.write = {engine.thread, engine.clock, engine.pc};
        cell.flags = what == Delayed::kBulkCopy ? kWritten : kWritten | kGeneric;
    }
}

void Shadow::mark_barrier(u64 address) {
    for (u64 i = 0; i < 8 / kCellBytes; ++i) cells_[(address - address_) / kCellBytes + i].flags = kWritten | kBarrier;
}

bool Shadow::ordered_after_write(const Now& now, u64 address, Stamp& writer) const {
    writer = cells_[(address - address_) / kCellBytes].write;
    return now.ordered(writer);
}

}  // namespace sim
