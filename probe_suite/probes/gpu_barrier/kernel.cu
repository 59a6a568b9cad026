// A block meets `rounds` x 32 times and does nothing else.
#include "probe.cuh"

extern "C" __global__ void meet(int* passed, long long* ticks, int rounds) {
    const long long start = probe::cycles();
    for (int round = 0; round < rounds; ++round) {
        UA_UNROLL
        for (int i = 0; i < 32; ++i) __syncthreads();
    }
    const long long end = probe::cycles();
    passed[threadIdx.x] = rounds * 32;
    if (threadIdx.x == 0) ticks[0] = end - start;
}
UA_KERNEL(meet)
