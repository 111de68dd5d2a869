#include "simulator/fibers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace sim {

namespace {
constexpr size_t kMostGuards = 16384;  // the system limits how many pieces a process's memory may have
}

Stacks::Stacks(size_t count) : bytes_(count * kStackBytes) {
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("stacks of the simulated threads");
        std::exit(2);
    }
    memory_ = static_cast<char*>(memory);
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (count > kMostGuards) return;
    for (size_t i = 0; i < count; ++i) mprotect(low(i), page, PROT_NONE);
}

Stacks::~Stacks() { munmap(memory_, bytes_); }

#if defined(__x86_64__)

asm(R"(
.text
.globl monomoe_switch_context
monomoe_switch_context:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
extern "C" void monomoe_switch_context(Context* from, Context to);

void switch_context(Context* from, Context to) { monomoe_switch_context(from, to); }

Context make_context(char* stack_low, void (*body)()) {
    constexpr size_t kSavedRegisters = 6;
    // Stacks that begin at the same place of their pages would fight for the same lines of the cache. `ret` leaves the
    // stack 16-byte aligned, plus 8.
    const size_t shift = reinterpret_cast<size_t>(stack_low) / kStackBytes % 64 * 192;
    void** const entry = reinterpret_cast<void**>(stack_low + kStackBytes - 64 - shift);
    *entry = reinterpret_cast<void*>(body);
    void** const top = entry - kSavedRegisters;
    for (size_t i = 0; i < kSavedRegisters; ++i) top[i] = nullptr;
    return top;
}

#else

// The ucontext_t lies at the top of its stack; the scheduler's own is static.
Context make_context(char* stack_low, void (*body)()) {
    ucontext_t* const context = reinterpret_cast<ucontext_t*>(stack_low + kStackBytes - sizeof(ucontext_t) - 64);
    getcontext(context);
    context->uc_stack.ss_sp = stack_low;
    context->uc_stack.ss_size = static_cast<size_t>(reinterpret_cast<char*>(context) - stack_low);
    context->uc_link = nullptr;
    makecontext(context, body, 0);
    return context;
}

void switch_context(Context* from, Context to) {
    static ucontext_t scheduler;
    if (!*from) *from = &scheduler;
    swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
}

#endif

}  // namespace sim
