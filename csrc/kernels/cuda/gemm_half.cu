// Matrix products of 16-bit floats: chooses the tensor-core kernel for the layout of the operands.
#include "kernels/cuda/gemm_tensor.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class S, bool AK, bool BK>
void launch(const Strided<S>& p) {
  constexpr int kColumns = 128, bytes = (tensor::kRows + kColumns) * tensor::kDepth * 2 * tensor::kStages;
  launch_tiles(&tensor::multistage_kernel<S, kColumns, AK, BK>, p, tensor::kRows, kColumns, tensor::kDepth, kColumns,
               bytes, 2);
}

template <class S>
void by_layout(const Strided<S>& p) {
  if (p.a_along_k) {
    p.b_along_k ? launch<S, true, true>(p) : launch<S, true, false>(p);
  } else {
    p.b_along_k ? launch<S, false, true>(p) : launch<S, false, false>(p);
  }
}

// Lines of `width` elements, `pitch` apart, to lines of an even pitch; a batch of them.
__global__ void __launch_bounds__(kThreads) repack_kernel(const uint16_t* from, int64_t pitch, int64_t batch_stride,
                                                          uint32_t* to, int64_t pairs, int64_t lines, int64_t width) {
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    const uint16_t* const source = from + blockIdx.y * batch_stride + line * pitch;
    uint32_t* const target = to + (blockIdx.y * lines + line) * pairs;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < pairs; i += kThreads) {
      const uint32_t low = i * 2 < width ? source[i * 2] : 0, high = i * 2 + 1 < width ? source[i * 2 + 1] : 0;
      target[i] = low | high << 16;
    }
  }
}

// An operand whose lines do not start at multiples of 16 bytes is read element by element, by every block that needs
// it. Where that costs more, it is copied once to lines that do.
class Repacked {
 public:
  Repacked(MatrixView& v, bool along_k, bool& vectors, int64_t k, int64_t rows, int64_t batch, int64_t other)
      : lines_(along_k ? rows : k),
        width_(along_k ? k : rows),
        pitch_(ceil_div(width_, 8) * 8),
        wanted_(!vectors && other >= 256 && width_ >= 64 && lines_ >= 64 && batch <= 65535),
        memory_(wanted_ ? batch * lines_ * pitch_ * 2 : 0) {
    if (!wanted_) return;
    int64_t& line_stride = along_k ? v.row : v.col;
    const dim3 grid(static_cast<unsigned>(std::min<int64_t>(lines_, 65535)), static_cast<unsigned>(batch));
    repack_kernel<<<grid, kThreads, 0, cuda::current_stream()>>>(reinterpret_cast<const uint16_t*>(v.data), line_stride,
                                                                 v.batch, memory_.get<uint32_t>(), pitch_ / 2, lines_,
                                                                 width_);
    v.data = memory_.get();
    line_stride = pitch_;
    v.batch = lines_ * pitch_;
    vectors = true;
  }

 private:
  int64_t lines_, width_, pitch_;
  bool wanted_;
  Scratch memory_;
};

template <class S>
void run(const GemmArgs& g) {
  Strided<S> p = strided_problem<S>(g.c.col != 1 && g.c.row == 1 ? transposed(g) : g);
  const Repacked a(p.a_view, p.a_along_k, p.a_vectors, p.k, p.m, p.batch, p.n);
  const Repacked b(p.b_view, p.b_along_k, p.b_vectors, p.k, p.n, p.batch, p.m);
  if (!gemm_hopper(p)) by_layout<S>(p);
}

}  // namespace

bool gemm_half(const GemmArgs& g) {
  if (!is_half(g.dtype) || !has_unit_strides(g)) return false;
  g.dtype == DType::BF16 ? run<BFloat16>(g) : run<Half>(g);
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
