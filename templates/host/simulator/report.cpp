#include "simulator/report.h"

namespace sim {

void Reports::add(const char* kind, const Site& here, const Site& there, u64 address, u32 bytes, std::string note) {
    const auto [found, fresh] = by_sites_.try_emplace({kind, here.pc, there.pc}, list_.size());
    if (!fresh) {
        if (found->second < list_.size()) ++list_[found->second].count;
        return;
    }
    if (list_.size() < kMost) list_.push_back({kind, here, there, address, bytes, std::move(note)});
}

}  // namespace sim
