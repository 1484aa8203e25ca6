// Attention over paged keys and values: what attention.py calls, and what other native code may call.
//
// A step is planned once for each kind of layer: layers with the same heads, size of values and window. Each layer of
// the kind then is one call, or some phases of a program (see pool.h). Nothing here allocates once steps have reached
// their size. Results do not depend on the number of threads, nor on what else is in the step.
#pragma once

#include <cstdint>

struct AttentionPlan;  // of a step, for one kind of layer

extern "C" {

// What a layer is, in the words of LayerSpec.
struct AttentionShape {
    int32_t dtype;  // of queries, keys, values, sinks and output: the library's LLMFW_DTYPE
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;  // even
    int32_t v_head_dim;
    int32_t window;  // 0: none
    float scale;
    float softcap;  // 0: none
    int32_t in_pairs;  // 1: bfloat16 is multiplied in pairs, where `llmfw_attention_pairs` is not 0; 0: as float32
};

// The sequences of a step, in the words of ForwardBatch: T tokens of B sequences.
struct AttentionStep {
    const int64_t* slots;       // [T]
    const int64_t* query_lens;  // [B]
    const int64_t* kv_lens;     // [B]
    const int64_t* rows;        // [B]
    const int32_t* page_table;  // [rows][table_stride]
    int64_t table_stride;
    int64_t num_sequences;
    int64_t num_tokens;
    int64_t page_size;
};

// What one layer reads and writes. Strides count elements; a head's numbers are neighbours.
struct AttentionTensors {
    void* keys;         // [slots][num_kv_heads][head_dim]
    void* values;       // [slots][num_kv_heads][v_head_dim]
    const void* query;  // [T][num_heads][head_dim]
    const void* key;    // [T][num_kv_heads][head_dim]; null: new keys and values are in their slots already
    const void* value;  // [T][num_kv_heads][v_head_dim]
    void* output;       // [T][num_heads][v_head_dim], without gaps
    const void* sinks;  // [num_heads], or null
    int64_t query_token_stride, query_head_stride;
    int64_t key_token_stride, key_head_stride;
    int64_t value_token_stride, value_head_stride;
};

AttentionPlan* llmfw_attention_plan_new();
void llmfw_attention_plan_free(AttentionPlan* plan);

// Cut a step's work into pieces for the threads that there are. What `step` points to has to live as long as the plan
// is used; the struct itself is copied.
void llmfw_attention_plan(AttentionPlan* plan, const AttentionStep* step, const AttentionShape* shape);

// Write the new keys and values to their slots, and attend. The shape is of the kind that was planned.
void llmfw_attention(AttentionPlan* plan, const AttentionShape* shape, const AttentionTensors* tensors);

// 0: there is no product of pairs of bfloat16. 1: there is, but float32 is faster, as on Intel's: measured on Emerald
// Rapids, 88 GFLOP/s a core in pairs and 176 in float32. 2: pairs are faster, as on AMD's. See pairs.h.
int32_t llmfw_attention_pairs();

// Into how many pieces the work was cut. For tests.
int64_t llmfw_attention_num_pieces(const AttentionPlan* plan);

// How many keys of one head a layer reads. For tests.
int64_t llmfw_attention_num_keys(const AttentionPlan* plan, const AttentionShape* shape);
}

namespace llmfw {

// A layer's attention as two phases of a program: all of the first, then all of the second. For whoever writes new
// keys and values to their slots himself, the second is enough.
int64_t attention_write_chunks(const AttentionPlan& plan);
void attention_write_chunk(const AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors,
                           int64_t chunk);
int64_t attention_chunks(const AttentionPlan& plan);
int64_t attention_work(const AttentionPlan& plan, const AttentionShape& shape);  // of these chunks, as of pool.h
void attention_chunk(AttentionPlan& plan, const AttentionShape& shape, const AttentionTensors& tensors, int64_t chunk);

}  // namespace llmfw
