// What went wrong, each kind and pair of sites once.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "simulator/machine.h"

namespace sim {

// One side of a report: who, and the return address of the access.
struct Site {
    u32 thread = 0xffffffffu;  // global thread id; engine slots included
    u32 pc = 0;
    const char* what = "";
};

struct Report {
    const char* kind;
    Site here, there;
    u64 address;
    u32 bytes;
    std::string note;
    u64 count = 1;
    std::string place = "";  // of the address, once its launch is over
};

class Reports {
public:
    void add(const char* kind, const Site& here, const Site& there, u64 address, u32 bytes, std::string note = "");
    void clear() { by_sites_.clear(), list_.clear(); }
    bool empty() const { return list_.empty(); }
    std::vector<Report>& list() { return list_; }

private:
    static constexpr size_t kMost = 200;
    std::map<std::tuple<std::string, u32, u32>, size_t> by_sites_;
    std::vector<Report> list_;
};

}  // namespace sim
