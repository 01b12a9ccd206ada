// _foreach_* operators of floating-point lists with one dtype and matching layouts run as one kernel call; everything
// else takes PyTorch's loop over the tensors, which defines what they mean.
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_addcdiv_native.h>
#include <ATen/ops/_foreach_addcmul_native.h>
#include <ATen/ops/_foreach_div_native.h>
#include <ATen/ops/_foreach_lerp_native.h>
#include <ATen/ops/_foreach_maximum_native.h>
#include <ATen/ops/_foreach_mul_native.h>
#include <ATen/ops/_foreach_neg_native.h>
#include <ATen/ops/_foreach_norm_native.h>
#include <ATen/ops/_foreach_sqrt_native.h>
#include <ATen/ops/_foreach_sub_native.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/foreach.h"
#include "ops/list_layout.h"

namespace minitorch {
namespace {

using at::Scalar;
using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;
using Scalars = at::ArrayRef<Scalar>;

// Finite, but not as a number of the type that native computes in: its loop has the error.
bool beyond(double s, at::ScalarType type) {
  return type != at::kDouble && std::isfinite(s) && std::abs(s) > std::numeric_limits<float>::max();
}

// True if the lists can go to the kernel: floating, ours, one dtype, and each tensor without gaps and laid out like its
// peers.
bool fast(at::ArrayRef<TensorList> lists, Scalars scalars) {
  const Tensor& first = lists[0][0];
  if (!at::isFloatingType(first.scalar_type()) || first.device().type() != kDevice) return false;
  for (const Scalar& s : scalars)
    if (s.isComplex() || s.isBoolean() || beyond(s.toDouble(), first.scalar_type())) return false;
  for (size_t i = 0; i < lists[0].size(); i++) {
    const Tensor& leader = lists[0][i];
    if (!leader.is_non_overlapping_and_dense() || (leader.numel() == 0 && !leader.is_contiguous())) return false;
    for (const TensorList& list : lists) {
      const Tensor& t = list[i];
      if (t.scalar_type() != first.scalar_type() || t.device() != first.device() || t.layout() != at::kStrided ||
          !lies_as(t, leader))
        return false;
    }
  }
  return true;
}

char* data_of(const Tensor& t) {
  check_allocated(t);
  return static_cast<char*>(const_cast<void*>(t.const_data_ptr()));
}

// Runs `op` with outputs[i] = op(lists[0][i], lists[1][i], ...); one scalar for all, or one a tensor.
void run(ForeachOp op, TensorList outputs, at::ArrayRef<TensorList> lists, Scalars scalars,
         const char* device_scalar = nullptr) {
  const auto type = outputs[0].scalar_type();
  // Native adds a scalar in the tensors' dtype; its other operators take theirs in float.
  const bool rounds = op == ForeachOp::add_scalar;
  const auto in_dtype = [&](double s) -> double {
    if (rounds && type == at::kBFloat16) return BFloat16(static_cast<float>(s));
    if (rounds && type == at::kHalf) return Half(static_cast<float>(s));
    return s;
  };
  std::vector<ForeachItem> items(outputs.size());
  for (size_t i = 0; i < items.size(); i++) {
    items[i] = {outputs[i].numel(), {data_of(outputs[i])}, 0};
    for (size_t k = 0; k < lists.size(); k++) items[i].data[k + 1] = data_of(lists[k][i]);
    if (!scalars.empty()) items[i].s = in_dtype(scalars[scalars.size() == 1 ? 0 : i].toDouble());
  }
  foreach_kernel(op, items, to_dtype(type), device_scalar);
}

// The same on the first list itself. PyTorch's loops write through operators that count a tensor's versions, by which
// autograd knows that a saved tensor is no longer what it was; the lists' own operators leave that to their kernels.
void run_in_place(ForeachOp op, at::ArrayRef<TensorList> lists, Scalars scalars, const char* device_scalar = nullptr) {
  for (const Tensor& t : lists[0]) t.unsafeGetTensorImpl()->bump_version();
  run(op, lists[0], lists, scalars, device_scalar);
}

Tensors fresh_like(TensorList list) {
  Tensors result;
  result.reserve(list.size());
  for (const Tensor& t : list) result.push_back(empty_strided(t.sizes(), t.strides(), t.scalar_type()));
  return result;
}

// `Slow` and `SlowInplace` are PyTorch's loops; they also raise the errors. A list of scalars has one an item.
bool eligible(at::ArrayRef<TensorList> lists, Scalars scalars, bool scalar_list) {
  const size_t n = lists[0].size();
  if (n == 0 || (scalar_list && scalars.size() != n)) return false;
  for (const TensorList& list : lists)
    if (list.size() != n) return false;
  return fast(lists, scalars);
}

template <ForeachOp op, auto Slow, auto SlowInplace>
struct Unary {
  static Tensors functional(TensorList a) {
    if (!eligible({a}, {}, false)) return Slow(a);
    Tensors out = fresh_like(a);
    run(op, out, {a}, {});
    return out;
  }
  static void inplace(TensorList a) {
    if (!eligible({a}, {}, false)) return SlowInplace(a);
    run_in_place(op, {a}, {});
  }
};

template <ForeachOp op, auto Slow, auto SlowInplace, bool negate = false>
struct WithScalar {
  static Tensors functional(TensorList a, const Scalar& s) {
    if (!eligible({a}, s, false)) return Slow(a, s);
    Tensors out = fresh_like(a);
    run(op, out, {a}, negate ? -s : s);
    return out;
  }
  static void inplace(TensorList a, const Scalar& s) {
    if (!eligible({a}, s, false)) return SlowInplace(a, s);
    run_in_place(op, {a}, negate ? -s : s);
  }
};

template <ForeachOp op, auto Slow, auto SlowInplace>
struct WithScalars {
  static Tensors functional(TensorList a, Scalars s) {
    if (!eligible({a}, s, true)) return Slow(a, s);
    Tensors out = fresh_like(a);
    run(op, out, {a}, s);
    return out;
  }
  static void inplace(TensorList a, Scalars s) {
    if (!eligible({a}, s, true)) return SlowInplace(a, s);
    run_in_place(op, {a}, s);
  }
};

template <ForeachOp op, auto Slow, auto SlowInplace>
struct Binary {
  static Tensors functional(TensorList a, TensorList b) {
    if (!eligible({a, b}, {}, false)) return Slow(a, b);
    Tensors out = fresh_like(a);
    run(op, out, {a, b}, {});
    return out;
  }
  static void inplace(TensorList a, TensorList b) {
    if (!eligible({a, b}, {}, false)) return SlowInplace(a, b);
    run_in_place(op, {a, b}, {});
  }
};

// Native's 16-bit a + alpha b rounds the product before the sum; the kernel, which does not, leaves that to at::add.
bool rounds_product(ForeachOp op, TensorList a, const Scalar& s) {
  return op == ForeachOp::add && !a.empty() && at::isReducedFloatingType(a[0].scalar_type()) && s.toDouble() != 1;
}

// a + alpha b and its relatives: lists a and b, one scalar.
template <ForeachOp op, auto Slow, auto SlowInplace, bool negate = false>
struct BinaryScaled {
  static Tensors functional(TensorList a, TensorList b, const Scalar& s) {
    if (!eligible({a, b}, s, false) || rounds_product(op, a, s)) return Slow(a, b, s);
    Tensors out = fresh_like(a);
    run(op, out, {a, b}, negate ? -s : s);
    return out;
  }
  static void inplace(TensorList a, TensorList b, const Scalar& s) {
    if (!eligible({a, b}, s, false) || rounds_product(op, a, s)) return SlowInplace(a, b, s);
    run_in_place(op, {a, b}, negate ? -s : s);
  }
};

template <ForeachOp op, auto Slow, auto SlowInplace>
struct BinaryScalars {
  static Tensors functional(TensorList a, TensorList b, Scalars s) {
    if (!eligible({a, b}, s, true)) return Slow(a, b, s);
    Tensors out = fresh_like(a);
    run(op, out, {a, b}, s);
    return out;
  }
  static void inplace(TensorList a, TensorList b, Scalars s) {
    if (!eligible({a, b}, s, true)) return SlowInplace(a, b, s);
    run_in_place(op, {a, b}, s);
  }
};

template <ForeachOp op, auto Slow, auto SlowInplace>
struct Ternary {
  static Tensors functional(TensorList a, TensorList b, TensorList c, const Scalar& s) {
    if (!eligible({a, b, c}, s, false)) return Slow(a, b, c, s);
    Tensors out = fresh_like(a);
    run(op, out, {a, b, c}, s);
    return out;
  }
  static void inplace(TensorList a, TensorList b, TensorList c, const Scalar& s) {
    if (!eligible({a, b, c}, s, false)) return SlowInplace(a, b, c, s);
    run_in_place(op, {a, b, c}, s);
  }
};

template <ForeachOp op, auto Slow, auto SlowInplace>
struct TernaryScalars {
  static Tensors functional(TensorList a, TensorList b, TensorList c, Scalars s) {
    if (!eligible({a, b, c}, s, true)) return Slow(a, b, c, s);
    Tensors out = fresh_like(a);
    run(op, out, {a, b, c}, s);
    return out;
  }
  static void inplace(TensorList a, TensorList b, TensorList c, Scalars s) {
    if (!eligible({a, b, c}, s, true)) return SlowInplace(a, b, c, s);
    run_in_place(op, {a, b, c}, s);
  }
};

// The scalar is a tensor of no dimensions on the device (a clipping coefficient): it is read there, without a wait.
template <ForeachOp op, auto Slow, auto SlowInplace>
struct WithTensor {
  static bool takes(TensorList a, const Tensor& s) {
    return eligible({a}, {}, false) && s.dim() == 0 && s.scalar_type() == a[0].scalar_type() &&
           s.device() == a[0].device();
  }
  static Tensors functional(TensorList a, const Tensor& s) {
    if (!takes(a, s)) return Slow(a, s);
    Tensors out = fresh_like(a);
    run(op, out, {a}, {}, data_of(s));
    return out;
  }
  static void inplace(TensorList a, const Tensor& s) {
    if (!takes(a, s)) return SlowInplace(a, s);
    run_in_place(op, {a}, {}, data_of(s));
  }
};

Tensors norm(TensorList a, const Scalar& order, std::optional<at::ScalarType> dtype) {
  const bool known = !order.isComplex() && (order.toDouble() == 1 || order.toDouble() == 2 ||
                                            order.toDouble() == std::numeric_limits<double>::infinity());
  bool empty_infinity = false;
  for (const Tensor& t : a) empty_infinity = empty_infinity || (t.numel() == 0 && order.toDouble() > 2);
  if (!known || empty_infinity || !eligible({a}, {}, false) || (dtype && *dtype != a[0].scalar_type()))
    return at::native::foreach_tensor_norm_slow(a, order, dtype);
  Tensors result;
  std::vector<ForeachItem> items;
  for (const Tensor& t : a) {
    result.push_back(empty({}, t.scalar_type()));
    items.push_back({t.numel(), {data_of(result.back()), data_of(t)}, 0});
  }
  foreach_norm_kernel(items, to_dtype(a[0].scalar_type()), order.toDouble());
  return result;
}

template <class F>
void both(const Operators& m, const std::string& op, const std::string& overload) {
  const std::string suffix = overload.empty() ? "" : "." + overload;
  m.impl((op + suffix).c_str(), TORCH_FN(F::functional));
  m.impl((op + "_" + suffix).c_str(), TORCH_FN(F::inplace));
}

#define MT_SLOW(name) at::native::foreach_tensor_##name##_slow, at::native::foreach_tensor_##name##_slow_
#define MT_KERNEL_SLOW(name) \
  at::native::foreach_tensor_##name##_kernel_slow, at::native::foreach_tensor_##name##_kernel_slow_

MT_OPERATORS(aten, PrivateUse1, m) {
  both<Unary<ForeachOp::sqrt, MT_SLOW(sqrt)>>(m, "_foreach_sqrt", "");
  both<Unary<ForeachOp::neg, MT_SLOW(neg)>>(m, "_foreach_neg", "");

  both<WithScalar<ForeachOp::add_scalar, MT_KERNEL_SLOW(add_scalar)>>(m, "_foreach_add", "Scalar");
  both<WithScalar<ForeachOp::add_scalar, MT_KERNEL_SLOW(sub_scalar), true>>(m, "_foreach_sub", "Scalar");
  both<WithScalar<ForeachOp::mul_scalar, MT_KERNEL_SLOW(mul_scalar)>>(m, "_foreach_mul", "Scalar");
  both<WithScalar<ForeachOp::div_scalar, MT_KERNEL_SLOW(div_scalar)>>(m, "_foreach_div", "Scalar");

  both<WithScalars<ForeachOp::add_scalar, MT_KERNEL_SLOW(add_scalarlist)>>(m, "_foreach_add", "ScalarList");
  both<WithScalars<ForeachOp::mul_scalar, MT_KERNEL_SLOW(mul_scalarlist)>>(m, "_foreach_mul", "ScalarList");
  both<WithScalars<ForeachOp::div_scalar, MT_KERNEL_SLOW(div_scalarlist)>>(m, "_foreach_div", "ScalarList");

  both<BinaryScaled<ForeachOp::add, MT_KERNEL_SLOW(add_list)>>(m, "_foreach_add", "List");
  both<BinaryScaled<ForeachOp::add, MT_KERNEL_SLOW(sub_list), true>>(m, "_foreach_sub", "List");
  both<Binary<ForeachOp::mul, MT_KERNEL_SLOW(mul_list)>>(m, "_foreach_mul", "List");
  both<Binary<ForeachOp::div, MT_KERNEL_SLOW(div_list)>>(m, "_foreach_div", "List");
  both<Binary<ForeachOp::maximum, MT_KERNEL_SLOW(clamp_min_list)>>(m, "_foreach_maximum", "List");

  both<BinaryScaled<ForeachOp::lerp, MT_KERNEL_SLOW(lerp_list)>>(m, "_foreach_lerp", "Scalar");
  both<BinaryScalars<ForeachOp::lerp, MT_KERNEL_SLOW(lerp_scalarlist)>>(m, "_foreach_lerp", "ScalarList");

  both<Ternary<ForeachOp::addcmul, MT_SLOW(addcmul_scalar)>>(m, "_foreach_addcmul", "Scalar");
  both<Ternary<ForeachOp::addcdiv, MT_SLOW(addcdiv_scalar)>>(m, "_foreach_addcdiv", "Scalar");
  both<TernaryScalars<ForeachOp::addcmul, MT_SLOW(addcmul_scalarlist)>>(m, "_foreach_addcmul", "ScalarList");
  both<TernaryScalars<ForeachOp::addcdiv, MT_SLOW(addcdiv_scalarlist)>>(m, "_foreach_addcdiv", "ScalarList");

  both<WithTensor<ForeachOp::mul_scalar, MT_KERNEL_SLOW(mul_tensor)>>(m, "_foreach_mul", "Tensor");
  both<WithTensor<ForeachOp::div_scalar, MT_KERNEL_SLOW(div_tensor)>>(m, "_foreach_div", "Tensor");

  m.impl("_foreach_norm.Scalar", MT_CHECKED(norm));
}

}  // namespace
}  // namespace minitorch
