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

// [count, width] → [count, width], of dtype 0: float32, 1: bfloat16.
extern "C" void llmfw_rms_norm(int32_t dtype, const void* rows, const void* weight, float epsilon, int64_t count,
                               int64_t width, void* to) {
    if (dtype == 0)
        norm_rows<float>(rows, weight, epsilon, count, width, to);
    else
        norm_rows<llmfw::bfloat16>(rows, weight, epsilon, count, width, to);
}
