// CTC against the sum over all paths, which is possible for short sequences.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/ctc.h"
#include "memory.h"

namespace minitorch {
namespace {

constexpr int64_t kTime = 5, kBatch = 4, kClasses = 3, kLongest = 3;

// Of all paths of `length` steps that spell `labels` (blank is 0): total probability, and [time, class] the part of the
// paths that are at a class at a time.
double paths(const double* probs, int64_t b, int64_t length, const std::vector<int64_t>& labels, Vector<double>& at) {
  double total = 0;
  int64_t count = 1;
  for (int64_t t = 0; t < length; t++) count *= kClasses;
  for (int64_t code = 0; code < count; code++) {
    std::vector<int64_t> path, spelled;
    double probability = 1;
    for (int64_t t = 0, rest = code; t < length; t++, rest /= kClasses) {
      path.push_back(rest % kClasses);
      probability *= probs[(t * kBatch + b) * kClasses + path.back()];
      if (path.back() != 0 && (t == 0 || path[t - 1] != path[t])) spelled.push_back(path.back());
    }
    if (spelled != labels) continue;
    total += probability;
    for (int64_t t = 0; t < length; t++) at[t * kClasses + path[t]] += probability;
  }
  return total;
}

TEST(Ctc, LossAndGradientAreSumsOverPaths) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0.1, 1);
  Vector<double> probs(kTime * kBatch * kClasses), logs(probs.size());
  for (int64_t row = 0; row < kTime * kBatch; row++) {
    double sum = 0;
    for (int64_t c = 0; c < kClasses; c++) sum += probs[row * kClasses + c] = uniform(random);
    for (int64_t c = 0; c < kClasses; c++) {
      probs[row * kClasses + c] /= sum;
      logs[row * kClasses + c] = std::log(probs[row * kClasses + c]);
    }
  }
  const std::vector<std::vector<int64_t>> labels{{1, 1}, {2, 1, 2}, {}, {1, 1, 1}};
  const std::vector<int64_t> lengths{5, 4, 3, 4};  // the last target does not fit: blanks must part its labels
  Vector<int64_t> targets(kBatch * kLongest, 0);
  std::vector<int64_t> offsets(kBatch), target_lengths(kBatch);
  for (int64_t b = 0; b < kBatch; b++) {
    offsets[b] = b * kLongest;
    target_lengths[b] = static_cast<int64_t>(labels[b].size());
    for (size_t i = 0; i < labels[b].size(); i++) targets[b * kLongest + static_cast<int64_t>(i)] = labels[b][i];
  }
  const int64_t states = 2 * kLongest + 1;
  Vector<double> loss(kBatch), alpha(kBatch * kTime * states), dx(probs.size()), dloss{1.0, -2.0, 0.5, 1.0};
  bool failed = false;
  CtcArgs a{};
  a.dtype = DType::F64;
  a.label_dtype = DType::I64;
  a.time = kTime;
  a.batch = kBatch;
  a.classes = kClasses;
  a.states = states;
  a.log_probs = logs.data();
  a.strides[0] = kBatch * kClasses;
  a.strides[1] = kClasses;
  a.strides[2] = 1;
  a.labels = targets.data();
  a.label_offsets = offsets.data();
  a.label_stride = 1;
  a.input_lengths = lengths.data();
  a.target_lengths = target_lengths.data();
  a.loss = loss.data();
  a.log_alpha = alpha.data();
  a.dloss = dloss.data();
  a.dloss_stride = 1;
  a.dx = dx.data();
  a.zero_infinity = true;
  a.failed = &failed;
  ctc_loss_kernel(a);
  ctc_loss_backward_kernel(a);
  EXPECT_FALSE(failed);
  for (int64_t b = 0; b < kBatch; b++) {
    Vector<double> at(kTime * kClasses, 0.0);
    const double total = paths(probs.data(), b, lengths[b], labels[b], at);
    if (b == 3) {
      EXPECT_EQ(total, 0);
      EXPECT_TRUE(std::isinf(loss[b]) && loss[b] > 0);
    } else {
      EXPECT_NEAR(loss[b], -std::log(total), 1e-12);
    }
    for (int64_t t = 0; t < kTime; t++)
      for (int64_t c = 0; c < kClasses; c++) {
        const int64_t i = (t * kBatch + b) * kClasses + c;
        const double expected = t < lengths[b] && b != 3 ? (probs[i] - at[t * kClasses + c] / total) * dloss[b] : 0;
        EXPECT_NEAR(dx[i], expected, 1e-11) << b << " " << t << " " << c;
      }
  }
}

}  // namespace
}  // namespace minitorch
