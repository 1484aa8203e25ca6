// A stack of decoder layers as Llama has them, and what one step hands through it.
//
// A layer is norm, queries, keys and values with their rotary embedding, attention, output product added to the residual;
// norm, silu(gate) · up, down product added to the residual. Attention is somebody else's: it reads `qkv` and writes
// `attended`. layers.py has the same structs; the two change together.
#pragma once

#include <cstdint>

#include "pool.h"
#include "products.h"

extern "C" {

struct LlmfwLayer {
    llmfw::Matrix qkv;     // queries, keys and values, each rounded up to whole panels
    llmfw::Matrix output;  // of attention
    llmfw::Matrix gate, up, down;
    const void *input_norm, *after_norm;  // [hidden]
    const void *query_norm, *key_norm;    // [head_dim], or null
    float input_epsilon, after_epsilon, query_epsilon, key_epsilon;
};

// Weights, tables and buffers are of Scalar.
struct LlmfwStack {
    int64_t num_layers;
    int64_t hidden, heads, kv_heads, head_dim;
    int64_t key_column, value_column;  // where they begin in a row of qkv; queries at 0
    const LlmfwLayer* layers;
    const void* final_norm;  // [hidden]
    float final_epsilon;
};

// One packed row of tokens. Buffers are [rows, stride]; what is past a row's last number stays zero. Of all rows, or of
// some, there is a result.
struct LlmfwStep {
    int64_t rows;
    const int64_t* positions;        // [rows]: rows of the tables
    const void *cosines, *sines;     // [positions, head_dim]
    void* residual;                  // [rows, hidden], the embeddings at first
    void* normed;                    // [rows, hidden]
    void* qkv;                       // [rows, layers[0].qkv.out]
    void* attended;                  // [rows, heads * head_dim]
    void* active;                    // [rows, gate.out]
    void* result;                    // [num_results, hidden]: the final norm of it all
    int64_t residual_stride, normed_stride, qkv_stride, attended_stride, active_stride, result_stride;
    const int64_t* wanted;           // [num_results]: the rows that have a result; null: all of them
    int64_t num_results;
};
}

namespace llmfw {

// What the phases of a program read; has to live as long as the program runs.
struct Run {
    const LlmfwStack* stack;
    const LlmfwStep* step;
};

// Add what comes before a layer's attention, after it, and after the last layer.
void add_before_attention(Program& program, const Run& run, int64_t layer);
void add_after_attention(Program& program, const Run& run, int64_t layer);
void add_final_norm(Program& program, const Run& run);

}  // namespace llmfw

extern "C" {
// The first layer up to its attention.
void llmfw_begin(const LlmfwStack* stack, const LlmfwStep* step);
// A layer from its attention on, then the next one up to its attention, or the final norm.
void llmfw_continue(const LlmfwStack* stack, const LlmfwStep* step, int64_t layer);
}
