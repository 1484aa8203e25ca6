// A stack of decoder layers as in Llama, and the buffers of one step.
//
// A layer: RMS norm; queries, keys and values with rotary embedding; attention; output projection, added to the
// residual; RMS norm; silu(gate) · up; down projection, added to the residual. Attention is separate: it reads `qkv`
// and writes `attended`. structs.py has the same structs; change the two together.
#pragma once

#include <cstdint>

#include "pool.h"
#include "products.h"

extern "C" {

// The weights of a layer. Owns no memory.
struct LlmfwLayer {
    llmfw::Matrix qkv;     // projections to queries, keys and values, each rounded up to whole panels
    llmfw::Matrix output;  // output projection of attention
    llmfw::Matrix gate, up, down;
    const void *input_norm, *after_norm;  // [hidden], of Scalar: before attention, before gate and up
    const void *query_norm, *key_norm;    // [head_dim], of Scalar; null: no such norm
    float input_epsilon, after_epsilon, query_epsilon, key_epsilon;
};

// The layers and their sizes. Norms, rotary tables and buffers are of type Scalar.
struct LlmfwStack {
    int64_t num_layers;
    int64_t hidden, heads, kv_heads, head_dim;
    int64_t key_column, value_column;  // columns of qkv where keys and values start; queries start at 0
    const LlmfwLayer* layers;
    const void* final_norm;  // [hidden]
    float final_epsilon;
};

// The inputs and buffers of one step, one row per token of all sequences. Owns no memory. Buffers are [rows, stride],
// strides in elements; the padding of a row must be zero and stays zero.
struct LlmfwStep {
    int64_t rows;
    const int64_t* positions;        // [rows]: row of each token in the rotary tables
    const void *cosines, *sines;     // [positions, head_dim]: rotary tables
    void* residual;                  // [rows, hidden]; at first the embeddings
    void* normed;                    // [rows, hidden]
    void* qkv;                       // [rows, layers[0].qkv.out]
    void* attended;                  // [rows, heads * head_dim]
    void* active;                    // [rows, gate.out]: silu(gate) · up
    void* result;                    // [num_results, hidden]: the final norm of the residual
    int64_t residual_stride, normed_stride, qkv_stride, attended_stride, active_stride, result_stride;
    const int64_t* wanted;           // [num_results]: rows for which results are computed; null: all rows
    int64_t num_results;
};
}

namespace llmfw {

// The context of the phases; must live as long as the program runs.
struct Run {
    const LlmfwStack* stack;
    const LlmfwStep* step;
};

// Adds the phases of a layer before its attention, those after it, and the final norm.
void add_before_attention(Program& program, const Run& run, int64_t layer);
void add_after_attention(Program& program, const Run& run, int64_t layer);
void add_final_norm(Program& program, const Run& run);

}  // namespace llmfw

extern "C" {
// Runs the first layer up to its attention.
void llmfw_begin(const LlmfwStack* stack, const LlmfwStep* step);
// Runs a layer after its attention, then the next layer up to its attention, or the final norm.
void llmfw_continue(const LlmfwStack* stack, const LlmfwStep* step, int64_t layer);
}
