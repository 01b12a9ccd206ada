// Plans of Fourier transforms: factorisation, tables of roots of unity, and the cache.
#include "kernels/cpu/fft_plan.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <initializer_list>

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace fft {
namespace {

constexpr int64_t kCacheBytes = 128 << 20;
constexpr int64_t kLongRoots = 1 << 17;  // up to here roots are rounded from long double, which takes longer
constexpr long double kPi = 3.14159265358979323846264338327950288L;
std::atomic<int64_t> cache_bytes{0};
template <class R>
std::atomic<Plan<R>*> cache[2] = {};  // [1]: those for single lines

template <class T>
T* allocate(int64_t n, int64_t& bytes) {
  bytes += n * static_cast<int64_t>(sizeof(T));
  void* p = std::aligned_alloc(64, (static_cast<size_t>(n) * sizeof(T) + 127) / 64 * 64);
  if (p == nullptr) throw std::bad_alloc();
  return static_cast<T*>(p);
}

// The divisor d of n for which d x (n / d) wastes the fewest lanes and is nearest to a square.
template <class R>
int64_t best_rows(int64_t n) {
  constexpr int64_t W = kWidth<R>;
  int64_t best = 1;
  double best_cost = 1e300;
  for (int64_t d = 1; d * d <= n; d++) {
    if (n % d != 0) continue;
    for (const int64_t rows : {d, n / d}) {
      const int64_t columns = n / rows;
      const double lanes =
          static_cast<double>(gemm::ceil_div(columns, W) * W * rows + gemm::ceil_div(rows, W) * W * columns);
      const double cost = lanes + static_cast<double>(gemm::max64(rows, columns)) * W;
      if (cost < best_cost) best_cost = cost, best = rows;
    }
  }
  return best;
}

int64_t next_smooth(int64_t n) {
  for (int64_t m = n;; m++) {
    int64_t rest = m;
    for (const int64_t p : {2, 3, 5})
      while (rest % p == 0) rest /= p;
    if (rest == 1) return m;
  }
}

template <class R>
void add_passes(Plan<R>& plan, int64_t& bytes) {
  int64_t rest = plan.n, total = 0;
  const auto take = [&](int r) {
    while (rest % r == 0 && rest > 1) plan.radix[plan.passes++] = r, rest /= r;
  };
  take(4), take(2);
  for (int p = 3; p <= kLargestRadix; p += 2) take(p);
  int64_t length = plan.n;
  for (int i = 0; i < plan.passes; i++) {
    plan.twiddle_offset[i] = total;
    total += 2 * (plan.radix[i] - 1) * (length / plan.radix[i]);
    length /= plan.radix[i];
  }
  plan.twiddles = allocate<R>(total + 1, bytes);
  length = plan.n;
  for (int i = 0; i < plan.passes; i++) {
    const int64_t r = plan.radix[i], m = length / r;
    R* t = plan.twiddles + plan.twiddle_offset[i];
    for (int64_t p = 0; p < m; p++)
      for (int64_t k = 1; k < r; k++) {
        const Complex<double> w = root(p * k, length);
        *t++ = static_cast<R>(w.re), *t++ = static_cast<R>(w.im);
      }
    length = m;
  }
}

template <class R>
void add_grid(Plan<R>& plan, int64_t& bytes) {
  plan.rows = best_rows<R>(plan.n), plan.columns = plan.n / plan.rows;
  plan.row_plan = acquire<R>(plan.columns, false);
  plan.column_plan = acquire<R>(plan.rows, false);
  // Rows are padded to whole vectors.
  const int64_t pitch = gemm::ceil_div(plan.columns, kWidth<R>) * kWidth<R>;
  plan.grid = allocate<R>(2 * plan.rows * pitch, bytes);
  for (int64_t r = 0; r < plan.rows; r++)
    for (int64_t c = 0; c < pitch; c++) {
      const Complex<double> w = c < plan.columns ? root(r * c, plan.n) : Complex<double>(0);
      plan.grid[r * pitch + c] = static_cast<R>(w.re);
      plan.grid[(plan.rows + r) * pitch + c] = static_cast<R>(w.im);
    }
}

// The chirp, and in `plan.spectrum` its conjugate, wrapped around to `padded` elements.
template <class R>
void add_chirp(Plan<R>& plan, int64_t padded, int64_t& bytes) {
  const int64_t n = plan.n;
  plan.padded = padded;
  plan.chirp = allocate<double>(2 * n, bytes);
  plan.spectrum = allocate<double>(2 * padded, bytes);
  for (int64_t i = 0; i < 2 * padded; i++) plan.spectrum[i] = 0;
  int64_t square = 0;  // j^2 modulo 2 n
  for (int64_t j = 0; j < n; j++) {
    const Complex<double> w = root(square, 2 * n);
    plan.chirp[2 * j] = w.re, plan.chirp[2 * j + 1] = w.im;
    for (const int64_t at : {j, (padded - j) % padded}) plan.spectrum[2 * at] = w.re, plan.spectrum[2 * at + 1] = -w.im;
    square = (square + 2 * j + 1) % (2 * n);
  }
}

template <class R>
void add_line_convolution(Plan<R>& plan, int64_t& bytes) {
  // Multiples of kWidth squared make full vectors of both steps of a long line.
  constexpr int64_t kSquare = kWidth<double> * kWidth<double>;
  const int64_t least = 2 * plan.n - 1;
  const int64_t padded = least < 8 * kSquare ? next_smooth(least) : kSquare * next_smooth((least - 1) / kSquare + 1);
  plan.convolution = acquire<double>(padded, true);
  add_chirp(plan, padded, bytes);
  transform_line<double>(*plan.convolution, {plan.spectrum, plan.spectrum + 1, 2},
                         {plan.spectrum, plan.spectrum + 1, 2}, 1.0 / static_cast<double>(padded), false);
}

int64_t power(int64_t base, int64_t exponent, int64_t modulus) {
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2, base = base * base % modulus)
    if (exponent % 2 == 1) result = result * base % modulus;
  return result;
}

// A generator of the multiplicative group modulo n, or 0 if n is not prime.
int64_t primitive_root(int64_t n) {
  for (int64_t d = 2; d * d <= n; d++)
    if (n % d == 0) return 0;
  const auto generates = [n](int64_t g) {
    int64_t rest = n - 1;
    for (int64_t p = 2; p * p <= rest; p++) {
      if (rest % p != 0) continue;
      if (power(g, (n - 1) / p, n) == 1) return false;
      while (rest % p == 0) rest /= p;
    }
    return rest == 1 || power(g, (n - 1) / rest, n) != 1;
  };
  int64_t g = 2;
  while (!generates(g)) g++;
  return g;
}

template <class R>
void add_lines_convolution(Plan<R>& plan, int64_t& bytes) {
  const int64_t n = plan.n, generator = is_smooth(n - 1) ? primitive_root(n) : 0;
  const int64_t length = generator != 0 ? n - 1 : next_smooth(2 * n - 1);
  plan.convolution = acquire<double>(length, false);
  if (generator != 0) {
    plan.padded = length;
    plan.order = allocate<int32_t>(length, bytes);
    plan.spectrum = allocate<double>(2 * length, bytes);
    int64_t element = 1;
    for (int64_t i = 0; i < length; i++, element = element * generator % n) {
      plan.order[i] = static_cast<int32_t>(element);
      const Complex<double> w = root(element, n);
      const int64_t at = i == 0 ? 0 : length - i;
      plan.spectrum[2 * at] = w.re, plan.spectrum[2 * at + 1] = w.im;
    }
  } else {
    add_chirp(plan, length, bytes);
  }
  // One line in every lane.
  constexpr int64_t D = kWidth<double>;
  Scratch<double> memory(4 * length * D);
  double *re = memory.get(), *im = re + length * D, *work_re = im + length * D, *work_im = work_re + length * D;
  for (int64_t i = 0; i < length * D; i++) re[i] = plan.spectrum[i / D * 2], im[i] = plan.spectrum[i / D * 2 + 1];
  if (transform_lines(*plan.convolution, re, im, work_re, work_im)) re = work_re, im = work_im;
  for (int64_t i = 0; i < length; i++) {
    plan.spectrum[2 * i] = re[i * D] / static_cast<double>(length);
    plan.spectrum[2 * i + 1] = im[i * D] / static_cast<double>(length);
  }
}

template <class R>
void destroy(const Plan<R>* plan) {
  if (plan->row_plan) release(plan->row_plan);
  if (plan->column_plan) release(plan->column_plan);
  if (plan->convolution) release(plan->convolution);
  std::free(plan->twiddles), std::free(plan->grid), std::free(plan->half);
  std::free(plan->chirp), std::free(plan->order), std::free(plan->spectrum);
  delete plan;
}

}  // namespace

// The angle is brought into the first octant, so that its rounding matters least, and long tables are left to double.
Complex<double> root(int64_t k, int64_t n) {
  k %= n;
  int64_t eighth = 8 * k / n, rest = 8 * k - eighth * n;  // angle = (eighth + rest / n) * pi / 4
  const bool odd = eighth & 1;
  if (odd) rest = n - rest;
  double c, s;
  if (n <= kLongRoots) {
    const long double angle = static_cast<long double>(rest) / static_cast<long double>(n) * (kPi / 4);
    c = static_cast<double>(cosl(angle)), s = static_cast<double>(sinl(angle));
  } else {
    const double angle = static_cast<double>(rest) / static_cast<double>(n) * static_cast<double>(kPi / 4);
    c = std::cos(angle), s = std::sin(angle);
  }
  if (odd) {
    const double t = c;
    c = s, s = t;
  }
  switch (eighth / 2) {
    case 0: return {c, -s};
    case 1: return {-s, -c};
    case 2: return {-c, s};
    default: return {s, c};
  }
}

bool is_smooth(int64_t n) {
  for (int64_t p = 2; p <= kLargestRadix; p++)
    while (n % p == 0) n /= p;
  return n == 1;
}

template <class R>
const Plan<R>* acquire(int64_t n, bool line) {
  std::atomic<Plan<R>*>& list = cache<R>[line];
  for (const Plan<R>* p = list.load(std::memory_order_acquire); p != nullptr; p = p->next)
    if (p->n == n) return p;
  Plan<R>* const plan = new Plan<R>{};
  plan->n = n;
  plan->smooth = is_smooth(n);
  int64_t bytes = sizeof(Plan<R>);
  if (!plan->smooth) {
    line ? add_line_convolution(*plan, bytes) : add_lines_convolution(*plan, bytes);
  } else if (line) {
    add_grid(*plan, bytes);
  } else {
    add_passes(*plan, bytes);
  }
  plan->half = allocate<R>(2 * (n / 2 + 2), bytes);
  for (int64_t k = 0; k <= n / 2 + 1; k++) {
    const Complex<double> w = root(k, 2 * n);
    plan->half[2 * k] = static_cast<R>(w.re), plan->half[2 * k + 1] = static_cast<R>(w.im);
  }
  if (cache_bytes.fetch_add(bytes) + bytes > kCacheBytes) {
    cache_bytes.fetch_sub(bytes);
    return plan;
  }
  plan->cached = true;
  plan->next = list.load(std::memory_order_relaxed);
  while (!list.compare_exchange_weak(plan->next, plan, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return plan;
}

template <class R>
void release(const Plan<R>* plan) {
  if (!plan->cached) destroy(plan);
}

template const Plan<float>* acquire(int64_t, bool);
template const Plan<double>* acquire(int64_t, bool);
template void release(const Plan<float>*);
template void release(const Plan<double>*);

}  // namespace fft
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
