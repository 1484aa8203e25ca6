// Partial results of the online softmax, and joining those of consecutive keys.
#pragma once

#include <algorithm>

#include "attention_math.h"
#include "attention_plan.h"

namespace llmfw::attention {

// Returns the factor for sums whose maximum score was `top` when the maximum becomes `new_top`. Scores are logarithms
// to base 2.
inline float weight(float top, float new_top) { return new_top == NOTHING ? 0.0f : power_of_2(top - new_top); }

// The partial result of some rows: for each, the maximum score, the sum of weights, and the weighted sum of values,
// [rows][columns]. Does not own its memory.
struct Part {
    float* top, *total, *values;

    // The part in `memory`, which has the size `result_size`.
    static Part at(float* memory, int64_t rows) {
        const int64_t padded = (rows + 15) / 16 * 16;
        return {memory, memory + padded, memory + 2 * padded};
    }
    // The rows from `row` on.
    Part from(int64_t row, int64_t columns) const { return {top + row, total + row, values + row * columns}; }

    void clear(int64_t rows, int64_t columns) const {
        std::fill(top, top + rows, NOTHING);
        std::fill(total, total + rows, 0.0f);
        std::fill(values, values + rows * columns, 0.0f);
    }
    void copy(const Part& other, int64_t rows, int64_t columns) const {
        std::copy(other.top, other.top + rows, top);
        std::copy(other.total, other.total + rows, total);
        std::copy(other.values, other.values + rows * columns, values);
    }
    // Joins the result of the keys that follow.
    void join(const Part& next, int64_t rows, int64_t columns) const {
        for (int64_t row = 0; row < rows; ++row) {
            const float largest = std::max(top[row], next.top[row]);
            const float before = weight(top[row], largest), after = weight(next.top[row], largest);
            top[row] = largest;
            total[row] = total[row] * before + next.total[row] * after;
            float* mine = values + row * columns;
            const float* other = next.values + row * columns;
            for (int64_t c = 0; c < columns; c += LANES)
                store(mine + c, load(mine + c) * before + load(other + c) * after);
        }
    }
};

}  // namespace llmfw::attention
