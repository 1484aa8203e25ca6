// Products of a few or many rows with weights that were packed once.
//
// Packed weights are panels of 32 output features: [out / 32][in][32] in float32, [out / 32][in / 2][32][2] in bfloat16;
// what is past the last feature is zeros. So the weights of a product are read from one end to the other, whatever the
// number of rows, and all that is written is whole panels: outputs need room for `out` rounded up to 32.
//
// A number's sum runs over the inputs from the first to the last, in every kernel: what a row gives does not depend on
// how many rows stand beside it.
#pragma once

#include <cstdint>

#include "pairs.h"
#include "pool.h"
#include "simd.h"

namespace llmfw {

constexpr int64_t PANEL = 32;
#if defined(__AVX512F__)
constexpr int MAX_ROWS = 12;      // of a block: what 32 registers hold
constexpr int MAX_PAIR_ROWS = 4;  // of a block of two panels
#else
constexpr int MAX_ROWS = 2;
constexpr int MAX_PAIR_ROWS = 1;
#endif

// What a matrix's panels hold: numbers of the product's own type, or codes as codes.h has them.
enum Kind : int64_t { NUMBERS, INT8, INT4 };

// Weights [out, in], packed, with what is added to their product.
struct Matrix {
    const void* panels;
    const float* bias;  // [out], or null
    int64_t out;        // a multiple of PANEL
    int64_t in;
    int64_t kind;  // a Kind
};

template <typename T>
inline int64_t num_units(int64_t in) {
    return (in + Unit<T>::size - 1) / Unit<T>::size;
}

// How the work of a product is cut: blocks of rows, whose inputs stay in a core's cache, times groups of panels.
struct Cut {
    int64_t rows, row_size, panels, panel_size;

    Cut(int64_t rows, int64_t panels, int64_t in)
        : rows(rows), row_size(rows < 1 ? 1 : rows), panels(panels), panel_size(1) {
        constexpr int64_t cached = 1 << 18, most = 96;
        if (rows > most) {
            int64_t size = cached / (in < 1 ? 1 : in);
            size = size < 24 ? 24 : size > most ? most : size;
            row_size = size / 12 * 12;
        }
        if (rows <= MAX_PAIR_ROWS && panels >= 16 * num_threads()) panel_size = 2;
    }
    int64_t panel_groups() const { return (panels + panel_size - 1) / panel_size; }
    int64_t chunks() const { return (rows + row_size - 1) / row_size * panel_groups(); }
    int64_t first_row(int64_t chunk) const { return chunk / panel_groups() * row_size; }
    int64_t end_row(int64_t chunk) const { return smaller(rows, first_row(chunk) + row_size); }
    int64_t first_panel(int64_t chunk) const { return chunk % panel_groups() * panel_size; }
    int64_t end_panel(int64_t chunk) const { return smaller(panels, first_panel(chunk) + panel_size); }

private:
    static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
};

// sums[panel][row][PANEL] of rows of `input`, for one or two panels (`second` may be null). ROWS at most MAX_ROWS.
template <typename T>
void multiply(const T* input, int64_t stride, int rows, const void* first, const void* second, int64_t units,
              float* sums);

// The same with weights in bfloat16, of which each number is multiplied as float32, as those of `input` are: pairs of
// them, the last one filled up with zero.
void multiply_wide(const float* input, int64_t stride, int rows, const void* first, const void* second, int64_t units,
                   float* sums);

// Rows in float32, in memory of this thread: [rows, stride], of which numbers past `width` are zero.
const float* widened(const bfloat16* input, int64_t stride, int rows, int64_t width, int64_t wide_stride);

// Of quantised weights: sums[panel][row][PANEL] of any number of rows, for a panel of `one` and, unless `other` is null,
// one of `other`, which is of the same kind and width. In memory of this thread, until its next call.
template <typename T>
const float* quantized_sums(const T* input, int64_t stride, int64_t rows, const Matrix& one, int64_t panel,
                            const Matrix* other, int64_t other_panel);

// The quantised weights of one output: [in].
template <typename T>
void unpack_quantized_row(const Matrix& matrix, int64_t row, T* to);

template <typename T>
inline const void* panel_at(const Matrix& matrix, int64_t panel) {
    return static_cast<const typename Unit<T>::type*>(matrix.panels) + panel * num_units<T>(matrix.in) * PANEL;
}

inline Floats biased(const float* sums, const Matrix& matrix, int64_t panel, int64_t column) {
    Floats x = load(sums + column);
    return matrix.bias ? x + load(matrix.bias + panel * PANEL + column) : x;
}

inline void multiply_rows(const float* input, int64_t stride, int rows, int64_t width, const void* first,
                          const void* second, float* sums) {
    multiply<float>(input, stride, rows, first, second, num_units<float>(width), sums);
}

// How pairs are multiplied depends on the CPU alone: a row gives the same among any number of rows.
inline void multiply_rows(const bfloat16* input, int64_t stride, int rows, int64_t width, const void* first,
                          const void* second, float* sums) {
    const int64_t units = num_units<bfloat16>(width);
    if (pairs() == FAST_PAIRS) return multiply<bfloat16>(input, stride, rows, first, second, units, sums);
    multiply_wide(widened(input, stride, rows, width, 2 * units), 2 * units, rows, first, second, units, sums);
}

// Call finish(row, sums of one panel's columns for this row, the same of the other panel) for rows `first` to `end`.
template <typename T, typename Finish>
inline void for_rows(const T* input, int64_t stride, int64_t first, int64_t end, const Matrix& one, int64_t panel,
                     const Matrix& other, int64_t other_panel, bool is_pair, const Finish& finish) {
    if (one.kind != NUMBERS) {
        const int64_t rows = end - first;
        const float* found = quantized_sums(input + first * stride, stride, rows, one, panel, is_pair ? &other : nullptr,
                                            other_panel);
        for (int64_t i = 0; i < rows; ++i) finish(first + i, found + i * PANEL, found + (rows + i) * PANEL);
        return;
    }
    alignas(64) float sums[2 * MAX_ROWS * PANEL];
    const void* weights = panel_at<T>(one, panel);
    const void* others = is_pair ? panel_at<T>(other, other_panel) : nullptr;
    const int64_t blocks = (end - first + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t block = 0, row = first; block < blocks; ++block) {
        const int rows = static_cast<int>((end - row + blocks - block - 1) / (blocks - block));
        multiply_rows(input + row * stride, stride, rows, one.in, weights, others, sums);
        for (int i = 0; i < rows; ++i, ++row) finish(row, sums + i * PANEL, sums + (rows + i) * PANEL);
    }
}

// One chunk of a product; finish(row, panel, sums of this row and panel's columns, without bias).
template <typename T, typename Finish>
inline void product_chunk(const Matrix& matrix, const T* input, int64_t stride, int64_t rows, int64_t chunk,
                          const Finish& finish) {
    const Cut cut(rows, matrix.out / PANEL, matrix.in);
    const int64_t panel = cut.first_panel(chunk);
    const bool is_pair = cut.end_panel(chunk) - panel == 2;
    for_rows<T>(input, stride, cut.first_row(chunk), cut.end_row(chunk), matrix, panel, matrix, panel + 1, is_pair,
                [&](int64_t row, const float* sums, const float* others) {
                    finish(row, panel, sums);
                    if (is_pair) finish(row, panel + 1, others);
                });
}

inline int64_t product_chunks(const Matrix& matrix, int64_t rows) {
    return Cut(rows, matrix.out / PANEL, matrix.in).chunks();
}

// How much work it is, in the words of pool.h.
inline int64_t product_work(const Matrix& matrix, int64_t rows) { return matrix.out * matrix.in * (rows + READING); }

// The weights of one output in their usual layout: [in].
template <typename T>
inline void unpack_row(const Matrix& matrix, int64_t row, T* to) {
    if (matrix.kind != NUMBERS) return unpack_quantized_row(matrix, row, to);
    constexpr int64_t SIZE = Unit<T>::size;
    const T* from = static_cast<const T*>(panel_at<T>(matrix, row / PANEL)) + row % PANEL * SIZE;
    for (int64_t k = 0; k < matrix.in; ++k) to[k] = from[k / SIZE * PANEL * SIZE + k % SIZE];
}

}  // namespace llmfw
