// Which method computes a convolution: a plain matrix product for kernels of 1, direct filtering for one channel in a
// group, and the gathering matrix product for the rest, with channels in the lanes where they fill them.
#include "kernels/convolution.h"

#include <cstring>

#include "core/parallel.h"
#include "kernels/cpu/conv_core.h"
#include "kernels/cpu/scratch.h"
#include "kernels/gemm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using ConvTypes = Types<float, double, BFloat16, Half, uint64_t>;

template <class F>
void with_type(const char* name, DType dtype, const F& f) {
  if (!dispatch(gemm::storage_dtype(dtype), ConvTypes{}, f)) missing_kernel(name, name_of(dtype));
}

bool is_product(const ConvArgs& a) {
  return is_pointwise(a) && is_linear(a.in_size, a.input.strides) && is_linear(a.out_size, a.output.strides);
}

// to = weight * from at every position; weight is (rows x depth) within a group.
void pointwise(const ConvArgs& a, const ConvTensor& from, const ConvTensor& to, int64_t rows, int64_t depth,
               int64_t weight_row, int64_t weight_col) {
  const int64_t bytes = static_cast<int64_t>(size_of(a.dtype));
  const int64_t positions = a.in_size[0] * a.in_size[1] * a.in_size[2];
  GemmArgs args;
  args.dtype = a.dtype;
  args.m = rows, args.k = depth;
  args.batch = a.batch, args.n = positions;
  // Images that follow each other at the spacing of positions (channels last) are one long row of positions.
  const auto follows = [&](const ConvTensor& t) { return a.batch == 1 || t.strides[0] == positions * t.strides[4]; };
  const int64_t weight_group = a.out_channels / a.groups * a.weight.strides[0];
  if (follows(from) && follows(to)) args.batch = 1, args.n = positions * a.batch;
  for (int64_t g = 0; g < a.groups; g++) {
    args.a = {a.weight.data + g * weight_group * bytes, weight_row, weight_col, 0};
    args.b = {from.data + g * depth * from.strides[1] * bytes, from.strides[1], from.strides[4], from.strides[0]};
    args.c = {to.data + g * rows * to.strides[1] * bytes, to.strides[1], to.strides[4], to.strides[0]};
    if (a.bias != nullptr) {
      args.d = {a.bias + g * rows * a.bias_stride * bytes, a.bias_stride, 0, 0};
      args.beta = Scalar(int64_t{1});
    }
    gemm_kernel(args);
  }
}

// What is staged reaches from the first position's first tap to the last one's last. Where that is far more than there
// is and is asked for, nearly all of it is padding that nobody meets: the definition, which goes through positions and
// taps only, takes less.
bool is_far(const ConvArgs& a) {
  for (int d = 0; d < 3; d++) {
    const int64_t span = (a.out_size[d] - 1) * a.stride[d] + (a.kernel[d] - 1) * a.dilation[d];
    if (span > 4 * (a.in_size[d] + a.out_size[d] * a.kernel[d]) + (int64_t{1} << 17)) return true;
  }
  return false;
}

bool is_empty(const int64_t* size) { return size[0] == 0 || size[1] == 0 || size[2] == 0; }

template <class S>
void gather_product(const Gather& g) {
  if constexpr (is_floating_v<S>) {
    if (fills_lanes<S>(g)) return gather_direct<S>(g);
  }
  gather_dense<S>(g);
}

template <class S>
void weight_product(const Gather& g) {
  if constexpr (is_floating_v<S> && !std::is_same_v<S, BFloat16>) {  // which weight_dense multiplies in pairs
    if (fills_lanes<S>(g)) return weight_direct<S>(g);
  }
  weight_dense<S>(g);
}

void gather(const char* name, const ConvArgs& a, const Gather& g) {
  if (g.rows == 0 || is_empty(g.count)) return;
  with_type(name, a.dtype, [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (is_depthwise_last(g))
      gather_depthwise_last<S>(g);
    else if (g.depth == 1 && g.rows <= 2)
      gather_depthwise<S>(g);
    else
      gather_product<S>(g);
  });
}

void forward(const ConvArgs& a) {
  if (a.batch == 0) return;
  if (is_far(a)) return conv_reference_kernel(0, a);
  const int64_t rows = a.out_channels / a.groups, depth = a.in_channels / a.groups;
  if (is_product(a) && !(depth == 1 && rows <= 2))
    return pointwise(a, a.input, a.output, rows, depth, a.weight.strides[0], a.weight.strides[1]);
  gather("conv_forward", a, forward_gather(a));
}

// All phases of the width of one phase of planes and rows: each is gathered into rows of its own, which are then woven
// into those of the input. Writing every other element of a row as it comes would take longer.
template <class S>
void gather_woven(const ConvArgs& a, int64_t r0, int64_t r1) {
  const int64_t step = a.stride[2], width = a.in_size[2], pitch = ceil_div(width, step);
  const int64_t first[] = {r0, r1, 0};
  const Gather phase = backward_input_gather(a, first);
  if (is_empty(phase.count)) return;
  const int64_t depths = phase.count[0], heights = phase.count[1], rows = a.batch * a.in_channels * depths * heights;
  const Scratch<S> memory(min64(step, width) * rows * pitch);
  for (int64_t r2 = 0; r2 < min64(step, width); r2++) {
    const int64_t r[] = {r0, r1, r2};
    Gather g = backward_input_gather(a, r);
    g.target.data = reinterpret_cast<char*>(memory.get() + r2 * rows * pitch);
    const int64_t strides[] = {a.in_channels * depths * heights * pitch, depths * heights * pitch, heights * pitch,
                               pitch, 1};
    memcpy(g.target.strides, strides, sizeof(strides));
    gather("conv_backward_input", a, g);
  }
  const S* const from = memory.get();
  const ConvTensor& target = phase.target;
  parallel_for(rows, grain_of(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t h = i % heights, d = i / heights % depths, c = i / heights / depths % a.in_channels;
      S* const to = reinterpret_cast<S*>(target.data) + i / heights / depths / a.in_channels * target.strides[0] +
                    c * target.strides[1] + d * target.strides[2] + h * target.strides[3];
      const S *const even = from + i * pitch, *const odd = even + rows * pitch;
      if (step == 2) {
        for (int64_t x = 0; x < width / 2; x++) to[2 * x] = even[x], to[2 * x + 1] = odd[x];
        if (width % 2 != 0) to[width - 1] = even[width / 2];
      } else {
        for (int64_t r2 = 0; r2 < min64(step, width); r2++)
          for (int64_t x = 0; x * step + r2 < width; x++) to[x * step + r2] = even[r2 * rows * pitch + x];
      }
    }
  });
}

void backward_input(const ConvArgs& a) {
  if (a.batch == 0) return;
  if (is_far(a)) return conv_reference_kernel(1, a);
  const int64_t rows = a.in_channels / a.groups, depth = a.out_channels / a.groups;
  if (is_product(a) && !(depth == 1 && rows <= 2))
    return pointwise(a, a.output, a.input, rows, depth, a.weight.strides[1], a.weight.strides[0]);
  const bool woven = a.stride[2] > 1 && a.input.strides[4] == 1;
  const auto phases = [&](int d) { return min64(a.stride[d], a.in_size[d]); };
  int64_t r[3];
  for (r[0] = 0; r[0] < phases(0); r[0]++)
    for (r[1] = 0; r[1] < phases(1); r[1]++)
      if (woven)
        with_type("conv_backward_input", a.dtype,
                  [&](auto tag) { gather_woven<typename decltype(tag)::type>(a, r[0], r[1]); });
      else
        for (r[2] = 0; r[2] < phases(2); r[2]++) gather("conv_backward_input", a, backward_input_gather(a, r));
}

void backward_weight(const ConvArgs& a) {
  if (a.batch > 0 && is_far(a)) return conv_reference_kernel(2, a);
  const Gather g = forward_gather(a);
  if (g.rows == 0 || g.depth == 0 || is_empty(a.kernel)) return;
  with_type("conv_backward_weight", a.dtype, [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (a.batch == 0 || is_empty(a.out_size)) {
      Array<int64_t> offset;
      for (int64_t k = 0; k < g.depth * a.kernel[0] * a.kernel[1] * a.kernel[2]; k++) offset.push_back(0);
      make_weight_offsets(g, offset.begin());
      for (int64_t r = 0; r < a.out_channels; r++)
        for (int64_t k : offset) reinterpret_cast<S*>(a.weight.data)[r * g.weight_row + k] = S(0);
    } else if (is_depthwise_last(g)) {
      weight_depthwise_last<S>(g);
    } else if (g.depth == 1 && g.rows <= 2) {
      weight_depthwise<S>(g);
    } else {
      weight_product<S>(g);
    }
  });
}

}  // namespace
}  // namespace conv

namespace {
MT_REGISTER_KERNEL(conv_forward_kernel, &conv::forward);
MT_REGISTER_KERNEL(conv_backward_input_kernel, &conv::backward_input);
MT_REGISTER_KERNEL(conv_backward_weight_kernel, &conv::backward_weight);
}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
