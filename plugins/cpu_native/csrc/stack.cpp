#include "stack.h"

#include "rows.h"

namespace llmfw {
namespace {

constexpr int64_t ROWS_EACH = 4;  // rows per chunk, in phases that handle rows one by one

template <typename T>
T* row_of(void* buffer, int64_t stride, int64_t row) {
    return static_cast<T*>(buffer) + row * stride;
}

template <typename Work>
void each_of(int64_t rows, int64_t chunk, const Work& work) {
    const int64_t end = (chunk + 1) * ROWS_EACH < rows ? (chunk + 1) * ROWS_EACH : rows;
    for (int64_t row = chunk * ROWS_EACH; row < end; ++row) work(row);
}

template <typename Work>
void each_row(const LlmfwStep& step, int64_t chunk, const Work& work) {
    each_of(step.rows, chunk, work);
}

template <typename T>
void norm_input(const void* context, int64_t index, int64_t chunk, const Reads&) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    const LlmfwLayer& layer = stack->layers[index];
    each_row(*step, chunk, [&](int64_t row) {
        rms_norm(row_of<T>(step->residual, step->residual_stride, row), static_cast<const T*>(layer.input_norm),
                 layer.input_epsilon, stack->hidden, row_of<T>(step->normed, step->normed_stride, row));
    });
}

template <typename T>
void norm_after(const void* context, int64_t index, int64_t chunk, const Reads&) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    const LlmfwLayer& layer = stack->layers[index];
    each_row(*step, chunk, [&](int64_t row) {
        rms_norm(row_of<T>(step->residual, step->residual_stride, row), static_cast<const T*>(layer.after_norm),
                 layer.after_epsilon, stack->hidden, row_of<T>(step->normed, step->normed_stride, row));
    });
}

template <typename T>
void norm_result(const void* context, int64_t, int64_t chunk, const Reads&) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    each_of(step->num_results, chunk, [&](int64_t result) {
        const int64_t row = step->wanted ? step->wanted[result] : result;
        rms_norm(row_of<T>(step->residual, step->residual_stride, row), static_cast<const T*>(stack->final_norm),
                 stack->final_epsilon, stack->hidden, row_of<T>(step->result, step->result_stride, result));
    });
}

template <typename T>
void project_qkv(const void* context, int64_t index, int64_t chunk, const Reads& next) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    const Matrix& matrix = stack->layers[index].qkv;
    product_chunk<T>(matrix, static_cast<const T*>(step->normed), step->normed_stride, step->rows, chunk,
                     next, [&](int64_t row, int64_t panel, const float* sums) {
                         T* to = row_of<T>(step->qkv, step->qkv_stride, row) + panel * PANEL;
                         for (int64_t i = 0; i < PANEL; i += LANES) store(to + i, biased(sums, matrix, panel, i));
                     });
}

template <typename T>
void turn_heads(const LlmfwStack& stack, T* heads, int64_t count, const void* norm, float epsilon, const T* cos,
                const T* sin) {
    for (int64_t head = 0; head < count; ++head, heads += stack.head_dim) {
        if (norm) rms_norm(heads, static_cast<const T*>(norm), epsilon, stack.head_dim, heads);
        rotate(heads, cos, sin, stack.head_dim);
    }
}

template <typename T>
void turn(const void* context, int64_t index, int64_t chunk, const Reads&) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    const LlmfwLayer& layer = stack->layers[index];
    each_row(*step, chunk, [&](int64_t row) {
        const int64_t angle = step->positions[row] * stack->head_dim;
        const T* cos = static_cast<const T*>(step->cosines) + angle;
        const T* sin = static_cast<const T*>(step->sines) + angle;
        T* queries = row_of<T>(step->qkv, step->qkv_stride, row);
        turn_heads(*stack, queries, stack->heads, layer.query_norm, layer.query_epsilon, cos, sin);
        turn_heads(*stack, queries + stack->key_column, stack->kv_heads, layer.key_norm, layer.key_epsilon, cos, sin);
    });
}

// residual += input · weightsᵀ, for one chunk
template <typename T>
void add_to_residual(const LlmfwStep& step, const Matrix& matrix, const void* input, int64_t stride, int64_t chunk,
                     const Reads& next) {
    product_chunk<T>(matrix, static_cast<const T*>(input), stride, step.rows, chunk, next,
                     [&](int64_t row, int64_t panel, const float* sums) {
                         T* to = row_of<T>(step.residual, step.residual_stride, row) + panel * PANEL;
                         for (int64_t i = 0; i < PANEL; i += LANES)
                             store(to + i, load(to + i) + rounded<T>(biased(sums, matrix, panel, i)));
                     });
}

template <typename T>
void add_attended(const void* context, int64_t index, int64_t chunk, const Reads& next) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    add_to_residual<T>(*step, stack->layers[index].output, step->attended, step->attended_stride, chunk, next);
}

template <typename T>
void add_fed(const void* context, int64_t index, int64_t chunk, const Reads& next) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    add_to_residual<T>(*step, stack->layers[index].down, step->active, step->active_stride, chunk, next);
}

template <typename T>
Floats silu(Floats x) {
    return rounded<T>(x / (1.0f + exponential(-x)));
}

// Splits the gate and up projections: a chunk computes matching panels of both.
Cut activate_cut(const LlmfwLayer& layer, int64_t rows) { return Cut(rows, layer.gate.out / PANEL, MAX_PANELS / 2); }

template <typename T>
void activate(const void* context, int64_t index, int64_t chunk, const Reads& next) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    const LlmfwLayer& layer = stack->layers[index];
    const Cut cut = activate_cut(layer, step->rows);
    const int64_t first = cut.first_row(chunk), many = cut.end_row(chunk) - first;
    const int64_t panel = cut.first_panel(chunk), count = cut.end_panel(chunk) - panel;
    Panels panels{{}, static_cast<int>(2 * count), {next.at[0], next.at[1]}};
    for (int64_t i = 0; i < count; ++i) {
        panels.at[2 * i] = panel_at<T>(layer.gate, panel + i);
        panels.at[2 * i + 1] = panel_at<T>(layer.up, panel + i);
    }
    const T* input = row_of<T>(step->normed, step->normed_stride, first);
    const float* sums = sums_with(layer.gate, input, step->normed_stride, many, panels);
    for (int64_t row = 0; row < many; ++row)
        for (int64_t p = 0; p < count; ++p) {
            const float* gates = sums + (2 * p * many + row) * PANEL;
            const float* ups = gates + many * PANEL;
            T* to = row_of<T>(step->active, step->active_stride, first + row) + (panel + p) * PANEL;
            for (int64_t i = 0; i < PANEL; i += LANES) {
                Floats gate = rounded<T>(biased(gates, layer.gate, panel + p, i));
                Floats up = rounded<T>(biased(ups, layer.up, panel + p, i));
                store(to + i, silu<T>(gate) * up);
            }
        }
}

// Returns what a chunk of the product with one of a layer's matrices reads first.
template <typename T, Matrix LlmfwLayer::*MATRIX>
Reads reads_of(const void* context, int64_t index, int64_t chunk) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    return product_reads<T>(stack->layers[index].*MATRIX, step->rows, chunk);
}

template <typename T>
Reads activate_reads(const void* context, int64_t index, int64_t chunk) {
    const auto& [stack, step] = *static_cast<const Run*>(context);
    const LlmfwLayer& layer = stack->layers[index];
    const int64_t panel = activate_cut(layer, step->rows).first_panel(chunk);
    const char* gate = static_cast<const char*>(panel_at<T>(layer.gate, panel));
    const char* up = static_cast<const char*>(panel_at<T>(layer.up, panel));
    return {{gate, up}, static_cast<const char*>(panel_at<T>(layer.gate, panel + 1)) - gate};
}

int64_t chunks_of(int64_t rows) { return (rows + ROWS_EACH - 1) / ROWS_EACH; }

int64_t row_chunks(const Run& run) { return chunks_of(run.step->rows); }

template <typename T>
void add_before(Program& program, const Run& run, int64_t index) {
    const Matrix& qkv = run.stack->layers[index].qkv;
    const int64_t rows = run.step->rows;
    program.add(norm_input<T>, &run, index, row_chunks(run), 0);
    program.add(project_qkv<T>, &run, index, product_chunks(qkv, rows), product_work(qkv, rows),
                reads_of<T, &LlmfwLayer::qkv>);
    program.add(turn<T>, &run, index, row_chunks(run), 0);
}

template <typename T>
void add_after(Program& program, const Run& run, int64_t index) {
    const LlmfwLayer& layer = run.stack->layers[index];
    const int64_t rows = run.step->rows, work = product_work(layer.gate, rows) + product_work(layer.up, rows);
    program.add(add_attended<T>, &run, index, product_chunks(layer.output, rows), product_work(layer.output, rows),
                reads_of<T, &LlmfwLayer::output>);
    program.add(norm_after<T>, &run, index, row_chunks(run), 0);
    program.add(activate<T>, &run, index, activate_cut(layer, rows).chunks(), work, activate_reads<T>);
    program.add(add_fed<T>, &run, index, product_chunks(layer.down, rows), product_work(layer.down, rows),
                reads_of<T, &LlmfwLayer::down>);
}

}  // namespace

void add_before_attention(Program& program, const Run& run, int64_t layer) {
    add_before<Scalar>(program, run, layer);
}

void add_after_attention(Program& program, const Run& run, int64_t layer) {
    add_after<Scalar>(program, run, layer);
}

void add_final_norm(Program& program, const Run& run) {
    const int64_t chunks = chunks_of(run.step->num_results);
    program.add(norm_result<Scalar>, &run, 0, chunks, 0);
}

}  // namespace llmfw

extern "C" {

void llmfw_begin(const LlmfwStack* stack, const LlmfwStep* step) {
    llmfw::Program program;
    const llmfw::Run run{stack, step};
    llmfw::add_before_attention(program, run, 0);
    llmfw::run(program);
}

void llmfw_continue(const LlmfwStack* stack, const LlmfwStep* step, int64_t layer) {
    llmfw::Program program;
    const llmfw::Run run{stack, step};
    llmfw::add_after_attention(program, run, layer);
    if (layer + 1 < stack->num_layers)
        llmfw::add_before_attention(program, run, layer + 1);
    else
        llmfw::add_final_norm(program, run);
    llmfw::run(program);
}
}
