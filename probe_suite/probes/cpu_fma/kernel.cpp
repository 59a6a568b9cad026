// Independent chains of multiply-add on registers only: one chain shows the latency, many show the peak.
#include "lab.h"

#include <utility>

#ifndef VECTOR_BYTES
#error "define VECTOR_BYTES and SCALAR"
#endif

namespace {

typedef SCALAR Vector __attribute__((vector_size(VECTOR_BYTES)));

#if defined(__aarch64__)
#define IN_REGISTER(value) asm volatile("" : "+w"(value))
#else
#define IN_REGISTER(value) asm volatile("" : "+x"(value))
#endif

// Fold expressions, not loops: a loop over the array is unrolled too late for its elements to live in registers.
template <int... chain>
__attribute__((always_inline)) inline SCALAR rounds_of(std::int64_t rounds, SCALAR factor, SCALAR term, std::integer_sequence<int, chain...>) {
    Vector const scale = Vector{} + factor, offset = Vector{} + term;
    Vector acc[] = {(Vector{} + static_cast<SCALAR>(chain + 1))...};
    for (std::int64_t round = 0; round < rounds; ++round) {
        ((acc[chain] = acc[chain] * scale + offset), ...);
        (([&] { IN_REGISTER(acc[chain]); }()), ...);
    }
    return (acc[chain][0] + ...);
}

template <int chains>
__attribute__((noinline)) SCALAR multiply_add(std::int64_t rounds, SCALAR factor, SCALAR term) {
    return rounds_of(rounds, factor, term, std::make_integer_sequence<int, chains>{});
}

SCALAR dispatch(int chains, std::int64_t rounds, SCALAR factor, SCALAR term) {
    switch (chains) {
        case 1: return multiply_add<1>(rounds, factor, term);
        case 2: return multiply_add<2>(rounds, factor, term);
        case 4: return multiply_add<4>(rounds, factor, term);
        case 6: return multiply_add<6>(rounds, factor, term);
        case 8: return multiply_add<8>(rounds, factor, term);
        case 10: return multiply_add<10>(rounds, factor, term);
        default: return multiply_add<12>(rounds, factor, term);
    }
}

}  // namespace

// Seconds in which every thread makes rounds x chains vector multiply-adds. The values settle at 1: no infinities.
extern "C" double burn(std::int64_t threads, std::int64_t chains, std::int64_t rounds) {
    auto const body = [&](int) {
        lab::keep(dispatch(static_cast<int>(chains), rounds, static_cast<SCALAR>(0.75), static_cast<SCALAR>(0.25)));
    };
    if (threads > 1) return lab::team(static_cast<int>(threads), body);
    double const start = lab::now();
    body(0);
    return lab::now() - start;
}
