#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdlib>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace llmfw {
namespace {

constexpr int64_t SPIN_NS = 40'000;
constexpr int CHUNK_BITS = 19;
static_assert(MOST_CHUNKS < int64_t(1) << CHUNK_BITS);

void pause() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Like std::lock_guard. <mutex> takes longer to compile than this whole file.
class Lock {
public:
    explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
    ~Lock() { pthread_mutex_unlock(&mutex_); }
    Lock(const Lock&) = delete;

private:
    pthread_mutex_t& mutex_;
};

// The part of a thread's share of a phase that is not claimed yet, in one atomic word: the phase's number (its lowest
// 26 bits), the first chunk, and the end. Because the number is in the word, a claim succeeds only for the phase it is
// meant for.
class Share {
public:
    void set(uint64_t number, int64_t first, int64_t end) {
        word_.store(number << 2 * CHUNK_BITS | static_cast<uint64_t>(first) << CHUNK_BITS | static_cast<uint64_t>(end),
                    std::memory_order_release);
    }

    // Claims the first remaining chunk; returns it, or -1 if none of that phase is left. Sets `end` to the end of the
    // share.
    int64_t take_first(uint64_t number, int64_t& end) {
        uint64_t word = word_.load(std::memory_order_acquire);
        while (has(word, number))
            if (word_.compare_exchange_weak(word, word + (1 << CHUNK_BITS), std::memory_order_acq_rel)) {
                end = end_of(word);
                return first_of(word);
            }
        return -1;
    }

    // Claims the last remaining chunk; returns it, or -1 if none of that phase is left.
    int64_t take_last(uint64_t number) {
        uint64_t word = word_.load(std::memory_order_acquire);
        while (has(word, number))
            if (word_.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel)) return end_of(word) - 1;
        return -1;
    }

private:
    static constexpr uint64_t MASK = (uint64_t(1) << CHUNK_BITS) - 1;
    static int64_t first_of(uint64_t word) { return static_cast<int64_t>(word >> CHUNK_BITS & MASK); }
    static int64_t end_of(uint64_t word) { return static_cast<int64_t>(word & MASK); }
    static bool has(uint64_t word, uint64_t number) {
        return word >> 2 * CHUNK_BITS == (number & (~uint64_t(0) >> 2 * CHUNK_BITS)) && first_of(word) < end_of(word);
    }

    alignas(64) std::atomic<uint64_t> word_{0};
};

// A thread's index, and what it will read next; `fetched` bytes of each region are prefetched already.
struct Hand {
    int index;
    Reads next{};
    int64_t fetched = 0;

    void expect(const Reads& reads) {
        next = reads;
        fetched = 0;
    }

    // Prefetches some bytes; returns false if nothing is left to prefetch.
    bool fetch() {
        constexpr int64_t ENOUGH = 128 << 10, EACH = 256;  // bytes per region; two are half of a small L2
        if (fetched >= next.bytes || fetched >= ENOUGH) return false;
        for (const char* at : next.at)
            for (int64_t i = 0; at && i < EACH; i += 64) __builtin_prefetch(at + fetched + i, 0, 2);
        fetched += EACH;
        return true;
    }
};

// `state_` holds the number of the open phase, counted over all programs, and whether the program is over. A phase
// cannot end while a thread holds one of its chunks. So a thread reads `phase_` and what it points to only after it has
// claimed a chunk, and a late thread never reads a phase that is gone.
class Pool {
public:
    explicit Pool(int count) : wanted_(count) {}

    void resize(int count) {
        Lock lock(running_);  // waits for a running program, whose threads must not change
        wanted_.store(count < MOST_THREADS ? count : MOST_THREADS);
    }

    int size() const { return wanted_.load(std::memory_order_relaxed); }

    void run(const Program& program) {
        const std::vector<Phase>& phases = program.phases();
        Lock lock(running_);
        phase_ = phases.data();
        end_ = phase_ + phases.size();
        if (size() == 1 || !program.is_shared()) return run_alone();
        for (; started_ < size(); ++started_) start(started_);
        Hand hand{0};
        go_on(hand);
        while (true) {
            const uint64_t state = state_.load(std::memory_order_acquire);
            if (state & IS_OVER) return;
            if (!work_on(state, hand)) wait(state, hand, &is_caller_asleep_);
        }
    }

private:
    static constexpr uint64_t IS_OVER = 1;

    static uint64_t number_of(uint64_t state) { return state >> 1; }

    // Runs the program on the calling thread.
    void run_alone() {
        for (; phase_ != end_; ++phase_)
            for (int64_t chunk = 0; chunk < phase_->chunks; ++chunk)
                phase_->body(phase_->context, phase_->index, chunk, after(chunk, phase_->chunks, 0, 1));
    }

    void start(int index) {
        // Block all signals in the thread: they are for the host program's threads.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_attr_t detached;
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        pthread_t thread;
        const int failed = pthread_create(&thread, &detached, work, new Start{this, index});
        pthread_attr_destroy(&detached);
        if (failed) std::abort();
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    struct Start {
        Pool* pool;
        int index;
    };

    static void* work(void* given) {
        const Start start = *static_cast<Start*>(given);
        delete static_cast<Start*>(given);
        start.pool->work(start.index);
    }

    [[noreturn]] void work(int index) {
        Hand hand{index};
        while (true) {
            const uint64_t state = state_.load(std::memory_order_acquire);
            if (index >= size() || state & IS_OVER || !work_on(state, hand)) wait(state, hand);
        }
    }

    // Runs one chunk; returns false if none of that phase is left.
    bool work_on(uint64_t state, Hand& hand) {
        int64_t end = 0, chunk = shares_[hand.index].take_first(number_of(state), end);
        const int threads = size();
        for (int i = 1; chunk < 0 && i < threads; ++i)
            chunk = shares_[(hand.index + i) % threads].take_last(number_of(state));
        if (chunk < 0) return false;
        const Phase& phase = *phase_;
        const int64_t chunks = phase.chunks;
        hand.expect(after(chunk, end, hand.index, threads));
        phase.body(phase.context, phase.index, chunk, hand.next);
        if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) {
            done_.store(0, std::memory_order_relaxed);
            ++phase_;
            go_on(hand);
        }
        return true;
    }

    // Returns what a thread will read after `chunk` of the open phase, if its share ends at `end`: its next chunk, or
    // its first chunk of a later phase.
    Reads after(int64_t chunk, int64_t end, int index, int threads) const {
        if (chunk + 1 < end) return phase_->reads ? phase_->reads(phase_->context, phase_->index, chunk + 1) : Reads{};
        for (const Phase* later = phase_ + 1; later < end_; ++later) {
            const int64_t first = first_of(index, later->chunks, threads);
            if (later->reads && first < first_of(index + 1, later->chunks, threads))
                return later->reads(later->context, later->index, first);
        }
        return {};
    }

    static int64_t first_of(int index, int64_t chunks, int threads) { return chunks * index / threads; }

    // Runs phases of a single chunk, then opens the next phase with several, or ends the program.
    void go_on(Hand& hand) {
        for (; phase_ != end_; ++phase_) {
            if (phase_->chunks > 1) return open(phase_->chunks);
            phase_->body(phase_->context, phase_->index, 0, hand.next);
        }
        show(++number_ << 1 | IS_OVER);
        if (is_caller_asleep_.load()) wake();
    }

    void open(int64_t chunks) {
        if (chunks > MOST_CHUNKS) std::abort();
        const uint64_t number = ++number_;
        const int threads = size();
        for (int i = 0; i < threads; ++i)
            shares_[i].set(number, first_of(i, chunks, threads), first_of(i + 1, chunks, threads));
        show(number << 1);
        if (num_asleep_.load()) wake();
    }

    // Publishes a state. From then on, other threads may proceed, up to the next program: the caller must not touch the
    // fields of the thread that opens phases any more.
    void show(uint64_t state) { state_.store(state); }

    void wake() {
        wake_.fetch_add(1);
        wake_.notify_all();
    }

    // Returns when the state is not `seen`, or spuriously before. Prefetches, then spins, then sleeps.
    void wait(uint64_t seen, Hand& hand, std::atomic<bool>* is_asleep = nullptr) {
        while (hand.fetch())
            if (state_.load(std::memory_order_relaxed) != seen) return;
        const int64_t end = now_ns() + SPIN_NS;
        do {
            for (int i = 0; i < 16; ++i) {
                if (state_.load(std::memory_order_relaxed) != seen) return;
                pause();
            }
        } while (now_ns() < end);
        // The thread that opens a phase writes the state, then reads `num_asleep_`; this one does it the other way
        // round. So either that thread sees that this one sleeps, or this one sees the new state.
        num_asleep_.fetch_add(1);
        if (is_asleep) is_asleep->store(true);
        const uint32_t before = wake_.load();
        if (state_.load() == seen) wake_.wait(before);
        if (is_asleep) is_asleep->store(false);
        num_asleep_.fetch_sub(1);
    }

    // Each cache line holds fields that change equally often.
    alignas(64) std::atomic<uint64_t> state_{IS_OVER};
    alignas(64) std::atomic<int64_t> done_{0};
    alignas(64) std::atomic<uint32_t> wake_{0};
    std::atomic<int> num_asleep_{0};
    alignas(64) std::atomic<bool> is_caller_asleep_{false};
    std::atomic<int> wanted_;
    // Owned by the thread that opens the next phase:
    const Phase* phase_ = nullptr;
    const Phase* end_ = nullptr;
    uint64_t number_ = 0;
    // Owned by the thread that calls `run`:
    alignas(64) pthread_mutex_t running_ = PTHREAD_MUTEX_INITIALIZER;
    int started_ = 1;
    Share shares_[MOST_THREADS];
};

// Never destroyed: its threads sleep until the process ends. A forked process has no such threads, and its copy of the
// lock may be held, so it gets a new pool.
std::atomic<Pool*> current{nullptr};

void forget() { current.store(new Pool(current.load()->size())); }

Pool& pool() {
    static const bool made = [] {
        current.store(new Pool(1));
        return pthread_atfork(nullptr, nullptr, forget) == 0;
    }();
    static_cast<void>(made);
    return *current.load();
}

}  // namespace

void run(const Program& program) { pool().run(program); }

int num_threads() { return pool().size(); }

}  // namespace llmfw

extern "C" {
void llmfw_set_threads(int32_t count) { llmfw::pool().resize(count < 1 ? 1 : count); }
int32_t llmfw_num_threads() { return llmfw::num_threads(); }
}
