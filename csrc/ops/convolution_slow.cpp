// Native's im2col convolutions under their own names. PyTorch's `convolution` never chooses them for this device; code
// that calls them by name, such as `torch._C._nn.thnn_conv2d`, gets the same relation from our convolution.
#include <ATen/ATen.h>
#include <ATen/ops/slow_conv_transpose2d_meta.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Geometry {
  IntArrayRef stride, padding, dilation = 1, output_padding = 0;
  bool transposed = false;
};

// The weight with its kernel's dimensions, which these operators take as one as well.
Tensor unfolded(const Tensor& weight, IntArrayRef kernel_size) {
  for (const int64_t k : kernel_size)
    TORCH_CHECK(k > 0, "kernel size should be greater than zero, but got kernel_size: ", kernel_size);
  if (weight.dim() == 2) {
    std::vector<int64_t> sizes{weight.size(0), weight.size(1) / c10::multiply_integers(kernel_size)};
    sizes.insert(sizes.end(), kernel_size.begin(), kernel_size.end());
    return weight.view(sizes);
  }
  TORCH_CHECK(weight.dim() == static_cast<int64_t>(kernel_size.size()) + 2 && weight.sizes().slice(2) == kernel_size,
              "Expected a weight with kernels of size ", kernel_size, ", but got one of shape ", weight.sizes());
  return weight;
}

Tensor convolve(const Tensor& self, const Tensor& weight_in, IntArrayRef kernel_size, const OptionalTensor& bias,
                const Geometry& g) {
  // Native's convolution of a CPU tensor would come here again and again for a weight of ours.
  check_same_device({&self, &weight_in, bias ? &*bias : nullptr});
  const Tensor weight = unfolded(weight_in, kernel_size);
  const bool unbatched = self.dim() == weight.dim() - 1;
  const Tensor result = at::convolution(unbatched ? self.unsqueeze(0) : self, weight, bias, g.stride, g.padding,
                                        g.dilation, g.transposed, g.output_padding, /*groups=*/1);
  return unbatched ? result.squeeze(0) : result;
}

Tensor& put(const Tensor& result, Tensor& out) {
  check_same_device({&result, &out});
  return resize_and_copy(result, out);
}

// slow_conv2d and slow_conv3d.
Tensor forward(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size, const OptionalTensor& bias,
               IntArrayRef stride, IntArrayRef padding) {
  const std::vector<int64_t> ones(kernel_size.size(), 1), zeros(kernel_size.size(), 0);
  return convolve(self, weight, kernel_size, bias, {stride, padding, ones, zeros});
}
Tensor& forward_out(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size, const OptionalTensor& bias,
                    IntArrayRef stride, IntArrayRef padding, Tensor& output) {
  return put(forward(self, weight, kernel_size, bias, stride, padding), output);
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;
Gradients backward(const Tensor& grad_output, const Tensor& self, const Tensor& weight, IntArrayRef kernel_size,
                   IntArrayRef stride, IntArrayRef padding, std::array<bool, 3> mask) {
  check_same_device({&grad_output, &self, &weight});
  const std::vector<int64_t> ones(kernel_size.size(), 1), zeros(kernel_size.size(), 0);
  Gradients grads = at::convolution_backward(grad_output, self, unfolded(weight, kernel_size), grad_output.size(1),
                                             stride, padding, ones, /*transposed=*/false, zeros, /*groups=*/1, mask);
  Tensor& dw = std::get<1>(grads);
  if (dw.defined()) dw = dw.view(weight.sizes());
  return grads;
}
std::tuple<Tensor&, Tensor&, Tensor&> backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& weight,
                                                   IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                                                   Tensor& dx, Tensor& dw, Tensor& db) {
  const std::array<bool, 3> mask{dx.defined(), dw.defined(), db.defined()};
  const auto [x, w, b] = backward(grad_output, self, weight, kernel_size, stride, padding, mask);
  if (mask[0]) put(x, dx);
  if (mask[1]) put(w, dw);
  if (mask[2]) put(b, db);
  return {dx, dw, db};
}

Tensor dilated(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size, const OptionalTensor& bias,
               IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation) {
  const std::vector<int64_t> zeros(kernel_size.size(), 0);
  return convolve(self, weight, kernel_size, bias, {stride, padding, dilation, zeros});
}

struct Transposed2d : at::meta::structured_slow_conv_transpose2d {
  void impl(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size, at::OptionalTensorRef bias,
            IntArrayRef stride, IntArrayRef padding, IntArrayRef output_padding, IntArrayRef dilation,
            const Tensor& out) {
    const OptionalTensor added = bias.has_value() ? OptionalTensor(*bias) : std::nullopt;
    out.copy_(convolve(self, weight, kernel_size, added, {stride, padding, dilation, output_padding, true}));
  }
};

Tensor transposed3d(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size, const OptionalTensor& bias,
                    IntArrayRef stride, IntArrayRef padding, IntArrayRef output_padding, IntArrayRef dilation) {
  return convolve(self, weight, kernel_size, bias, {stride, padding, dilation, output_padding, true});
}
Tensor& transposed3d_out(const Tensor& self, const Tensor& weight, IntArrayRef kernel_size, const OptionalTensor& bias,
                         IntArrayRef stride, IntArrayRef padding, IntArrayRef output_padding, IntArrayRef dilation,
                         Tensor& out) {
  return put(transposed3d(self, weight, kernel_size, bias, stride, padding, output_padding, dilation), out);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_slow_conv2d_forward", MT_CHECKED(forward));
  m.impl("_slow_conv2d_forward.output", MT_CHECKED(forward_out));
  m.impl("_slow_conv2d_backward.output_mask", MT_CHECKED(backward));
  m.impl("_slow_conv2d_backward.grad_input", MT_CHECKED(backward_out));
  m.impl("slow_conv3d_forward", MT_CHECKED(forward));
  m.impl("slow_conv3d_forward.output", MT_CHECKED(forward_out));
  m.impl("slow_conv_dilated2d", MT_CHECKED(dilated));
  m.impl("slow_conv_dilated3d", MT_CHECKED(dilated));
  structured<Transposed2d>(m, nullptr, nullptr, "slow_conv_transpose2d.out");
  m.impl("slow_conv_transpose3d", MT_CHECKED(transposed3d));
  m.impl("slow_conv_transpose3d.out", MT_CHECKED(transposed3d_out));
}

}  // namespace
}  // namespace minitorch
