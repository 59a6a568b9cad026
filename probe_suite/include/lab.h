// What every CPU probe needs: a clock, memory with chosen pages, threads that start together.
// Not here: anything that is measured.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/mman.h>

namespace lab {

inline double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Makes the compiler believe that `value` is used.
template <class T>
inline void keep(T const& value) {
    asm volatile("" : : "g"(value) : "memory");
}

// Zeroed memory on a 2 MiB boundary, with large pages asked for or forbidden.
class Memory {
public:
    Memory(std::size_t bytes, bool large_pages) : mapped_((bytes + 3 * page - 1) / page * page) {
        raw_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (raw_ == MAP_FAILED) throw std::bad_alloc();
        madvise(data(), mapped_ - page, large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    Memory(Memory const&) = delete;
    Memory& operator=(Memory const&) = delete;
    ~Memory() { munmap(raw_, mapped_); }

    char* data() const {
        auto const start = (reinterpret_cast<std::uintptr_t>(raw_) + page - 1) / page * page;
        return reinterpret_cast<char*>(start);
    }
    float* floats() const { return reinterpret_cast<float*>(data()); }

private:
    static constexpr std::size_t page = std::size_t{2} << 20;
    std::size_t mapped_;
    void* raw_;
};

// Random non-zero floats in [0.5, 1.5): zeros would let a machine save power and run faster than it does on real data.
inline void fill(float* data, std::size_t count, unsigned seed) {
    std::minstd_rand engine(seed);
    for (std::size_t i = 0; i < count; ++i) data[i] = 0.5f + static_cast<float>(engine() % 65536u) / 65536.0f;
}

// Keeps the calling thread on one of the processors it may use, and gives it all of them back afterwards: two spinning
// threads that land on one processor would wait for the scheduler, not for each other.
class Pinned {
public:
    explicit Pinned(int index) {
        sched_getaffinity(0, sizeof before_, &before_);
        int const wanted = index % CPU_COUNT(&before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &before_) && seen++ == wanted) CPU_SET(cpu, &one);
        }
        sched_setaffinity(0, sizeof one, &one);
    }
    Pinned(Pinned const&) = delete;
    Pinned& operator=(Pinned const&) = delete;
    ~Pinned() { sched_setaffinity(0, sizeof before_, &before_); }

private:
    cpu_set_t before_;
};

// Runs body(0) .. body(threads - 1) at once, each on a processor of its own; returns seconds from the common start to the
// last end.
template <class Body>
inline double team(int threads, Body body) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<double> ends(static_cast<std::size_t>(threads));
    auto const work = [&](int index) {
        Pinned const pinned(index);
        ready.fetch_add(1);
        while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
        body(index);
        ends[static_cast<std::size_t>(index)] = now();
    };
    std::vector<std::thread> others;
    for (int index = 1; index < threads; ++index) others.emplace_back(work, index);
    Pinned const pinned(0);
    while (ready.load() != threads - 1) std::this_thread::yield();
    double const start = now();
    go.store(true, std::memory_order_release);
    body(0);
    ends[0] = now();
    for (auto& other : others) other.join();
    double last = start;
    for (double const end : ends) last = end > last ? end : last;
    return last - start;
}

}  // namespace lab
