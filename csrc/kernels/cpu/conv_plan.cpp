// How a dense gather and the sums of a weight's gradient are cut into pieces and passes, and the staging of bfloat16 in
// pairs.
#include "core/parallel.h"
#include "kernels/cpu/conv_core.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace conv {
namespace {

using gemm::scratch;
using gemm::Scratch;

// Longer sums would cost accuracy: with these the error is at most native's. Where native scatters, as it does in small
// problems, it adds up each tap's own sum, and shorter sums are needed to be as near.
constexpr int64_t kBlockK = 160;
constexpr int64_t kShortBlockK = 32;
constexpr int64_t kFewProducts = int64_t{1} << 22;
constexpr int64_t kPositions = 256;
constexpr int64_t kPairedChannels = 32;     // that are staged wide before they are joined
constexpr int64_t kMostBuffers = 64 << 20;  // bytes of a weight gradient's sums of all threads

void stage_pairs(const DensePlan& plan, const Item& item, int64_t c0, float* wide, float* block) {
  const int64_t size = plan.stage.channel, joined = plan.g.depth;
  for (int64_t c = 0; c < plan.channels; c += kPairedChannels) {
    const int64_t channels = min64(kPairedChannels, plan.channels - c);
    stage_source<BFloat16>(plan.g, plan.stage, item, c0 + c, channels, wide);
    for (int64_t n = 0; n < item.n1 - item.n0; n++)
      for (int64_t p = 0; p < channels; p += 2) {
        const float* const even = wide + (n * channels + p) * size;
        float* const to = block + (n * joined + (c + p) / 2) * size;
        if (p + 1 < channels) {
          for (int64_t v = 0; v < size; v++) to[v] = join(even[v], even[v + size]);
        } else {
          for (int64_t v = 0; v < size; v++) to[v] = join(even[v], 0);
        }
      }
  }
}

}  // namespace

template <class S>
DensePlan make_dense_plan(const Gather& g) {
  DensePlan plan;
  plan.g = g;
  plan.channels = g.depth;
  plan.pairs = std::is_same_v<S, BFloat16> && g.depth > 1 && gemm::has_pair_products();
  if (plan.pairs) plan.g.depth = ceil_div(g.depth, 2), plan.g.weight_channel *= 2;
  plan.items = make_items(plan.g, ceil_div(num_threads(), g.groups), kPositions, sizeof(Element<S>));
  plan.stage = make_stage(plan.g, plan.items);
  const int64_t depth = plan.g.depth * plan.stage.tap_offset.size();
  const int64_t products = g.batch * g.groups * g.count[0] * g.count[1] * g.count[2] * g.rows * depth;
  const int64_t passes = max64(1, ceil_div(depth, g.scattered && products <= kFewProducts ? kShortBlockK : kBlockK));
  plan.depth = depth, plan.kc = ceil_div(depth, passes);
  plan.staged_offset = scratch<int64_t>(Scratch::columns, 2 * depth + 1);
  plan.weight_offset = plan.staged_offset + depth;
  make_depth_offsets(plan.g, plan.stage, plan.staged_offset);
  make_weight_offsets(plan.g, plan.weight_offset);
  plan.dense = true;
  for (int64_t k = 0; k < depth; k++) plan.dense = plan.dense && plan.weight_offset[k] == k;
  return plan;
}

template <class S>
void stage_group(const DensePlan& plan, const Item& item, int64_t group, Element<S>* block) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    if (plan.pairs)
      return stage_pairs(plan, item, group * plan.channels,
                         scratch<float>(Scratch::packed_a, plan.items.images * kPairedChannels * plan.stage.channel),
                         block);
  }
  stage_source<S>(plan.g, plan.stage, item, group * plan.channels, plan.channels, block);
}

WeightPlan make_weight_plan(const Gather& g, int64_t rows, int64_t positions, int64_t element_bytes) {
  WeightPlan plan;
  plan.depth = g.depth * tap_count(g);
  plan.sums_size = g.groups * rows * plan.depth;
  const int64_t threads = max64(1, min64(num_threads(), kMostBuffers / (plan.sums_size * element_bytes)));
  plan.by_group = g.groups >= threads;
  plan.items = make_items(g, plan.by_group ? 1 : threads, positions, element_bytes);
  plan.stage = make_stage(g, plan.items);
  plan.parts = plan.by_group ? 1 : min64(threads, plan.items.size());
  plan.offset = scratch<int64_t>(Scratch::columns, 2 * plan.depth);
  plan.weight_offset = plan.offset + plan.depth;
  make_depth_offsets(g, plan.stage, plan.offset);
  make_weight_offsets(g, plan.weight_offset);
  return plan;
}

#define MT_INSTANTIATE(S)                               \
  template DensePlan make_dense_plan<S>(const Gather&); \
  template void stage_group<S>(const DensePlan&, const Item&, int64_t, Element<S>*);
MT_CONV_STORAGE_TYPES(MT_INSTANTIATE)
#undef MT_INSTANTIATE

}  // namespace conv
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
