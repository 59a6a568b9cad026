// cp.async: copies queue up per thread and arrive when their group is waited for, the latest moment that hardware allows.
#include <cstring>

#include "shadow.hpp"
#include "worker.hpp"

namespace ua::emu {

namespace {

void perform(const PendingCopy& copy) {
    memcpy(copy.shared, copy.global, copy.valid_bytes);
    if (copy.valid_bytes < copy.bytes)
        memset(static_cast<char*>(copy.shared) + copy.valid_bytes, 0, copy.bytes - copy.valid_bytes);
    if (Shadow* shadow = worker->shadow()) shadow->arrived(*worker, copy.shared, copy.bytes);
}

}  // namespace

void run_copies(CopyQueue& queue, unsigned groups_left) {
    size_t groups = 0, copies = 0;
    while (queue.group_sizes.size() - groups > groups_left) {
        for (unsigned i = 0; i < queue.group_sizes[groups]; i++) perform(queue.copies[copies++]);
        groups++;
    }
    queue.copies.erase(queue.copies.begin(), queue.copies.begin() + copies);
    queue.group_sizes.erase(queue.group_sizes.begin(), queue.group_sizes.begin() + groups);
}

}  // namespace ua::emu

using namespace ua::emu;

#define UA_EMU_EXPORT extern "C" __attribute__((visibility("default")))

UA_EMU_EXPORT void ua_emu_copy_async(void* shared, const void* global, unsigned bytes, unsigned valid_bytes,
                                     ua_emu_site site) {
    const auto target = reinterpret_cast<uintptr_t>(shared), source = reinterpret_cast<uintptr_t>(global);
    if (target % bytes || (valid_bytes && source % bytes))
        worker->fail_illegal("%s:%d: cp.async of %u bytes at a misaligned address", site.file, site.line, bytes);
    if (valid_bytes > bytes)
        worker->fail("%s:%d: cp.async of %u bytes with %u valid ones", site.file, site.line, bytes, valid_bytes);
    if (Shadow* shadow = worker->shadow()) {
        if (valid_bytes) shadow->access(*worker, global, valid_bytes, UA_EMU_READ);
        shadow->issued(*worker, shared, bytes);
    }
    CopyQueue& queue = worker->current()->queue;
    queue.copies.push_back({shared, global, bytes, valid_bytes});
    queue.open++;
    if (settings.defer_copies) return;
    queue.group_sizes.push_back(queue.open);
    queue.open = 0;
    run_copies(queue, 0);
}

UA_EMU_EXPORT void ua_emu_copy_commit() {
    CopyQueue& queue = worker->current()->queue;
    queue.group_sizes.push_back(queue.open);
    queue.open = 0;
}

UA_EMU_EXPORT void ua_emu_copy_wait(unsigned groups_in_flight) {
    run_copies(worker->current()->queue, groups_in_flight);
}
