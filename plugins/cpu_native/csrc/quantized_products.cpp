// Products with quantised weights: a library of its own, of which products.h has the interface.
//
// A group's sum runs over its inputs from the first to the last, is scaled, and added to the sums of the groups before
// it: the same in every kernel, so what a row gives does not depend on how many rows stand beside it. Of a few rows each
// code is widened where it is multiplied; of many rows a group's levels are looked up once, and stay in the nearest cache.
#include <utility>
#include <vector>

#include "codes.h"
#include "products.h"

namespace llmfw {
namespace {

constexpr int PER_PANEL = PANEL / LANES;
constexpr int64_t LINE = 64, AHEAD = 4096;  // bytes that codes are fetched at a time, and ahead of their use

// sums[panel][row][PANEL] += the product of ROWS rows with some groups. `apart`: from one panel's sums to the other's.
template <typename Codes, int ROWS, int PANELS>
void multiply_groups(const float* input, int64_t stride, const uint8_t* first, const uint8_t* second, int64_t groups,
                     float* sums, int64_t apart) {
    constexpr int VECTORS = PER_PANEL * PANELS;
    constexpr int64_t EACH = Codes::input_bytes < LINE ? LINE / Codes::input_bytes : 1;
    for (int64_t group = 0; group < groups; ++group, input += GROUP) {
        const uint8_t* blocks[2] = {first + group * group_bytes<Codes>(), second + group * group_bytes<Codes>()};
        Floats totals[ROWS][VECTORS] = {};
        for (int64_t begin = 0; begin < GROUP; begin += EACH) {
            LLMFW_UNROLL
            for (int64_t i = 0; i < EACH; ++i) {
                Floats w[VECTORS];
                LLMFW_UNROLL
                for (int v = 0; v < VECTORS; ++v) {
                    const uint8_t* codes = blocks[v / PER_PANEL] + SCALES + (begin + i) * Codes::input_bytes;
                    w[v] = Codes::load(codes, v % PER_PANEL * LANES);
                    if (EACH > 1 && i == 0 && v % PER_PANEL == 0) __builtin_prefetch(codes + AHEAD);
                }
                LLMFW_UNROLL
                for (int row = 0; row < ROWS; ++row) {
                    const Floats x = broadcast(input[row * stride + begin + i]);
                    LLMFW_UNROLL
                    for (int v = 0; v < VECTORS; ++v) totals[row][v] = add_product(totals[row][v], w[v], x);
                }
            }
        }
        LLMFW_UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            const int column = v % PER_PANEL * LANES;
            const Floats scales = load(reinterpret_cast<const bfloat16*>(blocks[v / PER_PANEL]) + column);
            LLMFW_UNROLL
            for (int row = 0; row < ROWS; ++row) {
                float* to = sums + v / PER_PANEL * apart + row * PANEL + column;
                store(to, add_product(load(to), totals[row][v], scales));
            }
        }
    }
}

typedef void (*Kernel)(const float*, int64_t, const uint8_t*, const uint8_t*, int64_t, float*, int64_t);

constexpr int FEW_ROWS = MAX_ROWS;  // so many at most multiply each code as it is widened

template <typename Codes, int PANELS, int... I>
Kernel kernel(int64_t rows, std::integer_sequence<int, I...>) {
    static constexpr Kernel kernels[] = {multiply_groups<Codes, I + 1, PANELS>...};
    return kernels[rows - 1];
}

template <typename Codes>
Kernel few_rows(int64_t rows) {
    return kernel<Codes, 1>(rows, std::make_integer_sequence<int, FEW_ROWS>());
}

template <typename Codes>
Kernel two_panels(int64_t rows) {
    return kernel<Codes, 2>(rows, std::make_integer_sequence<int, MAX_PAIR_ROWS>());
}

Kernel many_rows(int64_t rows) {
    return kernel<Levels, 1>(rows, std::make_integer_sequence<int, MAX_ROWS>());
}

// A group with its levels looked up.
template <typename Codes>
void look_up(const uint8_t* group, uint8_t* to) {
    for (int64_t line = 0; line < group_bytes<Codes>(); line += LINE) __builtin_prefetch(group + AHEAD + line);
    std::memcpy(to, group, SCALES);
    for (int64_t i = 0; i < GROUP; ++i) {
        float* levels = reinterpret_cast<float*>(to + SCALES + i * Levels::input_bytes);
        LLMFW_UNROLL
        for (int column = 0; column < PANEL; column += LANES)
            store(levels + column, Codes::load(group + SCALES + i * Codes::input_bytes, column));
    }
}

template <typename Codes>
void multiply_many(const float* input, int64_t stride, int64_t rows, const uint8_t* panel, int64_t groups, float* sums) {
    constexpr int64_t AT_ONCE = 4;
    alignas(64) uint8_t levels[AT_ONCE * group_bytes<Levels>()];
    const int64_t blocks = (rows + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t group = 0; group < groups; group += AT_ONCE, input += AT_ONCE * GROUP) {
        const int64_t together = groups - group < AT_ONCE ? groups - group : AT_ONCE;
        for (int64_t i = 0; i < together; ++i)
            look_up<Codes>(panel + (group + i) * group_bytes<Codes>(), levels + i * group_bytes<Levels>());
        for (int64_t block = 0, row = 0; block < blocks; ++block) {
            const int64_t count = (rows - row + blocks - block - 1) / (blocks - block);
            many_rows(count)(input + row * stride, stride, levels, nullptr, together, sums + row * PANEL, 0);
            row += count;
        }
    }
}

template <typename Codes>
void multiply(const float* input, int64_t stride, int64_t rows, const uint8_t* first, const uint8_t* second,
              int64_t groups, float* sums) {
    if (second && rows <= MAX_PAIR_ROWS)
        return two_panels<Codes>(rows)(input, stride, first, second, groups, sums, rows * PANEL);
    for (const uint8_t* panel : {first, second}) {
        if (panel && rows <= FEW_ROWS)
            few_rows<Codes>(rows)(input, stride, panel, nullptr, groups, sums, 0);
        else if (panel)
            multiply_many<Codes>(input, stride, rows, panel, groups, sums);
        sums += rows * PANEL;
    }
}

float* memory(int64_t size, std::vector<float>& kept) {
    if (kept.size() < static_cast<size_t>(size)) kept.resize(size);
    return kept.data();
}

inline const float* as_floats(const float* input, int64_t stride) { return stride < 0 ? nullptr : input; }
inline const float* as_floats(const bfloat16*, int64_t) { return nullptr; }

// Rows in float32, zeros after them up to whole groups.
template <typename T>
const float* whole_groups(const T* input, int64_t& stride, int64_t rows, int64_t in) {
    const int64_t width = num_groups(in) * GROUP;
    const float* as_it_is = as_floats(input, stride);
    if (as_it_is && width == in) return as_it_is;
    thread_local std::vector<float> kept;
    float* to = memory(rows * width, kept);
    for (int64_t row = 0; row < rows; ++row, input += stride)
        for (int64_t i = 0; i < width; i += LANES) {
            const int64_t left = in - i < 0 ? 0 : in - i;
            store(to + row * width + i, load_part(input + i, left));
        }
    stride = width;
    return to;
}

template <typename Codes>
void pack(const uint8_t* codes, const bfloat16* scales, int64_t out, int64_t groups, uint8_t* panels, int64_t panel) {
    constexpr int64_t SIZE = group_bytes<Codes>();
    const int64_t columns = out - panel * PANEL < PANEL ? out - panel * PANEL : PANEL;
    for (int64_t group = 0; group < groups; ++group) {
        uint8_t* to = panels + (panel * groups + group) * SIZE;
        std::memset(to, 0, SIZE);
        for (int64_t column = 0; column < columns; ++column) {
            const int64_t from = (panel * PANEL + column) * groups + group;
            reinterpret_cast<bfloat16*>(to)[column] = scales[from];
            for (int64_t i = 0; i < GROUP; ++i)
                Codes::put(to + SCALES + i * Codes::input_bytes, column, codes[from * GROUP + i]);
        }
    }
}

template <typename Codes>
void unpack(const uint8_t* panels, int64_t out, int64_t groups, uint8_t* codes, bfloat16* scales, int64_t panel) {
    constexpr int64_t SIZE = group_bytes<Codes>();
    for (int64_t column = 0; column < PANEL && panel * PANEL + column < out; ++column)
        for (int64_t group = 0; group < groups; ++group) {
            const uint8_t* from = panels + (panel * groups + group) * SIZE;
            const int64_t to = (panel * PANEL + column) * groups + group;
            scales[to] = reinterpret_cast<const bfloat16*>(from)[column];
            for (int64_t i = 0; i < GROUP; ++i)
                codes[to * GROUP + i] = Codes::code(from + SCALES + i * Codes::input_bytes, column);
        }
}

template <typename Codes, typename T>
void unpack_row(const Matrix& matrix, int64_t row, T* to) {
    const int64_t column = row % PANEL;
    const uint8_t* group = codes_at<Codes>(matrix, row / PANEL);
    for (int64_t begin = 0; begin < matrix.in; begin += GROUP, group += group_bytes<Codes>()) {
        const float scale = to_float(reinterpret_cast<const bfloat16*>(group)[column]);
        uint32_t codes[GROUP];
        for (int64_t i = 0; i < GROUP; ++i) codes[i] = Codes::code(group + SCALES + i * Codes::input_bytes, column);
        for (int64_t i = 0; i < GROUP && begin + i < matrix.in; i += LANES)
            store_part(to + begin + i, Codes::level(load(codes + i)) * broadcast(scale), matrix.in - begin - i);
    }
}

const float* sums(const Scalar* input, int64_t stride, int64_t rows, int64_t in, Kind kind, const Panels& panels) {
    thread_local std::vector<float> kept;
    const int64_t size = panels.count * rows * PANEL, groups = num_groups(in);
    float* sums = memory(size, kept);
    std::memset(sums, 0, size * sizeof(float));
    const float* floats = whole_groups(input, stride, rows, in);
    const auto run = kind == INT8 ? multiply<Int8> : multiply<Int4>;
    for (int i = 0; i < panels.count; i += 2) {
        const auto at = [&](int panel) {
            return panel < panels.count ? static_cast<const uint8_t*>(panels.at[panel]) : nullptr;
        };
        run(floats, stride, rows, at(i), at(i + 1), groups, sums + i * rows * PANEL);
    }
    return sums;
}

constexpr QuantizedProducts PRODUCTS = {
    [](const Matrix& matrix, int64_t panel) -> const void* {
        return matrix.kind == INT8 ? codes_at<Int8>(matrix, panel) : codes_at<Int4>(matrix, panel);
    },
    sums,
    [](const Matrix& matrix, int64_t row, Scalar* to) {
        matrix.kind == INT8 ? unpack_row<Int8>(matrix, row, to) : unpack_row<Int4>(matrix, row, to);
    },
    [](Kind kind, const uint8_t* codes, const bfloat16* scales, int64_t out, int64_t groups, uint8_t* panels,
       int64_t panel) { (kind == INT8 ? pack<Int8> : pack<Int4>)(codes, scales, out, groups, panels, panel); },
    [](Kind kind, const uint8_t* panels, int64_t out, int64_t groups, uint8_t* codes, bfloat16* scales, int64_t panel) {
        (kind == INT8 ? unpack<Int8> : unpack<Int4>)(panels, out, groups, codes, scales, panel);
    }};

}  // namespace
}  // namespace llmfw

extern "C" const llmfw::QuantizedProducts* llmfw_quantized_products() { return &llmfw::PRODUCTS; }
