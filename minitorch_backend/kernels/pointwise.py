"""``kernels.elementwise``: a pointwise operator from one line."""

import functools
import itertools
import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from minitorch_backend.kernels import compiled, expression, overriding, schema
from minitorch_backend.kernels.chain import Below, Link
from minitorch_backend.kernels.errors import KernelError
from minitorch_backend.kernels.expression import VARIABLE, Expression
from minitorch_backend.kernels.operands import bound, device_of, is_default, tensors_of
from minitorch_backend.kernels.overriding import Override

NAMESPACE = "minitorch_user"
GRAIN = 16384
AUTOGRAD = "AutogradPrivateUse1"  # of the overrides; an operator of one's own has its gradient on all devices
OPERANDS = ("Tensor", "number", "float", "int")  # kinds of arguments that an expression has as inputs
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
_libraries: list[torch.library.Library] = []  # an operator is there as long as the process
_operators: dict[str, "Elementwise"] = {}  # made by users, by their names
_numbers = itertools.count()


def cpp_source(name: str, body: Expression) -> str:
    """The kernel for the CPU: one loop over contiguous memory, which the compiler vectorises."""
    pointers = "\n".join(f"  const scalar_t* __restrict from_{n} = in_{n}.ptr<const scalar_t>();" for n in body.inputs)
    parameters = "".join(f", Tensor in_{n}" for n in body.inputs)
    reads = "\n".join(
        f"      const opmath_t {VARIABLE.format(n)} = static_cast<opmath_t>(from_{n}[i]);" for n in body.inputs
    )
    return f"""{PRELUDE}
void {name}(Tensor out{parameters}) {{
  scalar_t* __restrict result = out.ptr<scalar_t>();
{pointers}
  parallel_for(out.numel, {GRAIN}, [=](int64_t begin, int64_t end) {{
    for (int64_t i = begin; i < end; i++) {{
{reads}
      result[i] = static_cast<scalar_t>({body.cpp()});
    }}
  }});
}}
"""


def cuda_source(name: str, body: Expression) -> str:
    """The kernel for a GPU: an element a thread."""
    parameters = "".join(f", Tensor in_{n}" for n in body.inputs)
    reads = "\n".join(
        f"  const opmath_t {VARIABLE.format(n)} = static_cast<opmath_t>(in_{n}.ptr<const scalar_t>()[i]);"
        for n in body.inputs
    )
    return f"""{PRELUDE}
__global__ void {name}(Tensor out{parameters}) {{
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= out.numel) return;
{reads}
  out.ptr<scalar_t>()[i] = static_cast<scalar_t>({body.cpp()});
}}
"""


class Elementwise:
    """A new pointwise operator of its inputs, in the dispatcher as ``minitorch_user::NAME``.

    Inputs are broadcast against each other and promoted to one floating dtype. On minitorch it is one compiled kernel;
    on other devices torch's own operators evaluate the expression, which is also what a result can be compared with.
    """

    def __init__(self, name: str, body: Expression) -> None:
        self.name, self.body = name, body
        self.grad: dict[str, str] = {}  # texts of the derivatives
        self.function: type[torch.autograd.Function] | None = None  # with them
        self.on_cuda = torch.minitorch.get_device_properties(0).backend == "cuda"
        parameters = ", ".join(f"Tensor {n}" for n in body.inputs)
        self.library = torch.library.Library(NAMESPACE, "FRAGMENT")
        try:
            self._define(f"{name}({parameters}) -> Tensor")
            self.overload = getattr(getattr(torch.ops, NAMESPACE), name).default
            self.library.impl(name, self._reference, "CompositeExplicitAutograd")
            self.library.impl(name, self._run, "PrivateUse1")
            torch.library.register_vmap(f"{NAMESPACE}::{name}", self._batched, lib=self.library)
            entry = f"elementwise_{name}"  # the name itself may be a word of C++
            source = (cuda_source if self.on_cuda else cpp_source)(entry, body)
            operator = schema.Operator(self.overload, None, None)
            self.kernel = compiled.CompiledKernel(source, operator, self.on_cuda, entry=entry)
            self.kernel.prepare(torch.float32)
        except BaseException:
            self.library._destroy()  # the name is free for another attempt
            raise
        _libraries.append(self.library)

    def _define(self, text: str) -> None:
        try:
            self.library.define(text)
        except RuntimeError as error:  # words that PyTorch's schemas have another use for
            raise ValueError(f"PyTorch takes no operator {text}: {str(error).strip().splitlines()[0]}") from None

    def __copy__(self) -> "Elementwise":
        return self

    def __deepcopy__(self, memo: dict) -> "Elementwise":
        return self  # an operator of the dispatcher, like torch's own

    def __reduce__(self) -> Any:
        return _again, (self.name, self.body.text, self.grad)

    def forget(self) -> None:
        """Take the operator away again, of which a part could not be made."""
        _libraries.remove(self.library)
        _operators.pop(self.name, None)
        self.library._destroy()

    def __call__(self, *inputs: "torch.Tensor | float") -> torch.Tensor:
        given = as_tensors(inputs)
        if self.function is not None and torch._C._are_functorch_transforms_active():
            return self.function.apply(*given)  # torch.func sees a Function, but not what the dispatcher calls
        return self.overload(*given)

    def __repr__(self) -> str:
        return f"<{NAMESPACE}::{self.name}({', '.join(self.body.inputs)}) = {self.body.text}>"

    def _reference(self, *inputs: torch.Tensor) -> torch.Tensor:
        dtype = common_dtype(inputs)
        values = torch.broadcast_tensors(*(t.to(dtype) for t in inputs))
        result = self.body.evaluate(dict(zip(self.body.inputs, values, strict=True)))
        return torch.as_tensor(result, dtype=dtype, device=inputs[0].device).expand(values[0].shape).contiguous()

    def _batched(self, info: Any, dims: tuple[int | None, ...], *inputs: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Under vmap: the batch is the first dimension, and the others are aligned from the last one."""
        moved = [t if d is None else t.movedim(d, 0) for t, d in zip(inputs, dims, strict=True)]
        shapes = [t.shape if d is None else t.shape[1:] for t, d in zip(moved, dims, strict=True)]
        # What counts as without dimensions is what the caller sees.
        dtype = common_dtype(
            tuple(torch.empty(s, dtype=t.dtype, device="meta") for s, t in zip(shapes, moved, strict=True))
        )
        rank = max(map(len, shapes))
        aligned = [
            t if d is None else t.reshape(t.shape[0], *[1] * (rank - len(s)), *s)
            for t, d, s in zip(moved, dims, shapes, strict=True)
        ]
        return self.overload(*(t.to(dtype) for t in aligned)), 0

    def _run(self, *inputs: torch.Tensor) -> torch.Tensor:
        dtype, device = common_dtype(inputs), common_device(inputs)
        values = list(inputs)
        if len(inputs) > 1:
            values = list(torch.broadcast_tensors(*inputs))
        values = [v.to(device, dtype).contiguous() for v in values]
        out = torch.empty(values[0].shape, dtype=dtype, device=device)
        target = out
        if out.dim() > compiled.MAX_DIM:
            target, values = out.view(-1), [v.view(-1) for v in values]
        if out.numel():
            self.kernel([target], values, dtype)
        return out


def _again(name: str, text: str, grad: dict[str, str]) -> Elementwise:
    """An operator that was pickled: the one of that name, or a new one. Raises ValueError when that is another."""
    known = _operators.get(name)
    if known is None:
        return elementwise(text, grad or None, name=name)
    if (known.body.text, known.grad) != (text, grad):
        raise ValueError(f"{NAMESPACE}::{name} is another operator here: {known.body.text}, not {text}")
    return known


def common_dtype(inputs: tuple[torch.Tensor, ...]) -> torch.dtype:
    """The floating dtype that the inputs are computed in. Raises TypeError for complex numbers.

    As in PyTorch, a tensor without dimensions counts only where it is of a higher kind than all others: floating among
    integers.
    """
    whole = [t.dtype for t in inputs if t.dim() > 0]
    single = [t.dtype for t in inputs if t.dim() == 0]
    dtype = functools.reduce(torch.promote_types, whole or single)
    higher = [d for d in single if d.is_complex or (d.is_floating_point and not dtype.is_floating_point)]
    dtype = functools.reduce(torch.promote_types, higher, dtype)
    if dtype.is_complex:
        raise TypeError(f"an elementwise operator takes real numbers, not {dtype}")
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def common_device(inputs: tuple[torch.Tensor, ...]) -> torch.device:
    """Where the inputs are; one without dimensions may be on the CPU. Raises RuntimeError as native does."""
    ours = next(t.device for t in inputs if t.device.type != "cpu")
    for t in inputs:
        if t.device != ours and not (t.device.type == "cpu" and t.dim() == 0):
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {ours} and {t.device}!"
            )
    return ours


def as_tensors(inputs: "Sequence[torch.Tensor | float]") -> list[torch.Tensor]:
    """Numbers as tensors without dimensions, of the dtype that the others have."""
    found = [t for t in inputs if isinstance(t, torch.Tensor)]
    if len(found) == len(inputs) or not found:
        return list(inputs)
    dtype = common_dtype(tuple(found))
    return [
        torch.tensor(v, dtype=dtype) if isinstance(v, (int, float)) else v  # bool is an int
        for v in inputs
    ]  # fmt: skip


def gradients(body: Expression, grad: "str | Mapping[str, str] | tuple[str, ...] | None") -> dict[str, Expression]:
    """The derivatives by each input that has one. ``result`` in them is the operator's result."""
    if grad is None:
        return {}
    if isinstance(grad, str):
        grad = {body.inputs[0]: grad}
    texts = (
        list(grad.values() if isinstance(grad, Mapping) else grad)
        if isinstance(grad, (Mapping, list, tuple))
        else [grad]
    )
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise TypeError(f"grad is an expression, or one for each input, as texts: not {wrong[0]!r}")
    if not isinstance(grad, Mapping):
        if len(grad) > len(body.inputs):
            raise ValueError(f"grad has {len(grad)} derivatives; the inputs are {', '.join(body.inputs)}")
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


def has_tangent(inputs: Iterable[Any]) -> bool:
    """Whether forward mode follows one of these tensors."""
    if forward_ad._current_level < 0 or not forward_ad._is_fwd_grad_enabled():
        return False
    return any(isinstance(t, torch.Tensor) and forward_ad.unpack_dual(t).tangent is not None for t in inputs)


def attach_gradients(operator: Elementwise, derivatives: dict[str, Expression]) -> None:
    """Register the derivatives, backward and forward; without them one that says so."""
    backward = {by: backward_operator(operator.name, by, d) for by, d in derivatives.items()}
    names = operator.body.inputs

    def check() -> None:
        if not derivatives:
            raise RuntimeError(f"{NAMESPACE}::{operator.name} has no gradient: give kernels.elementwise a grad")

    def by_torch(name: str, values: dict[str, torch.Tensor]) -> torch.Tensor:
        """values["upstream"] * derivative, of torch's own operators, which have derivatives again."""
        dtype = common_dtype(tuple(values.values()))
        device = values["upstream"].device
        body = backward[name].body
        return body.evaluate({n: values[n].to(device, dtype) for n in body.inputs})

    class Pointwise(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs: torch.Tensor) -> torch.Tensor:
            return operator.overload(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            ctx.save_for_backward(*inputs, output)
            ctx.save_for_forward(*inputs, output)

        @staticmethod
        def backward(ctx: Any, upstream: torch.Tensor) -> Any:
            check()
            *inputs, result = ctx.saved_tensors
            values = {**dict(zip(names, inputs, strict=True)), "upstream": upstream, "result": result}
            found = []
            for needed, name, value in zip(ctx.needs_input_grad, names, inputs, strict=True):
                if not needed:
                    found.append(None)
                    continue
                step = backward[name]
                # With gradients on somebody wants second derivatives.
                slope = (
                    by_torch(name, values) if torch.is_grad_enabled() else step(*(values[n] for n in step.body.inputs))
                )
                found.append(slope.sum_to_size(value.shape).to(value.dtype))
            return found[0] if len(found) == 1 else tuple(found)

        @staticmethod
        def jvp(ctx: Any, *tangents: torch.Tensor | None) -> torch.Tensor:
            check()
            *inputs, result = ctx.saved_tensors
            values = {**dict(zip(names, inputs, strict=True)), "result": result}
            moves = [
                by_torch(name, {**values, "upstream": tangent})
                for name, tangent in zip(names, tangents, strict=True)
                if tangent is not None
            ]
            return sum(moves[1:], moves[0]).expand(result.shape).to(result.dtype)

    def with_gradient(*inputs: torch.Tensor) -> torch.Tensor:
        wanted = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
        if wanted or has_tangent(inputs):
            return Pointwise.apply(*inputs)
        with torch._C._AutoDispatchBelowAutograd():
            return operator.overload(*inputs)

    operator.library.impl(operator.name, with_gradient, "Autograd")
    operator.function = Pointwise


class PointwiseOverride(Override):
    """An operator of PyTorch, replaced by a new one together with its gradient if that has one.

    The expression's inputs are the operator's tensors and the numbers that every call of it must give, in the order of
    its schema. Raises ValueError where it has another number of inputs, or where a call must give something else.
    """

    def __init__(self, name: str, new: Elementwise, differentiable: bool, dtypes: Any) -> None:
        operator = schema.find(name)
        arguments = operator.functional._schema.arguments
        needed = [a for a in arguments if not a.has_default_value() and not str(a.type).startswith("Optional")]
        self.names = [a.name for a in needed if str(a.type) in OPERANDS and not schema.is_enumeration(a)]
        if other := [f"{a.name} ({a.real_type})" for a in needed if a.name not in self.names]:
            raise ValueError(f"{name} needs {', '.join(other)}, which no expression has: use a callable or source=")
        if len(self.names) != len(new.body.inputs):
            raise ValueError(
                f"{name} has {len(self.names)} operands ({', '.join(self.names)}), the expression "
                f"{len(new.body.inputs)} inputs ({', '.join(new.body.inputs)})"
            )
        self.new, self.differentiable = new, differentiable
        self.defaults = {a.name: a.default_value for a in arguments if a.name not in self.names}
        wanted = overriding.check_dtypes(dtypes)
        super().__init__(
            operator, lambda override, args, kwargs: self._checked(new._run, args, kwargs), wanted, "elementwise kernel"
        )

    def operands(self, args: tuple, kwargs: dict) -> list[Any]:
        """The values of the expression's inputs in a call."""
        values = bound(self.operator.functional, args, kwargs)
        return [values[name] for name in self.names]

    def _checked(self, run: Callable[..., torch.Tensor], args: tuple, kwargs: dict) -> torch.Tensor:
        found = run(*as_tensors(self.operands(args, kwargs)))
        overriding.check_results(self, found, self.expected(args, kwargs))
        return found

    def links(self) -> list[tuple[torch._ops.OpOverload, str, Link]]:
        forms = {self.operator.functional: self._with_gradient, self.operator.inplace: self._with_gradient_inplace}
        more = [(form, AUTOGRAD, link) for form, link in forms.items() if form is not None]
        return super().links() + (more if self.differentiable else [])

    def _takes(self, args: tuple, kwargs: dict) -> bool:
        return self not in overriding.inside() and self.plan(args, kwargs) is not None

    def _can_take(self, args: tuple, kwargs: dict) -> bool:
        """Real floating numbers, mixed where the operator promotes, and further arguments as they are by default: no
        expression has alpha of an addition. All else is the original's, and what native refuses.
        """
        values = bound(self.operator.functional, args, kwargs)
        if not all(is_default(values[name], default) for name, default in self.defaults.items()):
            return False
        operands = self.operands(args, kwargs)
        tensors = list(tensors_of(operands))
        if any(isinstance(v, complex) for v in operands) or any(t.dtype not in compiled.CPP for t in tensors):
            return False
        if not any(isinstance(v, float) or (isinstance(v, torch.Tensor) and v.is_floating_point()) for v in operands):
            return False
        dtype = common_dtype(tuple(as_tensors(operands)))
        if dtype not in (self.dtypes or compiled.CPP):
            return False
        if not self.operator.pointwise and any(t.dtype != dtype for t in tensors):
            return False
        home = device_of(tensors)
        if any(t.device != home and (t.dim() > 0 or t.device.type != "cpu") for t in tensors):
            return False
        try:
            self.expected(args, kwargs)
        except KernelError:
            raise
        except overriding.REFUSED:
            return False
        return True

    def _differentiates(self, args: tuple, kwargs: dict) -> bool:
        """Whether a call is for the kernel and its gradient. torch.func and forward mode cannot be shown those from
        below: there the operator keeps PyTorch's derivative, and the kernel only finds the values.
        """
        transformed = torch._C._are_functorch_transforms_active() or has_tangent((*args, *kwargs.values()))
        return not transformed and self._takes(args, kwargs)

    def _with_gradient(self, below: Below, keys: Any, args: tuple, kwargs: dict) -> torch.Tensor:
        if not self._differentiates(args, kwargs):
            return below(keys, args, kwargs)
        self.calls += 1
        return self._checked(self.new, args, kwargs)

    def _with_gradient_inplace(self, below: Below, keys: Any, args: tuple, kwargs: dict) -> torch.Tensor:
        target = args[0]
        if not self._differentiates(args, kwargs):
            return below(keys, args, kwargs)
        if torch.is_grad_enabled() and target.requires_grad and target.is_leaf:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        # The backward pass needs what is overwritten.
        operands = [v.clone() if v is target else v for v in self.operands(args, kwargs)]
        found = self.new(*operands)
        if found.shape != target.shape or not overriding.fits(found, target):
            return below(keys, args, kwargs)  # it says what native says
        self.calls += 1
        return target.copy_(found)


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
    operator is not differentiable; second derivatives come from torch's own operators.

    Returns a callable operator, called ``name`` in torch.ops.minitorch_user. With ``override="aten::silu"`` that
    operator is replaced instead, as by ``kernels.override``; without ``grad`` it keeps PyTorch's gradient.
    Raises ValueError for an expression that is not understood.
    """
    if not isinstance(text, str):
        raise TypeError(f"an expression is a text such as 'x * x', not {text!r}")
    body = expression.parse(text)
    if not body.inputs:
        raise ValueError(f"{text!r} has no input")
    if "upstream" in body.inputs or "result" in body.inputs:
        raise ValueError("upstream and result have meanings in gradients: name the inputs otherwise")
    derivatives = gradients(body, grad)
    if not (override is None or isinstance(override, str)):
        raise TypeError(f"override is the name of an operator such as 'aten::silu', not {override!r}")
    if name is None:
        base = override.split("::")[-1].replace(".", "_") if override else "elementwise"
        name = f"{base}_{next(_numbers)}"
    if isinstance(name, str) and f"{NAMESPACE}::{name}" in torch._C._dispatch_get_all_op_names():
        raise ValueError(f"there is an operator {NAMESPACE}::{name} already")
    named = isinstance(name, str) and re.fullmatch(r"[a-z_]\w*", name) and not keyword.iskeyword(name)
    if not named or hasattr(getattr(torch.ops, NAMESPACE), name):  # such as "name", which the namespace has itself
        raise ValueError(f"{name!r} cannot be an operator's name")
    operator = Elementwise(name, body)
    try:
        attach_gradients(operator, derivatives)
        operator.grad = {by: derivative.text for by, derivative in derivatives.items()}
        _operators[name] = operator
        if override is None:
            return operator
        return overriding.deliver(PointwiseOverride(override, operator, bool(derivatives), dtypes))
    except BaseException:
        operator.forget()
        raise
