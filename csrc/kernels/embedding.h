// Embedding tables: gradients, bags (sums, means or maxima of rows), renormalisation. Plain lookup is index_select.
// Strides are in elements. Indices are int64; one outside [0, rows) is thrown as IndexOutOfRange before anything is
// written.
#pragma once
#include <cstdint>

#include "kernels/index.h"

namespace minitorch {

// out[r] = sum over i with indices[i] == r, r != padding_idx, of factor(i) * grad[source(i)]; rows without any become
// zero.
struct EmbeddingBackwardArgs {
  DType dtype;
  const char* grad;  // rows are contiguous
  int64_t grad_stride;
  int64_t grad_rows;
  const int64_t* indices;  // those outside the table are ignored
  int64_t count;
  const int64_t* source;       // the row of grad for each index, null for its position; those outside are ignored
  const char* sample_weights;  // factor, of type dtype; may be null
  const int64_t* bag_sizes;    // divides by bag_sizes[source(i)]; may be null
  bool scale_by_frequency;     // divides by the number of times that r occurs
  int64_t padding_idx;
  char* out;  // [rows, dim], contiguous
  int64_t rows;
  int64_t dim;
};
extern Kernel<void(const EmbeddingBackwardArgs&)> embedding_backward_kernel;

enum class BagMode : uint8_t { sum, mean, max };

// Thrown by embedding_bag_kernel, before anything is written, for an offset outside [least, most].
struct OffsetOutOfRange {
  int64_t offset, bag, least, most;
};

// Bag b holds positions offsets[b] up to the next offset, the last one up to `end`; those with padding_idx are left
// out. An asynchronous device checks the offsets itself, and raises a RuntimeError at the next synchronisation; there
// `end` may be kNextOffset: the offset behind the last bag's.
inline constexpr int64_t kNextOffset = -1;
struct EmbeddingBagArgs {
  DType dtype;
  BagMode mode;
  const char* weight;
  int64_t weight_strides[2];
  int64_t rows;
  int64_t dim;
  const int64_t* indices;
  int64_t count;
  const int64_t* offsets;
  int64_t bags;
  int64_t end;
  int64_t padding_idx;
  const char* sample_weights;  // contiguous, of type dtype; may be null
  char* out;                   // [bags, dim], contiguous; empty bags become zero
  int64_t* position_bag;       // [count], the bag of each position; may be null
  int64_t* bag_sizes;          // [bags]; may be null
  int64_t* max_indices;        // [bags, dim], the index that gave each maximum; may be null
};
extern Kernel<void(const EmbeddingBagArgs&)> embedding_bag_kernel;

// out[max_indices[b, d], d] += grad[b, d] for the bags that are not empty. Everything is contiguous.
struct EmbeddingBagMaxBackwardArgs {
  DType dtype;
  const char* grad;
  const int64_t* max_indices;
  const int64_t* bag_sizes;
  int64_t bags;
  int64_t dim;
  char* out;     // zeroed
  int64_t rows;  // of out; indices outside are ignored
};
extern Kernel<void(const EmbeddingBagMaxBackwardArgs&)> embedding_bag_max_backward_kernel;

// out[i] = the dot product of grad[bags[i]] and weight[indices[i]], zero for padding_idx.
struct SampleWeightsBackwardArgs {
  DType dtype;
  const char* grad;
  int64_t grad_strides[2];
  const char* weight;
  int64_t weight_strides[2];
  int64_t rows;
  int64_t dim;
  const int64_t* indices;
  const int64_t* bags;
  int64_t count;
  int64_t padding_idx;
  char* out;
  int64_t grad_rows;
};
extern Kernel<void(const SampleWeightsBackwardArgs&)> sample_weights_backward_kernel;

// Scales the rows that the indices name down to max_norm where their p-norm exceeds it.
struct EmbeddingRenormArgs {
  TensorView weight;
  const int64_t* indices;
  int64_t count;
  double max_norm;
  double p;
};
extern Kernel<void(const EmbeddingRenormArgs&)> embedding_renorm_kernel;

}  // namespace minitorch
