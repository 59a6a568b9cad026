// Packing of B operands at run time into the panels that tiles read (products of two activations).
// Not here: weights, which the compiler packs once with the same layout: panel[p][k][16] = B[k][16*p + 0..15].
#pragma once
#include "tile.h"

namespace ua {

// One panel from B whose rows (k) are contiguous: panel[k][j] = b[k*row + j], columns beyond `columns` (1..16) zero.
inline void pack_rows(float* panel, const float* b, int64_t row, int k, int columns) {
    if (columns == kPanel) {
        for (int i = 0; i < k; ++i, b += row, panel += kPanel)
            UA_UNROLL for (int v = 0; v < kPanelVectors; ++v) store(panel + v * kLanes, load(b + v * kLanes));
        return;
    }
    for (int i = 0; i < k; ++i)
        for (int j = 0; j < kPanel; ++j) panel[i * kPanel + j] = j < columns ? b[i * row + j] : 0.0f;
}

namespace detail {

typedef float f32x4 __attribute__((vector_size(16)));

// to[r][c] = from[c][r] for a 4x4 block; strides in floats.
UA_INLINE void transpose4(float* to, int64_t to_row, const float* from, int64_t from_row) {
    const f32x4 a = load_as<f32x4>(from), b = load_as<f32x4>(from + from_row);
    const f32x4 c = load_as<f32x4>(from + 2 * from_row), d = load_as<f32x4>(from + 3 * from_row);
    const f32x4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const f32x4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store(to, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store(to + to_row, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store(to + 2 * to_row, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store(to + 3 * to_row, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

}  // namespace detail

// One panel from B given transposed, whose columns are contiguous: panel[k][j] = b[j*column + k].
inline void pack_columns(float* panel, const float* b, int64_t column, int k, int columns) {
    int i = 0;
    if (columns == kPanel)
        for (; i + 4 <= k; i += 4)
            for (int j = 0; j < kPanel; j += 4)
                detail::transpose4(panel + i * kPanel + j, kPanel, b + j * column + i, column);
    for (; i < k; ++i)
        for (int j = 0; j < kPanel; ++j) panel[i * kPanel + j] = j < columns ? b[j * column + i] : 0.0f;
}

}  // namespace ua
