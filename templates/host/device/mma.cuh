// Host: tensor-core products on fp16 or bf16 pairs with fp32 accumulation.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

MONOMOE_DEVICE void mma_16x8x16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    const u32 a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    sim::mma_16x8x16(d, a, b);
}

MONOMOE_DEVICE void mma_bf16_16x8x16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    const u32 a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    sim::mma_bf16_16x8x16(d, a, b);
}

}  // namespace device
