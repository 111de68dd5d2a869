// Function and storage qualifiers, the short integer names, and where a thread is.
#pragma once

#define MONOMOE_DEVICE __device__ __forceinline__
#define MONOMOE_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define MONOMOE_CLUSTER(ctas) __cluster_dims__(ctas, 1, 1)

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

MONOMOE_DEVICE u32 thread_index() { return threadIdx.x; }
MONOMOE_DEVICE u32 cta_index() { return blockIdx.x; }

// The CTA's dynamic shared memory, seen as one struct.
template <typename Storage>
MONOMOE_DEVICE Storage& shared_storage() {
    extern __shared__ __align__(128) u8 bytes[];
    return *reinterpret_cast<Storage*>(bytes);
}

}  // namespace device
