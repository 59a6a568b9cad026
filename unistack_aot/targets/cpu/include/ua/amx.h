// The tile registers of AMX by number, in 16 rows of 64 bytes each: 16 x 16 f32, or 16 x 32 bf16.
// Not here: the register tile made of them (tile_bf16.h).
//
//   UA_TILES_BEGIN() UA_TILES_END()   set up and release this thread's tiles; the process must have asked Linux for them
//                                     (arch_prctl ARCH_REQ_XCOMP_PERM), which the runtime does before it picks the variant
//   UA_TILE_ZERO(t)                   all zero
//   UA_TILE_LOAD(t, p, stride)        rows from p, p + stride bytes, ...
//   UA_TILE_STORE(t, p, stride)       rows to p, p + stride bytes, ...
//   UA_TILE_DOT_BF16(c, a, b)         c[m][n] += sum over k of a[m][2k] b[k][2n] + a[m][2k+1] b[k][2n+1]; subnormals count as zero
//
// Numbers are literals: they are part of the instruction. With UA_TILES_IN_SOFTWARE the same tiles are arrays, so that code
// over them can be tested on processors without AMX.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

namespace ua {

struct alignas(64) TileConfig {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

inline constexpr TileConfig kTileConfig;

}  // namespace ua

#if defined(UA_TILES_IN_SOFTWARE)

namespace ua::software {

inline thread_local uint8_t tiles[8][16][64];

inline void load(int t, const void* p, int64_t stride) {
    for (int m = 0; m < 16; ++m) std::memcpy(tiles[t][m], static_cast<const char*>(p) + m * stride, 64);
}
inline void store(int t, void* p, int64_t stride) {
    for (int m = 0; m < 16; ++m) std::memcpy(static_cast<char*>(p) + m * stride, tiles[t][m], 64);
}

inline float normal(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }
inline float element(int t, int row, int place) {
    bf16 value;
    std::memcpy(&value, &tiles[t][row][2 * place], 2);
    return normal(to_float(value));
}

// In the order of the instruction's definition (Intel 64 and IA-32 Software Developer's Manual, TDPBF16PS).
inline void dot_bf16(int c, int a, int b) {
    for (int m = 0; m < 16; ++m) {
        float sums[32] = {};
        for (int k = 0; k < 16; ++k)
            for (int n = 0; n < 32; ++n)
                sums[n] = normal(std::fma(element(a, m, 2 * k + n % 2), element(b, k, n), sums[n]));
        float row[16];
        std::memcpy(row, tiles[c][m], 64);
        for (int n = 0; n < 16; ++n) row[n] = normal(normal(row[n]) + normal(sums[2 * n] + sums[2 * n + 1]));
        std::memcpy(tiles[c][m], row, 64);
    }
}

}  // namespace ua::software

#define UA_TILES_BEGIN() std::memset(ua::software::tiles, 0, sizeof ua::software::tiles)
#define UA_TILES_END() (void)0
#define UA_TILE_ZERO(t) std::memset(ua::software::tiles[t], 0, 1024)
#define UA_TILE_LOAD(t, p, stride) ua::software::load(t, p, stride)
#define UA_TILE_STORE(t, p, stride) ua::software::store(t, p, stride)
#define UA_TILE_DOT_BF16(c, a, b) ua::software::dot_bf16(c, a, b)

#else

// The compilers' own intrinsics do not all say that they touch memory: stores before them were left out.
#define UA_TILES_BEGIN() asm volatile("ldtilecfg %0" ::"m"(ua::kTileConfig) : "memory")
#define UA_TILES_END() asm volatile("tilerelease")
#define UA_TILE_ZERO(t) asm volatile("tilezero %%tmm" #t ::)
#define UA_TILE_LOAD(t, p, stride) \
    asm volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"(int64_t(stride)) : "memory")
#define UA_TILE_STORE(t, p, stride) \
    asm volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"(int64_t(stride)) : "memory")
#define UA_TILE_DOT_BF16(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

#endif
