// Storage types f16 and bf16: 16 bits in memory, f32 in registers.
// Not here: arithmetic in these types (always done in f32).
#pragma once
#include "math.h"

namespace ua {

struct f16 {
    uint16_t raw;
};
struct bf16 {
    uint16_t raw;
};

// Branch-free integer forms; they vectorise in simd loops on every instruction set.
UA_INLINE float to_float(bf16 x) { return bits<float>(uint32_t(x.raw) << 16); }

UA_INLINE bf16 to_bf16(float x) {
    const uint32_t i = bits<uint32_t>(x);
    const uint32_t rounded = (i + 0x7fffu + ((i >> 16) & 1u)) >> 16;  // to nearest, ties to even
    const uint32_t quiet = (i >> 16) | 0x40u;
    return {uint16_t(x != x ? quiet : rounded)};
}

UA_INLINE float to_float(f16 x) {
    const uint32_t sign = uint32_t(x.raw & 0x8000u) << 16, rest = x.raw & 0x7fffu;
    const float normal = bits<float>(rest << 13) * 5.192296858534828e33f;  // 2^112 moves the exponent bias; denormals too
    const uint32_t special = 0x7f800000u | rest << 13;
    return bits<float>(sign | (rest >= 0x7c00u ? special : bits<uint32_t>(normal)));
}

UA_INLINE f16 to_f16(float x) {
    const uint32_t sign = bits<uint32_t>(x) >> 16 & 0x8000u;
    const float a = abs(x);
    const uint32_t i = bits<uint32_t>(a);
    const uint32_t normal = (i + 0xfffu + ((i >> 13) & 1u) - (112u << 23)) >> 13;
    const uint32_t tiny = bits<uint32_t>(a + 0.5f) - bits<uint32_t>(0.5f);  // the addition rounds at 2^-24
    const uint32_t finite = a < 6.103515625e-05f ? tiny : normal;
    const uint32_t big = x != x ? 0x7e00u | (i >> 13 & 0x3ffu) : 0x7c00u;
    return {uint16_t(sign | (a < 65520.0f ? finite : big))};
}

// The f32 nearest to x among the values of T, without a stop in 16 bits: what to_float(to_f16(x)) gives, but that a NaN
// keeps its payload.
template <class T>
UA_INLINE float rounded(float x);

template <>
UA_INLINE float rounded<bf16>(float x) {
    const uint32_t i = bits<uint32_t>(x);
    return x != x ? x : bits<float>((i + 0x7fffu + ((i >> 16) & 1u)) & 0xffff0000u);
}

template <>
UA_INLINE float rounded<f16>(float x) {
    const uint32_t i = bits<uint32_t>(x), sign = i & 0x80000000u;
    const float a = abs(x);
    const float normal = bits<float>((i + 0xfffu + ((i >> 13) & 1u)) & 0xffffe000u);
    const float tiny = bits<float>(bits<uint32_t>((a + 0.5f) - 0.5f) | sign);  // the addition rounds at 2^-24
    const float infinite = bits<float>(0x7f800000u | sign);
    const float big = x != x ? x : infinite;
    return a < 6.103515625e-05f ? tiny : a < 65520.0f ? normal : big;
}

}  // namespace ua
