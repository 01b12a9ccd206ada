"""``kernels.elementwise``: a pointwise operator from one line."""

import itertools
import re
from collections.abc import Mapping
from typing import Any

import torch

from minitorch_backend.kernels import compiled, expression, overriding, schema
from minitorch_backend.kernels.errors import KernelError
from minitorch_backend.kernels.expression import Expression
from minitorch_backend.kernels.overriding import Override

NAMESPACE = "minitorch_user"
GRAIN = 16384
PRELUDE = """
#include <cmath>
#include "kernels/functors/math.h"
template <int N, class T>
MT_HD T power(T x) {
  if constexpr (N == 0) return T(1);
  else if constexpr (N == 1) return x;
  else if constexpr (N % 2 == 0) return power<N / 2>(x * x);
  else return x * power<N - 1>(x);
}
// A select: both sides are computed, so that the loop has no branch.
MT_HD opmath_t pick(bool condition, opmath_t a, opmath_t b) { return condition ? a : b; }
"""
_library: list[torch.library.Library] = []
_numbers = itertools.count()


def cpp_source(name: str, body: Expression) -> str:
    """The kernel for the CPU: one loop over contiguous memory, which the compiler vectorises."""
    pointers = "\n".join(f"  const scalar_t* __restrict {n}_ = {n}_in.ptr<const scalar_t>();" for n in body.inputs)
    parameters = "".join(f", Tensor {n}_in" for n in body.inputs)
    reads = "\n".join(f"      const opmath_t {n} = static_cast<opmath_t>({n}_[i]);" for n in body.inputs)
    return f"""{PRELUDE}
void {name}(Tensor out{parameters}) {{
  scalar_t* __restrict out_ = out.ptr<scalar_t>();
{pointers}
  parallel_for(out.numel, {GRAIN}, [=](int64_t begin, int64_t end) {{
    for (int64_t i = begin; i < end; i++) {{
{reads}
      out_[i] = static_cast<scalar_t>({body.cpp()});
    }}
  }});
}}
"""


def cuda_source(name: str, body: Expression) -> str:
    """The kernel for a GPU: an element a thread."""
    parameters = "".join(f", Tensor {n}_in" for n in body.inputs)
    reads = "\n".join(
        f"  const opmath_t {n} = static_cast<opmath_t>({n}_in.ptr<const scalar_t>()[i]);" for n in body.inputs
    )
    return f"""{PRELUDE}
__global__ void {name}(Tensor out{parameters}) {{
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= out.numel) return;
{reads}
  out.ptr<scalar_t>()[i] = static_cast<scalar_t>({body.cpp()});
}}
"""


def library() -> torch.library.Library:
    """The namespace of the new operators; it lives as long as the process."""
    if not _library:
        _library.append(torch.library.Library(NAMESPACE, "FRAGMENT"))
    return _library[0]


class Elementwise:
    """A new pointwise operator of its inputs, in the dispatcher as ``minitorch_user::NAME``.

    Inputs are broadcast against each other and promoted to one floating dtype. On minitorch it is one compiled kernel;
    on other devices torch's own operators evaluate the expression, which is also what a result can be compared with.
    """

    def __init__(self, name: str, body: Expression) -> None:
        self.name, self.body = name, body
        self.on_cuda = torch.minitorch.get_device_properties(0).backend == "cuda"
        parameters = ", ".join(f"Tensor {n}" for n in body.inputs)
        library().define(f"{name}({parameters}) -> Tensor")
        self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default
        library().impl(name, self._reference, "CompositeExplicitAutograd")
        library().impl(name, self._run, "PrivateUse1")
        source = (cuda_source if self.on_cuda else cpp_source)(name, body)
        operator = schema.Operator(self.overload, None, None)
        self.kernel = compiled.CompiledKernel(source, operator, self.on_cuda)
        self.kernel.prepare(torch.float32)

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.overload(*inputs)

    def __repr__(self) -> str:
        return f"<{NAMESPACE}::{self.name}({', '.join(self.body.inputs)}) = {self.body.text}>"

    def _reference(self, *inputs: torch.Tensor) -> torch.Tensor:
        dtype = common_dtype(inputs)
        values = torch.broadcast_tensors(*(t.to(dtype) for t in inputs))
        result = self.body.evaluate(dict(zip(self.body.inputs, values, strict=True)))
        return torch.as_tensor(result, dtype=dtype, device=inputs[0].device).expand(values[0].shape).contiguous()

    def _run(self, *inputs: torch.Tensor) -> torch.Tensor:
        dtype = common_dtype(inputs)
        values = list(inputs)
        if len(inputs) > 1:
            values = list(torch.broadcast_tensors(*inputs))
        values = [v.to(dtype).contiguous() for v in values]
        out = torch.empty(values[0].shape, dtype=dtype, device=inputs[0].device)
        if out.numel():
            self.kernel([out], values, dtype)
        return out


def common_dtype(inputs: tuple[torch.Tensor, ...]) -> torch.dtype:
    """The floating dtype that the inputs are computed in. Raises TypeError for complex numbers."""
    dtype = inputs[0].dtype
    for other in inputs[1:]:
        dtype = torch.promote_types(dtype, other.dtype)
    if dtype.is_complex:
        raise TypeError(f"an elementwise operator takes real numbers, not {dtype}")
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def gradients(body: Expression, grad: "str | Mapping[str, str] | tuple[str, ...] | None") -> dict[str, Expression]:
    """The derivatives by each input that has one. ``result`` in them is the operator's result."""
    if grad is None:
        return {}
    if isinstance(grad, str):
        grad = {body.inputs[0]: grad}
    if not isinstance(grad, Mapping):
        grad = dict(zip(body.inputs, grad, strict=False))
    if unknown := [name for name in grad if name not in body.inputs]:
        raise ValueError(f"grad names {unknown[0]!r}, which is not an input; inputs are {', '.join(body.inputs)}")
    if len(grad) < len(body.inputs):
        missing = [name for name in body.inputs if name not in grad]
        raise ValueError(f"grad has no derivative by {', '.join(missing)}: give one for each input")
    found = {name: expression.parse(text) for name, text in grad.items()}
    for name, derivative in found.items():
        if extra := [n for n in derivative.inputs if n not in (*body.inputs, "result")]:
            raise ValueError(
                f"the derivative by {name} uses {extra[0]!r}; it may use {', '.join(body.inputs)} and result"
            )
    return found


def backward_operator(name: str, by: str, derivative: Expression) -> Elementwise:
    """The operator upstream * derivative."""
    body = expression.parse(f"upstream * ({derivative.text})")
    return Elementwise(f"{name}_backward_{by}", body)


def attach_gradients(operator: Elementwise, derivatives: dict[str, Expression]) -> None:
    """Register the backward pass; without derivatives one that says so."""
    backward = {by: backward_operator(operator.name, by, d) for by, d in derivatives.items()}
    names = operator.body.inputs

    def setup(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    def run(ctx: Any, upstream: torch.Tensor) -> Any:
        if not derivatives:
            raise RuntimeError(f"{NAMESPACE}::{operator.name} has no gradient: give kernels.elementwise a grad")
        *inputs, result = ctx.saved_tensors
        values = {**dict(zip(names, inputs, strict=True)), "upstream": upstream, "result": result}
        found = []
        for needed, name, value in zip(ctx.needs_input_grad, names, inputs, strict=True):
            if not needed:
                found.append(None)
                continue
            step = backward[name]
            found.append(step(*(values[n] for n in step.body.inputs)).sum_to_size(value.shape).to(value.dtype))
        return found[0] if len(found) == 1 else tuple(found)

    torch.library.register_autograd(f"{NAMESPACE}::{operator.name}", run, setup_context=setup, lib=library())


class PointwiseOverride(Override):
    """An operator of PyTorch, replaced by a new one together with its gradient if that has one."""

    def __init__(self, name: str, new: Elementwise, differentiable: bool, dtypes: Any) -> None:
        operator = schema.find(name)
        tensors = [a for a in operator.functional._schema.arguments if str(a.type) == "Tensor"]
        if len(tensors) != len(new.body.inputs):
            raise ValueError(f"{name} has {len(tensors)} tensors, the expression {len(new.body.inputs)} inputs")
        self.new, self.differentiable, self.count = new, differentiable, len(tensors)
        wanted = frozenset(dtypes) if dtypes is not None else None
        super().__init__(
            operator, lambda override, args, kwargs: new._run(*args[: self.count]), wanted, "elementwise kernel"
        )

    def install(self) -> "PointwiseOverride":
        if self.library is None:
            super().install()
            if self.differentiable:
                self.library.impl(
                    self.operator.functional.name(), self._with_gradient, "AutogradPrivateUse1", with_keyset=True,
                    allow_override=True,
                )  # fmt: skip
        return self

    def _with_gradient(self, keys: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not self._takes(args, kwargs):
            raise KernelError(f"{self.operator.name}: the override with a gradient of its own takes only {self.dtypes}")
        self.calls += 1
        return self.new(*args[: self.count])


def elementwise(
    text: str,
    grad: "str | Mapping[str, str] | tuple[str, ...] | None" = None,
    *,
    name: str | None = None,
    override: str | None = None,
    dtypes: Any = None,
) -> "Elementwise | Override":
    """A pointwise operator of floating tensors from an expression such as ``"x / (1 + exp(-x))"``.

    Python's syntax: + - * / **, comparisons, ``a if c else b``, numbers, pi, and functions such as exp, tanh, where.
    Other names are the inputs, in the order in which they appear. ``grad`` is the derivative by the first input, or one
    for each input (a tuple in their order, or a dict); besides the inputs it may use ``result``. Without it the
    operator is not differentiable.

    Returns a callable operator, called ``name`` in torch.ops.minitorch_user. With ``override="aten::silu"`` that
    operator is replaced instead, as by ``kernels.override``; without ``grad`` it keeps PyTorch's gradient.
    Raises ValueError for an expression that is not understood.
    """
    body = expression.parse(text)
    if not body.inputs:
        raise ValueError(f"{text!r} has no input")
    if "upstream" in body.inputs or "result" in body.inputs:
        raise ValueError("upstream and result have meanings in gradients: name the inputs otherwise")
    derivatives = gradients(body, grad)
    if name is None:
        base = override.split("::")[-1].replace(".", "_") if override else "elementwise"
        name = f"{base}_{next(_numbers)}"
    if not re.fullmatch(r"[a-z_]\w*", name):
        raise ValueError(f"{name!r} cannot be an operator's name")
    if f"{NAMESPACE}::{name}" in torch._C._dispatch_get_all_op_names():
        raise ValueError(f"there is an operator {NAMESPACE}::{name} already")
    operator = Elementwise(name, body)
    attach_gradients(operator, derivatives)
    if override is None:
        return operator
    return overriding.deliver(PointwiseOverride(override, operator, bool(derivatives), dtypes))
