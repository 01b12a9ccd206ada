// What the convolution kernels share: the gathering form of the three problems, and the staged copy of the source.
//
// Every product here reads a source image at positions q * step + offset(tap). For a convolution the offsets are those
// of its taps. For a gradient with respect to the input with stride s, the input falls apart into s phases per
// dimension, each of which gathers densely from the output with the taps that can reach it (W. Shi et al., "Is the
// deconvolution layer the same as a convolutional layer?", 2016, use the same decomposition).
//
// The source of one piece of work is staged: copied once into a zero-padded, channel-first, widened block whose rows
// are split by width modulo step. After that no read needs a bounds test, a conversion or a stride: the positions of a
// row are contiguous for every tap. Patches are copied from it straight into the packed panels of the matrix product,
// so the patch matrix (im2col) never exists as a whole.
#pragma once
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "core/parallel.h"
#include "kernels/convolution.h"
#include "kernels/cpu/gemm_core.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {

using gemm::ceil_div;
using gemm::Element;
using gemm::kLanes;
using gemm::max64;
using gemm::min64;

// A growing array of plain values. (std::vector's functions would be shared between the instruction sets.)
template <class T>
class Array {
 public:
  Array() = default;
  Array(const Array& o) {
    for (const T& x : o) push_back(x);
  }
  Array(Array&& o) noexcept { swap(o); }
  Array& operator=(Array o) noexcept {
    swap(o);
    return *this;
  }
  ~Array() { free(data_); }
  MT_INLINE void push_back(const T& x) {
    if (size_ == room_) {
      room_ = 2 * room_ + 8;
      T* grown = static_cast<T*>(realloc(static_cast<void*>(data_), static_cast<size_t>(room_) * sizeof(T)));
      if (grown == nullptr) throw std::bad_alloc();
      data_ = grown;
    }
    data_[size_++] = x;
  }
  MT_INLINE int64_t size() const { return size_; }
  MT_INLINE T& operator[](int64_t i) { return data_[i]; }
  MT_INLINE const T& operator[](int64_t i) const { return data_[i]; }
  MT_INLINE T* begin() const { return data_; }
  MT_INLINE T* end() const { return data_ + size_; }

 private:
  MT_INLINE void swap(Array& o) { std::swap(data_, o.data_), std::swap(size_, o.size_), std::swap(room_, o.room_); }
  T* data_ = nullptr;
  int64_t size_ = 0, room_ = 0;
};

// One tap along one dimension: where it reads relative to q * step, and its index in the kernel.
struct Tap {
  int64_t offset, index;
};

// A gathering problem over all groups. Strides in elements.
struct Gather {
  int64_t batch, groups;
  int64_t rows, depth;  // output and source channels of one group
  int64_t count[3];     // positions per dimension
  int64_t step[3];      // source elements from one position to the next
  int64_t source_size[3];
  Array<Tap> taps[3];
  ConvTensor source;  // (batch, channel, spatial)
  ConvTensor target;  // of position (0, 0, 0); strides from one position to the next
  ConvTensor weight;  // its data; the strides below say how this problem walks it
  int64_t weight_group, weight_row, weight_channel, weight_tap[3];
  const char* bias;
  int64_t bias_stride;
  bool scattered = false;  // the problem is one of adding up what each source element gives
};

MT_INLINE int64_t tap_count(const Gather& g) { return g.taps[0].size() * g.taps[1].size() * g.taps[2].size(); }

// The convolution as it stands.
Gather forward_gather(const ConvArgs& args);
// The phase of the input at residues r of the stride; its counts are zero if the input has no such positions.
Gather backward_input_gather(const ConvArgs& args, const int64_t* r);

// The staged block: layout [image][channel][d][h][phase][v].
struct Stage {
  int64_t lowest[3];          // source coordinate of staged coordinate 0 of the item that begins at position 0
  int64_t rows_d, rows_h;     // staged planes and rows of an item
  int64_t phases, row;        // phases of the width that some tap uses; elements of one (row, phase)
  Array<int64_t> phase_of;    // residues that are staged, ascending
  Array<int64_t> tap_offset;  // staged offset of each tap (d, h, w order), relative to a position's base
  int64_t channel, image;     // strides
};

// One piece of work: images [n0, n1), positions [d0, d1) x [h0, h1) x all widths.
struct Item {
  int64_t n0, n1, d0, d1, h0, h1;
};
struct Items {
  int64_t images, depths, heights;  // of an item
  int64_t across_n, across_d, across_h;
  int64_t size() const { return across_n * across_d * across_h; }
  Item get(const Gather& g, int64_t i) const;
};

// Cuts the work into items whose staged block stays in cache, at least `least` of them where that is possible without
// going below `positions` positions.
Items make_items(const Gather& g, int64_t least, int64_t positions, int64_t element_bytes);
Stage make_stage(const Gather& g, const Items& items);

// Copies channels [c0, c0 + channels) of the item's source into `block`, which has room for
// images * channels * stage.channel elements.
template <class S>
void stage_source(const Gather& g, const Stage& stage, const Item& item, int64_t c0, int64_t channels,
                  Element<S>* block);
inline constexpr int64_t kSlack = 32;  // elements behind each channel: whole vectors run past its end

// Rows of positions of an item (one for each image, d and h): the staged offset of the first position of each, and its
// offset in the target.
struct Row {
  int64_t staged, target;
};
int64_t make_rows(const Gather& g, const Stage& stage, const Item& item, int64_t channels, Row* rows);

// True if the positions of one image lie evenly spaced in the target, or in the source for a kernel of 1.
bool is_linear(const int64_t* count, const int64_t* strides);
// offset[c * taps + t] = staged offset of channel c and tap t relative to a position.
void make_depth_offsets(const Gather& g, const Stage& stage, int64_t* offset);
// The same for the weight.
void make_weight_offsets(const Gather& g, int64_t* offset);

// Where the processor multiplies pairs of bfloat16 (gemm_core.h), two channels share the place of one float: a staged
// block of half as many channels, and weights to match.
MT_INLINE float join(float low, float high) {
  uint32_t a, b;
  memcpy(&a, &low, sizeof(a)), memcpy(&b, &high, sizeof(b));
  a = a >> 16 | (b & 0xffff0000u);
  memcpy(&low, &a, sizeof(a));
  return low;
}

// What both ways to multiply weights (rows x depth * taps) by patches (depth * taps x positions) begin with.
struct DensePlan {
  Gather g;  // counts channels in pairs if they are joined
  int64_t channels;
  bool pairs;
  Items items;
  Stage stage;
  int64_t depth, kc;  // of the sums, and of one pass over them
  int64_t *staged_offset, *weight_offset;
  bool dense;  // weight_offset[k] = k
};
template <class S>
DensePlan make_dense_plan(const Gather& g);
// Stages all channels of a group, as pairs or as plain elements. Uses Scratch::packed_a.
template <class S>
void stage_group(const DensePlan& plan, const Item& item, int64_t group, Element<S>* block);

// What both ways to sum the gradient of the weight begin with. Threads share the groups, or the items of all groups;
// then each part of them has sums of its own, which are added at the end.
struct WeightPlan {
  int64_t depth, sums_size, parts;  // sums of a channel, of one part, and parts
  bool by_group;
  Items items;
  Stage stage;
  int64_t *offset, *weight_offset;
};
// `rows`: channels that a group has sums for. `positions`: of an item, at least. Uses Scratch::columns.
WeightPlan make_weight_plan(const Gather& g, int64_t rows, int64_t positions, int64_t element_bytes);
// Calls add_items(part, group, i0, i1) for all items of all groups, a part in one thread.
template <class F>
void for_weight_parts(const Gather& g, const WeightPlan& plan, const F& add_items) {
  const int64_t items = plan.items.size();
  parallel_for(plan.by_group ? g.groups : plan.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++) {
      if (plan.by_group) {
        add_items(0, p, 0, items);
        continue;
      }
      for (int64_t group = 0; group < g.groups; group++)
        add_items(p, group, items * p / plan.parts, items * (p + 1) / plan.parts);
    }
  });
}

// The storage types that the templates below are built for.
#define MT_CONV_STORAGE_TYPES(X) X(float) X(double) X(BFloat16) X(Half) X(uint64_t)

// The target of a dense gather: matrix products on panels of patches.
template <class S>
void gather_dense(const Gather& g);
// The same with the output channels in the lanes of vectors, where they fill four fifths of them, and positions about
// half a tile.
template <class S>
MT_INLINE bool fills_lanes(const Gather& g) {
  constexpr int64_t kStep = kLanes<Element<S>>;
  return g.depth * tap_count(g) > 0 && 5 * g.rows >= 4 * ceil_div(g.rows, kStep) * kStep &&
         4 * g.count[2] >= gemm::kMaxRows - 2;
}
template <class S>
void gather_direct(const Gather& g);
// One source channel per group.
template <class S>
void gather_depthwise(const Gather& g);
// The same for small filters of planes that need not be staged; S computes in itself.
bool filters_planes(const Gather& g);
template <class S>
void gather_planes(const Gather& g);
// The same where channels are contiguous in source and target.
bool is_depthwise_last(const Gather& g);
template <class S>
void gather_depthwise_last(const Gather& g);
template <class S>
void weight_depthwise_last(const Gather& g);
// weight = sum over positions of target * patches: the gradient with respect to the weight, with a forward gather.
template <class S>
void weight_dense(const Gather& g);
template <class S>
void weight_direct(const Gather& g);
template <class S>
void weight_depthwise(const Gather& g);

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
