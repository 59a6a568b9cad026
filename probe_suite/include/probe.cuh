// What a GPU probe needs beside ua/kernel.cuh: the unit's cycle counter.
#pragma once
#include "ua/kernel.cuh"

namespace probe {

// Cycles of this unit so far; 0 on the emulator, which has no time of its own.
UA_DEVICE long long cycles() {
#if UA_EMULATED
    return 0;
#else
    return clock64();
#endif
}

}  // namespace probe
