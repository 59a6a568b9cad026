// The loop nest of contract_bf16.h. One translation unit of a library includes it (engine.h), where the level has such products.
// Not here: what a kernel hands over (contract_bf16.h).
//
// Outermost first: chunks of rows, rounded once; groups of panels; blocks of the depth; panels; tiles.
#pragma once
#include <algorithm>

#include "contract_nest.h"
#include "tile_bf16.h"

namespace ua {

namespace detail {

// 16 floats, the first n of them (the rest zero), as bf16; subnormals become zero.
UA_INLINE void round_bf16(bf16* to, const float* from, int n) {
#if defined(__AVX512BF16__)
    const __m256bh narrow = _mm512_cvtneps_pbh((__m512)load_first(from, n));
    std::memcpy(to, &narrow, sizeof narrow);
#else
    for (int j = 0; j < 16; ++j) to[j] = j < n ? to_bf16(from[j]) : bf16{0};
#endif
}

// One row of A from `from`, 0 <= n floats long, to its places from depth `k` (a multiple of 16) on.
UA_INLINE void round_run(bf16* row, int64_t k, const float* from, int64_t n) {
    for (int64_t j = 0; j < n; j += 16, k += 16)
        round_bf16(row + k / kBf16Depth * kBf16Block + k % kBf16Depth, from + j, int(std::min<int64_t>(16, n - j)));
}

// Rows as tiles read them: [ceil(count/16)][K/32][16][32]. `line` holds one row whose segments do not fill whole vectors.
inline void gather_bf16(const Bf16Contraction& c, const float* const* start, int count, bf16* a, float* line) {
    const int64_t K = c.k(), depth = c.depth();
    const bool whole = c.length % 16 == 0;
    for (int p = 0; p < count; ++p) {
        bf16* const row = a + p / 16 * (K * 16) + p % 16 * kBf16Depth;
        const float* from = start[p] + (c.shift ? c.shift[0] : 0);
        if (c.segments > 1 && whole)
            for (int s = 0; s < c.segments; ++s) round_run(row, int64_t(s) * c.length, start[p] + c.shift[s], c.length);
        else if (c.segments > 1)
            for (int s = 0; s < c.segments; ++s)
                std::memcpy(line + int64_t(s) * c.length, start[p] + c.shift[s], size_t(c.length) * sizeof(float));
        if (c.segments == 1 || !whole) round_run(row, 0, c.segments > 1 ? line : from, depth);
        if (depth <= K - 16) round_bf16(row + (K - kBf16Depth) * 16 + 16, line, 0);  // the last half step only pads
    }
}

// The part of the next B block that this tile asks for. With a single tile the hardware's own streams do better.
UA_INLINE void request_bf16(const bf16* next, int64_t elements, int tile, int tiles) {
    if (tiles < 2) return;
    const int64_t lines = elements / 32;
    for (int64_t line = lines * tile / tiles; line < lines * (tile + 1) / tiles; ++line) prefetch<2>(next + line * 32);
}

// Row ranges of the tiles of a chunk: AMX tiles begin at whole tiles of A, others share the rows evenly.
struct Bf16Tiles {
    int rows, count;
    explicit Bf16Tiles(int rows) : rows(rows), count((rows + kBf16Rows - 1) / kBf16Rows) {}
    int first(int tile) const {
#if defined(UA_AMX)
        return std::min(rows, tile * kBf16Rows);
#else
        return int(int64_t(rows) * tile / count);
#endif
    }
};

template <int NP>
UA_NOINLINE void contract_bf16_panels(const Bf16Contraction& c, const bf16* a, int64_t m0, int count, int panel0,
                                      int panel1, float* partial, const Calls& calls) {
    const Bf16Tiles tiles(count);
    const int64_t K = c.k(), step = c.k_block ? c.k_block : K, stride = K * kPanel;
    const int groups = (panel1 - panel0) / NP;
    const int64_t tile_floats = kBf16Rows * NP * kPanel;
    const bool whole = step >= K;  // no partial sums: one tile of scratch stays in L1
    Bf16TileArgs t{};
    t.deep = K * 16;
    t.panel_stride = stride;
    for (int64_t k = 0; k < K; k += step) {
        const int64_t deep = std::min(step, K - k);
        const bool last = k + step >= K;
        t.a = a + k / kBf16Depth * kBf16Block;
        t.steps = deep / kBf16Depth;
        for (int g = 0; g < groups; ++g) {
            t.panel = c.packed + (panel0 + g * NP) * stride + k * kPanel;
            const bf16* const next = g + 1 < groups ? t.panel + NP * stride
                                     : last         ? c.packed + panel1 * stride
                                                    : c.packed + panel0 * stride + (k + step) * kPanel;
            for (int i = 0; i < tiles.count; ++i) {
                t.first = tiles.first(i);
                const int n = tiles.first(i + 1) - t.first;
                for (int q = 0; q < NP; ++q) request_bf16(next + q * stride, deep * kPanel, i, tiles.count);
                if (last && calls.want) calls.want(calls.want_body, m0 + t.first, n, panel0 + g * NP, NP);
                t.out = partial + (whole ? 0 : (int64_t(g) * tiles.count + i) * tile_floats);
                t.init = k == 0 ? nullptr : t.out;
                tile_bf16<NP>(n, t);
                if (last) calls.done(calls.done_body, m0 + t.first, n, panel0 + g * NP, NP, t.out);
            }
        }
    }
}

void contract_bf16_all(const Bf16Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1, const Calls& calls) {
    const int64_t chunks = (m1 - m0 + c.row_block - 1) / c.row_block, K = c.k();
    const int64_t tiles = (c.row_block + kBf16Rows - 1) / kBf16Rows;
    const int64_t sums = tiles * kBf16Rows * std::min(c.panel_group, panel1 - panel0) * kPanel;
    const int64_t rows = tiles * kBf16Rows + 16;  // one more for a chunk that begins inside a tile
    float* const partial = thread_scratch(size_t(sums + K + rows * K / 2));
    float* const line = partial + sums;
    bf16* const a = reinterpret_cast<bf16*>(line + K);
    const float* start[kMaxRowBlock];
#if defined(UA_AMX)
    UA_TILES_BEGIN();
#endif
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t from = m0 + (m1 - m0) * chunk / chunks, to = m0 + (m1 - m0) * (chunk + 1) / chunks;
        const int count = int(to - from);
        calls.rows(calls.rows_body, from, count, start);
        gather_bf16(c, start, count, a, line);
        for (int g = panel0; g < panel1; g += c.panel_group) {
            const int end = std::min(panel1, g + c.panel_group), wide = g + (end - g) / kBf16Panels * kBf16Panels;
            if (wide > g) contract_bf16_panels<kBf16Panels>(c, a, from, count, g, wide, partial, calls);
            if (end > wide) contract_bf16_panels<1>(c, a, from, count, wide, end, partial, calls);
        }
    }
#if defined(UA_AMX)
    UA_TILES_END();
#endif
}

}  // namespace detail

}  // namespace ua
