// Blocked contraction: a range of rows times a range of packed panels, cut so that B stays in L1 and A in L2.
// Matrix products and convolutions share it; they differ only in where a row starts and in the shift table.
// Not here: the tile itself (tile.h), packing activations at run time (pack.h), the split over threads (generated code).
//
// Loop nest of contract(), outermost first:
//   rows in chunks of row_block        the A chunk [row_block][k_block] is read from L2 by every panel of a group
//   panels in groups of panel_group    partial sums [row_block][16*panel_group] stay in L2 between K blocks
//   K in blocks of k_block
//   panels of the group                one B block [k_block][16] lies in L1 ...
//   tiles of kTileRows rows            ... and is used by every tile of the chunk
// The rows of a chunk are divided evenly among its tiles, so 49 rows are 4x6 + 5x5 and no tile runs nearly empty.
// Just before its use by the first tile, the next B block is requested from memory, a few lines per tile.
//
//   rows(m)                                   -> const float*: first element of row m
//   want(m, count, panel, panels)             optional: prefetch what done() of the same tile will read and write
//   done(m, count, panel, panels, tile)       the finished tile: count rows from m, columns 16*panel .. 16*(panel+panels)-1,
//                                             element (p, j) at tile[p*16*panels + j]; called exactly once for each element
#pragma once
#include <algorithm>
#include <cstdlib>

#include "tile.h"

namespace ua {

struct Contraction {
    const float* packed;   // [panels][K][16], 64-byte aligned
    const int32_t* shift;  // [segments], see tile.h; null: one segment at 0
    int segments;
    int length;       // K = segments * length
    int k_block;      // in K steps; a multiple of length, or any number if there is one segment; 0: no blocking
    int row_block;    // rows per chunk, at most kMaxRowBlock
    int panel_group;  // panels per group
    int64_t ahead;    // prefetch distance in A, floats (see TileArgs); kNextTile: the next tile's rows; 0: none
    int64_t k() const { return int64_t(segments) * length; }
};

inline constexpr int kMaxRowBlock = 512;
inline constexpr int64_t kNextTile = -1;

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

// What generated code supplies, behind plain function pointers: the loop nest is compiled once per library, not per kernel.
struct Calls {
    void *rows_body, *done_body, *want_body;
    void (*rows)(void*, int64_t from, int count, const float** start);
    void (*done)(void*, int64_t m, int count, int panel, int panels, const float* tile);
    void (*want)(void*, int64_t m, int count, int panel, int panels);
};

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

UA_NOINLINE inline void contract_all(const Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1,
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

template <class F>
UA_INLINE void* erase(F& f) {
    return const_cast<void*>(static_cast<const void*>(&f));
}

template <class Rows, class Done>
UA_INLINE Calls calls_of(Rows& rows, Done& done) {
    Calls calls{erase(rows), erase(done), nullptr, nullptr, nullptr, nullptr};
    calls.rows = [](void* f, int64_t from, int count, const float** start) {
        for (int p = 0; p < count; ++p) start[p] = (*static_cast<Rows*>(f))(from + p);
    };
    calls.done = [](void* f, int64_t m, int count, int panel, int panels, const float* tile) {
        (*static_cast<Done*>(f))(m, count, panel, panels, tile);
    };
    return calls;
}

}  // namespace detail

template <class Rows, class Done>
void contract(const Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1, Rows&& rows, Done&& done) {
    detail::contract_all(c, m0, m1, panel0, panel1, detail::calls_of(rows, done));
}

template <class Rows, class Done, class Want>
void contract(const Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1, Rows&& rows, Done&& done,
              Want&& want) {
    detail::Calls calls = detail::calls_of(rows, done);
    calls.want_body = detail::erase(want);
    calls.want = [](void* f, int64_t m, int count, int panel, int panels) {
        (*static_cast<std::remove_reference_t<Want>*>(f))(m, count, panel, panels);
    };
    detail::contract_all(c, m0, m1, panel0, panel1, calls);
}

}  // namespace ua
