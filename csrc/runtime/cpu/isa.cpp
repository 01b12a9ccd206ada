// Choice of the CPU instruction set.
#include <stdexcept>
#include <string>

#include "kernels/kernel.h"
#include "runtime/backend.h"
#include "runtime/environment.h"

namespace minitorch {
namespace {

struct Isa {
  const char* name;
  Slot slot;
  bool built;
  bool supported;
};

}  // namespace

void select_cpu_slot() {
#ifdef MINITORCH_BUILT_baseline
  const bool baseline = true;
#else
  const bool baseline = false;
#endif
#ifdef MINITORCH_BUILT_avx2
  const bool avx2 = true;
#else
  const bool avx2 = false;
#endif
#ifdef MINITORCH_BUILT_avx512
  const bool avx512 = true;
#else
  const bool avx512 = false;
#endif
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
#else
  const bool has_avx2 = false, has_avx512 = false;
#endif
  const Isa isas[] = {{"avx512", Slot::avx512, avx512, has_avx512},
                      {"avx2", Slot::avx2, avx2, has_avx2},
                      {"baseline", Slot::baseline, baseline, true}};
  const std::string& wanted = environment().isa;
  std::string usable;
  for (const Isa& isa : isas) {
    if (!isa.built || !isa.supported) continue;
    usable += usable.empty() ? isa.name : std::string(", ") + isa.name;
    if (!wanted.empty() && wanted != isa.name) continue;
    active_slot = isa.slot;
    return;
  }
  if (wanted.empty())
    throw std::runtime_error("this build has no kernels for this processor: it was built for newer ones");
  throw std::runtime_error("MINITORCH_ISA='" + wanted + "' cannot be used; this build on this processor allows: " +
                           (usable.empty() ? "none" : usable));
}

}  // namespace minitorch
