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
        "8268040d7860b3d087cd5b3f4164b24ed4282c29ea38cf68a6cf9555e11c4350",
        "monomoe_deepseek_v3_tp16_t8_g128_u16x1024x4_d112x128x3",
        0, {128, 16, 1024, 112, 128, 4, 3}, 8, 128, 608, 147200, 90, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "a00d38aa15f576f299437abb39d4e67a93418aeb9b7675d243695d9dad4b289a",
        "monomoe_deepseek_v3_tp8_t8_g128_u32x1024x6_d56x256x3",
        1, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 93, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d112x256x4.cubin",
        "c154b635b4dfa248de202893a6575bf28b1a0c7257197145e5ee40977df54f3d",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d112x256x4",
        2, {128, 32, 1024, 112, 256, 4, 4}, 8, 128, 608, 224128, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g132-u32x1024x4-d112x256x4.cubin",
        "f1d40a440659a36818369e221115b6f0d7699f2144ccf2585fd0c97962afabad",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g132_u32x1024x4_d112x256x4",
        2, {132, 32, 1024, 112, 256, 4, 4}, 8, 132, 608, 224128, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t16-g128-u32x1024x4-d112x256x4.cubin",
        "14ff4c96b0a68a4bdb170b608668c092ae442a2d051629e91ed67ac8a99305a6",
        "monomoe_deepseek_v3_1_tp8_t16_g128_u32x1024x4_d112x256x4",
        3, {128, 32, 1024, 112, 256, 4, 4}, 16, 128, 608, 216192, 89, 260096, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t32-g128-u16x1024x5-d64x256x5.cubin",
        "ab12507fa78a3f93388f5eaa4154d88f2062d44477917f930796fe9b84431431",
        "monomoe_deepseek_v3_1_tp8_t32_g128_u16x1024x5_d64x256x5",
        3, {128, 16, 1024, 64, 256, 5, 5}, 32, 128, 608, 229248, 96, 1437696, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x4-d112x256x3-router.cubin",
        "1f3b8ddf578098d185a3ac1afcf150e0bfd3cd6cde4049992ea3d1a42437d2a3",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x4_d112x256x3_router",
        3, {128, 32, 1024, 112, 256, 4, 3}, 8, 128, 608, 155648, 95, 138240, Layout::kPacked, Router::kWeight, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d112x256x4-raw.cubin",
        "02879c1f35c883c740770fd83a5145144d3031d6e2a64a90756f88d753465c20",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d112x256x4_raw",
        3, {128, 32, 1024, 112, 256, 5, 4}, 8, 128, 608, 172032, 87, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2.cubin",
        "6ce9506805936f3802705f357a74f518cc4660c67524c4992dc9a7064ef489b7",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 172032, 93, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2-pdl.cubin",
        "f827a048311bcbf43123d6955a69a43efc62ee2984fb9fde3baf11e3526908cf",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2_pdl",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 172032, 93, 359424, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "4ac4f829b23b77e79992b73f308894fb97aee18a461a39d7ea0f96cf5299d5db",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 93, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3-router.cubin",
        "709879638140dd30a360c521095d1469616ab16e6a8b3ef60c7e1604ec1477cd",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3_router",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 95, 367616, Layout::kPacked, Router::kWeight, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x3-pdl.cubin",
        "eccbe9a322e70e92767d0d9d1d66338dedd429c5c6c9b682717d00c49f8021dc",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x3_pdl",
        3, {128, 32, 1024, 64, 256, 6, 3}, 8, 128, 608, 188928, 91, 359424, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1792x3-d64x256x3-raw.cubin",
        "90a3ccf0e41093cc374292bfdaac1e98130d95986f69632a3b181eff4d074536",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1792x3_d64x256x3_raw",
        3, {128, 32, 1792, 64, 256, 3, 3}, 8, 128, 608, 184832, 94, 359424, Layout::kRaw, Router::kLogits, false},
    {"glm-4.5-air-t8-g128-u176x2048x4-d128x1408x3.cubin",
        "7f3045c3d5ccd08083e7f4b8cced5ea7371831ad062996000b0eea21459cb36a",
        "monomoe_glm_4_5_air_t8_g128_u176x2048x4_d128x1408x3",
        4, {128, 176, 2048, 128, 1408, 4, 3}, 8, 128, 608, 207232, 91, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-4.5-air-t8-g132-u176x1024x8-d128x1408x3.cubin",
        "5a1d61c30075a7feef5634d09ff788590476b620a77a6682c0afd193f454f3ce",
        "monomoe_glm_4_5_air_t8_g132_u176x1024x8_d128x1408x3",
        4, {132, 176, 1024, 128, 1408, 8, 3}, 8, 132, 608, 207232, 86, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x5-d64x256x3.cubin",
        "3fa05fe61ebcc7fb3b2a8bfcbb99154b6845662ee94e74eef62739de4b7a9f48",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x5_d64x256x3",
        5, {128, 32, 1024, 64, 256, 5, 3}, 8, 128, 608, 224640, 89, 262144, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g132-u32x1024x5-d64x256x3.cubin",
        "a1b6e2de4bfa46a899c86f302d6e659d67c3e92e5d11006d98e7c835a09f2cb3",
        "monomoe_glm_5_2_tp8_bf16_t8_g132_u32x1024x5_d64x256x3",
        5, {132, 32, 1024, 64, 256, 5, 3}, 8, 132, 608, 224640, 89, 262144, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t16-g128-u32x1024x5-d64x256x3.cubin",
        "d882c8dab88ffd76e66e209d42abfd76b52d11df71feca075a0d5961c4d92388",
        "monomoe_glm_5_2_tp8_t16_g128_u32x1024x5_d64x256x3",
        6, {128, 32, 1024, 64, 256, 5, 3}, 16, 128, 608, 224384, 91, 634880, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t32-g128-u16x1024x5-d64x256x5.cubin",
        "5376b78f99e5756cba3c6074214b38fccc55ed692f5f86b3b2d3e50c8fa1334d",
        "monomoe_glm_5_2_tp8_t32_g128_u16x1024x5_d64x256x5",
        6, {128, 16, 1024, 64, 256, 5, 5}, 32, 128, 608, 228224, 96, 1269760, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5.cubin",
        "85770d39ab9966226c205ca2b8be0adf38a4e22ddc780f1a44c747e98a0b5917",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5",
        6, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 205056, 84, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5-pdl.cubin",
        "3b500a45fc403fa7ab94358cd11a61c0e7cb245e41a76454266eb70886847c9f",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5_pdl",
        6, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 205056, 84, 317440, Layout::kPacked, Router::kLogits, true},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d48x256x3-raw.cubin",
        "880e186c6308033c2d09ee4d4f84f8ad9a35977d5e570a6a064ffc0436bff350",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d48x256x3_raw",
        6, {128, 32, 2048, 48, 256, 3, 3}, 8, 128, 608, 179968, 96, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d64x256x3-raw.cubin",
        "4644485caee922c284043292744c8eb3fd3d0194420b8c9b87a05176f8818a76",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d64x256x3_raw",
        6, {128, 32, 2048, 64, 256, 3, 3}, 8, 128, 608, 180480, 96, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4.cubin",
        "1c67473bd0ea3faea4348093e920bb94d7ed2bf9a503c8224dd6c8c0ed7c009b",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 213248, 93, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4-raw.cubin",
        "55a1d2143c081e3bfeedf9d5c2bdd03ee1409ac72d4dd2c2551f573802f15bbe",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4_raw",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 213248, 96, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3.cubin",
        "e4c2beb73e0f65227744227fd9cf4157f7bfc4a33d1774fb22f76ef16ab889bc",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 180480, 93, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-pdl.cubin",
        "c4f38141a757394702aa0489a36dc42fceab0a408238f20975e01458be4038a7",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_pdl",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 180480, 93, 317440, Layout::kPacked, Router::kLogits, true},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-router.cubin",
        "e24293e9e94aaf3d15e358f4f04a775af03c483699505be9414696b8c9d65dd7",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_router",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 180480, 95, 325632, Layout::kPacked, Router::kWeight, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x4-d64x256x4-pdl.cubin",
        "4767038eed620b4ddd49f0f186b02286848ec2802881c2a4f2639c1968f645c0",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x4_d64x256x4_pdl",
        6, {132, 32, 2048, 64, 256, 4, 4}, 8, 132, 608, 213248, 93, 317440, Layout::kPacked, Router::kLogits, true},
    {"kimi-k2-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "05e236a84e3b9731ab47883ccdd278adaff0d1f6c06a903dddc2e04d02691de6",
        "monomoe_kimi_k2_tp8_t8_g128_u32x1024x6_d56x256x3",
        7, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 188416, 93, 359424, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u192x1024x5-d64x512x4.cubin",
        "c7e1ad6ea7cfb0dda8529b194b1ec07d46cedd42d4910d20c49c7a61c931c359",
        "monomoe_minimax_m2_t8_g128_u192x1024x5_d64x512x4",
        8, {128, 192, 1024, 64, 512, 5, 4}, 8, 128, 608, 160640, 87, 519168, Layout::kPacked, Router::kLogits, false},
    {"mixtral-8x7b-fp8-tp8-t8-g128-u224x2048x3-d128x896x3.cubin",
        "3bd4feb21379a1174c9ffa1fd1092a71ee282355b71a8eeaf62011c5a4fa68d3",
        "monomoe_mixtral_8x7b_fp8_tp8_t8_g128_u224x2048x3_d128x896x3",
        9, {128, 224, 2048, 128, 896, 3, 3}, 8, 128, 608, 171776, 93, 151552, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u96x1024x3-d64x512x3.cubin",
        "9852415652998715c87eb741f0a86e49dd6c79f11d8a79feece00afd5b2d0dd7",
        "monomoe_qwen3_235b_a22b_t8_g128_u96x1024x3_d64x512x3",
        10, {128, 96, 1024, 64, 512, 3, 3}, 8, 128, 608, 176512, 95, 561152, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u96x1024x4-d64x512x4.cubin",
        "db24f62fcd6336d1a3e6af9c991463f3f0b4395240a7ff24f841272f14ef761d",
        "monomoe_qwen3_235b_a22b_t8_g128_u96x1024x4_d64x512x4",
        10, {128, 96, 1024, 64, 512, 4, 4}, 8, 128, 608, 209280, 95, 561152, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u48x1024x3-d128x768x3.cubin",
        "3926b9bef327013bf69a6ba02c3f972efe0282d46d4fb2340fd60f085064e35a",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u48x1024x3_d128x768x3",
        11, {128, 48, 1024, 128, 768, 3, 3}, 8, 128, 608, 177536, 96, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x1024x5-d64x384x4.cubin",
        "d0bdfc9cfde450fa8022acabc1d414472897ad7f76dc4950b63a1ca0d8362db2",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x1024x5_d64x384x4",
        11, {128, 96, 1024, 64, 384, 5, 4}, 8, 128, 608, 169344, 86, 364544, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x1024x5-d64x384x4.cubin",
        "ecf0e8427c148e11c3a818a5ad98b50beaa325d36d0fdf8b8ca6cfab93178b7d",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x1024x5_d64x384x4",
        12, {128, 48, 1024, 64, 384, 5, 4}, 8, 128, 608, 171520, 79, 266240, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x1024x4-d128x768x4.cubin",
        "2b78e0f38b64decde1695ec468244845ad474cbb7e43bfab855f9f61e084c372",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x1024x4_d128x768x4",
        13, {128, 96, 1024, 128, 768, 4, 4}, 8, 128, 608, 119680, 84, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x1024x5-d64x384x5.cubin",
        "f0e537e9b51650c186d9a06a3498409dffef9b8f60e3a1909531536385bed5b1",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x1024x5_d64x384x5",
        13, {128, 96, 1024, 64, 384, 5, 5}, 8, 128, 608, 136064, 86, 280576, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "d7d5da23e37420e897e22c86d84c5081ce8cf5066d504508ec9345282430b84a",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d128x512x3",
        14, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130432, 72, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d64x512x4.cubin",
        "ab0dd1179868f5c5b33932e94e4e54806afa69401d26fd170b5dd9bcc54e5a06",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d64x512x4",
        14, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 130432, 72, 247808, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x5-d64x512x4.cubin",
        "5a8b2dd5795ebd3f0132696c2a7b16677ad30d82ef99f5ed87266296fef5ba46",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x5_d64x512x4",
        15, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 225152, 96, 360448, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t16-g132-u64x1024x3-d64x512x4.cubin",
        "2f3041b9e31f32103007a48671ade84f88df351c3e740c6ce3b74088a9d67b6d",
        "monomoe_qwen3_5_122b_t16_g132_u64x1024x3_d64x512x4",
        16, {132, 64, 1024, 64, 512, 3, 4}, 16, 132, 608, 205312, 96, 776192, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t32-g132-u128x1024x3-d64x512x2.cubin",
        "db47b5a3479a96344d57f99e5c196f71ac3fd3e8c000b095ee1d92b0fe121561",
        "monomoe_qwen3_5_122b_t32_g132_u128x1024x3_d64x512x2",
        16, {132, 128, 1024, 64, 512, 3, 2}, 32, 132, 608, 226048, 96, 1552384, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4.cubin",
        "8ef7ca15d4d22c529bec7a51d4b5a4f6d6d7777b08ca14bda2979fe627042d2c",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 170368, 96, 388096, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u64x1024x3-d64x512x3-pdl.cubin",
        "80a3d6ed4a553b7ab10ef1d4f708559a9d8003c61671b2dcf480f45d8d0d7f06",
        "monomoe_qwen3_5_122b_t8_g128_u64x1024x3_d64x512x3_pdl",
        16, {128, 64, 1024, 64, 512, 3, 3}, 8, 128, 608, 178560, 96, 388096, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-122b-t8-g132-u128x1024x5-d96x1024x3-raw.cubin",
        "a9a595f3a69e1151b5610f8e491503c03390c4430231e6459614cece5964e3e5",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x5_d96x1024x3_raw",
        16, {132, 128, 1024, 96, 1024, 5, 3}, 8, 132, 608, 169344, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4-raw.cubin",
        "04b1a78dab9f62df46909c3d05b47de07d439c86b89c955f0d7e5ca388a75e7c",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4_raw",
        16, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 202112, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4-router.cubin",
        "8329632a34c3620490b17e8d92be058b6fe7efed4003859557abdbfac9e205d6",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4_router",
        16, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 202112, 96, 297984, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g132-u128x1024x8-d64x512x4.cubin",
        "c6ca6dd2c293369be103ac54e9fb60f388a6e9d0bf38d4396a438fe5af6b828c",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x8_d64x512x4",
        16, {132, 128, 1024, 64, 512, 8, 4}, 8, 132, 608, 203264, 96, 388096, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u32x512x4-d128x512x4.cubin",
        "f533fc91da7455c570d8d1c4656397991ef883308be3e3d4c3dfdaf08b20c43e",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u32x512x4_d128x512x4",
        17, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 175488, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d128x512x3.cubin",
        "c60dd599c064b6b7b0bcd245223753352bf6d4f5478ddf8cd7c59504380b179c",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d128x512x3",
        17, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 175488, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x5-d64x512x6.cubin",
        "e0def0d73689ef9e8cdc7b9d7538713550d160f76a8c87dfc5b42af89a3abb61",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x5_d64x512x6",
        17, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 208256, 86, 196608, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u64x1024x5-d64x512x5.cubin",
        "8aa73cd7d8be359cf4fa967fcccfa561814c9fdaadb65af2e9e6e5ed88ec4bb8",
        "monomoe_qwen3_5_35b_t16_g132_u64x1024x5_d64x512x5",
        18, {132, 64, 1024, 64, 512, 5, 5}, 16, 132, 608, 164992, 74, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u32x512x5-d64x512x6.cubin",
        "9237a4013d233d405e6ab7c47b00bc8428e68f457ad5bf5226795fc9c310de0c",
        "monomoe_qwen3_5_35b_t32_g132_u32x512x5_d64x512x6",
        18, {132, 32, 512, 64, 512, 5, 6}, 32, 132, 608, 226176, 83, 860160, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u32x512x4-d128x512x4-pdl.cubin",
        "f9ba9ffe56c353c2ea35f6703e2a333369c14dadae30a4480487fb721e32534e",
        "monomoe_qwen3_5_35b_t8_g128_u32x512x4_d128x512x4_pdl",
        18, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 130304, 70, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "a50c3238345d2286d8f4f764ea45b45a84347bf33850cd4a6acce2cd5f25d5e9",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 72, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-pdl.cubin",
        "ef56acbf1a9b2db3579710e8b8b6e5e153aa829a78bc05ce1dd2f4dbced08c2e",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_pdl",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 72, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-raw.cubin",
        "f41ee7df2a98f0527a2eff33b36ed9567ae331fbc8c4f83af1e69dcf0e4d2ea4",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_raw",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 80, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-router.cubin",
        "578de9630a288e5c953cdc8fd80f71b2d1cf923c1d035985e1fc79316fd55dff",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_router",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 80, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-raw.cubin",
        "16f30bc90e05ad8f3d9af72d51f9b299a0f932657337f9c0cbc21905d1b3aa66",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_raw",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130304, 80, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-router.cubin",
        "dfcc4f8a88522b063777cac7119ef97fd91bf1382247f4338a0d50b1682d2e84",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_router",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130304, 80, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x6.cubin",
        "13b6667f5fd0516033f13e00a693be1e38168ca305338bbf7b5ca28c4df65128",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x6",
        18, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 163072, 72, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x6-router.cubin",
        "6a0418e927253ea67c16723e810c0037ee12dda80f282cab6d169c97bdef1089",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x6_router",
        18, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 163072, 86, 223232, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d128x512x5.cubin",
        "7d8573b3398da22940d6722141e26b34be96c6d704cd2be1abc3e91c20203a8d",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d128x512x5",
        18, {128, 64, 2048, 128, 512, 3, 5}, 8, 128, 608, 163072, 88, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d128x512x5-raw.cubin",
        "9cf6d75648be74ce0834a4fe050be3884319ddcf27911e45d0fcd00e02ff2534",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d128x512x5_raw",
        18, {128, 64, 2048, 128, 512, 3, 5}, 8, 128, 608, 163072, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"toy-t8-g128-u4x256x4-d16x128x5.cubin",
        "7fcaa330c63b5e718ffdefff56775b91c3ebdf392e6c1613bc60202a0d860f8b",
        "monomoe_toy_t8_g128_u4x256x4_d16x128x5",
        19, {128, 4, 256, 16, 128, 4, 5}, 8, 128, 608, 105856, 86, 67840, Layout::kPacked, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {0, 1, 8, 10.959},  // deepseek-v3-tp16, packed weights
    {0, 2, 8, 15.808},  // deepseek-v3-tp16, packed weights
    {0, 4, 8, 25.538},  // deepseek-v3-tp16, packed weights
    {0, 8, 8, 43.988},  // deepseek-v3-tp16, packed weights
    {1, 1, 8, 15.283},  // deepseek-v3-tp8, packed weights
    {1, 2, 8, 25.001},  // deepseek-v3-tp8, packed weights
    {1, 4, 8, 43.467},  // deepseek-v3-tp8, packed weights
    {1, 8, 8, 76.15},  // deepseek-v3-tp8, packed weights
    {8, 1, 8, 15.171},  // deepseek-v3.1-tp8, packed weights
    {10, 2, 8, 24.719},  // deepseek-v3.1-tp8, packed weights
    {10, 4, 8, 43.313},  // deepseek-v3.1-tp8, packed weights
    {10, 8, 8, 76.475},  // deepseek-v3.1-tp8, packed weights
    {4, 16, 16, 138.472},  // deepseek-v3.1-tp8, packed weights
    {5, 32, 32, 232.653},  // deepseek-v3.1-tp8, packed weights
    {9, 1, 8, 14.459},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {9, 2, 8, 24.032},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 4, 8, 43.43},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 8, 8, 76.956},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {6, 1, 8, 22.597},  // deepseek-v3.1-tp8, packed weights, router inside
    {6, 2, 8, 33.233},  // deepseek-v3.1-tp8, packed weights, router inside
    {11, 4, 8, 53.056},  // deepseek-v3.1-tp8, packed weights, router inside
    {11, 8, 8, 85.699},  // deepseek-v3.1-tp8, packed weights, router inside
    {7, 1, 8, 15.855},  // deepseek-v3.1-tp8, raw weights
    {7, 2, 8, 25.089},  // deepseek-v3.1-tp8, raw weights
    {13, 4, 8, 44.73},  // deepseek-v3.1-tp8, raw weights
    {7, 8, 8, 78.336},  // deepseek-v3.1-tp8, raw weights
    {3, 1, 8, 15.664},  // deepseek-v3.1-tp8-bf16, packed weights
    {2, 2, 8, 24.637},  // deepseek-v3.1-tp8-bf16, packed weights
    {2, 4, 8, 44.175},  // deepseek-v3.1-tp8-bf16, packed weights
    {2, 8, 8, 78.629},  // deepseek-v3.1-tp8-bf16, packed weights
    {15, 1, 8, 34.713},  // glm-4.5-air, packed weights
    {14, 2, 8, 64.465},  // glm-4.5-air, packed weights
    {15, 4, 8, 117.312},  // glm-4.5-air, packed weights
    {14, 8, 8, 205.724},  // glm-4.5-air, packed weights
    {26, 1, 8, 13.543},  // glm-5.2-tp8, packed weights
    {24, 2, 8, 21.483},  // glm-5.2-tp8, packed weights
    {20, 4, 8, 37.511},  // glm-5.2-tp8, packed weights
    {20, 8, 8, 66.22},  // glm-5.2-tp8, packed weights
    {18, 16, 16, 118.278},  // glm-5.2-tp8, packed weights
    {19, 32, 32, 200.394},  // glm-5.2-tp8, packed weights
    {27, 1, 8, 12.652},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {29, 2, 8, 20.696},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {21, 4, 8, 36.823},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {21, 8, 8, 65.933},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {28, 1, 8, 20.434},  // glm-5.2-tp8, packed weights, router inside
    {28, 2, 8, 29.16},  // glm-5.2-tp8, packed weights, router inside
    {28, 4, 8, 45.684},  // glm-5.2-tp8, packed weights, router inside
    {28, 8, 8, 75.066},  // glm-5.2-tp8, packed weights, router inside
    {22, 1, 8, 14.256},  // glm-5.2-tp8, raw weights
    {25, 2, 8, 22.205},  // glm-5.2-tp8, raw weights
    {25, 4, 8, 38.62},  // glm-5.2-tp8, raw weights
    {23, 8, 8, 66.723},  // glm-5.2-tp8, raw weights
    {16, 1, 8, 13.86},  // glm-5.2-tp8-bf16, packed weights
    {16, 2, 8, 21.869},  // glm-5.2-tp8-bf16, packed weights
    {16, 4, 8, 38.797},  // glm-5.2-tp8-bf16, packed weights
    {17, 8, 8, 68.34},  // glm-5.2-tp8-bf16, packed weights
    {30, 1, 8, 15.079},  // kimi-k2-tp8, packed weights
    {30, 2, 8, 24.289},  // kimi-k2-tp8, packed weights
    {30, 4, 8, 43.39},  // kimi-k2-tp8, packed weights
    {30, 8, 8, 78.254},  // kimi-k2-tp8, packed weights
    {31, 1, 8, 29.345},  // minimax-m2, packed weights
    {31, 2, 8, 53.411},  // minimax-m2, packed weights
    {31, 4, 8, 100.905},  // minimax-m2, packed weights
    {31, 8, 8, 185.306},  // minimax-m2, packed weights
    {32, 1, 8, 15.451},  // mixtral-8x7b-fp8-tp8, packed weights
    {32, 2, 8, 22.094},  // mixtral-8x7b-fp8-tp8, packed weights
    {32, 4, 8, 32.734},  // mixtral-8x7b-fp8-tp8, packed weights
    {32, 8, 8, 40.742},  // mixtral-8x7b-fp8-tp8, packed weights
    {33, 1, 8, 37.755},  // qwen3-235b-a22b, packed weights
    {33, 2, 8, 69.647},  // qwen3-235b-a22b, packed weights
    {34, 4, 8, 126.93},  // qwen3-235b-a22b, packed weights
    {33, 8, 8, 220.837},  // qwen3-235b-a22b, packed weights
    {36, 1, 8, 21.059},  // qwen3-235b-a22b-tp2, packed weights
    {35, 2, 8, 37.08},  // qwen3-235b-a22b-tp2, packed weights
    {35, 4, 8, 65.964},  // qwen3-235b-a22b-tp2, packed weights
    {35, 8, 8, 113.322},  // qwen3-235b-a22b-tp2, packed weights
    {37, 1, 8, 13.117},  // qwen3-235b-a22b-tp4, packed weights
    {37, 2, 8, 21.197},  // qwen3-235b-a22b-tp4, packed weights
    {37, 4, 8, 35.421},  // qwen3-235b-a22b-tp4, packed weights
    {37, 8, 8, 59.691},  // qwen3-235b-a22b-tp4, packed weights
    {38, 1, 8, 12.892},  // qwen3-30b-a3b, packed weights
    {39, 2, 8, 21.666},  // qwen3-30b-a3b, packed weights
    {39, 4, 8, 36.874},  // qwen3-30b-a3b, packed weights
    {39, 8, 8, 61.065},  // qwen3-30b-a3b, packed weights
    {40, 1, 8, 11.738},  // qwen3-next-80b-a3b, packed weights
    {40, 2, 8, 18.483},  // qwen3-next-80b-a3b, packed weights
    {40, 4, 8, 31.96},  // qwen3-next-80b-a3b, packed weights
    {41, 8, 8, 58.302},  // qwen3-next-80b-a3b, packed weights
    {45, 1, 8, 21.418},  // qwen3.5-122b, packed weights
    {50, 2, 8, 37.198},  // qwen3.5-122b, packed weights
    {50, 4, 8, 69.165},  // qwen3.5-122b, packed weights
    {45, 8, 8, 125.095},  // qwen3.5-122b, packed weights
    {43, 16, 16, 226.271},  // qwen3.5-122b, packed weights
    {44, 32, 32, 401.682},  // qwen3.5-122b, packed weights
    {46, 1, 8, 20.653},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {46, 2, 8, 36.93},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {46, 4, 8, 68.426},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {46, 8, 8, 125.067},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {49, 1, 8, 27.264},  // qwen3.5-122b, packed weights, router inside
    {49, 2, 8, 46.653},  // qwen3.5-122b, packed weights, router inside
    {49, 4, 8, 75.725},  // qwen3.5-122b, packed weights, router inside
    {49, 8, 8, 133.262},  // qwen3.5-122b, packed weights, router inside
    {48, 1, 8, 22.136},  // qwen3.5-122b, raw weights
    {47, 2, 8, 39.701},  // qwen3.5-122b, raw weights
    {48, 4, 8, 72.096},  // qwen3.5-122b, raw weights
    {47, 8, 8, 130.397},  // qwen3.5-122b, raw weights
    {42, 1, 8, 21.61},  // qwen3.5-122b-bf16, packed weights
    {42, 2, 8, 37.514},  // qwen3.5-122b-bf16, packed weights
    {42, 4, 8, 69.155},  // qwen3.5-122b-bf16, packed weights
    {42, 8, 8, 128.726},  // qwen3.5-122b-bf16, packed weights
    {57, 1, 8, 9.727},  // qwen3.5-35b, packed weights
    {57, 2, 8, 15.466},  // qwen3.5-35b, packed weights
    {65, 4, 8, 25.755},  // qwen3.5-35b, packed weights
    {63, 8, 8, 44.838},  // qwen3.5-35b, packed weights
    {54, 16, 16, 79.13},  // qwen3.5-35b, packed weights
    {55, 32, 32, 131.679},  // qwen3.5-35b, packed weights
    {58, 1, 8, 8.96},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {58, 2, 8, 14.428},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {56, 4, 8, 24.989},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {56, 8, 8, 43.781},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {60, 1, 8, 14.134},  // qwen3.5-35b, packed weights, router inside
    {62, 2, 8, 20.207},  // qwen3.5-35b, packed weights, router inside
    {62, 4, 8, 31.108},  // qwen3.5-35b, packed weights, router inside
    {64, 8, 8, 50.843},  // qwen3.5-35b, packed weights, router inside
    {59, 1, 8, 10.239},  // qwen3.5-35b, raw weights
    {61, 2, 8, 15.498},  // qwen3.5-35b, raw weights
    {61, 4, 8, 26.489},  // qwen3.5-35b, raw weights
    {66, 8, 8, 46.157},  // qwen3.5-35b, raw weights
    {52, 1, 8, 10.065},  // qwen3.5-35b-bf16, packed weights
    {51, 2, 8, 15.468},  // qwen3.5-35b-bf16, packed weights
    {51, 4, 8, 26.21},  // qwen3.5-35b-bf16, packed weights
    {53, 8, 8, 45.133},  // qwen3.5-35b-bf16, packed weights
    {67, 1, 8, 7.063},  // toy, packed weights
    {67, 2, 8, 7.257},  // toy, packed weights
    {67, 4, 8, 7.432},  // toy, packed weights
    {67, 8, 8, 7.662},  // toy, packed weights
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
