#include "products.h"

#include <utility>
#include <vector>

namespace llmfw {
namespace {

constexpr int PER_PANEL = PANEL / LANES;
constexpr int64_t AHEAD = 48;  // units that weights are fetched ahead of their use

template <typename T, int ROWS, int PANELS>
void multiply_block(const T* input, int64_t stride, const void* first, const void* second, int64_t units, float* sums) {
    typedef typename Unit<T>::type U;
    typedef typename Unit<T>::vector V;
    constexpr int VECTORS = PER_PANEL * PANELS;
    const U* weights[2] = {static_cast<const U*>(first), static_cast<const U*>(second)};
    Floats totals[ROWS][VECTORS] = {};
    for (int64_t unit = 0; unit < units; ++unit) {
        V w[VECTORS];
        LLMFW_UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            const U* from = weights[v / PER_PANEL] + unit * PANEL + v % PER_PANEL * LANES;
            w[v] = load(from);
            if (v * LANES % 16 == 0) __builtin_prefetch(from + AHEAD * PANEL);
        }
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row) {
            U one;
            std::memcpy(&one, input + row * stride + unit * Unit<T>::size, sizeof one);
            const V x = broadcast(one);
            LLMFW_UNROLL
            for (int v = 0; v < VECTORS; ++v) totals[row][v] = add_product(totals[row][v], w[v], x);
        }
    }
    LLMFW_UNROLL
    for (int v = 0; v < VECTORS; ++v) {
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row)
            store(sums + (v / PER_PANEL * ROWS + row) * PANEL + v % PER_PANEL * LANES, totals[row][v]);
    }
}

// Of packed pairs, first the one half of each, then the other one.
template <int ROWS, int PANELS>
void multiply_wide_block(const float* input, int64_t stride, const void* first, const void* second, int64_t units,
                         float* sums) {
    constexpr int VECTORS = PER_PANEL * PANELS;
    const uint32_t* weights[2] = {static_cast<const uint32_t*>(first), static_cast<const uint32_t*>(second)};
    Floats totals[ROWS][VECTORS] = {};
    for (int64_t unit = 0; unit < units; ++unit) {
        Words w[VECTORS];
        LLMFW_UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            const uint32_t* from = weights[v / PER_PANEL] + unit * PANEL + v % PER_PANEL * LANES;
            w[v] = load(from);
            if (v * LANES % 16 == 0) __builtin_prefetch(from + AHEAD * PANEL);
        }
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row) {
            const Floats x = broadcast(input[row * stride + 2 * unit]);
            LLMFW_UNROLL
            for (int v = 0; v < VECTORS; ++v) totals[row][v] = add_product(totals[row][v], (Floats)(w[v] << 16), x);
        }
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row) {
            const Floats x = broadcast(input[row * stride + 2 * unit + 1]);
            LLMFW_UNROLL
            for (int v = 0; v < VECTORS; ++v)
                totals[row][v] = add_product(totals[row][v], (Floats)(w[v] & 0xffff0000u), x);
        }
    }
    LLMFW_UNROLL
    for (int v = 0; v < VECTORS; ++v) {
        LLMFW_UNROLL
        for (int row = 0; row < ROWS; ++row)
            store(sums + (v / PER_PANEL * ROWS + row) * PANEL + v % PER_PANEL * LANES, totals[row][v]);
    }
}

template <typename T>
using Kernel = void (*)(const T*, int64_t, const void*, const void*, int64_t, float*);

template <typename T, int PANELS, int... I>
Kernel<T> kernel(int rows, std::integer_sequence<int, I...>) {
    static constexpr Kernel<T> kernels[] = {multiply_block<T, I + 1, PANELS>...};
    return kernels[rows - 1];
}

template <int PANELS, int... I>
Kernel<float> wide_kernel(int rows, std::integer_sequence<int, I...>) {
    static constexpr Kernel<float> kernels[] = {multiply_wide_block<I + 1, PANELS>...};
    return kernels[rows - 1];
}

}  // namespace

void multiply_wide(const float* input, int64_t stride, int rows, const void* first, const void* second, int64_t units,
                   float* sums) {
    if (second && rows <= MAX_PAIR_ROWS) {
        const auto run = wide_kernel<2>(rows, std::make_integer_sequence<int, MAX_PAIR_ROWS>());
        return run(input, stride, first, second, units, sums);
    }
    const auto run = wide_kernel<1>(rows, std::make_integer_sequence<int, MAX_ROWS>());
    run(input, stride, first, nullptr, units, sums);
    if (second) run(input, stride, second, nullptr, units, sums + rows * PANEL);
}

const float* widened(const bfloat16* input, int64_t stride, int rows, int64_t width, int64_t wide_stride) {
    thread_local std::vector<float> memory;
    const size_t size = static_cast<size_t>(rows * wide_stride);
    if (memory.size() < size) memory.resize(size);
    for (int row = 0; row < rows; ++row, input += stride) {
        float* to = memory.data() + row * wide_stride;
        for (int64_t i = 0; i < width; i += LANES) store_part(to + i, load_part(input + i, width - i), width - i);
        for (int64_t i = width; i < wide_stride; ++i) to[i] = 0;
    }
    return memory.data();
}

template <typename T>
void multiply(const T* input, int64_t stride, int rows, const void* first, const void* second, int64_t units,
              float* sums) {
    if (second && rows <= MAX_PAIR_ROWS) {
        const auto run = kernel<T, 2>(rows, std::make_integer_sequence<int, MAX_PAIR_ROWS>());
        return run(input, stride, first, second, units, sums);
    }
    const auto run = kernel<T, 1>(rows, std::make_integer_sequence<int, MAX_ROWS>());
    run(input, stride, first, nullptr, units, sums);
    if (second) run(input, stride, second, nullptr, units, sums + rows * PANEL);
}

template void multiply<float>(const float*, int64_t, int, const void*, const void*, int64_t, float*);
template void multiply<bfloat16>(const bfloat16*, int64_t, int, const void*, const void*, int64_t, float*);

namespace {

template <typename T>
void pack(const T* weights, int64_t stride, int64_t out, int64_t in, T* panels) {
    constexpr int64_t SIZE = Unit<T>::size;
    const int64_t units = num_units<T>(in), whole = in / SIZE;
    parallel_for((out + PANEL - 1) / PANEL, [=](int64_t panel) {
        T* to = panels + panel * units * SIZE * PANEL;
        const T* from = weights + panel * PANEL * stride;
        const int64_t columns = out - panel * PANEL < PANEL ? out - panel * PANEL : PANEL;
        for (int64_t unit = 0; unit < units; ++unit, to += SIZE * PANEL) {
            if (columns < PANEL || unit == whole) std::memset(to, 0, SIZE * PANEL * sizeof(T));
            if (unit == whole) {  // half a pair
                for (int64_t column = 0; column < columns; ++column) to[column * SIZE] = from[column * stride + in - 1];
            } else {
                for (int64_t column = 0; column < columns; ++column)
                    std::memcpy(to + column * SIZE, from + column * stride + unit * SIZE, SIZE * sizeof(T));
            }
        }
    });
}

template <typename T>
void unpack(const T* panels, int64_t out, int64_t in, T* weights) {
    constexpr int64_t SIZE = Unit<T>::size;
    const int64_t length = num_units<T>(in) * SIZE * PANEL;
    parallel_for((out + PANEL - 1) / PANEL, [=](int64_t panel) {
        const T* from = panels + panel * length;
        for (int64_t column = 0; column < PANEL && panel * PANEL + column < out; ++column) {
            T* to = weights + (panel * PANEL + column) * in;
            for (int64_t k = 0; k < in; ++k) to[k] = from[(k / SIZE * PANEL + column) * SIZE + k % SIZE];
        }
    });
}

template <typename T>
void product(const Matrix& matrix, const T* input, int64_t stride, int64_t rows, T* output, int64_t output_stride) {
    parallel_for(product_chunks(matrix, rows), [&](int64_t chunk) {
        product_chunk<T>(matrix, input, stride, rows, chunk, [&](int64_t row, int64_t panel, const float* sums) {
            T* to = output + row * output_stride + panel * PANEL;
            for (int64_t i = 0; i < PANEL; i += LANES) store(to + i, biased(sums, matrix, panel, i));
        });
    });
}

// Rows of the weights, back in their usual layout.
template <typename T>
void gather(const Matrix& matrix, const int64_t* rows, int64_t count, T* to) {
    if (matrix.kind != NUMBERS) return gather_quantized(matrix, rows, count, to);
    constexpr int64_t SIZE = Unit<T>::size, EACH = 8;
    parallel_for((count + EACH - 1) / EACH, [&](int64_t chunk) {
        for (int64_t i = chunk * EACH; i < count && i < (chunk + 1) * EACH; ++i) {
            const T* from = static_cast<const T*>(panel_at<T>(matrix, rows[i] / PANEL)) + rows[i] % PANEL * SIZE;
            for (int64_t k = 0; k < matrix.in; ++k) to[i * matrix.in + k] = from[k / SIZE * PANEL * SIZE + k % SIZE];
        }
    });
}

}  // namespace
}  // namespace llmfw

using llmfw::bfloat16;
using llmfw::Matrix;

extern "C" {

// weights [out, in] of rows `stride` apart → panels.
void llmfw_pack(int32_t dtype, const void* weights, int64_t stride, int64_t out, int64_t in, void* panels) {
    if (dtype == 0)
        llmfw::pack(static_cast<const float*>(weights), stride, out, in, static_cast<float*>(panels));
    else
        llmfw::pack(static_cast<const bfloat16*>(weights), stride, out, in, static_cast<bfloat16*>(panels));
}

// panels → weights [out, in].
void llmfw_unpack(int32_t dtype, const void* panels, int64_t out, int64_t in, void* weights) {
    if (dtype == 0)
        llmfw::unpack(static_cast<const float*>(panels), out, in, static_cast<float*>(weights));
    else
        llmfw::unpack(static_cast<const bfloat16*>(panels), out, in, static_cast<bfloat16*>(weights));
}

// rows [count] of matrix's weights → output [count, in]. A row's number is less than the matrix has.
void llmfw_gather(int32_t dtype, const Matrix* matrix, const int64_t* rows, int64_t count, void* output) {
    if (dtype == 0)
        llmfw::gather(*matrix, rows, count, static_cast<float*>(output));
    else
        llmfw::gather(*matrix, rows, count, static_cast<bfloat16*>(output));
}

// input [rows, in] → output [rows, matrix->out], both of rows so many elements apart.
void llmfw_product(int32_t dtype, const Matrix* matrix, const void* input, int64_t stride, int64_t rows, void* output,
                   int64_t output_stride) {
    if (dtype == 0)
        llmfw::product(*matrix, static_cast<const float*>(input), stride, rows, static_cast<float*>(output),
                       output_stride);
    else
        llmfw::product(*matrix, static_cast<const bfloat16*>(input), stride, rows, static_cast<bfloat16*>(output),
                       output_stride);
}
}
