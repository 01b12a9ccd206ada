// Activations of 16-bit floats on CUDA. In 16 bits a gelu over a large tensor has time for about 25 instructions an
// element before it is slower than memory; the functors on float, with their error function and divisions, take twice
// that. These take 10 to 20 with one or two of the exponential and reciprocal instructions. Every result lies within
// an ulp of the exact one rounded, in the tails too, where 1 + erf(x / sqrt(2)) has lost its digits.
//
// Polynomials are minimax fits in double; the number beside each is its error.
#include "kernels/cuda/pointwise_engine.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <int N>
__device__ __forceinline__ float horner(float x, const float (&c)[N]) {
  float p = c[N - 1];
#pragma unroll
  for (int i = N - 2; i >= 0; i--) p = p * x + c[i];
  return p;
}

// Factors of 2^-16 or 2^-32 keep what the instructions return normal while the result, in bfloat16, may be subnormal;
// 2^-16 times any bfloat16 is exact.
template <class S>
struct GeluFit;
// tail(y): the normal distribution's upper tail at y = |x|, over `scale`, by a polynomial for its logarithm (2^-12.3 of
// the tail in bfloat16, 2^-18.2 in half). Beyond `most` it is zero: x times it is minus zero, or NaN for minus
// infinity. derivative(y): (tail - y pdf) exp(y^2 / 2) / (kRoot - y), times 2^-shift (2^-12.5 and 2^-16.6 of it), up to
// `far`, where the power before it is next to zero.
template <>
struct GeluFit<BFloat16> {
  static constexpr float scale = 0x1p-16f, most = 14.25f, far = 13.75f, shift = 32.0f;
  static __device__ __forceinline__ float tail(float y) {
    constexpr float c[] = {14.9997129f,      -1.14792466f,   -0.464736193f,   -0.0495118015f, 0.00700548384f,
                           -0.000672759837f, 4.08600863e-5f, -1.40409611e-6f, 2.07022453e-8f};
    return power_of_two(horner(y, c));
  }
  static __device__ __forceinline__ float derivative(float y) {
    constexpr float c[] = {1.54822877e-10f, -4.05565512e-11f, 2.06455651e-11f, -7.86255002e-12f,
                           2.13655482e-12f, -4.02261585e-13f, 5.1448605e-14f,  -4.35903399e-15f,
                           2.33339551e-16f, -7.12965251e-18f, 9.46231419e-20f};
    return horner(y, c);
  }
};
template <>
struct GeluFit<Half> {
  static constexpr float scale = 1.0f, most = 16.0f, far = 6.0f, shift = 0.0f;
  static __device__ __forceinline__ float tail(float y) {
    constexpr float c[] = {-0.999995291f,  -1.15125108f,     -0.458464384f,  -0.0539600737f,
                           0.00850789249f, -0.000930525304f, 6.15983517e-5f, -1.8348145e-6f};
    return power_of_two(horner(y, c));
  }
  static __device__ __forceinline__ float derivative(float y) {
    constexpr float c[] = {0.665071368f,    -0.176414415f,   0.0960966721f,   -0.0434988737f, 0.0157067887f,
                           -0.00424969522f, 0.000807129487f, -9.99155309e-5f, 7.17101557e-6f, -2.25147389e-7f};
    return horner(y, c);
  }
};

// x Phi(x): on the left x times the tail, on the right x minus |x| times the tail.
template <class S>
struct NarrowGelu {
  __device__ float operator()(float x) const {
    using Fit = GeluFit<S>;
    const float y = fminf(fabsf(x), Fit::most);
    const float tail = Fit::tail(y);
    const bool left = x < 0.0f;
    return fmaf((left ? x : -y) * Fit::scale, tail, left ? -0.0f : x);
  }
};

// Phi(x) + x pdf(x): tail(y) - y pdf(y) on the left, one minus that on the right. Its only zero, at kRoot, is a factor
// of its own.
template <class S>
struct NarrowGeluBackward {  // gradient, x
  __device__ float operator()(float g, float x) const {
    using Fit = GeluFit<S>;
    constexpr float kRoot = 0.751791525f, kHalfLog2E = 0.721347520f;
    const float one = x > 0.0f ? 1.0f : 0.0f;
    const float distance = x - fmaf(one, 2 * kRoot, -kRoot);
    const float power = power_of_two(fmaf(x * -kHalfLog2E, x, Fit::shift));
    const float slope = Fit::derivative(fminf(fabsf(x), Fit::far));
    return g * fmaf(power * distance, slope, one);  // zero times infinity is NaN, as native's derivative there
  }
};

// s = 1 / (1 + 2^v), times 2^16, and 1 - s, each with all its digits.
struct Logistic {
  float scaled, power;
  __device__ explicit Logistic(float v_less_16) : power(power_of_two(v_less_16)) {
    scaled = reciprocal(0x1p-16f + power);
  }
  __device__ float value() const { return scaled * 0x1p-16f; }
  __device__ float rest() const { return fminf(power * scaled, 1.0f); }  // infinity times zero: 1
};

constexpr float kLog2E = 1.44269504f;
// x sqrt(2 / pi) (1 + 0.044715 x^2) in (1 + tanh) / 2 = 1 / (1 + 2^v).
constexpr float kTanhLinear = -2.30220819f, kTanhCubic = -0.10294324f;
__device__ __forceinline__ Logistic tanh_gate(float x, float square) {
  return Logistic(fmaf(x, fmaf(square, kTanhCubic, kTanhLinear), -16.0f));
}
template <class S>
struct NarrowGeluTanh {
  __device__ float operator()(float x) const { return x * 0x1p-16f * tanh_gate(x, x * x).scaled; }
};
template <class S>
struct NarrowGeluTanhBackward {  // gradient, x
  __device__ float operator()(float g, float x) const {
    const float square = x * x;
    const Logistic s = tanh_gate(x, square);
    const float slope = fmaf(square, 0.214064449f, 1.59576912f);  // of the argument of tanh, twice
    return g * fmaf(s.value() * s.rest() * x, slope, s.value());
  }
};

template <class S>
struct NarrowSigmoid {
  __device__ float operator()(float x) const { return Logistic(fmaf(x, -kLog2E, -16.0f)).value(); }
};
template <class S>
struct NarrowSilu {
  __device__ float operator()(float x) const { return x * 0x1p-16f * Logistic(fmaf(x, -kLog2E, -16.0f)).scaled; }
};
template <class S>
struct NarrowSiluBackward {  // gradient, x
  __device__ float operator()(float g, float x) const {
    const Logistic s(fmaf(x, -kLog2E, -16.0f));
    return g * (s.value() * fmaf(x, s.rest(), 1.0f));
  }
};

template <template <class> class F>
const PointwiseEntry* made_for(DType storage) {
  const auto make = [](auto tag, int slot) {
    using S = typename decltype(tag)::type;
    using Entry = engine::EntryOf<F<S>, false>;
    PointwiseEntry entry = Entry::make();
    Entry::template add_dense<S>(entry, slot);
    return entry;
  };
  static const PointwiseEntry entries[] = {make(Tag<BFloat16>{}, 1), make(Tag<Half>{}, 2)};
  return &entries[storage == DType::BF16 ? 0 : 1];
}

}  // namespace

const PointwiseEntry* narrow_entry(PointwiseOp op, DType storage) {
  switch (op) {
    case PointwiseOp::gelu:
    case PointwiseOp::gelu_half:
    case PointwiseOp::gelu_bfloat16: return made_for<NarrowGelu>(storage);
    case PointwiseOp::gelu_backward: return made_for<NarrowGeluBackward>(storage);
    case PointwiseOp::gelu_tanh: return made_for<NarrowGeluTanh>(storage);
    case PointwiseOp::gelu_tanh_backward: return made_for<NarrowGeluTanhBackward>(storage);
    case PointwiseOp::sigmoid: return made_for<NarrowSigmoid>(storage);
    case PointwiseOp::silu: return made_for<NarrowSilu>(storage);
    case PointwiseOp::silu_backward: return made_for<NarrowSiluBackward>(storage);
    default: return nullptr;
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
