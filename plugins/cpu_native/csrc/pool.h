// Threads that work through a program of phases.
//
// A phase is a number of chunks. Each thread has a share of them, which it takes one by one from the first on; whose
// share is empty takes the last ones of others. Who finishes the last chunk of a phase opens the next one, or does it
// himself if that has a single chunk. So a thread that the system pushed off its core holds up nobody, unless it has a
// chunk in its hands. A thread that waits spins for a few tens of microseconds and then sleeps, within a program as after
// it.
//
// Since a thread knows its share it knows what it will read next, if the phase tells: while it waits it brings that near.
//
// The thread that calls `run` is one of the threads. A program of little work it does alone: to wake others, and to hand
// over to them from phase to phase what each of them has in its cache, costs more than they bring. A phase of one chunk
// is done by whoever finished the one before it.
//
// Nothing here knows what is computed.
#pragma once

#include <cstdint>
#include <vector>

namespace llmfw {

// Two stretches of memory that are read side by side, so many bytes of each; null for one that there is not. Nothing
// comes of a wrong one but the time it takes.
struct Reads {
    const char* at[2];
    int64_t bytes;
};

// `body(context, index, chunk, next)` is called once for each chunk from 0 on, in any order, by any thread. `next`: what
// the thread will most likely read after it. `reads(context, index, chunk)`: with what a chunk begins; or null.
struct Phase {
    typedef void Body(const void* context, int64_t index, int64_t chunk, const Reads& next);
    typedef Reads First(const void* context, int64_t index, int64_t chunk);
    Body* body;
    First* reads;
    const void* context;
    int64_t index;   // whatever tells this phase from others of the same body: a layer's number
    int64_t chunks;  // at most MOST_CHUNKS
};

constexpr int64_t MOST_CHUNKS = (1 << 19) - 1;
constexpr int MOST_THREADS = 1024;

// Work is counted in products of two numbers. To read a weight, or a key, takes as long as to multiply it by so many.
constexpr int64_t READING = 8;

// From so much work on others take part: half a millisecond of one core of an Emerald Rapids.
constexpr int64_t SHARED_WORK = 70'000'000;

// A list of phases. What the contexts point to has to live until `run` returns.
class Program {
public:
    // `work`: of all chunks together, 0 if it is next to nothing.
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

// Work through a program; returns when all of it is done. Calls from several threads take turns.
void run(const Program& program);

// How many threads work, the caller among them.
int num_threads();

// One phase: body(chunk) for each chunk, with all threads, however many there are. For kernels that are a call of their
// own.
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
// Let so many threads work. Threads that are not needed any more sleep.
void llmfw_set_threads(int32_t count);
int32_t llmfw_num_threads();
}
