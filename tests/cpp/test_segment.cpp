// Segment reductions against plain loops, their gradients against finite differences, and bounds.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/segment.h"
#include "values.h"

namespace minitorch {
namespace {

constexpr SegmentReduction kReductions[] = {SegmentReduction::max, SegmentReduction::mean, SegmentReduction::min,
                                            SegmentReduction::sum, SegmentReduction::prod};

double combine(SegmentReduction r, double a, double b) {
  switch (r) {
    case SegmentReduction::max: return std::max(a, b);
    case SegmentReduction::min: return std::min(a, b);
    case SegmentReduction::prod: return a * b;
    default: return a + b;
  }
}

// Few long segments of adjacent elements, and many short ones of rows.
struct Shape {
  int64_t length, inner;
  Vector<int64_t> bounds;
};
std::vector<Shape> shapes() {
  return {{200, 1, {0, 70, 70, 71, 200}}, {9, 40, {0, 2, 5, 5, 9}}, {6, 3, {1, 2, 3, 4, 5}}};
}

TEST(Segment, ReducesAndDifferentiates) {
  for (const Shape& shape : shapes())
    for (const SegmentReduction reduction : kReductions) {
      const int64_t segments = static_cast<int64_t>(shape.bounds.size()) - 1, inner = shape.inner;
      Vector<double> x = random_of<double>(shape.length * inner, 1, 0.5, 1.5),
                     g = random_of<double>(segments * inner, 2, 0.5, 1.5);
      Vector<double> y(segments * inner), dx(x.size(), 0.0);
      SegmentArgs a{};
      a.dtype = DType::F64;
      a.reduction = reduction;
      a.outer = 1;
      a.length = shape.length;
      a.inner = inner;
      a.segments = segments;
      a.bounds = shape.bounds.data();
      a.has_initial = true;
      a.initial = 1.0;
      a.data = x.data();
      a.result = y.data();
      a.dresult = g.data();
      a.ddata = dx.data();
      const auto expected = [&](int64_t s, int64_t i) {
        double sum = 1.0;
        for (int64_t k = shape.bounds[s]; k < shape.bounds[s + 1]; k++) sum = combine(reduction, sum, x[k * inner + i]);
        const double count = static_cast<double>(shape.bounds[s + 1] - shape.bounds[s]);
        return reduction == SegmentReduction::mean && count > 0 ? sum / count : sum;
      };
      segment_reduce_kernel(a);
      for (int64_t s = 0; s < segments; s++)
        for (int64_t i = 0; i < inner; i++)
          ASSERT_NEAR(y[s * inner + i], expected(s, i), 1e-12 * std::fabs(y[s * inner + i]) + 1e-12);
      segment_reduce_backward_kernel(a);
      for (int64_t s = 0; s < segments; s++)
        for (int64_t i = 0; i < inner; i++)
          for (int64_t k = shape.bounds[s]; k < shape.bounds[s + 1]; k++) {
            double& v = x[k * inner + i];
            const double v0 = v, h = 1e-6;
            v = v0 + h;
            const double up = expected(s, i);
            v = v0 - h;
            const double down = expected(s, i);
            v = v0;
            const double slope = g[s * inner + i] * (up - down) / (2 * h);
            ASSERT_NEAR(dx[k * inner + i], slope, 1e-6 * std::fabs(slope) + 1e-6);
          }
    }
}

TEST(Segment, WithoutInitialValueTheMeanOfNothingIsNaN) {
  const Vector<int64_t> bounds{0, 0, 3};
  const Vector<float> x{1, 2, 6};
  Vector<float> y(2);
  SegmentArgs a{DType::F32, SegmentReduction::mean, 1, 3, 1, 2, bounds.data(), false, 0, x.data(), y.data(), nullptr,
                nullptr};
  segment_reduce_kernel(a);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_FLOAT_EQ(y[1], 3);
}

TEST(Segment, BoundsFromLengthsAndOffsets) {
  const int64_t count = 700;
  Vector<int64_t> lengths(2 * count), offsets(2 * (count + 1)), bounds(2 * (count + 1));
  for (int64_t o = 0; o < 2; o++)
    for (int64_t i = 0; i < count; i++) {
      lengths[o * count + i] = (i + o) % 4;
      offsets[o * (count + 1) + i + 1] = offsets[o * (count + 1) + i] + (i + o) % 4;
    }
  bool failed = false;
  segment_bounds_kernel({DType::I64, true, 2, count, 1051, lengths.data(), bounds.data(), &failed});
  EXPECT_FALSE(failed);
  EXPECT_EQ(bounds, offsets);
  bounds.assign(bounds.size(), -1);
  segment_bounds_kernel({DType::I64, false, 2, count + 1, 1051, offsets.data(), bounds.data(), &failed});
  EXPECT_FALSE(failed);
  EXPECT_EQ(bounds, offsets);
  segment_bounds_kernel({DType::I64, true, 2, count, 1049, lengths.data(), bounds.data(), &failed});
  EXPECT_TRUE(failed);
  failed = false;
  lengths[650] = -1;
  segment_bounds_kernel({DType::I64, true, 2, count, 2000, lengths.data(), bounds.data(), &failed});
  EXPECT_TRUE(failed);
  failed = false;
  offsets[300] = 0;
  segment_bounds_kernel({DType::I64, false, 2, count + 1, 2000, offsets.data(), bounds.data(), &failed});
  EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace minitorch
