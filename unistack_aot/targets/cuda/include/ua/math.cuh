// Scalar mathematics of generated kernels: one overload set over float, double and integers, the same names everywhere.
//
// f16 and bf16 are computed in float: ua::cast<ua::f16>(ua::exp(ua::cast<float>(x))). float results are within 4 ulp; nothing
// here uses the approximate instructions. Where numpy and C differ, numpy decides: minimum and maximum give NaN if
// either side is NaN, sign(NaN) is NaN, mod has the sign of its divisor.
#pragma once
#include "types.cuh"

namespace ua {

// f(x) for float and double from the C library's functions of that name.
#define UA_MATH_UNARY(name, for_float, for_double)                  \
    UA_DEVICE float name(float x) { return ::for_float(x); }        \
    UA_DEVICE double name(double x) { return ::for_double(x); }
UA_MATH_UNARY(exp, expf, exp)
UA_MATH_UNARY(exp2, exp2f, exp2)
UA_MATH_UNARY(expm1, expm1f, expm1)
UA_MATH_UNARY(log, logf, log)
UA_MATH_UNARY(log2, log2f, log2)
UA_MATH_UNARY(log10, log10f, log10)
UA_MATH_UNARY(log1p, log1pf, log1p)
UA_MATH_UNARY(sqrt, sqrtf, sqrt)
UA_MATH_UNARY(cbrt, cbrtf, cbrt)
UA_MATH_UNARY(sin, sinf, sin)
UA_MATH_UNARY(cos, cosf, cos)
UA_MATH_UNARY(tan, tanf, tan)
UA_MATH_UNARY(asin, asinf, asin)
UA_MATH_UNARY(acos, acosf, acos)
UA_MATH_UNARY(atan, atanf, atan)
UA_MATH_UNARY(sinh, sinhf, sinh)
UA_MATH_UNARY(cosh, coshf, cosh)
UA_MATH_UNARY(tanh, tanhf, tanh)
UA_MATH_UNARY(asinh, asinhf, asinh)
UA_MATH_UNARY(acosh, acoshf, acosh)
UA_MATH_UNARY(atanh, atanhf, atanh)
UA_MATH_UNARY(erf, erff, erf)
UA_MATH_UNARY(erfc, erfcf, erfc)
UA_MATH_UNARY(floor, floorf, floor)
UA_MATH_UNARY(ceil, ceilf, ceil)
UA_MATH_UNARY(trunc, truncf, trunc)
UA_MATH_UNARY(round_even, rintf, rint)
#undef UA_MATH_UNARY

UA_DEVICE float pow(float x, float y) { return ::powf(x, y); }
UA_DEVICE double pow(double x, double y) { return ::pow(x, y); }
UA_DEVICE float atan2(float y, float x) { return ::atan2f(y, x); }
UA_DEVICE double atan2(double y, double x) { return ::atan2(y, x); }
// The remainder of a division rounded towards zero: sign of x.
UA_DEVICE float fmod(float x, float y) { return ::fmodf(x, y); }
UA_DEVICE double fmod(double x, double y) { return ::fmod(x, y); }
UA_DEVICE float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
UA_DEVICE double fma(double x, double y, double z) { return ::fma(x, y, z); }

UA_DEVICE float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
UA_DEVICE double rsqrt(double x) { return 1.0 / ::sqrt(x); }
UA_DEVICE float reciprocal(float x) { return 1.0f / x; }
UA_DEVICE double reciprocal(double x) { return 1.0 / x; }
UA_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + ::expf(-x)); }
UA_DEVICE double sigmoid(double x) { return 1.0 / (1.0 + ::exp(-x)); }

UA_DEVICE bool is_nan(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) > 0x7f800000u; }
UA_DEVICE bool is_nan(double x) { return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }
template <class T>
UA_DEVICE bool is_nan(T) {
    return false;
}
UA_DEVICE bool is_inf(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) == 0x7f800000u; }
UA_DEVICE bool is_inf(double x) { return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }

template <class T>
UA_DEVICE T max(T a, T b) {
    return a > b || is_nan(a) ? a : b;
}
template <class T>
UA_DEVICE T min(T a, T b) {
    return a < b || is_nan(a) ? a : b;
}
#if !UA_EMULATED && UA_SM >= 80
UA_DEVICE float max(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
UA_DEVICE float min(float a, float b) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
#endif

UA_DEVICE float abs(float x) { return ::fabsf(x); }
UA_DEVICE double abs(double x) { return ::fabs(x); }
// The smallest signed integer is its own absolute value, as in numpy.
template <class T>
UA_DEVICE T abs(T x) {
    return x < T(0) ? static_cast<T>(0ull - static_cast<unsigned long long>(x)) : x;
}

template <class T>
UA_DEVICE T sign(T x) {
    if (is_nan(x)) return x;
    return static_cast<T>((x > T(0)) - (x < T(0)));
}

template <class T>
UA_DEVICE T select(bool condition, T yes, T no) {
    return condition ? yes : no;
}

// The remainder with the sign of the divisor (Python's %). Integer division by zero gives 0, as numpy does, and so does the
// quotient that does not fit.
UA_DEVICE float mod(float x, float y) {
    const float rest = ::fmodf(x, y);
    return rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}
UA_DEVICE double mod(double x, double y) {
    const double rest = ::fmod(x, y);
    return rest != 0.0 && (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}
template <class T>
UA_DEVICE T mod(T x, T y) {
    if (y == T(0) || (T(-1) < T(0) && y == T(-1))) return T(0);
    const T rest = x % y;
    return rest != T(0) && (rest < T(0)) != (y < T(0)) ? rest + y : rest;
}
// The integer remainder with the sign of x (C's %).
template <class T>
UA_DEVICE T fmod(T x, T y) {
    return y == T(0) || (T(-1) < T(0) && y == T(-1)) ? T(0) : static_cast<T>(x % y);
}
// Quotient truncated towards zero for integers, the quotient itself otherwise.
UA_DEVICE float divide(float x, float y) { return x / y; }
UA_DEVICE double divide(double x, double y) { return x / y; }
template <class T>
UA_DEVICE T divide(T x, T y) {
    if (y == T(0)) return T(0);
    if (T(-1) < T(0) && y == T(-1)) return static_cast<T>(0ull - static_cast<unsigned long long>(x));
    return static_cast<T>(x / y);
}
// Integer power by squaring; a negative exponent gives 0 except for bases 1 and -1.
template <class T>
UA_DEVICE T pow(T base, T exponent) {
    if (exponent < T(0)) return base == T(1) ? T(1) : base == T(-1) ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0);
    unsigned long long result = 1, factor = static_cast<unsigned long long>(base);
    for (auto rest = static_cast<unsigned long long>(exponent); rest; rest >>= 1, factor *= factor)
        if (rest & 1) result *= factor;
    return static_cast<T>(result);
}

}  // namespace ua
