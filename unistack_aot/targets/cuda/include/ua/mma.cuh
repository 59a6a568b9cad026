// MmaTile: C += A * B on a block tile with the matrix instructions, C in float.
//
// MmaTile<T, BM, BN, BK, WARPS_M, WARPS_N, A, B>   32 * WARPS_M * WARPS_N threads; a warp owns BM/WARPS_M x BN/WARPS_N of C, multiples
//     of 16 x 8. T: f16, bf16 (BK a multiple of 16), tf32 (operands are float, rounded to 10 mantissa bits), tf32x3 (operands
//     are float, split into two tf32 each, three products: the error of a float product; BK a multiple of 8). sm_75: f16 only.
//     A, B: Operand::k_inner (stored [BM][BK], [BN][BK]) or Operand::k_outer ([BK][BM], [BK][BN]). ATile and BTile are the
//     SharedTile types to fill, Element their element; shared bytes: ATile::bytes + BTile::bytes per stage.
//     Accumulator acc; acc.clear();               registers: BM/WARPS_M * BN/WARPS_N / 32 floats
//     mma(acc, a, b)                              adds the product of the tiles at a and b. Barriers around it are the caller's.
//     mma_registers(acc, left, b)                 the same with A = left, float [tiles_m][BK / 8][4] laid out like an accumulator of
//                                                 BK columns (rounded to T); BTile must be k_outer
//     for_each(acc, f(row, col, float& value))    this thread's elements, block coordinates
//     for_each_run<RUN>(acc, f(row, col, float* values))   the same by runs of RUN adjacent columns: 2 (`run`), or 8 after an exchange
//                                                 between lanes, so that 16-bit results leave in whole sectors; all lanes call f
//
// Ownership (PTX ISA, m16n8k16 and m16n8k8): inside each 16 x 8 piece, lane l owns columns 2 * (l % 4) and the next of rows l / 4 and
// l / 4 + 8. Warp w is at (w % WARPS_M, w / WARPS_M).
#pragma once
#include "fma.cuh"
#include "matrix.cuh"

namespace ua {

template <class T, int BM, int BN, int BK, int WARPS_M, int WARPS_N, Operand A = Operand::k_inner,
          Operand B = Operand::k_outer>
struct MmaTile {
    typedef MatrixType<T> Type;
    typedef typename Type::Element Element;
    static constexpr int warps = WARPS_M * WARPS_N, threads = 32 * warps, run = 2;
    static constexpr int tiles_m = BM / WARPS_M / 16, tiles_n = BN / WARPS_N / 8;
    static_assert(tiles_m * WARPS_M * 16 == BM && tiles_n * WARPS_N * 8 == BN, "a warp's tile is a multiple of 16 x 8");
    static_assert(BK % Type::depth == 0, "BK is a multiple of the instruction's depth");
    typedef typename OperandTile<Element, BM, BK, A>::Type ATile;
    typedef typename OperandTile<Element, BN, BK, B>::Type BTile;

    struct Accumulator {
        float at[tiles_m][tiles_n][4];
        UA_METHOD void clear() {
            UA_UNROLL
            for (int i = 0; i < tiles_m; i++)
                UA_UNROLL
                for (int j = 0; j < tiles_n; j++)
                    UA_UNROLL
                    for (int e = 0; e < 4; e++) at[i][j][e] = 0.0f;
        }
    };

    UA_DEVICE int first_row() { return warp_index() % WARPS_M * (BM / WARPS_M); }
    UA_DEVICE int first_col() { return warp_index() / WARPS_M * (BN / WARPS_N); }

#if UA_EMULATED && !defined(UA_EMULATOR_CHECKED)
    // One exchange per tile instead of one per instruction; the checked emulation runs the instructions below.
    UA_DEVICE void mma(Accumulator& acc, const Element* a, const Element* b, UA_SITE) {
        const ua_emu_tile tile = {Type::emulated, tiles_m, tiles_n, BK, first_row(), first_col(), A == Operand::k_outer,
                                  B == Operand::k_outer, a, b, offset_of<ATile>, offset_of<BTile>};
        ua_emu_tile_registers mine = {&acc.at[0][0][0], nullptr};
        ua_emu_warp(all_lanes, &mine, ua_emu_tile_mma, &tile, site);
    }
    UA_DEVICE void mma_registers(Accumulator& acc, const float (&left)[tiles_m][BK / 8][4], const Element* b, UA_SITE) {
        static_assert(B == Operand::k_outer, "the product with registers reads a k_outer tile");
        const ua_emu_tile tile = {Type::emulated, tiles_m, tiles_n, BK, first_row(), first_col(), 0, 1, nullptr, b,
                                  offset_of<ATile>, offset_of<BTile>};
        ua_emu_tile_registers mine = {&acc.at[0][0][0], &left[0][0][0]};
        ua_emu_warp(all_lanes, &mine, ua_emu_tile_mma, &tile, site);
    }
    template <class Tile>
    static int offset_of(int row, int col) {
        return Tile::offset(row, col);
    }
#else
    UA_DEVICE void mma(Accumulator& acc, const Element* a, const Element* b) {
        const int row = first_row(), col = first_col();
        UA_UNROLL_SOME
        for (int k = 0; k < BK; k += Type::depth) {
            typename Type::AFragment left[tiles_m];
            typename Type::BFragment right[tiles_n];
            UA_UNROLL
            for (int i = 0; i < tiles_m; i++) left[i] = Type::template load_a<ATile, A>(a, row + i * 16, k);
            UA_UNROLL
            for (int j = 0; j < tiles_n; j += 2) {
                if (j + 1 < tiles_n)
                    Type::template load_b2<BTile, B>(right[j], right[j + 1], b, col + j * 8, k);
                else
                    Type::template load_b1<BTile, B>(right[j], b, col + j * 8, k);
            }
            UA_UNROLL
            for (int i = 0; i < tiles_m; i++)
                UA_UNROLL
                for (int j = 0; j < tiles_n; j++) Type::multiply(acc.at[i][j], left[i], right[j]);
        }
    }
    UA_DEVICE void mma_registers(Accumulator& acc, const float (&left)[tiles_m][BK / 8][4], const Element* b) {
        static_assert(B == Operand::k_outer, "the product with registers reads a k_outer tile");
        static_assert(tiles_n % 2 == 0, "the product with registers takes column pieces in pairs");
        constexpr int pieces = Type::depth / 8;
        UA_UNROLL
        for (int k = 0; k < BK; k += Type::depth) {
            typename Type::BFragment right[tiles_n];
            UA_UNROLL
            for (int j = 0; j < tiles_n; j += 2)
                Type::template load_b_paired<BTile>(right[j], right[j + 1], b, first_col() + j * 8, k);
            UA_UNROLL
            for (int i = 0; i < tiles_m; i++) {
                const typename Type::AFragment a = Type::from_accumulator(left[i][k / 8], left[i][k / 8 + pieces - 1]);
                UA_UNROLL
                for (int j = 0; j < tiles_n; j++) Type::multiply(acc.at[i][j], a, right[j]);
            }
        }
    }
#endif

    template <int RUN = run, class F>
    UA_DEVICE void for_each_run(Accumulator& acc, F f) {
        static_assert(RUN == 2 || (RUN == 8 && tiles_n % 2 == 0), "runs are 2 long, or 8 out of pairs of pieces");
        const int row = first_row() + lane_index() / 4, quad = lane_index() % 4;
        UA_UNROLL
        for (int i = 0; i < tiles_m; i++)
            UA_UNROLL
            for (int j = 0; j < tiles_n; j += RUN == 2 ? 1 : 2) {
                if constexpr (RUN == 2) {
                    const int col = first_col() + j * 8 + quad * 2;
                    f(row + i * 16, col, &acc.at[i][j][0]);
                    f(row + i * 16 + 8, col, &acc.at[i][j][2]);
                } else {
                    float values[8];
                    row_of_pieces(values, acc.at[i][j], acc.at[i][j + 1]);
                    f(row + i * 16 + quad % 2 * 8, first_col() + (j + quad / 2) * 8, values);
                }
            }
    }

    // Two neighbouring 16 x 8 pieces, shared by rows: of a quad, lanes 0 and 1 get rows l / 4 and l / 4 + 8 of the first piece, lanes
    // 2 and 3 those of the second. Each lane keeps what is in its row, then in its piece, and gives the rest away.
    UA_DEVICE void row_of_pieces(float (&values)[8], const float (&first)[4], const float (&second)[4]) {
        const bool lower = lane_index() % 2, right = lane_index() / 2 % 2;
        float half[2][4];
        halves_of_row(half[0], first, lower);
        halves_of_row(half[1], second, lower);
        UA_UNROLL
        for (int e = 0; e < 4; e++) {
            const float got = __shfl_xor_sync(all_lanes, right ? half[0][e] : half[1][e], 2);
            values[e] = right ? got : half[0][e];
            values[4 + e] = right ? half[1][e] : got;
        }
    }
    UA_DEVICE void halves_of_row(float (&half)[4], const float (&piece)[4], bool lower) {
        UA_UNROLL
        for (int e = 0; e < 2; e++) {
            const float got = __shfl_xor_sync(all_lanes, lower ? piece[e] : piece[2 + e], 1);
            half[e] = lower ? got : piece[e];
            half[2 + e] = lower ? piece[2 + e] : got;
        }
    }

    template <class F>
    UA_DEVICE void for_each(Accumulator& acc, F f) {
        for_each_run(acc, [&](int row, int col, float* values) {
            f(row, col, values[0]);
            f(row, col + 1, values[1]);
        });
    }
};

}  // namespace ua
