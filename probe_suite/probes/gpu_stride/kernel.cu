// Each lane of a warp loads 4 bytes, `stride` words from its neighbour; eight loads are under way at once.
//
// `mask` is the buffer's length in words minus one; the length is a power of two.
#include "probe.cuh"

extern "C" __global__ void strided(const float* data, float* sums, int stride, int mask, int rounds) {
    const int self = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const int threads = static_cast<int>(gridDim.x * blockDim.x);
    float sum = 0.0f;
    int at = self * stride;
    for (int round = 0; round < rounds; ++round) {
        float parts[8];
        UA_UNROLL
        for (int i = 0; i < 8; ++i) parts[i] = data[(at + i * threads * stride) & mask];
        UA_UNROLL
        for (int i = 0; i < 8; ++i) sum += parts[i];
        at += 8 * threads * stride;
    }
    sums[self] = sum;
}
UA_KERNEL(strided)
