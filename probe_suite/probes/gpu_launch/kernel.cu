// A kernel that does nothing, and one that keeps the device busy while nothings queue up behind it.
#include "probe.cuh"

extern "C" __global__ void nothing(int* flags, int never) {
    if (never) flags[threadIdx.x] = never;
}
UA_KERNEL(nothing)

extern "C" __global__ void busy(float* results, float factor, int rounds) {
    float value = static_cast<float>(threadIdx.x);
    for (int round = 0; round < rounds; ++round) value = fmaf(value, factor, 0.25f);
    results[threadIdx.x] = value;
}
UA_KERNEL(busy)
