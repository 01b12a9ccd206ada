// The staging loop shared by all pointwise operators (see the header).
#include "kernels/cpu/pointwise_engine.h"

#include <cstring>
#include <stdexcept>

#include "kernels/cpu/move_rows.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// How one operand gets between memory and the buffer that the block works on.
struct Staging {
  bool direct;         // the block works on memory itself
  bool rounds;         // passes through the common 16-bit dtype, as native's casts to the common dtype do
  int64_t stride;      // of dimension 0, bytes
  int64_t step;        // of the buffer or memory that the block sees: element size if direct, else 0
  LoadFn load, round;  // input: memory to (16-bit, then) compute type
  StoreFn store;       // output: (16-bit) compute type to memory
};

// True if some element of operand k is zero once it has the type that the block works on: 256 is, as an int8.
bool any_zero(const PointwiseView& v, int k, DType type) {
  PointwiseView one = v;
  one.num_operands = 1;
  one.data[0] = v.data[k];
  for (int d = 0; d < v.ndim; d++) one.strides[0][d] = v.strides[k][d];
  const bool converts = v.dtype[k] != type;
  const LoadFn load = load_fn(v.dtype[k], type), test = load_fn(type, DType::Bool);
  const auto size = static_cast<int64_t>(size_of(type));
  std::atomic<bool> found{false};
  for_each_row(one, [&](char* const* ptrs, int64_t n) {
    alignas(64) bool nonzero[kBlock];
    alignas(64) char converted[kBlock * 16];
    const int64_t stride = v.ndim > 0 ? one.strides[0][0] : 0;
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = stride == 0 ? 1 : std::min(kBlock, n - i);
      const char* const from = ptrs[0] + i * stride;
      if (converts) load(converted, from, stride, m);
      test(nonzero, converts ? converted : from, converts ? size : stride, m);
      bool all = true;
      for (int64_t j = 0; j < m; j++) all &= nonzero[j];
      if (!all) found.store(true, std::memory_order_relaxed);
      if (stride == 0) break;
    }
  });
  return found;
}

bool is_scalar(const PointwiseView& v, int k) {
  for (int d = 0; d < v.ndim; d++)
    if (v.strides[k][d] != 0) return false;
  return true;
}

void load_block(const Staging& s, char* buffer, const char* from, int64_t stride, int64_t n) {
  if (MT_UNLIKELY(s.rounds)) {
    alignas(64) char rounded[kBlock * 2];
    s.load(rounded, from, stride, n);
    s.round(buffer, rounded, 2, n);
  } else {
    s.load(buffer, from, stride, n);
  }
}

void store_block(const Staging& s, char* to, int64_t stride, const char* buffer, int64_t n) {
  if (MT_UNLIKELY(s.rounds)) {
    alignas(64) char rounded[kBlock * 2];
    s.round(rounded, buffer, 4, n);
    s.store(to, stride, rounded, n);
  } else {
    s.store(to, stride, buffer, n);
  }
}

void run_rows(const PointwiseView& v, const Block& block, const PointwiseParams& params, const Staging* staging) {
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    alignas(64) char buffers[kMaxOperands][kBlock * 16];
    char* staged[kMaxOperands];
    for (int k = 0; k < v.num_operands; k++) {
      const Staging& s = staging[k];
      staged[k] = s.direct ? ptrs[k] : buffers[k];
      // A broadcast operand is converted once for the whole row.
      if (!s.direct && k >= v.num_outputs && s.stride == 0) load_block(s, buffers[k], ptrs[k], 0, std::min(kBlock, n));
    }
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      for (int k = v.num_outputs; k < v.num_operands; k++) {
        const Staging& s = staging[k];
        if (!s.direct && s.stride != 0) load_block(s, buffers[k], ptrs[k] + i * s.stride, s.stride, m);
      }
      block.run(params, staged, m);
      for (int k = 0; k < v.num_outputs; k++) {
        const Staging& s = staging[k];
        if (!s.direct) store_block(s, ptrs[k] + i * s.stride, s.stride, buffers[k], m);
      }
      for (int k = 0; k < v.num_operands; k++) staged[k] += m * staging[k].step;
    }
  });
}

// What a thread brings rows together in. An operand that repeats one row stays from group to group.
struct GroupBuffers {
  alignas(64) char operand[kMaxOperands][kBlock * 16];
  const char* repeated[kMaxOperands] = {};
  int64_t repeats[kMaxOperands] = {};

  // Whether operand k already holds `rows` copies of this row; if not, it will.
  bool holds(int k, const char* row, int64_t rows) {
    if (repeated[k] == row && repeats[k] >= rows) return true;
    repeated[k] = row, repeats[k] = rows;
    return false;
  }
};

// Short rows: as many as fill a block are brought together in a buffer first, unless they lie so already.
void run_groups(const PointwiseView& v, const Block& block, const PointwiseParams& params, const Staging* staging) {
  const int64_t row = v.sizes[0];
  bool dense[kMaxOperands], same_type[kMaxOperands];
  for (int k = 0; k < v.num_operands; k++) {
    const int64_t size = static_cast<int64_t>(size_of(v.dtype[k]));
    dense[k] = v.strides[k][0] == size && v.strides[k][1] == row * size;
    same_type[k] = v.dtype[k] == block.types[k] && !staging[k].rounds;
  }
  for_each_group<GroupBuffers>(v, kBlock / row, [&](GroupBuffers& group, char* const* ptrs, int64_t rows) {
    auto& buffers = group.operand;
    alignas(64) char together[kBlock * 16];  // as in memory, before conversion
    char* staged[kMaxOperands];
    const int64_t n = rows * row;
    for (int k = 0; k < v.num_operands; k++) {
      const int64_t size = static_cast<int64_t>(size_of(v.dtype[k]));
      const bool one = v.strides[k][0] == 0 && v.strides[k][1] == 0;
      staged[k] = dense[k] && same_type[k] ? ptrs[k] : buffers[k];
      if (k < v.num_outputs || staged[k] == ptrs[k]) continue;
      if (one) {
        load_block(staging[k], buffers[k], ptrs[k], 0, n);
        continue;
      }
      if (v.strides[k][1] == 0 && group.holds(k, ptrs[k], rows)) continue;
      char* from = ptrs[k];
      if (!dense[k]) {
        from = same_type[k] ? buffers[k] : together;
        move_rows({from, size, row * size}, {ptrs[k], v.strides[k][0], v.strides[k][1]}, row, rows, size);
      }
      if (!same_type[k]) load_block(staging[k], buffers[k], from, size, n);
    }
    block.run(params, staged, n);
    for (int k = 0; k < v.num_outputs; k++) {
      if (staged[k] == ptrs[k]) continue;
      const int64_t size = static_cast<int64_t>(size_of(v.dtype[k]));
      char* from = buffers[k];
      if (!same_type[k]) {
        char* const to = dense[k] ? ptrs[k] : together;
        store_block(staging[k], to, size, buffers[k], n);
        from = to;
      }
      if (!dense[k]) move_rows({ptrs[k], v.strides[k][0], v.strides[k][1]}, {from, size, row * size}, row, rows, size);
    }
  });
}

void run_staged(const PointwiseView& v, const Block& block, const PointwiseParams& params, Staging* staging) {
  for (int k = 0; k < v.num_operands; k++) {
    Staging& s = staging[k];
    s.stride = v.ndim > 0 ? v.strides[k][0] : 0;
    s.step = s.direct ? static_cast<int64_t>(size_of(v.dtype[k])) : 0;
    const DType memory = v.dtype[k], near = s.rounds ? v.compute : memory;
    s.load = load_fn(memory, s.rounds ? near : block.types[k]);
    s.round = k < v.num_outputs ? load_fn(block.types[k], near) : load_fn(near, block.types[k]);
    s.store = store_fn(s.rounds ? near : block.types[k], memory);
  }
  if (v.ndim >= 2 && v.sizes[0] <= kShortRowElements && v.sizes[1] >= 4) return run_groups(v, block, params, staging);
  run_rows(v, block, params, staging);
}

}  // namespace

void stream_copy(char* to, const char* from, int64_t bytes) {
#if defined(__x86_64__)
  const int64_t head = std::min(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) & 63));
  memcpy(to, from, head);
  int64_t i = head;
  for (; i + 64 <= bytes; i += 64) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
#else
    for (int j = 0; j < 64; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + j)));
#endif
  }
  memcpy(to + i, from + i, bytes - i);
#else
  memcpy(to, from, bytes);
#endif
}

void stream_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

namespace {

// The single output is large, contiguous, and not an input as well.
bool streams(const PointwiseView& v) {
  const int64_t size = static_cast<int64_t>(size_of(v.dtype[0]));
  if (v.numel * size < kStreamBytes || v.num_outputs != 1 || v.ndim != 1) return false;
  for (int k = 1; k < v.num_operands; k++)
    if (v.data[k] == v.data[0]) return false;
  return true;
}

// Calls f(buffer, ptrs, i, n) for n elements of the output from element i of ptrs on, which f puts into the buffer;
// they are written around the cache.
template <class F>
void for_each_streamed(const PointwiseView& v, const F& f) {
  const int64_t size = static_cast<int64_t>(size_of(v.dtype[0]));
  for_each_row(v, [&](char* const* ptrs, int64_t n) {
    alignas(64) char buffer[kBlock * 16];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      f(static_cast<char*>(buffer), ptrs, i, m);
      stream_copy(ptrs[0] + i * size, buffer, m * size);
    }
    stream_fence();
  });
}

// Short rows of which some operands repeat the same one (a bias): those are unrolled into a buffer of several rows, so
// that the loop is called for as many at once.
constexpr int64_t kShortRow = 256;

bool repeats_a_row(const PointwiseView& v) {
  if (v.ndim != 2 || v.sizes[0] > kShortRow || v.numel <= kShortRow) return false;
  bool any = false;
  for (int k = 0; k < v.num_operands; k++) {
    const bool repeated = v.strides[k][1] == 0;
    if (repeated ? k < v.num_outputs : v.strides[k][1] != v.sizes[0] * v.strides[k][0]) return false;
    any = any || repeated;
  }
  return any;
}

void run_repeated_row(const PointwiseView& v, const Block& block, const PointwiseParams& params) {
  constexpr int64_t kRepeated = 512;
  const int64_t row = v.sizes[0], rows = v.sizes[1], group = std::min(rows, kRepeated / row);
  parallel_for(rows, grain_of(row), [&](int64_t begin, int64_t end) {
    alignas(64) char buffers[kMaxOperands][kRepeated * 16];
    char* ptrs[kMaxOperands];
    for (int k = 0; k < v.num_operands; k++) {
      const int64_t bytes = row * v.strides[k][0];
      ptrs[k] = v.data[k] + begin * v.strides[k][1];
      if (v.strides[k][1] != 0) continue;
      for (int64_t i = 0; i < std::min(group, end - begin); i++) memcpy(buffers[k] + i * bytes, v.data[k], bytes);
      ptrs[k] = buffers[k];
    }
    for (int64_t i = begin; i < end; i += group) {
      const int64_t n = std::min(group, end - i);
      block.run(params, ptrs, n * row);
      for (int k = 0; k < v.num_operands; k++) ptrs[k] += n * v.strides[k][1];
    }
  });
}

// The operand that has one element for each row of the other, a scalar among them, or 0.
int row_scale(const PointwiseView& v, const Block& block) {
  if (block.scale_rows == nullptr || v.ndim == 0) return 0;
  const int64_t size = static_cast<int64_t>(size_of(block.types[0]));
  if (v.dtype[0] != block.types[0] || v.strides[0][0] != size) return 0;
  if (v.ndim > 1 && v.sizes[0] <= kShortRowElements && v.strides[0][1] != v.sizes[0] * size) return 0;
  for (int k = 1; k < 3; k++)
    if (v.strides[k][0] == 0 && v.strides[3 - k][0] == size && v.dtype[3 - k] == block.types[0] &&
        (v.dtype[k] == block.types[0] || is_scalar(v, k)))
      return k;
  return 0;
}

void scale_rows(const PointwiseView& v, const Block& block, const PointwiseParams& params, int scale) {
  const int other = 3 - scale;
  alignas(16) char converted[16];
  const char* scalar = nullptr;
  if (v.dtype[scale] != block.types[0]) {
    load_fn(v.dtype[scale], block.types[0])(converted, v.data[scale], 0, 1);
    scalar = converted;
  }
  if (v.ndim > 1 && v.sizes[0] <= kShortRowElements) {
    // Many short rows: an outer product, whose repeated elements would take longer to write down than the products.
    for_each_group(v, v.sizes[1], [&](char* const* ptrs, int64_t rows) {
      block.scale_rows(params, {ptrs[0], scalar != nullptr ? scalar : ptrs[scale], ptrs[other], v.strides[scale][1],
                                v.strides[other][1], v.sizes[0], rows, scale == 1});
    });
    return;
  }
  const auto piece = [&](char* out, char* const* ptrs, int64_t i, int64_t n) {
    const char* const element = scalar != nullptr ? scalar : ptrs[scale];
    block.scale_rows(params, {out, element, ptrs[other] + i * v.strides[other][0], 0, 0, n, 1, scale == 1});
  };
  if (streams(v)) return for_each_streamed(v, piece);
  for_each_row(v, [&](char* const* ptrs, int64_t n) { piece(ptrs[0], ptrs, 0, n); });
}

}  // namespace

void run_pointwise(const PointwiseView& v, const Block& block, const PointwiseParams& params) {
  if (block.refuses_zero && any_zero(v, 2, block.types[2])) throw std::runtime_error("ZeroDivisionError");
  if (const int scale = row_scale(v, block)) return scale_rows(v, block, params, scale);
  Staging staging[kMaxOperands];
  const bool half = is_half(v.compute);
  bool all_direct = true;
  for (int k = 0; k < v.num_operands; k++) {
    const int64_t size = static_cast<int64_t>(size_of(v.dtype[k]));
    staging[k].rounds = half && block.types[k] == DType::F32 && v.dtype[k] != v.compute &&
                        !(block.wide_scalar && k == 2 && is_scalar(v, k));
    staging[k].direct = v.dtype[k] == block.types[k] && (v.ndim == 0 || v.strides[k][0] == size) && !staging[k].rounds;
    all_direct = all_direct && staging[k].direct;
  }
  if (all_direct && streams(v)) {
    for_each_streamed(v, [&](char* buffer, char* const* ptrs, int64_t i, int64_t n) {
      char* at[kMaxOperands];
      at[0] = buffer;
      for (int k = 1; k < v.num_operands; k++) at[k] = ptrs[k] + i * static_cast<int64_t>(size_of(v.dtype[k]));
      block.run(params, at, n);
    });
  } else if (all_direct && repeats_a_row(v)) {
    run_repeated_row(v, block, params);
  } else if (all_direct) {
    for_each_row(v, [&](char* const* ptrs, int64_t n) { block.run(params, ptrs, n); });
  } else {
    run_staged(v, block, params, staging);
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
