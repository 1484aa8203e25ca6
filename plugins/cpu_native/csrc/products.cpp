// Packing, unpacking and multiplying matrices, each as one call that uses all threads. See products.h.
#include "products.h"

#include <cstring>

namespace llmfw {
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
            if (unit == whole) {  // `in` is odd: the last pair has one input
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
        product_chunk<T>(matrix, input, stride, rows, chunk, Reads{}, [&](int64_t row, int64_t panel, const float* sums) {
            T* to = output + row * output_stride + panel * PANEL;
            for (int64_t i = 0; i < PANEL; i += LANES) store(to + i, biased(sums, matrix, panel, i));
        });
    });
}

// Copies rows of the weights to `to` in the usual layout, [count, in].
template <typename T>
void gather(const Matrix& matrix, const int64_t* rows, int64_t count, T* to) {
    constexpr int64_t EACH = 8;  // rows per chunk
    parallel_for((count + EACH - 1) / EACH, [&](int64_t chunk) {
        for (int64_t i = chunk * EACH; i < count && i < (chunk + 1) * EACH; ++i)
            unpack_row(matrix, rows[i], to + i * matrix.in);
    });
}

}  // namespace

const QuantizedProducts* quantized = nullptr;

}  // namespace llmfw

using llmfw::Matrix;
using llmfw::Scalar;

extern "C" {

// Packs weights [out, in], whose rows are `stride` elements apart, into panels.
void llmfw_pack(const void* weights, int64_t stride, int64_t out, int64_t in, void* panels) {
    llmfw::pack(static_cast<const Scalar*>(weights), stride, out, in, static_cast<Scalar*>(panels));
}

// Unpacks panels to weights [out, in].
void llmfw_unpack(const void* panels, int64_t out, int64_t in, void* weights) {
    llmfw::unpack(static_cast<const Scalar*>(panels), out, in, static_cast<Scalar*>(weights));
}

// Copies rows [count] of the matrix's weights to output [count, in]. Row numbers are not checked: they must be below
// matrix->out.
void llmfw_gather(const Matrix* matrix, const int64_t* rows, int64_t count, void* output) {
    llmfw::gather(*matrix, rows, count, static_cast<Scalar*>(output));
}

// Multiplies input [rows, in] by the weights and adds the bias: output [rows, matrix->out]. Strides are in elements.
void llmfw_product(const Matrix* matrix, const void* input, int64_t stride, int64_t rows, void* output,
                   int64_t output_stride) {
    llmfw::product(*matrix, static_cast<const Scalar*>(input), stride, rows, static_cast<Scalar*>(output),
                   output_stride);
}

// Sets the functions for quantized weights. Another library owns them, which must stay loaded.
void llmfw_use_quantized(const llmfw::QuantizedProducts* products) { llmfw::quantized = products; }

// Packs codes [out, groups, GROUP], one per byte, and scales [out, groups] into panels.
void llmfw_pack_codes(int64_t kind, const uint8_t* codes, const void* scales, int64_t out, int64_t groups, void* panels) {
    llmfw::parallel_for((out + llmfw::PANEL - 1) / llmfw::PANEL, [=](int64_t panel) {
        llmfw::quantized->pack(static_cast<llmfw::Kind>(kind), codes, static_cast<const llmfw::bfloat16*>(scales), out,
                               groups, static_cast<uint8_t*>(panels), panel);
    });
}

// Unpacks panels to codes and scales; the inverse of `llmfw_pack_codes`.
void llmfw_unpack_codes(int64_t kind, const void* panels, int64_t out, int64_t groups, uint8_t* codes, void* scales) {
    llmfw::parallel_for((out + llmfw::PANEL - 1) / llmfw::PANEL, [=](int64_t panel) {
        llmfw::quantized->unpack(static_cast<llmfw::Kind>(kind), static_cast<const uint8_t*>(panels), out, groups, codes,
                                 static_cast<llmfw::bfloat16*>(scales), panel);
    });
}
}
