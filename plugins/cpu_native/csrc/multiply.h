// The core of a GEMM: multiplies a few rows by a few panels of packed weights. products.h splits a product into such
// calls.
//
// Every kernel sums each output in float32 from the first input to the last. So a row's result does not depend on how
// many rows or panels are computed with it.
#pragma once

#include <cstdint>

#include "simd.h"

namespace llmfw {

constexpr int64_t PANEL = 32;      // output features per panel
constexpr int MAX_PANELS = 16;      // panels per call
constexpr int64_t MOST_ROWS = 192;  // rows per call
#if defined(__AVX512F__)
constexpr int MAX_ROWS = 12;      // rows per micro-kernel: their sums fill most of the 32 vector registers
constexpr int MAX_PAIR_ROWS = 6;  // rows per micro-kernel that takes two panels
#else
constexpr int MAX_ROWS = 2;
constexpr int MAX_PAIR_ROWS = 1;
#endif

// The panels of a call, and what the thread will read next, for prefetching.
struct Panels {
    const void* at[MAX_PANELS];
    int count;
    const char* next[2];  // what is read after the panels: by one stream, or by two side by side
};

// Units in a row of `in` numbers, rounded up.
template <typename T>
inline int64_t num_units(int64_t in) {
    return (in + Unit<T>::size - 1) / Unit<T>::size;
}

// Multiplies `rows` rows, at most MOST_ROWS, of `in` numbers, `stride` elements apart, by the panels. Returns the sums,
// [panel][row][PANEL], without bias. Their memory belongs to the calling thread and is valid until its next call.
const float* sums_of(const Scalar* input, int64_t stride, int64_t rows, int64_t in, const Panels& panels);

}  // namespace llmfw
