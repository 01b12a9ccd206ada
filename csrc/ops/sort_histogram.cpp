// histc, histogram and histogramdd: PyTorch's checks and bin edges; the counting is one kernel or, for other dtypes
// than it has, a search in the edges and a scatter.
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
#include "kernels/sort.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

char* bytes(const at::Tensor& t) { return static_cast<char*>(const_cast<void*>(t.const_data_ptr())); }

// The numbers of the bins of one coordinate; what is outside [0, bins) is put inside, for it is dropped anyway.
at::Tensor bin_of(const at::Tensor& x, const at::Tensor& edges, BinSearch search) {
  const int64_t bins = edges.numel() - 1;
  if (search != BinSearch::linear)
    return (at::searchsorted(edges, x, /*out_int32=*/false, /*right=*/true) - 1).clamp(0, bins - 1);
  const at::Tensor position = (x - edges[0]) * bins / (edges[bins] - edges[0]);
  // NaN and points out of range have no integer.
  const at::Tensor finite = at::where(position.isfinite(), position, at::zeros_like(position)).clamp(0, bins);
  return finite.to(at::kLong).clamp(0, bins - 1);  // as integers: 16-bit floats round bins - 1 up
}

void scatter(const at::Tensor& points, const at::Tensor& weight, const at::Tensor& hist,
             const std::vector<at::Tensor>& edges, BinSearch search) {
  at::Tensor index = at::zeros({points.size(0)}, points.options().dtype(at::kLong));
  at::Tensor inside = at::ones({points.size(0)}, points.options().dtype(at::kBool));
  for (size_t d = 0; d < edges.size(); d++) {
    const at::Tensor x = points.select(1, static_cast<int64_t>(d)).contiguous(), &e = edges[d];
    const int64_t bins = e.numel() - 1;
    inside = inside.logical_and(x >= e[0]).logical_and(x <= e[bins]);
    index = index * bins + bin_of(x, e, search);
  }
  // Sums in double: 16-bit floats cannot count beyond a few hundred, and the order of additions is not ours to choose.
  const auto wide = at::isFloatingType(hist.scalar_type()) ? at::kDouble : hist.scalar_type();
  const at::Tensor sums = at::zeros({hist.numel()}, hist.options().dtype(wide));
  const at::Tensor w = weight.defined() ? weight.to(wide) : at::ones({points.size(0)}, sums.options());
  sums.scatter_add_(0, at::where(inside, index, at::zeros_like(index)), at::where(inside, w, at::zeros_like(w)));
  hist.view(-1).copy_(sums);
}

void count(const at::Tensor& points, const at::Tensor& weight, const at::Tensor& hist,
           const std::vector<at::Tensor>& edges, BinSearch search) {
  std::vector<const char*> edge;
  std::vector<int64_t> bins;
  for (const at::Tensor& e : edges) {
    edge.push_back(bytes(e));
    bins.push_back(e.numel() - 1);
  }
  histogram_kernel({bytes(points), weight.defined() ? bytes(weight) : nullptr, bytes(hist),
                    to_dtype(hist.scalar_type()), points.size(0), points.size(1), edge.data(), bins.data(), search});
}

// The weights of the points, vectors along the last dimension, added up in `hist`.
void accumulate(const at::Tensor& points, const std::optional<at::Tensor>& weight, bool density, at::Tensor& hist,
                at::TensorList edge_list, BinSearch search) {
  const auto type = hist.scalar_type();
  check_native_has(at::isFloatingType(type) && !at::isFloat8Type(type), "histogram_cpu", type);
  if (points.size(-1) == 0) {  // no coordinate, so none of the points is counted
    hist.zero_();
    if (density) hist.div_(hist.sum());
    return;
  }
  const at::Tensor self = points.reshape({-1, points.size(-1)}).contiguous(),
                   counts = at::zeros(hist.sizes(), hist.options());
  std::vector<at::Tensor> edges;
  for (const at::Tensor& e : edge_list) edges.push_back(e.contiguous());
  at::Tensor w;
  if (weight.has_value() && weight->defined()) w = weight->reshape(-1).to(type).contiguous();
  const bool one_type = at::isFloatingType(type) && self.scalar_type() == type &&
                        std::all_of(edges.begin(), edges.end(), [&](const auto& e) { return e.scalar_type() == type; });
  // The kernel adds weights up in any order on a GPU; scatter_add_ keeps its own when asked for.
  const bool ordered = w.defined() && !backend().synchronous() && at::globalContext().deterministicAlgorithms();
  if (one_type && !ordered && static_cast<int64_t>(edges.size()) <= kMostHistogramDims)
    count(self, w, counts, edges, search);
  else
    scatter(self, w, counts, edges, search);
  hist.copy_(counts);
  if (!density) return;
  hist.div_(hist.sum());
  for (size_t d = 0; d < edges.size(); d++) {
    std::vector<int64_t> shape(edges.size(), 1);
    shape[d] = edges[d].numel() - 1;
    hist.div_(edges[d].diff().reshape(shape));
  }
}

void histogramdd(const at::Tensor& self, const std::optional<at::Tensor>& weight, bool density, at::Tensor& hist,
                 const at::TensorList& edges) {
  accumulate(self, weight, density, hist, edges, BinSearch::binary);
}

void histogramdd_linear(const at::Tensor& self, const std::optional<at::Tensor>& weight, bool density, at::Tensor& hist,
                        const at::TensorList& edges, bool local_search) {
  accumulate(self, weight, density, hist, edges, local_search ? BinSearch::nearby : BinSearch::linear);
}

void outer_edges(const at::Tensor& input, const int64_t dims, std::vector<double>& low, std::vector<double>& high) {
  const auto type = input.scalar_type();
  check_native_has(type == at::kFloat || type == at::kDouble, "histogramdd", type);
  const auto [min, max] = at::aminmax(input, 0);
  for (int64_t d = 0; d < dims; d++) {
    low[d] = min[d].item<double>();
    high[d] = max[d].item<double>();
  }
}

at::Tensor& histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max,
                      at::Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), "Expected out tensor to have device ", self.device(), ", but got ",
              out.device(), " instead");
  return at::native::histogram_histc_out(self, bins, min, max, out);
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
  m.impl("histc.out", MT_CHECKED(histc_out));
  m.impl("histogram.bin_ct", MT_CHECKED(static_cast<Pair (*)(const Tensor&, int64_t, Range, Weight, bool)>(histogram)));
  m.impl("histogram.bins_tensor",
         MT_CHECKED(static_cast<Pair (*)(const Tensor&, const Tensor&, Weight, bool)>(histogram)));
  m.impl("histogram.bin_ct_out",
         MT_CHECKED(
             static_cast<PairRef (*)(const Tensor&, int64_t, Range, Weight, bool, Tensor&, Tensor&)>(histogram_out)));
  m.impl("histogram.bins_tensor_out",
         MT_CHECKED(
             static_cast<PairRef (*)(const Tensor&, const Tensor&, Weight, bool, Tensor&, Tensor&)>(histogram_out)));
  m.impl("_histogramdd_bin_edges", MT_CHECKED(at::native::histogramdd_bin_edges));
  m.impl("_histogramdd_from_bin_cts",
         MT_CHECKED(static_cast<Tensor (*)(const Tensor&, at::IntArrayRef, Range, Weight, bool)>(_histogramdd)));
  m.impl("_histogramdd_from_bin_tensors",
         MT_CHECKED(static_cast<Tensor (*)(const Tensor&, List, Weight, bool)>(_histogramdd)));
}
}  // namespace minitorch
