// Blocked contraction of 16-bit elements in pairs: as contract.h, for bf16 (sums are f32) and for integers (sums are i32, and wrap).
// Not here: the nest's definition (pair_nest.h, once per library), the tiles (tile_bf16.h, tile_i16.h).
//
// Rows of the left operand lie in memory in their own type, wherever contract.h finds rows. A chunk of them is converted into near
// rows first, which every panel of the task reads; the depth is padded with zeros to whole steps of kPairDepth there and in the
// panels.
#pragma once
#include "contract.h"
#include "half.h"

namespace ua {

inline constexpr int kPairDepth = 32;  // of a step: one row of an AMX tile, 16 pairs of a dot product

struct PairContraction {
    const void* packed;    // [panels][K/2][16][2], K padded to whole steps, 64-byte aligned
    const int32_t* shift;  // [segments], see tile.h; null: one segment at 0
    int segments;
    int length;       // depth = segments * length
    int k_block;      // whole steps; 0: no blocking
    int row_block;    // rows per chunk, at most kMaxRowBlock
    int panel_group;  // panels per group
    int64_t depth() const { return int64_t(segments) * length; }
    int64_t k() const { return (depth() + kPairDepth - 1) / kPairDepth * kPairDepth; }
};

namespace detail {

void contract_bf16_all(const PairContraction& c, int64_t m0, int64_t m1, int panel0, int panel1, const Calls& calls);

// How elements of the left operand become i16: the first n of 16, the rest zero.
struct IntegerRows {
    int bytes;
    void (*take)(uint16_t* to, const void* from, int n);
};
void contract_i16_all(const PairContraction& c, int64_t m0, int64_t m1, int panel0, int panel1, const IntegerRows& source,
                      const Calls& calls);

template <class Source>
inline constexpr IntegerRows kIntegerRows{sizeof(Source), [](uint16_t* to, const void* from, int n) {
    const Source* const x = static_cast<const Source*>(from);
    if (n == 16)
        for (int j = 0; j < 16; ++j) to[j] = uint16_t(int16_t(x[j]));
    else
        for (int j = 0; j < 16; ++j) to[j] = j < n ? uint16_t(int16_t(x[j])) : 0;
}};

template <class Rows>
using Source = std::remove_const_t<std::remove_pointer_t<decltype(std::declval<Rows&>()(int64_t(0)))>>;

}  // namespace detail

// rows(m) -> const float*; done(..., const float* tile)
template <class Rows, class... Rest>
void contract_bf16(const PairContraction& c, int64_t m0, int64_t m1, int panel0, int panel1, Rows&& rows, Rest&&... rest) {
    detail::contract_bf16_all(c, m0, m1, panel0, panel1, detail::calls_of(rows, rest...));
}

// rows(m) -> const int8_t*, uint8_t* or int16_t*; done(..., const int32_t* tile)
template <class Rows, class... Rest>
void contract_i16(const PairContraction& c, int64_t m0, int64_t m1, int panel0, int panel1, Rows&& rows, Rest&&... rest) {
    detail::contract_i16_all(c, m0, m1, panel0, panel1, detail::kIntegerRows<detail::Source<Rows>>,
                             detail::calls_of<int32_t>(rows, rest...));
}

}  // namespace ua
