// shape qwen3.5-35b, up to 8 tokens, schedule g128-u64x1024x4-d128x512x4
// rebuild: monomoe-gen render --model qwen3.5-35b --token-tile 8 --schedule grid=128,g_up=64,k_up=1024,g_down=128,k_down=512,d_up=4,d_down=4
// sources 08940421f7759491ba9ed46528970f46da10f24f1512b81387abc88244059580

#line 1 "ops/combine.cuh"
// The output: sums of the MMA warps, then of the down groups, each in a fixed order; written once as bf16.


#line 1 "device/cluster.cuh"
// Thread block clusters: CTAs that start together and reach each other's shared memory.


#line 1 "device/mbarrier.cuh"
// Shared-memory barriers. A phase completes when `count` threads have arrived and every announced byte has landed.


#line 1 "device/qualifiers.cuh"
// Function and storage qualifiers, the short integer names, and where a thread is.


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
#line 5 "device/mbarrier.cuh"
#line 1 "device/trap.cuh"
// A wait that outlives its bound ends the launch with an error instead of hanging the GPU.




namespace device {

constexpr u64 kWaitLimitNs = 2'000'000'000ull;  // unless the launch says otherwise

MONOMOE_DEVICE u64 global_nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

MONOMOE_DEVICE void trap() { asm volatile("trap;"); }

// Made when a wait has failed once, or before it begins; asked after every failure.
struct Watchdog {
    const u64 limit_ns;
    const u64 start = global_nanoseconds();

    MONOMOE_DEVICE void check() const {
        if (global_nanoseconds() - start > limit_ns) trap();
    }
};

}  // namespace device
#line 6 "device/mbarrier.cuh"

namespace device {

using Mbarrier = u64;

MONOMOE_DEVICE u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

MONOMOE_DEVICE void mbarrier_init(Mbarrier* barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

// Makes initialised barriers visible to the copy engine.
MONOMOE_DEVICE void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

MONOMOE_DEVICE void mbarrier_arrive(Mbarrier* barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives and announces `bytes` of bulk copies.
MONOMOE_DEVICE void mbarrier_arrive_expect(Mbarrier* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

MONOMOE_DEVICE bool mbarrier_try_wait(Mbarrier* barrier, u32 parity) {
    u32 done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return done != 0;
}

// Waits until the phase of this parity is complete. A caller sees every phase of a barrier in order,
// or the parity cannot tell the phases apart.
MONOMOE_DEVICE void mbarrier_wait(Mbarrier* barrier, u32 parity, u64 limit_ns) {
    if (mbarrier_try_wait(barrier, parity)) return;
    const Watchdog watchdog{limit_ns};
    do {
        watchdog.check();
    } while (!mbarrier_try_wait(barrier, parity));
}

// The same where another CTA of the cluster may complete the phase.
MONOMOE_DEVICE void mbarrier_wait_cluster(Mbarrier* barrier, u32 parity, u64 limit_ns) {
    const Watchdog watchdog{limit_ns};
    for (;;) {
        u32 done;
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
        if (done) return;
        watchdog.check();
    }
}

}  // namespace device
#line 5 "device/cluster.cuh"

namespace device {

// Every thread of the cluster arrives, once. Orders barriers that were initialised ahead of it (mbarrier_init_fence).
MONOMOE_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

// Waits until every thread of the cluster has arrived.
MONOMOE_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Stores 16 bytes where `target` lies in CTA `rank` of the cluster, and counts them on the barrier there.
MONOMOE_DEVICE void store_remote(F32x4* target, const F32x4& value, Mbarrier* barrier, u32 rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there, counter;\n"
        "mapa.shared::cluster.u32 there, %0, %6;\n"
        "mapa.shared::cluster.u32 counter, %5, %6;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%1, %2, %3, %4}, [counter];\n"
        "}" ::"r"(shared_address(target)),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(shared_address(barrier)), "r"(rank)
        : "memory");
}

}  // namespace device
#line 5 "ops/combine.cuh"
#line 1 "ops/down_proj.cuh"
// Requantization of h and the down projection.


#line 1 "device/clock.cuh"
// The SM's clock: time stamps for traces, and short waits.





namespace device {

// Cycles of this SM, modulo 2^32.
MONOMOE_DEVICE u32 sm_clock() {
    u32 now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
}

// Waits until this many cycles have passed since the clock showed `began`.
MONOMOE_DEVICE void spin_since(u32 began, u32 cycles) {
    while (sm_clock() - began < cycles) {}
}

// The clock, not before a word of shared memory is loaded: behind a barrier of the hardware the clock may be read before
// the barrier is over, memory may not.
MONOMOE_DEVICE u32 sm_clock_behind(const u32* shared) {
    u32 now;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        ".reg .u32 word;\n"
        "ld.volatile.shared.u32 word, [%1];\n"
        "setp.eq.u32 p, word, 0;\n"
        "@p mov.u32 %0, %%clock;\n"
        "@!p mov.u32 %0, %%clock;\n"
        "}"
        : "=r"(now)
        : "r"(shared_address(shared))
        : "memory");
    return now;
}

}  // namespace device
#line 5 "ops/down_proj.cuh"
#line 1 "ops/handoff.cuh"
// Hand-off between CTAs through the workspace: the payload is the flag.
//
// A launch uses one half of the workspace, which is all zero bits when it starts. A producer never writes zero bits,
// so a consumer that reads something else has read the value; no counter and no fence are needed. Each launch
// clears what the launch before it left in the other half, so the next one finds it clean.


#line 1 "device/memory.cuh"
// Global memory that other CTAs write during the launch (relaxed, GPU scope), inputs, and atomics.




namespace device {

MONOMOE_DEVICE F32x4 load_relaxed(const F32x4* address) {
    F32x4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

MONOMOE_DEVICE float load_relaxed(const float* address) {
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(address) : "memory");
    return v;
}

MONOMOE_DEVICE U32x4 load_relaxed(const U32x4* address) {
    U32x4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

MONOMOE_DEVICE void store_relaxed(float* address, float value) {
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(address), "f"(value) : "memory");
}

MONOMOE_DEVICE void store_relaxed(u32* address, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// Adds one, back to zero after `last`; returns the old value. Orders what this thread read before it
// before what the thread that gets `last` does after it.
MONOMOE_DEVICE u32 atomic_increment_wrap(u32* address, u32 last) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(last) : "memory");
    return old;
}

// Issued where it stands: the compiler does not sink it to its first use.
MONOMOE_DEVICE U32x4 load_shared_early(const void* address) {
    U32x4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(shared_address(address)));
    return v;
}

// Inputs nobody writes during the launch.
template <typename T>
MONOMOE_DEVICE T load_input(const T* address) {
    return __ldg(address);
}
template <>
MONOMOE_DEVICE F32x4 load_input(const F32x4* address) {
    const float4 v = __ldg(reinterpret_cast<const float4*>(address));
    return {v.x, v.y, v.z, v.w};
}
template <>
MONOMOE_DEVICE U32x2 load_input(const U32x2* address) {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(address));
    return {v.x, v.y};
}
template <>
MONOMOE_DEVICE U32x4 load_input(const U32x4* address) {
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(address));
    return {v.x, v.y, v.z, v.w};
}

}  // namespace device
#line 9 "ops/handoff.cuh"

#line 1 "ops/storage.cuh"
// The CTA's shared memory and the kernel's arguments.



#line 1 "device/warp.cuh"
// Exchange within a warp, and barriers of the hardware among warps. Every function here needs all 32 lanes unless it
// says otherwise.




namespace device {

constexpr u32 kAllLanes = 0xffffffffu;

MONOMOE_DEVICE u32 shuffle(u32 value, u32 source) { return __shfl_sync(kAllLanes, value, source); }
MONOMOE_DEVICE float shuffle(float value, u32 source) { return __shfl_sync(kAllLanes, value, source); }
MONOMOE_DEVICE float shuffle_xor(float value, u32 mask) { return __shfl_xor_sync(kAllLanes, value, mask); }
MONOMOE_DEVICE u32 ballot(bool predicate) { return __ballot_sync(kAllLanes, predicate); }
MONOMOE_DEVICE bool all(bool predicate) { return __all_sync(kAllLanes, predicate); }
MONOMOE_DEVICE u32 reduce_max(u32 value) { return __reduce_max_sync(kAllLanes, value); }
MONOMOE_DEVICE u32 reduce_min(u32 value) { return __reduce_min_sync(kAllLanes, value); }
MONOMOE_DEVICE u32 reduce_add(u32 value) { return __reduce_add_sync(kAllLanes, value); }
MONOMOE_DEVICE void sync_warp() { __syncwarp(); }

// True in one lane, always the same one. The compiler knows that a branch on it has a single thread.
MONOMOE_DEVICE bool elect() {
    u32 elected;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
}

MONOMOE_DEVICE u32 count_bits(u32 mask) { return __popc(mask); }
MONOMOE_DEVICE u32 lowest_bit(u32 mask) { return __ffs(mask) - 1; }  // mask != 0

// Waits until all `threads` threads of a hardware barrier have come, here or in arrive_named. Whole warps.
MONOMOE_DEVICE void sync_named(u32 barrier, u32 threads) {
    __syncwarp();  // the barrier counts warps, not threads
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// One of those for whom sync_named waits, without waiting.
MONOMOE_DEVICE void arrive_named(u32 barrier, u32 threads) {
    __syncwarp();
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace device
#line 6 "ops/storage.cuh"
#line 1 "device/numeric.cuh"
// Number formats: bf16, e4m3, fp16 pairs, and the bits of a float.




namespace device {

using Bf16 = u16;  // storage only

MONOMOE_DEVICE float bits_to_float(u32 bits) { return __uint_as_float(bits); }
MONOMOE_DEVICE u32 float_to_bits(float value) { return __float_as_uint(value); }
MONOMOE_DEVICE float negative_infinity() { return bits_to_float(0xff800000u); }
MONOMOE_DEVICE float not_a_number() { return bits_to_float(0x7fffffffu); }

MONOMOE_DEVICE float bf16_to_float(Bf16 value) { return bits_to_float(static_cast<u32>(value) << 16); }
MONOMOE_DEVICE F32x2 bf16x2_to_float(u32 pair) { return {bits_to_float(pair << 16), bits_to_float(pair & 0xffff0000u)}; }

// Largest magnitude of eight bf16 values, as bf16 bits; a NaN is larger than every number.
MONOMOE_DEVICE u32 bf16x8_absolute_max(U32x4 v) {
    constexpr u32 kMagnitude = 0x7fff7fffu;
    const u32 pair = __vmaxu2(__vmaxu2(v.x & kMagnitude, v.y & kMagnitude), __vmaxu2(v.z & kMagnitude, v.w & kMagnitude));
    return max(pair & 0xffffu, pair >> 16);
}

// Round to nearest even.
MONOMOE_DEVICE Bf16 float_to_bf16(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Four e4m3 values, the first in the low byte: round to nearest even, saturating at 448.
MONOMOE_DEVICE u32 float_to_e4m3x4(float a, float b, float c, float d) {
    u16 low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(low) : "f"(a), "f"(b));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(high) : "f"(c), "f"(d));
    return static_cast<u32>(low) | static_cast<u32>(high) << 16;
}

// Four e4m3 values as two pairs of fp16, exact.
MONOMOE_DEVICE U32x2 e4m3x4_to_half(u32 bytes) {
    U32x2 half;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}"
        : "=r"(half.x), "=r"(half.y)
        : "r"(bytes));
    return half;
}

// The same as two pairs of bf16, exact.
MONOMOE_DEVICE U32x2 e4m3x4_to_bf16(u32 bytes) {
    const U32x2 half = e4m3x4_to_half(bytes);
    const auto widen = [](u32 pair) {
        u32 wide;
        asm("{\n"
            ".reg .b16 low, high;\n"
            ".reg .f32 a, b;\n"
            "mov.b32 {low, high}, %1;\n"
            "cvt.f32.f16 a, low;\n"
            "cvt.f32.f16 b, high;\n"
            "cvt.rn.bf16x2.f32 %0, b, a;\n"
            "}"
            : "=r"(wide)
            : "r"(pair));
        return wide;
    };
    return {widen(half.x), widen(half.y)};
}

MONOMOE_DEVICE float absolute(float value) { return fabsf(value); }
MONOMOE_DEVICE float maximum(float a, float b) { return fmaxf(a, b); }
MONOMOE_DEVICE u32 maximum(u32 a, u32 b) { return max(a, b); }
MONOMOE_DEVICE float minimum(float a, float b) { return fminf(a, b); }
MONOMOE_DEVICE u32 minimum(u32 a, u32 b) { return min(a, b); }
// Relative error about 2^-21 for arguments around 1, growing with their size.
MONOMOE_DEVICE float exponential_fast(float value) { return __expf(value); }
// Correctly rounded for normal operands and quotients, in a handful of instructions: an approximate reciprocal, one
// Newton step, and a correction of the quotient by its exact remainder (Markstein 1990). |b| <= 2^126.
MONOMOE_DEVICE float divide_rounded(float a, float b) {
    float approximate;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(approximate) : "f"(b));
    const float reciprocal = fmaf(approximate, fmaf(-b, approximate, 1.f), approximate);
    const float quotient = a * reciprocal;
    return fmaf(fmaf(-b, quotient, a), reciprocal, quotient);
}
MONOMOE_DEVICE float divide_fast(float a, float b) { return __fdividef(a, b); }

}  // namespace device
#line 7 "ops/storage.cuh"
#line 1 "schedule.cuh"
// The only file where numbers enter. Everything else is derived from these names.




namespace shape {  // qwen3.5-35b
constexpr u32 kHidden = 2048;
constexpr u32 kIntermediate = 512;  // per GPU
constexpr u32 kExperts = 256;
constexpr u32 kTopK = 8;
constexpr bool kSoftmax = true;  // else sigmoid
constexpr bool kRenormalize = true;
constexpr bool kExpertBias = false;  // ranks, never weighs
constexpr u32 kGroups = 1;
constexpr u32 kTopKGroups = 1;
constexpr float kRoutedScaling = 1.0f;
using Logit = float;
using Activation = u8;  // of x and h as they are multiplied
// Whether activations become e4m3 with scales, else they stay bf16. A constant would leave a symbol in every cubin.
constexpr bool quantizes() { return sizeof(Activation) == 1; }
// Unlike constants these leave no symbols, so the cubins of shapes that lack what they describe stay what they were.
enum : bool { kGeluTanh = false };  // else silu
enum : u32 {
    kSharedExperts = 0,  // take every token; behind the routed ones in the weights
    kAllExperts = kExperts + kSharedExperts,
    kTokenExperts = kTopK + kSharedExperts,  // of one token
    kLogits = 256,  // of one token; with kSharedGate the last one is the gate of the shared experts
};
enum : bool { kSharedGate = false };  // else they weigh 1
constexpr float swiglu_limit() { return 0.0f; }  // of gate and up; 0: none
}  // namespace shape

namespace schedule {  // g128-u64x1024x4-d128x512x4
constexpr u32 kGrid = 128;  // persistent CTAs, at most one per SM, all co-resident
constexpr u32 kGUp = 64;  // CTAs that share one expert's up-projection
constexpr u32 kKUp = 1024;  // columns of one up stage
constexpr u32 kGDown = 128;  // CTAs that share one expert's down-projection
constexpr u32 kKDown = 512;  // columns of one down stage
constexpr u32 kDUp = 4;  // ring stages in flight during up
constexpr u32 kDDown = 4;  // ring stages in flight during down
constexpr u32 kTokenTile = 8;  // tokens one launch can take
constexpr bool kRaw = false;  // weights as in the checkpoint, else packed
enum : bool {  // not constants: those leave symbols in every cubin
    kRouterWeight = false,  // logits computed inside, else given
    kPdl = false,  // begins before the kernel ahead has ended
};
constexpr bool kTrace = false;
}  // namespace schedule

namespace schedule {

constexpr u32 kMmaWarps = 8;
constexpr u32 kRequantWarps = 8;
constexpr u32 kEpilogueWarps = 2;
constexpr u32 kThreads = 608;
constexpr u32 kRowTile = 16;      // rows of one MMA tile; in w13 these are 8 gate rows and their 8 up rows
constexpr u32 kScaleBlock = 128;  // rows and columns that share one scale
constexpr u32 kBlockBytes = kRowTile * kScaleBlock;
constexpr u32 kRowPad = 64;  // values; keeps 16-byte operand loads of eight rows free of bank conflicts
constexpr u32 kColumns = 8;  // of an MMA: the tokens it multiplies at a time
constexpr u32 kTokenTiles = kTokenTile / kColumns;
constexpr u32 kScaleSlots = 4;  // units whose scales an MMA warp has or has asked for
constexpr u32 kHSlots = 8;
constexpr u32 kSlotWarps = 2;
constexpr bool kXInShared = true;

constexpr u32 kHiddenBlocks = shape::kHidden / kScaleBlock;
constexpr u32 kInputParts = 1;  // of the columns, in which the quantized input is received
constexpr u32 kItemWords = 256;  // of 16 bytes, that a warp receives at a time
constexpr u32 kPartBlocks = (kHiddenBlocks + kInputParts - 1) / kInputParts;
constexpr u32 kIntermediateBlocks = shape::kIntermediate / kScaleBlock;
constexpr u32 kLaneExperts = (shape::kExperts + 31) / 32;  // consecutive experts whose scores one lane holds
using LaneMask = u16;  // a bit for each of them
constexpr u32 kSelectedWords = (shape::kTokenExperts + 7) / 8;  // of 16 bytes, the experts of one token
constexpr u32 kLeads = 2;  // experts that the list begins with
constexpr u32 kMaxActive = 64;
constexpr u32 kStripeUp = 2 * shape::kIntermediate / kGUp;
constexpr u32 kStripeDown = shape::kHidden / kGDown;
constexpr u32 kDownScaleRows = 1;
constexpr u32 kDownGroups = kGrid / kGDown;
// Two down groups are the two CTAs of each cluster, and exchange sums through shared memory.
constexpr u32 kClusterCtas = 1;
constexpr bool kPaired = kClusterCtas == 2;
constexpr u32 kExpertsPerStageDown = 2;

constexpr u32 greatest_common_divisor(u32 a, u32 b) { return b ? greatest_common_divisor(b, a % b) : a; }

// How the 16x128 blocks of a stage are dealt to the MMA warps: block b goes to warp b % 8. The
// blocks are ordered (expert, tile, column block).
template <bool kUp, u32 kExpertsPerStage, u32 kTilesPerExpert, u32 kWidth, u32 kDepth>
struct Stage {
    static constexpr bool kIsUp = kUp;
    static constexpr u32 kTiles = kTilesPerExpert;
    static constexpr u32 kRowBytes = kWidth;  // of a row of raw weights
    static constexpr u32 kColumnBlocks = kWidth / kScaleBlock;
    static constexpr u32 kExpertBlocks = kTiles * kColumnBlocks;
    static constexpr u32 kBlocks = kExpertsPerStage * kExpertBlocks;
    static constexpr u32 kBytes = kBlocks * kBlockBytes;
    static constexpr u32 kInFlight = kDepth;
    static constexpr u32 kWarpBlocks = (kBlocks + kMmaWarps - 1) / kMmaWarps;
    // A warp adds blocks of one tile in one accumulator where all of its blocks of a stage round meet the same tile.
    static constexpr bool kWholeTile = kColumnBlocks % kMmaWarps == 0;
    static constexpr u32 kAccumulators = kWholeTile ? kTiles : kWarpBlocks;
    static constexpr u32 accumulator(u32 warp_block) {
        return kWholeTile ? warp_block / (kColumnBlocks / kMmaWarps) : warp_block;
    }
    // The column blocks of all blocks that a warp has of a stage, each once: they come in turn, kPeriod at most.
    static constexpr u32 kPeriod = kColumnBlocks / greatest_common_divisor(kColumnBlocks, kMmaWarps);
    static constexpr u32 kWarpColumns = kWarpBlocks < kPeriod ? kWarpBlocks : kPeriod;
    static MONOMOE_DEVICE constexpr u32 column_of(u32 warp, u32 warp_column) {
        return (warp + warp_column * kMmaWarps) % kColumnBlocks;
    }
    // The partial sums of one tile: contribution c lies in warp `.warp`, accumulator `.accumulator`.
    static constexpr u32 kContributions = kWholeTile ? kMmaWarps : kExpertsPerStage * kColumnBlocks;
    struct Contribution {
        u32 warp, accumulator;
    };
    static MONOMOE_DEVICE constexpr Contribution contribution(u32 tile, u32 c) {
        if (kWholeTile) return {c, tile};
        const u32 block = c / kColumnBlocks * kExpertBlocks + tile * kColumnBlocks + c % kColumnBlocks;
        return {block % kMmaWarps, block / kMmaWarps};
    }
};
using UpStage = Stage<true, 1, kStripeUp / kRowTile, kKUp, kDUp>;
using DownStage = Stage<false, kExpertsPerStageDown, kStripeDown / kRowTile, kKDown, kDDown>;

constexpr u32 kStagesPerUnitUp = shape::kHidden / kKUp;
constexpr u32 kUnitColumns = kStagesPerUnitUp * UpStage::kWarpColumns;  // column blocks of a unit that a warp has scales of
constexpr u32 kStagesPerExpertDown = shape::kIntermediate / kKDown;
constexpr u32 kRingStages = kDUp > kDDown ? kDUp : kDDown;
constexpr u32 kRingBytes =
    kDUp * UpStage::kBytes > kDDown * DownStage::kBytes ? kDUp * UpStage::kBytes : kDDown * DownStage::kBytes;

static_assert(2 * shape::kIntermediate % (kRowTile * kGUp) == 0, "up_stripe_is_whole_mma_tiles: g_up stripes of w13 are whole 16-row tiles: 8 gate rows and their 8 up rows");
static_assert(kStripeUp > 0 && 2 * kScaleBlock % kStripeUp == 0, "up_stripe_has_one_scale_row: the gate rows of an up stripe share one 128-row scale block");
static_assert(kKUp % kScaleBlock == 0 && shape::kHidden % kKUp == 0, "up_stage_divides_hidden: an up stage is whole 128-column scale blocks and divides the hidden size");
static_assert(shape::kHidden % (kRowTile * kGDown) == 0, "down_stripe_is_whole_mma_tiles: g_down stripes of the output are whole 16-row tiles");
static_assert(kKDown % kScaleBlock == 0 && shape::kIntermediate % kKDown == 0, "down_stage_divides_intermediate: a down stage is whole 128-column scale blocks and divides the intermediate size");
static_assert(kGDown <= kGrid, "down_group_fits_grid: the CTAs of a down group are part of the grid");
static_assert(kDownScaleRows * kIntermediateBlocks <= 32, "down_scales_fit_one_warp: one lane holds each scale of a down stripe and expert");
static_assert(kDUp >= 2 && kDDown >= 2, "ring_has_two_stages: one stage is in flight while another is read");
static_assert(kDUp * UpStage::kBytes >= 49152 && kDDown * DownStage::kBytes >= 49152, "ring_covers_latency: 48 KB in flight per SM or the memory latency shows in both projections");
static_assert(4 * kDUp * UpStage::kBytes >= 3 * kRingBytes && 4 * kDDown * DownStage::kBytes >= 3 * kRingBytes, "ring_is_shared: either projection can fill three quarters of the ring; the rest of the shared memory would be idle");
static_assert(UpStage::kBlocks >= kMmaWarps, "up_stage_feeds_the_mma_warps: an up stage has a block for each of the 8 MMA warps");
static_assert(UpStage::kAccumulators <= 16 && DownStage::kAccumulators * kTokenTiles <= 16, "accumulators_fit_registers: a warp keeps the partial sums of its tiles in at most 64 registers");

}  // namespace schedule
#line 8 "ops/storage.cuh"

struct Args {
    const device::Bf16* x;       // [tokens][kHidden]
    const shape::Logit* logits;  // [tokens][kLogits]; null with kRouterWeight
    const device::Bf16* router;  // [kExperts][kHidden], only with kRouterWeight
    const float* bias;           // [kExperts], read only with kExpertBias
    const u8* w13;               // packed, see monomoe_gen/weights.py; with kRaw [kAllExperts][2 * kIntermediate][kHidden]
    const float* w13_scale;      // [kAllExperts][2 * kIntermediate / 128][kHidden / 128]
    const u8* w2;                // packed; with kRaw [kAllExperts][kHidden][kIntermediate]
    const float* w2_scale;       // [kAllExperts][kHidden / 128][kIntermediate / 128]
    device::Bf16* y;             // [tokens][kHidden]
    u8* workspace;               // header, then two halves; zeroed once at allocation
    u32 workspace_half_bytes;
    u32 tokens;                  // 1 ... kTokenTile
    u64 wait_limit_ns;           // a wait that lasts longer ends in a trap
    u64* trace;                  // only with kTrace
};

// One turn of an expert: at most one token of every column, where token t is multiplied in column t % 8. An expert with
// more tokens of a column has several turns. Its rows of h are first_row ... in token order.
struct ActiveExpert {
    u16 expert;
    u16 first_row;
    u32 tokens;  // bit t: token t is routed here in this turn

    MONOMOE_DEVICE bool has(u32 token) const { return tokens >> token & 1; }
    MONOMOE_DEVICE u32 row(u32 token) const { return first_row + device::count_bits(tokens & ((1u << token) - 1)); }
};

// The token of a column, or any token of the column if none of `tokens` is.
MONOMOE_DEVICE u32 token_of(u32 tokens, u32 column) {
    if (schedule::kTokenTiles == 1) return column;
    const u32 found = tokens >> column & 0x01010101u;
    return found ? column + device::lowest_bit(found) : column;
}

constexpr u16 kNoExpert = 0xffff;

struct Barriers {
    device::Mbarrier full[schedule::kRingStages];
    device::Mbarrier empty[schedule::kRingStages];
    device::Mbarrier h_full[schedule::kHSlots];
    device::Mbarrier h_empty[schedule::kHSlots];
    device::Mbarrier partial_full[2];
    device::Mbarrier partial_empty[2];
    device::Mbarrier routed;        // chosen is complete; only with kRouterWeight, else kMade says so
    device::Mbarrier weighted;      // selected and weight are complete
    device::Mbarrier listed;        // active_count, experts and tokens of active are complete
    device::Mbarrier numbered;      // first_row of active is complete
    device::Mbarrier up_ending[2];  // this CTA has begun its last up unit, its last but one if it has several
    device::Mbarrier peer_summed;   // peer_sums is complete; only with kPaired
    device::Mbarrier x_ready[schedule::kInputParts];  // a part of the columns of x and x_scale is complete

    static constexpr u32 kCount = 2 * schedule::kRingStages + 2 * schedule::kHSlots + schedule::kInputParts + 11;

    // Arrivals that complete a phase of barrier `index`, in the order of the members.
    static MONOMOE_DEVICE u32 arrivals(u32 index, u32 tokens) {
        constexpr u32 kEmpty = schedule::kRingStages, kHFull = 2 * kEmpty;
        constexpr u32 kHEmpty = kHFull + schedule::kHSlots, kPartialFull = kHEmpty + schedule::kHSlots;
        constexpr u32 kPartialEmpty = kPartialFull + 2, kRouted = kPartialEmpty + 2, kWeighted = kRouted + 1, kXReady = kWeighted + 6;
        u32 count = 1;  // full: the producer; partial_empty: its epilogue warp; listed; numbered; up_ending; peer_summed
        if (index >= kEmpty && index < kHFull) count = schedule::kMmaWarps;
        if (index >= kHFull && index < kHEmpty) count = schedule::kSlotWarps;
        if (index >= kHEmpty && index < kPartialFull) count = schedule::kMmaWarps / schedule::kExpertsPerStageDown;
        if (index >= kPartialFull && index < kPartialEmpty) count = schedule::kMmaWarps;
        if (index == kRouted) count = schedule::kRequantWarps;
        if (index == kWeighted) count = tokens < schedule::kRequantWarps ? tokens : schedule::kRequantWarps;
        if (index >= kXReady) count = schedule::kRequantWarps;
        return count;
    }
};
static_assert(sizeof(Barriers) == Barriers::kCount * sizeof(device::Mbarrier), "the barriers are one array");

// Barriers of the hardware, by number.
struct NamedBarrier {
    enum : u32 {
        kMade,    // barriers made, header read and, without the router inside, chosen complete; met by all threads,
                  // awaited by those who need it late
        kEpoch,   // barriers made and header read; met and awaited by the MMA warps and the epilogue warp that reads it
        kOutput,  // MMA warps, behind the writing of the output's partial sums
        kLogits,  // MMA warps, around the partial sums of logits
        kRing,    // barriers made; met by the MMA warps, awaited by the producer warp
    };
};

struct alignas(128) SharedStorage {
    // weight stream: written by the copy engine, read by the MMA warps
    u8 ring[schedule::kRingBytes];
    // input as it is multiplied, written once, where there is room for it
    shape::Activation x[schedule::kXInShared ? schedule::kTokenTile : 1][schedule::kXInShared ? shape::kHidden + schedule::kRowPad : 16 / sizeof(shape::Activation)];
    // h of kHSlots experts, rounded to e4m3 or bf16, by column; rows of columns without a token are never used
    shape::Activation h[schedule::kHSlots][schedule::kColumns][shape::kIntermediate + schedule::kRowPad];
    union {
        // partial sums on their way to the epilogue warps, two units in turn
        F32x4 up[2][schedule::kMmaWarps][schedule::UpStage::kAccumulators][32];
        // partial sums of the output, after the last unit has left `up`
        F32x4 down[schedule::kTokenTiles][schedule::kMmaWarps][schedule::DownStage::kAccumulators][32];
        struct {  // before `listed`
            // by lane of the routing warps and token: the lane's experts as bits
            alignas(16) schedule::LaneMask chosen[32][schedule::kTokenTile];
            float router[schedule::kMmaWarps][16];  // partial sums of logits
        } routing;
    };
    float x_scale[shape::quantizes() ? schedule::kHiddenBlocks : 1][schedule::kTokenTile];  // of quantized input
    // h scale, if quantized, * weight scale * routing weight
    float h_scale[schedule::kHSlots][schedule::kDownScaleRows][schedule::kIntermediateBlocks][schedule::kColumns];
    // scales of gate and up for the column blocks of each MMA warp, units in turn
    alignas(16) float up_scale[schedule::kMmaWarps][schedule::kScaleSlots][schedule::kUnitColumns][2];
    ActiveExpert active[schedule::kMaxActive];  // in the order of list_experts
    // the output stripe as the other CTA of the cluster has summed it, by tile and lane, written by that CTA
    F32x4 peer_sums[schedule::kPaired ? schedule::kTokenTiles : 1][schedule::kPaired ? schedule::DownStage::kTiles : 1][schedule::kPaired ? 32 : 1];
    alignas(16) float weight[schedule::kTokenTile][shape::kTokenExperts];
    alignas(16) u16 selected[schedule::kTokenTile][schedule::kSelectedWords * 8];  // the expert of each weight, then kNoExpert

    alignas(16) Barriers barrier;

    alignas(16) u32 active_count;
    u32 epoch;
    u32 dirty_bytes;
    u32 up_ending_since[2];  // clock of up_ending
};
#line 11 "ops/handoff.cuh"

struct alignas(16) WorkspaceHeader {
    u32 done;            // CTAs of this launch that have read the header
    u32 epoch;           // 0 or 1: the half this launch uses
    u32 dirty_bytes[2];  // what the last launch on that half wrote
};
constexpr u32 kHeaderBytes = 128;

MONOMOE_DEVICE float never_zero(float value) {
    return device::float_to_bits(value) == 0 ? device::bits_to_float(0x80000000u) : value;  // -0
}
MONOMOE_DEVICE u32 never_zero(u32 four_e4m3) { return four_e4m3 ? four_e4m3 : 0x80u; }  // one of them -0
MONOMOE_DEVICE bool has_arrived(float value) { return device::float_to_bits(value) != 0; }
// Zero if any word is: whether many words have arrived is asked without a branch.
MONOMOE_DEVICE u32 least_word(const U32x4& v) { return device::minimum(device::minimum(v.x, v.y), device::minimum(v.z, v.w)); }
MONOMOE_DEVICE u32 least_word(const F32x4& v) {
    return least_word(U32x4{device::float_to_bits(v.x), device::float_to_bits(v.y), device::float_to_bits(v.z), device::float_to_bits(v.w)});
}

// 128 columns of one token's quantized input, then their scale and three words that only fill.
struct alignas(16) InputPacket {
    static constexpr u32 kScaleWord = 8, kWords = 9;  // of 16 bytes
    u32 words[4 * kWords];

    // The 16-byte words of packets that lie one after the other.
    MONOMOE_DEVICE static const U32x4* words_of(const InputPacket* packets) { return reinterpret_cast<const U32x4*>(packets); }
    MONOMOE_DEVICE U32x4 load(u32 word) const { return device::load_relaxed(words_of(this) + word); }
};

// This launch's half: rows of h, one for each (active expert, token) pair, then partial outputs of the down groups
// unless these are paired, then the input, if quantized, by token and column block, then with kRouterWeight the logits.
struct HandOff {
    static constexpr u32 kPartials = schedule::kPaired ? 0 : schedule::kDownGroups - 1;  // of each token
    u8* base;

    MONOMOE_DEVICE static HandOff of(const Args& args, u32 epoch) {
        return {args.workspace + kHeaderBytes + u64{epoch} * args.workspace_half_bytes};
    }
    MONOMOE_DEVICE float* h_row(u32 row) const { return reinterpret_cast<float*>(base) + row * shape::kIntermediate; }
    // Partial output of down group 1, 2, ...
    MONOMOE_DEVICE float* partial(u32 tokens, u32 group, u32 token) const {
        return h_row(tokens * shape::kTokenExperts) + ((group - 1) * tokens + token) * shape::kHidden;
    }
    MONOMOE_DEVICE InputPacket* packets(u32 tokens) const {
        return reinterpret_cast<InputPacket*>(partial(tokens, 1 + kPartials, 0));
    }
    // Router logits of a token.
    MONOMOE_DEVICE float* logits(u32 tokens, u32 token) const {
        return reinterpret_cast<float*>(packets(tokens) + (shape::quantizes() ? tokens * schedule::kHiddenBlocks : 0)) + token * shape::kExperts;
    }
    MONOMOE_DEVICE static u32 bytes(u32 tokens) {
        return tokens * (4 * (shape::kTokenExperts * shape::kIntermediate + kPartials * shape::kHidden) +
                         (shape::quantizes() ? schedule::kHiddenBlocks : 0) * static_cast<u32>(sizeof(InputPacket)) +
                         (schedule::kRouterWeight ? 4 * shape::kExperts : 0));
    }
};

// Reads the header. One thread, before its warp arrives at kMade and kEpoch.
//   Reads     the workspace header
//   Writes    epoch, dirty_bytes
//   Waits on  -
//   Signals   - (the caller)
MONOMOE_DEVICE void open_epoch(const Args& args, SharedStorage& s) {
    const U32x4 words = device::load_relaxed(reinterpret_cast<const U32x4*>(args.workspace));
    s.epoch = words.y;
    s.dirty_bytes = words.y ? words.z : words.w;
}

// Closes the epoch when every CTA has read the header. The thread that read it.
//   Reads     epoch
//   Writes    the header of the next launch
//   Waits on  -
//   Signals   - (the end of the launch)
MONOMOE_DEVICE void close_epoch(const Args& args, const SharedStorage& s) {
    WorkspaceHeader* const header = reinterpret_cast<WorkspaceHeader*>(args.workspace);
    if (device::atomic_increment_wrap(&header->done, schedule::kGrid - 1) == schedule::kGrid - 1) {
        device::store_relaxed(&header->dirty_bytes[s.epoch], HandOff::bytes(args.tokens));
        device::store_relaxed(&header->epoch, s.epoch ^ 1);
    }
}

// Clears this CTA's part of the other half. `thread` of `threads`.
//   Reads     epoch, dirty_bytes
//   Writes    the other half of the workspace
//   Waits on  -
//   Signals   - (the end of the launch)
MONOMOE_DEVICE void clear_other_half(const Args& args, const SharedStorage& s, u32 cta, u32 thread, u32 threads) {
    u8* const other = HandOff::of(args, s.epoch ^ 1).base;
    for (u32 at = (cta * threads + thread) * 16; at < s.dirty_bytes; at += schedule::kGrid * threads * 16) {
        *reinterpret_cast<U32x4*>(other + at) = {0, 0, 0, 0};
    }
}
#line 6 "ops/down_proj.cuh"
#line 1 "ops/product.cuh"
// One 16x128 weight block times the activations of an expert's tokens.



#line 1 "device/mma.cuh"
// Tensor-core products on fp16 or bf16 pairs with fp32 accumulation.




namespace device {

// d[16x8] += a[16x16] * b[16x8]. Lane 4g+q holds rows g (a0, a2) and g+8 (a1, a3) of a, column g of b,
// and d[g][2q], d[g][2q+1], d[g+8][2q], d[g+8][2q+1].
MONOMOE_DEVICE void mma_16x8x16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same on bf16.
MONOMOE_DEVICE void mma_bf16_16x8x16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace device
#line 6 "ops/product.cuh"



#line 1 "ops/weights.cuh"
// How a block of 16x128 weights lies in a stage, and how a lane reads its operands of the eight MMAs.
//
// Packed, a block is 2048 bytes in the order of the lanes. Raw, a stage is rows of Stage::kRowBytes, one after the
// other: all gate rows of the stripe and then its up rows, or the rows of the output stripe, expert by expert. See
// monomoe_gen/weights.py.





// The A operands of lane 4g+q: part[2c+p] holds, at the columns 64c + 16q + 8p, four bytes of row g, four of row g+8,
// and the next four of each.
struct BlockOperand {
    U32x4 part[4];
};

MONOMOE_DEVICE BlockOperand packed_operand(const u8* block, u32 lane) {
    BlockOperand a;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) a.part[i] = device::load_shared_early(block + i * 512 + lane * 16);
    return a;
}

template <typename Stage>
struct RawStage {
    static constexpr u32 kHalfTile = schedule::kRowTile / 2;
    // From row g of a tile to its row g+8, in bytes: from a gate row to its up row, or eight rows further.
    static constexpr u32 kHighRows = (Stage::kIsUp ? Stage::kTiles : 1) * kHalfTile * Stage::kRowBytes;

    // Where the 128 columns of block `index` begin in row g of its tile.
    MONOMOE_DEVICE static u32 row_at(u32 index, u32 lane) {
        const u32 tile = index / Stage::kColumnBlocks, column = index % Stage::kColumnBlocks;
        const u32 row = tile * (Stage::kIsUp ? kHalfTile : schedule::kRowTile) + lane / 4;
        return row * Stage::kRowBytes + column * schedule::kScaleBlock;
    }
};

// `low` and `high` are the lane's rows g and g+8 of a block. Rows that lie side by side meet in the same banks, so lanes
// of odd rows read the second half of the block first.
MONOMOE_DEVICE BlockOperand raw_operand(const u8* low, const u8* high, u32 lane) {
    const bool odd = lane & 4;
    const u32 near = lane % 4 * 16 + (odd ? 64 : 0), far = near ^ 64;
    const U32x4 rows[2][2] = {{device::load_shared_early(low + near), device::load_shared_early(low + far)},
                              {device::load_shared_early(high + near), device::load_shared_early(high + far)}};
    BlockOperand a;
#pragma unroll
    for (u32 c = 0; c < 2; ++c) {
        const U32x4 l = odd ? rows[0][1 - c] : rows[0][c], h = odd ? rows[1][1 - c] : rows[1][c];
        a.part[2 * c] = {l.x, h.x, l.y, h.y};
        a.part[2 * c + 1] = {l.z, h.z, l.w, h.w};
    }
    return a;
}
#line 10 "ops/product.cuh"

// One 16x128 block times 8 columns is eight MMAs, in independent chains.
constexpr u32 kChains = 4;

// 128 values of the activations in eight columns as B operands: lane 4g+q has the values 16q ... 16q+15 and
// 64+16q ... 64+16q+15 of column g, in this order.
struct Operands {
    enum : u32 { kWords = 2 * sizeof(shape::Activation) };  // of 16 bytes
    U32x4 part[kWords];
};

// From where a column's activations begin in shared memory.
MONOMOE_DEVICE Operands shared_operands(const shape::Activation* first, u32 lane) {
    first += lane % 4 * 16;
    if constexpr (shape::quantizes()) {
        return {device::load_shared_early(first), device::load_shared_early(first + 64)};
    } else {
        Operands got;
#pragma unroll
        for (u32 i = 0; i < Operands::kWords; ++i) got.part[i] = device::load_shared_early(first + i / 2 * 64 + i % 2 * 8);
        return got;
    }
}

// product = block (16 rows x 128 columns) * activations, each as the lane's operands (RingReader::block). Lane 4g+q gets
// rows g and g+8 of the columns 2q and 2q+1. See monomoe_gen/weights.py for the byte order.
MONOMOE_DEVICE void multiply_block(float (&product)[4], const BlockOperand& block, const Operands& b) {
    const U32x4(&a)[4] = block.part;
    float chain[kChains][4] = {};
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        if constexpr (!shape::quantizes()) {
            const U32x4& columns = b.part[i];
            const U32x2 w0 = device::e4m3x4_to_bf16(a[i].x), w1 = device::e4m3x4_to_bf16(a[i].y);
            const U32x2 w2 = device::e4m3x4_to_bf16(a[i].z), w3 = device::e4m3x4_to_bf16(a[i].w);
            device::mma_bf16_16x8x16(chain[2 * i % kChains], w0.x, w1.x, w0.y, w1.y, columns.x, columns.y);
            device::mma_bf16_16x8x16(chain[(2 * i + 1) % kChains], w2.x, w3.x, w2.y, w3.y, columns.z, columns.w);
            continue;
        }
        const U32x2 a0 = device::e4m3x4_to_half(a[i].x), a1 = device::e4m3x4_to_half(a[i].y);
        const U32x2 a2 = device::e4m3x4_to_half(a[i].z), a3 = device::e4m3x4_to_half(a[i].w);
        const U32x2 b0 = device::e4m3x4_to_half(i % 2 ? b.part[i / 2].z : b.part[i / 2].x);
        const U32x2 b1 = device::e4m3x4_to_half(i % 2 ? b.part[i / 2].w : b.part[i / 2].y);
        device::mma_16x8x16(chain[2 * i % kChains], a0.x, a1.x, a0.y, a1.y, b0.x, b0.y);
        device::mma_16x8x16(chain[(2 * i + 1) % kChains], a2.x, a3.x, a2.y, a3.y, b1.x, b1.y);
    }
#pragma unroll
    for (u32 c = 0; c < 4; ++c) product[c] = (chain[0][c] + chain[1][c]) + (chain[2][c] + chain[3][c]);
}

// Sum of a tile's partial sums, in a fixed order.
template <typename Stage, typename Partials>
MONOMOE_DEVICE F32x4 sum_contributions(const Partials& partials, u32 tile, u32 lane) {
    F32x4 sum = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (u32 c = 0; c < Stage::kContributions; ++c) {
        const auto from = Stage::contribution(tile, c);
        const F32x4 part = partials[from.warp][from.accumulator][lane];
        sum.x += part.x;
        sum.y += part.y;
        sum.z += part.z;
        sum.w += part.w;
    }
    return sum;
}

// Writes a warp's accumulators where sum_contributions finds them.
template <u32 kCount, typename Partials>
MONOMOE_DEVICE void store_partials(Partials& partials, const float (&sums)[kCount][4], u32 warp, u32 lane) {
#pragma unroll
    for (u32 a = 0; a < kCount; ++a) partials[warp][a][lane] = {sums[a][0], sums[a][1], sums[a][2], sums[a][3]};
}
#line 7 "ops/down_proj.cuh"
#line 1 "ops/quantize.cuh"
// Activations to e4m3 with one scale per token and 128 columns.
//
// The input is quantized once: every (token, column block) pair by one warp of the grid, and handed to all CTAs
// through the workspace.





#line 1 "ops/given.cuh"
// Inputs that the kernel ahead of this one may have written.


#line 1 "device/dependency.cuh"
// Programmatic dependent launch: what orders a launch that begins before the kernel ahead of it has ended.




namespace device {

// Returns when all kernels ahead have ended and what they wrote can be read. Every thread that reads it.
MONOMOE_DEVICE void wait_for_prerequisites() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The kernel behind may begin when every CTA of this one has said so, or has ended.
MONOMOE_DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// What a kernel ahead may have written. It stays behind wait_for_prerequisites, which a load by the read-only path need
// not, and is served by L2.
template <typename T>
MONOMOE_DEVICE T load_behind(const T* address) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one load");
    union {
        T value;
        u16 half;
        u32 word;
        U32x2 two;
        U32x4 four;
    } v;
    if constexpr (sizeof(T) == 2) {
        asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(v.half) : "l"(address) : "memory");
    } else if constexpr (sizeof(T) == 4) {
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v.word) : "l"(address) : "memory");
    } else if constexpr (sizeof(T) == 8) {
        asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.two.x), "=r"(v.two.y) : "l"(address) : "memory");
    } else {
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.four.x), "=r"(v.four.y), "=r"(v.four.z), "=r"(v.four.w)
                     : "l"(address)
                     : "memory");
    }
    return v.value;
}

}  // namespace device
#line 5 "ops/given.cuh"



template <typename T>
MONOMOE_DEVICE T load_given(const T* address) {
    if constexpr (schedule::kPdl) {
        return device::load_behind(address);
    } else {
        return device::load_input(address);
    }
}
#line 11 "ops/quantize.cuh"

constexpr float kE4m3Max = 448.f;
constexpr float kSmallestAmax = 1.504632769052528e-36f;  // 2^-119: below it kE4m3Max / amax overflows, the block becomes 0
constexpr float kLargestAmax = 8.507059173023462e37f;    // 2^126: above it, and with NaN, the block becomes NaN

struct QuantScale {
    float scale;    // of the stored values
    float inverse;  // what a value is multiplied with

    MONOMOE_DEVICE static QuantScale of(float amax) {
        const bool small = amax < kSmallestAmax, usual = amax <= kLargestAmax;
        const float scale = device::divide_rounded(amax, kE4m3Max), inverse = device::divide_rounded(kE4m3Max, amax);
        return {small ? 0.f : usual ? scale : device::not_a_number(), small ? 0.f : usual ? inverse : device::not_a_number()};
    }
};

// The pairs of the grid's MMA warps: pair 0 to warp 0 of CTA 0, pair 1 to warp 0 of CTA 1 ...
struct InputPair {
    u32 index;  // token * kHiddenBlocks + column block
    U32x2 raw;  // four columns a lane

    MONOMOE_DEVICE static InputPair first(u32 cta, u32 warp) { return {cta + schedule::kGrid * warp, {0, 0}}; }
    MONOMOE_DEVICE void advance() { index += schedule::kGrid * schedule::kMmaWarps; }
    MONOMOE_DEVICE bool valid(const Args& args) const { return index < args.tokens * schedule::kHiddenBlocks; }

    MONOMOE_DEVICE void load(const Args& args, u32 lane) {
        const device::Bf16* const columns = args.x + index * schedule::kScaleBlock;
        if (valid(args)) raw = load_given(reinterpret_cast<const U32x2*>(columns) + lane);
    }
    MONOMOE_DEVICE void publish(InputPacket* packets, u32 lane) const {
        const u32 amax = device::reduce_max(device::bf16x8_absolute_max({raw.x, raw.y, 0, 0}));
        const QuantScale scale = QuantScale::of(device::bf16_to_float(static_cast<device::Bf16>(amax)));
        const F32x2 a = device::bf16x2_to_float(raw.x), b = device::bf16x2_to_float(raw.y);
        const u32 values = device::float_to_e4m3x4(a.x * scale.inverse, a.y * scale.inverse, b.x * scale.inverse, b.y * scale.inverse);
        u32* const words = packets[index].words;
        device::store_relaxed(words + lane, never_zero(values));
        if (lane < 4) device::store_relaxed(words + 32 + lane, lane ? 1 : device::float_to_bits(never_zero(scale.scale)));
    }
};

// Quantizes this warp's pairs; the first one comes loaded. One MMA warp.
//   Reads     args.x
//   Writes    packets of the input in this launch's half of the workspace
//   Waits on  -
//   Signals   the packets themselves
MONOMOE_DEVICE void quantize_inputs(const Args& args, const SharedStorage& s, InputPair pair, u32 lane) {
    InputPacket* const packets = HandOff::of(args, s.epoch).packets(args.tokens);
#pragma unroll 1
    while (pair.valid(args)) {
        pair.publish(packets, lane);
        pair.advance();
        pair.load(args, lane);
    }
}

// What a CTA receives of a packet: all of it, or only the scale.
struct Received {
    static constexpr u32 kFirstWord = schedule::kXInShared ? 0 : InputPacket::kScaleWord;
    static constexpr u32 kWords = InputPacket::kWords - kFirstWord;

    // Stores word `index` of those that are received of a packet.
    MONOMOE_DEVICE static void store(SharedStorage& s, u32 token, u32 block, u32 index, const U32x4& word) {
        if (kFirstWord + index == InputPacket::kScaleWord) {
            s.x_scale[block][token] = device::bits_to_float(word.x);
        } else {
            *reinterpret_cast<U32x4*>(&s.x[token][block * schedule::kScaleBlock + index * 16]) = word;
        }
    }
};

// Asks for a warp's words until all have arrived. `load(i)` is the lane's i-th word, ones if it has none.
template <u32 kLoads, typename Load>
MONOMOE_DEVICE void receive_words(U32x4 (&words)[kLoads], u64 limit_ns, const Load& load) {
    const device::Watchdog watchdog{limit_ns};
#pragma unroll 1
    for (;;) {
        u32 least = 0xffffffffu;
#pragma unroll
        for (u32 i = 0; i < kLoads; ++i) words[i] = load(i);
#pragma unroll
        for (u32 i = 0; i < kLoads; ++i) least = device::minimum(least, least_word(words[i]));
        if (device::all(least != 0)) return;
        watchdog.check();
    }
}

// How few packets are shared out to the requant warps: groups of kPackets at a time, to the warps in turn.
struct FewPackets {
    static constexpr u32 kPackets = 32 / Received::kWords;
    static constexpr u32 kStep = kPackets * schedule::kRequantWarps;  // from a lane's packet to its next one
    static constexpr u32 kLoads = 5;                                  // a lane; more take more code, which has to be fetched
};

// Receives FewPackets::kStep * kLoads packets at most: a lane one word of each of its packets.
MONOMOE_DEVICE void receive_few(const Args& args, SharedStorage& s, const InputPacket* packets, u32 warp, u32 lane) {
    using Few = FewPackets;
    const u32 end = lane < Few::kPackets * Received::kWords ? args.tokens * schedule::kHiddenBlocks : 0;
    const u32 first = warp * Few::kPackets + lane / Received::kWords, index = lane % Received::kWords;
    U32x4 words[Few::kLoads];
    receive_words(words, args.wait_limit_ns, [&](u32 i) {
        U32x4 word = {1, 1, 1, 1};
        if (first + i * Few::kStep < end) word = packets[first + i * Few::kStep].load(Received::kFirstWord + index);
        return word;
    });
#pragma unroll
    for (u32 i = 0; i < Few::kLoads; ++i) {
        const u32 pair = first + i * Few::kStep;
        if (pair >= end) break;
        Received::store(s, pair / schedule::kHiddenBlocks, pair % schedule::kHiddenBlocks, index, words[i]);
    }
    device::sync_warp();
    static_assert(schedule::kInputParts <= 32, "a lane tells of each part");
    if (lane < schedule::kInputParts) device::mbarrier_arrive(&s.barrier.x_ready[lane]);
}

// Many packets are received in items, which go to the warps in turn, all of a part of the columns before the next: a
// part of the packets of as many tokens as a warp can have on their way.
struct InputItem {
    static constexpr u32 kPartWords = schedule::kPartBlocks * Received::kWords;  // of a token
    static constexpr u32 kTokens = kPartWords < schedule::kItemWords ? schedule::kItemWords / kPartWords : 1;
    static constexpr u32 kLoads = (kTokens * kPartWords + 31) / 32;  // a lane

    u32 first_token, first_block;
    u32 tokens;

    // Where the lane's i-th word belongs.
    struct Place {
        u32 token, block, index;  // from the item's first token and block; of the words that are received
    };
    MONOMOE_DEVICE static Place place(u32 i, u32 lane) {
        const u32 at = i * 32 + lane;
        return {at / kPartWords, at % kPartWords / Received::kWords, at % Received::kWords};
    }
    MONOMOE_DEVICE bool has(const Place& at) const {
        return at.token < tokens && (schedule::kHiddenBlocks % schedule::kPartBlocks == 0 || first_block + at.block < schedule::kHiddenBlocks);
    }

    MONOMOE_DEVICE void receive(SharedStorage& s, const InputPacket* packets, u32 lane, u64 limit_ns) const {
        packets += first_token * schedule::kHiddenBlocks + first_block;
        U32x4 words[kLoads];
        receive_words(words, limit_ns, [&](u32 i) {
            const Place at = place(i, lane);
            U32x4 word = {1, 1, 1, 1};
            if (has(at)) word = packets[at.token * schedule::kHiddenBlocks + at.block].load(Received::kFirstWord + at.index);
            return word;
        });
#pragma unroll
        for (u32 i = 0; i < kLoads; ++i) {
            const Place at = place(i, lane);
            if (has(at)) Received::store(s, first_token + at.token, first_block + at.block, at.index, words[i]);
        }
    }
};

// Receives any number of packets.
MONOMOE_DEVICE void receive_items(const Args& args, SharedStorage& s, const InputPacket* packets, u32 warp, u32 lane) {
    const u32 groups = (args.tokens + InputItem::kTokens - 1) / InputItem::kTokens;
#pragma unroll 1
    for (u32 part = 0; part < schedule::kInputParts; ++part) {
#pragma unroll 1
        for (u32 group = (warp - part * groups) % schedule::kRequantWarps; group < groups; group += schedule::kRequantWarps) {
            const u32 token = group * InputItem::kTokens, left = args.tokens - token;
            const InputItem item = {token, part * schedule::kPartBlocks, left < InputItem::kTokens ? left : InputItem::kTokens};
            item.receive(s, packets, lane, args.wait_limit_ns);
        }
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.x_ready[part]);
    }
}

// Receives the packets of all pairs: scales, and values where shared memory has room for them. All requant warps.
//   Reads     packets
//   Writes    x, x_scale
//   Waits on  the packets
//   Signals   x_ready
MONOMOE_DEVICE void receive_inputs(const Args& args, SharedStorage& s, u32 warp, u32 lane) {
    const InputPacket* const packets = HandOff::of(args, s.epoch).packets(args.tokens);
    if (args.tokens * schedule::kHiddenBlocks <= FewPackets::kLoads * FewPackets::kStep) {
        receive_few(args, s, packets, warp, lane);
    } else {
        receive_items(args, s, packets, warp, lane);
    }
}
#line 8 "ops/down_proj.cuh"
#line 1 "ops/stream.cuh"
// Which weights a CTA needs, in which order; the producer that requests them.


#line 1 "ops/ring.cuh"
// The ring of weight stages: one byte ring that both projections share, with a full/empty barrier pair per stage.
//
// A stage is a run of whole blocks at a running offset modulo kRingBytes, so stages of the up- and the
// down-projection may differ in size. Stages are written, read and released in order. What lies where in a stage is
// said in ops/weights.cuh; kRingBytes and the offsets are multiples of kBlockBytes.


#line 1 "device/bulk_copy.cuh"
// One-dimensional bulk copies from global to shared memory by the copy engine.




namespace device {

using CachePolicy = u64;

// Weights are read once per launch: let them leave L2 first.
MONOMOE_DEVICE CachePolicy evict_first_policy() {
    CachePolicy policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// `bytes` and both addresses are multiples of 16. The bytes count towards `barrier`.
MONOMOE_DEVICE void bulk_copy(void* shared, const void* global, u32 bytes, Mbarrier* barrier, CachePolicy policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
        ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
}

}  // namespace device
#line 9 "ops/ring.cuh"




// Position in the barrier ring.
struct RingSlot {
    u32 index = 0;
    u32 parity = 0;

    MONOMOE_DEVICE void advance() {
        if (++index == schedule::kRingStages) {
            index = 0;
            parity ^= 1;
        }
    }
};

MONOMOE_DEVICE u32 ring_wrap(u32 offset) { return offset >= schedule::kRingBytes ? offset - schedule::kRingBytes : offset; }

// Whether a stage may begin near the end of the ring and go on at its beginning.
constexpr bool kStagesCross = schedule::UpStage::kBytes != schedule::DownStage::kBytes;

// The place `at` bytes behind the beginning `offset` of a stage.
MONOMOE_DEVICE u32 ring_at(u32 offset, u32 at) { return kStagesCross ? ring_wrap(offset + at) : offset + at; }

// Bytes of weights that a CTA may have on their way. Enough to cover the latency of memory; more only makes every
// other load of the CTA queue behind them. The rest of the ring is slack between the copies and the MMA warps.
constexpr u32 kMaxOutstanding = 64 * 1024;

// One thread.
struct RingWriter {
    const Args& args;
    SharedStorage& storage;
    device::CachePolicy policy;
    RingSlot head, tail, landing;
    u32 offset = 0;
    u32 in_flight = 0;
    u32 free_bytes = schedule::kRingBytes;
    u32 up_in_flight = 0;  // the oldest of the stages in flight
    u32 outstanding = 0;   // stages on their way, the newest of those in flight
    u32 outstanding_bytes = 0;
    u32 up_outstanding = 0;  // the oldest of the stages that have not landed

    MONOMOE_DEVICE RingWriter(const Args& args, SharedStorage& s) : args(args), storage(s), policy(device::evict_first_policy()) {}

    // The oldest stage on its way has arrived.
    MONOMOE_DEVICE void land() {
        landing.advance();
        --outstanding;
        outstanding_bytes -= up_outstanding ? schedule::UpStage::kBytes : schedule::DownStage::kBytes;
        if (up_outstanding) --up_outstanding;
    }

    // Of this kind.
    template <typename Stage>
    MONOMOE_DEVICE u32 stages_in_flight() const {
        return Stage::kIsUp ? up_in_flight : in_flight - up_in_flight;
    }

    // Waits on: empty, until a stage of this kind fits; full, until few enough bytes are on their way. Announces
    // `bytes` of copies.
    template <typename Stage>
    MONOMOE_DEVICE void open(u32 bytes) {
        while (stages_in_flight<Stage>() >= Stage::kInFlight || in_flight == schedule::kRingStages ||
               free_bytes < Stage::kBytes) {
            device::mbarrier_wait(&storage.barrier.empty[tail.index], tail.parity, args.wait_limit_ns);
            tail.advance();
            if (outstanding == in_flight) land();
            --in_flight;
            free_bytes += up_in_flight ? schedule::UpStage::kBytes : schedule::DownStage::kBytes;
            if (up_in_flight) --up_in_flight;
        }
        while (outstanding && outstanding_bytes + Stage::kBytes > kMaxOutstanding) {
            device::mbarrier_wait(&storage.barrier.full[landing.index], landing.parity, args.wait_limit_ns);
            land();
        }
        announce(bytes);
    }
    MONOMOE_DEVICE void announce(u32 bytes) { device::mbarrier_arrive_expect(&storage.barrier.full[head.index], bytes); }

    // Copies kBytes to `at` bytes from the stage's beginning, a multiple of kBytes. What divides a block never crosses
    // the end of the ring.
    template <u32 kBytes>
    MONOMOE_DEVICE void copy(u32 at, const u8* source) {
        const u32 start = ring_at(offset, at);
        u32 first = kBytes;
        if constexpr (kStagesCross && schedule::kBlockBytes % kBytes != 0) {
            if (first > schedule::kRingBytes - start) first = schedule::kRingBytes - start;
        }
        device::bulk_copy(storage.ring + start, source, first, &storage.barrier.full[head.index], policy);
        if (first < kBytes) {
            device::bulk_copy(storage.ring, source + first, kBytes - first, &storage.barrier.full[head.index], policy);
        }
    }

    template <typename Stage>
    MONOMOE_DEVICE void close() {
        offset = ring_wrap(offset + Stage::kBytes);
        free_bytes -= Stage::kBytes;
        ++in_flight;
        up_in_flight += Stage::kIsUp;
        ++outstanding;
        outstanding_bytes += Stage::kBytes;
        up_outstanding += Stage::kIsUp;
        head.advance();
    }
};

// One MMA warp; all of them read every stage.
struct RingReader {
    RingSlot slot;
    u32 offset = 0;

    // Block `index` of the stage, as this lane multiplies it.
    template <typename Stage>
    MONOMOE_DEVICE BlockOperand block(const SharedStorage& s, u32 index, u32 lane) const {
        if constexpr (schedule::kRaw) {
            const u32 low = RawStage<Stage>::row_at(index, lane), high = low + RawStage<Stage>::kHighRows;
            return raw_operand(s.ring + ring_at(offset, low), s.ring + ring_at(offset, high), lane);
        } else {
            return packed_operand(s.ring + ring_at(offset, index * schedule::kBlockBytes), lane);
        }
    }
    MONOMOE_DEVICE void wait(const Args& args, SharedStorage& s) const { device::mbarrier_wait(&s.barrier.full[slot.index], slot.parity, args.wait_limit_ns); }
    template <typename Stage>
    MONOMOE_DEVICE void release(SharedStorage& s, u32 lane) {
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.empty[slot.index]);
        offset = ring_wrap(offset + Stage::kBytes);
        slot.advance();
    }
};
#line 5 "ops/stream.cuh"
#line 1 "ops/trace.cuh"
// Time stamps of one warp, rendered away when a kernel is not traced.







enum class Event : u32 {
    kStart,
    kSynced,       // barriers made
    kRouted,       // this warp's tokens have their experts
    kListed,       // active experts known
    kIssued,       // a stage requested
    kQuantized,    // this warp's share of the input quantized
    kReceived,     // the quantized input of all CTAs is there
    kStageFull,    // a stage's weights are there
    kStageDone,    // a unit of up, or a stage of down, multiplied
    kUnitStored,   // h of a unit published
    kRequantized,  // h of an expert requantized
    kHReady,       // h of a down stage is there
    kReduced,      // down-projection done
    kStored,       // output stored
};

constexpr u32 kTraceRecords = 1024;  // per warp; later ones are dropped

template <bool kEnabled>
struct WarpTracer {
    MONOMOE_DEVICE WarpTracer(const Args&, u32, u32, u32) {}
    MONOMOE_DEVICE void begin() {}
    MONOMOE_DEVICE void mark(Event, u32 = 0) {}
    MONOMOE_DEVICE void mark_synced(const SharedStorage&) {}
};

// A record: 1 + event in bits 63..56, index in 47..32, the low half of the SM's clock below. Record 0 is the global
// time of the start; the host clears the buffer, so a zero record ends the list. The start is read when the tracer is
// made and stored by begin, which with kPdl has to come behind the wait for the kernels ahead.
template <>
struct WarpTracer<true> {
    u64* next;
    u32 left;
    u64 start_ns = 0;
    u32 start_clock = 0;

    MONOMOE_DEVICE WarpTracer(const Args& args, u32 cta, u32 warp, u32 lane)
        : next(args.trace + u64{cta * (schedule::kThreads / 32) + warp} * kTraceRecords), left(lane == 0 ? kTraceRecords - 1 : 0) {
        start_ns = device::global_nanoseconds();
        start_clock = device::sm_clock();
    }
    MONOMOE_DEVICE void begin() {
        if (left) *next++ = start_ns;
        record(Event::kStart, 0, start_clock);
    }
    MONOMOE_DEVICE void mark(Event event, u32 index = 0) { record(event, index, device::sm_clock()); }
    // Behind a barrier of the hardware.
    MONOMOE_DEVICE void mark_synced(const SharedStorage& s) { record(Event::kSynced, 0, device::sm_clock_behind(&s.epoch)); }

private:
    MONOMOE_DEVICE void record(Event event, u32 index, u32 clock) {
        if (left == 0) return;
        --left;
        *next++ = u64{(static_cast<u32>(event) + 1) << 24 | (index & 0xffffu)} << 32 | clock;
    }
};

using Tracer = WarpTracer<schedule::kTrace>;
#line 6 "ops/stream.cuh"

// Up-projection: unit (active expert i, stripe j) belongs to CTA (i * kGUp + j) mod kGrid.
struct UpUnit {
    u32 index;

    MONOMOE_DEVICE static UpUnit first(u32 cta) { return {cta}; }
    MONOMOE_DEVICE void advance() { index += schedule::kGrid; }
    MONOMOE_DEVICE bool valid(u32 active_count) const { return index < active_count * schedule::kGUp; }
    MONOMOE_DEVICE u32 expert() const { return index / schedule::kGUp; }  // position in `active`
    MONOMOE_DEVICE u32 stripe() const { return index % schedule::kGUp; }
    // Units of a CTA.
    MONOMOE_DEVICE static u32 count(u32 cta, u32 active_count) {
        const u32 units = active_count * schedule::kGUp;
        return cta < units ? (units - cta - 1) / schedule::kGrid + 1 : 0;
    }
    // The round in which the last unit of an expert is multiplied; a CTA has a unit of each round until it has none.
    MONOMOE_DEVICE static u32 last_round(u32 expert) { return ((expert + 1) * schedule::kGUp - 1) / schedule::kGrid; }
};

// Down-projection: CTA c owns output stripe c / kDownGroups for the active experts of its group c mod kDownGroups,
// which are group, group + kDownGroups, ... The CTAs left over have no part in it.
struct DownShare {
    u32 group;
    u32 stripe;
    u32 count;  // experts

    MONOMOE_DEVICE static DownShare of(u32 cta, u32 active_count) {
        const u32 group = cta % schedule::kDownGroups;
        const u32 stripe = cta / schedule::kDownGroups;
        if (stripe >= schedule::kGDown || group >= active_count) return {group, stripe, 0};
        return {group, stripe, (active_count - group + schedule::kDownGroups - 1) / schedule::kDownGroups};
    }
    MONOMOE_DEVICE bool owns_output() const { return stripe < schedule::kGDown; }
    // Position in `active` of the local-th expert.
    MONOMOE_DEVICE u32 expert(u32 local) const { return group + local * schedule::kDownGroups; }
};

// One expert's stripe as the copy engine sees it: the part of it in a stage is kCount runs of kBytes, which lie kPitch
// bytes apart in memory and one after the other in the ring. Packed, a run is of a tile; raw, of a row. Raw stripes of
// w13 are two, one of gate rows and one of up rows.
template <typename Stage, u32 kStripes, u32 kStages>
struct Runs {
    static constexpr u32 kParts = schedule::kRaw && Stage::kIsUp ? 2 : 1;
    static constexpr u32 kCount = Stage::kTiles * (schedule::kRaw ? schedule::kRowTile / kParts : 1);
    static constexpr u32 kBytes = Stage::kExpertBlocks * schedule::kBlockBytes / (kParts * kCount);
    static constexpr u32 kPitch = kStages * kBytes;
    static constexpr u32 kPartBytes = kCount * kBytes;
    static constexpr u64 kPartPitch = u64{kStripes} * kCount * kPitch;
    static constexpr u32 kUnroll = schedule::kRaw ? 8 : 1;  // runs of rows are many and short

    // Where the first stage of a stripe begins; every stage is kBytes further.
    MONOMOE_DEVICE static const u8* source(const u8* weights, u64 expert, u32 stripe) {
        return weights + expert * (kParts * kPartPitch) + stripe * (kCount * kPitch);
    }
    MONOMOE_DEVICE static void request(RingWriter& ring, u32 at, const u8* source) {
#pragma unroll
        for (u32 part = 0; part < kParts; ++part, at += kPartBytes, source += kPartPitch) {
            if constexpr (kStages == 1) {
                ring.copy<kPartBytes>(at, source);
            } else {
#pragma unroll kUnroll
                for (u32 run = 0; run < kCount; ++run) ring.copy<kBytes>(at + run * kBytes, source + run * kPitch);
            }
        }
    }
};

using UpRuns = Runs<schedule::UpStage, schedule::kGUp, schedule::kStagesPerUnitUp>;
using DownRuns = Runs<schedule::DownStage, schedule::kGDown, schedule::kStagesPerExpertDown>;

// Stages of a CTA's first unit that are requested before the list is written, if the unit is of a lead: 32 KB take as
// long as writing it; one stage if it is larger.
constexpr u32 early_stages() {
    using Up = schedule::UpStage;
    constexpr u32 kMost = Up::kBytes < 32 * 1024 ? 32 * 1024 / Up::kBytes : 1;
    constexpr u32 kStages = schedule::kStagesPerUnitUp < Up::kInFlight ? schedule::kStagesPerUnitUp : Up::kInFlight;
    return kStages < kMost ? kStages : kMost;
}

// Requests the early stages of this CTA's first unit, of `expert`, into the empty ring. One thread.
//   Reads     -
//   Writes    ring
//   Waits on  -
//   Signals   full
MONOMOE_DEVICE void stream_early(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 expert) {
    RingWriter ring(args, s);
    const u8* source = UpRuns::source(args.w13, expert, UpUnit::first(cta).stripe());
#pragma unroll
    for (u32 k = 0; k < early_stages(); ++k, source += UpRuns::kBytes) {
        ring.announce(schedule::UpStage::kBytes);
        UpRuns::request(ring, 0, source);
        ring.close<schedule::UpStage>();
        trace.mark(Event::kIssued);
    }
}

// Requests all weights of this CTA, up-projection first, but for those that stream_early has requested because the
// first unit is of a lead. One thread.
//   Reads     active, active_count (its own warp wrote them)
//   Writes    ring
//   Waits on  empty, full
//   Signals   full
MONOMOE_DEVICE void stream_weights(const Args& args, SharedStorage& s, Tracer& trace, u32 cta) {
    const u32 active_count = s.active_count;
    RingWriter ring(args, s);

    using Up = schedule::UpStage;
    u32 k = 0;
    if (UpUnit::first(cta).expert() < schedule::kLeads) {
#pragma unroll
        for (; k < early_stages(); ++k) ring.close<Up>();
    }
    for (UpUnit unit = UpUnit::first(cta); unit.valid(active_count); unit.advance()) {
        const u8* source = UpRuns::source(args.w13, s.active[unit.expert()].expert, unit.stripe()) + k * UpRuns::kBytes;
#pragma unroll 1
        for (; k < schedule::kStagesPerUnitUp; ++k, source += UpRuns::kBytes) {
            ring.open<Up>(Up::kBytes);
            UpRuns::request(ring, 0, source);
            ring.close<Up>();
            trace.mark(Event::kIssued);
        }
        k = 0;
    }

    using Down = schedule::DownStage;
    constexpr u32 kExpertBytes = Down::kExpertBlocks * schedule::kBlockBytes;
    const DownShare share = DownShare::of(cta, active_count);
#pragma unroll 1
    for (u32 local = 0; local < share.count; local += schedule::kExpertsPerStageDown) {
        const u32 left = share.count - local;
        const u32 experts = left < schedule::kExpertsPerStageDown ? left : schedule::kExpertsPerStageDown;
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerExpertDown; ++k) {
            ring.open<Down>(experts * kExpertBytes);
#pragma unroll 1
            for (u32 e = 0; e < experts; ++e) {
                const u8* const source = DownRuns::source(args.w2, s.active[share.expert(local + e)].expert, share.stripe);
                DownRuns::request(ring, e * kExpertBytes, source + k * DownRuns::kBytes);
            }
            ring.close<Down>();
            trace.mark(Event::kIssued);
        }
    }
}
#line 9 "ops/down_proj.cuh"


// A row of h. Lane l has the columns 128 * b + 4 * l ... of block b.
using HRow = F32x4[schedule::kIntermediateBlocks];

// Cycles from the beginning of an up unit until rows of h may be asked for: those of the round before, and, in the last
// unit, those of its own round. So far behind is the slowest CTA, and a row that is not there when it is asked for comes
// a trip later and delays what others wait for. A CTA's share of the memory's bandwidth is 18 bytes a cycle, so in the
// second case the unit is nearly over. Both are the best of several that were measured (templates/README.md, 73).
constexpr u32 kUnitBytes = schedule::kStagesPerUnitUp * schedule::UpStage::kBytes;
constexpr u32 ask_after(u32 cycles) { return cycles > 512 ? cycles - 256 : 256; }
constexpr u32 kAskBefore = ask_after(kUnitBytes / 32);
constexpr u32 kAskLast = ask_after(kUnitBytes / 18);

// Asks for a row that may not be there yet.
MONOMOE_DEVICE void load_row(HRow& row, const float* source, u32 lane) {
#pragma unroll
    for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) {
        row[b] = device::load_relaxed(reinterpret_cast<const F32x4*>(source + b * schedule::kScaleBlock) + lane);
    }
}

MONOMOE_DEVICE bool row_has_arrived(const HRow& row) {
    u32 least = 0xffffffffu;
#pragma unroll
    for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) least = device::minimum(least, least_word(row[b]));
    return device::all(least != 0);
}

// Asks again until all of a row that was asked for has arrived.
MONOMOE_DEVICE void receive_row(HRow& row, const float* source, u32 lane, u64 limit_ns) {
    if (row_has_arrived(row)) return;
    const device::Watchdog watchdog{limit_ns};
    for (;;) {
        load_row(row, source, lane);
        if (row_has_arrived(row)) return;
        watchdog.check();
    }
}

// Stores a row of h as bf16.
MONOMOE_DEVICE void round_row(shape::Activation* target, const HRow& row, u32 lane) {
    const auto pair = [](float low, float high) { return u32{device::float_to_bf16(low)} | u32{device::float_to_bf16(high)} << 16; };
#pragma unroll
    for (u32 b = 0; b < schedule::kIntermediateBlocks; ++b) {
        const F32x4 v = row[b];
        *reinterpret_cast<U32x2*>(target + b * schedule::kScaleBlock + 4 * lane) = {pair(v.x, v.y), pair(v.z, v.w)};
    }
}

// Stores a row of h as e4m3. Returns the scale of block lane % kIntermediateBlocks.
MONOMOE_DEVICE float quantize_row(shape::Activation* target, const HRow& row, u32 lane) {
    constexpr u32 kBlocks = schedule::kIntermediateBlocks;
    u32 my_amax = 0;
#pragma unroll
    for (u32 b = 0; b < kBlocks; ++b) {
        const F32x4 v = row[b];
        const float high = device::maximum(device::maximum(device::absolute(v.x), device::absolute(v.y)),
                                           device::maximum(device::absolute(v.z), device::absolute(v.w)));
        const u32 amax = device::reduce_max(device::float_to_bits(high));
        my_amax = lane % kBlocks == b ? amax : my_amax;
    }
    const QuantScale mine = QuantScale::of(device::bits_to_float(my_amax));
#pragma unroll
    for (u32 b = 0; b < kBlocks; ++b) {
        const F32x4 v = row[b];
        const float inverse = device::shuffle(mine.inverse, b);
        *reinterpret_cast<u32*>(target + b * schedule::kScaleBlock + 4 * lane) =
            device::float_to_e4m3x4(v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse);
    }
    return mine.scale;
}

// The rows of h that one requant warp rounds, with all that can be known of them before they are there: little is left
// to do between two rows, each of which is a chain of latencies. Every kTeams-th expert of the share belongs to the same
// kSlotWarps warps, who take its rows in turn, beginning with another one at each expert; so a slot always has the same
// warps. Lane l notes row l % kMost of those that the warp has of expert l / kMost, of kExperts at a time.
struct RowNotes {
    static constexpr u32 kTeams = schedule::kRequantWarps / schedule::kSlotWarps;
    static constexpr u32 kMost = schedule::kColumns / schedule::kSlotWarps;  // rows of an expert that one warp has
    static constexpr u32 kExperts = 32 / kMost;
    static constexpr u32 kStep = kExperts * kTeams;  // from the first expert noted to the first one noted next
    static_assert(schedule::kHSlots % kTeams == 0, "a slot belongs to one team");
    static_assert(shape::kTokenExperts * schedule::kTokenTile <= 0xffff && schedule::kMaxActive <= 0x1fff, "a note holds both");

    u32 place;     // row of the workspace, its expert of the share << 16, its column << 29
    float weight;  // routing weight
    u32 left;      // lanes whose rows are left, as bits

    MONOMOE_DEVICE static u32 row(u32 place) { return place & 0xffffu; }
    MONOMOE_DEVICE static u32 local(u32 place) { return place >> 16 & 0x1fffu; }
    MONOMOE_DEVICE static u32 column(u32 place) { return place >> 29; }

    // Notes the rows of this warp's experts from `first` on.
    MONOMOE_DEVICE void take(const SharedStorage& s, const DownShare& share, u32 first, u32 warp, u32 lane) {
        const u32 local = first + lane / kMost * kTeams;
        const bool valid = local < share.count;
        const ActiveExpert expert = s.active[valid ? share.expert(local) : 0];
        const u32 rank = (warp / kTeams + local / kTeams) % schedule::kSlotWarps + lane % kMost * schedule::kSlotWarps;
        u32 tokens = valid ? expert.tokens : 0;
#pragma unroll
        for (u32 i = 0; i + 1 < schedule::kColumns; ++i) tokens = i < rank ? tokens & (tokens - 1) : tokens;
        const u32 token = tokens ? device::lowest_bit(tokens) : 0;
        place = (expert.first_row + rank) | local << 16 | token % schedule::kColumns << 29;
        u32 which = 0;
#pragma unroll
        for (u32 w = 0; w < schedule::kSelectedWords; ++w) {
            const U32x4 eight = reinterpret_cast<const U32x4*>(s.selected[token])[w];
            const u32 words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (u32 i = 0; i < 8; ++i) {
                which = (words[i / 2] >> i % 2 * 16 & 0xffff) == expert.expert ? w * 8 + i : which;
            }
        }
        weight = s.weight[token][which];
        left = device::ballot(tokens != 0);
    }
};

// Requantizes h of the experts of this CTA's down group into the slots. One requant warp. h that is not quantized is
// rounded to bf16.
//   Reads     rows of h in the workspace, w2_scale, active, selected, weight, up_ending_since
//   Writes    h, h_scale
//   Waits on  listed and weighted (the caller did), numbered, up_ending, the rows of h, h_empty
//   Signals   h_full
MONOMOE_DEVICE void requantize(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 warp, u32 lane) {
    constexpr u32 kBlocks = schedule::kIntermediateBlocks;
    constexpr u32 kScales = schedule::kDownScaleRows * kBlocks;  // <= 32
    const HandOff handoff = HandOff::of(args, s.epoch);
    const DownShare share = DownShare::of(cta, s.active_count);
    const u32 scale_row = share.stripe * schedule::kStripeDown / schedule::kScaleBlock + lane / kBlocks;
    const bool has_scale = lane < kScales && scale_row < schedule::kHiddenBlocks;
    const auto wait_empty = [&](u32 local) {
        const u32 use = local / schedule::kHSlots;
        if (use) device::mbarrier_wait(&s.barrier.h_empty[local % schedule::kHSlots], (use - 1) & 1, args.wait_limit_ns);
    };
    const auto scale_of = [&](u32 local) {
        const u32 expert = s.active[share.expert(local)].expert;
        return device::load_input(args.w2_scale + (expert * schedule::kHiddenBlocks + scale_row) * kBlocks + lane % kBlocks);
    };
    device::mbarrier_wait(&s.barrier.numbered, 0, args.wait_limit_ns);
    RowNotes notes;
    u32 first = warp % RowNotes::kTeams;
    notes.take(s, share, first, warp, lane);
    // Waits until rows of an expert may be asked for: in the last unit of this CTA, or in the last but one if the expert
    // is complete by then, some time into it if that is the unit behind the expert's last, or is of the same round. Asking
    // for rows earlier would only compete with the weight stream, and asking for those that find no free slot would gain
    // nothing.
    const u32 rounds = UpUnit::count(cta, s.active_count);
    u32 ending = 2;  // what it has waited for last
    const auto wait_to_ask = [&](u32 local) {
        const u32 round = UpUnit::last_round(share.expert(local));
        const u32 until = local < schedule::kHSlots && round + 2 < rounds ? 1 : 0;
        if (until < ending) device::mbarrier_wait(&s.barrier.up_ending[until], 0, args.wait_limit_ns);
        ending = until;
        if (round + 2 + until >= rounds) device::spin_since(s.up_ending_since[until], round + 1 < rounds ? kAskBefore : kAskLast);
    };
    u32 next = first;  // the first expert that is not published
    // Publishes the experts before `end`, which have all rows of this warp.
    const auto publish = [&](u32 end) {
#pragma unroll 1
        for (; next < end && next < share.count; next += RowNotes::kTeams) {
            wait_empty(next);
            device::sync_warp();
            if (lane == 0) device::mbarrier_arrive(&s.barrier.h_full[next % schedule::kHSlots]);
            trace.mark(Event::kRequantized, next);
        }
    };
    for (; first < share.count; notes.take(s, share, first, warp, lane)) {
#pragma unroll 1
        while (notes.left) {
            const u32 from = device::lowest_bit(notes.left);
            const u32 place = device::shuffle(notes.place, from);
            const u32 local = RowNotes::local(place), column = RowNotes::column(place), slot = local % schedule::kHSlots;
            const float* const source = handoff.h_row(RowNotes::row(place));
            wait_to_ask(local);
            HRow row;
            load_row(row, source, lane);
            float scale = 0.f;
            if (has_scale) scale = scale_of(local);
            const float weight = device::shuffle(notes.weight, from);
            notes.left &= notes.left - 1;
            const u32 behind = device::shuffle(notes.place, device::lowest_bit(notes.left | 1u << 31));
            publish(local);
            receive_row(row, source, lane, args.wait_limit_ns);
            wait_empty(local);
            if constexpr (shape::quantizes()) {
                scale *= quantize_row(s.h[slot][column], row, lane);
            } else {
                round_row(s.h[slot][column], row, lane);
            }
            if (lane < kScales) s.h_scale[slot][lane / kBlocks][lane % kBlocks][column] = scale * weight;
            // At once, and not when the next row is there.
            publish(notes.left ? RowNotes::local(behind) : first + RowNotes::kStep);
        }
        first += RowNotes::kStep;
        publish(first);
    }
}

using OutputSums = float[schedule::kTokenTiles][schedule::DownStage::kAccumulators][4];

// Adds weight * (h @ w2^T) of this CTA's experts to the sums of its output stripe. One MMA warp.
//   Reads     ring, h, h_scale, active
//   Writes    -
//   Waits on  full, h_full
//   Signals   empty, h_empty
MONOMOE_DEVICE void down_project(const Args& args, SharedStorage& s, RingReader& ring, Tracer& trace, OutputSums& sums, const DownShare& share,
                                 u32 warp, u32 lane) {
    using Stage = schedule::DownStage;
    const u32 q = lane % 4;
    const u32 beside = schedule::kExpertsPerStageDown > 1 ? warp / Stage::kExpertBlocks : 0;  // which of a stage's experts
    const u32 first_row = share.stripe * schedule::kStripeDown;
#pragma unroll 1
    for (u32 local = 0; local < share.count; local += schedule::kExpertsPerStageDown) {
        const u32 mine = local + beside;
        const bool present = mine < share.count;
        const u32 slot = mine % schedule::kHSlots;
        const u32 tokens = present ? s.active[share.expert(mine)].tokens : 0;
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerExpertDown; ++k) {
            // The only block of a stage is in registers before h is waited for. More would take too many of them.
            constexpr bool kOnlyBlock = Stage::kWarpBlocks == 1;
            BlockOperand only;
            if constexpr (kOnlyBlock) {
                ring.wait(args, s);
                trace.mark(Event::kStageFull, local);
                if (present && warp < Stage::kBlocks) only = ring.block<Stage>(s, warp, lane);
            }
            if (present && k == 0) device::mbarrier_wait(&s.barrier.h_full[slot], (mine / schedule::kHSlots) & 1, args.wait_limit_ns);
            if (k == 0) trace.mark(Event::kHReady, local);
            if constexpr (!kOnlyBlock) {
                ring.wait(args, s);
                trace.mark(Event::kStageFull, local);
            }
            if (present) {
#pragma unroll
                for (u32 i = 0; i < Stage::kWarpBlocks; ++i) {
                    const u32 block = warp + i * schedule::kMmaWarps;
                    if (Stage::kBlocks % schedule::kMmaWarps && block >= Stage::kBlocks) break;
                    const u32 in_expert = block % Stage::kExpertBlocks;
                    const u32 tile = in_expert / Stage::kColumnBlocks;
                    const u32 column = k * Stage::kColumnBlocks + in_expert % Stage::kColumnBlocks;
                    const u32 scale_row = (first_row + tile * schedule::kRowTile) / schedule::kScaleBlock - first_row / schedule::kScaleBlock;
                    float product[4];
                    const shape::Activation* const first = s.h[slot][lane / 4] + column * schedule::kScaleBlock;
                    multiply_block(product, kOnlyBlock ? only : ring.block<Stage>(s, block, lane), shared_operands(first, lane));
                    const F32x2 scale = *reinterpret_cast<const F32x2*>(&s.h_scale[slot][scale_row][column][2 * q]);
#pragma unroll
                    for (u32 t = 0; t < schedule::kTokenTiles; ++t) {
                        const u32 token = schedule::kColumns * t + 2 * q;
                        float(&sum)[4] = sums[t][Stage::accumulator(i)];
                        // Columns without a token hold anything, NaN included.
                        if (tokens >> token & 1) {
                            sum[0] += product[0] * scale.x;
                            sum[2] += product[2] * scale.x;
                        }
                        if (tokens >> token & 2) {
                            sum[1] += product[1] * scale.y;
                            sum[3] += product[3] * scale.y;
                        }
                    }
                }
            }
            ring.release<Stage>(s, lane);
        }
        if (present && lane == 0) device::mbarrier_arrive(&s.barrier.h_empty[slot]);
        trace.mark(Event::kStageDone, local);
    }
}
#line 6 "ops/combine.cuh"
#line 1 "ops/up_proj.cuh"
// Gate and up projection, SwiGLU, and the publication of h.


#line 1 "device/async_copy.cuh"
// Copies from global to shared memory that the thread which asked for them waits for.




namespace device {

// One float of an input.
MONOMOE_DEVICE void copy_async(float* shared, const float* global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}

// What this thread has asked for since the last call becomes a group, of none perhaps.
MONOMOE_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `kPending` groups of this thread have landed. Other lanes may read them once they have met it.
template <u32 kPending>
MONOMOE_DEVICE void wait_async() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace device
#line 5 "ops/up_proj.cuh"

#line 1 "ops/bf16_input.cuh"
// Input that stays bf16: copied to shared memory, or read where it is if it does not fit there.








// Copies this warp's share of the input, where shared memory has room for it. All MMA warps.
//   Reads     args.x
//   Writes    x
//   Waits on  -
//   Signals   x_ready
MONOMOE_DEVICE void copy_inputs(const Args& args, SharedStorage& s, u32 warp, u32 lane) {
    if constexpr (schedule::kXInShared) {
        constexpr u32 kBatch = 8;  // words of 16 bytes that a lane has on their way
        constexpr u32 kThreads = 32 * schedule::kMmaWarps;
        constexpr u32 kRowWords = shape::kHidden / 8;
        const U32x4* const words = reinterpret_cast<const U32x4*>(args.x);
        const u32 count = args.tokens * kRowWords;
#pragma unroll 1
        for (u32 first = warp * 32 + lane; first < count; first += kBatch * kThreads) {
            U32x4 word[kBatch];
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) {
                const u32 at = first + i * kThreads;
                if (at < count) word[i] = load_given(words + at);
            }
#pragma unroll
            for (u32 i = 0; i < kBatch; ++i) {
                const u32 at = first + i * kThreads;
                if (at < count) *reinterpret_cast<U32x4*>(&s.x[at / kRowWords][at % kRowWords * 8]) = word[i];
            }
        }
    }
    device::sync_warp();
    if (lane == 0) device::mbarrier_arrive(&s.barrier.x_ready[0]);
}

// A column block of the routed tokens' input in global memory.
struct InputColumns {
    const device::Bf16* first;  // of token 0
    u32 tokens;                 // routed, as bits

    MONOMOE_DEVICE Operands operands(u32 lane) const {
        const u32 token = token_of(tokens, lane / 4);
        const U32x4* const words = reinterpret_cast<const U32x4*>(first + token * shape::kHidden + lane % 4 * 16);
        Operands got = {};
        if (tokens >> token & 1) {
#pragma unroll
            for (u32 i = 0; i < Operands::kWords; ++i) got.part[i] = load_given(words + i / 2 * 8 + i % 2);
        }
        return got;
    }
};
#line 7 "ops/up_proj.cuh"




// The scales that one MMA warp multiplies its units by. They come by copies, which no register waits for: a load whose
// register is moved on to the next unit would be waited for there, and with it every load behind it.
struct UpScales {
    // Units ahead of the one that is multiplied: loads queue behind a ring full of weights, which may be more than one unit.
    static constexpr u32 kAhead = schedule::kStagesPerUnitUp > 2 ? 2 : 3;
    static_assert(kAhead < schedule::kScaleSlots, "a slot is asked for again behind the sync_warp that ends its unit");

    SharedStorage& storage;
    const float* scales;  // w13_scale
    u32 warp, lane;

    // Asks for those of the unit'th unit of this CTA, in the order of the units. `valid`: there is one.
    MONOMOE_DEVICE void ask(u32 unit, UpUnit which, bool valid) const {
        constexpr u32 kWords = 2 * schedule::kUnitColumns;  // gate and up of each column block
        if (valid) {
            const u32 row_block = which.stripe() * (schedule::kStripeUp / 2) / schedule::kScaleBlock;
            const u32 gate_row = storage.active[which.expert()].expert * (2 * schedule::kIntermediateBlocks) + row_block;
#pragma unroll
            for (u32 first = 0; first < kWords; first += 32) {
                const u32 word = first + lane, entry = word / 2, is_up = word % 2;
                if (word >= kWords) continue;
                const u32 stage = entry / schedule::UpStage::kWarpColumns;
                const u32 column = stage * schedule::UpStage::kColumnBlocks + schedule::UpStage::column_of(warp, entry % schedule::UpStage::kWarpColumns);
                const float* const row = scales + (gate_row + is_up * schedule::kIntermediateBlocks) * schedule::kHiddenBlocks;
                device::copy_async(&storage.up_scale[warp][unit % schedule::kScaleSlots][entry][is_up], row + column);
            }
        }
        device::commit_async();
    }
    // Waits for those of the unit that was asked for kAhead units ago.
    MONOMOE_DEVICE void receive() const {
        device::wait_async<kAhead>();
        device::sync_warp();
    }
    // Gate and up of the warp's i-th block of a stage.
    MONOMOE_DEVICE F32x2 at(u32 unit, u32 stage, u32 i) const {
        const u32 entry = stage * schedule::UpStage::kWarpColumns + i % schedule::UpStage::kWarpColumns;
        return *reinterpret_cast<const F32x2*>(storage.up_scale[warp][unit % schedule::kScaleSlots][entry]);
    }
};

// A column block of the routed tokens' input, straight from the packets.
struct InputPackets {
    const InputPacket* first;  // of token 0
    u32 tokens;                // routed, as bits

    // Asks for the operands, which may not be there yet.
    MONOMOE_DEVICE void ask(Operands& operands, u32 lane) const {
        const u32 token = token_of(tokens, lane / 4), word = lane % 4;
        const InputPacket& packet = first[token * schedule::kHiddenBlocks];
        operands = {};
        if (tokens >> token & 1) operands = {packet.load(word), packet.load(4 + word)};
    }
    // Asks again until those that were asked for have arrived.
    MONOMOE_DEVICE void receive(Operands& operands, u32 lane, u64 limit_ns) const {
        if (complete(operands, lane)) return;
        const device::Watchdog watchdog{limit_ns};
        for (;;) {
            ask(operands, lane);
            if (complete(operands, lane)) return;
            watchdog.check();
        }
    }

private:
    MONOMOE_DEVICE bool complete(const Operands& operands, u32 lane) const {
        const bool routed = tokens >> token_of(tokens, lane / 4) & 1;
        return device::all(!routed || device::minimum(least_word(operands.part[0]), least_word(operands.part[1])) != 0);
    }
};

// The scales of a column block of the input for the columns 2q and 2q+1.
MONOMOE_DEVICE F32x2 input_scales(const SharedStorage& s, u32 block, u32 tokens, u32 q) {
    const float(&scales)[schedule::kTokenTile] = s.x_scale[block];
    if constexpr (schedule::kTokenTiles == 1) return *reinterpret_cast<const F32x2*>(&scales[2 * q]);
    return {scales[token_of(tokens, 2 * q)], scales[token_of(tokens, 2 * q + 1)]};
}

// Multiplies this CTA's up units. One MMA warp.
//   Reads     ring, x, x_scale, active, w13_scale
//   Writes    up partials, up_scale of its own, up_ending_since
//   Waits on  listed, x_ready, full, partial_empty
//   Signals   empty, partial_full, up_ending (warp 0)
// Returns the number of units.
MONOMOE_DEVICE u32 up_project(const Args& args, SharedStorage& s, RingReader& ring, Tracer& trace, u32 cta, u32 warp, u32 lane) {
    using Stage = schedule::UpStage;
    const u32 active_count = s.active_count;
    const InputPacket* const packets = HandOff::of(args, s.epoch).packets(args.tokens);
    const u32 q = lane % 4;
    const u32 count = UpUnit::count(cta, active_count);
    UpUnit unit = UpUnit::first(cta), ahead = unit;
    const UpScales scales = {s, args.w13_scale, warp, lane};
#pragma unroll 1
    for (u32 i = 0; i < UpScales::kAhead; ++i, ahead.advance()) scales.ask(i, ahead, ahead.valid(active_count));
    // `left` units come behind the one that is begun.
    const auto tell_ending = [&](u32 left) {
        if (left >= 2 || warp > 0 || lane > 0) return;
        s.up_ending_since[left] = device::sm_clock();
        device::mbarrier_arrive(&s.barrier.up_ending[left]);
    };
    if (count == 0) tell_ending(0);
    // Packets are asked for one stage ahead.
    constexpr bool kPackets = !schedule::kXInShared && shape::quantizes();
    Operands asked[kPackets ? Stage::kWarpBlocks : 1];
    const auto input = [&](u32 tokens, u32 k, u32 i) {
        return InputPackets{packets + k * Stage::kColumnBlocks + (warp + i * schedule::kMmaWarps) % Stage::kColumnBlocks, tokens};
    };
    if (kPackets && unit.valid(active_count)) {
#pragma unroll
        for (u32 i = 0; i < Stage::kWarpBlocks; ++i) input(s.active[unit.expert()].tokens, 0, i).ask(asked[i], lane);
    }
#pragma unroll 1
    for (u32 units = 0; units < count; ++units) {
        const u32 tokens = s.active[unit.expert()].tokens;
        scales.ask(units + UpScales::kAhead, ahead, ahead.valid(active_count));
        ahead.advance();
        unit.advance();
        tell_ending(count - 1 - units);
        const u32 next_tokens = unit.valid(active_count) ? s.active[unit.expert()].tokens : 0;
        float sums[Stage::kAccumulators][4] = {};
#pragma unroll 1
        for (u32 k = 0; k < schedule::kStagesPerUnitUp; ++k) {
            if (units == 0 && (k == 0 || schedule::kInputParts > 1)) {
                device::mbarrier_wait(&s.barrier.x_ready[((k + 1) * Stage::kColumnBlocks - 1) / schedule::kPartBlocks], 0, args.wait_limit_ns);
            }
            ring.wait(args, s);
            trace.mark(Event::kStageFull, units * schedule::kStagesPerUnitUp + k);
            if (k == 0) scales.receive();
#pragma unroll
            for (u32 i = 0; i < Stage::kWarpBlocks; ++i) {
                const u32 block = warp + i * schedule::kMmaWarps;
                if (Stage::kBlocks % schedule::kMmaWarps && block >= Stage::kBlocks) break;
                const u32 column = k * Stage::kColumnBlocks + block % Stage::kColumnBlocks;
                const F32x2 scale = scales.at(units, k, i);
                float product[4];
                const BlockOperand weights = ring.block<Stage>(s, block, lane);
                Operands activations;
                if constexpr (kPackets) {
                    input(tokens, k, i).receive(asked[i], lane, args.wait_limit_ns);
                    activations = asked[i];
                    const bool last = k + 1 == schedule::kStagesPerUnitUp;
                    input(last ? next_tokens : tokens, last ? 0 : k + 1, i).ask(asked[i], lane);
                } else if constexpr (schedule::kXInShared) {
                    activations = shared_operands(s.x[token_of(tokens, lane / 4)] + column * schedule::kScaleBlock, lane);
                } else {
                    activations = InputColumns{args.x + column * schedule::kScaleBlock, tokens}.operands(lane);
                }
                multiply_block(product, weights, activations);
                F32x2 x_scale = {1.f, 1.f};
                if constexpr (shape::quantizes()) x_scale = input_scales(s, column, tokens, q);
                float(&sum)[4] = sums[Stage::accumulator(i)];
                sum[0] += product[0] * (x_scale.x * scale.x);
                sum[1] += product[1] * (x_scale.y * scale.x);
                sum[2] += product[2] * (x_scale.x * scale.y);
                sum[3] += product[3] * (x_scale.y * scale.y);
            }
            ring.release<Stage>(s, lane);
        }
        const u32 buffer = units % 2;
        if (units >= 2) device::mbarrier_wait(&s.barrier.partial_empty[buffer], (units / 2 - 1) & 1, args.wait_limit_ns);
        store_partials(s.up[buffer], sums, warp, lane);
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.partial_full[buffer]);
        trace.mark(Event::kStageDone, units);
    }
    return count;
}

// Waits until the epilogue warps have read both partial buffers. One MMA warp, after `units` units.
MONOMOE_DEVICE void drain_partials(const Args& args, SharedStorage& s, u32 units) {
#pragma unroll
    for (u32 back = 1; back <= 2; ++back) {
        if (units >= back) device::mbarrier_wait(&s.barrier.partial_empty[(units - back) % 2], ((units - back) / 2) & 1, args.wait_limit_ns);
    }
}

// gate * sigmoid(slope) * up. The slope of silu is the gate itself; gelu_tanh is the same with another, as
// (1 + tanh(z)) / 2 = sigmoid(2z). A NaN passes the clamps.
MONOMOE_DEVICE float swiglu(float gate, float up) {
    if constexpr (shape::swiglu_limit() > 0.f) {
        constexpr float kLimit = shape::swiglu_limit();
        gate = gate > kLimit ? kLimit : gate;
        up = up > kLimit ? kLimit : up < -kLimit ? -kLimit : up;
    }
    float slope = gate;
    if constexpr (shape::kGeluTanh) {
        constexpr float kLinear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
        constexpr float kCubic = 0.07135481627260025f;  // times 0.044715
        slope = gate * (kLinear + kCubic * (gate * gate));
    }
    return device::divide_fast(gate, 1.f + device::exponential_fast(-slope)) * up;
}

// Sums the partials of every second unit, applies SwiGLU and publishes h of the routed tokens. One epilogue warp.
//   Reads     up partials, active
//   Writes    rows of h in this launch's half of the workspace
//   Waits on  listed and numbered (the caller did), partial_full[which]
//   Signals   partial_empty[which]; h itself
MONOMOE_DEVICE void publish_h(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 which, u32 lane) {
    using Stage = schedule::UpStage;
    const HandOff handoff = HandOff::of(args, s.epoch);
    const u32 active_count = s.active_count;
    const u32 g = lane / 4, q = lane % 4;
    UpUnit unit = UpUnit::first(cta);
    u32 parity = 0;
    for (u32 i = 0; unit.valid(active_count); ++i, unit.advance()) {
        if (i % 2 != which) continue;
        const ActiveExpert expert = s.active[unit.expert()];
        device::mbarrier_wait(&s.barrier.partial_full[which], parity, args.wait_limit_ns);
        parity ^= 1;
        const u32 token = token_of(expert.tokens, 2 * q), next = token_of(expert.tokens, 2 * q + 1);
#pragma unroll 1
        for (u32 tile = 0; tile < Stage::kTiles; ++tile) {
            const u32 column = (unit.stripe() * Stage::kTiles + tile) * 8 + g;
            const F32x4 sum = sum_contributions<Stage>(s.up[which], tile, lane);
            if (expert.has(token)) {
                device::store_relaxed(handoff.h_row(expert.row(token)) + column, never_zero(swiglu(sum.x, sum.z)));
            }
            if (expert.has(next)) {
                device::store_relaxed(handoff.h_row(expert.row(next)) + column, never_zero(swiglu(sum.y, sum.w)));
            }
        }
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.partial_empty[which]);
        trace.mark(Event::kUnitStored, i);
    }
}
#line 7 "ops/combine.cuh"

// Lane 4g+q's four values of a tile of the output stripe, in the order of an MMA's sums: row g of the tokens 2q and
// 2q+1, then row g+8 of both.
struct OutputPlace {
    u32 first_token, first_row;

    MONOMOE_DEVICE OutputPlace(u32 token_tile, u32 tile, u32 lane)
        : first_token(token_tile * schedule::kColumns + lane % 4 * 2), first_row(tile * schedule::kRowTile + lane / 4) {}
    MONOMOE_DEVICE u32 token(u32 c) const { return first_token + c % 2; }
    MONOMOE_DEVICE u32 row(u32 c) const { return first_row + c / 2 * 8; }
};

// Adds what the other groups have summed, group by group, as it comes.
MONOMOE_DEVICE void receive_partials(float (&sum)[4], const HandOff& handoff, const OutputPlace& at, u32 first_column, const Args& args) {
#pragma unroll 1
    for (u32 group = 1; group < schedule::kDownGroups; ++group) {
        const device::Watchdog watchdog{args.wait_limit_ns};
        for (;;) {
            float value[4] = {1.f, 1.f, 1.f, 1.f};  // of tokens that are not there
#pragma unroll
            for (u32 c = 0; c < 4; ++c) {
                if (at.token(c) < args.tokens) value[c] = device::load_relaxed(handoff.partial(args.tokens, group, at.token(c)) + first_column + at.row(c));
            }
            if (least_word(F32x4{value[0], value[1], value[2], value[3]}) != 0) {
#pragma unroll
                for (u32 c = 0; c < 4; ++c) sum[c] += value[c];
                break;
            }
            watchdog.check();
        }
    }
}

// Reduces and stores this CTA's output stripe, a tile by each warp in turn. All MMA warps.
//   Reads     sums; peer_sums, or the other groups' partial outputs
//   Writes    down partials; args.y, or this group's partial output or peer_sums of the other CTA
//   Waits on  partial_empty; peer_summed and the start of the other CTA, or the partial outputs
//   Signals   peer_summed of the other CTA, or the partial output itself
MONOMOE_DEVICE void combine(const Args& args, SharedStorage& s, const OutputSums& sums, const DownShare& share, u32 units,
                            u32 warp, u32 lane) {
    using Stage = schedule::DownStage;
    drain_partials(args, s, units);
#pragma unroll
    for (u32 t = 0; t < schedule::kTokenTiles; ++t) store_partials(s.down[t], sums[t], warp, lane);
    device::sync_named(NamedBarrier::kOutput, schedule::kMmaWarps * 32);
    if constexpr (schedule::kPaired) {
        if (share.group > 0) {
            device::cluster_wait();  // the peer has made its barriers
        } else if (warp == 0 && lane == 0) {
            const u32 values = (args.tokens + args.tokens % 2) * schedule::kStripeDown;  // lanes send those of two tokens
            device::mbarrier_arrive_expect(&s.barrier.peer_summed, values * static_cast<u32>(sizeof(float)));
        }
    }
    const HandOff handoff = HandOff::of(args, s.epoch);
    const u32 first_column = share.stripe * schedule::kStripeDown;
#pragma unroll 1
    for (u32 index = warp; index < schedule::kTokenTiles * Stage::kTiles; index += schedule::kMmaWarps) {
        const u32 token_tile = index / Stage::kTiles, tile = index % Stage::kTiles;
        const OutputPlace at(token_tile, tile, lane);
        if (at.first_token >= args.tokens) continue;
        const F32x4 own = sum_contributions<Stage>(s.down[token_tile], tile, lane);
        float sum[4] = {own.x, own.y, own.z, own.w};
        if constexpr (schedule::kPaired) {
            F32x4& theirs = s.peer_sums[token_tile][tile][lane];
            if (share.group > 0) {
                device::store_remote(&theirs, own, &s.barrier.peer_summed, 0);
                continue;
            }
            device::mbarrier_wait_cluster(&s.barrier.peer_summed, 0, args.wait_limit_ns);
            sum[0] += theirs.x;
            sum[1] += theirs.y;
            sum[2] += theirs.z;
            sum[3] += theirs.w;
        } else if (share.group == 0) {
            receive_partials(sum, handoff, at, first_column, args);
        }
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
            if (at.token(c) >= args.tokens) continue;
            const u32 column = first_column + at.row(c);
            if (share.group > 0) {
                device::store_relaxed(handoff.partial(args.tokens, share.group, at.token(c)) + column, never_zero(sum[c]));
            } else {
                args.y[at.token(c) * shape::kHidden + column] = device::float_to_bf16(sum[c]);
            }
        }
    }
}
#line 6 "monomoe.cu"



#line 1 "ops/route.cuh"
// Routing: every CTA computes the same top-k of every token, and from it the list of active experts.








// What a lane knows of one token: the logits (and the biases) of experts lane * kLaneExperts ...
struct LaneLogits {
    float logit[schedule::kLaneExperts];
    float bias[schedule::kLaneExperts];
};

MONOMOE_DEVICE float load_logit(const Args& args, u32 token, u32 expert) {
    const shape::Logit* address = args.logits + token * shape::kLogits + expert;
    if constexpr (sizeof(shape::Logit) == 2) {
        return device::bf16_to_float(load_given(address));
    } else {
        return load_given(address);
    }
}

MONOMOE_DEVICE LaneLogits load_logits(const Args& args, u32 token, u32 lane) {
    LaneLogits lanes;
    constexpr bool kWhole = schedule::kLaneExperts * 32 == shape::kExperts;  // lanes
    if constexpr (sizeof(shape::Logit) == 4 && kWhole && schedule::kLaneExperts % 4 == 0 && !shape::kSharedGate) {
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; j += 4) {
            const u32 expert = lane * schedule::kLaneExperts + j;
            const F32x4 four = load_given(reinterpret_cast<const F32x4*>(args.logits + token * shape::kLogits + expert));
            lanes.logit[j] = four.x;
            lanes.logit[j + 1] = four.y;
            lanes.logit[j + 2] = four.z;
            lanes.logit[j + 3] = four.w;
            F32x4 bias = {0.f, 0.f, 0.f, 0.f};
            if constexpr (shape::kExpertBias) bias = load_given(reinterpret_cast<const F32x4*>(args.bias + expert));
            lanes.bias[j] = bias.x;
            lanes.bias[j + 1] = bias.y;
            lanes.bias[j + 2] = bias.z;
            lanes.bias[j + 3] = bias.w;
        }
    } else {
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            const u32 expert = lane * schedule::kLaneExperts + j;
            const bool valid = kWhole || expert < shape::kExperts;
            lanes.logit[j] = valid ? load_logit(args, token, expert) : 0.f;
            lanes.bias[j] = shape::kExpertBias && valid ? load_given(args.bias + expert) : 0.f;
        }
    }
    return lanes;
}

// The same where the launch computes the logits (kRouterWeight).
//   Reads     logits in this launch's half of the workspace, args.bias
//   Writes    -
//   Waits on  the logits
//   Signals   -
MONOMOE_DEVICE LaneLogits receive_logits(const Args& args, const SharedStorage& s, u32 token, u32 lane) {
    const float* const row = HandOff::of(args, s.epoch).logits(args.tokens, token);
    constexpr u32 kWidth = schedule::kLaneExperts * 32 == shape::kExperts && schedule::kLaneExperts % 4 == 0 ? 4 : 1;
    LaneLogits lanes;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const u32 expert = lane * schedule::kLaneExperts + j;
        lanes.bias[j] = shape::kExpertBias && expert < shape::kExperts ? load_given(args.bias + expert) : 0.f;
    }
    const device::Watchdog watchdog{args.wait_limit_ns};
    for (;;) {
        u32 least = 0xffffffffu;
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; j += kWidth) {
            const u32 expert = lane * schedule::kLaneExperts + j;
            if constexpr (kWidth == 4) {
                const F32x4 four = device::load_relaxed(reinterpret_cast<const F32x4*>(row + expert));
                lanes.logit[j] = four.x;
                lanes.logit[j + 1] = four.y;
                lanes.logit[j + 2] = four.z;
                lanes.logit[j + 3] = four.w;
                least = device::minimum(least, least_word(four));
            } else {
                lanes.logit[j] = 0.f;
                if (expert < shape::kExperts) {
                    lanes.logit[j] = device::load_relaxed(row + expert);
                    least = device::minimum(least, device::float_to_bits(lanes.logit[j]));
                }
            }
        }
        if (device::all(least != 0)) return lanes;
        watchdog.check();
    }
}

MONOMOE_DEVICE LaneLogits logits_of(const Args& args, const SharedStorage& s, u32 token, u32 lane) {
    if constexpr (schedule::kRouterWeight) {
        return receive_logits(args, s, token, lane);
    } else {
        return load_logits(args, token, lane);
    }
}

// A logit that this warp has had before.
MONOMOE_DEVICE float logit_again(const Args& args, const SharedStorage& s, u32 token, u32 expert) {
    if constexpr (schedule::kRouterWeight) {
        return device::load_relaxed(HandOff::of(args, s.epoch).logits(args.tokens, token) + expert);
    } else {
        return load_logit(args, token, expert);
    }
}

// NaN counts as -inf.
MONOMOE_DEVICE float number(float value) { return device::maximum(value, device::negative_infinity()); }

// Order-preserving bits of a number, never 0: 0 is for experts that cannot be selected.
MONOMOE_DEVICE u32 rank_key(float score) {
    const u32 bits = device::float_to_bits(number(score) + 0.f);  // -0 is +0
    return bits ^ (static_cast<u32>(static_cast<int>(bits) >> 31) | 0x80000000u);
}

MONOMOE_DEVICE float sigmoid(float logit) { return device::divide_fast(1.f, 1.f + device::exponential_fast(-logit)); }

// exp(logit - top) where top is the largest logit that counts; NaN has no share, equal infinities have equal ones.
MONOMOE_DEVICE float softmax_share(float logit, float top) {
    if (number(logit) == top) return logit == logit ? 1.f : 0.f;
    return device::exponential_fast(number(logit) - top);
}

MONOMOE_DEVICE float sum_lanes(float value) {
#pragma unroll 1
    for (u32 mask = 16; mask; mask >>= 1) value += device::shuffle_xor(value, mask);
    return value;
}

MONOMOE_DEVICE float max_lanes(float value) {
#pragma unroll 1
    for (u32 mask = 16; mask; mask >>= 1) value = device::maximum(value, device::shuffle_xor(value, mask));
    return value;
}

// The two greatest keys of a lane; 0 where there is none.
struct TwoBest {
    u32 first, second;

    MONOMOE_DEVICE static TwoBest of(const u32 (&key)[schedule::kLaneExperts]) {
        TwoBest best[schedule::kLaneExperts];
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) best[j] = {key[j], 0};
#pragma unroll
        for (u32 width = 1; width < schedule::kLaneExperts; width *= 2) {
#pragma unroll
            for (u32 j = 0; j + width < schedule::kLaneExperts; j += 2 * width) {
                const TwoBest a = best[j], b = best[j + width];
                best[j] = {device::maximum(a.first, b.first),
                           device::maximum(device::minimum(a.first, b.first), device::maximum(a.second, b.second))};
            }
        }
        return best[0];
    }
};

// The least of a lane's keys that is greater than `bound`.
MONOMOE_DEVICE u32 least_above(const u32 (&key)[schedule::kLaneExperts], u32 bound) {
    u32 least = 0xffffffffu;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) least = device::minimum(least, key[j] > bound ? key[j] : 0xffffffffu);
    return least;
}

// Sum of `count` (at most kMost) over the lanes before this one.
template <u32 kMost>
MONOMOE_DEVICE u32 count_before(u32 count, u32 lane) {
    u32 before = 0;
#pragma unroll
    for (u32 bit = 1; bit <= kMost; bit <<= 1) {
        before += bit * device::count_bits(device::ballot(count & bit) & ((1u << lane) - 1));
    }
    return before;
}

// The value that ranks an expert: the logit, the sigmoid, or a score plus the bias.
MONOMOE_DEVICE void rank_values(float (&value)[schedule::kLaneExperts], const LaneLogits& lanes, u32 lane) {
    float top = 0.f, sum = 1.f;
    if constexpr (shape::kSoftmax && shape::kExpertBias) {
        top = device::negative_infinity();
        sum = 0.f;
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            if (lane * schedule::kLaneExperts + j < shape::kExperts) top = device::maximum(top, lanes.logit[j]);
        }
        top = max_lanes(top);
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            if (lane * schedule::kLaneExperts + j < shape::kExperts) sum += softmax_share(lanes.logit[j], top);
        }
        sum = sum_lanes(sum);
    }
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        value[j] = lanes.logit[j];
        if constexpr (!shape::kSoftmax) value[j] = sigmoid(value[j]);
        if constexpr (shape::kSoftmax && shape::kExpertBias) value[j] = softmax_share(value[j], top) / sum;
        if constexpr (shape::kExpertBias) value[j] += lanes.bias[j];
    }
}

// Drops the experts outside the kTopKGroups best groups; a group's value is the sum of its two best.
MONOMOE_DEVICE void keep_best_groups(const float (&value)[schedule::kLaneExperts], u32 (&key)[schedule::kLaneExperts],
                                     u32 lane) {
    constexpr u32 kLanes = shape::kExperts / shape::kGroups / schedule::kLaneExperts;  // of one group
    float best = device::negative_infinity(), second = best;
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        second = device::maximum(second, device::minimum(best, number(value[j])));
        best = device::maximum(best, value[j]);
    }
#pragma unroll 1
    for (u32 mask = kLanes / 2; mask; mask >>= 1) {
        const float other_best = device::shuffle_xor(best, mask);
        const float other_second = device::shuffle_xor(second, mask);
        second = device::maximum(device::minimum(best, other_best), device::maximum(second, other_second));
        best = device::maximum(best, other_best);
    }
    const u32 mine = rank_key(best + second);
    u32 better = 0;
#pragma unroll
    for (u32 group = 0; group < shape::kGroups; ++group) {
        const u32 other = device::shuffle(mine, group * kLanes);
        better += other > mine || (other == mine && group < lane / kLanes);
    }
    if (better >= shape::kTopKGroups) {
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) key[j] = 0;
    }
}

// The keys by which a lane's experts are ranked, the lowest expert first among equals; 0 for those that cannot be
// selected. The producer's copy of this code and that of the routing warps agree to the last bit: on the way to a key
// no product is added to anything, so the compiler has nothing to fuse in one and not in the other.
MONOMOE_DEVICE void rank_keys(u32 (&key)[schedule::kLaneExperts], const LaneLogits& lanes, u32 lane) {
    float value[schedule::kLaneExperts];
    rank_values(value, lanes, lane);
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
        const bool valid = schedule::kLaneExperts * 32 == shape::kExperts || lane * schedule::kLaneExperts + j < shape::kExperts;
        key[j] = valid ? rank_key(value[j]) : 0;
    }
    if constexpr (shape::kGroups > 1) keep_best_groups(value, key, lane);
}

// The best expert of a token among those whose keys are left, whose key it takes away. One warp.
MONOMOE_DEVICE u32 take_best(u32 (&key)[schedule::kLaneExperts], u32 lane) {
    u32 best = key[0];
#pragma unroll
    for (u32 j = 1; j < schedule::kLaneExperts; ++j) best = device::maximum(best, key[j]);
    best = device::reduce_max(best);
    u32 expert = shape::kExperts;
#pragma unroll
    for (u32 j = schedule::kLaneExperts; j-- > 0;) expert = key[j] == best ? lane * schedule::kLaneExperts + j : expert;
    expert = device::reduce_min(expert);
#pragma unroll
    for (u32 j = 0; j < schedule::kLaneExperts; ++j) key[j] = lane * schedule::kLaneExperts + j == expert ? 0 : key[j];
    return expert;
}

// The experts of one token, as bits of this lane's. One warp.
//
// The kTopK-th largest of the two best keys of every lane bounds the kTopK-th largest key from below, and is nearly
// always equal to it; else a few steps upwards find it.
MONOMOE_DEVICE u32 select_experts(const LaneLogits& lanes, u32 lane) {
    u32 key[schedule::kLaneExperts];
    rank_keys(key, lanes, lane);
    TwoBest lane_best = TwoBest::of(key);
    u32 bound = 0;
#pragma unroll 1
    for (u32 i = 0; i < shape::kTopK; ++i) {
        bound = device::reduce_max(lane_best.first);
        if (lane_best.first == bound) lane_best = {lane_best.second, 0};
    }

    u32 above, equal, counts;  // those above the bound, and those equal to it
#pragma unroll 1
    for (;;) {
        above = equal = 0;
#pragma unroll
        for (u32 j = 0; j < schedule::kLaneExperts; ++j) {
            above |= key[j] > bound ? 1u << j : 0;
            equal |= key[j] == bound ? 1u << j : 0;
        }
        counts = device::reduce_add(device::count_bits(above) | device::count_bits(equal) << 16);
        if ((counts & 0xffff) < shape::kTopK) break;
        bound = device::reduce_min(least_above(key, bound));
    }
    const u32 missing = shape::kTopK - (counts & 0xffff);
    if (counts >> 16 == missing) return above | equal;
    // Of those equal to the bound the lowest experts.
    u32 taken = count_before<schedule::kLaneExperts>(device::count_bits(equal), lane);
#pragma unroll 1
    for (; equal && taken < missing; ++taken, equal &= equal - 1) above |= equal & (0 - equal);
    return above;
}

// Routing weights of one token, whose experts are `chosen` as bits of each lane's, off the critical path. One warp.
//   Reads     the logits again
//   Writes    selected[token] (ascending experts, then the shared ones, then none), weight[token]
//   Waits on  -
//   Signals   - (the caller arrives on weighted after its last token)
MONOMOE_DEVICE void weigh_experts(const Args& args, SharedStorage& s, u32 chosen, u32 token, u32 lane) {
    u32 slot = count_before<schedule::kLaneExperts>(device::count_bits(chosen), lane);
#pragma unroll 1
    for (; chosen; chosen &= chosen - 1) {
        s.selected[token][slot++] = static_cast<u16>(lane * schedule::kLaneExperts + device::lowest_bit(chosen));
    }
    if (lane >= shape::kTokenExperts && lane < 8 * schedule::kSelectedWords) s.selected[token][lane] = kNoExpert;
    device::sync_warp();
    const bool has_expert = lane < shape::kTopK;
    const float logit = has_expert ? logit_again(args, s, token, s.selected[token][lane]) : device::negative_infinity();
    float weight = 0.f, sum = 1.f;
    if constexpr (shape::kSoftmax) {
        float top = number(logit);
        if constexpr (!shape::kRenormalize) {
#pragma unroll 1
            for (u32 e = lane; e < shape::kExperts; e += 32) top = device::maximum(top, logit_again(args, s, token, e));
        }
        top = max_lanes(top);
        if (has_expert) weight = softmax_share(logit, top);
        float share = weight;
        if constexpr (!shape::kRenormalize) {
            share = 0.f;
#pragma unroll 1
            for (u32 e = lane; e < shape::kExperts; e += 32) share += softmax_share(logit_again(args, s, token, e), top);
        }
        sum = sum_lanes(share);
    } else {
        if (has_expert && logit == logit) weight = sigmoid(logit);
        if constexpr (shape::kRenormalize) sum = sum_lanes(weight);
    }
    if (has_expert) s.weight[token][lane] = (sum == 0.f ? 0.f : device::divide_fast(weight, sum)) * shape::kRoutedScaling;
    if constexpr (shape::kSharedExperts > 0) {
        const u32 expert = shape::kExperts + lane;
        if (expert >= shape::kAllExperts) return;
        float share = 1.f;
        if constexpr (shape::kSharedGate) {
            const float gate = load_logit(args, token, shape::kExperts);
            share = gate == gate ? sigmoid(gate) : 0.f;
        }
        s.selected[token][shape::kTopK + lane] = static_cast<u16>(expert);
        s.weight[token][shape::kTopK + lane] = share;
    }
}

// Those of `tokens` that are the first of their column.
MONOMOE_DEVICE u32 first_of_columns(u32 tokens) {
    return schedule::kTokenTiles == 1 ? tokens : tokens & ~(tokens << 8 | tokens << 16 | tokens << 24);
}

// The kLeads best experts of token 0, best first, with which the list of active experts begins: they are known before
// anything else of it. The same in every lane. They are among those that select_experts chooses, which ranks by the
// same keys.
struct Leads {
    static_assert(schedule::kLeads <= 4 && schedule::kLeads <= shape::kTopK && shape::kExperts <= 1u << 16, "they fit");
    u64 packed = 0;

    MONOMOE_DEVICE void add(u32 i, u32 expert) { packed |= u64{expert} << 16 * i; }
    MONOMOE_DEVICE u32 expert(u32 i) const { return static_cast<u32>(packed >> 16 * i) & 0xffff; }
};

// Which tokens have chosen the experts of one lane: what the list of active experts is made of. The producer warp.
struct LaneTurns {
    static constexpr u32 kMasks = 4 / sizeof(schedule::LaneMask);  // in a word, each of a token
    static constexpr u32 kWords = schedule::kTokenTile / kMasks;
    u32 words[kWords];
    u32 any = 0;  // experts with a token, as bits

    //   Reads     chosen
    //   Writes    -
    //   Waits on  routed, or kMade without the router inside (the caller did)
    //   Signals   -
    MONOMOE_DEVICE LaneTurns(const SharedStorage& s, u32 lane) {
#pragma unroll
        for (u32 w = 0; w < kWords; w += 4) {
            const U32x4 four = *reinterpret_cast<const U32x4*>(&s.routing.chosen[lane][w * kMasks]);
            words[w] = four.x;
            words[w + 1] = four.y;
            words[w + 2] = four.z;
            words[w + 3] = four.w;
            any |= four.x | four.y | four.z | four.w;
        }
        if (kMasks == 2) any = (any | any >> 16) & 0xffff;
    }

    // The tokens of this lane's expert j, as bits.
    MONOMOE_DEVICE u32 tokens_of(u32 j) const {
        u32 tokens = 0;
#pragma unroll
        for (u32 w = 0; w < kWords; ++w) {
            const u32 bits = words[w] >> j;
            tokens |= (kMasks == 2 ? (bits & 1) | (bits >> 15 & 2) : bits & 1) << w * kMasks;
        }
        return tokens;
    }

    // The number of turns of all of them.
    MONOMOE_DEVICE u32 count() const {
        if constexpr (schedule::kTokenTiles == 1) {
            return device::count_bits(any);
        } else {
            u32 turns = 0;
#pragma unroll 1
            for (u32 experts = any; experts; experts &= experts - 1) {
                for (u32 left = tokens_of(device::lowest_bit(experts)); left; left ^= first_of_columns(left)) ++turns;
            }
            return turns;
        }
    }
};

// Writes the list of active experts: the first turn of each lead, best first; all other turns, ascending by expert; the
// shared experts, with all tokens. The producer warp.
//   Reads     -
//   Writes    active (experts and tokens), active_count
//   Waits on  -
//   Signals   listed
MONOMOE_DEVICE void list_experts(SharedStorage& s, const LaneTurns& lane_turns, const Leads& leads, u32 tokens_of_launch, u32 lane) {
    const u32 tiles = (tokens_of_launch + schedule::kColumns - 1) / schedule::kColumns;
    u32 count = lane_turns.count();
#pragma unroll
    for (u32 i = 0; i < schedule::kLeads; ++i) count -= leads.expert(i) / schedule::kLaneExperts == lane;
    u32 position = schedule::kLeads + count_before<schedule::kLaneExperts * schedule::kTokenTiles>(count, lane);
    if (lane == 31) s.active_count = position + count + shape::kSharedExperts * tiles;
#pragma unroll 1
    for (u32 experts = lane_turns.any; experts; experts &= experts - 1) {
        const u32 j = device::lowest_bit(experts), expert = lane * schedule::kLaneExperts + j;
        u32 lead = schedule::kLeads;
#pragma unroll
        for (u32 i = 0; i < schedule::kLeads; ++i) lead = leads.expert(i) == expert ? i : lead;
        for (u32 left = lane_turns.tokens_of(j); left; left ^= first_of_columns(left)) {
            const u32 at = lead < schedule::kLeads ? lead : position++;
            lead = schedule::kLeads;
            s.active[at].expert = static_cast<u16>(expert);
            s.active[at].tokens = first_of_columns(left);
        }
    }
    if constexpr (shape::kSharedExperts > 0) {
        const u32 routed = device::shuffle(position, 31);
        for (u32 i = lane; i < shape::kSharedExperts * tiles; i += 32) {
            s.active[routed + i].expert = static_cast<u16>(shape::kExperts + i / tiles);
            s.active[routed + i].tokens = 0xffffffffu >> (32 - tokens_of_launch) & 0xffu << i % tiles * schedule::kColumns;
        }
    }
    device::sync_warp();
    if (lane == 0) device::mbarrier_arrive(&s.barrier.listed);
}

// Numbers the rows of h. One epilogue warp.
//   Reads     active (tokens), active_count
//   Writes    active (first_row)
//   Waits on  listed (the caller did)
//   Signals   numbered
MONOMOE_DEVICE void number_rows(SharedStorage& s, u32 lane) {
    u32 row = 0;
#pragma unroll 1
    for (u32 first = 0; first < s.active_count; first += 32) {
        const bool valid = first + lane < s.active_count;
        const u32 mine = valid ? device::count_bits(s.active[first + lane].tokens) : 0;
        const u32 before = count_before<schedule::kColumns>(mine, lane);
        if (valid) s.active[first + lane].first_row = static_cast<u16>(row + before);
        row += device::reduce_add(mine);
    }
    device::sync_warp();
    if (lane == 0) device::mbarrier_arrive(&s.barrier.numbered);
}
#line 10 "monomoe.cu"



static_assert(sizeof(SharedStorage) == 130816, "the generator and the kernel agree on shared memory");

// Warps 0 ... 7 quantize a share of the input, then multiply; 8 ... 15 route, then receive the quantized input, then
// quantize h; 16 and 17 publish h; the last one lists the experts and requests weights. Where activations stay bf16,
// the first eight copy the input instead, the next eight receive none and round h to bf16.
constexpr u32 kFirstRequantWarp = schedule::kMmaWarps;
constexpr u32 kFirstEpilogueWarp = kFirstRequantWarp + schedule::kRequantWarps;
constexpr u32 kProducerWarp = kFirstEpilogueWarp + schedule::kEpilogueWarps;
static_assert((kProducerWarp + 1) * 32 == schedule::kThreads, "every warp has a role");

// Of kEpoch and kRing: the MMA warps, which make the barriers, and one warp that has to know that they are made.
constexpr u32 kMakersAndOne = (schedule::kMmaWarps + 1) * 32;

constexpr u32 kRoutingRounds = (schedule::kTokenTile + schedule::kRequantWarps - 1) / schedule::kRequantWarps;

// What the kernel ahead may have written is read behind this. Every warp.
MONOMOE_DEVICE void await_inputs(Tracer& trace) {
    if constexpr (schedule::kPdl) {
        device::wait_for_prerequisites();
        device::launch_dependents();
    }
    trace.begin();
}

// One lane of each MMA warp: initialising a barrier takes its time, so the warps share them.
MONOMOE_DEVICE void init_barriers(SharedStorage& s, u32 tokens, u32 warp) {
#pragma unroll 1
    for (u32 i = warp; i < Barriers::kCount; i += schedule::kMmaWarps) {
        device::mbarrier_init(reinterpret_cast<device::Mbarrier*>(&s.barrier) + i, Barriers::arrivals(i, tokens));
    }
    device::mbarrier_init_fence();
}

// Selects the experts of tokens warp, warp + 8, ..., then their weights, for which nobody waits yet. A requant warp.
struct TokenRoutes {
    u32 experts[kRoutingRounds] = {};  // of each token, as bits of this lane's

    MONOMOE_DEVICE static u32 token(u32 warp, u32 round) { return warp + round * schedule::kRequantWarps; }

    //   Reads     the logits, args.bias
    //   Writes    chosen, and zero for tokens that are not there
    //   Waits on  the logits, with the router inside
    //   Signals   - (the caller: kMade or routed)
    MONOMOE_DEVICE void select(const Args& args, SharedStorage& s, u32 warp, u32 lane) {
#pragma unroll
        for (u32 round = 0; round < kRoutingRounds; ++round) {
            if (token(warp, round) < args.tokens) experts[round] = select_experts(logits_of(args, s, token(warp, round), lane), lane);
            s.routing.chosen[lane][token(warp, round)] = static_cast<schedule::LaneMask>(experts[round]);
        }
    }
    //   Reads     the logits again
    //   Writes    selected, weight
    //   Waits on  -
    //   Signals   weighted
    MONOMOE_DEVICE void weigh(const Args& args, SharedStorage& s, u32 warp, u32 lane) const {
#pragma unroll
        for (u32 round = 0; round < kRoutingRounds; ++round) {
            if (token(warp, round) < args.tokens) weigh_experts(args, s, experts[round], token(warp, round), lane);
        }
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.weighted);
    }
};

// A requant warp.
MONOMOE_DEVICE void route_then_requantize(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 warp, u32 lane) {
    await_inputs(trace);
    const bool routes = warp < args.tokens;
    TokenRoutes tokens;
    if constexpr (!schedule::kRouterWeight) {
        tokens.select(args, s, warp, lane);
        if (routes) trace.mark(Event::kRouted);
    }
    device::sync_named(NamedBarrier::kMade, schedule::kThreads);
    trace.mark_synced(s);
    if constexpr (schedule::kRouterWeight) {
        tokens.select(args, s, warp, lane);
        device::sync_warp();
        if (lane == 0) device::mbarrier_arrive(&s.barrier.routed);
        if (routes) trace.mark(Event::kRouted);
    }
    if constexpr (shape::quantizes()) receive_inputs(args, s, warp, lane);
    trace.mark(Event::kReceived);
    if (routes) tokens.weigh(args, s, warp, lane);
    device::mbarrier_wait(&s.barrier.listed, 0, args.wait_limit_ns);
    device::mbarrier_wait(&s.barrier.weighted, 0, args.wait_limit_ns);
    requantize(args, s, trace, cta, warp, lane);
}

// Finds the leads, and requests the first stages of this CTA's first unit if it is of one of them: that has to wait
// neither for the other tokens nor for the other experts of the first one. The producer warp.
//   Reads     the logits of token 0, args.bias
//   Writes    ring
//   Waits on  kRing; the logits, with the router inside
//   Signals   full
MONOMOE_DEVICE Leads find_leads(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 lane) {
    const LaneLogits logits = logits_of(args, s, 0, lane);
    device::sync_named(NamedBarrier::kRing, kMakersAndOne);
    u32 key[schedule::kLaneExperts];
    rank_keys(key, logits, lane);
    Leads leads;
#pragma unroll 1
    for (u32 i = 0; i < schedule::kLeads; ++i) {
        const u32 expert = take_best(key, lane);
        leads.add(i, expert);
        if (i == UpUnit::first(cta).expert() && device::elect()) stream_early(args, s, trace, cta, expert);
    }
    return leads;
}

// The producer warp.
MONOMOE_DEVICE void list_then_stream(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 lane) {
    await_inputs(trace);
    Leads leads;
    if constexpr (!schedule::kRouterWeight) leads = find_leads(args, s, trace, cta, lane);
    device::sync_named(NamedBarrier::kMade, schedule::kThreads);
    trace.mark_synced(s);
    if constexpr (schedule::kRouterWeight) {
        leads = find_leads(args, s, trace, cta, lane);
        device::mbarrier_wait(&s.barrier.routed, 0, args.wait_limit_ns);
    }
    list_experts(s, LaneTurns(s, lane), leads, args.tokens, lane);
    trace.mark(Event::kListed);
    if (device::elect()) stream_weights(args, s, trace, cta);
}

// An MMA warp.
MONOMOE_DEVICE void quantize_then_multiply(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 warp, u32 lane) {
    InputPair pair = InputPair::first(cta, warp);
    // Without programmatic launch the first inputs travel while the barriers are made.
    if (schedule::kPdl && lane == 0) init_barriers(s, args.tokens, warp);
    await_inputs(trace);
    if constexpr (shape::quantizes()) pair.load(args, lane);
    if (!schedule::kPdl && lane == 0) init_barriers(s, args.tokens, warp);
    device::arrive_named(NamedBarrier::kRing, kMakersAndOne);
    device::arrive_named(NamedBarrier::kMade, schedule::kThreads);
    if constexpr (schedule::kPaired) device::cluster_arrive();  // its share of the barriers is made
    device::sync_named(NamedBarrier::kEpoch, kMakersAndOne);
    trace.mark_synced(s);
    if constexpr (shape::quantizes()) {
        quantize_inputs(args, s, pair, lane);
    } else {
        copy_inputs(args, s, warp, lane);
    }
    trace.mark(Event::kQuantized);
    device::mbarrier_wait(&s.barrier.listed, 0, args.wait_limit_ns);

    RingReader ring;
    const u32 units = up_project(args, s, ring, trace, cta, warp, lane);
    const DownShare share = DownShare::of(cta, s.active_count);
    if (!share.owns_output()) return;
    OutputSums sums = {};
    down_project(args, s, ring, trace, sums, share, warp, lane);
    trace.mark(Event::kReduced);
    combine(args, s, sums, share, units, warp, lane);
    trace.mark(Event::kStored);
}

// An epilogue warp. The first one reads the header, closes the epoch and numbers the rows of h.
MONOMOE_DEVICE void clear_then_publish(const Args& args, SharedStorage& s, Tracer& trace, u32 cta, u32 which, u32 lane) {
    await_inputs(trace);
    if (which == 0) {
        if (lane == 0) open_epoch(args, s);
        device::arrive_named(NamedBarrier::kMade, schedule::kThreads);
        device::sync_named(NamedBarrier::kEpoch, kMakersAndOne);
        if (lane == 0) close_epoch(args, s);
    } else {
        device::sync_named(NamedBarrier::kMade, schedule::kThreads);
    }
    trace.mark_synced(s);
    clear_other_half(args, s, cta, which * 32 + lane, schedule::kEpilogueWarps * 32);
    device::mbarrier_wait(&s.barrier.listed, 0, args.wait_limit_ns);
    if (which == 0) number_rows(s, lane);
    device::mbarrier_wait(&s.barrier.numbered, 0, args.wait_limit_ns);
    publish_h(args, s, trace, cta, which, lane);
}

MONOMOE_KERNEL(schedule::kThreads)
monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4(const device::Bf16* x, const shape::Logit* logits, const float* bias, const u8* w13, const float* w13_scale,
    const u8* w2, const float* w2_scale, device::Bf16* y, u8* workspace, u32 workspace_half_bytes, u32 tokens, u64 wait_limit_ns
) {
    const Args args = {x, logits, nullptr, bias, w13, w13_scale, w2, w2_scale, y, workspace, workspace_half_bytes, tokens, wait_limit_ns,
        nullptr};
    SharedStorage& s = device::shared_storage<SharedStorage>();
    const u32 warp = device::thread_index() / 32, lane = device::thread_index() % 32, cta = device::cta_index();
    Tracer trace(args, cta, warp, lane);
    if (schedule::kPaired && warp >= kFirstRequantWarp) device::cluster_arrive();
    // Routing last: the compiler lays the last branch out first, next to the entry, and the stream waits for routing.
    if (warp < kFirstRequantWarp) {
        quantize_then_multiply(args, s, trace, cta, warp, lane);
    } else if (warp >= kFirstEpilogueWarp && warp < kProducerWarp) {
        clear_then_publish(args, s, trace, cta, warp - kFirstEpilogueWarp, lane);
    } else if (warp == kProducerWarp) {
        list_then_stream(args, s, trace, cta, lane);
    } else {
        route_then_requantize(args, s, trace, cta, warp - kFirstRequantWarp, lane);
    }
}
