// What a user reads when an operator has no kernel for a dtype.
//
// A kernel serves a family and knows itself by the family's name ("scan"). What it throws therefore passes through the
// function that the operator is registered with, which knows what the user called ("logcumsumexp"): a `catch` that
// costs nothing until something is thrown.
#pragma once
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <string>
#include <variant>

namespace minitorch {

class NoKernel;

// Throws the exception on, with native's text if native refuses this dtype to the operator as well, else with one that
// names operator, dtype and backend. Of operators that call one another the outermost that native refuses counts, then
// the innermost.
[[noreturn]] void refuse(const char* op, const NoKernel& from);

// Throws the exception that is being handled on, by a name that native has for one of several ways through `op`, if it
// refuses the dtype to `op` as well.
[[noreturn]] void refuse_by_name(const char* op, const char* kernel, const NoKernel& from);

// Thrown by kernels and by the bridge.
class NoKernel : public c10::NotImplementedError {
 public:
  // What there is no kernel for: a dtype, or anything else in words ("of matrices of this size").
  using Missing = std::variant<c10::ScalarType, std::string>;
  NoKernel(const std::string& kernel, Missing missing);

 private:
  friend void refuse(const char*, const NoKernel&);
  friend void refuse_by_name(const char*, const char*, const NoKernel&);
  NoKernel(const NoKernel& from, const char* op, const std::string& text);

  Missing missing_;
  const char* op_ = nullptr;  // the innermost operator that it passed, if any
};

// Runs f, one of several ways through `op`, which native calls `kernel`.
template <class F>
void named(const char* op, const char* kernel, const F& f) {
  try {
    f();
  } catch (const NoKernel& missing) {
    refuse_by_name(op, kernel, missing);
  }
}

// For operators whose kernels could compute in a dtype that native refuses: throws what becomes native's refusal where
// the CPU stands in for native's. Looks through a table; is_rare says when that is worth it.
void refuse_as_native(const char* op, c10::ScalarType dtype);

// complex32 and the unsigned integers of more than 8 bits: dtypes that native has few operators for.
inline bool is_rare(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::ComplexHalf || c10::isBarebonesUnsignedType(dtype);
}
inline bool is_rare_or_float8(c10::ScalarType dtype) { return is_rare(dtype) || c10::isFloat8Type(dtype); }
inline void refuse_rare_as_native(const char* op, c10::ScalarType dtype) {
  if (C10_UNLIKELY(is_rare(dtype))) refuse_as_native(op, dtype);
}
// Whether the CPU stands in for native's, which has few operators for this dtype.
bool refuses_rare(c10::ScalarType dtype);
// Where it does: refuses the dtype in the name of a native kernel.
void refuse_rare(const char* kernel, c10::ScalarType dtype);
// The same for a dtype of any kind, unless that kernel `has` it.
void check_native_has(bool has, const char* kernel, c10::ScalarType dtype);
// Operators that move or order elements, which our kernels do by size: native has them for a list of dtypes. Their
// arguments are looked at before they run.
bool moves_elements(const char* op);

// The name that an operator has in errors: without overload, the underscore of in-place forms and "_helper". The
// pointer stays good.
const char* name_for_errors(const char* op);

}  // namespace minitorch
