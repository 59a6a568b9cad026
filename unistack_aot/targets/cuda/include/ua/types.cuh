// Element types of tensors and the casts between them.
//
// f16 and bf16 hold bits only: arithmetic happens in float, through cast<float>(x) and cast<f16>(y). tf32 and tf32x3 are tags
// that choose a matrix instruction for float operands; they store float.
//
// cast<T>(x) rounds to nearest even between floating-point types. To integers it truncates; what does not fit, and NaN, gives
// the smallest 32-bit (for 64-bit targets: 64-bit) integer, narrower targets keep the low bits of that: what numpy and onnxruntime
// give on x86-64. cast<bool> is x != 0.
#pragma once
#include "platform.cuh"

namespace ua {

struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};
struct tf32 {};
struct tf32x3 {};

// N elements that move as one access; 16 bytes at most per instruction.
template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vector {
    T at[N];
    UA_METHOD T& operator[](int i) { return at[i]; }
    UA_METHOD const T& operator[](int i) const { return at[i]; }
};

template <class To, class From>
UA_DEVICE To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

namespace detail {

// ---- f16 and bf16

UA_DEVICE float widen(f16 value) {
#if UA_EMULATED
    return static_cast<float>(bit_cast<_Float16>(value.bits));
#else
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
#endif
}
UA_DEVICE float widen(bf16 value) { return bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

UA_DEVICE f16 to_f16(float value) {
#if UA_EMULATED
    return {bit_cast<uint16_t>(static_cast<_Float16>(value))};
#else
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
#endif
}
UA_DEVICE f16 to_f16(double value) {
#if UA_EMULATED
    return {bit_cast<uint16_t>(static_cast<_Float16>(value))};
#else
    f16 result;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(result.bits) : "d"(value));
    return result;
#endif
}
UA_DEVICE bf16 to_bf16(float value) {
#if !UA_EMULATED && UA_SM >= 80
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
#else
    const uint32_t bits = bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
    return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

// ---- floating point to integers

template <class T>
UA_DEVICE int32_t to_int32(T value) {
    return value >= static_cast<T>(-2147483648.0) && value < static_cast<T>(2147483648.0) ? static_cast<int32_t>(value)
                                                                                       : INT32_MIN;
}
template <class T>
UA_DEVICE int64_t to_int64(T value) {
    return value >= static_cast<T>(-9223372036854775808.0) && value < static_cast<T>(9223372036854775808.0)
               ? static_cast<int64_t>(value)
               : INT64_MIN;
}
template <class T>
UA_DEVICE uint64_t to_uint64(T value) {
    const T half_range = static_cast<T>(9223372036854775808.0);
    if (!(value >= half_range)) return static_cast<uint64_t>(to_int64(value));
    return static_cast<uint64_t>(to_int64(value - half_range)) ^ 0x8000000000000000ull;
}

// ---- the source of a cast as a number of the machine

UA_DEVICE float number(f16 value) { return widen(value); }
UA_DEVICE float number(bf16 value) { return widen(value); }
template <class T>
UA_DEVICE T number(T value) {
    return value;
}

template <class T>
struct Cast {  // integers to integers and to float, double
    template <class From>
    UA_DEVICE T from(From value) {
        return static_cast<T>(value);
    }
};
template <>
struct Cast<bool> {
    template <class From>
    UA_DEVICE bool from(From value) {
        return value != static_cast<From>(0);
    }
};
template <>
struct Cast<f16> {
    UA_DEVICE f16 from(double value) { return to_f16(value); }
    template <class From>
    UA_DEVICE f16 from(From value) {
        return to_f16(static_cast<float>(value));
    }
};
template <>
struct Cast<bf16> {
    template <class From>
    UA_DEVICE bf16 from(From value) {
        return to_bf16(static_cast<float>(value));
    }
};

#define UA_CAST_FROM_FLOATING(type, expression)                        \
    template <>                                                        \
    struct Cast<type> {                                                \
        UA_DEVICE type from(float value) { return expression; }        \
        UA_DEVICE type from(double value) { return expression; }       \
        template <class From>                                          \
        UA_DEVICE type from(From value) {                              \
            return static_cast<type>(value);                           \
        }                                                              \
    };
UA_CAST_FROM_FLOATING(int8_t, static_cast<int8_t>(to_int32(value)))
UA_CAST_FROM_FLOATING(uint8_t, static_cast<uint8_t>(to_int32(value)))
UA_CAST_FROM_FLOATING(int16_t, static_cast<int16_t>(to_int32(value)))
UA_CAST_FROM_FLOATING(uint16_t, static_cast<uint16_t>(to_int32(value)))
UA_CAST_FROM_FLOATING(int32_t, to_int32(value))
UA_CAST_FROM_FLOATING(uint32_t, static_cast<uint32_t>(to_int64(value)))
UA_CAST_FROM_FLOATING(long, to_int64(value))
UA_CAST_FROM_FLOATING(long long, to_int64(value))
UA_CAST_FROM_FLOATING(unsigned long, to_uint64(value))
UA_CAST_FROM_FLOATING(unsigned long long, to_uint64(value))
#undef UA_CAST_FROM_FLOATING

}  // namespace detail

template <class T, class From>
UA_DEVICE T cast(From value) {
    return detail::Cast<T>::from(detail::number(value));
}

// Rounds to the 10 mantissa bits that a tf32 matrix instruction reads (nearest, ties away from zero).
UA_DEVICE float round_tf32(float value) {
#if !UA_EMULATED && UA_SM >= 80
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bit_cast<float>(bits);
#else
    uint32_t bits = bit_cast<uint32_t>(value);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
    return bit_cast<float>(bits & 0xffffe000u);
#endif
}

}  // namespace ua
