// The thread pool of one shared library: parallel_for over numbered tasks.
// Not here: the threads (pool_threads.h, once per library); what a task computes; how many tasks a kernel is cut into (the scheduler's choice).
//
// Contract
//   ua::set_threads(n)         how many threads (caller included) the calling thread's regions use; 1 is serial.
//   ua::parallel_for(n, f)     calls f(task) once for each task in 0..n-1, in any order; returns when all are done.
//   * Workers start at first use, are never pinned, spin for a bounded time, then sleep on a futex.
//   * Each participant owns a contiguous slice of the tasks (so caches stay warm between kernels) and steals single
//     tasks from the others when its own slice is empty. A worker that the system has not scheduled is not waited for.
//   * A nested call, and a call that finds the pool busy with another caller's region, runs serially on its own thread.
//   * f must not throw. After fork() the child starts new workers.
#pragma once
#include <cstdint>
#include <type_traits>

namespace ua {

void set_threads(int threads);

// Calls call(body, task) for each task in 0..tasks-1.
void run_tasks(int64_t tasks, void (*call)(void*, int64_t), void* body);

template <class F>
inline void parallel_for(int64_t tasks, F&& body) {
    using Body = std::remove_reference_t<F>;
    run_tasks(
        tasks, [](void* b, int64_t task) { (*static_cast<Body*>(b))(task); },
        const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace ua
