// Hazard detection for checked kernels: who touched each byte of shared memory, and when. Also global bounds.
#pragma once
#include <cstdint>
#include <vector>

#include "../include/ua_emulator/abi.h"

namespace ua::emu {

class Worker;

class Shadow {
  public:
    explicit Shadow(unsigned shared_bytes) : bytes_(shared_bytes) {}

    // An ordinary access of the running thread. Fails the launch on a race, an uninitialised read, or a bad address.
    void access(Worker& worker, const void* address, unsigned bytes, ua_emu_access kind);
    // An async copy into shared memory was issued; its data has arrived.
    void issued(Worker& worker, const void* address, unsigned bytes);
    void arrived(Worker& worker, const void* address, unsigned bytes);

  private:
    // Thread numbers are stored plus one; 0 means nobody, `many` more than one thread. Times: the block's barrier phase and
    // the meeting count of the thread's warp.
    static constexpr uint32_t many = 0xffffffff;
    struct Touch {
        uint32_t thread = 0, phase = 0, meeting = 0;
    };
    struct Byte {
        Touch written, read;
        bool in_flight = false;
    };

    void read(Worker& worker, unsigned offset, const Touch& now);
    void write(Worker& worker, unsigned offset, const Touch& now);
    void mark(Worker& worker, const void* address, unsigned bytes, bool in_flight);
    bool concurrent(const Touch& touch, const Touch& now) const;
    void shared_access(Worker& worker, unsigned offset, unsigned bytes, ua_emu_access kind);
    void global_access(Worker& worker, uint64_t address, unsigned bytes, ua_emu_access kind);

    std::vector<Byte> bytes_;
};

}  // namespace ua::emu
