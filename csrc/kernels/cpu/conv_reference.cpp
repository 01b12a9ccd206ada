// The definition of convolution and its gradients, as loops: tests hold the fast kernels against it, and geometries
// whose taps are far apart take it.
#include "kernels/convolution.h"
#include "kernels/cpu/scratch.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class T>
MT_INLINE T& at(const ConvTensor& t, int64_t n, int64_t c, const int64_t* x) {
  return reinterpret_cast<T*>(
      t.data)[n * t.strides[0] + c * t.strides[1] + x[0] * t.strides[2] + x[1] * t.strides[3] + x[2] * t.strides[4]];
}

// Calls f(position, tap, input coordinates) for every pair of output position and tap that meets the input.
template <class F>
MT_INLINE void for_each_contact(const ConvArgs& a, const F& f) {
  int64_t p[3], t[3], x[3];
  for (p[0] = 0; p[0] < a.out_size[0]; p[0]++)
    for (p[1] = 0; p[1] < a.out_size[1]; p[1]++)
      for (p[2] = 0; p[2] < a.out_size[2]; p[2]++)
        for (t[0] = 0; t[0] < a.kernel[0]; t[0]++)
          for (t[1] = 0; t[1] < a.kernel[1]; t[1]++)
            for (t[2] = 0; t[2] < a.kernel[2]; t[2]++) {
              bool inside = true;
              for (int d = 0; d < 3; d++) {
                x[d] = p[d] * a.stride[d] - a.padding[d] + t[d] * a.dilation[d];
                inside = inside && x[d] >= 0 && x[d] < a.in_size[d];
              }
              if (inside) f(p, t, x);
            }
}

template <class T>
void reference(int which, const ConvArgs& a) {
  using E = compute_t<T>;
  const int64_t in = a.in_channels / a.groups, out = a.out_channels / a.groups;
  const auto size = [](const int64_t* s) { return s[0] * s[1] * s[2]; };
  const int64_t plane = which == 0 ? size(a.out_size) : which == 1 ? size(a.in_size) : size(a.kernel);
  // Sums of one plane of the result (one channel of one image, or the taps of one pair of channels) at a time.
  const auto index = [](const int64_t* s, const int64_t* x) { return (x[0] * s[1] + x[1]) * s[2] + x[2]; };
  const Scratch<E> sums(plane);
  sums.zero(plane);
  const auto finish = [&](const ConvTensor& t, int64_t n, int64_t c, const int64_t* s, bool bias) {
    int64_t x[3];
    for (x[0] = 0; x[0] < s[0]; x[0]++)
      for (x[1] = 0; x[1] < s[1]; x[1]++)
        for (x[2] = 0; x[2] < s[2]; x[2]++) {
          E sum = sums[index(s, x)];
          if (bias && a.bias != nullptr) sum += static_cast<E>(reinterpret_cast<const T*>(a.bias)[c * a.bias_stride]);
          at<T>(t, n, c, x) = static_cast<T>(sum);
        }
    sums.zero(plane);
  };
  if (which == 0)
    for (int64_t n = 0; n < a.batch; n++)
      for (int64_t o = 0; o < a.out_channels; o++) {
        for (int64_t i = 0; i < in; i++)
          for_each_contact(a, [&](const int64_t* p, const int64_t* t, const int64_t* x) {
            sums[index(a.out_size, p)] +=
                static_cast<E>(at<T>(a.weight, o, i, t)) * static_cast<E>(at<T>(a.input, n, o / out * in + i, x));
          });
        finish(a.output, n, o, a.out_size, true);
      }
  if (which == 1)
    for (int64_t n = 0; n < a.batch; n++)
      for (int64_t c = 0; c < a.in_channels; c++) {
        for (int64_t o = c / in * out; o < (c / in + 1) * out; o++)
          for_each_contact(a, [&](const int64_t* p, const int64_t* t, const int64_t* x) {
            sums[index(a.in_size, x)] +=
                static_cast<E>(at<T>(a.weight, o, c % in, t)) * static_cast<E>(at<T>(a.output, n, o, p));
          });
        finish(a.input, n, c, a.in_size, true);
      }
  if (which == 2)
    for (int64_t o = 0; o < a.out_channels; o++)
      for (int64_t i = 0; i < in; i++) {
        for (int64_t n = 0; n < a.batch; n++)
          for_each_contact(a, [&](const int64_t* p, const int64_t* t, const int64_t* x) {
            sums[index(a.kernel, t)] +=
                static_cast<E>(at<T>(a.output, n, o, p)) * static_cast<E>(at<T>(a.input, n, o / out * in + i, x));
          });
        finish(a.weight, o, i, a.kernel, false);
      }
}

void conv_reference(int which, const ConvArgs& args) {
  if (!dispatch(args.dtype, Types<float, double, BFloat16, Half, int64_t>{},
                [&](auto tag) { reference<typename decltype(tag)::type>(which, args); }))
    missing_kernel("conv_reference", name_of(args.dtype));
}

MT_REGISTER_KERNEL(conv_reference_kernel, &conv_reference);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
