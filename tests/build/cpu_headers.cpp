// Entry points through which test_cpu_headers.py and test_cpu_header_folds.py call the headers of generated C++ with ctypes.
#include <atomic>
#include <vector>

#include "ua/attention_stream.h"
#include "ua/contract_nest.h"
#include "ua/conv.h"
#include "ua/half.h"
#include "ua/lanes.h"
#include "ua/math.h"
#include "ua/pack.h"
#include "ua/pool_threads.h"
#include "ua/reduce.h"
#include "ua/winograd_transform.h"

namespace ua {
inline float clip(float x) { return minimum(maximum(x, 0.0f), 6.0f); }
}  // namespace ua

#define UNARY(name)                                                     \
    extern "C" void name##_f32(const float* x, float* y, int64_t n) {   \
        _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = ua::name(x[i]); \
    }
UNARY(exp) UNARY(expm1) UNARY(log) UNARY(log1p) UNARY(sigmoid) UNARY(tanh) UNARY(erf) UNARY(sqrt) UNARY(rsqrt)
UNARY(floor) UNARY(ceil) UNARY(trunc) UNARY(round_even) UNARY(sign) UNARY(abs) UNARY(sin) UNARY(cos)
UNARY(clip)

#define BINARY(name)                                                                     \
    extern "C" void name##_f32(const float* a, const float* b, float* y, int64_t n) {    \
        _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) y[i] = ua::name(a[i], b[i]); \
    }
BINARY(pow) BINARY(maximum) BINARY(minimum) BINARY(fmod)

extern "C" {

void to_f16(const float* x, ua::f16* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = ua::to_f16(x[i]);
}
void from_f16(const ua::f16* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = ua::to_float(x[i]);
}
void to_bf16(const float* x, ua::bf16* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = ua::to_bf16(x[i]);
}
void rounded_f16(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = ua::rounded<ua::f16>(x[i]);
}
void rounded_bf16(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = ua::rounded<ua::bf16>(x[i]);
}
void from_bf16(const ua::bf16* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = ua::to_float(x[i]);
}

// sum, product, max, min, argmax, argmin, last argmax, softmax max and sum, mean, variance
void folds_f32(const float* x, int64_t n, double* out) {
    auto at = [&](int64_t i) { return x[i]; };
    out[0] = ua::fold<ua::Sum<float>>(n, at);
    out[1] = ua::fold<ua::Prod<float>>(n, at);
    out[2] = ua::fold<ua::Max<float>>(n, at);
    out[3] = ua::fold<ua::Min<float>>(n, at);
    out[4] = double(ua::fold_arg<ua::ArgMax<float>>(n, at).index);
    out[5] = double(ua::fold_arg<ua::ArgMin<float>>(n, at).index);
    out[6] = double(ua::fold_arg<ua::ArgMax<float, true>>(n, at).index);
    const ua::SoftmaxState s = ua::fold_softmax(n, at);
    out[7] = s.max, out[8] = s.sum;
    const ua::Moments<float> m = ua::fold_moments<float>(n, at);
    out[9] = m.mean, out[10] = m.variance();
    out[11] = ua::logsumexp(s);
}

int64_t sum_i64(const int64_t* x, int64_t n) {
    return ua::fold<ua::Sum<int64_t>>(n, [&](int64_t i) { return x[i]; });
}

// sums[n] = x[k] rows[k][n], for 16, 48 and 64 lanes
void lane_sums(const float* rows, const float* x, int64_t k, int n, float* sums) {
    const auto row = [&](int64_t i) { return rows + i * n; };
    const auto weight = [&](int64_t i) { return x[i]; };
    if (n == 16) ua::lane_sums<16>(sums, k, row, weight);
    else if (n == 48) ua::lane_sums<48>(sums, k, row, weight);
    else ua::lane_sums<64>(sums, k, row, weight);
}

int panel_width() { return ua::kPanel; }

// c[M][N] = a[M][K] b[K][N] + bias; b is packed here, as for two activations; transposed: b is [N][K].
void matmul(const float* a, const float* b, const float* bias, float* c, int m, int n, int k, int transposed, int k_block,
            int row_block, int panel_group, int threads) {
    const int panels = ua::blocks(n);
    float* const packed = static_cast<float*>(std::aligned_alloc(64, size_t(panels) * k * ua::kPanel * 4 + 64));
    for (int p = 0; p < panels; ++p) {
        float* const to = packed + int64_t(p) * k * ua::kPanel;
        const int columns = std::min(ua::kPanel, n - p * ua::kPanel);
        if (transposed) ua::pack_columns(to, b + int64_t(p) * ua::kPanel * k, k, k, columns);
        else ua::pack_rows(to, b + p * ua::kPanel, n, k, columns);
    }
    ua::set_threads(threads);
    const ua::Contraction plan{packed, nullptr, 1, k, k_block, row_block, panel_group, 0};
    ua::parallel_for(threads, [&](int64_t task) {
        ua::contract(
            plan, 0, m, int(panels * task / threads), int(panels * (task + 1) / threads),
            [&](int64_t row) { return a + row * k; },
            [&](int64_t row, int count, int panel, int wide, const float* tile) {
                const int from = panel * ua::kPanel, width = std::min(n - from, wide * ua::kPanel);
                for (int p = 0; p < count; ++p)
                    for (int j = 0; j < width; ++j)
                        c[(row + p) * n + from + j] = tile[p * wide * ua::kPanel + j] + bias[from + j];
            });
    });
    std::free(packed);
}

// Blocked convolution: in [IC/16][H][W][16] with halo included, packed weights, out [OC/16][OH][OW][16].
// plain: in is [IC][H][W], weights [OC/16][IC][KH][KW][16].
void convolve(const float* in, const float* weights, float* out, int plain, int ic, int oc, int h, int w, int kh, int kw,
              int oh, int ow, int stride, int dilation, int k_block, int row_block) {
    const int step = plain ? 1 : ua::kPanel;
    std::vector<int32_t> shift(size_t(plain ? ic * kh : ua::blocks(ic) * kh * kw));
    if (plain) ua::plain_shifts(shift.data(), ic, kh, h * w, w, dilation);
    else ua::blocked_shifts(shift.data(), ua::blocks(ic), kh, kw, int64_t(h) * w * 16, w * 16, dilation, dilation);
    const ua::Contraction plan{weights,   shift.data(), int(shift.size()), plain ? kw : ua::kPanel, k_block,
                               row_block, 2,            w * step * stride};
    ua::contract(
        plan, 0, oh * ow, 0, ua::blocks(oc),
        [&](int64_t m) { return in + (m / ow * w + m % ow) * stride * step; },
        [&](int64_t m, int count, int panel, int wide, const float* tile) {
            for (int p = 0; p < count; ++p)
                for (int q = 0; q < wide; ++q)
                    for (int j = 0; j < ua::kPanel; ++j)
                        out[((panel + q) * int64_t(oh) * ow + m + p) * ua::kPanel + j] =
                            tile[(p * wide + q) * ua::kPanel + j];
        },
        [&](int64_t m, int, int panel, int) { ua::prefetch_for_write(out + (panel * int64_t(oh) * ow + m) * ua::kPanel); });
}

// in [IC/16][H+2][W+2][16], weights [36][OC/16][IC][16], out [OC/16][H][W][16]; two halves as two tasks would.
}  // extern "C"

template <int m>
void winograd_halves(const float* in, const float* weights, float* out, int ic, int oc, int h, int w) {
    const ua::Winograd plan{in, int64_t(h + 2) * (w + 2) * 16, int64_t(w + 2) * 16, ic / 16, oc / 16, weights, h, w};
    const int tiles = ua::winograd_tiles<m>(plan), panels = oc / 16;
    for (int half = 0; half < 2; ++half)
        for (int side = 0; side < 2; ++side)
            ua::winograd<m>(plan, tiles * half / 2, tiles * (half + 1) / 2, panels * side / 2, panels * (side + 1) / 2,
                            [&](int panel, int y, int x, int count, const float* tile) {
                                std::memcpy(out + ((int64_t(panel) * h + y) * w + x) * 16, tile, size_t(count) * 64);
                            });
}

extern "C" {

void winograd2(const float* in, const float* weights, float* out, int ic, int oc, int h, int w) {
    winograd_halves<2>(in, weights, out, ic, oc, h, w);
}
void winograd4(const float* in, const float* weights, float* out, int ic, int oc, int h, int w) {
    winograd_halves<4>(in, weights, out, ic, oc, h, w);
}

void depthwise(const float* in, const float* weights, float* out, int channels, int h, int w, int k, int oh, int ow,
               int stride) {
    std::vector<int32_t> shift(size_t(k) * k);
    ua::blocked_shifts(shift.data(), 1, k, k, 0, w * 16, 1, 1);
    for (int c = 0; c < ua::blocks(channels); ++c)
        for (int y = 0; y < oh; ++y)
            ua::depthwise_row(in + (int64_t(c) * h + y * stride) * w * 16, stride * 16, weights + c * k * k * 16,
                              shift.data(), k * k, ow, [&](int x, int count, const float* tile) {
                                  std::memcpy(out + ((int64_t(c) * oh + y) * ow + x) * 16, tile, size_t(count) * 64);
                              });
}

void attention(const float* q, const float* k, const float* v, const float* mask, float* out, int queries, int keys,
               int depth, int depth_v, float scale) {
    const ua::Attention head{q, k, v, depth, depth, depth_v, depth, depth_v};
    for (int m = 0; m < queries; m += ua::kQueryBlock)
        ua::attention(head, m, std::min(queries, m + ua::kQueryBlock), keys,
                      [&](int64_t row, int64_t key, int n, float* s) {
                          for (int j = 0; j < n; ++j) s[j] = s[j] * scale + mask[row * keys + key + j];
                      },
                      [&](int64_t row, int e, int n, const float* o) {
                          for (int j = 0; j < n; ++j) out[row * depth_v + e + j] = o[j];
                      });
}

// Each task adds its number once, from a nested region; returns the total.
int64_t count_tasks(int threads, int64_t tasks, int regions) {
    ua::set_threads(threads);
    std::atomic<int64_t> total{0};
    for (int r = 0; r < regions; ++r)
        ua::parallel_for(tasks, [&](int64_t task) {
            ua::parallel_for(2, [&](int64_t half) { total.fetch_add(half * (task + 1)); });
        });
    return total.load();
}

}  // extern "C"
