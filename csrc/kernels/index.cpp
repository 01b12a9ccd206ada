// The indexing kernel objects, and the simplification of an index iteration space.
#include "kernels/index.h"

#include <cstdlib>
#include <utility>

namespace minitorch {

constinit Kernel<void(const IndexArgs&)> index_read_kernel{"index_read"};
constinit Kernel<void(const IndexArgs&, IndexWrite)> index_write_kernel{"index_write"};
constinit Kernel<void(const TensorView&, NonzeroPlan&)> nonzero_plan_kernel{"nonzero_plan"};
constinit Kernel<void(const TensorView&, const NonzeroPlan&, const TensorView&)> nonzero_kernel{"nonzero"};
constinit Kernel<void(const TensorView&, const TensorView&, const NonzeroPlan&, const TensorView&)>
    masked_select_kernel{"masked_select"};
constinit Kernel<void(const TensorView&, const TensorView&, const NonzeroPlan&, const TensorView&)>
    masked_scatter_kernel{"masked_scatter"};
constinit Kernel<void(const PointwiseView&, const Scalar&)> masked_fill_kernel{"masked_fill"};
constinit Kernel<void(const PointwiseView&, const char*)> masked_fill_with_element_kernel{"masked_fill_with_element"};
constinit Kernel<void(const char*, DType, const char*)> expect_nonzero_kernel{"expect_nonzero"};
constinit Kernel<void(const UnfoldBackwardArgs&)> unfold_backward_kernel{"unfold_backward"};

namespace {

// Calls f with the stride array of every operand.
template <class F>
void for_each_operand(IndexArgs& a, F f) {
  f(a.values_strides);
  f(a.self_strides);
  for (int k = 0; k < a.num_indices; k++) f(a.index_strides[k]);
}

// Whether dimension d belongs inside dimension e: by the first operand that moves along both.
bool belongs_inside(IndexArgs& a, int d, int e) {
  int order = 0;
  for_each_operand(a, [&](const int64_t* strides) {
    const int64_t sd = std::abs(strides[d]), se = std::abs(strides[e]);
    if (order == 0 && sd != 0 && se != 0 && sd != se) order = sd < se ? 1 : -1;
  });
  return order > 0;
}

}  // namespace

void simplify(IndexArgs& a) {
  const auto move = [&](int from, int to) {
    a.sizes[to] = a.sizes[from];
    for_each_operand(a, [&](int64_t* strides) { strides[to] = strides[from]; });
  };
  const auto exchange = [&](int d, int e) {
    std::swap(a.sizes[d], a.sizes[e]);
    for_each_operand(a, [&](int64_t* strides) { std::swap(strides[d], strides[e]); });
  };
  int kept = 0;
  for (int d = 0; d < a.ndim; d++)
    if (a.sizes[d] != 1) move(d, kept++);
  for (int d = 1; d < kept; d++)
    for (int e = d; e > 0 && belongs_inside(a, e, e - 1); e--) exchange(e, e - 1);
  int last = 0;
  for (int d = 1; d < kept; d++) {
    bool mergeable = true;
    for_each_operand(
        a, [&](const int64_t* strides) { mergeable = mergeable && strides[d] == strides[last] * a.sizes[last]; });
    if (mergeable) {
      a.sizes[last] *= a.sizes[d];
    } else {
      move(d, ++last);
    }
  }
  if (kept == 0) {
    a.sizes[0] = 1;
    for_each_operand(a, [&](int64_t* strides) { strides[0] = 0; });
  }
  a.ndim = kept == 0 ? 1 : last + 1;
}

}  // namespace minitorch
