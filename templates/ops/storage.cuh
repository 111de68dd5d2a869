// The CTA's shared memory and the kernel's arguments.
#pragma once

#include "device/mbarrier.cuh"
#include "device/warp.cuh"
#include "device/numeric.cuh"
#include "schedule.cuh"

struct Args {
    const device::Bf16* x;       // [tokens][kHidden]
    const shape::Logit* logits;  // [tokens][kLogits]; null with kRouterWeight
    const device::Bf16* router;  // [kExperts][kHidden], only with kRouterWeight
    const float* bias;           // [kExperts], read only with kExpertBias
    const u8* w13;               // packed, see monomoe_gen/weights.py; with kRaw [kAllExperts][2 * kIntermediate][kHidden]
    const float* w13_scale;      // [kAllExperts][2 * kIntermediate / 128][kHidden / 128]
    const u8* w2;                // packed; with kRaw [kAllExperts][kHidden][kIntermediate]
    const float* w2_scale;       // [kAllExperts][kHidden / 128][kIntermediate / 128]
    device::Bf16* y;             // [tokens][kHidden]
    u8* workspace;               // header, then two halves; zeroed once at allocation
    u32 workspace_half_bytes;
    u32 tokens;                  // 1 ... kTokenTile
    u64 wait_limit_ns;           // a wait that lasts longer ends in a trap
    u64* trace;                  // only with kTrace
};

// One turn of an expert: at most one token of every column, where token t is multiplied in column t % 8. An expert with
// more tokens of a column has several turns. Its rows of h are first_row ... in token order.
struct ActiveExpert {
    u16 expert;
    u16 first_row;
    u32 tokens;  // bit t: token t is routed here in this turn

    MONOMOE_DEVICE bool has(u32 token) const { return tokens >> token & 1; }
    MONOMOE_DEVICE u32 row(u32 token) const { return first_row + device::count_bits(tokens & ((1u << token) - 1)); }
};

// The token of a column, or any token of the column if none of `tokens` is.
MONOMOE_DEVICE u32 token_of(u32 tokens, u32 column) {
    if (schedule::kTokenTiles == 1) return column;
    const u32 found = tokens >> column & 0x01010101u;
    return found ? column + device::lowest_bit(found) : column;
}

constexpr u16 kNoExpert = 0xffff;

struct Barriers {
    device::Mbarrier full[schedule::kRingStages];
    device::Mbarrier empty[schedule::kRingStages];
    device::Mbarrier h_full[schedule::kHSlots];
    device::Mbarrier h_empty[schedule::kHSlots];
    device::Mbarrier partial_full[2];
    device::Mbarrier partial_empty[2];
    device::Mbarrier routed;        // chosen is complete; only with kRouterWeight, else kMade says so
    device::Mbarrier weighted;      // selected and weight are complete
    device::Mbarrier listed;        // active_count, experts and tokens of active are complete
    device::Mbarrier numbered;      // first_row of active is complete
    device::Mbarrier up_ending[2];  // this CTA has begun its last up unit, its last but one if it has several
    device::Mbarrier peer_summed;   // peer_sums is complete; only with kPaired
    device::Mbarrier x_ready[schedule::kInputParts];  // a part of the columns of x and x_scale is complete

    static constexpr u32 kCount = 2 * schedule::kRingStages + 2 * schedule::kHSlots + schedule::kInputParts + 11;

    // Arrivals that complete a phase of barrier `index`, in the order of the members.
    static MONOMOE_DEVICE u32 arrivals(u32 index, u32 tokens) {
        constexpr u32 kEmpty = schedule::kRingStages, kHFull = 2 * kEmpty;
        constexpr u32 kHEmpty = kHFull + schedule::kHSlots, kPartialFull = kHEmpty + schedule::kHSlots;
        constexpr u32 kPartialEmpty = kPartialFull + 2, kRouted = kPartialEmpty + 2, kWeighted = kRouted + 1, kXReady = kWeighted + 6;
        u32 count = 1;  // full: the producer; partial_empty: its epilogue warp; listed; numbered; up_ending; peer_summed
        if (index >= kEmpty && index < kHFull) count = schedule::kMmaWarps;
        if (index >= kHFull && index < kHEmpty) count = schedule::kSlotWarps;
        if (index >= kHEmpty && index < kPartialFull) count = schedule::kMmaWarps / schedule::kExpertsPerStageDown;
        if (index >= kPartialFull && index < kPartialEmpty) count = schedule::kMmaWarps;
        if (index == kRouted) count = schedule::kRequantWarps;
        if (index == kWeighted) count = tokens < schedule::kRequantWarps ? tokens : schedule::kRequantWarps;
        if (index >= kXReady) count = schedule::kRequantWarps;
        return count;
    }
};
static_assert(sizeof(Barriers) == Barriers::kCount * sizeof(device::Mbarrier), "the barriers are one array");

// Barriers of the hardware, by number.
struct NamedBarrier {
    enum : u32 {
        kMade,    // barriers made, header read and, without the router inside, chosen complete; met by all threads,
                  // awaited by those who need it late
        kEpoch,   // barriers made and header read; met and awaited by the MMA warps and the epilogue warp that reads it
        kOutput,  // MMA warps, behind the writing of the output's partial sums
        kLogits,  // MMA warps, around the partial sums of logits
        kRing,    // barriers made; met by the MMA warps, awaited by the producer warp
    };
};

struct alignas(128) SharedStorage {
    // weight stream: written by the copy engine, read by the MMA warps
    u8 ring[schedule::kRingBytes];
    // input as it is multiplied, written once, where there is room for it
    shape::Activation x[schedule::kXInShared ? schedule::kTokenTile : 1][schedule::kXInShared ? shape::kHidden + schedule::kRowPad : 16 / sizeof(shape::Activation)];
    // h of kHSlots experts, rounded to e4m3 or bf16, by column; rows of columns without a token are never used
    shape::Activation h[schedule::kHSlots][schedule::kColumns][shape::kIntermediate + schedule::kRowPad];
    union {
        // partial sums on their way to the epilogue warps, two units in turn
        F32x4 up[2][schedule::kMmaWarps][schedule::UpStage::kAccumulators][32];
        // partial sums of the output, after the last unit has left `up`
        F32x4 down[schedule::kTokenTiles][schedule::kMmaWarps][schedule::DownStage::kAccumulators][32];
        struct {  // before `listed`
            // by lane of the routing warps and token: the lane's experts as bits
            alignas(16) schedule::LaneMask chosen[32][schedule::kTokenTile];
            float router[schedule::kMmaWarps][16];  // partial sums of logits
        } routing;
    };
    float x_scale[shape::quantizes() ? schedule::kHiddenBlocks : 1][schedule::kTokenTile];  // of quantized input
    // h scale, if quantized, * weight scale * routing weight
    float h_scale[schedule::kHSlots][schedule::kDownScaleRows][schedule::kIntermediateBlocks][schedule::kColumns];
    // scales of gate and up for the column blocks of each MMA warp, units in turn
    alignas(16) float up_scale[schedule::kMmaWarps][schedule::kScaleSlots][schedule::kUnitColumns][2];
    ActiveExpert active[schedule::kMaxActive];  // in the order of list_experts
    // the output stripe as the other CTA of the cluster has summed it, by tile and lane, written by that CTA
    F32x4 peer_sums[schedule::kPaired ? schedule::kTokenTiles : 1][schedule::kPaired ? schedule::DownStage::kTiles : 1][schedule::kPaired ? 32 : 1];
    alignas(16) float weight[schedule::kTokenTile][shape::kTokenExperts];
    alignas(16) u16 selected[schedule::kTokenTile][schedule::kSelectedWords * 8];  // the expert of each weight, then kNoExpert

    alignas(16) Barriers barrier;

    alignas(16) u32 active_count;
    u32 epoch;
    u32 dirty_bytes;
    u32 up_ending_since[2];  // clock of up_ending
};
