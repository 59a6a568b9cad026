// Loads through an index vector against contiguous loads of the same table.
#include "lab.h"

#include <immintrin.h>

namespace {

std::unique_ptr<lab::Memory> table_memory, index_memory;
float* table = nullptr;
std::int32_t* indices = nullptr;
constexpr std::size_t INDEX_COUNT = 4096;

}  // namespace

extern "C" void prepare(std::int64_t bytes) {
    std::size_t const count = static_cast<std::size_t>(bytes) / sizeof(float);
    table_memory = std::make_unique<lab::Memory>(static_cast<std::size_t>(bytes), true);
    index_memory = std::make_unique<lab::Memory>(INDEX_COUNT * sizeof(std::int32_t), true);
    table = table_memory->floats();
    indices = reinterpret_cast<std::int32_t*>(index_memory->data());
    lab::fill(table, count, 7);
    std::minstd_rand engine(99);
    for (std::size_t i = 0; i < INDEX_COUNT; ++i) indices[i] = static_cast<std::int32_t>(engine() % count);
}

// Seconds of one element fetched by the gather instruction.
extern "C" double gather(std::int64_t rounds) {
    double const start = lab::now();
    for (std::int64_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < INDEX_COUNT; i += 16) {
            __m256 const a = _mm256_i32gather_ps(table, *reinterpret_cast<__m256i const*>(indices + i), 4);
            __m256 const b = _mm256_i32gather_ps(table, *reinterpret_cast<__m256i const*>(indices + i + 8), 4);
            asm volatile("" : : "x"(a), "x"(b));
        }
    }
    return (lab::now() - start) / (static_cast<double>(rounds) * INDEX_COUNT);
}

// Seconds of one element fetched by scalar loads through the same indices.
extern "C" double scalar(std::int64_t rounds) {
    double const start = lab::now();
    for (std::int64_t round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < INDEX_COUNT; i += 4) {
            float const a = table[indices[i]], b = table[indices[i + 1]];
            float const c = table[indices[i + 2]], d = table[indices[i + 3]];
            asm volatile("" : : "x"(a), "x"(b), "x"(c), "x"(d));
        }
    }
    return (lab::now() - start) / (static_cast<double>(rounds) * INDEX_COUNT);
}
