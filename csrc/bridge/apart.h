// Structured operators of which an output may be one of the inputs, though it gets another shape. Resizing the output
// would give the input that shape as well, after its own has been checked: the kernel would then read past its end. So
// such an input is replaced by an alias, which keeps its shape.
#pragma once
#include <forward_list>

#include "bridge/structured.h"

namespace minitorch {
namespace structured_detail {

template <class Base, class Meta = decltype(&Base::meta)>
struct Apart;
template <class Base, class C, class R, class... Args>
struct Apart<Base, R (C::*)(Args...)> {
  template <class T, class... Outs>
  static T apart(T arg, std::forward_list<at::Tensor>& aliases, const Outs&... outs) {
    if constexpr (std::is_same_v<T, const at::Tensor&>) {
      if ((arg.is_same(outs) || ...)) return aliases.emplace_front(arg.alias());
    }
    return arg;
  }

  template <class Indices = std::make_index_sequence<Structured<Base>::N>>
  struct Functions;
  template <size_t... I>
  struct Functions<std::index_sequence<I...>> {
    using Plain = typename Structured<Base>::template Functions<>;
    static typename Plain::OutResult out(boundary_t<Args>... args,
                                         typename Structured<Base>::template TensorRef<I>... outs) {
      std::forward_list<at::Tensor> aliases;
      return Plain::out(apart<boundary_t<Args>>(args, aliases, outs...)..., outs...);
    }
  };
};

}  // namespace structured_detail

// As `structured`.
template <class Base>
void structured_apart(torch::Library& m, const char* functional, const char* inplace, const char* out) {
  structured<Base>(m, functional, inplace, nullptr);
  m.impl(out, TORCH_FN(structured_detail::Apart<Base>::template Functions<>::out));
}

}  // namespace minitorch
