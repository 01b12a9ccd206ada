// Attention on tensor cores; false where the type, the shape or the layout is not for it, the device or the build lacks
// what it takes.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/attention.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// Of 16-bit floats. delta: the sum of grad_out * out of every row.
bool attention_half_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse);
bool attention_half_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta);
// Of floats.
bool attention_split_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse);
bool attention_split_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta);
// Of 16-bit floats, on Hopper's own instructions.
bool attention_hopper_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse);
bool attention_hopper_backward(const AttentionArgs& a, const AttentionGradients& g);

// Whether a type is one of `Types`, rows are whole lines and heads are no wider than tiles are made for.
template <class... S>
bool fits_tiles(const AttentionArgs& a, Types<S...>) {
  return ((a.dtype == dtype_of<S>) || ...) && std::max(a.head_dim, a.value_dim) <= 128 && a.q.column == 1 &&
         a.k.column == 1 && a.v.column == 1 && a.batch * a.heads <= 65535;
}

// Calls f(Tag<storage type>, columns of a head rounded up, whether weights are dropped).
template <class Storage, class F>
void attention_by_shape(const AttentionArgs& a, Storage types, const F& f) {
  const auto with_columns = [&](auto tag, auto columns) {
    a.dropout.p > 0 ? f(tag, columns, std::true_type()) : f(tag, columns, std::false_type());
  };
  dispatch(a.dtype, types, [&](auto tag) {
    std::max(a.head_dim, a.value_dim) <= 64 ? with_columns(tag, std::integral_constant<int, 64>{})
                                            : with_columns(tag, std::integral_constant<int, 128>{});
  });
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
