// Index arithmetic, integer functions and conversions that generated kernels call.
// Not here: floating-point functions (math.h), the formats of narrow floats (half.h).
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <ua/half.h>
#include <ua/vec.h>

namespace ua {

// Quotient and remainder rounded towards minus infinity, as index expressions mean them.
UA_INLINE int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}
UA_INLINE int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0);
}
// Zero, unknown to the compiler. Loops over conditional loads begin with it: where it knows every condition of a vector
// of them, GCC 12 reads memory that the conditions exclude (a masked load becomes a blend with all of the memory).
UA_INLINE int64_t start() {
  int64_t zero = 0;
  asm("" : "+r"(zero));
  return zero;
}
UA_INLINE int64_t min_index(int64_t a, int64_t b) { return a < b ? a : b; }
UA_INLINE int64_t max_index(int64_t a, int64_t b) { return a > b ? a : b; }

// Integer functions with ONNX semantics: division truncates, mod has the sign of the divisor, fmod of the dividend.
// Division by zero gives 0 instead of a trap, and the most negative number divided by -1 wraps.
template <class T>
UA_INLINE T int_div(T a, T b) {
  if (b == T(0)) return T(0);
  if (std::is_signed<T>::value && b == T(-1)) return T(T(0) - a);
  return T(a / b);
}
template <class T>
UA_INLINE T int_fmod(T a, T b) {
  if (b == T(0) || (std::is_signed<T>::value && b == T(-1))) return T(0);
  return T(a % b);
}
template <class T>
UA_INLINE T int_mod(T a, T b) {
  const T r = int_fmod(a, b);
  return (r != T(0) && (r < T(0)) != (b < T(0))) ? T(r + b) : r;
}
template <class T>
UA_INLINE T int_min(T a, T b) { return a < b ? a : b; }
template <class T>
UA_INLINE T int_max(T a, T b) { return a > b ? a : b; }
template <class T>
UA_INLINE T int_pow(T a, T b) { return T(__builtin_pow(double(a), double(b))); }

// The two spellings of a 64-bit integer, int64_t and the literals' long long, meet here.
#define UA_MIXED(name)                                             \
  template <class T, class U>                                      \
  UA_INLINE T name(T a, U b) {                                     \
    static_assert(sizeof(T) == sizeof(U), "integers of one size"); \
    return name(a, static_cast<T>(b));                             \
  }
UA_MIXED(int_div) UA_MIXED(int_fmod) UA_MIXED(int_mod) UA_MIXED(int_min) UA_MIXED(int_max) UA_MIXED(int_pow)
#undef UA_MIXED

template <class T>
UA_INLINE T int_abs(T a) { return a < T(0) ? T(T(0) - a) : a; }
template <class T>
UA_INLINE T int_sign(T a) { return T((a > T(0)) - (a < T(0))); }
inline constexpr float nan() { return __builtin_nanf(""); }
inline constexpr float infinity() { return __builtin_inff(); }

template <class T>
UA_INLINE bool isnan(T x) { return x != x; }
template <class T>
UA_INLINE bool isinf(T x) { return x == T(infinity()) || x == T(-infinity()); }
template <class T>
UA_INLINE T reciprocal(T x) { return T(1) / x; }

// ONNX Cast: floats to integers truncate towards zero; f16 and bf16 are reached by way of f32.
template <class To, class From>
UA_INLINE To cast(From x) {
  if constexpr (std::is_same_v<To, From>) return x;
  else if constexpr (std::is_same_v<From, f16> || std::is_same_v<From, bf16>) return cast<To, float>(to_float(x));
  else if constexpr (std::is_same_v<To, f16>) return to_f16(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bf16>) return to_bf16(static_cast<float>(x));
  else return static_cast<To>(x);
}

}  // namespace ua
