// Streams, and the order of work on them: at once, or when something waits, or recorded into a graph.
#pragma once
#include <functional>

#include "driver_types.hpp"

namespace ua::emu {

using Work = std::function<CUresult()>;

// Work of a stream; a failure other than bad arguments is remembered, as a real context does.
CUresult submit(CUstream stream, Work work);
// Work that the caller waits for; runs after all that is pending.
CUresult run_now(Work work);
CUresult finish_all();
void reset_sticky_error();
// When on, work of a stream waits until something synchronises with it: finds missing synchronisation.
void set_lazy(bool on);

}  // namespace ua::emu
