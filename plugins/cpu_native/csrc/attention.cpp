// Plans a step's attention, and runs it on the thread pool.
#include "attention.h"

#include <atomic>
#include <vector>

#include "attention_piece.h"
#include "pairs.h"
#include "pool.h"

using namespace llmfw::attention;

namespace {

constexpr int64_t TOKENS_AT_ONCE = 64;  // tokens per chunk, when keys and values are written to their slots

// Copies the heads of one token to its slot.
template <typename Stored>
void write_row(const void* from, int64_t token_stride, int64_t head_stride, int64_t token, int64_t heads, int64_t size,
               void* to, int64_t slot) {
    const Stored* row = static_cast<const Stored*>(from) + token * token_stride;
    Stored* out = static_cast<Stored*>(to) + slot * heads * size;
    for (int64_t head = 0; head < heads; ++head)
        std::memcpy(out + head * size, row + head * head_stride, size * sizeof(Stored));
}

template <typename Stored>
void write_tokens(const AttentionShape& shape, const AttentionStep& step, const AttentionTensors& tensors,
                  int64_t chunk) {
    const int64_t end = std::min(step.num_tokens, (chunk + 1) * TOKENS_AT_ONCE);
    for (int64_t token = chunk * TOKENS_AT_ONCE; token < end; ++token) {
        const int64_t slot = step.slots[token];
        write_row<Stored>(tensors.key, tensors.key_token_stride, tensors.key_head_stride, token, shape.num_kv_heads,
                          shape.head_dim, tensors.keys, slot);
        write_row<Stored>(tensors.value, tensors.value_token_stride, tensors.value_head_stride, token,
                          shape.num_kv_heads, shape.v_head_dim, tensors.values, slot);
    }
}

// Counts `num_done` finished (chunk, KV head) pairs of a span. The thread that finishes the last ones joins the span's
// partial results and writes the output.
template <typename Stored, typename Order>
void finish(AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors, const Span& span,
            int64_t num_done) {
    std::atomic<int64_t> &done = plan.counters[span.counter];
    if (done.fetch_add(num_done) + num_done < (span.last_chunk - span.first_chunk) * shape.num_kv_heads) return;
    done.store(0);  // for the next layer
    const int64_t rows = num_rows(span, shape), columns = padded_columns(shape.v_head_dim);
    for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
        const Part whole = Part::at(plan.result(span, shape, head, 0), rows);
        for (int64_t next = 1; next < span.num_results(); ++next)
            whole.join(Part::at(plan.result(span, shape, head, next), rows), rows, columns);
        write_output<Stored, Order>(shape, tensors, span, head, whole);
    }
}

// Computes one batch of pieces.
template <typename Stored, typename Factor>
void attend(AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors, int64_t batch) {
    typedef PieceWork<Stored, Factor> Work;
    thread_local Scratch scratch;
    Blocks<Stored> blocks;
    const Piece* const end = plan.pieces.data() + plan.end_of_batch(batch);
    // Prefetches extend into the next batch, because a thread mostly continues with that.
    const Piece* const all = plan.pieces.data() + plan.pieces.size();
    for (const Piece* piece = plan.pieces.data() + plan.batches[batch]; piece != end; ++piece) {
        Work(shape, plan, tensors, *piece, piece + 1 == all ? nullptr : piece + 1, blocks, scratch).attend();
        const int64_t num_done = (piece->last_chunk - piece->first_chunk) * piece->num_heads;
        for (int64_t i = 0; i < piece->num_members; ++i) {
            const Span& span = plan.member(*piece, i);
            if (span.results >= 0) finish<Stored, typename Work::Order>(plan, shape, tensors, span, num_done);
        }
    }
}

}  // namespace

namespace llmfw {

int64_t attention_write_chunks(const AttentionPlan& plan) {
    return (plan.step.num_tokens + TOKENS_AT_ONCE - 1) / TOKENS_AT_ONCE;
}

void attention_write_chunk(const AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors,
                           int64_t chunk) {
    write_tokens<Scalar>(shape, plan.step, tensors, chunk);
}

int64_t attention_chunks(const AttentionPlan& plan) { return static_cast<int64_t>(plan.batches.size()); }

int64_t attention_work(const AttentionPlan& plan, const AttentionShape& shape) {
    return plan.cost * BLOCK * shape.num_kv_heads * (shape.head_dim + shape.v_head_dim);
}

void attention_chunk(AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors, int64_t chunk) {
#if LLMFW_DTYPE == 1 && LLMFW_PAIRS
    if (shape.in_pairs) return attend<Scalar, uint32_t>(plan, shape, tensors, chunk);
#endif
    attend<Scalar, float>(plan, shape, tensors, chunk);
}

}  // namespace llmfw

extern "C" {

AttentionPlan* llmfw_attention_plan_new() { return new AttentionPlan; }

void llmfw_attention_plan_free(AttentionPlan* plan) { delete plan; }

void llmfw_attention_plan(AttentionPlan* plan, const AttentionStep* step, const AttentionShape* shape) {
    plan->step = *step;
    plan->cut(*shape, llmfw::num_threads());
}

void llmfw_attention(AttentionPlan* plan, const AttentionShape* shape, const AttentionTensors* tensors) {
    const auto write = [&](int64_t chunk) { llmfw::attention_write_chunk(*plan, *shape, *tensors, chunk); };
    const auto attend = [&](int64_t chunk) { llmfw::attention_chunk(*plan, *shape, *tensors, chunk); };
    const int64_t chunks = llmfw::attention_write_chunks(*plan);
    if (tensors->key != nullptr && chunks > 1) llmfw::parallel_for(chunks, write);
    if (tensors->key != nullptr && chunks == 1) write(0);  // faster than waking other threads
    llmfw::parallel_for(llmfw::attention_chunks(*plan), attend);
}

int32_t llmfw_attention_pairs() { return llmfw::pairs(); }

int64_t llmfw_attention_num_pieces(const AttentionPlan* plan) { return static_cast<int64_t>(plan->pieces.size()); }

int64_t llmfw_attention_num_keys(const AttentionPlan* plan, const AttentionShape* shape) {
    int64_t keys = 0;
    for (const Piece& piece : plan->pieces)
        keys += (plan->end_key(piece) - plan->first_key(piece, *shape)) * piece.num_heads;
    return keys;
}
}
