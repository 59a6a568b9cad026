// Products of bf16 by the device headers against sums in double; exits with 1 if an element is wrong, with 2 without AMX.
// Not here: with which instructions (the flags say).
#include <sys/syscall.h>
#include <ua/engine.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

// y[rows][cols] += round(x) * packed. Row p of x is `segments` runs of `length` floats, run s at x + p*row + s*run.
static void product(const float* x, int64_t row, int64_t run, int segments, int length, const ua::bf16* packed, float* y,
                    int rows, int cols, int k_block, int row_block, int panel_group) {
    int32_t shift[64];
    for (int s = 0; s < segments; ++s) shift[s] = int32_t(s * run);
    const ua::Bf16Contraction c{packed, segments > 1 ? shift : nullptr, segments, length, k_block, row_block, panel_group};
    ua::contract_bf16(
        c, 0, rows, 0, (cols + 15) / 16, [&](int64_t m) { return x + m * row; },
        [&](int64_t m, int count, int panel, int panels, const float* tile) {
            for (int p = 0; p < count; ++p)
                for (int j = 0; j < panels * 16 && panel * 16 + j < cols; ++j)
                    y[(m + p) * cols + panel * 16 + j] += tile[p * 16 * panels + j];
        });
}

// Against the sum of the same rounded operands in double: how many elements are off by more than 1e-5 of the sum of magnitudes.
static int wrong(int rows, int cols, int segments, int length, int k_block, int row_block, int group) {
    const int depth = segments * length, k = (depth + 31) / 32 * 32, panels = (cols + 15) / 16, gap = length + 3;
    std::vector<float> x(size_t(rows) * segments * gap), y(size_t(rows) * cols), w(size_t(depth) * cols);
    uint32_t state = 1;
    const auto next = [&] { return float(int32_t(state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f; };
    for (float& v : x) v = next();
    for (float& v : w) v = ua::rounded<ua::bf16>(next());
    ua::bf16* const packed = static_cast<ua::bf16*>(std::aligned_alloc(64, size_t(panels) * k * 32));
    for (int p = 0; p < panels; ++p)
        for (int d = 0; d < k; ++d)
            for (int j = 0; j < 16; ++j)
                packed[(size_t(p) * k + d / 2 * 2) * 16 + j * 2 + d % 2] =
                    ua::to_bf16(d < depth && p * 16 + j < cols ? w[size_t(d) * cols + p * 16 + j] : 0.0f);
    product(x.data(), segments * gap, gap, segments, length, packed, y.data(), rows, cols, k_block, row_block, group);
    int found = 0;
    for (int m = 0; m < rows; ++m)
        for (int n = 0; n < cols; ++n) {
            double sum = 0, size = 0;
            for (int d = 0; d < depth; ++d) {
                const double term = double(ua::rounded<ua::bf16>(x[size_t(m) * segments * gap + d / length * gap + d % length])) *
                                    w[size_t(d) * cols + n];
                sum += term, size += std::fabs(term);
            }
            found += !(std::fabs(y[size_t(m) * cols + n] - sum) <= 1e-5 * size + 1e-30);
        }
    std::free(packed);
    return found;
}

int main() {
#if defined(__AMX_BF16__) && !defined(UA_TILES_IN_SOFTWARE)
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return puts("no AMX"), 2;
#endif
    int total = 0, cases = 0;
    const int shapes[][7] = {{1, 16, 1, 32, 0, 1, 1},     {16, 32, 1, 64, 0, 16, 2},    {33, 50, 1, 100, 32, 512, 4},
                             {70, 17, 9, 16, 64, 40, 1},  {45, 96, 3, 5, 0, 20, 6},     {128, 64, 1, 256, 64, 128, 4},
                             {49, 130, 9, 32, 96, 192, 9}, {31, 33, 2, 31, 32, 512, 2}};
    for (const auto& s : shapes) {
        const int found = wrong(s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
        std::printf("%d x %d, depth %d x %d: %d wrong\n", s[0], s[1], s[2], s[3], found);
        total += found, ++cases;
    }
    std::printf("%d shapes, %d wrong\n", cases, total);
    return total != 0;
}
