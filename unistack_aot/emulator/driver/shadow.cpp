#include "shadow.hpp"

#include "grid_shadow.hpp"
#include "memory.hpp"
#include "worker.hpp"

namespace ua::emu {

namespace {

struct Now {
    uint32_t thread, phase, meeting;
};

Now now(const Worker& worker) {
    const Fibre* fibre = worker.current();
    return {worker.thread_number(fibre) + 1, worker.phase(), fibre->warp->meetings};
}

}  // namespace

// Two touches are unordered when no barrier lies between them, nor, inside one warp, a meeting of the warp.
bool Shadow::concurrent(const Touch& touch, const Touch& now) const {
    if (!touch.thread || touch.phase != now.phase || touch.thread == now.thread) return false;
    if (touch.thread == many) return true;
    if ((touch.thread - 1) / 32 != (now.thread - 1) / 32) return true;
    return touch.meeting == now.meeting;
}

void Shadow::read(Worker& worker, Word& word, unsigned offset) {
    const Now t = now(worker);
    const Touch mine{t.thread, t.phase, t.meeting};
    if (word.in_flight)
        worker.fail("shared offset %u is read before the async copy into it was waited for", offset);
    if (!word.written.thread || word.written.phase < worker.first_phase())
        worker.fail("uninitialised shared memory is read at offset %u", offset);
    if (concurrent(word.written, mine))
        worker.fail("race: shared offset %u is read here and was written by thread %u without a barrier between", offset,
                    word.written.thread - 1);
    const bool other_warp = word.read.thread && word.read.phase == t.phase &&
                            (word.read.thread == many || (word.read.thread - 1) / 32 != (t.thread - 1) / 32);
    word.read = mine;
    if (other_warp) word.read.thread = many;
}

void Shadow::write(Worker& worker, Word& word, unsigned offset) {
    const Now t = now(worker);
    const Touch mine{t.thread, t.phase, t.meeting};
    if (word.in_flight) worker.fail("shared offset %u is written while an async copy into it is under way", offset);
    if (concurrent(word.written, mine))
        worker.fail("race: shared offset %u is written here and by thread %u without a barrier between", offset,
                    word.written.thread - 1);
    if (concurrent(word.read, mine))
        worker.fail("race: shared offset %u is written here while another thread may still read it", offset);
    word.written = mine;
}

void Shadow::shared_access(Worker& worker, unsigned offset, unsigned bytes, ua_emu_access kind) {
    const unsigned size = worker.launch()->shared_bytes;
    if (offset + bytes > size)
        worker.fail_illegal("shared memory out of bounds: offset %u, %u bytes, of %u", offset, bytes, size);
    for (unsigned word = offset / 4; word <= (offset + bytes - 1) / 4; word++) {
        if (kind == UA_EMU_ATOMIC) continue;
        if (kind == UA_EMU_WRITE) {
            write(worker, words_[word], word * 4);
        } else {
            read(worker, words_[word], word * 4);
        }
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
    const unsigned offset = static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - worker.shared());
    for (unsigned word = offset / 4; word <= (offset + bytes - 1) / 4 && word < words_.size(); word++)
        words_[word].in_flight = true;
}

void Shadow::arrived(Worker& worker, const void* pointer, unsigned bytes) {
    const unsigned offset = static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - worker.shared());
    for (unsigned word = offset / 4; word <= (offset + bytes - 1) / 4 && word < words_.size(); word++)
        words_[word].in_flight = false;
}

}  // namespace ua::emu
