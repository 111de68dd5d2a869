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
// A wait inside a kernel that lasts longer than Arguments::wait_limit_ns ends in a trap: the launch fails, and the
// context is lost.
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
    std::uint64_t wait_limit_ns = 2000ull * 1000 * 1000;  // at 0, the first wait that fails twice ends in a trap
};
static_assert(sizeof(Arguments) == 88, "the parameters lie without gaps");

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
        "75cc2f154d5e331cc183cdd7b55b71c91aae83d8be75d2538f571352cbc9a0cc",
        "monomoe_deepseek_v3_tp16_t8_g128_u16x1024x4_d112x128x3",
        0, {128, 16, 1024, 112, 128, 4, 3}, 8, 128, 608, 147200, 76, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp16-t8-g128-u16x1024x4-d56x128x3.cubin",
        "8a16ccdfeb6238d8f2b55f1d25357c0d19d8c81d31d90ff1f63f09ca7046a03c",
        "monomoe_deepseek_v3_tp16_t8_g128_u16x1024x4_d56x128x3",
        0, {128, 16, 1024, 56, 128, 4, 3}, 8, 128, 608, 147200, 78, 326656, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "ba6efb7397e2a11377d15e9de40396f764b6c41a05dc62ecf75f39dd5a8da0a2",
        "monomoe_deepseek_v3_tp8_t8_g128_u32x1024x6_d56x256x3",
        1, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 92, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d112x256x4.cubin",
        "7d55928b69836933168b5854aa42f7e23d871b6f6f9eb5709595bb98c4f05185",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d112x256x4",
        2, {128, 32, 1024, 112, 256, 4, 4}, 8, 128, 608, 224128, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g132-u32x1024x4-d112x256x4.cubin",
        "88ffef916f38ea0bdddde0d83816974253894681d054d29e848753ea6b858ff3",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g132_u32x1024x4_d112x256x4",
        2, {132, 32, 1024, 112, 256, 4, 4}, 8, 132, 608, 224128, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t16-g132-u32x1024x4-d112x256x4.cubin",
        "1f798ca02ad9e000e61470c250a69ba8c371334eb86231345a98356320e57dd3",
        "monomoe_deepseek_v3_1_tp8_t16_g132_u32x1024x4_d112x256x4",
        3, {132, 32, 1024, 112, 256, 4, 4}, 16, 132, 608, 216192, 76, 260096, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t32-g128-u16x1024x5-d64x256x5.cubin",
        "47290f99d9c4c7acda73146550a7c8b510fab4faa55352539265030a242b862a",
        "monomoe_deepseek_v3_1_tp8_t32_g128_u16x1024x5_d64x256x5",
        3, {128, 16, 1024, 64, 256, 5, 5}, 32, 128, 608, 229248, 96, 1437696, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d112x256x4-raw.cubin",
        "0d2bf4961dd12ca54ee4fdcbea4d46782f08a731e9f9007a164dc91db113581a",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d112x256x4_raw",
        3, {128, 32, 1024, 112, 256, 5, 4}, 8, 128, 608, 172032, 83, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2.cubin",
        "03c7c97c6c6c55bf96c3bd9e08ca2e950654dcd49c87b19e2acf5cba1d6ea3a0",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 172032, 92, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2-pdl.cubin",
        "18716333bf49a378d2d76b386214471145e4543d641d3d581f9ab243b278b7aa",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2_pdl",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 172032, 92, 359424, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "2b662384a38068cddae93feac3999453abd1c8e6eb8978329aca32bd980ff0df",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 92, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3-router.cubin",
        "1b4fb58d1c32e696b4ff910684820b9331b76a36098842785bed13f7ebba2406",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3_router",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 95, 367616, Layout::kPacked, Router::kWeight, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x3-pdl.cubin",
        "f133a3607e5f5c5c969d82061c9a658f82779a02d45604ac15868c436057b122",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x3_pdl",
        3, {128, 32, 1024, 64, 256, 6, 3}, 8, 128, 608, 188928, 84, 359424, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x4-raw.cubin",
        "7b21335062fce2445499300b7f97fd6dcc077113e226e378416d593c09d53935",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x4_raw",
        3, {128, 32, 1024, 64, 256, 6, 4}, 8, 128, 608, 205312, 91, 359424, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4.cubin",
        "8d091224a68dc129de94cd61c61ab83930654a023b26f215ed56158bd9f8b9fd",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 221696, 84, 359424, Layout::kPacked, Router::kLogits, false},
    {"glm-4.5-air-t8-g128-u176x2048x4-d128x1408x3.cubin",
        "bb643c3b62dbd8f090fc4350db4f4f7f6ba6966698e8d08476948b2f1c5d8754",
        "monomoe_glm_4_5_air_t8_g128_u176x2048x4_d128x1408x3",
        4, {128, 176, 2048, 128, 1408, 4, 3}, 8, 128, 608, 207104, 91, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-4.5-air-t8-g132-u176x1024x8-d128x1408x3.cubin",
        "1ad55a276dbc9221803230a01adf8f892bc58fed1bc052f454de1bf505dc593f",
        "monomoe_glm_4_5_air_t8_g132_u176x1024x8_d128x1408x3",
        4, {132, 176, 1024, 128, 1408, 8, 3}, 8, 132, 608, 207232, 86, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x5-d64x256x3.cubin",
        "95911d226841499cc8ac7052edd44b5b68bb559a5da883359412b3c44625d9b3",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x5_d64x256x3",
        5, {128, 32, 1024, 64, 256, 5, 3}, 8, 128, 608, 224640, 89, 262144, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x5-d96x256x5.cubin",
        "318921c682e6eec8d5d2e66cb05e0107b6d19c80ed245b53eb90faa18ae3ac22",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x5_d96x256x5",
        5, {128, 32, 1024, 96, 256, 5, 5}, 8, 128, 608, 224128, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t16-g132-u32x1024x5-d64x256x3.cubin",
        "91fc70b998006ff5d433e7222ff7abe0cb87ec825e9b657e7b5a09b4d9aa3593",
        "monomoe_glm_5_2_tp8_t16_g132_u32x1024x5_d64x256x3",
        6, {132, 32, 1024, 64, 256, 5, 3}, 16, 132, 608, 224384, 91, 634880, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t32-g128-u16x1024x4-d64x256x4.cubin",
        "ccbd6d45bf618084c0cdc367bfea68ab4737aaba847b66b8505d1a17772fddf3",
        "monomoe_glm_5_2_tp8_t32_g128_u16x1024x4_d64x256x4",
        6, {128, 16, 1024, 64, 256, 4, 4}, 32, 128, 608, 195456, 96, 1269760, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5.cubin",
        "1365c923dfc02babf08d662e9dfe178a8dad214a121df355998ca4109704901d",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5",
        6, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 205056, 84, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5-raw.cubin",
        "7ae8a5858b70cd9d144d022cd8fb6406cbc351dbb56bc73ad605afff31ec5db6",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5_raw",
        6, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 205056, 91, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x8-d64x256x6.cubin",
        "07fdc7721656012773238db98f3aa44bc0fcd26aa1941c5974fa773c6b110ee7",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x8_d64x256x6",
        6, {128, 32, 1024, 64, 256, 8, 6}, 8, 128, 608, 229632, 84, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4.cubin",
        "718261fdf881c725d60d6b5c8f9639db2ee3b324e465ab33c5766e0e4b1c5f21",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 213248, 91, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-pdl.cubin",
        "2544ff4be92c0310ad41507b161148322e859c1bb04fc5b8c6b2b549fbe31f16",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_pdl",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 180480, 91, 317440, Layout::kPacked, Router::kLogits, true},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-router.cubin",
        "d1c5da472ae68329b0fa6257d1ab7f66c9628d543158f8ec5c53624413f73ff7",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_router",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 180480, 95, 325632, Layout::kPacked, Router::kWeight, false},
    {"kimi-k2-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "8a0d6504a91fa92547770f8fb61c87b1e0455c04173771b4572473431c434e43",
        "monomoe_kimi_k2_tp8_t8_g128_u32x1024x6_d56x256x3",
        7, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 92, 359424, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u192x1024x5-d64x512x4.cubin",
        "fa4cebd23dcd7fc9ae2a7d49e23ea79b8c50ee208245e78d29117678943b47c7",
        "monomoe_minimax_m2_t8_g128_u192x1024x5_d64x512x4",
        8, {128, 192, 1024, 64, 512, 5, 4}, 8, 128, 608, 160640, 86, 519168, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u96x1024x3-d64x512x3.cubin",
        "cb6cd2a462af9feacc1dd592ab7b51b86b2e5dfaf70cfae6a2067e9c5c769244",
        "monomoe_minimax_m2_t8_g128_u96x1024x3_d64x512x3",
        8, {128, 96, 1024, 64, 512, 3, 3}, 8, 128, 608, 168832, 96, 519168, Layout::kPacked, Router::kLogits, false},
    {"mixtral-8x7b-fp8-tp8-t8-g128-u224x1024x4-d128x896x2.cubin",
        "36078e8dce7d5693786a70b75f7167fa5b3335bedc3d5e64b06694327135c228",
        "monomoe_mixtral_8x7b_fp8_tp8_t8_g128_u224x1024x4_d128x896x2",
        9, {128, 224, 1024, 128, 896, 4, 2}, 8, 128, 608, 139008, 91, 151552, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u96x1024x3-d64x512x3.cubin",
        "7565c0634366542362c9bce4e57962bd4fab00af4eadc95bf70ab68372575634",
        "monomoe_qwen3_235b_a22b_t8_g128_u96x1024x3_d64x512x3",
        10, {128, 96, 1024, 64, 512, 3, 3}, 8, 128, 608, 176512, 95, 561152, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u96x1024x4-d64x512x4.cubin",
        "481a370e6b2466238105d18043922aad7fd2c7c17f2f53a5dc025e591028ac2e",
        "monomoe_qwen3_235b_a22b_t8_g128_u96x1024x4_d64x512x4",
        10, {128, 96, 1024, 64, 512, 4, 4}, 8, 128, 608, 209280, 95, 561152, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u48x1024x3-d128x768x3.cubin",
        "a748cda7b74ed8e8894a9ab26982a444bac1927c3ce57d2ebe70bdcbeb682b3c",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u48x1024x3_d128x768x3",
        11, {128, 48, 1024, 128, 768, 3, 3}, 8, 128, 608, 177536, 96, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x1024x5-d64x384x4.cubin",
        "92125101eb7bc18903c6d928d1103e7767a090981bff16ae683bbbff92c7f0ee",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x1024x5_d64x384x4",
        11, {128, 96, 1024, 64, 384, 5, 4}, 8, 128, 608, 169344, 84, 364544, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x1024x5-d64x384x4.cubin",
        "ffd651f228431e2767687e0f8e3e33b5fde73970a7d96f70f72236a379b24f5a",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x1024x5_d64x384x4",
        12, {128, 48, 1024, 64, 384, 5, 4}, 8, 128, 608, 171520, 79, 266240, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x1024x4-d128x768x4.cubin",
        "9a1df1b60a696d5c8faec4b4ef060a413ae3143be5d6d479d5c3e3b298346c7d",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x1024x4_d128x768x4",
        13, {128, 96, 1024, 128, 768, 4, 4}, 8, 128, 608, 119680, 85, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x1024x5-d64x384x5.cubin",
        "3b3ea34569ce38afd0711e529deca586530d8898ba264c122f6046111e71b30e",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x1024x5_d64x384x5",
        13, {128, 96, 1024, 64, 384, 5, 5}, 8, 128, 608, 136064, 86, 280576, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "c4c35fd1c87141b6f0b2df92f358e55e3fe7cb59104712c8224cc5598b27a92d",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d128x512x3",
        14, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130432, 72, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d64x512x4.cubin",
        "96eb836a7697056a4ba1e9aee7395790d61026571434a70defd6b29ba9c627dd",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d64x512x4",
        14, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 130432, 72, 247808, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x6-d64x512x4.cubin",
        "db453690d3297eb3ee47ed26cf64bd844960df0842ce80279da8498172c1621f",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x6_d64x512x4",
        15, {128, 128, 1024, 64, 512, 6, 4}, 8, 128, 608, 225152, 96, 360448, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g132-u128x1024x6-d64x512x4.cubin",
        "2a476d04cba8f87edef4e70994b161f6d606fcf12781183eb5daa81ec170b2e8",
        "monomoe_qwen3_5_122b_bf16_t8_g132_u128x1024x6_d64x512x4",
        15, {132, 128, 1024, 64, 512, 6, 4}, 8, 132, 608, 225152, 96, 360448, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t16-g132-u64x1024x3-d64x512x4.cubin",
        "9f837566b6d42cd6c99cfb27e0ac467dbee65ca9f19d9cc5d536a03c6e1c2f71",
        "monomoe_qwen3_5_122b_t16_g132_u64x1024x3_d64x512x4",
        16, {132, 64, 1024, 64, 512, 3, 4}, 16, 132, 608, 205312, 96, 776192, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t32-g132-u128x1024x3-d64x512x2.cubin",
        "69819e067644c3e250a036870ecdd8e5a73fcb90787d53f4a68edeb7392bbce8",
        "monomoe_qwen3_5_122b_t32_g132_u128x1024x3_d64x512x2",
        16, {132, 128, 1024, 64, 512, 3, 2}, 32, 132, 608, 226048, 96, 1552384, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4.cubin",
        "57dc2c555e16535ed00394763b1e5a0bc7289d1d1367680d38493a557c57e8a9",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 170368, 96, 388096, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-pdl.cubin",
        "b8684ea7e4b602578adaac3480d9362903011e05f843b37474e3327ff1d096ea",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_pdl",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 170368, 96, 388096, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-router.cubin",
        "b81277a821502b6989bac2b182d17b715af5235e353edef2c595b824dcaf7e22",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_router",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 170368, 96, 396288, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g128-u128x1024x8-d64x512x5.cubin",
        "0f1e167df26677ecb71023b1c552e0caaa79740538f9b4cda0d8f938bd5a7e80",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x8_d64x512x5",
        16, {128, 128, 1024, 64, 512, 8, 5}, 8, 128, 608, 203264, 96, 388096, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4-raw.cubin",
        "de4626e3c26479c8466735c26f4f65db2395dc90f17a6985eeffb25bf5197e3e",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4_raw",
        16, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 202112, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4-router.cubin",
        "912563124e354440e5a6e5e8bd48622176680f118d20af7318e57fa3ae7cdbba",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4_router",
        16, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 202112, 96, 297984, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g132-u128x1024x8-d64x512x4.cubin",
        "5942cdb9207a242b6fdac3d37f773ab0c2172756dc701bba9d175efed191992d",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x8_d64x512x4",
        16, {132, 128, 1024, 64, 512, 8, 4}, 8, 132, 608, 203264, 96, 388096, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u32x512x4-d128x512x4.cubin",
        "5b2c32099e97933b7f6abe574480197f876b9b1047e2ea19b27714d0baeb1bce",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u32x512x4_d128x512x4",
        17, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 175488, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d128x512x3.cubin",
        "a66829baccb7a74c338b1a96796a06e29f1fb494a92c5142f166b08dd7e8afd7",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d128x512x3",
        17, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 175488, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x5-d64x512x6.cubin",
        "c7bd27094026bf66d4290b5d2cecb96932a61987e118e5f64289ffcc6888a295",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x5_d64x512x6",
        17, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 208256, 86, 196608, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u64x1024x5-d64x512x5.cubin",
        "59ebec8d8372b3c1785c4216d71ece2b0f4af4c7c7dea27ac975e99a10ee7e9b",
        "monomoe_qwen3_5_35b_t16_g132_u64x1024x5_d64x512x5",
        18, {132, 64, 1024, 64, 512, 5, 5}, 16, 132, 608, 164992, 74, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u32x512x5-d64x512x6.cubin",
        "0f1d46bc3884a92a4cde8280c289eb1a423bec39c1cba7e5415a177b83283586",
        "monomoe_qwen3_5_35b_t32_g132_u32x512x5_d64x512x6",
        18, {132, 32, 512, 64, 512, 5, 6}, 32, 132, 608, 226176, 83, 860160, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u32x512x4-d128x512x4-pdl.cubin",
        "41c3d239121a84036ada2891e7015f460e46e99c6e925e967c5eafe7e829ac4f",
        "monomoe_qwen3_5_35b_t8_g128_u32x512x4_d128x512x4_pdl",
        18, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 130304, 72, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "4db13f9dc17f139842cbd960547d027a44bcfd7e4cd3961c4ef1172ba611e916",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 72, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-pdl.cubin",
        "5c70292ee7af27a5cdc0affdc8f00e5648575bb898c0301a0f214ba39e77fbe9",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_pdl",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 72, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-raw.cubin",
        "86714d7510e491bde396d0994f27460f7fe9543decb70e9f962ea1d378bf0fc7",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_raw",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 80, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-router.cubin",
        "5a4c99bb750f79a255bd566dc030c841bd51a5d3e49ecdb38ccd69a6aa082e5b",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_router",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 80, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-raw.cubin",
        "64e0c4ecbb583499669472ed3d514d3066d16b653e02cb07c759c557ee15bfa9",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_raw",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130304, 80, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-router.cubin",
        "c28bf160bff6cb7ed6ee9be3bc005283763a7e5a75073e7f061fc7310c7bc1eb",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_router",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130304, 80, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x6.cubin",
        "3b03fc018f85c767805ca24dfc113faa65c29f577b02042e7801aed90f30a47a",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x6",
        18, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 163072, 72, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x6-pdl.cubin",
        "21e6209680f2e75f23a4e8fefa157abac9971ba94a690db51649358e09adb71d",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x6_pdl",
        18, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 163072, 72, 215040, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x6-raw.cubin",
        "740e3543282d211d88060e8f7f8a4b52e4404025c085910d1ce4464df5432780",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x6_raw",
        18, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 163072, 80, 215040, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x6-router.cubin",
        "dca7f4223d5406b57698d2e434aea94c0db09b840c7355a686eb30354fc16b38",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x6_router",
        18, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 163072, 82, 223232, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d128x512x5.cubin",
        "e7552aff21ea68d2fbb62035f535664e61fc8da41b0e881b39d9103b2fe6de9c",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d128x512x5",
        18, {128, 64, 2048, 128, 512, 3, 5}, 8, 128, 608, 163072, 87, 149504, Layout::kPacked, Router::kLogits, false},
    {"toy-t8-g128-u4x256x3-d16x128x3.cubin",
        "bad0ee6e74b1293cfa9b5e63bd7041a3569df053b90698be9a09ca50ca3f2370",
        "monomoe_toy_t8_g128_u4x256x3_d16x128x3",
        19, {128, 4, 256, 16, 128, 3, 3}, 8, 128, 608, 72960, 64, 67840, Layout::kPacked, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {0, 1, 8, 10.741},  // deepseek-v3-tp16, packed weights
    {1, 2, 8, 15.818},  // deepseek-v3-tp16, packed weights
    {0, 4, 8, 25.463},  // deepseek-v3-tp16, packed weights
    {0, 8, 8, 44.566},  // deepseek-v3-tp16, packed weights
    {2, 1, 8, 15.532},  // deepseek-v3-tp8, packed weights
    {2, 2, 8, 24.456},  // deepseek-v3-tp8, packed weights
    {2, 4, 8, 43.88},  // deepseek-v3-tp8, packed weights
    {2, 8, 8, 76.77},  // deepseek-v3-tp8, packed weights
    {8, 1, 8, 15.483},  // deepseek-v3.1-tp8, packed weights
    {10, 2, 8, 24.652},  // deepseek-v3.1-tp8, packed weights
    {10, 4, 8, 43.091},  // deepseek-v3.1-tp8, packed weights
    {14, 8, 8, 76.582},  // deepseek-v3.1-tp8, packed weights
    {5, 16, 16, 139.139},  // deepseek-v3.1-tp8, packed weights
    {6, 32, 32, 239.013},  // deepseek-v3.1-tp8, packed weights
    {9, 1, 8, 14.794},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 2, 8, 24.012},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 4, 8, 43.148},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 8, 8, 76.822},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {11, 1, 8, 23.023},  // deepseek-v3.1-tp8, packed weights, router inside
    {11, 2, 8, 32.971},  // deepseek-v3.1-tp8, packed weights, router inside
    {11, 4, 8, 52.403},  // deepseek-v3.1-tp8, packed weights, router inside
    {11, 8, 8, 85.864},  // deepseek-v3.1-tp8, packed weights, router inside
    {7, 1, 8, 15.826},  // deepseek-v3.1-tp8, raw weights
    {7, 2, 8, 25.21},  // deepseek-v3.1-tp8, raw weights
    {7, 4, 8, 44.579},  // deepseek-v3.1-tp8, raw weights
    {13, 8, 8, 78.207},  // deepseek-v3.1-tp8, raw weights
    {4, 1, 8, 15.712},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 2, 8, 24.39},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 4, 8, 43.698},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 8, 8, 79.73},  // deepseek-v3.1-tp8-bf16, packed weights
    {15, 1, 8, 34.68},  // glm-4.5-air, packed weights
    {16, 2, 8, 64.566},  // glm-4.5-air, packed weights
    {16, 4, 8, 117.135},  // glm-4.5-air, packed weights
    {16, 8, 8, 205.163},  // glm-4.5-air, packed weights
    {21, 1, 8, 13.896},  // glm-5.2-tp8, packed weights
    {24, 2, 8, 21.489},  // glm-5.2-tp8, packed weights
    {24, 4, 8, 37.484},  // glm-5.2-tp8, packed weights
    {23, 8, 8, 65.909},  // glm-5.2-tp8, packed weights
    {19, 16, 16, 118.391},  // glm-5.2-tp8, packed weights
    {20, 32, 32, 206.617},  // glm-5.2-tp8, packed weights
    {25, 1, 8, 12.889},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {25, 2, 8, 20.751},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {25, 4, 8, 37.276},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {25, 8, 8, 66.169},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {26, 1, 8, 20.183},  // glm-5.2-tp8, packed weights, router inside
    {26, 2, 8, 28.735},  // glm-5.2-tp8, packed weights, router inside
    {26, 4, 8, 45.763},  // glm-5.2-tp8, packed weights, router inside
    {26, 8, 8, 74.238},  // glm-5.2-tp8, packed weights, router inside
    {22, 1, 8, 14.56},  // glm-5.2-tp8, raw weights
    {22, 2, 8, 22.506},  // glm-5.2-tp8, raw weights
    {22, 4, 8, 39.227},  // glm-5.2-tp8, raw weights
    {22, 8, 8, 69.24},  // glm-5.2-tp8, raw weights
    {18, 1, 8, 13.875},  // glm-5.2-tp8-bf16, packed weights
    {17, 2, 8, 22.117},  // glm-5.2-tp8-bf16, packed weights
    {17, 4, 8, 38.904},  // glm-5.2-tp8-bf16, packed weights
    {17, 8, 8, 68.932},  // glm-5.2-tp8-bf16, packed weights
    {27, 1, 8, 15.093},  // kimi-k2-tp8, packed weights
    {27, 2, 8, 24.295},  // kimi-k2-tp8, packed weights
    {27, 4, 8, 44.04},  // kimi-k2-tp8, packed weights
    {27, 8, 8, 78.84},  // kimi-k2-tp8, packed weights
    {29, 1, 8, 29.583},  // minimax-m2, packed weights
    {29, 2, 8, 53.752},  // minimax-m2, packed weights
    {28, 4, 8, 100.953},  // minimax-m2, packed weights
    {28, 8, 8, 185.271},  // minimax-m2, packed weights
    {30, 1, 8, 16.399},  // mixtral-8x7b-fp8-tp8, packed weights
    {30, 2, 8, 22.97},  // mixtral-8x7b-fp8-tp8, packed weights
    {30, 4, 8, 33.728},  // mixtral-8x7b-fp8-tp8, packed weights
    {30, 8, 8, 43.355},  // mixtral-8x7b-fp8-tp8, packed weights
    {31, 1, 8, 37.823},  // qwen3-235b-a22b, packed weights
    {31, 2, 8, 69.86},  // qwen3-235b-a22b, packed weights
    {32, 4, 8, 126.892},  // qwen3-235b-a22b, packed weights
    {32, 8, 8, 222.195},  // qwen3-235b-a22b, packed weights
    {34, 1, 8, 21.038},  // qwen3-235b-a22b-tp2, packed weights
    {33, 2, 8, 36.922},  // qwen3-235b-a22b-tp2, packed weights
    {33, 4, 8, 65.729},  // qwen3-235b-a22b-tp2, packed weights
    {33, 8, 8, 114.49},  // qwen3-235b-a22b-tp2, packed weights
    {35, 1, 8, 13.311},  // qwen3-235b-a22b-tp4, packed weights
    {35, 2, 8, 21.204},  // qwen3-235b-a22b-tp4, packed weights
    {35, 4, 8, 35.403},  // qwen3-235b-a22b-tp4, packed weights
    {35, 8, 8, 60.683},  // qwen3-235b-a22b-tp4, packed weights
    {36, 1, 8, 13.134},  // qwen3-30b-a3b, packed weights
    {37, 2, 8, 21.765},  // qwen3-30b-a3b, packed weights
    {37, 4, 8, 36.843},  // qwen3-30b-a3b, packed weights
    {37, 8, 8, 61.63},  // qwen3-30b-a3b, packed weights
    {38, 1, 8, 11.861},  // qwen3-next-80b-a3b, packed weights
    {38, 2, 8, 18.532},  // qwen3-next-80b-a3b, packed weights
    {39, 4, 8, 31.889},  // qwen3-next-80b-a3b, packed weights
    {39, 8, 8, 57.928},  // qwen3-next-80b-a3b, packed weights
    {44, 1, 8, 20.91},  // qwen3.5-122b, packed weights
    {50, 2, 8, 36.745},  // qwen3.5-122b, packed weights
    {47, 4, 8, 67.392},  // qwen3.5-122b, packed weights
    {50, 8, 8, 123.439},  // qwen3.5-122b, packed weights
    {42, 16, 16, 224.865},  // qwen3.5-122b, packed weights
    {43, 32, 32, 402.832},  // qwen3.5-122b, packed weights
    {45, 1, 8, 20.229},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {45, 2, 8, 36.442},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {45, 4, 8, 67.749},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {45, 8, 8, 124.136},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {49, 1, 8, 26.442},  // qwen3.5-122b, packed weights, router inside
    {49, 2, 8, 43.605},  // qwen3.5-122b, packed weights, router inside
    {49, 4, 8, 75.733},  // qwen3.5-122b, packed weights, router inside
    {46, 8, 8, 132.628},  // qwen3.5-122b, packed weights, router inside
    {48, 1, 8, 22.47},  // qwen3.5-122b, raw weights
    {48, 2, 8, 39.233},  // qwen3.5-122b, raw weights
    {48, 4, 8, 70.536},  // qwen3.5-122b, raw weights
    {48, 8, 8, 128.3},  // qwen3.5-122b, raw weights
    {40, 1, 8, 21.395},  // qwen3.5-122b-bf16, packed weights
    {40, 2, 8, 37.819},  // qwen3.5-122b-bf16, packed weights
    {40, 4, 8, 71.77},  // qwen3.5-122b-bf16, packed weights
    {41, 8, 8, 132.335},  // qwen3.5-122b-bf16, packed weights
    {57, 1, 8, 10.119},  // qwen3.5-35b, packed weights
    {57, 2, 8, 15.404},  // qwen3.5-35b, packed weights
    {67, 4, 8, 25.611},  // qwen3.5-35b, packed weights
    {63, 8, 8, 44.618},  // qwen3.5-35b, packed weights
    {54, 16, 16, 79.412},  // qwen3.5-35b, packed weights
    {55, 32, 32, 132.249},  // qwen3.5-35b, packed weights
    {58, 1, 8, 9.354},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {58, 2, 8, 14.577},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {56, 4, 8, 25.112},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {64, 8, 8, 44.416},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {60, 1, 8, 14.303},  // qwen3.5-35b, packed weights, router inside
    {62, 2, 8, 20.066},  // qwen3.5-35b, packed weights, router inside
    {62, 4, 8, 31.113},  // qwen3.5-35b, packed weights, router inside
    {66, 8, 8, 50.761},  // qwen3.5-35b, packed weights, router inside
    {59, 1, 8, 10.484},  // qwen3.5-35b, raw weights
    {61, 2, 8, 15.602},  // qwen3.5-35b, raw weights
    {65, 4, 8, 27.108},  // qwen3.5-35b, raw weights
    {65, 8, 8, 47.42},  // qwen3.5-35b, raw weights
    {52, 1, 8, 10.267},  // qwen3.5-35b-bf16, packed weights
    {52, 2, 8, 15.616},  // qwen3.5-35b-bf16, packed weights
    {51, 4, 8, 26.294},  // qwen3.5-35b-bf16, packed weights
    {53, 8, 8, 46.411},  // qwen3.5-35b-bf16, packed weights
    {68, 1, 8, 7.123},  // toy, packed weights
    {68, 2, 8, 7.31},  // toy, packed weights
    {68, 4, 8, 7.467},  // toy, packed weights
    {68, 8, 8, 7.709},  // toy, packed weights
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
