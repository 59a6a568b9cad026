// The transforms and products behind winograd.h. One translation unit of a library includes it (engine.h).
// Not here: what a kernel hands over (winograd.h).
#pragma once
#include <algorithm>

#include "contract_nest.h"
#include "winograd.h"

namespace ua {

namespace detail {

// Most tiles transformed together: the operands of all products stay near L2.
template <int m>
inline constexpr int kWinogradTiles = m == 2 ? 64 : 32;

// B^T x and A^T x for the points 0, 1, -1, infinity.
UA_INLINE void winograd_in(const f32v (&x)[4], f32v (&y)[4]) {
    y[0] = x[0] - x[2], y[1] = x[1] + x[2], y[2] = x[2] - x[1], y[3] = x[1] - x[3];
}
UA_INLINE void winograd_out(const f32v (&m)[4], f32v (&y)[2]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
}

// The same for the points 0, 1, -1, 2, -2, infinity.
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

// One vector of channels of one tile; `to` steps by `step` floats between the positions.
template <int m>
inline void winograd_load(const float* from, int64_t row, int rows, int columns, float* to, int64_t step) {
    constexpr int P = m + 2;
    f32v half[P][P];
    for (int i = 0; i < P; ++i) {
        f32v x[P];
        for (int j = 0; j < P; ++j) x[j] = i < rows && j < columns ? load(from + i * row + j * kPanel) : f32v{};
        winograd_in(x, half[i]);
    }
    for (int j = 0; j < P; ++j) {
        f32v x[P], y[P];
        for (int i = 0; i < P; ++i) x[i] = half[i][j];
        winograd_in(x, y);
        for (int i = 0; i < P; ++i) store(to + (P * i + j) * step, y[i]);
    }
}

template <int m>
inline void winograd_store(const float* from, int64_t step, float* to) {
    constexpr int P = m + 2;
    f32v half[m][P];
    for (int j = 0; j < P; ++j) {
        f32v x[P], y[m];
        for (int i = 0; i < P; ++i) x[i] = load(from + (P * i + j) * step);
        winograd_out(x, y);
        for (int i = 0; i < m; ++i) half[i][j] = y[i];
    }
    for (int i = 0; i < m; ++i) {
        f32v y[m];
        winograd_out(half[i], y);
        for (int j = 0; j < m; ++j) store(to + (m * i + j) * kPanel, y[j]);
    }
}

template <int m>
inline void winograd_block(const Winograd& w, int first, int count, int panel0, int panel1, WinogradDone done,
                           void* body) {
    constexpr int positions = (m + 2) * (m + 2);
    const int across = (w.width + m - 1) / m, panels = panel1 - panel0;
    const int64_t in_step = int64_t(w.in_blocks) * count * kPanel, out_step = int64_t(panels) * count * kPanel;
    float* const v = thread_scratch<1>(size_t(positions * (in_step + out_step)));
    float* const sums = v + positions * in_step;
    for (int c = 0; c < w.in_blocks; ++c) {
        for (int t = 0; t < count; ++t) {
            const int y = (first + t) / across * m, x = (first + t) % across * m;
            const float* const from = w.in + c * w.plane + y * w.row + x * kPanel;
            for (int lane = 0; lane < kPanel; lane += kLanes)
                winograd_load<m>(from + lane, w.row, w.height + 2 - y, w.width + 2 - x,
                                 v + (int64_t(c) * count + t) * kPanel + lane, in_step);
        }
    }
    int32_t shift[1024];
    for (int c = 0; c < w.in_blocks; ++c) shift[c] = c * count * kPanel;
    Contraction plan{nullptr, shift, w.in_blocks, kPanel, 0, count, panels, 0};
    for (int position = 0; position < positions; ++position) {
        plan.packed = w.weights + position * int64_t(w.out_blocks) * w.in_blocks * kPanel * kPanel;
        float* const to = sums + position * out_step;
        contract(
            plan, 0, count, panel0, panel1, [&](int64_t t) { return v + position * in_step + t * kPanel; },
            [&](int64_t t, int n, int panel, int beside, const float* tile) {
                for (int q = 0; q < beside; ++q)
                    for (int p = 0; p < n; ++p)
                        std::memcpy(to + ((panel - panel0 + q) * int64_t(count) + t + p) * kPanel,
                                    tile + (p * beside + q) * kPanel, sizeof(float) * kPanel);
            });
    }
    alignas(64) float pixels[m * m * kPanel];
    for (int panel = panel0; panel < panel1; ++panel) {
        for (int t = 0; t < count; ++t) {
            const int y = (first + t) / across * m, x = (first + t) % across * m;
            for (int lane = 0; lane < kPanel; lane += kLanes)
                winograd_store<m>(sums + (int64_t(panel - panel0) * count + t) * kPanel + lane, out_step, pixels + lane);
            const int rows = std::min(m, w.height - y), columns = std::min(m, w.width - x);
            for (int i = 0; i < rows; ++i)
                done(body, panel, y + i, x, columns, static_cast<const float*>(pixels + m * i * kPanel));
        }
    }
}

template <int m>
void winograd_all(const Winograd& w, int tile0, int tile1, int panel0, int panel1, WinogradDone done, void* body) {
    const int blocks = (tile1 - tile0 + kWinogradTiles<m> - 1) / kWinogradTiles<m>;
    for (int b = 0; b < blocks; ++b) {
        const int first = tile0 + (tile1 - tile0) * b / blocks, end = tile0 + (tile1 - tile0) * (b + 1) / blocks;
        winograd_block<m>(w, first, end - first, panel0, panel1, done, body);
    }
}

template void winograd_all<2>(const Winograd&, int, int, int, int, WinogradDone, void*);
template void winograd_all<4>(const Winograd&, int, int, int, int, WinogradDone, void*);

}  // namespace detail

}  // namespace ua
