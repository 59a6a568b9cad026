// CUDA's built-in words for a host compiler: qualifiers, thread coordinates, barriers, warp collectives, atomics, kernel export.
//
// A kernel includes "ua/kernel.cuh", which includes this file when the compiler is not nvcc. Static shared memory does not
// exist here: a kernel has one dynamic arena (UA_DYNAMIC_SHARED) whose bounds are then known exactly.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"

#ifndef UA_EMULATOR_SM
#define UA_EMULATOR_SM 80
#endif
#define __CUDA_ARCH__ (UA_EMULATOR_SM * 10)

#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __shared__ the_emulator_has_no_static_shared_memory_use_UA_DYNAMIC_SHARED

// Unrolling pays on a GPU, where arrays must become registers. Here it multiplies compile time; UA_UNROLL_HOST is for the few
// loops that need it on a processor too.
#define UA_UNROLL
#define UA_UNROLL_SOME
#define UA_UNROLL_NOT
#if defined(__clang__)
#define UA_UNROLL_HOST _Pragma("unroll")
#else
#define UA_UNROLL_HOST _Pragma("GCC unroll 16")
#endif

#define threadIdx (ua_emu_self.thread)
#define blockIdx (ua_emu_self.block)
#define blockDim (ua_emu_self.block_size)
#define gridDim (ua_emu_self.grid_size)

#define UA_DYNAMIC_SHARED(name) unsigned char* const name = ua_emu_self.shared

// The place of a call, for the messages of the emulator: `UA_SITE` as the last parameter of a helper.
#define UA_SITE ua_emu_site site = {__builtin_FILE(), __builtin_LINE()}

static inline void __syncthreads(UA_SITE) { ua_emu_barrier(site); }
static inline int __syncthreads_or(int value, UA_SITE) { return ua_emu_barrier_or(value, site); }
static inline int __syncthreads_count(int value, UA_SITE) { return ua_emu_barrier_count(value, site); }
static inline void __syncwarp(unsigned mask = 0xffffffffu, UA_SITE) { ua_emu_warp(mask, nullptr, nullptr, nullptr, site); }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

namespace ua_emulator {

// A shuffle: every lane gives a value and the lane it wants to read.
template <class T>
struct Exchange {
    T value, result;
    unsigned source;
    ua_emu_site site;
};

template <class T>
void exchange(void** lanes, unsigned mask, const void*) {
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        auto* mine = static_cast<Exchange<T>*>(lanes[__builtin_ctz(rest)]);
        if (!(mask >> mine->source & 1)) ua_emu_fail("a shuffle reads a lane outside its mask", mine->site);
        mine->result = static_cast<Exchange<T>*>(lanes[mine->source])->value;
    }
}

template <class T>
T shuffle(unsigned mask, T value, unsigned source, ua_emu_site site) {
    Exchange<T> mine = {value, value, source, site};
    ua_emu_warp(mask, &mine, exchange<T>, nullptr, site);
    return mine.result;
}

struct Vote {
    unsigned predicate, result;
};

inline void vote(void** lanes, unsigned mask, const void*) {
    unsigned ballot = 0;
    for (unsigned rest = mask; rest; rest &= rest - 1) {
        const unsigned lane = __builtin_ctz(rest);
        ballot |= static_cast<Vote*>(lanes[lane])->predicate << lane;
    }
    for (unsigned rest = mask; rest; rest &= rest - 1) static_cast<Vote*>(lanes[__builtin_ctz(rest)])->result = ballot;
}

}  // namespace ua_emulator

template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, UA_SITE) {
    const unsigned lane = ua_emu_self.lane;
    return ua_emulator::shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), site);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32, UA_SITE) {
    const unsigned lane = ua_emu_self.lane, other = lane ^ flip;
    return ua_emulator::shuffle(mask, value, other > (lane | (width - 1)) ? lane : other, site);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, UA_SITE) {
    const unsigned lane = ua_emu_self.lane, other = lane + distance;
    return ua_emulator::shuffle(mask, value, other > (lane | (width - 1)) ? lane : other, site);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, UA_SITE) {
    const unsigned lane = ua_emu_self.lane, first = lane & ~(width - 1);
    return ua_emulator::shuffle(mask, value, lane < first + distance ? lane : lane - distance, site);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, UA_SITE) {
    ua_emulator::Vote mine = {predicate != 0, 0};
    ua_emu_warp(mask, &mine, ua_emulator::vote, nullptr, site);
    return mine.result;
}
static inline int __any_sync(unsigned mask, int predicate, UA_SITE) { return __ballot_sync(mask, predicate, site) != 0; }
static inline int __all_sync(unsigned mask, int predicate, UA_SITE) { return __ballot_sync(mask, !predicate, site) == 0; }

// ---- atomics, and the bit casts they need

template <class To, class From>
static inline To ua_emu_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To result;
    __builtin_memcpy(&result, &value, sizeof result);
    return result;
}

template <class Word, class T, class Change>
static inline T ua_emu_atomic(T* address, Change change) {
    auto* word = reinterpret_cast<Word*>(address);
    Word seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &seen, ua_emu_bits<Word>(change(ua_emu_bits<T>(seen))), false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return ua_emu_bits<T>(seen);
}

static inline int atomicAdd(int* p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static inline unsigned atomicAdd(unsigned* p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static inline unsigned long long atomicAdd(unsigned long long* p, unsigned long long v) {
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
static inline float atomicAdd(float* p, float v) {
    return ua_emu_atomic<uint32_t>(p, [v](float old) { return old + v; });
}
static inline double atomicAdd(double* p, double v) {
    return ua_emu_atomic<uint64_t>(p, [v](double old) { return old + v; });
}
static inline int atomicMax(int* p, int v) {
    return ua_emu_atomic<uint32_t>(p, [v](int old) { return old < v ? v : old; });
}
static inline int atomicMin(int* p, int v) {
    return ua_emu_atomic<uint32_t>(p, [v](int old) { return v < old ? v : old; });
}
static inline int atomicExch(int* p, int v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }
static inline unsigned atomicCAS(unsigned* p, unsigned expected, unsigned v) {
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
static inline int atomicCAS(int* p, int expected, int v) {
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
static inline unsigned long long atomicCAS(unsigned long long* p, unsigned long long expected, unsigned long long v) {
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

// ---- kernel export: a table that unpacks the arguments by the kernel's own type

namespace ua_emulator {

template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
    typedef Indices<I...> Type;
};

template <class Function, Function Kernel>
struct Entry;
template <class... Arguments, void (*Kernel)(Arguments...)>
struct Entry<void (*)(Arguments...), Kernel> {
    template <int... I>
    static void call(void** arguments, Indices<I...>) {
        (void)arguments;
        Kernel(*static_cast<Arguments*>(arguments[I])...);
    }
    __attribute__((no_sanitize("thread"))) static void run(void** arguments) {
        call(arguments, typename MakeIndices<sizeof...(Arguments)>::Type{});
    }
    static constexpr unsigned sizes[] = {static_cast<unsigned>(sizeof(Arguments))..., 0};
    static constexpr unsigned alignments[] = {static_cast<unsigned>(alignof(Arguments))..., 0};
    static constexpr unsigned count = sizeof...(Arguments);
};

}  // namespace ua_emulator

#ifdef UA_EMULATOR_CHECKED
#define UA_EMULATOR_IS_CHECKED 1
#else
#define UA_EMULATOR_IS_CHECKED 0
#endif

#define UA_KERNEL(kernel)                                                                                           \
    extern "C" __attribute__((visibility("default"), used)) const ua_emu_kernel ua_emu_kernel_##kernel = {          \
        ua_emulator::Entry<decltype(&kernel), &kernel>::run,   ua_emulator::Entry<decltype(&kernel), &kernel>::count, \
        ua_emulator::Entry<decltype(&kernel), &kernel>::sizes, ua_emulator::Entry<decltype(&kernel), &kernel>::alignments, \
        #kernel, UA_EMULATOR_IS_CHECKED};
