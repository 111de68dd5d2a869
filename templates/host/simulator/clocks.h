// Vector clocks: what a thread knows of the progress of the others.
//
// A clock is immutable once shared. It has one component for each thread and copy-engine slot of one CTA; knowledge of
// other CTAs, which only acquire/release operations on global memory carry, hangs on it as one flat table.
#pragma once

#include <memory>
#include <vector>

#include "simulator/machine.h"

namespace sim {

using Foreign = std::shared_ptr<const std::vector<u32>>;  // by global thread id

class Clock {
public:
    Clock() = default;
    Clock(const Clock& other) : body_(other.body_) {
        if (body_) ++body_->references;
    }
    Clock(Clock&& other) noexcept : body_(other.body_) { other.body_ = nullptr; }
    Clock& operator=(Clock other) noexcept {
        Body* const body = body_;
        body_ = other.body_;
        other.body_ = body;
        return *this;
    }
    ~Clock() {
        if (body_ && --body_->references == 0) recycle(body_);
    }

    static void set_size(u32 components);
    static Clock zero();

    bool operator==(const Clock& other) const { return body_ == other.body_; }
    explicit operator bool() const { return body_ != nullptr; }
    u64 key() const { return reinterpret_cast<u64>(body_) / sizeof(Body); }
    u32 operator[](u32 component) const { return body_->values[component]; }
    const Foreign& foreign() const { return body_->foreign; }

    // Only on a clock that nobody shares yet.
    void set(u32 component, u32 value) { body_->values[component] = value; }
    void set_foreign(Foreign foreign) { body_->foreign = std::move(foreign); }
    Clock copy() const;
    void raise_to(const Clock& other);

    // The least clock that is at least both.
    static Clock join(const Clock& a, const Clock& b);

private:
    struct Body {
        u32 references = 1;
        Foreign foreign;
        std::unique_ptr<u32[]> values;
    };
    static Body* make();
    static void recycle(Body* body);

    Body* body_ = nullptr;
};

Foreign join_foreign(const Foreign& a, const Foreign& b);

}  // namespace sim
