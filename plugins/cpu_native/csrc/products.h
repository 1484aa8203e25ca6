// GEMM with weights that were packed once: output [rows, out] = input [rows, in] · weights [out, in]ᵀ, for a few rows
// (decode) or many (prefill).
//
// Packed weights are panels of 32 output features: [out / 32][in][32] in float32, [out / 32][in / 2][32][2] in
// bfloat16, rounded up; missing features and inputs are zeros. So a product reads its weights sequentially whatever the
// number of rows, and writes whole panels: outputs need room for `out` rounded up to a multiple of 32.
#pragma once

#include <cstdint>

#include "multiply.h"
#include "pool.h"
#include "simd.h"

namespace llmfw {

// Content of a matrix's panels: numbers of type Scalar, or 8-bit or 4-bit codes in the layout of codes.h.
enum Kind : int64_t { NUMBERS, INT8, INT4 };

// The packed weights [out, in] and the bias of a linear layer. Does not own them.
struct Matrix {
    const void* panels;
    const float* bias;  // [out], or null
    int64_t out;        // output features, a multiple of PANEL
    int64_t in;
    Kind kind;
};

// Splits a product into chunks: groups of rows × groups of panels.
struct Cut {
    int64_t rows, row_size, panels, panel_size;

    // `most`: maximum panels per chunk.
    Cut(int64_t rows, int64_t panels, int64_t most = MAX_PANELS) : rows(rows), row_size(rows), panels(panels) {
        if (rows > MOST_ROWS) {
            const int64_t groups = (rows + MOST_ROWS - 1) / MOST_ROWS;
            row_size = ((rows + groups - 1) / groups + MAX_ROWS - 1) / MAX_ROWS * MAX_ROWS;
        }
        // Choose the panels per chunk that minimize the work of the busiest thread. If rows are few, take an even
        // number: two panels that are read side by side come from memory faster than one after the other.
        constexpr int64_t EACH = 3;  // minimum chunks per thread, if there are enough panels
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
    // The chunks of one group of panels are consecutive. So a thread reuses panels that are still in its core's cache,
    // and each thread's share of the chunks mixes all groups of rows, which keeps shares equally large.
    int64_t first_row(int64_t chunk) const { return chunk % row_groups() * row_size; }
    int64_t end_row(int64_t chunk) const { return smaller(rows, first_row(chunk) + row_size); }
    int64_t first_panel(int64_t chunk) const { return chunk / row_groups() * panel_size; }
    int64_t end_panel(int64_t chunk) const { return smaller(panels, first_panel(chunk) + panel_size); }

private:
    static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
};

// Functions for quantized weights, in a library of their own (quantized_products.cpp) because few servers need them.
struct QuantizedProducts {
    // Returns the address of a panel.
    const void* (*panel)(const Matrix& matrix, int64_t panel);
    // Multiplies rows by panels; arguments and result as in `sums_of` (multiply.h).
    const float* (*sums)(const Scalar* input, int64_t stride, int64_t rows, int64_t in, Kind kind, const Panels& panels);
    // Dequantizes the weights of one output feature: [in].
    void (*unpack_row)(const Matrix& matrix, int64_t row, Scalar* to);
    // Packs one panel from codes [out, groups, GROUP], one per byte, and scales [out, groups]; `unpack` is the inverse.
    void (*pack)(Kind kind, const uint8_t* codes, const bfloat16* scales, int64_t out, int64_t groups, uint8_t* panels,
                 int64_t panel);
    void (*unpack)(Kind kind, const uint8_t* panels, int64_t out, int64_t groups, uint8_t* codes, bfloat16* scales,
                   int64_t panel);
};

extern const QuantizedProducts* quantized;  // null until `llmfw_use_quantized`; no matrix may have codes before

// Returns the address of a panel.
template <typename T>
inline const void* panel_at(const Matrix& matrix, int64_t panel) {
    if (matrix.kind != NUMBERS) return quantized->panel(matrix, panel);
    return static_cast<const typename Unit<T>::type*>(matrix.panels) + panel * num_units<T>(matrix.in) * PANEL;
}

// Returns LANES sums of a panel, from `column` on, with the bias added.
inline Floats biased(const float* sums, const Matrix& matrix, int64_t panel, int64_t column) {
    Floats x = load(sums + column);
    return matrix.bias ? x + load(matrix.bias + panel * PANEL + column) : x;
}

// Multiplies rows by panels of the same kind as those of `matrix`. Arguments and result as in `sums_of` (multiply.h).
template <typename T>
inline const float* sums_with(const Matrix& matrix, const T* input, int64_t stride, int64_t rows, const Panels& panels) {
    if (matrix.kind != NUMBERS) return quantized->sums(input, stride, rows, matrix.in, matrix.kind, panels);
    return sums_of(input, stride, rows, matrix.in, panels);
}

// Returns what a chunk of a product reads first: its first panel and the next one, which may be read side by side.
template <typename T>
inline Reads product_reads(const Matrix& matrix, int64_t rows, int64_t chunk) {
    const Cut cut(rows, matrix.out / PANEL);
    const char* first = static_cast<const char*>(panel_at<T>(matrix, cut.first_panel(chunk)));
    const char* second = static_cast<const char*>(panel_at<T>(matrix, cut.first_panel(chunk) + 1));
    return {{first, second}, second - first};
}

// Computes one chunk of a product. Calls finish(row, panel, sums) for each of its rows and panels; `sums` [PANEL] are
// without bias. `next`: what the thread will read afterwards.
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

// Returns the work of a product, in the unit of pool.h.
inline int64_t product_work(const Matrix& matrix, int64_t rows) { return matrix.out * matrix.in * (rows + READING); }

// Copies the weights of output feature `row` to `to` in the usual layout, [in]; dequantizes them if they are codes.
template <typename T>
inline void unpack_row(const Matrix& matrix, int64_t row, T* to) {
    if (matrix.kind != NUMBERS) return quantized->unpack_row(matrix, row, to);
    constexpr int64_t SIZE = Unit<T>::size;
    const T* from = static_cast<const T*>(panel_at<T>(matrix, row / PANEL)) + row % PANEL * SIZE;
    for (int64_t k = 0; k < matrix.in; ++k) to[k] = from[k / SIZE * PANEL * SIZE + k % SIZE];
}

}  // namespace llmfw
