// Attention blocks for the tests of the device headers: O = softmax(Q K^T * scale + mask) V for one head, causal on request.
#include "ua/kernel.cuh"

template <class Block, int QUERIES, int KEYS>
UA_DEVICE void attend(const typename Block::Element* q, const typename Block::Element* k, const typename Block::Element* v,
                      float* out, int queries, int keys, int dim, int value_dim, float scale, int causal) {
    typedef typename Block::Element Element;
    constexpr int threads = Block::threads;
    UA_DYNAMIC_SHARED(arena);
    auto* q_tile = reinterpret_cast<Element*>(arena);
    auto* k_tile = reinterpret_cast<Element*>(arena + Block::QTile::bytes);
    auto* v_tile = reinterpret_cast<Element*>(arena + Block::QTile::bytes + Block::KTile::bytes);
    void* scratch = arena + Block::QTile::bytes + Block::KTile::bytes + Block::VTile::bytes;
    const int first = blockIdx.x * QUERIES, thread = ua::thread_index();
    ua::copy_tile_async<typename Block::QTile, threads>(q_tile, q + (long long)first * dim, dim, queries - first, dim, thread);
    typename Block::State state;
    state.clear();
    for (int key0 = 0; key0 < keys; key0 += KEYS) {
        ua::copy_tile_async<typename Block::KTile, threads>(k_tile, k + (long long)key0 * dim, dim, keys - key0, dim, thread);
        ua::copy_tile_async<typename Block::VTile, threads>(v_tile, v + (long long)key0 * value_dim, value_dim, keys - key0,
                                                            value_dim, thread);
        ua::copy_commit();
        ua::copy_wait<0>();
        __syncthreads();
        typename Block::Scores scores;
        Block::scores_of(scores, q_tile, k_tile);
        Block::for_each_score(scores, [&](int query, int key, float& value) {
            const bool seen = key0 + key < keys && (!causal || key0 + key <= first + query);
            value = seen ? value * scale : -INFINITY;
        });
        Block::absorb(state, scores, v_tile, scratch);
        __syncthreads();
    }
    Block::finish(state);
    Block::for_each_run(state, [&](int query, int col, float* values) {
        if (first + query >= queries || col >= value_dim) return;
        ua::Vector<float, Block::run> run;
        UA_UNROLL
        for (int i = 0; i < Block::run; i++) run[i] = values[i];
        ua::store(out + (long long)(first + query) * value_dim + col, run);
    });
}

#define ATTEND(name, QUERIES, KEYS, ...)                                                                             \
    typedef __VA_ARGS__ name##_block;                                                                                \
    extern "C" __global__ void __launch_bounds__((name##_block::threads), 1)                                           \
        name(const name##_block::Element* q, const name##_block::Element* k, const name##_block::Element* v,         \
             float* out, int queries, int keys, int dim, int value_dim, float scale, int causal) {                   \
        attend<name##_block, QUERIES, KEYS>(q, k, v, out, queries, keys, dim, value_dim, scale, causal);             \
    }                                                                                                                \
    UA_KERNEL(name)

ATTEND(attend_f16, 64, 64, ua::MmaAttention<ua::f16, 64, 64, 64, 64, 4>)
ATTEND(attend_fma, 32, 32, ua::FmaAttention<32, 32, 32, 64, 2>)
#if UA_SM != 75
ATTEND(attend_bf16, 32, 32, ua::MmaAttention<ua::bf16, 32, 32, 32, 64, 2>)
ATTEND(attend_tf32, 64, 32, ua::MmaAttention<ua::tf32, 64, 32, 32, 32, 4>)
ATTEND(attend_tf32x3, 32, 32, ua::MmaAttention<ua::tf32x3, 32, 32, 64, 32, 2>)
#endif
