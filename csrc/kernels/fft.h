// Discrete Fourier transforms of lines: the last dimension of the views, of any length. Batch dimensions agree.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

enum class FftKind : uint8_t { complex, real_to_complex, complex_to_real };

// Sums over j of in[j] exp(-+2 pi i j k / n), `-` if forward, times `scale`. real_to_complex is forward and writes the
// first n / 2 + 1 values; complex_to_real is backward, reads that many, and ignores the imaginary part of the first one
// and, if n is even, of the last one. `in` and `out` may be the same memory with the same strides if both are complex.
struct FftArgs {
  TensorView in, out;
  FftKind kind = FftKind::complex;
  int64_t n = 0;
  bool forward = true;
  double scale = 1;
};
extern Kernel<void(const FftArgs&)> fft_kernel;

// Fills the second half of the last dimension of a transform of real numbers, out[..., n - k] = conj(out[..., k]),
// where the dimensions named in `mirrored` (a bit each) run backwards as well.
extern Kernel<void(const TensorView& out, uint64_t mirrored)> fft_mirror_kernel;

}  // namespace minitorch
