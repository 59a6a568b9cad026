// What Python may ask of the emulator beyond the driver interface: settings, the last error, the traffic of launches.
#include <cstring>
#include <string>

#include "grid.hpp"
#include "stream.hpp"
#include "traffic.hpp"

using namespace ua::emu;

#define UA_EMU_EXPORT extern "C" __attribute__((visibility("default")))

// Returns 0, or -1 for an unknown name.
UA_EMU_EXPORT int ua_emu_set(const char* name, long value) {
    const std::string key = name;
    if (key == "order") settings.order = static_cast<Order>(value);
    else if (key == "seed") settings.seed = static_cast<uint64_t>(value);
    else if (key == "poison") settings.poison = value != 0;
    else if (key == "tight_guard") settings.tight_guard = value != 0;
    else if (key == "defer_copies") settings.defer_copies = value != 0;
    else if (key == "strict_exit") settings.strict_exit = value != 0;
    else if (key == "check") settings.check = value != 0;
    else if (key == "count") settings.count = value != 0;
    else if (key == "workers") settings.workers = static_cast<unsigned>(value);
    else if (key == "generation") settings.generation = static_cast<unsigned>(value);
    else if (key == "lazy") set_lazy(value != 0);
    else return -1;
    return 0;
}

UA_EMU_EXPORT const char* ua_emu_last_error() { return last_error().c_str(); }

// A failed launch poisons a real context for good; a test wants to go on.
UA_EMU_EXPORT void ua_emu_forget_error() {
    forget_error();
    reset_sticky_error();
}

UA_EMU_EXPORT size_t ua_emu_record_count() {
    std::lock_guard hold(launch_records_lock);
    return launch_records.size();
}

// Copies up to `fields` uint64 counters of a launch, in the order of struct Totals; returns how many there are.
UA_EMU_EXPORT size_t ua_emu_record(size_t index, char* name, size_t name_bytes, uint64_t* values, size_t fields) {
    std::lock_guard hold(launch_records_lock);
    if (index >= launch_records.size()) return 0;
    const LaunchRecord& record = launch_records[index];
    strncpy(name, record.kernel.c_str(), name_bytes - 1);
    name[name_bytes - 1] = 0;
    const size_t available = sizeof(Totals) / sizeof(uint64_t);
    memcpy(values, &record.totals, (fields < available ? fields : available) * sizeof(uint64_t));
    return available;
}

UA_EMU_EXPORT void ua_emu_clear_records() {
    std::lock_guard hold(launch_records_lock);
    launch_records.clear();
}
