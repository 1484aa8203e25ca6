// Selects at compile time how bfloat16 is multiplied: in pairs with AVX512_BF16, or converted to float32.
//
// Kernels that are never called would add seconds to the build, so this is not a runtime choice. LLMFW_PAIRS is a value
// of `Pairs`; without it, pairs are used if the target has AVX512_BF16.
#pragma once

#include <cstdint>

#if !defined(__AVX512BF16__)
#undef LLMFW_PAIRS
#define LLMFW_PAIRS 0
#elif !defined(LLMFW_PAIRS)
#define LLMFW_PAIRS 2
#endif

namespace llmfw {

// NO_PAIRS: this library has no kernels for pairs.
// SLOW_PAIRS: attention has kernels for pairs, which are slower than float32 and run only on request.
// FAST_PAIRS: kernels for pairs are faster than float32 and are the default.
enum Pairs : int32_t { NO_PAIRS, SLOW_PAIRS, FAST_PAIRS };

inline Pairs pairs() { return static_cast<Pairs>(LLMFW_PAIRS); }

}  // namespace llmfw
