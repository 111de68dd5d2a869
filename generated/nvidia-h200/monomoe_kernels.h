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
    {"deepseek-v3.1-tp8-t8-g128-u32x1024x6-d56x256x3.cubin",
        "def93e2f5ac37439f8b2c24744879997e0f5e7b3921c8168246238a54bc9c40a",
        "monomoe_deepseek_v3_1_tp8_t8_g128_u32x1024x6_d56x256x3",
        0, {128, 32, 1024, 56, 256, 6, 3}, 8, 128, 608, 189440, 93, 359424, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x5-d64x256x3.cubin",
        "14921d8ea58b4e23a775a21c2632f0c39d19e094e7b647f6eb850879c4aa60ce",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x5_d64x256x3",
        1, {128, 32, 1024, 64, 256, 5, 3}, 8, 128, 608, 165120, 93, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x6-d64x256x3.cubin",
        "09a0aace8081f230832ac402b28f656394b01a48a3600c6e1ae34bee4f05756f",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x6_d64x256x3",
        1, {128, 32, 1024, 64, 256, 6, 3}, 8, 128, 608, 181504, 93, 317440, Layout::kPacked, Router::kLogits, false},
    {"glm-5.2-tp8-t8-g128-u32x1024x8-d64x256x4.cubin",
        "3edb0d832bb622269a62bcad05925a79a80a8a1de492dcdf8260af2365a7b4b1",
        "monomoe_glm_5_2_tp8_t8_g128_u32x1024x8_d64x256x4",
        1, {128, 32, 1024, 64, 256, 8, 4}, 8, 128, 608, 214272, 93, 317440, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u64x1024x3-d64x512x4.cubin",
        "8ad8e66c41632efd9db75ce7b17308b7ee1e297bed55bcd13c0f95d0680a258d",
        "monomoe_qwen3_5_122b_t8_g128_u64x1024x3_d64x512x4",
        2, {128, 64, 1024, 64, 512, 3, 4}, 8, 128, 608, 179584, 94, 388096, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-122b-t8-g128-u64x1024x4-d96x512x6.cubin",
        "f55def4a5682a804c3124f69f527e02dc4d1342d2417866aa63eb5899b89844a",
        "monomoe_qwen3_5_122b_t8_g128_u64x1024x4_d96x512x6",
        2, {128, 64, 1024, 96, 512, 4, 6}, 8, 128, 608, 211328, 94, 289792, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t16-g132-u32x1024x3-d64x512x5.cubin",
        "943302ba2a8d06e10fee94dab0fd58acdff3134be94a565a3e30be984279e89c",
        "monomoe_qwen3_5_35b_t16_g132_u32x1024x3_d64x512x5",
        3, {132, 32, 1024, 64, 512, 3, 5}, 16, 132, 608, 206848, 96, 430080, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t32-g132-u64x1024x4-d64x512x5.cubin",
        "ea9ebccf953dfa62f0c2635d7b6d8bc361d23fc4686314a90de664b8ca629be8",
        "monomoe_qwen3_5_35b_t32_g132_u64x1024x4_d64x512x5",
        3, {132, 64, 1024, 64, 512, 4, 5}, 32, 132, 608, 227072, 96, 860160, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x3.cubin",
        "6d4b1ca4a827f7cf08c79af1c059ef668e427d918926712c2bd00f7902e2ed7c",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x3",
        3, {128, 64, 1024, 128, 512, 4, 3}, 8, 128, 608, 131328, 92, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g128-u64x1024x4-d128x512x4.cubin",
        "8098f150ce11bfea3d73532c3505ea5db465259f94c557472317e5fca2e34cf0",
        "monomoe_qwen3_5_35b_t8_g128_u64x1024x4_d128x512x4",
        3, {128, 64, 1024, 128, 512, 4, 4}, 8, 128, 608, 131328, 92, 149504, Layout::kPacked, Router::kLogits, false},
    {"qwen3.5-35b-t8-g132-u32x512x4-d64x512x4.cubin",
        "1c7159fc0ad4cf6a2300fe18014b45e9bb0bb41d35b7174ee7df8cc4d8561ab4",
        "monomoe_qwen3_5_35b_t8_g132_u32x512x4_d64x512x4",
        3, {132, 32, 512, 64, 512, 4, 4}, 8, 132, 608, 131328, 92, 215040, Layout::kPacked, Router::kLogits, false},
};

// Sorted by model, then by variant, then by tuned_at.
inline constexpr Entry kEntries[] = {
    {0, 1, 8, 16.281},  // deepseek-v3.1-tp8, packed weights
    {0, 2, 8, 25.435},  // deepseek-v3.1-tp8, packed weights
    {0, 4, 8, 44.13},  // deepseek-v3.1-tp8, packed weights
    {0, 8, 8, 77.901},  // deepseek-v3.1-tp8, packed weights
    {1, 1, 8, 14.457},  // glm-5.2-tp8, packed weights
    {2, 2, 8, 22.464},  // glm-5.2-tp8, packed weights
    {2, 4, 8, 38.404},  // glm-5.2-tp8, packed weights
    {3, 8, 8, 67.035},  // glm-5.2-tp8, packed weights
    {5, 1, 8, 22.23},  // qwen3.5-122b, packed weights
    {4, 2, 8, 38.368},  // qwen3.5-122b, packed weights
    {4, 4, 8, 70.186},  // qwen3.5-122b, packed weights
    {4, 8, 8, 127.244},  // qwen3.5-122b, packed weights
    {8, 1, 8, 10.818},  // qwen3.5-35b, packed weights
    {9, 2, 8, 15.869},  // qwen3.5-35b, packed weights
    {9, 4, 8, 26.608},  // qwen3.5-35b, packed weights
    {10, 8, 8, 45.499},  // qwen3.5-35b, packed weights
    {6, 16, 16, 85.029},  // qwen3.5-35b, packed weights
    {7, 32, 32, 177.383},  // qwen3.5-35b, packed weights
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
