// Host: number formats and the bits of a float.
#pragma once

#include <bit>
#include <cmath>

#include "device/qualifiers.cuh"

namespace device {

using Bf16 = u16;  // storage only

MONOMOE_DEVICE float bits_to_float(u32 bits) { return std::bit_cast<float>(bits); }
MONOMOE_DEVICE u32 float_to_bits(float value) { return std::bit_cast<u32>(value); }
MONOMOE_DEVICE float negative_infinity() { return bits_to_float(0xff800000u); }
MONOMOE_DEVICE float not_a_number() { return bits_to_float(0x7fffffffu); }

MONOMOE_DEVICE float bf16_to_float(Bf16 value) { return bits_to_float(static_cast<u32>(value) << 16); }
MONOMOE_DEVICE F32x2 bf16x2_to_float(u32 pair) { return {bits_to_float(pair << 16), bits_to_float(pair & 0xffff0000u)}; }

// Largest magnitude of eight bf16 values, as bf16 bits; a NaN is larger than every number.
MONOMOE_DEVICE u32 bf16x8_absolute_max(U32x4 v) {
    const u32 pairs[4] = {v.x, v.y, v.z, v.w};
    u32 largest = 0;
    for (u32 pair : pairs) {
        const u32 low = pair & 0x7fffu, high = pair >> 16 & 0x7fffu;
        largest = low > largest ? low : largest;
        largest = high > largest ? high : largest;
    }
    return largest;
}

MONOMOE_DEVICE Bf16 float_to_bf16(float value) { return sim::bf16_from_float(value); }

MONOMOE_DEVICE u32 float_to_e4m3x4(float a, float b, float c, float d) {
    return sim::e4m3_from_float(a) | sim::e4m3_from_float(b) << 8 | sim::e4m3_from_float(c) << 16 |
           sim::e4m3_from_float(d) << 24;
}

MONOMOE_DEVICE U32x2 e4m3x4_to_half(u32 bytes) {
    return {sim::half_from_e4m3(bytes & 0xff) | sim::half_from_e4m3(bytes >> 8 & 0xff) << 16,
            sim::half_from_e4m3(bytes >> 16 & 0xff) | sim::half_from_e4m3(bytes >> 24) << 16};
}

MONOMOE_DEVICE U32x2 e4m3x4_to_bf16(u32 bytes) {
    return {sim::bf16_from_e4m3(bytes & 0xff) | sim::bf16_from_e4m3(bytes >> 8 & 0xff) << 16,
            sim::bf16_from_e4m3(bytes >> 16 & 0xff) | sim::bf16_from_e4m3(bytes >> 24) << 16};
}

MONOMOE_DEVICE float absolute(float value) { return std::fabs(value); }
// The number where the other is NaN; std::fmax would give NaN where that one signals.
MONOMOE_DEVICE float maximum(float a, float b) { return a > b || b != b ? a : b; }
MONOMOE_DEVICE u32 maximum(u32 a, u32 b) { return a > b ? a : b; }
MONOMOE_DEVICE float minimum(float a, float b) { return a < b || b != b ? a : b; }
MONOMOE_DEVICE u32 minimum(u32 a, u32 b) { return a < b ? a : b; }
// Correctly rounded, but for one value in some 2^29.
MONOMOE_DEVICE float exponential_fast(float value) { return static_cast<float>(std::exp(static_cast<double>(value))); }
MONOMOE_DEVICE float divide_rounded(float a, float b) { return a / b; }
MONOMOE_DEVICE float divide_fast(float a, float b) { return a / b; }

}  // namespace device
