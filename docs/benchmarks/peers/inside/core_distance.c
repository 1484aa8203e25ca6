// How far two threads are from each other, in seconds: cc -O3 -march=native -fopenmp core_distance.c
// They pass a number to and fro; prints the fastest way of one. Within one chiplet of a CPU that is tens of nanoseconds,
// between chiplets hundreds.
#include <omp.h>
#include <stdatomic.h>
#include <stdio.h>

enum { TRIES = 20, PASSES = 2000 };
static _Alignas(128) atomic_int turn;

int main(void) {
    double best = 1e9;
    for (int i = 0; i < TRIES; i++) {
        double seconds = 0;
        int threads = 0;
        atomic_store(&turn, 0);
#pragma omp parallel num_threads(2)
        {
            int own = omp_get_thread_num();
#pragma omp barrier
            double begun = omp_get_wtime();
            for (int k = 0; omp_get_num_threads() == 2 && k < PASSES; k++) {
                while (atomic_load_explicit(&turn, memory_order_acquire) != 2 * k + own) {}
                atomic_store_explicit(&turn, 2 * k + own + 1, memory_order_release);
            }
            if (own == 0) seconds = omp_get_wtime() - begun, threads = omp_get_num_threads();
        }
        if (threads < 2) return 1;
        if (seconds / (2 * PASSES) < best) best = seconds / (2 * PASSES);
    }
    printf("%.9f\n", best);
    return 0;
}
