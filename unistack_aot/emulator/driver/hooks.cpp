// The hooks that `-fsanitize=thread` puts before every access of a checked kernel. The sanitizer's own library is never linked:
// these functions are all there is, and they feed the hazard shadow and the traffic counters.
#include "memory.hpp"
#include "shadow.hpp"
#include "traffic.hpp"
#include "worker.hpp"

namespace ua::emu {

namespace {

void note(const void* address, unsigned bytes, uint32_t kind, const void* site, bool aligned) {
    Worker* self = worker;
    if (!self || !self->launch() || self->stacks().contains(address)) return;
    if (aligned && reinterpret_cast<uintptr_t>(address) % bytes)
        self->fail_illegal("misaligned %s of %u bytes at %p", kind == UA_EMU_WRITE ? "write" : "read", bytes, address);
    if (Shadow* shadow = self->shadow()) shadow->access(*self, address, bytes, static_cast<ua_emu_access>(kind));
    if (self->counters() && self->is_device_memory(address))
        self->current()->accesses.push_back({site, reinterpret_cast<uint64_t>(address), bytes, kind});
}

}  // namespace

}  // namespace ua::emu

using namespace ua::emu;

#define UA_EMU_EXPORT extern "C" __attribute__((visibility("default")))
#define UA_EMU_SITE __builtin_return_address(0)

UA_EMU_EXPORT void ua_emu_note(const void* address, unsigned bytes, enum ua_emu_access kind, const void* site) {
    note(address, bytes, kind, site ? site : UA_EMU_SITE, true);
}

UA_EMU_EXPORT void ua_emu_note_mma(unsigned instructions) {
    if (Counters* counters = worker->counters()) counters->totals.mma += instructions;
}

#define UA_EMU_HOOKS(bytes)                                                                      \
    UA_EMU_EXPORT void __tsan_read##bytes(void* p) { note(p, bytes, UA_EMU_READ, UA_EMU_SITE, true); }   \
    UA_EMU_EXPORT void __tsan_write##bytes(void* p) { note(p, bytes, UA_EMU_WRITE, UA_EMU_SITE, true); } \
    UA_EMU_EXPORT void __tsan_volatile_read##bytes(void* p) { note(p, bytes, UA_EMU_READ, UA_EMU_SITE, true); }   \
    UA_EMU_EXPORT void __tsan_volatile_write##bytes(void* p) { note(p, bytes, UA_EMU_WRITE, UA_EMU_SITE, true); } \
    UA_EMU_EXPORT void __tsan_unaligned_read##bytes(void* p) { note(p, bytes, UA_EMU_READ, UA_EMU_SITE, false); } \
    UA_EMU_EXPORT void __tsan_unaligned_write##bytes(void* p) { note(p, bytes, UA_EMU_WRITE, UA_EMU_SITE, false); }
UA_EMU_HOOKS(1)
UA_EMU_HOOKS(2)
UA_EMU_HOOKS(4)
UA_EMU_HOOKS(8)
UA_EMU_HOOKS(16)

UA_EMU_EXPORT void __tsan_read_range(void* p, long bytes) {
    note(p, static_cast<unsigned>(bytes), UA_EMU_READ, UA_EMU_SITE, false);
}
UA_EMU_EXPORT void __tsan_write_range(void* p, long bytes) {
    note(p, static_cast<unsigned>(bytes), UA_EMU_WRITE, UA_EMU_SITE, false);
}
UA_EMU_EXPORT void __tsan_init() {}
UA_EMU_EXPORT void __tsan_func_entry(void*) {}
UA_EMU_EXPORT void __tsan_func_exit() {}
UA_EMU_EXPORT void __tsan_vptr_update(void**, void*) {}
UA_EMU_EXPORT void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define UA_EMU_ATOMICS(type, bits)                                                                        \
    UA_EMU_EXPORT type __tsan_atomic##bits##_load(const volatile type* p, int) {                          \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                      \
    }                                                                                                     \
    UA_EMU_EXPORT void __tsan_atomic##bits##_store(volatile type* p, type value, int) {                   \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                     \
    }                                                                                                     \
    UA_EMU_EXPORT type __tsan_atomic##bits##_fetch_add(volatile type* p, type value, int) {               \
        note(const_cast<type*>(p), bits / 8, UA_EMU_ATOMIC, UA_EMU_SITE, true);                           \
        return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);                                            \
    }                                                                                                     \
    UA_EMU_EXPORT type __tsan_atomic##bits##_exchange(volatile type* p, type value, int) {                \
        note(const_cast<type*>(p), bits / 8, UA_EMU_ATOMIC, UA_EMU_SITE, true);                           \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                           \
    }                                                                                                     \
    UA_EMU_EXPORT int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* expected,     \
                                                                    type value, int, int) {               \
        note(const_cast<type*>(p), bits / 8, UA_EMU_ATOMIC, UA_EMU_SITE, true);                           \
        return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }                                                                                                     \
    UA_EMU_EXPORT int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* expected,       \
                                                                  type value, int, int) {                 \
        return __tsan_atomic##bits##_compare_exchange_strong(p, expected, value, 0, 0);                   \
    }                                                                                                     \
    UA_EMU_EXPORT type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type expected,        \
                                                                  type value, int, int) {                 \
        __tsan_atomic##bits##_compare_exchange_strong(p, &expected, value, 0, 0);                         \
        return expected;                                                                                  \
    }
UA_EMU_ATOMICS(uint16_t, 16)
UA_EMU_ATOMICS(uint32_t, 32)
UA_EMU_ATOMICS(uint64_t, 64)
