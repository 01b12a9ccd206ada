// Convolutions of single pixels over images that lie plane by plane: matrices as they are, one a sample, for 16-bit
// floats and floats rounded to tf32 on Hopper. Floats run across k there and go through registers. The gradient of the
// weight sums over samples, too: its k runs through their planes one after the other, with zeros behind each.
#include "kernels/cuda/convolution_pixels.h"
#include "kernels/cuda/gemm_hopper_plan.cuh"
#include "kernels/cuda/lines.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using namespace products;

template <class S, int Columns>
struct PlaneLoader : LoaderBase {
  CUtensorMap gradient, input;  // [sample][channel][pixel]
  Divider steps;                // of a sample

  struct State {};
  __device__ __forceinline__ State begin(const Unit&) const { return {}; }
  __device__ __forceinline__ void load(uint32_t a, uint32_t b, const Unit& u, State&, int step,
                                       uint32_t barrier) const {
    const auto at = static_cast<uint32_t>(u.begin / kDepth<S>) + step, sample = steps.quotient(at);
    const int pixel = static_cast<int>(at - sample * steps.divisor) * kDepth<S>;
    hopper::copy_box(a, gradient, pixel, static_cast<int>(u.i), static_cast<int>(sample), barrier);
    hopper::copy_box(b, input, pixel, static_cast<int>(u.j), static_cast<int>(sample), barrier);
  }
};

template <class S, int Columns>
bool sum_planes(const ConvArgs& a, const Strided<S>& p, int64_t steps, const Plan& plan) {
  PlaneLoader<S, Columns> loader;
  loader.steps = Divider(static_cast<uint32_t>(steps));
  const int64_t pixels = a.in_size[1] * a.in_size[2];
  const auto map = [&](CUtensorMap* to, const ConvTensor& t, int64_t channels, int lines) {
    return hopper::make_map<3>(to, a.dtype, t.data, {pixels, channels, a.batch}, {t.strides[1], t.strides[0]}, lines,
                               true);
  };
  return map(&loader.gradient, a.output, a.out_channels, kRows) &&
         map(&loader.input, a.input, a.in_channels, Columns) && run<Columns, true, true>(p, loader, plan);
}

MatrixView weight_view(const ConvArgs& a) { return {a.weight.data, a.weight.strides[0], a.weight.strides[1], 0}; }

template <class S>
bool weight_gradient(const ConvArgs& a) {
  const int64_t steps = ceil_div(a.in_size[1] * a.in_size[2], kDepth<S>);
  GemmArgs g;
  g.dtype = a.dtype;
  g.m = a.out_channels, g.n = a.in_channels, g.k = a.batch * steps * kDepth<S>;
  g.c = weight_view(a);
  const Strided<S> p = strided_problem<S>(g);
  const Plan plan = plan_tiles(kMatrixWidths, p.m, p.n, 1, a.batch * steps, 256, false);
  switch (plan.columns) {
    case 64: return sum_planes<S, 64>(a, p, steps, plan);
    case 128: return sum_planes<S, 128>(a, p, steps, plan);
    default: return sum_planes<S, 256>(a, p, steps, plan);
  }
}

// Rows are pixels of a sample's planes, columns channels of the result, k those of the source.
template <int Columns>
struct TurnedLoader : LoaderBase {
  static constexpr bool kPlaces = true, kLeft = true, kTurns = true;
  CUtensorMap source, result;  // [sample][channel][pixel]
  CUtensorMap weight;          // [n][k], in the order of place_of_k

  struct State {};
  __device__ __forceinline__ State begin(const Unit&) const { return {}; }
  __device__ __forceinline__ void load(uint32_t a, uint32_t b, const Unit& u, State&, int step,
                                       uint32_t barrier) const {
    const int k = step * kDepth<float>;
#pragma unroll
    for (int r = 0; r < kRows; r += 32)
      hopper::copy_box(a + r * kLine, source, static_cast<int>(u.i) + r, k, u.batch, barrier);
    hopper::copy_box(b, weight, k, static_cast<int>(u.j), 0, barrier);
  }
  __device__ __forceinline__ void place(int64_t column, int64_t row, int64_t sample, uint32_t box) const {
#pragma unroll
    for (int r = 0; r < 64; r += 32)
      hopper::store_box(result, static_cast<int>(row) + r, static_cast<int>(column), static_cast<int>(sample),
                        box + r * kLine);
  }
};

struct WeightLines {
  const float* data;
  int64_t rows, depth;  // in memory, and of k in whole eights
  int64_t row, column, columns;
  __device__ __forceinline__ int64_t start(int64_t, int64_t k) const {
    const int64_t place = place_of_k(k);
    return place < columns ? place * column : -1;
  }
};

template <int Columns>
bool turned(const ConvTensor& from, const ConvTensor& to, const float* weight, const Strided<float>& p,
            int64_t channels) {
  TurnedLoader<Columns> loader;
  const auto map = [&](CUtensorMap* at, const ConvTensor& t, int64_t count, bool rounds) {
    return hopper::make_map<3>(at, DType::F32, t.data, {p.m, count, p.batch}, {t.strides[1], t.strides[0]}, 32, rounds);
  };
  return map(&loader.source, from, channels, true) && map(&loader.result, to, p.n, false) &&
         hopper::make_map<3>(&loader.weight, DType::F32, weight, {p.k, p.n, 1}, {p.k, p.k * p.n}, Columns, true) &&
         launch<Columns, false, true>(p, loader, {ceil_div(p.m, kRows) * ceil_div(p.n, Columns) * p.batch, 1, p.k});
}

bool turned_pixels(const ConvArgs& a, bool backward) {
  const ConvTensor &from = backward ? a.output : a.input, &to = backward ? a.input : a.output;
  const int64_t channels = backward ? a.out_channels : a.in_channels;
  GemmArgs g;
  g.batch = a.batch, g.m = a.in_size[1] * a.in_size[2], g.n = backward ? a.in_channels : a.out_channels;
  g.k = ceil_div(channels, 8) * 8;
  g.d = {a.bias, 0, a.bias_stride, 0};
  g.alpha = Scalar(1.0), g.beta = Scalar(a.bias == nullptr ? 0.0 : 1.0);
  const Strided<float> p = strided_problem<float>(g);
  const Scratch memory(p.n * p.k * 4);
  const auto& s = a.weight.strides;
  const WeightLines from_weight{
      reinterpret_cast<const float*>(a.weight.data), p.n, p.k, s[backward ? 1 : 0], s[backward ? 0 : 1], channels};
  lines::copy(from_weight, memory.get<float>(), p.k, 0, p.k, 1,
              std::abs(from_weight.row) < std::abs(from_weight.column));
  switch (plan_tiles(kWindowWidths, p.m, p.n, p.batch, ceil_div(p.k, kDepth<float>), 1, false).columns) {
    case 64: return turned<64>(from, to, memory.get<float>(), p, channels);
    case 128: return turned<128>(from, to, memory.get<float>(), p, channels);
    default: return turned<256>(from, to, memory.get<float>(), p, channels);
  }
}

// Rows of planes start at multiples of 16 bytes.
bool in_planes(const ConvArgs& a, const ConvTensor& t) {
  const int64_t unit = 16 / static_cast<int64_t>(size_of(a.dtype));
  return t.strides[4] == 1 && (t.strides[3] == a.in_size[2] || a.in_size[1] == 1) && t.strides[1] > 0 &&
         t.strides[0] > 0 && (t.strides[1] | t.strides[0]) % unit == 0 && reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

}  // namespace

bool conv_planes(ConvPass pass, const ConvArgs& a) {
  const bool single = is_pointwise(a) && a.groups == 1 && (is_half(a.dtype) || (a.dtype == DType::F32 && a.tf32));
  const int64_t pixels = a.in_size[1] * a.in_size[2];
  if (!single || a.in_size[0] != 1 || pixels < 64 || std::min(a.in_channels, a.out_channels) < 32 || !on_hopper() ||
      !in_planes(a, a.input) || !in_planes(a, a.output))
    return false;
  if (pass == ConvPass::backward_weight) {
    bool done = false;
    dispatch(a.dtype, Types<BFloat16, Half, float>{},
             [&](auto tag) { done = weight_gradient<typename decltype(tag)::type>(a); });
    return done;
  }
  const bool backward = pass == ConvPass::backward_input;
  if (a.dtype == DType::F32) return turned_pixels(a, backward);
  const ConvTensor &from = backward ? a.output : a.input, &to = backward ? a.input : a.output;
  GemmArgs g;
  g.dtype = a.dtype;
  g.batch = a.batch, g.m = backward ? a.in_channels : a.out_channels, g.n = pixels;
  g.k = backward ? a.out_channels : a.in_channels;
  g.a = weight_view(a);
  if (backward) std::swap(g.a.row, g.a.col);
  g.b = {from.data, from.strides[1], 1, from.strides[0]};
  g.c = {to.data, to.strides[1], 1, to.strides[0]};
  g.d = {a.bias, a.bias_stride, 0, 0};
  g.alpha = Scalar(1.0), g.beta = Scalar(a.bias == nullptr ? 0.0 : 1.0);
  return gemm_half(g);
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
