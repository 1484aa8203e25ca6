// Finds the keys and values of a block in the KV pages, and prefetches them while the block before is computed.
#pragma once

#include <algorithm>

#include "attention_plan.h"

namespace llmfw::attention {

// The addresses of a block's keys and values, from the piece's first KV head on.
template <typename Stored>
class BlockRows {
public:
    int64_t begin = 0, count = 0;  // first key, and number of keys
    const Stored* keys[BLOCK], *values[BLOCK];

    bool is_of(const Piece& piece, int64_t from) const { return piece_ == &piece && begin == from; }

    void find(const AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors,
              const Piece& piece, int64_t from) {
        const AttentionStep& step = plan.step;
        piece_ = &piece;
        begin = from;
        count = std::min(BLOCK, plan.end_key(piece) - from);
        num_asked_ = due_ = rate_ = 0;
        key_bytes_ = piece.num_heads * shape.head_dim * static_cast<int64_t>(sizeof(Stored));
        value_bytes_ = piece.num_heads * shape.v_head_dim * static_cast<int64_t>(sizeof(Stored));
        const int64_t key_size = shape.num_kv_heads * shape.head_dim;
        const int64_t value_size = shape.num_kv_heads * shape.v_head_dim;
        const Stored* first_key = static_cast<const Stored*>(tensors.keys) + piece.first_head * shape.head_dim;
        const Stored* first_value = static_cast<const Stored*>(tensors.values) + piece.first_head * shape.v_head_dim;
        const int32_t* page =
            step.page_table + step.rows[plan.member(piece, 0).sequence] * step.table_stride + from / step.page_size;
        int64_t offset = from % step.page_size;
        for (int64_t key = 0; key < count; ++key) {
            const int64_t slot = *page * step.page_size + offset;
            keys[key] = first_key + slot * key_size;
            values[key] = first_value + slot * value_size;
            if (++offset == step.page_size) offset = 0, ++page;
        }
    }

    // Announces that `ask_some` will be called `times` times before the block is needed.
    void spread(int64_t times) { rate_ = (2 * count * PART + times - 1) / times; }

    // Prefetches the next few rows. Only a few loads can be outstanding at a time: more would stall the computation.
    void ask_some() {
        due_ += rate_;
        ask(std::min(due_ / PART, 2 * count));
    }
    void ask_all() { ask(2 * count); }

    // Marks that there is no next block.
    void forget() {
        piece_ = nullptr;
        num_asked_ = count = due_ = rate_ = 0;
    }

private:
    static constexpr int64_t PART = 256;  // units of `due_` and `rate_` per row

    void ask(int64_t end) {
        for (; num_asked_ < end; ++num_asked_)
            if (num_asked_ < count)
                prefetch(keys[num_asked_], key_bytes_);
            else
                prefetch(values[num_asked_ - count], value_bytes_);
    }
    static void prefetch(const void* from, int64_t bytes) {
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(from) + at);
    }

    const Piece* piece_ = nullptr;
    int64_t num_asked_ = 0;  // rows prefetched: first those of keys, then those of values
    int64_t due_ = 0, rate_ = 0;  // rows to prefetch by now, and per call; in 1 / PART of a row
    int64_t key_bytes_ = 0, value_bytes_ = 0;
};

// The current block and the next one.
template <typename Stored>
struct Blocks {
    BlockRows<Stored> both[2];
    int now = 0;

    BlockRows<Stored>& current() { return both[now]; }
    BlockRows<Stored>& next() { return both[1 - now]; }
};

}  // namespace llmfw::attention
