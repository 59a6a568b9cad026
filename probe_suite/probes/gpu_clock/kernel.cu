// A long chain of dependent multiply-adds on one warp per block: cycles from the unit's counter, seconds from events.
#include "probe.cuh"

extern "C" __global__ void clock_chain(float* results, long long* ticks, float factor, float term, int rounds) {
    float value = static_cast<float>(threadIdx.x);
    const long long start = probe::cycles();
    for (int round = 0; round < rounds; ++round) {
        UA_UNROLL
        for (int i = 0; i < 64; ++i) value = fmaf(value, factor, term);
    }
    const long long end = probe::cycles();
    results[blockIdx.x * blockDim.x + threadIdx.x] = value;
    if (threadIdx.x == 0) ticks[blockIdx.x] = end - start;
}
UA_KERNEL(clock_chain)
