// GEMM with quantized weights: a library of its own, which implements `QuantizedProducts` of products.h.
//
// The products of a group are summed from the first input to the last, multiplied by the scale, and added to the sums
// of the earlier groups. All kernels use this order, so a row's result does not depend on the number of rows. With few
// rows, codes are converted to levels inside the micro-kernel. With many rows, the levels of a step are looked up once,
// into a buffer that stays in the L1 cache.
#include <type_traits>
#include <utility>

#include "codes.h"
#include "multiplication.h"
#include "paired_codes.h"
#include "products.h"

namespace llmfw {
namespace {

#if defined(LLMFW_PAIRED_CODES)
typedef PairedInt8 EightBits;
typedef PairedInt4 FourBits;
#else
typedef Int8 EightBits;
typedef Int4 FourBits;
#endif

typedef EightBits::Vector Vector;
typedef std::conditional_t<std::is_same_v<Vector, Words>, uint32_t, float> Word;

constexpr int64_t WORD_INPUTS = EightBits::inputs / EightBits::units;  // inputs per word
constexpr int64_t GROUP_WORDS = GROUP / WORD_INPUTS;  // words per group

// Minimum number of row blocks for which levels are looked up in advance. It is higher for pairs: their lookups run in
// parallel with the multiplications, on otherwise idle execution units.
constexpr int64_t LOOKED_UP_BLOCKS = WORD_INPUTS == 2 ? 5 : 2;

// The line format of levels that were looked up in advance: PANEL words of float32 or of bfloat16 pairs.
struct Levels {
    static constexpr int64_t units = 1, inputs = WORD_INPUTS, bytes = PANEL * 4;

    static Vector load(const uint8_t* line, int64_t, int64_t column) {
        return llmfw::load(reinterpret_cast<const Word*>(line) + column);
    }
};

// Micro-kernel: adds the products of ROWS rows with PANELS panels to the job's sums.
template <typename Codes, int ROWS, int PANELS>
void multiply_groups(const Job& job) {
    constexpr bool IS_STREAM = !std::is_same_v<Codes, Levels>;
    constexpr int VECTORS = PER_PANEL * PANELS;
    const uint8_t* codes[PANELS];
    for (int panel = 0; panel < PANELS; ++panel) codes[panel] = static_cast<const uint8_t*>(job.weights[panel]);
    auto inputs = static_cast<const Word*>(job.inputs);
    const char* ahead = job.ahead[0];
    for (int64_t left = job.words; left > 0; left -= GROUP_WORDS) {
        const uint8_t* groups[PANELS];
        const char* fetched[PANELS];
        for (int panel = 0; panel < PANELS; ++panel) {
            groups[panel] = codes[panel];
            fetched[panel] = ahead_of(codes[panel], left / GROUP_WORDS * group_bytes<Codes>(), job.ahead[panel]);
            if constexpr (IS_STREAM) prefetch_once(fetched[panel]);
            codes[panel] += SCALES, fetched[panel] += SCALES;
        }
        Floats totals[ROWS][VECTORS] = {};
        for (int64_t line = 0; line < GROUP_WORDS; line += LINE, inputs += ROWS * LINE) {
            for (int64_t word = 0; word < LINE; word += Codes::units) {
                if constexpr (!IS_STREAM) __builtin_prefetch(ahead), ahead += job.fetched;
                LLMFW_UNROLL
                for (int64_t unit = 0; unit < Codes::units; ++unit) {
                    Vector w[VECTORS];
                    LLMFW_UNROLL
                    for (int v = 0; v < VECTORS; ++v)
                        w[v] = Codes::load(codes[v / PER_PANEL], unit, v % PER_PANEL * LANES);
                    LLMFW_UNROLL
                    for (int row = 0; row < ROWS; ++row) {
                        const Vector x = broadcast(inputs[row * LINE + word + unit]);
                        LLMFW_UNROLL
                        for (int v = 0; v < VECTORS; ++v) totals[row][v] = add_product(totals[row][v], w[v], x);
                    }
                }
                LLMFW_UNROLL
                for (int panel = 0; panel < PANELS; ++panel) {
                    if constexpr (IS_STREAM) prefetch_once(fetched[panel]);
                    codes[panel] += Codes::bytes, fetched[panel] += Codes::bytes;
                }
            }
        }
        LLMFW_UNROLL
        for (int v = 0; v < VECTORS; ++v) {
            const int column = v % PER_PANEL * LANES;
            const Floats scales = load(reinterpret_cast<const bfloat16*>(groups[v / PER_PANEL]) + column);
            LLMFW_UNROLL
            for (int row = 0; row < ROWS; ++row) {
                float* to = job.sums[v / PER_PANEL] + row * PANEL + column;
                store(to, add_product(load(to), totals[row][v], scales));
            }
        }
    }
}

// Calls the micro-kernel for `rows` rows.
template <typename Codes, int PANELS, int FIRST, int... I>
void run(const Job& job, int64_t rows, std::integer_sequence<int, I...>) {
    static constexpr void (*kernels[])(const Job&) = {multiply_groups<Codes, FIRST + I, PANELS>...};
    kernels[rows - FIRST](job);
}

// Copies a group, with its codes replaced by their levels.
template <typename Codes>
void look_up(const uint8_t* group, uint8_t* to) {
    std::memcpy(to, group, SCALES);
    auto levels = reinterpret_cast<Word*>(to + SCALES);
    for (int64_t input = 0; input < GROUP; input += Codes::inputs) {
        const uint8_t* line = line_of<Codes>(group, input);
        LLMFW_UNROLL
        for (int64_t unit = 0; unit < Codes::units; ++unit, levels += PANEL)
            LLMFW_UNROLL
            for (int column = 0; column < PANEL; column += LANES) {
                const Vector found = Codes::load(line, unit, column);
                std::memcpy(levels + column, &found, sizeof found);
            }
    }
}

// The kernels for `Multiplication` (multiplication.h).
template <typename Codes>
struct Kernels {
    typedef llmfw::Word Word;
    static constexpr int64_t UNIT = GROUP_WORDS, STEP = (WORD_INPUTS == 2 ? 18 : 8) * LINE;
    typedef uint8_t Room[STEP / GROUP_WORDS * group_bytes<Levels>()];

    static int64_t words(int64_t in) { return num_groups(in) * GROUP_WORDS; }
    static int64_t bytes(int64_t words) { return words / GROUP_WORDS * group_bytes<Codes>(); }

    static void run_few(const Job& job, int64_t rows, int panels) {
        if (panels == 2)
            run<Codes, 2, 1>(job, rows, std::make_integer_sequence<int, MAX_PAIR_ROWS>());
        else
            run<Codes, 1, 1>(job, rows, std::make_integer_sequence<int, MAX_ROWS>());
    }

    static bool prepare(Job& job, int64_t blocks, Room& room) {
        if (blocks < LOOKED_UP_BLOCKS) return false;
        auto group = static_cast<const uint8_t*>(job.weights[0]);
        uint8_t* to = room;
        for (int64_t word = 0; word < job.words; word += GROUP_WORDS) {
            look_up<Codes>(group, to);
            group += group_bytes<Codes>(), to += group_bytes<Levels>();
        }
        job.weights[0] = room;
        return true;
    }

    static void run_many(const Job& job, int64_t rows, bool is_prepared) {
        if (!is_prepared) return run_few(job, rows, 1);
        run<Levels, 1, MAX_ROWS / 2>(job, rows, std::make_integer_sequence<int, MAX_ROWS - MAX_ROWS / 2 + 1>());
    }
};

template <typename Codes>
void pack(const uint8_t* codes, const bfloat16* scales, int64_t out, int64_t groups, uint8_t* panels, int64_t panel) {
    constexpr int64_t SIZE = group_bytes<Codes>();
    const int64_t columns = out - panel * PANEL < PANEL ? out - panel * PANEL : PANEL;
    for (int64_t group = 0; group < groups; ++group) {
        uint8_t* to = panels + (panel * groups + group) * SIZE;
        std::memset(to, 0, SIZE);
        for (int64_t column = 0; column < columns; ++column) {
            const int64_t from = (panel * PANEL + column) * groups + group;
            reinterpret_cast<bfloat16*>(to)[column] = scales[from];
            for (int64_t i = 0; i < GROUP; ++i)
                put_code<Codes>(to, i, column, codes[from * GROUP + i]);
        }
    }
}

template <typename Codes>
void unpack(const uint8_t* panels, int64_t out, int64_t groups, uint8_t* codes, bfloat16* scales, int64_t panel) {
    constexpr int64_t SIZE = group_bytes<Codes>();
    for (int64_t column = 0; column < PANEL && panel * PANEL + column < out; ++column)
        for (int64_t group = 0; group < groups; ++group) {
            const uint8_t* from = panels + (panel * groups + group) * SIZE;
            const int64_t to = (panel * PANEL + column) * groups + group;
            scales[to] = reinterpret_cast<const bfloat16*>(from)[column];
            for (int64_t i = 0; i < GROUP; ++i)
                codes[to * GROUP + i] = code_at<Codes>(from, i, column);
        }
}

template <typename Codes, typename T, typename Level>
void unpack_row(const Matrix& matrix, int64_t row, T* to, const Level& level) {
    const int64_t column = row % PANEL;
    const uint8_t* group = codes_at<Codes>(matrix, row / PANEL);
    for (int64_t begin = 0; begin < matrix.in; begin += GROUP, group += group_bytes<Codes>()) {
        const float scale = to_float(reinterpret_cast<const bfloat16*>(group)[column]);
        uint32_t codes[GROUP];
        for (int64_t i = 0; i < GROUP; ++i) codes[i] = code_at<Codes>(group, i, column);
        for (int64_t i = 0; i < GROUP && begin + i < matrix.in; i += LANES)
            store_part(to + begin + i, level(load(codes + i)) * broadcast(scale), matrix.in - begin - i);
    }
}

const float* sums(const Scalar* input, int64_t stride, int64_t rows, int64_t in, Kind kind, const Panels& panels) {
    const auto run = kind == INT8 ? multiplied<Kernels<EightBits>, Scalar> : multiplied<Kernels<FourBits>, Scalar>;
    return run(input, stride, rows, in, panels);
}

constexpr QuantizedProducts PRODUCTS = {
    [](const Matrix& matrix, int64_t panel) -> const void* {
        return matrix.kind == INT8 ? codes_at<EightBits>(matrix, panel) : codes_at<FourBits>(matrix, panel);
    },
    sums,
    [](const Matrix& matrix, int64_t row, Scalar* to) {
        matrix.kind == INT8 ? unpack_row<EightBits>(matrix, row, to, Int8::level)
                            : unpack_row<FourBits>(matrix, row, to, Int4::level);
    },
    [](Kind kind, const uint8_t* codes, const bfloat16* scales, int64_t out, int64_t groups, uint8_t* panels,
       int64_t panel) { (kind == INT8 ? pack<EightBits> : pack<FourBits>)(codes, scales, out, groups, panels, panel); },
    [](Kind kind, const uint8_t* panels, int64_t out, int64_t groups, uint8_t* codes, bfloat16* scales, int64_t panel) {
        (kind == INT8 ? unpack<EightBits> : unpack<FourBits>)(panels, out, groups, codes, scales, panel);
    }};

}  // namespace
}  // namespace llmfw

extern "C" const llmfw::QuantizedProducts* llmfw_quantized_products() { return &llmfw::PRODUCTS; }
