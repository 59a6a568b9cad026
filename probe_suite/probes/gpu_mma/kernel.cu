// PROBE_CHAINS independent accumulators of one m16n8 matrix instruction per warp, operands in registers.
//
// Every element of A is `left` and of B is `right`, so that an element of C is its number of products times left x right,
// whatever lane and register it sits in. PROBE_TYPE is ua::f16, ua::bf16 or ua::tf32.
#include "probe.cuh"

typedef ua::MatrixType<PROBE_TYPE> Matrix;

UA_DEVICE uint32_t word(float value) {
    if (sizeof(Matrix::Element) == 4) return ua::bit_cast<uint32_t>(value);
    const uint32_t half = ua::is_same<PROBE_TYPE, ua::f16>::value ? ua::cast<ua::f16>(value).bits : ua::cast<ua::bf16>(value).bits;
    return half << 16 | half;
}

extern "C" __global__ void matrix(float* results, long long* ticks, float left, float right, int rounds) {
    Matrix::AFragment a;
    Matrix::BFragment b;
    uint32_t* const a_words = reinterpret_cast<uint32_t*>(&a);
    uint32_t* const b_words = reinterpret_cast<uint32_t*>(&b);
    UA_UNROLL
    for (int i = 0; i < static_cast<int>(sizeof a / 4); ++i) a_words[i] = word(left);
    UA_UNROLL
    for (int i = 0; i < static_cast<int>(sizeof b / 4); ++i) b_words[i] = word(right);
    float c[PROBE_CHAINS][4] = {};
    const long long start = probe::cycles();
    for (int round = 0; round < rounds; ++round) {
        UA_UNROLL
        for (int i = 0; i < 4; ++i) {
            UA_UNROLL
            for (int chain = 0; chain < PROBE_CHAINS; ++chain) Matrix::multiply(c[chain], a, b);
        }
    }
    const long long end = probe::cycles();
    float sum = 0.0f;
    UA_UNROLL
    for (int chain = 0; chain < PROBE_CHAINS; ++chain) sum += c[chain][0] + c[chain][3];
    results[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x == 0) ticks[blockIdx.x] = end - start;
}
UA_KERNEL(matrix)
