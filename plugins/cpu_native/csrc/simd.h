// Vectors of float32, as wide as the CPU has them, and numbers in bfloat16.
//
// Everything is written with the vector extensions of GCC and Clang, so one source serves AVX-512, AVX2, NEON and what
// has nothing; `-march` decides. Only what a compiler does not find by itself has an instruction of its own: the product
// of pairs of bfloat16 (AVX512_BF16), and 16 bits to 32 and back in one vector (AVX-512).
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

inline Floats broadcast(float x) { return x - Floats{}; }  // x + 0 would not keep -0
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

// 2 · LANES numbers, two in a word, the first in the lower half.
inline Words load_words(const bfloat16* from) {
    Words x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline Words words_of(Halves x) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepu16_epi32((__m256i)x);
#else
    return __builtin_convertvector(x, Words);
#endif
}

// The lower halves.
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

// The upper halves of x rounded to the nearest bfloat16, ties to even; NaN stays NaN. With AVX512_BF16 what is below 2^-126,
// where float32 has fewer digits, becomes 0.
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

// The first `count` numbers, then zeros. Of a whole vector: the same as `load` and `store`.
template <typename T>
inline Floats load_part(const T* from, int64_t count) {
    if (count >= LANES) return load(from);
    T part[LANES] = {};
    for (int64_t i = 0; i < count; ++i) part[i] = from[i];
    return load(part);
}

template <typename T>
inline void store_part(T* to, Floats x, int64_t count) {
    if (count >= LANES) return store(to, x);
    T part[LANES];
    store(part, x);
    for (int64_t i = 0; i < count; ++i) to[i] = part[i];
}

// What x is after it was stored as T and loaded again.
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

// The one type of numbers that a library is for, as LLMFW_DTYPE says: of weights, of what is between layers, of keys and
// values. The kernels of each take seconds to compile, and a server needs no other.
#if !defined(LLMFW_DTYPE)
#error "LLMFW_DTYPE is to be 0 for float32, 1 for bfloat16, or 2 for float16, in which there is attention alone"
#elif LLMFW_DTYPE == 0
typedef float Scalar;
#elif LLMFW_DTYPE == 1
typedef bfloat16 Scalar;
#endif

// What a product adds up at a time: one float32, or a pair of bfloat16 in one word, the first in the lower half.
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

// total + a·b, in each lane.
inline Floats add_product(Floats total, Floats a, Floats b) { return total + a * b; }

inline Floats add_product(Floats total, Words a, Words b) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)total, (__m512bh)a, (__m512bh)b);
#else
    total += (Floats)(a << 16) * (Floats)(b << 16);
    return total + (Floats)(a & 0xffff0000u) * (Floats)(b & 0xffff0000u);
#endif
}

// e^x to within about two units in the last place; past what float32 holds, its smallest or largest number.
inline Floats exponential(Floats x) {
    const Floats low = broadcast(-87.3f), high = broadcast(88.3f), magic = broadcast(12582912.0f);
    x = x < low ? low : x;
    x = x > high ? high : x;
    Floats shifted = x * 1.44269504f + magic;  // the nearest integer stands in its last bits
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
