// Attention and its gradients against their definition in double arithmetic, for each of the kernels that a head's
// width, dtype, mask and dropout may lead to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "isas.h"
#include "memory.h"
#include "values.h"
#include "kernels/attention.h"

namespace minitorch {
namespace {

struct Problem {
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  bool causal = false, masked = false;
  double p = 0;         // of dropout
  uint64_t offset = 8;  // of its generator
  bool by_rows = true;  // (batch, rows, heads, columns) in memory instead of (batch, heads, rows, columns)
};

// An operand of (batch, heads, rows, columns), rounded to T, with a double of what it holds.
template <class T>
class Operand {
 public:
  Operand(const Problem& p, int64_t heads, int64_t rows, int64_t columns, unsigned seed)
      : heads_(heads), rows_(rows), columns_(columns), by_rows_(p.by_rows), data_(p.batch * heads * rows * columns) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (T& x : data_) x = stored<T>(normal(engine));
  }
  AttentionOperand view() {
    const int64_t head = by_rows_ ? columns_ : rows_ * columns_, row = by_rows_ ? heads_ * columns_ : columns_;
    return {reinterpret_cast<char*>(data_.data()), heads_ * rows_ * columns_, head, row, 1};
  }
  double at(int64_t b, int64_t h, int64_t r, int64_t c) const {
    const int64_t place = by_rows_ ? (r * heads_ + h) * columns_ + c : (h * rows_ + r) * columns_ + c;
    return number(data_[b * heads_ * rows_ * columns_ + place]);
  }

 private:
  int64_t heads_, rows_, columns_;
  bool by_rows_;
  Vector<T> data_;
};

// Philox4x32: J. Salmon et al., 2011.
struct Words {
  uint32_t word[4];
};
Words philox(uint64_t low, uint64_t high, uint64_t seed, int rounds) {
  uint32_t c[4] = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                   static_cast<uint32_t>(high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < rounds; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, c[3] = static_cast<uint32_t>(a);
  }
  return {{c[0], c[1], c[2], c[3]}};
}

bool stays(const AttentionArgs& a, int64_t head, int64_t query, int64_t key) {
  const AttentionDropout& d = a.dropout;
  if (d.p == 0) return true;
  const float p = static_cast<float>(d.p);
  if (d.by_tiles) {
    const uint64_t lane = query % 8 * 4 + key % 8 / 2, place = query / 16 | key / 32 << 32;
    const uint32_t word = philox(d.offset + head * 32 + lane, place, d.seed, 7).word[key % 32 / 8];
    return (word >> 8 * (query % 16 / 8 * 2 + key % 2) & 255) <= std::floor((1.0f - p) * 255.0);
  }
  const uint64_t at = d.offset + (head * a.queries + query) * a.keys + key;
  return static_cast<double>(philox(at / 4, 0, d.seed, 10).word[at % 4]) * 0x1p-32 + 0x1p-33 > p;
}

template <class T>
constexpr double kRounding = 0;
template <>
constexpr double kRounding<float> = 0x1p-20;  // exponentials of scores that are sums
template <>
constexpr double kRounding<Half> = 3 * 0x1p-11;
template <>
constexpr double kRounding<BFloat16> = 3 * 0x1p-8;

template <class T>
void check(const Problem& p) {
  const int64_t group = p.heads / p.kv_heads;
  Operand<T> q(p, p.heads, p.queries, p.dim, 1), k(p, p.kv_heads, p.keys, p.dim, 2),
      v(p, p.kv_heads, p.keys, p.value_dim, 3), mask(p, p.heads, p.queries, p.keys, 4),
      dy(p, p.heads, p.queries, p.value_dim, 5), y = dy, dq = q, dk = k, dv = v;
  const float scale = 0.6f / std::sqrt(static_cast<float>(p.dim));
  Vector<float> lse(p.batch * p.heads * p.queries);
  AttentionArgs a{.dtype = dtype_of<T>,
                  .batch = p.batch,
                  .heads = p.heads,
                  .kv_heads = p.kv_heads,
                  .queries = p.queries,
                  .keys = p.keys,
                  .head_dim = p.dim,
                  .value_dim = p.value_dim,
                  .q = q.view(),
                  .k = k.view(),
                  .v = v.view(),
                  .mask = p.masked ? mask.view() : AttentionOperand{},
                  .causal = p.causal,
                  .scale = scale};
  a.dropout = {.p = p.p,
               .seed = 0x123456789abcull,
               .offset = p.offset,
               .by_tiles = sizeof(T) == 2 && !p.masked,
               .first = 0,
               .heads = p.heads};
  attention_kernel(a, y.view(), lse.data());
  attention_backward_kernel(a, {.grad_out = dy.view(),
                                .out = y.view(),
                                .lse = lse.data(),
                                .grad_q = dq.view(),
                                .grad_k = dk.view(),
                                .grad_v = dv.view()});

  for (int64_t b = 0; b < p.batch; b++)
    for (int64_t kv = 0; kv < p.kv_heads; kv++) {
      TermSums grad_k(p.keys * p.dim), grad_v(p.keys * p.value_dim);
      for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < p.queries; i++) {
          const int64_t met = p.causal ? std::min(i + 1, p.keys) : p.keys;
          std::vector<double> w(met);
          double sum = 0;
          for (int64_t j = 0; j < met; j++) {
            double score = 0;
            for (int64_t d = 0; d < p.dim; d++) score += q.at(b, h, i, d) * k.at(b, kv, j, d);
            sum += w[j] = std::exp(double{scale} * score + (p.masked ? mask.at(b, h, i, j) : 0));
          }
          ASSERT_NEAR(lse[(b * p.heads + h) * p.queries + i], std::log(sum), 1e-4);
          TermSums out(p.value_dim), grad_q(p.dim), through(met);
          for (int64_t j = 0; j < met; j++) {
            w[j] /= sum;
            const double kept = stays(a, b * p.heads + h, i, j) ? 1 / (1 - p.p) : 0;
            for (int64_t d = 0; d < p.value_dim; d++) {
              const double value = v.at(b, kv, j, d), grad = dy.at(b, h, i, d);
              out.add(d, w[j] * kept * value);
              through.add(j, kept * value * grad);
              grad_v.add(j * p.value_dim + d, w[j] * kept * grad);
            }
          }
          double dot = 0, dot_size = 0;
          for (int64_t d = 0; d < p.value_dim; d++) {
            ASSERT_NEAR(y.at(b, h, i, d), out.value[d], kRounding<T> * out.size[d] + 1e-7) << "output, query " << i;
            dot += out.value[d] * dy.at(b, h, i, d), dot_size += std::abs(out.size[d] * dy.at(b, h, i, d));
          }
          for (int64_t j = 0; j < met; j++)
            for (int64_t d = 0; d < p.dim; d++) {
              const double ds = scale * w[j] * (through.value[j] - dot),
                           size = scale * w[j] * (through.size[j] + dot_size);
              grad_q.add(d, ds * k.at(b, kv, j, d), std::abs(size * k.at(b, kv, j, d)));
              grad_k.add(j * p.dim + d, ds * q.at(b, h, i, d), std::abs(size * q.at(b, h, i, d)));
            }
          for (int64_t d = 0; d < p.dim; d++)
            ASSERT_NEAR(dq.at(b, h, i, d), grad_q.value[d], kRounding<T> * grad_q.size[d] + 1e-7) << "query " << i;
        }
      for (int64_t j = 0; j < p.keys; j++) {
        for (int64_t d = 0; d < p.dim; d++) {
          const int64_t at = j * p.dim + d;
          ASSERT_NEAR(dk.at(b, kv, j, d), grad_k.value[at], kRounding<T> * grad_k.size[at] + 1e-7) << "key " << j;
        }
        for (int64_t d = 0; d < p.value_dim; d++) {
          const int64_t at = j * p.value_dim + d;
          ASSERT_NEAR(dv.at(b, kv, j, d), grad_v.value[at], kRounding<T> * grad_v.size[at] + 1e-7) << "value " << j;
        }
      }
    }
}

const Problem kProblems[] = {
    {.batch = 1, .heads = 1, .kv_heads = 1, .queries = 70, .keys = 130, .dim = 5, .value_dim = 3},
    {.batch = 2, .heads = 4, .kv_heads = 2, .queries = 67, .keys = 67, .dim = 24, .value_dim = 40},
    {.batch = 1, .heads = 4, .kv_heads = 1, .queries = 70, .keys = 520, .dim = 64, .value_dim = 64},
    {.batch = 1, .heads = 4, .kv_heads = 1, .queries = 97, .keys = 300, .dim = 128, .value_dim = 128},
    {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 20, .keys = 50, .dim = 200, .value_dim = 200},
    {.batch = 1, .heads = 1, .kv_heads = 1, .queries = 1, .keys = 1, .dim = 8, .value_dim = 8},
};

template <class T>
class Attention : public testing::Test {
 protected:
  void SetUp() override { backend(); }
  // Each shape, in both orders in memory.
  template <class Change>
  static void each(const Change& change) {
    for (Problem p : kProblems) {
      SCOPED_TRACE(testing::Message() << p.queries << " queries, " << p.keys << " keys, heads of " << p.dim);
      change(p);
      on_each_isa([&] { check<T>(p); });
      if (short_tests() || testing::Test::HasFatalFailure()) continue;
      p.by_rows = false;
      on_each_isa([&] { check<T>(p); });
    }
  }
};
using Floats = testing::Types<float, BFloat16, Half>;
TYPED_TEST_SUITE(Attention, Floats);

TYPED_TEST(Attention, AgreesWithItsDefinition) {
  TestFixture::each([](Problem&) {});
}
TYPED_TEST(Attention, CausalAgreesWithItsDefinition) {
  TestFixture::each([](Problem& p) { p.causal = true; });
}
TYPED_TEST(Attention, MaskedAgreesWithItsDefinition) {
  TestFixture::each([](Problem& p) { p.masked = true; });
}
TYPED_TEST(Attention, DropoutAgreesWithItsDefinition) {
  MT_CUDA_ONLY();
  TestFixture::each([](Problem& p) { p.p = 0.3; });
}
TYPED_TEST(Attention, CausalDropoutAgreesWithItsDefinition) {
  MT_CUDA_ONLY();
  TestFixture::each([](Problem& p) { p.causal = true, p.p = 0.5; });
}
TYPED_TEST(Attention, MaskedDropoutAgreesWithItsDefinition) {
  MT_CUDA_ONLY();
  TestFixture::each([](Problem& p) { p.masked = true, p.p = 0.3; });
}

// Several blocks of queries and of keys, the last ones partly filled, and key heads that are shared: kernels that draw
// numbers ahead, or for others, take each from its place. The thresholds lie on both sides of a byte's highest bit;
// with the last problem's offset the heads' numbers pass 2^32.
template <class T>
class AttentionInTiles : public Attention<T> {};
using HalfFloats = testing::Types<BFloat16, Half>;
TYPED_TEST_SUITE(AttentionInTiles, HalfFloats);

TYPED_TEST(AttentionInTiles, DropoutAgreesWithItsDefinition) {
  MT_CUDA_ONLY();
  const Problem problems[] = {
      {.batch = 2, .heads = 2, .kv_heads = 1, .queries = 261, .keys = 203, .dim = 64, .value_dim = 64, .p = 0.1},
      {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 131, .keys = 389, .dim = 64, .value_dim = 64, .p = 0.9},
      {.batch = 1, .heads = 4, .kv_heads = 2, .queries = 203, .keys = 261, .dim = 128, .value_dim = 128, .p = 0.498},
      {.batch = 1,
       .heads = 4,
       .kv_heads = 2,
       .queries = 65,
       .keys = 129,
       .dim = 128,
       .value_dim = 128,
       .p = 0.51,
       .offset = 0xffffffc8u},
  };
  for (Problem p : problems)
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(testing::Message() << p.queries << " queries, " << p.keys << " keys, heads of " << p.dim << ", p "
                                      << p.p << (causal ? ", causal" : ""));
      p.causal = causal;
      p.by_rows = !causal;
      on_each_isa([&] { check<TypeParam>(p); });
    }
}

TYPED_TEST(Attention, QueriesThatMeetNoKey) {
  const Problem p{.batch = 1, .heads = 2, .kv_heads = 2, .queries = 9, .keys = 0, .dim = 64, .value_dim = 64};
  Operand<TypeParam> q(p, 2, 9, 64, 1), k(p, 2, 1, 64, 2), y(p, 2, 9, 64, 3);
  Vector<float> lse(18, 1.0f);
  attention_kernel({.dtype = dtype_of<TypeParam>,
                    .batch = 1,
                    .heads = 2,
                    .kv_heads = 2,
                    .queries = 9,
                    .keys = 0,
                    .head_dim = 64,
                    .value_dim = 64,
                    .q = q.view(),
                    .k = k.view(),
                    .v = k.view(),
                    .mask = {},
                    .causal = false,
                    .scale = 0.1f},
                   y.view(), lse.data());
  for (int64_t i = 0; i < 9; i++)
    for (int64_t d = 0; d < 64; d++) ASSERT_EQ(y.at(0, i % 2, i, d), 0.0);
  for (const float x : lse) ASSERT_EQ(x, -INFINITY);
}

}  // namespace
}  // namespace minitorch
