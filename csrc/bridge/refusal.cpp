// See refusal.h.
#include "bridge/refusal.h"

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_set>

#include "bridge/native_names.h"
#include "core/dtype.h"
#include "runtime/backend.h"

namespace minitorch {

namespace {
constexpr c10::SourceLocation kHere{"refuse", __FILE__, __LINE__};

std::string text_of(const std::string& op, const NoKernel::Missing& missing) {
  std::string what, advice;
  if (const auto* dtype = std::get_if<c10::ScalarType>(&missing)) {
    what = std::string("for '") + c10::toString(*dtype) + "' ";
    if (size_of(static_cast<DType>(*dtype)) == 0)
      advice = ": tensors of this dtype can be moved and converted; convert this one first, or compute on native CPU";
  } else if (!std::get<std::string>(missing).empty()) {
    what = std::get<std::string>(missing) + " ";
  }
  return "\"" + op + "\" not implemented " + what + "on minitorch's " + backend().name() + " backend" + advice;
}
}  // namespace

NoKernel::NoKernel(const std::string& kernel, Missing missing)
    : c10::NotImplementedError(kHere, text_of(kernel, missing)), missing_(std::move(missing)) {}

NoKernel::NoKernel(const NoKernel& from, const char* op, const std::string& text)
    : c10::NotImplementedError(kHere, text), missing_(from.missing_), op_(op) {}

const char* name_for_errors(const char* op) {
  std::string name = op;
  name.resize(std::min(name.find('.'), name.size()));
  const bool dunder = name.size() > 2 && name.compare(name.size() - 2, 2, "__") == 0;
  if (name.size() > 1 && name.back() == '_' && !dunder) name.pop_back();
  if (const size_t helper = name.rfind("_helper"); helper != std::string::npos) name.resize(helper);
  static std::mutex mutex;
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(std::move(name)).first->c_str();
}

void refuse_as_native(const char* op, c10::ScalarType dtype) {
  if (backend().synchronous() && native_refusal(op, dtype) != nullptr) refuse(op, NoKernel(op, dtype));
}

void refuse_by_name(const char* op, const char* kernel, const NoKernel& from) {
  const auto* dtype = std::get_if<c10::ScalarType>(&from.missing_);
  if (dtype == nullptr || native_refusal(op, *dtype) == nullptr) throw;
  TORCH_CHECK_NOT_IMPLEMENTED(false, '"', kernel, "\" not implemented for '", *dtype, "'");
}

bool refuses_rare(c10::ScalarType dtype) { return is_rare(dtype) && backend().synchronous(); }

void refuse_rare(const char* kernel, c10::ScalarType dtype) { check_native_has(!is_rare(dtype), kernel, dtype); }

void check_native_has(bool has, const char* kernel, c10::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(has || !backend().synchronous(), '"', kernel, "\" not implemented for '", dtype, "'");
}

bool moves_elements(const char* op) {
  static const std::unordered_set<std::string_view> names{
      "channel_shuffle", "hash_tensor",   "im2col",          "index_copy", "masked_fill", "masked_scatter",
      "nonzero",         "pixel_shuffle", "pixel_unshuffle", "silu",       "trace"};
  return names.contains(op);
}

void refuse(const char* op, const NoKernel& from) {
  // What users call may have the same name without the underscore: logcumsumexp is aten::_logcumsumexp.
  const char* const name = op[0] == '_' && op[1] != '_' ? op + 1 : op;
  if (const auto* dtype = std::get_if<c10::ScalarType>(&from.missing_)) {
    const char* native = native_refusal(op, *dtype);
    if (native == nullptr) native = native_refusal(name, *dtype);
    if (native != nullptr)
      throw NoKernel(from, op, std::string("\"") + native + "\" not implemented for '" + c10::toString(*dtype) + "'");
  }
  if (from.op_ != nullptr) throw NoKernel(from);
  throw NoKernel(from, op, text_of(name, from.missing_));
}

}  // namespace minitorch
