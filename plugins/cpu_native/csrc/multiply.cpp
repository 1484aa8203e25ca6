#include "multiply.h"

#include <algorithm>
#include <utility>

#include "pairs.h"

namespace llmfw {
namespace {

constexpr int PER_PANEL = PANEL / LANES;
constexpr int64_t LINE = 16;           // words of 32 bits in a line of the cache
constexpr int64_t STEP = 8 * LINE;     // words of a row's inputs that are taken at once, of many rows
constexpr int64_t FEW = 96 * STEP;     // words of inputs that are taken at once, of a few rows
constexpr int64_t AHEAD = 6144;        // bytes that weights are fetched ahead of their use, for a few rows
constexpr int64_t WIDENED_BLOCKS = 3;  // from so many blocks of rows on, weights are widened for all of them

// What is multiplied: float32; pairs of bfloat16, by one instruction; each number of such a pair with one in float32.
enum Kind { SINGLE, PAIR, HALVES };

template <Kind KIND>
constexpr int64_t WORDS = KIND == HALVES ? 2 : 1;  // of inputs, for a unit of weights

// What one call of a kernel does.
struct Job {
    const uint32_t* inputs;      // [words / LINE][rows][LINE]
    const uint32_t* weights[2];  // of each panel, [units][PANEL]
    float* sums[2];              // of each panel, [rows][PANEL]: it is added to them
    int64_t units;
    const char* ahead[2];        // what is read after the weights, of each panel; or, if weights are in the cache already,
                                 // what to fetch into it meanwhile
    int64_t lines;               // of the latter, for each line of inputs
};

template <Kind KIND>
inline auto shared(const uint32_t* word) {
    if constexpr (KIND == PAIR) {
        return broadcast(*word);
    } else {
        float number;
        std::memcpy(&number, word, sizeof number);
        return broadcast(number);
    }
}

// What is read AHEAD bytes after some weights, of which `left` bytes are left, `next` follows.
inline const char* ahead_of(const uint32_t* weights, int64_t left, const char* next) {
    if (left > AHEAD || !next) return reinterpret_cast<const char*>(weights) + AHEAD;
    return next + (AHEAD - left);
}

// IS_STREAM: weights come from memory as they are used.
template <Kind KIND, int ROWS, int PANELS, bool IS_STREAM>
void multiply(const Job& job) {
    constexpr int VECTORS = PER_PANEL * PANELS;
    constexpr int64_t UNITS = LINE / WORDS<KIND>;
    Floats sums[ROWS][VECTORS];
    const uint32_t* weights[PANELS];
    const char* ahead = job.ahead[0];
    for (int panel = 0; panel < PANELS; ++panel) weights[panel] = job.weights[panel];
    LLMFW_UNROLL
    for (int row = 0; row < ROWS; ++row)
        LLMFW_UNROLL
        for (int v = 0; v < VECTORS; ++v)
            sums[row][v] = load(job.sums[v / PER_PANEL] + row * PANEL + v % PER_PANEL * LANES);
    const uint32_t* inputs = job.inputs;
    for (int64_t left = job.units; left > 0; left -= UNITS, inputs += ROWS * LINE) {
        if constexpr (!IS_STREAM)
            for (int64_t line = 0; line < job.lines; ++line, ahead += 64) __builtin_prefetch(ahead);
        const char* fetched[PANELS];
        for (int panel = 0; IS_STREAM && panel < PANELS; ++panel)
            fetched[panel] = ahead_of(weights[panel], left * PANEL * 4, job.ahead[panel]);
        const uint32_t* const end = inputs + std::min(left, UNITS) * WORDS<KIND>;
        for (const uint32_t* x = inputs; x < end; x += WORDS<KIND>) {
            Words w[VECTORS];
            LLMFW_UNROLL
            for (int v = 0; v < VECTORS; ++v) {
                const uint32_t* from = weights[v / PER_PANEL] + v % PER_PANEL * LANES;
                w[v] = load(from);
                if (IS_STREAM && v * LANES % LINE == 0)
                    __builtin_prefetch(fetched[v / PER_PANEL] + v % PER_PANEL * LANES * 4);
            }
            if constexpr (IS_STREAM)
                LLMFW_UNROLL
                for (int panel = 0; panel < PANELS; ++panel) fetched[panel] += PANEL * 4;
            LLMFW_UNROLL
            for (int panel = 0; panel < PANELS; ++panel) weights[panel] += PANEL;
            LLMFW_UNROLL
            for (int row = 0; row < ROWS; ++row) {
                const auto one = shared<KIND>(x + row * LINE);
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
                    const auto other = shared<KIND>(x + row * LINE + 1);
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

template <Kind KIND, int PANELS, bool IS_STREAM, int FIRST, int... I>
void run(const Job& job, int64_t rows, std::integer_sequence<int, I...>) {
    static constexpr Kernel kernels[] = {multiply<KIND, FIRST + I, PANELS, IS_STREAM>...};
    kernels[rows - FIRST](job);
}

// Rows of the only block that there is.
template <Kind KIND>
void run_few(const Job& job, int64_t rows, int panels) {
    if (panels == 2)
        run<KIND, 2, true, 1>(job, rows, std::make_integer_sequence<int, MAX_PAIR_ROWS>());
    else
        run<KIND, 1, true, 1>(job, rows, std::make_integer_sequence<int, MAX_ROWS>());
}

// Rows of one of several blocks: at least half of the most.
template <Kind KIND>
void run_many(const Job& job, int64_t rows) {
    run<KIND, 1, false, MAX_ROWS / 2>(job, rows, std::make_integer_sequence<int, MAX_ROWS - MAX_ROWS / 2 + 1>());
}

// Numbers of inputs in a line.
template <Kind KIND, typename T>
constexpr int64_t NUMBERS = LINE * 4 / (KIND == HALVES ? 4 : static_cast<int64_t>(sizeof(T)));

template <Kind KIND, typename T>
inline void copy_line(const T* from, uint32_t* to) {
    if constexpr (KIND == HALVES) {
        LLMFW_UNROLL
        for (int64_t i = 0; i < LINE; i += LANES) store(reinterpret_cast<float*>(to) + i, load(from + i));
    } else {
        std::memcpy(to, from, LINE * 4);
    }
}

// A row's inputs as lines that stand `stride` words apart: `count` of them, of which zeros follow `left` numbers.
template <Kind KIND, typename T>
__attribute__((noinline)) void copy_row(const T* from, int64_t left, uint32_t* to, int64_t stride, int64_t count) {
    constexpr int64_t SIZE = NUMBERS<KIND, T>;
    const int64_t whole = std::min(count, left / SIZE);
    for (int64_t line = 0; line < whole; ++line, to += stride) copy_line<KIND>(from + line * SIZE, to);
    if (whole == count) return;
    T part[SIZE] = {};
    std::copy_n(from + whole * SIZE, left - whole * SIZE, part);
    copy_line<KIND>(part, to);
}

// Packed pairs as numbers in float32: [units][PANEL] → [2 * units][PANEL].
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

struct Memory {
    alignas(64) uint32_t inputs[MOST_ROWS * STEP];
    alignas(64) float weights[STEP * PANEL];
    alignas(64) float sums[MAX_PANELS * MOST_ROWS * PANEL];
};

// Rows are taken in blocks of about the same size.
struct Blocks {
    int64_t rows, count;
    explicit Blocks(int64_t rows) : rows(rows), count((rows + MAX_ROWS - 1) / MAX_ROWS) {}
    int64_t first(int64_t block) const { return block * rows / count; }
    int64_t size(int64_t block) const { return first(block + 1) - first(block); }
};

template <Kind KIND, typename T>
class Multiplication {
public:
    Multiplication(const T* input, int64_t stride, int64_t rows, int64_t in, const Panels& panels, Memory& memory)
        : input_(input), stride_(stride), in_(in), units_(num_units<T>(in)), panels_(panels), blocks_(rows),
          step_(blocks_.count > 1 ? STEP : FEW / rows / LINE * LINE), memory_(memory) {}

    void run() {
        std::fill_n(memory_.sums, panels_.count * blocks_.rows * PANEL, 0.0f);
        for (int64_t begin = 0; begin < units_; begin += step_units()) {
            const int64_t units = std::min(step_units(), units_ - begin);
            copy_inputs(begin * Unit<T>::size, num_lines(units));
            if (blocks_.count == 1)
                step_of_few(begin, units);
            else
                step_of_many(begin, units);
        }
    }

private:
    int64_t step_units() const { return step_ / WORDS<KIND>; }
    static int64_t num_lines(int64_t units) { return (units * WORDS<KIND> + LINE - 1) / LINE; }

    void copy_inputs(int64_t begin, int64_t lines) {
        for (int64_t block = 0; block < blocks_.count; ++block) {
            const int64_t first = blocks_.first(block), rows = blocks_.size(block);
            uint32_t* to = memory_.inputs + first * step_;
            for (int64_t row = 0; row < rows; ++row)
                copy_row<KIND>(input_ + (first + row) * stride_ + begin, in_ - begin, to + row * LINE, rows * LINE,
                               lines);
        }
    }

    void step_of_few(int64_t begin, int64_t units) {
        for (int panel = 0; panel < panels_.count;) {
            const int many = blocks_.rows <= MAX_PAIR_ROWS && panel + 1 < panels_.count ? 2 : 1;
            Job job = {memory_.inputs, {}, {}, units, {}, 0};
            for (int i = 0; i < many; ++i) {
                job.weights[i] = weights_at(begin, panel + i);
                job.sums[i] = sums_at(panel + i, 0);
                job.ahead[i] = weights_after(begin, panel + many - 1, i);
            }
            run_few<KIND>(job, blocks_.rows, many);
            panel += many;
        }
    }

    void step_of_many(int64_t begin, int64_t units) {
        const int64_t lines = num_lines(units), calls = blocks_.count * lines;
        for (int panel = 0; panel < panels_.count; ++panel) {
            Job job = {nullptr, {weights_at(begin, panel)}, {}, units, {weights_after(begin, panel, 0)},
                       (step_units() * PANEL / LINE + calls - 1) / calls};
            const bool is_widened = KIND == HALVES && blocks_.count >= WIDENED_BLOCKS;
            if (is_widened) {
                widen(job.weights[0], units, memory_.weights);
                job.weights[0] = reinterpret_cast<const uint32_t*>(memory_.weights);
                job.units = 2 * units;
            }
            for (int64_t block = 0; block < blocks_.count; ++block, job.ahead[0] += 64 * job.lines * lines) {
                job.inputs = memory_.inputs + blocks_.first(block) * step_;
                job.sums[0] = sums_at(panel, blocks_.first(block));
                if (is_widened)
                    run_many<SINGLE>(job, blocks_.size(block));
                else
                    run_many<KIND>(job, blocks_.size(block));
            }
        }
    }

    float* sums_at(int panel, int64_t row) const { return memory_.sums + (panel * blocks_.rows + row) * PANEL; }

    const uint32_t* weights_at(int64_t begin, int panel) const {
        return static_cast<const uint32_t*>(panels_.at[panel]) + begin * PANEL;
    }

    // What is read after a panel, of two panels side by side by one or the other stream.
    const char* weights_after(int64_t begin, int panel, int stream) const {
        if (const int next = panel + 1 + stream; next < panels_.count)
            return reinterpret_cast<const char*>(weights_at(begin, next));
        if (panel + 1 < panels_.count) return nullptr;
        if (begin + step_units() < units_ && stream < panels_.count)
            return reinterpret_cast<const char*>(weights_at(begin + step_units(), stream));
        return panels_.next[stream];
    }

    const T* input_;
    const int64_t stride_, in_, units_;
    const Panels& panels_;
    const Blocks blocks_;
    const int64_t step_;  // words of a row's inputs that are taken at once
    Memory& memory_;
};

}  // namespace

// How pairs are multiplied depends on the CPU alone: a row gives the same among any number of rows.
const float* sums_of(const Scalar* input, int64_t stride, int64_t rows, int64_t in, const Panels& panels) {
#if LLMFW_DTYPE == 0
    constexpr Kind KIND = SINGLE;
#elif LLMFW_PAIRS == 2
    constexpr Kind KIND = PAIR;
#else
    constexpr Kind KIND = HALVES;
#endif
    thread_local Memory memory;
    Multiplication<KIND, Scalar>(input, stride, rows, in, panels, memory).run();
    return memory.sums;
}

}  // namespace llmfw
