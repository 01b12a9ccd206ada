// Padding by reflection or replication, forward and backward. Every output position reads one input position, found by
// a table for each spatial dimension; the gradient goes the other way and sums.
#include "kernels/shape.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/cpu/element_size.h"
#include "kernels/cpu/move_rows.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// The input position that each output position of D, H and W reads.
class Sources {
 public:
  explicit Sources(const PadArgs& a) {
    for (int d = 0; d < 3; d++) {
      const int64_t out = a.out_sizes[d + 2], in = a.in_sizes[d + 2];
      table_[d].reset(new int64_t[out]);
      for (int64_t o = 0; o < out; o++) {
        int64_t i = o - a.before[d];
        if (a.reflect) {
          i = i < 0 ? -i : i;
          i = i >= in ? 2 * (in - 1) - i : i;
        } else {
          i = std::clamp<int64_t>(i, 0, in - 1);
        }
        table_[d][o] = i;
      }
    }
  }
  const int64_t* operator[](int d) const { return table_[d].get(); }

 private:
  std::unique_ptr<int64_t[]> table_[3];
};

bool channels_innermost(const PadArgs& a) { return a.in_sizes[1] > 1 && a.in_strides[1] == 1 && a.out_strides[1] == 1; }

// Rows along W of one channel.
template <class T>
void pad_rows(const PadArgs& a, const Sources& source) {
  const int64_t width = a.out_sizes[4], rows = a.out_sizes[0] * a.out_sizes[1] * a.out_sizes[2] * a.out_sizes[3];
  const int64_t in_step = a.in_strides[4], out_step = a.out_strides[4];
  // Output columns [first, last) copy consecutive input columns.
  const int64_t first = std::clamp<int64_t>(a.before[2], 0, width);
  const int64_t last = std::clamp<int64_t>(a.before[2] + a.in_sizes[4], first, width);
  parallel_for(rows, grain_of(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const int64_t h = r % a.out_sizes[3], d = r / a.out_sizes[3] % a.out_sizes[2];
      const int64_t nc = r / (a.out_sizes[3] * a.out_sizes[2]), c = nc % a.out_sizes[1], n = nc / a.out_sizes[1];
      const T* in = reinterpret_cast<const T*>(a.in) + n * a.in_strides[0] + c * a.in_strides[1] +
                    source[0][d] * a.in_strides[2] + source[1][h] * a.in_strides[3];
      T* out = reinterpret_cast<T*>(a.out) + n * a.out_strides[0] + c * a.out_strides[1] + d * a.out_strides[2] +
               h * a.out_strides[3];
      const auto copy = [&](int64_t from, int64_t to) {
        for (int64_t w = from; w < to; w++) out[w * out_step] = in[source[2][w] * in_step];
      };
      copy(0, first);
      if (in_step == 1 && out_step == 1) {
        const int64_t bytes = (last - first) * static_cast<int64_t>(sizeof(T));
        char* const to = reinterpret_cast<char*>(out + first);
        if (bytes > 0) {
          const char* const from = reinterpret_cast<const char*>(in + source[2][first]);
          bytes <= 512 ? copy_short(to, from, bytes) : static_cast<void>(memcpy(to, from, bytes));
        }
      } else {
        copy(first, last);
      }
      copy(last, width);
    }
  });
}

// All channels of one position at a time.
template <class T>
void pad_channels(const PadArgs& a, const Sources& source) {
  const int64_t channels = a.out_sizes[1], width = a.out_sizes[4];
  const int64_t rows = a.out_sizes[0] * a.out_sizes[2] * a.out_sizes[3];
  parallel_for(rows, grain_of(width * channels), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const int64_t h = r % a.out_sizes[3], d = r / a.out_sizes[3] % a.out_sizes[2];
      const int64_t n = r / (a.out_sizes[3] * a.out_sizes[2]);
      const T* in = reinterpret_cast<const T*>(a.in) + n * a.in_strides[0] + source[0][d] * a.in_strides[2] +
                    source[1][h] * a.in_strides[3];
      T* out = reinterpret_cast<T*>(a.out) + n * a.out_strides[0] + d * a.out_strides[2] + h * a.out_strides[3];
      for (int64_t w = 0; w < width; w++)
        memcpy(out + w * a.out_strides[4], in + source[2][w] * a.in_strides[4], channels * sizeof(T));
    }
  });
}

int64_t elements(const int64_t* sizes) { return sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]; }

void pad(const PadArgs& a) {
  if (elements(a.out_sizes) == 0) return;
  const Sources source(a);
  with_element_size(static_cast<int64_t>(size_of(a.dtype)), [&](auto tag) {
    using T = typename decltype(tag)::type;
    channels_innermost(a) ? pad_channels<T>(a, source) : pad_rows<T>(a, source);
  });
}

// A task sums a block of channels of one image in a buffer of the compute type, [D, H, W, block].
template <class T>
void pad_backward_typed(const PadArgs& a, const Sources& source) {
  using C = compute_t<T>;
  const int64_t block = channels_innermost(a) ? std::min<int64_t>(a.in_sizes[1], 32) : 1;
  const int64_t blocks = (a.in_sizes[1] + block - 1) / block;
  const int64_t depth = a.in_sizes[2], height = a.in_sizes[3], width = a.in_sizes[4];
  const int64_t volume = depth * height * width;
  const int64_t out_step = a.out_strides[4], out_channel = a.out_strides[1], in_channel = a.in_strides[1];
  const bool rows = block == 1 && out_step == 1 && a.in_strides[4] == 1;
  // Output columns [inner, inner_end) read consecutive input columns.
  const int64_t inner = std::clamp<int64_t>(a.before[2], 0, a.out_sizes[4]);
  const int64_t inner_end = std::clamp<int64_t>(a.before[2] + width, inner, a.out_sizes[4]);
  parallel_for(a.in_sizes[0] * blocks, grain_of(volume * block), [&](int64_t begin, int64_t end) {
    const std::unique_ptr<C[]> sums(new C[volume * block]);
    for (int64_t task = begin; task < end; task++) {
      const int64_t n = task / blocks, first = task % blocks * block, count = std::min(block, a.in_sizes[1] - first);
      std::fill(sums.get(), sums.get() + volume * block, C(0));
      const T* const grad = reinterpret_cast<const T*>(a.out) + n * a.out_strides[0] + first * out_channel;
      for (int64_t d = 0; d < a.out_sizes[2]; d++) {
        for (int64_t h = 0; h < a.out_sizes[3]; h++) {
          const T* const g = grad + d * a.out_strides[2] + h * a.out_strides[3];
          C* const row = sums.get() + (source[0][d] * height + source[1][h]) * width * block;
          if (rows) {
            const int64_t* const at = source[2];
            for (int64_t w = 0; w < inner; w++) row[at[w]] += static_cast<C>(g[w]);
            C* MT_RESTRICT const sum = row + inner - a.before[2];
            for (int64_t w = inner; w < inner_end; w++) sum[w - inner] += static_cast<C>(g[w]);
            for (int64_t w = inner_end; w < a.out_sizes[4]; w++) row[at[w]] += static_cast<C>(g[w]);
            continue;
          }
          for (int64_t w = 0; w < a.out_sizes[4]; w++) {
            C* const sum = row + source[2][w] * block;
            for (int64_t c = 0; c < count; c++) sum[c] += static_cast<C>(g[w * out_step + c * out_channel]);
          }
        }
      }
      T* const in = reinterpret_cast<T*>(a.in) + n * a.in_strides[0] + first * in_channel;
      for (int64_t d = 0; d < depth; d++)
        for (int64_t h = 0; h < height; h++) {
          T* const x = in + d * a.in_strides[2] + h * a.in_strides[3];
          const C* const row = sums.get() + (d * height + h) * width * block;
          if (rows) {
            for (int64_t w = 0; w < width; w++) x[w] = static_cast<T>(row[w]);
            continue;
          }
          for (int64_t w = 0; w < width; w++)
            for (int64_t c = 0; c < count; c++)
              x[w * a.in_strides[4] + c * in_channel] = static_cast<T>(row[w * block + c]);
        }
    }
  });
}

using GradTypes = Types<float, double, Half, BFloat16, Complex<float>, Complex<double>>;

void pad_backward(const PadArgs& a) {
  if (elements(a.in_sizes) == 0) return;
  const Sources source(a);
  if (!dispatch(a.dtype, GradTypes{}, [&](auto tag) { pad_backward_typed<typename decltype(tag)::type>(a, source); }))
    missing_kernel("pad_backward", name_of(a.dtype));
}

MT_REGISTER_KERNEL(pad_kernel, &pad);
MT_REGISTER_KERNEL(pad_backward_kernel, &pad_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
