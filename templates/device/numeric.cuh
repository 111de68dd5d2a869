// Number formats: bf16, e4m3, fp16 pairs, and the bits of a float.
#pragma once

#include "device/qualifiers.cuh"

namespace device {

using Bf16 = u16;  // storage only

MONOMOE_DEVICE float bits_to_float(u32 bits) { return __uint_as_float(bits); }
MONOMOE_DEVICE u32 float_to_bits(float value) { return __float_as_uint(value); }
MONOMOE_DEVICE float negative_infinity() { return bits_to_float(0xff800000u); }
MONOMOE_DEVICE float not_a_number() { return bits_to_float(0x7fffffffu); }

MONOMOE_DEVICE float bf16_to_float(Bf16 value) { return bits_to_float(static_cast<u32>(value) << 16); }
MONOMOE_DEVICE F32x2 bf16x2_to_float(u32 pair) { return {bits_to_float(pair << 16), bits_to_float(pair & 0xffff0000u)}; }

// Largest magnitude of eight bf16 values, as bf16 bits; a NaN is larger than every number.
MONOMOE_DEVICE u32 bf16x8_absolute_max(U32x4 v) {
    constexpr u32 kMagnitude = 0x7fff7fffu;
    const u32 pair = __vmaxu2(__vmaxu2(v.x & kMagnitude, v.y & kMagnitude), __vmaxu2(v.z & kMagnitude, v.w & kMagnitude));
    return max(pair & 0xffffu, pair >> 16);
}

// Round to nearest even.
MONOMOE_DEVICE Bf16 float_to_bf16(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Four e4m3 values, the first in the low byte: round to nearest even, saturating at 448.
MONOMOE_DEVICE u32 float_to_e4m3x4(float a, float b, float c, float d) {
    u16 low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(low) : "f"(a), "f"(b));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(high) : "f"(c), "f"(d));
    return static_cast<u32>(low) | static_cast<u32>(high) << 16;
}

// Four e4m3 values as two pairs of fp16, exact.
MONOMOE_DEVICE U32x2 e4m3x4_to_half(u32 bytes) {
    U32x2 half;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}"
        : "=r"(half.x), "=r"(half.y)
        : "r"(bytes));
    return half;
}

// The same as two pairs of bf16, exact.
MONOMOE_DEVICE U32x2 e4m3x4_to_bf16(u32 bytes) {
    const U32x2 half = e4m3x4_to_half(bytes);
    const auto widen = [](u32 pair) {
        u32 wide;
        asm("{\n"
            ".reg .b16 low, high;\n"
            ".reg .f32 a, b;\n"
            "mov.b32 {low, high}, %1;\n"
            "cvt.f32.f16 a, low;\n"
            "cvt.f32.f16 b, high;\n"
            "cvt.rn.bf16x2.f32 %0, b, a;\n"
            "}"
            : "=r"(wide)
            : "r"(pair));
        return wide;
    };
    return {widen(half.x), widen(half.y)};
}

MONOMOE_DEVICE float absolute(float value) { return fabsf(value); }
MONOMOE_DEVICE float maximum(float a, float b) { return fmaxf(a, b); }
MONOMOE_DEVICE u32 maximum(u32 a, u32 b) { return max(a, b); }
MONOMOE_DEVICE float minimum(float a, float b) { return fminf(a, b); }
MONOMOE_DEVICE u32 minimum(u32 a, u32 b) { return min(a, b); }
// Relative error about 2^-21 for arguments around 1, growing with their size.
MONOMOE_DEVICE float exponential_fast(float value) { return __expf(value); }
// Correctly rounded for normal operands and quotients, in a handful of instructions: an approximate reciprocal, one
// Newton step, and a correction of the quotient by its exact remainder (Markstein 1990). |b| <= 2^126.
MONOMOE_DEVICE float divide_rounded(float a, float b) {
    float approximate;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(approximate) : "f"(b));
    const float reciprocal = fmaf(approximate, fmaf(-b, approximate, 1.f), approximate);
    const float quotient = a * reciprocal;
    return fmaf(fmaf(-b, quotient, a), reciprocal, quotient);
}
MONOMOE_DEVICE float divide_fast(float a, float b) { return __fdividef(a, b); }

}  // namespace device
