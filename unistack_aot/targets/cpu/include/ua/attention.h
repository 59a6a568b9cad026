// Attention for a block of query rows of one head: O = softmax(score(Q K^T)) V, streamed over tiles of keys.
// Not here: the stream itself (attention_stream.h, once per library); the loops over batch, heads and query blocks, and the choice of their sizes (generated code).
//
// The score matrix exists only for the rows of a register tile, [kTileRows][key_tile] in L1. The softmax is online: each key
// tile updates the row's maximum and sum and rescales what was accumulated (exp(a+b) = exp(a) exp(b)); sequences of at most
// key_tile keys need no rescaling. A row whose scores are all -inf gives NaN, as the formula does.
//
//   score(m, key, n, s)   turns the raw products s[0..n-1] of query row m with keys key.. into scores, in place:
//                         scale, additive mask, -inf for hidden keys, soft cap: whatever the model has between the two products
//   done(m, e, n, o)      stores the elements e..e+n-1 of row m of the result; called exactly once for each element
// For a causal mask pass the largest key any row of the block may see as `keys`, and let score() hide the rest.
#pragma once
#include <cstdint>
#include <type_traits>

#include "contract.h"

namespace ua {

inline constexpr int kQueryBlock = 512;  // most rows per call

struct Attention {
    const float *q, *k, *v;         // of this head
    int64_t q_row, k_row, v_row;    // floats between rows
    int depth;    // columns of q and k
    int depth_v;  // columns of v and of the result
    int key_tile = 256;  // keys whose scores are held at once
};

namespace detail {
// What generated code supplies, behind plain function pointers: the stream is compiled once per library, not per kernel.
struct AttentionCalls {
    void *score_body, *done_body;
    void (*score)(void*, int64_t m, int64_t key, int n, float* s);
    void (*done)(void*, int64_t m, int e, int n, const float* o);
};

void attention_all(const Attention& a, int64_t m0, int64_t m1, int64_t keys, const AttentionCalls& calls);
}

// Query rows m0..m1-1 (at most kQueryBlock) against keys 0..keys-1.
template <class Score, class Done>
void attention(const Attention& a, int64_t m0, int64_t m1, int64_t keys, Score&& score, Done&& done) {
    using ScoreBody = std::remove_reference_t<Score>;
    using DoneBody = std::remove_reference_t<Done>;
    detail::AttentionCalls calls{detail::erase(score), detail::erase(done), nullptr, nullptr};
    calls.score = [](void* f, int64_t m, int64_t key, int n, float* s) { (*static_cast<ScoreBody*>(f))(m, key, n, s); };
    calls.done = [](void* f, int64_t m, int e, int n, const float* o) { (*static_cast<DoneBody*>(f))(m, e, n, o); };
    detail::attention_all(a, m0, m1, keys, calls);
}

}  // namespace ua
