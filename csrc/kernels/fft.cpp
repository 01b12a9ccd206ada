// The kernel objects of Fourier transforms.
#include "kernels/fft.h"

namespace minitorch {
constinit Kernel<void(const FftArgs&)> fft_kernel{"fft"};
constinit Kernel<void(const TensorView&, uint64_t)> fft_mirror_kernel{"fft_mirror"};
}  // namespace minitorch
