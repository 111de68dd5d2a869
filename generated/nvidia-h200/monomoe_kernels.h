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
    {"deepseek-v3.1-tp8", 7168, 256, 256, 8, Scoring::kSigmoid, true, true,
        8, 4, 2.5f, Number::kFloat32, 0, false},
    {"glm-5.2-tp8", 6144, 256, 256, 8, Scoring::kSigmoid, true, true,
        1, 1, 2.5f, Number::kFloat32, 0, false},
    {"qwen3.5-122b", 3072, 1024, 256, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
    {"qwen3.5-35b", 2048, 512, 256, 8, Scoring::kSoftmax, true, false,
        1, 1, 1.0f, Number::kFloat32, 0, false},
};

inline constexpr Kernel kKernels[] = {
    {"deepseek-v3.1-tp8-t16-g132-u32x1024x4-d112x256x4.cubin",
        "2dbb62ceb79d3319d318d4f387e6d2d27c706a08df82a35b1ed703f5e9aebcfa",
        "monomoe_deepseek_v3_1_tp8_t16_g132_u32x1024x4_d112x256x4",
        0, {132, 32, 1024, 112, 256, 4, 4}, 16, 132, 608, 217216, 92, 260096, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t32-g128-u16x1024x5-d64x256x5.cubin",
        "066a4656c16f2047007b258d09e916f26a1f83b5d986cbf1d36f61bdb70e3354",
        "monomoe_deepseek_v3_1_tp8_t32_g128_u16x1024x5_d64x256x5",
        0, {128, 16, 1024, 64, 256, 5, 5}, 32, 128, 608, 230272, 96, 1437696, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d112x256x5.cubin",
        "ae1c3657d91c08ab0fe41dacae7a1e1ddf4dcc9668daf95ef4537813c476f1e2",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d112x256x5",
        0, {128, 32, 1024, 112, 256, 5, 5}, 8, 128, 608, 173056, 90, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2.cubin",
        "73a45ad32c13bee88820c97f1d7d24d8568e6d6ceff7784a4b3d3e31b3921485",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2",
        0, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 173056, 93, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3-raw.cubin",
        "513a520e219fb8f40dc03f504aa48a932c184f1cf46a83cc300bb341fa2f565b",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3_raw",
        0, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 189440, 96, 359424, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x4.cubin",
        "648a3a0aee76b8d1a786a846221f60e78464b08f4403930446e2c8daf480b789",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x4",
        0, {128, 32, 1024, 64, 256, 6, 4}, 8, 128, 608, 206336, 94, 359424, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d64x256x4-raw.cubin",
        "3d6716d14ff7447ef8f8c1bed8a9566c331b9d87a99f881475de35aeca59f371",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d64x256x4_raw",
        0, {128, 32, 1024, 64, 256, 6, 4}, 8, 128, 608, 206336, 92, 359424, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4.cubin",
        "2bb67ded8bd6b5016837413059f9ae3e7de8df83455d488483c56460a244d716",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4",
        0, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 222720, 94, 359424, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t16-g132-u32x1024x5-d64x256x3.cubin",
        "cd51b03393b02c6cd45739dc39851d2a010e5e800958fe3406cd5f250efe0bb3",
        "monomoe_glm_5_2_tp8_t16_g132_u32x1024x5_d64x256x3",
        1, {132, 32, 1024, 64, 256, 5, 3}, 16, 132, 608, 225408, 91, 634880, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t32-g128-u16x1024x4-d64x256x4.cubin",
        "aa7b2b723a4932d6d232db33707dcd09ff113350b20e25dc394c0e04c51da64a",
        "monomoe_glm_5_2_tp8_t32_g128_u16x1024x4_d64x256x4",
        1, {128, 16, 1024, 64, 256, 4, 4}, 32, 128, 608, 196480, 96, 1269760, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x4-d96x256x4.cubin",
        "7690382d8b7c7e6ca8996ba703c683977b4102256d1912942bb25e4a5ecd4b2d",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x4_d96x256x4",
        1, {128, 32, 1024, 96, 256, 4, 4}, 8, 128, 608, 148224, 90, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x4-d96x256x4-raw.cubin",
        "cfd31462da82db0c22cc5b858b398c1925651919dae71f35e8e750497e6ae6cc",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x4_d96x256x4_raw",
        1, {128, 32, 1024, 96, 256, 4, 4}, 8, 128, 608, 148224, 90, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x4-d96x256x4-router.cubin",
        "87e575766ecf3f78ce2b1a75ad8c9603ed5ac58e2bc4570f3ca7123676a1f186",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x4_d96x256x4_router",
        1, {128, 32, 1024, 96, 256, 4, 4}, 8, 128, 608, 148224, 95, 129024, Layout::kPacked, Router::kWeight, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5.cubin",
        "3c56b3643bca77b99c26692332875b477fbc420ca8f8e42efa79706eaf736958",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5",
        1, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 206080, 94, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x5-raw.cubin",
        "565cb26b3f7a4fbcb725d339462349b573d3fa380dce87ea8d26dc7034330690",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x5_raw",
        1, {128, 32, 1024, 64, 256, 6, 5}, 8, 128, 608, 206080, 92, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x1024x6-d64x256x5.cubin",
        "f9bb3dd444cca1c0834573d0f338587f0a228bf0e21e8856f74c28c5b403f926",
        "monomoe_glm_5_2_tp8_t8_g132_u32x1024x6_d64x256x5",
        1, {132, 32, 1024, 64, 256, 6, 5}, 8, 132, 608, 206080, 94, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x1024x8-d64x256x6.cubin",
        "d9336583c6d3f326fae92f7e51742eaef22a9f42a13baaf0c82ba9caecaebb7e",
        "monomoe_glm_5_2_tp8_t8_g132_u32x1024x8_d64x256x6",
        1, {132, 32, 1024, 64, 256, 8, 6}, 8, 132, 608, 230656, 94, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x1024x8-d64x256x6-raw.cubin",
        "322b9a651bcdab3251cbfeeb3238d0771848ef7f49f1a0d31892899dce547fed",
        "monomoe_glm_5_2_tp8_t8_g132_u32x1024x8_d64x256x6_raw",
        1, {132, 32, 1024, 64, 256, 8, 6}, 8, 132, 608, 230656, 92, 317440, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x1024x8-d64x256x6-router.cubin",
        "4f6a3f17bd953e2f6e8c06acbfcb59e9d08760e6f9817af11ce87df75a4966f5",
        "monomoe_glm_5_2_tp8_t8_g132_u32x1024x8_d64x256x6_router",
        1, {132, 32, 1024, 64, 256, 8, 6}, 8, 132, 608, 230656, 95, 325632, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t16-g132-u64x1024x3-d64x512x4.cubin",
        "6c65221fc91dea250c4dcb991e2a01707474badbf4a6ce8c7a4639f2f4aab17b",
        "monomoe_qwen3_5_122b_t16_g132_u64x1024x3_d64x512x4",
        2, {132, 64, 1024, 64, 512, 3, 4}, 16, 132, 608, 206336, 96, 776192, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t32-g132-u128x1024x3-d64x512x2.cubin",
        "70c5e784d257151ab8ba8fb5b7907dcb022988b232fef1b68f1be0c550b378fd",
        "monomoe_qwen3_5_122b_t32_g132_u128x1024x3_d64x512x2",
        2, {132, 128, 1024, 64, 512, 3, 2}, 32, 132, 608, 227072, 96, 1552384, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4.cubin",
        "95d18c30e60f07c22916add65abcfa68a1aaa170bdaba42106ee4eac6a53783e",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4",
        2, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 203136, 96, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4-raw.cubin",
        "152d5b2918ef0e91ab5225b0d114d41525caf9c705a3dc6eaa4a21fb46b54d24",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4_raw",
        2, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 203136, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-122b-t8-g132-u128x1024x6-d96x1024x4-router.cubin",
        "b424f9782fc627bbe99840633d81886253d08fee2c2d51ed3be133afde61024a",
        "monomoe_qwen3_5_122b_t8_g132_u128x1024x6_d96x1024x4_router",
        2, {132, 128, 1024, 96, 1024, 6, 4}, 8, 132, 608, 203136, 96, 297984, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g132-u128x1536x5-d96x1024x3.cubin",
        "617274c65e9b7652117398fad81fb93f26efaabb8f74f785c92457e5c7dc95a0",
        "monomoe_qwen3_5_122b_t8_g132_u128x1536x5_d96x1024x3",
        2, {132, 128, 1536, 96, 1024, 5, 3}, 8, 132, 608, 203136, 96, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u32x512x4-d64x512x5.cubin",
        "eb6530578dffaa05c1c87104b6bf5a97a39495e94aca77cab166b14a755323d2",
        "monomoe_qwen3_5_35b_t16_g132_u32x512x4_d64x512x5",
        3, {132, 32, 512, 64, 512, 4, 5}, 16, 132, 608, 166016, 92, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u64x1024x4-d64x512x4.cubin",
        "d39cb13c1e99b9e535ca06a1fc8d8cda74644c2b3f7d724a67cf466d7d141bd5",
        "monomoe_qwen3_5_35b_t32_g132_u64x1024x4_d64x512x4",
        3, {132, 64, 1024, 64, 512, 4, 4}, 32, 132, 608, 194432, 94, 860160, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u32x512x4-d128x512x4-router.cubin",
        "d8ffdd8957b8de33e3feb2e0351e2ba39aced62720f16269cab5e3dd3b159f23",
        "monomoe_qwen3_5_35b_t8_g128_u32x512x4_d128x512x4_router",
        3, {128, 32, 512, 128, 512, 4, 4}, 8, 128, 608, 131328, 96, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "535cb58e6216d7c066dea6460dcccb6dff3e93bbe7575f37106bcb385e32acd3",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3",
        3, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 131328, 92, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-raw.cubin",
        "6b3c7c1567bfcf84c3ac767ad31bef99f9c064743c48b40aa588ab94b22ff1ca",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_raw",
        3, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 131328, 92, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-router.cubin",
        "0f45b7ca7ea7d5c24381f51bdd4ce399ed79fff447490ab5670c8f15492099a9",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_router",
        3, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 131328, 96, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4.cubin",
        "f96e3cf92aa6e3ee3f21071b22873b9e9ddd9f6c6db7008e88003835319e865b",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4",
        3, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 131328, 92, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-raw.cubin",
        "95b136f6166e18fe9b48489579074399710dc260f524fdb69f4538b7563d141b",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_raw",
        3, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 131328, 92, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4-router.cubin",
        "154d45c5f6205b066a5f7ed2453c8fc723dc1c53cd390aa2ff6770661c71b3c7",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4_router",
        3, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 131328, 96, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g132-u64x1024x5-d128x512x5.cubin",
        "a45599515e9ebc3529197fc39f3848593f459edaf5cae950c64c9c365252b04e",
        "monomoe_qwen3_5_35b_t8_g132_u64x1024x5_d128x512x5",
        3, {132, 64, 1024, 128, 512, 5, 5}, 8, 132, 608, 147712, 94, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g132-u64x1024x5-d128x512x5-raw.cubin",
        "d763c20c03d592b35814be829d32fff670936e41cbf2f1861bc6a73f29424625",
        "monomoe_qwen3_5_35b_t8_g132_u64x1024x5_d128x512x5_raw",
        3, {132, 64, 1024, 128, 512, 5, 5}, 8, 132, 608, 147712, 92, 149504, Layout::kRaw, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {3, 1, 8, 16.227},  // deepseek-v3.1-tp8, packed weights
    {2, 2, 8, 25.023},  // deepseek-v3.1-tp8, packed weights
    {5, 4, 8, 43.358},  // deepseek-v3.1-tp8, packed weights
    {7, 8, 8, 75.537},  // deepseek-v3.1-tp8, packed weights
    {0, 16, 16, 141.262},  // deepseek-v3.1-tp8, packed weights
    {1, 32, 32, 233.888},  // deepseek-v3.1-tp8, packed weights
    {4, 1, 8, 16.84},  // deepseek-v3.1-tp8, raw weights
    {6, 2, 8, 26.148},  // deepseek-v3.1-tp8, raw weights
    {6, 4, 8, 45.389},  // deepseek-v3.1-tp8, raw weights
    {6, 8, 8, 78.455},  // deepseek-v3.1-tp8, raw weights
    {10, 1, 8, 14.741},  // glm-5.2-tp8, packed weights
    {15, 2, 8, 22.215},  // glm-5.2-tp8, packed weights
    {13, 4, 8, 37.85},  // glm-5.2-tp8, packed weights
    {16, 8, 8, 65.314},  // glm-5.2-tp8, packed weights
    {8, 16, 16, 120.267},  // glm-5.2-tp8, packed weights
    {9, 32, 32, 202.226},  // glm-5.2-tp8, packed weights
    {12, 1, 8, 19.785},  // glm-5.2-tp8, packed weights, router inside
    {12, 2, 8, 28.813},  // glm-5.2-tp8, packed weights, router inside
    {12, 4, 8, 46.519},  // glm-5.2-tp8, packed weights, router inside
    {18, 8, 8, 74.563},  // glm-5.2-tp8, packed weights, router inside
    {11, 1, 8, 15.088},  // glm-5.2-tp8, raw weights
    {14, 2, 8, 23.179},  // glm-5.2-tp8, raw weights
    {14, 4, 8, 39.415},  // glm-5.2-tp8, raw weights
    {17, 8, 8, 66.727},  // glm-5.2-tp8, raw weights
    {24, 1, 8, 22.922},  // qwen3.5-122b, packed weights
    {21, 2, 8, 37.403},  // qwen3.5-122b, packed weights
    {21, 4, 8, 72.529},  // qwen3.5-122b, packed weights
    {21, 8, 8, 131.383},  // qwen3.5-122b, packed weights
    {19, 16, 16, 220.81},  // qwen3.5-122b, packed weights
    {20, 32, 32, 397.879},  // qwen3.5-122b, packed weights
    {23, 1, 8, 30.258},  // qwen3.5-122b, packed weights, router inside
    {23, 2, 8, 48.34},  // qwen3.5-122b, packed weights, router inside
    {23, 4, 8, 81.89},  // qwen3.5-122b, packed weights, router inside
    {23, 8, 8, 143.128},  // qwen3.5-122b, packed weights, router inside
    {22, 1, 8, 22.46},  // qwen3.5-122b, raw weights
    {22, 2, 8, 38.991},  // qwen3.5-122b, raw weights
    {22, 4, 8, 70.47},  // qwen3.5-122b, raw weights
    {22, 8, 8, 125.966},  // qwen3.5-122b, raw weights
    {28, 1, 8, 11.328},  // qwen3.5-35b, packed weights
    {31, 2, 8, 16.329},  // qwen3.5-35b, packed weights
    {31, 4, 8, 26.412},  // qwen3.5-35b, packed weights
    {34, 8, 8, 44.859},  // qwen3.5-35b, packed weights
    {25, 16, 16, 78.815},  // qwen3.5-35b, packed weights
    {26, 32, 32, 130.478},  // qwen3.5-35b, packed weights
    {30, 1, 8, 14.981},  // qwen3.5-35b, packed weights, router inside
    {33, 2, 8, 20.717},  // qwen3.5-35b, packed weights, router inside
    {27, 4, 8, 31.245},  // qwen3.5-35b, packed weights, router inside
    {27, 8, 8, 51.01},  // qwen3.5-35b, packed weights, router inside
    {29, 1, 8, 11.432},  // qwen3.5-35b, raw weights
    {32, 2, 8, 17.024},  // qwen3.5-35b, raw weights
    {32, 4, 8, 28.124},  // qwen3.5-35b, raw weights
    {35, 8, 8, 48.036},  // qwen3.5-35b, raw weights
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
