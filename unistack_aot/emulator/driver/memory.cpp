#include "memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "grid_shadow.hpp"
#include "worker.hpp"

namespace ua::emu {

namespace {

constexpr size_t page_bytes = 4096;
constexpr size_t guard_bytes = 64 * 1024;  // behind an allocation; before it, one page

std::shared_mutex lock;
std::map<uint64_t, Allocation> allocations;  // by mapping address
size_t used;

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

uint64_t allocate(size_t bytes) {
    std::unique_lock guard(lock);
    if (used + bytes > device_bytes) return 0;
    // Tight: the last byte lies against the guard page, as far as 16-byte alignment allows. Otherwise 256-byte aligned, as
    // a real driver does, so that sectors count as they would there.
    const size_t alignment = settings.tight_guard ? 16 : 256;
    const size_t rounded = round_up(bytes, alignment), pages = round_up(rounded, page_bytes);
    const size_t mapping_bytes = page_bytes + pages + guard_bytes;
    void* mapping = mmap(nullptr, mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return 0;
    char* first = static_cast<char*>(mapping) + page_bytes;
    mprotect(first, pages, PROT_READ | PROT_WRITE);
    char* start = settings.tight_guard ? first + pages - rounded : first;
    if (settings.poison) memset(start, 0xff, bytes);
    used += bytes;
    const auto key = reinterpret_cast<uint64_t>(mapping);
    allocations[key] = {reinterpret_cast<uint64_t>(start), bytes, mapping, mapping_bytes};
    return allocations[key].address;
}

const Allocation* find_allocation(uint64_t address) {
    std::shared_lock guard(lock);
    auto next = allocations.upper_bound(address);
    if (next == allocations.begin()) return nullptr;
    const Allocation& candidate = std::prev(next)->second;
    const auto mapping = reinterpret_cast<uint64_t>(candidate.mapping);
    return address < mapping + candidate.mapping_bytes ? &candidate : nullptr;
}

bool release(uint64_t address) {
    const Allocation* found = find_allocation(address);
    std::unique_lock guard(lock);
    if (!found || found->address != address) return false;
    used -= found->bytes;
    drop_grid_shadow(address);
    munmap(found->mapping, found->mapping_bytes);
    allocations.erase(reinterpret_cast<uint64_t>(found->mapping));
    return true;
}

bool inside_allocation(uint64_t address, size_t bytes) {
    const Allocation* found = find_allocation(address);
    return found && address >= found->address && address + bytes <= found->address + found->bytes;
}

size_t allocated_bytes() {
    std::shared_lock guard(lock);
    return used;
}

}  // namespace ua::emu
