// Sums that run in lanes: lane j holds the sum over k of row(k)[j] * weight(k), as one row times a matrix does.
// Not here: sums along contiguous memory (reduce.h), tiles of several rows (tile.h).
#pragma once
#include "vec.h"

namespace ua {

namespace detail {

// Sums that fill half of the registers at most; a divisor of `vectors`, so that no pass is shorter.
constexpr int lane_sums_together(int vectors) {
    int together = vectors < kVectorRegisters / 2 ? vectors : kVectorRegisters / 2;
    while (vectors % together) --together;
    return together;
}

}  // namespace detail

// sums[j] = sum of row(k)[j] * weight(k) over k in 0..count-1, in this order; N lanes, a multiple of 16.
template <int N, class Row, class Weight>
UA_INLINE void lane_sums(float* sums, int64_t count, Row&& row, Weight&& weight) {
    constexpr int together = detail::lane_sums_together(N / kLanes);
    for (int first = 0; first < N; first += together * kLanes) {
        f32v acc[together];
        UA_UNROLL for (int v = 0; v < together; ++v) acc[v] = f32v{};
        for (int64_t k = 0; k < count; ++k) {
            const float* const from = row(k) + first;
            const f32v by = splat(weight(k));
            UA_UNROLL for (int v = 0; v < together; ++v) acc[v] = fma(load(from + v * kLanes), by, acc[v]);
        }
        UA_UNROLL for (int v = 0; v < together; ++v) store(sums + first + v * kLanes, acc[v]);
    }
}

}  // namespace ua
