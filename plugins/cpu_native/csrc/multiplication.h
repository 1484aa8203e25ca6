// How the sums of some rows with some panels are made, step by step, whatever the panels hold.
//
// Inputs are taken in steps, laid out as kernels read them; within a step each panel meets all rows, in blocks of what one
// kernel multiplies. So weights come from memory once, and while the core multiplies some, the next ones are fetched.
//
// The kernels are a class with static members:
//   Word: of inputs: float, or two bfloat16 in a uint32_t
//   UNIT, STEP: words of a row's inputs that are never divided, whole lines; that are taken at once, of many rows, at most
//   words(in), bytes(words): of a row with `in` inputs; of a panel, for so many words of a row
//   run_few(job, rows, panels): multiplies as weights come from memory, by one panel or two side by side
//   Room: for what `prepare` makes of a panel's weights of a step
//   prepare(job, blocks, room): makes them ready for all blocks of rows, if that is worth it, and gives them to `job`
//   run_many(job, rows, is_prepared): multiplies by one panel, whose step stays in the nearest cache
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "multiply.h"

namespace llmfw {

constexpr int PER_PANEL = PANEL / LANES;
constexpr int64_t LINE = 16;         // words of 32 bits in a line of the cache
constexpr int64_t FEW = 768 * LINE;  // words of inputs that are taken at once, of a few rows
constexpr int64_t AHEAD = 6144;      // bytes that weights are fetched ahead of their use, for a few rows

// What one call of a kernel does.
struct Job {
    const void* inputs;      // Word [words / LINE][rows][LINE]
    const void* weights[2];  // of each panel
    float* sums[2];          // of each panel, [rows][PANEL]: it is added to them
    int64_t words;           // of a row's inputs
    const char* ahead[2];    // what is read after the weights, of each panel; or, if weights are in the cache already, what
                             // to fetch into it meanwhile
    int64_t fetched;         // bytes of the latter, for each word of inputs
};

// Fetches what is read once and then not for long, into the nearest cache alone. What else the core works with, the rest of the
// process among it, stays in the others.
inline void prefetch_once(const char* at) { __builtin_prefetch(at, 0, 0); }

// What is read AHEAD bytes after some weights, of which `left` bytes are left, and which `next` follows.
inline const char* ahead_of(const void* weights, int64_t left, const char* next) {
    if (left > AHEAD || !next) return static_cast<const char*>(weights) + AHEAD;
    return next + (AHEAD - left);
}

// Numbers of T that a line of words has.
template <typename Word, typename T>
constexpr int64_t NUMBERS_OF_LINE = LINE * 4 / sizeof(T);
template <typename T>
constexpr int64_t NUMBERS_OF_LINE<float, T> = LINE;

template <typename T>
inline void copy_line(const T* from, float* to) {
    LLMFW_UNROLL
    for (int64_t i = 0; i < LINE; i += LANES) store(to + i, load(from + i));
}

inline void copy_line(const bfloat16* from, uint32_t* to) { std::memcpy(to, from, LINE * 4); }

// A row's inputs as lines that stand `stride` words apart: `count` of them, of which zeros follow `left` numbers.
template <typename Word, typename T>
__attribute__((noinline)) void copy_row(const T* from, int64_t left, Word* to, int64_t stride, int64_t count) {
    constexpr int64_t SIZE = NUMBERS_OF_LINE<Word, T>;
    const int64_t whole = std::min(count, left / SIZE);
    for (int64_t line = 0; line < whole; ++line, to += stride) copy_line(from + line * SIZE, to);
    if (whole == count) return;
    T part[SIZE] = {};
    std::copy_n(from + whole * SIZE, left - whole * SIZE, part);
    copy_line(part, to);
    for (int64_t line = whole + 1; line < count; ++line) std::memset(to += stride, 0, LINE * 4);
}

template <typename Kernels>
struct Memory {
    alignas(64) typename Kernels::Word inputs[std::max(FEW, MOST_ROWS * Kernels::STEP)];
    alignas(64) typename Kernels::Room room;
    alignas(64) float sums[MAX_PANELS * MOST_ROWS * PANEL];
};

// Rows are taken in blocks of about the same size.
struct Blocks {
    int64_t rows, count;
    explicit Blocks(int64_t rows) : rows(rows), count((rows + MAX_ROWS - 1) / MAX_ROWS) {}
    int64_t first(int64_t block) const { return block * rows / count; }
    int64_t size(int64_t block) const { return first(block + 1) - first(block); }
};

template <typename Kernels, typename T>
class Multiplication {
public:
    typedef typename Kernels::Word Word;

    Multiplication(const T* input, int64_t stride, int64_t rows, int64_t in, const Panels& panels, Memory<Kernels>& memory)
        : input_(input), stride_(stride), in_(in), words_(Kernels::words(in)), panels_(panels), blocks_(rows),
          step_(blocks_.count > 1 ? even_step(words_) : FEW / rows / Kernels::UNIT * Kernels::UNIT), memory_(memory) {}

    void run() {
        std::fill_n(memory_.sums, panels_.count * blocks_.rows * PANEL, 0.0f);
        for (int64_t begin = 0; begin < words_; begin += step_) {
            const int64_t words = std::min(step_, words_ - begin);
            copy_inputs(begin, words);
            if (blocks_.count == 1)
                step_of_few(begin, words);
            else
                step_of_many(begin, words);
        }
    }

private:
    // So many that no step has much less to do than another one.
    static int64_t even_step(int64_t words) {
        const int64_t units = (words + Kernels::UNIT - 1) / Kernels::UNIT, most = Kernels::STEP / Kernels::UNIT;
        const int64_t steps = (units + most - 1) / most;
        return (units + steps - 1) / steps * Kernels::UNIT;
    }
    static int64_t num_lines(int64_t words) { return (words + LINE - 1) / LINE; }

    void copy_inputs(int64_t begin, int64_t words) {
        const int64_t first_number = begin / LINE * NUMBERS_OF_LINE<Word, T>;
        for (int64_t block = 0; block < blocks_.count; ++block) {
            const int64_t first = blocks_.first(block), rows = blocks_.size(block);
            Word* to = memory_.inputs + first * step_;
            for (int64_t row = 0; row < rows; ++row)
                copy_row(input_ + (first + row) * stride_ + first_number, in_ - first_number, to + row * LINE,
                         rows * LINE, num_lines(words));
        }
    }

    void step_of_few(int64_t begin, int64_t words) {
        for (int panel = 0; panel < panels_.count;) {
            const int many = blocks_.rows <= MAX_PAIR_ROWS && panel + 1 < panels_.count ? 2 : 1;
            Job job = {memory_.inputs, {}, {}, words, {}, 0};
            for (int i = 0; i < many; ++i) {
                job.weights[i] = weights_at(begin, panel + i);
                job.sums[i] = sums_at(panel + i, 0);
                job.ahead[i] = weights_after(begin, panel + many - 1, i);
            }
            Kernels::run_few(job, blocks_.rows, many);
            panel += many;
        }
    }

    void step_of_many(int64_t begin, int64_t words) {
        const int64_t times = blocks_.count * words;
        for (int panel = 0; panel < panels_.count; ++panel) {
            Job job = {nullptr, {weights_at(begin, panel)}, {}, words, {weights_after(begin, panel, 0)},
                       (Kernels::bytes(step_) + times - 1) / times};
            const bool is_prepared = Kernels::prepare(job, blocks_.count, memory_.room);
            for (int64_t block = 0; block < blocks_.count; ++block, job.ahead[0] += job.fetched * words) {
                job.inputs = memory_.inputs + blocks_.first(block) * step_;
                job.sums[0] = sums_at(panel, blocks_.first(block));
                Kernels::run_many(job, blocks_.size(block), is_prepared);
            }
        }
    }

    float* sums_at(int panel, int64_t row) const { return memory_.sums + (panel * blocks_.rows + row) * PANEL; }

    const char* weights_at(int64_t begin, int panel) const {
        return static_cast<const char*>(panels_.at[panel]) + Kernels::bytes(begin);
    }

    // What is read after a panel, of two panels side by side by one or the other stream.
    const char* weights_after(int64_t begin, int panel, int stream) const {
        if (const int next = panel + 1 + stream; next < panels_.count) return weights_at(begin, next);
        if (panel + 1 < panels_.count) return nullptr;
        if (begin + step_ < words_ && stream < panels_.count) return weights_at(begin + step_, stream);
        return panels_.next[stream];
    }

    const T* input_;
    const int64_t stride_, in_, words_;
    const Panels& panels_;
    const Blocks blocks_;
    const int64_t step_;  // words of a row's inputs that are taken at once
    Memory<Kernels>& memory_;
};

// Sums [panel][row][PANEL], in memory of this thread: valid until it calls again.
template <typename Kernels, typename T>
inline const float* multiplied(const T* input, int64_t stride, int64_t rows, int64_t in, const Panels& panels) {
    thread_local Memory<Kernels> memory;
    Multiplication<Kernels, T>(input, stride, rows, in, panels, memory).run();
    return memory.sums;
}

}  // namespace llmfw
