// Operators from PyTorch's structured kernels.
//
// A structured kernel is a class with `meta` (checks, type promotion, output shapes) and `impl` (computes). PyTorch's
// code generator makes three operators of it for its own devices: functional, in-place and out=. This template does the
// same for ours, so shapes, dtypes, errors and resizing are PyTorch's by construction.
//
//   MT_OPERATORS(aten, PrivateUse1, m) {
//     structured<at::native::structured_exp_out>(m, "exp", "exp_", "exp.out");
//   }
//
// The class is one of
//  - `at::native::structured_X_out`, when its impl only calls a DispatchStub that we register;
//  - a class of ours derived from `at::meta::structured_X` with its own impl(args..., outputs...);
//  - for a kernel with precomputed arguments (its meta returns a struct), a derived class with
//    impl(precomputed, args..., outputs...).
// The number of outputs follows from impl's signature.
#pragma once
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bridge/cast_first.h"
#include "bridge/compat.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace structured_detail {

template <class F>
struct Signature;
template <class C, class R, class... A>
struct Signature<R (C::*)(A...)> {
  using Return = R;
  using Args = std::tuple<A...>;
  static constexpr size_t count = sizeof...(A);
  static constexpr bool tensor_first = std::is_same_v<std::tuple_element_t<0, Args>, const at::Tensor&>;
};

inline at::Tensor make_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  return strides.empty() ? empty(sizes, dtype, options.memory_format_opt()) : empty_strided(sizes, strides, dtype);
}

inline std::optional<at::Tensor> proxy_if_strides_differ(const at::Tensor& out, at::IntArrayRef sizes,
                                                         at::IntArrayRef strides, const at::TensorOptions& options) {
  if (strides.empty() || out.strides() == strides) return std::nullopt;
  return make_output(sizes, strides, options);
}

// The three kinds differ in how an output comes to be: `place(i, sizes, strides, options, exact)`; `exact` says that
// impl insists on the strides.
template <class Base, size_t N>
struct FunctionalOutputs {
  std::array<at::Tensor, N> outputs;
  void place(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options, bool) {
    outputs[i] = make_output(sizes, strides, options);
  }
  const at::Tensor& get(int64_t i) const { return outputs[i]; }
  void finish() {}
};

template <class Base, size_t N>
struct GivenOutputs {
  std::array<std::optional<std::reference_wrapper<const at::Tensor>>, N> given;
  std::array<std::optional<at::Tensor>, N> proxies;
  const at::Tensor& get(int64_t i) const { return proxies[i] ? *proxies[i] : given[i]->get(); }
  void finish() {
    for (size_t i = 0; i < N; i++)
      if (proxies[i]) given[i]->get().copy_(*proxies[i]);
  }
};

template <class Base, size_t N>
struct OutOutputs : GivenOutputs<Base, N> {
  void place(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options, bool exact) {
    const at::Tensor& out = this->given[i]->get();
    TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ",
                out.dtype(), " instead");
    TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ", options.device(), ", but got ",
                out.device(), " instead");
    if (at::native::resize_output(out, sizes)) {
      if (!strides.empty()) {
        out.as_strided_(sizes, strides);
      } else if (options.memory_format_opt()) {
        out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
      }
    }
    check_allocated(out);
    if (exact) this->proxies[i] = proxy_if_strides_differ(out, sizes, strides, options);
  }
};

template <class Base, size_t N>
struct InplaceOutputs : GivenOutputs<Base, N> {
  void place(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options, bool exact) {
    const at::Tensor& self = this->given[i]->get();
    TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
                " and output tensor dtype ", options.dtype(), " should match");
    TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
                " and output tensor device ", options.device(), " should match");
    TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(),
                " and output tensor size ", sizes, " should match");
    if (exact) this->proxies[i] = proxy_if_strides_differ(self, sizes, strides, options);
  }
};

template <class Base, template <class, size_t> class Outputs, size_t N>
struct Op final : Base {
  Outputs<Base, N> outs;

  void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options MT_NAMES_PARAM) override {
    set(i, sizes, strides, options, true MT_NAMES_ARG);
  }
  void set_output_raw_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options MT_NAMES_PARAM) override {
    set(i, sizes, strides, options, false MT_NAMES_ARG);
  }
  const at::Tensor& maybe_get_output(int64_t i) override { return outs.get(i); }

 private:
  void set(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, at::TensorOptions options,
           bool exact MT_NAMES_PARAM) {
    outs.place(i, sizes, strides, options, exact);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Base>)
      at::TensorIteratorBase::set_output_raw_strided(i, sizes, strides, options MT_NAMES_ARG);
  }
};

// Metas take references to optionals and lists; the dispatcher passes the values. `type` is the dispatcher's side.
template <class T>
struct Boundary {
  using type = T;
  static T pass(T value) { return static_cast<T>(value); }
};
template <>
struct Boundary<at::OptionalTensorRef> {
  using type = const std::optional<at::Tensor>&;
  static at::OptionalTensorRef pass(type value) {
    return value.has_value() && value->defined() ? at::OptionalTensorRef(*value) : at::OptionalTensorRef();
  }
};
template <>
struct Boundary<at::OptionalScalarRef> {
  using type = const std::optional<at::Scalar>&;
  static at::OptionalScalarRef pass(type value) {
    return value.has_value() ? at::OptionalScalarRef(*value) : at::OptionalScalarRef();
  }
};
template <>
struct Boundary<at::IOptTensorListRef> {
  using type = const c10::List<std::optional<at::Tensor>>&;
  static at::IOptTensorListRef pass(type value) { return at::IOptTensorListRef(value); }
};
template <class T>
using boundary_t = typename Boundary<T>::type;

template <class Base, class Meta = decltype(&Base::meta)>
struct Structured;

template <class Base, class C, class R, class... Args>
struct Structured<Base, R (C::*)(Args...)> {
  static constexpr bool precomputed = !std::is_void_v<R>;
  static constexpr size_t N = Signature<decltype(&Base::impl)>::count - sizeof...(Args) - (precomputed ? 1 : 0);
  static_assert(N >= 1, "impl takes meta's arguments (after the precomputed ones, if any) and then the outputs");
  template <size_t>
  using TensorRef = at::Tensor&;
  template <size_t>
  using TensorValue = at::Tensor;

  static inline const char* name = nullptr;  // for errors
  static inline bool moves = false;          // see moves_elements

  template <class Operation>
  static void run(Operation& op, Args... args) {
    const OperatorGuard guard(args...);
    try {
      if constexpr (orders) {
        OrderCheck order;
        (order.see(args), ...);
        if (C10_UNLIKELY(order.matters())) return run_cast_first(op, args...);
      }
      run_guarded(op, args...);
    } catch (const NoKernel& missing) {
      refuse(name, missing);
    }
  }

  // Whether an iterator orders the dimensions of several tensors.
  template <class T>
  static constexpr bool is_operand = std::is_same_v<T, const at::Tensor&> || std::is_same_v<T, at::OptionalTensorRef>;
  static constexpr bool orders = std::is_base_of_v<at::TensorIteratorBase, Base> && (is_operand<Args> + ...) > 1;

  template <class Operation>
  static void run_cast_first(Operation& op, Args... args) {
    Op<Base, FunctionalOutputs, N> probe;  // learns the common dtype
    probe.meta(args...);
    CastFirst<sizeof...(Args)> cast(common_dtype_or_undefined(probe));
    run_guarded(op, cast(args)...);
  }

  template <class Operation>
  static void run_guarded(Operation& op, Args... args) {
    // TensorIterator checks devices itself, and allows CPU scalars where native does.
    constexpr bool iterates = std::is_base_of_v<at::TensorIteratorBase, Base>;
    std::conditional_t<iterates, AllocationCheck, DeviceCheck> inputs;
    (inputs.see(args), ...);
    [&]<size_t... I>(std::index_sequence<I...>) {
      if constexpr (precomputed) {
        auto pre = op.meta(args...);
        if (moves) RareCheck::run(name, args...);
        op.impl(pre, args..., op.maybe_get_output(I)...);
      } else {
        op.meta(args...);
        if (moves) RareCheck::run(name, args...);
        op.impl(args..., op.maybe_get_output(I)...);
      }
    }(std::make_index_sequence<N>{});
    op.outs.finish();
  }

  template <class Indices = std::make_index_sequence<N>>
  struct Functions;
  template <size_t... I>
  struct Functions<std::index_sequence<I...>> {
    using Result = std::conditional_t<N == 1, at::Tensor, std::tuple<TensorValue<I>...>>;
    using OutResult = std::conditional_t<N == 1, at::Tensor&, std::tuple<TensorRef<I>...>>;

    static Result functional(boundary_t<Args>... args) {
      Op<Base, FunctionalOutputs, N> op;
      run(op, Boundary<Args>::pass(args)...);
      if constexpr (N == 1) {
        return std::move(op.outs.outputs[0]);
      } else {
        return Result(std::move(op.outs.outputs[I])...);
      }
    }
    static OutResult out(boundary_t<Args>... args, TensorRef<I>... outs) {
      Op<Base, OutOutputs, N> op;
      ((op.outs.given[I] = std::cref(static_cast<const at::Tensor&>(outs))), ...);
      run(op, Boundary<Args>::pass(args)...);
      return OutResult(outs...);
    }
  };
};

// The in-place function has a non-const self; its signature follows from meta's without the leading const.
template <class Base, class Meta = decltype(&Base::meta)>
struct Inplace;
template <class Base, class C, class R, class Self, class... Rest>
struct Inplace<Base, R (C::*)(Self, Rest...)> {
  static at::Tensor& inplace(at::Tensor& self, boundary_t<Rest>... rest) {
    using S = Structured<Base>;
    Op<Base, InplaceOutputs, S::N> op;
    op.outs.given[0] = std::cref(static_cast<const at::Tensor&>(self));
    S::run(op, self, Boundary<Rest>::pass(rest)...);
    return self;
  }
};

}  // namespace structured_detail

// Registers the variants of a structured operator under the names given; nullptr leaves a variant out.
template <class Base>
void structured(torch::Library& m, const char* functional, const char* inplace, const char* out) {
  using Functions = typename structured_detail::Structured<Base>::template Functions<>;
  structured_detail::Structured<Base>::name = name_for_errors(functional ? functional : inplace ? inplace : out);
  structured_detail::Structured<Base>::moves = moves_elements(structured_detail::Structured<Base>::name);
  if (functional) m.impl(functional, TORCH_FN(Functions::functional));
  if (out) m.impl(out, TORCH_FN(Functions::out));
  using Meta = structured_detail::Signature<decltype(&Base::meta)>;
  if constexpr (structured_detail::Structured<Base>::N == 1 && Meta::tensor_first) {
    if (inplace) m.impl(inplace, TORCH_FN(structured_detail::Inplace<Base>::inplace));
  }
}

}  // namespace minitorch
