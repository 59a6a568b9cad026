#include "shadow.hpp"

#include "grid_shadow.hpp"
#include "memory.hpp"
#include "worker.hpp"

namespace ua::emu {

// Two touches are unordered when no barrier lies between them, nor, inside one warp, a meeting of the warp.
bool Shadow::concurrent(const Touch& touch, const Touch& now) const {
    if (!touch.thread || touch.phase != now.phase || touch.thread == now.thread) return false;
    if (touch.thread == many) return true;
    if ((touch.thread - 1) / 32 != (now.thread - 1) / 32) return true;
    return touch.meeting == now.meeting;
}

void Shadow::read(Worker& worker, unsigned offset, const Touch& now) {
    Byte& byte = bytes_[offset];
    if (byte.in_flight) worker.fail("shared offset %u is read before the async copy into it was waited for", offset);
    if (!byte.written.thread || byte.written.phase < worker.first_phase())
        worker.fail("uninitialised shared memory is read at offset %u", offset);
    if (concurrent(byte.written, now))
        worker.fail("race: shared offset %u is read here and was written by thread %u without a barrier between", offset,
                    byte.written.thread - 1);
    const bool other_warp = byte.read.thread && byte.read.phase == now.phase &&
                            (byte.read.thread == many || (byte.read.thread - 1) / 32 != (now.thread - 1) / 32);
    byte.read = now;
    if (other_warp) byte.read.thread = many;
}

void Shadow::write(Worker& worker, unsigned offset, const Touch& now) {
    Byte& byte = bytes_[offset];
    if (byte.in_flight) worker.fail("shared offset %u is written while an async copy into it is under way", offset);
    if (concurrent(byte.written, now))
        worker.fail("race: shared offset %u is written here and by thread %u without a barrier between", offset,
                    byte.written.thread - 1);
    if (concurrent(byte.read, now))
        worker.fail("race: shared offset %u is written here while another thread may still read it", offset);
    byte.written = now;
}

void Shadow::shared_access(Worker& worker, unsigned offset, unsigned bytes, ua_emu_access kind) {
    const unsigned size = worker.launch()->shared_bytes;
    if (offset + bytes > size)
        worker.fail_illegal("shared memory out of bounds: offset %u, %u bytes, of %u", offset, bytes, size);
    if (kind == UA_EMU_ATOMIC) return;
    const Fibre* fibre = worker.current();
    const Touch now{worker.thread_number(fibre) + 1, worker.phase(), fibre->warp->meetings};
    for (unsigned byte = offset; byte < offset + bytes; byte++) {
        if (kind == UA_EMU_WRITE)
            write(worker, byte, now);
        else
            read(worker, byte, now);
    }
}

void Shadow::global_access(Worker& worker, uint64_t address, unsigned bytes, ua_emu_access kind) {
    const Allocation* allocation = find_allocation(address);
    if (!allocation) return;  // a stack or a constant of the image; anything else meets an unmapped page
    const uint64_t end = allocation->address + allocation->bytes;
    if (address >= allocation->address && address + bytes <= end) {
        check_between_blocks(worker, address, bytes, kind);
        return;
    }
    worker.fail_illegal("illegal address: %s of %u bytes at offset %ld of an allocation of %zu bytes",
                        kind == UA_EMU_WRITE ? "write" : "read", bytes,
                        static_cast<long>(address - allocation->address), allocation->bytes);
}

void Shadow::access(Worker& worker, const void* pointer, unsigned bytes, ua_emu_access kind) {
    const auto address = reinterpret_cast<uint64_t>(pointer);
    const auto shared = reinterpret_cast<uint64_t>(worker.shared());
    const unsigned slack = 64;  // behind the arena: still ours, never a kernel's
    if (address >= shared && address < shared + worker.launch()->shared_bytes + slack) {
        shared_access(worker, static_cast<unsigned>(address - shared), bytes, kind);
    } else if (!worker.stacks().contains(pointer)) {
        global_access(worker, address, bytes, kind);
    }
}

void Shadow::issued(Worker& worker, const void* pointer, unsigned bytes) {
    access(worker, pointer, bytes, UA_EMU_WRITE);
    mark(worker, pointer, bytes, true);
}

void Shadow::arrived(Worker& worker, const void* pointer, unsigned bytes) { mark(worker, pointer, bytes, false); }

void Shadow::mark(Worker& worker, const void* pointer, unsigned bytes, bool in_flight) {
    const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(pointer) - worker.shared());
    for (size_t byte = offset; byte < offset + bytes && byte < bytes_.size(); byte++) bytes_[byte].in_flight = in_flight;
}

}  // namespace ua::emu
