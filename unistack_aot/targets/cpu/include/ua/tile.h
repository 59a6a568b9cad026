// Register-tile instructions: acc[rows][columns] += A[rows][K] * B[K][columns] for f32, the inner step of every contraction.
// Not here: blocking and loop orders around a tile (contract.h), weights packing at compile time (the compiler does it).
//
// Operands
//   A   row p starts at rows[p]; step k of segment s is rows[p][shift[s] + k], k in 0..length-1. A matrix product has one
//       segment (length K, shift 0); a convolution one segment per (channel block, kernel row, kernel column), whose shift is
//       the distance of that input element from the pixel's first one: the same for every pixel, so one table serves all tiles.
//   B   packed panels of kPanel = 16 columns: panel[(s*length + k)*16 + j]; the same packing on every instruction set.
//       A tile covers NP neighbouring panels, panel_stride floats apart.
//   C   the tile goes to `out` [rows][16*NP], contiguous and meant to stay in L1; the generated epilogue reads it there with
//       a simd loop. `init` (same form, may be `out`) continues an earlier K block; null starts at zero.
#pragma once
#include <utility>

#include "vec.h"

namespace ua {

inline constexpr int kPanel = 16;
inline constexpr int kPanelVectors = kPanel / kLanes;

// The largest tile whose accumulators, one column of B and a broadcast fit the registers.
#if defined(__AVX512F__)
inline constexpr int kTileRows = 14, kTilePanels = 2;  // 28 accumulators of 32
#elif defined(__aarch64__)
inline constexpr int kTileRows = 6, kTilePanels = 1;  // 24 of 32
#elif defined(__AVX__)
inline constexpr int kTileRows = 6, kTilePanels = 1;  // 12 of 16
#else
inline constexpr int kTileRows = 3, kTilePanels = 1;  // 12 of 16
#endif

// Panels for a single row: enough independent accumulators to hide the latency of an addition; memory streams in parallel.
inline constexpr int kThinPanels = 8 / kPanelVectors < 2 ? 2 : 8 / kPanelVectors;

struct TileArgs {
    const float* const* rows;
    const int32_t* shift;
    int segments;
    int length;
    const float* panel;
    int64_t panel_stride;
    const float* init;
    float* out;
    int64_t ahead;  // floats: while row[k] is multiplied, the line of row[k + ahead] is pulled into L1; 0: no
};

template <int MR, int NP>
UA_INLINE void tile_step(f32v (&acc)[MR][NP * kPanelVectors], const float* const (&row)[MR], int64_t k, const float* b,
                         int64_t panel_stride) {
    constexpr int NV = NP * kPanelVectors;
    f32v col[NV];
    UA_UNROLL for (int v = 0; v < NV; ++v)
        col[v] = load(b + (v / kPanelVectors) * panel_stride + (v % kPanelVectors) * kLanes);
    UA_UNROLL for (int p = 0; p < MR; ++p) {
        const f32v a = splat(row[p][k]);
        UA_UNROLL for (int v = 0; v < NV; ++v) acc[p][v] = fma(a, col[v], acc[p][v]);
    }
}

template <int MR, int NP, int U = 16>
UA_NOINLINE void tile_f32(const TileArgs& t) {
    constexpr int NV = NP * kPanelVectors;
    f32v acc[MR][NV];
    const float* row[MR];
    UA_UNROLL for (int p = 0; p < MR; ++p) row[p] = t.rows[p];
    if (t.init) {
        UA_UNROLL for (int p = 0; p < MR; ++p)
            UA_UNROLL for (int v = 0; v < NV; ++v) acc[p][v] = load(t.init + (p * NV + v) * kLanes);
    } else {
        UA_UNROLL for (int p = 0; p < MR; ++p) UA_UNROLL for (int v = 0; v < NV; ++v) acc[p][v] = f32v{};
    }
    const float* b = t.panel;
    const int64_t stride = t.panel_stride;
    const int64_t ahead = t.ahead;
    const int length = t.length;
    for (int s = 0; s < t.segments; ++s) {
        int64_t k = t.shift[s];
        const int64_t whole = k + length / U * U, end = k + length;
        for (; k < whole; k += U, b += U * kPanel) {
            if (ahead) UA_UNROLL for (int p = 0; p < MR; ++p) prefetch<1>(row[p] + k + ahead);
            UA_UNROLL for (int u = 0; u < U; ++u) tile_step<MR, NP>(acc, row, k + u, b + u * kPanel, stride);
        }
        for (; k < end; ++k, b += kPanel) tile_step<MR, NP>(acc, row, k, b, stride);
    }
    UA_UNROLL for (int p = 0; p < MR; ++p)
        UA_UNROLL for (int v = 0; v < NV; ++v) store(t.out + (p * NV + v) * kLanes, acc[p][v]);
}

namespace detail {
template <int NP, int... Rows>
UA_INLINE void tile_of_rows(int rows, const TileArgs& t, std::integer_sequence<int, Rows...>) {
    static constexpr void (*kByRows[])(const TileArgs&) = {&tile_f32<Rows + 1, NP>...};
    kByRows[rows - 1](t);
}
}  // namespace detail

// The tile with `rows` rows, 1..MaxRows.
template <int MaxRows, int NP>
UA_INLINE void tile_of_rows(int rows, const TileArgs& t) {
    detail::tile_of_rows<NP>(rows, t, std::make_integer_sequence<int, MaxRows>{});
}

}  // namespace ua
