// Sequential vector loads, stores or copies over a private footprint per thread.
#include "lab.h"

#ifndef VECTOR_BYTES
#error "define VECTOR_BYTES: the width of one load"
#endif

namespace {

typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
std::vector<std::unique_ptr<lab::Memory>> blocks;
std::size_t cursor = 0;

// Loads 8 vectors and throws them away; the asm statement stands for a use of each register.
inline void read_lines(Vector const* at) {
    Vector v0 = at[0], v1 = at[1], v2 = at[2], v3 = at[3], v4 = at[4], v5 = at[5], v6 = at[6], v7 = at[7];
#if defined(__aarch64__)
    asm volatile("" : : "w"(v0), "w"(v1), "w"(v2), "w"(v3), "w"(v4), "w"(v5), "w"(v6), "w"(v7));
#else
    asm volatile("" : : "x"(v0), "x"(v1), "x"(v2), "x"(v3), "x"(v4), "x"(v5), "x"(v6), "x"(v7));
#endif
}

__attribute__((noinline)) void read_pass(float const* data, std::size_t bytes) {
    auto const* const first = reinterpret_cast<Vector const*>(data);
    std::size_t const count = bytes / sizeof(Vector);
    for (std::size_t i = 0; i + 8 <= count; i += 8) read_lines(first + i);
}

__attribute__((noinline)) void write_pass(float* data, std::size_t bytes, Vector value) {
    auto* const first = reinterpret_cast<Vector*>(data);
    std::size_t const count = bytes / sizeof(Vector);
    for (std::size_t i = 0; i + 4 <= count; i += 4) {
        first[i] = value, first[i + 1] = value, first[i + 2] = value, first[i + 3] = value;
        asm volatile("" : : : "memory");
    }
}

__attribute__((noinline)) void copy_pass(float* data, std::size_t bytes) {
    std::size_t const half = bytes / 2 / sizeof(Vector);
    auto const* const from = reinterpret_cast<Vector const*>(data);
    auto* const to = reinterpret_cast<Vector*>(data) + half;
    for (std::size_t i = 0; i + 4 <= half; i += 4) {
        to[i] = from[i], to[i + 1] = from[i + 1], to[i + 2] = from[i + 2], to[i + 3] = from[i + 3];
        asm volatile("" : : : "memory");
    }
}

}  // namespace

// Gives each of `threads` threads a block of `bytes`.
extern "C" void prepare(std::int64_t bytes, std::int64_t threads) {
    blocks.clear();
    cursor = 0;
    for (std::int64_t t = 0; t < threads; ++t) {
        blocks.push_back(std::make_unique<lab::Memory>(static_cast<std::size_t>(bytes), true));
        lab::fill(blocks.back()->floats(), static_cast<std::size_t>(bytes) / sizeof(float), static_cast<unsigned>(t) + 1u);
    }
}

// Seconds in which all threads make `passes` passes over the next `window` bytes of their blocks of `bytes`.
// mode: 0 read, 1 write, 2 copy.
extern "C" double stream(std::int64_t bytes, std::int64_t window, std::int64_t threads, std::int64_t passes,
                         std::int64_t mode) {
    auto const size = static_cast<std::size_t>(window);
    if (cursor + size > static_cast<std::size_t>(bytes)) cursor = 0;
    std::size_t const first = cursor / sizeof(float);
    cursor += size;
    Vector const value = *reinterpret_cast<Vector const*>(blocks[0]->data());
    auto const body = [&](int index) {
        float* const block = blocks[static_cast<std::size_t>(index)]->floats() + first;
        for (std::int64_t p = 0; p < passes; ++p) {
            if (mode == 0) read_pass(block, size);
            if (mode == 1) write_pass(block, size, value);
            if (mode == 2) copy_pass(block, size);
        }
    };
    if (threads > 1) return lab::team(static_cast<int>(threads), body);
    double const start = lab::now();
    body(0);
    return lab::now() - start;
}
