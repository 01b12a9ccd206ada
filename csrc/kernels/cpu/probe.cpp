// Loops that do nothing but copy, read, write, or multiply and add, on all threads. Each thread repeats over its own
// part of the memory, so a working set that fits a core's cache stays there.
#include "kernels/probe.h"

#include <omp.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
// Enough independent chains to hide a latency of 4 cycles on two ports and to fit 16 registers.
constexpr int kChains = 12;

template <class T>
struct VectorOf {
  using type __attribute__((vector_size(kVectorBytes), may_alias)) = T;
};
template <class T>
using Vector = typename VectorOf<T>::type;

// A value that the compiler must believe is used.
template <class T>
MT_INLINE void keep(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

// A store that goes past the caches, where the processor has one.
MT_INLINE void store_streaming(Vector<float>* to, Vector<float> value) {
#if defined(__AVX512F__)
  _mm512_stream_ps(reinterpret_cast<float*>(to), value);
#elif defined(__AVX2__)
  _mm256_stream_ps(reinterpret_cast<float*>(to), value);
#elif defined(__x86_64__)
  _mm_stream_ps(reinterpret_cast<float*>(to), value);
#else
  *to = value;
#endif
}

template <bool streaming>
MT_INLINE void store(Vector<float>* to, Vector<float> value) {
  if constexpr (streaming)
    store_streaming(to, value);
  else
    *to = value;
}

// Other threads, and the next pass, see what was stored past the caches.
template <bool streaming>
MT_INLINE void finish() {
#if defined(__x86_64__)
  if constexpr (streaming) _mm_sfence();
#endif
}

template <bool streaming>
void copy_pass(char* to, const char* from, int64_t bytes) {
  auto* out = reinterpret_cast<Vector<float>*>(to);
  const auto* in = reinterpret_cast<const Vector<float>*>(from);
  const int64_t n = bytes / kVectorBytes;
#pragma GCC unroll 8
  for (int64_t i = 0; i < n; i++) store<streaming>(out + i, in[i]);
  finish<streaming>();
}

template <bool streaming>
void write_pass(char* to, int64_t bytes) {
  auto* out = reinterpret_cast<Vector<float>*>(to);
  const int64_t n = bytes / kVectorBytes;
#pragma GCC unroll 8
  for (int64_t i = 0; i < n; i++) {
    store<streaming>(out + i, Vector<float>{});
    asm volatile("" : : "r"(out) : "memory");  // or it becomes a call of memset, which decides for itself
  }
  finish<streaming>();
}

void update_pass(char* to, int64_t bytes) {
  auto* out = reinterpret_cast<Vector<float>*>(to);
  const int64_t n = bytes / kVectorBytes;
#pragma GCC unroll 8
  for (int64_t i = 0; i < n; i++) out[i] = out[i] + 1.0F;
}

// Four sums, so that the loads and not the latency of the addition decide.
Vector<int64_t> read_pass(const char* from, int64_t bytes) {
  const auto* in = reinterpret_cast<const Vector<int64_t>*>(from);
  Vector<int64_t> sum[4] = {};
  const int64_t n = bytes / kVectorBytes / 4;
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; i++)
    for (int j = 0; j < 4; j++) sum[j] ^= in[4 * i + j];
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

// Chains that begin alike are one chain to the compiler, unless it cannot see that they do.
template <class V>
MT_INLINE void set_apart(V (&chain)[kChains]) {
  asm volatile("" : "+m"(chain));
}

// Operations of one thread.
template <class T>
int64_t multiply_add(int64_t repeats) {
  T factor = T(0.999), term = T(1e-3);
  asm volatile("" : "+m"(factor), "+m"(term));
  Vector<T> chain[kChains] = {};
  set_apart(chain);
  for (int64_t r = 0; r < repeats; r++)
#pragma GCC unroll 16
    for (int c = 0; c < kChains; c++) chain[c] = chain[c] * factor + term;
  for (int c = 0; c < kChains; c++) keep(chain[c]);
  return repeats * kChains * (kVectorBytes / static_cast<int64_t>(sizeof(T))) * 2;
}

#if defined(__AVX512F__)
bool has_bf16_pairs() {
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has;
}

__attribute__((target("avx512bf16"))) int64_t multiply_add_pairs(int64_t repeats) {
  __m512i bits = _mm512_setzero_si512();
  asm volatile("" : "+v"(bits));
  const auto factor = reinterpret_cast<__m512bh>(bits);
  __m512 chain[kChains] = {};
  set_apart(chain);
  for (int64_t r = 0; r < repeats; r++)
#pragma GCC unroll 16
    for (int c = 0; c < kChains; c++) chain[c] = _mm512_dpbf16_ps(chain[c], factor, factor);
  for (int c = 0; c < kChains; c++) keep(chain[c]);
  return repeats * kChains * 32 * 2;
}
#endif

int64_t multiply_add(DType dtype, int64_t repeats) {
  if (dtype == DType::F64) return multiply_add<double>(repeats);
#if defined(__AVX512F__)
  if (dtype == DType::BF16 && has_bf16_pairs()) return multiply_add_pairs(repeats);
#endif
  return multiply_add<float>(repeats);
}

void probe(const ProbeArgs& args) {
  int64_t total = 0;
#pragma omp parallel num_threads(num_threads()) reduction(+ : total)
  {
    const int64_t threads = omp_get_num_threads(), id = omp_get_thread_num();
    constexpr int64_t kUnit = 4 * kVectorBytes;
    const int64_t part = args.bytes / threads / kUnit * kUnit, begin = part * id;
    const auto repeat = [&](int64_t moved, auto&& pass) {
      for (int64_t r = 0; r < args.repeats; r++) {
        pass();
        keep(args.a);
      }
      total += moved * part * args.repeats;
    };
    switch (args.op) {
      case ProbeOp::copy: repeat(2, [&] { copy_pass<false>(args.a + begin, args.b + begin, part); }); break;
      case ProbeOp::copy_streaming: repeat(2, [&] { copy_pass<true>(args.a + begin, args.b + begin, part); }); break;
      case ProbeOp::read: repeat(1, [&] { keep(read_pass(args.a + begin, part)); }); break;
      case ProbeOp::update: repeat(2, [&] { update_pass(args.a + begin, part); }); break;
      case ProbeOp::write: repeat(1, [&] { write_pass<false>(args.a + begin, part); }); break;
      case ProbeOp::write_streaming: repeat(1, [&] { write_pass<true>(args.a + begin, part); }); break;
      case ProbeOp::multiply_add: total += multiply_add(args.dtype, args.repeats); break;
    }
  }
  *args.operations = total;
}

}  // namespace
MT_REGISTER_KERNEL(probe_kernel, &probe);
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
