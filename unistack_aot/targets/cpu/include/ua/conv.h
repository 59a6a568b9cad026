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

template <int Pixels>
UA_INLINE void depthwise_tile(const float* in, int64_t step, const float* weights, const int32_t* shift, int taps,
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

}  // namespace detail

// One output row of one channel block of a depthwise convolution.
//   in       the first pixel's first tap; step: floats between the inputs of neighbouring output pixels (stride * 16)
//   weights  [taps][16]; shift[tap]: distance of a tap from the first, as made by blocked_shifts for one channel block
//   done(x, count, tile)   count output pixels from x, tile [count][16] in L1
template <class Done>
UA_INLINE void depthwise_row(const float* in, int64_t step, const float* weights, const int32_t* shift, int taps,
                             int pixels, Done&& done) {
    // 8 to 12 accumulators beside the weights of one tap
    constexpr int wide = kVectorRegisters == 32 ? 12 / kPanelVectors * 2 : 8 / kPanelVectors;
    alignas(64) float tile[wide * kPanel];
    int x = 0;
    for (; x + wide <= pixels; x += wide) {
        detail::depthwise_tile<wide>(in + x * step, step, weights, shift, taps, tile);
        done(x, wide, static_cast<const float*>(tile));
    }
    for (; x < pixels; ++x) {
        detail::depthwise_tile<1>(in + x * step, step, weights, shift, taps, tile);
        done(x, 1, static_cast<const float*>(tile));
    }
}

}  // namespace ua
