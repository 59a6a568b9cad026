// What a kernel built for the host and the emulated driver agree on. Nothing else crosses between the two.
#pragma once
#include <stddef.h>
#include <stdint.h>

extern "C" {

struct ua_emu_dim {
    unsigned x, y, z;
};

// The CUDA thread that runs now: one object per worker, rewritten at each switch.
struct ua_emu_thread {
    ua_emu_dim thread;
    unsigned lane;
    ua_emu_dim block, block_size, grid_size;
    unsigned char* shared;
    unsigned shared_bytes;
};
extern __thread ua_emu_thread ua_emu_self __attribute__((tls_model("initial-exec")));

// Exported by a kernel image as `ua_emu_kernel_<name>`.
struct ua_emu_kernel {
    void (*run)(void** arguments);
    unsigned argument_count;
    const unsigned* sizes;
    const unsigned* alignments;
    const char* name;
    int checked;  // 1: every access is reported through the hooks
};

struct ua_emu_site {
    const char* file;
    int line;
};

// The work of a warp collective. It runs once, when the last lane of the mask has arrived; lanes[i] is what lane i passed.
typedef void (*ua_emu_operation)(void** lanes, unsigned mask, const void* setting);

void ua_emu_warp(unsigned mask, void* mine, ua_emu_operation operation, const void* setting, ua_emu_site site);
void ua_emu_barrier(ua_emu_site site);
int ua_emu_barrier_or(int value, ua_emu_site site);
int ua_emu_barrier_count(int value, ua_emu_site site);
void ua_emu_copy_async(void* shared, const void* global, unsigned bytes, unsigned valid_bytes, ua_emu_site site);
void ua_emu_copy_commit(void);
void ua_emu_copy_wait(unsigned groups_in_flight);
void ua_emu_fail(const char* message, ua_emu_site site) __attribute__((noreturn));

// Accesses wider than a scalar, and those of ldmatrix, are reported by the header; scalar ones by the compiler's hooks.
enum ua_emu_access { UA_EMU_READ = 0, UA_EMU_WRITE = 1, UA_EMU_LDMATRIX = 2, UA_EMU_ATOMIC = 3 };
void ua_emu_note(const void* address, unsigned bytes, enum ua_emu_access kind, const void* site);
void ua_emu_note_mma(unsigned instructions);

// One warp's share of a block tile, computed at once: see MmaTile in the device headers. The operands lie in shared memory, A
// alternatively in registers; an offset function gives an element's index in its tile from its row and column as stored.
enum ua_emu_type { UA_EMU_F16 = 0, UA_EMU_BF16 = 1, UA_EMU_TF32 = 2, UA_EMU_F32 = 3 };
struct ua_emu_tile {
    int type;                      // ua_emu_type: how operands are stored and rounded
    int tiles_m, tiles_n, depth;   // pieces of 16 rows, of 8 columns; k
    int a_first, b_first;          // first row and first column of this warp in the block tile
    int a_k_outer, b_k_outer;      // stored [k][row] instead of [row][k]
    const void* a;                 // null: A is in registers
    const void* b;
    int (*a_offset)(int row, int col);
    int (*b_offset)(int row, int col);
};
struct ua_emu_tile_registers {
    float* c;        // [tiles_m][tiles_n][4], fragment layout of m16n8
    const float* a;  // null, or [tiles_m][depth / 8][4] in the same layout
};
// An operation of ua_emu_warp: lanes[i] points at a ua_emu_tile_registers, setting at a ua_emu_tile.
void ua_emu_tile_mma(void** lanes, unsigned mask, const void* setting);

}  // extern "C"
