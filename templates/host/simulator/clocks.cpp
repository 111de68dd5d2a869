#include "simulator/clocks.h"

#include <algorithm>
#include <cstring>

namespace sim {

namespace {
u32 components = 0;
}

void Clock::set_size(u32 count) { components = count; }

static std::vector<void*>& spare() {
    static std::vector<void*> bodies;
    return bodies;
}

Clock::Body* Clock::make() {
    if (spare().empty()) {
        Body* const body = new Body;
        body->values.reset(new u32[components]);
        return body;
    }
    Body* const body = static_cast<Body*>(spare().back());
    spare().pop_back();
    body->references = 1;
    return body;
}

void Clock::recycle(Body* body) {
    body->foreign.reset();
    spare().push_back(body);
}

Clock Clock::zero() {
    Clock clock;
    clock.body_ = make();
    std::memset(clock.body_->values.get(), 0, components * sizeof(u32));
    return clock;
}

Clock Clock::copy() const {
    Clock clock;
    clock.body_ = make();
    std::memcpy(clock.body_->values.get(), body_->values.get(), components * sizeof(u32));
    clock.body_->foreign = body_->foreign;
    return clock;
}

void Clock::raise_to(const Clock& other) {
    u32* const mine = body_->values.get();
    const u32* const theirs = other.body_->values.get();
    for (u32 i = 0; i < components; ++i) mine[i] = std::max(mine[i], theirs[i]);
    if (other.body_->foreign) body_->foreign = join_foreign(body_->foreign, other.body_->foreign);
}

Clock Clock::join(const Clock& a, const Clock& b) {
    if (a == b || !b) return a;
    if (!a) return b;
    const u32* const left = a.body_->values.get();
    const u32* const right = b.body_->values.get();
    u32 a_lags = 0, b_lags = 0;
    for (u32 i = 0; i < components; ++i) {
        a_lags |= left[i] < right[i];
        b_lags |= right[i] < left[i];
    }
    const bool same_foreign = a.foreign() == b.foreign();
    if (!a_lags && (same_foreign || !b.foreign())) return a;
    if (!b_lags && (same_foreign || !a.foreign())) return b;
    Clock clock = a.copy();
    clock.raise_to(b);
    return clock;
}

Foreign join_foreign(const Foreign& a, const Foreign& b) {
    if (!b || a == b) return a;
    if (!a) return b;
    auto joined = std::make_shared<std::vector<u32>>(*a);
    for (size_t i = 0; i < joined->size(); ++i) (*joined)[i] = std::max((*joined)[i], (*b)[i]);
    return joined;
}

}  // namespace sim
