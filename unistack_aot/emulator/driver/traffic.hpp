// What a profiler would count for a checked kernel: the accesses of a warp, put together instruction by instruction.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "worker.hpp"

namespace ua::emu {

// Access kinds beyond those of ua_emu_access.
enum : uint32_t { copy_read = 1 << 16, copy_write = 1 << 17 };

// Requests and sectors (32 bytes) or wavefronts (128 bytes of shared memory in one go) of one kind of access. `ideal` is the
// least number of wavefronts that the same bytes could have taken.
struct GlobalTraffic {
    uint64_t requests = 0, sectors = 0, bytes = 0;
};
struct SharedTraffic {
    uint64_t requests = 0, wavefronts = 0, ideal = 0, bytes = 0;
};

// The layout is read by Python (counters.py): uint64 fields only up to `mma`.
struct Totals {
    GlobalTraffic load, store, copy;
    SharedTraffic shared_load, shared_store, shared_ldmatrix, shared_copy;
    uint64_t atomics = 0, barriers = 0, mma = 0;
    uint64_t unique_read = 0, unique_written = 0;
    uint64_t blocks = 0, threads_per_block = 0, shared_bytes = 0;

    void add(const Totals& other);
};

// The bytes of device memory that a launch touched, one bit each.
class Footprint {
  public:
    void touch(uint64_t address, unsigned bytes);
    uint64_t count() const;
    void merge(const Footprint& other);

  private:
    std::map<uint64_t, std::vector<uint64_t>> pages_;  // 4096 bytes -> 64 words
};

struct Counters {
    Totals totals;
    Footprint read, written;
    uint64_t barriers = 0;

    // Groups what the lanes of a warp did since it last met: the n-th access of a site in every lane is one request.
    void flush(Warp& warp, const unsigned char* shared, unsigned shared_bytes);

  private:
    void count(const Access* const* lanes, const unsigned char* shared, unsigned shared_bytes);
    void count_global(const Access* const* lanes, const Access& sample);
};

struct LaunchRecord {
    std::string kernel;
    Totals totals;
};
extern std::vector<LaunchRecord> launch_records;
extern std::mutex launch_records_lock;

}  // namespace ua::emu
