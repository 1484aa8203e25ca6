// Attention of one tile: some neighbouring tokens of one sequence, and all query heads that share one key/value head.
//
// A row is one query head of one token. Keys are taken in blocks of 64, and blocks in chunks of 256, both counted from
// the sequence's first token. Within a chunk the softmax is the usual running one; each chunk begins anew, and the
// chunks' results are joined in order. So a row's result is the same to the last bit however the work was cut, and
// whether the token came alone or in a prompt.
#pragma once

#include <memory>
#include <type_traits>

#include "attention.h"
#include "attention_pack.h"

namespace llmfw::attention {

constexpr int64_t CHUNK = 256;  // keys
constexpr int MAX_ROWS = 6;     // of one product: with VECTORS vectors each they stay in registers
constexpr int VECTORS = LANES == 8 ? 2 : 4;
static_assert(CHUNK % BLOCK == 0 && BLOCK % (LANES * VECTORS) == 0);

struct Tile {
    int64_t sequence;                 // in the step
    int64_t first_token;              // in the step
    int64_t position;                 // of that token in its sequence
    int64_t num_tokens;
    int64_t first_chunk, last_chunk;  // of keys that any of them sees: [first, last)
    int64_t parts;                    // where its chunks' results are kept, in floats; -1: they are joined at once
    int64_t counter;                  // counts down its pieces of work, if its chunks' results are kept
};

// The running softmax of some rows: the largest score, the sum of weights, and the weighted sum of values.
struct Part {
    float* top, *total, *values;

    static int64_t num_floats(int64_t rows, int64_t columns) { return round_up(rows, 16) * (2 + columns); }
    static Part at(float* memory, int64_t rows) {
        const int64_t padded = round_up(rows, 16);
        return {memory, memory + padded, memory + 2 * padded};
    }
    void clear(int64_t rows, int64_t columns) const {
        std::fill_n(top, rows, NOTHING);
        std::fill_n(total, rows, 0.0f);
        std::fill_n(values, rows * columns, 0.0f);
    }
    void copy(const Part& other, int64_t rows, int64_t columns) const {
        std::copy_n(other.top, rows, top);
        std::copy_n(other.total, rows, total);
        std::copy_n(other.values, rows * columns, values);
    }
};

// Memory of one thread; it grows as needed.
class Scratch {
public:
    // Take back all, and have room for this many floats in at most `num_takes` pieces.
    void reset(int64_t num_floats, int num_takes) {
        const int64_t wanted = num_floats + 16 * (num_takes + 1);
        if (wanted > size_) memory_.reset(new float[size_ = wanted]());
        used_ = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(memory_.get()) % 64 / sizeof(float));
    }
    template <typename T = float>
    T* take(int64_t count) {
        float* taken = memory_.get() + used_;
        used_ += round_up(count * static_cast<int64_t>(sizeof(T) / sizeof(float)), 16);
        return reinterpret_cast<T*>(taken);
    }

private:
    std::unique_ptr<float[]> memory_;
    int64_t size_ = 0, used_ = 0;
};

// sums[row] += a[row] · b, over units.
template <int ROWS, int MANY, typename U>
inline __attribute__((always_inline)) void add_products(const U* a, int64_t a_stride, const U* b, int64_t b_stride,
                                                        int64_t units, Floats (&sums)[ROWS][MANY]) {
    for (int64_t unit = 0; unit < units; ++unit, b += b_stride)
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row) {
            const auto shared = broadcast(a[row * a_stride + unit]);
            LLMFW_UNROLL
            for (int v = 0; v < MANY; ++v)
                sums[row][v] = add_product(sums[row][v], shared, load(b + v * LANES));
        }
}

// The same of packed pairs of bfloat16, multiplied as float32: first of each pair's one half, then of its other one.
template <int ROWS, int MANY>
inline __attribute__((always_inline)) void add_products(const float* a, int64_t a_stride, const uint32_t* b,
                                                        int64_t b_stride, int64_t units, Floats (&sums)[ROWS][MANY]) {
    for (int64_t unit = 0; unit < units; ++unit, b += b_stride, a += 2) {
        Floats half[MANY];
        LLMFW_UNROLL
        for (int v = 0; v < MANY; ++v) half[v] = (Floats)(load(b + v * LANES) << 16);
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row)
            LLMFW_UNROLL
            for (int v = 0; v < MANY; ++v)
                sums[row][v] = add_product(sums[row][v], half[v], broadcast(a[row * a_stride]));
        LLMFW_UNROLL
        for (int v = 0; v < MANY; ++v) half[v] = (Floats)(load(b + v * LANES) & 0xffff0000u);
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row)
            LLMFW_UNROLL
            for (int v = 0; v < MANY; ++v)
                sums[row][v] = add_product(sums[row][v], half[v], broadcast(a[row * a_stride + 1]));
    }
}

// Args: how keys and values are stored; and as what queries and weights are multiplied with them, which is float, or
// uint32_t for pairs of bfloat16.
template <typename Stored, typename Factor>
class TileWork {
    typedef typename Multiplied<Stored>::type Number;
    typedef typename Unit<Number>::type U;
    static constexpr bool IN_PAIRS = std::is_same_v<Factor, uint32_t>;

public:
    TileWork(const AttentionShape& shape, const AttentionStep& step, const AttentionTensors& tensors, const Tile& tile,
             int64_t head, Scratch& scratch)
        : shape_(shape), step_(step), tensors_(tensors), tile_(tile), head_(head),
          group_(shape.num_heads / shape.num_kv_heads), rows_(tile.num_tokens * group_),
          columns_(padded_columns(shape.v_head_dim)), key_units_(shape.head_dim / Unit<Number>::size),
          query_size_(IN_PAIRS ? key_units_ : shape.head_dim),
          end_(tile.position + tile.num_tokens),
          scale_(shape.scale * (shape.softcap > 0 ? 1 / shape.softcap : LOG2_E)) {
        const int64_t part = Part::num_floats(rows_, columns_), head_floats = BLOCK * shape.head_dim;
        scratch.reset(rows_ * (query_size_ + 4) + 2 * head_floats + BLOCK * (columns_ + MAX_ROWS) + 2 * part + columns_,
                      10);
        queries_ = scratch.take<Factor>(rows_ * query_size_);
        visible_from_ = scratch.take<int64_t>(rows_);
        visible_to_ = scratch.take<int64_t>(rows_);
        keys_ = scratch.take<U>(BLOCK * key_units_);
        room_ = scratch.take(head_floats);
        values_ = scratch.take<U>(BLOCK * columns_);
        scores_ = scratch.take(BLOCK * MAX_ROWS);
        whole_ = Part::at(scratch.take(part), rows_);
        chunk_ = Part::at(scratch.take(part), rows_);
        line_ = scratch.take(columns_);
        read_queries();
    }

    // Compute some chunks, each into a part of its own, and leave them there.
    void attend(int64_t first_chunk, int64_t last_chunk, float* parts, int64_t part_size) {
        stop_ = std::min(end_, last_chunk * CHUNK);
        for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk, parts += part_size)
            attend_chunk(chunk, Part::at(parts, rows_));
    }

    // Compute all chunks, and write the output.
    void attend() {
        stop_ = end_;
        attend_chunk(tile_.first_chunk, whole_);
        for (int64_t chunk = tile_.first_chunk + 1; chunk < tile_.last_chunk; ++chunk) {
            attend_chunk(chunk, chunk_);
            join(chunk_);
        }
        finish();
    }

    // Join the parts of all chunks, and write the output.
    void join(float* parts, int64_t part_size) {
        whole_.copy(Part::at(parts, rows_), rows_, columns_);
        for (int64_t chunk = tile_.first_chunk + 1; chunk < tile_.last_chunk; ++chunk)
            join(Part::at(parts += part_size, rows_));
        finish();
    }

private:
    void read_queries() {
        for (int64_t row = 0; row < rows_; ++row) {
            const int64_t token = row / group_;
            const Stored* from = static_cast<const Stored*>(tensors_.query)
                                 + (tile_.first_token + token) * tensors_.query_token_stride
                                 + query_head(row) * tensors_.query_head_stride;
            if constexpr (IN_PAIRS)
                std::memcpy(queries_ + row * query_size_, from, query_size_ * sizeof(Factor));
            else
                to_floats(from, queries_ + row * query_size_, shape_.head_dim);
            visible_to_[row] = tile_.position + token + 1;
            visible_from_[row] = shape_.window > 0 ? std::max<int64_t>(0, visible_to_[row] - shape_.window) : 0;
        }
    }

    int64_t query_head(int64_t row) const { return head_ * group_ + row % group_; }

    void attend_chunk(int64_t chunk, const Part& part) {
        part.clear(rows_, columns_);
        const int64_t chunk_end = std::min(stop_, (chunk + 1) * CHUNK);
        int64_t begin = std::max(chunk * CHUNK, visible_from_[0] / BLOCK * BLOCK);
        for (; begin < chunk_end; begin += BLOCK) {
            find(begin);
            if (begin + BLOCK < stop_) find(begin + BLOCK);
            attend_block(begin, std::min(BLOCK, stop_ - begin), part);
        }
    }

    // Find where a block's keys and values are, and ask for them, if that was not done yet.
    void find(int64_t begin) {
        const int64_t which = begin / BLOCK % 2, count = std::min(BLOCK, stop_ - begin);
        if (found_[which] == begin) return;
        found_[which] = begin;
        const int32_t* pages = step_.page_table + step_.rows[tile_.sequence] * step_.table_stride;
        const int32_t* page = pages + begin / step_.page_size;
        int64_t offset = begin % step_.page_size;
        for (int64_t key = 0; key < count; ++key) {
            const int64_t place = (*page * step_.page_size + offset) * shape_.num_kv_heads + head_;
            key_rows_[which][key] = static_cast<const Stored*>(tensors_.keys) + place * shape_.head_dim;
            value_rows_[which][key] = static_cast<const Stored*>(tensors_.values) + place * shape_.v_head_dim;
            prefetch(key_rows_[which][key], shape_.head_dim * sizeof(Stored));
            prefetch(value_rows_[which][key], shape_.v_head_dim * sizeof(Stored));
            if (++offset == step_.page_size) offset = 0, ++page;
        }
    }

    void attend_block(int64_t begin, int64_t count, const Part& part) {
        const int64_t which = begin / BLOCK % 2;
        pack_keys(key_rows_[which], count, shape_.head_dim, keys_, room_);
        pack_values(value_rows_[which], count, shape_.v_head_dim, values_);
        for (int64_t row = 0; row < rows_; row += MAX_ROWS) {
            const int64_t many = std::min<int64_t>(MAX_ROWS, rows_ - row);
            if (begin >= visible_to_[row + many - 1] || begin + BLOCK <= visible_from_[row]) continue;
            switch (many) {
                case 1: attend_rows<1>(begin, count, row, part); break;
                case 2: attend_rows<2>(begin, count, row, part); break;
                case 3: attend_rows<3>(begin, count, row, part); break;
                case 4: attend_rows<4>(begin, count, row, part); break;
                case 5: attend_rows<5>(begin, count, row, part); break;
                default: attend_rows<6>(begin, count, row, part);
            }
        }
    }

    template <int ROWS>
    __attribute__((noinline)) void attend_rows(int64_t begin, int64_t count, int64_t first, const Part& part) {
        static_assert(ROWS <= MAX_ROWS);
        for (int64_t key = 0; key < BLOCK; key += LANES * VECTORS) {
            Floats sums[ROWS][VECTORS] = {};
            add_products(queries_ + first * query_size_, query_size_, keys_ + key, BLOCK, key_units_, sums);
            for (int row = 0; row < ROWS; ++row)
                for (int v = 0; v < VECTORS; ++v) store(scores_ + row * BLOCK + key + v * LANES, sums[row][v]);
        }
        const bool is_cut = begin + BLOCK > visible_to_[first] || begin < visible_from_[first + ROWS - 1];
        float fading[ROWS];
        for (int row = 0; row < ROWS; ++row)
            fading[row] = weigh(begin, first + row, scores_ + row * BLOCK, is_cut, part);
        const int64_t units = (count + Unit<Number>::size - 1) / Unit<Number>::size;
        float* to = part.values + first * columns_;
        int64_t c = 0;
        for (; c + LANES * VECTORS <= columns_; c += LANES * VECTORS)
            add_values<ROWS, VECTORS>(units, fading, c, to + c);
        for (; c < columns_; c += LANES) add_values<ROWS, 1>(units, fading, c, to + c);
    }

    template <int ROWS, int MANY>
    void add_values(int64_t units, const float (&fading)[ROWS], int64_t column, float* to) {
        Floats sums[ROWS][MANY];
        for (int row = 0; row < ROWS; ++row)
            for (int v = 0; v < MANY; ++v) sums[row][v] = load(to + row * columns_ + v * LANES) * fading[row];
        add_products(reinterpret_cast<const Factor*>(scores_), BLOCK, values_ + column, columns_, units, sums);
        for (int row = 0; row < ROWS; ++row)
            for (int v = 0; v < MANY; ++v) store(to + row * columns_ + v * LANES, sums[row][v]);
    }

    // Make a row's scores into weights, in place. Return by what its sums so far have to be multiplied.
    float weigh(int64_t begin, int64_t row, float* scores, bool is_cut, const Part& part) {
        Floats found[BLOCK / LANES];
        for (int64_t v = 0; v < BLOCK / LANES; ++v) {
            found[v] = load(scores + v * LANES) * scale_;
            if (shape_.softcap > 0) found[v] = tanh(found[v]) * (shape_.softcap * LOG2_E);
            if (is_cut) found[v] = cut(found[v], begin + v * LANES, row);
        }
        Floats tops = found[0];
        for (int64_t v = 1; v < BLOCK / LANES; ++v) tops = larger(tops, found[v]);
        const float top = std::max(part.top[row], largest_of(tops));
        const float fading = weight(part.top[row], top), base = top == NOTHING ? 0.0f : top;
        Floats total = {};
        for (int64_t v = 0; v < BLOCK / LANES; ++v) {
            found[v] = power_of_2(found[v] - base);
            total += found[v];
        }
        part.top[row] = top;
        part.total[row] = part.total[row] * fading + sum_of(total);
        write_weights(found, reinterpret_cast<Factor*>(scores));
        return fading;
    }

    // Hide the keys that a row does not see, of LANES keys from `begin` on.
    Floats cut(Floats scores, int64_t begin, int64_t row) const {
        const int32_t from = static_cast<int32_t>(std::clamp<int64_t>(visible_from_[row] - begin, 0, LANES));
        const int32_t to = static_cast<int32_t>(std::clamp<int64_t>(visible_to_[row] - begin, 0, LANES));
        Ints places;
        for (int i = 0; i < LANES; ++i) places[i] = i;
        return ((places >= from) & (places < to)) ? scores : broadcast(NOTHING);
    }

    // By what sums are multiplied whose largest score was `top` when it becomes `new_top`.
    static float weight(float top, float new_top) { return new_top == NOTHING ? 0.0f : power_of_2(top - new_top); }

    // Join the result of the next chunk to that of all before it.
    void join(const Part& part) {
        for (int64_t row = 0; row < rows_; ++row) {
            const float top = std::max(whole_.top[row], part.top[row]);
            const float before = weight(whole_.top[row], top), after = weight(part.top[row], top);
            whole_.top[row] = top;
            whole_.total[row] = whole_.total[row] * before + part.total[row] * after;
            float* mine = whole_.values + row * columns_;
            const float* other = part.values + row * columns_;
            for (int64_t c = 0; c < columns_; c += LANES)
                store(mine + c, load(mine + c) * before + load(other + c) * after);
        }
    }

    void finish() {
        const Stored* sinks = static_cast<const Stored*>(tensors_.sinks);
        for (int64_t row = 0; row < rows_; ++row) {
            float factor = 1 / whole_.total[row];
            if (sinks != nullptr) {
                const float sink = to_float(sinks[query_head(row)]) * LOG2_E;
                const float top = std::max(whole_.top[row], sink), share = weight(whole_.top[row], top);
                factor = share / (whole_.total[row] * share + weight(sink, top));
            }
            const float* from = whole_.values + row * columns_;
            for (int64_t c = 0; c < columns_; c += LANES) store(line_ + c, load(from + c) * factor);
            unshuffle(Number{}, line_, columns_);
            const int64_t token = tile_.first_token + row / group_;
            Stored* to = static_cast<Stored*>(tensors_.output)
                         + (token * shape_.num_heads + query_head(row)) * shape_.v_head_dim;
            for (int64_t c = 0; c < shape_.v_head_dim; ++c) round_to(line_[c], to + c);
        }
    }

    const AttentionShape& shape_;
    const AttentionStep& step_;
    const AttentionTensors& tensors_;
    const Tile& tile_;
    const int64_t head_, group_, rows_, columns_, key_units_, query_size_;
    const int64_t end_;              // the last token sees the keys before
    const float scale_;
    int64_t stop_ = 0;               // where the chunks end that are being computed
    Factor* queries_;
    U* keys_, *values_;
    float* room_, *scores_, *line_;
    int64_t* visible_from_, *visible_to_;
    Part whole_, chunk_;
    int64_t found_[2] = {-1, -1};
    const Stored* key_rows_[2][BLOCK], *value_rows_[2][BLOCK];
};

}  // namespace llmfw::attention
