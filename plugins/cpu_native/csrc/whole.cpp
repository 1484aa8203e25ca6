// A whole step in one call: the layers of stack.h with the attention of attention.h between their halves.
#include <vector>

#include "attention.h"
#include "stack.h"

extern "C" {

// One layer's attention. `tensors` says where its keys and values are stored; the rest of it is not read.
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

void write_keys(const void* context, int64_t, int64_t chunk) {
    const Call& call = *static_cast<const Call*>(context);
    attention_write_chunk(*call.plan, *call.shape, call.tensors, chunk);
}

void attend(const void* context, int64_t, int64_t chunk) {
    const Call& call = *static_cast<const Call*>(context);
    attention_chunk(*call.plan, *call.shape, call.tensors, chunk);
}

// What a layer's attention reads and writes: the step's own buffers.
AttentionTensors tensors_of(const LlmfwStack& stack, const LlmfwStep& step, const AttentionTensors& storage) {
    const int64_t size = stack.dtype == 0 ? sizeof(float) : sizeof(bfloat16);
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

}  // namespace
}  // namespace llmfw

// From the embeddings to the final norm. `attentions` has one for each layer; all are planned for this step. Rows of
// `step->attended` have no gaps.
extern "C" void llmfw_run_stack(const LlmfwStack* stack, const LlmfwStep* step, const LlmfwAttention* attentions) {
    using namespace llmfw;
    const Run run{stack, step};
    std::vector<Call> calls;
    calls.reserve(stack->num_layers);
    Program program;
    for (int64_t layer = 0; layer < stack->num_layers; ++layer) {
        const LlmfwAttention& attention = attentions[layer];
        calls.push_back({attention.plan, attention.shape, tensors_of(*stack, *step, *attention.tensors)});
        add_before_attention(program, run, layer);
        program.add(write_keys, &calls.back(), layer, attention_write_chunks(*attention.plan));
        program.add(attend, &calls.back(), layer, attention_chunks(*attention.plan, *attention.shape));
        add_after_attention(program, run, layer);
    }
    add_final_norm(program, run);
    llmfw::run(program);
}
