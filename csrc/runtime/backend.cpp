// Choice of the active backend.
#include "runtime/backend.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace minitorch {

Backend& cpu_backend();

Backend& backend() {
  static Backend& chosen = [&]() -> Backend& {
    const char* wanted = std::getenv("MINITORCH_BACKEND");
    const std::string name = wanted ? wanted : "";
    if (name != "" && name != "cpu" && name != "cuda")
      throw std::runtime_error("MINITORCH_BACKEND='" + name + "' is not understood; allowed are cpu and cuda");
    if (name == "cuda")
      throw std::runtime_error("MINITORCH_BACKEND=cuda was asked for, but this build has no CUDA backend");
    select_cpu_slot();
    return cpu_backend();
  }();
  return chosen;
}

}  // namespace minitorch
