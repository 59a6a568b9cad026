// A warp's share of a block tile at once: gathers both operands into float panels, multiplies, adds into the lanes' accumulators.
#include <cstdint>
#include <cstring>
#include <vector>

#include "../include/ua_emulator/abi.h"

namespace {

typedef float Row __attribute__((vector_size(32)));  // 8 columns of C

struct Panels {
    std::vector<float> a;  // [row][k]
    std::vector<Row> b;    // [piece][k], 8 columns each
};

template <class To, class From>
To bits(From value) {
    To result;
    static_assert(sizeof result == sizeof value, "a bit cast keeps the size");
    memcpy(&result, &value, sizeof result);
    return result;
}

// Nearest, ties away from zero, to 10 mantissa bits.
float round_tf32(float value) {
    uint32_t word = bits<uint32_t>(value);
    if ((word & 0x7f800000u) != 0x7f800000u) word += 0x1000u;
    return bits<float>(word & 0xffffe000u);
}

template <int TYPE>
float element(const void* tile, int offset) {
    if (TYPE == UA_EMU_F32) return static_cast<const float*>(tile)[offset];
    if (TYPE == UA_EMU_TF32) return round_tf32(static_cast<const float*>(tile)[offset]);
    const uint16_t half = static_cast<const uint16_t*>(tile)[offset];
    if (TYPE == UA_EMU_F16) return static_cast<float>(bits<_Float16>(half));
    return bits<float>(static_cast<uint32_t>(half) << 16);
}

template <int TYPE>
float rounded(float value) {
    if (TYPE == UA_EMU_F32) return value;
    if (TYPE == UA_EMU_TF32) return round_tf32(value);
    if (TYPE == UA_EMU_F16) return static_cast<float>(static_cast<_Float16>(value));
    const uint32_t word = bits<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return value;
    return bits<float>((word + 0x7fffu + ((word >> 16) & 1u)) & 0xffff0000u);
}

// Calls put(row, k, value) for all of an operand. Chunks of 16 bytes along the stored row are contiguous.
template <int TYPE, class Put>
void gather(const void* tile, int (*offset)(int, int), bool k_outer, int first, int rows, int depth, Put put) {
    constexpr int chunk = TYPE == UA_EMU_F16 || TYPE == UA_EMU_BF16 ? 8 : 4;
    if (k_outer) {
        for (int k = 0; k < depth; k++)
            for (int row = 0; row < rows; row += chunk) {
                const int start = offset(k, first + row);
                for (int i = 0; i < chunk; i++) put(row + i, k, element<TYPE>(tile, start + i));
            }
    } else {
        for (int row = 0; row < rows; row++)
            for (int k = 0; k < depth; k += chunk) {
                const int start = offset(first + row, k);
                for (int i = 0; i < chunk; i++) put(row, k + i, element<TYPE>(tile, start + i));
            }
    }
}

template <int TYPE>
void gather_registers(void** lanes, const ua_emu_tile& tile, float* a) {
    for (int lane = 0; lane < 32; lane++) {
        const float* source = static_cast<ua_emu_tile_registers*>(lanes[lane])->a;
        for (int i = 0; i < tile.tiles_m; i++)
            for (int j = 0; j < tile.depth / 8; j++)
                for (int e = 0; e < 4; e++) {
                    const int row = i * 16 + lane / 4 + e / 2 * 8, k = j * 8 + lane % 4 * 2 + e % 2;
                    a[row * tile.depth + k] = rounded<TYPE>(source[(i * (tile.depth / 8) + j) * 4 + e]);
                }
    }
}

// Rows row .. row + 3 of C against PIECES pieces of 8 columns, all k, in vector registers.
template <int PIECES>
void multiply(void** lanes, const ua_emu_tile& tile, const Panels& panels, int row, int piece) {
    Row c[4][PIECES];
    float* held[4][PIECES][4];  // where the 4 lanes of a row keep their two columns
    for (int i = 0; i < 4; i++) {
        const int within = row % 16 + i, base = row / 16 * tile.tiles_n;
        for (int j = 0; j < PIECES; j++) {
            for (int t = 0; t < 4; t++) {
                auto* registers = static_cast<ua_emu_tile_registers*>(lanes[within % 8 * 4 + t]);
                held[i][j][t] = registers->c + (base + piece + j) * 4 + within / 8 * 2;
                memcpy(reinterpret_cast<char*>(&c[i][j]) + t * 8, held[i][j][t], 8);
            }
        }
    }
    const float* a = panels.a.data() + row * tile.depth;
    const Row* b = panels.b.data() + piece * tile.depth;
    for (int k = 0; k < tile.depth; k++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < PIECES; j++) c[i][j] += a[i * tile.depth + k] * b[j * tile.depth + k];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < PIECES; j++)
            for (int t = 0; t < 4; t++) memcpy(held[i][j][t], reinterpret_cast<char*>(&c[i][j]) + t * 8, 8);
}

template <int TYPE>
void run(void** lanes, const ua_emu_tile& tile) {
    static thread_local Panels* panels = new Panels;  // one per worker, for good
    const int rows = tile.tiles_m * 16, depth = tile.depth;
    panels->a.resize(static_cast<size_t>(rows) * depth);
    panels->b.resize(static_cast<size_t>(tile.tiles_n) * depth);
    float* a = panels->a.data();
    auto* b = reinterpret_cast<float*>(panels->b.data());
    if (tile.a) {
        gather<TYPE>(tile.a, tile.a_offset, tile.a_k_outer, tile.a_first, rows, depth,
                     [=](int row, int k, float value) { a[row * depth + k] = value; });
    } else {
        gather_registers<TYPE>(lanes, tile, a);
    }
    gather<TYPE>(tile.b, tile.b_offset, tile.b_k_outer, tile.b_first, tile.tiles_n * 8, depth,
                 [=](int col, int k, float value) { b[(col / 8 * depth + k) * 8 + col % 8] = value; });
    for (int row = 0; row < rows; row += 4) {
        int piece = 0;
        for (; piece + 2 <= tile.tiles_n; piece += 2) multiply<2>(lanes, tile, *panels, row, piece);
        if (piece < tile.tiles_n) multiply<1>(lanes, tile, *panels, row, piece);
    }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void ua_emu_tile_mma(void** lanes, unsigned, const void* setting) {
    const auto& tile = *static_cast<const ua_emu_tile*>(setting);
    switch (tile.type) {
        case UA_EMU_F16: return run<UA_EMU_F16>(lanes, tile);
        case UA_EMU_BF16: return run<UA_EMU_BF16>(lanes, tile);
        case UA_EMU_TF32: return run<UA_EMU_TF32>(lanes, tile);
        default: return run<UA_EMU_F32>(lanes, tile);
    }
}
