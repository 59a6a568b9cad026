// Reductions and wide accesses, for the tests of the device headers.
#include "ua/kernel.cuh"

// Value and place of the largest element, the first of equals.
struct ArgMax {
    struct State {
        float value;
        int index;
    };
    static UA_METHOD State identity() { return {-INFINITY, 0x7fffffff}; }
    static UA_METHOD State merge(State a, State b) {
        return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b;
    }
};

// x -> scale * x + offset, composed left to right: associative, not commutative.
struct Affine {
    struct State {
        double scale, offset;
    };
    static UA_METHOD State identity() { return {1.0, 0.0}; }
    static UA_METHOD State merge(State a, State b) { return {a.scale * b.scale, b.scale * a.offset + b.offset}; }
};

// One block of 256 per row: argmax, (max, sum of exponentials), (count, mean, squares).
extern "C" __global__ void __launch_bounds__(256)
    rows(const float* __restrict__ x, int* __restrict__ place, float* __restrict__ statistics, int n) {
    UA_DYNAMIC_SHARED(scratch);
    const float* row = x + (long long)blockIdx.x * n;
    auto largest = ArgMax::identity();
    auto softmax = ua::SoftmaxMonoid::identity();
    auto welford = ua::WelfordMonoid::identity();
    for (int i = threadIdx.x; i < n; i += 256) {
        largest = ArgMax::merge(largest, {row[i], i});
        softmax = ua::SoftmaxMonoid::merge(softmax, ua::SoftmaxMonoid::of(row[i]));
        welford = ua::WelfordMonoid::merge(welford, ua::WelfordMonoid::of(row[i]));
    }
    largest = ua::block_reduce<ArgMax, 8>(largest, scratch);
    softmax = ua::block_reduce<ua::SoftmaxMonoid, 8>(softmax, scratch);
    welford = ua::block_reduce<ua::WelfordMonoid, 8>(welford, scratch);
    if (threadIdx.x != 255) return;  // every thread has the result
    place[blockIdx.x] = largest.index;
    float* out = statistics + blockIdx.x * 4;
    out[0] = softmax.largest;
    out[1] = softmax.sum;
    out[2] = welford.mean;
    out[3] = welford.squares;
}
UA_KERNEL(rows)

// Groups of 8, 32 and 128 threads of a block of 256 compose their affine maps in thread order.
extern "C" __global__ void __launch_bounds__(256)
    groups(const double* __restrict__ x, double* __restrict__ y) {
    UA_DYNAMIC_SHARED(scratch);
    const int t = threadIdx.x;
    const Affine::State mine = {x[2 * t], x[2 * t + 1]};
    const Affine::State eight = ua::row_reduce<Affine, 8>(mine, scratch);
    const Affine::State warp = ua::row_reduce<Affine, 32>(mine, scratch);
    const Affine::State four_warps = ua::row_reduce<Affine, 128>(mine, scratch);
    y[3 * t] = eight.offset;
    y[3 * t + 1] = warp.offset;
    y[3 * t + 2] = four_warps.offset;
}
UA_KERNEL(groups)

// Wide copies: 16 bytes of f16, 32 bytes of f32 in two accesses, with and without the streaming hint; and shuffles of structs.
extern "C" __global__ void __launch_bounds__(256)
    wide(const ua::f16* __restrict__ a, ua::f16* __restrict__ b, const float* __restrict__ c, float* __restrict__ d) {
    const int t = blockIdx.x * 256 + threadIdx.x;
    ua::store_streaming(b + t * 8, ua::load<8>(a + t * 8));
    ua::Vector<float, 8> v = ua::load_streaming<8>(c + t * 8);
    const ua::Vector<float, 8> other = ua::shuffle_xor(v, 1), first = ua::shuffle(v, 0);
    UA_UNROLL
    for (int i = 0; i < 8; i++) v[i] = v[i] + 2.0f * other[i] + 3.0f * first[i];
    ua::store(d + t * 8, v);
}
UA_KERNEL(wide)

// Copies of 4, 8 and 16 bytes with a tail of zeros, and a transposing copy.
extern "C" __global__ void __launch_bounds__(128)
    copies(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    typedef ua::SharedTile<float, 16, 32> Tile;
    typedef ua::SharedTile<float, 32, 32, ua::Pattern::columns> Turned;
    UA_DYNAMIC_SHARED(arena);
    float* tile[4];
    for (int i = 0; i < 4; i++) tile[i] = reinterpret_cast<float*>(arena + i * Tile::bytes);
    const int t = threadIdx.x;
    ua::copy_tile_async<Tile, 128, 16>(tile[0], x, 32, rows, cols, t);
    ua::copy_tile_async<Tile, 128, 8>(tile[1], x, 32, rows, cols, t);
    ua::copy_tile_async<Tile, 128, 4>(tile[2], x, 32, rows, cols, t);
    ua::copy_tile_transposed_async<Turned, 128>(tile[3], x, 32, cols, rows, t);
    ua::copy_commit();
    ua::copy_wait<0>();
    __syncthreads();
    for (int i = t; i < 16 * 32; i += 128) {
        const int row = i / 32, col = i % 32;
        for (int j = 0; j < 3; j++) y[j * 512 + i] = tile[j][Tile::offset(row, col)];
        y[3 * 512 + i] = tile[3][Turned::offset(col, row)];
    }
    __syncthreads();
    ua::fill_tile<Tile, 128>(tile[0], t, [&](int row, int col) { return row * 100.0f + col; });
    __syncthreads();
    ua::for_each_chunk<Tile, 128>(t, [&](int row, int col, int offset) {
        ua::store(y + 4 * 512 + row * 32 + col, ua::load<4>(tile[0] + offset));
    });
}
UA_KERNEL(copies)
