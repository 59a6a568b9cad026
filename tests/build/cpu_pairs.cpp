// Products of 16-bit pairs by the device headers against plain sums; exits with 1 if an element is wrong, with 2 without AMX.
// Not here: with which instructions (the flags say). UA_PRODUCTS_OF_BF16: those too, beside the integers.
#define UA_PRODUCTS_OF_I16
#include <sys/syscall.h>
#include <ua/engine.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

struct Shape {
    int rows, cols, segments, length, k_block, row_block, panel_group;
    int depth() const { return segments * length; }
    int k() const { return (depth() + 31) / 32 * 32; }
    int gap() const { return length + 3; }  // between runs of a row
    int place(int m, int d) const { return (m * segments + d / length) * gap() + d % length; }
};

static uint32_t state = 1;
static int32_t drawn() { return int32_t(state = state * 1664525u + 1013904223u); }

// w[depth][cols] in panels of pairs.
template <class T>
static T* packed(const Shape& s, const std::vector<T>& w) {
    const int panels = (s.cols + 15) / 16;
    T* const to = static_cast<T*>(std::aligned_alloc(64, size_t(panels) * s.k() * 32));
    for (int p = 0; p < panels; ++p)
        for (int d = 0; d < s.k(); ++d)
            for (int j = 0; j < 16; ++j)
                to[(size_t(p) * s.k() + d / 2 * 2) * 16 + j * 2 + d % 2] =
                    d < s.depth() && p * 16 + j < s.cols ? w[size_t(d) * s.cols + p * 16 + j] : T{};
    return to;
}

template <class Sum, class Product>
static std::vector<Sum> product(const Shape& s, const void* panels, const Product& contract) {
    std::vector<int32_t> shift;
    for (int r = 0; r < s.segments; ++r) shift.push_back(r * s.gap());
    const ua::PairContraction c{panels,    s.segments > 1 ? shift.data() : nullptr, s.segments, s.length, s.k_block, s.row_block,
                                s.panel_group};
    std::vector<Sum> y(size_t(s.rows) * s.cols);
    contract(c, [&](int64_t m, int count, int panel, int panels, const Sum* tile) {
        for (int p = 0; p < count; ++p)
            for (int j = 0; j < panels * 16 && panel * 16 + j < s.cols; ++j)
                y[(m + p) * s.cols + panel * 16 + j] += tile[p * 16 * panels + j];
    });
    return y;
}

// Elements that are not the sum of their products, which wraps.
template <class Source>
static int wrong_integers(const Shape& s) {
    std::vector<Source> x(size_t(s.rows) * s.segments * s.gap());
    std::vector<int16_t> w(size_t(s.depth()) * s.cols);
    for (auto& v : x) v = Source(drawn() >> 8);
    for (auto& v : w) v = int16_t(drawn() >> 8);
    int16_t* const panels = packed(s, w);
    const auto y = product<int32_t>(s, panels, [&](const ua::PairContraction& c, auto done) {
        const auto rows = [&](int64_t m) -> const Source* { return x.data() + s.place(int(m), 0); };
        ua::contract_i16(c, 0, s.rows, 0, (s.cols + 15) / 16, rows, done);
    });
    int found = 0;
    for (int m = 0; m < s.rows; ++m)
        for (int n = 0; n < s.cols; ++n) {
            uint32_t sum = 0;
            for (int d = 0; d < s.depth(); ++d)
                sum += uint32_t(int32_t(x[s.place(m, d)]) * int32_t(w[size_t(d) * s.cols + n]));
            found += y[size_t(m) * s.cols + n] != int32_t(sum);
        }
    std::free(panels);
    return found;
}

#if defined(UA_PRODUCTS_OF_BF16)
// Elements that are off by more than 1e-5 of the sum of magnitudes of the rounded operands' products.
static int wrong_bf16(const Shape& s) {
    std::vector<float> x(size_t(s.rows) * s.segments * s.gap());
    std::vector<ua::bf16> w(size_t(s.depth()) * s.cols);
    for (float& v : x) v = float(drawn()) * 0x1p-31f;
    for (auto& v : w) v = ua::to_bf16(float(drawn()) * 0x1p-31f);
    ua::bf16* const panels = packed(s, w);
    const auto y = product<float>(s, panels, [&](const ua::PairContraction& c, auto done) {
        const auto rows = [&](int64_t m) -> const float* { return x.data() + s.place(int(m), 0); };
        ua::contract_bf16(c, 0, s.rows, 0, (s.cols + 15) / 16, rows, done);
    });
    int found = 0;
    for (int m = 0; m < s.rows; ++m)
        for (int n = 0; n < s.cols; ++n) {
            double sum = 0, size = 0;
            for (int d = 0; d < s.depth(); ++d) {
                const double left = ua::rounded<ua::bf16>(x[s.place(m, d)]);
                const double term = left * ua::to_float(w[size_t(d) * s.cols + n]);
                sum += term, size += std::fabs(term);
            }
            found += !(std::fabs(y[size_t(m) * s.cols + n] - sum) <= 1e-5 * size + 1e-30);
        }
    std::free(panels);
    return found;
}
#endif

int main() {
#if defined(__AMX_BF16__) && !defined(UA_TILES_IN_SOFTWARE)
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return puts("no AMX"), 2;
#endif
    int total = 0, cases = 0;
    const Shape shapes[] = {{1, 16, 1, 32, 0, 1, 1},     {16, 32, 1, 64, 0, 16, 2},     {33, 50, 1, 100, 32, 512, 4},
                            {70, 17, 9, 16, 64, 40, 1},  {45, 96, 3, 5, 0, 20, 6},      {128, 64, 1, 256, 64, 128, 4},
                            {49, 130, 9, 32, 96, 192, 9}, {31, 33, 2, 31, 32, 512, 2}};
    for (const Shape& s : shapes) {
        int found = wrong_integers<int8_t>(s) + wrong_integers<uint8_t>(s) + wrong_integers<int16_t>(s);
#if defined(UA_PRODUCTS_OF_BF16)
        found += wrong_bf16(s);
#endif
        std::printf("%d x %d, depth %d x %d: %d wrong\n", s.rows, s.cols, s.segments, s.length, found);
        total += found, ++cases;
    }
    std::printf("%d shapes, %d wrong\n", cases, total);
    return total != 0;
}
