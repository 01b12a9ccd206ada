// The CPU reduction driver: it walks a strided input, splits it over threads and feeds blocks to a Reducer.
//
// Two loops. When memory runs along the reduced dimension, each output folds runs of its slice ("rows"). When it runs
// along a kept dimension, a tile of outputs folds row after row of the tile ("columns"), vectorised over the outputs.
// Elements of another dtype or stride than the loops read pass through a buffer that fits in cache. With few outputs
// the reduced extent is cut into segments by shape alone, so that results do not depend on the number of threads.
#include "kernels/cpu/cast.h"
#include "kernels/cpu/reduce_engine.h"
#include "kernels/cpu/scratch.h"
#include "kernels/reduce_dims.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kLeaf = 2048;          // elements of a row that share one accumulation without merging
constexpr int64_t kStaged = 1024;        // elements converted at a time
constexpr int64_t kStagedBytes = 16384;  // the same for columns, at least eight rows
constexpr int64_t kShortRun = 64;        // shorter runs of a row are gathered into the buffer
constexpr int kMaxLevels = 64;           // of the pairwise merge
constexpr int64_t kMaxSegments = 64;

// Position in the reduced slice, as runs along its fastest dimension.
class Runs {
 public:
  Runs(const Dims& dims, int64_t begin) : dims_(dims) {
    for (int d = 0; d < dims.ndim; d++) {
      index_[d] = begin % dims.size[d];
      begin /= dims.size[d];
      offset_ += index_[d] * dims.in[d];
    }
  }
  int64_t offset() const { return offset_; }
  int64_t left() const { return dims_.size[0] - index_[0]; }
  void advance(int64_t n) {  // n <= left()
    index_[0] += n;
    offset_ += n * dims_.in[0];
    for (int d = 0; index_[d] == dims_.size[d] && d + 1 < dims_.ndim; d++) {
      offset_ += dims_.in[d + 1] - index_[d] * dims_.in[d];
      index_[d] = 0;
      index_[d + 1]++;
    }
  }

 private:
  const Dims& dims_;
  int64_t index_[kMaxDims];
  int64_t offset_ = 0;
};

class Driver {
 public:
  Driver(const Reducer& reducer, const PointwiseView& view, const ReduceParams& params)
      : r_(reducer), v_(view), p_(params), input_(view.num_operands - 1) {
    const DType dtype = v_.dtype[input_];
    element_ = static_cast<int64_t>(size_of(r_.compute));
    for (int d = 0; d < v_.ndim; d++) {
      if (v_.sizes[d] != 1) (v_.strides[0][d] == 0 ? reduced_ : kept_).add(v_, d);
    }
    reduced_.finish(static_cast<int64_t>(size_of(dtype)));
    kept_.finish(static_cast<int64_t>(size_of(dtype)));
    columns_ = kept_.numel > 1 &&
               (Dims::key(kept_.in[0]) < Dims::key(reduced_.in[0]) || (reduced_.numel < 16 && kept_.size[0] >= 32));
    direct_ = dtype == r_.compute && (columns_ ? kept_ : reduced_).in[0] == element_;
    load_ = load_fn(dtype, r_.compute);
  }

  void run() const {
    const int64_t extent = reduced_.numel;
    const int64_t width = std::min(
        kept_.size[0], columns_ ? int64_t{512} : std::clamp<int64_t>(16384 / std::max<int64_t>(extent, 1), 1, 256));
    const int64_t tiles = (kept_.size[0] + width - 1) / width;
    const int64_t groups = kept_.numel / kept_.size[0] * tiles;
    int64_t segments = 1;
    if (groups < 8) {
      segments = std::min(kMaxSegments, width * extent / kGrainSize);
      if (columns_) segments = std::min(segments, extent / kLeafRows);
      segments = std::max<int64_t>(segments, 1);
    }
    const int64_t unit_bytes = width * r_.acc_size;
    Scratch<char> partials(segments > 1 ? groups * segments * unit_bytes : 0);
    const int64_t cost = std::max<int64_t>(width * (extent / segments), 1);
    parallel_for(groups * segments, grain_of(cost), [&](int64_t begin, int64_t end) {
      // One block for the accumulators, the results, the conversion buffer and the levels of the pairwise merge.
      const int64_t acc_bytes = (unit_bytes + 63) / 64 * 64, result_bytes = 2 * 16 * width + 32;
      const int64_t convert_bytes = (staging_bytes(width) + 63) / 64 * 64;
      const bool merges = columns_ && r_.cascade && extent > kLeafRows;
      const Scratch<char, 4096> memory(acc_bytes + result_bytes + convert_bytes +
                                       (merges ? kMaxLevels * unit_bytes : 0));
      char* const results = memory.get() + acc_bytes;
      char* const staging = results + result_bytes;
      char* const levels = staging + convert_bytes;
      for (int64_t u = begin; u < end; u++) {
        const int64_t group = u / segments, segment = u % segments;
        const Tile tile = locate(group, tiles, width);
        char* target = segments > 1 ? partials.get() + u * unit_bytes : memory.get();
        r_.init(target, tile.width);
        const int64_t from = extent * segment / segments, to = extent * (segment + 1) / segments;
        if (columns_)
          fold_columns(target, tile, from, to, staging, levels);
        else if (direct_ && reduced_.ndim == 1 && (!r_.cascade || to - from <= kLeaf))
          r_.row(target, {tile.width, 0, tile.width, kept_.in[0], from}, tile.in + from * reduced_.in[0], to - from,
                 p_);
        else
          for (int64_t j = 0; j < tile.width; j++)
            fold_row(target, j, tile.width, tile.in + j * kept_.in[0], from, to, staging);
        if (segments == 1) store(tile, target, results);
      }
    });
    if (segments == 1) return;
    Scratch<char> results(2 * 16 * width);
    for (int64_t group = 0; group < groups; group++) {
      const Tile tile = locate(group, tiles, width);
      char* part = partials.get() + group * segments * unit_bytes;
      for (int64_t step = 1; step < segments; step *= 2)
        for (int64_t s = 0; s + step < segments; s += 2 * step)
          r_.merge(part + s * unit_bytes, part + (s + step) * unit_bytes, tile.width);
      store(tile, part, results.get());
    }
  }

 private:
  // Outputs that are neighbours along the first kept dimension.
  struct Tile {
    int64_t width;
    const char* in;
    char* out[2];
  };

  Tile locate(int64_t group, int64_t tiles, int64_t width) const {
    const int64_t first = group % tiles * width;
    int64_t rest = group / tiles;
    Tile tile{std::min(width, kept_.size[0] - first), v_.data[input_] + first * kept_.in[0], {}};
    for (int k = 0; k < v_.num_outputs; k++) tile.out[k] = v_.data[k] + first * kept_.out[k][0];
    for (int d = 1; d < kept_.ndim; d++) {
      const int64_t i = rest % kept_.size[d];
      rest /= kept_.size[d];
      tile.in += i * kept_.in[d];
      for (int k = 0; k < v_.num_outputs; k++) tile.out[k] += i * kept_.out[k][d];
    }
    return tile;
  }

  int64_t staging_bytes(int64_t width) const {
    if (direct_ && reduced_.ndim == 1) return 0;
    return columns_ ? (direct_ ? 0 : std::max(kStagedBytes, 8 * width * element_)) : kStaged * element_;
  }
  // Rows of a column fold that are converted at a time: what the first-level cache holds beside the accumulators.
  int64_t staged_rows(int64_t width) const {
    return std::clamp<int64_t>(kStagedBytes / (width * element_), 8, kLeafRows);
  }

  void store(const Tile& tile, const char* acc, char* results) const {
    void* out[2] = {results, v_.num_outputs > 1 ? results + 16 * tile.width : nullptr};
    r_.finish(out, acc, tile.width, reduced_.numel, p_);
    for (int k = 0; k < v_.num_outputs; k++)
      store_fn(r_.result[k], v_.dtype[k])(tile.out[k], kept_.out[k][0], out[k], tile.width);
  }

  // Folds elements [begin, begin + count) of a slice into accumulator i of n.
  void feed_row(void* acc, int64_t i, int64_t n, const char* in, int64_t begin, int64_t count, char* staging) const {
    const int64_t stride = reduced_.in[0];
    if (direct_ && reduced_.ndim == 1) return r_.row(acc, {n, i, 1, 0, begin}, in + begin * stride, count, p_);
    Runs runs(reduced_, begin);
    for (int64_t done = 0; done < count;) {
      int64_t run = std::min(runs.left(), count - done);
      if (direct_ && (run >= kShortRun || run == count)) {
        r_.row(acc, {n, i, 1, 0, begin + done}, in + runs.offset(), run, p_);
        done += run;
        runs.advance(run);
        continue;
      }
      const int64_t first = done;
      int64_t filled = 0;
      while (done < count && filled < kStaged) {
        run = std::min({runs.left(), count - done, kStaged - filled});
        load_(staging + filled * element_, in + runs.offset(), stride, run);
        filled += run;
        done += run;
        runs.advance(run);
      }
      r_.row(acc, {n, i, 1, 0, begin + first}, staging, filled, p_);
    }
  }

  void fold_row(char* acc, int64_t i, int64_t n, const char* in, int64_t begin, int64_t end, char* staging) const {
    if (!r_.cascade || end - begin <= kLeaf) return feed_row(acc, i, n, in, begin, end - begin, staging);
    alignas(16) char levels[kMaxLevels * 16];
    pairwise(levels, 1, (end - begin + kLeaf - 1) / kLeaf, [&](void* leaf, int64_t k) {
      const int64_t from = begin + k * kLeaf;
      feed_row(leaf, 0, 1, in, from, std::min(kLeaf, end - from), staging);
    });
    r_.merge(acc + i * r_.acc_size, levels, 1);
  }

  void fold_columns(char* acc, const Tile& tile, int64_t begin, int64_t end, char* staging, char* levels) const {
    Runs runs(reduced_, begin);
    const void* rows[kLeafRows];
    const int64_t step = direct_ ? kLeafRows : staged_rows(tile.width);
    auto leaf = [&](void* target, int64_t k) {
      const int64_t first = begin + k * kLeafRows, last = std::min(first + kLeafRows, end);
      for (int64_t from = first; from < last; from += step) {
        const int64_t count = std::min(step, last - from);
        if (direct_ && reduced_.ndim == 1) {
          for (int64_t r = 0; r < count; r++) rows[r] = tile.in + (from + r) * reduced_.in[0];
          r_.columns(target, tile.width, rows, count, from, p_);
          continue;
        }
        for (int64_t r = 0; r < count; r++) {
          const char* row = tile.in + runs.offset();
          if (direct_) {
            rows[r] = row;
          } else {
            char* buffer = staging + r * tile.width * element_;
            load_(buffer, row, kept_.in[0], tile.width);
            rows[r] = buffer;
          }
          runs.advance(1);
        }
        r_.columns(target, tile.width, rows, count, from, p_);
      }
    };
    const int64_t leaves = (end - begin + kLeafRows - 1) / kLeafRows;
    if (!r_.cascade || leaves == 1) {
      for (int64_t k = 0; k < leaves; k++) leaf(acc, k);
      return;
    }
    pairwise(levels, tile.width, leaves, leaf);
    r_.merge(acc, levels, tile.width);
  }

  // Folds `leaves` leaves of n accumulators each, in order, and merges them as a binary counter carries: two partial
  // results meet only when they stand for equally many leaves. The total is left in the first level.
  template <class Leaf>
  void pairwise(char* levels, int64_t n, int64_t leaves, const Leaf& leaf) const {
    const int64_t bytes = n * r_.acc_size;
    int64_t top = 0;
    for (int64_t k = 0; k < leaves; k++) {
      r_.init(levels + top * bytes, n);
      leaf(levels + top * bytes, k);
      top++;
      for (int64_t carry = k + 1; (carry & 1) == 0; carry >>= 1, top--)
        r_.merge(levels + (top - 2) * bytes, levels + (top - 1) * bytes, n);
    }
    for (; top > 1; top--) r_.merge(levels + (top - 2) * bytes, levels + (top - 1) * bytes, n);
  }

  const Reducer& r_;
  const PointwiseView& v_;
  const ReduceParams& p_;
  int input_;
  int64_t element_;
  Dims kept_, reduced_;
  bool columns_, direct_;
  LoadFn load_;
};

bool find_reducer(ReduceOp op, const PointwiseView& v, const ReduceParams& p, Reducer& r) {
  switch (op) {
    case ReduceOp::norm:
    case ReduceOp::power_sum: return find_norm_reducer(op, v.compute, p.p, r);
    case ReduceOp::var:
    case ReduceOp::std: return find_moments_reducer(op, v.compute, v.num_outputs, r);
    case ReduceOp::sum:
    case ReduceOp::nansum:
    case ReduceOp::mean:
    case ReduceOp::prod:
    case ReduceOp::count_nonzero:
    case ReduceOp::any:
    case ReduceOp::all: return find_sum_reducer(op, v.dtype[0], v.dtype[v.num_operands - 1], r);
    default: return find_minmax_reducer(op, v.compute, r);
  }
}

void reduce(ReduceOp op, const PointwiseView& v, const ReduceParams& p) {
  Reducer r;
  if (!find_reducer(op, v, p, r)) missing_kernel(reduce_kernel.name(), name_of(v.dtype[v.num_operands - 1]));
  Driver(r, v, p).run();
}

MT_REGISTER_KERNEL(reduce_kernel, &reduce);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
