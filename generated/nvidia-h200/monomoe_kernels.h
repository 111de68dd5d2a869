// Kernels for NVIDIA H200, for programs without Python. Written by `monomoe-gen emit`; C++17, no CUDA headers.
//
// To serve a layer:
//   1. find() the entry for a model, a token count and a variant of the kernel. Load Kernel::file, which lies beside this header.
//   2. Allow Kernel::shared_bytes of dynamic shared memory, and ask the driver for the occupancy: the CTAs wait for
//      each other, so all Kernel::grid of them must be resident. One has to fit an SM, and the SMs have to suffice.
//   3. For Layout::kPacked, pack the weights once with w13_offset() and w2_offset(). For Layout::kRaw they stay as in
//      the checkpoint, at addresses that are multiples of 16. So do the scales and the bias for either.
//   4. Allocate workspace_bytes() and zero them once; each launch leaves them ready for the next. Launches on one
//      stream may share a workspace that is large enough for all of them; launches at the same time may not.
//   5. Launch with an Arguments as the parameter buffer (CU_LAUNCH_PARAM_BUFFER_POINTER). Launch a kernel with Kernel::pdl
//      by cuLaunchKernelEx with CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 1: it may then begin before the
//      kernel ahead has ended, and waits for it inside.
// A wait inside a kernel that lasts 2 s ends in a trap: the launch fails, and the context is lost.
// A worked example is tests/cpp/call_kernel.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace monomoe {

enum class Scoring : std::uint8_t { kSoftmax, kSigmoid };
enum class Number : std::uint8_t { kFloat32, kBfloat16 };
enum class Layout : std::uint8_t { kPacked, kRaw };
enum class Router : std::uint8_t { kLogits, kWeight };

// What sets a kernel apart from the usual one: how its weights lie, what it routes by, programmatic dependent launch.
struct Variant {
    Layout layout = Layout::kPacked;
    Router router = Router::kLogits;
    bool pdl = false;
};

// One layer as one GPU sees it, and its routing policy.
struct Shape {
    const char* name;
    std::uint32_t hidden, intermediate, experts, top_k;
    Scoring scoring;
    bool renormalize;
    bool expert_bias;
    std::uint32_t n_group, topk_group;
    float routed_scaling_factor;
    Number logits;
    std::uint32_t shared_experts;  // they take every token, and follow the routed ones in the weights
    bool shared_gate;              // they weigh the sigmoid of a logit of their own, else 1
};

struct Schedule {
    std::uint32_t grid;  // persistent CTAs, at most one per SM, all co-resident
    std::uint32_t g_up;  // CTAs that share one expert's up-projection
    std::uint32_t k_up;  // columns of one up stage
    std::uint32_t g_down;  // CTAs that share one expert's down-projection
    std::uint32_t k_down;  // columns of one down stage
    std::uint32_t d_up;  // ring stages in flight during up
    std::uint32_t d_down;  // ring stages in flight during down
};

struct Kernel {
    const char* file;          // the cubin
    const char* cubin_sha256;  // of the file
    const char* name;          // the entry point in it
    std::uint32_t shape;       // index into kShapes
    Schedule schedule;
    std::uint32_t capacity;      // most tokens of a launch
    std::uint32_t grid;          // CTAs: (grid, 1, 1)
    std::uint32_t threads;       // of a CTA: (threads, 1, 1)
    std::uint32_t shared_bytes;  // dynamic shared memory of a CTA
    std::uint32_t registers;     // of a thread
    std::uint32_t workspace_half_bytes;
    Layout layout;  // of the weights
    Router router;  // what Arguments::logits holds
    bool pdl;       // programmatic dependent launch
};

// The kernel for a model, as it was timed with tuned_at tokens.
struct Entry {
    std::uint32_t kernel;  // index into kKernels
    std::uint32_t tuned_at;
    std::uint32_t capacity;
    double time_us;
};

// The parameters of every kernel, as the driver wants them. Addresses are of device memory. B tokens, E experts
// (of weights and scales, with the shared ones), H hidden, N intermediate.
struct Arguments {
    std::uint64_t x;          // bf16 [B, H]
    std::uint64_t logits;     // Router::kLogits: Shape::logits [B, Shape::experts], or one more for Shape::shared_gate: its
                              // logit. Router::kWeight: the router's weight, bf16 [Shape::experts, H]
    std::uint64_t bias;       // fp32 [Shape::experts], or 0 without Shape::expert_bias
    std::uint64_t w13;        // e4m3, w13_bytes(): packed, or [E, 2N, H] with the gate rows first
    std::uint64_t w13_scale;  // fp32 [E, 2N/128, H/128]
    std::uint64_t w2;         // e4m3, w2_bytes(): packed, or [E, H, N]
    std::uint64_t w2_scale;   // fp32 [E, H/128, N/128]
    std::uint64_t y;          // bf16 [B, H]
    std::uint64_t workspace;
    std::uint32_t workspace_half_bytes;  // of the workspace, at least the kernel's
    std::uint32_t tokens;                // B, 1 to Kernel::capacity
};
static_assert(sizeof(Arguments) == 80, "the parameters lie without gaps");

struct Gpu {
    const char* name;
    std::uint32_t sms;
    std::uint32_t compute_major, compute_minor;
    std::uint32_t shared_per_block;
};

// The kernels run on this GPU only.
inline constexpr Gpu kGpu = {"NVIDIA H200", 132, 9, 0, 232448};

inline constexpr Shape kShapes[] = {
    {"deepseek-v3-tp16", 7168, 128, 256, 8, Scoring::kSigmoid, true, true,
        8, 4, 2.5f, Number::kFloat32, 0, false},
    {"deepseek-v3-tp8", 7168, 256, 256, 8, Scoring::kSigmoid, true, true,
        8, 4, 2.5f, Number::kFloat32, 0, false},
    {"deepseek-v3.1-tp8-bf16", 7168, 256, 256, 8, Scoring::kSigmoid, true, true,
        8, 4, 2.5f, Number::kFloat32, 0, false},
    {"deepseek-v3.1-tp8", 7168, 256, 256, 8, Scoring::kSigmoid, true, true,
        8, 4, 2.5f, Number::kFloat32, 0, false},
    {"glm-4.5-air", 4096, 1408, 128, 8, Scoring::kSigmoid, true, true,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"glm-5.2-tp8-bf16", 6144, 256, 256, 8, Scoring::kSigmoid, true, true,
        1, 1, 2.5f, Number::kFloat32, 0, false},
    {"glm-5.2-tp8", 6144, 256, 256, 8, Scoring::kSigmoid, true, true,
        1, 1, 2.5f, Number::kFloat32, 0, false},
    {"kimi-k2-tp8", 7168, 256, 384, 8, Scoring::kSigmoid, true, true,
        1, 1, 2.827f, Number::kFloat32, 0, false},
    {"minimax-m2", 3072, 1536, 256, 8, Scoring::kSigmoid, true, true,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"mixtral-8x7b-fp8-tp8", 4096, 1792, 8, 2, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3-235b-a22b", 4096, 1536, 128, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3-235b-a22b-tp2", 4096, 768, 128, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3-235b-a22b-tp4", 4096, 384, 128, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3-30b-a3b", 2048, 768, 128, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3-next-80b-a3b", 2048, 512, 512, 10, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3.5-122b-bf16", 3072, 1024, 256, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3.5-122b", 3072, 1024, 256, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3.5-35b-bf16", 2048, 512, 256, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3.5-35b", 2048, 512, 256, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"toy", 256, 128, 8, 2, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
};

inline constexpr Kernel kKernels[] = {
    {"deepseek-v3-tp16-t8-g128-u16x1024x4-d112x128x3.cubin",
        "0e143fba647983926e2ac9eb963841c5f3122214de5dce204a0ad6409b6e42c4",
        "monomoe_deepseek_v3_tp16_t8_g128_u16x1024x4_d112x128x3",
        0, {128, 16, 1024, 112, 128, 4, 3}, 8, 128, 608, 147200, 92, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "ef577c3a9cd864dce5e4277187c216858d5e0d77174b0979f0a3890ec4675d42",
        "monomoe_deepseek_v3_tp8_t8_g128_u32x1024x6_d56x256x3",
        1, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 92, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d112x256x3.cubin",
        "b7a6bedb4f5eedd3d3890c7ff18349484322374e14665b24c526a13bf236b43d",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d112x256x3",
        2, {128, 32, 1024, 112, 256, 4, 3}, 8, 128, 608, 224128, 75, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d56x256x2.cubin",
        "1ba380a4a3850197ae52998a300a2600212d3c2754c2b4a965d2b987b87b0542",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d56x256x2",
        2, {128, 32, 1024, 56, 256, 4, 2}, 8, 128, 608, 224128, 91, 294912, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t16-g132-u32x1024x4-d112x256x4.cubin",
        "43f7a720b6efb6117c7fa9518dc1040436a399bc347fa0ef4752e32c4a74705d",
        "monomoe_deepseek_v3_1_tp8_t16_g132_u32x1024x4_d112x256x4",
        3, {132, 32, 1024, 112, 256, 4, 4}, 16, 132, 608, 216192, 85, 260096, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t32-g128-u16x1024x4-d64x256x5.cubin",
        "95290e3f882e738767f6dad63e9491d8c7574f37bb99149400ac1d9e9ea99f85",
        "monomoe_deepseek_v3_1_tp8_t32_g128_u16x1024x4_d64x256x5",
        3, {128, 16, 1024, 64, 256, 4, 5}, 32, 128, 608, 208768, 96, 1437696, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d112x256x4-raw.cubin",
        "b5bd7a97bee8c9b794ecdf679d1c75929f374aaa3b9aba31161366e0bda8bd25",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d112x256x4_raw",
        3, {128, 32, 1024, 112, 256, 5, 4}, 8, 128, 608, 172032, 90, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "5bb1d32967d5827756f5fb81cb2d8c459e31e094f3fdcb5d34d81657be7c91cb",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 92, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3-router.cubin",
        "6e7746851d4aaba1926d508e479906b056e4ad80e4e47ffc2dce3e6f0e014dd2",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3_router",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 95, 367616, Layout::kPacked, Router::kWeight, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x4-raw.cubin",
        "bc6f9bbe490fd63592d9ed54cea7f416d98018c75067f533a36620d6f9732768",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x4_raw",
        3, {128, 32, 1024, 64, 256, 6, 4}, 8, 128, 608, 205312, 91, 359424, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4.cubin",
        "55bda363edca4fe3f5c6509ca209a342de5b92214f9b3813a7f2def02326f011",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 221696, 84, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4-pdl.cubin",
        "4e96725c6c97706cb2b2b4352ba3c56d89209bbdfa5eb33c734289c5d585e20b",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4_pdl",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 221696, 84, 359424, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4-raw.cubin",
        "9f8c3dc4fe40bcbd3b8857dce717e2fa3eebee85590c08978d7a123acc4b4428",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4_raw",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 221696, 91, 359424, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4-router.cubin",
        "b592c3d1f622ec9ee1352bc861f311a2a039b3bf4308c4e8b5fe18e74fa51784",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4_router",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 221696, 95, 367616, Layout::kPacked, Router::kWeight, false},
    {"glm-4.5-air-t8-g128-u176x2048x4-d128x1408x3.cubin",
        "17e2bfc46ff399acbb5021e474e56cd261611af63f635f8766433844ade45c42",
        "monomoe_glm_4_5_air_t8_g128_u176x2048x4_d128x1408x3",
        4, {128, 176, 2048, 128, 1408, 4, 3}, 8, 128, 608, 207104, 91, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-4.5-air-t8-g132-u176x1024x8-d128x1408x3.cubin",
        "1dbf041ac14ba733071002eca8c693648a8547d3c7d6ca523a20246c0dcbc43b",
        "monomoe_glm_4_5_air_t8_g132_u176x1024x8_d128x1408x3",
        4, {132, 176, 1024, 128, 1408, 8, 3}, 8, 132, 608, 207232, 88, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x5-d96x256x5.cubin",
        "74c5510d535534c7f1349f705a80b11748a9e5bd29ae1b49af8a35c205a4ee63",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x5_d96x256x5",
        5, {128, 32, 1024, 96, 256, 5, 5}, 8, 128, 608, 224128, 75, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t16-g132-u32x1024x5-d64x256x3.cubin",
        "6a3493abba7aa70d96def003ae9ecbf5c06cb7f0f46db3124f5b637b4dbc4014",
        "monomoe_glm_5_2_tp8_t16_g132_u32x1024x5_d64x256x3",
        6, {132, 32, 1024, 64, 256, 5, 3}, 16, 132, 608, 224384, 96, 634880, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t32-g128-u16x1024x5-d64x256x5.cubin",
        "3cbf9882ba6db6e8e7d8fdcc61932719d46abddc24fa00970a00f97b62b07e28",
        "monomoe_glm_5_2_tp8_t32_g128_u16x1024x5_d64x256x5",
        6, {128, 16, 1024, 64, 256, 5, 5}, 32, 128, 608, 228224, 96, 1269760, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5.cubin",
        "0e50edeb6be1e1622eedbab4cd5084f8c6b280dba42d6bf98685fff29d92d216",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5",
        6, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 205056, 84, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x8-d64x256x5.cubin",
        "a640b6ffda16f4b05b61033ba6ea6e090bcc5032560e65540f599dc156dfcdd9",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x8_d64x256x5",
        6, {128, 32, 1024, 64, 256, 8, 5}, 8, 128, 608, 213248, 84, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x8-d64x256x5-pdl.cubin",
        "55e7c1c589bb85cc0c8d6226ee43acf59642e31d50455583cf032f9feb3e0459",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x8_d64x256x5_pdl",
        6, {128, 32, 1024, 64, 256, 8, 5}, 8, 128, 608, 213248, 84, 317440, Layout::kPacked, Router::kLogits, true},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d48x256x3-raw.cubin",
        "780c8824b1fe4e39d12f96e514dafdf594a1a54bffd4102957acb377e06090dd",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d48x256x3_raw",
        6, {128, 32, 2048, 48, 256, 3, 3}, 8, 128, 608, 179968, 96, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4.cubin",
        "8fc806b0b615135c54a4c51b2db452d5dccef0d0170d8bacb6358b9cd98bab63",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 213248, 91, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4-raw.cubin",
        "1919ef7bf666dbceb835dc9ee8a7b111f9d7b3da6fe765eb2f2b28e16ab55e70",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4_raw",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 213248, 96, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x1024x8-d64x256x6.cubin",
        "aef6c30633d2bf49cbb5cd7c9aca86fa19015a373a9b7eefa12d9f557c9878be",
        "monomoe_glm_5_2_tp8_t8_g132_u32x1024x8_d64x256x6",
        6, {132, 32, 1024, 64, 256, 8, 6}, 8, 132, 608, 229632, 84, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x1024x8-d64x256x6-raw.cubin",
        "35f2593039a0e66d219b4eba6bc659b8040f4fe3f2720eab30c673dac9ae0cc7",
        "monomoe_glm_5_2_tp8_t8_g132_u32x1024x8_d64x256x6_raw",
        6, {132, 32, 1024, 64, 256, 8, 6}, 8, 132, 608, 229632, 91, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x1024x8-d64x256x6-router.cubin",
        "82e99d3874886bc46f9cd4e4c4abdcd67ccf674ee688c139cc32733fcb1ea8ee",
        "monomoe_glm_5_2_tp8_t8_g132_u32x1024x8_d64x256x6_router",
        6, {132, 32, 1024, 64, 256, 8, 6}, 8, 132, 608, 229632, 95, 325632, Layout::kPacked, Router::kWeight, false},
    {"kimi-k2-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "6e0b208a383cb2bf9aad833296f1330677adf48c25e8d2890b5632dd34d2f1ac",
        "monomoe_kimi_k2_tp8_t8_g128_u32x1024x6_d56x256x3",
        7, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 92, 359424, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u192x1024x5-d64x512x4.cubin",
        "0d40f25d3f9cd973ffaadf85ea204a7507010b80a556523b7b0123a54716ffb0",
        "monomoe_minimax_m2_t8_g128_u192x1024x5_d64x512x4",
        8, {128, 192, 1024, 64, 512, 5, 4}, 8, 128, 608, 160640, 87, 519168, Layout::kPacked, Router::kLogits, false},
    {"mixtral-8x7b-fp8-tp8-t8-g128-u224x1024x4-d128x896x2.cubin",
        "2a69e715ae71d466ac35509e25cb142a9c3ef10d6db2a48ca1ee0de372788b8c",
        "monomoe_mixtral_8x7b_fp8_tp8_t8_g128_u224x1024x4_d128x896x2",
        9, {128, 224, 1024, 128, 896, 4, 2}, 8, 128, 608, 139008, 90, 151552, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u96x1024x4-d64x512x4.cubin",
        "3021d0321ba3f6255070157985d67e283f834c5572e686911075d9c76719c29f",
        "monomoe_qwen3_235b_a22b_t8_g128_u96x1024x4_d64x512x4",
        10, {128, 96, 1024, 64, 512, 4, 4}, 8, 128, 608, 209280, 96, 561152, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u48x1024x3-d128x768x3.cubin",
        "3b5a55356cd25ba6a275fea872ac2f8ce7f239eead056d3858117618215af9de",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u48x1024x3_d128x768x3",
        11, {128, 48, 1024, 128, 768, 3, 3}, 8, 128, 608, 177536, 96, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x1024x5-d64x384x4.cubin",
        "4b4ea90fac861389210c5b847817d967186d4582712591edc2af9cdfdb1844a6",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x1024x5_d64x384x4",
        11, {128, 96, 1024, 64, 384, 5, 4}, 8, 128, 608, 169344, 85, 364544, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x1024x5-d64x384x4.cubin",
        "9612c6f89d44cb96d036177b5b5fe5f074de66dcdaf8083bcbc117f1f9aec216",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x1024x5_d64x384x4",
        12, {128, 48, 1024, 64, 384, 5, 4}, 8, 128, 608, 171520, 90, 266240, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x1024x4-d128x768x4.cubin",
        "e184df6b94bc7f03ebd6b3ef4d7bc940bcc828d5aeb7d7b63aa3e7fdf02695bb",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x1024x4_d128x768x4",
        13, {128, 96, 1024, 128, 768, 4, 4}, 8, 128, 608, 119680, 86, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x1024x5-d64x384x5.cubin",
        "34f85009e60845efa1c4bd7dfbfeafa0f36c550261b962b5f462b13dc1ef1ada",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x1024x5_d64x384x5",
        13, {128, 96, 1024, 64, 384, 5, 5}, 8, 128, 608, 136064, 86, 280576, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d64x512x4.cubin",
        "0d89d27b2ff26825141e0d73bbfa22e309bc6bc7a4dcaffa02bc5c280363fc6d",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d64x512x4",
        14, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 130432, 82, 247808, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x5-d64x512x4.cubin",
        "28dcbea437d043175a6c6bc5b47caf1a836c394a7a8ca131b0e4749e7ca7be99",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x5_d64x512x4",
        15, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 225152, 96, 360448, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t16-g132-u64x1024x3-d64x512x4.cubin",
        "ae13139532d31a6cb21f6bd17cc3cf450cf4abd65912291b32ca83a019dcd594",
        "monomoe_qwen3_5_122b_t16_g132_u64x1024x3_d64x512x4",
        16, {132, 64, 1024, 64, 512, 3, 4}, 16, 132, 608, 205312, 96, 776192, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t32-g128-u64x512x3-d64x512x2.cubin",
        "8595a07df9ecd914f8d32301c3d1a1e9f3563dc6150a1ffce44bdc3723a93eb1",
        "monomoe_qwen3_5_122b_t32_g128_u64x512x3_d64x512x2",
        16, {128, 64, 512, 64, 512, 3, 2}, 32, 128, 608, 226048, 96, 1552384, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4.cubin",
        "66236f488208725703c9e46647334103b00222d00bef41546b60402d2e83cc67",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 170368, 96, 388096, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-pdl.cubin",
        "2c13d306fcc160ba7155e3c36b51d40c06fb30044c9a7d78ccac4a1f720ce294",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_pdl",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 170368, 96, 388096, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-router.cubin",
        "5b7f51811906e96eca7d641f27b56d3522ffbab5db08f54062d00c92a9753cac",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_router",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 170368, 96, 396288, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4-raw.cubin",
        "053589d0adb3858e97bbc52f1d313ed2b5586770bae4c6c2c882a82704728d33",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4_raw",
        16, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 202112, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4-router.cubin",
        "ced43562a453bc15055873a489d7cbd3abad1e020eb7a4f493962eb065e621f6",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4_router",
        16, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 202112, 96, 297984, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-bf16-t8-g128-u32x512x4-d128x512x4.cubin",
        "99a279ec51fa6216499106344980d4233a139158e31890a48d312a0180a940d7",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u32x512x4_d128x512x4",
        17, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 175488, 69, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d128x512x3.cubin",
        "01d043fe2b05efa3f1aa5c53e59e278f093bffb7c72bc9f90cb9112ad08aa545",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d128x512x3",
        17, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 175488, 70, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u64x1024x5-d64x512x5.cubin",
        "48223e6d0f34b0d20b4aaee0914a31f042df3ce72ca817959f11e0ce3449b9d5",
        "monomoe_qwen3_5_35b_t16_g132_u64x1024x5_d64x512x5",
        18, {132, 64, 1024, 64, 512, 5, 5}, 16, 132, 608, 164992, 86, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u32x512x5-d64x512x6.cubin",
        "08947746fced6953661ef1b032f9a38476eca78508277c05d5ce61c27dea176c",
        "monomoe_qwen3_5_35b_t32_g132_u32x512x5_d64x512x6",
        18, {132, 32, 512, 64, 512, 5, 6}, 32, 132, 608, 226176, 88, 860160, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u32x512x4-d128x512x4-pdl.cubin",
        "1c0108697ea524a3423baf503d4d79225eaa9ca212bd338ceffeda80fbc4ac50",
        "monomoe_qwen3_5_35b_t8_g128_u32x512x4_d128x512x4_pdl",
        18, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 130304, 90, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u32x512x4-d128x512x4-router.cubin",
        "fa4c98f42b2067c1e20c14f81e8058003d86fd37c23942ebdab120f55e06abd4",
        "monomoe_qwen3_5_35b_t8_g128_u32x512x4_d128x512x4_router",
        18, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 130304, 96, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u32x512x5-d128x512x4.cubin",
        "6e41f12687fab5f92f8aaadf2315de6415f6069c3a7112598e2ece18b94323cd",
        "monomoe_qwen3_5_35b_t8_g128_u32x512x5_d128x512x4",
        18, {128, 32, 512, 128, 512, 5, 4}, 8, 128, 608, 146688, 90, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-pdl.cubin",
        "a772cd4725ef9b68b75e3cf20717a9ac694fa2da1c9630249d6e0b7f6d11a3d0",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_pdl",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 82, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-raw.cubin",
        "095f99f7b4bff5064eddeeb3e66f9dd5fcb388a6ad0b0842f9883e07b7541373",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_raw",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 82, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-router.cubin",
        "f11dee69d5970f13653090279f791713176b562a057dbea557563dfa0cc71fdb",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_router",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 96, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-raw.cubin",
        "2134bbc76387e086d010f1ead67497976d586bbadfc0028f04fa5891a0cb1cda",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_raw",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130304, 82, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-router.cubin",
        "e9f5ff60af1d8cf3f3b97e2ff5036ea73919e6c9015edf708206ddf0c75b42e3",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_router",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130304, 96, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x6.cubin",
        "cf89b63d64841ec344e41f75e27dd7205ba824fdcc8bf3f95283bbb5a4829ff8",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x6",
        18, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 163072, 82, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x2-d128x512x3.cubin",
        "9f66bac7f676cf870ca24f9ba97cc8ee249d569c5518e9e35f9edfabfe03104b",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x2_d128x512x3",
        18, {128, 64, 2048, 128, 512, 2, 3}, 8, 128, 608, 130304, 87, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d128x512x5.cubin",
        "6644bea42e65402850703b3af80345fd89cae3b033befcc860d871e2cd17d3fd",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d128x512x5",
        18, {128, 64, 2048, 128, 512, 3, 5}, 8, 128, 608, 163072, 87, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g132-u32x512x4-d128x512x4-pdl.cubin",
        "10fbcf99f3ea2a14dc35e29fe696bb876db7dd2a613d69779fc587b3d28a36d0",
        "monomoe_qwen3_5_35b_t8_g132_u32x512x4_d128x512x4_pdl",
        18, {132, 32, 512, 128, 512, 4, 4}, 8, 132, 608, 130304, 88, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g132-u64x1024x5-d128x512x5-raw.cubin",
        "5dd6fbf6c7c18353b61794101f8b09e07fabd6bafd6e3acf4573083cb29bf071",
        "monomoe_qwen3_5_35b_t8_g132_u64x1024x5_d128x512x5_raw",
        18, {132, 64, 1024, 128, 512, 5, 5}, 8, 132, 608, 146688, 82, 149504, Layout::kRaw, Router::kLogits, false},
    {"toy-t8-g128-u4x256x3-d16x128x3.cubin",
        "8dae3c111d69a55274286b5720ff7c694bfc1caff2ffb33c45f1b5b0166fdc86",
        "monomoe_toy_t8_g128_u4x256x3_d16x128x3",
        19, {128, 4, 256, 16, 128, 3, 3}, 8, 128, 608, 72960, 90, 67840, Layout::kPacked, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {0, 1, 8, 10.756},  // deepseek-v3-tp16, packed weights
    {0, 2, 8, 15.574},  // deepseek-v3-tp16, packed weights
    {0, 4, 8, 25.375},  // deepseek-v3-tp16, packed weights
    {0, 8, 8, 44.87},  // deepseek-v3-tp16, packed weights
    {1, 1, 8, 15.627},  // deepseek-v3-tp8, packed weights
    {1, 2, 8, 24.899},  // deepseek-v3-tp8, packed weights
    {1, 4, 8, 43.21},  // deepseek-v3-tp8, packed weights
    {1, 8, 8, 77.13},  // deepseek-v3-tp8, packed weights
    {7, 1, 8, 15.644},  // deepseek-v3.1-tp8, packed weights
    {10, 2, 8, 24.139},  // deepseek-v3.1-tp8, packed weights
    {10, 4, 8, 42.772},  // deepseek-v3.1-tp8, packed weights
    {10, 8, 8, 75.662},  // deepseek-v3.1-tp8, packed weights
    {4, 16, 16, 137.173},  // deepseek-v3.1-tp8, packed weights
    {5, 32, 32, 239.19},  // deepseek-v3.1-tp8, packed weights
    {11, 1, 8, 15.563},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {11, 2, 8, 24.416},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {11, 4, 8, 42.99},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {11, 8, 8, 76.686},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {8, 1, 8, 22.33},  // deepseek-v3.1-tp8, packed weights, router inside
    {8, 2, 8, 32.622},  // deepseek-v3.1-tp8, packed weights, router inside
    {13, 4, 8, 51.959},  // deepseek-v3.1-tp8, packed weights, router inside
    {8, 8, 8, 87.273},  // deepseek-v3.1-tp8, packed weights, router inside
    {6, 1, 8, 16.268},  // deepseek-v3.1-tp8, raw weights
    {12, 2, 8, 25.299},  // deepseek-v3.1-tp8, raw weights
    {9, 4, 8, 44.265},  // deepseek-v3.1-tp8, raw weights
    {12, 8, 8, 77.721},  // deepseek-v3.1-tp8, raw weights
    {2, 1, 8, 15.89},  // deepseek-v3.1-tp8-bf16, packed weights
    {2, 2, 8, 25.361},  // deepseek-v3.1-tp8-bf16, packed weights
    {2, 4, 8, 45.196},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 8, 8, 80.654},  // deepseek-v3.1-tp8-bf16, packed weights
    {15, 1, 8, 34.852},  // glm-4.5-air, packed weights
    {15, 2, 8, 64.312},  // glm-4.5-air, packed weights
    {15, 4, 8, 116.217},  // glm-4.5-air, packed weights
    {14, 8, 8, 202.25},  // glm-4.5-air, packed weights
    {19, 1, 8, 14.11},  // glm-5.2-tp8, packed weights
    {23, 2, 8, 21.681},  // glm-5.2-tp8, packed weights
    {20, 4, 8, 37.264},  // glm-5.2-tp8, packed weights
    {25, 8, 8, 65.152},  // glm-5.2-tp8, packed weights
    {17, 16, 16, 119.407},  // glm-5.2-tp8, packed weights
    {18, 32, 32, 202.693},  // glm-5.2-tp8, packed weights
    {21, 1, 8, 13.643},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {21, 2, 8, 21.188},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {21, 4, 8, 37.294},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {21, 8, 8, 65.916},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {27, 1, 8, 19.947},  // glm-5.2-tp8, packed weights, router inside
    {27, 2, 8, 28.98},  // glm-5.2-tp8, packed weights, router inside
    {27, 4, 8, 45.215},  // glm-5.2-tp8, packed weights, router inside
    {27, 8, 8, 73.453},  // glm-5.2-tp8, packed weights, router inside
    {22, 1, 8, 14.406},  // glm-5.2-tp8, raw weights
    {24, 2, 8, 22.233},  // glm-5.2-tp8, raw weights
    {24, 4, 8, 38.093},  // glm-5.2-tp8, raw weights
    {26, 8, 8, 66.359},  // glm-5.2-tp8, raw weights
    {16, 1, 8, 14.675},  // glm-5.2-tp8-bf16, packed weights
    {16, 2, 8, 22.729},  // glm-5.2-tp8-bf16, packed weights
    {16, 4, 8, 40.496},  // glm-5.2-tp8-bf16, packed weights
    {16, 8, 8, 72.202},  // glm-5.2-tp8-bf16, packed weights
    {28, 1, 8, 15.465},  // kimi-k2-tp8, packed weights
    {28, 2, 8, 24.837},  // kimi-k2-tp8, packed weights
    {28, 4, 8, 43.713},  // kimi-k2-tp8, packed weights
    {28, 8, 8, 79.468},  // kimi-k2-tp8, packed weights
    {29, 1, 8, 29.965},  // minimax-m2, packed weights
    {29, 2, 8, 54.126},  // minimax-m2, packed weights
    {29, 4, 8, 101.195},  // minimax-m2, packed weights
    {29, 8, 8, 184.924},  // minimax-m2, packed weights
    {30, 1, 8, 16.287},  // mixtral-8x7b-fp8-tp8, packed weights
    {30, 2, 8, 22.91},  // mixtral-8x7b-fp8-tp8, packed weights
    {30, 4, 8, 33.4},  // mixtral-8x7b-fp8-tp8, packed weights
    {30, 8, 8, 42.575},  // mixtral-8x7b-fp8-tp8, packed weights
    {31, 1, 8, 37.364},  // qwen3-235b-a22b, packed weights
    {31, 2, 8, 68.352},  // qwen3-235b-a22b, packed weights
    {31, 4, 8, 123.901},  // qwen3-235b-a22b, packed weights
    {31, 8, 8, 215.456},  // qwen3-235b-a22b, packed weights
    {33, 1, 8, 21.181},  // qwen3-235b-a22b-tp2, packed weights
    {32, 2, 8, 36.722},  // qwen3-235b-a22b-tp2, packed weights
    {32, 4, 8, 64.787},  // qwen3-235b-a22b-tp2, packed weights
    {32, 8, 8, 111.758},  // qwen3-235b-a22b-tp2, packed weights
    {34, 1, 8, 13.438},  // qwen3-235b-a22b-tp4, packed weights
    {34, 2, 8, 21.015},  // qwen3-235b-a22b-tp4, packed weights
    {34, 4, 8, 34.987},  // qwen3-235b-a22b-tp4, packed weights
    {34, 8, 8, 59.437},  // qwen3-235b-a22b-tp4, packed weights
    {35, 1, 8, 13.482},  // qwen3-30b-a3b, packed weights
    {36, 2, 8, 21.633},  // qwen3-30b-a3b, packed weights
    {36, 4, 8, 36.341},  // qwen3-30b-a3b, packed weights
    {36, 8, 8, 60.102},  // qwen3-30b-a3b, packed weights
    {37, 1, 8, 12.904},  // qwen3-next-80b-a3b, packed weights
    {37, 2, 8, 19.419},  // qwen3-next-80b-a3b, packed weights
    {37, 4, 8, 32.183},  // qwen3-next-80b-a3b, packed weights
    {37, 8, 8, 57.281},  // qwen3-next-80b-a3b, packed weights
    {41, 1, 8, 21.437},  // qwen3.5-122b, packed weights
    {41, 2, 8, 37.197},  // qwen3.5-122b, packed weights
    {41, 4, 8, 67.704},  // qwen3.5-122b, packed weights
    {41, 8, 8, 122.681},  // qwen3.5-122b, packed weights
    {39, 16, 16, 220.595},  // qwen3.5-122b, packed weights
    {40, 32, 32, 403.02},  // qwen3.5-122b, packed weights
    {42, 1, 8, 20.931},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {42, 2, 8, 36.653},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {42, 4, 8, 67.419},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {42, 8, 8, 122.777},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {45, 1, 8, 26.971},  // qwen3.5-122b, packed weights, router inside
    {43, 2, 8, 43.71},  // qwen3.5-122b, packed weights, router inside
    {43, 4, 8, 75.772},  // qwen3.5-122b, packed weights, router inside
    {43, 8, 8, 134.025},  // qwen3.5-122b, packed weights, router inside
    {44, 1, 8, 22.044},  // qwen3.5-122b, raw weights
    {44, 2, 8, 38.533},  // qwen3.5-122b, raw weights
    {44, 4, 8, 70.159},  // qwen3.5-122b, raw weights
    {44, 8, 8, 127.845},  // qwen3.5-122b, raw weights
    {38, 1, 8, 21.584},  // qwen3.5-122b-bf16, packed weights
    {38, 2, 8, 37.654},  // qwen3.5-122b-bf16, packed weights
    {38, 4, 8, 68.611},  // qwen3.5-122b-bf16, packed weights
    {38, 8, 8, 125.098},  // qwen3.5-122b-bf16, packed weights
    {59, 1, 8, 10.848},  // qwen3.5-35b, packed weights
    {52, 2, 8, 15.672},  // qwen3.5-35b, packed weights
    {60, 4, 8, 25.952},  // qwen3.5-35b, packed weights
    {58, 8, 8, 44.448},  // qwen3.5-35b, packed weights
    {48, 16, 16, 78.761},  // qwen3.5-35b, packed weights
    {49, 32, 32, 128.261},  // qwen3.5-35b, packed weights
    {53, 1, 8, 10.972},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {50, 2, 8, 15.113},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {50, 4, 8, 25.223},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {61, 8, 8, 43.972},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {55, 1, 8, 14.599},  // qwen3.5-35b, packed weights, router inside
    {51, 2, 8, 20.184},  // qwen3.5-35b, packed weights, router inside
    {57, 4, 8, 30.457},  // qwen3.5-35b, packed weights, router inside
    {51, 8, 8, 49.997},  // qwen3.5-35b, packed weights, router inside
    {54, 1, 8, 11.047},  // qwen3.5-35b, raw weights
    {56, 2, 8, 16.09},  // qwen3.5-35b, raw weights
    {62, 4, 8, 27.334},  // qwen3.5-35b, raw weights
    {62, 8, 8, 47.043},  // qwen3.5-35b, raw weights
    {47, 1, 8, 10.843},  // qwen3.5-35b-bf16, packed weights
    {47, 2, 8, 15.869},  // qwen3.5-35b-bf16, packed weights
    {46, 4, 8, 26.532},  // qwen3.5-35b-bf16, packed weights
    {46, 8, 8, 45.807},  // qwen3.5-35b-bf16, packed weights
    {63, 1, 8, 7.143},  // toy, packed weights
    {63, 2, 8, 7.404},  // toy, packed weights
    {63, 4, 8, 7.313},  // toy, packed weights
    {63, 8, 8, 7.865},  // toy, packed weights
};

constexpr const Kernel& kernel_of(const Entry& entry) { return kKernels[entry.kernel]; }
constexpr const Shape& shape_of(const Kernel& kernel) { return kShapes[kernel.shape]; }
constexpr const Shape& shape_of(const Entry& entry) { return shape_of(kernel_of(entry)); }

constexpr bool same_text(const char* a, const char* b) {
    while (*a && *a == *b) ++a, ++b;
    return *a == *b;
}

// Of the entries of this variant: the one tuned for exactly that count; else, of those whose capacity suffices, the
// nearest tuned below; else the smallest tuned above; else null.
constexpr const Entry* find(const char* model, std::uint32_t tokens, Variant variant = {}) {
    const Entry* best = nullptr;
    for (const Entry& entry : kEntries) {
        const Kernel& kernel = kernel_of(entry);
        if (tokens == 0 || entry.capacity < tokens) continue;
        if (kernel.layout != variant.layout || kernel.router != variant.router || kernel.pdl != variant.pdl) continue;
        if (!same_text(shape_of(entry).name, model)) continue;
        if (!best || entry.tuned_at <= tokens) best = &entry;
    }
    return best;
}

constexpr std::size_t workspace_bytes(std::uint32_t half_bytes) { return 128 + 2 * std::size_t{half_bytes}; }

constexpr std::size_t all_experts(const Shape& s) { return std::size_t{s.experts} + s.shared_experts; }
constexpr std::size_t w13_bytes(const Shape& s) { return all_experts(s) * 2 * s.intermediate * s.hidden; }
constexpr std::size_t w2_bytes(const Shape& s) { return all_experts(s) * s.hidden * s.intermediate; }

// Where a byte of a tile of 16 rows goes, which is cut into blocks of 128 columns.
constexpr std::size_t tile_offset(std::size_t tile, std::uint32_t row, std::uint32_t column, std::uint32_t columns) {
    const std::uint32_t in_block = column % 128;
    const std::uint32_t half = in_block / 64, pair = in_block / 8 % 2;
    const std::uint32_t lane = row % 8 * 4 + in_block / 16 % 4;
    const std::uint32_t word = row / 8 + in_block / 4 % 2 * 2;
    return (tile * (columns / 128) + column / 128) * 2048 + (2 * half + pair) * 512 + lane * 16 + word * 4 + column % 4;
}

// Packed place of w13[expert][row][column]. Rows 0 ... N-1 are the gate, N ... 2N-1 are up.
constexpr std::size_t w13_offset(const Shape& s, std::uint32_t expert, std::uint32_t row, std::uint32_t column) {
    const std::uint32_t up = row / s.intermediate, in_half = row % s.intermediate;
    const std::size_t tile = std::size_t{expert} * (s.intermediate / 8) + in_half / 8;
    return tile_offset(tile, up * 8 + in_half % 8, column, s.hidden);
}

// Packed place of w2[expert][row][column].
constexpr std::size_t w2_offset(const Shape& s, std::uint32_t expert, std::uint32_t row, std::uint32_t column) {
    const std::size_t tile = std::size_t{expert} * (s.hidden / 16) + row / 16;
    return tile_offset(tile, row % 16, column, s.intermediate);
}

}  // namespace monomoe
