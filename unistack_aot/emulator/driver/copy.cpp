// cp.async: copies queue up per thread and arrive when their group is waited for, the latest moment that hardware allows.
#include <cstring>
#include <vector>

#include "shadow.hpp"
#include "traffic.hpp"
#include "worker.hpp"

namespace ua::emu {

namespace {

// Whole or empty copies of each size are single moves: a kernel that gathers makes one per element.
void perform(const PendingCopy& copy, unsigned char* arena) {
    unsigned char* const shared = arena + copy.shared;
    switch (copy.bytes << 8 | copy.valid_bytes) {
        case 4 << 8 | 4: memcpy(shared, copy.global, 4); return;
        case 4 << 8: memset(shared, 0, 4); return;
        case 8 << 8 | 8: memcpy(shared, copy.global, 8); return;
        case 16 << 8 | 16: memcpy(shared, copy.global, 16); return;
        case 16 << 8: memset(shared, 0, 16); return;
        default: break;
    }
    memcpy(shared, copy.global, copy.valid_bytes);
    memset(shared + copy.valid_bytes, 0, copy.bytes - copy.valid_bytes);
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
    unsigned char* const arena = worker->shared();
    for (; groups.size() > groups_left; groups.pop()) {
        for (unsigned i = groups.front(); i > 0; i--, copies.pop()) {
            perform(copies.front(), arena);
            if (__builtin_expect(shadow != nullptr, 0)) shadow->arrived(*worker, arena + copies.front().shared, copies.front().bytes);
        }
    }
}

}  // namespace ua::emu

using namespace ua::emu;

#define UA_EMU_EXPORT extern "C" __attribute__((visibility("default")))

UA_EMU_EXPORT void ua_emu_copy_async(void* shared, const void* global, unsigned bytes, unsigned valid_bytes,
                                     ua_emu_site site) {
    const auto target = reinterpret_cast<uintptr_t>(shared), source = reinterpret_cast<uintptr_t>(global);
    Worker* const self = worker;
    CopyQueue& queue = self->current()->queue;
    const uint64_t offset = target - reinterpret_cast<uintptr_t>(self->shared());
    const PendingCopy copy = {global, static_cast<uint32_t>(offset), static_cast<uint16_t>(bytes),
                              static_cast<uint16_t>(valid_bytes)};
    const bool aligned = !(target & (bytes - 1)) && (!valid_bytes || !(source & (bytes - 1)));
    const bool inside = offset + bytes <= self->launch()->shared_bytes && offset < self->launch()->shared_bytes;
    if (__builtin_expect(aligned && inside && valid_bytes <= bytes && !self->watched(), 1)) {
        queue.add(copy);
        return;
    }
    if (!aligned) self->fail_illegal("%s:%d: cp.async of %u bytes at a misaligned address", site.file, site.line, bytes);
    if (!inside)
        self->fail_illegal("%s:%d: cp.async writes %u bytes at offset %ld of %u bytes of shared memory", site.file, site.line,
                           bytes, static_cast<long>(offset), self->launch()->shared_bytes);
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
    queue.add(copy);
    if (settings.defer_copies) return;
    queue.commit();
    queue.run(0);
}

UA_EMU_EXPORT void ua_emu_copy_commit() { worker->current()->queue.commit(); }

UA_EMU_EXPORT void ua_emu_copy_wait(unsigned groups_in_flight) {
    worker->current()->queue.run(groups_in_flight);
}
