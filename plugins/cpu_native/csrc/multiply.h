// The sums of some rows with some panels of packed weights: what products are made of. See products.h.
//
// A number's sum runs over the inputs from the first to the last, in float32, in every kernel: what a row gives does not
// depend on how many rows or panels stand beside it.
#pragma once

#include <cstdint>

#include "simd.h"

namespace llmfw {

constexpr int64_t PANEL = 32;      // output features
constexpr int MAX_PANELS = 16;      // at once
constexpr int64_t MOST_ROWS = 192;  // at once
#if defined(__AVX512F__)
constexpr int MAX_ROWS = 12;      // of one kernel: what 32 registers hold
constexpr int MAX_PAIR_ROWS = 6;  // of one with two panels
#else
constexpr int MAX_ROWS = 2;
constexpr int MAX_PAIR_ROWS = 1;
#endif

struct Panels {
    const void* at[MAX_PANELS];
    int count;
    const char* next[2];  // what will be read after them: by one stream, or by two side by side
};

template <typename T>
inline int64_t num_units(int64_t in) {
    return (in + Unit<T>::size - 1) / Unit<T>::size;
}

// Sums [panel][row][PANEL] of at most MOST_ROWS rows of `in` numbers, in memory of this thread: valid until it calls
// again.
const float* sums_of(const Scalar* input, int64_t stride, int64_t rows, int64_t in, const Panels& panels);

}  // namespace llmfw
