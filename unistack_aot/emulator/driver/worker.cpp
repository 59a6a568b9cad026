#include "worker.hpp"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "memory.hpp"
#include "shadow.hpp"
#include "traffic.hpp"

extern "C" {
__attribute__((visibility("default"), tls_model("initial-exec"))) __thread ua_emu_thread ua_emu_self;
}

namespace ua::emu {

Settings settings;
__thread Worker* worker;

namespace {

constexpr size_t signal_stack_bytes = 64 * 1024;

// Every fibre lives here: a finished thread waits for the next block of the launch.
void fibre_entry() {
    for (;;) worker->run_thread();
}

}  // namespace

Worker::Worker() {
    signal_stack_ = malloc(signal_stack_bytes);
    stack_t stack = {};
    stack.ss_sp = signal_stack_;
    stack.ss_size = signal_stack_bytes;
    sigaltstack(&stack, nullptr);
}

Worker::~Worker() = default;

uint32_t Worker::random() {
    random_state_ ^= random_state_ << 13;
    random_state_ ^= random_state_ >> 7;
    random_state_ ^= random_state_ << 17;
    return static_cast<uint32_t>(random_state_ >> 20);
}

unsigned Worker::pick(uint32_t lanes) {
    switch (settings.order) {
        case Order::forward: return __builtin_ctz(lanes);
        case Order::reverse: return 31 - __builtin_clz(lanes);
        case Order::random: break;
    }
    const uint32_t turn = random() & 31;
    const uint32_t rotated = (lanes >> turn) | (turn ? lanes << (32 - turn) : 0);
    return (__builtin_ctz(rotated) + turn) & 31;
}

void Worker::record(bool illegal, const char* format, va_list arguments) {
    if (failed_) return;
    char text[600];
    vsnprintf(text, sizeof text, format, arguments);
    const ua_emu_dim thread = current_ ? current_->thread : ua_emu_self.thread;
    const ua_emu_dim block = ua_emu_self.block;
    char line[900];
    snprintf(line, sizeof line, "kernel %s block (%u,%u,%u) thread (%u,%u,%u): %s", launch_->kernel->name, block.x,
             block.y, block.z, thread.x, thread.y, thread.z, text);
    failed_ = true;
    illegal_ = illegal;
    message_ = line;
}

void Worker::leave() {
    void* abandoned;
    ua_emu_switch(&abandoned, scheduler_);
    __builtin_unreachable();
}

void Worker::fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record(false, format, arguments);
    va_end(arguments);
    leave();
}

void Worker::fail_illegal(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record(true, format, arguments);
    va_end(arguments);
    leave();
}

void Worker::switch_to(Fibre* from, Fibre* to) {
    if (from == to) return;
    current_ = to;
    ua_emu_self.thread = to->thread;
    ua_emu_self.lane = to->lane;
    ua_emu_switch(&from->stack_pointer, to->stack_pointer);
}

// ---- a launch and its blocks

void Worker::prepare(const Launch& launch) {
    launch_ = &launch;
    known_start_ = known_end_ = 0;
    failed_ = illegal_ = false;
    thread_count_ = launch.block.x * launch.block.y * launch.block.z;
    warp_count_ = (thread_count_ + 31) / 32;
    random_state_ = settings.seed * 0x9E3779B97F4A7C15ull + 12345;
    stacks_.reserve(thread_count_);
    if (fibres_.size() < thread_count_) fibres_ = std::vector<Fibre>(thread_count_);
    if (warps_.size() < warp_count_) warps_ = std::vector<Warp>(warp_count_);
    warp_order_.resize(warp_count_);
    for (unsigned i = 0; i < warp_count_; i++) {
        warp_order_[i] = i;
        warps_[i].fibres = &fibres_[i * 32];
        warps_[i].index = i;
    }
    const unsigned width = launch.block.x, height = launch.block.y;
    for (unsigned i = 0; i < thread_count_; i++) {
        Fibre& fibre = fibres_[i];
        fibre.stack_pointer = stacks_.fresh(i, fibre_entry);
        fibre.thread = {i % width, i / width % height, i / (width * height)};
        fibre.lane = i & 31;
        fibre.warp = &warps_[i / 32];
        fibre.queue.clear();
        fibre.accesses.clear();
    }
    shared_storage_.resize(launch.shared_bytes + 256);
    const auto start = reinterpret_cast<uintptr_t>(shared_storage_.data());
    shared_ = reinterpret_cast<unsigned char*>((start + 127) & ~uintptr_t{127});
    ua_emu_self.shared = shared_;
    ua_emu_self.shared_bytes = launch.shared_bytes;
    ua_emu_self.block_size = launch.block;
    ua_emu_self.grid_size = launch.grid;
    shadow_ = launch.kernel->checked && settings.check ? std::make_unique<Shadow>(launch.shared_bytes) : nullptr;
    counters_ = launch.kernel->checked && settings.count ? std::make_unique<Counters>() : nullptr;
    watched_ = shadow_ || counters_ || !settings.defer_copies;
}

bool Worker::is_device_memory(const void* pointer) {
    const auto address = reinterpret_cast<uint64_t>(pointer), start = reinterpret_cast<uint64_t>(shared_);
    if (address >= start && address < start + launch_->shared_bytes) return true;
    if (address >= known_start_ && address < known_end_) return true;
    const Allocation* allocation = find_allocation(address);
    if (!allocation) return false;
    known_start_ = allocation->address;
    known_end_ = allocation->address + allocation->bytes;
    return true;
}

void Worker::run_block(ua_emu_dim block) {
    ua_emu_self.block = block;
    if (settings.poison && launch_->shared_bytes) memset(shared_, 0xff, launch_->shared_bytes);
    at_barrier_ = done_ = 0;
    vote_any = vote_count = 0;
    first_phase_ = ++phase_;
    for (unsigned i = 0; i < warp_count_; i++) {
        Warp& warp = warps_[i];
        const unsigned lanes = thread_count_ - i * 32;
        warp.all = lanes >= 32 ? ~0u : (1u << lanes) - 1;
        warp.ready = warp.all;
        warp.at_barrier = warp.done = warp.waiting = 0;
    }
    if (settings.order == Order::random)
        for (unsigned i = warp_count_; i > 1; i--) std::swap(warp_order_[i - 1], warp_order_[random() % i]);
    const unsigned first = settings.order == Order::reverse ? warp_count_ - 1 : warp_order_[0];
    Warp& warp = warps_[settings.order == Order::forward ? 0 : first];
    current_ = warp.fibres + pick(warp.ready);
    ua_emu_self.thread = current_->thread;
    ua_emu_self.lane = current_->lane;
    ua_emu_switch(&scheduler_, current_->stack_pointer);
}

void Worker::run_thread() {
    launch_->kernel->run(launch_->arguments);
    Fibre* fibre = current_;
    fibre->queue.commit();
    fibre->queue.run(0);
    Warp* warp = fibre->warp;
    warp->done |= 1u << fibre->lane;
    warp->ready &= ~(1u << fibre->lane);
    done_++;
    if (warp->done == warp->all) warp_met(warp);
    next(fibre);
}

// ---- scheduling

void Worker::warp_met(Warp* warp) {
    warp->meetings++;
    if (counters_) counters_->flush(*warp, shared_, launch_->shared_bytes);
}

void Worker::block_current() {
    current_->warp->ready &= ~(1u << current_->lane);
    next(current_);
}

bool Worker::wake_another_warp(Fibre* self) {
    const unsigned count = warp_count_, start = self->warp->index;
    for (unsigned i = 1; i <= count; i++) {
        unsigned index = 0;
        switch (settings.order) {
            case Order::forward: index = (start + i) % count; break;
            case Order::reverse: index = (start + count - i % count) % count; break;
            case Order::random: index = warp_order_[(i + phase_) % count]; break;
        }
        Warp& warp = warps_[index];
        if (!warp.ready) continue;
        switch_to(self, warp.fibres + pick(warp.ready));
        return true;
    }
    return false;
}

// The running fibre cannot go on: finds another, releases the barrier, ends the block, or reports a deadlock.
void Worker::next(Fibre* self) {
    Warp* warp = self->warp;
    if (warp->ready) {
        switch_to(self, warp->fibres + pick(warp->ready));
        return;
    }
    if (wake_another_warp(self)) return;
    if (done_ == thread_count_) {
        ua_emu_switch(&self->stack_pointer, scheduler_);
        return;
    }
    if (at_barrier_ && at_barrier_ + done_ == thread_count_) {
        release_barrier();
        if (wake_another_warp(self)) return;
    }
    deadlock();
}

void Worker::deadlock() {
    const Fibre* at_collective = nullptr;
    const Fibre* at_barrier = nullptr;
    for (unsigned i = 0; i < warp_count_; i++) {
        const Warp& warp = warps_[i];
        if (warp.waiting && !at_collective) at_collective = warp.fibres + __builtin_ctz(warp.waiting);
        if (warp.at_barrier && !at_barrier) at_barrier = warp.fibres + __builtin_ctz(warp.at_barrier);
    }
    if (!at_collective) fail("deadlock: no thread can go on");
    current_ = const_cast<Fibre*>(at_collective);
    const Warp& warp = *at_collective->warp;
    const ua_emu_site site = warp.site[at_collective->lane];
    char barrier[300] = "";
    if (at_barrier)
        snprintf(barrier, sizeof barrier, "; another thread is at the barrier %s:%d", at_barrier->barrier_site.file,
                 at_barrier->barrier_site.line);
    fail("deadlock: waits in the warp collective %s:%d, mask %08x, lanes that wait %08x, lanes that left %08x%s",
         site.file, site.line, at_collective->mask, warp.waiting, warp.done, barrier);
}

// ---- barriers and collectives

void Worker::release_barrier() {
    const Fibre* first = nullptr;
    for (unsigned i = 0; i < warp_count_; i++) {
        Warp& warp = warps_[i];
        for (uint32_t lanes = warp.at_barrier; lanes; lanes &= lanes - 1) {
            const Fibre* fibre = warp.fibres + __builtin_ctz(lanes);
            if (!first) first = fibre;
            const ua_emu_site here = fibre->barrier_site, there = first->barrier_site;
            if (here.line != there.line || here.file != there.file) {
                current_ = const_cast<Fibre*>(fibre);
                fail("divergent barrier: waits at %s:%d, thread (%u,%u,%u) waits at %s:%d", here.file, here.line,
                     first->thread.x, first->thread.y, first->thread.z, there.file, there.line);
            }
        }
        warp.ready |= warp.at_barrier;
        warp.at_barrier = 0;
        warp_met(&warp);
    }
    if (done_ && settings.strict_exit)
        fail("barrier %s:%d: %u thread(s) of the block have already left", first->barrier_site.file,
             first->barrier_site.line, done_);
    if (counters_) counters_->barriers++;
    at_barrier_ = 0;
    phase_++;
    vote_any_result = vote_any;
    vote_count_result = vote_count;
    vote_any = vote_count = 0;
}

void Worker::barrier(ua_emu_site site) {
    Fibre* fibre = current_;
    fibre->barrier_site = site;
    fibre->warp->at_barrier |= 1u << fibre->lane;
    if (++at_barrier_ + done_ == thread_count_) {
        release_barrier();
        return;
    }
    block_current();
}

void Worker::check_agreement(Warp* warp, Fibre* fibre) {
    const unsigned own = fibre->lane;
    for (uint32_t lanes = fibre->mask; lanes; lanes &= lanes - 1) {
        const unsigned lane = __builtin_ctz(lanes);
        const bool same = warp->operation[lane] == warp->operation[own] && warp->mask[lane] == warp->mask[own] &&
                          warp->site[lane].line == warp->site[own].line;
        if (same) continue;
        fail("divergent warp collective: lane %u at %s:%d with mask %08x, lane %u at %s:%d with mask %08x", own,
             warp->site[own].file, warp->site[own].line, warp->mask[own], lane, warp->site[lane].file,
             warp->site[lane].line, warp->mask[lane]);
    }
}

void Worker::collective(unsigned mask, void* mine, ua_emu_operation operation, const void* setting,
                        ua_emu_site site) {
    Fibre* fibre = current_;
    Warp* warp = fibre->warp;
    const unsigned lane = fibre->lane;
    const uint32_t bit = 1u << lane;
    if (!(mask & bit)) fail("warp collective %s:%d: the mask %08x lacks the calling lane", site.file, site.line, mask);
    mask &= warp->all;
    fibre->mask = mask;
    warp->passed[lane] = mine;
    warp->operation[lane] = operation;
    warp->site[lane] = site;
    warp->mask[lane] = mask;
    warp->waiting |= bit;
    if ((warp->waiting & mask) != mask) {
        block_current();
        return;
    }
    check_agreement(warp, fibre);
    if (operation) operation(warp->passed, mask, setting);
    warp->waiting &= ~mask;
    warp->ready |= mask;
    if (mask == (warp->all & ~warp->done)) warp_met(warp);
}

}  // namespace ua::emu

using ua::emu::worker;

#define UA_EMU_EXPORT extern "C" __attribute__((visibility("default")))

UA_EMU_EXPORT void ua_emu_warp(unsigned mask, void* mine, ua_emu_operation operation, const void* setting,
                               ua_emu_site site) {
    worker->collective(mask, mine, operation, setting, site);
}

UA_EMU_EXPORT void ua_emu_barrier(ua_emu_site site) { worker->barrier(site); }

UA_EMU_EXPORT int ua_emu_barrier_or(int value, ua_emu_site site) {
    worker->vote_any |= value != 0;
    worker->barrier(site);
    return worker->vote_any_result;
}

UA_EMU_EXPORT int ua_emu_barrier_count(int value, ua_emu_site site) {
    worker->vote_count += value != 0;
    worker->barrier(site);
    return worker->vote_count_result;
}

UA_EMU_EXPORT void ua_emu_fail(const char* message, ua_emu_site site) {
    worker->fail("%s:%d: %s", site.file, site.line, message);
}
