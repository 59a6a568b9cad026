// Kernels with one planted mistake each, and two sound ones, for the tests of the emulator. One block of 256 threads reads
// x[256] and writes y[256]; each needs 1024 bytes of shared memory.
#include "ua/kernel.cuh"

#define BLOCK(name) extern "C" __global__ void name(const float* x, float* y, int n)

BLOCK(sound) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[255 - t];
}
UA_KERNEL(sound)

BLOCK(sound_async) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    if (t < 64) ua::copy_async<16>(s + t * 4, x + t * 4);
    ua::copy_commit();
    ua::copy_wait<0>();
    __syncthreads();
    y[t] = s[255 - t];
}
UA_KERNEL(sound_async)

BLOCK(no_barrier_next) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    s[t] = x[t];
    y[t] = s[(t + 1) & 255];
}
UA_KERNEL(no_barrier_next)

BLOCK(no_barrier_previous) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    s[t] = x[t];
    y[t] = t ? s[t - 1] : 0.0f;
}
UA_KERNEL(no_barrier_previous)

BLOCK(overwritten_too_early) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 4; k++) {
        s[t] = x[(t + k) & 255];
        __syncthreads();
        sum += s[(t * 7 + 3) & 255];
    }
    y[t] = sum;
}
UA_KERNEL(overwritten_too_early)

BLOCK(no_warp_barrier) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    s[t] = x[t];
    y[t] = s[t & ~31];
}
UA_KERNEL(no_warp_barrier)

BLOCK(no_copy_wait) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    if (t < 64) ua::copy_async<16>(s + t * 4, x + t * 4);
    ua::copy_commit();
    __syncthreads();
    y[t] = s[255 - t];
}
UA_KERNEL(no_copy_wait)

BLOCK(no_barrier_after_copy) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    if (t < 64) ua::copy_async<16>(s + t * 4, x + t * 4);
    ua::copy_commit();
    ua::copy_wait<0>();
    y[t] = s[t];
}
UA_KERNEL(no_barrier_after_copy)

BLOCK(copied_over_too_early) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 2; k++) {
        if (t < 64) ua::copy_async<16>(s + t * 4, x + ((t + k) & 63) * 4);
        ua::copy_commit();
        ua::copy_wait<0>();
        __syncthreads();
        sum += s[255 - t];
    }
    y[t] = sum;
}
UA_KERNEL(copied_over_too_early)

BLOCK(uninitialised) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    if (t < 255) s[t] = x[t];
    __syncthreads();
    y[t] = s[255 - t];
}
UA_KERNEL(uninitialised)

BLOCK(reads_past_end) { y[threadIdx.x] = x[threadIdx.x + 1]; }
UA_KERNEL(reads_past_end)

BLOCK(reads_before_start) { y[threadIdx.x] = x[(int)threadIdx.x - 5000]; }
UA_KERNEL(reads_before_start)

BLOCK(writes_past_end) { y[threadIdx.x + (threadIdx.x == 255)] = x[threadIdx.x]; }
UA_KERNEL(writes_past_end)

BLOCK(copies_from_past_end) {
    UA_DYNAMIC_SHARED(arena);
    const int t = threadIdx.x;
    if (t < 64) ua::copy_async<16>(arena + t * 16, x + t * 4 + 4);
    ua::copy_commit();
    ua::copy_wait<0>();
    __syncthreads();
    y[t] = reinterpret_cast<float*>(arena)[t];
}
UA_KERNEL(copies_from_past_end)

BLOCK(shared_past_end) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    s[t + (t == 255)] = x[t];
    __syncthreads();
    y[t] = t ? s[t - 1] : 0.0f;
}
UA_KERNEL(shared_past_end)

BLOCK(misaligned) {
    const int t = threadIdx.x;
    if (t < 60) ua::store(y + t * 4, ua::load<4>(x + t * 4 + 1));
}
UA_KERNEL(misaligned)

BLOCK(two_barriers) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    s[t] = x[t];
    if (t < 128) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    y[t] = s[255 - t];
}
UA_KERNEL(two_barriers)

BLOCK(leaves_before_barrier) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    s[t] = x[t];
    if (t >= 250) return;
    __syncthreads();
    y[t] = s[255 - t];
}
UA_KERNEL(leaves_before_barrier)

BLOCK(divergent_shuffle) {
    const int t = threadIdx.x;
    float value = x[t];
    if (t & 1) value = __shfl_xor_sync(0xffffffffu, value, 2);
    y[t] = value;
}
UA_KERNEL(divergent_shuffle)

BLOCK(shuffle_outside_mask) {
    const int t = threadIdx.x;
    float value = x[t];
    if (t % 32 < 16) value = __shfl_sync(0x0000ffffu, value, 20);
    y[t] = value;
}
UA_KERNEL(shuffle_outside_mask)

// ---- copies and fragments out of step

BLOCK(waits_for_too_few) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    for (int half = 0; half < 2; half++) {
        if (t < 32) ua::copy_async<16>(s + half * 128 + t * 4, x + half * 128 + t * 4);
        ua::copy_commit();
    }
    ua::copy_wait<1>();
    __syncthreads();
    y[t] = s[255 - t];
}
UA_KERNEL(waits_for_too_few)

BLOCK(stored_into_flight) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    if (t < 64) ua::copy_async<16>(s + t * 4, x + t * 4);
    ua::copy_commit();
    if (t < 64) s[t * 4] = 0.0f;
    ua::copy_wait<0>();
    __syncthreads();
    y[t] = s[255 - t];
}
UA_KERNEL(stored_into_flight)

BLOCK(fragment_before_wait) {
    UA_DYNAMIC_SHARED(arena);
    const int t = threadIdx.x;
    if (t < 64) ua::copy_async<16>(arena + t * 16, x + t * 4);
    ua::copy_commit();
    __syncthreads();
    uint32_t fragment[4];
    ua::detail::load_matrices<4, false>(fragment, arena + t % 32 * 16);
    ua::copy_wait<0>();
    y[t] = ua::bit_cast<float>(fragment[t % 4]);
}
UA_KERNEL(fragment_before_wait)

BLOCK(fragment_before_barrier) {
    UA_DYNAMIC_SHARED(arena);
    const int t = threadIdx.x;
    reinterpret_cast<float*>(arena)[t] = x[t];
    uint32_t fragment[4];
    ua::detail::load_matrices<4, false>(fragment, arena + (t + 32) % 64 * 16);
    __syncthreads();
    y[t] = ua::bit_cast<float>(fragment[t % 4]);
}
UA_KERNEL(fragment_before_barrier)

// The second turn fills the stage while a slower warp may still load its fragment of the first.
BLOCK(stage_filled_too_early) {
    UA_DYNAMIC_SHARED(arena);
    const int t = threadIdx.x;
    float sum = 0.0f;
    for (int turn = 0; turn < 2; turn++) {
        reinterpret_cast<float*>(arena)[t] = x[(t + turn * 64) & 255];
        __syncthreads();
        uint32_t fragment[4];
        ua::detail::load_matrices<4, false>(fragment, arena + t % 64 * 16);
        sum += ua::bit_cast<float>(fragment[t % 4]);
    }
    y[t] = sum;
}
UA_KERNEL(stage_filled_too_early)

BLOCK(mma_in_half_a_warp) {
    const int t = threadIdx.x;
    float c[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    if (t % 32 < 16) ua::detail::multiply_add<ua::detail::mma_f16>(c, a, b);
    y[t] = c[0];
}
UA_KERNEL(mma_in_half_a_warp)

// ---- bounds and alignment

BLOCK(reads_shared_past_end) {
    UA_DYNAMIC_SHARED(arena);
    float* s = reinterpret_cast<float*>(arena);
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[t + 1];
}
UA_KERNEL(reads_shared_past_end)

BLOCK(copies_past_end) {
    UA_DYNAMIC_SHARED(arena);
    const int t = threadIdx.x;
    if (t < 64) ua::copy_async<16>(arena + t * 16 + 16, x + t * 4);
    ua::copy_commit();
    ua::copy_wait<0>();
    __syncthreads();
    y[t] = x[t];
}
UA_KERNEL(copies_past_end)

BLOCK(misaligned_store) {
    const int t = threadIdx.x;
    if (t < 60) ua::store(y + t * 4 + 2, ua::load<4>(x + t * 4));
}
UA_KERNEL(misaligned_store)

BLOCK(misaligned_copy) {
    UA_DYNAMIC_SHARED(arena);
    const int t = threadIdx.x;
    if (t < 60) ua::copy_async<16>(arena + t * 16, x + t * 4 + 1);
    ua::copy_commit();
    ua::copy_wait<0>();
    y[t] = x[t];
}
UA_KERNEL(misaligned_copy)

BLOCK(misaligned_fragment) {
    UA_DYNAMIC_SHARED(arena);
    const int t = threadIdx.x;
    reinterpret_cast<float*>(arena)[t] = x[t];
    __syncthreads();
    uint32_t fragment[4];
    ua::detail::load_matrices<4, false>(fragment, arena + t % 32 * 16 + 8);
    y[t] = ua::bit_cast<float>(fragment[0]);
}
UA_KERNEL(misaligned_fragment)

// ---- who meets whom

BLOCK(uneven_barriers) {
    const int t = threadIdx.x;
    for (int turn = 0; turn < (t < 128 ? 2 : 3); turn++) __syncthreads();
    y[t] = x[t];
}
UA_KERNEL(uneven_barriers)

BLOCK(masks_disagree) {
    const int t = threadIdx.x;
    y[t] = __shfl_xor_sync(t & 1 ? 0xffffffffu : 0xfffffffeu | 1u << (t & 31), x[t], 2);
}
UA_KERNEL(masks_disagree)

BLOCK(barrier_against_collective) {
    const int t = threadIdx.x;
    float value = x[t];
    if (t & 1)
        __syncthreads();
    else
        value = __shfl_xor_sync(0xffffffffu, value, 2);
    y[t] = value;
}
UA_KERNEL(barrier_against_collective)

// Meant for a grid of four: every block writes the same element.
BLOCK(blocks_race) {
    y[threadIdx.x % 128 + 128 * (blockIdx.x % 2)] = x[threadIdx.x] + blockIdx.x;
}
UA_KERNEL(blocks_race)
