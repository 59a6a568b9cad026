// 3x3 stride-1 convolution by Winograd's F(m x m, 3x3), m = 2 or 4: 16 products per 4 outputs, or 36 per 16, instead of 36
// or 144 (Lavin and Gray, 2015).
// Not here: the transforms (winograd_transform.h, once per library); when a form is allowed and when it pays (the
// scheduler's choice), the transform of the weights (the compiler does it: U = G g G^T in float64, rounded to f32).
//
// Layout: in [IC/16][H + halo][W + halo][16] with a zero halo of 1; weights [(m+2)^2][OC/16][IC][16],
// position (m+2)*i + j.
//
//   winograd<m>(w, tile0, tile1, panel0, panel1, done)   output tiles of m x m pixels, numbered row by row, ceil(OW/m) in a
//                                                        row, and blocks of 16 output channels
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
template <int m>
void winograd_all(const Winograd& w, int tile0, int tile1, int panel0, int panel1, WinogradDone done, void* body);
extern template void winograd_all<2>(const Winograd&, int, int, int, int, WinogradDone, void*);
extern template void winograd_all<4>(const Winograd&, int, int, int, int, WinogradDone, void*);
}  // namespace detail

// Number of output tiles; tasks divide them.
template <int m>
inline int winograd_tiles(const Winograd& w) {
    return ((w.height + m - 1) / m) * ((w.width + m - 1) / m);
}

template <int m, class Done>
void winograd(const Winograd& w, int tile0, int tile1, int panel0, int panel1, Done&& done) {
    using Body = std::remove_reference_t<Done>;
    detail::winograd_all<m>(
        w, tile0, tile1, panel0, panel1,
        [](void* f, int panel, int y, int x, int count, const float* tile) {
            (*static_cast<Body*>(f))(panel, y, x, count, tile);
        },
        const_cast<void*>(static_cast<const void*>(&done)));
}

}  // namespace ua
