#include "rows.h"

#include "pool.h"

namespace {

template <typename T>
void norm_rows(const void* rows, const void* weight, float epsilon, int64_t count, int64_t width, void* to) {
    llmfw::parallel_for(count, [=](int64_t row) {
        llmfw::rms_norm(static_cast<const T*>(rows) + row * width, static_cast<const T*>(weight), epsilon, width,
                        static_cast<T*>(to) + row * width);
    });
}

}  // namespace

// RMS norm of `rows` [count, width], without gaps, to `to` [count, width]; on all threads.
extern "C" void llmfw_rms_norm(const void* rows, const void* weight, float epsilon, int64_t count, int64_t width,
                               void* to) {
    norm_rows<llmfw::Scalar>(rows, weight, epsilon, count, width, to);
}
