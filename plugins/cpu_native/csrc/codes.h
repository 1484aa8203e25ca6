// Quantised weights: what lies in their panels, and codes as vectors of float32.
//
// A panel is one group of GROUP inputs after the other. A group is the scales of its PANEL columns in bfloat16, then the
// codes, input by input: in eight bits a byte for each column; in four bits byte j has column j in its lower half and
// column j + 16 in its upper one. A weight is level(code) times its group's scale. core/quantization/codes.py has the
// same levels; the two change together.
#pragma once

#include <cstdint>
#include <cstring>

#include "products.h"
#include "simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace llmfw {

constexpr int64_t GROUP = 32;
constexpr int64_t SCALES = PANEL * 2;  // bytes of a group's scales

// As many bytes as a vector has lanes, each in a lane.
inline Words widened(const uint8_t* from) {
#if defined(__AVX512F__)
    return (Words)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__AVX2__)
    return (Words)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#else
    typedef uint8_t Bytes __attribute__((vector_size(LANES)));
    Bytes x;
    std::memcpy(&x, from, sizeof x);
    return __builtin_convertvector(__builtin_convertvector(x, Halves), Words);
#endif
}

// A code in a byte.
struct Int8 {
    static constexpr int64_t input_bytes = PANEL;

    static Floats level(Words codes) { return __builtin_convertvector((Ints)(codes << 24) >> 24, Floats); }

    // Those of the columns from `column` on.
    static Floats load(const uint8_t* codes, int64_t column) {
#if defined(__AVX512F__)
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + column));
        return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + column));
        return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
#else
        return level(widened(codes + column));
#endif
    }

    static uint8_t code(const uint8_t* codes, int64_t column) { return codes[column]; }
    static void put(uint8_t* codes, int64_t column, uint8_t code) { codes[column] = code; }
};

// Two codes in a byte, for sixteen levels.
struct Int4 {
    static constexpr int64_t half = PANEL / 2;
    static constexpr int64_t input_bytes = half;

    static constexpr float number(int code) {
        const float u = static_cast<float>(code) - 7.5f;
        return u + u * u * u / 128.0f;
    }

    // Only the lowest four bits of a code count.
    static Floats level(Words codes) {
#if defined(__AVX512F__)
        alignas(64) static constexpr float table[16] = {
            number(0), number(1), number(2),  number(3),  number(4),  number(5),  number(6),  number(7),
            number(8), number(9), number(10), number(11), number(12), number(13), number(14), number(15)};
        return (Floats)_mm512_permutexvar_ps((__m512i)codes, _mm512_load_ps(table));
#else
        const Floats u = __builtin_convertvector((Ints)(codes & 15u), Floats) - 7.5f;
        return u + u * u * u * (1.0f / 128.0f);
#endif
    }

    static Floats load(const uint8_t* codes, int64_t column) {
        const Words bytes = widened(codes + column % half);
        return level(column < half ? bytes : bytes >> 4);
    }

    static uint8_t code(const uint8_t* codes, int64_t column) {
        return codes[column % half] >> (column < half ? 0 : 4) & 15;
    }
    static void put(uint8_t* codes, int64_t column, uint8_t code) {
        codes[column % half] |= static_cast<uint8_t>(column < half ? code : code << 4);
    }
};

// Levels that were looked up before.
struct Levels {
    static constexpr int64_t input_bytes = PANEL * 4;

    static Floats load(const uint8_t* codes, int64_t column) {
        return llmfw::load(reinterpret_cast<const float*>(codes) + column);
    }
};

template <typename Codes>
constexpr int64_t group_bytes() {
    return SCALES + GROUP * Codes::input_bytes;
}

inline int64_t num_groups(int64_t in) { return (in + GROUP - 1) / GROUP; }

template <typename Codes>
inline const uint8_t* codes_at(const Matrix& matrix, int64_t panel) {
    return static_cast<const uint8_t*>(matrix.panels) + panel * num_groups(matrix.in) * group_bytes<Codes>();
}

}  // namespace llmfw
