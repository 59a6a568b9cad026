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

}  // namespace

// Seconds of one barrier among `threads` threads (central counter and generation, spinning).
extern "C" double barrier(std::int64_t threads, std::int64_t rounds) {
    Counter arrived, generation;
    auto const meet = [&](std::int64_t round) {
        if (arrived.value.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived.value.store(0, std::memory_order_relaxed);
            generation.value.store(round + 1, std::memory_order_release);
            return;
        }
        while (generation.value.load(std::memory_order_acquire) <= round) pause();
    };
    double const seconds = lab::team(static_cast<int>(threads), [&](int) {
        for (std::int64_t round = 0; round < rounds; ++round) meet(round);
    });
    return seconds / static_cast<double>(rounds);
}

// Seconds from giving an empty task to spinning workers until all have reported back.
extern "C" double spin_region(std::int64_t threads, std::int64_t rounds) {
    Counter start, done;
    double seconds = 0;
    lab::team(static_cast<int>(threads), [&](int index) {
        if (index == 0) {
            double const first = lab::now();
            for (std::int64_t round = 1; round <= rounds; ++round) {
                start.value.store(round, std::memory_order_release);
                while (done.value.load(std::memory_order_acquire) < round * (threads - 1)) pause();
            }
            seconds = lab::now() - first;
            return;
        }
        for (std::int64_t round = 1; round <= rounds; ++round) {
            while (start.value.load(std::memory_order_acquire) < round) pause();
            done.value.fetch_add(1, std::memory_order_acq_rel);
        }
    });
    return seconds / static_cast<double>(rounds);
}

// The same with workers that sleep on a condition variable between tasks.
extern "C" double wake_region(std::int64_t threads, std::int64_t rounds) {
    std::mutex mutex;
    std::condition_variable begun, ended;
    std::int64_t task = 0, reports = 0;
    double seconds = 0;
    lab::team(static_cast<int>(threads), [&](int index) {
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
