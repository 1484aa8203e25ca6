// Computes the attention of one piece: all its rows with all its keys.
#pragma once

#include <memory>
#include <type_traits>

#include "attention_blocks.h"
#include "attention_part.h"
#include "attention_products.h"

namespace llmfw::attention {

// Scratch memory of one thread; grows as needed.
class Scratch {
public:
    // Frees everything taken, and ensures room for `num_floats` floats in at most `num_takes` calls of `take`.
    void reset(int64_t num_floats, int num_takes) {
        const int64_t wanted = num_floats + 16 * (num_takes + 1);
        if (wanted > size_) memory_.reset(new float[size_ = wanted]());
        used_ = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(memory_.get()) % 64 / sizeof(float));
    }
    // Returns memory for `count` elements, aligned to 64 bytes, with arbitrary content.
    template <typename T = float>
    T* take(int64_t count) {
        float* taken = memory_.get() + used_;
        used_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64) / static_cast<int64_t>(sizeof(float));
        return reinterpret_cast<T*>(taken);
    }

private:
    std::unique_ptr<float[]> memory_;
    int64_t size_ = 0, used_ = 0;
};

// Writes the output of a span for one KV head: divides the weighted sums by the sums of weights (with the sink, if
// there is one) and rounds them.
template <typename Stored, typename Order>
void write_output(const AttentionShape& shape, const AttentionTensors& tensors, const Span& span, int64_t head,
                  const Part& part) {
    const int64_t group = group_of(shape), columns = padded_columns(shape.v_head_dim);
    const Stored* sinks = static_cast<const Stored*>(tensors.sinks);
    for (int64_t row = 0; row < num_rows(span, shape); ++row) {
        const int64_t query_head = head * group + row % group;
        float factor = 1 / part.total[row];
        if (sinks != nullptr) {
            const float sink = to_float(sinks[query_head]) * LOG2_E;
            const float top = std::max(part.top[row], sink), share = weight(part.top[row], top);
            factor = share / (part.total[row] * share + weight(sink, top));
        }
        float* line = part.values + row * columns;
        for (int64_t c = 0; c < columns; c += LANES) store(line + c, load(line + c) * factor);
        unshuffle(Order{}, line, columns);
        Stored* to = static_cast<Stored*>(tensors.output)
                     + ((span.first_token + row / group) * shape.num_heads + query_head) * shape.v_head_dim;
        for (int64_t c = 0; c < shape.v_head_dim; ++c) round_to(line[c], to + c);
    }
}

// Computes one piece. Stored: the type of keys and values. Factor: the type of queries and softmax weights in products;
// float, or uint32_t for pairs of bfloat16.
template <typename Stored, typename Factor>
class PieceWork {
    typedef typename Multiplied<Stored>::type Number;
    typedef typename Unit<Number>::type U;
    static constexpr bool IN_PAIRS = std::is_same_v<Factor, uint32_t>;
    typedef typename Readable<Stored>::type Value;

public:
    typedef std::conditional_t<IN_PAIRS, InPairs, Value> Order;  // order of a result's columns; see `unshuffle`

    PieceWork(const AttentionShape& shape, AttentionPlan& plan, const AttentionTensors& tensors, const Piece& piece,
              const Piece* following, Blocks<Stored>& blocks, Scratch& scratch)
        : shape_(shape), tensors_(tensors), plan_(plan), piece_(piece), following_(following), blocks_(blocks),
          group_(group_of(shape)), rows_(count_rows()), columns_(padded_columns(shape.v_head_dim)),
          key_units_(shape.head_dim / Unit<Number>::size), query_size_(IN_PAIRS ? key_units_ : shape.head_dim),
          part_size_(result_size(rows_, shape)),
          scale_(shape.scale * (shape.softcap > 0 ? 1 / shape.softcap : LOG2_E)) {
        const int64_t heads = piece.num_heads, head_floats = BLOCK * shape.head_dim;
        scratch.reset(rows_ * (heads * query_size_ + 4) + 2 * head_floats + BLOCK * (columns_ + MAX_ROWS)
                          + heads * (2 * part_size_ + static_cast<int64_t>(sizeof(Part) / sizeof(float))), 10);
        queries_ = scratch.take<Factor>(heads * rows_ * query_size_);
        visible_from_ = scratch.take<int64_t>(rows_);
        visible_to_ = scratch.take<int64_t>(rows_);
        keys_ = scratch.take<U>(BLOCK * key_units_);
        room_ = scratch.take(head_floats);
        values_ = scratch.take(BLOCK * columns_);
        scores_ = scratch.take(BLOCK * MAX_ROWS);
        whole_ = scratch.take(heads * part_size_);
        chunk_ = scratch.take(heads * part_size_);
        into_ = scratch.take<Part>(heads);
        int64_t row = 0;
        for (int64_t i = 0; i < piece.num_members; ++i) row = read_queries(member(i), row);
        stop_ = plan.end_key(piece);
    }

    // Computes all chunks. Writes results to the plan, or to the output if the span has no other piece.
    void attend() {
        for (int64_t chunk = piece_.first_chunk; chunk < piece_.last_chunk; ++chunk) {
            const bool is_direct = piece_.num_members == 1 && begins_result(member(0), chunk);
            for (int64_t h = 0; h < piece_.num_heads; ++h)
                into_[h] = is_direct ? result(member(0), h, chunk) : Part::at(chunk_ + h * part_size_, rows_);
            attend_chunk(chunk);
            if (!is_direct) hand_over(chunk);
        }
        const Span& span = member(0);
        if (span.results >= 0) return;
        for (int64_t h = 0; h < piece_.num_heads; ++h)
            write_output<Stored, Order>(shape_, tensors_, span, piece_.first_head + h, result(span, h, 0));
    }

private:
    const Span& member(int64_t i) const { return plan_.member(piece_, i); }

    // Whether a chunk is the first of a result: the chunks of a span's first piece share one, each later chunk has its
    // own.
    static bool begins_result(const Span& span, int64_t chunk) {
        return chunk == span.first_chunk || chunk >= span.first_end;
    }

    // The result of a span that a chunk belongs to, for KV head `h` of the piece.
    Part result(const Span& span, int64_t h, int64_t chunk) const {
        if (span.results < 0) return Part::at(whole_ + h * part_size_, rows_);
        float* kept = plan_.result(span, shape_, piece_.first_head + h, span.result_of(chunk));
        return Part::at(kept, num_rows(span, shape_));
    }

    // Adds a chunk's rows to the results of their spans.
    void hand_over(int64_t chunk) const {
        for (int64_t i = 0, row = 0; i < piece_.num_members; ++i) {
            const Span& span = member(i);
            const int64_t rows = num_rows(span, shape_);
            for (int64_t h = 0; h < piece_.num_heads; ++h) {
                const Part found = into_[h].from(row, columns_), kept = result(span, h, chunk);
                if (begins_result(span, chunk))
                    kept.copy(found, rows, columns_);
                else
                    kept.join(found, rows, columns_);
            }
            row += rows;
        }
    }

    int64_t count_rows() const {
        int64_t rows = 0;
        for (int64_t i = 0; i < piece_.num_members; ++i) rows += num_rows(member(i), shape_);
        return rows;
    }

    // Copies the queries of a span to the rows from `first_row` on, and finds the keys that each row sees. Returns the
    // row after them.
    int64_t read_queries(const Span& span, int64_t first_row) {
        const int64_t end = first_row + num_rows(span, shape_);
        for (int64_t row = first_row; row < end; ++row) {
            const int64_t token = (row - first_row) / group_, in_group = (row - first_row) % group_;
            visible_to_[row] = span.position + token + 1;
            visible_from_[row] = shape_.window > 0 ? std::max<int64_t>(0, visible_to_[row] - shape_.window) : 0;
            const Stored* from = static_cast<const Stored*>(tensors_.query)
                                 + (span.first_token + token) * tensors_.query_token_stride
                                 + (piece_.first_head * group_ + in_group) * tensors_.query_head_stride;
            for (int64_t h = 0; h < piece_.num_heads; ++h, from += group_ * tensors_.query_head_stride) {
                Factor* to = queries_ + (h * rows_ + row) * query_size_;
                if constexpr (IN_PAIRS)
                    std::memcpy(to, from, query_size_ * sizeof(Factor));
                else
                    to_floats(from, to, shape_.head_dim);
            }
        }
        return end;
    }

    // Computes a chunk from scratch, into `into_`.
    void attend_chunk(int64_t chunk) {
        for (int64_t h = 0; h < piece_.num_heads; ++h) into_[h].clear(rows_, columns_);
        const int64_t chunk_end = std::min(stop_, (chunk + 1) * CHUNK);
        int64_t begin = std::max(chunk * CHUNK, plan_.first_key(piece_, shape_));
        for (; begin < chunk_end; begin += BLOCK, blocks_.now ^= 1) {
            BlockRows<Stored>& block = blocks_.current();
            if (!block.is_of(piece_, begin)) block.find(plan_, shape_, tensors_, piece_, begin);
            block.ask_all();
            look_ahead(begin + BLOCK);
            blocks_.next().spread(num_pauses(block.count));
            for (int64_t h = 0; h < piece_.num_heads; ++h) attend_block(block, h);
        }
    }

    // Returns how often `ask_some` is called while a block of `count` keys is computed.
    int64_t num_pauses(int64_t count) const {
        constexpr int64_t AT_ONCE = LANES * VECTORS;
        const int64_t of_keys = BLOCK / AT_ONCE * (key_units_ + 1) / 2;
        const int64_t of_values = (columns_ + AT_ONCE - 1) / AT_ONCE * (count + 3) / 4;
        const int64_t of_packing = (count + 15) / 16 * ((key_units_ + UNITS_BETWEEN - 1) / UNITS_BETWEEN)
                                   + (IN_PAIRS ? (count + KEYS_BETWEEN - 1) / KEYS_BETWEEN : 0);
        return piece_.num_heads * (of_packing + (rows_ + MAX_ROWS - 1) / MAX_ROWS * (of_keys + of_values));
    }

    // Finds the block after this one, even if it belongs to the next piece.
    void look_ahead(int64_t begin) {
        if (begin < stop_)
            blocks_.next().find(plan_, shape_, tensors_, piece_, begin);
        else if (following_ != nullptr)
            blocks_.next().find(plan_, shape_, tensors_, *following_, plan_.first_key(*following_, shape_));
        else
            blocks_.next().forget();
    }

    // Computes a block for one KV head. Skips groups of rows that see none of its keys.
    void attend_block(const BlockRows<Stored>& block, int64_t h) {
        const int64_t size = shape_.head_dim;
        pack_keys(block.keys, h * size, block.count, size, keys_, room_, [&] { blocks_.next().ask_some(); });
        read_values(block, h);
        for (int64_t row = 0; row < rows_; row += MAX_ROWS) {
            const int64_t many = std::min<int64_t>(MAX_ROWS, rows_ - row);
            if (block.begin >= visible_to_[row + many - 1] || block.begin + BLOCK <= visible_from_[row]) continue;
            switch (many) {
                case 1: attend_rows<1>(block, h, row); break;
                case 2: attend_rows<2>(block, h, row); break;
                case 3: attend_rows<3>(block, h, row); break;
                case 4: attend_rows<4>(block, h, row); break;
                case 5: attend_rows<5>(block, h, row); break;
                default: attend_rows<6>(block, h, row);
            }
        }
    }

    // Packs or copies a head's values if necessary, and sets `value_rows_` unless they are multiplied in pairs.
    void read_values(const BlockRows<Stored>& block, int64_t h) {
        const int64_t offset = h * shape_.v_head_dim;
        if constexpr (IN_PAIRS) {
            pack_values(block.values, offset, block.count, shape_.v_head_dim, reinterpret_cast<uint32_t*>(values_),
                        [&] { blocks_.next().ask_some(); });
            return;
        }
        if constexpr (std::is_same_v<Stored, Value>) {
            if (shape_.v_head_dim == columns_) {
                for (int64_t key = 0; key < BLOCK; ++key) value_rows_[key] = block.values[key] + offset;
                return;
            }
        }
        for (int64_t key = 0; key < block.count; ++key) {
            Value* to = reinterpret_cast<Value*>(values_) + key * columns_;
            copy_values(block.values[key] + offset, shape_.v_head_dim, columns_, to);
            value_rows_[key] = to;
        }
    }

    // Computes ROWS rows of a block: scores, softmax weights, then the weighted sum of values.
    template <int ROWS>
    __attribute__((noinline)) void attend_rows(const BlockRows<Stored>& block, int64_t h, int64_t first) {
        static_assert(ROWS <= MAX_ROWS);
        const auto between = [&] { blocks_.next().ask_some(); };
        const Factor* queries = queries_ + (h * rows_ + first) * query_size_;
        for (int64_t key = 0; key < BLOCK; key += LANES * VECTORS) {
            Floats sums[ROWS][VECTORS] = {};
            add_products(queries, query_size_, keys_ + key, BLOCK, key_units_, sums, between);
            for (int row = 0; row < ROWS; ++row)
                for (int v = 0; v < VECTORS; ++v) store(scores_ + row * BLOCK + key + v * LANES, sums[row][v]);
        }
        const bool is_cut =
            block.begin + BLOCK > visible_to_[first] || block.begin < visible_from_[first + ROWS - 1];
        const Part part = into_[h].from(first, columns_);
        float fading[ROWS];
        for (int row = 0; row < ROWS; ++row)
            fading[row] =
                weigh(block.begin, first + row, scores_ + row * BLOCK, is_cut, part.top[row], part.total[row]);
        int64_t c = 0;
        for (; c + LANES * VECTORS <= columns_; c += LANES * VECTORS)
            add_weighted<ROWS, VECTORS>(block.count, fading, c, part.values + c, between);
        for (; c < columns_; c += LANES * 2) add_weighted<ROWS, 2>(block.count, fading, c, part.values + c, between);
    }

    // Rescales the rows' sums by `fading`, and adds the weighted values, for MANY vectors of columns.
    template <int ROWS, int MANY, typename Between>
    void add_weighted(int64_t count, const float (&fading)[ROWS], int64_t column, float* to,
                      const Between& between) const {
        Floats sums[ROWS][MANY];
        for (int row = 0; row < ROWS; ++row)
            for (int v = 0; v < MANY; ++v) sums[row][v] = load(to + row * columns_ + v * LANES) * fading[row];
        if constexpr (IN_PAIRS)
            add_products(reinterpret_cast<const Factor*>(scores_), BLOCK,
                         reinterpret_cast<const uint32_t*>(values_) + column, columns_, (count + 1) / 2, sums, between);
        else
            add_values(scores_, BLOCK, value_rows_, column, count, sums, between);
        for (int row = 0; row < ROWS; ++row)
            for (int v = 0; v < MANY; ++v) store(to + row * columns_ + v * LANES, sums[row][v]);
    }

    // Turns a row's scores into softmax weights, in place, and updates its maximum and sum of weights. Returns the
    // factor for the row's earlier sums.
    float weigh(int64_t begin, int64_t row, float* scores, bool is_cut, float& top, float& total) const {
        Floats found[BLOCK / LANES];
        for (int64_t v = 0; v < BLOCK / LANES; ++v) {
            found[v] = load(scores + v * LANES) * scale_;
            if (shape_.softcap > 0) found[v] = tanh(found[v]) * (shape_.softcap * LOG2_E);
            if (is_cut) found[v] = cut(found[v], begin + v * LANES, row);
        }
        Floats tops = found[0];
        for (int64_t v = 1; v < BLOCK / LANES; ++v) tops = larger(tops, found[v]);
        const float before = top;
        top = std::max(before, largest_of(tops));
        const float fading = weight(before, top), base = top == NOTHING ? 0.0f : top;
        Floats sums = {};
        for (int64_t v = 0; v < BLOCK / LANES; ++v) {
            found[v] = power_of_2(found[v] - base);
            sums += found[v];
        }
        total = total * fading + sum_of(sums);
        write_weights(found, reinterpret_cast<Factor*>(scores));
        return fading;
    }

    // Masks the scores of keys that a row does not see, among LANES keys from `begin` on.
    Floats cut(Floats scores, int64_t begin, int64_t row) const {
        const int32_t from = static_cast<int32_t>(std::clamp<int64_t>(visible_from_[row] - begin, 0, LANES));
        const int32_t to = static_cast<int32_t>(std::clamp<int64_t>(visible_to_[row] - begin, 0, LANES));
        Ints places;
        for (int i = 0; i < LANES; ++i) places[i] = i;
        return ((places >= from) & (places < to)) ? scores : broadcast(NOTHING);
    }

    const AttentionShape& shape_;
    const AttentionTensors& tensors_;
    AttentionPlan& plan_;
    const Piece& piece_;
    const Piece* const following_;  // the piece that the same thread computes next; null: none
    Blocks<Stored>& blocks_;
    const int64_t group_, rows_, columns_, key_units_, query_size_, part_size_;
    const float scale_;
    int64_t stop_;               // the key after the last one
    Factor* queries_;            // [heads][rows][query_size]
    U* keys_;                    // packed keys of one head
    float* room_, *values_, *scores_;
    float* whole_, *chunk_;      // memory of a Part for each head
    Part* into_;                 // [heads]: accumulates each head's chunk
    int64_t* visible_from_, *visible_to_;
    const Value* value_rows_[BLOCK];
};

}  // namespace llmfw::attention
