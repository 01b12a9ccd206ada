// Attention of 16-bit floats on tensor cores; false where the shape or the layout is not for it.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/attention.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

bool attention_half_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse);
// The same on Hopper's own instructions; false also where the device or the build lacks them.
bool attention_hopper_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse);
bool attention_hopper_backward(const AttentionArgs& a, const AttentionGradients& g);
// delta: the sum of grad_out * out of every row.
bool attention_half_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta);

// Calls f(Tag<storage type>, columns of a head rounded up, whether weights are dropped).
template <class F>
void half_by_shape(const AttentionArgs& a, const F& f) {
  const auto with_columns = [&](auto tag, auto columns) {
    a.dropout.p > 0 ? f(tag, columns, std::true_type()) : f(tag, columns, std::false_type());
  };
  dispatch(a.dtype, Types<BFloat16, Half>{}, [&](auto tag) {
    std::max(a.head_dim, a.value_dim) <= 64 ? with_columns(tag, std::integral_constant<int, 64>{})
                                            : with_columns(tag, std::integral_constant<int, 128>{});
  });
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
