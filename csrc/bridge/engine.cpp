// See engine.h.
#include "bridge/engine.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "kernels/kernel.h"

namespace minitorch {
namespace {
thread_local bool hidden = false;

bool runs_a_backward_pass() { return torch::autograd::get_current_graph_task_id() >= 0; }
const bool installed = (set_launches_for_another_handler(&runs_a_backward_pass), true);
}  // namespace

bool devices_are_hidden() { return hidden; }

void start_engine_without_threads() {
  hidden = true;
  torch::autograd::Engine::get_default_engine().initialize_device_threads_pool();
  hidden = false;
}

}  // namespace minitorch
