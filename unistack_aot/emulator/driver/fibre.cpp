#include "fibre.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__x86_64__)
asm(R"(.text
.globl ua_emu_switch
.hidden ua_emu_switch
.type ua_emu_switch, @function
ua_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
.size ua_emu_switch, . - ua_emu_switch
)");
#elif defined(__aarch64__)
asm(R"(.text
.globl ua_emu_switch
.hidden ua_emu_switch
.type ua_emu_switch, %function
ua_emu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size ua_emu_switch, . - ua_emu_switch
)");
#else
#error "the emulator switches fibres on x86-64 and aarch64 only"
#endif

namespace ua::emu {

Stacks::~Stacks() {
    if (base_) munmap(base_, count_ * stack_bytes);
}

void Stacks::reserve(unsigned count) {
    if (count <= count_) return;
    if (base_) munmap(base_, count_ * stack_bytes);
    void* memory = mmap(nullptr, count * stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "emulator: no memory for the stacks of %u threads\n", count);
        abort();
    }
    base_ = static_cast<char*>(memory);
    count_ = count;
    for (unsigned i = 0; i < count; i++) mprotect(base_ + i * stack_bytes, 4096, PROT_NONE);
}

void* Stacks::fresh(unsigned index, void (*entry)()) const {
    // Staggered, so that the same variable of all fibres does not fall into one cache set.
    const size_t stagger = 64 + index * 832 % 16384;
    uintptr_t top = reinterpret_cast<uintptr_t>(base_) + stack_bytes * (index + 1) - stagger;
    top &= ~uintptr_t{63};
#if defined(__x86_64__)
    // The entry function finds the stack as after a call: 8 below a multiple of 16.
    auto* slot = reinterpret_cast<void**>(top - 8);
    *--slot = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; i++) *--slot = nullptr;
#else
    auto* slot = reinterpret_cast<void**>(top) - 20;
    for (int i = 0; i < 20; i++) slot[i] = nullptr;
    slot[11] = reinterpret_cast<void*>(entry);  // x30
#endif
    return slot;
}

bool Stacks::contains(const void* address) const {
    auto* byte = static_cast<const char*>(address);
    return base_ && byte >= base_ && byte < base_ + count_ * stack_bytes;
}

}  // namespace ua::emu
