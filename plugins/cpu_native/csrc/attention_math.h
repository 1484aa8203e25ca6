// Math that attention needs in addition to simd.h: powers of 2, tanh, reductions of a vector, and float16.
#pragma once

#include <limits>

#include "simd.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define LLMFW_AVX512 1
#endif

namespace llmfw::attention {

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float NOTHING = -std::numeric_limits<float>::infinity();  // the maximum score over no keys

// Returns 2^x with an error of about 1 ulp, for x up to 127: exactly 1 for 0, and 0 below -126. NaN stays NaN.
inline Floats power_of_2(Floats x) {
    const Floats magic = broadcast(12582912.0f);  // 1.5 · 2^23: the sum's lowest bits hold the nearest integer
    Floats shifted = x + magic;
    Floats rest = x - (shifted - magic);
    Floats y = broadcast(1.5403530e-4f);
    y = y * rest + 1.3333558e-3f;
    y = y * rest + 9.6181291e-3f;
    y = y * rest + 5.5504109e-2f;
    y = y * rest + 2.4022651e-1f;
    y = y * rest + 6.9314718e-1f;
    y = y * rest + 1.0f;
    Floats scaled = (Floats)((Words)y + ((Words)shifted << 23));
    return x < broadcast(-126.0f) ? Floats{} : scaled;
}

inline float power_of_2(float x) { return power_of_2(broadcast(x))[0]; }

// Returns tanh(x) with an absolute error of about 1e-7.
inline Floats tanh(Floats x) {
    const Floats low = broadcast(-20.0f), high = broadcast(20.0f);
    x = x < low ? low : x;
    x = x > high ? high : x;
    return 1.0f - 2.0f / (power_of_2(x * (2 * LOG2_E)) + 1.0f);
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

inline float largest_of(Floats x) {
#if defined(LLMFW_AVX512)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float found = x[0];
    for (int i = 1; i < LANES; ++i) found = x[i] > found ? x[i] : found;
    return found;
#endif
}

inline float sum_of(Floats x) {
#if defined(LLMFW_AVX512)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float found = 0;
    for (int i = 0; i < LANES; ++i) found += x[i];
    return found;
#endif
}

template <typename To, typename From>
inline To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &x, sizeof to);
    return to;
}

struct float16 {
    uint16_t bits;
};
#if LLMFW_DTYPE == 2
typedef float16 Scalar;
#endif

using llmfw::to_float;
inline float to_float(float16 x) {
    const uint32_t magnitude = uint32_t(x.bits & 0x7fff) << 13;
    const uint32_t number = bits_as<uint32_t>(bits_as<float>(magnitude) * 0x1p112f);  // correct for subnormals, too
    const uint32_t found = magnitude >= 0x7c00u << 13 ? magnitude | 0x7f800000 : number;
    return bits_as<float>(found | uint32_t(x.bits & 0x8000) << 16);
}

// Rounds to the nearest number, ties to even.
inline void round_to(float x, float* to) { *to = x; }
inline void round_to(float x, bfloat16* to) {
    const uint32_t bits = bits_as<uint32_t>(x);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    to->bits = uint16_t(is_nan ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline void round_to(float x, float16* to) {
    const uint32_t bits = bits_as<uint32_t>(x), magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - bits_as<uint32_t>(0.5f);
    uint32_t found = magnitude < 113u << 23 ? subnormal : normal;
    found = magnitude >= 143u << 23 ? 0x7c00 : found;  // 65536 and more: infinity
    found = magnitude > 0x7f800000 ? 0x7e00 : found;
    to->bits = uint16_t(found | (bits >> 16 & 0x8000));
}

template <typename Stored>
inline void to_floats(const Stored* from, float* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

}  // namespace llmfw::attention
