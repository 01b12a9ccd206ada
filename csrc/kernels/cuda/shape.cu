// Rearranging elements on CUDA.
#include "kernels/shape.h"

#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// ---- Concatenation -------------------------------------------------------------------------------------------------

constexpr int kCatInputs = 64;  // inputs of a launch

struct CatPiece {
  const char* data;
  int64_t row_units, row_stride;  // in units
  int64_t out_offset;             // units from the start of an output row
};
struct CatPieces {
  CatPiece piece[kCatInputs];
  int64_t rows, out_stride;
  char* out;
};

// Grid: blocks along the elements of an input, inputs along y. U is the unit that bytes move in.
template <class U>
__global__ void __launch_bounds__(kThreads) cat_rows(const __grid_constant__ CatPieces a) {
  const CatPiece& piece = a.piece[blockIdx.y];
  const U* from = reinterpret_cast<const U*>(piece.data);
  U* to = reinterpret_cast<U*>(a.out) + piece.out_offset;
  MT_GRID_LOOP(i, a.rows * piece.row_units) {
    const int64_t row = i / piece.row_units, at = i - row * piece.row_units;
    to[row * a.out_stride + at] = from[row * piece.row_stride + at];
  }
}

void cat(const CatArgs& a) {
  if (a.rows == 0) return;
  // The widest unit that divides everything.
  uintptr_t bits = reinterpret_cast<uintptr_t>(a.out) | static_cast<uintptr_t>(a.out_row_stride);
  int64_t most = 0;
  for (int64_t k = 0; k < a.count; k++) {
    const CatInput& in = a.inputs[k];
    bits |= reinterpret_cast<uintptr_t>(in.data) | static_cast<uintptr_t>(in.row_bytes | in.row_stride);
    most = std::max(most, in.row_bytes);
  }
  int64_t unit = 16;
  while (bits % static_cast<uintptr_t>(unit) != 0) unit /= 2;
  int64_t offset = 0;
  for (int64_t first = 0; first < a.count; first += kCatInputs) {
    CatPieces p;
    p.rows = a.rows;
    p.out_stride = a.out_row_stride / unit;
    p.out = a.out;
    const int64_t count = std::min<int64_t>(kCatInputs, a.count - first);
    for (int64_t k = 0; k < count; k++) {
      const CatInput& in = a.inputs[first + k];
      p.piece[k] = {in.data, in.row_bytes / unit, in.row_stride / unit, offset};
      offset += in.row_bytes / unit;
    }
    const int64_t blocks = std::clamp<int64_t>(ceil_div(a.rows * (most / unit), kThreads), 1,
                                               std::max<int64_t>(cuda::multiprocessors() * 32 / count, 1));
    by_size(static_cast<size_t>(unit), [&](auto tag) {
      cat_rows<typename decltype(tag)::type>
          <<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(count)), kThreads, 0, cuda::current_stream()>>>(
              p);
    });
  }
  cuda::check_launch("launching a concatenation");
}

// ---- Triangles -----------------------------------------------------------------------------------------------------

struct TriangleSpace {
  Joint<2> space;
  int64_t rows, columns, k;
  bool upper;
  const char* in;
  char* out;
};

template <class T>
__global__ void __launch_bounds__(kThreads) triangle_elements(const __grid_constant__ TriangleSpace a) {
  MT_GRID_LOOP(i, a.space.numel) {
    int64_t offset[2];
    a.space.offsets(i, offset);
    const int64_t column = i % a.columns, row = i / a.columns % a.rows;
    const bool kept = a.upper ? column - row >= a.k : column - row <= a.k;
    reinterpret_cast<T*>(a.out)[offset[1]] = kept ? reinterpret_cast<const T*>(a.in)[offset[0]] : T{};
  }
}

void triangle(const TriangleArgs& t) {
  if (t.in.numel == 0) return;
  const TriangleSpace a{Joint<2>(t.in.ndim, t.in.sizes, {t.in.strides, t.out.strides}),
                        t.in.sizes[t.in.ndim - 2],
                        t.in.sizes[t.in.ndim - 1],
                        t.k,
                        t.upper,
                        t.in.data,
                        t.out.data};
  by_size(size_of(t.in.dtype), [&](auto tag) {
    triangle_elements<typename decltype(tag)::type><<<grid_for(t.in.numel), kThreads, 0, cuda::current_stream()>>>(a);
  });
  cuda::check_launch("launching a triangle");
}

__global__ void __launch_bounds__(kThreads)
    triangle_index(const __grid_constant__ TriangleElements elements, int64_t* out, int64_t count) {
  MT_GRID_LOOP(i, count) {
    const auto [row, column] = elements[i];
    out[i] = row;
    out[count + i] = column;
  }
}

void triangle_indices(const TriangleIndexArgs& a) {
  triangle_index<<<grid_for(a.count), kThreads, 0, cuda::current_stream()>>>(
      TriangleElements(a), reinterpret_cast<int64_t*>(a.out), a.count);
  cuda::check_launch("launching triangle indices");
}

struct RepeatFaults {  // texts that the host reads
  cuda::Fault* record = cuda::fault_record();
  const char* size = "allocated size does not match required size";
  const char* negative = "repeats can not be negative";
};

// A warp a run.
template <class T>
__global__ void __launch_bounds__(kThreads)
    repeat_runs(const T* repeats, const int64_t* ends, T* out, int64_t count, int64_t total, RepeatFaults faults) {
  const int64_t warps = int64_t{gridDim.x} * (kThreads / 32);
  if (ends[count - 1] != total) {
    if (blockIdx.x == 0 && threadIdx.x == 0) cuda::report_fault(faults.record, faults.size);
    return;
  }
  for (int64_t i = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32; i < count; i += warps) {
    if (repeats[i] < 0 && threadIdx.x % 32 == 0) cuda::report_fault(faults.record, faults.negative);
    const int64_t end = min(ends[i], total);
    for (int64_t at = max(ends[i] - repeats[i], int64_t{0}) + threadIdx.x % 32; at < end; at += 32)
      out[at] = static_cast<T>(i);
  }
}

void repeat_interleave(const RepeatArgs& a) {
  if (a.count == 0) return;
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    repeat_runs<<<grid_for(a.count * 32), kThreads, 0, cuda::current_stream()>>>(
        static_cast<const T*>(a.repeats), a.ends, static_cast<T*>(a.out), a.count, a.total, RepeatFaults());
  };
  if (!dispatch(a.dtype, Types<int32_t, int64_t>{}, run)) missing_kernel("repeat_interleave", name_of(a.dtype));
  cuda::check_launch("launching repeat_interleave");
}

// ---- Padding -------------------------------------------------------------------------------------------------------

// The input position that output position `at` of a dimension shows.
__device__ __forceinline__ int64_t source_of(const PadArgs& a, int d, int64_t at) {
  const int64_t size = a.in_sizes[d], shifted = at - a.before[d - 2];
  if (!a.reflect) return min(max(shifted, int64_t{0}), size - 1);
  const int64_t folded = shifted < 0 ? -shifted : shifted;
  return folded < size ? folded : 2 * (size - 1) - folded;
}

__device__ __forceinline__ void pad_offsets(const PadArgs& a, int64_t i, int64_t& in, int64_t& out) {
  in = out = 0;
#pragma unroll
  for (int d = 4; d >= 0; d--) {
    const int64_t at = i % a.out_sizes[d];
    i /= a.out_sizes[d];
    out += at * a.out_strides[d];
    in += (d >= 2 ? source_of(a, d, at) : at) * a.in_strides[d];
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) pad_elements(const __grid_constant__ PadArgs a, int64_t numel) {
  MT_GRID_LOOP(i, numel) {
    int64_t in, out;
    pad_offsets(a, i, in, out);
    reinterpret_cast<T*>(a.out)[out] = reinterpret_cast<const T*>(a.in)[in];
  }
}
// The output positions of a dimension that show input position x, in order.
struct Shown {
  int64_t count = 0;
  int64_t at[3];  // with reflection; with replication at[0] is the first of `count` neighbours
  __device__ __forceinline__ int64_t operator()(bool reflect, int64_t k) const { return reflect ? at[k] : at[0] + k; }
};
__device__ __forceinline__ Shown shown_at(const PadArgs& a, int d, int64_t x) {
  const int64_t size = a.in_sizes[d], before = a.before[d - 2], end = a.out_sizes[d];
  Shown s;
  if (a.reflect) {
    const int64_t mirrored[3] = {-x, x, 2 * (size - 1) - x};
#pragma unroll
    for (int k = 0; k < 3; k++) {
      const int64_t at = mirrored[k] + before;
      if ((k != 1 && mirrored[k] == x) || at < 0 || at >= end) continue;
      s.at[s.count++] = at;
    }
  } else {
    const int64_t first = x == 0 ? 0 : max(x + before, int64_t{0});
    const int64_t last = x == size - 1 ? end - 1 : min(x + before, end - 1);
    s.at[0] = first;
    s.count = max(last - first + 1, int64_t{0});
  }
  return s;
}

// Each input position gathers the output positions that show it, so sums have native CPU's order.
template <class T>
__global__ void __launch_bounds__(kThreads) pad_gather(const __grid_constant__ PadArgs a, int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel) {
    int64_t rest = i, in = 0, out = 0;
    Shown shown[3];
#pragma unroll
    for (int d = 4; d >= 0; d--) {
      const int64_t x = rest % a.in_sizes[d];
      rest /= a.in_sizes[d];
      in += x * a.in_strides[d];
      if (d >= 2) {
        shown[d - 2] = shown_at(a, d, x);
      } else {
        out += x * a.out_strides[d];
      }
    }
    C sum = C(0);
    for (int64_t z = 0; z < shown[0].count; z++)
      for (int64_t y = 0; y < shown[1].count; y++)
        for (int64_t x = 0; x < shown[2].count; x++)
          sum =
              sum + convert<C>(reinterpret_cast<const T*>(
                        a.out)[out + shown[0](a.reflect, z) * a.out_strides[2] +
                               shown[1](a.reflect, y) * a.out_strides[3] + shown[2](a.reflect, x) * a.out_strides[4]]);
    reinterpret_cast<T*>(a.in)[in] = convert<T>(sum);
  }
}

int64_t product(const int64_t (&sizes)[5]) { return sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]; }

void pad(const PadArgs& a) {
  const int64_t numel = product(a.out_sizes);
  if (numel == 0) return;
  by_size(size_of(a.dtype), [&](auto tag) {
    pad_elements<typename decltype(tag)::type><<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, numel);
  });
  cuda::check_launch("launching a padding");
}

using GradientTypes = Types<float, double, Half, BFloat16, Complex<float>, Complex<double>>;

void pad_backward(const PadArgs& a) {
  const int64_t in = product(a.in_sizes);
  if (in == 0) return;
  if (!dispatch(a.dtype, GradientTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        pad_gather<T><<<grid_for(in), kThreads, 0, cuda::current_stream()>>>(a, in);
      }))
    missing_kernel("pad_backward", name_of(a.dtype));
  cuda::check_launch("launching the gradient of a padding");
}

// ---- im2col and col2im ---------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads) columns_of(const __grid_constant__ ColumnArgs a, int64_t numel) {
  MT_GRID_LOOP(i, numel) {
    int64_t rest = i;
    const int64_t ow = rest % a.windows[1];
    rest /= a.windows[1];
    const int64_t oh = rest % a.windows[0];
    rest /= a.windows[0];
    const int64_t kw = rest % a.kernel[1];
    rest /= a.kernel[1];
    const int64_t kh = rest % a.kernel[0];
    rest /= a.kernel[0];  // batch and channel
    const int64_t h = oh * a.stride[0] - a.padding[0] + kh * a.dilation[0];
    const int64_t w = ow * a.stride[1] - a.padding[1] + kw * a.dilation[1];
    const bool inside = h >= 0 && h < a.size[0] && w >= 0 && w < a.size[1];
    reinterpret_cast<T*>(a.columns)[i] =
        inside ? reinterpret_cast<const T*>(a.image)[(rest * a.size[0] + h) * a.size[1] + w] : T{};
  }
}

// Each pixel gathers the columns that cover it.
template <class T>
__global__ void __launch_bounds__(kThreads) image_of(const __grid_constant__ ColumnArgs a, int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel) {
    const int64_t w = i % a.size[1], h = i / a.size[1] % a.size[0], plane = i / (a.size[0] * a.size[1]);
    C sum = C(0);
    for (int64_t kh = 0; kh < a.kernel[0]; kh++) {
      const int64_t y = h + a.padding[0] - kh * a.dilation[0];
      if (y < 0 || y % a.stride[0] != 0 || y / a.stride[0] >= a.windows[0]) continue;
      for (int64_t kw = 0; kw < a.kernel[1]; kw++) {
        const int64_t x = w + a.padding[1] - kw * a.dilation[1];
        if (x < 0 || x % a.stride[1] != 0 || x / a.stride[1] >= a.windows[1]) continue;
        const int64_t row = (plane * a.kernel[0] + kh) * a.kernel[1] + kw;
        sum = sum + convert<C>(reinterpret_cast<const T*>(
                        a.columns)[(row * a.windows[0] + y / a.stride[0]) * a.windows[1] + x / a.stride[1]]);
      }
    }
    reinterpret_cast<T*>(a.image)[i] = convert<T>(sum);
  }
}

void im2col(const ColumnArgs& a) {
  const int64_t numel = a.batch * a.channels * a.kernel[0] * a.kernel[1] * a.windows[0] * a.windows[1];
  if (numel == 0) return;
  by_size(size_of(a.dtype), [&](auto tag) {
    columns_of<typename decltype(tag)::type><<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, numel);
  });
  cuda::check_launch("launching im2col");
}

void col2im(const ColumnArgs& a) {
  const int64_t numel = a.batch * a.channels * a.size[0] * a.size[1];
  if (numel == 0) return;
  using Sums = Types<float, double, Half, BFloat16, Complex<float>, Complex<double>, bool, uint8_t, int8_t, int16_t,
                     int32_t, int64_t>;
  if (!dispatch(a.dtype, Sums{}, [&](auto tag) {
        image_of<typename decltype(tag)::type><<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, numel);
      }))
    missing_kernel("col2im", name_of(a.dtype));
  cuda::check_launch("launching col2im");
}

MT_REGISTER_KERNEL(cat_kernel, &cat);
MT_REGISTER_KERNEL(triangle_kernel, &triangle);
MT_REGISTER_KERNEL(triangle_indices_kernel, &triangle_indices);
MT_REGISTER_KERNEL(repeat_interleave_kernel, &repeat_interleave);
MT_REGISTER_KERNEL(pad_kernel, &pad);
MT_REGISTER_KERNEL(pad_backward_kernel, &pad_backward);
MT_REGISTER_KERNEL(im2col_kernel, &im2col);
MT_REGISTER_KERNEL(col2im_kernel, &col2im);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
