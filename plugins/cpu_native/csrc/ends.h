// What is at both ends of a stack of layers: token ids become its first rows, its results become logits.
#pragma once

#include <cstdint>

#include "pool.h"
#include "products.h"
#include "stack.h"

extern "C" {

struct LlmfwEnds {
    llmfw::Matrix embeddings;      // [ids, hidden], packed; or
    const void* plain_embeddings;  // [ids, hidden] as they are, or null
    llmfw::Matrix head;            // [ids, hidden]
    int64_t num_ids;               // that have embeddings
    const int64_t* ids;            // [rows]
    float* logits;                 // [num_results, head.out], rounded to what the stack's dtype holds
};

// The largest of some numbers, of which negative ones count as larger than all others.
uint64_t llmfw_largest(const int64_t* numbers, int64_t count);
}

namespace llmfw {

// What the phases read; has to live as long as the program runs.
struct EndsRun {
    const LlmfwEnds* ends;
    const LlmfwStack* stack;
    const LlmfwStep* step;
};

// Add what comes before the first layer, and after the final norm.
void add_embeddings(Program& program, const EndsRun& run);
void add_head(Program& program, const EndsRun& run);

}  // namespace llmfw
