// The micro-kernels of attention: a few rows of queries times a block of packed keys, and their softmax weights times
// its values.
#pragma once

#include "attention_pack.h"

namespace llmfw::attention {

constexpr int MAX_ROWS = 6;     // rows per micro-kernel: their sums, VECTORS vectors each, stay in registers
constexpr int VECTORS = LANES == 8 ? 2 : 4;
static_assert(BLOCK % (LANES * VECTORS) == 0);

// sums[row] += a[row] · b, over units. Calls `between` at intervals, to prefetch.
template <int ROWS, int MANY, typename U, typename Between>
inline __attribute__((always_inline)) void add_products(const U* a, int64_t a_stride, const U* b, int64_t b_stride,
                                                        int64_t units, Floats (&sums)[ROWS][MANY],
                                                        const Between& between) {
    for (int64_t unit = 0; unit < units; ++unit, b += b_stride) {
        if (unit % 2 == 0) between();
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row) {
            const auto shared = broadcast(a[row * a_stride + unit]);
            LLMFW_UNROLL
            for (int v = 0; v < MANY; ++v)
                sums[row][v] = add_product(sums[row][v], shared, load(b + v * LANES));
        }
    }
}

// The same for packed pairs of bfloat16 that are multiplied as float32: first the lower half of each pair, then the
// upper one.
template <int ROWS, int MANY, typename Between>
inline __attribute__((always_inline)) void add_products(const float* a, int64_t a_stride, const uint32_t* b,
                                                        int64_t b_stride, int64_t units, Floats (&sums)[ROWS][MANY],
                                                        const Between& between) {
    for (int64_t unit = 0; unit < units; ++unit, b += b_stride, a += 2) {
        if (unit % 2 == 0) between();
        Floats half[MANY];
        LLMFW_UNROLL
        for (int v = 0; v < MANY; ++v) half[v] = (Floats)(load(b + v * LANES) << 16);
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row)
            LLMFW_UNROLL
            for (int v = 0; v < MANY; ++v)
                sums[row][v] = add_product(sums[row][v], half[v], broadcast(a[row * a_stride]));
        LLMFW_UNROLL
        for (int v = 0; v < MANY; ++v) half[v] = (Floats)(load(b + v * LANES) & 0xffff0000u);
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row)
            LLMFW_UNROLL
            for (int v = 0; v < MANY; ++v)
                sums[row][v] = add_product(sums[row][v], half[v], broadcast(a[row * a_stride + 1]));
    }
}

// sums[row] += weights[row] · values, over keys, for the columns from `column` on. The order of keys is the same as for
// packed values.
template <int ROWS, int MANY, typename Between>
inline __attribute__((always_inline)) void add_values(const float* weights, int64_t stride, const float* const* values,
                                                      int64_t column, int64_t keys, Floats (&sums)[ROWS][MANY],
                                                      const Between& between) {
    for (int64_t key = 0; key < keys; ++key) {
        if (key % 4 == 0) between();
        Floats found[MANY];
        LLMFW_UNROLL
        for (int v = 0; v < MANY; ++v) found[v] = load(values[key] + column + v * LANES);
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row)
            LLMFW_UNROLL
            for (int v = 0; v < MANY; ++v)
                sums[row][v] = add_product(sums[row][v], found[v], broadcast(weights[row * stride + key]));
    }
}

// The same for bfloat16: of each pair of vectors, the first gets the even columns, the second the odd ones; see
// `unshuffle`.
template <int ROWS, int MANY, typename Between>
inline __attribute__((always_inline)) void add_values(const float* weights, int64_t stride,
                                                      const bfloat16* const* values, int64_t column, int64_t keys,
                                                      Floats (&sums)[ROWS][MANY], const Between& between) {
    static_assert(MANY % 2 == 0);
    for (int64_t key = 0; key < keys; ++key) {
        if (key % 4 == 0) between();
        Floats found[MANY];
        LLMFW_UNROLL
        for (int v = 0; v < MANY; v += 2) {
            const Words pairs = load_words(values[key] + column + v * LANES);
            found[v] = (Floats)(pairs << 16);
            found[v + 1] = (Floats)(pairs & 0xffff0000u);
        }
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row)
            LLMFW_UNROLL
            for (int v = 0; v < MANY; ++v)
                sums[row][v] = add_product(sums[row][v], found[v], broadcast(weights[row * stride + key]));
    }
}

}  // namespace llmfw::attention
