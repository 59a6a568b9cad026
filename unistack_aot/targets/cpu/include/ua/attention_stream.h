// The stream over key tiles of attention.h. One translation unit of a library includes it (engine.h).
// Not here: what a kernel hands over (attention.h).
//
// Keys and values of a tile are packed once for all rows of the call. Then the rows go by, as many at a time as a register
// tile takes: their scores, the weights these become and the values mixed by them stay in L1 from one product to the next.
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
    const int whole = a.depth_v / kPanel * kPanel;
    const float* v = a.v + key * a.v_row;
    if (whole < a.depth_v) pack_rows(vp + int64_t(whole) * n, v + whole, a.v_row, n, a.depth_v - whole);
    for (int i = 0; i < n; ++i, v += a.v_row)  // a row after the other: its lines are neighbours
        for (int p = 0; p < whole; p += kPanel) pack_rows(vp + int64_t(p) * n + i * kPanel, v + p, 0, 1, kPanel);
}

// exp(x) for x <= 0, at most 4 ulp off, and 0 below exp(-87): 2^-125 of the largest weight. NaN stays.
UA_INLINE float weight(float x) {
    const float magic = 12582912.0f;  // as in exp_core of math.h
    const float shifted = fma(x, 1.44269504f, magic), k = shifted - magic;
    const float r = fma(k, -1.42860677e-6f, fma(k, -0.693145752f, x));
    const float p = horner(r, 5.000000101e-01f, 1.666651289e-01f, 4.166618728e-02f, 8.369598410e-03f, 1.395171725e-03f);
    const float y = 1.0f + fma(p, r * r, r);
    const float grown = y * power_of_two(bits<int32_t>(shifted) - bits<int32_t>(magic));
    return x < -87.0f ? 0.0f : grown;
}

inline constexpr int64_t kAccumulators = int64_t(kTileRows) * kPanel;  // floats of a register tile, per panel

// What a row knows of the keys so far.
struct Row {
    float max = Limits<float>::lowest, sum = 0.0f;
};

template <class Monoid>
UA_INLINE float across(float (&lane)[kPanel]) {  // all lanes joined
    for (int width = kPanel / 2; width > 0; width /= 2) {
#pragma omp simd
        for (int l = 0; l < width; ++l) lane[l] = Monoid::join(lane[l], lane[l + width]);
    }
    return lane[0];
}

// A NaN is left out: its weight is NaN, and with it the sum.
struct Greater {
    static UA_INLINE float join(float a, float b) { return a > b ? a : b; }
};

// Scores become weights exp(score - maximum), in place, for `count` rows of `padded` keys;
// returns whether what was mixed before has to be scaled by `factor`.
UA_INLINE bool absorb(float* s, int64_t wide, int count, int padded, Row* row, float* factor) {
    float base[kTileRows];
    bool grown = false;
    for (int p = 0; p < count; ++p) {
        const float* const x = s + p * wide;
        float lane[kPanel];
        for (int l = 0; l < kPanel; ++l) lane[l] = x[l];
        for (int j = kPanel; j < padded; j += kPanel) {
#pragma omp simd
            for (int l = 0; l < kPanel; ++l) lane[l] = Greater::join(x[j + l], lane[l]);
        }
        base[p] = across<Greater>(lane);
    }
    for (int p = 0; p < count; ++p) {
        const float top = Greater::join(base[p], row[p].max);
        base[p] = top == Limits<float>::lowest ? 0.0f : top;
        factor[p] = exp(row[p].max - base[p]);
        row[p].max = top;
        grown |= factor[p] != 1.0f;
    }
    for (int p = 0; p < count; ++p) {
        float* const x = s + p * wide;
        float lane[kPanel];
        for (int l = 0; l < kPanel; ++l) lane[l] = 0.0f;
        for (int j = 0; j < padded; j += kPanel) {
#pragma omp simd
            for (int l = 0; l < kPanel; ++l) {
                const float e = weight(x[j + l] - base[p]);
                x[j + l] = e;
                lane[l] += e;
            }
        }
        row[p].sum = row[p].sum * factor[p] + across<Sum<float>>(lane);
    }
    return grown;
}

// The panels of a product: as many at once as a register tile takes, then single ones.
template <class At>
UA_INLINE void by_panels(int panels, At&& at) {
    int j = 0;
    for (; j + kTilePanels <= panels; j += kTilePanels) at(j, std::integral_constant<int, kTilePanels>());
    for (; j < panels; ++j) at(j, std::integral_constant<int, 1>());
}

// One call: the rows of a block of queries, and scratch memory of the thread for all that lies between the two products.
struct Rows {
    const Attention& a;
    const int rows, panels;  // panels of values
    const Tiles tiles;
    const int64_t tile, wide;  // keys at once, and rounded up to whole panels
    float *q, *kt, *vp, *s, *raw, *acc;
    Row row[kQueryBlock];
    float factor[kTileRows];
    const float* start[kTileRows];
    const int32_t none = 0;
    TileArgs t{};

    Rows(const Attention& a, int64_t m0, int64_t m1, int64_t keys)
        : a(a),
          rows(int(m1 - m0)),
          panels((a.depth_v + kPanel - 1) / kPanel),
          tiles(rows, kTileRows),
          tile(std::min<int64_t>(keys, a.key_tile)),
          wide(whole_panels(int(tile))) {
        const int64_t mixed = tiles.count * panels * kAccumulators;
        const int64_t sizes[] = {wide * a.depth, panels * kPanel * tile, kTileRows * wide, kTilePanels * kAccumulators, mixed,
                                 int64_t(rows) * a.depth};
        float** const places[] = {&kt, &vp, &s, &raw, &acc, &q};
        int64_t total = 0;
        for (int64_t size : sizes) total += size;
        float* next = thread_scratch(size_t(total));
        for (int i = 0; i < 6; ++i) *places[i] = next, next += sizes[i];
        // A row after the other, whatever lies between them in memory: tiles read all of theirs side by side.
        for (int p = 0; p < rows; ++p)
            std::memcpy(q + int64_t(p) * a.depth, a.q + (m0 + p) * a.q_row, sizeof(float) * a.depth);
        t.rows = start, t.shift = &none, t.segments = 1;
    }

    static int whole_panels(int n) { return (n + kPanel - 1) / kPanel * kPanel; }
    int first(int i) const { return tiles.first(i); }
    int count(int i) const { return tiles.first(i + 1) - tiles.first(i); }
    float* mixed(int i, int panel) const { return acc + (int64_t(i) * panels + panel) * kAccumulators; }

    // Raw products of the rows of tile i with n keys.
    void multiply(int i, int n) {
        const int rows = count(i);
        for (int p = 0; p < rows; ++p) start[p] = q + int64_t(first(i) + p) * a.depth;
        t.length = a.depth, t.panel_stride = int64_t(a.depth) * kPanel, t.init = nullptr, t.out = raw;
        by_panels(whole_panels(n) / kPanel, [&](int j, auto np) {
            constexpr int width = kPanel * decltype(np)::value;
            t.panel = kt + int64_t(j) * kPanel * a.depth;
            tile_of_rows<kTileRows, decltype(np)::value>(rows, t);
            for (int p = 0; p < rows; ++p)
                std::memcpy(s + p * wide + j * kPanel, raw + p * width, sizeof(float) * width);
        });
    }

    // Values of n keys, mixed by the weights of tile i; `again`: to what earlier keys gave, scaled first if `grown`.
    void mix(int i, int n, bool again, bool grown) {
        const int rows = count(i);
        for (int p = 0; p < rows; ++p) start[p] = s + p * wide;
        t.length = n, t.panel_stride = int64_t(n) * kPanel;
        by_panels(panels, [&](int panel, auto np) {
            constexpr int width = kPanel * decltype(np)::value;
            float* const out = mixed(i, panel);
            if (again && grown)
                for (int p = 0; p < rows; ++p)
                    for (int j = 0; j < width; ++j) out[p * width + j] *= factor[p];
            t.panel = vp + int64_t(panel) * kPanel * n, t.init = again ? out : nullptr, t.out = out;
            tile_of_rows<kTileRows, decltype(np)::value>(rows, t);
        });
    }

    // The means, handed over: what was mixed, divided by the sums of weights.
    void finish(int i, int64_t m0, const AttentionCalls& calls) {
        by_panels(panels, [&](int panel, auto np) {
            constexpr int width = kPanel * decltype(np)::value;
            const int from = panel * kPanel, columns = std::min(width, a.depth_v - from);
            for (int p = 0; p < count(i); ++p) {
                const float inverse = 1.0f / row[first(i) + p].sum;
                float* const o = mixed(i, panel) + p * width;
                for (int j = 0; j < width; ++j) o[j] *= inverse;
                calls.done(calls.done_body, m0 + first(i) + p, from, columns, o);
            }
        });
    }
};

// The rows of a sum over no keys.
inline void attention_to_none(const Attention& a, int64_t m0, int64_t m1, const AttentionCalls& calls) {
    const float zeros[kPanel] = {};
    for (int64_t m = m0; m < m1; ++m)
        for (int e = 0; e < a.depth_v; e += kPanel) calls.done(calls.done_body, m, e, std::min(kPanel, a.depth_v - e), zeros);
}

void attention_all(const Attention& a, int64_t m0, int64_t m1, int64_t keys, const AttentionCalls& calls) {
    if (keys <= 0) return attention_to_none(a, m0, m1, calls);
    Rows block(a, m0, m1, keys);
    for (int64_t key = 0; key < keys; key += block.tile) {
        const int n = int(std::min(block.tile, keys - key)), padded = Rows::whole_panels(n);
        pack_keys(a, key, n, block.kt, block.vp);
        for (int i = 0; i < block.tiles.count; ++i) {
            const int first = block.first(i), count = block.count(i);
            block.multiply(i, n);
            for (int p = 0; p < count; ++p) {
                float* const s = block.s + p * block.wide;
                calls.score(calls.score_body, m0 + first + p, key, n, s);
                std::fill(s + n, s + padded, Limits<float>::lowest);
            }
            const bool grown = absorb(block.s, block.wide, count, padded, block.row + first, block.factor);
            block.mix(i, n, key > 0, grown);
        }
    }
    for (int i = 0; i < block.tiles.count; ++i) block.finish(i, m0, calls);
}

}  // namespace detail

}  // namespace ua
