// The matrix instructions of the PTX ISA, one at a time: ldmatrix and mma.sync, lane by lane as the ISA lays fragments out.
#pragma once
#include "device.h"

namespace ua_emulator {

struct MatrixLoad {
    uint32_t* registers;
    const unsigned char* row;
};

// Register i of lane l gets elements 2 * (l % 4) and the next of row l / 4 of matrix i; columns and rows swap if transposed.
template <int COUNT, bool TRANSPOSED>
__attribute__((no_sanitize("thread"))) void load_matrices_operation(void** lanes, unsigned, const void*) {
    for (int matrix = 0; matrix < COUNT; matrix++) {
        const uint16_t* row[8];
        for (int i = 0; i < 8; i++)
            row[i] = reinterpret_cast<const uint16_t*>(static_cast<MatrixLoad*>(lanes[matrix * 8 + i])->row);
        for (int lane = 0; lane < 32; lane++) {
            const int outer = lane / 4, inner = lane % 4 * 2;
            const uint32_t low = TRANSPOSED ? row[inner][outer] : row[outer][inner];
            const uint32_t high = TRANSPOSED ? row[inner + 1][outer] : row[outer][inner + 1];
            static_cast<MatrixLoad*>(lanes[lane])->registers[matrix] = low | high << 16;
        }
    }
}

template <int COUNT, bool TRANSPOSED>
inline void load_matrices(uint32_t* registers, const void* row, ua_emu_site site) {
    if (reinterpret_cast<uintptr_t>(row) % 16) ua_emu_fail("ldmatrix reads rows at multiples of 16 bytes only", site);
#ifdef UA_EMULATOR_CHECKED
    if (ua_emu_self.lane < COUNT * 8) ua_emu_note(row, 16, UA_EMU_LDMATRIX, nullptr);
#endif
    MatrixLoad mine = {registers, static_cast<const unsigned char*>(row)};
    ua_emu_warp(0xffffffffu, &mine, load_matrices_operation<COUNT, TRANSPOSED>, nullptr, site);
}

struct MultiplyAdd {
    float* c;
    const uint32_t* a;
    const uint32_t* b;
};

template <int KIND>
float operand(uint32_t word, int half) {
    if (KIND == UA_EMU_TF32) return ua_emu_bits<float>(word & 0xffffe000u);
    const uint16_t bits = static_cast<uint16_t>(half ? word >> 16 : word);
    if (KIND == UA_EMU_F16) return static_cast<float>(ua_emu_bits<_Float16>(bits));
    return ua_emu_bits<float>(static_cast<uint32_t>(bits) << 16);
}

// m16n8k16 (f16, bf16) and m16n8k8 (tf32). With group g = lane / 4 and t = lane % 4: A's registers are (row g, g + 8) x (k half 0, 1),
// rows fastest; B's are the k halves; C's are (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
template <int KIND>
__attribute__((no_sanitize("thread"))) void multiply_add_operation(void** lanes, unsigned, const void*) {
    constexpr int per_word = KIND == UA_EMU_TF32 ? 1 : 2, half = 4 * per_word, depth = 2 * half;
    float a[16][depth], b[depth][8];
    for (int lane = 0; lane < 32; lane++) {
        const MultiplyAdd& mine = *static_cast<MultiplyAdd*>(lanes[lane]);
        const int group = lane / 4, first = lane % 4 * per_word;
        for (int part = 0; part < per_word; part++) {
            for (int word = 0; word < 4; word++)
                a[group + word % 2 * 8][first + part + word / 2 * half] = operand<KIND>(mine.a[word], part);
            for (int word = 0; word < 2; word++)
                b[first + part + word * half][group] = operand<KIND>(mine.b[word], part);
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        float* c = static_cast<MultiplyAdd*>(lanes[lane])->c;
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
            float sum = c[i];
            for (int k = 0; k < depth; k++) sum += a[row][k] * b[k][col];
            c[i] = sum;
        }
    }
}

template <int KIND>
inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], ua_emu_site site) {
#ifdef UA_EMULATOR_CHECKED
    if (ua_emu_self.lane == 0) ua_emu_note_mma(1);
#endif
    MultiplyAdd mine = {c, a, b};
    ua_emu_warp(0xffffffffu, &mine, multiply_add_operation<KIND>, nullptr, site);
}

}  // namespace ua_emulator
