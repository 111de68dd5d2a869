// Kernels for NVIDIA H200, for programs without Python. Written by `monomoe-gen emit`; C++17, no CUDA headers.
//
// To serve a layer:
//   1. find() the entry for a model, a token count and a variant of the kernel. Load Kernel::file, which lies beside this header.
//   2. Allow Kernel::shared_bytes of dynamic shared memory, and ask the driver for the occupancy: the CTAs wait for
//      each other, so all Kernel::grid of them must be resident. One has to fit an SM, and the SMs have to suffice. Some
//      kernels are of clusters of two CTAs. The cubin carries that, so a launch does not state it; whether all clusters
//      are resident cuOccupancyMaxActiveClusters says, which has to be told.
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
    std::uint32_t workspace_half_bytes;  // what it needs of a workspace half
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
        "3b644b3470a147897d3bb796421303355ba3d2a318495274e35f73a1596f5922",
        "monomoe_deepseek_v3_tp16_t8_g128_u16x1024x4_d112x128x3",
        0, {128, 16, 1024, 112, 128, 4, 3}, 8, 128, 608, 147200, 90, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp16-t8-g132-u16x1024x4-d112x128x3.cubin",
        "f8d1ab1b948c275dfe0ca43cd0aa7f8dd10e861e24552f8d5b4c593315a9d325",
        "monomoe_deepseek_v3_tp16_t8_g132_u16x1024x4_d112x128x3",
        0, {132, 16, 1024, 112, 128, 4, 3}, 8, 132, 608, 147200, 90, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "44f2a212df09b4da1a1586cdf98459a966c4de0217d319ea180b55b68757ca3a",
        "monomoe_deepseek_v3_tp8_t8_g128_u32x1024x6_d56x256x3",
        1, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 192512, 92, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d112x256x4.cubin",
        "b0025c8e69b4390b5faf177ec26e3dba6ca4b30513a90cff7ebf5b74467f8d52",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d112x256x4",
        2, {128, 32, 1024, 112, 256, 4, 4}, 8, 128, 608, 224128, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d56x256x2.cubin",
        "b55a90c3b5249adb599149bbc85d5cbdb1c2d5dc743caae1837715619b466957",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d56x256x2",
        2, {128, 32, 1024, 56, 256, 4, 2}, 8, 128, 608, 228224, 91, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t16-g132-u32x1024x4-d112x256x4.cubin",
        "8f831b831a64d0e963969645d000acf636b16800759ec9b6319e9d705c8d13b2",
        "monomoe_deepseek_v3_1_tp8_t16_g132_u32x1024x4_d112x256x4",
        3, {132, 32, 1024, 112, 256, 4, 4}, 16, 132, 608, 216192, 89, 260096, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t32-g132-u16x1024x3-d112x256x5.cubin",
        "93c076ebcedd739bdc1cae56d4b2ff73daf1fcee7a87069e7387b722adfa9b89",
        "monomoe_deepseek_v3_1_tp8_t32_g132_u16x1024x3_d112x256x5",
        3, {132, 16, 1024, 112, 256, 3, 5}, 32, 132, 608, 146816, 96, 520192, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d112x256x4-raw.cubin",
        "29fc78e27ae501999c58dae1020d0c9d8a4b0ea00c473a328f5c27adaba5a0fc",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d112x256x4_raw",
        3, {128, 32, 1024, 112, 256, 5, 4}, 8, 128, 608, 172032, 87, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2.cubin",
        "27075cd056b83efcc3ed139c674124765c8d3eab0fe96553acdce34330c7bdff",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 176128, 92, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2-pdl.cubin",
        "6342584339232e30d8d949b889342867cc0c4d0a12c085b017867b5918fa8bed",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2_pdl",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 176128, 92, 130048, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "a411c4ac64e445068e6d85e7e6af4d0564b0cc6ad5acdd2918951b64219dcf6f",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 192512, 92, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3-router.cubin",
        "8c1c7fa21276b9a86b110765801f16885d79a69ba017cc10ccb5c02e3ca4f524",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3_router",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 192512, 95, 138240, Layout::kPacked, Router::kWeight, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x3-pdl.cubin",
        "865254abf9e03167ed782f223fb36176693fc926f6b1f441b5a41ddf40a3c584",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x3_pdl",
        3, {128, 32, 1024, 64, 256, 6, 3}, 8, 128, 608, 192512, 87, 130048, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4-raw.cubin",
        "e6de3aa916f3e358c0ba3000a542a02f285d15bbd6fc3267eb7ceb2186d967b3",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4_raw",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 225280, 91, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1792x3-d64x256x3-raw.cubin",
        "762925280913fee5d6bbdb145a50df1555b3ef6d94e0a8b4eff9051ba8c4abd6",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1792x3_d64x256x3_raw",
        3, {128, 32, 1792, 64, 256, 3, 3}, 8, 128, 608, 188416, 94, 130048, Layout::kRaw, Router::kLogits, false},
    {"glm-4.5-air-t8-g132-u176x1024x8-d128x1408x3.cubin",
        "0bc8ff90a9d12e31055ec2ddb0d7abce63dec4272e3da03d8b0a579657d8bbea",
        "monomoe_glm_4_5_air_t8_g132_u176x1024x8_d128x1408x3",
        4, {132, 176, 1024, 128, 1408, 8, 3}, 8, 132, 608, 207232, 86, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x4-d64x256x3.cubin",
        "1a555301ea6c30f0054e2c9fef095dee9937925b04e8335bc80d7c1d37176b95",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x4_d64x256x3",
        5, {128, 32, 1024, 64, 256, 4, 3}, 8, 128, 608, 219520, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x5-d64x256x3.cubin",
        "77a719a13f538e72073bd078edd1730999cde6ac9ad1103c3660454980492523",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x5_d64x256x3",
        5, {128, 32, 1024, 64, 256, 5, 3}, 8, 128, 608, 227712, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g132-u32x1024x5-d64x256x3.cubin",
        "1a8b817c2c662147321072daf6aa080676fe340e913eb7e5c1f45555beabe1de",
        "monomoe_glm_5_2_tp8_bf16_t8_g132_u32x1024x5_d64x256x3",
        5, {132, 32, 1024, 64, 256, 5, 3}, 8, 132, 608, 227712, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t16-g128-u32x1024x5-d64x256x3.cubin",
        "1fa997eea37d41c867273a4c5d1b44615dd7318b27ae853af67ec297a453ebe1",
        "monomoe_glm_5_2_tp8_t16_g128_u32x1024x5_d64x256x3",
        6, {128, 32, 1024, 64, 256, 5, 3}, 16, 128, 608, 230528, 90, 241664, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t32-g128-u16x1024x4-d64x256x4.cubin",
        "918eb9c68d043de4bf7f11dd8325af6909e9ca8bf08a2d2f1df0ce3a018bcc1d",
        "monomoe_glm_5_2_tp8_t32_g128_u16x1024x4_d64x256x4",
        6, {128, 16, 1024, 64, 256, 4, 4}, 32, 128, 608, 207744, 96, 483328, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5-pdl.cubin",
        "d225496d99c3206d4296dd78fc5fdc6629ad8601b39da5afd65045eccec20952",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5_pdl",
        6, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 208128, 84, 120832, Layout::kPacked, Router::kLogits, true},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d48x256x3-raw.cubin",
        "1b315a9dd68cdf1a1c4c5600ea8ce0a65d06e6e4a48a78bfd1fd29f36926f6c3",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d48x256x3_raw",
        6, {128, 32, 2048, 48, 256, 3, 3}, 8, 128, 608, 184064, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d64x256x3-raw.cubin",
        "da570f697732dd3f0bd3a4e093c5a08e07dbcbdbc47e22dab76bd8e9477db574",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d64x256x3_raw",
        6, {128, 32, 2048, 64, 256, 3, 3}, 8, 128, 608, 183552, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d64x256x4-raw.cubin",
        "d93bf4b258df6ca3728f175dac02bafff967124432abfd70661a907f542b9144",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d64x256x4_raw",
        6, {128, 32, 2048, 64, 256, 3, 4}, 8, 128, 608, 183552, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4.cubin",
        "c3371c9ae74cad3e2093c5ccd5cad3bc00077608b09168af7d869fe91b0626ff",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 216320, 91, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4-raw.cubin",
        "b8ee4b64151781d8a35b5c3679ef2f9fe0dfaf42e6f74c187a906da860692aba",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4_raw",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 216320, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x1024x6-d64x256x4-router.cubin",
        "022ffd8464274a1b85820389bd0386f0b977e89b80e45ed76ea92825c710d177",
        "monomoe_glm_5_2_tp8_t8_g132_u32x1024x6_d64x256x4_router",
        6, {132, 32, 1024, 64, 256, 6, 4}, 8, 132, 608, 183552, 95, 129024, Layout::kPacked, Router::kWeight, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3.cubin",
        "2254be714c49e067d8ca1c643883c9d3ef79355b03ceb36fd9edb4e796f0ee90",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 183552, 92, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-pdl.cubin",
        "d72c226f99fee07712fa2b508350569f75ac25c1b925146c53c98e30d7da0bfd",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_pdl",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 183552, 92, 120832, Layout::kPacked, Router::kLogits, true},
    {"glm-5.2-tp8-t8-g132-u32x2048x4-d64x256x4-pdl.cubin",
        "6f13c4047ce9d18b4831d036d0212342f8954a3ad278cfe4bfe4ced7c44f8aeb",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x4_d64x256x4_pdl",
        6, {132, 32, 2048, 64, 256, 4, 4}, 8, 132, 608, 216320, 92, 120832, Layout::kPacked, Router::kLogits, true},
    {"kimi-k2-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "c13bff7f0dc5660bf8e95a71e251e165eb93385d03ac5ec89f3939b7eedf98c6",
        "monomoe_kimi_k2_tp8_t8_g128_u32x1024x6_d56x256x3",
        7, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 192512, 92, 130048, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u192x1024x5-d64x512x4.cubin",
        "444f9f1c4a5a5b60ad3c689b53f280a27f35527ffa77108c1b8e85ffa3d8220f",
        "monomoe_minimax_m2_t8_g128_u192x1024x5_d64x512x4",
        8, {128, 192, 1024, 64, 512, 5, 4}, 8, 128, 608, 162176, 86, 420864, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u96x1024x3-d64x512x3.cubin",
        "c1789ee903c6a0c067276487ccf318276d3f611f53a8850851dfb6bc7d3bf32c",
        "monomoe_minimax_m2_t8_g128_u96x1024x3_d64x512x3",
        8, {128, 96, 1024, 64, 512, 3, 3}, 8, 128, 608, 170368, 96, 420864, Layout::kPacked, Router::kLogits, false},
    {"mixtral-8x7b-fp8-tp8-t8-g128-u224x2048x3-d128x896x3.cubin",
        "d27a60e4a48529017d333cf5139aba60c4eebd297751d974221724dc424dfd8a",
        "monomoe_mixtral_8x7b_fp8_tp8_t8_g128_u224x2048x3_d128x896x3",
        9, {128, 224, 2048, 128, 896, 3, 3}, 8, 128, 608, 171776, 94, 151552, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u192x2048x3-d64x512x3.cubin",
        "d403c274cbcd6717abb13f72cb4b60afb90f4449307938294ace056eb8df3864",
        "monomoe_qwen3_235b_a22b_t8_g128_u192x2048x3_d64x512x3",
        10, {128, 192, 2048, 64, 512, 3, 3}, 8, 128, 608, 170368, 93, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u96x1024x3-d64x512x3.cubin",
        "4af7db5de538aac3201cab8e1c6ee513bda72466e2f89da44cdd8221df3b9013",
        "monomoe_qwen3_235b_a22b_t8_g128_u96x1024x3_d64x512x3",
        10, {128, 96, 1024, 64, 512, 3, 3}, 8, 128, 608, 178560, 94, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u48x1024x3-d128x768x3.cubin",
        "4cf6aeb9e1dfb05ae9530b836a0916c6e16cc2d43c1c0f1d275a8723cfcc97e9",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u48x1024x3_d128x768x3",
        11, {128, 48, 1024, 128, 768, 3, 3}, 8, 128, 608, 177536, 96, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x1024x5-d64x384x4.cubin",
        "49a5fb239c6ac23a7f42bb800826da0f35ec527217ee6535e26e96439be33bbd",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x1024x5_d64x384x4",
        11, {128, 96, 1024, 64, 384, 5, 4}, 8, 128, 608, 171392, 86, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x2048x3-d128x768x3.cubin",
        "3096a628485510516b5d0e52ff00446ef6fc7074d4a00ba3cf0c467786220e87",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x2048x3_d128x768x3",
        11, {128, 96, 2048, 128, 768, 3, 3}, 8, 128, 608, 169344, 92, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x1024x5-d64x384x4.cubin",
        "02240e9cf959dadb5fa3531ed61b859d1753d1a33af9a95e4cb12ea32a643501",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x1024x5_d64x384x4",
        12, {128, 48, 1024, 64, 384, 5, 4}, 8, 128, 608, 173568, 78, 135168, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x2048x3-d64x384x3.cubin",
        "87e196b8e731cca8f796317349a8dbebbb23d813a070692a97f6d8871b31b546",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x2048x3_d64x384x3",
        12, {128, 48, 2048, 64, 384, 3, 3}, 8, 128, 608, 173568, 91, 135168, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x1024x5-d64x384x5.cubin",
        "3aac7250ef198ad98feda20ec1cd302fd1a8c1a4d18ede1981d87a68b096fc20",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x1024x5_d64x384x5",
        13, {128, 96, 1024, 64, 384, 5, 5}, 8, 128, 608, 137088, 84, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x2048x3-d64x768x3.cubin",
        "a3d0183e1e8476b15e19fbb172c6360df87114a6b49a698b59e44ca410efa9d9",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x2048x3_d64x768x3",
        13, {128, 96, 2048, 64, 768, 3, 3}, 8, 128, 608, 153472, 88, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "44526f3d468346e835627cd8074649e5e9f975134329b2749f26d6b80e6ee9c7",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d128x512x3",
        14, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130560, 72, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d64x512x4.cubin",
        "808e091ea99fbe5f88223ed9f64d897a8e5019712a6999cebd2cc7923a8b93ff",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d64x512x4",
        14, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 131584, 70, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x5-d64x512x4.cubin",
        "2d90b3ac16dc3204e64644c119876c5d9dca9e62ed97cee5c7507f35977fc6dc",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x5_d64x512x4",
        15, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 226688, 96, 262144, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t16-g132-u64x1024x3-d64x512x4.cubin",
        "d4bee7dbc6f128db816a6a713fadd2318a292e382bdad120389e0318510549e1",
        "monomoe_qwen3_5_122b_t16_g132_u64x1024x3_d64x512x4",
        16, {132, 64, 1024, 64, 512, 3, 4}, 16, 132, 608, 208384, 96, 579584, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t32-g132-u128x1024x3-d64x512x2.cubin",
        "44fd5d20930bf245aa1d4930ade7553efabfccfcb03caeb6dca31e99843922c1",
        "monomoe_qwen3_5_122b_t32_g132_u128x1024x3_d64x512x2",
        16, {132, 128, 1024, 64, 512, 3, 2}, 32, 132, 608, 232192, 96, 1159168, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4.cubin",
        "409de52a45d110e4d0450592d5bf2f5e0b3c6c03ec341294042801d1f8d4b778",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 171904, 96, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-pdl.cubin",
        "91f7dc83aaea09ada5809ab2c4a49d8cd9d2cb8a1dc8e0bd5fdaf2719d2c5c92",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_pdl",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 171904, 96, 289792, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-router.cubin",
        "6f91bd6d4740d6e7731bb53a2a4aae6f3c1a1648eff392ffff895e417e22b7ba",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_router",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 171904, 96, 297984, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g128-u128x1024x8-d64x512x5.cubin",
        "4224c84abbac879311c650dda61e2b5adef02976f2189e19d387ed925a969c2d",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x8_d64x512x5",
        16, {128, 128, 1024, 64, 512, 8, 5}, 8, 128, 608, 204800, 96, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x3072x2-d64x1024x2-raw.cubin",
        "142276c6ac5ca92531ed0920745ff34f1960feba7fe8af1e43929eab068fad9a",
        "monomoe_qwen3_5_122b_t8_g128_u128x3072x2_d64x1024x2_raw",
        16, {128, 128, 3072, 64, 1024, 2, 2}, 8, 128, 608, 176000, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u32x512x4-d128x512x4.cubin",
        "23ac603cf79d8d12664ecc2465a7414a90416269d5e40e8adb7bcd02704e6224",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u32x512x4_d128x512x4",
        17, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 175488, 85, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d64x512x4.cubin",
        "61c73cbb4e7c6229c1c779848be2fd666a8925d1bd38f263bc52d5983a45e84c",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d64x512x4",
        17, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 176512, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x5-d64x512x6.cubin",
        "9bd0b10b7df8bdadac6b8878521a7696947e40df657da94b7f47cbd32e6b3eea",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x5_d64x512x6",
        17, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 209280, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u64x1024x5-d64x512x5.cubin",
        "97486a65807d5833958865fff066afc99060e494084c60a1e1a348d09f5d55a5",
        "monomoe_qwen3_5_35b_t16_g132_u64x1024x5_d64x512x5",
        18, {132, 64, 1024, 64, 512, 5, 5}, 16, 132, 608, 167040, 75, 299008, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u32x512x5-d64x512x6.cubin",
        "c6351fbea3fdb61427e2188286f05d69136ab578b387726ab180fb8f4262d427",
        "monomoe_qwen3_5_35b_t32_g132_u32x512x5_d64x512x6",
        18, {132, 32, 512, 64, 512, 5, 6}, 32, 132, 608, 230272, 80, 598016, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u32x512x4-d128x512x4-pdl.cubin",
        "3449a35cb9d9629731595a7a0db32a59b9ea13f533d503cfb4610e038df7459b",
        "monomoe_qwen3_5_35b_t8_g128_u32x512x4_d128x512x4_pdl",
        18, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 130304, 70, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "2c7dd3db4ff0ec51637e795e46298e9eb5ceb2f1d8d1b6920a7e60d99012f045",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 72, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-pdl.cubin",
        "57c7367882c0aab195a5a589602e48fcab817868133139d4839ab02eb68022e9",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_pdl",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 72, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-raw.cubin",
        "3081b5c3d522bc5915da4ee1a06d73adb4f6767341f50f0e4f32434bb3e3917e",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_raw",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 80, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-router.cubin",
        "73f05bfc2e579fe7a13dc7d401b447eaea8b33bdf72715b3cf505186f0ca6b42",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_router",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130304, 80, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-raw.cubin",
        "c4add6fae06744c25473d814e300960e0b2abcec35933403bc8a1a707217d9b1",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_raw",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130304, 80, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-router.cubin",
        "fdd3851f8b707efeab530f648ccdc0d0d5d27aa6ab06635851d6ca5a2d85821b",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_router",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130304, 80, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d128x512x4.cubin",
        "abcdf59ba7b7b396af4546dc81a3b8af506f4ca9286c0f4a582e78102073f721",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d128x512x4",
        18, {128, 64, 1024, 128, 512, 5, 4}, 8, 128, 608, 146688, 72, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x6.cubin",
        "58d949e0ee7eb3cb573d89e93d3309fac8328e17682a61fa818c731c85ec95bd",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x6",
        18, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 164096, 70, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d128x512x5-raw.cubin",
        "d62abb9c7d6030c240af6e3c2ead906ae1a9fb6d71dec1a3251fdc059d8cab8f",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d128x512x5_raw",
        18, {128, 64, 2048, 128, 512, 3, 5}, 8, 128, 608, 163072, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d64x512x5-raw.cubin",
        "b7e9e236911bb5cf871a296327cfc0e7ee29ecca03022b1f37ccc2e5c3311ee6",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d64x512x5_raw",
        18, {128, 64, 2048, 64, 512, 3, 5}, 8, 128, 608, 164096, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"toy-t8-g128-u4x256x3-d16x128x4.cubin",
        "9e172f228420503fb28cec517af3e418af5ed8e8a7eee6f073c5ee5b28e9bef2",
        "monomoe_toy_t8_g128_u4x256x3_d16x128x4",
        19, {128, 4, 256, 16, 128, 3, 4}, 8, 128, 608, 89472, 86, 67840, Layout::kPacked, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {0, 1, 8, 10.808},  // deepseek-v3-tp16, packed weights
    {1, 2, 8, 15.895},  // deepseek-v3-tp16, packed weights
    {0, 4, 8, 25.414},  // deepseek-v3-tp16, packed weights
    {1, 8, 8, 43.381},  // deepseek-v3-tp16, packed weights
    {2, 1, 8, 15.069},  // deepseek-v3-tp8, packed weights
    {2, 2, 8, 24.139},  // deepseek-v3-tp8, packed weights
    {2, 4, 8, 42.244},  // deepseek-v3-tp8, packed weights
    {2, 8, 8, 74.129},  // deepseek-v3-tp8, packed weights
    {8, 1, 8, 15.079},  // deepseek-v3.1-tp8, packed weights
    {10, 2, 8, 24.261},  // deepseek-v3.1-tp8, packed weights
    {10, 4, 8, 42.389},  // deepseek-v3.1-tp8, packed weights
    {10, 8, 8, 74.431},  // deepseek-v3.1-tp8, packed weights
    {5, 16, 16, 136.239},  // deepseek-v3.1-tp8, packed weights
    {6, 32, 32, 236.274},  // deepseek-v3.1-tp8, packed weights
    {9, 1, 8, 14.314},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 2, 8, 23.626},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 4, 8, 42.288},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 8, 8, 74.813},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {11, 1, 8, 22.488},  // deepseek-v3.1-tp8, packed weights, router inside
    {11, 2, 8, 32.562},  // deepseek-v3.1-tp8, packed weights, router inside
    {11, 4, 8, 50.904},  // deepseek-v3.1-tp8, packed weights, router inside
    {11, 8, 8, 84.036},  // deepseek-v3.1-tp8, packed weights, router inside
    {7, 1, 8, 15.771},  // deepseek-v3.1-tp8, raw weights
    {13, 2, 8, 24.94},  // deepseek-v3.1-tp8, raw weights
    {14, 4, 8, 43.716},  // deepseek-v3.1-tp8, raw weights
    {14, 8, 8, 76.316},  // deepseek-v3.1-tp8, raw weights
    {4, 1, 8, 15.325},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 2, 8, 24.243},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 4, 8, 43.371},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 8, 8, 77.434},  // deepseek-v3.1-tp8-bf16, packed weights
    {15, 1, 8, 34.099},  // glm-4.5-air, packed weights
    {15, 2, 8, 63.271},  // glm-4.5-air, packed weights
    {15, 4, 8, 114.967},  // glm-4.5-air, packed weights
    {15, 8, 8, 200.293},  // glm-4.5-air, packed weights
    {28, 1, 8, 13.394},  // glm-5.2-tp8, packed weights
    {25, 2, 8, 21.082},  // glm-5.2-tp8, packed weights
    {25, 4, 8, 36.712},  // glm-5.2-tp8, packed weights
    {28, 8, 8, 64.57},  // glm-5.2-tp8, packed weights
    {19, 16, 16, 115.764},  // glm-5.2-tp8, packed weights
    {20, 32, 32, 194.397},  // glm-5.2-tp8, packed weights
    {29, 1, 8, 12.605},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {30, 2, 8, 20.378},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {21, 4, 8, 36.336},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {29, 8, 8, 64.703},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {27, 1, 8, 20.34},  // glm-5.2-tp8, packed weights, router inside
    {27, 2, 8, 28.73},  // glm-5.2-tp8, packed weights, router inside
    {27, 4, 8, 44.796},  // glm-5.2-tp8, packed weights, router inside
    {27, 8, 8, 73.081},  // glm-5.2-tp8, packed weights, router inside
    {22, 1, 8, 13.883},  // glm-5.2-tp8, raw weights
    {23, 2, 8, 21.836},  // glm-5.2-tp8, raw weights
    {26, 4, 8, 37.509},  // glm-5.2-tp8, raw weights
    {24, 8, 8, 65.422},  // glm-5.2-tp8, raw weights
    {16, 1, 8, 13.427},  // glm-5.2-tp8-bf16, packed weights
    {17, 2, 8, 21.589},  // glm-5.2-tp8-bf16, packed weights
    {17, 4, 8, 37.879},  // glm-5.2-tp8-bf16, packed weights
    {18, 8, 8, 66.649},  // glm-5.2-tp8-bf16, packed weights
    {31, 1, 8, 14.758},  // kimi-k2-tp8, packed weights
    {31, 2, 8, 24.129},  // kimi-k2-tp8, packed weights
    {31, 4, 8, 42.336},  // kimi-k2-tp8, packed weights
    {31, 8, 8, 76.374},  // kimi-k2-tp8, packed weights
    {33, 1, 8, 29.193},  // minimax-m2, packed weights
    {33, 2, 8, 52.904},  // minimax-m2, packed weights
    {33, 4, 8, 99.149},  // minimax-m2, packed weights
    {32, 8, 8, 180.547},  // minimax-m2, packed weights
    {34, 1, 8, 15.514},  // mixtral-8x7b-fp8-tp8, packed weights
    {34, 2, 8, 22.248},  // mixtral-8x7b-fp8-tp8, packed weights
    {34, 4, 8, 31.968},  // mixtral-8x7b-fp8-tp8, packed weights
    {34, 8, 8, 40.592},  // mixtral-8x7b-fp8-tp8, packed weights
    {35, 1, 8, 36.503},  // qwen3-235b-a22b, packed weights
    {36, 2, 8, 67.715},  // qwen3-235b-a22b, packed weights
    {36, 4, 8, 123.392},  // qwen3-235b-a22b, packed weights
    {36, 8, 8, 214.922},  // qwen3-235b-a22b, packed weights
    {38, 1, 8, 20.541},  // qwen3-235b-a22b-tp2, packed weights
    {37, 2, 8, 36.407},  // qwen3-235b-a22b-tp2, packed weights
    {39, 4, 8, 64.427},  // qwen3-235b-a22b-tp2, packed weights
    {37, 8, 8, 110.748},  // qwen3-235b-a22b-tp2, packed weights
    {41, 1, 8, 12.819},  // qwen3-235b-a22b-tp4, packed weights
    {41, 2, 8, 20.669},  // qwen3-235b-a22b-tp4, packed weights
    {40, 4, 8, 34.79},  // qwen3-235b-a22b-tp4, packed weights
    {40, 8, 8, 58.144},  // qwen3-235b-a22b-tp4, packed weights
    {42, 1, 8, 12.826},  // qwen3-30b-a3b, packed weights
    {43, 2, 8, 21.05},  // qwen3-30b-a3b, packed weights
    {43, 4, 8, 35.421},  // qwen3-30b-a3b, packed weights
    {43, 8, 8, 58.651},  // qwen3-30b-a3b, packed weights
    {45, 1, 8, 11.371},  // qwen3-next-80b-a3b, packed weights
    {44, 2, 8, 18.399},  // qwen3-next-80b-a3b, packed weights
    {45, 4, 8, 31.34},  // qwen3-next-80b-a3b, packed weights
    {45, 8, 8, 56.674},  // qwen3-next-80b-a3b, packed weights
    {49, 1, 8, 20.502},  // qwen3.5-122b, packed weights
    {52, 2, 8, 36.354},  // qwen3.5-122b, packed weights
    {52, 4, 8, 67.087},  // qwen3.5-122b, packed weights
    {52, 8, 8, 121.63},  // qwen3.5-122b, packed weights
    {47, 16, 16, 220.107},  // qwen3.5-122b, packed weights
    {48, 32, 32, 393.625},  // qwen3.5-122b, packed weights
    {50, 1, 8, 19.706},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {50, 2, 8, 35.607},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {50, 4, 8, 66.365},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {50, 8, 8, 121.295},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {51, 1, 8, 28.177},  // qwen3.5-122b, packed weights, router inside
    {51, 2, 8, 43.742},  // qwen3.5-122b, packed weights, router inside
    {51, 4, 8, 75.843},  // qwen3.5-122b, packed weights, router inside
    {51, 8, 8, 130.832},  // qwen3.5-122b, packed weights, router inside
    {53, 1, 8, 21.593},  // qwen3.5-122b, raw weights
    {53, 2, 8, 37.568},  // qwen3.5-122b, raw weights
    {53, 4, 8, 68.704},  // qwen3.5-122b, raw weights
    {53, 8, 8, 124.362},  // qwen3.5-122b, raw weights
    {46, 1, 8, 20.976},  // qwen3.5-122b-bf16, packed weights
    {46, 2, 8, 36.756},  // qwen3.5-122b-bf16, packed weights
    {46, 4, 8, 67.708},  // qwen3.5-122b-bf16, packed weights
    {46, 8, 8, 123.987},  // qwen3.5-122b-bf16, packed weights
    {60, 1, 8, 9.691},  // qwen3.5-35b, packed weights
    {66, 2, 8, 15.079},  // qwen3.5-35b, packed weights
    {66, 4, 8, 25.227},  // qwen3.5-35b, packed weights
    {67, 8, 8, 43.721},  // qwen3.5-35b, packed weights
    {57, 16, 16, 77.566},  // qwen3.5-35b, packed weights
    {58, 32, 32, 127.498},  // qwen3.5-35b, packed weights
    {61, 1, 8, 9.043},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {61, 2, 8, 14.384},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {59, 4, 8, 24.655},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {59, 8, 8, 43.124},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {63, 1, 8, 14.276},  // qwen3.5-35b, packed weights, router inside
    {65, 2, 8, 20.34},  // qwen3.5-35b, packed weights, router inside
    {65, 4, 8, 30.95},  // qwen3.5-35b, packed weights, router inside
    {65, 8, 8, 50.789},  // qwen3.5-35b, packed weights, router inside
    {62, 1, 8, 10.021},  // qwen3.5-35b, raw weights
    {64, 2, 8, 15.405},  // qwen3.5-35b, raw weights
    {68, 4, 8, 26.302},  // qwen3.5-35b, raw weights
    {69, 8, 8, 45.522},  // qwen3.5-35b, raw weights
    {55, 1, 8, 9.651},  // qwen3.5-35b-bf16, packed weights
    {55, 2, 8, 15.199},  // qwen3.5-35b-bf16, packed weights
    {54, 4, 8, 25.795},  // qwen3.5-35b-bf16, packed weights
    {56, 8, 8, 44.161},  // qwen3.5-35b-bf16, packed weights
    {70, 1, 8, 7.122},  // toy, packed weights
    {70, 2, 8, 7.213},  // toy, packed weights
    {70, 4, 8, 7.425},  // toy, packed weights
    {70, 8, 8, 7.652},  // toy, packed weights
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
