// Convolution and its gradients against nested loops, over the shapes that reach every method and edge.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "memory.h"
#include "kernels/convolution.h"
#include "runtime/backend.h"

namespace minitorch {
namespace {

struct Case {
  const char* name;
  int64_t batch, groups, in, out;
  int64_t size[3], kernel[3], stride[3], padding[3], dilation[3];
};

const Case kCases[] = {
    {"plain 3x3", 2, 1, 5, 7, {1, 9, 11}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"many positions", 2, 1, 3, 17, {1, 40, 37}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"many channels", 3, 1, 40, 36, {1, 6, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"small images", 9, 1, 16, 15, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"single positions", 40, 1, 6, 5, {1, 3, 3}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {"stride 2", 2, 1, 4, 6, {1, 13, 16}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {"stride 3 kernel 2", 2, 1, 4, 6, {1, 13, 16}, {1, 2, 2}, {1, 3, 3}, {0, 0, 0}, {1, 1, 1}},
    {"stride 2 kernel 1", 2, 1, 4, 6, {1, 9, 8}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
    {"stem 7x7", 1, 1, 3, 20, {1, 30, 33}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {1, 1, 1}},
    {"stem of four channels", 2, 1, 4, 24, {1, 15, 18}, {1, 5, 8}, {1, 2, 2}, {0, 2, 3}, {1, 1, 1}},
    {"boxes of pixels", 3, 1, 64, 72, {1, 9, 12}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"boxes, stride 2", 3, 1, 48, 70, {1, 10, 13}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {"boxes, stride 2 across", 2, 1, 40, 33, {1, 8, 12}, {1, 2, 5}, {1, 1, 2}, {0, 1, 2}, {1, 1, 1}},
    {"boxes, stride 2 dilation 2", 2, 1, 32, 40, {1, 9, 10}, {1, 3, 3}, {1, 2, 2}, {0, 2, 1}, {1, 2, 2}},
    {"boxes, 1x1 stride 2", 2, 1, 64, 40, {1, 7, 8}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
    {"1x1 over planes", 3, 1, 40, 36, {1, 8, 10}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {"boxes of samples", 67, 1, 32, 40, {1, 3, 1}, {1, 3, 1}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
    {"channels of one vector", 2, 2, 6, 32, {1, 9, 15}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"channels of one and a half vectors", 2, 1, 5, 24, {1, 6, 29}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
    {"channels of several vectors", 3, 1, 33, 63, {1, 7, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"rows longer than a chunk", 2, 1, 7, 32, {1, 3, 300}, {1, 2, 9}, {1, 1, 1}, {0, 0, 4}, {1, 1, 1}},
    {"such rows, one vector", 2, 1, 16, 16, {1, 5, 203}, {1, 3, 4}, {1, 1, 2}, {0, 1, 1}, {1, 1, 2}},
    {"vectors of channels, 3d", 2, 1, 32, 16, {3, 5, 16}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {"dilation", 2, 1, 4, 6, {1, 13, 16}, {1, 3, 2}, {1, 1, 2}, {0, 2, 3}, {1, 2, 3}},
    {"padding wider than the kernel", 1, 1, 2, 3, {1, 4, 5}, {1, 2, 2}, {1, 1, 1}, {0, 3, 4}, {1, 1, 1}},
    {"1x1", 3, 1, 20, 33, {1, 7, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {"1x1 groups", 2, 3, 12, 9, {1, 5, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {"groups", 2, 4, 8, 12, {1, 9, 10}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"depthwise", 2, 6, 6, 6, {1, 20, 21}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"depthwise stride 2 multiplier 2", 2, 6, 6, 12, {1, 20, 90}, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}},
    {"depthwise 7x7", 2, 37, 37, 37, {1, 9, 19}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}, {1, 1, 1}},
    {"depthwise 3x5, wide padding", 2, 16, 16, 16, {1, 6, 8}, {1, 3, 5}, {1, 1, 1}, {0, 1, 4}, {1, 1, 1}},
    {"1d", 2, 1, 5, 8, {1, 1, 300}, {1, 1, 5}, {1, 1, 1}, {0, 0, 2}, {1, 1, 1}},
    {"1d stride", 2, 1, 5, 8, {1, 1, 300}, {1, 1, 10}, {1, 1, 5}, {0, 0, 2}, {1, 1, 1}},
    {"3d", 2, 1, 3, 5, {6, 7, 8}, {3, 2, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
    {"3d stride", 1, 2, 4, 6, {12, 11, 10}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}},
};

template <class T>
struct Memory {
  Vector<T> data;
  explicit Memory(int64_t n, std::mt19937& gen) : data(static_cast<size_t>(n)) {
    std::uniform_int_distribution<int> d(-8, 8);
    for (T& x : data) x = is_floating_v<T> ? static_cast<T>(static_cast<float>(d(gen)) / 4) : static_cast<T>(d(gen));
  }
  char* pointer() { return reinterpret_cast<char*>(data.data()); }
};

ConvTensor layout(char* data, int64_t channels, const int64_t* s, bool channels_last) {
  const int64_t positions = s[0] * s[1] * s[2];
  if (channels_last) return {data, {channels * positions, 1, s[1] * s[2] * channels, s[2] * channels, channels}};
  return {data, {channels * positions, positions, s[1] * s[2], s[2], 1}};
}

// A case's arguments and random tensors. Values are small multiples of 1/16, so that every sum is exact and results
// agree to the last bit.
template <class T>
struct Problem {
  ConvArgs a;
  Memory<T> input, output, weight;

  Problem(const Case& c, bool channels_last, std::mt19937& gen)
      : a(args_of(c)),
        input(c.batch * c.in * product(a.in_size), gen),
        output(c.batch * c.out * product(a.out_size), gen),
        weight(c.out * c.in / c.groups * product(a.kernel), gen) {
    a.dtype = dtype_of<T>;
    a.input = layout(input.pointer(), c.in, a.in_size, channels_last);
    a.output = layout(output.pointer(), c.out, a.out_size, channels_last);
    a.weight = layout(weight.pointer(), c.in / c.groups, a.kernel, channels_last);
  }

 private:
  static int64_t product(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }
  static ConvArgs args_of(const Case& c) {
    ConvArgs a;
    a.batch = c.batch, a.groups = c.groups, a.in_channels = c.in, a.out_channels = c.out;
    for (int d = 0; d < 3; d++) {
      a.in_size[d] = c.size[d], a.kernel[d] = c.kernel[d], a.stride[d] = c.stride[d];
      a.padding[d] = c.padding[d], a.dilation[d] = c.dilation[d];
      a.out_size[d] = (c.size[d] + 2 * c.padding[d] - c.dilation[d] * (c.kernel[d] - 1) - 1) / c.stride[d] + 1;
    }
    return a;
  }
};

template <class T>
void check(const Case& c, bool channels_last, bool bias, bool tf32 = false) {
  std::mt19937 gen(7);
  Problem<T> problem(c, channels_last, gen);
  auto& [a, input, output, weight] = problem;
  Memory<T> added(std::max(c.in, c.out), gen);
  a.tf32 = tf32;
  a.bias = bias ? added.pointer() : nullptr;
  for (int which = 0; which < 3; which++) {
    Memory<T>& result = which == 0 ? output : which == 1 ? input : weight;
    const Vector<T> before = result.data;
    which == 0 ? conv_forward_kernel(a) : which == 1 ? conv_backward_input_kernel(a) : conv_backward_weight_kernel(a);
    const Vector<T> actual = result.data;
    result.data = before;
    conv_reference_kernel(which, a);
    for (size_t i = 0; i < actual.size(); i++)
      ASSERT_EQ(std::memcmp(&actual[i], &result.data[i], sizeof(T)), 0)
          << c.name << ", " << name_of(a.dtype) << (channels_last ? ", channels last" : "") << ", kernel " << which
          << ", element " << i << ": " << static_cast<double>(actual[i]) << " instead of "
          << static_cast<double>(result.data[i]);
    result.data = before;
  }
}

template <class T>
class Convolution : public testing::Test {};
using AllTypes = testing::Types<float, double, BFloat16, Half, int64_t>;
TYPED_TEST_SUITE(Convolution, AllTypes);

TYPED_TEST(Convolution, ContiguousMatchesTheDefinition) {
  for (const Case& c : kCases) check<TypeParam>(c, false, true);
}
TYPED_TEST(Convolution, ChannelsLastMatchesTheDefinition) {
  for (const Case& c : kCases) check<TypeParam>(c, true, false);
}

TEST(ConvolutionFloat, DeepSumsSpanSeveralBlocks) {
  const Case deep = {"deep", 2, 1, 70, 20, {1, 12, 12}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}};
  check<float>(deep, false, true);
  check<BFloat16>(deep, false, true);
  check<BFloat16>(deep, true, true);
}

// Of these values, rounding takes nothing away.
TEST(ConvolutionFloat, RoundedFactorsMatchTheDefinition) {
  for (const Case& c : kCases) {
    check<float>(c, false, true, true);
    check<float>(c, true, false, true);
  }
}

// Every part by itself gives the same values; gradients of the weight, whose sums are exact, add up.
void check_parts(const Case& c, int d, int64_t length) {
  std::mt19937 gen(8);
  Problem<float> problem(c, false, gen);
  auto& [a, input, output, weight] = problem;
  for (const ConvPass pass : {ConvPass::forward, ConvPass::backward_input, ConvPass::backward_weight}) {
    const auto run = [&](const ConvArgs& args) {
      pass == ConvPass::forward          ? conv_forward_kernel(args)
      : pass == ConvPass::backward_input ? conv_backward_input_kernel(args)
                                         : conv_backward_weight_kernel(args);
    };
    Memory<float>& result = pass == ConvPass::forward ? output : pass == ConvPass::backward_input ? input : weight;
    const Vector<float> before = result.data;
    run(a);
    const Vector<float> expected = result.data;
    Vector<float> sum(result.data.size(), 0.f);
    const int64_t whole = (pass == ConvPass::backward_input ? a.in_size : a.out_size)[d];
    std::fill(result.data.begin(), result.data.end(), 0.f);
    for (int64_t begin = 0; begin < whole; begin += length) {
      const ConvArgs part = part_of(pass, a, d, begin, std::min(begin + length, whole));
      ASSERT_GE(part.padding[d], 0);
      ASSERT_LE(part.in_size[d], a.in_size[d]);
      ASSERT_LE(part.out_size[d], a.out_size[d]);
      if (part.in_size[d] > 0 && part.out_size[d] > 0) run(part);
      if (pass != ConvPass::backward_weight) continue;
      for (size_t i = 0; i < sum.size(); i++) sum[i] += result.data[i];
      std::fill(result.data.begin(), result.data.end(), 0.f);
    }
    const Vector<float>& found = pass == ConvPass::backward_weight ? sum : result.data;
    for (size_t i = 0; i < found.size(); i++)
      ASSERT_EQ(found[i], expected[i]) << c.name << ", pass " << static_cast<int>(pass) << ", parts of " << length
                                       << " along " << d << ", element " << i;
    result.data = before;
  }
}

TEST(ConvolutionFloat, PartsMakeTheWhole) {
  for (const Case& c : kCases)
    for (int d = 0; d < 3; d++) {
      if (c.size[d] == 1) continue;
      check_parts(c, d, 7);
      if (short_tests()) continue;
      check_parts(c, d, 3);
      check_parts(c, d, 100);
    }
}

TEST(ConvolutionFloat, NothingToSumLeavesTheBias) {
  Vector<float> output(12, -1.f), weight(3), bias = {1, 2, 3};
  ConvArgs a;
  a.batch = 2, a.in_channels = 0, a.out_channels = 3;
  a.in_size[2] = a.out_size[2] = 2;
  a.output = {reinterpret_cast<char*>(output.data()), {6, 2, 2, 2, 1}};
  a.weight = {reinterpret_cast<char*>(weight.data()), {0, 1, 1, 1, 1}};
  a.bias = reinterpret_cast<char*>(bias.data());
  conv_forward_kernel(a);
  for (size_t i = 0; i < output.size(); i++) EXPECT_EQ(output[i], bias[i / 2 % 3]);
}

}  // namespace
}  // namespace minitorch
