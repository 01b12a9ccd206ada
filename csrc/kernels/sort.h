// Sorting and selection along one dimension, and what is built on sorted data. The order is PyTorch's: NaN is larger
// than every number, -0.0 equals 0.0, and equal elements keep their order (all sorts here are stable). Indices are
// int64.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// values and indices of the sorted lines of `input` along `dim`; all three have the same sizes.
extern Kernel<void(const TensorView& values, const TensorView& indices, const TensorView& input, int dim,
                   bool descending)>
    sort_kernel;

// The k largest or smallest elements of each line, best first. values and indices have k elements along `dim`.
extern Kernel<void(const TensorView& values, const TensorView& indices, const TensorView& input, int dim, int64_t k,
                   bool largest)>
    topk_kernel;

enum class SelectOp : uint8_t {
  kth,        // the k-th smallest (k counts from 1)
  median,     // the lower median; the first NaN if there is one
  nanmedian,  // the lower median of the numbers
  mode,       // the most frequent value, the smallest of them; the index of its last occurrence
};
// One element of each line: values and indices have one element along `dim`.
extern Kernel<void(SelectOp, const TensorView& values, const TensorView& indices, const TensorView& input, int dim,
                   int64_t k)>
    select_kernel;

// Positions at which the n values would be inserted into sorted sequences of `length` elements to keep them sorted:
// before equal elements or, with `right`, after them. Sequence r serves values [r * per_sequence, (r + 1) *
// per_sequence); everything is contiguous. sorter (may be null) lists each sequence's elements in sorted order.
struct SearchArgs {
  char* sequences;
  char* values;
  DType dtype;  // of sequences and values
  const int64_t* sorter;
  char* output;
  DType output_dtype;
  int64_t length, n, per_sequence;
  bool right;
};
extern Kernel<void(const SearchArgs&)> search_kernel;

// Runs of equal neighbours among n items of `width` contiguous elements each, item i at data + order[i] * width
// elements (order may be null: as they lie). NaN equals nothing. count[0] = number of runs; starts[r] = first i of run
// r, with one more entry n at the end; inverse[label[i]] = number of the run that item i is in (inverse may be null,
// and so may label: i itself).
struct RunsArgs {
  char* data;
  DType dtype;
  int64_t n, width;
  const int64_t *order, *label;
  int64_t *count, *starts, *inverse;
};
extern Kernel<void(const RunsArgs&)> runs_kernel;

// The same for single elements as they lie: how many runs there are and, unless null, the value of each.
extern Kernel<void(const char* data, DType dtype, int64_t n, int64_t* count, char* values)> run_values_kernel;

// order[i] = the i-th of n items of `width` contiguous elements in lexicographic order; equal items keep their order.
// On the CPU NaN is neither before nor after any number there, as in native, and items with NaN have no certain place.
extern Kernel<void(int64_t* order, char* data, DType dtype, int64_t n, int64_t width)> lexicographic_order_kernel;

// counts[x - lowest] = how often x occurs among n integers in [lowest, lowest + bins). All contiguous.
struct CountArgs {
  int64_t* counts;
  char* elements;
  DType dtype;
  int64_t n, bins, lowest;
};
extern Kernel<void(const CountArgs&)> count_kernel;

// hist[bins of point i] = sum of the weights of the points there; the type of points, weights, edges and hist is one of
// the floating ones, and everything is contiguous. Dimension d has bins[d] bins between its bins[d] + 1 ascending
// edges, half open but for the last. Points outside the edges and points with a NaN count nowhere.
enum class BinSearch : uint8_t {
  linear,  // bins are equal: the number follows from the coordinate
  nearby,  // the same, put right by the edges beside it
  binary,  // any edges
};
constexpr int64_t kMostHistogramDims = 32;
struct HistogramArgs {
  char* points;   // [n][dims]
  char* weights;  // [n], or null: 1 each
  char* hist;     // [bins[0]]..[bins[dims - 1]]
  DType dtype;
  int64_t n, dims;  // at most kMostHistogramDims
  const char* const* edges;
  const int64_t* bins;
  BinSearch search;
};
extern Kernel<void(const HistogramArgs&)> histogram_kernel;

// output[i] = whether any of the m test elements equals element i (or, inverted, none does). All contiguous, one dtype.
struct MembershipArgs {
  bool* output;
  char *elements, *tests;
  DType dtype;
  int64_t n, m;
  bool invert;
};
extern Kernel<void(const MembershipArgs&)> membership_kernel;

}  // namespace minitorch
