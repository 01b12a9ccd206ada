// Convolution on CUDA as implicit matrix products: the three relations of kernels/convolution.h as Problems of
// tile.cuh. Groups are the batch of the product.
#include "kernels/convolution.h"

#include "kernels/cuda/convolution_pixels.h"
#include "kernels/cuda/tile.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// n / d for 0 <= n < 2^31. A larger d goes into no such n, as 2^31 does.
struct Quotient {
  Divider divider;
  Quotient() = default;
  explicit Quotient(int64_t d) : divider(static_cast<uint32_t>(std::clamp<int64_t>(d, 1, int64_t{1} << 31))) {}
  // Returns the quotient and leaves the remainder in n.
  __device__ __forceinline__ int64_t take(uint32_t& n) const {
    const uint32_t q = divider.quotient(n);
    const uint32_t r = n - q * divider.divisor;
    n = q;
    return r;
  }
};

struct Shape {
  ConvArgs c;
  int64_t in_group, out_group;              // channels of a group
  Quotient taps[3], outputs[3], inputs[3];  // depth, height, width
  Quotient in_channels, out_channels;

  explicit Shape(const ConvArgs& args) : c(args) {
    in_group = args.in_channels / args.groups;
    out_group = args.out_channels / args.groups;
    for (int d = 0; d < 3; d++) {
      taps[d] = Quotient(args.kernel[d]);
      outputs[d] = Quotient(args.out_size[d]);
      inputs[d] = Quotient(args.in_size[d]);
    }
    in_channels = Quotient(in_group);
    out_channels = Quotient(out_group);
  }
  int64_t taps_count() const { return c.kernel[0] * c.kernel[1] * c.kernel[2]; }
  int64_t outputs_count() const { return c.out_size[0] * c.out_size[1] * c.out_size[2]; }
  int64_t inputs_count() const { return c.in_size[0] * c.in_size[1] * c.in_size[2]; }
};

__device__ __forceinline__ int64_t address(const ConvTensor& t, int64_t n, int64_t channel, const int64_t (&at)[3]) {
  return n * t.strides[0] + channel * t.strides[1] + at[0] * t.strides[2] + at[1] * t.strides[3] + at[2] * t.strides[4];
}

// Splits a position into depth, height and width; what is left in `rest` is the outer index.
__device__ __forceinline__ void decode(const Quotient (&sizes)[3], uint32_t& rest, int64_t (&at)[3]) {
  at[2] = sizes[2].take(rest);
  at[1] = sizes[1].take(rest);
  at[0] = sizes[0].take(rest);
}

template <class S>
struct Base {
  Shape s;
  int64_t m, n, k, batch;
  bool a_along_k, b_along_k;
  using C = tile::sum_t<S>;

  explicit Base(const ConvArgs& args) : s(args), batch(args.groups) {}
  __device__ __forceinline__ const S& at(const ConvTensor& t, int64_t offset) const {
    return reinterpret_cast<const S*>(t.data)[offset];
  }
  __device__ __forceinline__ C biased(C sum, int64_t channel) const {
    if (s.c.bias != nullptr) sum = sum + convert<C>(reinterpret_cast<const S*>(s.c.bias)[channel * s.c.bias_stride]);
    return sum;
  }
  // The input pixel under tap `tap` of output position `out`; false in the padding.
  __device__ __forceinline__ bool input_of(const int64_t (&out)[3], const int64_t (&tap)[3], int64_t (&in)[3]) const {
    bool inside = true;
#pragma unroll
    for (int d = 0; d < 3; d++) {
      in[d] = out[d] * s.c.stride[d] - s.c.padding[d] + tap[d] * s.c.dilation[d];
      inside = inside && in[d] >= 0 && in[d] < s.c.in_size[d];
    }
    return inside;
  }
};

// i = (sample, output position), k = (input channel, tap), j = output channel.
template <class S>
struct Forward : Base<S> {
  using Base<S>::s;
  using typename Base<S>::C;
  explicit Forward(const ConvArgs& args) : Base<S>(args) {
    this->m = args.batch * s.outputs_count();
    this->n = s.out_group;
    this->k = s.in_group * s.taps_count();
    this->a_along_k = false;
    this->b_along_k = true;
  }
  __device__ __forceinline__ S a(int64_t group, int64_t i, int64_t k) const {
    uint32_t row = static_cast<uint32_t>(i), column = static_cast<uint32_t>(k);
    int64_t out[3], tap[3], in[3];
    decode(s.outputs, row, out);
    decode(s.taps, column, tap);
    if (!this->input_of(out, tap, in)) return S{};
    return this->at(s.c.input, address(s.c.input, row, group * s.in_group + column, in));
  }
  __device__ __forceinline__ S b(int64_t group, int64_t k, int64_t j) const {
    uint32_t row = static_cast<uint32_t>(k);
    int64_t tap[3];
    decode(s.taps, row, tap);
    return this->at(s.c.weight, address(s.c.weight, group * s.out_group + j, row, tap));
  }
  __device__ __forceinline__ void store(int64_t group, int64_t i, int64_t j, C sum) const {
    uint32_t row = static_cast<uint32_t>(i);
    int64_t out[3];
    decode(s.outputs, row, out);
    const int64_t channel = group * s.out_group + j;
    reinterpret_cast<S*>(s.c.output.data)[address(s.c.output, row, channel, out)] =
        convert<S>(this->biased(sum, channel));
  }
};

// i = (sample, input position), k = (output channel, tap), j = input channel.
template <class S>
struct BackwardInput : Base<S> {
  using Base<S>::s;
  using typename Base<S>::C;
  Quotient strides[3];
  explicit BackwardInput(const ConvArgs& args) : Base<S>(args) {
    this->m = args.batch * s.inputs_count();
    this->n = s.in_group;
    this->k = s.out_group * s.taps_count();
    this->a_along_k = false;
    this->b_along_k = true;
    for (int d = 0; d < 3; d++) strides[d] = Quotient(args.stride[d]);
  }
  __device__ __forceinline__ S a(int64_t group, int64_t i, int64_t k) const {
    uint32_t row = static_cast<uint32_t>(i), column = static_cast<uint32_t>(k);
    int64_t in[3], tap[3], out[3];
    decode(s.inputs, row, in);
    decode(s.taps, column, tap);
#pragma unroll
    for (int d = 0; d < 3; d++) {
      const int64_t position = in[d] + s.c.padding[d] - tap[d] * s.c.dilation[d];
      if (position < 0) return S{};
      int64_t rest;
      if (position >> 31 == 0) {
        uint32_t quotient = static_cast<uint32_t>(position);
        rest = strides[d].take(quotient);
        out[d] = quotient;
      } else {  // paddings may be that large
        out[d] = position / s.c.stride[d];
        rest = position - out[d] * s.c.stride[d];
      }
      if (rest != 0 || out[d] >= s.c.out_size[d]) return S{};
    }
    return this->at(s.c.output, address(s.c.output, row, group * s.out_group + column, out));
  }
  __device__ __forceinline__ S b(int64_t group, int64_t k, int64_t j) const {
    uint32_t row = static_cast<uint32_t>(k);
    int64_t tap[3];
    decode(s.taps, row, tap);
    return this->at(s.c.weight, address(s.c.weight, group * s.out_group + row, j, tap));
  }
  __device__ __forceinline__ void store(int64_t group, int64_t i, int64_t j, C sum) const {
    uint32_t row = static_cast<uint32_t>(i);
    int64_t in[3];
    decode(s.inputs, row, in);
    const int64_t channel = group * s.in_group + j;
    reinterpret_cast<S*>(s.c.input.data)[address(s.c.input, row, channel, in)] = convert<S>(this->biased(sum, channel));
  }
};

// i = output channel, k = (sample, output position), j = (input channel, tap).
template <class S>
struct BackwardWeight : Base<S> {
  using Base<S>::s;
  using typename Base<S>::C;
  explicit BackwardWeight(const ConvArgs& args) : Base<S>(args) {
    this->m = s.out_group;
    this->n = s.in_group * s.taps_count();
    this->k = args.batch * s.outputs_count();
    this->a_along_k = true;
    this->b_along_k = true;
  }
  __device__ __forceinline__ S a(int64_t group, int64_t i, int64_t k) const {
    uint32_t row = static_cast<uint32_t>(k);
    int64_t out[3];
    decode(s.outputs, row, out);
    return this->at(s.c.output, address(s.c.output, row, group * s.out_group + i, out));
  }
  __device__ __forceinline__ S b(int64_t group, int64_t k, int64_t j) const {
    uint32_t row = static_cast<uint32_t>(k), column = static_cast<uint32_t>(j);
    int64_t out[3], tap[3], in[3];
    decode(s.outputs, row, out);
    decode(s.taps, column, tap);
    if (!this->input_of(out, tap, in)) return S{};
    return this->at(s.c.input, address(s.c.input, row, group * s.in_group + column, in));
  }
  __device__ __forceinline__ void store(int64_t group, int64_t i, int64_t j, C sum) const {
    uint32_t column = static_cast<uint32_t>(j);
    int64_t tap[3];
    decode(s.taps, column, tap);
    reinterpret_cast<S*>(s.c.weight.data)[address(s.c.weight, group * s.out_group + i, column, tap)] = convert<S>(sum);
  }
};

// Positions of samples and elements of a kernel are numbered in 32 bits.
constexpr int64_t kMostPositions = (int64_t{1} << 31) - 1;

// Of a sample. Where a batch is empty its product may be larger than any integer.
int64_t positions_of(const ConvArgs& a) {
  const auto product = [](const int64_t (&size)[3]) {
    return static_cast<double>(size[0]) * static_cast<double>(size[1]) * static_cast<double>(size[2]);
  };
  return static_cast<int64_t>(std::clamp(std::max(product(a.in_size), product(a.out_size)), 1.0, 0x1p62));
}
void check_size(const ConvArgs& a) {
  const Shape s(a);
  if (a.batch > kMostPositions / positions_of(a) || std::max(s.in_group, s.out_group) * s.taps_count() > kMostPositions)
    throw std::runtime_error(
        "minitorch: convolution over more than 2^31 positions of a plane, or elements of a kernel, is not implemented "
        "on cuda");
}

using ConvTypes = Types<float, double, Half, BFloat16, Complex<float>, Complex<double>>;
using SumTypes = Types<float, double, Half, BFloat16, Complex<float>, Complex<double>, int64_t>;

template <class T>
__global__ void __launch_bounds__(kThreads) add_elements(T* to, const T* from, int64_t n) {
  MT_GRID_LOOP(i, n)
  to[i] = convert<T>(
      tile::multiply_add(tile::sum_t<T>(1), convert<tile::sum_t<T>>(from[i]), convert<tile::sum_t<T>>(to[i])));
}

// Positions of a piece: they leave room for a tile beyond.
constexpr int64_t kMostInPiece = kMostPositions - 255;

// How many positions along d of what the pass goes over make a part of a sample that can be numbered; 0 if one does
// not.
int64_t part_length(ConvPass pass, const ConvArgs& a, int d) {
  const bool by_input = pass == ConvPass::backward_input;
  const int64_t reach = (a.kernel[d] - 1) * a.dilation[d];
  ConvArgs part = a;
  for (int64_t length = by_input ? a.in_size[d] : a.out_size[d];; length = ceil_div(length, 2)) {
    (by_input ? part.in_size : part.out_size)[d] = length;
    if (by_input) {
      part.out_size[d] = std::min(a.out_size[d], (length - 1 + reach) / a.stride[d] + 2);
    } else {
      part.in_size[d] = std::min(a.in_size[d], (length - 1) * a.stride[d] + reach + 1);
    }
    if (positions_of(part) <= kMostInPiece) return length;
    if (length <= 1) return 0;
  }
}

// Calls run(piece) for pieces of the batch of as many samples as can be numbered, or for parts of samples. Gradients of
// a weight, which is dense, are added up.
template <class F>
void in_pieces(ConvPass pass, const ConvArgs& a, const F& run) {
  const int64_t most = kMostInPiece / positions_of(a), size = static_cast<int64_t>(size_of(a.dtype));
  if (a.batch <= most) return run(a);
  const auto& whole = pass == ConvPass::backward_input ? a.in_size : a.out_size;
  const int d = static_cast<int>(std::max_element(whole, whole + 3) - whole);
  const int64_t length = most > 0 ? whole[d] : part_length(pass, a, d), step = std::max<int64_t>(most, 1);
  if (length == 0) return run(a);
  const int64_t elements = a.out_channels * (a.in_channels / a.groups) * a.kernel[0] * a.kernel[1] * a.kernel[2];
  const Scratch memory(pass == ConvPass::backward_weight ? elements * size : 0);
  bool adds = false;
  const auto run_piece = [&](ConvArgs piece) {
    if (adds) piece.weight.data = memory.get();
    run(piece);
    if (adds)
      dispatch(a.dtype, SumTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        add_elements<<<grid_for(elements), kThreads, 0, cuda::current_stream()>>>(reinterpret_cast<T*>(a.weight.data),
                                                                                  memory.get<const T>(), elements);
      });
    adds = pass == ConvPass::backward_weight;
  };
  for (int64_t first = 0; first < a.batch; first += step) {
    ConvArgs piece = a;
    piece.batch = std::min(step, a.batch - first);
    piece.input.data += first * a.input.strides[0] * size;
    piece.output.data += first * a.output.strides[0] * size;
    for (int64_t begin = 0; begin < whole[d]; begin += length)
      run_piece(most > 0 ? piece : part_of(pass, piece, d, begin, std::min(begin + length, whole[d])));
  }
}

template <class S, class P>
void launch_reference(const P& p) {
  if (p.batch * p.m * p.n == 0) return;
  tile::reference_kernel<S><<<grid_for(p.batch * p.m * p.n), kThreads, 0, cuda::current_stream()>>>(p);
}

void reference(int which, const ConvArgs& a) {
  check_size(a);
  if (!dispatch(a.dtype, Types<float, double, Half, BFloat16, int64_t>{}, [&](auto tag) {
        using S = typename decltype(tag)::type;
        if (which == 0) launch_reference<S>(Forward<S>(a));
        if (which == 1) launch_reference<S>(BackwardInput<S>(a));
        if (which == 2) launch_reference<S>(BackwardWeight<S>(a));
      }))
    missing_kernel("conv_reference", name_of(a.dtype));
  cuda::check_launch("launching a reference convolution");
}

// Integers, which no network convolves, take the loops that the tests compare with.
template <template <class> class Problem>
void run(const char* name, ConvPass pass, const ConvArgs& whole) {
  in_pieces(pass, whole, [&](const ConvArgs& a) {
    if (conv_pixels(pass, a)) return;
    check_size(a);
    if (is_integral(a.dtype)) return reference(static_cast<int>(pass), a);
    if (!dispatch(a.dtype, ConvTypes{}, [&](auto tag) {
          using S = typename decltype(tag)::type;
          tile::run<S>(Problem<S>(a));
        }))
      missing_kernel(name, name_of(a.dtype));
  });
  cuda::check_launch("launching a convolution");
}

void forward(const ConvArgs& a) { run<Forward>("conv_forward", ConvPass::forward, a); }
void backward_input(const ConvArgs& a) { run<BackwardInput>("conv_backward_input", ConvPass::backward_input, a); }
void backward_weight(const ConvArgs& a) { run<BackwardWeight>("conv_backward_weight", ConvPass::backward_weight, a); }

MT_REGISTER_KERNEL(conv_forward_kernel, &forward);
MT_REGISTER_KERNEL(conv_backward_input_kernel, &backward_input);
MT_REGISTER_KERNEL(conv_backward_weight_kernel, &backward_weight);
MT_REGISTER_KERNEL(conv_reference_kernel, &reference);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
