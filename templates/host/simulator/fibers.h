// Stackful coroutines: a stack each, and a switch that saves what a function call preserves.
#pragma once

#include <cstddef>

namespace sim {

constexpr size_t kStackBytes = 64 * 1024;

// Stacks lie side by side, each with a page below it that faults unless there are very many.
class Stacks {
public:
    explicit Stacks(size_t count);
    ~Stacks();
    char* low(size_t index) const { return memory_ + index * kStackBytes; }

private:
    char* memory_;
    size_t bytes_;
};

// A saved stack pointer (or, without our own switch, a ucontext_t).
using Context = void*;

Context make_context(char* stack_low, void (*body)());
void switch_context(Context* from, Context to);

}  // namespace sim
