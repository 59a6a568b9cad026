// A sequential stream over tiles with DEPTH tiles in flight, and fills that no plain tile copy can do. Not here: the tiles.
//
// stream_tiles<DEPTH>(steps, fill, use)   fill(step, stage) starts the copies of a step into shared stage `stage`, use(stage) works on
//                                         them; stream_tiles_numbered calls use(step, stage). Barriers and waits are in here; all threads of the block must call.
// gather_tile_async<Tile, THREADS, BYTES>(tile, global, thread, offset)
//                                         runs of BYTES (4, 8, 16) from global[offset(row, col)], which must be a multiple of BYTES, zero
//                                         where offset is negative. Neighbouring threads take neighbouring runs of a tile row, so that
//                                         what lies side by side is coalesced.
#pragma once
#include "tile.cuh"

namespace ua {

template <int DEPTH, class Fill, class Use>
UA_DEVICE void stream_tiles_numbered(int steps, Fill fill, Use use) {
    if constexpr (DEPTH == 1) {
        for (int step = 0; step < steps; step++) {
            fill(step, 0);
            copy_commit();
            copy_wait<0>();
            __syncthreads();
            use(step, 0);
            __syncthreads();
        }
    } else {
        for (int step = 0; step < DEPTH - 1; step++) {
            if (step < steps) fill(step, step);
            copy_commit();
        }
        int now = 0, next = DEPTH - 1;
        for (int step = 0; step < steps; step++) {
            copy_wait<DEPTH - 2>();
            __syncthreads();
            if (step + DEPTH - 1 < steps) fill(step + DEPTH - 1, next);
            copy_commit();
            use(step, now);
            now = now + 1 == DEPTH ? 0 : now + 1;
            next = next + 1 == DEPTH ? 0 : next + 1;
        }
    }
}

template <int DEPTH, class Fill, class Use>
UA_DEVICE void stream_tiles(int steps, Fill fill, Use use) {
    stream_tiles_numbered<DEPTH>(steps, fill, [&](int, int stage) { use(stage); });
}

template <class Tile, int THREADS, int BYTES, class Offset>
UA_DEVICE void gather_tile_async(typename Tile::Element* tile, const typename Tile::Element* global, int thread, Offset offset) {
    constexpr int step = BYTES / static_cast<int>(sizeof(typename Tile::Element)), across = Tile::cols / step;
    static_assert(BYTES >= 4 && BYTES <= 16 && step >= 1 && Tile::cols % step == 0, "cp.async moves 4, 8 or 16 bytes");
    constexpr int total = Tile::rows * across, turns = (total + THREADS - 1) / THREADS;
    // Not all turns at once: what an address is computed from would fill the registers.
    UA_UNROLL_SOME
    for (int turn = 0; turn < turns; turn++) {
        const int index = turn * THREADS + thread;
        if (total % THREADS != 0 && index >= total) break;
        const int row = index / across, col = index % across * step;
        const auto place = offset(row, col);
        copy_async<BYTES>(tile + Tile::offset(row, col), place < 0 ? global : global + place, place < 0 ? 0 : BYTES);
    }
}

}  // namespace ua
