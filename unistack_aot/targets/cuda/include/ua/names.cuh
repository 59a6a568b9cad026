// Names that printed scalar and index expressions use. Not here: the mathematics behind them (math.cuh).
//
// floor_div, floor_mod, min_index, max_index    index arithmetic; division rounds towards minus infinity
// quotient, remainder                           of 64-bit indices that are not negative, fast where 32 bits hold them
// int_div, int_mod, int_fmod, int_pow, ...      integer functions with ONNX's meaning
// combine_add(p, v), combine_mul, _min, _max    read-modify-write of device memory that other threads may change too
#pragma once
#include "math.cuh"

namespace ua {

template <class T, class U>
UA_DEVICE auto floor_div(T a, U b) {
    const auto q = a / b;
    return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}
template <class T, class U>
UA_DEVICE auto floor_mod(T a, U b) {
    const auto r = a % b;
    return r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0);
}
// The compiler's own division of 64-bit integers calls a subroutine, around which registers spill.
UA_DEVICE int64_t quotient(int64_t a, int64_t b) {
    if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    const uint64_t value = static_cast<uint64_t>(a), divisor = static_cast<uint64_t>(b);
    uint64_t result = 0, rest = 0;
    UA_UNROLL_NOT
    for (int bit = 63; bit >= 0; bit--) {
        rest = rest << 1 | (value >> bit & 1);
        const bool fits = rest >= divisor;
        rest -= fits ? divisor : 0;
        result = result << 1 | (fits ? 1 : 0);
    }
    return static_cast<int64_t>(result);
}
UA_DEVICE int64_t remainder(int64_t a, int64_t b) { return a - quotient(a, b) * b; }

template <class T, class U>
UA_DEVICE auto min_index(T a, U b) {
    return a < b ? a : b;
}
template <class T, class U>
UA_DEVICE auto max_index(T a, U b) {
    return a > b ? a : b;
}

template <class T>
UA_DEVICE T int_abs(T a) { return abs(a); }
template <class T>
UA_DEVICE T int_sign(T a) { return sign(a); }

// The second form meets the two spellings of a 64-bit integer.
#define UA_INT_BINARY(name, expression)             \
    template <class T>                              \
    UA_DEVICE T name(T a, T b) {                    \
        return expression;                          \
    }                                               \
    template <class T, class U>                     \
    UA_DEVICE T name(T a, U b) {                    \
        static_assert(sizeof(T) == sizeof(U), "integers of one size"); \
        return name(a, static_cast<T>(b));          \
    }
UA_INT_BINARY(int_div, divide(a, b))
UA_INT_BINARY(int_mod, mod(a, b))
UA_INT_BINARY(int_fmod, fmod(a, b))
UA_INT_BINARY(int_pow, pow(a, b))
UA_INT_BINARY(int_min, a < b ? a : b)
UA_INT_BINARY(int_max, a > b ? a : b)
#undef UA_INT_BINARY

template <class T>
UA_DEVICE T minimum(T a, T b) { return min(a, b); }
template <class T>
UA_DEVICE T maximum(T a, T b) { return max(a, b); }
template <class T>
UA_DEVICE bool isnan(T x) { return is_nan(x); }
template <class T>
UA_DEVICE bool isinf(T x) { return is_inf(x); }

UA_DEVICE float nan() { return bit_cast<float>(0x7fc00000u); }
UA_DEVICE float infinity() { return bit_cast<float>(0x7f800000u); }

namespace detail {

// Compare-and-swap of the 4- or 8-byte word around an element of any size up to that.
template <class T, class Change>
UA_DEVICE void exchange(T* place, Change change) {
    if constexpr (sizeof(T) == 8) {
        auto* word = reinterpret_cast<unsigned long long*>(place);
        unsigned long long seen = *word, tried;
        do {
            tried = seen;
            seen = atomicCAS(word, tried, bit_cast<unsigned long long>(change(bit_cast<T>(tried))));
        } while (seen != tried);
    } else if constexpr (sizeof(T) == 4) {
        auto* word = reinterpret_cast<unsigned*>(place);
        unsigned seen = *word, tried;
        do {
            tried = seen;
            seen = atomicCAS(word, tried, bit_cast<unsigned>(change(bit_cast<T>(tried))));
        } while (seen != tried);
    } else {
        const auto address = reinterpret_cast<uintptr_t>(place);
        auto* word = reinterpret_cast<unsigned*>(address & ~static_cast<uintptr_t>(3));
        const int inside = static_cast<int>(address & 3);
        unsigned seen = *word, tried, next;
        do {
            tried = next = seen;
            T value;
            memcpy(&value, reinterpret_cast<const char*>(&tried) + inside, sizeof(T));
            value = change(value);
            memcpy(reinterpret_cast<char*>(&next) + inside, &value, sizeof(T));
            seen = atomicCAS(word, tried, next);
        } while (seen != tried);
    }
}

UA_DEVICE float arithmetic(f16 value) { return widen(value); }
UA_DEVICE float arithmetic(bf16 value) { return widen(value); }
template <class T>
UA_DEVICE T arithmetic(T value) { return value; }

}  // namespace detail

template <class T>
UA_DEVICE void combine_add(T* place, T value) {
    detail::exchange(place, [=](T old) { return cast<T>(detail::arithmetic(old) + detail::arithmetic(value)); });
}
UA_DEVICE void combine_add(float* place, float value) { atomicAdd(place, value); }
UA_DEVICE void combine_add(double* place, double value) { atomicAdd(place, value); }
UA_DEVICE void combine_add(int* place, int value) { atomicAdd(place, value); }
template <class T>
UA_DEVICE void combine_mul(T* place, T value) {
    detail::exchange(place, [=](T old) { return cast<T>(detail::arithmetic(old) * detail::arithmetic(value)); });
}
template <class T>
UA_DEVICE void combine_min(T* place, T value) {
    detail::exchange(place, [=](T old) { return cast<T>(min(detail::arithmetic(old), detail::arithmetic(value))); });
}
template <class T>
UA_DEVICE void combine_max(T* place, T value) {
    detail::exchange(place, [=](T old) { return cast<T>(max(detail::arithmetic(old), detail::arithmetic(value))); });
}

}  // namespace ua
