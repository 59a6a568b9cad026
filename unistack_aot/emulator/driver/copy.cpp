// cp.async: copies queue up per thread and arrive when their group is waited for, the latest moment that hardware allows.
#include <cstring>
#include <vector>

#include "shadow.hpp"
#include "traffic.hpp"
#include "worker.hpp"

namespace ua::emu {

namespace {

void perform(const PendingCopy& copy) {
    if (copy.valid_bytes == 16) {
        memcpy(copy.shared, copy.global, 16);
    } else {
        memcpy(copy.shared, copy.global, copy.valid_bytes);
        memset(static_cast<char*>(copy.shared) + copy.valid_bytes, 0, copy.bytes - copy.valid_bytes);
    }
}

// The instruction that a copy belongs to: one per place in the source, told apart by occurrence when a loop was unrolled.
const void* site_key(ua_emu_site site) { return site.file + site.line; }

}  // namespace

void CopyQueue::clear() {
    copies.clear();
    groups.clear();
    open = 0;
}

void CopyQueue::run(unsigned groups_left) {
    Shadow* shadow = worker->shadow();
    for (; groups.size() > groups_left; groups.pop()) {
        for (unsigned i = groups.front(); i > 0; i--, copies.pop()) {
            perform(copies.front());
            if (shadow) shadow->arrived(*worker, copies.front().shared, copies.front().bytes);
        }
    }
}

}  // namespace ua::emu

using namespace ua::emu;

#define UA_EMU_EXPORT extern "C" __attribute__((visibility("default")))

UA_EMU_EXPORT void ua_emu_copy_async(void* shared, const void* global, unsigned bytes, unsigned valid_bytes,
                                     ua_emu_site site) {
    const auto target = reinterpret_cast<uintptr_t>(shared), source = reinterpret_cast<uintptr_t>(global);
    if ((target & (bytes - 1)) || (valid_bytes && (source & (bytes - 1))))
        worker->fail_illegal("%s:%d: cp.async of %u bytes at a misaligned address", site.file, site.line, bytes);
    if (valid_bytes > bytes)
        worker->fail("%s:%d: cp.async of %u bytes with %u valid ones", site.file, site.line, bytes, valid_bytes);
    if (Shadow* shadow = worker->shadow()) {
        if (valid_bytes) shadow->access(*worker, global, valid_bytes, UA_EMU_READ);
        shadow->issued(*worker, shared, bytes);
    }
    if (worker->counters()) {
        std::vector<Access>& accesses = worker->current()->accesses;
        accesses.push_back({site_key(site), source, valid_bytes, copy_read});
        accesses.push_back({site_key(site), target, bytes, copy_write});
    }
    CopyQueue& queue = worker->current()->queue;
    queue.copies.push({shared, global, bytes, valid_bytes});
    queue.open++;
    if (settings.defer_copies) return;
    queue.commit();
    queue.run(0);
}

UA_EMU_EXPORT void ua_emu_copy_commit() { worker->current()->queue.commit(); }

UA_EMU_EXPORT void ua_emu_copy_wait(unsigned groups_in_flight) {
    worker->current()->queue.run(groups_in_flight);
}
