#include "ends.h"

#include <cstring>

namespace llmfw {
namespace {

constexpr int64_t IDS_EACH = 16;  // token ids per chunk

template <typename T>
void embed(const void* context, int64_t, int64_t chunk, const Reads&) {
    const auto& [ends, stack, step] = *static_cast<const EndsRun*>(context);
    const int64_t hidden = stack->hidden;
    for (int64_t row = chunk * IDS_EACH; row < step->rows && row < (chunk + 1) * IDS_EACH; ++row) {
        T* to = static_cast<T*>(step->residual) + row * step->residual_stride;
        if (ends->plain_embeddings)
            std::memcpy(to, static_cast<const T*>(ends->plain_embeddings) + ends->ids[row] * hidden, hidden * sizeof(T));
        else
            unpack_row(ends->embeddings, ends->ids[row], to);
    }
}

template <typename T>
void head(const void* context, int64_t, int64_t chunk, const Reads& next) {
    const auto& [ends, stack, step] = *static_cast<const EndsRun*>(context);
    const Matrix& matrix = ends->head;
    product_chunk<T>(matrix, static_cast<const T*>(step->result), step->result_stride, step->num_results, chunk,
                     next, [&](int64_t row, int64_t panel, const float* sums) {
                         float* to = ends->logits + row * matrix.out + panel * PANEL;
                         for (int64_t i = 0; i < PANEL; i += LANES)
                             store(to + i, rounded<T>(biased(sums, matrix, panel, i)));
                     });
}

template <typename T>
Reads head_reads(const void* context, int64_t, int64_t chunk) {
    const auto& [ends, stack, step] = *static_cast<const EndsRun*>(context);
    return product_reads<T>(ends->head, step->num_results, chunk);
}

}  // namespace

void add_embeddings(Program& program, const EndsRun& run) {
    const int64_t chunks = (run.step->rows + IDS_EACH - 1) / IDS_EACH;
    program.add(embed<Scalar>, &run, 0, chunks, 0);
}

void add_head(Program& program, const EndsRun& run) {
    const Matrix& matrix = run.ends->head;
    const int64_t rows = run.step->num_results, chunks = product_chunks(matrix, rows);
    program.add(head<Scalar>, &run, 0, chunks, product_work(matrix, rows), head_reads<Scalar>);
}

}  // namespace llmfw

extern "C" uint64_t llmfw_largest(const int64_t* numbers, int64_t count) {
    uint64_t most = 0;
    for (int64_t i = 0; i < count; ++i)
        if (static_cast<uint64_t>(numbers[i]) > most) most = static_cast<uint64_t>(numbers[i]);
    return most;
}
