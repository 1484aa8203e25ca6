// Attention over a paged KV cache: the interface for attention.py and for other native code.
//
// A step is planned once for each kind of layer; layers of one kind have the same numbers of heads, v_head_dim and
// window. Then the attention of each such layer is one call, or two phases of a program (pool.h). Nothing is allocated
// once buffers have reached the size that the steps need. Results do not depend on the number of threads, nor on the
// other sequences of the step.
#pragma once

#include <cstdint>

struct AttentionPlan;  // the plan of a step for one kind of layer

extern "C" {

// The shape of a layer, with the names of LayerSpec.
struct AttentionShape {
    int32_t dtype;  // LLMFW_DTYPE of the library: dtype of queries, keys, values, sinks and output
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;  // even
    int32_t v_head_dim;
    int32_t window;  // 0: none
    float scale;
    float softcap;  // 0: none
    int32_t in_pairs;  // 1: multiply bfloat16 in pairs, if `llmfw_attention_pairs` is not 0; 0: as float32
};

// The B sequences of a step with T new tokens, with the names of ForwardBatch.
struct AttentionStep {
    const int64_t* slots;       // [T]: slot in the KV cache of each new token
    const int64_t* query_lens;  // [B]: new tokens
    const int64_t* kv_lens;     // [B]: all tokens, including the new ones
    const int64_t* rows;        // [B]: row of each sequence in the page table
    const int32_t* page_table;  // [rows][table_stride]
    int64_t table_stride;
    int64_t num_sequences;
    int64_t num_tokens;
    int64_t page_size;
};

// What one layer reads and writes. Strides are in elements; a head's numbers are contiguous.
struct AttentionTensors {
    void* keys;         // [slots][num_kv_heads][head_dim]
    void* values;       // [slots][num_kv_heads][v_head_dim]
    const void* query;  // [T][num_heads][head_dim]
    const void* key;    // [T][num_kv_heads][head_dim]; null: new keys and values are already in their slots
    const void* value;  // [T][num_kv_heads][v_head_dim]
    void* output;       // [T][num_heads][v_head_dim], contiguous
    const void* sinks;  // [num_heads]; null: no attention sinks
    int64_t query_token_stride, query_head_stride;
    int64_t key_token_stride, key_head_stride;
    int64_t value_token_stride, value_head_stride;
};

AttentionPlan* llmfw_attention_plan_new();
void llmfw_attention_plan_free(AttentionPlan* plan);

// Splits a step's work into pieces for the current number of threads. Copies the struct, but not the arrays that it
// points to: they must live as long as the plan is used.
void llmfw_attention_plan(AttentionPlan* plan, const AttentionStep* step, const AttentionShape* shape);

// Writes the new keys and values to their slots, then computes attention. The shape must be of the planned kind.
void llmfw_attention(AttentionPlan* plan, const AttentionShape* shape, const AttentionTensors* tensors);

// Returns a `Pairs` (pairs.h). 0: the library cannot multiply pairs of bfloat16. 1: it can, but float32 is faster, as
// on Intel's CPUs: 88 GFLOP/s per core in pairs and 176 in float32, measured on Emerald Rapids. 2: pairs are faster, as
// on AMD's CPUs.
int32_t llmfw_attention_pairs();

// Returns the number of pieces in the plan. For tests.
int64_t llmfw_attention_num_pieces(const AttentionPlan* plan);

// Returns the number of keys that a layer reads, summed over KV heads. For tests.
int64_t llmfw_attention_num_keys(const AttentionPlan* plan, const AttentionShape* shape);
}

namespace llmfw {

// A layer's attention as two phases of a program: first all write chunks, then all attention chunks. If the caller has
// written the new keys and values to their slots, only the second phase is needed.
int64_t attention_write_chunks(const AttentionPlan& plan);
void attention_write_chunk(const AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors,
                           int64_t chunk);
int64_t attention_chunks(const AttentionPlan& plan);
int64_t attention_work(const AttentionPlan& plan, const AttentionShape& shape);  // in the unit of pool.h
void attention_chunk(AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors, int64_t chunk);

}  // namespace llmfw
