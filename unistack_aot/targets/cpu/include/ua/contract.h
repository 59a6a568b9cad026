// Blocked contraction: a range of rows times a range of packed panels, cut so that B stays in L1 and A in L2.
// Matrix products and convolutions share it; they differ only in where a row starts and in the shift table.
// Not here: the nest's definition (contract_nest.h, once per library), the tile itself (tile.h), packing activations at run time (pack.h), the split over threads (generated code).
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
#include <type_traits>

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

namespace detail {

// What generated code supplies, behind plain function pointers: the loop nest is compiled once per library, not per kernel.
struct Calls {
    void *rows_body, *done_body, *want_body;
    void (*rows)(void*, int64_t from, int count, const float** start);
    void (*done)(void*, int64_t m, int count, int panel, int panels, const float* tile);
    void (*want)(void*, int64_t m, int count, int panel, int panels);
};

// The loop nest above, in contract_nest.h.
void contract_all(const Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1, const Calls& calls);

template <class F>
UA_INLINE void* erase(F& f) {
    return const_cast<void*>(static_cast<const void*>(&f));
}

// Rows and sums of other types of 32 bits or less go through the same pointers.
template <class Sum = float, class Rows, class Done>
UA_INLINE Calls calls_of(Rows& rows, Done& done) {
    Calls calls{erase(rows), erase(done), nullptr, nullptr, nullptr, nullptr};
    calls.rows = [](void* f, int64_t from, int count, const float** start) {
        for (int p = 0; p < count; ++p) start[p] = reinterpret_cast<const float*>((*static_cast<Rows*>(f))(from + p));
    };
    calls.done = [](void* f, int64_t m, int count, int panel, int panels, const float* tile) {
        (*static_cast<Done*>(f))(m, count, panel, panels, reinterpret_cast<const Sum*>(tile));
    };
    return calls;
}

template <class Sum = float, class Rows, class Done, class Want>
UA_INLINE Calls calls_of(Rows& rows, Done& done, Want& want) {
    Calls calls = calls_of<Sum>(rows, done);
    calls.want_body = erase(want);
    calls.want = [](void* f, int64_t m, int count, int panel, int panels) {
        (*static_cast<Want*>(f))(m, count, panel, panels);
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
    detail::contract_all(c, m0, m1, panel0, panel1, detail::calls_of(rows, done, want));
}

}  // namespace ua
