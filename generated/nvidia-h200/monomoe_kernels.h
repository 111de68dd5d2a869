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
        "b98bf19889ba87c1883d1b4cbb6d0054e7655634dd3c15884382100d178623b5",
        "monomoe_deepseek_v3_tp16_t8_g128_u16x1024x4_d112x128x3",
        0, {128, 16, 1024, 112, 128, 4, 3}, 8, 128, 608, 148992, 87, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp16-t8-g132-u16x1024x4-d112x128x3.cubin",
        "18e5fd227669b4f39ebca034238302b0c9b07e8a55cee424546f18767ef57c9b",
        "monomoe_deepseek_v3_tp16_t8_g132_u16x1024x4_d112x128x3",
        0, {132, 16, 1024, 112, 128, 4, 3}, 8, 132, 608, 148992, 87, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "1d2e3758d49e2186e1d5499d7a1fdeb1e0d71cfef38de5c4d299cb6ec75ba063",
        "monomoe_deepseek_v3_tp8_t8_g128_u32x1024x6_d56x256x3",
        1, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 91, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d112x256x4.cubin",
        "bef29f044801bf1f7b60ccb1a919616c09afcd0f08485039f89d39f8e45ccb70",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d112x256x4",
        2, {128, 32, 1024, 112, 256, 4, 4}, 8, 128, 608, 225920, 86, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t16-g132-u32x1024x4-d112x256x4.cubin",
        "589d2a05094a7c57ca36ed5e49a0fc2a9bed6f563fc87bf6b83b69f5ac088cb9",
        "monomoe_deepseek_v3_1_tp8_t16_g132_u32x1024x4_d112x256x4",
        3, {132, 32, 1024, 112, 256, 4, 4}, 16, 132, 608, 217984, 89, 260096, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t32-g132-u16x1024x3-d112x256x5.cubin",
        "a7ba4a6c1a600d358385fd7b32a4e3b853419de2b07e8322b92ebb784fba46bc",
        "monomoe_deepseek_v3_1_tp8_t32_g132_u16x1024x3_d112x256x5",
        3, {132, 16, 1024, 112, 256, 3, 5}, 32, 132, 608, 148608, 96, 520192, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d112x256x4-raw.cubin",
        "99a4890d0413785d264c14c0f74deaa042a82c1d0ec9659118128e89a615d9e0",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d112x256x4_raw",
        3, {128, 32, 1024, 112, 256, 5, 4}, 8, 128, 608, 173824, 87, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2.cubin",
        "d99336d73488af55386f62ef432fe794eadb26a9ddbeeb61534b9caed5cd8406",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 177920, 91, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2-pdl.cubin",
        "d67bf48ef60bc674a05919e7f9fb7e52923704ce0624638ad7b8f3901d3b81e8",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2_pdl",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 177920, 91, 130048, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "9484822c6dbffe9ef5228fcb1bf93685aacf897dcfff84f256dad9ae49e2c28b",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 91, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3-router.cubin",
        "28fd8f4fc93e8f69e97f65f34d889bd58c5671dbc2e212867f83322c425e2e3e",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3_router",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 95, 138240, Layout::kPacked, Router::kWeight, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x3-pdl.cubin",
        "e450254cc46ba5190859fa9fcbde40d76ae22bd8001daf1208f0b7e4deaab0a0",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x3_pdl",
        3, {128, 32, 1024, 64, 256, 6, 3}, 8, 128, 608, 194304, 87, 130048, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4-raw.cubin",
        "7af58155b40b9a69b3be1b77e051d0d97bf9d01e727f0de37fbcc9ec3b1224bf",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4_raw",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 227072, 91, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1792x3-d64x256x3-raw.cubin",
        "67fe8b4f29caa9eadeab0562f2b2cbd0b4fc414638d04a6ffceb4ed76488eebe",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1792x3_d64x256x3_raw",
        3, {128, 32, 1792, 64, 256, 3, 3}, 8, 128, 608, 190464, 92, 130048, Layout::kRaw, Router::kLogits, false},
    {"glm-4.5-air-t8-g128-u176x1024x8-d128x1408x3.cubin",
        "6d1c3bbdf4b527304e4ef92af030fefe9bbae064e40c16022e0a2cc6e26af48b",
        "monomoe_glm_4_5_air_t8_g128_u176x1024x8_d128x1408x3",
        4, {128, 176, 1024, 128, 1408, 8, 3}, 8, 128, 608, 208256, 86, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-4.5-air-t8-g132-u176x1024x8-d128x1408x3.cubin",
        "88044fc5bbf89b63a2ef6ba291109ccbf825a357686a30d49f8b8d8f33b20a78",
        "monomoe_glm_4_5_air_t8_g132_u176x1024x8_d128x1408x3",
        4, {132, 176, 1024, 128, 1408, 8, 3}, 8, 132, 608, 208256, 86, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x4-d64x256x3.cubin",
        "e740694dd72050e0e377818f4795487bc14a17601eddd4680274f8d2ee2ec8f2",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x4_d64x256x3",
        5, {128, 32, 1024, 64, 256, 4, 3}, 8, 128, 608, 221056, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x5-d64x256x3.cubin",
        "7f0eef04c5a226ac1e3f6ca07daf1aa0d2f0ee932781a11a8a7bc4a9625caba8",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x5_d64x256x3",
        5, {128, 32, 1024, 64, 256, 5, 3}, 8, 128, 608, 229248, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g132-u32x1024x5-d64x256x3.cubin",
        "77cb5c4e60c6fd7c9fd093faa8fc6965d3a222a35c8e720e4d986080fd40b1e2",
        "monomoe_glm_5_2_tp8_bf16_t8_g132_u32x1024x5_d64x256x3",
        5, {132, 32, 1024, 64, 256, 5, 3}, 8, 132, 608, 229248, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t16-g132-u32x1024x4-d64x256x3.cubin",
        "a4d75a3d10650b9faa68a3470abbfaad0e722eb47907114530c48b09088a8070",
        "monomoe_glm_5_2_tp8_t16_g132_u32x1024x4_d64x256x3",
        6, {132, 32, 1024, 64, 256, 4, 3}, 16, 132, 608, 223872, 90, 241664, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t32-g128-u32x2048x4-d64x256x4.cubin",
        "6f229814c5b95aa43ba4fa20fb636411976d39931c060c42194a1d73c57a63ec",
        "monomoe_glm_5_2_tp8_t32_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 32, 128, 608, 209280, 96, 483328, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5-router.cubin",
        "6da3f278b11fb6b2fa7ac8a91d3bbebc49f3e77ede5ecbef54a4ca24d0f5d375",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5_router",
        6, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 209664, 95, 129024, Layout::kPacked, Router::kWeight, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d48x256x3-raw.cubin",
        "0144be31a231669f0780cabaffa592002f888a71af0de57eb32cb3b3d367ce0b",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d48x256x3_raw",
        6, {128, 32, 2048, 48, 256, 3, 3}, 8, 128, 608, 185600, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d64x256x4.cubin",
        "302af2ab81a1773082f7eeeb6e5415c52a2be267eebb0be7a7730990d39da6ba",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d64x256x4",
        6, {128, 32, 2048, 64, 256, 3, 4}, 8, 128, 608, 185088, 89, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4.cubin",
        "ca792de5981bdc0ef34153946c8d28c83d9d3909bdd4451a23babd78a86cda09",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 217856, 89, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4-raw.cubin",
        "83b55561a1e1cba70f771e6d7ab9e3366aa5b4050581c7d6671081f7f82aec1c",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4_raw",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 217856, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3.cubin",
        "c12e5072c496e6f7a97b9381734daefeaaeef96185f598147fc4f5537bc12dba",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 185088, 89, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-pdl.cubin",
        "3542b674b931e3b2305b7e97d043b18ecd05e89b4126cbbfed649ea0e3d78465",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_pdl",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 185088, 89, 120832, Layout::kPacked, Router::kLogits, true},
    {"glm-5.2-tp8-t8-g132-u32x2048x4-d64x256x4-pdl.cubin",
        "11c52aa24a330a042bb4c9f8289c42f142bdc403d7ebfcc0fda52dfb38e02bc2",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x4_d64x256x4_pdl",
        6, {132, 32, 2048, 64, 256, 4, 4}, 8, 132, 608, 217856, 89, 120832, Layout::kPacked, Router::kLogits, true},
    {"kimi-k2-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "b286683a5cc0f904c8d3545e6dc64e277c1d4c9283d3040698f2ba5d375163f9",
        "monomoe_kimi_k2_tp8_t8_g128_u32x1024x6_d56x256x3",
        7, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 92, 130048, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u192x1024x5-d64x512x4.cubin",
        "fe96ca32a8a3ba4e242aca62b38b26d554a232b0b6b470849b515cff54f3327f",
        "monomoe_minimax_m2_t8_g128_u192x1024x5_d64x512x4",
        8, {128, 192, 1024, 64, 512, 5, 4}, 8, 128, 608, 162944, 92, 420864, Layout::kPacked, Router::kLogits, false},
    {"mixtral-8x7b-fp8-tp8-t8-g128-u224x2048x3-d128x896x3.cubin",
        "6e89bb241273404858702bd6f3a4c38a13c964b829282169ec697666779452db",
        "monomoe_mixtral_8x7b_fp8_tp8_t8_g128_u224x2048x3_d128x896x3",
        9, {128, 224, 2048, 128, 896, 3, 3}, 8, 128, 608, 172800, 94, 151552, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u96x1024x3-d64x512x3.cubin",
        "b94a39746b077d05460c16694f491deb291c40cf40d0f46bd96cf8a403a6c904",
        "monomoe_qwen3_235b_a22b_t8_g128_u96x1024x3_d64x512x3",
        10, {128, 96, 1024, 64, 512, 3, 3}, 8, 128, 608, 179584, 92, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u48x1024x3-d128x768x3.cubin",
        "9333837ec3f28cd0566a3035c7ee4201c95595ad559a241b1f8dd3f59ea5892f",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u48x1024x3_d128x768x3",
        11, {128, 48, 1024, 128, 768, 3, 3}, 8, 128, 608, 178560, 92, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x1024x5-d64x384x4.cubin",
        "ae5cd58c7197fcfe097d4121826b063b436ca204ee3db57fcb7162c367e73b42",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x1024x5_d64x384x4",
        11, {128, 96, 1024, 64, 384, 5, 4}, 8, 128, 608, 172416, 78, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x2048x3-d128x768x3.cubin",
        "de7360e9fb7f709c587d23058b3b6d8535b21b03a6e5693720e6ff6b633d8c02",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x2048x3_d128x768x3",
        11, {128, 96, 2048, 128, 768, 3, 3}, 8, 128, 608, 170368, 87, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x1024x5-d64x384x4.cubin",
        "cb2e4bb54d16c5665c49c47e1c4950142fdd1f2d58e8255e2aa1d62cb413aeba",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x1024x5_d64x384x4",
        12, {128, 48, 1024, 64, 384, 5, 4}, 8, 128, 608, 174592, 77, 135168, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x2048x3-d64x384x3.cubin",
        "5c3c1901d6ff154f2f3c1ff21a9726bd5ee4bab8484bd6123dfa6b3ed242fbfe",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x2048x3_d64x384x3",
        12, {128, 48, 2048, 64, 384, 3, 3}, 8, 128, 608, 174592, 87, 135168, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x1024x5-d64x384x5.cubin",
        "b21cd0a13a63806b6a2a600f8eba41abe306a2d13c8d60663e200284c87e551f",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x1024x5_d64x384x5",
        13, {128, 96, 1024, 64, 384, 5, 5}, 8, 128, 608, 137600, 80, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x2048x3-d64x768x3.cubin",
        "90d0594a8889ebfd3c06971e999d2bc63c538fe3153948e824888f9128c9d4ab",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x2048x3_d64x768x3",
        13, {128, 96, 2048, 64, 768, 3, 3}, 8, 128, 608, 153984, 79, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "35f14da02f847d90ce2e88617c99538d33d222661fbcb534fbfa6f600514887b",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d128x512x3",
        14, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 131072, 72, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d64x512x4.cubin",
        "88b7baf4526aee83851f2db83c983c90ee5eb16d1fb391fee2c3088ffa9ac7d3",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d64x512x4",
        14, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 132096, 67, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g132-u64x1024x4-d64x512x4.cubin",
        "9ab3edf28ac40178447ef52aeb5c6a087e26e7120a9fb6f9c9cc275b43459f47",
        "monomoe_qwen3_next_80b_a3b_t8_g132_u64x1024x4_d64x512x4",
        14, {132, 64, 1024, 64, 512, 4, 4}, 8, 132, 608, 132096, 66, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x4-d64x512x3.cubin",
        "88d194814f674b3a84582e149e8acc13ad27b82d16ae0d5ab99e43036384bdea",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x4_d64x512x3",
        15, {128, 128, 1024, 64, 512, 4, 3}, 8, 128, 608, 202880, 83, 262144, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x5-d64x512x4.cubin",
        "d81c19e807c8f63f995e05d081ce3f7d9bfee1811d036093c32ac49bc62bd354",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x5_d64x512x4",
        15, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 227456, 83, 262144, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t16-g132-u64x1024x3-d64x512x4.cubin",
        "20914ce8c82f6119316872087e1c894c56eed96314a494b33c72e8c23b39bd9d",
        "monomoe_qwen3_5_122b_t16_g132_u64x1024x3_d64x512x4",
        16, {132, 64, 1024, 64, 512, 3, 4}, 16, 132, 608, 209152, 92, 579584, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t32-g132-u128x1024x4-d96x512x4.cubin",
        "86026b91ff0042eaecffbbbb742f69e96d2af9176ce7762649079e1140db2886",
        "monomoe_qwen3_5_122b_t32_g132_u128x1024x4_d96x512x4",
        16, {132, 128, 1024, 96, 512, 4, 4}, 32, 132, 608, 225792, 88, 1159168, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4.cubin",
        "7d6e49a3737a2a1f1e1c2c0c17dec0fdaa1ce3b54b8ae49754be455f52640125",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172672, 86, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-pdl.cubin",
        "1cad9579d61690df6807d93f63c70799f6cfa1140f979f6a300c364f27186143",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_pdl",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172672, 86, 289792, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-router.cubin",
        "fd176e07d6ae04f23f1f6fca42fb651ed2b7f4c36f58999bc9b0cc383c944187",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_router",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172672, 92, 297984, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g128-u128x3072x2-d64x1024x2-raw.cubin",
        "b445429664b2bedb9f5b63fff4c5470f677dd90eef9414e5e19dee41fec1daa9",
        "monomoe_qwen3_5_122b_t8_g128_u128x3072x2_d64x1024x2_raw",
        16, {128, 128, 3072, 64, 1024, 2, 2}, 8, 128, 608, 176768, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u64x1024x3-d64x512x3.cubin",
        "888ca80765f074fa5b9f8f27ae54bc03b5ac026718c91dfb57c7955d8c646f46",
        "monomoe_qwen3_5_122b_t8_g128_u64x1024x3_d64x512x3",
        16, {128, 64, 1024, 64, 512, 3, 3}, 8, 128, 608, 180864, 91, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u64x1024x3-d64x512x4.cubin",
        "634bf5c32048ef99786a7ba0d4160f4ee16f7bf6745003c5dc410682cfad031d",
        "monomoe_qwen3_5_122b_t8_g128_u64x1024x3_d64x512x4",
        16, {128, 64, 1024, 64, 512, 3, 4}, 8, 128, 608, 180864, 91, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x5-d64x512x3.cubin",
        "9601c3721d817dc2faafe96a18bfe7969a57da39b58172bfdf5ee16d24dd3aa2",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x5_d64x512x3",
        16, {132, 128, 1024, 64, 512, 5, 3}, 8, 132, 608, 156288, 86, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d64x512x4.cubin",
        "d68c8915464f9d3d4ca41445c6e64d63fdad64e3a0ff2eb33d2be66eef33077b",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d64x512x4",
        17, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 177024, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x5-d64x512x6.cubin",
        "71d6deeae35269b8ca8ee84c2ed5731c02d0be93975844cd4c47181ec2c1c5d0",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x5_d64x512x6",
        17, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 209792, 86, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u32x512x4-d64x512x5.cubin",
        "360200f4c1d45b5fa6960bd52780ebec8a6dd7682c865217482f47fc4cc01356",
        "monomoe_qwen3_5_35b_t16_g132_u32x512x4_d64x512x5",
        18, {132, 32, 512, 64, 512, 4, 5}, 16, 132, 608, 168064, 71, 299008, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u32x512x5-d64x512x6.cubin",
        "f038f6d508c4be19662c9da599e6cbbf0b130b20c9bbabdcc511b8139fb575b5",
        "monomoe_qwen3_5_35b_t32_g132_u32x512x5_d64x512x6",
        18, {132, 32, 512, 64, 512, 5, 6}, 32, 132, 608, 231296, 81, 598016, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u32x512x4-d128x512x4-pdl.cubin",
        "037e652e22018e8eed0f8eec1cece452039f8f2b0d0068cf0f95783a89c82e88",
        "monomoe_qwen3_5_35b_t8_g128_u32x512x4_d128x512x4_pdl",
        18, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 131328, 67, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-pdl.cubin",
        "d1717f0492478103875cdd60e0b358589d418dfc0462f046776416d13aac7ac0",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_pdl",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130816, 67, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-router.cubin",
        "e329d1d1ce438318dc69d177e52f0ccb52e62d41d1386545050ce235ddeaa486",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_router",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130816, 72, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4.cubin",
        "29b644c6e59f7def74e31f42871b8b9506232a110e8a25a0029d8a6bac62f8ee",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130816, 67, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-router.cubin",
        "f616f4ef9fe1924a0d56e0e8bfcbf1164f0de6d896aee3c3fe76c14da5adfde7",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_router",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130816, 72, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d64x512x3.cubin",
        "81af9e196b2a73fe6629529f1eb3996f03a630ef42129883964827132b4127a0",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d64x512x3",
        18, {128, 64, 1024, 64, 512, 4, 3}, 8, 128, 608, 131840, 66, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d64x512x3-pdl.cubin",
        "d2617128f6cf99927dddfde2947221e058afa165cbd03f4a7e817c8ac7c09000",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d64x512x3_pdl",
        18, {128, 64, 1024, 64, 512, 4, 3}, 8, 128, 608, 131840, 66, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x2048x2-d128x512x4-raw.cubin",
        "209f3b86a9e2e367f825fc9caf64a1ec690f2c33ff7b1a7498133b9f97966ef6",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x2_d128x512x4_raw",
        18, {128, 64, 2048, 128, 512, 2, 4}, 8, 128, 608, 130816, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x2-d64x512x4-raw.cubin",
        "f2c9ce3c786fdfea1ac2389f9605964c355aa375ecb53aa0ecf5e865c44500d6",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x2_d64x512x4_raw",
        18, {128, 64, 2048, 64, 512, 2, 4}, 8, 128, 608, 131840, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d128x512x5-raw.cubin",
        "2c9c387d7cc821571674bb03c9e5f4310248a6b0db9283c4f82f5393c1ad6cca",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d128x512x5_raw",
        18, {128, 64, 2048, 128, 512, 3, 5}, 8, 128, 608, 163584, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g132-u64x1024x4-d64x512x4.cubin",
        "cb0467bfbd8a6ad029654e38427f7a341e692771e5a0bf843570a9e3b494fb7a",
        "monomoe_qwen3_5_35b_t8_g132_u64x1024x4_d64x512x4",
        18, {132, 64, 1024, 64, 512, 4, 4}, 8, 132, 608, 131840, 65, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g132-u64x2048x3-d64x512x5-raw.cubin",
        "3de626b16b483721c9ede6a102a4c98d3ab12d01e142cb5532c3fd3a5d595461",
        "monomoe_qwen3_5_35b_t8_g132_u64x2048x3_d64x512x5_raw",
        18, {132, 64, 2048, 64, 512, 3, 5}, 8, 132, 608, 164608, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"toy-t8-g128-u4x256x3-d16x128x4.cubin",
        "4ef8de00d07421ae7bcee765c4a0e08d75aba26120cb161ce87d4c406f64c5eb",
        "monomoe_toy_t8_g128_u4x256x3_d16x128x4",
        19, {128, 4, 256, 16, 128, 3, 4}, 8, 128, 608, 89728, 86, 67840, Layout::kPacked, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {1, 1, 8, 10.833},  // deepseek-v3-tp16, packed weights
    {1, 2, 8, 15.624},  // deepseek-v3-tp16, packed weights
    {0, 4, 8, 25.34},  // deepseek-v3-tp16, packed weights
    {1, 8, 8, 43.156},  // deepseek-v3-tp16, packed weights
    {2, 1, 8, 14.959},  // deepseek-v3-tp8, packed weights
    {2, 2, 8, 24.124},  // deepseek-v3-tp8, packed weights
    {2, 4, 8, 42.65},  // deepseek-v3-tp8, packed weights
    {2, 8, 8, 74.887},  // deepseek-v3-tp8, packed weights
    {7, 1, 8, 14.726},  // deepseek-v3.1-tp8, packed weights
    {9, 2, 8, 24.101},  // deepseek-v3.1-tp8, packed weights
    {9, 4, 8, 42.636},  // deepseek-v3.1-tp8, packed weights
    {9, 8, 8, 75.394},  // deepseek-v3.1-tp8, packed weights
    {4, 16, 16, 136.516},  // deepseek-v3.1-tp8, packed weights
    {5, 32, 32, 233.679},  // deepseek-v3.1-tp8, packed weights
    {8, 1, 8, 14.209},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {11, 2, 8, 23.76},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {11, 4, 8, 42.844},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {11, 8, 8, 75.881},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {10, 1, 8, 22.281},  // deepseek-v3.1-tp8, packed weights, router inside
    {10, 2, 8, 32.078},  // deepseek-v3.1-tp8, packed weights, router inside
    {10, 4, 8, 50.889},  // deepseek-v3.1-tp8, packed weights, router inside
    {10, 8, 8, 85.121},  // deepseek-v3.1-tp8, packed weights, router inside
    {6, 1, 8, 15.641},  // deepseek-v3.1-tp8, raw weights
    {6, 2, 8, 24.729},  // deepseek-v3.1-tp8, raw weights
    {13, 4, 8, 43.907},  // deepseek-v3.1-tp8, raw weights
    {12, 8, 8, 76.424},  // deepseek-v3.1-tp8, raw weights
    {3, 1, 8, 14.846},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 2, 8, 24.373},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 4, 8, 43.853},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 8, 8, 78.165},  // deepseek-v3.1-tp8-bf16, packed weights
    {15, 1, 8, 34.819},  // glm-4.5-air, packed weights
    {14, 2, 8, 64.222},  // glm-4.5-air, packed weights
    {15, 4, 8, 117.228},  // glm-4.5-air, packed weights
    {15, 8, 8, 205.31},  // glm-4.5-air, packed weights
    {23, 1, 8, 13.147},  // glm-5.2-tp8, packed weights
    {23, 2, 8, 21.278},  // glm-5.2-tp8, packed weights
    {26, 4, 8, 37.09},  // glm-5.2-tp8, packed weights
    {24, 8, 8, 65.782},  // glm-5.2-tp8, packed weights
    {19, 16, 16, 116.805},  // glm-5.2-tp8, packed weights
    {20, 32, 32, 193.084},  // glm-5.2-tp8, packed weights
    {28, 1, 8, 12.405},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {27, 2, 8, 20.495},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {27, 4, 8, 36.629},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {27, 8, 8, 65.36},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {21, 1, 8, 20.934},  // glm-5.2-tp8, packed weights, router inside
    {21, 2, 8, 28.706},  // glm-5.2-tp8, packed weights, router inside
    {21, 4, 8, 45.867},  // glm-5.2-tp8, packed weights, router inside
    {21, 8, 8, 75.439},  // glm-5.2-tp8, packed weights, router inside
    {22, 1, 8, 13.688},  // glm-5.2-tp8, raw weights
    {22, 2, 8, 21.899},  // glm-5.2-tp8, raw weights
    {25, 4, 8, 37.793},  // glm-5.2-tp8, raw weights
    {25, 8, 8, 65.912},  // glm-5.2-tp8, raw weights
    {17, 1, 8, 13.402},  // glm-5.2-tp8-bf16, packed weights
    {16, 2, 8, 21.585},  // glm-5.2-tp8-bf16, packed weights
    {17, 4, 8, 37.751},  // glm-5.2-tp8-bf16, packed weights
    {18, 8, 8, 66.926},  // glm-5.2-tp8-bf16, packed weights
    {29, 1, 8, 14.666},  // kimi-k2-tp8, packed weights
    {29, 2, 8, 24.183},  // kimi-k2-tp8, packed weights
    {29, 4, 8, 42.972},  // kimi-k2-tp8, packed weights
    {29, 8, 8, 77.488},  // kimi-k2-tp8, packed weights
    {30, 1, 8, 29.066},  // minimax-m2, packed weights
    {30, 2, 8, 53.584},  // minimax-m2, packed weights
    {30, 4, 8, 100.864},  // minimax-m2, packed weights
    {30, 8, 8, 185.072},  // minimax-m2, packed weights
    {31, 1, 8, 15.036},  // mixtral-8x7b-fp8-tp8, packed weights
    {31, 2, 8, 21.39},  // mixtral-8x7b-fp8-tp8, packed weights
    {31, 4, 8, 32.011},  // mixtral-8x7b-fp8-tp8, packed weights
    {31, 8, 8, 39.404},  // mixtral-8x7b-fp8-tp8, packed weights
    {32, 1, 8, 36.9},  // qwen3-235b-a22b, packed weights
    {32, 2, 8, 68.919},  // qwen3-235b-a22b, packed weights
    {32, 4, 8, 125.531},  // qwen3-235b-a22b, packed weights
    {32, 8, 8, 219.005},  // qwen3-235b-a22b, packed weights
    {35, 1, 8, 21.037},  // qwen3-235b-a22b-tp2, packed weights
    {35, 2, 8, 36.727},  // qwen3-235b-a22b-tp2, packed weights
    {34, 4, 8, 65.688},  // qwen3-235b-a22b-tp2, packed weights
    {33, 8, 8, 113.261},  // qwen3-235b-a22b-tp2, packed weights
    {36, 1, 8, 12.792},  // qwen3-235b-a22b-tp4, packed weights
    {37, 2, 8, 20.907},  // qwen3-235b-a22b-tp4, packed weights
    {36, 4, 8, 35.057},  // qwen3-235b-a22b-tp4, packed weights
    {36, 8, 8, 58.965},  // qwen3-235b-a22b-tp4, packed weights
    {38, 1, 8, 12.81},  // qwen3-30b-a3b, packed weights
    {39, 2, 8, 20.603},  // qwen3-30b-a3b, packed weights
    {39, 4, 8, 35.109},  // qwen3-30b-a3b, packed weights
    {39, 8, 8, 59.052},  // qwen3-30b-a3b, packed weights
    {40, 1, 8, 11.21},  // qwen3-next-80b-a3b, packed weights
    {41, 2, 8, 18.046},  // qwen3-next-80b-a3b, packed weights
    {42, 4, 8, 31.227},  // qwen3-next-80b-a3b, packed weights
    {42, 8, 8, 57.102},  // qwen3-next-80b-a3b, packed weights
    {47, 1, 8, 20.63},  // qwen3.5-122b, packed weights
    {53, 2, 8, 37.166},  // qwen3.5-122b, packed weights
    {51, 4, 8, 68.594},  // qwen3.5-122b, packed weights
    {52, 8, 8, 125.019},  // qwen3.5-122b, packed weights
    {45, 16, 16, 224.578},  // qwen3.5-122b, packed weights
    {46, 32, 32, 401.936},  // qwen3.5-122b, packed weights
    {48, 1, 8, 20.006},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {48, 2, 8, 36.127},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {48, 4, 8, 67.495},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {48, 8, 8, 123.733},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {49, 1, 8, 26.387},  // qwen3.5-122b, packed weights, router inside
    {49, 2, 8, 42.324},  // qwen3.5-122b, packed weights, router inside
    {49, 4, 8, 74.7},  // qwen3.5-122b, packed weights, router inside
    {49, 8, 8, 130.928},  // qwen3.5-122b, packed weights, router inside
    {50, 1, 8, 21.965},  // qwen3.5-122b, raw weights
    {50, 2, 8, 38.245},  // qwen3.5-122b, raw weights
    {50, 4, 8, 69.779},  // qwen3.5-122b, raw weights
    {50, 8, 8, 126.468},  // qwen3.5-122b, raw weights
    {43, 1, 8, 21.303},  // qwen3.5-122b-bf16, packed weights
    {44, 2, 8, 37.333},  // qwen3.5-122b-bf16, packed weights
    {44, 4, 8, 68.817},  // qwen3.5-122b-bf16, packed weights
    {44, 8, 8, 127.256},  // qwen3.5-122b-bf16, packed weights
    {63, 1, 8, 9.607},  // qwen3.5-35b, packed weights
    {61, 2, 8, 14.859},  // qwen3.5-35b, packed weights
    {61, 4, 8, 25.44},  // qwen3.5-35b, packed weights
    {68, 8, 8, 45.283},  // qwen3.5-35b, packed weights
    {56, 16, 16, 79.121},  // qwen3.5-35b, packed weights
    {57, 32, 32, 131.944},  // qwen3.5-35b, packed weights
    {64, 1, 8, 8.779},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {59, 2, 8, 14.442},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {58, 4, 8, 24.794},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {58, 8, 8, 43.695},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {60, 1, 8, 13.632},  // qwen3.5-35b, packed weights, router inside
    {62, 2, 8, 19.769},  // qwen3.5-35b, packed weights, router inside
    {62, 4, 8, 30.867},  // qwen3.5-35b, packed weights, router inside
    {62, 8, 8, 51.076},  // qwen3.5-35b, packed weights, router inside
    {66, 1, 8, 10.024},  // qwen3.5-35b, raw weights
    {65, 2, 8, 15.351},  // qwen3.5-35b, raw weights
    {67, 4, 8, 26.391},  // qwen3.5-35b, raw weights
    {69, 8, 8, 45.599},  // qwen3.5-35b, raw weights
    {54, 1, 8, 9.593},  // qwen3.5-35b-bf16, packed weights
    {54, 2, 8, 14.869},  // qwen3.5-35b-bf16, packed weights
    {55, 4, 8, 25.373},  // qwen3.5-35b-bf16, packed weights
    {55, 8, 8, 44.056},  // qwen3.5-35b-bf16, packed weights
    {70, 1, 8, 7.157},  // toy, packed weights
    {70, 2, 8, 7.191},  // toy, packed weights
    {70, 4, 8, 7.335},  // toy, packed weights
    {70, 8, 8, 7.584},  // toy, packed weights
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
