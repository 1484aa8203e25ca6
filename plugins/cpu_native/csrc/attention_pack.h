// Packs a block of keys, which are scattered over pages, in the order in which the products read them; packs values if
// necessary.
//
// Keys: [units of a head][BLOCK], so that a vector holds the same unit of several keys. Units are those of simd.h:
// float32 is unchanged, bfloat16 is in pairs, float16 becomes float32. What follows the block's last key is undefined:
// readers must mask its scores.
//
// Values are read in place, in whole vectors of a key's columns, with exceptions. float16 values, and values whose
// v_head_dim is not a multiple of 32, are copied to rows of whole vectors. Values that are multiplied in pairs are
// packed: [pairs of keys][columns].
#pragma once

#include <algorithm>

#include "attention_math.h"
#include "attention_plan.h"

namespace llmfw::attention {

// The type as which numbers of type Stored are multiplied; float16 becomes float.
template <typename Stored>
struct Multiplied {
    typedef float type;
};
template <>
struct Multiplied<bfloat16> {
    typedef bfloat16 type;
};

inline int64_t round_up(int64_t number, int64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

#if defined(LLMFW_AVX512)
// Loads four units of a row, or only the first `count` if not WHOLE.
template <bool WHOLE>
inline __m128i piece(const uint32_t* row, int64_t count) {
    if constexpr (WHOLE) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
    return _mm_maskz_loadu_epi32(__mmask8((1 << count) - 1), row);
}

// to[unit][key] = rows[key][unit], for 16 keys and four units from `first` on, or `count` units if not WHOLE.
template <bool WHOLE>
inline void transpose(const uint32_t* const* rows, int64_t first, int64_t count, uint32_t* to) {
    __m512i four[4];  // four[i]: four units each of rows i, i + 4, i + 8 and i + 12
    for (int i = 0; i < 4; ++i) {
        four[i] = _mm512_castsi128_si512(piece<WHOLE>(rows[i] + first, count));
        four[i] = _mm512_inserti32x4(four[i], piece<WHOLE>(rows[i + 4] + first, count), 1);
        four[i] = _mm512_inserti32x4(four[i], piece<WHOLE>(rows[i + 8] + first, count), 2);
        four[i] = _mm512_inserti32x4(four[i], piece<WHOLE>(rows[i + 12] + first, count), 3);
    }
    const __m512i low01 = _mm512_unpacklo_epi32(four[0], four[1]), low23 = _mm512_unpacklo_epi32(four[2], four[3]);
    const __m512i high01 = _mm512_unpackhi_epi32(four[0], four[1]), high23 = _mm512_unpackhi_epi32(four[2], four[3]);
    const __m512i units[4] = {_mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(low01, low23),
                              _mm512_unpacklo_epi64(high01, high23), _mm512_unpackhi_epi64(high01, high23)};
    for (int i = 0; i < (WHOLE ? 4 : count); ++i) _mm512_storeu_si512(to + (first + i) * BLOCK, units[i]);
}
#else
template <bool WHOLE>
inline void transpose(const uint32_t* const* rows, int64_t first, int64_t count, uint32_t* to) {
    for (int64_t unit = first; unit < first + (WHOLE ? 4 : count); ++unit)
        for (int key = 0; key < 16; ++key) std::memcpy(to + unit * BLOCK + key, rows[key] + unit, sizeof *to);
}
#endif

constexpr int64_t UNITS_BETWEEN = 8;  // units of 16 keys that are transposed between two calls of `between`
constexpr int64_t KEYS_BETWEEN = 8;   // keys whose values are packed between two calls of `between`

// to[unit][key] = rows[key][offset + unit], for the first `count` keys. Calls `between` at intervals, to prefetch.
template <typename Row, typename Between>
inline void transpose_block(const Row* const* rows, int64_t offset, int64_t count, int64_t units, uint32_t* to,
                            const Between& between) {
    for (int64_t key = 0; key < count; key += 16) {
        const uint32_t* some[16];
        for (int64_t i = 0; i < 16; ++i)
            some[i] = reinterpret_cast<const uint32_t*>(rows[std::min(key + i, count - 1)] + offset);
        int64_t unit = 0;
        for (; unit + 4 <= units; unit += 4) {
            if (unit % UNITS_BETWEEN == 0) between();
            transpose<true>(some, unit, 4, to + key);
        }
        if (unit < units) transpose<false>(some, unit, units - unit, to + key);
    }
}

// Packs the keys of a head, which starts at `offset` of each row. `room`: for BLOCK heads in float32; only used for
// float16.
template <typename Between>
inline void pack_keys(const bfloat16* const* rows, int64_t offset, int64_t count, int64_t head_dim, uint32_t* to,
                      float*, const Between& between) {
    transpose_block(rows, offset, count, head_dim / 2, to, between);
}

template <typename Between>
inline void pack_keys(const float* const* rows, int64_t offset, int64_t count, int64_t head_dim, float* to, float*,
                      const Between& between) {
    transpose_block(rows, offset, count, head_dim, reinterpret_cast<uint32_t*>(to), between);
}

template <typename Between>
inline void pack_keys(const float16* const* rows, int64_t offset, int64_t count, int64_t head_dim, float* to,
                      float* room, const Between& between) {
    const float* decoded[BLOCK];
    for (int64_t key = 0; key < count; ++key) {
        to_floats(rows[key] + offset, room + key * head_dim, head_dim);
        decoded[key] = room + key * head_dim;
    }
    transpose_block(decoded, 0, count, head_dim, reinterpret_cast<uint32_t*>(to), between);
}

#if defined(LLMFW_AVX512)
// Packs the values of a head in pairs of keys. Of 32 columns, the first vector has 0-3, 8-11, 16-19 and 24-27, the
// second the others: the order of the unpack instructions, which `unshuffle` reverts.
template <typename Between>
inline void pack_values(const bfloat16* const* rows, int64_t offset, int64_t count, int64_t v_head_dim, uint32_t* to,
                        const Between& between) {
    const int64_t columns = padded_columns(v_head_dim);
    for (int64_t key = 0; key < count; key += 2, to += columns) {
        if (key % KEYS_BETWEEN == 0) between();
        for (int64_t c = 0; c < columns; c += 32) {
            const __mmask32 inside = v_head_dim - c >= 32 ? ~0u : (1u << (v_head_dim - c)) - 1;
            const __m512i even = _mm512_maskz_loadu_epi16(inside, rows[key] + offset + c);
            const bool is_pair = key + 1 < count;
            const __m512i odd = _mm512_maskz_loadu_epi16(is_pair ? inside : 0, rows[key + is_pair] + offset + c);
            _mm512_storeu_si512(to + c, _mm512_unpacklo_epi16(even, odd));
            _mm512_storeu_si512(to + c + 16, _mm512_unpackhi_epi16(even, odd));
        }
    }
}
#endif

// How values are multiplied, which determines the order of a result's columns: `InPairs`, or the type that products
// read, which is float for float16.
struct InPairs {};
template <typename Stored>
struct Readable {
    typedef Stored type;
};
template <>
struct Readable<float16> {
    typedef float type;
};

// Copies a head of `count` numbers to a row of whole vectors, padded with zeros.
inline void copy_values(const float16* from, int64_t count, int64_t columns, float* to) {
    to_floats(from, to, count);
    std::fill(to + count, to + columns, 0.0f);
}
template <typename Stored>
inline void copy_values(const Stored* from, int64_t count, int64_t columns, Stored* to) {
    std::memcpy(to, from, count * sizeof(Stored));
    std::memset(to + count, 0, (columns - count) * sizeof(Stored));
}

// Restores the order of a result's columns. The first argument says how values were multiplied.
inline void unshuffle(float, float*, int64_t) {}

#if defined(LLMFW_AVX512)
inline void permute(__m512i first, __m512i second, float* row, int64_t columns) {
    for (int64_t c = 0; c < columns; c += 32) {
        const __m512 low = _mm512_loadu_ps(row + c), high = _mm512_loadu_ps(row + c + 16);
        _mm512_storeu_ps(row + c, _mm512_permutex2var_ps(low, first, high));
        _mm512_storeu_ps(row + c + 16, _mm512_permutex2var_ps(low, second, high));
    }
}
inline void unshuffle(InPairs, float* row, int64_t columns) {
    permute(_mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
            _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31), row, columns);
}
inline void unshuffle(bfloat16, float* row, int64_t columns) {
    permute(_mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
            _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), row, columns);
}
#else
inline void unshuffle(bfloat16, float* row, int64_t columns) {
    for (int64_t c = 0; c < columns; c += 2 * LANES) {
        const Floats even = load(row + c), odd = load(row + c + LANES);
        for (int i = 0; i < LANES; ++i) row[c + 2 * i] = even[i], row[c + 2 * i + 1] = odd[i];
    }
}
#endif

// Stores the softmax weights of a block's keys, as float32 or as pairs of bfloat16.
inline void write_weights(const Floats (&weights)[BLOCK / LANES], float* to) {
    for (int64_t v = 0; v < BLOCK / LANES; ++v) store(to + v * LANES, weights[v]);
}
inline void write_weights(const Floats (&weights)[BLOCK / LANES], uint32_t* to) {
#if defined(__AVX512BF16__)
    for (int64_t v = 0; v < BLOCK / LANES; v += 2)
        _mm512_storeu_si512(to + v / 2 * LANES,
                            (__m512i)_mm512_cvtne2ps_pbh((__m512)weights[v + 1], (__m512)weights[v]));
#else
    for (int64_t v = 0; v < BLOCK / LANES; ++v) store(reinterpret_cast<bfloat16*>(to) + v * LANES, weights[v]);
#endif
}

}  // namespace llmfw::attention
