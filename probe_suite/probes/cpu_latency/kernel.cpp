// Pointer chase: every load needs the one before it, and visits each line of the footprint once per round, in random
// order, so that neither prefetchers nor instruction parallelism can hide the wait.
#include "lab.h"

#include <numeric>
#include <utility>

namespace {

std::unique_ptr<lab::Memory> block;
void* ring = nullptr;

}  // namespace

// Links the lines of a footprint into one cycle (Sattolo's algorithm: a uniform random cyclic permutation).
extern "C" void prepare(std::int64_t bytes, std::int64_t step, std::int64_t large_pages) {
    auto const stride = static_cast<std::size_t>(step), lines = static_cast<std::size_t>(bytes) / stride;
    block.reset();
    block = std::make_unique<lab::Memory>(static_cast<std::size_t>(bytes), large_pages != 0);
    char* const base = block->data();
    std::vector<std::uint32_t> next(lines);
    std::iota(next.begin(), next.end(), 0u);
    std::minstd_rand engine(12345);
    for (std::size_t i = lines - 1; i > 0; --i) std::swap(next[i], next[engine() % i]);
    for (std::size_t i = 0; i < lines; ++i) *reinterpret_cast<void**>(base + i * stride) = base + next[i] * stride;
    ring = base;
}

// Seconds of one of rounds x 64 dependent loads.
extern "C" double chase(std::int64_t rounds) {
    void* at = ring;
    double const start = lab::now();
    for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 64
        for (int i = 0; i < 64; ++i) {
            at = *static_cast<void**>(at);
            asm volatile("" : "+r"(at));
        }
    }
    double const end = lab::now();
    ring = at;
    return (end - start) / (64.0 * static_cast<double>(rounds));
}
