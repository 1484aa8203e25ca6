// SIMD vectors of float32, as wide as the target CPU has them, and conversions between bfloat16 and float32.
//
// Built on the vector extensions of GCC and Clang, so one source serves AVX-512, AVX2, NEON and CPUs without SIMD;
// `-march` selects the target. Intrinsics are used only where compilers do not find the instruction themselves: the dot
// product of bfloat16 pairs (AVX512_BF16), and converting a whole vector between 16 and 32 bits (AVX-512).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define LLMFW_UNROLL _Pragma("GCC unroll 16")

namespace llmfw {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

struct bfloat16 {
    uint16_t bits;
};

inline Floats broadcast(float x) { return x - Floats{}; }  // x - 0 keeps -0; x + 0 would turn it into +0
inline Words broadcast(uint32_t x) { return x + Words{}; }

inline Floats load(const float* from) {
    Floats x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline Words load(const uint32_t* from) {
    Words x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

// Loads 2 · LANES numbers as LANES words of two numbers each, the first in the lower half.
inline Words load_words(const bfloat16* from) {
    Words x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

// Zero-extends 16-bit lanes to 32 bits.
inline Words words_of(Halves x) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepu16_epi32((__m256i)x);
#else
    return __builtin_convertvector(x, Words);
#endif
}

// Truncates each word to its lower 16 bits.
inline Halves halves_of(Words x) {
#if defined(__AVX512F__)
    return (Halves)_mm512_cvtepi32_epi16((__m512i)x);
#else
    return __builtin_convertvector(x, Halves);
#endif
}

inline Floats load(const bfloat16* from) {
    Halves x;
    std::memcpy(&x, from, sizeof x);
    return (Floats)(words_of(x) << 16);
}

inline void store(float* to, Floats x) { std::memcpy(to, &x, sizeof x); }

// Rounds to the nearest bfloat16, ties to even, and returns the 16 bits in the lower half of each word. NaN stays NaN.
// With AVX512_BF16, denormals (magnitudes below 2^-126) become 0.
inline Words rounded_bits(Floats x) {
#if defined(__AVX512BF16__)
    return words_of((Halves)_mm512_cvtneps_pbh((__m512)x));
#else
    Words bits = (Words)x;
    Words nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    Words is_nan = (Words)(x != x);
    return (nearest & ~is_nan) | (0x7fc0u & is_nan);
#endif
}

inline void store(bfloat16* to, Floats x) {
#if defined(__AVX512BF16__)
    Halves halves = (Halves)_mm512_cvtneps_pbh((__m512)x);
#else
    Halves halves = halves_of(rounded_bits(x));
#endif
    std::memcpy(to, &halves, sizeof halves);
}

// Loads `count` numbers and sets the remaining lanes to 0. If `count` >= LANES, loads a whole vector.
template <typename T>
inline Floats load_part(const T* from, int64_t count) {
    if (count >= LANES) return load(from);
    T part[LANES] = {};
    for (int64_t i = 0; i < count; ++i) part[i] = from[i];
    return load(part);
}

// Stores the first `count` lanes. If `count` >= LANES, stores the whole vector.
template <typename T>
inline void store_part(T* to, Floats x, int64_t count) {
    if (count >= LANES) return store(to, x);
    T part[LANES];
    store(part, x);
    for (int64_t i = 0; i < count; ++i) to[i] = part[i];
}

// Rounds to the precision of T: returns x as it would be after storing it as T and loading it again.
template <typename T>
inline Floats rounded(Floats x);
template <>
inline Floats rounded<float>(Floats x) {
    return x;
}
template <>
inline Floats rounded<bfloat16>(Floats x) {
    return (Floats)(rounded_bits(x) << 16);
}

inline float to_float(float x) { return x; }
inline float to_float(bfloat16 x) {
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline float sum(Floats x) {
    float parts[LANES], total = 0;
    store(parts, x);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
    total = parts[0];
    return total;
}

inline float largest(Floats x) {
    float parts[LANES];
    store(parts, x);
    float most = parts[0];
    for (int i = 1; i < LANES; ++i) most = parts[i] > most ? parts[i] : most;
    return most;
}

// The dtype of this library, selected by LLMFW_DTYPE: dtype of weights, activations, keys and values. Each dtype has
// its own library, because the kernels of one take seconds to compile and a server needs only one dtype.
#if !defined(LLMFW_DTYPE)
#error "LLMFW_DTYPE is to be 0 for float32, 1 for bfloat16, or 2 for float16, in which there is attention alone"
#elif LLMFW_DTYPE == 0
typedef float Scalar;
#elif LLMFW_DTYPE == 1
typedef bfloat16 Scalar;
#endif

// The element of a dot product: one float32, or a pair of bfloat16 in one 32-bit word, the first in the lower half.
// `size`: numbers per unit.
template <typename T>
struct Unit;
template <>
struct Unit<float> {
    typedef float type;
    typedef Floats vector;
    static constexpr int64_t size = 1;
};
template <>
struct Unit<bfloat16> {
    typedef uint32_t type;
    typedef Words vector;
    static constexpr int64_t size = 2;
};

// Returns total + a · b for each lane. If lanes are pairs of bfloat16, adds both products of the pair.
inline Floats add_product(Floats total, Floats a, Floats b) { return total + a * b; }

inline Floats add_product(Floats total, Words a, Words b) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)total, (__m512bh)a, (__m512bh)b);
#else
    total += (Floats)(a << 16) * (Floats)(b << 16);
    return total + (Floats)(a & 0xffff0000u) * (Floats)(b & 0xffff0000u);
#endif
}

// Returns e^x with an error of about 2 ulp. Clamps x to [-87.3, 88.3], so that no result overflows or underflows.
inline Floats exponential(Floats x) {
    const Floats low = broadcast(-87.3f), high = broadcast(88.3f), magic = broadcast(12582912.0f);
    x = x < low ? low : x;
    x = x > high ? high : x;
    Floats shifted = x * 1.44269504f + magic;  // its lowest mantissa bits hold the nearest integer
    Floats whole = shifted - magic;
    Floats rest = x - whole * 0.693359375f;
    rest = rest + whole * 2.12194440e-4f;
    Floats y = broadcast(1.9875691500e-4f);
    y = y * rest + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * (rest * rest) + rest + 1.0f;
    Words scale = ((Words)shifted - 0x4b400000u + 127u) << 23;
    return y * (Floats)scale;
}

}  // namespace llmfw
