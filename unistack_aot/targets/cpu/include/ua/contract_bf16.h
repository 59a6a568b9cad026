// Blocked contraction of bf16: as contract.h, but that both operands are bf16 when they are multiplied. Sums are f32.
// Not here: the nest's definition (contract_bf16_nest.h, once per library), the tile itself (tile_bf16.h).
//
// Rows of the left operand are f32 in memory, wherever contract.h finds them. A chunk of them is rounded into near rows first,
// which every panel of the task reads; the depth is padded with zeros to whole steps of kBf16Depth there and in the panels.
#pragma once
#include "contract.h"
#include "half.h"

namespace ua {

inline constexpr int kBf16Depth = 32;  // of a step: one row of an AMX tile, 16 pairs of a dot product

struct Bf16Contraction {
    const bf16* packed;    // [panels][K/2][16][2], K padded to whole steps, 64-byte aligned
    const int32_t* shift;  // [segments], see tile.h; null: one segment at 0
    int segments;
    int length;       // depth = segments * length
    int k_block;      // whole steps; 0: no blocking
    int row_block;    // rows per chunk, at most kMaxRowBlock
    int panel_group;  // panels per group
    int64_t depth() const { return int64_t(segments) * length; }
    int64_t k() const { return (depth() + kBf16Depth - 1) / kBf16Depth * kBf16Depth; }
};

namespace detail {
void contract_bf16_all(const Bf16Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1, const Calls& calls);
}

template <class Rows, class Done>
void contract_bf16(const Bf16Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1, Rows&& rows, Done&& done) {
    detail::contract_bf16_all(c, m0, m1, panel0, panel1, detail::calls_of(rows, done));
}

template <class Rows, class Done, class Want>
void contract_bf16(const Bf16Contraction& c, int64_t m0, int64_t m1, int panel0, int panel1, Rows&& rows, Done&& done,
                   Want&& want) {
    detail::contract_bf16_all(c, m0, m1, panel0, panel1, detail::calls_of(rows, done, want));
}

}  // namespace ua
