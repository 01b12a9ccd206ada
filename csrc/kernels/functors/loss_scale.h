// The dynamic loss scale of mixed precision, for host and device: what GradScaler's update does.
#pragma once
#include <cstdint>

#include "core/macros.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

// Shrinks the scale after infinite gradients, grows it after `interval` steps in a row without.
MT_HD void next_loss_scale(float* scale, int32_t* growth_tracker, bool found_inf, double growth, double backoff,
                           int64_t interval) {
  if (found_inf) {
    *scale = static_cast<float>(*scale * backoff);
    *growth_tracker = 0;
    return;
  }
  const int32_t successful = *growth_tracker + 1;
  if (successful != interval) {
    *growth_tracker = successful;
    return;
  }
  const auto grown = static_cast<float>(*scale * growth);
  if (grown - grown == 0.0f) *scale = grown;  // finite: a scale that overflows would never recover
  *growth_tracker = 0;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
