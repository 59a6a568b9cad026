// A chain of dependent exclusive-ors: one cycle each on every processor this project builds for, and never removed at
// register renaming (adds of a constant are, on some).
#include "lab.h"

#define STEP "xor %1, %0\n\t"
#if defined(__aarch64__)
#undef STEP
#define STEP "eor %0, %0, %1\n\t"
#endif
#define STEP8 STEP STEP STEP STEP STEP STEP STEP STEP
#define STEP64 STEP8 STEP8 STEP8 STEP8 STEP8 STEP8 STEP8 STEP8

// Seconds of one link of a chain of rounds x 64 links.
extern "C" double chain(std::int64_t rounds) {
    std::uint64_t value = 1, other = 0x9e3779b97f4a7c15u;
    double const start = lab::now();
    for (std::int64_t round = 0; round < rounds; ++round) asm volatile(STEP64 : "+r"(value) : "r"(other));
    double const end = lab::now();
    lab::keep(value);
    return (end - start) / (64.0 * static_cast<double>(rounds));
}
