// One thread per element, for the tests of the device headers: every scalar function, every cast.
#include "ua/kernel.cuh"

template <class T>
UA_DEVICE T unary(int which, T x) {
    switch (which) {
        case 0: return ua::exp(x);
        case 1: return ua::log(x);
        case 2: return ua::tanh(x);
        case 3: return ua::erf(x);
        case 4: return ua::sigmoid(x);
        case 5: return ua::sqrt(x);
        case 6: return ua::rsqrt(x);
        case 7: return ua::floor(x);
        case 8: return ua::ceil(x);
        case 9: return ua::round_even(x);
        case 10: return ua::abs(x);
        case 11: return ua::sign(x);
        case 12: return ua::sin(x);
        case 13: return ua::cos(x);
        case 14: return ua::tan(x);
        case 15: return ua::asin(x);
        case 16: return ua::acos(x);
        case 17: return ua::atan(x);
        case 18: return ua::sinh(x);
        case 19: return ua::cosh(x);
        case 20: return ua::asinh(x);
        case 21: return ua::acosh(x);
        case 22: return ua::atanh(x);
        case 23: return ua::log1p(x);
        case 24: return ua::expm1(x);
        default: return ua::reciprocal(x);
    }
}
template <class T>
UA_DEVICE T binary(int which, T x, T y) {
    switch (which) {
        case 0: return ua::min(x, y);
        case 1: return ua::max(x, y);
        case 2: return ua::mod(x, y);
        case 3: return ua::fmod(x, y);
        case 4: return ua::pow(x, y);
        default: return ua::divide(x, y);
    }
}

#define UNARY(name, T)                                                                                   \
    extern "C" __global__ void name(const T* __restrict__ x, T* __restrict__ y, int n, int which) {      \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                             \
        if (i < n) y[i] = unary(which, x[i]);                                                            \
    }                                                                                                    \
    UA_KERNEL(name)
#define BINARY(name, T)                                                                                            \
    extern "C" __global__ void name(const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ z, int n,    \
                                    int which) {                                                                   \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                                       \
        if (i < n) z[i] = binary(which, x[i], y[i]);                                                               \
    }                                                                                                              \
    UA_KERNEL(name)
#define CAST(name, From, To)                                                                             \
    extern "C" __global__ void name(const From* __restrict__ x, To* __restrict__ y, int n) {             \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                             \
        if (i < n) y[i] = ua::cast<To>(x[i]);                                                            \
    }                                                                                                    \
    UA_KERNEL(name)

UNARY(unary_f32, float)
UNARY(unary_f64, double)
BINARY(binary_f32, float)
BINARY(binary_f64, double)
BINARY(binary_i32, int)
BINARY(binary_i64, long long)
CAST(cast_f32_f16, float, ua::f16)
CAST(cast_f64_f16, double, ua::f16)
CAST(cast_f16_f32, ua::f16, float)
CAST(cast_f32_bf16, float, ua::bf16)
CAST(cast_bf16_f32, ua::bf16, float)
CAST(cast_f32_i8, float, int8_t)
CAST(cast_f32_u8, float, uint8_t)
CAST(cast_f32_i32, float, int32_t)
CAST(cast_f32_u32, float, uint32_t)
CAST(cast_f32_i64, float, long long)
CAST(cast_f64_i64, double, long long)
CAST(cast_f64_u64, double, unsigned long long)
CAST(cast_f32_bool, float, bool)
CAST(cast_i64_i32, long long, int32_t)
CAST(cast_i32_f16, int32_t, ua::f16)
