// A stream of tiles through shared memory with PROBE_DEPTH tiles under way: one warp's worth of independence per stage.
//
// A tile is 16 bytes per thread. Each block reads `tiles` tiles that lie `gridDim.x` tiles apart. Each thread leaves the sum of
// the first float of each of its 16-byte pieces.
#include "probe.cuh"

extern "C" __global__ void staged(const float* data, float* sums, int tiles) {
    UA_DYNAMIC_SHARED(arena);
    const int threads = static_cast<int>(blockDim.x), self = static_cast<int>(threadIdx.x);
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    auto const issue = [&](int tile) {
        if (tile < tiles) {
            const long long piece = (static_cast<long long>(tile) * blocks + block) * threads + self;
            ua::copy_async<16>(arena + ((tile % PROBE_DEPTH) * threads + self) * 16, data + piece * 4);
        }
        ua::copy_commit();
    };
    for (int tile = 0; tile < PROBE_DEPTH - 1; ++tile) issue(tile);
    float sum = 0.0f;
    for (int tile = 0; tile < tiles; ++tile) {
        issue(tile + PROBE_DEPTH - 1);
        ua::copy_wait<PROBE_DEPTH - 1>();
        __syncthreads();
        // A neighbour's piece: the barrier is needed, as in a real kernel.
        const int other = (self + 1) % threads;
        sum += *reinterpret_cast<const float*>(arena + ((tile % PROBE_DEPTH) * threads + other) * 16);
        __syncthreads();
    }
    sums[block * threads + self] = sum;
}
UA_KERNEL(staged)
