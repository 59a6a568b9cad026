// The loop nest of contract_pairs.h. One translation unit of a library includes it (engine.h), where a kernel has such products.
// Not here: what a kernel hands over (contract_pairs.h).
//
// Outermost first: chunks of rows, converted once; groups of panels; blocks of the depth; panels; tiles.
#pragma once
#include <algorithm>

#include "contract_nest.h"
#include "contract_pairs.h"

namespace ua {

inline constexpr int64_t kPairBlock = 16 * kPairDepth;  // elements of 16 rows of A, or of a panel, in one step

// Operands of a register tile, in steps of kPairDepth = 32 of the depth
//   A   [ceil(rows/16)][K/32][16][32]: `a` is its first row, `deep` elements lead to the next 16 rows
//   B   packed panels [K/32][16][16][2], `panel_stride` elements apart
//   C   [rows][16*NP] f32 or i32 as in tile.h; AMX writes it in whole tiles of 16 rows
struct PairTileArgs {
    const uint16_t* a;
    int64_t deep;
    int first;  // row in A
    const uint16_t* panel;
    int64_t panel_stride;
    int64_t steps;
    const float* init;  // null: zeros
    float* out;
};

namespace detail {

// A way to multiply pairs: how rows become elements, and tiles of 1..`rows` rows over one or two panels.
struct PairKind {
    int bytes;  // of an element of the left operand in memory
    void (*take)(uint16_t* to, const void* from, int n);
    void (*one)(int rows, const PairTileArgs& t);
    void (*two)(int rows, const PairTileArgs& t);
    int rows;
    bool whole;  // tiles begin at whole tiles of A; others share the rows evenly
};

// One row of A from `from`, n elements long, to its places from depth `k` (a multiple of 16) on.
UA_INLINE void take_run(const PairKind& kind, uint16_t* row, int64_t k, const char* from, int64_t n) {
    for (int64_t j = 0; j < n; j += 16, k += 16)
        kind.take(row + k / kPairDepth * kPairBlock + k % kPairDepth, from + j * kind.bytes, int(std::min<int64_t>(16, n - j)));
}

// Rows as tiles read them: [ceil(count/16)][K/32][16][32]. `line` holds one row whose segments do not fill whole vectors.
inline void gather_pairs(const PairContraction& c, const PairKind& kind, const float* const* start, int count, uint16_t* a,
                         char* line) {
    const int64_t K = c.k(), depth = c.depth(), size = kind.bytes;
    const bool whole = c.length % 16 == 0;
    for (int p = 0; p < count; ++p) {
        uint16_t* const row = a + p / 16 * (K * 16) + p % 16 * kPairDepth;
        const char* const from = reinterpret_cast<const char*>(start[p]);
        for (int s = 0; s < c.segments; ++s) {
            const char* const run = from + (c.shift ? c.shift[s] : 0) * size;
            if (c.segments == 1 || whole) take_run(kind, row, int64_t(s) * c.length, run, c.length);
            else std::memcpy(line + s * c.length * size, run, size_t(c.length * size));
        }
        if (c.segments > 1 && !whole) take_run(kind, row, 0, line, depth);
        if (depth <= K - 16) kind.take(row + (K - kPairDepth) * 16 + 16, line, 0);  // the last half step only pads
    }
}

// The part of the next B block that this tile asks for. With a single tile the hardware's own streams do better.
UA_INLINE void request_pairs(const uint16_t* next, int64_t elements, int tile, int tiles) {
    if (tiles < 2) return;
    const int64_t lines = elements / 32;
    for (int64_t line = lines * tile / tiles; line < lines * (tile + 1) / tiles; ++line) prefetch<2>(next + line * 32);
}

inline void contract_pair_panels(const PairContraction& c, const PairKind& kind, const uint16_t* a, int64_t m0, int count,
                                 int panel0, int panel1, int NP, float* partial, const Calls& calls) {
    const int tiles = (count + kind.rows - 1) / kind.rows;
    const auto begins = [&](int i) { return kind.whole ? std::min(count, i * kind.rows) : int(int64_t(count) * i / tiles); };
    const int64_t K = c.k(), step = c.k_block ? c.k_block : K, stride = K * kPanel;
    const int groups = (panel1 - panel0) / NP;
    const int64_t tile_floats = kind.rows * NP * kPanel;
    const bool whole = step >= K;  // no partial sums: one tile of scratch stays in L1
    const uint16_t* const packed = static_cast<const uint16_t*>(c.packed);
    PairTileArgs t{};
    t.deep = K * 16;
    t.panel_stride = stride;
    for (int64_t k = 0; k < K; k += step) {
        const int64_t deep = std::min(step, K - k);
        const bool last = k + step >= K;
        t.a = a + k / kPairDepth * kPairBlock;
        t.steps = deep / kPairDepth;
        for (int g = 0; g < groups; ++g) {
            t.panel = packed + (panel0 + g * NP) * stride + k * kPanel;
            const uint16_t* const next = g + 1 < groups ? t.panel + NP * stride
                                         : last         ? packed + panel1 * stride
                                                        : packed + panel0 * stride + (k + step) * kPanel;
            for (int i = 0; i < tiles; ++i) {
                t.first = begins(i);
                const int n = begins(i + 1) - t.first;
                for (int q = 0; q < NP; ++q) request_pairs(next + q * stride, deep * kPanel, i, tiles);
                if (last && calls.want) calls.want(calls.want_body, m0 + t.first, n, panel0 + g * NP, NP);
                t.out = partial + (whole ? 0 : (int64_t(g) * tiles + i) * tile_floats);
                t.init = k == 0 ? nullptr : t.out;
                (NP == 1 ? kind.one : kind.two)(n, t);
                if (last) calls.done(calls.done_body, m0 + t.first, n, panel0 + g * NP, NP, t.out);
            }
        }
    }
}

inline void contract_pairs_all(const PairContraction& c, const PairKind& kind, int64_t m0, int64_t m1, int panel0, int panel1,
                               const Calls& calls) {
    const int64_t chunks = (m1 - m0 + c.row_block - 1) / c.row_block, K = c.k();
    const int64_t rows = (c.row_block + kind.rows - 1) / kind.rows * kind.rows;
    const int64_t sums = rows * std::min(c.panel_group, panel1 - panel0) * kPanel;
    float* const partial = thread_scratch(size_t(sums + K + (rows + 16) * K / 2));
    char* const line = reinterpret_cast<char*>(partial + sums);
    uint16_t* const a = reinterpret_cast<uint16_t*>(partial + sums + K);
    const float* start[kMaxRowBlock];
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        const int64_t from = m0 + (m1 - m0) * chunk / chunks, to = m0 + (m1 - m0) * (chunk + 1) / chunks;
        const int count = int(to - from);
        calls.rows(calls.rows_body, from, count, start);
        gather_pairs(c, kind, start, count, a, line);
        for (int g = panel0; g < panel1; g += c.panel_group) {
            const int end = std::min(panel1, g + c.panel_group), wide = g + (end - g) / kTilePanels * kTilePanels;
            if (wide > g) contract_pair_panels(c, kind, a, from, count, g, wide, kTilePanels, partial, calls);
            if (end > wide) contract_pair_panels(c, kind, a, from, count, wide, end, 1, partial, calls);
        }
    }
}

}  // namespace detail

}  // namespace ua
