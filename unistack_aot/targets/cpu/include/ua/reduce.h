// Folds of a row by a monoid, with several states side by side ("lanes") so that the loop vectorises.
// Not here: splitting a fold over threads (generated code calls merge), contractions (contract.h).
//
//   fold<Monoid>(n, at)        at(i) -> element i, i in 0..n-1; returns Monoid::State
//   merge(Monoid, a, b)        joins two partial states; associative; `a` holds the earlier elements
//   State::finish-like readers are plain functions of the state (mean, variance, logsumexp)
//
// NaN in the input reaches the result, as in numpy. An empty row gives the identity of the monoid.
// The order of additions differs from a sequential loop (declared reassociation): kFoldLanes partial sums, then a tree.
#pragma once
#include <cstdint>

#include "math.h"

namespace ua {

// Four independent vectors hide the latency of an addition.
inline constexpr int kFoldLanes = 4 * kLanes;

template <class T>
struct Limits;
template <>
struct Limits<float> {
    static constexpr float lowest = -__builtin_inff(), highest = __builtin_inff();
};
template <>
struct Limits<double> {
    static constexpr double lowest = -__builtin_inf(), highest = __builtin_inf();
};
template <>
struct Limits<int32_t> {
    static constexpr int32_t lowest = INT32_MIN, highest = INT32_MAX;
};
template <>
struct Limits<int64_t> {
    static constexpr int64_t lowest = INT64_MIN, highest = INT64_MAX;
};

// ---- Monoids whose state is one number.

template <class T>
struct Sum {
    using Value = T;
    static constexpr T identity = T(0);
    static UA_INLINE T join(T a, T b) { return a + b; }
};
template <class T>
struct Prod {
    using Value = T;
    static constexpr T identity = T(1);
    static UA_INLINE T join(T a, T b) { return a * b; }
};
template <class T>
struct Max {
    using Value = T;
    static constexpr T identity = Limits<T>::lowest;
    static UA_INLINE T join(T a, T b) { return maximum(a, b); }
};
template <class T>
struct Min {
    using Value = T;
    static constexpr T identity = Limits<T>::highest;
    static UA_INLINE T join(T a, T b) { return minimum(a, b); }
};

template <class Monoid, class At>
UA_INLINE typename Monoid::Value fold(int64_t n, At&& at) {
    using T = typename Monoid::Value;
    constexpr int lanes = kFoldLanes;
    T state[lanes];
    for (int l = 0; l < lanes; ++l) state[l] = Monoid::identity;
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
#pragma omp simd
        for (int l = 0; l < lanes; ++l) state[l] = Monoid::join(state[l], T(at(i + l)));
    }
    for (int l = 0; i < n; ++i, ++l) state[l] = Monoid::join(state[l], T(at(i)));
    for (int width = lanes / 2; width > 0; width /= 2) {
#pragma omp simd
        for (int l = 0; l < width; ++l) state[l] = Monoid::join(state[l], state[l + width]);
    }
    return state[0];
}

// ---- Position of the extreme element. Ties: the first one, or the last one; the first NaN wins over everything.

template <class T>
struct Extreme {
    T value;
    int64_t index;
};

template <class T, bool greatest, bool last>
struct ArgExtreme {
    using State = Extreme<T>;
    // Does b, which comes later, replace a?
    static UA_INLINE bool replaces(T b, T a) {
        const bool better = greatest ? b > a : b < a;
        const bool tie = last && b == a;
        return (a == a) & (better | tie | (b != b));
    }
    static UA_INLINE State join(State a, State b) {
        const bool b_first = b.index < a.index;
        const State early = b_first ? b : a, late = b_first ? a : b;
        return early.index < 0 || replaces(late.value, early.value) ? late : early;
    }
};
template <class T, bool last = false>
using ArgMax = ArgExtreme<T, true, last>;
template <class T, bool last = false>
using ArgMin = ArgExtreme<T, false, last>;

// Lanes keep 32-bit positions (vector width of f32); rows beyond 2^31 elements do not occur in one fold.
template <class Arg, class At>
UA_INLINE auto fold_arg(int64_t n, At&& at) -> typename Arg::State {
    using State = typename Arg::State;
    using T = decltype(State::value);
    constexpr int lanes = kFoldLanes;
    if (n < lanes) {
        State s{T(0), -1};
        for (int64_t i = 0; i < n; ++i) s = Arg::join(s, State{T(at(i)), i});
        return s;
    }
    T value[lanes];
    int32_t index[lanes];
    for (int l = 0; l < lanes; ++l) value[l] = at(l), index[l] = l;
    int64_t i = lanes;
    for (; i + lanes <= n; i += lanes) {
#pragma omp simd
        for (int l = 0; l < lanes; ++l) {
            const T x = at(i + l);
            const bool take = Arg::replaces(x, value[l]);
            value[l] = take ? x : value[l];
            index[l] = take ? int32_t(i) + l : index[l];
        }
    }
    State s{value[0], index[0]};
    for (int l = 1; l < lanes; ++l) s = Arg::join(s, State{value[l], index[l]});
    for (; i < n; ++i) s = Arg::join(s, State{T(at(i)), i});
    return s;
}

// ---- Softmax state: the running maximum and the sum of exp(x - max). From exp(a+b) = exp(a) exp(b).

struct SoftmaxState {
    float max = Limits<float>::lowest;
    float sum = 0.0f;
};

UA_INLINE SoftmaxState merge(SoftmaxState a, SoftmaxState b) {
    const float m = maximum(a.max, b.max);
    const float base = m == Limits<float>::lowest ? 0.0f : m;  // both empty or all -inf: exp(-inf - 0) = 0, no NaN
    return {m, a.sum * exp(a.max - base) + b.sum * exp(b.max - base)};
}

// One pass over the elements; one exp each: exp(-|x-max|) rescales either the old sum or the new term.
template <class At>
UA_INLINE SoftmaxState fold_softmax(int64_t n, At&& at) {
    constexpr int lanes = kFoldLanes / 2;
    float top[lanes], sum[lanes];
    for (int l = 0; l < lanes; ++l) top[l] = Limits<float>::lowest, sum[l] = 0.0f;
    auto absorb = [&](int l, float x) __attribute__((always_inline)) {
        const float d = x - top[l];
        const float e = exp(-abs(d));
        const bool up = x > top[l];
        const bool both_low = x == Limits<float>::lowest;  // -inf adds nothing, even to an empty state
        const float grown = up ? fma(sum[l], e, 1.0f) : sum[l] + e;
        sum[l] = both_low ? sum[l] : grown;
        top[l] = maximum(x, top[l]);
    };
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
#pragma omp simd
        for (int l = 0; l < lanes; ++l) absorb(l, at(i + l));
    }
    for (int l = 0; i < n; ++i, ++l) absorb(l, at(i));
    SoftmaxState s{top[0], sum[0]};
    for (int l = 1; l < lanes; ++l) s = merge(s, SoftmaxState{top[l], sum[l]});
    return s;
}

UA_INLINE float logsumexp(SoftmaxState s) { return s.max + log(s.sum); }

// ---- Mean and variance by Welford's recurrence; merge by Chan, Golub and LeVeque (1983).

template <class T>
struct Moments {
    T count = 0, mean = 0, m2 = 0;  // m2: sum of squared distances from the mean
    UA_INLINE T variance() const { return m2 / count; }
};

template <class T>
UA_INLINE Moments<T> merge(Moments<T> a, Moments<T> b) {
    const T n = a.count + b.count;
    if (n == T(0)) return a;
    const T d = b.mean - a.mean, share = b.count / n;
    const bool near = d - d == T(0);  // else infinite or NaN: means add up as elements do, nothing has a distance
    const T mean = near ? fma(d, share, a.mean) : a.mean + b.mean;
    return {n, mean, a.m2 + b.m2 + (near ? d * d * a.count * share : d - d)};
}

template <class T, class At>
UA_INLINE Moments<T> fold_moments(int64_t n, At&& at) {
    constexpr int lanes = kFoldLanes;
    T mean[lanes], m2[lanes];
    for (int l = 0; l < lanes; ++l) mean[l] = m2[l] = T(0);
    int64_t i = 0;
    T count = 0;
    for (; i + lanes <= n; i += lanes) {
        count += T(1);
        const T inverse = T(1) / count;  // the same for every lane
#pragma omp simd
        for (int l = 0; l < lanes; ++l) {
            const T x = at(i + l), d = x - mean[l];
            mean[l] = d - d == T(0) ? fma(d, inverse, mean[l]) : mean[l] + x;
            m2[l] = fma(d, x - mean[l], m2[l]);
        }
    }
    Moments<T> s;
    for (int l = 0; l < lanes; ++l) s = merge(s, Moments<T>{count, mean[l], m2[l]});
    for (; i < n; ++i) s = merge(s, Moments<T>{T(1), T(at(i)), T(0)});
    return s;
}

}  // namespace ua
