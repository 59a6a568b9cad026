// Independent chains of narrow dot products on registers: 8-bit and bfloat16 pairs into 32-bit sums, by vectors or by tiles.
#include "lab.h"

#include <cstring>
#include <utility>

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

#if defined(DOT_I8)
using Sum = __m512i;
inline Sum start(int chain) { return _mm512_set1_epi32(chain); }
inline Sum step(Sum sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); }
inline float last(Sum sum) { return static_cast<float>(_mm512_reduce_add_epi32(sum)); }
#elif defined(DOT_BF16)
using Sum = __m512;
inline Sum start(int chain) { return _mm512_set1_ps(static_cast<float>(chain)); }
inline Sum step(Sum sum, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
inline float last(Sum sum) { return _mm512_reduce_add_ps(sum); }
#endif

#if defined(DOT_I8) || defined(DOT_BF16)

template <int... chain>
__attribute__((always_inline)) inline float rounds_of(std::int64_t rounds, __m512i a, __m512i b, std::integer_sequence<int, chain...>) {
    Sum sums[] = {start(chain + 1)...};
    for (std::int64_t round = 0; round < rounds; ++round) {
        ((sums[chain] = step(sums[chain], a, b)), ...);
        (([&] { asm volatile("" : "+v"(sums[chain])); }()), ...);
    }
    return (last(sums[chain]) + ...);
}

template <int chains>
__attribute__((noinline)) float dot_products(std::int64_t rounds, __m512i a, __m512i b) {
    return rounds_of(rounds, a, b, std::make_integer_sequence<int, chains>{});
}

float dispatch(int chains, std::int64_t rounds, __m512i a, __m512i b) {
    switch (chains) {
        case 1: return dot_products<1>(rounds, a, b);
        case 2: return dot_products<2>(rounds, a, b);
        case 4: return dot_products<4>(rounds, a, b);
        case 8: return dot_products<8>(rounds, a, b);
        default: return dot_products<12>(rounds, a, b);
    }
}

#else  // tiles: four sums of 16 x 16 in registers, two operand tiles

// The 64 bytes of LDTILECFG for palette 1: eight tiles; what belongs to no tile must be zero, or the instruction faults.
struct alignas(64) Shape {
    unsigned char palette = 1, first_row = 0, unused[14] = {};
    std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Shape) == 64);

template <int chains>
__attribute__((noinline)) void tile_products(std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
#if defined(TILE_I8)
        _tile_dpbusd(0, 4, 5);
        if constexpr (chains > 1) _tile_dpbusd(1, 4, 6);
        if constexpr (chains > 2) { _tile_dpbusd(2, 7, 5); _tile_dpbusd(3, 7, 6); }
#else
        _tile_dpbf16ps(0, 4, 5);
        if constexpr (chains > 1) _tile_dpbf16ps(1, 4, 6);
        if constexpr (chains > 2) { _tile_dpbf16ps(2, 7, 5); _tile_dpbf16ps(3, 7, 6); }
#endif
    }
}

void tiles(int chains, std::int64_t rounds, float const* data) {
    static constexpr Shape shape{};  // not on the stack: compilers may not know that the instruction reads all of it
    _tile_loadconfig(&shape);
    _tile_zero(0);  // statements, not expressions: some compilers write them as inline assembly
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, data, 64);
    _tile_loadd(5, data, 64);
    _tile_loadd(6, data, 64);
    _tile_loadd(7, data, 64);
    switch (chains) {
        case 1: tile_products<1>(rounds); break;
        case 2: tile_products<2>(rounds); break;
        default: tile_products<4>(rounds);
    }
    _tile_release();
}

#endif

}  // namespace

// The kernel gives the tile registers to a process that asks (ARCH_REQ_XCOMP_PERM); 0: granted, or not needed.
extern "C" int allow() {
#if defined(DOT_I8) || defined(DOT_BF16)
    return 0;
#else
    return static_cast<int>(syscall(SYS_arch_prctl, 0x1023, 18));
#endif
}

// Seconds in which every thread makes rounds x chains dot-product instructions on random data.
extern "C" double burn(std::int64_t threads, std::int64_t chains, std::int64_t rounds) {
    alignas(64) static float data[256];
    std::minstd_rand engine(1);
    for (float& value : data) {
        std::uint32_t const pair = 0x3f003f00u | (engine() & 0x007f007fu);  // two bfloat16 in [0.5, 1), or four bytes
        std::memcpy(&value, &pair, sizeof pair);
    }
    auto const body = [&](int) {
#if defined(DOT_I8) || defined(DOT_BF16)
        __m512i const a = _mm512_load_si512(data), b = _mm512_load_si512(data + 16);
        lab::keep(dispatch(static_cast<int>(chains), rounds, a, b));
#else
        tiles(static_cast<int>(chains), rounds, data);
#endif
    };
    if (threads > 1) return lab::team(static_cast<int>(threads), body);
    double const begin = lab::now();
    body(0);
    return lab::now() - begin;
}
