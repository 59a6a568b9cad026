// Copies from device to shared memory that do not pass through registers (cp.async); plain copies before sm_80.
//
// copy_async<BYTES>(shared, global, valid)  BYTES is 4, 8 or 16 and both addresses are multiples of it. Only the first `valid`
//                                           bytes are read, the rest of the target becomes zero; valid = 0 reads nothing.
// copy_commit()                             closes this thread's group of copies
// copy_wait<N>()                            waits until at most N of this thread's groups are in flight. A barrier must follow
//                                           before another thread may read the data.
#pragma once
#include "platform.cuh"

namespace ua {

#if UA_EMULATED

template <int BYTES>
UA_DEVICE void copy_async(void* shared, const void* global, int valid = BYTES, UA_SITE) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async moves 4, 8 or 16 bytes");
    ua_emu_copy_async(shared, global, BYTES, static_cast<unsigned>(valid), site);
}
UA_DEVICE void copy_commit() { ua_emu_copy_commit(); }
template <int GROUPS>
UA_DEVICE void copy_wait() {
    ua_emu_copy_wait(GROUPS);
}

#elif UA_SM >= 80

UA_DEVICE uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
template <int BYTES>
UA_DEVICE void copy_async(void* shared, const void* global, int valid = BYTES) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async moves 4, 8 or 16 bytes");
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                     "r"(valid)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global),
                     "n"(BYTES), "r"(valid)
                     : "memory");
}
UA_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS>
UA_DEVICE void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

#else

UA_DEVICE uint32_t shared_address(const void* pointer) {
#if UA_SM
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
#else
    return 0;
#endif
}
template <int BYTES>
UA_DEVICE void copy_async(void* shared, const void* global, int valid = BYTES) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async moves 4, 8 or 16 bytes");
    alignas(BYTES) unsigned char bytes[BYTES] = {};
    if (valid == BYTES)
        memcpy(bytes, __builtin_assume_aligned(global, BYTES), BYTES);
    else
        for (int i = 0; i < valid; i++) bytes[i] = static_cast<const unsigned char*>(global)[i];
    memcpy(__builtin_assume_aligned(shared, BYTES), bytes, BYTES);
}
UA_DEVICE void copy_commit() {}
template <int GROUPS>
UA_DEVICE void copy_wait() {}

#endif

}  // namespace ua
