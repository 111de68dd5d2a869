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
        "70d8110fadc149fa851deb13e5e58a37fa4a05082b530f556b3f590fb78f496b",
        "monomoe_deepseek_v3_tp16_t8_g128_u16x1024x4_d112x128x3",
        0, {128, 16, 1024, 112, 128, 4, 3}, 8, 128, 608, 148992, 87, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp16-t8-g132-u16x1024x4-d112x128x3.cubin",
        "011bc38c1baef5563e950fb3a04a301d48239bfec54bd180eb6ca0e8c8bc4d5f",
        "monomoe_deepseek_v3_tp16_t8_g132_u16x1024x4_d112x128x3",
        0, {132, 16, 1024, 112, 128, 4, 3}, 8, 132, 608, 148992, 87, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp8-t8-g128-u32x1024x4-d112x256x3.cubin",
        "c9d04ed5888b77ca574957da6a99296d10bbcbce0f7e6f9d7325e6b0e5b21914",
        "monomoe_deepseek_v3_tp8_t8_g128_u32x1024x4_d112x256x3",
        1, {128, 32, 1024, 112, 256, 4, 3}, 8, 128, 608, 157440, 87, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "e9502b7e3a22a358b4c64ad310450418145b4d5064ce1b59a6adbd12320d7d3c",
        "monomoe_deepseek_v3_tp8_t8_g128_u32x1024x6_d56x256x3",
        1, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 93, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d112x256x4.cubin",
        "ba7d8254685cb84bd491fa2bdf792e7fd1ef6fa7a6e2cb59504e7f0d5e8bac0f",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d112x256x4",
        2, {128, 32, 1024, 112, 256, 4, 4}, 8, 128, 608, 225920, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g132-u32x1024x4-d112x256x4.cubin",
        "b08c1f72ae70fe6fe01e2917b220ba9c6ca39e8e89ca76fc53d1dc1c56bacea8",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g132_u32x1024x4_d112x256x4",
        2, {132, 32, 1024, 112, 256, 4, 4}, 8, 132, 608, 225920, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t16-g132-u32x1024x4-d112x256x4.cubin",
        "0a36db0642e1fe07571bcec85b7b3bdb4df2dd1ee70ef649f774256447789bb4",
        "monomoe_deepseek_v3_1_tp8_t16_g132_u32x1024x4_d112x256x4",
        3, {132, 32, 1024, 112, 256, 4, 4}, 16, 132, 608, 217984, 89, 260096, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t32-g132-u16x1024x3-d112x256x5.cubin",
        "dcd10da41cf11ad42b8055c10726977dc11573bd47d610e400916184de542896",
        "monomoe_deepseek_v3_1_tp8_t32_g132_u16x1024x3_d112x256x5",
        3, {132, 16, 1024, 112, 256, 3, 5}, 32, 132, 608, 148608, 96, 520192, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d112x256x4-raw.cubin",
        "451d11c1a2f4b7205e1ad41ac9d68eb40d152def8621448c35f4bbf156a0cad5",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d112x256x4_raw",
        3, {128, 32, 1024, 112, 256, 5, 4}, 8, 128, 608, 173824, 87, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2.cubin",
        "29663a1abc4d500183e29a515d063ed85f5cbeee54823e37e0fd301ac386e5e5",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 177920, 93, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2-pdl.cubin",
        "23bc12fe7c27cec61e1d97c201ca206fa74cf885a054d9ff5880ddc725bb3e48",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2_pdl",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 177920, 93, 130048, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "f86787f044b95a32b6a6c603092817f7c4823b783b8b38b7c15c90737157e147",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 93, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3-router.cubin",
        "3999526ba8085ae74acf7bd7121647ccf02f9b11cbd61f8781c26d121ae9923c",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3_router",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 95, 138240, Layout::kPacked, Router::kWeight, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x3-pdl.cubin",
        "92e4f80a2fe4deab8770df68ea77126bddf51cf59872a864d2a98e590ce115e9",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x3_pdl",
        3, {128, 32, 1024, 64, 256, 6, 3}, 8, 128, 608, 194304, 88, 130048, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4-raw.cubin",
        "98a8268eb92e4258a087b8924a033fd181f2d93aa58c99c3676b68d6e78e62a7",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4_raw",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 227200, 92, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1792x3-d64x256x3-raw.cubin",
        "571cb390d039fb062cd0c13b4e44d70177ca8199fb4dde496c6be4ef80e92caa",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1792x3_d64x256x3_raw",
        3, {128, 32, 1792, 64, 256, 3, 3}, 8, 128, 608, 190464, 96, 130048, Layout::kRaw, Router::kLogits, false},
    {"glm-4.5-air-t8-g132-u176x1024x8-d128x1408x3.cubin",
        "19016b9eadeaa7d77e1565ca7778ba2ee1c36380a18a53a16189bfbbedaf1af3",
        "monomoe_glm_4_5_air_t8_g132_u176x1024x8_d128x1408x3",
        4, {132, 176, 1024, 128, 1408, 8, 3}, 8, 132, 608, 208256, 88, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x4-d64x256x3.cubin",
        "ed115ebd4b90b156afac841d391cb71c0355a47c15e1457b32ac9594a481bb0d",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x4_d64x256x3",
        5, {128, 32, 1024, 64, 256, 4, 3}, 8, 128, 608, 221056, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x5-d64x256x3.cubin",
        "41341e61128e43c1ede98b17dfc5721ff45283b4f09de3c86b288b1e3a34876c",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x5_d64x256x3",
        5, {128, 32, 1024, 64, 256, 5, 3}, 8, 128, 608, 229248, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t16-g128-u32x1024x5-d64x256x3.cubin",
        "bdbe4e09d54c6bef8087679bec992e36be591e325a4a45ccca1e164eea105c3c",
        "monomoe_glm_5_2_tp8_t16_g128_u32x1024x5_d64x256x3",
        6, {128, 32, 1024, 64, 256, 5, 3}, 16, 128, 608, 232064, 90, 241664, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t32-g128-u32x2048x4-d64x256x4.cubin",
        "7172674db00d958419d3d935e6454cd90761c34f8c1bca95adce4a5fd1f50c3b",
        "monomoe_glm_5_2_tp8_t32_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 32, 128, 608, 209280, 96, 483328, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d64x256x3-raw.cubin",
        "55a87ade59fd913629780fa62aaaca3a0fa00c6d9c2759133cebec5b483bd536",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d64x256x3_raw",
        6, {128, 32, 2048, 64, 256, 3, 3}, 8, 128, 608, 185088, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4.cubin",
        "0c192b985d12011f0dcde14580ffc6c7cfa425c44a8fd1340afa62fc17348d8f",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 217856, 93, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4-raw.cubin",
        "b57d6d13a478923f94190f60a20931076a5519ec23943874909990a5aea7852e",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4_raw",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 217856, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3.cubin",
        "82d66a04928ef112907655a38981c349fc57b3d7e95c05c522cc9191e732742b",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 185088, 89, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-pdl.cubin",
        "938e0e6fea678551e590e3430be1275077aedbec84240679c7b43857fd2e7185",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_pdl",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 185088, 89, 120832, Layout::kPacked, Router::kLogits, true},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-router.cubin",
        "0ebdedbc9363cfa861eae02758848f990e23a6acd4b75f73281830873b32d66b",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_router",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 185088, 95, 129024, Layout::kPacked, Router::kWeight, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x4-d64x256x4-pdl.cubin",
        "81091fc9e77987bba700a64b5f156c98b4a7dbfccabfd9ee279545b6a6e2734a",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x4_d64x256x4_pdl",
        6, {132, 32, 2048, 64, 256, 4, 4}, 8, 132, 608, 217856, 89, 120832, Layout::kPacked, Router::kLogits, true},
    {"kimi-k2-tp8-t8-g128-u32x1024x4-d112x256x3.cubin",
        "9b80329e8800e3e79342777d80bb741dd4521e8c4b7226f33c5b3d8c91ce649e",
        "monomoe_kimi_k2_tp8_t8_g128_u32x1024x4_d112x256x3",
        7, {128, 32, 1024, 112, 256, 4, 3}, 8, 128, 608, 157440, 87, 130048, Layout::kPacked, Router::kLogits, false},
    {"kimi-k2-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "2b3209904957852ef14a9a48838ea3acd50d110512b6b3345e585881982ca4f9",
        "monomoe_kimi_k2_tp8_t8_g128_u32x1024x6_d56x256x3",
        7, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 93, 130048, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u192x1024x5-d64x512x4.cubin",
        "26d85f70195aedc712756bd2199c97d1c1e614e39c85cdeca7d0cd4b611e8e78",
        "monomoe_minimax_m2_t8_g128_u192x1024x5_d64x512x4",
        8, {128, 192, 1024, 64, 512, 5, 4}, 8, 128, 608, 162944, 90, 420864, Layout::kPacked, Router::kLogits, false},
    {"mixtral-8x7b-fp8-tp8-t8-g128-u224x2048x3-d128x896x3.cubin",
        "dd0c1ea2e5c378efda735562a88c5eae3c36b092a187ed733a8b307c4dbb9302",
        "monomoe_mixtral_8x7b_fp8_tp8_t8_g128_u224x2048x3_d128x896x3",
        9, {128, 224, 2048, 128, 896, 3, 3}, 8, 128, 608, 172928, 96, 151552, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u192x2048x3-d64x512x3.cubin",
        "5775decef153f47df1c51f768d14d6006dc1c9b8ad34e5464c8f7d3b0dbb082f",
        "monomoe_qwen3_235b_a22b_t8_g128_u192x2048x3_d64x512x3",
        10, {128, 192, 2048, 64, 512, 3, 3}, 8, 128, 608, 171392, 92, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u96x1024x3-d64x512x3.cubin",
        "7619136dbf1c7d8a3fd787d351bd51df1805ea6d117fd96d18cbc87c810a2108",
        "monomoe_qwen3_235b_a22b_t8_g128_u96x1024x3_d64x512x3",
        10, {128, 96, 1024, 64, 512, 3, 3}, 8, 128, 608, 179584, 92, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x1024x5-d64x384x4.cubin",
        "340305ee2d3ff5a3df4c2ea90488d48e0a202f3660033a43ffeeea1907db5b5f",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x1024x5_d64x384x4",
        11, {128, 96, 1024, 64, 384, 5, 4}, 8, 128, 608, 172544, 78, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x2048x3-d128x768x3.cubin",
        "ba42f017795736df1f6cbc6dd146f6d6a7e3a897aac57bcd37e05683328b87c2",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x2048x3_d128x768x3",
        11, {128, 96, 2048, 128, 768, 3, 3}, 8, 128, 608, 170496, 88, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x1024x5-d64x384x4.cubin",
        "99c3f516a248e170bb119b6173911644de0bb5bc345859e72f0bf6284ad8a90c",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x1024x5_d64x384x4",
        12, {128, 48, 1024, 64, 384, 5, 4}, 8, 128, 608, 174592, 77, 135168, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x2048x3-d64x384x3.cubin",
        "2420b285e50314868157e954e693437dd81ef002ec4f0b1b3f2fc96943ffeca7",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x2048x3_d64x384x3",
        12, {128, 48, 2048, 64, 384, 3, 3}, 8, 128, 608, 174592, 90, 135168, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x2048x3-d64x768x3.cubin",
        "756f04011bf269fc69bd64fd77677a3dbe7adaca16376f0bbbbc56548029bfaf",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x2048x3_d64x768x3",
        13, {128, 96, 2048, 64, 768, 3, 3}, 8, 128, 608, 153984, 82, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "33751bf464d6d88a85330f811e78fac09671fc5e980e24d34a970d3f44b1b85e",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d128x512x3",
        14, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 131072, 72, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d64x512x4.cubin",
        "db051b0f9af699e052aaf06ab0776517eaf6e6042d577cb9a96def1460d0fa32",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d64x512x4",
        14, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 132096, 70, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x5-d64x512x4.cubin",
        "03729113a08a8b5106675525aab309a4fa59e7fe3e23e750fa1f457cf0bc12ea",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x5_d64x512x4",
        15, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 227456, 79, 262144, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x6-d64x512x4.cubin",
        "354bad231ad0bfbd0cd4341d83360e36e133c15014b03b7dadb0fbbbe9bfafe9",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x6_d64x512x4",
        15, {128, 128, 1024, 64, 512, 6, 4}, 8, 128, 608, 227456, 79, 262144, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t16-g132-u64x1024x3-d64x512x4.cubin",
        "402a337100b92cdcce357f3703d230739303f8b42f26696d4b3c856b64130c17",
        "monomoe_qwen3_5_122b_t16_g132_u64x1024x3_d64x512x4",
        16, {132, 64, 1024, 64, 512, 3, 4}, 16, 132, 608, 209152, 93, 579584, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t32-g132-u128x1024x4-d96x512x4.cubin",
        "7ecc3880c29e48bc5ded7bed6849cb68fd9362ed20396ae400eeb5e9e74f01bd",
        "monomoe_qwen3_5_122b_t32_g132_u128x1024x4_d96x512x4",
        16, {132, 128, 1024, 96, 512, 4, 4}, 32, 132, 608, 225920, 87, 1159168, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4.cubin",
        "4e4cbf634861258206580ff91f6ccec92c81d23648b6866a6155a5ec45fb5f86",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172800, 87, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-pdl.cubin",
        "9f0f9e61dda45328cb1586de6a67c195524be4f9157d589015cadc1e3b1ea3e1",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_pdl",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172800, 87, 289792, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-router.cubin",
        "1dceae8a49181e89d0fb096508737bda0da6210177736a55222963f69fe9279f",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_router",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172800, 92, 297984, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g128-u128x1024x8-d64x512x5.cubin",
        "04f7fbc311c974fb05d2a12e1fe7f74a711e02f4dad67bdd087f79db9fff8898",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x8_d64x512x5",
        16, {128, 128, 1024, 64, 512, 8, 5}, 8, 128, 608, 205568, 87, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x3072x2-d64x1024x2-raw.cubin",
        "7068047e085bcf9e05bd0266ab0e53509f47b96b9d9608b5f50e0a40e6dc5812",
        "monomoe_qwen3_5_122b_t8_g128_u128x3072x2_d64x1024x2_raw",
        16, {128, 128, 3072, 64, 1024, 2, 2}, 8, 128, 608, 176768, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d128x512x3.cubin",
        "0514bda1c1ffaf6e40f20ae86f35589cafce6c44558debb12c338fb794d95564",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d128x512x3",
        17, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 176000, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d64x512x4.cubin",
        "d8dcc3223edd03849c0384163da72ef6c5e8a083ff4eef3d224f7a2ceacfb14b",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d64x512x4",
        17, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 177024, 89, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x5-d64x512x6.cubin",
        "9b41e3715c4bc108d1c3d0d2a0e7f318001ebfe598257bf96bff1b1c40125996",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x5_d64x512x6",
        17, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 209792, 89, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u32x512x4-d64x512x5.cubin",
        "92f0d114a8997fffaa319b18024d372ec16291ba71bb180c4ae02409ec498be7",
        "monomoe_qwen3_5_35b_t16_g132_u32x512x4_d64x512x5",
        18, {132, 32, 512, 64, 512, 4, 5}, 16, 132, 608, 168064, 73, 299008, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u32x512x5-d64x512x6.cubin",
        "a59d8eb4b11fe903e9909623716114495601e6d805209cdfe100297718ed7378",
        "monomoe_qwen3_5_35b_t32_g132_u32x512x5_d64x512x6",
        18, {132, 32, 512, 64, 512, 5, 6}, 32, 132, 608, 231296, 80, 598016, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-pdl.cubin",
        "9d60828436baaf19b1281631e5404fe18936b7263f8563bda8ac601637795403",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_pdl",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130816, 70, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-router.cubin",
        "5dfab1821aa3f3eaf388d286a7d107e0c1f021256749241647f8e1a27fd46fa7",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_router",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130816, 72, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4.cubin",
        "93b58389af7148a607647c51298f79186a720f4d191e6c3a67d7de69564122bd",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130816, 70, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-router.cubin",
        "1a8bc72701c380b2602f87457fcc8d9f1dadbec8b51e0981cece4e7a830879ab",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_router",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130816, 72, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d64x512x3.cubin",
        "7a95eddd37fde0056217ae71aafad2b043814e7fae6d7f0d246ee482030af258",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d64x512x3",
        18, {128, 64, 1024, 64, 512, 4, 3}, 8, 128, 608, 131840, 70, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d64x512x3-pdl.cubin",
        "9cd8af397eefcc0eb9f2b2cd4fa9c6318f4a6132a1178b2ec322d3b1c6c7ac1f",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d64x512x3_pdl",
        18, {128, 64, 1024, 64, 512, 4, 3}, 8, 128, 608, 131840, 70, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d64x512x3-raw.cubin",
        "ea8850f8a80a3bc55f90bc1affc69b9c01040593d4549f88f22403eac3f3dffd",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d64x512x3_raw",
        18, {128, 64, 1024, 64, 512, 4, 3}, 8, 128, 608, 131840, 80, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x5.cubin",
        "56a4283e3bee0900d1512b4a981de878e358fcc9555fc840bddf19b5e9359433",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x5",
        18, {128, 64, 1024, 64, 512, 5, 5}, 8, 128, 608, 148224, 70, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d128x512x5-raw.cubin",
        "a5f1b61132087994eb4cba1aa3d6155b79e4b74c65be5ba421038c6a0484f593",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d128x512x5_raw",
        18, {128, 64, 2048, 128, 512, 3, 5}, 8, 128, 608, 163584, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d64x512x5-raw.cubin",
        "2a98edae7b5165270d93a7682b1795b8e36be92de7dba3d78a1370bf56da11dd",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d64x512x5_raw",
        18, {128, 64, 2048, 64, 512, 3, 5}, 8, 128, 608, 164608, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"toy-t8-g128-u4x256x3-d16x128x4.cubin",
        "e96eb6eaefa193a0c128a81541574caee8a2faeaba9737af186a200c92e67619",
        "monomoe_toy_t8_g128_u4x256x3_d16x128x4",
        19, {128, 4, 256, 16, 128, 3, 4}, 8, 128, 608, 89728, 82, 67840, Layout::kPacked, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {0, 1, 8, 10.687},  // deepseek-v3-tp16, packed weights
    {0, 2, 8, 15.482},  // deepseek-v3-tp16, packed weights
    {1, 4, 8, 24.993},  // deepseek-v3-tp16, packed weights
    {0, 8, 8, 42.648},  // deepseek-v3-tp16, packed weights
    {2, 1, 8, 14.718},  // deepseek-v3-tp8, packed weights
    {3, 2, 8, 23.796},  // deepseek-v3-tp8, packed weights
    {3, 4, 8, 41.843},  // deepseek-v3-tp8, packed weights
    {3, 8, 8, 73.671},  // deepseek-v3-tp8, packed weights
    {9, 1, 8, 14.591},  // deepseek-v3.1-tp8, packed weights
    {11, 2, 8, 23.818},  // deepseek-v3.1-tp8, packed weights
    {11, 4, 8, 41.95},  // deepseek-v3.1-tp8, packed weights
    {11, 8, 8, 73.668},  // deepseek-v3.1-tp8, packed weights
    {6, 16, 16, 134.5},  // deepseek-v3.1-tp8, packed weights
    {7, 32, 32, 232.072},  // deepseek-v3.1-tp8, packed weights
    {10, 1, 8, 14.118},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {13, 2, 8, 23.542},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {13, 4, 8, 42.225},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {13, 8, 8, 74.783},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {12, 1, 8, 22.182},  // deepseek-v3.1-tp8, packed weights, router inside
    {12, 2, 8, 31.727},  // deepseek-v3.1-tp8, packed weights, router inside
    {12, 4, 8, 50.041},  // deepseek-v3.1-tp8, packed weights, router inside
    {12, 8, 8, 83.78},  // deepseek-v3.1-tp8, packed weights, router inside
    {8, 1, 8, 15.111},  // deepseek-v3.1-tp8, raw weights
    {8, 2, 8, 24.541},  // deepseek-v3.1-tp8, raw weights
    {15, 4, 8, 42.972},  // deepseek-v3.1-tp8, raw weights
    {14, 8, 8, 74.96},  // deepseek-v3.1-tp8, raw weights
    {4, 1, 8, 14.662},  // deepseek-v3.1-tp8-bf16, packed weights
    {4, 2, 8, 23.956},  // deepseek-v3.1-tp8-bf16, packed weights
    {4, 4, 8, 43.378},  // deepseek-v3.1-tp8-bf16, packed weights
    {5, 8, 8, 77.446},  // deepseek-v3.1-tp8-bf16, packed weights
    {16, 1, 8, 34.347},  // glm-4.5-air, packed weights
    {16, 2, 8, 63.284},  // glm-4.5-air, packed weights
    {16, 4, 8, 115.076},  // glm-4.5-air, packed weights
    {16, 8, 8, 200.717},  // glm-4.5-air, packed weights
    {24, 1, 8, 13.001},  // glm-5.2-tp8, packed weights
    {24, 2, 8, 20.882},  // glm-5.2-tp8, packed weights
    {24, 4, 8, 36.344},  // glm-5.2-tp8, packed weights
    {22, 8, 8, 63.832},  // glm-5.2-tp8, packed weights
    {19, 16, 16, 113.939},  // glm-5.2-tp8, packed weights
    {20, 32, 32, 187.687},  // glm-5.2-tp8, packed weights
    {27, 1, 8, 12.218},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {25, 2, 8, 20.09},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {25, 4, 8, 35.803},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {25, 8, 8, 63.763},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {26, 1, 8, 20.035},  // glm-5.2-tp8, packed weights, router inside
    {26, 2, 8, 27.98},  // glm-5.2-tp8, packed weights, router inside
    {26, 4, 8, 44.2},  // glm-5.2-tp8, packed weights, router inside
    {26, 8, 8, 72.675},  // glm-5.2-tp8, packed weights, router inside
    {21, 1, 8, 13.456},  // glm-5.2-tp8, raw weights
    {21, 2, 8, 21.429},  // glm-5.2-tp8, raw weights
    {21, 4, 8, 37.088},  // glm-5.2-tp8, raw weights
    {23, 8, 8, 64.545},  // glm-5.2-tp8, raw weights
    {17, 1, 8, 13.032},  // glm-5.2-tp8-bf16, packed weights
    {17, 2, 8, 21.297},  // glm-5.2-tp8-bf16, packed weights
    {18, 4, 8, 37.204},  // glm-5.2-tp8-bf16, packed weights
    {18, 8, 8, 65.683},  // glm-5.2-tp8-bf16, packed weights
    {28, 1, 8, 14.466},  // kimi-k2-tp8, packed weights
    {29, 2, 8, 23.79},  // kimi-k2-tp8, packed weights
    {29, 4, 8, 41.987},  // kimi-k2-tp8, packed weights
    {29, 8, 8, 75.782},  // kimi-k2-tp8, packed weights
    {30, 1, 8, 28.499},  // minimax-m2, packed weights
    {30, 2, 8, 52.581},  // minimax-m2, packed weights
    {30, 4, 8, 98.696},  // minimax-m2, packed weights
    {30, 8, 8, 180.961},  // minimax-m2, packed weights
    {31, 1, 8, 15.657},  // mixtral-8x7b-fp8-tp8, packed weights
    {31, 2, 8, 21.758},  // mixtral-8x7b-fp8-tp8, packed weights
    {31, 4, 8, 31.153},  // mixtral-8x7b-fp8-tp8, packed weights
    {31, 8, 8, 39.626},  // mixtral-8x7b-fp8-tp8, packed weights
    {32, 1, 8, 36.079},  // qwen3-235b-a22b, packed weights
    {33, 2, 8, 67.754},  // qwen3-235b-a22b, packed weights
    {33, 4, 8, 123.169},  // qwen3-235b-a22b, packed weights
    {33, 8, 8, 214.43},  // qwen3-235b-a22b, packed weights
    {34, 1, 8, 20.417},  // qwen3-235b-a22b-tp2, packed weights
    {35, 2, 8, 36.172},  // qwen3-235b-a22b-tp2, packed weights
    {35, 4, 8, 64.51},  // qwen3-235b-a22b-tp2, packed weights
    {34, 8, 8, 111.364},  // qwen3-235b-a22b-tp2, packed weights
    {37, 1, 8, 12.785},  // qwen3-235b-a22b-tp4, packed weights
    {37, 2, 8, 20.6},  // qwen3-235b-a22b-tp4, packed weights
    {36, 4, 8, 34.385},  // qwen3-235b-a22b-tp4, packed weights
    {36, 8, 8, 58.189},  // qwen3-235b-a22b-tp4, packed weights
    {38, 1, 8, 12.49},  // qwen3-30b-a3b, packed weights
    {38, 2, 8, 20.212},  // qwen3-30b-a3b, packed weights
    {38, 4, 8, 34.233},  // qwen3-30b-a3b, packed weights
    {38, 8, 8, 58.013},  // qwen3-30b-a3b, packed weights
    {39, 1, 8, 11.166},  // qwen3-next-80b-a3b, packed weights
    {39, 2, 8, 17.849},  // qwen3-next-80b-a3b, packed weights
    {40, 4, 8, 30.832},  // qwen3-next-80b-a3b, packed weights
    {40, 8, 8, 56.357},  // qwen3-next-80b-a3b, packed weights
    {45, 1, 8, 20.454},  // qwen3.5-122b, packed weights
    {45, 2, 8, 36.304},  // qwen3.5-122b, packed weights
    {48, 4, 8, 67.118},  // qwen3.5-122b, packed weights
    {45, 8, 8, 121.791},  // qwen3.5-122b, packed weights
    {43, 16, 16, 219.875},  // qwen3.5-122b, packed weights
    {44, 32, 32, 390.754},  // qwen3.5-122b, packed weights
    {46, 1, 8, 19.757},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {46, 2, 8, 35.632},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {46, 4, 8, 66.463},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {46, 8, 8, 121.889},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {47, 1, 8, 26.054},  // qwen3.5-122b, packed weights, router inside
    {47, 2, 8, 41.847},  // qwen3.5-122b, packed weights, router inside
    {47, 4, 8, 73.467},  // qwen3.5-122b, packed weights, router inside
    {47, 8, 8, 129.476},  // qwen3.5-122b, packed weights, router inside
    {49, 1, 8, 21.486},  // qwen3.5-122b, raw weights
    {49, 2, 8, 37.533},  // qwen3.5-122b, raw weights
    {49, 4, 8, 68.487},  // qwen3.5-122b, raw weights
    {49, 8, 8, 123.926},  // qwen3.5-122b, raw weights
    {41, 1, 8, 21.117},  // qwen3.5-122b-bf16, packed weights
    {41, 2, 8, 36.764},  // qwen3.5-122b-bf16, packed weights
    {41, 4, 8, 67.249},  // qwen3.5-122b-bf16, packed weights
    {42, 8, 8, 123.406},  // qwen3.5-122b-bf16, packed weights
    {59, 1, 8, 9.597},  // qwen3.5-35b, packed weights
    {57, 2, 8, 14.488},  // qwen3.5-35b, packed weights
    {62, 4, 8, 24.965},  // qwen3.5-35b, packed weights
    {62, 8, 8, 43.728},  // qwen3.5-35b, packed weights
    {53, 16, 16, 77.695},  // qwen3.5-35b, packed weights
    {54, 32, 32, 127.19},  // qwen3.5-35b, packed weights
    {60, 1, 8, 8.647},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {55, 2, 8, 13.977},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {55, 4, 8, 24.691},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {55, 8, 8, 43.782},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {56, 1, 8, 13.439},  // qwen3.5-35b, packed weights, router inside
    {58, 2, 8, 19.274},  // qwen3.5-35b, packed weights, router inside
    {58, 4, 8, 30.087},  // qwen3.5-35b, packed weights, router inside
    {58, 8, 8, 50.213},  // qwen3.5-35b, packed weights, router inside
    {61, 1, 8, 10.065},  // qwen3.5-35b, raw weights
    {63, 2, 8, 15.171},  // qwen3.5-35b, raw weights
    {64, 4, 8, 25.986},  // qwen3.5-35b, raw weights
    {64, 8, 8, 44.943},  // qwen3.5-35b, raw weights
    {50, 1, 8, 9.764},  // qwen3.5-35b-bf16, packed weights
    {51, 2, 8, 15.267},  // qwen3.5-35b-bf16, packed weights
    {51, 4, 8, 25.608},  // qwen3.5-35b-bf16, packed weights
    {52, 8, 8, 44.32},  // qwen3.5-35b-bf16, packed weights
    {65, 1, 8, 7.194},  // toy, packed weights
    {65, 2, 8, 7.264},  // toy, packed weights
    {65, 4, 8, 7.504},  // toy, packed weights
    {65, 8, 8, 7.661},  // toy, packed weights
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
