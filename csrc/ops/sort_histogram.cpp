// histc, histogram and histogramdd: PyTorch's checks and bin edges; the counting is a search in the edges and a
// scatter.
#include <ATen/native/Histogram.h>
#include <ATen/ops/_histogramdd_bin_edges_native.h>
#include <ATen/ops/_histogramdd_from_bin_cts_native.h>
#include <ATen/ops/_histogramdd_from_bin_tensors_native.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/histogram_native.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

// Adds the weights of the points, vectors along the last dimension, up in `hist`. Bins are half open but for the last.
// `bin` numbers the bin of each coordinate; what it numbers outside [0, bins) is dropped, as are points out of range
// and NaN.
template <class Bin>
void accumulate(const at::Tensor& points, const std::optional<at::Tensor>& weight, bool density, at::Tensor& hist,
                at::TensorList edges, const Bin& bin) {
  const at::Tensor self = points.reshape({-1, points.size(-1)});
  at::Tensor index = at::zeros({self.size(0)}, self.options().dtype(at::kLong));
  at::Tensor inside = at::ones({self.size(0)}, self.options().dtype(at::kBool));
  for (size_t d = 0; d < edges.size(); d++) {
    const at::Tensor x = self.select(1, static_cast<int64_t>(d)).contiguous(), e = edges[d].contiguous();
    const int64_t bins = e.numel() - 1;
    inside = inside.logical_and(x >= e[0]).logical_and(x <= e[bins]);
    index = index * bins + bin(x, e).clamp(0, bins - 1);
  }
  const at::Tensor w = weight.has_value() && weight->defined() ? weight->reshape(-1).to(hist.scalar_type())
                                                               : at::ones({self.size(0)}, hist.options());
  at::Tensor counts = at::zeros({hist.numel()}, hist.options());
  counts.scatter_add_(0, at::where(inside, index, at::zeros_like(index)), at::where(inside, w, at::zeros_like(w)));
  hist.copy_(counts.view(hist.sizes()));
  if (!density) return;
  hist.div_(hist.sum());
  for (size_t d = 0; d < edges.size(); d++) {
    std::vector<int64_t> shape(edges.size(), 1);
    shape[d] = edges[d].numel() - 1;
    hist.div_(edges[d].diff().reshape(shape));
  }
}

at::Tensor searched_bin(const at::Tensor& x, const at::Tensor& edges) {
  return at::searchsorted(edges, x, /*out_int32=*/false, /*right=*/true) - 1;
}

void histogramdd(const at::Tensor& self, const std::optional<at::Tensor>& weight, bool density, at::Tensor& hist,
                 const at::TensorList& edges) {
  accumulate(self, weight, density, hist, edges, searched_bin);
}

// Equal bins: their number follows from the coordinate, and with local_search from the edges, against rounding.
void histogramdd_linear(const at::Tensor& self, const std::optional<at::Tensor>& weight, bool density, at::Tensor& hist,
                        const at::TensorList& edges, bool local_search) {
  if (local_search) return histogramdd(self, weight, density, hist, edges);
  accumulate(self, weight, density, hist, edges, [](const at::Tensor& x, const at::Tensor& e) {
    const int64_t bins = e.numel() - 1;
    const at::Tensor position = (x - e[0]) * bins / (e[bins] - e[0]);
    // NaN and points out of range have no integer; they are dropped anyway.
    return at::where(position.isfinite(), position, at::zeros_like(position)).clamp(0, bins).to(at::kLong);
  });
}

void outer_edges(const at::Tensor& input, const int64_t dims, std::vector<double>& low, std::vector<double>& high) {
  const auto [min, max] = at::aminmax(input, 0);
  for (int64_t d = 0; d < dims; d++) {
    low[d] = min[d].item<double>();
    high[d] = max[d].item<double>();
  }
}

using Range = std::optional<at::ArrayRef<double>>;
using Weight = const std::optional<at::Tensor>&;
using Pair = std::tuple<at::Tensor, at::Tensor>;
using PairRef = std::tuple<at::Tensor&, at::Tensor&>;
using List = at::TensorList;

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_stub, &minitorch::histogramdd)
REGISTER_PRIVATEUSE1_DISPATCH(histogramdd_linear_stub, &minitorch::histogramdd_linear)
REGISTER_PRIVATEUSE1_DISPATCH(histogram_select_outer_bin_edges_stub, &minitorch::outer_edges)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
  using at::Tensor, at::native::histogram, at::native::histogram_out, at::native::_histogramdd;
  m.impl("histc", MT_CHECKED(at::native::histogram_histc));
  m.impl("histc.out", MT_CHECKED(at::native::histogram_histc_out));
  m.impl("histogram.bin_ct", static_cast<Pair (*)(const Tensor&, int64_t, Range, Weight, bool)>(&histogram));
  m.impl("histogram.bins_tensor", static_cast<Pair (*)(const Tensor&, const Tensor&, Weight, bool)>(&histogram));
  m.impl("histogram.bin_ct_out",
         static_cast<PairRef (*)(const Tensor&, int64_t, Range, Weight, bool, Tensor&, Tensor&)>(&histogram_out));
  m.impl("histogram.bins_tensor_out",
         static_cast<PairRef (*)(const Tensor&, const Tensor&, Weight, bool, Tensor&, Tensor&)>(&histogram_out));
  m.impl("_histogramdd_bin_edges", MT_CHECKED(at::native::histogramdd_bin_edges));
  m.impl("_histogramdd_from_bin_cts",
         static_cast<Tensor (*)(const Tensor&, at::IntArrayRef, Range, Weight, bool)>(&_histogramdd));
  m.impl("_histogramdd_from_bin_tensors", static_cast<Tensor (*)(const Tensor&, List, Weight, bool)>(&_histogramdd));
}
}  // namespace minitorch
