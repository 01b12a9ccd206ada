// Sequences, identity matrices and the Kaiser window. PyTorch's arange, linspace and kaiser_window check and size the
// result and call a stub; range, logspace and eye repeat native's checks here.
#include <ATen/native/RangeFactories.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/arange_native.h>
#include <ATen/ops/linspace_native.h>
#include <ATen/ops/special_i0.h>
#include <torch/library.h>

#include <cmath>

#include "bridge/checked.h"
#include "bridge/conversions.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/factory.h"

namespace minitorch {
namespace {

using at::Tensor;

SequenceArgs sequence(const Tensor& out) {
  SequenceArgs args;
  args.out = static_cast<char*>(out.data_ptr());
  args.dtype = to_dtype(out.scalar_type());
  args.count = out.numel();
  return args;
}

// The operand of a nullary iterator whose single dimension PyTorch has made contiguous.
SequenceArgs sequence(const at::TensorIterator& iter) {
  SequenceArgs args;
  args.out = static_cast<char*>(iter.data_ptr(0));
  args.dtype = to_dtype(iter.dtype(0));
  args.count = iter.numel();
  return args;
}

void arange_stub(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& /*steps*/,
                 const at::Scalar& step) {
  // Native counts in a wider type and raises an error for a number that it does not hold.
  const bool half = at::isReducedFloatingType(iter.dtype(0));
  if (half || at::isIntegralType(iter.dtype(0), /*includeBool=*/false))
    for (const at::Scalar& s : {start, step}) check_convertible(s, half ? at::kFloat : at::kLong);
  SequenceArgs args = sequence(iter);
  args.first = to_scalar(start);
  args.step = to_scalar(step);
  arange_kernel(args);
}

void check_has_steps(const char* kernel, at::ScalarType dtype) {
  const bool known = at::isFloatingType(dtype) || at::isComplexType(dtype) || at::isIntegralType(dtype, false);
  check_native_has(known && !is_rare_or_float8(dtype), kernel, dtype);
}

void linspace_stub(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& end, int64_t /*steps*/) {
  check_has_steps("linspace_cpu", iter.dtype(0));
  for (const at::Scalar& s : {start, end}) check_convertible(s, iter.dtype(0));
  SequenceArgs args = sequence(iter);
  args.first = to_scalar(start);
  args.last = to_scalar(end);
  linspace_kernel(args);
}

// Runs f on `out`, or on a contiguous stand-in that is copied back.
template <class F>
Tensor& fill_contiguous(Tensor& out, const F& f) {
  if (out.is_contiguous()) {
    f(out);
  } else {
    const Tensor stand_in = at::empty(out.sizes(), out.options());
    f(stand_in);
    out.copy_(stand_in);
  }
  return out;
}

Tensor& range_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, Tensor& out) {
  int64_t size = 0;
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "range_cpu", [&] {
    using Position = at::acc_type<scalar_t, false>;
    const auto first = start.to<Position>(), last = end.to<Position>(), by = step.to<Position>();
    at::native::arange_check_bounds(start, end, step);
    // A fraction of an integer's step; native divides by it, and dies.
    TORCH_CHECK_VALUE(by != Position(0), "step must be nonzero");
    size = static_cast<int64_t>((last - first) / by + 1);
  });
  if (out.numel() != size) out.resize_({size});
  return fill_contiguous(out, [&](const Tensor& target) {
    SequenceArgs args = sequence(target);
    args.first = to_scalar(start);
    args.step = to_scalar(step);
    arange_kernel(args);
  });
}

Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  if (steps == 0) return out;
  if (steps == 1) {
    if (at::isComplexType(out.scalar_type())) return out.fill_(std::pow(base, start.to<c10::complex<double>>()));
    return out.fill_(std::pow(base, start.to<double>()));
  }
  const at::ScalarType dtype = out.scalar_type();
  check_has_steps("logspace_cpu", dtype);
  for (const at::Scalar& s : {start, end}) check_convertible(s, dtype);
  return fill_contiguous(out, [&](const Tensor& target) {
    SequenceArgs args = sequence(target);
    args.first = to_scalar(start);
    args.last = to_scalar(end);
    args.base = base;
    logspace_kernel(args);
  });
}

Tensor& eye_m_out(int64_t n, int64_t m, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  out.resize_({n, m});
  out.zero_();
  refuse_rare_as_native("eye", out.scalar_type());
  out.diagonal().fill_(1);
  return out;
}

Tensor& eye_out(int64_t n, Tensor& out) { return eye_m_out(n, n, out); }

// i0(beta sqrt(1 - ((n - a) / a)^2)) / i0(beta) of the indices n, where a is half of what the last one would be.
void kaiser_window_stub(at::TensorIteratorBase& iter, const int64_t length, const double beta) {
  if (iter.numel() == 0) return;
  const auto type = iter.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  const double middle = static_cast<double>(length - 1) / 2;
  const Tensor place = iter.tensor(1).to(type).sub(middle).div(middle);
  const Tensor height = at::special_i0(place.square().neg().add(1).abs().sqrt().mul(beta));
  iter.tensor(0).copy_(height.div(std::cyl_bessel_i(0.0, std::abs(beta))));
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &minitorch::kaiser_window_stub)
REGISTER_PRIVATEUSE1_DISPATCH(arange_stub, &minitorch::arange_stub)
REGISTER_PRIVATEUSE1_DISPATCH(linspace_stub, &minitorch::linspace_stub)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  using Sequence = Tensor& (*)(const at::Scalar&, const at::Scalar&, const at::Scalar&, Tensor&);
  using Linspace = Tensor& (*)(const at::Scalar&, const at::Scalar&, int64_t, Tensor&);
  m.impl("arange.start_out", MT_CHECKED(static_cast<Sequence>(at::native::arange_out)));
  m.impl("range.out", MT_CHECKED(range_out));
  m.impl("linspace.out", MT_CHECKED(static_cast<Linspace>(at::native::linspace_out)));
  m.impl("logspace.out", MT_CHECKED(logspace_out));
  m.impl("eye.out", MT_CHECKED(eye_out));
  m.impl("eye.m_out", MT_CHECKED(eye_m_out));
}
}  // namespace minitorch
