// Shuffles of channels: pixel_shuffle and its inverse, channel_shuffle. Each permutes axes that come of splitting
// others, and splitting is a view whatever the strides are: the result is filled by one copy between two views.
#include <ATen/native/PixelShuffle.h>
#include <torch/library.h>

#include "bridge/operators.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

using at::Tensor;

// As native on the CPU, a result is channels_last where the argument is.
Tensor output_like(const Tensor& self, at::IntArrayRef sizes) {
  return empty(sizes, self.scalar_type(), self.suggest_memory_format());
}

void check_format(const Tensor& self) {
  TORCH_CHECK(self.suggest_memory_format() != at::MemoryFormat::ChannelsLast3d,
              "Unsupported memory format. Supports only ChannelsLast, Contiguous");
}

// (..., C, H, r, W, r) of a picture (..., C, H*r, W*r), and the same of its channels (..., C*r*r, H, W).
Tensor pixels_of_picture(const Tensor& t, int64_t r) {
  return t.unflatten(-2, {t.size(-2) / r, r}).unflatten(-1, {t.size(-1) / r, r});
}
Tensor pixels_of_channels(const Tensor& t, int64_t r) {
  return t.unflatten(-3, {t.size(-3) / (r * r), r, r}).movedim(-2, -4).movedim(-1, -2);
}

Tensor pixel_shuffle(const Tensor& self, int64_t upscale_factor) {
  at::native::check_pixel_shuffle_shapes(self, upscale_factor);
  check_format(self);
  const int64_t r = upscale_factor;
  at::DimVector sizes(self.sizes());
  const size_t n = sizes.size();
  sizes[n - 3] /= r * r;
  sizes[n - 2] *= r;
  sizes[n - 1] *= r;
  const Tensor out = output_like(self, sizes);
  if (out.numel() != 0) pixels_of_picture(out, r).copy_(pixels_of_channels(self, r));
  return out;
}

Tensor pixel_unshuffle(const Tensor& self, int64_t downscale_factor) {
  at::native::check_pixel_unshuffle_shapes(self, downscale_factor);
  check_format(self);
  const int64_t r = downscale_factor;
  at::DimVector sizes(self.sizes());
  const size_t n = sizes.size();
  sizes[n - 3] *= r * r;
  sizes[n - 2] /= r;
  sizes[n - 1] /= r;
  const Tensor out = output_like(self, sizes);
  if (out.numel() != 0) pixels_of_channels(out, r).copy_(pixels_of_picture(self, r));
  return out;
}

// at::native::channel_shuffle has checked the arguments.
Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  const int64_t in_group = self.size(1) / groups;
  const Tensor out = output_like(self, self.sizes());
  if (out.numel() != 0)
    out.unflatten(1, {in_group, groups}).copy_(self.unflatten(1, {groups, in_group}).transpose(1, 2));
  return out;
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("pixel_shuffle", TORCH_FN(pixel_shuffle));
  m.impl("pixel_unshuffle", TORCH_FN(pixel_unshuffle));
  m.impl("native_channel_shuffle", TORCH_FN(channel_shuffle));
}

}  // namespace
}  // namespace minitorch
