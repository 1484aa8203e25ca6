// Products of a few or many rows with weights that were packed once.
//
// Packed weights are panels of 32 output features: [out / 32][in][32] in float32, [out / 32][in / 2][32][2] in bfloat16;
// what is past the last feature is zeros. So the weights of a product are read from one end to the other, whatever the
// number of rows, and all that is written is whole panels: outputs need room for `out` rounded up to 32.
#pragma once

#include <cstdint>

#include "multiply.h"
#include "pool.h"
#include "simd.h"

namespace llmfw {

// What a matrix's panels hold: numbers of the product's own type, or codes as codes.h has them.
enum Kind : int64_t { NUMBERS, INT8, INT4 };

// Weights [out, in], packed, with what is added to their product.
struct Matrix {
    const void* panels;
    const float* bias;  // [out], or null
    int64_t out;        // a multiple of PANEL
    int64_t in;
    Kind kind;
};

// How the work of a product is cut: groups of rows times groups of panels.
struct Cut {
    int64_t rows, row_size, panels, panel_size;

    // At most so many panels at once.
    Cut(int64_t rows, int64_t panels, int64_t most = MAX_PANELS) : rows(rows), row_size(rows), panels(panels) {
        if (rows > MOST_ROWS) {
            const int64_t groups = (rows + MOST_ROWS - 1) / MOST_ROWS;
            row_size = ((rows + groups - 1) / groups + MAX_ROWS - 1) / MAX_ROWS * MAX_ROWS;
        }
        // As many panels at once as leave no thread without work at the end; of a few rows two at least, which come faster
        // from memory than one after the other.
        constexpr int64_t EACH = 3;  // chunks a thread should have
        const int64_t threads = num_threads(), fair = row_groups() * panels / (EACH * threads);
        const int64_t step = rows <= MAX_PAIR_ROWS && most % 2 == 0 && panels >= 2 * threads ? 2 : 1;
        int64_t least = INT64_MAX;
        panel_size = step;
        for (int64_t size = fair > most ? most : fair / step * step; size >= step; size -= step) {
            const int64_t groups = row_groups() * ((panels + size - 1) / size);
            const int64_t time = (groups + threads - 1) / threads * size;
            if (time < least) least = time, panel_size = size;
        }
    }
    int64_t row_groups() const { return row_size < 1 ? 0 : (rows + row_size - 1) / row_size; }
    int64_t panel_groups() const { return (panels + panel_size - 1) / panel_size; }
    int64_t chunks() const { return row_groups() * panel_groups(); }
    // One after the other come all rows with the same panels: so shares of chunks are of all rows, and as large as each
    // other, and panels are still in a core's cache.
    int64_t first_row(int64_t chunk) const { return chunk % row_groups() * row_size; }
    int64_t end_row(int64_t chunk) const { return smaller(rows, first_row(chunk) + row_size); }
    int64_t first_panel(int64_t chunk) const { return chunk / row_groups() * panel_size; }
    int64_t end_panel(int64_t chunk) const { return smaller(panels, first_panel(chunk) + panel_size); }

private:
    static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
};

// What there is to do with codes. It is in a library of its own, since few need it: quantized_products.cpp.
struct QuantizedProducts {
    // The codes of a panel.
    const void* (*panel)(const Matrix& matrix, int64_t panel);
    // The sums of some rows with some panels, as `sums_of` in multiply.h has them.
    const float* (*sums)(const Scalar* input, int64_t stride, int64_t rows, int64_t in, Kind kind, const Panels& panels);
    // The numbers of one output, [in].
    void (*unpack_row)(const Matrix& matrix, int64_t row, Scalar* to);
    // codes [out, groups, GROUP], one in a byte, and scales [out, groups] → one of the panels, and back.
    void (*pack)(Kind kind, const uint8_t* codes, const bfloat16* scales, int64_t out, int64_t groups, uint8_t* panels,
                 int64_t panel);
    void (*unpack)(Kind kind, const uint8_t* panels, int64_t out, int64_t groups, uint8_t* codes, bfloat16* scales,
                   int64_t panel);
};

extern const QuantizedProducts* quantized;  // null until `llmfw_use_quantized`: before that no matrix has codes

template <typename T>
inline const void* panel_at(const Matrix& matrix, int64_t panel) {
    if (matrix.kind != NUMBERS) return quantized->panel(matrix, panel);
    return static_cast<const typename Unit<T>::type*>(matrix.panels) + panel * num_units<T>(matrix.in) * PANEL;
}

inline Floats biased(const float* sums, const Matrix& matrix, int64_t panel, int64_t column) {
    Floats x = load(sums + column);
    return matrix.bias ? x + load(matrix.bias + panel * PANEL + column) : x;
}

// The sums of some rows with panels that hold what those of `matrix` do.
template <typename T>
inline const float* sums_with(const Matrix& matrix, const T* input, int64_t stride, int64_t rows, const Panels& panels) {
    if (matrix.kind != NUMBERS) return quantized->sums(input, stride, rows, matrix.in, matrix.kind, panels);
    return sums_of(input, stride, rows, matrix.in, panels);
}

// With what a chunk of a product begins.
template <typename T>
inline Reads product_reads(const Matrix& matrix, int64_t rows, int64_t chunk) {
    const Cut cut(rows, matrix.out / PANEL);
    const char* first = static_cast<const char*>(panel_at<T>(matrix, cut.first_panel(chunk)));
    const char* second = static_cast<const char*>(panel_at<T>(matrix, cut.first_panel(chunk) + 1));
    return {{first, second}, second - first};
}

// One chunk of a product; finish(row, panel, sums of this row and panel's columns, without bias).
template <typename T, typename Finish>
inline void product_chunk(const Matrix& matrix, const T* input, int64_t stride, int64_t rows, int64_t chunk,
                          const Reads& next, const Finish& finish) {
    const Cut cut(rows, matrix.out / PANEL);
    const int64_t first = cut.first_row(chunk), many = cut.end_row(chunk) - first;
    const int64_t panel = cut.first_panel(chunk), end = cut.end_panel(chunk);
    Panels panels{{}, static_cast<int>(end - panel), {next.at[0], next.at[1]}};
    for (int i = 0; i < panels.count; ++i) panels.at[i] = panel_at<T>(matrix, panel + i);
    const float* sums = sums_with(matrix, input + first * stride, stride, many, panels);
    for (int64_t row = 0; row < many; ++row)
        for (int i = 0; i < panels.count; ++i) finish(first + row, panel + i, sums + (i * many + row) * PANEL);
}

inline int64_t product_chunks(const Matrix& matrix, int64_t rows) { return Cut(rows, matrix.out / PANEL).chunks(); }

// How much work it is, in the words of pool.h.
inline int64_t product_work(const Matrix& matrix, int64_t rows) { return matrix.out * matrix.in * (rows + READING); }

// The weights of one output in their usual layout: [in].
template <typename T>
inline void unpack_row(const Matrix& matrix, int64_t row, T* to) {
    if (matrix.kind != NUMBERS) return quantized->unpack_row(matrix, row, to);
    constexpr int64_t SIZE = Unit<T>::size;
    const T* from = static_cast<const T*>(panel_at<T>(matrix, row / PANEL)) + row % PANEL * SIZE;
    for (int64_t k = 0; k < matrix.in; ++k) to[k] = from[k / SIZE * PANEL * SIZE + k % SIZE];
}

}  // namespace llmfw
