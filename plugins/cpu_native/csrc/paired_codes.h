// Quantized weights as pairs of bfloat16, for AVX512_BF16: a word holds two inputs of a column.
//
// Every level is exact in bfloat16. AVX-512 table lookups (AVX512_VBMI for 8 bits) convert a vector of codes in one or
// two instructions, for which a line is arranged. A line is one cache line: with 8 bits it holds one pair of inputs,
// each code as a byte of sign and magnitude; with 4 bits it holds two pairs, four codes per 16 bits.
#pragma once

#include "codes.h"
#include "pairs.h"

#if LLMFW_DTYPE == 1 && LLMFW_PAIRS == 2 && defined(__AVX512VBMI__)
#define LLMFW_PAIRED_CODES 1

#include <array>

namespace llmfw {

constexpr uint16_t bfloat16_bits(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }

inline __m512i load_table(const void* from) { return _mm512_loadu_si512(from); }

struct PairedInt8 {
    typedef Words Vector;
    static constexpr int64_t units = 1, inputs = 2, bytes = CODES_LINE;

    // Byte SHIFT / 8 of the bfloat16 representation of each magnitude from 0 to 127.
    template <int SHIFT>
    static constexpr auto table = [] {
        std::array<uint8_t, 128> found{};
        for (int i = 0; i < 128; ++i) found[i] = static_cast<uint8_t>(bfloat16_bits(static_cast<float>(i)) >> SHIFT);
        return found;
    }();

    // Looks up the magnitudes of codes. The instruction ignores the sign bit, because an index has 7 bits.
    template <int SHIFT>
    static __m512i look_up(__m512i codes) {
        const uint8_t* from = table<SHIFT>.data();
        return _mm512_permutex2var_epi8(load_table(from), codes, load_table(from + 64));
    }

    static Words load(const uint8_t* line, int64_t, int64_t column) {
        constexpr int SIGN_OR = 0xea;  // (a & b) | c
        const __m512i codes = _mm512_loadu_si512(line), low = look_up<0>(codes);
        const __m512i high = _mm512_ternarylogic_epi32(codes, _mm512_set1_epi8(-128), look_up<8>(codes), SIGN_OR);
        return (Words)(column == 0 ? _mm512_unpacklo_epi8(low, high) : _mm512_unpackhi_epi8(low, high));
    }

    // Each 128-bit lane holds eight codes of columns 0 to 15, then eight of columns 16 to 31: `load` unpacks the lower
    // half of each lane for the former, the upper half for the latter.
    static int64_t place(int64_t input, int64_t column) {
        const int64_t number = column % 16 * 2 + input;
        return number / 8 * 16 + column / 16 * 8 + number % 8;
    }

    static uint8_t code(const uint8_t* line, int64_t input, int64_t column) {
        const uint8_t byte = line[place(input, column)];
        return static_cast<uint8_t>(byte & 128 ? -(byte & 127) : byte);
    }
    static void put(uint8_t* line, int64_t input, int64_t column, uint8_t code) {
        line[place(input, column)] = code & 128 ? static_cast<uint8_t>(-code | 128) : code;
    }
};

struct PairedInt4 {
    typedef Words Vector;
    static constexpr int64_t units = 2, inputs = 4, bytes = CODES_LINE;

    // The 16 levels, twice: an index has 5 bits, of which only the lower 4 belong to the code.
    static constexpr auto table = [] {
        std::array<uint16_t, 32> found{};
        for (int i = 0; i < 32; ++i) found[i] = bfloat16_bits(Int4::number(i % 16));
        return found;
    }();

    static Words load(const uint8_t* line, int64_t pair, int64_t column) {
        const __m512i codes = _mm512_srli_epi16(_mm512_loadu_si512(line), static_cast<int>(8 * pair + column / 4));
        return (Words)_mm512_permutexvar_epi16(codes, load_table(table.data()));
    }

    // A 16-bit word holds four codes: the first (or second) input of both pairs, for columns c and c + 16.
    static int64_t byte(int64_t input, int64_t column) { return (column % 16 * 2 + input % 2) * 2 + input / 2; }

    static uint8_t code(const uint8_t* line, int64_t input, int64_t column) {
        return line[byte(input, column)] >> (column < 16 ? 0 : 4) & 15;
    }
    static void put(uint8_t* line, int64_t input, int64_t column, uint8_t code) {
        line[byte(input, column)] |= static_cast<uint8_t>(column < 16 ? code : code << 4);
    }
};

}  // namespace llmfw
#endif
