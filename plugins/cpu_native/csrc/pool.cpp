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
constexpr int CHUNK_BITS = 24;
constexpr uint64_t CHUNK_MASK = (uint64_t(1) << CHUNK_BITS) - 1;

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

// As in <mutex>, which takes longer to compile than all of this.
class Lock {
public:
    explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
    ~Lock() { pthread_mutex_unlock(&mutex_); }
    Lock(const Lock&) = delete;

private:
    pthread_mutex_t& mutex_;
};

// The phase that is open is named by `ticket_`: its number (of all phases ever), and how many chunks are unclaimed. A
// thread that claims one knows that the phase cannot end before it has finished that chunk; so only then does it read
// `phase_`, and no thread that comes late ever reads what is gone.
class Pool {
public:
    explicit Pool(int count) : wanted_(count) {}

    void resize(int count) {
        Lock lock(running_);  // a thread that has begun a program stays with it
        wanted_.store(count);
    }

    int size() const { return wanted_.load(std::memory_order_relaxed); }

    void run(const Program& program) {
        const std::vector<Phase>& phases = program.phases();
        Lock lock(running_);
        if (size() == 1 || !program.is_shared()) return run_alone(phases);
        for (; started_ < size(); ++started_) start(started_);
        phase_ = phases.data();
        end_ = phase_ + phases.size();
        is_busy_.store(true, std::memory_order_relaxed);
        go_on();
        while (true) {
            uint64_t ticket = ticket_.load(std::memory_order_acquire);
            if (ticket & CHUNK_MASK) {
                claim(ticket);
            } else if (!is_busy_.load(std::memory_order_acquire)) {
                return;
            } else {
                wait(ticket, &is_caller_asleep_);
            }
        }
    }

private:
    static void run_alone(const std::vector<Phase>& phases) {
        for (const Phase& phase : phases)
            for (int64_t chunk = 0; chunk < phase.chunks; ++chunk) phase.body(phase.context, phase.index, chunk);
    }

    void start(int index) {
        // Signals are for the threads of whoever loaded us.
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
        while (true) {
            uint64_t ticket = ticket_.load(std::memory_order_acquire);
            if (!(ticket & CHUNK_MASK) || index >= size()) {
                wait(ticket);
            } else {
                claim(ticket);
            }
        }
    }

    void claim(uint64_t ticket) {
        if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel)) return;
        const Phase& phase = *phase_;
        const int64_t chunks = phase.chunks;
        phase.body(phase.context, phase.index, chunks - static_cast<int64_t>(ticket & CHUNK_MASK));
        if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) finish();
    }

    void finish() {
        done_.store(0, std::memory_order_relaxed);
        ++phase_;
        go_on();
    }

    // Do what has one chunk, then open what has more, or end the program.
    void go_on() {
        for (; phase_ != end_; ++phase_) {
            if (phase_->chunks > 1) return open(phase_->chunks);
            phase_->body(phase_->context, phase_->index, 0);
        }
        is_busy_.store(false, std::memory_order_release);
        open(0);
    }

    void open(int64_t chunks) {
        ticket_.store(++number_ << CHUNK_BITS | static_cast<uint64_t>(chunks));
        if (chunks ? num_asleep_.load() == 0 : !is_caller_asleep_.load()) return;
        wake_.fetch_add(1);
        wake_.notify_all();
    }

    // Return when the ticket is another one, perhaps sooner.
    void wait(uint64_t seen, std::atomic<bool>* is_asleep = nullptr) {
        const int64_t end = now_ns() + SPIN_NS;
        do {
            for (int i = 0; i < 16; ++i) {
                if (ticket_.load(std::memory_order_relaxed) != seen) return;
                pause();
            }
        } while (now_ns() < end);
        // Either `open` sees that we sleep, or we see what it wrote before it looked.
        num_asleep_.fetch_add(1);
        if (is_asleep) is_asleep->store(true);
        const uint32_t before = wake_.load();
        if (ticket_.load() == seen) wake_.wait(before);
        if (is_asleep) is_asleep->store(false);
        num_asleep_.fetch_sub(1);
    }

    // Each line of the cache has what changes as often.
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<int64_t> done_{0};
    alignas(64) std::atomic<uint32_t> wake_{0};
    std::atomic<int> num_asleep_{0};
    alignas(64) std::atomic<bool> is_caller_asleep_{false};
    std::atomic<int> wanted_;
    std::atomic<bool> is_busy_{false};
    // Of whoever opens the next phase:
    const Phase* phase_ = nullptr;
    const Phase* end_ = nullptr;
    uint64_t number_ = 0;
    // Of whoever calls:
    alignas(64) pthread_mutex_t running_ = PTHREAD_MUTEX_INITIALIZER;
    int started_ = 1;
};

// Never destroyed: its threads sleep until the process ends. In a forked process they are not there, and neither may
// the lock be free: it gets a pool of its own.
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
