// The loops around the micro-kernels: multiply rows by panels, whatever the format of the panels.
//
// Inputs are processed in steps along `in`, each copied into the layout that the kernels read. Within a step, each
// panel is multiplied by all rows, one row block per kernel call. So weights are read from memory only once, and while
// the core multiplies by some of them, it prefetches the next.
//
// A class `Kernels` has the static members:
//   Word: a word of input: float, or two bfloat16 in a uint32_t
//   UNIT: words of a row's input that a step never divides; a multiple of LINE
//   STEP: maximum words of a row's input per step, if there are several row blocks
//   words(in): words of a row with `in` inputs
//   bytes(words): bytes of a panel for that many words of a row
//   run_few(job, rows, panels): multiplies one row block by one or two panels while their weights come from memory
//   Room: memory for the prepared weights of one panel and step
//   prepare(job, blocks, room): converts a panel's weights of a step once for all row blocks, if that pays off; if
//       so, points the job to them and returns true
//   run_many(job, rows, is_prepared): multiplies one row block by one panel, whose weights of the step stay in the
//       L1 cache
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "multiply.h"

namespace llmfw {

constexpr int PER_PANEL = PANEL / LANES;
constexpr int64_t LINE = 16;         // 32-bit words per cache line
constexpr int64_t FEW = 768 * LINE;  // words of all rows' inputs per step, if there is one row block
constexpr int64_t AHEAD = 6144;      // prefetch distance in bytes, for weights that come from memory

// Arguments of a micro-kernel.
struct Job {
    const void* inputs;      // Word [words / LINE][rows][LINE]
    const void* weights[2];  // for each panel
    float* sums[2];          // for each panel, [rows][PANEL]; the kernel adds to them
    int64_t words;           // of one row's input
    const char* ahead[2];    // for each panel: what is read after its weights, or null; if weights are in the cache
                             // already, ahead[0] is what to prefetch meanwhile
    int64_t fetched;         // bytes to prefetch per word of input, if weights are in the cache
};

// Prefetches into the L1 cache only, for data that is read once. So the outer caches keep the other data of the
// process.
inline void prefetch_once(const char* at) { __builtin_prefetch(at, 0, 0); }

// Returns what is read AHEAD bytes after `weights`: these have `left` bytes, and `next` is read after them.
inline const char* ahead_of(const void* weights, int64_t left, const char* next) {
    if (left > AHEAD || !next) return static_cast<const char*>(weights) + AHEAD;
    return next + (AHEAD - left);
}

// Numbers of type T per line of words.
template <typename Word, typename T>
constexpr int64_t NUMBERS_OF_LINE = LINE * 4 / sizeof(T);
template <typename T>
constexpr int64_t NUMBERS_OF_LINE<float, T> = LINE;

// Copies one line of input, converted to Word.
template <typename T>
inline void copy_line(const T* from, float* to) {
    LLMFW_UNROLL
    for (int64_t i = 0; i < LINE; i += LANES) store(to + i, load(from + i));
}

inline void copy_line(const bfloat16* from, uint32_t* to) { std::memcpy(to, from, LINE * 4); }

// Copies a row's input to `count` lines, `stride` words apart. `from` has `left` numbers; the rest is filled with
// zeros.
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

// Buffers of one thread.
template <typename Kernels>
struct Memory {
    alignas(64) typename Kernels::Word inputs[std::max(FEW, MOST_ROWS * Kernels::STEP)];
    alignas(64) typename Kernels::Room room;
    alignas(64) float sums[MAX_PANELS * MOST_ROWS * PANEL];
};

// Divides rows into the fewest blocks of at most MAX_ROWS, of about the same size.
struct Blocks {
    int64_t rows, count;
    explicit Blocks(int64_t rows) : rows(rows), count((rows + MAX_ROWS - 1) / MAX_ROWS) {}
    int64_t first(int64_t block) const { return block * rows / count; }
    int64_t size(int64_t block) const { return first(block + 1) - first(block); }
};

// Computes the sums of one call of `sums_of`.
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
    // Returns the words of input per step that make steps about equally large.
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

    // Returns what a stream reads after a panel; null if nothing. If two panels are read side by side, `panel` is the
    // second one, and each panel has a stream.
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
    const int64_t step_;  // words of a row's input per step
    Memory<Kernels>& memory_;
};

// Multiplies rows by panels. Returns sums [panel][row][PANEL] in memory of the calling thread, valid until its next
// call.
template <typename Kernels, typename T>
inline const float* multiplied(const T* input, int64_t stride, int64_t rows, int64_t in, const Panels& panels) {
    thread_local Memory<Kernels> memory;
    Multiplication<Kernels, T>(input, stride, rows, in, panels, memory).run();
    return memory.sums;
}

}  // namespace llmfw
