// The instructions under tensor-core kernels: asynchronous copies into shared memory, matrix loads from it, and the
// warp-wide products of 16-bit floats and of floats rounded to tf32 (PTX ISA, sm_80 and newer). Shared memory is
// addressed by 32-bit byte offsets.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace mma {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes of which the first `bytes` are read and the rest are zeros. `from` is 16-byte aligned.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// multiply(stage) for step after step, while copies run Stages - 1 steps ahead: fill(step, stage) begins those of a
// step.
template <int Stages, class Fill, class Multiply>
__device__ __forceinline__ void pipeline(int steps, const Fill& fill, const Multiply& multiply) {
  const auto fill_ahead = [&](int step) {
    if (step < steps) fill(step, step % Stages);
    commit_copies();
  };
#pragma unroll 1
  for (int step = 0; step < Stages - 1; step++) fill_ahead(step);
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    wait_copies<Stages - 2>();
    __syncthreads();
    fill_ahead(step + Stages - 1);
    multiply(step % Stages);
  }
  wait_copies<0>();
}

// Four 8 x 8 matrices of 16-bit elements: lanes 8 i .. 8 i + 7 give the rows of matrix i. A lane gets elements 2 c and
// 2 c + 1 of row r of each, where r = lane / 4 and c = lane % 4; transposed, of column r.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// sum (16 x 8) += a (16 x 16) b (16 x 8). A lane holds rows r and r + 8, columns 2 c and 2 c + 1 of the sum. Floats
// have half as many of k, and must have been rounded to tf32: the instruction cuts bits off.
template <class S>
__device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else if constexpr (std::is_same_v<S, float>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Two floats rounded to 16 bits, the first in the low half. Positive: what is negative counts as zero.
template <class S, bool Positive = false>
__device__ __forceinline__ uint32_t pack_pair(float x, float y) {
  uint32_t result;
  if constexpr (std::is_same_v<S, BFloat16> && Positive) {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(y), "f"(x));
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(y), "f"(x));
  } else if constexpr (Positive) {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(y), "f"(x));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(y), "f"(x));
  }
  return result;
}

// To nearest, ties away from zero.
__device__ __forceinline__ void round_to_tf32(uint32_t& x) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(__uint_as_float(x)));
}

// A tile of 16-bit elements in shared memory: `Lines` of `Width`, in 16-byte chunks whose position within 128 bytes is
// exchanged by the line's number, so that the eight lines of a matrix load meet different banks. Floats count as two
// elements. Words: they lie across k and are read one by one, 4 lines of 8 at a time.
template <int Lines, int Width, bool Words = false>
struct Panel {
  static constexpr int kChunks = Width / 8, kBytes = Lines * Width * 2;
  static_assert(kChunks % 8 == 0);

  static __device__ __forceinline__ uint32_t at(int line, int chunk) {
    return static_cast<uint32_t>(line * (Width * 2) + ((chunk ^ (Words ? (line & 3) * 2 : line & 7)) << 4));
  }
  // N floats from a column that is a multiple of N on.
  template <int N>
  static __device__ __forceinline__ void floats(float (&to)[N], uint32_t panel, int line, int column) {
    static_assert(N == 1 || N == 2 || N == 4);
    const uint32_t from = panel + at(line, column / 4) + column % 4 * 4;
    if constexpr (N == 1) asm volatile("ld.shared.f32 %0, [%1];" : "=f"(to[0]) : "r"(from) : "memory");
    if constexpr (N == 2)
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from) : "memory");
    if constexpr (N == 4)
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                   : "r"(from)
                   : "memory");
  }

  // Fills the panel from lines of `pitch` elements. Lines from `lines` on and elements from `width` on are zeros. With
  // `vectors`, data and pitch are multiples of 16 bytes and the copy is asynchronous; without, it goes by elements.
  template <int Threads>
  static __device__ __forceinline__ void fill(uint32_t to, const uint16_t* data, int64_t pitch, int64_t lines,
                                              int64_t width, bool vectors) {
    static_assert(Lines * kChunks % Threads == 0);
    const int t = static_cast<int>(threadIdx.x);
    if (vectors) {
#pragma unroll
      for (int e = 0; e < Lines * kChunks / Threads; e++) {
        const int line = (t + e * Threads) / kChunks, chunk = (t + e * Threads) % kChunks;
        const int64_t rest = line < lines ? width - chunk * 8 : 0;
        const int bytes = rest >= 8 ? 16 : rest > 0 ? static_cast<int>(rest) * 2 : 0;
        copy_async(to + at(line, chunk), bytes > 0 ? data + line * pitch + chunk * 8 : data, bytes);
      }
    } else {
#pragma unroll 1
      for (int e = 0; e < Lines * kChunks / Threads; e++) {
        const int line = (t + e * Threads) / kChunks, chunk = (t + e * Threads) % kChunks;
        const uint16_t* from = data + line * pitch + chunk * 8;
        uint32_t words[4];
#pragma unroll
        for (int w = 0; w < 4; w++) {
          const int64_t c = chunk * 8 + w * 2;
          const uint32_t low = line < lines && c < width ? from[w * 2] : 0,
                         high = line < lines && c + 1 < width ? from[w * 2 + 1] : 0;
          words[w] = low | high << 16;
        }
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + at(line, chunk)), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
      }
    }
  }
};

// Fragments of operands whose panel P has lines along the rows (columns) of the operand and runs along k, or, if not
// AlongK, lines along k. A: 16 rows by 16 of k.
template <class P, bool AlongK>
__device__ __forceinline__ void load_a(uint32_t (&to)[4], uint32_t panel, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8, r = lane % 8;
  if constexpr (AlongK) {
    load_matrices(to, panel + P::at(row + (matrix & 1) * 8 + r, k / 8 + (matrix >> 1)));
  } else {
    load_matrices_transposed(to, panel + P::at(k + (matrix >> 1) * 8 + r, row / 8 + (matrix & 1)));
  }
}
// B: 16 of k by 16 columns; to[0] and to[1] are for the first eight, to[2] and to[3] for the others.
template <class P, bool AlongK>
__device__ __forceinline__ void load_b(uint32_t (&to)[4], uint32_t panel, int column, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8, r = lane % 8;
  if constexpr (AlongK) {
    load_matrices(to, panel + P::at(column + (matrix >> 1) * 8 + r, k / 8 + (matrix & 1)));
  } else {
    load_matrices_transposed(to, panel + P::at(k + (matrix & 1) * 8 + r, column / 8 + (matrix >> 1)));
  }
}

// The same as words, from lines along k: 16 rows by 8 of k, and 8 of k by 16 columns.
template <class P>
__device__ __forceinline__ void load_a_words(uint32_t (&to)[4], uint32_t panel, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    float x[1];
    P::floats(x, panel, k + lane % 4 + e / 2 * 4, row + lane / 4 + e % 2 * 8);
    to[e] = __float_as_uint(x[0]);
  }
}
template <class P>
__device__ __forceinline__ void load_b_words(uint32_t (&to)[4], uint32_t panel, int column, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    float x[1];
    P::floats(x, panel, k + lane % 4 + e % 2 * 4, column + lane / 4 + e / 2 * 8);
    to[e] = __float_as_uint(x[0]);
  }
}

}  // namespace mma
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
