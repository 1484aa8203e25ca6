// Quantized weights: the layout of their panels, and conversion of codes to vectors of float32.
//
// A panel is a sequence of groups of GROUP inputs. A group consists of the scales of the panel's PANEL columns in
// bfloat16, followed by lines of codes; a line holds a few inputs of all columns. A weight is level(code) · scale of
// its group. core/model/quantization/codes.py defines the same levels; change the two together.
//
// Each line format is a class with static members:
//   Vector: result of `load`: Floats (one input per lane) or Words (a pair of bfloat16 inputs per lane)
//   units, inputs, bytes: units, inputs and bytes per line; a unit is one input or a pair of inputs
//   load(line, unit, column): levels of a unit for the columns [column, column + LANES)
//   code, put: reads or writes the code of one weight in a line
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "products.h"
#include "simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace llmfw {

constexpr int64_t GROUP = 32;
constexpr int64_t SCALES = PANEL * 2;  // bytes of the scales of a group
constexpr int64_t CODES_LINE = 64;     // bytes

// Loads LANES bytes and zero-extends each to 32 bits.
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

// 8-bit codes, one per byte: the PANEL columns of one input, then those of the next.
struct Int8 {
    typedef Floats Vector;
    static constexpr int64_t units = CODES_LINE / PANEL, inputs = units, bytes = CODES_LINE;

    // Sign-extends the lowest byte of each word.
    static Floats level(Words codes) { return __builtin_convertvector((Ints)(codes << 24) >> 24, Floats); }

    static Floats load(const uint8_t* line, int64_t unit, int64_t column) {
        const uint8_t* codes = line + unit * PANEL + column;
#if defined(__AVX512F__)
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
        return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
        return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
#else
        return level(widened(codes));
#endif
    }

    static uint8_t code(const uint8_t* line, int64_t input, int64_t column) { return line[input * PANEL + column]; }
    static void put(uint8_t* line, int64_t input, int64_t column, uint8_t code) { line[input * PANEL + column] = code; }
};

// 4-bit codes, two per byte: byte j of an input holds column j in its lower half and column j + 16 in its upper half.
struct Int4 {
    typedef Floats Vector;
    static constexpr int64_t half = PANEL / 2;
    static constexpr int64_t units = CODES_LINE / half, inputs = units, bytes = CODES_LINE;

    // The level of a code: u + u³/128 for u = code - 7.5, rounded to the nearest bfloat16.
    static constexpr float number(int code) {
        const float u = static_cast<float>(code) - 7.5f;
        const uint32_t bits = std::bit_cast<uint32_t>(u + u * u * u / 128.0f);
        return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
    }

    // Returns the levels of codes. Ignores all but the lowest 4 bits of each word.
    static Floats level(Words codes) {
#if defined(__AVX512F__)
        alignas(64) static constexpr float table[16] = {
            number(0), number(1), number(2),  number(3),  number(4),  number(5),  number(6),  number(7),
            number(8), number(9), number(10), number(11), number(12), number(13), number(14), number(15)};
        return (Floats)_mm512_permutexvar_ps((__m512i)codes, _mm512_load_ps(table));
#elif defined(__AVX2__)
        alignas(32) static constexpr float table[8] = {number(8),  number(9),  number(10), number(11),
                                                       number(12), number(13), number(14), number(15)};
        const Words is_negative = (codes >> 3 & 1u) - 1u;  // level(15 - c) = -level(c)
        const __m256 magnitudes = _mm256_permutevar8x32_ps(_mm256_load_ps(table), (__m256i)(codes ^ is_negative));
        return (Floats)((Words)magnitudes ^ (is_negative & 0x80000000u));
#else
        const Floats u = __builtin_convertvector((Ints)(codes & 15u), Floats) - 7.5f;
        return rounded<bfloat16>(u + u * u * u * (1.0f / 128.0f));
#endif
    }

    static Floats load(const uint8_t* line, int64_t unit, int64_t column) {
        const Words bytes = widened(line + unit * half + column % half);
        return level(column < half ? bytes : bytes >> 4);
    }

    static uint8_t code(const uint8_t* line, int64_t input, int64_t column) {
        return line[input * half + column % half] >> (column < half ? 0 : 4) & 15;
    }
    static void put(uint8_t* line, int64_t input, int64_t column, uint8_t code) {
        line[input * half + column % half] |= static_cast<uint8_t>(column < half ? code : code << 4);
    }
};

// Bytes of a group in a panel.
template <typename Codes>
constexpr int64_t group_bytes() {
    return SCALES + GROUP / Codes::inputs * Codes::bytes;
}

inline int64_t num_groups(int64_t in) { return (in + GROUP - 1) / GROUP; }

// Returns the first group of a panel.
template <typename Codes>
inline const uint8_t* codes_at(const Matrix& matrix, int64_t panel) {
    return static_cast<const uint8_t*>(matrix.panels) + panel * num_groups(matrix.in) * group_bytes<Codes>();
}

// Returns the line of a group that holds an input.
template <typename Codes, typename Byte>
inline Byte* line_of(Byte* group, int64_t input) {
    return group + SCALES + input / Codes::inputs * Codes::bytes;
}

// Returns the code of one weight.
template <typename Codes>
inline uint8_t code_at(const uint8_t* group, int64_t input, int64_t column) {
    return Codes::code(line_of<Codes>(group, input), input % Codes::inputs, column);
}

// Writes the code of one weight; its bits must be 0 before.
template <typename Codes>
inline void put_code(uint8_t* group, int64_t input, int64_t column, uint8_t code) {
    Codes::put(line_of<Codes>(group, input), input % Codes::inputs, column, code);
}

}  // namespace llmfw
