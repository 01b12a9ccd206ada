// Native on the CPU casts operands to the common dtype before its iterator orders dimensions. A cast operand is dense,
// so one that was expanded then has a say about the dimensions that it was expanded along, and the result has other
// strides than an iterator gives it that converts as it goes, like ours. Where that can be, we cast first, too.
#pragma once
#include <array>

#include "bridge/tensor.h"
#include "runtime/backend.h"

namespace minitorch {

// Looks for operands that are expanded beside ones whose dimensions are in another order than that of memory.
class OrderCheck : public ArgumentVisitor<OrderCheck> {
 public:
  void see_tensor(const at::Tensor& t) {
    if (C10_LIKELY(!t.defined() || t.is_contiguous())) return;
    int64_t last = 0;  // stride of a dimension further in
    for (int64_t d = t.dim() - 1; d >= 0; d--) {
      if (t.size(d) == 1) continue;
      const int64_t stride = t.stride(d);
      if (stride == 0) {
        expanded_ = true;
        continue;
      }
      ordered_ = ordered_ && stride >= last;
      last = stride;
    }
  }
  bool matters() const { return C10_UNLIKELY(expanded_ && !ordered_) && backend().host_accessible(); }

  static bool expanded(const at::Tensor& t) {
    OrderCheck check;
    check.see_tensor(t);
    return check.expanded_;
  }

 private:
  bool expanded_ = false, ordered_ = true;
};

// Casts expanded operands to `dtype`; other arguments pass through. What it returns lives as long as it does.
template <size_t N>
class CastFirst {
 public:
  explicit CastFirst(at::ScalarType dtype) : dtype_(dtype) {}

  const at::Tensor& operator()(const at::Tensor& t) {
    if (dtype_ == at::ScalarType::Undefined || t.scalar_type() == dtype_ || !OrderCheck::expanded(t)) return t;
    return kept_[count_++] = t.to(dtype_);
  }
  at::OptionalTensorRef operator()(at::OptionalTensorRef t) {
    return t.has_value() ? at::OptionalTensorRef((*this)(*t)) : t;
  }
  template <class T>
  const T& operator()(const T& other) {
    return other;
  }

 private:
  const at::ScalarType dtype_;
  std::array<at::Tensor, N> kept_;
  size_t count_ = 0;
};

// Two-operand functions of PyTorch's that make their own iterator and promote as `+` does, cast first.
template <auto function>
struct BinaryCastFirst;
template <class R, class... Rest, R (*function)(const at::Tensor&, const at::Tensor&, Rest...)>
struct BinaryCastFirst<function> {
  static R call(const at::Tensor& a, const at::Tensor& b, Rest... rest) {
    OrderCheck order;
    order.see(a);
    order.see(b);
    if (!order.matters()) return function(a, b, rest...);
    CastFirst<2> cast(at::result_type(a, b));
    return function(cast(a), cast(b), rest...);
  }
};

}  // namespace minitorch
