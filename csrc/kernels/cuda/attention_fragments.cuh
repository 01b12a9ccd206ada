// What the kernels of attention_mma.cuh multiply: fragments of panels and of accumulators, for 16-bit floats as they
// are, and for floats as sums of two parts of 11 bits each. A product of floats is three of tf32: what is left out, the
// product of both low parts, is 2^-22 of it (the method: H. Ootomo and R. Yokota, "Recovering single precision accuracy
// from Tensor Cores", IJHPCA 2022).
#pragma once
#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/mma.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace attention {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

template <class S>
constexpr int kWords = static_cast<int>(sizeof(S)) / 2;  // elements of 16 bits that one counts as in a panel
template <class S>
constexpr int kDepth = 16 / kWords<S>;  // of k, in a product

// A panel of `Lines` of `Width` elements.
template <class S, int Lines, int Width>
using Rows = mma::Panel<Lines, Width * kWords<S>>;

template <class S>
__device__ __forceinline__ bool vectors(const AttentionOperand& o) {
  const auto strides = static_cast<uintptr_t>(o.row | o.head | o.batch);
  return (reinterpret_cast<uintptr_t>(o.data) | (strides * sizeof(S))) % 16 == 0;
}
template <class S = uint16_t>
__device__ __forceinline__ const S* slice(const AttentionOperand& o, int64_t batch, int64_t head) {
  return reinterpret_cast<const S*>(o.data) + batch * o.batch + head * o.head;
}

// Fills a panel of `Rows` from lines of `pitch` elements; see mma::Panel::fill.
template <class P, int Threads, class S>
__device__ __forceinline__ void fill_rows(uint32_t to, const S* data, int64_t pitch, int64_t lines, int64_t width,
                                          bool vectors) {
  P::template fill<Threads>(to, reinterpret_cast<const uint16_t*>(data), pitch * kWords<S>, lines, width * kWords<S>,
                            vectors);
}

// An operand of 16 rows (or columns) by kDepth of k: the right one is of two products.
template <class S>
struct Fragment {
  uint32_t words[4];
};
template <>
struct Fragment<float> {
  uint32_t high[4], low[4];
  // The low part is exact: what the instruction cuts off of it is below 2^-22 of the value.
  __device__ __forceinline__ void set(int e, float x) {
    high[e] = __float_as_uint(x);
    mma::round_to_tf32(high[e]);
    low[e] = __float_as_uint(x - __uint_as_float(high[e]));
  }
  __device__ __forceinline__ void set(const uint32_t (&words)[4]) {
#pragma unroll
    for (int e = 0; e < 4; e++) set(e, __uint_as_float(words[e]));
  }
};

// Where 16 bytes of a panel lie: of line `line` + `lines` (a multiple of 8) chunk `odd` (0 or 1) + `even`. What depends
// on the lane is computed once for all that differ in `lines` and `even`: a panel begins at 128 bytes, so that the
// chunk can be exchanged in the address.
template <class P>
__device__ __forceinline__ uint32_t place(uint32_t panel, int line, int odd, int lines, int even) {
  return ((panel + P::at(line, odd)) ^ static_cast<uint32_t>(even % 8 * 16)) +
         static_cast<uint32_t>(lines * (P::kChunks * 16) + even / 8 * 128);
}

// Rows from `row`, a multiple of 16, on of a panel that runs along k, from `k` on.
template <class P, class S>
__device__ __forceinline__ void load_left(Fragment<S>& to, uint32_t panel, int row, int k) {
  if constexpr (std::is_same_v<S, float>) {
    const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8;
    uint32_t words[4];
    mma::load_matrices(words, place<P>(panel, row + matrix % 2 * 8 + lane % 8, matrix / 2, 0, k / 4));
    to.set(words);
  } else {
    mma::load_a<P, true>(to.words, panel, row, k);
  }
}

// Columns from `column` on of a panel that runs along k, or else has its lines there. Floats with lines along k come in
// the order of `as_left`.
template <class P, bool AlongK, class S>
__device__ __forceinline__ void load_right(Fragment<S>& to, uint32_t panel, int column, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8;
  if constexpr (!std::is_same_v<S, float>) {
    mma::load_b<P, AlongK>(to.words, panel, column, k);
  } else if constexpr (AlongK) {
    uint32_t words[4];
    mma::load_matrices(words, place<P>(panel, matrix / 2 * 8 + lane % 8, matrix % 2, column, k / 4));
    to.set(words);
  } else {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const uint32_t from =
          place<P>(panel, lane % 4 * 2 + e % 2, lane / 16, k, column / 4 + e / 2 * 2) + lane / 4 % 4 * 4;
      float x;
      asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
      to.set(e, x);
    }
  }
}

// Accumulators (of 16 rows x 8 columns each) from tile y on as the left operand of a product over their columns. A lane
// has columns 2 c and 2 c + 1; as floats of k = c and c + 4 they mean other columns than the instruction has them: the
// right operand comes in the same order. Positive: what is negative counts as zero.
template <class S, bool Positive, int N>
__device__ __forceinline__ void as_left(Fragment<S>& to, const float (&tiles)[N][4], int y) {
  if constexpr (std::is_same_v<S, float>) {
    const auto value = [&](int e) { return !Positive || is_kept(tiles[y][e]) ? tiles[y][e] : 0.0f; };
    to.set(0, value(0));
    to.set(1, value(2));
    to.set(2, value(1));
    to.set(3, value(3));
  } else {
#pragma unroll
    for (int e = 0; e < 4; e++)
      to.words[e] = mma::pack_pair<S, Positive>(tiles[y + e / 2][e % 2 * 2], tiles[y + e / 2][e % 2 * 2 + 1]);
  }
}

// sum (16 rows x 8 columns) += left times the right operand's first (Second: other) eight columns. Of floats, `rest`
// gets the products with a low part: the instruction cuts off what lies below its sum's last bit, which costs least
// where the sum is small, and has few terms.
template <bool Second, class S>
__device__ __forceinline__ void multiply(float (&sum)[4], float (&rest)[4], const Fragment<S>& left,
                                         const Fragment<S>& right) {
  constexpr int b = Second ? 2 : 0;
  if constexpr (std::is_same_v<S, float>) {
    mma::multiply<S>(rest, left.low, right.high[b], right.high[b + 1]);
    mma::multiply<S>(rest, left.high, right.low[b], right.low[b + 1]);
    mma::multiply<S>(sum, left.high, right.high[b], right.high[b + 1]);
  } else {
    mma::multiply<S>(sum, left.words, right.words[b], right.words[b + 1]);
  }
}

template <int N>
__device__ __forceinline__ void clear(float (&sum)[N][4]) {
#pragma unroll
  for (int y = 0; y < N; y++)
#pragma unroll
    for (int e = 0; e < 4; e++) sum[y][e] = 0;
}

// The tiles of a single row of tiles.
template <int N>
__device__ __forceinline__ float (&one(float (&tiles)[N][4]))[1][N][4] {
  return reinterpret_cast<float (&)[1][N][4]>(tiles);
}

// N accumulators that products are added to: those of 16-bit floats in place, those of floats apart at first, with what
// `multiply` puts into `rest`.
template <class S, int N>
struct Sums {
  float (*to)[4];
  __device__ __forceinline__ void start(float (*sums)[4]) { to = sums; }
  __device__ __forceinline__ float (&sum(int y))[4] { return to[y]; }
  __device__ __forceinline__ float (&rest(int y))[4] { return to[y]; }
  __device__ __forceinline__ void finish() {}
};
template <int N>
struct Sums<float, N> {
  float (*to)[4];
  float sums[N][4], rests[N][4];
  __device__ __forceinline__ void start(float (*sums_of_all)[4]) {
    to = sums_of_all;
    clear(sums);
    clear(rests);
  }
  __device__ __forceinline__ float (&sum(int y))[4] { return sums[y]; }
  __device__ __forceinline__ float (&rest(int y))[4] { return rests[y]; }
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int y = 0; y < N; y++)
#pragma unroll
      for (int e = 0; e < 4; e++) to[y][e] += sums[y][e] + rests[y][e];
  }
};

// The accumulators y and y + 1 of `into` += left times the right operand.
template <class S, int N>
__device__ __forceinline__ void multiply_pair(Sums<S, N>& into, int y, const Fragment<S>& left,
                                              const Fragment<S>& right) {
  multiply<false>(into.sum(y), into.rest(y), left, right);
  multiply<true>(into.sum(y + 1), into.rest(y + 1), left, right);
}

// sum (16 rows x 8 N, each) += the rows of panel A from `row` on, 16 each, times all lines of panel B transposed, over
// D columns; those of floats are summed 16 columns at a time.
template <class S, class A, class B, int D, int Tiles, int N>
__device__ __forceinline__ void multiply_panels(float (&sum)[Tiles][N][4], uint32_t a, int row, uint32_t b) {
  constexpr int kSteps = 16 / kDepth<S>;
#pragma unroll(std::is_same_v<S, float> ? 1 : D / 16)
  for (int k = 0; k < D; k += 16) {
    Fragment<S> left[Tiles][kSteps];
#pragma unroll
    for (int x = 0; x < Tiles; x++)
#pragma unroll
      for (int step = 0; step < kSteps; step++) load_left<A>(left[x][step], a, row + x * 16, k + step * kDepth<S>);
#pragma unroll
    for (int y = 0; y < N; y += 2) {
      Fragment<S> right[kSteps];
#pragma unroll
      for (int step = 0; step < kSteps; step++) load_right<B, true>(right[step], b, y * 8, k + step * kDepth<S>);
#pragma unroll
      for (int x = 0; x < Tiles; x++) {
        Sums<S, 2> into;
        into.start(&sum[x][y]);
#pragma unroll
        for (int step = 0; step < kSteps; step++) multiply_pair(into, 0, left[x][step], right[step]);
        into.finish();
      }
    }
  }
}

// sum (16 x 8 N, each) += left (16 x 8 K, each, accumulators) times the lines of panel B; those of floats a few tiles
// at a time, summed apart. Positive: what is negative on the left counts as zero.
template <class S, class B, bool Positive = false, int Tiles, int K, int N>
__device__ __forceinline__ void multiply_left(float (&sum)[Tiles][N][4], const float (&left)[Tiles][K][4], uint32_t b) {
  constexpr int kMost = std::is_same_v<S, float> ? 4 / Tiles : N;
#pragma unroll
  for (int y0 = 0; y0 < N; y0 += kMost) {
    Sums<S, kMost> into[Tiles];
#pragma unroll
    for (int x = 0; x < Tiles; x++) into[x].start(&sum[x][y0]);
#pragma unroll
    for (int k = 0; k < K; k += kDepth<S> / 8) {
      Fragment<S> from[Tiles];
#pragma unroll
      for (int x = 0; x < Tiles; x++) as_left<S, Positive>(from[x], left[x], k);
#pragma unroll
      for (int y = 0; y < kMost; y += 2) {
        Fragment<S> right;
        load_right<B, false>(right, b, (y0 + y) * 8, k * 8);
#pragma unroll
        for (int x = 0; x < Tiles; x++) multiply_pair(into[x], y, from[x], right);
      }
    }
#pragma unroll
    for (int x = 0; x < Tiles; x++) into[x].finish();
  }
}

// Rows first + 8 h of 16 accumulator rows to memory, times factor[h].
template <class S, int N>
__device__ __forceinline__ void put_rows(const AttentionOperand& o, int64_t batch, int64_t head, int64_t first,
                                         int64_t rows, int64_t width, const float (&sum)[N][4],
                                         const float (&factor)[2]) {
  S* const data = reinterpret_cast<S*>(o.data) + batch * o.batch + head * o.head;
  const bool pairs =
      o.column == 1 &&
      (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(o.row) * sizeof(S)) % (2 * sizeof(S)) == 0;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int64_t row = first + h * 8;
    if (row >= rows) continue;
#pragma unroll
    for (int y = 0; y < N; y++) {
      const int64_t c = y * 8 + column;
      const float x0 = sum[y][h * 2] * factor[h], x1 = sum[y][h * 2 + 1] * factor[h];
      S* const to = data + row * o.row + c * o.column;
      if (pairs && c + 1 < width) {
        if constexpr (std::is_same_v<S, float>)
          *reinterpret_cast<float2*>(to) = make_float2(x0, x1);
        else
          *reinterpret_cast<uint32_t*>(to) = mma::pack_pair<S>(x0, x1);
      } else {
        if (c < width) *to = convert<S>(x0);
        if (c + 1 < width) to[o.column] = convert<S>(x1);
      }
    }
  }
}

}  // namespace attention
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
