// The transforms and products behind winograd.h. One translation unit of a library includes it (engine.h).
// Not here: what a kernel hands over (winograd.h).
#pragma once
#include <algorithm>

#include "contract_nest.h"
#include "winograd.h"

namespace ua {

inline constexpr int kWinogradTiles = 32;  // most tiles transformed together: both products' operands stay near L2

namespace detail {

// B^T x and A^T x for the points 0, 1, -1, 2, -2, infinity.
UA_INLINE void winograd_in(const f32v (&x)[6], f32v (&y)[6]) {
    const f32v two = splat(2.0f), four = splat(4.0f), five = splat(-5.0f);
    const f32v a = fma(-four, x[2], x[4]), b = fma(-four, x[1], x[3]), c = x[4] - x[2], d = two * (x[3] - x[1]);
    y[0] = fma(four, x[0], fma(five, x[2], x[4]));
    y[1] = a + b, y[2] = a - b, y[3] = c + d, y[4] = c - d;
    y[5] = fma(four, x[1], fma(five, x[3], x[5]));
}
UA_INLINE void winograd_out(const f32v (&m)[6], f32v (&y)[4]) {
    const f32v s = m[1] + m[2], d = m[1] - m[2], t = m[3] + m[4], e = m[3] - m[4];
    y[0] = m[0] + s + t;
    y[1] = fma(splat(2.0f), e, d);
    y[2] = fma(splat(4.0f), t, s);
    y[3] = m[5] + fma(splat(8.0f), e, d);
}

// One vector of channels of one tile; `to` steps by `step` floats between the 36 positions.
inline void winograd_load(const float* from, int64_t row, int rows, int columns, float* to, int64_t step) {
    f32v half[6][6];
    for (int i = 0; i < 6; ++i) {
        f32v x[6];
        for (int j = 0; j < 6; ++j) x[j] = i < rows && j < columns ? load(from + i * row + j * kPanel) : f32v{};
        winograd_in(x, half[i]);
    }
    for (int j = 0; j < 6; ++j) {
        const f32v x[6] = {half[0][j], half[1][j], half[2][j], half[3][j], half[4][j], half[5][j]};
        f32v y[6];
        winograd_in(x, y);
        for (int i = 0; i < 6; ++i) store(to + (6 * i + j) * step, y[i]);
    }
}

inline void winograd_store(const float* from, int64_t step, float* to) {
    f32v half[4][6];
    for (int j = 0; j < 6; ++j) {
        f32v x[6], y[4];
        for (int i = 0; i < 6; ++i) x[i] = load(from + (6 * i + j) * step);
        winograd_out(x, y);
        for (int i = 0; i < 4; ++i) half[i][j] = y[i];
    }
    for (int i = 0; i < 4; ++i) {
        f32v y[4];
        winograd_out(half[i], y);
        for (int j = 0; j < 4; ++j) store(to + (4 * i + j) * kPanel, y[j]);
    }
}

inline void winograd_block(const Winograd& w, int first, int count, WinogradDone done, void* body) {
    const int across = (w.width + 3) / 4;
    const int64_t in_step = int64_t(w.in_blocks) * count * kPanel, out_step = int64_t(w.out_blocks) * count * kPanel;
    float* const v = thread_scratch<1>(size_t(36 * (in_step + out_step)));
    float* const m = v + 36 * in_step;
    for (int c = 0; c < w.in_blocks; ++c) {
        for (int t = 0; t < count; ++t) {
            const int y = (first + t) / across * 4, x = (first + t) % across * 4;
            const float* const from = w.in + c * w.plane + y * w.row + x * kPanel;
            for (int lane = 0; lane < kPanel; lane += kLanes)
                winograd_load(from + lane, w.row, w.height + 2 - y, w.width + 2 - x,
                              v + (int64_t(c) * count + t) * kPanel + lane, in_step);
        }
    }
    int32_t shift[1024];
    for (int c = 0; c < w.in_blocks; ++c) shift[c] = c * count * kPanel;
    Contraction plan{nullptr, shift, w.in_blocks, kPanel, 0, count, w.out_blocks, 0};
    for (int position = 0; position < 36; ++position) {
        plan.packed = w.weights + position * int64_t(w.out_blocks) * w.in_blocks * kPanel * kPanel;
        float* const to = m + position * out_step;
        contract(
            plan, 0, count, 0, w.out_blocks, [&](int64_t t) { return v + position * in_step + t * kPanel; },
            [&](int64_t t, int n, int panel, int panels, const float* tile) {
                for (int q = 0; q < panels; ++q)
                    for (int p = 0; p < n; ++p)
                        std::memcpy(to + ((panel + q) * int64_t(count) + t + p) * kPanel,
                                    tile + (p * panels + q) * kPanel, sizeof(float) * kPanel);
            });
    }
    alignas(64) float pixels[16 * kPanel];
    for (int panel = 0; panel < w.out_blocks; ++panel) {
        for (int t = 0; t < count; ++t) {
            const int y = (first + t) / across * 4, x = (first + t) % across * 4;
            for (int lane = 0; lane < kPanel; lane += kLanes)
                winograd_store(m + (int64_t(panel) * count + t) * kPanel + lane, out_step, pixels + lane);
            const int rows = std::min(4, w.height - y), columns = std::min(4, w.width - x);
            for (int i = 0; i < rows; ++i) done(body, panel, y + i, x, columns, static_cast<const float*>(pixels + 4 * i * kPanel));
        }
    }
}

void winograd_all(const Winograd& w, int tile0, int tile1, WinogradDone done, void* body) {
    const int blocks = (tile1 - tile0 + kWinogradTiles - 1) / kWinogradTiles;
    for (int b = 0; b < blocks; ++b) {
        const int first = tile0 + (tile1 - tile0) * b / blocks, end = tile0 + (tile1 - tile0) * (b + 1) / blocks;
        winograd_block(w, first, end - first, done, body);
    }
}

}  // namespace detail

}  // namespace ua
