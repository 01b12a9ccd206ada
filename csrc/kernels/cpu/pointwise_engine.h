// The CPU loop under every pointwise operator. The operator's own code is one small loop over a contiguous block of
// the compute type; this engine walks the iteration space, splits it over threads and hands out blocks. Operands that
// are not contiguous, or are stored in another dtype, pass through a buffer that fits in L1. So a functor is compiled
// once per compute type, whatever layouts and dtypes it meets.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cpu/cast.h"
#include "kernels/functors/pointwise.h"
#include "kernels/functors/types.h"
#include "kernels/kernel.h"
#include "core/parallel.h"
#include "kernels/pointwise.h"
#include "kernels/view.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

inline constexpr int64_t kBlock = 512;  // elements; 4 operands of 8 bytes take 16 KiB of L1

// Calls f(ptrs, n) for each piece of a row (dimension 0) among the elements [begin, end) of the view, in order.
template <class F>
inline void for_each_row_in(const PointwiseView& v, int64_t begin, int64_t end, const F& f) {
  if (begin == end) return;  // a view without elements has sizes that nothing can be divided by
  const int operands = v.num_operands;
  int64_t index[kMaxDims];
  char* ptrs[kMaxOperands];
  for (int k = 0; k < operands; k++) ptrs[k] = v.data[k];
  int64_t rest = begin;
  for (int d = 0; d < v.ndim; d++) {
    index[d] = rest % v.sizes[d];
    rest /= v.sizes[d];
    for (int k = 0; k < operands; k++) ptrs[k] += index[d] * v.strides[k][d];
  }
  const int64_t row = v.ndim > 0 ? v.sizes[0] : 1;
  for (int64_t i = begin; i < end;) {
    const int64_t n = std::min(v.ndim > 0 ? row - index[0] : int64_t{1}, end - i);
    f(static_cast<char* const*>(ptrs), n);
    i += n;
    if (i == end) break;
    // The piece ended at the end of its row: back to the row's start, then on to the next, carrying outwards.
    if (index[0] != 0) {
      for (int k = 0; k < operands; k++) ptrs[k] -= index[0] * v.strides[k][0];
      index[0] = 0;
    }
    for (int d = 1; d < v.ndim; d++) {
      for (int k = 0; k < operands; k++) ptrs[k] += v.strides[k][d];
      if (MT_LIKELY(++index[d] < v.sizes[d])) break;
      for (int k = 0; k < operands; k++) ptrs[k] -= v.sizes[d] * v.strides[k][d];
      index[d] = 0;
    }
  }
}

// The same for all elements, in parallel.
template <class F>
inline void for_each_row(const PointwiseView& v, const F& f) {
  if (v.ndim <= 1 && v.numel <= kGrainSize) {
    if (v.numel > 0) f(static_cast<char* const*>(v.data), v.numel);
    return;
  }
  parallel_for(v.numel, kGrainSize, [&](int64_t begin, int64_t end) { for_each_row_in(v, begin, end, f); });
}

// Calls f(ptrs, n) for groups of n rows, neighbours along dimension 1, at most `most` of them, in parallel. At least
// two dimensions. With a State each thread has one, which f(state, ptrs, n) gets as well.
struct NoState {};
template <class State = NoState, class F>
inline void for_each_group(const PointwiseView& v, int64_t most, const F& f) {
  PointwiseView rows;
  rows.ndim = v.ndim - 1;
  rows.num_operands = v.num_operands;
  rows.numel = v.numel / v.sizes[0];
  for (int d = 1; d < v.ndim; d++) rows.sizes[d - 1] = v.sizes[d];
  for (int k = 0; k < v.num_operands; k++) {
    rows.data[k] = v.data[k];
    for (int d = 1; d < v.ndim; d++) rows.strides[k][d - 1] = v.strides[k][d];
  }
  parallel_for(rows.numel, grain_of(v.sizes[0]), [&](int64_t begin, int64_t end) {
    State state;
    for_each_row_in(rows, begin, end, [&](char* const* ptrs, int64_t n) {
      for (int64_t i = 0; i < n; i += most) {
        char* at[kMaxOperands];
        for (int k = 0; k < rows.num_operands; k++) at[k] = ptrs[k] + i * rows.strides[k][0];
        if constexpr (std::is_same_v<State, NoState>)
          f(static_cast<char* const*>(at), std::min(most, n - i));
        else
          f(state, static_cast<char* const*>(at), std::min(most, n - i));
      }
    });
  });
}

// Results this large are not read again from the cache: they are written around it, which saves reading the lines
// first.
inline constexpr int64_t kStreamBytes = 32 << 20;
// memcpy with non-temporal stores where the instruction set has them. A kernel ends with stream_fence().
void stream_copy(char* to, const char* from, int64_t bytes);
void stream_fence();

// One operator in one compute type: the loop over a contiguous block, and the types it takes its operands in.
// ptrs[0..outputs) are written, the rest read.
using BlockFn = void (*)(const PointwiseParams& params, char* const* ptrs, int64_t n);
// Rows of an operator of two operands, each of n elements with one element: the rows of out follow each other, those of
// the operands are `element_step` and `row_step` bytes apart.
struct ScaledRows {
  char* out;
  const char *element, *row;
  int64_t element_step, row_step, n, count;
  bool element_first;  // it is the first operand
};
struct Block {
  BlockFn run;
  void (*scale_rows)(const PointwiseParams& params, const ScaledRows& rows);  // of a few operators only
  int num_operands;
  DType types[kMaxOperands];
  bool refuses_zero;  // integer division: operand 2 must not hold a zero
  bool wide_scalar;   // a scalar as operand 2 keeps its precision beside 16-bit floats
};

// Runs the block over the view. Throws std::runtime_error("ZeroDivisionError") before anything is written.
void run_pointwise(const PointwiseView& v, const Block& block, const PointwiseParams& params);

namespace engine {

template <class R>
struct Outputs {
  static constexpr int count = 1;
  static constexpr DType types[] = {dtype_of<R>};
};
template <class A, class B>
struct Outputs<functors::Two<A, B>> {
  static constexpr int count = 2;
  static constexpr DType types[] = {dtype_of<A>, dtype_of<B>};
};

// Booleans are read as bytes: GCC has no vector type for a load of bool, and leaves the loop scalar.
template <class T>
using read_t = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

// No __restrict__: an output may be the very same memory as an input (in place), which ivdep permits and restrict
// forbids.
template <class F, class R, class... In>
MT_INLINE void loop(const F& f, R* out, int64_t n, const In*... in) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) out[i] = f(in[i]...);
}
template <class F, class A, class B, class... In>
MT_INLINE void loop_two(const F& f, A* first, B* second, int64_t n, const In*... in) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    const functors::Two<A, B> r = f(in[i]...);
    first[i] = r.first;
    second[i] = r.second;
  }
}
template <class F, class R, class... In>
MT_INLINE void loop_with_exceptions(const F& f, R* out, int64_t n, const In*... in) {
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    int exceptional = 0;
    for (int64_t i = begin; i < end; i++) exceptional |= F::exceptional(in[i]...);
    if (MT_LIKELY(!exceptional)) {
      loop(f, out + begin, end - begin, (in + begin)...);
    } else {
      for (int64_t i = begin; i < end; i++)
        out[i] = F::exceptional(in[i]...) ? f.exceptional_value(in[i]...) : f(in[i]...);
    }
  }
}

// The elements whose value is in doubt are computed again, another way; the input may be the output's memory.
template <class F, class R, class In>
MT_INLINE void loop_with_corrections(const F& f, R* out, int64_t n, const In* in) {
  for (int64_t begin = 0; begin < n; begin += kBlock, out += kBlock, in += kBlock) {
    const int64_t count = std::min<int64_t>(kBlock, n - begin);
    In kept[kBlock];
    std::copy_n(in, count, kept);
    loop(f, out, count, kept);
    int doubtful = 0;
    for (int64_t i = 0; i < count; i++) doubtful |= F::doubtful(kept[i], out[i]);
    if (MT_LIKELY(!doubtful)) continue;
    for (int64_t i = 0; i < count; i++)
      if (F::doubtful(kept[i], out[i])) out[i] = f.corrected(kept[i]);
  }
}

// What outer products are made of, and what normalises rows. Beside a loop that reads the one element again and again
// from a block of copies it gains a quarter in L2.
template <class F>
inline constexpr bool scales_rows = false;
template <template <class> class F, class T>
inline constexpr bool scales_rows<F<T>> =
    (std::is_same_v<T, float> || std::is_same_v<T, double>) &&
    (std::is_same_v<F<T>, functors::Mul<T>> || std::is_same_v<F<T>, functors::Div<T>> ||
     std::is_same_v<F<T>, functors::PlainAdd<T>> || std::is_same_v<F<T>, functors::PlainSub<T>>);

template <class F, class Call = decltype(&F::operator())>
struct BlockOf;
template <class F, class R, class... In>
struct BlockOf<F, R (F::*)(In...) const> {
  static constexpr int outputs = Outputs<R>::count;

  static void run(const PointwiseParams& params, char* const* ptrs, int64_t n) {
    const F f = functors::make_functor<F>(params);
    [&]<size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
      if constexpr (outputs == 2) {
        loop_two(f, reinterpret_cast<decltype(R::first)*>(ptrs[0]), reinterpret_cast<decltype(R::second)*>(ptrs[1]), n,
                 reinterpret_cast<const read_t<In>*>(ptrs[2 + I])...);
      } else if constexpr (requires { F::exceptional(In{}...); }) {
        loop_with_exceptions(f, reinterpret_cast<R*>(ptrs[0]), n, reinterpret_cast<const read_t<In>*>(ptrs[1 + I])...);
      } else if constexpr (requires { F::doubtful(In{}..., R{}); }) {
        loop_with_corrections(f, reinterpret_cast<R*>(ptrs[0]), n, reinterpret_cast<const In*>(ptrs[1 + I])...);
      } else {
        loop(f, reinterpret_cast<R*>(ptrs[0]), n, reinterpret_cast<const read_t<In>*>(ptrs[1 + I])...);
      }
    }(std::index_sequence_for<In...>{});
  }

  static void scale_rows(const PointwiseParams& params, const ScaledRows& rows)
    requires scales_rows<F>
  {
    const F f = functors::make_functor<F>(params);
    R* out = reinterpret_cast<R*>(rows.out);
    const int64_t n = rows.n;
    for (int64_t r = 0; r < rows.count; r++, out += n) {
      const R element = *reinterpret_cast<const R*>(rows.element + r * rows.element_step);
      const R* const row = reinterpret_cast<const R*>(rows.row + r * rows.row_step);
      if (rows.element_first) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) out[i] = f(element, row[i]);
      } else {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) out[i] = f(row[i], element);
      }
    }
  }

  static constexpr Block make() {
    Block b{&run, nullptr, outputs + static_cast<int>(sizeof...(In)), {}, false, false};
    int k = 0;
    for (const DType t : Outputs<R>::types) b.types[k++] = t;
    for (const DType t : {dtype_of<In>...}) b.types[k++] = t;
    if constexpr (scales_rows<F>) b.scale_rows = &scale_rows;
    if constexpr (requires { F::divides; }) b.refuses_zero = std::is_integral_v<R>;
    if constexpr (requires { F::wide_scalar; }) b.wide_scalar = true;
    return b;
  }
  static constexpr Block block = make();
};

template <template <class> class F, class... T>
inline const Block* find(DType compute, Types<T...>) {
  const Block* found = nullptr;
  ((compute == dtype_of<T> ? (found = &BlockOf<F<T>>::block, true) : false) || ...);
  return found;
}

}  // namespace engine

// A source that compiles one table of operators defines its lookup with these: nullptr where the table has no such
// operator or the operator is not built for the compute type.
#define MT_DEFINE_BLOCKS(function, TABLE)                \
  const Block* function(PointwiseOp op, DType compute) { \
    switch (op) {                                        \
      TABLE(MT_BLOCK_CASE)                               \
      default: return nullptr;                           \
    }                                                    \
  }
#define MT_BLOCK_CASE(name, functor, types) \
  case PointwiseOp::name: return engine::find<functors::functor>(compute, types{});

const Block* arithmetic_block(PointwiseOp op, DType compute);
const Block* compare_block(PointwiseOp op, DType compute);
const Block* integer_block(PointwiseOp op, DType compute);
const Block* math_block(PointwiseOp op, DType compute);
const Block* special_block(PointwiseOp op, DType compute);
const Block* bessel_block(PointwiseOp op, DType compute);
const Block* orthogonal_block(PointwiseOp op, DType compute);
const Block* pathwise_block(PointwiseOp op, DType compute);
const Block* activation_block(PointwiseOp op, DType compute);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
