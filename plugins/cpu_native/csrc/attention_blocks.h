// Finds the keys and values of a block in their pages, and asks memory for them while another block is computed.
#pragma once

#include <algorithm>

#include "attention_plan.h"

namespace llmfw::attention {

// The rows of a block: of each key's slot, from one key/value head on.
template <typename Stored>
struct BlockRows {
    int64_t begin = -1, count = 0;
    int64_t num_asked = 0;  // of keys, then of values
    const Stored* keys[BLOCK], *values[BLOCK];

    void find(const AttentionShape& shape, const AttentionStep& step, const AttentionTensors& tensors, int64_t sequence,
              int64_t head, int64_t from, int64_t many) {
        begin = from;
        count = many;
        num_asked = 0;
        const int64_t key_size = shape.num_kv_heads * shape.head_dim, value_size = shape.num_kv_heads * shape.v_head_dim;
        const Stored* first_key = static_cast<const Stored*>(tensors.keys) + head * shape.head_dim;
        const Stored* first_value = static_cast<const Stored*>(tensors.values) + head * shape.v_head_dim;
        const int32_t* page = step.page_table + step.rows[sequence] * step.table_stride + from / step.page_size;
        int64_t offset = from % step.page_size;
        for (int64_t key = 0; key < many; ++key) {
            const int64_t slot = *page * step.page_size + offset;
            keys[key] = first_key + slot * key_size;
            values[key] = first_value + slot * value_size;
            if (++offset == step.page_size) offset = 0, ++page;
        }
    }

    // Ask for some more rows. Too many at a time would have to wait for each other.
    void ask(int64_t rows, int64_t key_bytes, int64_t value_bytes) {
        for (const int64_t end = std::min(num_asked + rows, 2 * count); num_asked < end; ++num_asked)
            if (num_asked < count)
                prefetch(keys[num_asked], key_bytes);
            else
                prefetch(values[num_asked - count], value_bytes);
    }

private:
    static void prefetch(const void* from, int64_t bytes) {
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(from) + at);
    }
};

}  // namespace llmfw::attention
