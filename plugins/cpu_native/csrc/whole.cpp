// A whole step in one call: the layers of stack.h with the attention of attention.h, and the embeddings and head of
// ends.h around them.
#include <vector>

#include "attention.h"
#include "ends.h"
#include "stack.h"

extern "C" {

// The attention of one layer. Of `tensors`, only `keys` and `values` (the KV cache) are read.
struct LlmfwAttention {
    AttentionPlan* plan;
    const AttentionShape* shape;
    const AttentionTensors* tensors;
};
}

namespace llmfw {
namespace {

struct Call {
    AttentionPlan* plan;
    const AttentionShape* shape;
    AttentionTensors tensors;
};

void write_keys(const void* context, int64_t, int64_t chunk, const Reads&) {
    const Call& call = *static_cast<const Call*>(context);
    attention_write_chunk(*call.plan, *call.shape, call.tensors, chunk);
}

void attend(const void* context, int64_t, int64_t chunk, const Reads&) {
    const Call& call = *static_cast<const Call*>(context);
    attention_chunk(*call.plan, *call.shape, call.tensors, chunk);
}

// Returns the tensors of a layer's attention: the step's own buffers, and the KV cache of `storage`.
AttentionTensors tensors_of(const LlmfwStack& stack, const LlmfwStep& step, const AttentionTensors& storage) {
    const int64_t size = sizeof(Scalar);
    char* qkv = static_cast<char*>(step.qkv);
    AttentionTensors tensors = storage;
    tensors.query = qkv;
    tensors.key = qkv + stack.key_column * size;
    tensors.value = qkv + stack.value_column * size;
    tensors.output = step.attended;
    tensors.sinks = nullptr;
    tensors.query_token_stride = tensors.key_token_stride = tensors.value_token_stride = step.qkv_stride;
    tensors.query_head_stride = tensors.key_head_stride = tensors.value_head_stride = stack.head_dim;
    return tensors;
}

// Adds all layers and the final norm. Returns contexts of the phases; they must live as long as the program runs.
std::vector<Call> add_layers(Program& program, const Run& run, const LlmfwAttention* attentions) {
    std::vector<Call> calls;
    calls.reserve(run.stack->num_layers);
    for (int64_t layer = 0; layer < run.stack->num_layers; ++layer) {
        const LlmfwAttention& attention = attentions[layer];
        calls.push_back({attention.plan, attention.shape, tensors_of(*run.stack, *run.step, *attention.tensors)});
        add_before_attention(program, run, layer);
        const AttentionPlan& plan = *attention.plan;
        const AttentionShape& shape = *attention.shape;
        program.add(write_keys, &calls.back(), layer, attention_write_chunks(plan), 0);
        program.add(attend, &calls.back(), layer, attention_chunks(plan), attention_work(plan, shape));
        add_after_attention(program, run, layer);
    }
    add_final_norm(program, run);
    return calls;
}

}  // namespace
}  // namespace llmfw

extern "C" {

// Runs a step from the embeddings (in `step->residual`) to the final norm. `attentions` [num_layers] are all planned
// for this step. Rows of `step->attended` must have no gaps.
void llmfw_run_stack(const LlmfwStack* stack, const LlmfwStep* step, const LlmfwAttention* attentions) {
    const llmfw::Run run{stack, step};
    llmfw::Program program;
    const auto calls = llmfw::add_layers(program, run, attentions);
    llmfw::run(program);
}

// Runs a step from token ids to logits. Returns 0; or, having computed nothing, 1 if a token id is out of range, or 2
// if a wanted row is.
int32_t llmfw_run_model(const LlmfwStack* stack, const LlmfwStep* step, const LlmfwAttention* attentions,
                     const LlmfwEnds* ends) {
    if (llmfw_largest(ends->ids, step->rows) >= static_cast<uint64_t>(ends->num_ids)) return 1;
    const uint64_t rows = static_cast<uint64_t>(step->rows);
    if (step->wanted && step->num_results && llmfw_largest(step->wanted, step->num_results) >= rows) return 2;
    const llmfw::Run run{stack, step};
    const llmfw::EndsRun around{ends, stack, step};
    llmfw::Program program;
    llmfw::add_embeddings(program, around);
    const auto calls = llmfw::add_layers(program, run, attentions);
    llmfw::add_head(program, around);
    llmfw::run(program);
    return 0;
}

// Writes the sizes of the structs in bytes, [4], so that bindings can check theirs.
void llmfw_sizes(int64_t* sizes) {
    sizes[0] = sizeof(LlmfwLayer);
    sizes[1] = sizeof(LlmfwStack);
    sizes[2] = sizeof(LlmfwStep);
    sizes[3] = sizeof(LlmfwEnds);
}
}
