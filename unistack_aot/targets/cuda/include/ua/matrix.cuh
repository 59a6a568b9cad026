// The matrix instructions themselves: fragments of one m16n8 piece, loaded from shared tiles, multiplied by a warp.
//
// MatrixType<T> (T: f16, bf16, tf32, tf32x3) gives Element (what shared memory holds), depth (k per instruction), the register
// types AFragment and BFragment, and
//     load_a<Tile, ORDER>(tile, row, k)              A rows row .. row + 15, k .. k + depth - 1
//     load_b2<Tile, ORDER>(b0, b1, tile, col, k)     B columns col .. col + 7 into b0, the next 8 into b1; load_b1: only the first
//     load_b_paired<Tile>(tile, col, k)              B of a k_outer tile for an A fragment made by from_accumulator
//     from_accumulator(left, right)                  an A fragment from C pieces of `depth` columns: rounds to T
//     multiply(c, a, b)                              c += a * b, float
// All lanes of the warp must call. MmaTile and the attention block are built from these.
#pragma once
#include "fma.cuh"

#if UA_EMULATED
#include "ua_emulator/matrix.h"
#endif

namespace ua {

namespace detail {

// ---- ldmatrix: COUNT 8 x 8 matrices of 16-bit elements (or 8 x 4 of 32-bit ones); lane l gives the address of row l % 8 of
// matrix l / 8.

#if UA_EMULATED

template <int COUNT, bool TRANSPOSED>
UA_DEVICE void load_matrices(uint32_t* registers, const void* row, UA_SITE) {
    ua_emulator::load_matrices<COUNT, TRANSPOSED>(registers, row, site);
}

enum { mma_f16 = UA_EMU_F16, mma_bf16 = UA_EMU_BF16, mma_tf32 = UA_EMU_TF32 };

template <int KIND>
UA_DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], UA_SITE) {
    ua_emulator::multiply_add<KIND>(c, a, b, site);
}

#else

#define UA_LDMATRIX_4(suffix)                                                                            \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" suffix ".shared.b16 {%0, %1, %2, %3}, [%4];"           \
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])        \
                 : "r"(shared_address(row))                                                              \
                 : "memory")
#define UA_LDMATRIX_2(suffix)                                                            \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" suffix ".shared.b16 {%0, %1}, [%2];"   \
                 : "=r"(registers[0]), "=r"(registers[1])                                \
                 : "r"(shared_address(row))                                              \
                 : "memory")
template <int COUNT, bool TRANSPOSED>
UA_DEVICE void load_matrices(uint32_t* registers, const void* row) {
    static_assert(COUNT == 4 || COUNT == 2, "ldmatrix loads two or four matrices here");
    if constexpr (COUNT == 4 && TRANSPOSED) UA_LDMATRIX_4(".trans");
    if constexpr (COUNT == 4 && !TRANSPOSED) UA_LDMATRIX_4("");
    if constexpr (COUNT == 2 && TRANSPOSED) UA_LDMATRIX_2(".trans");
    if constexpr (COUNT == 2 && !TRANSPOSED) UA_LDMATRIX_2("");
}
#undef UA_LDMATRIX_4
#undef UA_LDMATRIX_2

enum { mma_f16 = 0, mma_bf16 = 1, mma_tf32 = 2 };

#define UA_MMA(shape)                                                                                            \
    asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"   \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
// Two instructions of depth 8 on sm_75, which has no deeper one.
#define UA_MMA_HALF(first, second, right)                                                                        \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "          \
                 "{%0, %1, %2, %3};"                                                                             \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                \
                 : "r"(first), "r"(second), "r"(right))
template <int KIND>
UA_DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    static_assert(KIND == mma_f16 || UA_SM == 0 || UA_SM >= 80, "bf16 and tf32 matrix instructions need sm_80");
#if UA_SM >= 80
    if constexpr (KIND == mma_f16) UA_MMA("m16n8k16.row.col.f32.f16.f16.f32");
    if constexpr (KIND == mma_bf16) UA_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
    if constexpr (KIND == mma_tf32) UA_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
#elif UA_SM > 0
    UA_MMA_HALF(a[0], a[1], b[0]);
    UA_MMA_HALF(a[2], a[3], b[1]);
#endif
}
#undef UA_MMA
#undef UA_MMA_HALF

#endif

// The row address that this lane contributes to the load of an A fragment (16 rows) or of two B fragments (16 columns). Matrices
// are numbered so that the registers come out in the order the multiplication wants: for A rows first, for B k first.
template <class Tile, Operand ORDER, bool IS_A>
UA_DEVICE const void* matrix_row(const typename Tile::Element* tile, int first, int k) {
    constexpr int width = Tile::chunk;
    const int matrix = lane_index() / 8, line = lane_index() % 8;
    const int across = IS_A ? matrix % 2 : matrix / 2, along_k = IS_A ? matrix / 2 : matrix % 2;
    if (ORDER == Operand::k_inner) return tile + Tile::offset(first + across * 8 + line, k + along_k * width);
    return tile + Tile::offset(k + along_k * 8 + line, first + across * 8);
}

struct Registers4 {
    uint32_t at[4];
};
struct Registers2 {
    uint32_t at[2];
};

// ---- 16-bit elements

template <class T, int KIND>
struct Narrow {
    typedef T Element;
    static constexpr int depth = 16, emulated = KIND;
    typedef Registers4 AFragment;
    typedef Registers2 BFragment;

    template <class Tile, Operand ORDER>
    UA_DEVICE AFragment load_a(const T* tile, int row, int k) {
        AFragment result;
        load_matrices<4, ORDER == Operand::k_outer>(result.at, matrix_row<Tile, ORDER, true>(tile, row, k));
        return result;
    }
    template <class Tile, Operand ORDER>
    UA_DEVICE void load_b2(BFragment& first, BFragment& second, const T* tile, int col, int k) {
        uint32_t registers[4];
        load_matrices<4, ORDER == Operand::k_outer>(registers, matrix_row<Tile, ORDER, false>(tile, col, k));
        first = {registers[0], registers[1]};
        second = {registers[2], registers[3]};
    }
    template <class Tile, Operand ORDER>
    UA_DEVICE void load_b1(BFragment& only, const T* tile, int col, int k) {
        // The upper sixteen lanes' addresses are not used, but must be valid ones.
        const int lane = lane_index() & 15, along_k = lane / 8, line = lane % 8;
        const int offset = ORDER == Operand::k_inner ? Tile::offset(col + line, k + along_k * 8)
                                                     : Tile::offset(k + along_k * 8 + line, col);
        load_matrices<2, ORDER == Operand::k_outer>(only.at, tile + offset);
    }
    template <class Tile>
    UA_DEVICE void load_b_paired(BFragment& first, BFragment& second, const T* tile, int col, int k) {
        load_b2<Tile, Operand::k_outer>(first, second, tile, col, k);
    }
    UA_DEVICE uint32_t pack(float low, float high) {
        return static_cast<uint32_t>(cast<T>(low).bits) | static_cast<uint32_t>(cast<T>(high).bits) << 16;
    }
    UA_DEVICE AFragment from_accumulator(const float (&left)[4], const float (&right)[4]) {
        return {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]), pack(right[2], right[3])};
    }
    UA_DEVICE void multiply(float (&c)[4], const AFragment& a, const BFragment& b) { multiply_add<KIND>(c, a.at, b.at); }
};

// ---- 32-bit elements: the registers hold float; rounding or splitting happens where they are multiplied

struct Wide {
    typedef float Element;
    static constexpr int depth = 8;
    typedef Registers4 AFragment;
    typedef Registers2 BFragment;

    UA_DEVICE uint32_t at(const float* address) { return bit_cast<uint32_t>(load<1>(address)[0]); }

    template <class Tile, Operand ORDER>
    UA_DEVICE AFragment load_a(const float* tile, int row, int k) {
        AFragment result;
        if constexpr (ORDER == Operand::k_inner) {
            load_matrices<4, false>(result.at, matrix_row<Tile, ORDER, true>(tile, row, k));
        } else {
            const int group = lane_index() / 4, within = lane_index() % 4;
            UA_UNROLL
            for (int i = 0; i < 4; i++)
                result.at[i] = at(tile + Tile::offset(k + within + i / 2 * 4, row + group + i % 2 * 8));
        }
        return result;
    }
    template <class Tile, Operand ORDER>
    UA_DEVICE void load_b1(BFragment& only, const float* tile, int col, int k) {
        if constexpr (ORDER == Operand::k_inner) {
            const int lane = lane_index() & 15;
            load_matrices<2, false>(only.at, tile + Tile::offset(col + lane % 8, k + lane / 8 * 4));
        } else {
            const int group = lane_index() / 4, within = lane_index() % 4;
            only = {at(tile + Tile::offset(k + within, col + group)), at(tile + Tile::offset(k + within + 4, col + group))};
        }
    }
    template <class Tile, Operand ORDER>
    UA_DEVICE void load_b2(BFragment& first, BFragment& second, const float* tile, int col, int k) {
        if constexpr (ORDER == Operand::k_inner) {
            uint32_t registers[4];
            load_matrices<4, false>(registers, matrix_row<Tile, ORDER, false>(tile, col, k));
            first = {registers[0], registers[1]};
            second = {registers[2], registers[3]};
        } else {
            load_b1<Tile, ORDER>(first, tile, col, k);
            load_b1<Tile, ORDER>(second, tile, col + 8, k);
        }
    }
    // An accumulator's lane holds columns 2t and 2t + 1, an A fragment's k = t and t + 4: since a sum over k has no order, column 2t
    // plays k = t and column 2t + 1 plays k = t + 4, in A and in B alike.
    template <class Tile>
    UA_DEVICE void load_b_paired(BFragment& first, BFragment& second, const float* tile, int col, int k) {
        const int group = lane_index() / 4, row = k + lane_index() % 4 * 2;
        first = {at(tile + Tile::offset(row, col + group)), at(tile + Tile::offset(row + 1, col + group))};
        second = {at(tile + Tile::offset(row, col + 8 + group)), at(tile + Tile::offset(row + 1, col + 8 + group))};
    }
    UA_DEVICE AFragment from_accumulator(const float (&left)[4], const float (&)[4]) {
        return {bit_cast<uint32_t>(left[0]), bit_cast<uint32_t>(left[2]), bit_cast<uint32_t>(left[1]),
                bit_cast<uint32_t>(left[3])};
    }
};

template <int N>
UA_DEVICE void round_all(uint32_t (&rounded)[N], const uint32_t (&values)[N]) {
    UA_UNROLL
    for (int i = 0; i < N; i++) rounded[i] = bit_cast<uint32_t>(round_tf32(bit_cast<float>(values[i])));
}
template <int N>
UA_DEVICE void split_all(uint32_t (&large)[N], uint32_t (&small)[N], const uint32_t (&values)[N]) {
    round_all(large, values);
    UA_UNROLL
    for (int i = 0; i < N; i++) {
        const float rest = bit_cast<float>(values[i]) - bit_cast<float>(large[i]);
        small[i] = bit_cast<uint32_t>(round_tf32(rest));
    }
}

}  // namespace detail

template <class T>
struct MatrixType;

template <>
struct MatrixType<f16> : detail::Narrow<f16, detail::mma_f16> {};

template <>
struct MatrixType<bf16> : detail::Narrow<bf16, detail::mma_bf16> {};

#if UA_SM == 0 || UA_SM >= 80  // sm_75 has no tf32 instruction: MatrixType<tf32> is an incomplete type there
template <>
struct MatrixType<tf32> : detail::Wide {
    static constexpr int emulated = detail::mma_tf32;
    UA_DEVICE void multiply(float (&c)[4], const AFragment& a, const BFragment& b) {
        uint32_t left[4], right[2];
        detail::round_all(left, a.at);
        detail::round_all(right, b.at);
        detail::multiply_add<detail::mma_tf32>(c, left, right);
    }
};

// x = large + small with 21 bits together; the product of the two small parts is below the rounding of a float and is left out.
template <>
struct MatrixType<tf32x3> : detail::Wide {
    static constexpr int emulated = 3;  // UA_EMU_F32 of the emulator: the tile-at-once emulation multiplies in float
    UA_DEVICE void multiply(float (&c)[4], const AFragment& a, const BFragment& b) {
        uint32_t left[4], left_rest[4], right[2], right_rest[2];
        detail::split_all(left, left_rest, a.at);
        detail::split_all(right, right_rest, b.at);
        detail::multiply_add<detail::mma_tf32>(c, left_rest, right);
        detail::multiply_add<detail::mma_tf32>(c, left, right_rest);
        detail::multiply_add<detail::mma_tf32>(c, left, right);
    }
};
#endif

}  // namespace ua
