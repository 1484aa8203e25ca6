// A thread pool that runs programs of phases.
//
// A phase consists of chunks. Each thread has a share of them and takes its chunks in order; a thread whose share is
// empty steals the last chunks of the others. The thread that finishes a phase's last chunk opens the next phase, or
// runs it itself if that has a single chunk. So a thread that the operating system has preempted delays the others only
// while it holds a chunk. A waiting thread spins for 40 µs and then sleeps, both within a program and after it.
//
// Because a thread knows its share, it knows what it will read next, if the phase says so. It prefetches that while it
// waits.
//
// The thread that calls `run` is one of the threads. It runs a program of little work alone: waking other threads, and
// moving data between their caches from phase to phase, would cost more than they save.
//
// The pool does not depend on what is computed.
#pragma once

#include <cstdint>
#include <vector>

namespace llmfw {

// Two memory regions of `bytes` bytes each that are read side by side; null: no region. Only used for prefetching: a
// wrong region costs time, not correctness.
struct Reads {
    const char* at[2];
    int64_t bytes;
};

// `body(context, index, chunk, next)` is called once for each chunk, 0 to chunks - 1, in any order and by any thread.
// `next`: what the thread will most likely read afterwards. `reads(context, index, chunk)` returns what a chunk reads
// first; null: unknown.
struct Phase {
    typedef void Body(const void* context, int64_t index, int64_t chunk, const Reads& next);
    typedef Reads First(const void* context, int64_t index, int64_t chunk);
    Body* body;
    First* reads;
    const void* context;
    int64_t index;   // distinguishes phases with the same body: for example the number of the layer
    int64_t chunks;  // at most MOST_CHUNKS
};

constexpr int64_t MOST_CHUNKS = (1 << 19) - 1;
constexpr int MOST_THREADS = 1024;

// The unit of work is one multiply-add. Reading a weight or a key from memory costs as much as READING of them.
constexpr int64_t READING = 8;

// Minimum work of a program that threads share: half a millisecond of one core of an Emerald Rapids.
constexpr int64_t SHARED_WORK = 70'000'000;

// A list of phases. Contexts are not copied: they must live until `run` returns.
class Program {
public:
    // `work`: of all chunks together; 0 if negligible. A phase without chunks is ignored. A single chunk does not count
    // as work that threads could share.
    void add(Phase::Body* body, const void* context, int64_t index, int64_t chunks, int64_t work,
             Phase::First* reads = nullptr) {
        if (chunks <= 0) return;
        phases_.push_back({body, reads, context, index, chunks});
        if (chunks > 1) work_ += work;
    }
    const std::vector<Phase>& phases() const { return phases_; }
    bool is_shared() const { return work_ >= SHARED_WORK; }

private:
    std::vector<Phase> phases_;
    int64_t work_ = 0;
};

// Runs a program; returns when all phases are done. Calls from several threads run one after the other.
void run(const Program& program);

// Returns the number of threads, including the caller.
int num_threads();

// Calls body(chunk) for any number of chunks, on all threads, as a program of one phase. For kernels that are a call of
// their own.
template <typename Body>
void parallel_for(int64_t chunks, const Body& body) {
    const int64_t each = chunks / MOST_CHUNKS + 1;
    const auto some = [&](int64_t first) {
        for (int64_t chunk = first * each; chunk < chunks && chunk < (first + 1) * each; ++chunk) body(chunk);
    };
    typedef decltype(some) Some;
    Program program;
    program.add(
        [](const void* context, int64_t, int64_t first, const Reads&) { (*static_cast<const Some*>(context))(first); },
        &some, 0, (chunks + each - 1) / each, SHARED_WORK);
    run(program);
}

}  // namespace llmfw

extern "C" {
// Sets the number of threads, at least 1 and at most MOST_THREADS. Surplus threads sleep.
void llmfw_set_threads(int32_t count);
int32_t llmfw_num_threads();
}
