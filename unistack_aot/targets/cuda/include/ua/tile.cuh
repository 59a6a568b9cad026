// Tiles in shared memory: where an element lies so that no bank conflicts arise, and how a block fills a tile.
//
// SharedTile<T, ROWS, COLS, PATTERN>   COLS * sizeof(T) is a multiple of 16. bytes: the shared memory it needs, at a 128-byte aligned
//     address. offset(row, col): the element's index from the start of the tile. The 16 bytes around an element (a chunk) stay
//     together; the chunks of a row are permuted: exclusive or with a function of the row.
//     Pattern::rows     eight consecutive rows, same chunk, at once: ldmatrix, and FmaTile on k_inner operands
//     Pattern::columns  eight consecutive columns of four rows at once: 32-bit matrix fragments of k_outer operands; also one
//                       row at a time (FmaTile on k_outer operands)
//
// Filling, by all THREADS threads of the block; `thread` is 0 .. THREADS - 1. Elements outside valid_rows x valid_cols become 0.
//     copy_tile_async<Tile, THREADS, BYTES>(tile, global, pitch, valid_rows, valid_cols, thread)
//         from row-major device memory, pitch in elements, BYTES (16, 8, 4) at a time: global, and pitch * sizeof(T), must be
//         multiples of BYTES. Then copy_commit, copy_wait, a barrier.
//     copy_tile_transposed_async<Tile, THREADS>(tile, global, pitch, valid_rows, valid_cols, thread)
//         4-byte elements: element (row, col) of the tile comes from global[col * pitch + row]. Free of bank conflicts with
//         Pattern::columns if COLS is a multiple of 32
//     fill_tile<Tile, THREADS>(tile, thread, element)
//         element(row, col) -> T computes each one; it must itself return 0 outside
//     for_each_chunk<Tile, THREADS>(thread, visit)
//         visit(row, col, offset) for the first element of each 16-byte chunk, consecutive threads side by side in a row
#pragma once
#include "async.cuh"
#include "memory.cuh"

namespace ua {

enum class Pattern { rows, columns };

template <class T, int ROWS, int COLS, Pattern PATTERN = Pattern::rows>
struct SharedTile {
    typedef T Element;
    static constexpr int rows = ROWS, cols = COLS;
    static constexpr int chunk = 16 / static_cast<int>(sizeof(T));  // elements
    static_assert(COLS % chunk == 0, "a tile row is a multiple of 16 bytes");
    static constexpr int chunks = COLS / chunk;
    static constexpr int pitch = COLS;                       // elements
    static constexpr int bytes = ROWS * COLS * static_cast<int>(sizeof(T));

    // What the chunk number is combined with. The largest power of two that divides the chunks of a row (up to 8, a line of
    // all banks) can be permuted; the rest of the spread comes from where rows begin.
    UA_DEVICE int permutation(int row) {
        if (PATTERN == Pattern::rows)
            return chunks % 8 == 0 ? row & 7 : chunks % 4 == 0 ? row >> 1 & 3 : chunks % 2 == 0 ? row >> 2 & 1 : 0;
        return chunks % 8 == 0 ? 2 * ((row ^ row >> 2) & 3) : chunks % 4 == 0 ? row & 2 : 0;
    }
    UA_DEVICE int offset(int row, int col) {
        return row * pitch + ((col / chunk ^ permutation(row)) * chunk) + col % chunk;
    }
};

template <class Tile, int THREADS, class Visit>
UA_DEVICE void for_each_chunk(int thread, Visit visit) {
    constexpr int total = Tile::rows * Tile::chunks, turns = (total + THREADS - 1) / THREADS;
    UA_UNROLL_NOT  // `visit` holds the elements of a whole chunk
    for (int turn = 0; turn < turns; turn++) {
        const int index = turn * THREADS + thread;
        if (total % THREADS != 0 && index >= total) break;
        const int row = index / Tile::chunks, col = index % Tile::chunks * Tile::chunk;
        visit(row, col, Tile::offset(row, col));
    }
}

template <class Tile, int THREADS, int BYTES = 16>
UA_DEVICE void copy_tile_async(typename Tile::Element* tile, const typename Tile::Element* global, long long pitch,
                               int valid_rows, int valid_cols, int thread) {
    constexpr int size = sizeof(typename Tile::Element), step = BYTES / size, across = Tile::cols / step;
    static_assert(BYTES >= 4 && BYTES <= 16 && step >= 1, "cp.async moves 4, 8 or 16 bytes");
    constexpr int total = Tile::rows * across, turns = (total + THREADS - 1) / THREADS;
    UA_UNROLL
    for (int turn = 0; turn < turns; turn++) {
        const int index = turn * THREADS + thread;
        if (total % THREADS != 0 && index >= total) break;
        const int row = index / across, col = index % across * step;
        int valid = row < valid_rows ? (valid_cols - col) * size : 0;
        valid = valid < 0 ? 0 : valid > BYTES ? BYTES : valid;
        copy_async<BYTES>(tile + Tile::offset(row, col), valid ? global + row * pitch + col : global, valid);
    }
}

// Eight tile columns by sixteen tile rows per warp and turn: each lane reads 16 consecutive bytes, in four copies of 4. The
// stores of a warp then fall into 32 different banks.
template <class Tile, int THREADS>
UA_DEVICE void copy_tile_transposed_async(typename Tile::Element* tile, const typename Tile::Element* global, long long pitch,
                                          int valid_rows, int valid_cols, int thread) {
    static_assert(sizeof(typename Tile::Element) == 4, "transposing copies move single 4-byte elements");
    static_assert(Tile::cols % 8 == 0 && Tile::rows % 4 == 0, "a transposed tile is a multiple of 4 x 8");
    constexpr int groups = Tile::rows / 4, total = groups * Tile::cols, turns = (total + THREADS - 1) / THREADS;
    constexpr int across = groups < 4 ? groups : 4;  // groups of four rows that lie side by side in a warp
    static_assert(groups % across == 0, "tile rows are 4, 8 or a multiple of 16");
    UA_UNROLL
    for (int turn = 0; turn < turns; turn++) {
        const int index = turn * THREADS + thread;
        if (total % THREADS != 0 && index >= total) break;
        const int inner = index % (8 * across), outer = index / (8 * across);
        const int row = (inner / 8 + outer % (groups / across) * across) * 4;
        const int col = inner % 8 + outer / (groups / across) * 8;
        UA_UNROLL
        for (int i = 0; i < 4; i++) {
            const bool valid = row + i < valid_rows && col < valid_cols;
            copy_async<4>(tile + Tile::offset(row + i, col), valid ? global + col * pitch + row + i : global,
                          valid ? 4 : 0);
        }
    }
}

template <class Tile, int THREADS, class Element>
UA_DEVICE void fill_tile(typename Tile::Element* tile, int thread, Element element) {
    for_each_chunk<Tile, THREADS>(thread, [&](int row, int col, int offset) {
        Vector<typename Tile::Element, Tile::chunk> values;
        UA_UNROLL
        for (int i = 0; i < Tile::chunk; i++) values[i] = element(row, col + i);
        store_shared(tile + offset, values);
    });
}

}  // namespace ua
