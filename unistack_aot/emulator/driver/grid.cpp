#include "grid.hpp"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "grid_shadow.hpp"
#include "memory.hpp"
#include "shadow.hpp"
#include "traffic.hpp"

namespace ua::emu {

namespace {

std::string error_text;
struct sigaction previous_handlers[3];
constexpr int caught_signals[3] = {SIGSEGV, SIGBUS, SIGILL};

// A fault inside a kernel ends the launch; one outside goes to whoever handled the signal before us.
void on_fault(int number, siginfo_t* information, void*) {
    Worker* self = worker;
    if (!self || !self->launch()) {
        for (int i = 0; i < 3; i++)
            if (caught_signals[i] == number) sigaction(number, &previous_handlers[i], nullptr);
        return;
    }
    const auto address = reinterpret_cast<uint64_t>(information->si_addr);
    if (self->stacks().contains(information->si_addr)) self->fail("stack overflow");
    const Allocation* allocation = find_allocation(address);
    if (!allocation) self->fail_illegal("illegal address %#lx", static_cast<unsigned long>(address));
    self->fail_illegal("illegal address %#lx: offset %ld of an allocation of %zu bytes",
                       static_cast<unsigned long>(address), static_cast<long>(address - allocation->address),
                       allocation->bytes);
}

void install_fault_handler() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 3; i++) sigaction(caught_signals[i], &action, &previous_handlers[i]);
}

class Pool {
  public:
    Outcome run(const Launch& launch) {
        begin(launch);
        const unsigned wanted = settings.workers ? settings.workers : std::thread::hardware_concurrency();
        const bool alone = total_ < 2 || wanted < 2 || (settings.count && launch.kernel->checked);
        if (!alone) start_threads(wanted - 1);
        work();
        if (!alone) {
            std::unique_lock hold(lock_);
            finished_.wait(hold, [this] { return busy_ == 0; });
        }
        return end();
    }

  private:
    void begin(const Launch& launch) {
        begin_grid_shadow();
        launch_ = &launch;
        total_ = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
        next_block_ = 0;
        outcome_ = Outcome::done;
        totals_ = Totals{};
        read_ = Footprint{};
        written_ = Footprint{};
    }

    void start_threads(unsigned count) {
        std::lock_guard hold(lock_);
        while (threads_.size() < count) {
            threads_.emplace_back([this, seen = generation_] { serve(seen); });
            threads_.back().detach();
        }
        busy_ = static_cast<unsigned>(threads_.size());
        generation_++;
        wake_.notify_all();
    }

    void serve(uint64_t seen) {
        for (;;) {
            std::unique_lock hold(lock_);
            wake_.wait(hold, [&] { return generation_ != seen; });
            seen = generation_;
            hold.unlock();
            work();
            hold.lock();
            if (--busy_ == 0) finished_.notify_all();
        }
    }

    void work() {
        if (!worker) worker = new Worker;  // lives as long as its thread
        Worker& self = *worker;
        self.prepare(*launch_);
        const ua_emu_dim grid = launch_->grid;
        while (outcome_ == Outcome::done) {
            const uint64_t number = next_block_++;
            if (number >= total_) break;
            self.run_block({static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                            static_cast<unsigned>(number / (uint64_t{grid.x} * grid.y))});
            if (self.failed()) note_failure(self);
        }
        collect(self);
        self.finish();
    }

    void note_failure(const Worker& self) {
        std::lock_guard hold(lock_);
        if (outcome_ != Outcome::done) return;
        outcome_ = self.illegal_address() ? Outcome::illegal_address : Outcome::failed;
        set_error(self.message());
    }

    void collect(const Worker& self) {
        if (!self.counters()) return;
        std::lock_guard hold(lock_);
        totals_.add(self.counters()->totals);
        totals_.barriers += self.counters()->barriers;
        read_.merge(self.counters()->read);
        written_.merge(self.counters()->written);
    }

    Outcome end() {
        if (settings.count && launch_->kernel->checked) {
            totals_.unique_read = read_.count();
            totals_.unique_written = written_.count();
            totals_.blocks = total_;
            totals_.threads_per_block = launch_->block.x * launch_->block.y * launch_->block.z;
            totals_.shared_bytes = launch_->shared_bytes;
            std::lock_guard hold(launch_records_lock);
            launch_records.push_back({launch_->kernel->name, totals_});
        }
        return outcome_;
    }

    std::vector<std::thread> threads_;
    std::mutex lock_;
    std::condition_variable wake_, finished_;
    uint64_t generation_ = 0;
    unsigned busy_ = 0;
    const Launch* launch_ = nullptr;
    uint64_t total_ = 0;
    std::atomic<uint64_t> next_block_{0};
    std::atomic<Outcome> outcome_{Outcome::done};
    Totals totals_;
    Footprint read_, written_;
};

}  // namespace

Outcome run_grid(const Launch& launch) {
    static Pool* pool = [] {
        install_fault_handler();
        return new Pool;  // its threads never end
    }();
    static std::mutex one_at_a_time;
    std::lock_guard hold(one_at_a_time);
    return pool->run(launch);
}

const std::string& last_error() { return error_text; }
void forget_error() { error_text.clear(); }
void set_error(const std::string& message) { error_text = message; }

}  // namespace ua::emu
