// See transforms.h.
#include "bridge/transforms.h"

#include <ATen/FuncTorchTLS.h>

namespace minitorch {

bool in_transform() {
  const auto& functorch = at::functorch::functorchTLSAccessor();
  if (!functorch) return false;
  // The one question that functorch answers from outside, and it answers by throwing.
  try {
    functorch->checkSupportsCppAutogradFunction();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

}  // namespace minitorch
