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
        "3dfdcb1bfd148647d3271dd22800f3a9cd9fc7f7dc62153ac5a40697420152cc",
        "monomoe_deepseek_v3_tp16_t8_g128_u16x1024x4_d112x128x3",
        0, {128, 16, 1024, 112, 128, 4, 3}, 8, 128, 608, 148992, 87, 97280, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3-tp8-t8-g128-u32x1024x4-d112x256x3.cubin",
        "96c45bf048d864664f40b7104718edbf58f5c2472a617eba3a2e69e8784748bb",
        "monomoe_deepseek_v3_tp8_t8_g128_u32x1024x4_d112x256x3",
        1, {128, 32, 1024, 112, 256, 4, 3}, 8, 128, 608, 157440, 87, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g128-u32x1024x4-d112x256x4.cubin",
        "0edf3143191cbb5a4a15a26cdc7c6facc29f983cab58f2155aeb02dc04c767fc",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g128_u32x1024x4_d112x256x4",
        2, {128, 32, 1024, 112, 256, 4, 4}, 8, 128, 608, 225920, 87, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-bf16-t8-g132-u32x1024x4-d112x256x4.cubin",
        "9275fbb186d25856f4596de4fa0b814f499bd89b156f4d58f297d0702ec19342",
        "monomoe_deepseek_v3_1_tp8_bf16_t8_g132_u32x1024x4_d112x256x4",
        2, {132, 32, 1024, 112, 256, 4, 4}, 8, 132, 608, 225920, 89, 65536, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t16-g132-u32x1024x4-d112x256x4.cubin",
        "78193eede6157a6677181f2919b392fc3187e524d9a1dca3a5d9e8f5c4ee0137",
        "monomoe_deepseek_v3_1_tp8_t16_g132_u32x1024x4_d112x256x4",
        3, {132, 32, 1024, 112, 256, 4, 4}, 16, 132, 608, 217984, 89, 260096, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t32-g132-u16x1024x3-d112x256x5.cubin",
        "b19c7fe340759de8f14a1d57b52210390092bff0303080caa6cc339e18f1f035",
        "monomoe_deepseek_v3_1_tp8_t32_g132_u16x1024x3_d112x256x5",
        3, {132, 16, 1024, 112, 256, 3, 5}, 32, 132, 608, 148608, 96, 520192, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d112x256x4-raw.cubin",
        "0732aafac62a3ea7ead8b78c7243c3939ada0ce650920f88165668b1482df8b6",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d112x256x4_raw",
        3, {128, 32, 1024, 112, 256, 5, 4}, 8, 128, 608, 173824, 87, 130048, Layout::kRaw, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x5-d56x256x2-pdl.cubin",
        "1a5cb1d10ba069c80ff2fa7f7d80528e54b14e2cd077a32eabbd4478eb6a04e7",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x5_d56x256x2_pdl",
        3, {128, 32, 1024, 56, 256, 5, 2}, 8, 128, 608, 177920, 94, 130048, Layout::kPacked, Router::kLogits, true},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "54ced554ad6fa2863a5ff8a0e33cd4c85e4ff1d8c7f321512acd96b63cd53c5f",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 94, 130048, Layout::kPacked, Router::kLogits, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3-router.cubin",
        "0d2ae54e5e689406e558f119dd7531bd0b88dfaf0f5d7024e4d4d3a019e84ee1",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3_router",
        3, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 194304, 95, 138240, Layout::kPacked, Router::kWeight, false},
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x8-d64x256x4-raw.cubin",
        "05a87521ccd4587a3b94afdeb060292d8c122da7dc93b0d62dc84fad4f103b5d",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x8_d64x256x4_raw",
        3, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 227200, 90, 130048, Layout::kRaw, Router::kLogits, false},
    {"glm-4.5-air-t8-g132-u176x1024x8-d128x1408x3.cubin",
        "83674e4b3b41134374b413e63532c54964116b7f4d5761dfbe03d645c08e1269",
        "monomoe_glm_4_5_air_t8_g132_u176x1024x8_d128x1408x3",
        4, {132, 176, 1024, 128, 1408, 8, 3}, 8, 132, 608, 208256, 88, 397312, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x4-d64x256x3.cubin",
        "b6001e5d9a50cb31d30581f70013e7e167aba778b4d0ddc348e409cf321802f6",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x4_d64x256x3",
        5, {128, 32, 1024, 64, 256, 4, 3}, 8, 128, 608, 221056, 87, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-bf16-t8-g128-u32x1024x5-d64x256x3.cubin",
        "4fd94301c31fb439cbbc6aae36b0ea7da636e6e5efec8b4f0be4172bb5e527f5",
        "monomoe_glm_5_2_tp8_bf16_t8_g128_u32x1024x5_d64x256x3",
        5, {128, 32, 1024, 64, 256, 5, 3}, 8, 128, 608, 229248, 87, 65536, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t16-g132-u32x1024x5-d64x256x3.cubin",
        "c6b1605f2eee3dc881cb36f38e69f74f080f80f31242a0d5c9cb4f89eb655e53",
        "monomoe_glm_5_2_tp8_t16_g132_u32x1024x5_d64x256x3",
        6, {132, 32, 1024, 64, 256, 5, 3}, 16, 132, 608, 232064, 89, 241664, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t32-g128-u16x1024x4-d64x256x4.cubin",
        "ea6d2176e72635c93ae2e20d18be41f16632065aa460ee12ad167a565b2f2474",
        "monomoe_glm_5_2_tp8_t32_g128_u16x1024x4_d64x256x4",
        6, {128, 16, 1024, 64, 256, 4, 4}, 32, 128, 608, 209280, 96, 483328, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d48x256x3-raw.cubin",
        "d36b3d922e8f5b6498a5b249a9cdf767af51b93d39cd7bf0e8e9d82de8ce41fe",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d48x256x3_raw",
        6, {128, 32, 2048, 48, 256, 3, 3}, 8, 128, 608, 185600, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d64x256x3-raw.cubin",
        "f1ae82fa5dd4eda2a64bb635bae855fd24cc4b3ad16c997082522ada79d32664",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d64x256x3_raw",
        6, {128, 32, 2048, 64, 256, 3, 3}, 8, 128, 608, 185088, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d64x256x4.cubin",
        "e2b0736a179c3e42fa880b9db2c5f9c10c0a41399658b784bc1e0f26856bb871",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d64x256x4",
        6, {128, 32, 2048, 64, 256, 3, 4}, 8, 128, 608, 185088, 89, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x3-d64x256x4-raw.cubin",
        "1dcf8103a1d972e3072ca745efee499dc05af1b498b671b1404b6b502cefdd44",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x3_d64x256x4_raw",
        6, {128, 32, 2048, 64, 256, 3, 4}, 8, 128, 608, 185088, 96, 120832, Layout::kRaw, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x2048x4-d64x256x4.cubin",
        "8035240a10cb17e01ae216a232fd144c678a364115e751fc41a34768419e962b",
        "monomoe_glm_5_2_tp8_t8_g128_u32x2048x4_d64x256x4",
        6, {128, 32, 2048, 64, 256, 4, 4}, 8, 128, 608, 217856, 89, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3.cubin",
        "1071f3085d59c99586d0ed89601cb46e3117e59a0ada19461dc1773753c08bab",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 185088, 89, 120832, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x3-d64x256x3-router.cubin",
        "5d82b4965d129a3d1d7a57e90889515541c3f731f3b5ce52ab97ae7af5e5ae5e",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x3_d64x256x3_router",
        6, {132, 32, 2048, 64, 256, 3, 3}, 8, 132, 608, 185088, 95, 129024, Layout::kPacked, Router::kWeight, false},
    {"glm-5.2-tp8-t8-g132-u32x2048x4-d64x256x4-pdl.cubin",
        "97a0c0bad720205ba5c270a3f10359ba75fb05bfb08646775c983155dbd1ef6c",
        "monomoe_glm_5_2_tp8_t8_g132_u32x2048x4_d64x256x4_pdl",
        6, {132, 32, 2048, 64, 256, 4, 4}, 8, 132, 608, 217856, 89, 120832, Layout::kPacked, Router::kLogits, true},
    {"kimi-k2-tp8-t8-g128-u32x1024x4-d112x256x3.cubin",
        "03a6c71190796daa4ce8417cd63e69d53f75b92bb92a8b06fce333a5cde51aad",
        "monomoe_kimi_k2_tp8_t8_g128_u32x1024x4_d112x256x3",
        7, {128, 32, 1024, 112, 256, 4, 3}, 8, 128, 608, 157440, 87, 130048, Layout::kPacked, Router::kLogits, false},
    {"minimax-m2-t8-g128-u192x1024x5-d64x512x4.cubin",
        "726aa1960c9678cc96eeb59c06ae6d4414b0e24e50c476c6c1d14e6b5c3aeaa1",
        "monomoe_minimax_m2_t8_g128_u192x1024x5_d64x512x4",
        8, {128, 192, 1024, 64, 512, 5, 4}, 8, 128, 608, 162944, 90, 420864, Layout::kPacked, Router::kLogits, false},
    {"mixtral-8x7b-fp8-tp8-t8-g128-u224x2048x3-d128x896x3.cubin",
        "066dfc27de35eb127246055f12b45717ea21b973e9cfea3cb056cb73bb072eff",
        "monomoe_mixtral_8x7b_fp8_tp8_t8_g128_u224x2048x3_d128x896x3",
        9, {128, 224, 2048, 128, 896, 3, 3}, 8, 128, 608, 172928, 96, 151552, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-t8-g128-u192x2048x3-d64x512x3.cubin",
        "1483a2ff8f1a3246766e39c432777e124b99bac3dd406469fb3bb52bf40565c1",
        "monomoe_qwen3_235b_a22b_t8_g128_u192x2048x3_d64x512x3",
        10, {128, 192, 2048, 64, 512, 3, 3}, 8, 128, 608, 171392, 91, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp2-t8-g128-u96x1024x5-d64x384x4.cubin",
        "cd33f478d2a6df090ccf471ab25c2b0a56fd41cac7dc8c98cba2992fab566c0a",
        "monomoe_qwen3_235b_a22b_tp2_t8_g128_u96x1024x5_d64x384x4",
        11, {128, 96, 1024, 64, 384, 5, 4}, 8, 128, 608, 172544, 78, 233472, Layout::kPacked, Router::kLogits, false},
    {"qwen3-235b-a22b-tp4-t8-g128-u48x2048x3-d64x384x3.cubin",
        "0bb2d429549ade9943d75c51504bacafe840d611c69ae02a964d4b68827a4ee4",
        "monomoe_qwen3_235b_a22b_tp4_t8_g128_u48x2048x3_d64x384x3",
        12, {128, 48, 2048, 64, 384, 3, 3}, 8, 128, 608, 174592, 89, 135168, Layout::kPacked, Router::kLogits, false},
    {"qwen3-30b-a3b-t8-g128-u96x2048x3-d64x768x3.cubin",
        "30a5aaf3282c259414ff67d3dc5f203a772497274480e729ea6b803b5b8a881c",
        "monomoe_qwen3_30b_a3b_t8_g128_u96x2048x3_d64x768x3",
        13, {128, 96, 2048, 64, 768, 3, 3}, 8, 128, 608, 153984, 82, 215040, Layout::kPacked, Router::kLogits, false},
    {"qwen3-next-80b-a3b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "3a221fafe2c782e340ab94bf669e80a39f11b439593b28939eb1e52473a6e26a",
        "monomoe_qwen3_next_80b_a3b_t8_g128_u64x1024x4_d128x512x3",
        14, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 131200, 72, 182272, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g128-u128x1024x5-d64x512x4.cubin",
        "7f984a02dff9ef426ab2efb9a768deaafe30f11037ba508b8fc912cf7b3ee877",
        "monomoe_qwen3_5_122b_bf16_t8_g128_u128x1024x5_d64x512x4",
        15, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 227456, 79, 262144, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-bf16-t8-g132-u128x1024x4-d64x512x3.cubin",
        "723b943220a8e84b61ba843f3c56fc1d3ffcb408b0595d65924af31a0b6f2207",
        "monomoe_qwen3_5_122b_bf16_t8_g132_u128x1024x4_d64x512x3",
        15, {132, 128, 1024, 64, 512, 4, 3}, 8, 132, 608, 202880, 93, 262144, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t16-g128-u64x1024x3-d64x512x3.cubin",
        "c5249a80c75556d237a07ef1b63feaed7c66f90e4143c9dc9a93f84d76e91574",
        "monomoe_qwen3_5_122b_t16_g128_u64x1024x3_d64x512x3",
        16, {128, 64, 1024, 64, 512, 3, 3}, 16, 128, 608, 209152, 93, 579584, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t32-g132-u128x1024x4-d96x512x4.cubin",
        "22a4210a70af443c17a70492f3e56fb96be665a5bbfb408b70056df690c41ee5",
        "monomoe_qwen3_5_122b_t32_g132_u128x1024x4_d96x512x4",
        16, {132, 128, 1024, 96, 512, 4, 4}, 32, 132, 608, 225920, 87, 1159168, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4.cubin",
        "49a9d55f728f0de43a1df49a725c4830b99e33589f706117ff00df7e672be1b3",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172800, 84, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-pdl.cubin",
        "ba3942b7b8351613990154beb43c7576f7a74de38eef67007bc2efdf723cf3c9",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_pdl",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172800, 84, 289792, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-122b-t8-g128-u128x1024x5-d64x512x4-router.cubin",
        "873e1a38a3169a23d9e5bad7e04eb0e427850208f8a1a8ebcc36bcbaad09ac68",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x5_d64x512x4_router",
        16, {128, 128, 1024, 64, 512, 5, 4}, 8, 128, 608, 172800, 92, 297984, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-122b-t8-g128-u128x1024x8-d64x512x5.cubin",
        "8e6a7dd037333d04e516e526f1916d5cf53da82b5c813492de4c050804d325c2",
        "monomoe_qwen3_5_122b_t8_g128_u128x1024x8_d64x512x5",
        16, {128, 128, 1024, 64, 512, 8, 5}, 8, 128, 608, 205568, 84, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u128x3072x2-d64x1024x2-raw.cubin",
        "cf547f12f2e8935de383bf74de4d7d805ea8d5481196b79effada9ff9185cf3d",
        "monomoe_qwen3_5_122b_t8_g128_u128x3072x2_d64x1024x2_raw",
        16, {128, 128, 3072, 64, 1024, 2, 2}, 8, 128, 608, 176768, 96, 289792, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d128x512x3.cubin",
        "53daca042c78bdf34e14b0bbbbb6595e3cbd80f5c55e60f91f6ead18a31b1682",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d128x512x3",
        17, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 176000, 89, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x4-d64x512x4.cubin",
        "30990f4643ed3dfbf6f802faa480ec1c8dceae3760b3044310ebf0424a371678",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x4_d64x512x4",
        17, {128, 64, 1024, 64, 512, 4, 4}, 8, 128, 608, 177024, 89, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-bf16-t8-g128-u64x1024x5-d64x512x6.cubin",
        "8cc46d25f8b195f02d8d22649837861111a55a44b1ce201dbd62f756e5b0f53f",
        "monomoe_qwen3_5_35b_bf16_t8_g128_u64x1024x5_d64x512x6",
        17, {128, 64, 1024, 64, 512, 5, 6}, 8, 128, 608, 209792, 89, 131072, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u64x1024x4-d64x512x4.cubin",
        "9b4035e871abab4c97c0181276f9c71cd7c0be729f857ec5c232a4b1c57633e3",
        "monomoe_qwen3_5_35b_t16_g132_u64x1024x4_d64x512x4",
        18, {132, 64, 1024, 64, 512, 4, 4}, 16, 132, 608, 151168, 72, 299008, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u32x512x5-d64x512x6.cubin",
        "ed8bc9fc253842f944aca60720144be8a5c627eebb8050ce4b2ae8f898b441ec",
        "monomoe_qwen3_5_35b_t32_g132_u32x512x5_d64x512x6",
        18, {132, 32, 512, 64, 512, 5, 6}, 32, 132, 608, 231296, 73, 598016, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "c0e12e453293e1c8a7d3e4d6eed1b3871eca88742eb5fa61f7b911d557d0bbef",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130816, 70, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3-router.cubin",
        "523e28fd473f04670cce1ea72f43523bab358becca0b0840d4cd18d2a89579bb",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3_router",
        18, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 130816, 72, 157696, Layout::kPacked, Router::kWeight, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4.cubin",
        "cce5e13c7de02d31555e281bfecd01444ec372e19bb4df5ce3f591461376dc30",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4",
        18, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 130816, 70, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d64x512x3-pdl.cubin",
        "0859507d99419b88ba632a294ae8efda993c1ec821ca6e295e38328dc23bf11d",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d64x512x3_pdl",
        18, {128, 64, 1024, 64, 512, 4, 3}, 8, 128, 608, 131840, 69, 149504, Layout::kPacked, Router::kLogits, true},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d64x512x3-raw.cubin",
        "40ba968a35d66b6ae512e2486b541003743bf5e229ae3347df6541bd235df15f",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d64x512x3_raw",
        18, {128, 64, 1024, 64, 512, 4, 3}, 8, 128, 608, 131840, 79, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x5-d64x512x5.cubin",
        "681437d26be18768222bc3edfd1ca4270f7a6f97e2348b10735e4053875ac1c8",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x5_d64x512x5",
        18, {128, 64, 1024, 64, 512, 5, 5}, 8, 128, 608, 148224, 69, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d128x512x5-raw.cubin",
        "1ed8e629c57a4d764656d67bbbd88afb1d5a22787bee274e1b12fd4b3a29f98e",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d128x512x5_raw",
        18, {128, 64, 2048, 128, 512, 3, 5}, 8, 128, 608, 163584, 94, 149504, Layout::kRaw, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x2048x3-d64x512x5-raw.cubin",
        "ff3a8a54a6c5e0fbf850d2653d4f4a499212d00807369448c5152a59f817cd8b",
        "monomoe_qwen3_5_35b_t8_g128_u64x2048x3_d64x512x5_raw",
        18, {128, 64, 2048, 64, 512, 3, 5}, 8, 128, 608, 164608, 96, 149504, Layout::kRaw, Router::kLogits, false},
    {"toy-t8-g128-u4x256x3-d16x128x4.cubin",
        "568ccf825c179cc3886c348de5e0e830e60ef9279e503bf79b30e75ffbdcfbef",
        "monomoe_toy_t8_g128_u4x256x3_d16x128x4",
        19, {128, 4, 256, 16, 128, 3, 4}, 8, 128, 608, 89856, 88, 67840, Layout::kPacked, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {0, 1, 8, 10.331},  // deepseek-v3-tp16, packed weights
    {0, 2, 8, 15.015},  // deepseek-v3-tp16, packed weights
    {0, 4, 8, 24.79},  // deepseek-v3-tp16, packed weights
    {0, 8, 8, 42.417},  // deepseek-v3-tp16, packed weights
    {1, 1, 8, 14.555},  // deepseek-v3-tp8, packed weights
    {1, 2, 8, 24.352},  // deepseek-v3-tp8, packed weights
    {1, 4, 8, 43.76},  // deepseek-v3-tp8, packed weights
    {1, 8, 8, 77.475},  // deepseek-v3-tp8, packed weights
    {8, 1, 8, 14.16},  // deepseek-v3.1-tp8, packed weights
    {8, 2, 8, 23.492},  // deepseek-v3.1-tp8, packed weights
    {8, 4, 8, 41.413},  // deepseek-v3.1-tp8, packed weights
    {8, 8, 8, 73.07},  // deepseek-v3.1-tp8, packed weights
    {4, 16, 16, 134.295},  // deepseek-v3.1-tp8, packed weights
    {5, 32, 32, 228.98},  // deepseek-v3.1-tp8, packed weights
    {7, 1, 8, 13.628},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {7, 2, 8, 23.282},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {7, 4, 8, 42.448},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {7, 8, 8, 75.819},  // deepseek-v3.1-tp8, packed weights, programmatic dependent launch
    {9, 1, 8, 21.959},  // deepseek-v3.1-tp8, packed weights, router inside
    {9, 2, 8, 31.375},  // deepseek-v3.1-tp8, packed weights, router inside
    {9, 4, 8, 50.023},  // deepseek-v3.1-tp8, packed weights, router inside
    {9, 8, 8, 83.203},  // deepseek-v3.1-tp8, packed weights, router inside
    {6, 1, 8, 15.095},  // deepseek-v3.1-tp8, raw weights
    {6, 2, 8, 24.274},  // deepseek-v3.1-tp8, raw weights
    {10, 4, 8, 43.255},  // deepseek-v3.1-tp8, raw weights
    {10, 8, 8, 75.532},  // deepseek-v3.1-tp8, raw weights
    {2, 1, 8, 14.847},  // deepseek-v3.1-tp8-bf16, packed weights
    {2, 2, 8, 24.096},  // deepseek-v3.1-tp8-bf16, packed weights
    {2, 4, 8, 43.758},  // deepseek-v3.1-tp8-bf16, packed weights
    {3, 8, 8, 78.552},  // deepseek-v3.1-tp8-bf16, packed weights
    {11, 1, 8, 34.464},  // glm-4.5-air, packed weights
    {11, 2, 8, 63.614},  // glm-4.5-air, packed weights
    {11, 4, 8, 115.242},  // glm-4.5-air, packed weights
    {11, 8, 8, 200.982},  // glm-4.5-air, packed weights
    {21, 1, 8, 12.793},  // glm-5.2-tp8, packed weights
    {18, 2, 8, 20.615},  // glm-5.2-tp8, packed weights
    {20, 4, 8, 36.12},  // glm-5.2-tp8, packed weights
    {20, 8, 8, 63.41},  // glm-5.2-tp8, packed weights
    {14, 16, 16, 113.397},  // glm-5.2-tp8, packed weights
    {15, 32, 32, 186.202},  // glm-5.2-tp8, packed weights
    {23, 1, 8, 12.038},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {23, 2, 8, 19.995},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {23, 4, 8, 35.816},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {23, 8, 8, 63.588},  // glm-5.2-tp8, packed weights, programmatic dependent launch
    {22, 1, 8, 19.779},  // glm-5.2-tp8, packed weights, router inside
    {22, 2, 8, 27.91},  // glm-5.2-tp8, packed weights, router inside
    {22, 4, 8, 44.208},  // glm-5.2-tp8, packed weights, router inside
    {22, 8, 8, 72.26},  // glm-5.2-tp8, packed weights, router inside
    {16, 1, 8, 13.36},  // glm-5.2-tp8, raw weights
    {19, 2, 8, 21.617},  // glm-5.2-tp8, raw weights
    {17, 4, 8, 37.401},  // glm-5.2-tp8, raw weights
    {17, 8, 8, 65.191},  // glm-5.2-tp8, raw weights
    {12, 1, 8, 13.044},  // glm-5.2-tp8-bf16, packed weights
    {12, 2, 8, 21.393},  // glm-5.2-tp8-bf16, packed weights
    {13, 4, 8, 37.501},  // glm-5.2-tp8-bf16, packed weights
    {13, 8, 8, 66.329},  // glm-5.2-tp8-bf16, packed weights
    {24, 1, 8, 14.568},  // kimi-k2-tp8, packed weights
    {24, 2, 8, 24.367},  // kimi-k2-tp8, packed weights
    {24, 4, 8, 43.893},  // kimi-k2-tp8, packed weights
    {24, 8, 8, 79.623},  // kimi-k2-tp8, packed weights
    {25, 1, 8, 28.421},  // minimax-m2, packed weights
    {25, 2, 8, 52.41},  // minimax-m2, packed weights
    {25, 4, 8, 98.47},  // minimax-m2, packed weights
    {25, 8, 8, 180.731},  // minimax-m2, packed weights
    {26, 1, 8, 14.466},  // mixtral-8x7b-fp8-tp8, packed weights
    {26, 2, 8, 21.735},  // mixtral-8x7b-fp8-tp8, packed weights
    {26, 4, 8, 31.41},  // mixtral-8x7b-fp8-tp8, packed weights
    {26, 8, 8, 39.366},  // mixtral-8x7b-fp8-tp8, packed weights
    {27, 1, 8, 36.083},  // qwen3-235b-a22b, packed weights
    {27, 2, 8, 67.739},  // qwen3-235b-a22b, packed weights
    {27, 4, 8, 123.248},  // qwen3-235b-a22b, packed weights
    {27, 8, 8, 215.065},  // qwen3-235b-a22b, packed weights
    {28, 1, 8, 20.328},  // qwen3-235b-a22b-tp2, packed weights
    {28, 2, 8, 36.374},  // qwen3-235b-a22b-tp2, packed weights
    {28, 4, 8, 64.415},  // qwen3-235b-a22b-tp2, packed weights
    {28, 8, 8, 111.201},  // qwen3-235b-a22b-tp2, packed weights
    {29, 1, 8, 12.631},  // qwen3-235b-a22b-tp4, packed weights
    {29, 2, 8, 20.509},  // qwen3-235b-a22b-tp4, packed weights
    {29, 4, 8, 34.404},  // qwen3-235b-a22b-tp4, packed weights
    {29, 8, 8, 58.214},  // qwen3-235b-a22b-tp4, packed weights
    {30, 1, 8, 12.477},  // qwen3-30b-a3b, packed weights
    {30, 2, 8, 20.227},  // qwen3-30b-a3b, packed weights
    {30, 4, 8, 34.27},  // qwen3-30b-a3b, packed weights
    {30, 8, 8, 57.93},  // qwen3-30b-a3b, packed weights
    {31, 1, 8, 11.083},  // qwen3-next-80b-a3b, packed weights
    {31, 2, 8, 17.923},  // qwen3-next-80b-a3b, packed weights
    {31, 4, 8, 31.57},  // qwen3-next-80b-a3b, packed weights
    {31, 8, 8, 57.67},  // qwen3-next-80b-a3b, packed weights
    {36, 1, 8, 20.307},  // qwen3.5-122b, packed weights
    {39, 2, 8, 36.363},  // qwen3.5-122b, packed weights
    {39, 4, 8, 66.997},  // qwen3.5-122b, packed weights
    {36, 8, 8, 121.683},  // qwen3.5-122b, packed weights
    {34, 16, 16, 219.618},  // qwen3.5-122b, packed weights
    {35, 32, 32, 404.621},  // qwen3.5-122b, packed weights
    {37, 1, 8, 19.576},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {37, 2, 8, 35.677},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {37, 4, 8, 66.281},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {37, 8, 8, 121.571},  // qwen3.5-122b, packed weights, programmatic dependent launch
    {38, 1, 8, 25.941},  // qwen3.5-122b, packed weights, router inside
    {38, 2, 8, 41.823},  // qwen3.5-122b, packed weights, router inside
    {38, 4, 8, 73.149},  // qwen3.5-122b, packed weights, router inside
    {38, 8, 8, 129.212},  // qwen3.5-122b, packed weights, router inside
    {40, 1, 8, 21.522},  // qwen3.5-122b, raw weights
    {40, 2, 8, 37.959},  // qwen3.5-122b, raw weights
    {40, 4, 8, 69.319},  // qwen3.5-122b, raw weights
    {40, 8, 8, 126.049},  // qwen3.5-122b, raw weights
    {32, 1, 8, 20.892},  // qwen3.5-122b-bf16, packed weights
    {32, 2, 8, 37.067},  // qwen3.5-122b-bf16, packed weights
    {32, 4, 8, 68.179},  // qwen3.5-122b-bf16, packed weights
    {33, 8, 8, 127.61},  // qwen3.5-122b-bf16, packed weights
    {46, 1, 8, 9.404},  // qwen3.5-35b, packed weights
    {48, 2, 8, 14.579},  // qwen3.5-35b, packed weights
    {51, 4, 8, 24.91},  // qwen3.5-35b, packed weights
    {51, 8, 8, 43.318},  // qwen3.5-35b, packed weights
    {44, 16, 16, 77.106},  // qwen3.5-35b, packed weights
    {45, 32, 32, 130.736},  // qwen3.5-35b, packed weights
    {49, 1, 8, 8.698},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {49, 2, 8, 14.264},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {49, 4, 8, 24.805},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {49, 8, 8, 43.77},  // qwen3.5-35b, packed weights, programmatic dependent launch
    {47, 1, 8, 13.465},  // qwen3.5-35b, packed weights, router inside
    {47, 2, 8, 19.834},  // qwen3.5-35b, packed weights, router inside
    {47, 4, 8, 30.828},  // qwen3.5-35b, packed weights, router inside
    {47, 8, 8, 51.094},  // qwen3.5-35b, packed weights, router inside
    {50, 1, 8, 9.974},  // qwen3.5-35b, raw weights
    {52, 2, 8, 15.291},  // qwen3.5-35b, raw weights
    {53, 4, 8, 26.076},  // qwen3.5-35b, raw weights
    {53, 8, 8, 45.067},  // qwen3.5-35b, raw weights
    {41, 1, 8, 9.649},  // qwen3.5-35b-bf16, packed weights
    {42, 2, 8, 15.123},  // qwen3.5-35b-bf16, packed weights
    {43, 4, 8, 25.385},  // qwen3.5-35b-bf16, packed weights
    {43, 8, 8, 44.227},  // qwen3.5-35b-bf16, packed weights
    {54, 1, 8, 7.263},  // toy, packed weights
    {54, 2, 8, 7.403},  // toy, packed weights
    {54, 4, 8, 7.679},  // toy, packed weights
    {54, 8, 8, 8.023},  // toy, packed weights
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
