// Launches of the convolutions of convolution_pixels.cuh and convolution_hopper.cu. Tensors that do not lie pixel by
// pixel are brought into this order first.
#include "kernels/cuda/convolution_staging.cuh"

#include "kernels/cuda/convolution_hopper.h"
#include "kernels/cuda/convolution_pixels.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace conv;

// Whether every number on the way to the place of an element along dimension d is less than 2^31.
bool near(const ConvArgs& a, int d) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (std::max({a.stride[d], a.padding[d], a.dilation[d], a.in_size[d], a.out_size[d], a.kernel[d]}) >= kMost)
    return false;
  const int64_t past = a.padding[d] + a.kernel[d] * a.dilation[d];  // beside the positions of either tensor
  return std::max(a.in_size[d], a.out_size[d] * a.stride[d]) + past < kMost;
}

bool fits(const ConvArgs& a) {
  bool flat = a.in_size[0] == 1 && a.out_size[0] == 1 && a.kernel[0] == 1 && a.padding[0] == 0;
  for (int d = 0; d < 3; d++) flat = flat && near(a, d);
  const int64_t inputs = a.in_size[1] * a.in_size[2], outputs = a.out_size[1] * a.out_size[2];
  const int64_t pixels = std::min(inputs, outputs) == 0 ? 0 : a.batch * std::max(inputs, outputs);
  const int64_t taps = a.kernel[1] * a.kernel[2], channels = rounded<BFloat16>(std::max(a.in_channels, a.out_channels));
  // Positions that a gradient divides, and columns of patches, stay below 2^31; tiles of channels below the end of a
  // grid.
  return (is_half(a.dtype) || a.dtype == DType::F32) && a.groups == 1 && flat && pixels > 0 && taps > 0 &&
         a.in_channels > 0 && a.out_channels > 0 && pixels < (int64_t{1} << 31) - kRows &&
         taps * channels < int64_t{1} << 30 && channels < int64_t{1} << 20;
}

Divider divider(int64_t d) { return Divider(static_cast<uint32_t>(d)); }

// Reads `source` (channels, sizes) at the taps of pixels of `grid`.
template <class S>
Gather<S> gather_of(const ConvArgs& a, const S* source, int64_t channels, const int64_t (&source_size)[3],
                    const int64_t (&grid)[3], bool backward) {
  Gather<S> g;
  g.source = source;
  g.height = divider(grid[1]), g.width = divider(grid[2]);
  g.channels = divider(rounded<S>(channels)), g.kernel_width = divider(a.kernel[2]);
  g.divide_y = divider(a.stride[1]), g.divide_x = divider(a.stride[2]);
  g.divides = backward && (a.stride[1] != 1 || a.stride[2] != 1);
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  g.step_y = backward ? 1 : number(a.stride[1]), g.step_x = backward ? 1 : number(a.stride[2]);
  g.start_y = number(backward ? a.padding[1] : -a.padding[1]);
  g.start_x = number(backward ? a.padding[2] : -a.padding[2]);
  g.tap_y = number(backward ? -a.dilation[1] : a.dilation[1]);
  g.tap_x = number(backward ? -a.dilation[2] : a.dilation[2]);
  g.source_height = number(source_size[1]), g.source_width = number(source_size[2]);
  g.pitch = number(rounded<S>(channels));
  return g;
}

template <class S, class Job>
void start(const Job& job, int64_t parts, bool exact) {
  constexpr int bytes = (Job::PanelA::kBytes + Job::PanelB::kBytes) * kStages;
  auto kernel = &conv_kernel<S, Job, false>;
  if constexpr (std::is_same_v<S, float>) {
    if (exact) kernel = &conv_kernel<S, Job, true>;
  }
  const dim3 grid(static_cast<unsigned>(ceil_div(job.m, kRows) * ceil_div(job.n, kColumns)),
                  static_cast<unsigned>(parts));
  launch_kernel(kernel, grid, kThreadCount, bytes, job);
}

// ---- On Hopper's matrix units --------------------------------------------------------------------------------------

// Rounds channels to what Hopper's kernels step by.
template <class S>
int64_t hopper_depth(int64_t channels) {
  return ceil_div(channels, kDepth<S>) * kDepth<S>;
}

// They waste what rounds channels up.
template <class S>
bool for_hopper(const ConvArgs& a, int64_t channels) {
  return (sizeof(S) == 2 || a.tf32) && channels * 2 >= hopper_depth<S>(channels) && conv_hopper_usable();
}

HopperImage dense_image(const void* data, int64_t pitch, const int64_t (&size)[3]) {
  return {data, pitch, {size[1], size[2]}, size[1] * size[2] * pitch, size[2] * pitch, pitch};
}

// Of tensors in the order of pixels; one of them is only described yet.
template <class S>
HopperConvolution hopper_convolution(const ConvArgs& a, const void* input, const void* output) {
  HopperConvolution c{};
  c.dtype = a.dtype;
  c.samples = a.batch;
  c.input = dense_image(input, rounded<S>(a.in_channels), a.in_size);
  c.output = dense_image(output, rounded<S>(a.out_channels), a.out_size);
  for (int d = 0; d < 2; d++) {
    c.kernel[d] = a.kernel[d + 1], c.padding[d] = a.padding[d + 1];
    c.stride[d] = a.stride[d + 1], c.dilation[d] = a.dilation[d + 1];
  }
  return c;
}

// The result of conv_hopper_pixels goes to `to`, from channels on in whole chunks.
template <class S>
bool pixels_on_hopper(const ConvArgs& a, HopperConvolution& c, const WeightArgs& w, bool backward) {
  const ConvTensor& to = backward ? a.input : a.output;
  const auto& to_size = backward ? a.in_size : a.out_size;
  HopperImage& result = backward ? c.input : c.output;
  const bool in_place = is_staged<S>(to, w.rows, to_size[1], to_size[2]);
  const Scratch memory(in_place ? 0 : a.batch * result.sample * static_cast<int64_t>(sizeof(S)));
  result.data = in_place ? to.data : memory.get();
  result.channels = w.rows;
  const bool turned = !StagedWeight<S>::ready(a, w) && StagedWeight<S>::turned(a, w);
  const StagedWeight<S> weight(a, w, turned);
  if (!conv_hopper_pixels(c, backward, weight.data, turned, w.pitch, a.bias, a.bias_stride)) return false;
  if (!in_place)
    stage<word_t<S>, false>(to.data, memory.get(), to, a.batch, w.rows, to_size[1], to_size[2], result.pixel);
  return true;
}

template <class S>
bool pixels_on_hopper(const ConvArgs& a, const S* source, bool backward) {
  WeightArgs w = weight_args<S>(a, backward);
  if (!for_hopper<S>(a, w.columns)) return false;
  w.pitch = hopper_depth<S>(w.columns);
  HopperConvolution c =
      backward ? hopper_convolution<S>(a, nullptr, source) : hopper_convolution<S>(a, source, nullptr);
  return pixels_on_hopper<S>(a, c, w, backward);
}

// A convolution of few channels and stride two as one of 64 channels, those of eight pixels in two rows.
template <class S>
struct Paired {
  Scratch memory;
  HopperConvolution convolution;
  WeightArgs weight;

  static bool serves(const ConvArgs& a) {
    bool serves = (sizeof(S) == 2 || a.tf32) && a.in_channels <= kPairChannels && a.kernel[2] <= kPairWidth &&
                  conv_hopper_usable();
    for (int d = 1; d < 3; d++) serves = serves && a.stride[d] == 2 && a.dilation[d] == 1;
    return serves;
  }
  static int64_t pairs(const ConvArgs& a) { return ceil_div(a.in_size[1], 2); }
  static int64_t width(const ConvArgs& a) { return a.out_size[2] * 2 + kPairWidth - 2; }

  explicit Paired(const ConvArgs& a)
      : memory(a.batch * pairs(a) * width(a) * kPairPixel * static_cast<int64_t>(sizeof(S))) {
    PairArgs<word_t<S>> p;
    p.image = reinterpret_cast<const word_t<S>*>(a.input.data);
    p.to = memory.get<word_t<S>>();
    p.samples = a.batch, p.pairs = pairs(a);
    p.width = static_cast<int>(width(a)), p.left = static_cast<int>(a.padding[2]);
    p.image_height = static_cast<int>(a.in_size[1]), p.image_width = static_cast<int>(a.in_size[2]);
    p.channels = static_cast<int>(a.in_channels);
    p.sample = a.input.strides[0], p.channel = a.input.strides[1], p.y = a.input.strides[3], p.x = a.input.strides[4];
    pair_rows_kernel<<<grid_for(a.batch * pairs(a) * width(a)), kThreads, 0, cuda::current_stream()>>>(p);
    const int64_t lead = a.padding[1] % 2, depth = kPairWidth * kPairPixel, row = width(a) * kPairPixel;
    weight = weight_args<S>(a, false);
    weight.pairs = true, weight.lead = static_cast<int>(lead);
    weight.taps = (lead + a.kernel[1] - 1) / 2 + 1, weight.pitch = depth;
    convolution = hopper_convolution<S>(a, nullptr, nullptr);
    convolution.input = {memory.get(), depth, {pairs(a), a.out_size[2]}, pairs(a) * row, row, kPairPixel * 2};
    const int64_t kernel[2] = {weight.taps, 1}, padding[2] = {(a.padding[1] + lead) / 2, 0};
    for (int d = 0; d < 2; d++) {
      convolution.kernel[d] = kernel[d], convolution.padding[d] = padding[d];
      convolution.stride[d] = convolution.dilation[d] = 1;
    }
  }
};

// Sums of conv_hopper_weights.
template <class S>
bool weights_on_hopper(const ConvArgs& a, const HopperConvolution& c, const WeightArgs& w) {
  const HopperWeightPlan plan = conv_hopper_weight_plan(c, w.pitch);
  const int64_t size = w.taps * w.pitch * plan.channels;
  const Scratch partial(plan.parts * size * 4);
  if (plan.parts == 0 || !conv_hopper_weights(c, w.pitch, plan, partial.get<float>())) return false;
  add_parts<S>(a, w, {partial.get<float>(), plan.parts, size, plan.channels, true});
  return true;
}

HopperImage image_of(const ConvTensor& t, int64_t channels, const int64_t (&size)[3]) {
  return {t.data, channels, {size[1], size[2]}, t.strides[0], t.strides[3], t.strides[4], t.strides[1]};
}

// Of a window of one pixel, which input and output share: floats are turned along the one of fewer channels.
template <class S>
bool exchanged(const ConvArgs& a) {
  return sizeof(S) == 4 && is_pointwise(a) && a.in_channels < a.out_channels && for_hopper<S>(a, a.out_channels);
}

template <class S>
bool weights_on_hopper(const ConvArgs& a) {
  const auto gradient = [&] { return Staged<S>(a.output, a.batch, a.out_channels, a.out_size[1], a.out_size[2]); };
  if (exchanged<S>(a)) {
    const Staged<S> output = gradient();
    HopperConvolution c = hopper_convolution<S>(a, nullptr, nullptr);
    c.input = dense_image(output.data, rounded<S>(a.out_channels), a.out_size);
    c.output = image_of(a.input, a.in_channels, a.in_size);
    WeightArgs w = weight_args<S>(a, true);
    w.pitch = hopper_depth<S>(a.out_channels);
    return weights_on_hopper<S>(a, c, w);
  }
  const bool paired = Paired<S>::serves(a);
  if (!paired && !for_hopper<S>(a, a.in_channels)) return false;
  const auto serve = [&](const HopperImage& output) {
    if (paired) {
      Paired<S> p(a);
      p.convolution.output = output;
      return weights_on_hopper<S>(a, p.convolution, p.weight);
    }
    const Staged<S> input(a.input, a.batch, a.in_channels, a.in_size[1], a.in_size[2]);
    HopperConvolution c = hopper_convolution<S>(a, input.data, nullptr);
    c.output = output;
    WeightArgs w = weight_args<S>(a, false);
    w.pitch = hopper_depth<S>(a.in_channels);
    return weights_on_hopper<S>(a, c, w);
  };
  if constexpr (sizeof(S) == 4) {
    return serve(image_of(a.output, a.out_channels, a.out_size));
  } else {
    const Staged<S> output = gradient();
    return serve(dense_image(output.data, rounded<S>(a.out_channels), a.out_size));
  }
}

// ---- The passes ----------------------------------------------------------------------------------------------------

// Forward: to = output, from = input. Backward: the other way.
template <class S>
void pixels(const ConvArgs& a, bool backward) {
  if (!backward && Paired<S>::serves(a)) {
    Paired<S> paired(a);
    if (pixels_on_hopper<S>(a, paired.convolution, paired.weight, false)) return;
  }
  const ConvTensor &from = backward ? a.output : a.input, &to = backward ? a.input : a.output;
  const auto &from_size = backward ? a.out_size : a.in_size, &to_size = backward ? a.in_size : a.out_size;
  const int64_t from_channels = backward ? a.out_channels : a.in_channels;
  const Staged<S> source(from, a.batch, from_channels, from_size[1], from_size[2]);
  if (pixels_on_hopper(a, source.data, backward)) return;
  const WeightArgs w = weight_args<S>(a, backward);
  const StagedWeight<S> weight(a, w);
  PixelJob<S> job;
  job.gather = gather_of(a, source.data, from_channels, from_size, to_size, backward);
  job.weight = weight.data;
  job.m = a.batch * to_size[1] * to_size[2];
  job.n = w.rows;
  job.k = job.per_part = w.taps * w.pitch;
  PixelStore<S>& out = job.output;
  out.data = reinterpret_cast<S*>(to.data);
  out.sample = to.strides[0], out.channel = to.strides[1], out.y = to.strides[3], out.x = to.strides[4];
  out.width = divider(to_size[2]), out.height = divider(to_size[1]);
  out.channels = job.n;
  out.bias = reinterpret_cast<const S*>(a.bias);
  out.bias_stride = a.bias_stride;
  out.planes = out.x == 1 && out.channel != 1;
  out.pairs = out.channel == 1 && (out.sample | out.y | out.x) % 2 == 0 &&
              reinterpret_cast<uintptr_t>(to.data) % (2 * sizeof(S)) == 0;
  start<S>(job, 1, !a.tf32);
}

// How many parts of k, each a multiple of `depth`, keep `wanted` blocks busy.
struct Parts {
  int64_t count, length;
  Parts(int64_t k, int64_t tiles, int64_t wanted, int64_t depth, int64_t least, int64_t most) {
    count = std::clamp<int64_t>(std::min(wanted / tiles, k / least), 1, most);
    length = ceil_div(ceil_div(k, count), depth) * depth;
    count = ceil_div(k, length);
  }
};

template <class S>
void weight_gradient(const ConvArgs& a) {
  if (weights_on_hopper<S>(a)) return;
  const Staged<S> input(a.input, a.batch, a.in_channels, a.in_size[1], a.in_size[2]);
  const Staged<S> gradient(a.output, a.batch, a.out_channels, a.out_size[1], a.out_size[2]);
  const WeightArgs w = weight_args<S>(a, false);
  WeightJob<S> job;
  job.gather = gather_of(a, input.data, a.in_channels, a.in_size, a.out_size, false);
  job.gradient = gradient.data;
  job.gradient_pitch = rounded<S>(a.out_channels);
  job.m = a.out_channels;
  job.n = w.taps * w.pitch;
  job.k = a.batch * a.out_size[1] * a.out_size[2];
  const int64_t tiles = ceil_div(job.m, kRows) * ceil_div(job.n, kColumns);
  const Parts parts(job.k, tiles, int64_t{cuda::multiprocessors()} * 4, kDepth<S>, kDepth<S> * 4, 256);
  job.per_part = parts.length;
  const Scratch partial(parts.count * job.m * job.n * 4);
  job.partial = partial.get<float>();
  start<S>(job, parts.count, !a.tf32);
  add_parts<S>(a, w, {job.partial, parts.count, job.m * job.n, job.n, false});
}

}  // namespace

bool conv_pixels(ConvPass pass, const ConvArgs& a) {
  if (!fits(a)) return false;
  if (conv_planes(pass, a)) return true;
  dispatch(a.dtype, Types<BFloat16, Half, float>{}, [&](auto tag) {
    using S = typename decltype(tag)::type;
    pass == ConvPass::backward_weight ? weight_gradient<S>(a) : pixels<S>(a, pass == ConvPass::backward_input);
  });
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
