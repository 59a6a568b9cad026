// Device memory: allocations between protected pages, and the question which one an address belongs to.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ua::emu {

struct Allocation {
    uint64_t address;
    size_t bytes;
    void* mapping;
    size_t mapping_bytes;
};

constexpr size_t device_bytes = size_t{16} << 30;

// 0 when the device is full.
uint64_t allocate(size_t bytes);
bool release(uint64_t address);
// The allocation whose mapping, guard pages included, holds `address`. The pointer is valid until it is released.
const Allocation* find_allocation(uint64_t address);
bool inside_allocation(uint64_t address, size_t bytes);
size_t allocated_bytes();

}  // namespace ua::emu
