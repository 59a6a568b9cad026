// A worker runs the blocks of a grid one after the other: fibres, warps, barriers, and who runs next.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../include/ua_emulator/abi.h"
#include "fibre.hpp"

namespace ua::emu {

enum class Order { forward, reverse, random };

struct Settings {
    Order order = Order::forward;
    uint64_t seed = 1;
    bool poison = true;          // shared memory and new allocations hold NaN patterns
    bool tight_guard = true;     // allocations end at a protected page
    bool defer_copies = true;    // cp.async data arrives as late as the program allows
    bool strict_exit = false;    // a thread that exits before a barrier is an error
    bool check = true;           // checked kernels: look for races and bad addresses
    bool count = false;          // checked kernels: count traffic
    unsigned workers = 0;        // 0: one per processor
    unsigned generation = 80;    // compute capability x 10
};
extern Settings settings;

struct Launch {
    const ua_emu_kernel* kernel;
    void** arguments;
    ua_emu_dim grid, block;
    unsigned shared_bytes;
};

// Small: a kernel that gathers has thousands in flight, and writing them down is what they cost.
struct PendingCopy {
    const void* global;
    uint32_t shared;  // offset in the block's arena
    uint16_t bytes, valid_bytes;
};

// First in, first out, in a ring that grows when full. Small on purpose: a block has hundreds, and they share a cache.
template <class T>
class Ring {
  public:
    unsigned size() const { return last_ - first_; }
    const T& front() const { return items_[first_ & (items_.size() - 1)]; }
    void pop() { first_++; }
    void clear() { first_ = last_ = 0; }
    void push(const T& item) {
        if (size() == items_.size()) grow();
        items_.data()[last_++ & (items_.size() - 1)] = item;
    }

  private:
    void grow() {
        std::vector<T> larger(items_.empty() ? 4 : items_.size() * 2);
        const unsigned count = size();
        for (unsigned i = 0; i < count; i++) larger[i] = items_[(first_ + i) & (items_.size() - 1)];
        items_.swap(larger);
        first_ = 0;
        last_ = count;
    }
    std::vector<T> items_;
    unsigned first_ = 0, last_ = 0;
};

// The cp.async copies of one thread that have not arrived yet; groups holds how many each committed group has.
struct CopyQueue {
    Ring<PendingCopy> copies;
    Ring<unsigned> groups;
    unsigned open = 0;  // copies since the last commit

    void clear();
    void add(const PendingCopy& copy) {
        copies.push(copy);
        open++;
    }
    void commit() {
        groups.push(open);
        open = 0;
    }
    // Performs the oldest groups until groups_left remain.
    void run(unsigned groups_left);
};

struct Access {
    const void* site;
    uint64_t address;
    uint32_t bytes;
    uint32_t kind;
};

struct Warp;

struct Fibre {
    void* stack_pointer;
    ua_emu_dim thread;
    unsigned lane;
    Warp* warp;
    ua_emu_site barrier_site;
    uint32_t mask;
    CopyQueue queue;
    std::vector<Access> accesses;  // since the warp last met; counting only
};

struct Warp {
    uint32_t all, ready, at_barrier, waiting, done;
    Fibre* fibres;
    unsigned index;
    uint32_t meetings;  // grows whenever the whole warp has met
    void* passed[32];
    ua_emu_operation operation[32];
    ua_emu_site site[32];
    uint32_t mask[32];
};

struct Counters;  // traffic.hpp
class Shadow;     // shadow.hpp

class Worker {
  public:
    Worker();
    ~Worker();

    void prepare(const Launch& launch);
    void run_block(ua_emu_dim block);
    void finish() { launch_ = nullptr; }

    void barrier(ua_emu_site site);
    void collective(unsigned mask, void* mine, ua_emu_operation operation, const void* setting, ua_emu_site site);
    void run_thread();  // one thread of a block, then the next one

    // Records the first error of the launch and leaves the block; never returns.
    [[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
    [[noreturn]] void fail_illegal(const char* format, ...) __attribute__((format(printf, 2, 3)));
    bool failed() const { return failed_; }
    bool illegal_address() const { return illegal_; }
    const std::string& message() const { return message_; }

    const Launch* launch() const { return launch_; }
    Fibre* current() const { return current_; }
    unsigned thread_number(const Fibre* fibre) const { return static_cast<unsigned>(fibre - fibres_.data()); }
    const Stacks& stacks() const { return stacks_; }
    unsigned char* shared() const { return shared_; }
    uint32_t phase() const { return phase_; }
    uint32_t first_phase() const { return first_phase_; }
    // Shared memory or an allocation: not a stack, not the arguments, not a constant of the image.
    bool is_device_memory(const void* address);
    Shadow* shadow() const { return shadow_.get(); }
    Counters* counters() const { return counters_.get(); }
    // Somebody wants to know of each access, or copies shall arrive at once.
    bool watched() const { return watched_; }

    int vote_any = 0, vote_count = 0;            // being collected
    int vote_any_result = 0, vote_count_result = 0;  // of the barrier that was released last

  private:
    void next(Fibre* self);
    void block_current();
    void release_barrier();
    bool wake_another_warp(Fibre* self);
    [[noreturn]] void deadlock();
    [[noreturn]] void leave();
    void record(bool illegal, const char* format, va_list arguments);
    void switch_to(Fibre* from, Fibre* to);
    unsigned pick(uint32_t lanes);
    uint32_t random();
    void check_agreement(Warp* warp, Fibre* fibre);
    void warp_met(Warp* warp);

    Stacks stacks_;
    std::vector<Fibre> fibres_;
    std::vector<Warp> warps_;
    std::vector<unsigned> warp_order_;
    void* scheduler_ = nullptr;  // the stack pointer of run_block
    Fibre* current_ = nullptr;
    const Launch* launch_ = nullptr;
    unsigned thread_count_ = 0, warp_count_ = 0, at_barrier_ = 0, done_ = 0;
    uint32_t phase_ = 1, first_phase_ = 1;  // grow at each barrier and block
    uint64_t random_state_ = 1;
    bool failed_ = false, illegal_ = false;
    std::string message_;
    std::vector<unsigned char> shared_storage_;
    unsigned char* shared_ = nullptr;
    uint64_t known_start_ = 0, known_end_ = 0;  // the allocation that was asked about last
    std::unique_ptr<Shadow> shadow_;
    std::unique_ptr<Counters> counters_;
    bool watched_ = false;
    void* signal_stack_ = nullptr;
};

// Not thread_local: access to that from another file goes through a function, in case it has to be constructed.
extern __thread Worker* worker __attribute__((tls_model("initial-exec")));

}  // namespace ua::emu
