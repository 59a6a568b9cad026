// PROBE_CHAINS independent chains of one operation per thread. One chain on one warp shows the latency, many on all units the rate.
#include "probe.cuh"

#define OP_FMA 0
#define OP_INTEGER 1
#define OP_EXP2 2
#define OP_RSQRT 3
#define OP_SHUFFLE 4
#define OP_SHARED 5

#if PROBE_OP == OP_INTEGER || PROBE_OP == OP_SHARED
typedef int Value;
#else
typedef float Value;
#endif

UA_DEVICE Value step(Value value, float factor, float term, const int* shared) {
#if PROBE_OP == OP_FMA
    return fmaf(value, factor, term);
#elif PROBE_OP == OP_INTEGER
    return value * static_cast<int>(factor) + static_cast<int>(term);
#elif PROBE_OP == OP_EXP2 && UA_EMULATED
    return exp2f(value);
#elif PROBE_OP == OP_EXP2
    Value result;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
#elif PROBE_OP == OP_RSQRT && UA_EMULATED
    return 1.0f / sqrtf(value);
#elif PROBE_OP == OP_RSQRT
    Value result;
    asm volatile("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
#elif PROBE_OP == OP_SHUFFLE
    return __shfl_xor_sync(ua::all_lanes, value, 1);
#elif PROBE_OP == OP_SHARED
    return shared[value];
#endif
}

extern "C" __global__ void chains(float* results, long long* ticks, float factor, float term, int rounds) {
    UA_DYNAMIC_SHARED(arena);
    int* const shared = reinterpret_cast<int*>(arena);
#if PROBE_OP == OP_SHARED
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += static_cast<int>(blockDim.x))
        shared[i] = (i + 37) % 256;
    __syncthreads();
#endif
    Value values[PROBE_CHAINS];
    UA_UNROLL
    for (int c = 0; c < PROBE_CHAINS; ++c) values[c] = static_cast<Value>(static_cast<int>(threadIdx.x % 32) + c + 1);
    const long long start = probe::cycles();
    for (int round = 0; round < rounds; ++round) {
        UA_UNROLL
        for (int i = 0; i < 32; ++i) {
            UA_UNROLL
            for (int c = 0; c < PROBE_CHAINS; ++c) values[c] = step(values[c], factor, term, shared);
        }
    }
    const long long end = probe::cycles();
    float sum = 0.0f;
    UA_UNROLL
    for (int c = 0; c < PROBE_CHAINS; ++c) sum += static_cast<float>(values[c]);
    results[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x == 0) ticks[blockIdx.x] = end - start;
}
UA_KERNEL(chains)
