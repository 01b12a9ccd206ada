// CPU searches in sorted data, runs of equal items, lexicographic order and membership.
#include "kernels/sort.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "kernels/cpu/scratch.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using ElementTypes = Types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, float,
                           double, Half, BFloat16>;

template <class F>
void dispatch_element(const char* name, DType dtype, const F& f) {
  if (!dispatch(dtype, ElementTypes{}, f)) missing_kernel(name, name_of(dtype));
}

template <class T>
MT_INLINE compute_t<T> element(const char* data, int64_t i) {
  return static_cast<compute_t<T>>(reinterpret_cast<const T*>(data)[i]);
}

// Halves the range without branching on the comparison. "Not at least" rather than "less": a NaN goes to the end. Where
// the sequence ends in NaN, what is found depends on the places looked at, and those are native's, at more than the
// cost.
template <class T, bool right>
int64_t search_one(const char* sequence, const int64_t* sorter, int64_t length, compute_t<T> value) {
  auto before = [&](int64_t i) {
    const compute_t<T> x = element<T>(sequence, sorter != nullptr ? sorter[i] : i);
    return right ? !(x > value) : !(x >= value);
  };
  if (length == 0) return 0;
  int64_t base = 0;
  const compute_t<T> last = element<T>(sequence, sorter != nullptr ? sorter[length - 1] : length - 1);
  if (last != last) {
    int64_t end = length;
    while (base < end) {
      const int64_t middle = base + (end - base) / 2;
      if (before(middle)) {
        base = middle + 1;
      } else {
        end = middle;
      }
    }
    return base;
  }
  while (length > 1) {
    const int64_t half = length / 2;
    base += before(base + half - 1) ? half : 0;
    length -= half;
  }
  return base + before(base);
}

void search(const SearchArgs& a) {
  dispatch_element(search_kernel.name(), a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(a.n, 2048, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t offset = i / a.per_sequence * a.length;
        const char* sequence = a.sequences + offset * static_cast<int64_t>(sizeof(T));
        const int64_t* sorter = a.sorter != nullptr ? a.sorter + offset : nullptr;
        const compute_t<T> value = element<T>(a.values, i);
        const int64_t at = a.right ? search_one<T, true>(sequence, sorter, a.length, value)
                                   : search_one<T, false>(sequence, sorter, a.length, value);
        if (a.output_dtype == DType::I32)
          reinterpret_cast<int32_t*>(a.output)[i] = static_cast<int32_t>(at);
        else
          reinterpret_cast<int64_t*>(a.output)[i] = at;
      }
    });
  });
}

// Runs of single elements in the order in which they lie: threads count the runs of their parts, and then know where to
// write them. Nothing branches on where runs end.
template <class T>
class Neighbours {
 public:
  Neighbours(const char* data, int64_t n)
      : x_(reinterpret_cast<const T*>(data)),
        n_(n),
        parts_(std::clamp<int64_t>(n / 8192, 1, num_threads())),
        before_(parts_ + 1) {
    before_[0] = 0;
    for_each_part([&](int64_t p, int64_t first, int64_t last) {
      int64_t runs = first == 0 && first < last;
      for (int64_t i = std::max<int64_t>(first, 1); i < last; i++) runs += begins(i);
      before_[p + 1] = runs;
    });
    for (int64_t p = 0; p < parts_; p++) before_[p + 1] += before_[p];
  }

  int64_t count() const { return before_[parts_]; }

  // out[r] = at(the first i of run r)
  template <class Out, class At>
  void write(Out* out, const At& at) const {
    for_each_part([&](int64_t p, int64_t first, int64_t last) {
      constexpr int64_t kBlock = 512;
      Out block[kBlock + 1];
      Out* to = out + before_[p];
      for (int64_t b = first; b < last; b += kBlock) {
        const int64_t end = std::min(b + kBlock, last);
        int64_t found = 0, i = b;
        if (i == 0) block[found++] = at(i++);
        for (; i < end; i++) {
          block[found] = at(i);
          found += begins(i);
        }
        memcpy(static_cast<void*>(to), block, static_cast<size_t>(found) * sizeof(Out));
        to += found;
      }
    });
  }

  // inverse[label(i)] = the run of element i
  template <class Label>
  void number(int64_t* inverse, const Label& label) const {
    for_each_part([&](int64_t p, int64_t first, int64_t last) {
      int64_t run = before_[p] - 1;
      for (int64_t i = first; i < last; i++) {
        run += i == 0 || begins(i);
        inverse[label(i)] = run;
      }
    });
  }

 private:
  MT_INLINE bool begins(int64_t i) const {
    return !(static_cast<compute_t<T>>(x_[i]) == static_cast<compute_t<T>>(x_[i - 1]));
  }
  template <class F>
  void for_each_part(const F& f) const {
    parallel_for(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++) f(p, n_ * p / parts_, n_ * (p + 1) / parts_);
    });
  }

  const T* x_;
  int64_t n_, parts_;
  Scratch<int64_t, 512> before_;  // runs that begin in earlier parts
};

template <class T>
void element_runs(const RunsArgs& a) {
  const Neighbours<T> runs(a.data, a.n);
  a.count[0] = runs.count();
  runs.write(a.starts, [](int64_t i) { return i; });
  a.starts[runs.count()] = a.n;
  if (a.inverse == nullptr) return;
  if (a.label != nullptr)
    runs.number(a.inverse, [&](int64_t i) { return a.label[i]; });
  else
    runs.number(a.inverse, [](int64_t i) { return i; });
}

void run_values(const char* data, DType dtype, int64_t n, int64_t* count, char* values) {
  dispatch_element(run_values_kernel.name(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Neighbours<T> runs(data, n);
    *count = runs.count();
    const T* const x = reinterpret_cast<const T*>(data);
    if (values != nullptr) runs.write(reinterpret_cast<T*>(values), [x](int64_t i) { return x[i]; });
  });
}

void runs(const RunsArgs& a) {
  dispatch_element(runs_kernel.name(), a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (a.width == 1 && a.order == nullptr && a.n > 0) return element_runs<T>(a);
    int64_t run = -1;
    for (int64_t i = 0; i < a.n; i++) {
      const int64_t item = a.order != nullptr ? a.order[i] : i;
      bool same = i > 0;
      if (same) {
        const int64_t previous = a.order != nullptr ? a.order[i - 1] : i - 1;
        for (int64_t k = 0; k < a.width && same; k++)
          same = element<T>(a.data, item * a.width + k) == element<T>(a.data, previous * a.width + k);
      }
      if (!same) {
        run++;
        a.starts[run] = i;
      }
      if (a.inverse != nullptr) a.inverse[a.label != nullptr ? a.label[i] : i] = run;
    }
    a.count[0] = run + 1;
    a.starts[run + 1] = a.n;
  });
}

template <class T>
struct LexicographicLess {
  const char* data;
  int64_t width;
  bool operator()(int64_t a, int64_t b) const {
    for (int64_t k = 0; k < width; k++) {
      const compute_t<T> x = element<T>(data, a * width + k), y = element<T>(data, b * width + k);
      if (x < y) return true;
      if (y < x) return false;
    }
    return a < b;
  }
};

void lexicographic_order(int64_t* order, char* data, DType dtype, int64_t n, int64_t width) {
  dispatch_element(lexicographic_order_kernel.name(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    std::sort(order, order + n, LexicographicLess<T>{data, width});
  });
}

void membership(const MembershipArgs& a) {
  dispatch_element(membership_kernel.name(), a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int64_t kBlockElements = 1024;
    parallel_for(a.n, grain_of(a.m), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; b += kBlockElements) {
        const int64_t m = std::min(kBlockElements, end - b);
        compute_t<T> block[kBlockElements];
        uint8_t hit[kBlockElements];
        for (int64_t i = 0; i < m; i++) {
          block[i] = element<T>(a.elements, b + i);
          hit[i] = a.invert;
        }
        for (int64_t t = 0; t < a.m; t++) {
          const compute_t<T> test = element<T>(a.tests, t);
          for (int64_t i = 0; i < m; i++) hit[i] = block[i] == test ? !a.invert : hit[i];
        }
        for (int64_t i = 0; i < m; i++) a.output[b + i] = hit[i];
      }
    });
  });
}

// Counts in four tables in turn, so that equal neighbours need not wait for each other's count to reach memory; each
// thread has its own.
constexpr int64_t kTables = 4;

template <class T>
void count_range(const T* x, int64_t n, int64_t bins, int64_t lowest, int64_t tables, int64_t* counts) {
  memset(counts, 0, tables * bins * sizeof(int64_t));
  int64_t i = 0;
  if (tables == kTables) {
    for (; i + kTables <= n; i += kTables)
      for (int64_t k = 0; k < kTables; k++) counts[k * bins + static_cast<int64_t>(x[i + k]) - lowest]++;
    for (int64_t k = 1; k < kTables; k++)
      for (int64_t b = 0; b < bins; b++) counts[b] += counts[k * bins + b];
  }
  for (; i < n; i++) counts[static_cast<int64_t>(x[i]) - lowest]++;
}

void count(const CountArgs& a) {
  const bool known = dispatch(a.dtype, Types<uint8_t, int8_t, int16_t, int32_t, int64_t>{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const x = reinterpret_cast<const T*>(a.elements);
    // Tables take memory and time to add up: few bins are worth more of them.
    const int64_t parts = std::clamp<int64_t>(a.n / (kTables * a.bins + 8192), 1, num_threads());
    const int64_t tables = a.bins <= 2048 ? kTables : 1;
    Scratch<int64_t, 8192> memory(parts * tables * a.bins);
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; p++) {
        const int64_t first = a.n * p / parts, last = a.n * (p + 1) / parts;
        count_range(x + first, last - first, a.bins, a.lowest, tables, memory.get() + p * tables * a.bins);
      }
    });
    memcpy(a.counts, memory.get(), a.bins * sizeof(int64_t));
    for (int64_t p = 1; p < parts; p++)
      for (int64_t b = 0; b < a.bins; b++) a.counts[b] += memory[p * tables * a.bins + b];
  });
  if (!known) missing_kernel(count_kernel.name(), name_of(a.dtype));
}

MT_REGISTER_KERNEL(search_kernel, &search);
MT_REGISTER_KERNEL(count_kernel, &count);
MT_REGISTER_KERNEL(runs_kernel, &runs);
MT_REGISTER_KERNEL(run_values_kernel, &run_values);
MT_REGISTER_KERNEL(lexicographic_order_kernel, &lexicographic_order);
MT_REGISTER_KERNEL(membership_kernel, &membership);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
