// Input that stays bf16: copied to shared memory, or read where it is if it does not fit there.
#pragma once

#include "device/memory.cuh"
#include "device/warp.cuh"
#include "ops/given.cuh"
#include "ops/product.cuh"
#include "ops/storage.cuh"

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
