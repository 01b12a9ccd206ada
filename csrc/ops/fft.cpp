// Fourier transforms: one dimension after the other, in native's order and with native's memory layout of the result,
// in which the transformed dimensions are the innermost ones.
#include <ATen/WrapDimUtils.h>
#include <ATen/native/SpectralOpsUtils.h>

#include <algorithm>
#include <numeric>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/fft.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;

double scale_of(IntArrayRef sizes, IntArrayRef dims, int64_t normalization) {
  double n = 1;
  for (const int64_t d : dims) n *= static_cast<double>(sizes[d]);
  switch (static_cast<at::native::fft_norm_mode>(normalization)) {
    case at::native::fft_norm_mode::by_n: return 1 / n;
    case at::native::fft_norm_mode::by_root_n: return 1 / std::sqrt(n);
    default: return 1;
  }
}

// The dimensions with the largest strides first; the last one stays if it is the one that real numbers halve.
at::DimVector by_stride(const Tensor& self, IntArrayRef dims, bool keep_last) {
  at::DimVector sorted(dims.begin(), dims.end());
  const auto strides = self.strides();
  std::sort(sorted.begin(), sorted.end() - keep_last, [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return sorted;
}

// Batch dimensions outermost, in the order of self's strides, then `dims` in the order given.
Tensor make_result(const Tensor& self, IntArrayRef sizes, IntArrayRef dims, at::ScalarType dtype) {
  const int64_t ndim = self.dim();
  at::DimVector order(ndim);
  std::iota(order.begin(), order.end(), 0);
  // Not a stable partition, as native's is not: the order of dimensions of the same stride shows in the result.
  const auto batch_end = std::partition(
      order.begin(), order.end(), [&](int64_t d) { return std::find(dims.begin(), dims.end(), d) == dims.end(); });
  order.erase(batch_end, order.end());
  const auto in_strides = self.strides();
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return in_strides[a] > in_strides[b]; });
  order.append(dims.begin(), dims.end());
  at::DimVector strides(ndim);
  int64_t stride = 1;
  for (int64_t i = ndim - 1; i >= 0; i--) {
    strides[order[i]] = stride;
    stride *= std::max<int64_t>(sizes[order[i]], i >= ndim - static_cast<int64_t>(dims.size()) ? 1 : 0);
  }
  return empty_strided(sizes, strides, dtype);
}

void run(const Tensor& in, const Tensor& out, int64_t dim, FftKind kind, int64_t n, bool forward, double scale) {
  if (out.numel() == 0) return;
  fft_kernel({view_of(in.movedim(dim, -1)), view_of(out.movedim(dim, -1)), kind, n, forward, scale});
}

Tensor resolved(const Tensor& t) { return t.resolve_conj().resolve_neg(); }

void check_precision(const Tensor& self, const char* name) {
  const auto type = c10::toRealValueType(self.scalar_type());
  TORCH_CHECK(type != at::kHalf || !backend().synchronous(), "MKL FFT doesn't support tensors of type: ", type);
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kFloat || type == at::kDouble, "minitorch: ", name, " takes ",
                              "single and double precision, got ", self.scalar_type());
}

// The callers in torch.fft have wrapped and checked dimensions; a call by these operators' own names has not.
at::DimVector checked(const Tensor& self, IntArrayRef dims) {
  at::DimVector wrapped(dims.begin(), dims.end());
  for (int64_t& d : wrapped) {
    d = at::maybe_wrap_dim(d, self.dim(), /*wrap_scalar=*/false);
    TORCH_CHECK(self.size(d) >= 1, "Invalid number of data points (", self.size(d), ") specified");
  }
  for (size_t i = 0; i < wrapped.size(); i++)
    TORCH_CHECK(std::count(wrapped.begin(), wrapped.end(), wrapped[i]) == 1, "FFT dims must be unique");
  return wrapped;
}

Tensor fft_c2c(const Tensor& self, IntArrayRef dims, int64_t normalization, bool forward) {
  TORCH_CHECK(self.is_complex());
  if (dims.empty()) return self.clone();
  check_precision(self, "_fft_c2c");
  const auto dim = checked(self, dims);
  const auto sorted = by_stride(self, dim, false);
  const Tensor in = resolved(self);
  const Tensor out = make_result(self, self.sizes(), sorted, self.scalar_type());
  const double scale = scale_of(self.sizes(), dim, normalization);
  for (size_t i = sorted.size(); i-- > 0;) {
    const bool first = i + 1 == sorted.size();
    run(first ? in : out, out, sorted[i], FftKind::complex, self.size(sorted[i]), forward, i == 0 ? scale : 1);
  }
  return out;
}

Tensor fft_r2c(const Tensor& self, IntArrayRef dims, int64_t normalization, bool onesided) {
  TORCH_CHECK(self.is_floating_point(), "Only supports floating-point dtypes, but found: ", self.scalar_type());
  TORCH_CHECK(!dims.empty());
  const auto dim = checked(self, dims);
  check_precision(self, "_fft_r2c");
  const int64_t last = dim.back(), n = self.size(last);
  at::DimVector sizes(self.sizes());
  if (onesided) sizes[last] = n / 2 + 1;
  const auto sorted = by_stride(self, dim, true);
  const Tensor out = make_result(self, sizes, sorted, c10::toComplexType(self.scalar_type()));
  const double scale = scale_of(self.sizes(), dim, normalization);
  const Tensor half = out.narrow(last, 0, std::min(n, n / 2 + 1));
  run(resolved(self), half, last, FftKind::real_to_complex, n, true, sorted.size() == 1 ? scale : 1);
  for (size_t i = sorted.size() - 1; i-- > 0;)
    run(half, half, sorted[i], FftKind::complex, self.size(sorted[i]), true, i == 0 ? scale : 1);
  if (!onesided && out.numel() > 0) {
    // As the dimension that comes last in the view; the others that were transformed run backwards there.
    uint64_t mirrored = 0;
    for (const int64_t d : dim)
      if (d != last) mirrored |= uint64_t{1} << (d < last ? d : d - 1);
    fft_mirror_kernel(view_of(out.movedim(last, -1)), mirrored);
  }
  return out;
}

Tensor fft_c2r(const Tensor& self, IntArrayRef dims, int64_t normalization, int64_t last_dim_size) {
  TORCH_CHECK(self.is_complex() && !dims.empty());
  check_precision(self, "_fft_c2r");
  TORCH_CHECK(last_dim_size >= 1, "Invalid number of data points (", last_dim_size, ") specified");
  const auto dim = checked(self, dims);
  Tensor input = self;
  if (dim.size() > 1) input = fft_c2c(self, IntArrayRef(dim).slice(0, dim.size() - 1), normalization, false);
  const int64_t last = dim.back();
  at::DimVector sizes(input.sizes());
  sizes[last] = last_dim_size;
  const Tensor out = make_result(input, sizes, {last}, c10::toRealValueType(self.scalar_type()));
  // Native's plan reads as many values as it needs and takes missing ones for zeros.
  const int64_t needed = last_dim_size / 2 + 1;
  Tensor in = resolved(input);
  if (in.size(last) < needed) {
    at::DimVector padded(in.sizes());
    padded[last] = needed;
    const Tensor wide = at::zeros(padded, in.options());
    wide.narrow(last, 0, in.size(last)).copy_(in);
    in = wide;
  }
  run(in.narrow(last, 0, needed), out, last, FftKind::complex_to_real, last_dim_size, false,
      scale_of(sizes, {last}, normalization));
  return out;
}

Tensor& fft_c2c_out(const Tensor& self, IntArrayRef dim, int64_t normalization, bool forward, Tensor& out) {
  return resize_and_copy(fft_c2c(self, dim, normalization, forward), out);
}
Tensor& fft_r2c_out(const Tensor& self, IntArrayRef dim, int64_t normalization, bool onesided, Tensor& out) {
  return resize_and_copy(fft_r2c(self, dim, normalization, onesided), out);
}
Tensor& fft_c2r_out(const Tensor& self, IntArrayRef dim, int64_t normalization, int64_t last_dim_size, Tensor& out) {
  return resize_and_copy(fft_c2r(self, dim, normalization, last_dim_size), out);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_fft_c2c", MT_CHECKED(fft_c2c));
  m.impl("_fft_c2c.out", MT_CHECKED(fft_c2c_out));
  m.impl("_fft_r2c", MT_CHECKED(fft_r2c));
  m.impl("_fft_r2c.out", MT_CHECKED(fft_r2c_out));
  m.impl("_fft_c2r", MT_CHECKED(fft_c2r));
  m.impl("_fft_c2r.out", MT_CHECKED(fft_c2r_out));
}

}  // namespace
}  // namespace minitorch
