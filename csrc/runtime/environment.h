// The MINITORCH_* environment variables, read and checked once.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace minitorch {

enum class BackendChoice { automatic, cpu, cuda };
enum class FallbackPolicy { error, warn, allow };

struct Environment {
  BackendChoice backend = BackendChoice::automatic;  // MINITORCH_BACKEND=cpu|cuda
  std::string isa;                                   // MINITORCH_ISA=baseline|avx2|avx512; empty: the best there is
  FallbackPolicy fallback = FallbackPolicy::warn;    // MINITORCH_FALLBACK=error|warn|allow
  std::optional<size_t> memory_limit;                // MINITORCH_MEMORY_LIMIT=bytes, or a number with K, M, G, T
  bool poison = false;                               // MINITORCH_POISON=0|1
  bool expandable_segments = false;                  // MINITORCH_EXPANDABLE_SEGMENTS=0|1
  bool launch_blocking = false;                      // MINITORCH_LAUNCH_BLOCKING=0|1
  bool peer_access = true;                           // MINITORCH_PEER_ACCESS=0|1
};

// Throws std::runtime_error naming the variable, its value and what is allowed. An empty variable counts as not set.
const Environment& environment();

// What environment() does, over any source of variables: `get` returns null for one that is not set.
Environment parse_environment(const char* (*get)(const char* name));

// A warning about the first of `names` (null at the end; "NAME=VALUE" will do) that is none of ours but nearly so;
// empty if there is none.
std::string misspelt_variable(const char* const* names);

}  // namespace minitorch
