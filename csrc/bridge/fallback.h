// What happens when an operator has no kernel here: an error, or native CPU with an entry in the ledger.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/operator_name.h>

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

// Throws NotImplementedError: the operator makes or takes tensors of a kind that the device does not have.
inline constexpr char kCompressedSparse[] = "sparse tensors in CSR, CSC, BSR or BSC layout";
[[noreturn]] void refuse_kind(const c10::OperatorName& op, const char* kind);

// Called to name the Python line of a fallback; set by the Python module.
void set_call_site_provider(std::string (*provider)());

}  // namespace minitorch
