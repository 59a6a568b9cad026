// Attention without a score matrix: softmax(Q K^T) V as a stream over tiles of keys, one online softmax state per query row.
//
// MmaAttention<T, QUERIES, KEYS, DIM, VALUE_DIM, WARPS>   matrix instructions, T: f16, bf16, tf32, tf32x3. 32 * WARPS threads;
//     a warp owns QUERIES / WARPS rows (a multiple of 16). DIM and KEYS are multiples of 16, VALUE_DIM too.
// FmaAttention<QUERIES, KEYS, DIM, VALUE_DIM, TM>         exact float. 8 * QUERIES / TM threads; a warp owns 4 * TM rows (those
//     with the same row % (QUERIES / TM) / 4). KEYS is a multiple of 32, VALUE_DIM of 32, DIM of 4.
//
// Both have the same face:
//     QTile [QUERIES][DIM], KTile [KEYS][DIM], VTile [KEYS][VALUE_DIM]   SharedTile types, Element their element
//     scratch_bytes                       shared memory that absorb needs besides: 0 for MmaAttention
//     State state; state.clear();         accumulators, and largest score and sum of exponentials of each row
//     Scores scores;
//     scores_of(scores, q, k)             scores = Q K^T, overwritten
//     for_each_score(scores, f(query, key, float& value))   scale, bias, mask (-INFINITY) in place; tile coordinates
//     absorb(state, scores, v, scratch)   adds this tile of keys and values; overwrites scores
//     finish(state)                       divides by the sums. A row whose scores were all -INFINITY becomes NaN, as softmax does
//     for_each_run<RUN>(state, f(query, col, float* values))     the results, RUN (as of the tile: `run`, or 8) adjacent columns at a time
// Barriers: after the tiles are filled, before scores_of; and after absorb, before the tiles are filled again.
#pragma once
#include "math.cuh"
#include "mma.cuh"
#include "reduce.cuh"

namespace ua {

namespace detail {

// COUNT rows at once, so that a reduction across lanes costs one round for all of them.
template <int COUNT>
struct RowLargest {
    struct State {
        float at[COUNT];
    };
    static UA_METHOD State merge(State a, State b) {
        UA_UNROLL
        for (int i = 0; i < COUNT; i++) a.at[i] = a.at[i] > b.at[i] ? a.at[i] : b.at[i];
        return a;
    }
};
template <int COUNT>
struct RowSum {
    struct State {
        float at[COUNT];
    };
    static UA_METHOD State merge(State a, State b) {
        UA_UNROLL
        for (int i = 0; i < COUNT; i++) a.at[i] += b.at[i];
        return a;
    }
};

// The rows' softmax state and its step: LANES neighbouring lanes share ROWS rows, at(row, col) is a lane's score and
// COLS its number of columns, scale(row, factor) rescales the output accumulators.
template <int ROWS, int LANES>
struct OnlineRows {
    float largest[ROWS], sum[ROWS];

    UA_METHOD void clear() {
        UA_UNROLL
        for (int row = 0; row < ROWS; row++) {
            largest[row] = -INFINITY;
            sum[row] = 0.0f;
        }
    }

    template <int COLS, class At, class Scale>
    UA_METHOD void absorb(At at, Scale scale) {
        typename RowLargest<ROWS>::State seen;
        UA_UNROLL
        for (int row = 0; row < ROWS; row++) {
            seen.at[row] = largest[row];
            UA_UNROLL
            for (int col = 0; col < COLS; col++) seen.at[row] = seen.at[row] > at(row, col) ? seen.at[row] : at(row, col);
        }
        seen = warp_reduce<RowLargest<ROWS>, LANES>(seen);
        typename RowSum<ROWS>::State added;
        UA_UNROLL
        for (int row = 0; row < ROWS; row++) {
            // While a row has met -INFINITY only, any finite reference gives exponentials of 0.
            const float reference = seen.at[row] == -INFINITY ? 0.0f : seen.at[row];
            const float factor = ::expf(largest[row] - reference);
            largest[row] = seen.at[row];
            sum[row] *= factor;
            scale(row, factor);
            added.at[row] = 0.0f;
            UA_UNROLL
            for (int col = 0; col < COLS; col++) {
                at(row, col) = ::expf(at(row, col) - reference);
                added.at[row] += at(row, col);
            }
        }
        added = warp_reduce<RowSum<ROWS>, LANES>(added);
        UA_UNROLL
        for (int row = 0; row < ROWS; row++) sum[row] += added.at[row];
    }
};

}  // namespace detail

template <class T, int QUERIES, int KEYS, int DIM, int VALUE_DIM, int WARPS>
struct MmaAttention {
    typedef MmaTile<T, QUERIES, KEYS, DIM, WARPS, 1, Operand::k_inner, Operand::k_inner> ScoreTile;
    typedef MmaTile<T, QUERIES, VALUE_DIM, KEYS, WARPS, 1, Operand::k_inner, Operand::k_outer> OutputTile;
    typedef typename ScoreTile::Element Element;
    typedef typename ScoreTile::ATile QTile;
    typedef typename ScoreTile::BTile KTile;
    typedef typename OutputTile::BTile VTile;
    typedef typename ScoreTile::Accumulator Scores;
    static constexpr int threads = 32 * WARPS, run = 2, scratch_bytes = 0;
    static constexpr int tiles_m = ScoreTile::tiles_m, key_tiles = ScoreTile::tiles_n, value_tiles = OutputTile::tiles_n;

    struct State {
        typename OutputTile::Accumulator output;
        detail::OnlineRows<2 * tiles_m, 4> rows;
        UA_METHOD void clear() {
            output.clear();
            rows.clear();
        }
    };

    UA_DEVICE void scores_of(Scores& scores, const Element* q, const Element* k) {
        scores.clear();
        ScoreTile::mma(scores, q, k);
    }
    template <class F>
    UA_DEVICE void for_each_score(Scores& scores, F f) {
        ScoreTile::for_each(scores, f);
    }
    UA_DEVICE void absorb(State& state, Scores& scores, const Element* v, void* = nullptr) {
        state.rows.template absorb<2 * key_tiles>(
            [&](int row, int col) -> float& { return scores.at[row / 2][col / 2][row % 2 * 2 + col % 2]; },
            [&](int row, float factor) {
                UA_UNROLL
                for (int j = 0; j < value_tiles; j++) {
                    state.output.at[row / 2][j][row % 2 * 2] *= factor;
                    state.output.at[row / 2][j][row % 2 * 2 + 1] *= factor;
                }
            });
        OutputTile::mma_registers(state.output, scores.at, v);
    }
    UA_DEVICE void finish(State& state) {
        UA_UNROLL
        for (int i = 0; i < tiles_m; i++)
            UA_UNROLL
            for (int j = 0; j < value_tiles; j++)
                UA_UNROLL
                for (int e = 0; e < 4; e++) state.output.at[i][j][e] /= state.rows.sum[i * 2 + e / 2];
    }
    template <int RUN = run, class F>
    UA_DEVICE void for_each_run(State& state, F f) {
        OutputTile::template for_each_run<RUN>(state.output, f);
    }
};

template <int QUERIES, int KEYS, int DIM, int VALUE_DIM, int TM>
struct FmaAttention {
    typedef SharedTile<float, QUERIES, KEYS, Pattern::columns> WeightTile;  // exponentials, on their way from one product to the other
    typedef FmaTile<float, QUERIES, KEYS, DIM, TM, KEYS / 8, Operand::k_inner, Operand::k_inner> ScoreTile;
    typedef FmaTile<float, QUERIES, VALUE_DIM, KEYS, TM, VALUE_DIM / 8, Operand::k_inner, Operand::k_outer, WeightTile>
        OutputTile;
    typedef float Element;
    typedef typename ScoreTile::ATile QTile;
    typedef typename ScoreTile::BTile KTile;
    typedef typename OutputTile::BTile VTile;
    typedef typename ScoreTile::Accumulator Scores;
    static constexpr int threads = ScoreTile::threads, run = OutputTile::run, scratch_bytes = WeightTile::bytes;

    struct State {
        typename OutputTile::Accumulator output;
        detail::OnlineRows<TM, 8> rows;
        UA_METHOD void clear() {
            output.clear();
            rows.clear();
        }
    };

    UA_DEVICE void scores_of(Scores& scores, const float* q, const float* k) {
        scores.clear();
        ScoreTile::mma(scores, q, k);
    }
    template <class F>
    UA_DEVICE void for_each_score(Scores& scores, F f) {
        ScoreTile::for_each(scores, f);
    }
    // A warp reads only the rows of the scratch tile that it wrote itself.
    UA_DEVICE void absorb(State& state, Scores& scores, const float* v, void* scratch) {
        state.rows.template absorb<KEYS / 8>([&](int row, int col) -> float& { return scores.at[row][col]; },
                                             [&](int row, float factor) {
                                                 UA_UNROLL
                                                 for (int j = 0; j < VALUE_DIM / 8; j++) state.output.at[row][j] *= factor;
                                             });
        auto* weights = static_cast<float*>(scratch);
        __syncwarp();
        ScoreTile::for_each(scores, [&](int row, int key, float value) { weights[WeightTile::offset(row, key)] = value; });
        __syncwarp();
        OutputTile::mma(state.output, weights, v);
    }
    UA_DEVICE void finish(State& state) {
        UA_UNROLL
        for (int i = 0; i < TM; i++)
            UA_UNROLL
            for (int j = 0; j < VALUE_DIM / 8; j++) state.output.at[i][j] /= state.rows.sum[i];
    }
    template <int RUN = run, class F>
    UA_DEVICE void for_each_run(State& state, F f) {
        OutputTile::template for_each_run<RUN>(state.output, f);
    }
};

}  // namespace ua
