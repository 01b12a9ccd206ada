// See engine.h.
#include "bridge/engine.h"

#include <torch/csrc/autograd/engine.h>

namespace minitorch {
namespace {
thread_local bool hidden = false;
}  // namespace

bool devices_are_hidden() { return hidden; }

void start_engine_without_threads() {
  hidden = true;
  torch::autograd::Engine::get_default_engine().initialize_device_threads_pool();
  hidden = false;
}

}  // namespace minitorch
