// Indexing: reading from and writing to the elements of a tensor that index tensors name, and the operators on masks.
//
// One iteration space serves index, index_put, gather, scatter, index_select, index_add, take, put and embedding. At
// each of its points there is an element of `values` (the output of a read, the source of a write) and an address in
// `self`: a base that moves with self_strides plus, for every index tensor, the index found there times indexed_stride.
// Along the dimensions that are indexed self_strides is 0.
#pragma once
#include <cstdint>

#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

inline constexpr int kMaxIndices = 32;

// Strides are in bytes, dimension 0 is the innermost. Indices are int64.
struct IndexArgs {
  int ndim = 0;
  int num_indices = 0;
  bool allow_negative = true;  // -size..-1 count from the end
  // Check every index before anything is written. Not needed for an output that nobody sees if the call fails; then
  // indices are checked piece by piece, while they are in cache.
  bool check_first = true;
  // Writes: keep their order on a GPU too, where it costs a sort.
  bool ordered = false;
  const char* name = "index";  // of the operator, for a bad index that is only met after the call; a string that stays
  DType dtype;                 // of values and self
  int64_t numel = 0;
  char* values;
  char* self;
  const char* index[kMaxIndices];
  int64_t indexed_size[kMaxIndices];
  int64_t indexed_stride[kMaxIndices];
  int64_t sizes[kMaxDims];
  int64_t values_strides[kMaxDims];
  int64_t self_strides[kMaxDims];
  int64_t index_strides[kMaxIndices][kMaxDims];
};

// Drops dimensions of size 1, moves those with the smallest strides innermost and merges what can be merged. Only for a
// space with at most one indexed dimension: there no order of the dimensions changes which write to an address is last.
void simplify(IndexArgs& args);

// Thrown by kernels, before anything is written (but see check_first), for an index outside [0, size) (or [-size,
// size)).
struct IndexOutOfRange {
  int64_t index;
  int which;  // the position of the index tensor in IndexArgs
  int64_t size;
};

// Writes to one address are applied in the order of the iteration space, whatever the number of threads.
enum class IndexWrite : uint8_t { assign, add, multiply, minimum, maximum };

// values[i] = self[address(i)]
extern Kernel<void(const IndexArgs&)> index_read_kernel;
// self[address(i)] = self[address(i)] op values[i]; minimum and maximum propagate NaN.
extern Kernel<void(const IndexArgs&, IndexWrite)> index_write_kernel;

// Where the nonzero elements of a tensor are, by chunks of its elements in row-major order: `before[c]` counts those in
// earlier chunks and `before[chunks]` all of them. Made once, then used by the kernels that gather or scatter them.
struct NonzeroPlan {
  static constexpr int kMaxChunks = 256;
  int chunks;
  int64_t chunk;  // elements in each but the last
  int64_t before[kMaxChunks + 1];
};

// Dimension 0 of a TensorView is the outermost, as in PyTorch.
extern Kernel<void(const TensorView& input, NonzeroPlan&)> nonzero_plan_kernel;
// Row r of `out` ([rows, input.ndim] int64 with any strides) becomes the coordinates of the r-th nonzero element; those
// past the last row are dropped.
extern Kernel<void(const TensorView& input, const NonzeroPlan&, const TensorView& out)> nonzero_kernel;
// The elements of `input` where `mask` (same shape, plan made from it) is nonzero, into the one-dimensional `out`.
extern Kernel<void(const TensorView& input, const TensorView& mask, const NonzeroPlan&, const TensorView& out)>
    masked_select_kernel;
// The reverse: the elements of `self` where `mask` is nonzero become the leading elements of the contiguous `source`.
extern Kernel<void(const TensorView& self, const TensorView& mask, const NonzeroPlan&, const TensorView& source)>
    masked_scatter_kernel;
// Operand 0 becomes the scalar wherever operand 1 (bool) is true.
extern Kernel<void(const PointwiseView&, const Scalar&)> masked_fill_kernel;
// The same with an element of operand 0's dtype in the device's memory, which may be one of operand 0.
extern Kernel<void(const PointwiseView&, const char* value)> masked_fill_with_element_kernel;
// Throws std::runtime_error(message) if the element is zero; an asynchronous device at the next synchronisation. The
// message must outlive the process's use of the device.
extern Kernel<void(const char* element, DType, const char* message)> expect_nonzero_kernel;

// out[..., i + dim_start] += grad[..., f, i]: the gradient of unfold. `grad` has one dimension more than `out`, the
// last one of length `size`; fold f of dimension `dim` covers f * step up to f * step + size.
struct UnfoldBackwardArgs {
  TensorView out;  // contiguous, zeroed
  TensorView grad;
  int dim;
  int64_t size;
  int64_t step;
};
extern Kernel<void(const UnfoldBackwardArgs&)> unfold_backward_kernel;

}  // namespace minitorch
