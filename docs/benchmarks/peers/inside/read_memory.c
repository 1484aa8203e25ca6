// How fast all cores together read memory, in bytes a second: cc -O3 -march=native -fopenmp read_memory.c
// Reads 1 GiB, more than any cache holds, eight times; prints the fastest.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE = 8, AHEAD = 64 * LINE }; // 64-bit words of a cache line, and how far ahead lines are fetched

static uint64_t read_all(const uint64_t *words, size_t count) {
    uint64_t sums[4 * LINE] = {0}, sum = 0;
    for (size_t i = 0; i < count; i += 4 * LINE) {
        for (int line = 0; line < 4; line++) __builtin_prefetch(words + i + AHEAD + line * LINE);
        for (int j = 0; j < 4 * LINE; j++) sums[j] ^= words[i + j];
    }
    for (int j = 0; j < 4 * LINE; j++) sum ^= sums[j];
    return sum;
}

int main(void) {
    size_t bytes = (size_t)1 << 30;
    char *memory = aligned_alloc((size_t)2 << 20, bytes);
    if (!memory) return 1;
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    double best = 1e9;
    uint64_t sink = 0;
    for (int round = 0; round < 9; round++) { // the first writes, so that there is memory to be read
        double begun = omp_get_wtime();
#pragma omp parallel reduction(^ : sink)
        {
            size_t part = bytes / omp_get_num_threads() / 4096 * 4096;
            char *own = memory + part * omp_get_thread_num();
            if (round == 0) memset(own, 1, part);
            else sink ^= read_all((const uint64_t *)own, part / 8);
        }
        double seconds = omp_get_wtime() - begun;
        if (round > 0 && seconds < best) best = seconds;
    }
    fprintf(stderr, "%llu\n", (unsigned long long)sink);
    printf("%.0f\n", bytes / best);
    return 0;
}
