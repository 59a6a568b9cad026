// One 4-byte load every `step` bytes, independent of each other: shows lines, pages and set conflicts.
#include "lab.h"

namespace {

std::unique_ptr<lab::Memory> memory;
std::size_t size = 0, cursor = 0;

}  // namespace

extern "C" void prepare(std::int64_t bytes) {
    size = static_cast<std::size_t>(bytes);
    cursor = 0;
    memory.reset();
    memory = std::make_unique<lab::Memory>(size, true);
    lab::fill(memory->floats(), size / sizeof(float), 3);
}

// Seconds of one of `loads` loads; goes on where the last call stopped.
extern "C" double sweep(std::int64_t step, std::int64_t loads) {
    std::size_t const stride = static_cast<std::size_t>(step);
    char const* const block = memory->data();
    std::size_t at = cursor;
    double const start = lab::now();
    for (std::int64_t done = 0; done < loads; done += 4) {
        if (at + 4 * stride > size) at = 0;
        float const a = *reinterpret_cast<float const*>(block + at);
        float const b = *reinterpret_cast<float const*>(block + at + stride);
        float const c = *reinterpret_cast<float const*>(block + at + 2 * stride);
        float const d = *reinterpret_cast<float const*>(block + at + 3 * stride);
#if defined(__aarch64__)
        asm volatile("" : : "w"(a), "w"(b), "w"(c), "w"(d));
#else
        asm volatile("" : : "x"(a), "x"(b), "x"(c), "x"(d));
#endif
        at += 4 * stride;
    }
    double const end = lab::now();
    cursor = at;
    return (end - start) / static_cast<double>(loads);
}
