// Sorting and selection on CUDA: all lines are sorted at once, by key and then by line, both stable. Selection of a few
// elements reads them off the sorted lines.
#include "kernels/sort.h"

#include <memory>

#include "kernels/cuda/radix.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using SortTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t, bool, uint16_t,
                        uint32_t, uint64_t>;

// Lines along `dim` of a tensor. Strides are in elements.
struct Lines {
  int64_t count, length, step;
  Space space;
  int64_t strides[kCudaDims];
  char* data;

  Lines(const TensorView& v, int dim) : count(1), length(v.ndim > 0 ? v.sizes[dim] : 1), step(0), data(v.data) {
    int64_t sizes[kMaxDims];
    int kept = 0;
    for (int d = v.ndim - 1; d >= 0; d--) {
      if (d == dim || v.sizes[d] == 1) continue;
      if (kept == kCudaDims) throw std::runtime_error("minitorch: sort of more than 16 dimensions");
      sizes[kept] = v.sizes[d];
      strides[kept++] = v.strides[d];
      count *= v.sizes[d];
    }
    if (v.ndim > 0) step = v.strides[dim];
    space = Space(kept, sizes, count);
  }
  __device__ __forceinline__ int64_t offset(int64_t line, int64_t i) const {
    int64_t at = i * step;
    space.each(line, [&](int d, int64_t index) { at += index * strides[d]; });
    return at;
  }
};

template <class T, class K, class P>
__global__ void __launch_bounds__(kThreads)
    make_keys(const __grid_constant__ Lines in, bool descending, K* keys, P* payloads) {
  constexpr uint64_t mask =
      radix::key_bytes<T>() == 8 ? ~uint64_t{0} : (uint64_t{1} << radix::key_bytes<T>() * 8 % 64) - 1;
  MT_GRID_LOOP(at, in.count * in.length) {
    const int64_t line = at / in.length, i = at - line * in.length;
    const uint64_t key = radix::ordered(reinterpret_cast<const T*>(in.data)[in.offset(line, i)]);
    keys[at] = static_cast<K>(descending ? ~key & mask : key);
    payloads[at] = static_cast<P>(at);
  }
}

template <class K, class P>
__global__ void __launch_bounds__(kThreads) make_line_keys(const P* payloads, int64_t length, K* keys, int64_t n) {
  MT_GRID_LOOP(i, n) keys[i] = static_cast<K>(static_cast<int64_t>(payloads[i]) / length);
}

// Element positions (line * length + i) of the lines in sorted order, in 32 bits if they fit.
struct Positions {
  const uint32_t* narrow;
  const int64_t* wide;
  __device__ __forceinline__ int64_t operator[](int64_t i) const {
    return wide != nullptr ? wide[i] : int64_t{narrow[i]};
  }
};

class Order {
 public:
  template <class T>
  static Order of(const Lines& in, bool descending) {
    using K = std::conditional_t<radix::key_bytes<T>() <= 4, uint32_t, uint64_t>;
    Order order;
    if (in.count * in.length < int64_t{1} << 32) {
      order.positions_.narrow = order.sorted<T, K, uint32_t>(in, descending);
    } else {
      order.positions_.wide = order.sorted<T, uint64_t, int64_t>(in, descending);
    }
    return order;
  }
  Positions get() const { return positions_; }

 private:
  template <class T, class K, class P>
  const P* sorted(const Lines& in, bool descending) {
    const int64_t n = in.count * in.length;
    const cudaStream_t stream = cuda::current_stream();
    memory_ = std::make_unique<Scratch>(n * 2 * static_cast<int64_t>(sizeof(P)));
    const Scratch memory(n * 2 * static_cast<int64_t>(sizeof(K)));
    K *keys = memory.get<K>(), *other_keys = keys + n;
    P *payloads = memory_->get<P>(), *other_payloads = payloads + n;
    make_keys<T><<<grid_for(n), kThreads, 0, stream>>>(in, descending, keys, payloads);
    radix::sort(keys, payloads, other_keys, other_payloads, n, radix::key_bytes<T>());
    if (in.count > 1) {
      make_line_keys<<<grid_for(n), kThreads, 0, stream>>>(payloads, in.length, keys, n);
      int bytes = 1;
      while (bytes < 8 && (in.count - 1) >> (bytes * 8) != 0) bytes++;
      radix::sort(keys, payloads, other_keys, other_payloads, n, bytes);
    }
    return payloads;
  }

  std::unique_ptr<Scratch> memory_;
  Positions positions_{};
};

// The first `count` of each sorted line.
template <class T>
__global__ void __launch_bounds__(kThreads)
    take_sorted(const __grid_constant__ Lines in, const __grid_constant__ Lines values,
                const __grid_constant__ Lines indices, Positions order, int64_t count) {
  MT_GRID_LOOP(at, in.count * count) {
    const int64_t line = at / count, i = at - line * count;
    const int64_t source = order[line * in.length + i] - line * in.length;
    reinterpret_cast<T*>(values.data)[values.offset(line, i)] =
        reinterpret_cast<const T*>(in.data)[in.offset(line, source)];
    reinterpret_cast<int64_t*>(indices.data)[indices.offset(line, i)] = source;
  }
}

void take(const char* name, const TensorView& values, const TensorView& indices, const TensorView& input, int dim,
          int64_t count, bool descending) {
  if (input.numel == 0 || count == 0) return;
  const Lines in(input, dim), to(values, dim), at(indices, dim);
  const bool known = dispatch(input.dtype, SortTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Order order = Order::of<T>(in, descending);
    by_size(sizeof(T), [&](auto bits) {
      take_sorted<typename decltype(bits)::type>
          <<<grid_for(in.count * count), kThreads, 0, cuda::current_stream()>>>(in, to, at, order.get(), count);
    });
  });
  if (!known) missing_kernel(name, name_of(input.dtype));
  cuda::check_launch("launching a sort");
}

void sort(const TensorView& values, const TensorView& indices, const TensorView& input, int dim, bool descending) {
  take("sort", values, indices, input, dim, input.ndim > 0 ? input.sizes[dim] : 1, descending);
}

void topk(const TensorView& values, const TensorView& indices, const TensorView& input, int dim, int64_t k,
          bool largest) {
  take("topk", values, indices, input, dim, k, largest);
}

// A thread a line.
template <class T>
__global__ void __launch_bounds__(kThreads)
    select_elements(const __grid_constant__ Lines in, const __grid_constant__ Lines values,
                    const __grid_constant__ Lines indices, Positions order, SelectOp op, int64_t k) {
  MT_GRID_LOOP(line, in.count) {
    const auto source = [&](int64_t i) { return order[line * in.length + i] - line * in.length; };
    const auto value = [&](int64_t i) { return reinterpret_cast<const T*>(in.data)[in.offset(line, source(i))]; };
    const auto is_nan = [&](int64_t i) {
      const compute_t<T> x = convert<compute_t<T>>(value(i));
      return x != x;
    };
    int64_t chosen = k - 1;
    if (op == SelectOp::median || op == SelectOp::nanmedian) {
      int64_t low = 0, high = in.length;  // the first NaN
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (is_nan(middle)) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      const bool first_nan = low < in.length && (op == SelectOp::median || low == 0);
      chosen = first_nan ? low : (low - 1) / 2;
    }
    reinterpret_cast<T*>(values.data)[values.offset(line, 0)] = value(chosen);
    reinterpret_cast<int64_t*>(indices.data)[indices.offset(line, 0)] = source(chosen);
  }
}

struct Run {
  int64_t length, begin;
};
struct LongerRun {  // of equal ones the first
  __device__ __forceinline__ Run operator()(Run a, Run b) const {
    return b.length > a.length || (b.length == a.length && b.begin < a.begin) ? b : a;
  }
};

// The last element of the longest run of equal ones, a block a line. A run is measured only if it is longer than those
// that its thread knows.
template <class T>
__global__ void __launch_bounds__(1024)
    select_modes(const __grid_constant__ Lines in, const __grid_constant__ Lines values,
                 const __grid_constant__ Lines indices, Positions order) {
  __shared__ Run shared[32];
  for (int64_t line = blockIdx.x; line < in.count; line += gridDim.x) {
    const auto source = [&](int64_t i) { return order[line * in.length + i] - line * in.length; };
    const auto value = [&](int64_t i) { return reinterpret_cast<const T*>(in.data)[in.offset(line, source(i))]; };
    const auto equal = [&](int64_t i, int64_t k) {
      return convert<compute_t<T>>(value(i)) == convert<compute_t<T>>(value(k));
    };
    Run longest{0, in.length};
    for (int64_t i = threadIdx.x; i < in.length; i += blockDim.x) {
      if (i > 0 && equal(i, i - 1)) continue;
      int64_t low = i + longest.length, high = in.length;
      if (longest.length > 0 && (low >= high || !equal(low, i))) continue;
      for (low++; low < high;) {
        const int64_t middle = (low + high) / 2;
        if (equal(middle, i)) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      longest = {low - i, i};
    }
    longest = block_reduce(longest, shared, Run{0, in.length}, LongerRun());
    if (threadIdx.x != 0) continue;
    const int64_t chosen = longest.begin + longest.length - 1;
    reinterpret_cast<T*>(values.data)[values.offset(line, 0)] = value(chosen);
    reinterpret_cast<int64_t*>(indices.data)[indices.offset(line, 0)] = source(chosen);
  }
}

void select(SelectOp op, const TensorView& values, const TensorView& indices, const TensorView& input, int dim,
            int64_t k) {
  if (input.numel == 0) return;
  const Lines in(input, dim), to(values, dim), at(indices, dim);
  const bool known = dispatch(input.dtype, SortTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Order order = Order::of<T>(in, false);
    const cudaStream_t stream = cuda::current_stream();
    if (op == SelectOp::mode) {
      const auto blocks = static_cast<unsigned>(std::min<int64_t>(in.count, int64_t{1} << 20));
      const auto threads = static_cast<unsigned>(std::clamp<int64_t>(ceil_div(in.length, 4 * 32) * 32, 32, 1024));
      select_modes<T><<<blocks, threads, 0, stream>>>(in, to, at, order.get());
    } else {
      select_elements<T><<<grid_for(in.count), kThreads, 0, stream>>>(in, to, at, order.get(), op, k);
    }
  });
  if (!known) missing_kernel("select", name_of(input.dtype));
  cuda::check_launch("launching a selection");
}

// ---- Search --------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads) search_elements(const __grid_constant__ SearchArgs a) {
  MT_GRID_LOOP(i, a.n) {
    const int64_t row = i / a.per_sequence * a.length;
    const T* sequence = reinterpret_cast<const T*>(a.sequences) + row;
    const auto value = convert<compute_t<T>>(reinterpret_cast<const T*>(a.values)[i]);
    int64_t low = 0, high = a.length;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      const auto x = convert<compute_t<T>>(sequence[a.sorter == nullptr ? middle : a.sorter[row + middle]]);
      if (a.right ? !(x > value)
                  : !(x >= value)) {  // a NaN goes to the end, and is passed in the sequence, as native's
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    store_as<int64_t>(a.output + i * static_cast<int64_t>(size_of(a.output_dtype)), a.output_dtype, low);
  }
}

void search(const SearchArgs& a) {
  if (a.n == 0) return;
  if (!dispatch(a.dtype, SortTypes{}, [&](auto tag) {
        search_elements<typename decltype(tag)::type><<<grid_for(a.n), kThreads, 0, cuda::current_stream()>>>(a);
      }))
    missing_kernel("searchsorted", name_of(a.dtype));
  cuda::check_launch("launching searchsorted");
}

MT_REGISTER_KERNEL(sort_kernel, &sort);
MT_REGISTER_KERNEL(topk_kernel, &topk);
MT_REGISTER_KERNEL(select_kernel, &select);
MT_REGISTER_KERNEL(search_kernel, &search);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
