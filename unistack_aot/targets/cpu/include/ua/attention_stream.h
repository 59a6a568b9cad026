// The stream over key tiles of attention.h. One translation unit of a library includes it (engine.h).
// Not here: what a kernel hands over (attention.h).
#pragma once
#include <algorithm>

#include "attention.h"
#include "contract_nest.h"
#include "pack.h"
#include "reduce.h"

namespace ua {

namespace detail {

// Panels of K^T (keys are the columns) and of V for keys key..key+n-1.
inline void pack_keys(const Attention& a, int64_t key, int n, float* kt, float* vp) {
    for (int j = 0; j < n; j += kPanel)
        pack_columns(kt + j * a.depth, a.k + (key + j) * a.k_row, a.k_row, a.depth, std::min(kPanel, n - j));
    for (int p = 0; p < a.depth_v; p += kPanel)
        pack_rows(vp + p * n, a.v + key * a.v_row + p, a.v_row, n, std::min(kPanel, a.depth_v - p));
}

// scores -> exp(scores - max) in place; returns the factor for what was accumulated before.
UA_INLINE float absorb_scores(float* s, int n, SoftmaxState& state) {
    const float m = maximum(state.max, fold<Max<float>>(n, [&](int64_t j) { return s[j]; }));
    const float base = m == Limits<float>::lowest ? 0.0f : m;
#pragma omp simd
    for (int j = 0; j < n; ++j) s[j] = exp(s[j] - base);
    const float factor = exp(state.max - base);
    state.sum = state.sum * factor + fold<Sum<float>>(n, [&](int64_t j) { return s[j]; });
    state.max = m;
    return factor;
}

// The rows of a sum over no keys.
inline void attention_to_none(const Attention& a, int64_t m0, int64_t m1, const AttentionCalls& calls) {
    const float zeros[kPanel] = {};
    for (int64_t m = m0; m < m1; ++m)
        for (int e = 0; e < a.depth_v; e += kPanel) calls.done(calls.done_body, m, e, std::min(kPanel, a.depth_v - e), zeros);
}

void attention_all(const Attention& a, int64_t m0, int64_t m1, int64_t keys, const AttentionCalls& calls) {
    constexpr int MR = kTileRows;
    if (keys <= 0) return attention_to_none(a, m0, m1, calls);
    const int rows = int(m1 - m0), panels = (a.depth_v + kPanel - 1) / kPanel;
    const Tiles tiles(rows, MR);
    const int64_t tile = std::min<int64_t>(keys, a.key_tile), wide = (tile + kPanel - 1) / kPanel * kPanel;
    const int64_t acc_tile = int64_t(MR) * kPanel;
    float* const kt = thread_scratch(size_t(wide * a.depth + panels * kPanel * tile + rows * wide + acc_tile +
                                            tiles.count * panels * acc_tile));
    float* const vp = kt + wide * a.depth;
    float* const s = vp + panels * kPanel * tile;
    float* const raw = s + rows * wide;
    float* const acc = raw + acc_tile;
    SoftmaxState state[kQueryBlock];
    float factor[kQueryBlock];
    const float* start[MR];
    const int32_t none = 0;
    TileArgs t{};
    t.rows = start, t.shift = &none, t.segments = 1;
    for (int64_t key = 0; key < keys; key += tile) {
        const int n = int(std::min(tile, keys - key));
        pack_keys(a, key, n, kt, vp);
        t.length = a.depth, t.init = nullptr, t.out = raw;
        for (int i = 0; i < tiles.count; ++i) {
            const int first = tiles.first(i), count = tiles.first(i + 1) - first;
            for (int p = 0; p < count; ++p) start[p] = a.q + (m0 + first + p) * a.q_row;
            for (int j = 0; j < n; j += kPanel) {
                t.panel = kt + j * a.depth;
                tile_of_rows<MR, 1>(count, t);
                for (int p = 0; p < count; ++p)
                    std::memcpy(s + (first + p) * wide + j, raw + p * kPanel, sizeof(float) * kPanel);
            }
        }
        for (int p = 0; p < rows; ++p) {
            calls.score(calls.score_body, m0 + p, key, n, s + p * wide);
            factor[p] = absorb_scores(s + p * wide, n, state[p]);
        }
        t.length = n;
        for (int i = 0; i < tiles.count; ++i) {
            const int first = tiles.first(i), count = tiles.first(i + 1) - first;
            for (int p = 0; p < count; ++p) start[p] = s + (first + p) * wide;
            for (int q = 0; q < panels; ++q) {
                float* const o = acc + (int64_t(i) * panels + q) * acc_tile;
                if (key > 0)
                    for (int p = 0; p < count; ++p)
                        for (int j = 0; j < kPanel; ++j) o[p * kPanel + j] *= factor[first + p];
                t.panel = vp + q * kPanel * n, t.init = key > 0 ? o : nullptr, t.out = o;
                tile_of_rows<MR, 1>(count, t);
            }
        }
    }
    for (int i = 0; i < tiles.count; ++i) {
        for (int p = tiles.first(i); p < tiles.first(i + 1); ++p) {
            const float inverse = 1.0f / state[p].sum;
            for (int q = 0; q < panels; ++q) {
                float* const o = acc + (int64_t(i) * panels + q) * acc_tile + (p - tiles.first(i)) * kPanel;
                for (int j = 0; j < kPanel; ++j) o[j] *= inverse;
                calls.done(calls.done_body, m0 + p, q * kPanel, std::min(kPanel, a.depth_v - q * kPanel), o);
            }
        }
    }
}

}  // namespace detail

}  // namespace ua
