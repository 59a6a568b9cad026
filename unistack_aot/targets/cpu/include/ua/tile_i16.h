// Register tiles of integers: acc[rows][16*NP] += A[rows][K] * B[K][16*NP] in i32, which wraps, by multiply-adds of pairs of i16.
// Not here: operands, blocking and loop orders around a tile (pair_nest.h). Included once per library.
#pragma once
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "pair_nest.h"

namespace ua {

namespace detail {

// acc[j] + a[0] b[2j] + a[1] b[2j+1]; `a` is one pair in every lane.
UA_INLINE i32v dot_pairs(i32v acc, i32v a, i32v b) {
#if defined(__AVX512VNNI__)
    acc = (i32v)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
    acc = (i32v)_mm512_add_epi32((__m512i)acc, _mm512_madd_epi16((__m512i)a, (__m512i)b));
#elif defined(__AVX2__)
    acc = (i32v)_mm256_add_epi32((__m256i)acc, _mm256_madd_epi16((__m256i)a, (__m256i)b));
#elif defined(__aarch64__)
    const int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    acc = (i32v)vaddq_s32((int32x4_t)acc, vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
#else
    acc = (i32v)_mm_add_epi32((__m128i)acc, _mm_madd_epi16((__m128i)a, (__m128i)b));
#endif
    // Compilers would add products of many steps to each other first, for which there are no registers.
#if defined(__aarch64__)
    asm("" : "+w"(acc));
#elif defined(__AVX512F__)
    asm("" : "+v"(acc));
#else
    asm("" : "+x"(acc));
#endif
    return acc;
}

template <int MR, int NP>
UA_NOINLINE void tile_i16_of(const PairTileArgs& t) {
    constexpr int NV = NP * kPanelVectors;
    i32v acc[MR][NV];
    const uint16_t* row[MR];
    UA_UNROLL for (int p = 0; p < MR; ++p) row[p] = t.a + (t.first + p) / 16 * t.deep + (t.first + p) % 16 * kPairDepth;
    UA_UNROLL for (int p = 0; p < MR; ++p)
        UA_UNROLL for (int v = 0; v < NV; ++v) acc[p][v] = t.init ? load_as<i32v>(t.init + (p * NV + v) * kLanes) : i32v{};
    const uint16_t* b = t.panel;
    int64_t at = 0;
    for (int64_t s = 0; s < t.steps; ++s, at += kPairBlock) {
        UA_UNROLL for (int k = 0; k < kPairDepth / 2; ++k, b += 2 * kPanel) {
            i32v col[NV];
            UA_UNROLL for (int v = 0; v < NV; ++v)
                col[v] = load_as<i32v>(b + (v / kPanelVectors) * t.panel_stride + (v % kPanelVectors) * 2 * kLanes);
            UA_UNROLL for (int p = 0; p < MR; ++p) {
                const i32v pair = i32v{} + load_as<int32_t>(row[p] + at + 2 * k);
                UA_UNROLL for (int v = 0; v < NV; ++v) acc[p][v] = dot_pairs(acc[p][v], pair, col[v]);
            }
        }
    }
    UA_UNROLL for (int p = 0; p < MR; ++p)
        UA_UNROLL for (int v = 0; v < NV; ++v) store(t.out + (p * NV + v) * kLanes, acc[p][v]);
}

template <int NP, int... Rows>
UA_INLINE void tile_i16(int rows, const PairTileArgs& t, std::integer_sequence<int, Rows...>) {
    static constexpr void (*kByRows[])(const PairTileArgs&) = {&tile_i16_of<Rows + 1, NP>...};
    kByRows[rows - 1](t);
}

// The tile with `rows` rows, 1..kTileRows.
template <int NP>
inline void tile_i16(int rows, const PairTileArgs& t) {
    tile_i16<NP>(rows, t, std::make_integer_sequence<int, kTileRows>{});
}

void contract_i16_all(const PairContraction& c, int64_t m0, int64_t m1, int panel0, int panel1, const IntegerRows& source,
                      const Calls& calls) {
    const PairKind kind{source.bytes, source.take, tile_i16<1>, tile_i16<kTilePanels>, kTileRows, false};
    contract_pairs_all(c, kind, m0, m1, panel0, panel1, calls);
}

}  // namespace detail

}  // namespace ua
