// Matrix products: C = alpha * A B + beta * D, batched, any strides, any dtype that native torch multiplies.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// A batch of matrices. Strides are in elements and may be zero (broadcast) or negative.
struct MatrixView {
  char* data = nullptr;
  int64_t row = 0, col = 0, batch = 0;
  bool conj = false;  // read the complex conjugate; never set on an output
};

// All matrices have one dtype; 16-bit floats accumulate in float, integers wrap. D is the addend: it may be C itself
// (in place), a broadcast bias, or absent; it is read only if beta is not zero, and A and B only if alpha is not, so
// NaNs in them do not spread. C must not overlap A or B.
struct GemmArgs {
  DType dtype = DType::F32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  MatrixView a;  // m x k
  MatrixView b;  // k x n
  MatrixView c;  // m x n
  MatrixView d;  // m x n
  Scalar alpha{int64_t{1}}, beta{int64_t{0}};
  bool tf32 = false;  // float factors may be rounded to tf32 (10 bits of mantissa)
};

extern Kernel<void(const GemmArgs&)> gemm_kernel;
// The textbook triple loop: what tests compare against, and the shortest definition of the result.
extern Kernel<void(const GemmArgs&)> gemm_reference_kernel;

}  // namespace minitorch
