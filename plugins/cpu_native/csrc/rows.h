// Operations on single rows: RMS norm and rotary embedding.
//
// They round where transformers' modules round, so bfloat16 results differ from those only by the order of sums.
#pragma once

#include <cmath>
#include <cstdint>

#include "simd.h"

namespace llmfw {

// Returns 1 / sqrt(mean of squares + epsilon) of a row of `width` numbers.
template <typename T>
inline float inverse_rms(const T* row, int64_t width, float epsilon) {
    Floats squares = {};
    for (int64_t i = 0; i < width; i += LANES) {
        Floats x = load_part(row + i, width - i);
        squares += x * x;
    }
    return 1.0f / std::sqrt(sum(squares) / static_cast<float>(width) + epsilon);
}

// RMS norm: to = weight · from / rms(from), each [width]. `to` may be `from`.
template <typename T>
inline void rms_norm(const T* from, const T* weight, float epsilon, int64_t width, T* to) {
    const float inverse = inverse_rms(from, width, epsilon);
    for (int64_t i = 0; i < width; i += LANES) {
        const int64_t left = width - i;
        Floats x = rounded<T>(load_part(from + i, left) * inverse);
        store_part(to + i, x * load_part(weight + i, left), left);
    }
}

// Applies the rotary embedding of one position to a head, in place: rotates its first half against its second. cos and
// sin: [width].
template <typename T>
inline void rotate(T* head, const T* cos, const T* sin, int64_t width) {
    const int64_t half = width / 2;
    T* other = head + half;
    for (int64_t i = 0; i < half; i += LANES) {
        const int64_t left = half - i;
        Floats x = load_part(head + i, left), y = load_part(other + i, left);
        Floats first = rounded<T>(x * load_part(cos + i, left)) - rounded<T>(y * load_part(sin + i, left));
        Floats second =
            rounded<T>(y * load_part(cos + half + i, left)) + rounded<T>(x * load_part(sin + half + i, left));
        store_part(head + i, first, left);
        store_part(other + i, second, left);
    }
}

}  // namespace llmfw
