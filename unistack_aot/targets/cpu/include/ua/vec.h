// Vector types of the machine the file is compiled for, through the vector extensions of g++ and clang.
// Not here: mathematics (math.h), reductions (reduce.h), register tiles (tile.h).
//
// The width follows -march: 16 floats with AVX-512, 8 with AVX, 4 with SSE and NEON.
//   f32v f64v i32v i64v     one register each;  kLanes floats, kLanes/2 doubles
//   load(p) store(p, v)     any alignment;  load_first / store_first touch the first n lanes only
//   fma(a, b, c)            a*b+c, one rounding where the machine can
//   splat(x)                x in every lane
//   prefetch<level>(p)      level 1: into L1, 2: into L2
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__x86_64__) && (defined(__clang__) || defined(__AVX512F__))
#include <immintrin.h>  // a second of compiling per unit with g++, whose builtins do for AVX2
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define UA_INLINE inline __attribute__((always_inline))
#define UA_NOINLINE __attribute__((noinline))
#if defined(__clang__)
#define UA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define UA_UNROLL _Pragma("GCC unroll 64")
#endif

namespace ua {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
inline constexpr int kLanes = kVectorBytes / 4;
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorRegisters = 16;
#endif

typedef float f32v __attribute__((vector_size(kVectorBytes)));
typedef double f64v __attribute__((vector_size(kVectorBytes)));
typedef int32_t i32v __attribute__((vector_size(kVectorBytes)));
typedef int64_t i64v __attribute__((vector_size(kVectorBytes)));

template <class V>
UA_INLINE V load_as(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof(V));
    return v;
}
UA_INLINE f32v load(const float* p) { return load_as<f32v>(p); }
UA_INLINE f64v load(const double* p) { return load_as<f64v>(p); }
UA_INLINE i32v load(const int32_t* p) { return load_as<i32v>(p); }
UA_INLINE i64v load(const int64_t* p) { return load_as<i64v>(p); }
template <class T, class V>
UA_INLINE void store(T* p, V v) {
    std::memcpy(p, &v, sizeof(V));
}

UA_INLINE f32v splat(float x) { return x - f32v{}; }
UA_INLINE f64v splat(double x) { return x - f64v{}; }

// One rounding where the instruction set has a fused multiply-add, two on SSE.
UA_INLINE f32v fma(f32v a, f32v b, f32v c) {
#if defined(__AVX512F__)
    return (f32v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
#if defined(__clang__)
    return (f32v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return __builtin_ia32_vfmaddps256(a, b, c);
#endif
#elif defined(__aarch64__)
    return (f32v)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

// Tails: n in 0..kLanes; lanes from n on read as zero and are not written.
UA_INLINE f32v load_first(const float* p, int n) {
#if defined(__AVX512F__)
    return (f32v)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
#else
    f32v v{};
    std::memcpy(&v, p, size_t(n) * 4);
    return v;
#endif
}
UA_INLINE void store_first(float* p, f32v v, int n) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), (__m512)v);
#else
    std::memcpy(p, &v, size_t(n) * 4);
#endif
}

template <int level>
UA_INLINE void prefetch(const void* p) {
    __builtin_prefetch(p, 0, level == 1 ? 3 : 2);
}
UA_INLINE void prefetch_for_write(const void* p) { __builtin_prefetch(p, 1, 3); }

}  // namespace ua
