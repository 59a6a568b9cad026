// One warp reads shared memory with `stride` elements of PROBE_WIDTH floats between lanes; the pattern shifts by one element each time,
// which moves it through the banks without changing its conflicts. `elements` is a power of two.
#include "probe.cuh"

extern "C" __global__ void banks(float* sums, long long* ticks, int stride, int elements, int rounds) {
    UA_DYNAMIC_SHARED(arena);
    float* const shared = reinterpret_cast<float*>(arena);
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < elements * PROBE_WIDTH; i += 32) shared[i] = static_cast<float>(i % 251 + 1);
    __syncthreads();
    float sum = 0.0f;
    const long long start = probe::cycles();
    for (int round = 0; round < rounds; ++round) {
        ua::Vector<float, PROBE_WIDTH> parts[16];
        UA_UNROLL
        for (int i = 0; i < 16; ++i)
            parts[i] = ua::load<PROBE_WIDTH>(shared + ((lane * stride + round * 16 + i) & (elements - 1)) * PROBE_WIDTH);
        UA_UNROLL
        for (int i = 0; i < 16; ++i) {
            UA_UNROLL
            for (int j = 0; j < PROBE_WIDTH; ++j) sum += parts[i][j];
        }
    }
    const long long end = probe::cycles();
    sums[lane] = sum;
    if (lane == 0) ticks[0] = end - start;
}
UA_KERNEL(banks)
