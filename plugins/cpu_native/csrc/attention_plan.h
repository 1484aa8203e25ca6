// How a step's attention is split: spans of tokens, pieces of work, and memory for partial results.
//
// A row is one query head of one token. Keys are processed in blocks of 64, and blocks in chunks of 256; both count
// from the sequence's first token. Within a chunk, the online softmax runs from block to block. Each chunk starts from
// scratch, and the results of chunks are joined in order. So a row's result is the same to the last bit however the
// work is split, whether the token is computed alone (decode) or in a prompt (prefill), and whichever rows share its
// keys.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "attention_shared.h"

namespace llmfw::attention {

constexpr int64_t BLOCK = 64;  // keys per block
static_assert(CHUNK % BLOCK == 0);

// Consecutive tokens of one sequence, with all their query heads.
struct Span {
    int64_t sequence;                 // index in the step
    int64_t first_token;              // index in the step
    int64_t position;                 // of first_token in its sequence
    int64_t num_tokens;
    int64_t first_chunk, last_chunk;  // chunks of keys that any of the tokens sees: [first, last)
    int64_t first_end;                // end of the span's first piece, whose chunks share one result
    int64_t results;                  // offset into AttentionPlan::results; -1: a single piece has all chunks
    int64_t counter;                  // index of the counter of finished chunks, if there are partial results

    int64_t num_results() const { return 1 + last_chunk - first_end; }
    // The number of the result that a chunk belongs to: the first piece has one, each later chunk has its own.
    int64_t result_of(int64_t chunk) const { return chunk < first_end ? 0 : 1 + chunk - first_end; }
};

// Chunks of keys, computed for all rows of one or more spans and for some KV heads. If there are several spans, these
// chunks are in the same slots for all of them, and each of their rows sees all keys of the chunks.
struct Piece {
    int64_t first_member, num_members;  // a range of AttentionPlan::members
    int64_t first_chunk, last_chunk;
    int64_t first_head, num_heads;      // KV heads
    int64_t cost;                       // sort key; as AttentionPlan::cost, but for all heads of the piece
};

// Columns of the accumulators of values: v_head_dim rounded up to 32, which are whole vectors of pairs on every CPU.
inline int64_t padded_columns(int64_t v_head_dim) { return (v_head_dim + 31) / 32 * 32; }

// Query heads per KV head.
inline int64_t group_of(const AttentionShape& shape) { return shape.num_heads / shape.num_kv_heads; }

// Rows of a span per KV head.
inline int64_t num_rows(const Span& span, const AttentionShape& shape) { return span.num_tokens * group_of(shape); }

// Floats of one result for one KV head: for each row the maximum score, the sum of weights, and the weighted sum of
// values.
inline int64_t result_size(int64_t rows, const AttentionShape& shape) {
    return 2 * ((rows + 15) / 16 * 16) + rows * padded_columns(shape.v_head_dim);
}
inline int64_t result_size(const Span& span, const AttentionShape& shape) {
    return result_size(num_rows(span, shape), shape);
}

}  // namespace llmfw::attention

struct AttentionPlan {
    AttentionStep step = {};
    std::vector<llmfw::attention::Span> spans;
    std::vector<int32_t> members;  // spans of all pieces, by index
    std::vector<llmfw::attention::Piece> pieces;
    std::vector<int32_t> batches;  // first piece of each batch; one thread computes the pieces of a batch in order
    std::vector<float> results;
    std::vector<std::atomic<int64_t>> counters;
    int64_t cost = 0;  // of all pieces, for one KV head: blocks of keys × rows, with READING_ROWS added to the rows

    // Plans `step`, which must be set; replaces the previous plan.
    void cut(const AttentionShape& shape, int64_t threads);

    // The piece after the last one of a batch.
    int64_t end_of_batch(int64_t batch) const {
        const bool is_last = batch + 1 == static_cast<int64_t>(batches.size());
        return is_last ? static_cast<int64_t>(pieces.size()) : batches[batch + 1];
    }
    const llmfw::attention::Span& member(const llmfw::attention::Piece& piece, int64_t i) const {
        return spans[members[piece.first_member + i]];
    }
    // The first key of a piece's first block, and the key after its last one.
    int64_t first_key(const llmfw::attention::Piece& piece, const AttentionShape& shape) const {
        using namespace llmfw::attention;
        const int64_t seen = shape.window > 0 ? member(piece, 0).position + 1 - shape.window : 0;
        return std::max(piece.first_chunk * CHUNK, seen / BLOCK * BLOCK);
    }
    int64_t end_key(const llmfw::attention::Piece& piece) const {
        const llmfw::attention::Span& span = member(piece, 0);
        return std::min(piece.last_chunk * llmfw::attention::CHUNK, span.position + span.num_tokens);
    }
    // A partial result of a span for one KV head.
    float* result(const llmfw::attention::Span& span, const AttentionShape& shape, int64_t head, int64_t number) {
        return results.data() + span.results
               + (head * span.num_results() + number) * llmfw::attention::result_size(span, shape);
    }

private:
    void cut_tokens(const AttentionShape& shape);
    void share(const AttentionShape& shape);
    void add_shared(const llmfw::attention::SharedChunks::Group& group, const AttentionShape& shape);
    void add_alone(int32_t span, int64_t chunk);
    int64_t rows_of(const llmfw::attention::Piece& piece, const AttentionShape& shape) const;
    int64_t cost_of(const llmfw::attention::Piece& piece, const AttentionShape& shape) const;
    void cut_segments(const AttentionShape& shape, int64_t threads);
    void cut_heads(const AttentionShape& shape, int64_t threads);
    void make_batches(int64_t threads);
    void keep_results(const AttentionShape& shape);

    llmfw::attention::SharedChunks shared_;
    std::vector<llmfw::attention::Piece> segments_, whole_;
    std::vector<int64_t> covered_;  // for each span: its chunks before this one are in segments
};
