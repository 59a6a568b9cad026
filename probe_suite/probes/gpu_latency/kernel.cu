// One thread follows a ring of indices: every load needs the one before it.
#include "probe.cuh"

extern "C" __global__ void chase(const int* next, int* last, long long* ticks, int first, int rounds) {
    int at = first;
    const long long start = probe::cycles();
    for (int round = 0; round < rounds; ++round) {
        UA_UNROLL
        for (int i = 0; i < 64; ++i) at = next[at];
    }
    const long long end = probe::cycles();
    last[0] = at;
    ticks[0] = end - start;
}
UA_KERNEL(chase)
