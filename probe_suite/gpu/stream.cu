// Reads a buffer front to back, all threads side by side: the kernel behind the width, footprint and occupancy probes.
//
// PROBE_WIDTH floats come with one load, PROBE_LOADS loads are under way before the first is used. `vectors` is the number of
// PROBE_WIDTH-wide vectors in the buffer, a multiple of PROBE_LOADS x all threads. Each thread leaves the sum of what it read.
#include "probe.cuh"

extern "C" __global__ void stream(const float* data, float* sums, int vectors, int rounds) {
    UA_DYNAMIC_SHARED(unused);  // its size limits how many blocks a unit holds
    const int threads = static_cast<int>(gridDim.x * blockDim.x);
    const int self = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = rounds < 0 ? static_cast<float>(unused[0]) : 0.0f;
    for (int round = 0; round < rounds; ++round) {
        for (int first = self; first < vectors; first += threads * PROBE_LOADS) {
            ua::Vector<float, PROBE_WIDTH> parts[PROBE_LOADS];
            UA_UNROLL
            for (int i = 0; i < PROBE_LOADS; ++i) parts[i] = ua::load<PROBE_WIDTH>(data + static_cast<long long>(first + i * threads) * PROBE_WIDTH);
            UA_UNROLL
            for (int i = 0; i < PROBE_LOADS; ++i) {
                UA_UNROLL
                for (int j = 0; j < PROBE_WIDTH; ++j) sum += parts[i][j];
            }
        }
    }
    sums[self] = sum;
}
UA_KERNEL(stream)
