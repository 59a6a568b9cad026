// Races between blocks on device memory: blocks of one launch have no order, so what one writes no other may touch.
#pragma once
#include <cstdint>

#include "../include/ua_emulator/abi.h"

namespace ua::emu {

class Worker;

// A new launch begins: nothing that happened before can race with it.
void begin_grid_shadow();
// An ordinary access of the running thread, inside an allocation. Fails the launch if another block of it is in the way.
void check_between_blocks(Worker& worker, uint64_t address, unsigned bytes, ua_emu_access kind);
// The allocation at this address is gone.
void drop_grid_shadow(uint64_t address);

}  // namespace ua::emu
