// The loop nest of contract.h, and the scratch memory of a thread. One translation unit of a library includes it (engine.h).
// Not here: what a kernel hands over (contract.h).
#pragma once
#include <algorithm>
#include <cstdlib>

#include "contract.h"

namespace ua {

// Scratch memory of the calling thread, kept between calls; at least `floats` floats, 64-byte aligned. A nested user takes
// another slot.
template <int slot = 0>
inline float* thread_scratch(size_t floats) {
    struct Buffer {
        float* data = nullptr;
        size_t size = 0;
        ~Buffer() { std::free(data); }
    };
    static thread_local Buffer buffer;
    if (buffer.size < floats) {
        std::free(buffer.data);
        buffer.size = (floats + 1023) / 1024 * 1024;
        buffer.data = static_cast<float*>(std::aligned_alloc(64, buffer.size * sizeof(float)));
    }
    return buffer.data;
}

namespace detail {

// Row ranges of the tiles of a chunk: sizes differ by at most one.
struct Tiles {
    int rows, count;
    Tiles(int rows, int most) : rows(rows), count((rows + most - 1) / most) {}
    int first(int tile) const { return int(int64_t(rows) * tile / count); }
};

// The part of the next B block that this tile asks for. With a single tile the hardware's own streams do better.
UA_INLINE void request(const float* next, int64_t floats, int tile, int tiles) {
    if (tiles < 2) return;
    const int64_t lines = floats / 16;
    for (int64_t line = lines * tile / tiles; line < lines * (tile + 1) / tiles; ++line) prefetch<2>(next + line * 16);
}

template <int MR, int NP>
UA_NOINLINE void contract_panels(const Contraction& c, const float* const* rows, int64_t m0, int count, int panel0,
                                 int panel1, const Calls& calls) {
    const Tiles tiles(count, MR);
    const int64_t K = c.k(), step = c.k_block ? c.k_block : K, stride = K * kPanel;
    const int groups = (panel1 - panel0) / NP;
    const int64_t tile_floats = MR * NP * kPanel;
    const bool whole = step >= K;  // no partial sums: one tile of scratch stays in L1
    float* const partial = thread_scratch(whole ? tile_floats : size_t(groups) * tiles.count * tile_floats);
    for (int64_t k = 0; k < K; k += step) {
        const int64_t steps = std::min(step, K - k);
        const bool last = k + step >= K;
        const int32_t start = int32_t(k) + (c.shift ? c.shift[0] : 0);
        TileArgs t{};
        t.panel_stride = stride;
        if (c.segments == 1) t.shift = &start, t.segments = 1, t.length = int(steps);
        else t.shift = c.shift + k / c.length, t.segments = int(steps / c.length), t.length = c.length;
        for (int g = 0; g < groups; ++g) {
            t.panel = c.packed + (panel0 + g * NP) * stride + k * kPanel;
            const float* const next = g + 1 < groups ? t.panel + NP * stride
                                      : last         ? c.packed + panel1 * stride
                                                     : c.packed + panel0 * stride + (k + step) * kPanel;
            for (int i = 0; i < tiles.count; ++i) {
                const int first = tiles.first(i), n = tiles.first(i + 1) - first;
                for (int q = 0; q < NP; ++q) request(next + q * stride, steps * kPanel, i, tiles.count);
                if (last && calls.want) calls.want(calls.want_body, m0 + first, n, panel0 + g * NP, NP);
                t.rows = rows + first;
                t.ahead = c.ahead != kNextTile ? c.ahead : i + 1 < tiles.count ? rows[first + n] - rows[first] : 0;
                t.out = partial + (whole ? 0 : (int64_t(g) * tiles.count + i) * tile_floats);
                t.init = k == 0 ? nullptr : t.out;
                tile_of_rows<MR, NP>(n, t);
                if (last) calls.done(calls.done_body, m0 + first, n, panel0 + g * NP, NP, t.out);
            }
        }
    }
}

template <int MR, int NP>
inline void contract_group(const Contraction& c, const float* const* rows, int64_t m0, int count, int panel0, int panel1,
                           const Calls& calls) {
    const int wide = panel0 + (panel1 - panel0) / NP * NP;
    if (wide > panel0) contract_panels<MR, NP>(c, rows, m0, count, panel0, wide, calls);
    if (NP > 1 && panel1 > wide) contract_panels<MR, 1>(c, rows, m0, count, wide, panel1, calls);
}

void contract_all(const Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1,
                                     const Calls& calls) {
    const int64_t chunks = (m1 - m0 + c.row_block - 1) / c.row_block;
    const float* start[kMaxRowBlock];
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t from = m0 + (m1 - m0) * chunk / chunks, to = m0 + (m1 - m0) * (chunk + 1) / chunks;
        const int count = int(to - from);
        calls.rows(calls.rows_body, from, count, start);
        for (int g = panel0; g < panel1; g += c.panel_group) {
            const int end = std::min(panel1, g + c.panel_group);
            if (count == 1) contract_group<1, kThinPanels>(c, start, from, count, g, end, calls);
            else if (count == 2) contract_group<2, kThinPanels / 2>(c, start, from, count, g, end, calls);
            else contract_group<kTileRows, kTilePanels>(c, start, from, count, g, end, calls);
        }
    }
}

}  // namespace detail

}  // namespace ua
