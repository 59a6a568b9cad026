// Scalar mathematics for generated loops: branch-free f32 functions that a compiler turns into vector code inside
// `#pragma omp simd`, and the same names for double (the C library's functions).
// Not here: reductions (reduce.h), storage types (half.h).
//
// Contract for f32: at most 4 ulp from the exact result over the whole range, denormals included; NaN in gives NaN out;
// infinities and domain errors as in IEEE 754 / C99. maximum, minimum and sign follow numpy (NaN propagates).
// fmod, sin, cos, tan and the other trigonometric functions call the C library: exact ranges matter more than speed there.
// Compile with -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=off and without -ffast-math: the
// rounding tricks below need IEEE semantics. Polynomials: weighted minimax fits (Lawson iteration in float64), rounded to f32.
#pragma once
#include <cmath>
#include <cstdint>

#include "vec.h"

namespace ua {

template <class To, class From>
UA_INLINE To bits(From x) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, x);
}

// a*b+c; one rounding where the machine has a fused multiply-add, so that SSE never calls the C library.
UA_INLINE float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}
UA_INLINE double fma(double a, double b, double c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

template <class T>
UA_INLINE T maximum(T a, T b) { return ((a > b) | (a != a)) ? a : b; }
template <class T>
UA_INLINE T minimum(T a, T b) { return ((a < b) | (a != a)) ? a : b; }

namespace detail {

// x if `yes`, else y, by bits: g++ makes jumps of two conditional expressions in a row, then a dozen masks of the jumps.
UA_INLINE float select(bool yes, float x, float y) {
    const int32_t mask = -int32_t(yes);
    return bits<float>((bits<int32_t>(x) & mask) | (bits<int32_t>(y) & ~mask));
}

}  // namespace detail

// One comparison does where b is a constant number, as in clipping: a NaN is not beside it and stays.
UA_INLINE float maximum(float a, float b) {
    if (__builtin_constant_p(b) && b == b) return detail::select(a <= b, b, a);
    return detail::select((a > b) | (a != a), a, b);
}
UA_INLINE float minimum(float a, float b) {
    if (__builtin_constant_p(b) && b == b) return detail::select(a >= b, b, a);
    return detail::select((a < b) | (a != a), a, b);
}

UA_INLINE float abs(float x) { return __builtin_fabsf(x); }
UA_INLINE double abs(double x) { return __builtin_fabs(x); }
template <class T>
UA_INLINE T abs(T x) { return x < 0 ? T(-x) : x; }

template <class T>
UA_INLINE T sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }  // x itself: keeps NaN and zeros

UA_INLINE float copysign(float x, float s) { return __builtin_copysignf(x, s); }
UA_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
UA_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
UA_INLINE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
UA_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
UA_INLINE float floor(float x) { return __builtin_floorf(x); }
UA_INLINE double floor(double x) { return __builtin_floor(x); }
UA_INLINE float ceil(float x) { return __builtin_ceilf(x); }
UA_INLINE double ceil(double x) { return __builtin_ceil(x); }
UA_INLINE float trunc(float x) { return __builtin_truncf(x); }
UA_INLINE double trunc(double x) { return __builtin_trunc(x); }
UA_INLINE float round_even(float x) { return __builtin_rintf(x); }
UA_INLINE double round_even(double x) { return __builtin_rint(x); }

namespace detail {

template <class T>
UA_INLINE T horner(T, T c) { return c; }
template <class T, class... C>
UA_INLINE T horner(T x, T c, C... rest) { return fma(horner(x, T(rest)...), x, c); }

// 2^n for n in -126..127, by building the exponent field.
UA_INLINE float power_of_two(int32_t n) { return bits<float>((n + 127) << 23); }

// exp of x in -104..89 without special values. Adding 1.5*2^23 rounds to an integer and leaves it in the low bits.
UA_INLINE float exp_core(float x) {
    const float magic = 12582912.0f;
    const float shifted = fma(x, 1.44269504f, magic);
    const int32_t n = bits<int32_t>(shifted) - bits<int32_t>(magic);
    const float k = shifted - magic;
    // ln 2 in two parts, the first with zeros at its end so that k times it is exact
    const float r = fma(k, -1.42860677e-6f, fma(k, -0.693145752f, x));
    const float p = horner(r, 5.000000101e-01f, 1.666651289e-01f, 4.166618728e-02f, 8.369598410e-03f, 1.395171725e-03f);
    const float y = 1.0f + fma(p, r * r, r);
    const int32_t half = n >> 1;  // two factors: the result may be denormal or just below overflow
    return y * power_of_two(half) * power_of_two(n - half);
}

// log(x) for finite x > 0, as (exponent, log of mantissa in sqrt(1/2)..sqrt(2)).
UA_INLINE float log_core(float x) {
    const bool tiny = x < 1.17549435e-38f;
    const float scaled = tiny ? x * 8388608.0f : x;
    const int32_t i = bits<int32_t>(scaled) - 0x3f3504f3;  // bits of sqrt(1/2)
    const float e = float(i >> 23) - (tiny ? 23.0f : 0.0f);
    const float f = bits<float>((i & 0x007fffff) + 0x3f3504f3) - 1.0f;
    const float p = horner(f, 3.333331260e-01f, -2.500000960e-01f, 2.000211873e-01f, -1.666799567e-01f, 1.421955091e-01f,
                           -1.240559142e-01f, 1.188817460e-01f, -1.167564130e-01f, 6.746601328e-02f);
    const float ff = f * f;
    const float low = fma(e, -2.12194440e-4f, p * ff * f);
    return fma(e, 0.693359375f, f + fma(-0.5f, ff, low));
}

}  // namespace detail

UA_INLINE float exp(float x) {
    const float low = x < -104.0f ? -104.0f : x;
    const float y = detail::exp_core(low > 89.0f ? 89.0f : low);
    return x != x ? x : y;
}
UA_INLINE double exp(double x) { return std::exp(x); }

UA_INLINE float expm1(float x) {
    // x + x^2 p(x) where 1 would cancel; p as in exp_core, valid for |x| < ln(2)/2
    const float p = detail::horner(x, 5.000000101e-01f, 1.666651289e-01f, 4.166618728e-02f, 8.369598410e-03f,
                                   1.395171725e-03f);
    return abs(x) < 0.34f ? fma(p, x * x, x) : exp(x) - 1.0f;
}
UA_INLINE double expm1(double x) { return std::expm1(x); }

UA_INLINE float log(float x) {
    const float inf = __builtin_inff();
    const float y = detail::log_core(x);
    return x == inf ? inf : x > 0.0f ? y : x == 0.0f ? -inf : __builtin_nanf("");
}
UA_INLINE double log(double x) { return std::log(x); }

UA_INLINE float log1p(float x) {
    const float u = 1.0f + x;
    const float y = log(u) + (u > 0.0f && u < 3e38f ? (x - (u - 1.0f)) / u : 0.0f);  // first-order term of what 1+x lost
    return abs(x) < 1e-4f ? fma(-0.5f * x, x, x) : y;
}
UA_INLINE double log1p(double x) { return std::log1p(x); }

UA_INLINE float sigmoid(float x) {
    const float e = exp(-abs(x));
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e) + (x != x ? x : 0.0f);
}
UA_INLINE double sigmoid(double x) {
    const double e = std::exp(-abs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

UA_INLINE float tanh(float x) {
    const float a = abs(x), z = x * x;
    const float p = detail::horner(z, -3.333328392e-01f, 1.333149125e-01f, -5.374349526e-02f, 2.065057900e-02f,
                                   -5.717036561e-03f);
    const float far = 1.0f - 2.0f / (detail::exp_core(a > 20.0f ? 40.0f : a + a) + 1.0f);
    const float y = a < 0.625f ? fma(p * z, x, x) : copysign(far, x);
    return x != x ? x : y;
}
UA_INLINE double tanh(double x) { return std::tanh(x); }

UA_INLINE float erf(float x) {
    const float a = abs(x), z = x * x;
    const float p = detail::horner(z, 1.283791659e-01f, -3.761262714e-01f, 1.128360018e-01f, -2.685444459e-02f,
                                   5.189535339e-03f, -8.020841273e-04f, 7.889119509e-05f);
    const float t = a > 4.0f ? 4.0f : a;  // erf(4) rounds to 1
    const float q = detail::horner(t, -1.824604956e-04f, 1.129552043e+00f, 6.332724102e-01f, 1.083615567e-01f,
                                   -2.517181174e-02f, 4.190857011e-03f, -4.385302186e-04f, 2.144559244e-05f);
    const float far = 1.0f - detail::exp_core(-q);  // q(t) = -log(erfc(t))
    const float y = a < 1.0f ? fma(p, x, x) : copysign(far, x);
    return x != x ? x : y;
}
UA_INLINE double erf(double x) { return std::erf(x); }

namespace detail {

// log2 of a positive finite double, relative error below 1e-12.
UA_INLINE double log2_wide(double x) {
    const int64_t i = bits<int64_t>(x) - 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2)
    // the exponent as a double without an int64 conversion (which AVX2 lacks): plant it in the mantissa of 2^52
    const int64_t biased = ((i >> 32 >> 20) & 0xfff) ^ 0x800;
    const double e = bits<double>(biased | 0x4330000000000000) - (4503599627370496.0 + 2048.0);
    const double m = bits<double>((i & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    const double p = horner(z, 3.33333333243729157e-01, 2.00000043220554424e-01, 1.42850368156461183e-01,
                            1.11575237650139339e-01, 7.64205957977226041e-02, 2.47683291588932430e-01);
    return fma(fma(p * z, s, s), 2.8853900817779268, e);  // 2/ln 2
}

// 2^x for |x| < 1000, relative error below 1e-12.
UA_INLINE double exp2_wide(double x) {
    const double magic = 6755399441055744.0;
    const double shifted = x + magic;
    const int64_t n = bits<int64_t>(shifted) - bits<int64_t>(magic);
    const double p = horner(x - (shifted - magic), 1.0, 6.93147180559956166e-01, 2.40226506956403407e-01,
                            5.55041086641457904e-02, 9.61812919396631827e-03, 1.33335582736116010e-03,
                            1.54034336844688369e-04, 1.52526347392267780e-05, 1.32596687762998044e-06,
                            1.02125341072678566e-07);
    return p * bits<double>((n + 1023) << 52);
}

}  // namespace detail

// C99 pow, all special cases, by way of double.
UA_INLINE float pow(float x, float y) {
    const float inf = __builtin_inff();
    const float a = abs(x), ay = abs(y);
    const bool whole = (trunc(y) == y) | (ay >= 8388608.0f);
    const bool odd = whole & (ay < 16777216.0f) & (trunc(y * 0.5f) != y * 0.5f);
    double t = double(y) * detail::log2_wide(a > 0.0f ? double(a) : 1.0);
    t = t > 200.0 ? 200.0 : t < -200.0 ? -200.0 : t;
    float r = float(detail::exp2_wide(t));
    const float at_zero = y < 0.0f ? inf : 0.0f;
    const float at_inf = y < 0.0f ? 0.0f : inf;
    r = a == 0.0f ? at_zero : a == inf ? at_inf : r;
    const float y_inf = a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? inf : 0.0f;
    r = ay == inf ? y_inf : r;
    r = (odd & (bits<int32_t>(x) < 0)) ? -r : r;
    r = ((x < 0.0f) & (a != inf) & !whole) ? __builtin_nanf("") : r;
    r = ((x != x) | (y != y)) ? x + y : r;
    return ((y == 0.0f) | (x == 1.0f)) ? 1.0f : r;
}
UA_INLINE double pow(double x, double y) { return std::pow(x, y); }

inline float fmod(float a, float b) { return std::fmod(a, b); }
inline double fmod(double a, double b) { return std::fmod(a, b); }

#define UA_LIBRARY(name)                                   \
    inline float name(float x) { return std::name(x); }    \
    inline double name(double x) { return std::name(x); }
UA_LIBRARY(sin) UA_LIBRARY(cos) UA_LIBRARY(tan) UA_LIBRARY(asin) UA_LIBRARY(acos) UA_LIBRARY(atan)
UA_LIBRARY(sinh) UA_LIBRARY(cosh) UA_LIBRARY(asinh) UA_LIBRARY(acosh) UA_LIBRARY(atanh)
#undef UA_LIBRARY

}  // namespace ua
