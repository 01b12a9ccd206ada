// Convolutions. PyTorch's own `convolution` checks shapes and composes padding modes, complex numbers and double
// backward; it calls these two operators for devices other than its own.
#include <ATen/Context.h>
#include <ATen/native/ConvUtils.h>

#include <algorithm>
#include <sstream>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/convolution.h"

namespace minitorch {
namespace {

struct Geometry {
  at::IntArrayRef stride, padding, dilation;
  int64_t groups;
};

void check_types(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  check_same_device({&input, &weight, &bias});
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "Input type (", input.toString(), ") and weight type (",
              weight.toString(), ") should be the same");
  TORCH_CHECK(!bias.defined() || bias.scalar_type() == input.scalar_type(), "Input type (", input.dtype(),
              ") and bias type (", bias.dtype(), ") should be the same");
}

std::string in_words(at::IntArrayRef sizes) {
  std::ostringstream words;
  words << '(' << sizes[0];
  for (const int64_t size : sizes.slice(1)) words << " x " << size;
  words << ')';
  return words.str();
}

bool all_are(at::IntArrayRef values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [value](int64_t v) { return v == value; });
}

// The kernel that native would have taken, for the text.
const char* native_kernel(const at::Tensor& weight, const Geometry& g, bool transposed) {
  const bool volume = weight.dim() == 5;
  if (transposed) return volume ? "slow_conv_transpose3d_out_cpu" : "slow_conv_transpose2d_out_cpu";
  if (!all_are(g.dilation, 1)) return "slow_conv_dilated<>";
  if (!volume) return "slow_conv2d_cpu";
  const bool points =
      g.groups == 1 && all_are(weight.sizes().slice(2), 1) && all_are(g.stride, 1) && all_are(g.padding, 0);
  return points ? "slow_conv3d_cpu" : "compute_columns3d";
}

void check_kernel(const at::Tensor& weight, const Geometry& geometry, bool transposed) {
  const auto type = weight.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED((at::isFloatingType(type) && !at::isFloat8Type(type)) || type == at::kLong, '"',
                              native_kernel(weight, geometry, transposed), "\" not implemented for '", type, "'");
}

// The integers that native convolves besides int64, without dilation. What wraps around in 64 bits and is cut is what
// wraps around in fewer.
bool is_short_integer(at::ScalarType type) {
  return type == at::kByte || type == at::kChar || type == at::kShort || type == at::kInt;
}

// Whether native would compute in three dimensions through oneDNN, which alone keeps channels last there. A single
// sample in single precision is left to it when it is large, grouped or has a large kernel. Native also asks for more
// than one thread when the kernel is 1x1; here the answer is that of several threads, so that strides do not depend on
// the setting.
bool uses_channels_last_3d(const at::Tensor& input, const at::Tensor& weight, int64_t groups) {
  const auto type = input.scalar_type();
  if (type == at::kDouble || type == at::kLong) return false;
  if (type != at::kFloat) return true;
  return groups > 1 || (weight.size(-1) > 3 && weight.size(-2) > 3) || input.size(0) > 1 ||
         input.size(0) * input.size(1) * input.size(2) * input.size(3) > 20480;
}

// Native's rule: channels last if either operand is.
at::MemoryFormat output_format(const at::Tensor& input, const at::Tensor& weight, int64_t groups) {
  const auto format = input.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  const bool possible = input.dim() == 4 || (input.dim() == 5 && uses_channels_last_3d(input, weight, groups));
  return possible && (input.suggest_memory_format() == format || weight.suggest_memory_format() == format)
             ? format
             : at::MemoryFormat::Contiguous;
}

// A depthwise convolution has too little work to a number for its kernels to read two layouts well.
bool is_depthwise(const at::Tensor& weight, int64_t groups) { return weight.size(0) == groups && weight.size(1) == 1; }

// Fills the last spatial dimensions of an array of three; the leading ones keep their value.
template <class Values>
void fill(int64_t (&to)[3], const Values& from) {
  const int64_t n = static_cast<int64_t>(from.size());
  for (int64_t d = 0; d < n; d++) to[3 - n + d] = from[d];
}

ConvTensor conv_tensor(const at::Tensor& t) {
  ConvTensor view;
  view.data = static_cast<char*>(const_cast<void*>(t.const_data_ptr()));
  const int64_t spatial = t.dim() - 2;
  view.strides[0] = t.stride(0);
  view.strides[1] = t.stride(1);
  for (int64_t d = 0; d < spatial; d++) view.strides[5 - spatial + d] = t.stride(2 + d);
  return view;
}

// The relation of kernels/convolution.h between a direct convolution's input and output. `bias` is added to the tensor
// that the kernel writes.
ConvArgs relation(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& output, const at::Tensor& bias,
                  const Geometry& geometry) {
  ConvArgs args;
  args.dtype = to_dtype(input.scalar_type());
  args.batch = input.size(0);
  args.groups = geometry.groups;
  args.in_channels = input.size(1);
  args.out_channels = output.size(1);
  fill(args.in_size, input.sizes().slice(2));
  fill(args.out_size, output.sizes().slice(2));
  fill(args.kernel, weight.sizes().slice(2));
  fill(args.stride, geometry.stride);
  fill(args.padding, geometry.padding);
  fill(args.dilation, geometry.dilation);
  args.input = conv_tensor(input);
  args.weight = conv_tensor(weight);
  args.output = conv_tensor(output);
  if (bias.defined()) {
    args.bias = static_cast<char*>(const_cast<void*>(bias.const_data_ptr()));
    args.bias_stride = bias.stride(0);
  }
  args.tf32 = args.dtype == DType::F32 && at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
  return args;
}

// PyTorch's `convolution` has checked its arguments; a call by an operator's own name may bring others. The
// channels are those of the operator's own input.
void check_geometry(const at::Tensor& input, const at::Tensor& weight, const Geometry& g, bool transposed) {
  const int64_t spatial = weight.dim() - 2;
  const auto fits = [&](at::IntArrayRef values, int64_t least, int64_t most) {
    return static_cast<int64_t>(values.size()) == spatial &&
           std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= least && v <= most; });
  };
  // With these bounds no number on the way to an element's place overflows.
  constexpr int64_t kMost = int64_t{1} << 40;
  TORCH_CHECK(spatial >= 1 && spatial <= 3 && input.dim() == weight.dim(), "Expected an input and a weight of 3 to 5 ",
              "dimensions, but got ", input.dim(), " and ", weight.dim());
  TORCH_CHECK(fits(g.stride, 1, kMost) && fits(g.padding, 0, kMost) && fits(g.dilation, 1, kMost), "Expected ", spatial,
              " positive strides and dilations and ", spatial, " paddings, but got stride ", g.stride, ", dilation ",
              g.dilation, " and padding ", g.padding);
  for (int64_t d = 0; d < spatial; d++)
    TORCH_CHECK(g.dilation[d] <= kMost / std::max<int64_t>(weight.size(2 + d), 1),
                "Expected a dilated kernel of at most 2^40 elements, but got dilation ", g.dilation);
  const int64_t channels = input.size(1), rows = weight.size(0);
  TORCH_CHECK(
      g.groups > 0 && rows % g.groups == 0 && (transposed ? channels == rows : channels == weight.size(1) * g.groups),
      "Given groups=", g.groups, ", weight of size ", weight.sizes(), ", expected input", input.sizes(), " to have ",
      transposed ? rows : weight.size(1) * g.groups, " channels, but got ", channels, " channels instead");
}

// Native's check, whose text names only the last dimensions that there are.
void check_output_padding(at::IntArrayRef output_padding, const Geometry& geometry) {
  const size_t n = output_padding.size();
  bool small = true;
  for (size_t d = 0; d < n; d++)
    small = small && (output_padding[d] < geometry.stride[d] || output_padding[d] < geometry.dilation[d]);
  if (small) return;
  // One spatial dimension is computed as two, in the texts too.
  static constexpr const char* kNames[] = {"depth", "height", "width"};
  std::ostringstream text;
  const auto list = [&](const char* what, at::IntArrayRef values, int64_t missing) {
    for (size_t d = n == 3 ? 0 : 1; d < 3; d++)
      text << ' ' << what << '_' << kNames[d] << ": " << (d + n < 3 ? missing : values[d + n - 3]);
  };
  list("output_padding", output_padding, 0);
  list("stride", geometry.stride, 1);
  list("dilation", geometry.dilation, 1);
  TORCH_CHECK(false, "output padding must be smaller than either stride or dilation, but got", text.str());
}

at::Tensor convolution(const at::Tensor& given, const at::Tensor& weight, const std::optional<at::Tensor>& bias_opt,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  const at::Tensor bias = bias_opt.value_or(at::Tensor());
  check_types(given, weight, bias);
  if (is_short_integer(given.scalar_type()) && !transposed && all_are(dilation, 1)) {
    const auto wide = [](const at::Tensor& t) { return t.defined() ? t.to(at::kLong) : t; };
    return minitorch::convolution(wide(given), wide(weight), wide(bias), stride, padding, dilation, transposed,
                                  output_padding, groups)
        .to(given.scalar_type());
  }
  const Geometry geometry{stride, padding, dilation, groups};
  check_kernel(weight, geometry, transposed);
  for (int64_t d : dilation) TORCH_CHECK(d > 0, "non-positive dilation is not supported");
  check_geometry(given, weight, geometry, transposed);
  const auto format = output_format(given, weight, groups);
  const at::Tensor input = is_depthwise(weight, groups) ? given.contiguous(format) : given;
  const int64_t out_channels = transposed ? weight.size(1) * groups : weight.size(0);
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == out_channels), "Given weight of size ",
              weight.sizes(), ", expected bias to be 1-dimensional with ", out_channels,
              " elements, but got bias of size ", bias.sizes(), " instead");
  if (transposed) check_output_padding(output_padding, geometry);
  const auto sizes = transposed
                         ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride,
                                                       dilation, groups)
                         : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  for (int64_t size : sizes)
    TORCH_CHECK(size >= 0, "Given input size per channel: ", in_words(input.sizes().slice(2)),
                ". Calculated output size per channel: ", in_words(at::IntArrayRef(sizes).slice(2)),
                ". Output size is too small");
  const at::Tensor output = empty(sizes, input.scalar_type(), format);
  if (transposed) {
    conv_backward_input_kernel(relation(output, weight, input, bias, geometry));
  } else {
    conv_forward_kernel(relation(input, weight, output, bias, geometry));
  }
  return output;
}

// The gradient with respect to the bias is left undefined: PyTorch then sums grad_output.
std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& gradient, const at::Tensor& given,
                                                                    const at::Tensor& weight, at::IntArrayRef stride,
                                                                    at::IntArrayRef padding, at::IntArrayRef dilation,
                                                                    bool transposed, at::IntArrayRef /*output_padding*/,
                                                                    int64_t groups, std::array<bool, 3> output_mask) {
  check_types(given, weight, gradient);
  const Geometry geometry{stride, padding, dilation, groups};
  check_kernel(weight, geometry, transposed);
  check_geometry(given, weight, geometry, transposed);
  const bool depthwise = is_depthwise(weight, groups) && gradient.dim() == given.dim();
  const auto format = output_format(given, weight, groups);
  const at::Tensor grad_output = depthwise ? gradient.contiguous(format) : gradient;
  const at::Tensor input = depthwise ? given.contiguous(format) : given;
  // The larger side of the relation gives the size of the other.
  const at::Tensor &from = transposed ? grad_output : input, &to = transposed ? input : grad_output;
  const bool fits = from.dim() == weight.dim() && to.dim() == weight.dim() && from.size(0) == to.size(0) &&
                    from.size(1) == weight.size(1) * groups && to.size(1) == weight.size(0);
  // A transposed convolution may end before the last whole window of its result: output_padding is less than the larger
  // of stride and dilation.
  const auto windows = fits ? at::native::conv_output_size(from.sizes(), weight.sizes(), padding, stride, dilation)
                            : std::vector<int64_t>();
  TORCH_CHECK(fits && std::equal(windows.begin(), windows.end(), to.sizes().begin(),
                                 [=](int64_t most, int64_t size) { return transposed ? size <= most : size == most; }),
              "Expected a gradient that fits an input of size ", input.sizes(), " and a weight of size ",
              weight.sizes(), ", but got ", grad_output.sizes());
  at::Tensor grad_input, grad_weight;
  if (output_mask[0]) {
    grad_input = empty(input.sizes(), input.scalar_type(), format);
    if (transposed) {
      conv_forward_kernel(relation(grad_output, weight, grad_input, {}, geometry));
    } else {
      conv_backward_input_kernel(relation(grad_input, weight, grad_output, {}, geometry));
    }
  }
  if (output_mask[1]) {
    grad_weight = empty(weight.sizes(), weight.scalar_type(), format);
    conv_backward_weight_kernel(transposed ? relation(grad_output, grad_weight, input, {}, geometry)
                                           : relation(input, grad_weight, grad_output, {}, geometry));
  }
  return {grad_input, grad_weight, at::Tensor()};
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", MT_CHECKED(convolution));
  m.impl("convolution_backward_overrideable", MT_CHECKED(convolution_backward));
}

}  // namespace
}  // namespace minitorch
