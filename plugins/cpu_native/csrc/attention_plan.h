// How a step's attention is cut: spans of tokens, pieces of work, and where results wait that are not joined yet.
//
// A row is one query head of one token. Keys are taken in blocks of 64, and blocks in chunks of 256, both counted from
// the sequence's first token. Within a chunk the softmax is the usual running one; each chunk begins anew, and the
// chunks' results are joined in order. So a row's result is the same to the last bit however the work was cut, whether
// the token came alone or in a prompt, and whoever else saw the same keys beside it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "attention.h"
#include "attention_shared.h"

namespace llmfw::attention {

constexpr int64_t BLOCK = 64;  // keys
static_assert(CHUNK % BLOCK == 0);

// Some neighbouring tokens of one sequence, with all their query heads.
struct Span {
    int64_t sequence;                 // in the step
    int64_t first_token;              // in the step
    int64_t position;                 // of that token in its sequence
    int64_t num_tokens;
    int64_t first_chunk, last_chunk;  // of keys that any of them sees: [first, last)
    int64_t first_end;                // where the first of its pieces ends, whose chunks are joined at once
    int64_t results;                  // where results are kept, in floats; -1: one piece has all its chunks
    int64_t counter;                  // of chunks that are done, if results are kept

    int64_t num_results() const { return 1 + last_chunk - first_end; }
    // Which result a chunk goes into: all of the first piece into one, each later one into its own.
    int64_t result_of(int64_t chunk) const { return chunk < first_end ? 0 : 1 + chunk - first_end; }
};

// Some chunks of keys that all rows of some spans are attended with, for some key/value heads. Chunks of several spans
// are in the same slots for all of them, and seen by all of their rows.
struct Piece {
    int64_t first_member, num_members;  // spans, by plan.members
    int64_t first_chunk, last_chunk;
    int64_t first_head, num_heads;      // of keys and values
    int64_t cost;                       // to sort by
};

// What keys and values of so many columns are summed up in: whole vectors of pairs, on every machine.
inline int64_t padded_columns(int64_t v_head_dim) { return (v_head_dim + 31) / 32 * 32; }

inline int64_t group_of(const AttentionShape& shape) { return shape.num_heads / shape.num_kv_heads; }

inline int64_t num_rows(const Span& span, const AttentionShape& shape) { return span.num_tokens * group_of(shape); }

// Floats that one result takes, of one head: for each row the largest score, the sum of weights, and the weighted
// sum of values.
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
    std::vector<int32_t> members;  // of pieces, by number of span
    std::vector<llmfw::attention::Piece> pieces;
    std::vector<int32_t> batches;  // first pieces of what a thread does one after the other
    std::vector<float> results;
    std::vector<std::atomic<int64_t>> counters;
    int64_t cost = 0;  // of all pieces: of blocks of keys, times rows, for one head

    void cut(const AttentionShape& shape, int64_t threads);

    int64_t end_of_batch(int64_t batch) const {
        const bool is_last = batch + 1 == static_cast<int64_t>(batches.size());
        return is_last ? static_cast<int64_t>(pieces.size()) : batches[batch + 1];
    }
    const llmfw::attention::Span& member(const llmfw::attention::Piece& piece, int64_t i) const {
        return spans[members[piece.first_member + i]];
    }
    // The first key of a piece's first block, and the one after its last key.
    int64_t first_key(const llmfw::attention::Piece& piece, const AttentionShape& shape) const {
        using namespace llmfw::attention;
        const int64_t seen = shape.window > 0 ? member(piece, 0).position + 1 - shape.window : 0;
        return std::max(piece.first_chunk * CHUNK, seen / BLOCK * BLOCK);
    }
    int64_t end_key(const llmfw::attention::Piece& piece) const {
        const llmfw::attention::Span& span = member(piece, 0);
        return std::min(piece.last_chunk * llmfw::attention::CHUNK, span.position + span.num_tokens);
    }
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
    std::vector<int64_t> covered_;  // of each span: up to which chunk it has segments
};
