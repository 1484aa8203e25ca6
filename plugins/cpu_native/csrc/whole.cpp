// A whole step in one call: the layers of stack.h with the attention of attention.h between their halves, and with the
// ends of ends.h around them.
#include <vector>

#include "attention.h"
#include "ends.h"
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

void write_keys(const void* context, int64_t, int64_t chunk, const Reads&) {
    const Call& call = *static_cast<const Call*>(context);
    attention_write_chunk(*call.plan, *call.shape, call.tensors, chunk);
}

void attend(const void* context, int64_t, int64_t chunk, const Reads&) {
    const Call& call = *static_cast<const Call*>(context);
    attention_chunk(*call.plan, *call.shape, call.tensors, chunk);
}

// What a layer's attention reads and writes: the step's own buffers.
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

// Add all layers and the final norm. The calls live as long as what is returned.
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

// From the embeddings to the final norm. `attentions` has one for each layer; all are planned for this step. Rows of
// `step->attended` have no gaps.
void llmfw_run_stack(const LlmfwStack* stack, const LlmfwStep* step, const LlmfwAttention* attentions) {
    const llmfw::Run run{stack, step};
    llmfw::Program program;
    const auto calls = llmfw::add_layers(program, run, attentions);
    llmfw::run(program);
}

// The same from token ids to logits. Returns 0; or, with nothing done, 1 if there is no such id, 2 if there is no such row
// as one that is wanted.
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

// Bytes of the structs, for whoever has the same in another language.
void llmfw_sizes(int64_t* sizes) {
    sizes[0] = sizeof(LlmfwLayer);
    sizes[1] = sizeof(LlmfwStack);
    sizes[2] = sizeof(LlmfwStep);
    sizes[3] = sizeof(LlmfwEnds);
}
}
