// Register tiles of bf16: acc[rows][16*NP] += A[rows][K] * B[K][16*NP], by AMX tiles or by dot products of pairs (AVX512-BF16).
// Not here: blocking and loop orders around a tile (contract_bf16_nest.h).
//
// Operands, in steps of kBf16Depth = 32 of the depth
//   A   [ceil(rows/16)][K/32][16][32]: 16 rows of a step are one AMX tile; `a` is its first row, `deep` elements lead to the next 16 rows
//   B   packed panels [K/32][16][16][2]: 16 pairs of 16 columns are one AMX tile; panels `panel_stride` elements apart
//   C   [rows][16*NP] f32 as in tile.h; written in whole tiles of kBf16Rows rows
#pragma once
#include <utility>

#include "contract_bf16.h"
#include "tile.h"
#if defined(__AMX_BF16__) || defined(UA_TILES_IN_SOFTWARE)
#include "amx.h"
#define UA_AMX 1
#endif

namespace ua {

inline constexpr int64_t kBf16Block = 16 * kBf16Depth;  // elements of 16 rows of A, or of a panel, in one step

struct Bf16TileArgs {
    const bf16* a;
    int64_t deep;
    int first;  // row in A
    const bf16* panel;
    int64_t panel_stride;
    int64_t steps;
    const float* init;  // null: zeros
    float* out;
};

#if defined(UA_AMX)

inline constexpr int kBf16Rows = 32, kBf16Panels = 2;

// Up to 16 rows of one or two panels.
template <int NP>
UA_NOINLINE void tile_bf16_low(const Bf16TileArgs& t) {
    constexpr int64_t row = NP * 64;
    const bf16* a = t.a + t.first / 16 * t.deep;
    const bf16* b = t.panel;
    if (t.init) {
        UA_TILE_LOAD(0, t.init, row);
        if (NP > 1) UA_TILE_LOAD(1, t.init + 16, row);
    } else {
        UA_TILE_ZERO(0);
        if (NP > 1) UA_TILE_ZERO(1);
    }
    for (int64_t s = 0; s < t.steps; ++s, a += kBf16Block, b += kBf16Block) {
        UA_TILE_LOAD(4, a, 64);
        UA_TILE_LOAD(6, b, 64);
        UA_TILE_DOT_BF16(0, 4, 6);
        if (NP > 1) {
            UA_TILE_LOAD(7, b + t.panel_stride, 64);
            UA_TILE_DOT_BF16(1, 4, 7);
        }
    }
    UA_TILE_STORE(0, t.out, row);
    if (NP > 1) UA_TILE_STORE(1, t.out + 16, row);
}

// Up to 32 rows: every tile of an operand serves two products.
template <int NP>
UA_NOINLINE void tile_bf16_high(const Bf16TileArgs& t) {
    constexpr int64_t row = NP * 64, below = NP * 256;
    const bf16* a = t.a + t.first / 16 * t.deep;
    const bf16* b = t.panel;
    if (t.init) {
        UA_TILE_LOAD(0, t.init, row);
        UA_TILE_LOAD(2, t.init + below, row);
        if (NP > 1) UA_TILE_LOAD(1, t.init + 16, row);
        if (NP > 1) UA_TILE_LOAD(3, t.init + below + 16, row);
    } else {
        UA_TILE_ZERO(0);
        UA_TILE_ZERO(1);
        UA_TILE_ZERO(2);
        UA_TILE_ZERO(3);
    }
    for (int64_t s = 0; s < t.steps; ++s, a += kBf16Block, b += kBf16Block) {
        UA_TILE_LOAD(4, a, 64);
        UA_TILE_LOAD(6, b, 64);
        UA_TILE_DOT_BF16(0, 4, 6);
        UA_TILE_LOAD(5, a + t.deep, 64);
        UA_TILE_DOT_BF16(2, 5, 6);
        if (NP > 1) {
            UA_TILE_LOAD(7, b + t.panel_stride, 64);
            UA_TILE_DOT_BF16(1, 4, 7);
            UA_TILE_DOT_BF16(3, 5, 7);
        }
    }
    UA_TILE_STORE(0, t.out, row);
    UA_TILE_STORE(2, t.out + below, row);
    if (NP > 1) UA_TILE_STORE(1, t.out + 16, row);
    if (NP > 1) UA_TILE_STORE(3, t.out + below + 16, row);
}

// The tile with `rows` rows, 1..kBf16Rows.
template <int NP>
UA_INLINE void tile_bf16(int rows, const Bf16TileArgs& t) {
    if (rows > 16) tile_bf16_high<NP>(t);
    else tile_bf16_low<NP>(t);
}

#elif defined(__AVX512BF16__)

inline constexpr int kBf16Rows = kTileRows, kBf16Panels = 2;

template <int MR, int NP>
UA_NOINLINE void tile_dot_bf16(const Bf16TileArgs& t) {
    __m512 acc[MR][NP];
    const bf16* row[MR];
    UA_UNROLL for (int p = 0; p < MR; ++p) row[p] = t.a + (t.first + p) / 16 * t.deep + (t.first + p) % 16 * kBf16Depth;
    UA_UNROLL for (int p = 0; p < MR; ++p)
        UA_UNROLL for (int q = 0; q < NP; ++q)
            acc[p][q] = t.init ? _mm512_loadu_ps(t.init + (p * NP + q) * kPanel) : _mm512_setzero_ps();
    const bf16* b = t.panel;
    int64_t at = 0;
    for (int64_t s = 0; s < t.steps; ++s, at += kBf16Block) {
        UA_UNROLL for (int k = 0; k < kBf16Depth / 2; ++k, b += 2 * kPanel) {
            __m512bh col[NP];
            UA_UNROLL for (int q = 0; q < NP; ++q) col[q] = load_as<__m512bh>(b + q * t.panel_stride);
            UA_UNROLL for (int p = 0; p < MR; ++p) {
                const __m512bh pair = (__m512bh)_mm512_set1_epi32(load_as<int32_t>(row[p] + at + 2 * k));
                UA_UNROLL for (int q = 0; q < NP; ++q) acc[p][q] = _mm512_dpbf16_ps(acc[p][q], pair, col[q]);
            }
        }
    }
    UA_UNROLL for (int p = 0; p < MR; ++p)
        UA_UNROLL for (int q = 0; q < NP; ++q) _mm512_storeu_ps(t.out + (p * NP + q) * kPanel, acc[p][q]);
}

namespace detail {
template <int NP, int... Rows>
UA_INLINE void tile_bf16(int rows, const Bf16TileArgs& t, std::integer_sequence<int, Rows...>) {
    static constexpr void (*kByRows[])(const Bf16TileArgs&) = {&tile_dot_bf16<Rows + 1, NP>...};
    kByRows[rows - 1](t);
}
}  // namespace detail

// The tile with `rows` rows, 1..kBf16Rows.
template <int NP>
UA_INLINE void tile_bf16(int rows, const Bf16TileArgs& t) {
    detail::tile_bf16<NP>(rows, t, std::make_integer_sequence<int, kBf16Rows>{});
}

#endif

}  // namespace ua
