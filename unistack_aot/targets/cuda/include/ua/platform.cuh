// Which compiler reads this kernel: nvcc, or a host compiler with the emulator's header. Everything that differs between the two
// is behind the names defined here and in the blocks marked UA_EMULATED of the other headers.
//
// UA_DEVICE            qualifiers of a helper
// UA_UNROLL            before a loop: unroll it fully
// UA_UNROLL_SOME       before a loop over k: unroll four turns, so that long loops do not outgrow the instruction cache
// UA_UNROLL_NOT        before a loop: do not unroll it
// UA_DYNAMIC_SHARED(p) declares p, an unsigned char* to the kernel's shared memory, 128-byte aligned
// UA_KERNEL(k)         after the definition of a kernel k: makes it known to the emulator, nothing under nvcc
// UA_SM                compute capability x 10 of the code being compiled, 0 in nvcc's host pass
#pragma once

#if defined(__CUDACC__)

#include <stdint.h>

#define UA_EMULATED 0
#define UA_UNROLL _Pragma("unroll")
#define UA_UNROLL_SOME _Pragma("unroll 4")
#define UA_UNROLL_NOT _Pragma("unroll 1")
#define UA_KERNEL(kernel)
#define UA_DYNAMIC_SHARED(name)                                             \
    extern __shared__ __align__(128) unsigned char ua_dynamic_shared_arena[]; \
    unsigned char* const name = ua_dynamic_shared_arena
#define UA_SITE int = 0
#define UA_SITE_HERE 0

#else

#include "ua_emulator/device.h"

#define UA_EMULATED 1
#define UA_SITE_HERE site

#endif

#define UA_DEVICE static __device__ __forceinline__
#define UA_METHOD __device__ __forceinline__

#ifdef __CUDA_ARCH__
#define UA_SM (__CUDA_ARCH__ / 10)
#else
#define UA_SM 0
#endif

namespace ua {

// The thread's number in its block, and in its warp.
UA_DEVICE int thread_index() {
    return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
UA_DEVICE int lane_index() { return thread_index() & 31; }
UA_DEVICE int warp_index() { return thread_index() >> 5; }

constexpr unsigned all_lanes = 0xffffffffu;

template <class A, class B>
struct is_same {
    static constexpr bool value = false;
};
template <class A>
struct is_same<A, A> {
    static constexpr bool value = true;
};

}  // namespace ua
