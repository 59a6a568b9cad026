// Fibres: a stack each and a switch between them. One fibre plays one CUDA thread.
#pragma once
#include <cstddef>

namespace ua::emu {

// Saves the callee-saved registers on the running stack, stores its pointer in *from, and goes on with `to`.
extern "C" void ua_emu_switch(void** from, void* to);

// A stack for each of `count` fibres, a guard page below each one.
class Stacks {
  public:
    static constexpr size_t stack_bytes = 128 * 1024;
    Stacks() = default;
    Stacks(const Stacks&) = delete;
    Stacks& operator=(const Stacks&) = delete;
    ~Stacks();

    void reserve(unsigned count);
    // The stack pointer of fibre `index`, ready to be switched to: it will enter `entry`, which must not return.
    void* fresh(unsigned index, void (*entry)()) const;
    bool contains(const void* address) const;

  private:
    char* base_ = nullptr;
    unsigned count_ = 0;
};

}  // namespace ua::emu
