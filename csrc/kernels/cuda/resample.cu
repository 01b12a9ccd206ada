// Resampling on CUDA: the taps of each axis become tables first, then a thread makes one output from them. Gradients
// gather too: an input visits the outputs that draw on it, so the result does not depend on the order of threads.
#include "kernels/cuda/launch.cuh"
#include "kernels/functors/resample.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace resample;

// The taps of one axis: output o has count[o] of them, at o * width and on. Input i is used by outputs of
// [low[i], high[i]) only, all of them when the operator's filters do not leave gaps.
template <class C>
struct Table {
  C* weight;
  int32_t *index, *count, *low, *high;
  int64_t rows, columns, width;

  Table() = default;
  Table(const ResampleArgs& a, const ResampleAxis& axis)
      : rows(axis.out), columns(axis.in), width(axis.present ? most_taps<C>(a, axis) : 1) {}
  int64_t bytes() const {
    return ceil_div(rows * width * static_cast<int64_t>(sizeof(C) + 4) + (rows + 2 * columns) * 4, 16) * 16;
  }
  void place(char* memory) {
    weight = reinterpret_cast<C*>(memory);
    index = reinterpret_cast<int32_t*>(weight + rows * width);
    count = index + rows * width;
    low = count + rows;
    high = low + columns;
  }
  // The weight of input i in output o. Antialiasing taps are adjacent.
  __device__ __forceinline__ C weight_of(bool adjacent, int64_t o, int64_t i) const {
    const int32_t* ids = index + o * width;
    const C* w = weight + o * width;
    const int n = count[o];
    if (adjacent) {
      const int64_t k = n > 0 ? i - ids[0] : -1;
      return k >= 0 && k < n ? w[k] : C(0);
    }
    C sum = C(0);
    for (int k = 0; k < n; k++) sum += ids[k] == i ? w[k] : C(0);
    return sum;
  }
};

template <class C>
struct Tables {
  Table<C> axis[3];
};

template <class C>
__global__ void __launch_bounds__(kThreads) clear_ranges(const __grid_constant__ Tables<C> tables) {
  const Table<C>& t = tables.axis[blockIdx.y];
  MT_GRID_LOOP(i, t.columns) {
    t.low[i] = INT32_MAX;
    t.high[i] = 0;
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    fill_tables(const __grid_constant__ ResampleArgs a, const __grid_constant__ Tables<C> tables, bool merged) {
  const Table<C>& t = tables.axis[blockIdx.y];
  MT_GRID_LOOP(o, t.rows) {
    int32_t* const ids = t.index + o * t.width;
    C* const w = t.weight + o * t.width;
    int64_t n = fill_taps(a, a.axis[blockIdx.y], o, ids, w);
    if (merged) n = merge_taps(ids, w, n);
    t.count[o] = static_cast<int32_t>(n);
    if (!a.backward) continue;
    for (int64_t k = 0; k < n; k++) {
      atomicMin(t.low + ids[k], static_cast<int32_t>(o));
      atomicMax(t.high + ids[k], static_cast<int32_t>(o + 1));
    }
  }
}

template <class C>
class TapTables {
 public:
  explicit TapTables(const ResampleArgs& a, bool merged = false) : memory_(place(a)) {
    char* at = memory_.get();
    for (Table<C>& t : tables.axis) {
      t.place(at);
      at += t.bytes();
    }
    const dim3 grid(grid_for(std::max({a.axis[0].out, a.axis[1].out, a.axis[2].out})), 3);
    if (a.backward) {
      const dim3 inputs(grid_for(std::max({a.axis[0].in, a.axis[1].in, a.axis[2].in})), 3);
      clear_ranges<<<inputs, kThreads, 0, cuda::current_stream()>>>(tables);
    }
    fill_tables<<<grid, kThreads, 0, cuda::current_stream()>>>(a, tables, merged);
    cuda::check_launch("launching the taps of a resampling");
  }
  Tables<C> tables;

 private:
  int64_t place(const ResampleArgs& a) {
    int64_t bytes = 0;
    for (int d = 0; d < 3; d++) {
      tables.axis[d] = Table<C>(a, a.axis[d]);
      bytes += tables.axis[d].bytes();
    }
    return bytes;
  }
  Scratch memory_;
};

// An image element's place. I: an unsigned type that holds the number of elements.
template <class I>
struct Place {
  I image, lane, at[3];  // image: of [n, c], or of [n] with c lanes
};
template <class I>
__device__ __forceinline__ Place<I> place_of(I i, I lanes, I d1, I d2, I d0) {
  Place<I> p;
  p.lane = i % lanes;
  i /= lanes;
  p.at[2] = i % d2;
  i /= d2;
  p.at[1] = i % d1;
  i /= d1;
  p.at[0] = i % d0;
  p.image = i / d0;
  return p;
}

template <class T, class C, class I>
__global__ void __launch_bounds__(kThreads)
    pick_nearest(const __grid_constant__ ResampleArgs a, const __grid_constant__ Tables<C> tables, int64_t numel) {
  const I lanes = a.channels_last ? static_cast<I>(a.c) : I(1);
  const Table<C>&depth = tables.axis[0], &height = tables.axis[1], &width = tables.axis[2];
  MT_GRID_LOOP(i, numel) {
    const auto p = place_of<I>(static_cast<I>(i), lanes, static_cast<I>(height.rows), static_cast<I>(width.rows),
                               static_cast<I>(depth.rows));
    const int64_t row =
        (static_cast<int64_t>(p.image) * depth.columns + depth.index[p.at[0]]) * height.columns + height.index[p.at[1]];
    static_cast<T*>(a.y)[i] = static_cast<const T*>(a.x)[(row * width.columns + width.index[p.at[2]]) * lanes + p.lane];
  }
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    weigh(const __grid_constant__ ResampleArgs a, const __grid_constant__ Tables<compute_t<T>> tables, int64_t numel) {
  using C = compute_t<T>;
  const I lanes = a.channels_last ? static_cast<I>(a.c) : I(1);
  const Table<C>&depth = tables.axis[0], &height = tables.axis[1], &width = tables.axis[2];
  const T* const x = static_cast<const T*>(a.x);
  MT_GRID_LOOP(i, numel) {
    const auto p = place_of<I>(static_cast<I>(i), lanes, static_cast<I>(height.rows), static_cast<I>(width.rows),
                               static_cast<I>(depth.rows));
    const int64_t od = p.at[0] * depth.width, oh = p.at[1] * height.width, ow = p.at[2] * width.width;
    const int nd = depth.count[p.at[0]], nh = height.count[p.at[1]], nw = width.count[p.at[2]];
    C sum = C(0);
    for (int d = 0; d < nd; d++)
      for (int h = 0; h < nh; h++) {
        const int64_t row = (static_cast<int64_t>(p.image) * depth.columns + depth.index[od + d]) * height.columns +
                            height.index[oh + h];
        C along = C(0);
        for (int w = 0; w < nw; w++)
          along += width.weight[ow + w] * convert<C>(x[(row * width.columns + width.index[ow + w]) * lanes + p.lane]);
        sum += depth.weight[od + d] * height.weight[oh + h] * along;
      }
    static_cast<T*>(a.y)[i] = convert<T>(sum);
  }
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    weigh_backward(const __grid_constant__ ResampleArgs a, const __grid_constant__ Tables<compute_t<T>> tables,
                   int64_t numel) {
  using C = compute_t<T>;
  const I lanes = a.channels_last ? static_cast<I>(a.c) : I(1);
  const bool adjacent = antialiased(a.mode);
  const Table<C>&depth = tables.axis[0], &height = tables.axis[1], &width = tables.axis[2];
  const T* const dy = static_cast<const T*>(a.x);
  MT_GRID_LOOP(i, numel) {
    const auto p = place_of<I>(static_cast<I>(i), lanes, static_cast<I>(height.columns), static_cast<I>(width.columns),
                               static_cast<I>(depth.columns));
    const int d1 = depth.high[p.at[0]], h0 = height.low[p.at[1]], h1 = height.high[p.at[1]], w0 = width.low[p.at[2]],
              w1 = width.high[p.at[2]];
    C sum = C(0);
    for (int d = depth.low[p.at[0]]; d < d1; d++) {
      const C wd = depth.weight_of(adjacent, d, p.at[0]);
      for (int h = h0; h < h1; h++) {
        const C wh = wd * height.weight_of(adjacent, h, p.at[1]);
        const int64_t row = (static_cast<int64_t>(p.image) * depth.rows + d) * height.rows + h;
        C along = C(0);
        for (int w = w0; w < w1; w++)
          along += width.weight_of(adjacent, w, p.at[2]) * convert<C>(dy[(row * width.rows + w) * lanes + p.lane]);
        sum += wh * along;
      }
    }
    static_cast<T*>(a.y)[i] = convert<T>(sum);
  }
}

// ---- uint8: fixed point, rounded to bytes after each axis, as native has it ----------------------------------------

// As many fraction bits as keep the largest weight within 16 bits. One block.
__global__ void __launch_bounds__(kThreads) find_precision(const __grid_constant__ Table<double> t, int* bits) {
  __shared__ double shared[32];
  double largest = 0;
  for (int64_t o = threadIdx.x; o < t.rows; o += kThreads)
    for (int k = 0; k < t.count[o]; k++) largest = max(largest, t.weight[o * t.width + k]);
  largest = block_reduce(largest, shared, 0.0, Max());
  if (threadIdx.x > 0) return;
  int found = 0;
  while (found < 22 && static_cast<int>(0.5 + largest * (1 << (found + 1))) < (1 << 15)) found++;
  *bits = found;
}

// x [outer, columns, inner], y [outer, rows, inner].
__global__ void __launch_bounds__(kThreads)
    weigh_bytes(const uint8_t* x, uint8_t* y, const __grid_constant__ Table<double> t, const int* precision,
                int64_t inner, int64_t numel) {
  const int bits = *precision;
  MT_GRID_LOOP(i, numel) {
    const int64_t at = i % inner, o = i / inner % t.rows, image = i / inner / t.rows;
    int32_t sum = 1 << (bits - 1);
    for (int k = 0; k < t.count[o]; k++) {
      const double w = t.weight[o * t.width + k];
      const auto fixed = static_cast<int16_t>(static_cast<int>(w * (1 << bits) + (w < 0 ? -0.5 : 0.5)));
      sum += fixed * int32_t{x[(image * t.columns + t.index[o * t.width + k]) * inner + at]};
    }
    sum >>= bits;
    y[i] = static_cast<uint8_t>(min(max(sum, 0), 255));
  }
}

void resample_axis(const uint8_t* x, uint8_t* y, const Table<double>& t, int64_t outer, int64_t inner) {
  const cudaStream_t stream = cuda::current_stream();
  const Scratch bits(sizeof(int));
  const int64_t numel = outer * t.rows * inner;
  find_precision<<<1, kThreads, 0, stream>>>(t, bits.get<int>());
  weigh_bytes<<<grid_for(numel), kThreads, 0, stream>>>(x, y, t, bits.get<int>(), inner, numel);
}

void resample_bytes(const ResampleArgs& a) {
  const ResampleAxis &height = a.axis[1], &width = a.axis[2];
  const int64_t lanes = a.channels_last ? a.c : 1, images = a.channels_last ? a.n : a.n * a.c;
  const auto* x = static_cast<const uint8_t*>(a.x);
  auto* y = static_cast<uint8_t*>(a.y);
  const bool wide = width.in != width.out, high = height.in != height.out;
  if (!wide && !high) {
    const auto bytes = static_cast<size_t>(images * height.in * width.in * lanes);
    cuda::check(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, cuda::current_stream()), "copying an image");
    return;
  }
  const TapTables<double> taps(a, /*merged=*/true);
  const Scratch between(wide && high ? images * height.in * width.out * lanes : 1);
  if (wide) {
    uint8_t* target = high ? between.get<uint8_t>() : y;
    resample_axis(x, target, taps.tables.axis[2], images * height.in, lanes);
    x = target;
  }
  if (high) resample_axis(x, y, taps.tables.axis[1], images, width.out * lanes);
}

// ---- Dispatch ------------------------------------------------------------------------------------------------------

// f(Tag of the type that element numbers are computed in).
template <class F>
void by_reach(int64_t numel, const F& f) {
  if (numel < (int64_t{1} << 31)) {
    f(Tag<uint32_t>{});
  } else {
    f(Tag<uint64_t>{});
  }
}

template <class C>
void nearest(const ResampleArgs& a, int64_t numel) {
  const TapTables<C> taps(a);
  by_size(size_of(a.dtype), [&](auto size) {
    by_reach(numel, [&](auto reach) {
      pick_nearest<typename decltype(size)::type, C, typename decltype(reach)::type>
          <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, taps.tables, numel);
    });
  });
}

void resample_image(const ResampleArgs& a) {
  int64_t numel = a.n * a.c;
  for (const ResampleAxis& axis : a.axis) numel *= a.backward ? axis.in : axis.out;
  if (numel == 0) return;
  const bool picks = a.mode == ResampleMode::nearest || a.mode == ResampleMode::nearest_exact;
  if (picks && !a.backward) {
    a.dtype == DType::F64 ? nearest<double>(a, numel) : nearest<float>(a, numel);
  } else if (a.dtype == DType::U8 && !a.backward) {
    resample_bytes(a);
  } else if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
               using T = typename decltype(tag)::type;
               const TapTables<compute_t<T>> taps(a);
               by_reach(numel, [&](auto reach) {
                 using I = typename decltype(reach)::type;
                 const auto kernel = a.backward ? &weigh_backward<T, I> : &weigh<T, I>;
                 kernel<<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, taps.tables, numel);
               });
             })) {
    missing_kernel("resample", name_of(a.dtype));
  }
  cuda::check_launch("launching a resampling");
}

MT_REGISTER_KERNEL(resample_kernel, &resample_image);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
