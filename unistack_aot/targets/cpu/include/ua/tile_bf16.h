// Register tiles of bf16: acc[rows][16*NP] += A[rows][K] * B[K][16*NP], by AMX tiles or by dot products of pairs (AVX512-BF16).
// Not here: operands, blocking and loop orders around a tile (pair_nest.h). Included once per library.
#pragma once
#include <utility>

#include "pair_nest.h"
#if defined(__AMX_BF16__) || defined(UA_TILES_IN_SOFTWARE)
#include "amx.h"
#define UA_AMX 1
#endif

namespace ua {

namespace detail {

// 16 floats, the first n of them (the rest zero), as bf16; subnormals become zero.
inline void take_bf16(uint16_t* to, const void* from, int n) {
    const float* const x = static_cast<const float*>(from);
#if defined(__AVX512BF16__)
    const __m256bh narrow = _mm512_cvtneps_pbh((__m512)load_first(x, n));
    std::memcpy(to, &narrow, sizeof narrow);
#else
    for (int j = 0; j < 16; ++j) to[j] = j < n ? to_bf16(x[j]).raw : 0;
#endif
}

#if defined(UA_AMX)

inline constexpr int kBf16Rows = 32;

// Up to 16 rows of one or two panels.
template <int NP>
UA_NOINLINE void tile_bf16_low(const PairTileArgs& t) {
    constexpr int64_t row = NP * 64;
    const uint16_t* a = t.a + t.first / 16 * t.deep;
    const uint16_t* b = t.panel;
    if (t.init) {
        UA_TILE_LOAD(0, t.init, row);
        if (NP > 1) UA_TILE_LOAD(1, t.init + 16, row);
    } else {
        UA_TILE_ZERO(0);
        if (NP > 1) UA_TILE_ZERO(1);
    }
    for (int64_t s = 0; s < t.steps; ++s, a += kPairBlock, b += kPairBlock) {
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
UA_NOINLINE void tile_bf16_high(const PairTileArgs& t) {
    constexpr int64_t row = NP * 64, below = NP * 256;
    const uint16_t* a = t.a + t.first / 16 * t.deep;
    const uint16_t* b = t.panel;
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
    for (int64_t s = 0; s < t.steps; ++s, a += kPairBlock, b += kPairBlock) {
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
inline void tile_bf16(int rows, const PairTileArgs& t) {
    if (rows > 16) tile_bf16_high<NP>(t);
    else tile_bf16_low<NP>(t);
}

#elif defined(__AVX512BF16__)

inline constexpr int kBf16Rows = kTileRows;

template <int MR, int NP>
UA_NOINLINE void tile_dot_bf16(const PairTileArgs& t) {
    __m512 acc[MR][NP];
    const uint16_t* row[MR];
    UA_UNROLL for (int p = 0; p < MR; ++p) row[p] = t.a + (t.first + p) / 16 * t.deep + (t.first + p) % 16 * kPairDepth;
    UA_UNROLL for (int p = 0; p < MR; ++p)
        UA_UNROLL for (int q = 0; q < NP; ++q)
            acc[p][q] = t.init ? _mm512_loadu_ps(t.init + (p * NP + q) * kPanel) : _mm512_setzero_ps();
    const uint16_t* b = t.panel;
    int64_t at = 0;
    for (int64_t s = 0; s < t.steps; ++s, at += kPairBlock) {
        UA_UNROLL for (int k = 0; k < kPairDepth / 2; ++k, b += 2 * kPanel) {
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

template <int NP, int... Rows>
UA_INLINE void tile_bf16(int rows, const PairTileArgs& t, std::integer_sequence<int, Rows...>) {
    static constexpr void (*kByRows[])(const PairTileArgs&) = {&tile_dot_bf16<Rows + 1, NP>...};
    kByRows[rows - 1](t);
}

// The tile with `rows` rows, 1..kBf16Rows.
template <int NP>
inline void tile_bf16(int rows, const PairTileArgs& t) {
    tile_bf16<NP>(rows, t, std::make_integer_sequence<int, kBf16Rows>{});
}

#endif

void contract_bf16_all(const PairContraction& c, int64_t m0, int64_t m1, int panel0, int panel1, const Calls& calls) {
#if defined(UA_AMX)
    constexpr bool whole = true;
    UA_TILES_BEGIN();
#else
    constexpr bool whole = false;
#endif
    const PairKind kind{sizeof(float), take_bf16, tile_bf16<1>, tile_bf16<2>, kBf16Rows, whole};
    contract_pairs_all(c, kind, m0, m1, panel0, panel1, calls);
#if defined(UA_AMX)
    UA_TILES_END();
#endif
}

}  // namespace detail

}  // namespace ua
