// Number formats and the matrix product, as the GPU defines them.
#include <array>
#include <bit>
#include <cmath>

#include "simulator/machine.h"

namespace sim {

namespace {

float float_from_half(u32 half) {
    const u32 exponent = half >> 10 & 31, mantissa = half & 0x3ff;
    float magnitude;
    if (exponent == 31) {
        magnitude = mantissa ? std::bit_cast<float>(0x7fc00000u) : INFINITY;
    } else if (exponent) {
        magnitude = std::ldexp(1024.f + static_cast<float>(mantissa), static_cast<int>(exponent) - 25);
    } else {
        magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    }
    return half & 0x8000 ? -magnitude : magnitude;
}

const auto kHalfFromE4m3 = [] {
    std::array<u16, 256> table{};
    for (u32 byte = 0; byte < 256; ++byte) {
        const u32 sign = (byte & 0x80) << 8, exponent = byte >> 3 & 15, mantissa = byte & 7;
        u32 half;
        if ((byte & 0x7f) == 0x7f) {
            half = 0x7fff;
        } else if (exponent) {
            half = sign | (exponent + 8) << 10 | mantissa << 7;
        } else if (mantissa) {  // subnormal in e4m3, normal in fp16
            const u32 high = static_cast<u32>(std::bit_width(mantissa)) - 1;
            half = sign | (high + 6) << 10 | (mantissa << (10 - high) & 0x3ff);
        } else {
            half = sign;
        }
        table[byte] = static_cast<u16>(half);
    }
    return table;
}();

const auto kFloatFromHalf = [] {
    std::array<float, 65536> table{};
    for (u32 half = 0; half < 65536; ++half) table[half] = float_from_half(half);
    return table;
}();

}  // namespace

u32 half_from_e4m3(u32 byte) { return kHalfFromE4m3[byte]; }
u32 bf16_from_e4m3(u32 byte) { return bf16_from_float(kFloatFromHalf[kHalfFromE4m3[byte]]); }

u32 e4m3_from_float(float value) {
    if (value != value) return 0x7f;
    const u32 sign = std::signbit(value) ? 0x80 : 0;
    const float magnitude = std::fabs(value);
    if (magnitude >= 448.f) return sign | 0x7e;
    if (magnitude == 0.f) return sign;
    int exponent;
    std::frexp(magnitude, &exponent);                       // magnitude = [0.5, 1) * 2^exponent
    const int step = (exponent < -5 ? -5 : exponent) - 4;   // the value of the last mantissa bit
    const u32 units = static_cast<u32>(std::nearbyint(std::ldexp(magnitude, -step)));  // round to nearest even
    // Subnormals (step -9) count units from 0; normals from 8, and 16 carries into the exponent.
    return sign | (static_cast<u32>(step + 9) * 8 + units);
}

u16 bf16_from_float(float value) {
    const u32 bits = std::bit_cast<u32>(value);
    if (value != value) return 0x7fff;
    return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

namespace {

// `wide` makes a double of 16 bits.
template <typename Wide>
void multiply_16_bits(float (*d)[4], const u32 (*a)[4], const u32 (*b)[2], Wide wide) {
    const auto half = [&](u32 pair, u32 which) { return static_cast<double>(wide(which ? pair >> 16 : pair & 0xffff)); };
    double left[16][16], right[16][8];  // [row][k], [k][column]
    for (u32 lane = 0; lane < 32; ++lane) {
        const u32 g = lane / 4, q = lane % 4;
        for (u32 i = 0; i < 2; ++i) {
            left[g][2 * q + i] = half(a[lane][0], i);
            left[g + 8][2 * q + i] = half(a[lane][1], i);
            left[g][2 * q + 8 + i] = half(a[lane][2], i);
            left[g + 8][2 * q + 8 + i] = half(a[lane][3], i);
            right[2 * q + i][g] = half(b[lane][0], i);
            right[2 * q + 8 + i][g] = half(b[lane][1], i);
        }
    }
    for (u32 row = 0; row < 16; ++row) {
        double sum[8] = {};
        for (u32 k = 0; k < 16; ++k) {
            for (u32 column = 0; column < 8; ++column) sum[column] += left[row][k] * right[k][column];
        }
        for (u32 column = 0; column < 8; ++column) {
            float& out = d[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2];
            out = static_cast<float>(out + sum[column]);
        }
    }
}

}  // namespace

void multiply_fragments(float (*d)[4], const u32 (*a)[4], const u32 (*b)[2]) {
    multiply_16_bits(d, a, b, [](u32 half) { return kFloatFromHalf[half]; });
}

void multiply_bf16_fragments(float (*d)[4], const u32 (*a)[4], const u32 (*b)[2]) {
    multiply_16_bits(d, a, b, [](u32 bf16) { return std::bit_cast<float>(bf16 << 16); });
}

}  // namespace sim
