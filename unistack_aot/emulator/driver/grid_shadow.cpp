#include "grid_shadow.hpp"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <shared_mutex>

#include "memory.hpp"
#include "worker.hpp"

namespace ua::emu {

namespace {

// For each byte who wrote and who read it last: the number of the launch above, of the block below. Blocks whose numbers agree
// in 20 bits are taken for one: a race between them is missed, never invented.
struct Cell {
    uint32_t writer, reader;
};
constexpr unsigned block_bits = 20;
constexpr uint32_t last_launch = (1u << (32 - block_bits)) - 1;

struct Cells {
    Cell* first;
    size_t mapped_bytes;
};

std::shared_mutex lock;
std::map<uint64_t, Cells> shadows;  // by allocation address
uint32_t launch_number;

Cells map_cells(size_t bytes) {
    const size_t mapped_bytes = bytes * sizeof(Cell);
    void* memory = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return {memory == MAP_FAILED ? nullptr : static_cast<Cell*>(memory), mapped_bytes};
}

void unmap(const Cells& cells) {
    if (cells.first) munmap(cells.first, cells.mapped_bytes);
}

Cell* cells_of(const Allocation& allocation) {
    {
        std::shared_lock hold(lock);
        const auto found = shadows.find(allocation.address);
        if (found != shadows.end()) return found->second.first;
    }
    std::unique_lock hold(lock);
    return shadows.try_emplace(allocation.address, map_cells(allocation.bytes)).first->second.first;
}

bool same_launch_other_block(uint32_t mark, uint32_t mine) {
    return mark != mine && mark >> block_bits == mine >> block_bits;
}

}  // namespace

void begin_grid_shadow() {
    std::unique_lock hold(lock);
    if (launch_number++ < last_launch) return;
    for (const auto& [address, cells] : shadows) unmap(cells);
    shadows.clear();
    launch_number = 1;
}

void drop_grid_shadow(uint64_t address) {
    std::unique_lock hold(lock);
    const auto found = shadows.find(address);
    if (found == shadows.end()) return;
    unmap(found->second);
    shadows.erase(found);
}

void check_between_blocks(Worker& worker, uint64_t address, unsigned bytes, ua_emu_access kind) {
    if (kind == UA_EMU_ATOMIC) return;
    const Allocation* allocation = find_allocation(address);
    Cell* cells = cells_of(*allocation);
    if (!cells) return;
    const ua_emu_dim block = ua_emu_self.block, grid = worker.launch()->grid;
    const uint32_t number = block.x + grid.x * (block.y + grid.y * block.z);
    const uint32_t mine = launch_number << block_bits | (number & ((1u << block_bits) - 1));
    Cell* cell = cells + (address - allocation->address);
    for (unsigned i = 0; i < bytes; i++, cell++) {
        const uint32_t writer = __atomic_load_n(&cell->writer, __ATOMIC_RELAXED);
        const uint32_t reader = __atomic_load_n(&cell->reader, __ATOMIC_RELAXED);
        const bool written = same_launch_other_block(writer, mine);
        const bool read = kind == UA_EMU_WRITE && same_launch_other_block(reader, mine);
        if (written || read)
            worker.fail("race between blocks: offset %ld of an allocation of %zu bytes is %s here and %s by block %u",
                        static_cast<long>(address + i - allocation->address), allocation->bytes,
                        kind == UA_EMU_WRITE ? "written" : "read", written ? "written" : "read",
                        (written ? writer : reader) & ((1u << block_bits) - 1));
        __atomic_store_n(kind == UA_EMU_WRITE ? &cell->writer : &cell->reader, mine, __ATOMIC_RELAXED);
    }
}

}  // namespace ua::emu
