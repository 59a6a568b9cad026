// A launch: its blocks are handed to the workers, its faults become one message.
#pragma once
#include <string>

#include "worker.hpp"

namespace ua::emu {

enum class Outcome { done, failed, illegal_address };

Outcome run_grid(const Launch& launch);
// What went wrong in the last launch that failed; empty if none did since the last call of forget_error.
const std::string& last_error();
void forget_error();
void set_error(const std::string& message);

}  // namespace ua::emu
