// Convolution on channel-blocked activations [C/16][H][W][16]: what contract.h needs to know about pixels, and depthwise rows.
// Not here: the contraction itself (contract.h), Winograd's transforms (winograd.h).
//
// The input has a physical zero halo as wide as the padding, so no tap is ever masked; a channel count that is no multiple
// of 16 is padded with zeros in the layout. Weights are packed [OC/16][IC/16][KH][KW][16 in][16 out]. The first layer
// reads plain [C][H][W] rows with halo: its segments are (channel, kernel row), KW long, weights [OC/16][C][KH][KW][16].
#pragma once
#include "tile.h"

namespace ua {

// Number of kPanel-blocks that hold n channels.
constexpr int blocks(int n) { return (n + kPanel - 1) / kPanel; }

// shift table of a blocked convolution: segment (c, kh, kw) of length 16; plane and row in floats (halo included).
inline void blocked_shifts(int32_t* shift, int channel_blocks, int kh, int kw, int64_t plane, int64_t row, int dilation_h,
                           int dilation_w) {
    for (int c = 0; c < channel_blocks; ++c)
        for (int y = 0; y < kh; ++y)
            for (int x = 0; x < kw; ++x)
                *shift++ = int32_t(c * plane + y * dilation_h * row + x * dilation_w * kPanel);
}

// shift table of the first layer: segment (channel, kh) of length kw on plain rows.
inline void plain_shifts(int32_t* shift, int channels, int kh, int64_t plane, int64_t row, int dilation_h) {
    for (int c = 0; c < channels; ++c)
        for (int y = 0; y < kh; ++y) *shift++ = int32_t(c * plane + y * dilation_h * row);
}

namespace detail {

// Pixels whose sums stay in registers beside the weights of one tap.
#if defined(__AVX512F__)
inline constexpr int kDepthwisePixels = 14;
#elif defined(__aarch64__)
inline constexpr int kDepthwisePixels = 6;
#else
inline constexpr int kDepthwisePixels = 8 / kPanelVectors;
#endif

template <int Pixels>
UA_NOINLINE void depthwise_tile(const float* in, int64_t step, const float* weights, const int32_t* shift, int taps,
                                float* out) {
    f32v acc[Pixels][kPanelVectors];
    UA_UNROLL for (int p = 0; p < Pixels; ++p) UA_UNROLL for (int v = 0; v < kPanelVectors; ++v) acc[p][v] = f32v{};
    for (int t = 0; t < taps; ++t) {
        f32v w[kPanelVectors];
        UA_UNROLL for (int v = 0; v < kPanelVectors; ++v) w[v] = load(weights + t * kPanel + v * kLanes);
        const float* const from = in + shift[t];
        UA_UNROLL for (int p = 0; p < Pixels; ++p)
            UA_UNROLL for (int v = 0; v < kPanelVectors; ++v)
                acc[p][v] = fma(load(from + p * step + v * kLanes), w[v], acc[p][v]);
    }
    UA_UNROLL for (int p = 0; p < Pixels; ++p)
        UA_UNROLL for (int v = 0; v < kPanelVectors; ++v) store(out + p * kPanel + v * kLanes, acc[p][v]);
}

using DepthwiseTile = void (*)(const float*, int64_t, const float*, const int32_t*, int, float*);

template <int... Pixels>
UA_INLINE DepthwiseTile depthwise_tile_of(int pixels, std::integer_sequence<int, Pixels...>) {
    static constexpr DepthwiseTile kByPixels[] = {&depthwise_tile<Pixels + 1>...};
    return kByPixels[pixels - 1];
}

}  // namespace detail

// One output row of one channel block of a depthwise convolution.
//   in       the first pixel's first tap; step: floats between the inputs of neighbouring output pixels (stride * 16)
//   weights  [taps][16]; shift[tap]: distance of a tap from the first, as made by blocked_shifts for one channel block
//   done(x, count, tile)   count output pixels from x, tile [count][16] in L1
// The row is cut into tiles whose sizes differ by at most one pixel.
template <class Done>
UA_INLINE void depthwise_row(const float* in, int64_t step, const float* weights, const int32_t* shift, int taps,
                             int64_t pixels, Done&& done) {
    constexpr int most = detail::kDepthwisePixels;
    alignas(64) float tile[most * kPanel];
    const int64_t tiles = (pixels + most - 1) / most;
    for (int64_t k = 0; k < tiles; ++k) {
        const int64_t x = pixels * k / tiles;
        const int count = int(pixels * (k + 1) / tiles - x);
        const auto sums = detail::depthwise_tile_of(count, std::make_integer_sequence<int, most>{});
        sums(in + x * step, step, weights, shift, taps, tile);
        done(x, count, static_cast<const float*>(tile));
    }
}

}  // namespace ua
