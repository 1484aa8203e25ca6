// Micro-kernels for weights that are not quantized: float32, or bfloat16 in pairs.
#include "multiply.h"

#include <type_traits>
#include <utility>

#include "multiplication.h"
#include "pairs.h"

namespace llmfw {
namespace {

constexpr int64_t WIDENED_BLOCKS = 3;  // row blocks from which weights are converted to float32 in advance

// SINGLE: float32.
// PAIR: pairs of bfloat16, with one instruction.
// HALVES: pairs of bfloat16, each number of which is multiplied as float32.
enum Kind { SINGLE, PAIR, HALVES };

template <Kind KIND>
constexpr int64_t WORDS = KIND == HALVES ? 2 : 1;  // words of input per unit of weights

template <Kind KIND>
using Input = std::conditional_t<KIND == PAIR, uint32_t, float>;

// Micro-kernel: adds the products of ROWS rows with PANELS panels to the job's sums, which stay in registers.
// IS_STREAM: weights come from memory, and are prefetched AHEAD bytes before their use. Otherwise they are in the cache
// already, and the kernel prefetches `job.ahead[0]` meanwhile.
template <Kind KIND, int ROWS, int PANELS, bool IS_STREAM>
void multiply(const Job& job) {
    constexpr int VECTORS = PER_PANEL * PANELS;
    Floats sums[ROWS][VECTORS];
    const uint32_t* weights[PANELS];
    const char* ahead = job.ahead[0];
    for (int panel = 0; panel < PANELS; ++panel) weights[panel] = static_cast<const uint32_t*>(job.weights[panel]);
    LLMFW_UNROLL
    for (int row = 0; row < ROWS; ++row)
        LLMFW_UNROLL
        for (int v = 0; v < VECTORS; ++v)
            sums[row][v] = load(job.sums[v / PER_PANEL] + row * PANEL + v % PER_PANEL * LANES);
    auto inputs = static_cast<const Input<KIND>*>(job.inputs);
    for (int64_t left = job.words; left > 0; left -= LINE, inputs += ROWS * LINE) {
        const char* fetched[PANELS];
        for (int panel = 0; IS_STREAM && panel < PANELS; ++panel)
            fetched[panel] = ahead_of(weights[panel], left / WORDS<KIND> * PANEL * 4, job.ahead[panel]);
        const auto end = inputs + std::min(left, LINE);
        for (auto x = inputs; x < end; x += WORDS<KIND>) {
            if constexpr (!IS_STREAM) __builtin_prefetch(ahead), ahead += job.fetched * WORDS<KIND>;
            Words w[VECTORS];
            LLMFW_UNROLL
            for (int v = 0; v < VECTORS; ++v) {
                const uint32_t* from = weights[v / PER_PANEL] + v % PER_PANEL * LANES;
                w[v] = load(from);
                if (IS_STREAM && v * LANES % LINE == 0)
                    prefetch_once(fetched[v / PER_PANEL] + v % PER_PANEL * LANES * 4);
            }
            if constexpr (IS_STREAM)
                LLMFW_UNROLL
                for (int panel = 0; panel < PANELS; ++panel) fetched[panel] += PANEL * 4;
            LLMFW_UNROLL
            for (int panel = 0; panel < PANELS; ++panel) weights[panel] += PANEL;
            LLMFW_UNROLL
            for (int row = 0; row < ROWS; ++row) {
                const auto one = broadcast(x[row * LINE]);
                LLMFW_UNROLL
                for (int v = 0; v < VECTORS; ++v) {
                    if constexpr (KIND == PAIR) sums[row][v] = add_product(sums[row][v], w[v], one);
                    if constexpr (KIND == SINGLE) sums[row][v] = add_product(sums[row][v], (Floats)w[v], one);
                    if constexpr (KIND == HALVES) sums[row][v] = add_product(sums[row][v], (Floats)(w[v] << 16), one);
                }
            }
            if constexpr (KIND == HALVES) {
                LLMFW_UNROLL
                for (int row = 0; row < ROWS; ++row) {
                    const auto other = broadcast(x[row * LINE + 1]);
                    LLMFW_UNROLL
                    for (int v = 0; v < VECTORS; ++v)
                        sums[row][v] = add_product(sums[row][v], (Floats)(w[v] & 0xffff0000u), other);
                }
            }
        }
    }
    LLMFW_UNROLL
    for (int row = 0; row < ROWS; ++row)
        LLMFW_UNROLL
        for (int v = 0; v < VECTORS; ++v)
            store(job.sums[v / PER_PANEL] + row * PANEL + v % PER_PANEL * LANES, sums[row][v]);
}

typedef void (*Kernel)(const Job&);

// Calls the micro-kernel for `rows` rows.
template <Kind KIND, int PANELS, bool IS_STREAM, int FIRST, int... I>
void run(const Job& job, int64_t rows, std::integer_sequence<int, I...>) {
    static constexpr Kernel kernels[] = {multiply<KIND, FIRST + I, PANELS, IS_STREAM>...};
    kernels[rows - FIRST](job);
}

// Multiplies one of several row blocks by one panel. `Blocks` makes blocks of about the same size: each has at least
// MAX_ROWS / 2 rows, so smaller micro-kernels are not compiled.
template <Kind KIND>
void run_block(const Job& job, int64_t rows) {
    run<KIND, 1, false, MAX_ROWS / 2>(job, rows, std::make_integer_sequence<int, MAX_ROWS - MAX_ROWS / 2 + 1>());
}

// Converts packed pairs to float32: [units][PANEL] → [2 * units][PANEL].
void widen(const uint32_t* from, int64_t units, float* to) {
    for (int64_t unit = 0; unit < units; ++unit, from += PANEL, to += 2 * PANEL) {
        LLMFW_UNROLL
        for (int v = 0; v < PER_PANEL; ++v) {
            const Words w = load(from + v * LANES);
            store(to + v * LANES, (Floats)(w << 16));
            store(to + PANEL + v * LANES, (Floats)(w & 0xffff0000u));
        }
    }
}

// The kernels for `Multiplication` (multiplication.h).
template <Kind KIND, typename T>
struct Kernels {
    typedef Input<KIND> Word;
    static constexpr int64_t UNIT = LINE, STEP = (KIND == PAIR ? 18 : 8) * LINE;
    typedef float Room[STEP * PANEL];

    static int64_t words(int64_t in) { return num_units<T>(in) * WORDS<KIND>; }
    static int64_t bytes(int64_t words) { return words / WORDS<KIND> * PANEL * 4; }

    static void run_few(const Job& job, int64_t rows, int panels) {
        if (panels == 2)
            run<KIND, 2, true, 1>(job, rows, std::make_integer_sequence<int, MAX_PAIR_ROWS>());
        else
            run<KIND, 1, true, 1>(job, rows, std::make_integer_sequence<int, MAX_ROWS>());
    }

    static bool prepare(Job& job, int64_t blocks, Room& room) {
        if constexpr (KIND == HALVES) {
            if (blocks < WIDENED_BLOCKS) return false;
            widen(static_cast<const uint32_t*>(job.weights[0]), job.words / WORDS<KIND>, room);
            job.weights[0] = room;
            return true;
        }
        return false;
    }

    static void run_many(const Job& job, int64_t rows, bool is_prepared) {
        if constexpr (KIND == HALVES)
            if (is_prepared) return run_block<SINGLE>(job, rows);
        run_block<KIND>(job, rows);
    }
};

}  // namespace

// The kind depends only on the target CPU, so a row's result does not depend on the number of rows.
const float* sums_of(const Scalar* input, int64_t stride, int64_t rows, int64_t in, const Panels& panels) {
#if LLMFW_DTYPE == 0
    constexpr Kind KIND = SINGLE;
#elif LLMFW_PAIRS == 2
    constexpr Kind KIND = PAIR;
#else
    constexpr Kind KIND = HALVES;
#endif
    return multiplied<Kernels<KIND, Scalar>>(input, stride, rows, in, panels);
}

}  // namespace llmfw
