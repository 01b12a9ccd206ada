// Scaled dot-product attention without the matrix of scores in memory: T. Dao et al., "FlashAttention", NeurIPS 2022,
// on the online softmax of M. Milakov and N. Gimelshein, 2018.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// A (batch, head, row, column) operand; strides are in elements.
struct AttentionOperand {
  char* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, column = 0;
};

// Dropout of the softmax's weights. Which weights stay is a function of the generator's state and of a weight's place,
// so the gradient finds them again.
struct AttentionDropout {
  double p = 0;                   // probability of a weight to become zero, below 1; 0: no dropout
  uint64_t seed = 0, offset = 0;  // of the generator, before the draws
  bool by_tiles = false;          // the rule: see kernels/cuda/attention_dropout.cuh
  int64_t first = 0, heads = 0;   // heads before those of the first sample in the generator's order; heads of a sample
};

// softmax(scale Q K^T + mask) V. Query head h meets key head h / (heads / kv_heads). The dtype is float or a 16-bit
// float; all arithmetic is in float.
struct AttentionArgs {
  DType dtype;
  int64_t batch, heads, kv_heads;
  int64_t queries, keys;        // rows of Q, and of K and V
  int64_t head_dim, value_dim;  // columns of Q and K, and of V
  AttentionOperand q, k, v;
  AttentionOperand mask;  // added to the scores; null data: none. Strides may be 0.
  bool causal;            // query i meets keys 0 .. i
  float scale;
  AttentionDropout dropout = {};  // the CPU's kernels have none
};

// out (batch, heads, queries, value_dim); lse: float, contiguous (batch, heads, queries), the log of each row's sum of
// exponentials. Rows that meet no key come out as zeros, with an lse of minus infinity.
extern Kernel<void(const AttentionArgs&, const AttentionOperand& out, float* lse)> attention_kernel;

struct AttentionGradients {
  AttentionOperand grad_out, out;  // given
  const float* lse;
  AttentionOperand grad_q, grad_k, grad_v;  // computed
};
extern Kernel<void(const AttentionArgs&, const AttentionGradients&)> attention_backward_kernel;

}  // namespace minitorch
