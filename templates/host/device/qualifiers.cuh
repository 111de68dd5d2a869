// Host: function and storage qualifiers, the short integer names, and where a simulated thread is.
#pragma once

#include "simulator/machine.h"

#define MONOMOE_DEVICE inline __attribute__((always_inline))
#define MONOMOE_KERNEL(threads) extern "C" void
#define MONOMOE_CLUSTER(ctas)  // see Program

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

struct alignas(16) U32x4 {
    u32 x, y, z, w;
};
struct alignas(8) U32x2 {
    u32 x, y;
};
struct alignas(16) F32x4 {
    float x, y, z, w;
};
struct alignas(8) F32x2 {
    float x, y;
};

namespace device {

MONOMOE_DEVICE u32 thread_index() { return sim::thread_index(); }
MONOMOE_DEVICE u32 cta_index() { return sim::cta_index(); }

// The CTA's dynamic shared memory, seen as one struct.
template <typename Storage>
MONOMOE_DEVICE Storage& shared_storage() {
    return *static_cast<Storage*>(sim::shared_storage(sizeof(Storage)));
}

}  // namespace device
