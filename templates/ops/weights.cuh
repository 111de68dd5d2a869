// How a block of 16x128 weights lies in a stage, and how a lane reads its operands of the eight MMAs.
//
// Packed, a block is 2048 bytes in the order of the lanes. Raw, a stage is rows of Stage::kRowBytes, one after the
// other: all gate rows of the stripe and then its up rows, or the rows of the output stripe, expert by expert. See
// monomoe_gen/weights.py.
#pragma once

#include "device/memory.cuh"
#include "schedule.cuh"

// The A operands of lane 4g+q: part[2c+p] holds, at the columns 64c + 16q + 8p, four bytes of row g, four of row g+8,
// and the next four of each.
struct BlockOperand {
    U32x4 part[4];
};

MONOMOE_DEVICE BlockOperand packed_operand(const u8* block, u32 lane) {
    BlockOperand a;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) a.part[i] = device::load_shared_early(block + i * 512 + lane * 16);
    return a;
}

template <typename Stage>
struct RawStage {
    static constexpr u32 kHalfTile = schedule::kRowTile / 2;
    // From row g of a tile to its row g+8, in bytes: from a gate row to its up row, or eight rows further.
    static constexpr u32 kHighRows = (Stage::kIsUp ? Stage::kTiles : 1) * kHalfTile * Stage::kRowBytes;

    // Where the 128 columns of block `index` begin in row g of its tile.
    MONOMOE_DEVICE static u32 row_at(u32 index, u32 lane) {
        const u32 tile = index / Stage::kColumnBlocks, column = index % Stage::kColumnBlocks;
        const u32 row = tile * (Stage::kIsUp ? kHalfTile : schedule::kRowTile) + lane / 4;
        return row * Stage::kRowBytes + column * schedule::kScaleBlock;
    }
};

// `low` and `high` are the lane's rows g and g+8 of a block. Rows that lie side by side meet in the same banks, so lanes
// of odd rows read the second half of the block first.
MONOMOE_DEVICE BlockOperand raw_operand(const u8* low, const u8* high, u32 lane) {
    const bool odd = lane & 4;
    const u32 near = lane % 4 * 16 + (odd ? 64 : 0), far = near ^ 64;
    const U32x4 rows[2][2] = {{device::load_shared_early(low + near), device::load_shared_early(low + far)},
                              {device::load_shared_early(high + near), device::load_shared_early(high + far)}};
    BlockOperand a;
#pragma unroll
    for (u32 c = 0; c < 2; ++c) {
        const U32x4 l = odd ? rows[0][1 - c] : rows[0][c], h = odd ? rows[1][1 - c] : rows[1][c];
        a.part[2 * c] = {l.x, h.x, l.y, h.y};
        a.part[2 * c + 1] = {l.z, h.z, l.w, h.w};
    }
    return a;
}
