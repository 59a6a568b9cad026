// 3x3 stride-1 convolution by Winograd's F(4x4, 3x3): 36 products per 16 outputs instead of 144 (Lavin and Gray, 2015).
// Not here: the transforms (winograd_transform.h, once per library); when it is allowed (its rounding error is about ten times that of the direct sum) and when it pays (the
// scheduler's choice), the transform of the weights (the compiler does it: U = G g G^T in float64, rounded to f32).
//
// Layout: in [IC/16][H + halo][W + halo][16] with a zero halo of 1; weights [36][OC/16][IC][16], position 6*i + j.
//
//   winograd(w, tile0, tile1, done)   output tiles of 4x4 pixels, numbered row by row, ceil(OW/4) in a row
//   done(panel, y, x, count, tile)    one pixel row of a finished tile: count pixels from (y, x), tile [count][16] in L1
#pragma once
#include <cstdint>
#include <type_traits>

#include "vec.h"

namespace ua {

struct Winograd {
    const float* in;            // the halo's first element
    int64_t plane, row;         // floats between channel blocks and between rows, halo included
    int in_blocks, out_blocks;  // IC/16, OC/16
    const float* weights;
    int height, width;  // of the output; the input with halo has two more of each
};

namespace detail {
using WinogradDone = void (*)(void*, int panel, int y, int x, int count, const float* tile);
void winograd_all(const Winograd& w, int tile0, int tile1, WinogradDone done, void* body);
}  // namespace detail

// Number of output tiles; tasks divide them.
inline int winograd_tiles(const Winograd& w) { return ((w.height + 3) / 4) * ((w.width + 3) / 4); }

template <class Done>
void winograd(const Winograd& w, int tile0, int tile1, Done&& done) {
    using Body = std::remove_reference_t<Done>;
    detail::winograd_all(
        w, tile0, tile1,
        [](void* f, int panel, int y, int x, int count, const float* tile) {
            (*static_cast<Body*>(f))(panel, y, x, count, tile);
        },
        const_cast<void*>(static_cast<const void*>(&done)));
}

}  // namespace ua
