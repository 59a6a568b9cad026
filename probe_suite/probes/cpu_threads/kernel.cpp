// Three ways to bring threads together: a spinning barrier, a spinning pool, a sleeping pool.
#include "lab.h"

#include <condition_variable>
#include <mutex>

namespace {

inline void pause() {
#if defined(__aarch64__)
    asm volatile("yield");
#else
    asm volatile("pause");
#endif
}

struct alignas(64) Counter {
    std::atomic<std::int64_t> value{0};
};

// Seconds of a fixed amount of arithmetic: eight independent chains of multiplications fill the multiplier of a core, so
// that it takes longer where another thread has part of the same core.
double arithmetic() {
    std::uint64_t chains[8] = {3, 5, 7, 9, 11, 13, 15, 17};
    double const begin = lab::now();
    for (int round = 0; round < 2000; ++round) {
        for (std::uint64_t& chain : chains) {
            chain *= 0x9e3779b97f4a7c15u;
            asm volatile("" : "+r"(chain));
        }
    }
    return lab::now() - begin;
}

// The arithmetic of every thread beside that of the others, before and after what is timed: the longest.
template <class Body>
double team_with_arithmetic(std::int64_t threads, double* longest, Body body) {
    std::vector<double> taken(static_cast<std::size_t>(threads));
    double const seconds = lab::team(static_cast<int>(threads), [&](int index) {
        double const before = arithmetic();
        body(index);
        double const after = arithmetic();
        taken[static_cast<std::size_t>(index)] = before > after ? before : after;
    });
    *longest = 0;
    for (double const each : taken) *longest = each > *longest ? each : *longest;
    return seconds;
}

}  // namespace

// Seconds of the arithmetic on one thread that nobody of ours disturbs.
extern "C" double alone() { return arithmetic(); }

// Seconds of one barrier among `threads` threads (central counter and generation, spinning).
extern "C" double barrier(std::int64_t threads, std::int64_t rounds, double* longest) {
    Counter arrived, generation;
    double seconds = 0;
    auto const meet = [&](std::int64_t round) {
        if (arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived.value.store(0, std::memory_order_relaxed);
            generation.value.store(round + 1, std::memory_order_release);
            return;
        }
        while (generation.value.load(std::memory_order_acquire) <= round) pause();
    };
    team_with_arithmetic(threads, longest, [&](int index) {
        meet(0);
        double const first = lab::now();
        for (std::int64_t round = 1; round <= rounds; ++round) meet(round);
        if (index == 0) seconds = lab::now() - first;
    });
    return seconds / static_cast<double>(rounds);
}

// Seconds from giving an empty task to spinning workers until all have reported back.
extern "C" double spin_region(std::int64_t threads, std::int64_t rounds, double* longest) {
    Counter start, done;
    double seconds = 0;
    auto const hand_out = [&](std::int64_t round) {
        start.value.store(round, std::memory_order_release);
        while (done.value.load(std::memory_order_acquire) < round * (threads - 1)) pause();
    };
    team_with_arithmetic(threads, longest, [&](int index) {
        if (index == 0) {
            hand_out(1);  // all are there
            double const first = lab::now();
            for (std::int64_t round = 2; round <= rounds + 1; ++round) hand_out(round);
            seconds = lab::now() - first;
            return;
        }
        for (std::int64_t round = 1; round <= rounds + 1; ++round) {
            while (start.value.load(std::memory_order_acquire) < round) pause();
            done.value.fetch_add(1, std::memory_order_acq_rel);
        }
    });
    return seconds / static_cast<double>(rounds);
}

// The same with workers that sleep on a condition variable between tasks.
extern "C" double wake_region(std::int64_t threads, std::int64_t rounds, double* longest) {
    std::mutex mutex;
    std::condition_variable begun, ended;
    std::int64_t task = 0, reports = 0;
    double seconds = 0;
    team_with_arithmetic(threads, longest, [&](int index) {
        if (index == 0) {
            double const first = lab::now();
            for (std::int64_t round = 1; round <= rounds; ++round) {
                std::unique_lock lock(mutex);
                task = round;
                begun.notify_all();
                ended.wait(lock, [&] { return reports == round * (threads - 1); });
            }
            seconds = lab::now() - first;
            return;
        }
        for (std::int64_t round = 1; round <= rounds; ++round) {
            std::unique_lock lock(mutex);
            begun.wait(lock, [&] { return task >= round; });
            if (++reports == round * (threads - 1)) ended.notify_one();
        }
    });
    return seconds / static_cast<double>(rounds);
}
