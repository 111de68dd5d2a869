#include "simulator/clocks.h"

#include <algorithm>
#include <cstring>

namespace sim {

// The two loops that simulations spend most of their time in.
#if defined(__x86_64__)
#define MONOMOE_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define MONOMOE_WIDE
#endif

namespace {

u32 components = 0;  // rounded up to whole vectors

MONOMOE_WIDE void raise(u32* __restrict mine, const u32* __restrict theirs, u32 count) {
    for (u32 i = 0; i < count; ++i) mine[i] = mine[i] > theirs[i] ? mine[i] : theirs[i];
}

// Bit 0: some of a is behind b; bit 1: some of b is behind a.
MONOMOE_WIDE u32 compare(const u32* __restrict a, const u32* __restrict b, u32 count) {
    u32 a_lags = 0, b_lags = 0;
    for (u32 i = 0; i < count; ++i) {
        a_lags |= a[i] < b[i];
        b_lags |= b[i] < a[i];
    }
    return a_lags | b_lags << 1;
}

}  // namespace

void Clock::set_size(u32 count) { components = (count + 15) / 16 * 16; }

// Never destroyed: the clocks of static objects come back after main.
static std::vector<void*>& spare() {
    static std::vector<void*>& bodies = *new std::vector<void*>;
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
    raise(body_->values.get(), other.body_->values.get(), components);
    if (other.body_->foreign) body_->foreign = join_foreign(body_->foreign, other.body_->foreign);
}

Clock Clock::join(const Clock& a, const Clock& b) {
    if (a == b || !b) return a;
    if (!a) return b;
    const u32 lags = compare(a.body_->values.get(), b.body_->values.get(), components);
    const bool same_foreign = a.foreign() == b.foreign();
    if (!(lags & 1) && (same_foreign || !b.foreign())) return a;
    if (!(lags & 2) && (same_foreign || !a.foreign())) return b;
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
