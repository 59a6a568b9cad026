// Every thread adds one, `rounds` times: all to one word (`spread` 0), or each to a word of its own (`spread` 1).
// PROBE_SHARED 1 counts in the block's shared memory and adds the total at the end.
#include "probe.cuh"

extern "C" __global__ void count(int* counters, int spread, int rounds) {
    const int self = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
#if PROBE_SHARED
    UA_DYNAMIC_SHARED(arena);
    int* const words = reinterpret_cast<int*>(arena);
    words[threadIdx.x] = 0;
    __syncthreads();
    for (int round = 0; round < rounds; ++round) atomicAdd(words + (spread ? static_cast<int>(threadIdx.x) : 0), 1);
    __syncthreads();
    atomicAdd(counters + (spread ? self : 0), words[threadIdx.x]);
#else
    for (int round = 0; round < rounds; ++round) atomicAdd(counters + (spread ? self : 0), 1);
#endif
}
UA_KERNEL(count)
