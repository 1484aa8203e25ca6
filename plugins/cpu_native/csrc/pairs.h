// Whether pairs of bfloat16 are multiplied by AVX512_BF16, or each number as float32.
#pragma once

#include <cstdint>

namespace llmfw {

enum Pairs : int32_t { NO_PAIRS, SLOW_PAIRS, FAST_PAIRS };

// What this CPU makes of pairs. Intel's have them done at half the rate at which they multiply float32 (measured on
// Sapphire and Emerald Rapids), AMD's at twice.
inline Pairs pairs() {
#if defined(LLMFW_PAIRS)
    return static_cast<Pairs>(LLMFW_PAIRS);  // as tests have it, which want the other code
#elif defined(__AVX512BF16__)
    static const Pairs found = [] {
        __builtin_cpu_init();
        return __builtin_cpu_is("intel") ? SLOW_PAIRS : FAST_PAIRS;
    }();
    return found;
#else
    return NO_PAIRS;
#endif
}

}  // namespace llmfw
