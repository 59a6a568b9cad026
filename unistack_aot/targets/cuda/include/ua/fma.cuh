// FmaTile: C += A * B on a block tile with ordinary multiply-adds, exact in T (float or double): the register outer product.
//
// FmaTile<T, BM, BN, BK, TM, TN, A, B>   (BM / TM) * (BN / TN) threads, a multiple of 32; each owns TM x TN elements of C.
//     A, B: Operand::k_inner (stored [BM][BK], [BN][BK]) or Operand::k_outer ([BK][BM], [BK][BN]). ATile and BTile are the
//     SharedTile types to fill; shared bytes: ATile::bytes + BTile::bytes per stage.
//     Accumulator acc; acc.clear();           registers: TM * TN of T
//     mma(acc, a, b)                          adds the product of the tiles at a and b. Barriers around it are the caller's.
//     for_each(acc, f(row, col, T& value))    this thread's elements, block coordinates
//     for_each_run<RUN>(acc, f(row, col, T* values))   the same by runs of RUN = `run` adjacent columns: 16 bytes if B is k_outer, else 1
//
// Ownership. Threads form a BM/TM x BN/TN grid, a warp 4 x 8 of it (2 x 16 and so on where BN/TN is less than 8). Along a k_outer
// operand a thread owns groups of 16 bytes, spread evenly; along a k_inner one, every (B?/T?)-th row: in both cases the shared
// loads of a warp meet no bank conflict.
#pragma once
#include "tile.cuh"

namespace ua {

// How a contraction operand is stored: k contiguous ([rows][k]), or its row index ([k][rows]).
enum class Operand { k_inner, k_outer };

template <class T, int ROWS, int BK, Operand ORDER>
struct OperandTile {
    typedef SharedTile<T, ROWS, BK, Pattern::rows> Type;
};
template <class T, int ROWS, int BK>
struct OperandTile<T, ROWS, BK, Operand::k_outer> {
    typedef SharedTile<T, BK, ROWS, sizeof(T) == 2 ? Pattern::rows : Pattern::columns> Type;
};

template <class T, int BM, int BN, int BK, int TM, int TN, Operand A = Operand::k_inner, Operand B = Operand::k_outer,
          class ATileType = typename OperandTile<T, BM, BK, A>::Type>
struct FmaTile {
    static constexpr int threads_m = BM / TM, threads_n = BN / TN, threads = threads_m * threads_n;
    static constexpr int chunk = 16 / static_cast<int>(sizeof(T));
    static constexpr int lanes_n = threads_n < 8 ? threads_n : 8, lanes_m = 32 / lanes_n;
    static constexpr int warps_n = threads_n / lanes_n;
    static constexpr int run = B == Operand::k_outer ? chunk : 1;
    static_assert(BM % TM == 0 && BN % TN == 0 && BK % chunk == 0, "the block is not a multiple of the thread tile");
    static_assert(threads % 32 == 0 && threads_n % lanes_n == 0 && threads_m % lanes_m == 0, "whole warps of 4 x 8 threads");
    static_assert(A == Operand::k_inner || TM % chunk == 0, "TM must be a multiple of 16 bytes if A is k_outer");
    static_assert(B == Operand::k_inner || TN % chunk == 0, "TN must be a multiple of 16 bytes if B is k_outer");
    typedef T Element;
    typedef ATileType ATile;
    typedef typename OperandTile<T, BN, BK, B>::Type BTile;

    struct Accumulator {
        T at[TM][TN];
        UA_METHOD void clear() {
            UA_UNROLL
            for (int i = 0; i < TM; i++)
                UA_UNROLL
                for (int j = 0; j < TN; j++) at[i][j] = T(0);
        }
    };

    UA_DEVICE int thread_m() { return warp_index() / warps_n * lanes_m + lane_index() / lanes_n; }
    UA_DEVICE int thread_n() { return warp_index() % warps_n * lanes_n + lane_index() % lanes_n; }
    UA_DEVICE int row_of(int i, int thread) { return owned<A, BM, TM, threads_m>(i, thread); }
    UA_DEVICE int col_of(int j, int thread) { return owned<B, BN, TN, threads_n>(j, thread); }

#if UA_EMULATED && !defined(UA_EMULATOR_CHECKED)
    // The same sums, with a row of the thread's tile as one vector: what host compilers turn into good code.
    UA_DEVICE void mma(Accumulator& acc, const T* a, const T* b) {
        constexpr int lanes = 32 / static_cast<int>(sizeof(T)), width = TN % lanes == 0 ? lanes : TN % chunk == 0 ? chunk : 1;
        typedef T Row __attribute__((vector_size(width * sizeof(T))));
        const int m = thread_m(), n = thread_n();
        for (int j = 0; j < TN; j += width) {
            Row c[TM];
            UA_UNROLL_HOST
            for (int i = 0; i < TM; i++) memcpy(&c[i], &acc.at[i][j], sizeof(Row));
            for (int k = 0; k < BK; k += chunk) {
                Row right[chunk];
                load_rows<width>(right, b, k, j, n);
                if (A == Operand::k_inner) {
                    UA_UNROLL_HOST
                    for (int i = 0; i < TM; i++) {
                        const T* left = a + ATile::offset(row_of(i, m), k);
                        UA_UNROLL_HOST
                        for (int v = 0; v < chunk; v++) c[i] += left[v] * right[v];
                    }
                } else {
                    UA_UNROLL_HOST
                    for (int v = 0; v < chunk; v++)
                        UA_UNROLL_HOST
                        for (int i = 0; i < TM; i++) c[i] += a[ATile::offset(k + v, row_of(i, m))] * right[v];
                }
            }
            UA_UNROLL_HOST
            for (int i = 0; i < TM; i++) memcpy(&acc.at[i][j], &c[i], sizeof(Row));
        }
    }
    template <int WIDTH, class Row>
    UA_DEVICE void load_rows(Row (&rows)[chunk], const T* b, int k, int j, int thread) {
        if (B == Operand::k_outer) {
            UA_UNROLL_HOST
            for (int v = 0; v < chunk; v++)
                UA_UNROLL_HOST
                for (int part = 0; part < WIDTH; part += chunk)
                    memcpy(reinterpret_cast<T*>(&rows[v]) + part, b + BTile::offset(k + v, col_of(j + part, thread)), 16);
        } else {
            UA_UNROLL_HOST
            for (int part = 0; part < WIDTH; part++) {
                const T* column = b + BTile::offset(col_of(j + part, thread), k);
                UA_UNROLL_HOST
                for (int v = 0; v < chunk; v++) rows[v][part] = column[v];
            }
        }
    }
#else
    UA_DEVICE void mma(Accumulator& acc, const T* a, const T* b) {
        const int m = thread_m(), n = thread_n();
        UA_UNROLL_SOME
        for (int k = 0; k < BK; k += chunk) {
            T left[chunk][TM], right[chunk][TN];
            fragment<A, ATile, BM, TM, threads_m>(left, a, k, m);
            fragment<B, BTile, BN, TN, threads_n>(right, b, k, n);
            UA_UNROLL
            for (int step = 0; step < chunk; step++)
                UA_UNROLL
                for (int i = 0; i < TM; i++)
                    UA_UNROLL
                    for (int j = 0; j < TN; j++) acc.at[i][j] += left[step][i] * right[step][j];
        }
    }

#endif

    template <class F>
    UA_DEVICE void for_each(Accumulator& acc, F f) {
        const int m = thread_m(), n = thread_n();
        UA_UNROLL
        for (int i = 0; i < TM; i++)
            UA_UNROLL
            for (int j = 0; j < TN; j++) f(row_of(i, m), col_of(j, n), acc.at[i][j]);
    }

    template <int RUN = run, class F>
    UA_DEVICE void for_each_run(Accumulator& acc, F f) {
        static_assert(RUN == run, "a thread owns runs of this length only");
        const int m = thread_m(), n = thread_n();
        UA_UNROLL
        for (int i = 0; i < TM; i++)
            UA_UNROLL
            for (int j = 0; j < TN; j += run) f(row_of(i, m), col_of(j, n), &acc.at[i][j]);
    }

  private:
    template <Operand ORDER, int SIZE, int COUNT, int THREADS>
    UA_DEVICE int owned(int i, int thread) {
        if (ORDER == Operand::k_inner) return thread + i * THREADS;
        return i / chunk * (THREADS * chunk) + thread * chunk + i % chunk;
    }

    // The COUNT values of this thread for `chunk` consecutive k.
    template <Operand ORDER, class Tile, int SIZE, int COUNT, int THREADS>
    UA_DEVICE void fragment(T (&values)[chunk][COUNT], const T* tile, int k, int thread) {
        constexpr int step = ORDER == Operand::k_inner ? 1 : chunk;
        UA_UNROLL
        for (int i = 0; i < COUNT; i += step) {
            const int row = owned<ORDER, SIZE, COUNT, THREADS>(i, thread);
            if (ORDER == Operand::k_inner) {
                const Vector<T, chunk> along_k = load<chunk>(tile + Tile::offset(row, k));
                UA_UNROLL
                for (int v = 0; v < chunk; v++) values[v][i] = along_k[v];
            } else {
                UA_UNROLL
                for (int v = 0; v < chunk; v++) {
                    const Vector<T, chunk> along_row = load<chunk>(tile + Tile::offset(k + v, row));
                    UA_UNROLL
                    for (int w = 0; w < step; w++) values[v][i + w] = along_row[w];
                }
            }
        }
    }
};

}  // namespace ua
