// Whether pairs of bfloat16 are multiplied by AVX512_BF16, or each number as float32.
//
// Decided when this is compiled, since kernels that are not used take seconds as well: LLMFW_PAIRS says what the CPU makes
// of pairs, or else they are taken where there are any.
#pragma once

#include <cstdint>

#if !defined(__AVX512BF16__)
#undef LLMFW_PAIRS
#define LLMFW_PAIRS 0
#elif !defined(LLMFW_PAIRS)
#define LLMFW_PAIRS 2
#endif

namespace llmfw {

// No kernels of pairs; such as only who asks for them gets; such as are faster than float32.
enum Pairs : int32_t { NO_PAIRS, SLOW_PAIRS, FAST_PAIRS };

inline Pairs pairs() { return static_cast<Pairs>(LLMFW_PAIRS); }

}  // namespace llmfw
