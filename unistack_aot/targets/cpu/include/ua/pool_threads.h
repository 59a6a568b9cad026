// The threads behind parallel_for. One translation unit of a library includes it (engine.h).
// Not here: the contract that kernels rely on (pool.h).
#pragma once
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "pool.h"

namespace ua {

inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class Pool {
  public:
    static constexpr int kMaxThreads = 256;

    static Pool& instance() {
        static Pool pool;
        return pool;
    }

    // Runs call(body, task) for each task; threads includes the caller.
    void run(int threads, int64_t tasks, void (*call)(void*, int64_t), void* body) {
        if (threads > tasks) threads = int(tasks);
        if (threads > kMaxThreads) threads = kMaxThreads;
        if (threads <= 1 || inside() || !region_.try_lock()) {
            for (int64_t task = 0; task < tasks; ++task) call(body, task);
            return;
        }
        inside() = true;
        start_workers(threads - 1);
        call_ = call, body_ = body, participants_ = threads;
        for (int i = 0; i < threads; ++i) {
            slots_[i].next.store(tasks * i / threads, std::memory_order_relaxed);
            slots_[i].end = tasks * (i + 1) / threads;
        }
        open_.store(true);
        epoch_.fetch_add(1);
        if (sleepers_.load() > 0) wake();
        work(0);
        open_.store(false);  // nobody may join from here on; wait for those who did
        for (int spins = 0; active_.load() != 0; ++spins) {
            if (spins < kSpins) cpu_relax();
            else sched_yield();
        }
        inside() = false;
        region_.unlock();
    }

    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

  private:
    // About 50 us of pauses: longer than the serial gap between two kernels, short against anything else.
    static constexpr int kSpins = 4000;
    static constexpr int kYields = 200;

    struct alignas(64) Slot {
        std::atomic<int64_t> next{0};
        int64_t end = 0;
    };

    Pool() : slots_(new Slot[kMaxThreads]) {
        pthread_atfork(nullptr, nullptr, [] { instance().forget_workers(); });
    }

    ~Pool() {
        stop_.store(true);
        epoch_.fetch_add(1);
        wake();
        for (std::thread& worker : workers_) worker.join();
        delete[] slots_;
    }

    static bool& inside() {
        static thread_local bool flag = false;
        return flag;
    }

    // Only the forking thread survives in the child: drop the handles of threads that no longer exist.
    void forget_workers() {
        new (&workers_) std::vector<std::thread>();
        new (&region_) std::mutex();
        active_.store(0), sleepers_.store(0), open_.store(false);
        inside() = false;
    }

    void start_workers(int count) {
        while (int(workers_.size()) < count) {
            const int index = int(workers_.size()) + 1;
            const uint32_t seen = epoch_.load();
            workers_.emplace_back([this, index, seen] { serve(index, seen); });
        }
    }

    void work(int self) {
        const int participants = participants_;
        for (int k = 0; k < participants; ++k) {
            const int from = self + k < participants ? self + k : self + k - participants;
            Slot& slot = slots_[from];
            for (;;) {
                const int64_t task = slot.next.fetch_add(1, std::memory_order_relaxed);
                if (task >= slot.end) break;
                call_(body_, task);
            }
        }
    }

    void serve(int index, uint32_t seen) {
        inside() = true;
        for (;;) {
            seen = await_change(seen);
            if (stop_.load()) return;
            active_.fetch_add(1);
            if (open_.load() && index < participants_) work(index);
            active_.fetch_sub(1);
        }
    }

    uint32_t await_change(uint32_t seen) {
        for (int spins = 0; spins < kSpins + kYields; ++spins) {
            const uint32_t now = epoch_.load(std::memory_order_acquire);
            if (now != seen) return now;
            if (spins < kSpins) cpu_relax();
            else sched_yield();
        }
        sleepers_.fetch_add(1);
        uint32_t now = epoch_.load();
        while (now == seen) {
            sleep_while(seen);
            now = epoch_.load();
        }
        sleepers_.fetch_sub(1);
        return now;
    }

#if defined(__linux__)
    void sleep_while(uint32_t value) {
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&epoch_), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
    }
    void wake() {
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&epoch_), FUTEX_WAKE_PRIVATE, kMaxThreads, nullptr, nullptr, 0);
    }
#else
    void sleep_while(uint32_t) { sched_yield(); }
    void wake() {}
#endif

    alignas(64) std::atomic<uint32_t> epoch_{0};
    alignas(64) std::atomic<int> active_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<bool> open_{false};
    std::atomic<bool> stop_{false};
    int participants_ = 0;
    void (*call_)(void*, int64_t) = nullptr;
    void* body_ = nullptr;
    Slot* slots_;
    std::mutex region_;
    std::vector<std::thread> workers_;
};

inline int& thread_count() {
    static thread_local int threads = 1;
    return threads;
}

void set_threads(int threads) { thread_count() = threads < 1 ? 1 : threads; }

void run_tasks(int64_t tasks, void (*call)(void*, int64_t), void* body) {
    Pool::instance().run(thread_count(), tasks, call, body);
}

}  // namespace ua
