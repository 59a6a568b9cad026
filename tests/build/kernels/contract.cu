// C[M][N] = A B with every kind of tile, for the tests of the device headers. Operands are stored as the tile wants them:
// A as [M][K] or [K][M], B as [N][K] or [K][N].
#include "ua/kernel.cuh"

using ua::Operand;

template <class T, Operand ORDER, class Tile, int THREADS>
UA_DEVICE void fetch(T* tile, const T* stored, int first, int k, int rows, int depth) {
    if (ORDER == Operand::k_inner)
        ua::copy_tile_async<Tile, THREADS>(tile, stored + (long long)first * depth + k, depth, rows - first, depth - k,
                                           ua::thread_index());
    else
        ua::copy_tile_async<Tile, THREADS>(tile, stored + (long long)k * rows + first, rows, depth - k, rows - first,
                                           ua::thread_index());
}

// Three stages of cp.async.
template <class Tile, Operand A, Operand B, int BM, int BN, int BK, class Out>
UA_DEVICE void contract(const typename Tile::Element* a, const typename Tile::Element* b, Out* c, int m, int n, int k) {
    typedef typename Tile::Element Element;
    constexpr int stages = 3, a_bytes = Tile::ATile::bytes, b_bytes = Tile::BTile::bytes;
    UA_DYNAMIC_SHARED(arena);
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    auto a_stage = [&](int stage) { return reinterpret_cast<Element*>(arena + stage * (a_bytes + b_bytes)); };
    auto b_stage = [&](int stage) { return reinterpret_cast<Element*>(arena + stage * (a_bytes + b_bytes) + a_bytes); };
    auto start = [&](int stage, int at) {
        if (at < k) {
            fetch<Element, A, typename Tile::ATile, Tile::threads>(a_stage(stage), a, row0, at, m, k);
            fetch<Element, B, typename Tile::BTile, Tile::threads>(b_stage(stage), b, col0, at, n, k);
        }
        ua::copy_commit();
    };
    typename Tile::Accumulator acc;
    acc.clear();
    start(0, 0);
    start(1, BK);
    int stage = 0;
    for (int at = 0; at < k; at += BK) {
        ua::copy_wait<stages - 2>();
        __syncthreads();
        start((stage + 2) % stages, at + 2 * BK);
        Tile::mma(acc, a_stage(stage), b_stage(stage));
        stage = (stage + 1) % stages;
    }
    Tile::for_each_run(acc, [&](int row, int col, Out* values) {
        if (row0 + row >= m || col0 + col >= n) return;
        ua::Vector<Out, Tile::run> run;
        UA_UNROLL
        for (int i = 0; i < Tile::run; i++) run[i] = values[i];
        ua::store(c + (long long)(row0 + row) * n + col0 + col, run);
    });
}

#define MMA_TILE(T, A, B, ...) ua::MmaTile<T, __VA_ARGS__, Operand::A, Operand::B>
#define FMA_TILE(T, A, B, ...) ua::FmaTile<T, __VA_ARGS__, Operand::A, Operand::B>
#define CONTRACT(name, Out, TILE, T, A, B, BM, BN, BK, I, J)                                                    \
    typedef TILE(T, A, B, BM, BN, BK, I, J) name##_tile;                                                        \
    extern "C" __global__ void __launch_bounds__((name##_tile::threads), 1)                                       \
        name(const name##_tile::Element* a, const name##_tile::Element* b, Out* c, int m, int n, int k) {       \
        contract<name##_tile, Operand::A, Operand::B, BM, BN, BK>(a, b, c, m, n, k);                            \
    }                                                                                                           \
    UA_KERNEL(name)

CONTRACT(f16_inner_outer, float, MMA_TILE, ua::f16, k_inner, k_outer, 128, 64, 32, 2, 2)
CONTRACT(f16_inner_inner, float, MMA_TILE, ua::f16, k_inner, k_inner, 64, 64, 64, 2, 2)
CONTRACT(f16_outer_outer, float, MMA_TILE, ua::f16, k_outer, k_outer, 64, 96, 32, 2, 2)
CONTRACT(f16_odd_pieces, float, MMA_TILE, ua::f16, k_outer, k_inner, 16, 24, 16, 1, 1)
CONTRACT(fma_inner_outer, float, FMA_TILE, float, k_inner, k_outer, 64, 64, 16, 8, 8)
CONTRACT(fma_outer_outer, float, FMA_TILE, float, k_outer, k_outer, 64, 64, 16, 4, 8)
CONTRACT(fma_inner_inner, float, FMA_TILE, float, k_inner, k_inner, 64, 64, 16, 4, 8)
CONTRACT(fma_outer_inner, float, FMA_TILE, float, k_outer, k_inner, 32, 64, 32, 4, 4)
CONTRACT(f64_inner_outer, double, FMA_TILE, double, k_inner, k_outer, 64, 64, 8, 4, 4)
#if UA_SM != 75
CONTRACT(bf16_inner_outer, float, MMA_TILE, ua::bf16, k_inner, k_outer, 128, 64, 32, 4, 1)
CONTRACT(tf32_inner_outer, float, MMA_TILE, ua::tf32, k_inner, k_outer, 64, 64, 16, 2, 2)
CONTRACT(tf32_inner_inner, float, MMA_TILE, ua::tf32, k_inner, k_inner, 64, 64, 32, 2, 2)
CONTRACT(tf32_outer_outer, float, MMA_TILE, ua::tf32, k_outer, k_outer, 64, 64, 16, 2, 2)
CONTRACT(tf32x3_inner_outer, float, MMA_TILE, ua::tf32x3, k_inner, k_outer, 64, 64, 16, 2, 2)
#endif
