// What happens when an operator has no kernel here: an error, or native CPU with an entry in the ledger.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/environment.h"

namespace minitorch {

struct FallbackRecord {
  std::string op;         // "aten::histc"
  int64_t count = 0;      // calls
  int64_t bytes = 0;      // bytes of tensor arguments that crossed to native CPU
  double seconds = 0;     // time spent in native CPU
  std::string call_site;  // Python file and line of the first call
};

FallbackPolicy fallback_policy();
void set_fallback_policy(FallbackPolicy policy);
std::vector<FallbackRecord> fallback_records();
void clear_fallback_records();

// For an operator that has a kernel, but none for the dtype of `tensor`: runs `native`, which lets native CPU do it,
// under the same policy and with the same error and ledger as an operator without a kernel.
void fall_back(const char* name, const at::Tensor& tensor, const std::function<void()>& native);

// Called to name the Python line of a fallback; set by the Python module.
void set_call_site_provider(std::string (*provider)());

}  // namespace minitorch
