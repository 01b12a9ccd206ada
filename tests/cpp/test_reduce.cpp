// The reduction driver on every layout it distinguishes, against a plain loop over the same elements.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "memory.h"
#include "kernels/reduce.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

struct Shape {
  const char* name;
  Vector<int64_t> sizes;  // dimension 0 fastest in the view
  Vector<int64_t> in;     // input strides, in elements
  Vector<bool> reduced;
};

const Shape kShapes[] = {
    {"full", {100003}, {1}, {true}},
    {"full_strided", {5000}, {3}, {true}},
    {"rows", {1000, 37}, {1, 1000}, {true, false}},
    {"long_rows", {200000, 3}, {1, 200000}, {true, false}},
    {"short_rows", {3, 1000}, {1, 3}, {true, false}},
    {"columns", {700, 300}, {300, 1}, {true, false}},
    {"few_columns", {50000, 10}, {10, 1}, {true, false}},
    {"wide_columns", {9, 3000}, {3000, 1}, {true, false}},
    {"strided_columns", {70, 50}, {100, 2}, {true, false}},
    {"middle", {40, 7, 30}, {7, 1, 280}, {true, false, false}},
    {"outer_and_inner", {13, 30, 50}, {1, 13 * 50, 13}, {true, true, false}},
    {"short_runs", {3, 300, 20}, {1, 3 * 20, 3}, {true, true, false}},
    {"odd_rows", {1003, 40}, {1, 1003}, {true, false}},
    {"pitched_rows", {1000, 40}, {1, 1028}, {true, false}},
    {"single_pack_columns", {50000, 8}, {8, 1}, {true, false}},
    {"middle_of_packs", {64, 90, 40}, {1, 64, 64 * 90}, {false, true, false}},
    {"long_middle_of_packs", {16, 9001, 3}, {1, 16, 16 * 9001}, {false, true, false}},
    {"ends_of_packs", {32, 20, 300}, {1, 32, 32 * 20}, {true, false, true}},
    {"long_ends_of_packs", {64, 3, 3001}, {1, 64, 64 * 3}, {true, false, true}},
    {"all_but_the_middle_of_four", {16, 5, 7, 24}, {1, 16, 80, 560}, {true, false, true, false}},
    {"three_reduced", {16, 5, 7, 6, 24}, {1, 16, 80, 560, 3360}, {true, false, true, false, true}},
    {"kept_and_two_reduced", {32, 9, 5, 70}, {1, 32, 288, 1440}, {false, true, false, true}},
    {"expanded_input", {100, 60}, {0, 1}, {true, false}},
    {"expanded_output_side", {100, 60}, {1, 0}, {true, false}},
    {"nothing_reduced", {500}, {1}, {false}},
    {"single", {1}, {1}, {true}},
};

class Reduce : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { backend(); }

  // Builds a view with outputs that are dense over the kept dimensions.
  template <class In>
  PointwiseView view(Vector<In>& in, Vector<std::pair<DType, Vector<char>>>& out) {
    const Shape& s = GetParam();
    PointwiseView v{};
    v.ndim = static_cast<int>(s.sizes.size());
    v.num_outputs = static_cast<int>(out.size());
    v.num_operands = v.num_outputs + 1;
    v.numel = 1;
    kept_ = 1;
    int64_t last = 0;
    for (int d = 0; d < v.ndim; d++) {
      v.sizes[d] = s.sizes[d];
      v.numel *= s.sizes[d];
      last += (s.sizes[d] - 1) * s.in[d];
      v.strides[v.num_outputs][d] = s.in[d] * static_cast<int64_t>(sizeof(In));
      for (int k = 0; k < v.num_outputs; k++)
        v.strides[k][d] = s.reduced[d] ? 0 : kept_ * static_cast<int64_t>(size_of(out[k].first));
      if (!s.reduced[d]) kept_ *= s.sizes[d];
    }
    in.resize(last + 1);
    for (int k = 0; k < v.num_outputs; k++) {
      out[k].second.resize(kept_ * size_of(out[k].first));
      v.data[k] = out[k].second.data();
      v.dtype[k] = out[k].first;
    }
    v.data[v.num_outputs] = reinterpret_cast<char*>(in.data());
    v.dtype[v.num_outputs] = v.compute = dtype_of<In>;
    return v;
  }

  // The slices in the order of the outputs, each in the order of the view.
  template <class In>
  Vector<Vector<In>> slices(const Vector<In>& in) const {
    const Shape& s = GetParam();
    Vector<Vector<In>> result(kept_);
    int64_t numel = 1;
    for (int64_t n : s.sizes) numel *= n;
    for (int64_t i = 0; i < numel; i++) {
      int64_t rest = i, offset = 0, output = 0, scale = 1;
      for (size_t d = 0; d < s.sizes.size(); d++) {
        const int64_t k = rest % s.sizes[d];
        rest /= s.sizes[d];
        offset += k * s.in[d];
        if (!s.reduced[d]) {
          output += k * scale;
          scale *= s.sizes[d];
        }
      }
      result[output].push_back(in[offset]);
    }
    return result;
  }

  int64_t kept_ = 0;
  std::mt19937 random_{7};
};

template <class T>
const T* as(const Vector<char>& bytes) {
  return reinterpret_cast<const T*>(bytes.data());
}

TEST_P(Reduce, SumIsAsExactAsDouble) {
  Vector<float> in;
  Vector<std::pair<DType, Vector<char>>> out{{DType::F32, {}}};
  const PointwiseView v = view(in, out);
  for (float& x : in) x = std::uniform_real_distribution<float>(0, 1)(random_);
  reduce_kernel(ReduceOp::sum, v, {});
  const auto expected = slices(in);
  for (int64_t k = 0; k < kept_; k++) {
    double sum = 0;
    for (float x : expected[k]) sum += x;
    EXPECT_NEAR(as<float>(out[0].second)[k], sum, 5e-7 * sum + 1e-12);
  }
}

// On a GPU float is added up in double, in every layout: all that is rounded is the result.
TEST_P(Reduce, CudaSumsOfFloatRoundOnce) {
  MT_CUDA_ONLY();
  Vector<float> in;
  Vector<std::pair<DType, Vector<char>>> out{{DType::F32, {}}};
  const PointwiseView v = view(in, out);
  for (float& x : in) x = std::uniform_real_distribution<float>(-1, 1)(random_);
  const auto expected = slices(in);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    reduce_kernel(op, v, {});
    for (int64_t k = 0; k < kept_; k++) {
      double sum = 0, magnitude = 0;
      for (float x : expected[k]) {
        sum += x;
        magnitude += std::abs(static_cast<double>(x));
      }
      const double n = op == ReduceOp::mean ? static_cast<double>(expected[k].size()) : 1;
      EXPECT_NEAR(as<float>(out[0].second)[k], sum / n, (std::abs(sum) * 6e-8 + magnitude * 1e-12) / n);
    }
  }
}

TEST_P(Reduce, HalfInputsAccumulateInFloat) {
  Vector<BFloat16> in;
  Vector<std::pair<DType, Vector<char>>> out{{DType::F32, {}}};
  const PointwiseView v = view(in, out);
  for (BFloat16& x : in) x = std::uniform_real_distribution<float>(-1, 1)(random_);
  reduce_kernel(ReduceOp::mean, v, {});
  const auto expected = slices(in);
  for (int64_t k = 0; k < kept_; k++) {
    double sum = 0, magnitude = 0;
    for (BFloat16 x : expected[k]) sum += x, magnitude += std::abs(x);
    EXPECT_NEAR(as<float>(out[0].second)[k], sum / expected[k].size(), 1e-6 * magnitude / expected[k].size() + 1e-12);
  }
}

TEST_P(Reduce, IntegersSumExactlyBeyondFloat) {
  Vector<int64_t> in;
  Vector<std::pair<DType, Vector<char>>> out{{DType::I64, {}}};
  const PointwiseView v = view(in, out);
  for (int64_t& x : in) x = (int64_t{1} << 55) + static_cast<int64_t>(random_());
  reduce_kernel(ReduceOp::sum, v, {});
  const auto expected = slices(in);
  for (int64_t k = 0; k < kept_; k++) {
    uint64_t sum = 0;
    for (int64_t x : expected[k]) sum += static_cast<uint64_t>(x);
    EXPECT_EQ(as<uint64_t>(out[0].second)[k], sum);
  }
}

TEST_P(Reduce, MaxIndexIsTheFirstAndNanWins) {
  Vector<float> in;
  Vector<std::pair<DType, Vector<char>>> out{{DType::F32, {}}, {DType::I64, {}}};
  const PointwiseView v = view(in, out);
  for (float& x : in) {
    x = static_cast<float>(random_() % 50);
    if (random_() % 20000 == 0) x = NAN;
  }
  reduce_kernel(ReduceOp::max_index, v, {});
  const auto expected = slices(in);
  for (int64_t k = 0; k < kept_; k++) {
    size_t best = 0;
    for (size_t i = 0; i < expected[k].size() && !std::isnan(expected[k][best]); i++)
      if (expected[k][i] > expected[k][best] || std::isnan(expected[k][i])) best = i;
    EXPECT_EQ(as<int64_t>(out[1].second)[k], static_cast<int64_t>(best));
    if (std::isnan(expected[k][best]))
      EXPECT_TRUE(std::isnan(as<float>(out[0].second)[k]));
    else
      EXPECT_EQ(as<float>(out[0].second)[k], expected[k][best]);
  }
}

TEST_P(Reduce, BoundsTakeNanAndInfinity) {
  Vector<float> in;
  Vector<std::pair<DType, Vector<char>>> out{{DType::F32, {}}, {DType::F32, {}}}, one{{DType::F32, {}}};
  const PointwiseView v = view(in, out);
  for (float& x : in) {
    x = std::uniform_real_distribution<float>(-1, 1)(random_);
    const auto chance = random_() % 20000;
    if (chance < 3) x = chance == 0 ? NAN : chance == 1 ? INFINITY : -INFINITY;
  }
  reduce_kernel(ReduceOp::aminmax, v, {});
  const auto expected = slices(in);
  const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  Vector<float> low(kept_, INFINITY), high(kept_, -INFINITY);
  for (int64_t k = 0; k < kept_; k++) {
    for (float x : expected[k]) {
      if (!std::isnan(low[k])) low[k] = x >= low[k] ? low[k] : x;
      if (!std::isnan(high[k])) high[k] = x <= high[k] ? high[k] : x;
    }
    EXPECT_TRUE(same(as<float>(out[0].second)[k], low[k]));
    EXPECT_TRUE(same(as<float>(out[1].second)[k], high[k]));
  }
  Vector<float> again;
  const PointwiseView single = view(again, one);
  std::copy(in.begin(), in.end(), again.begin());
  for (bool max : {true, false}) {
    reduce_kernel(max ? ReduceOp::max : ReduceOp::min, single, {});
    for (int64_t k = 0; k < kept_; k++) EXPECT_TRUE(same(as<float>(one[0].second)[k], max ? high[k] : low[k]));
  }
}

TEST_P(Reduce, HalfInputsHaveTheirFirstMaximum) {
  Vector<BFloat16> in;
  Vector<std::pair<DType, Vector<char>>> out{{DType::BF16, {}}, {DType::I64, {}}};
  const PointwiseView v = view(in, out);
  for (BFloat16& x : in) x = static_cast<float>(random_() % 50);
  reduce_kernel(ReduceOp::max_index, v, {});
  const auto expected = slices(in);
  for (int64_t k = 0; k < kept_; k++) {
    size_t best = 0;
    for (size_t i = 0; i < expected[k].size(); i++)
      if (float(expected[k][i]) > float(expected[k][best])) best = i;
    EXPECT_EQ(as<int64_t>(out[1].second)[k], static_cast<int64_t>(best));
    EXPECT_EQ(float(as<BFloat16>(out[0].second)[k]), float(expected[k][best]));
  }
}

TEST_P(Reduce, VarianceSurvivesALargeMean) {
  Vector<float> in;
  Vector<std::pair<DType, Vector<char>>> out{{DType::F64, {}}, {DType::F64, {}}};
  const PointwiseView v = view(in, out);
  for (float& x : in) x = 10000 + std::normal_distribution<float>(0, 1)(random_);
  ReduceParams params;
  params.correction = 0;
  reduce_kernel(ReduceOp::var, v, params);
  const auto expected = slices(in);
  for (int64_t k = 0; k < kept_; k++) {
    double mean = 0, m2 = 0;
    for (float x : expected[k]) mean += x;
    mean /= expected[k].size();
    for (float x : expected[k]) m2 += (x - mean) * (x - mean);
    EXPECT_NEAR(as<double>(out[0].second)[k], m2 / expected[k].size(), 1e-9 * m2 / expected[k].size() + 1e-12);
    EXPECT_NEAR(as<double>(out[1].second)[k], mean, 1e-9);
  }
}

TEST_P(Reduce, AnyAllCountOfFloats) {
  Vector<float> in;
  Vector<std::pair<DType, Vector<char>>> flag{{DType::Bool, {}}}, count{{DType::I64, {}}};
  PointwiseView v = view(in, flag);
  for (float& x : in) x = random_() % 3 == 0 ? 0.0f : 0.25f;
  const auto expected = slices(in);
  for (bool any : {true, false}) {
    reduce_kernel(any ? ReduceOp::any : ReduceOp::all, v, {});
    for (int64_t k = 0; k < kept_; k++) {
      int64_t nonzero = 0;
      for (float x : expected[k]) nonzero += x != 0;
      EXPECT_EQ(as<bool>(flag[0].second)[k], any ? nonzero > 0 : nonzero == static_cast<int64_t>(expected[k].size()));
    }
  }
  const PointwiseView c = view(in, count);
  reduce_kernel(ReduceOp::count_nonzero, c, {});
  for (int64_t k = 0; k < kept_; k++) {
    int64_t nonzero = 0;
    for (float x : expected[k]) nonzero += x != 0;
    EXPECT_EQ(as<int64_t>(count[0].second)[k], nonzero);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Reduce, testing::ValuesIn(kShapes),
                         [](const testing::TestParamInfo<Shape>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace minitorch
