// The phases around a stack of layers: token ids become the first hidden states, and the results become logits.
#pragma once

#include <cstdint>

#include "pool.h"
#include "products.h"
#include "stack.h"

extern "C" {

// The embeddings and the head of a model, and a step's token ids and logits. Owns no memory.
struct LlmfwEnds {
    llmfw::Matrix embeddings;      // [ids, hidden], packed; not used if plain_embeddings is given
    const void* plain_embeddings;  // [ids, hidden], not packed; or null
    llmfw::Matrix head;            // [ids, hidden], packed
    int64_t num_ids;               // number of embeddings; every id must be below
    const int64_t* ids;            // [rows]
    float* logits;                 // [num_results, head.out], rounded to the precision of Scalar
};

// Returns the largest number, read as unsigned, so negative ones are larger than all others; 0 if there are none.
uint64_t llmfw_largest(const int64_t* numbers, int64_t count);
}

namespace llmfw {

// The context of the phases; must live as long as the program runs.
struct EndsRun {
    const LlmfwEnds* ends;
    const LlmfwStack* stack;
    const LlmfwStep* step;
};

// Adds the phases before the first layer, and those after the final norm.
void add_embeddings(Program& program, const EndsRun& run);
void add_head(Program& program, const EndsRun& run);

}  // namespace llmfw
