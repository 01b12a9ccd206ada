"""The expressions of ``kernels.elementwise``: Python's syntax, as C++ for a kernel and as torch for a reference."""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

# name -> (number of arguments, C++ with {0} {1} {2}, torch function)
FUNCTIONS: dict[str, tuple[int, str, Callable[..., Any]]] = {
    **{
        name: (1, f"math::{name}({{0}})", getattr(torch, name))
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1",
            "log", "log10", "log1p", "log2", "sigmoid", "sin", "sinh", "tan", "tanh",
        )
    },
    "sqrt": (1, "::sqrt({0})", torch.sqrt),
    "rsqrt": (1, "(opmath_t(1) / ::sqrt({0}))", torch.rsqrt),
    "abs": (1, "::fabs({0})", torch.abs),
    "floor": (1, "::floor({0})", torch.floor),
    "ceil": (1, "::ceil({0})", torch.ceil),
    "sign": (1, "(opmath_t({0} > 0) - opmath_t({0} < 0))", torch.sign),
    "relu": (1, "({0} < 0 ? opmath_t(0) : {0})", torch.relu),
    "pow": (2, "math::pow({0}, {1})", torch.pow),
    "atan2": (2, "math::atan2({0}, {1})", torch.atan2),
    "min": (2, "pick({0} < {1} || {0} != {0}, {0}, {1})", torch.minimum),
    "max": (2, "pick({0} > {1} || {0} != {0}, {0}, {1})", torch.maximum),
    "where": (3, "pick({0} != 0, {1}, {2})", torch.where),
}  # fmt: skip
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
BINARY = {
    ast.Add: ("+", lambda a, b: a + b), ast.Sub: ("-", lambda a, b: a - b), ast.Mult: ("*", lambda a, b: a * b),
    ast.Div: ("/", lambda a, b: a / b),
}  # fmt: skip
COMPARE = {
    ast.Lt: ("<", torch.lt), ast.LtE: ("<=", torch.le), ast.Gt: (">", torch.gt), ast.GtE: (">=", torch.ge),
    ast.Eq: ("==", torch.eq), ast.NotEq: ("!=", torch.ne),
}  # fmt: skip
LARGEST_POWER = 16
VARIABLE = "value_{}"  # an input's name in C++, where int, out or NULL mean something


@dataclass(frozen=True)
class Expression:
    """A parsed expression: its inputs in the order in which they appear."""

    text: str
    tree: ast.expr
    inputs: tuple[str, ...]

    def cpp(self) -> str:
        """A C++ expression over variables of type opmath_t, named by VARIABLE."""
        return _cpp(self.tree)

    def evaluate(self, values: dict[str, Any]) -> Any:
        """The value, by torch's own operators."""
        return _evaluate(self.tree, values)


def parse(text: str) -> Expression:
    """Raises ValueError that shows what is not understood and where."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _cpp(tree)  # finds everything that is not understood
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not an expression: {error.msg} at column {error.offset}") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"{text[:60]!r}... is too long or nested too deeply") from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called and n.id not in CONSTANTS]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    inputs = tuple(dict.fromkeys(node.id for node in names))
    if clash := [name for name in inputs if name in FUNCTIONS or not name.isascii()]:
        raise ValueError(f"{text!r}: {clash[0]} cannot be an input's name")
    return Expression(text, tree, inputs)


def _cpp(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=bool() as value):
            return _number(float(value))
        case ast.Constant(value=int() | float() as value):
            return _number(value)
        case ast.Name(id=name):
            return _number(CONSTANTS[name]) if name in CONSTANTS else VARIABLE.format(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{_cpp(operand)})"
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _cpp(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"opmath_t(!{_cpp(operand)})"
        case ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=int() as power)) if (
            0 <= power <= LARGEST_POWER
        ):
            return f"power<{power}>({_cpp(left)})"
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return f"math::pow({_cpp(left)}, {_cpp(right)})"
        case ast.BinOp(op=op, left=left, right=right) if type(op) in BINARY:
            return f"({_cpp(left)} {BINARY[type(op)][0]} {_cpp(right)})"
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
            # A number as all others: C++ would add and divide booleans as integers.
            return f"opmath_t({_cpp(left)} {COMPARE[type(op)][0]} {_cpp(right)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"pick({_cpp(test)} != 0, {_cpp(body)}, {_cpp(orelse)})"
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            count, form, _ = FUNCTIONS[name]
            if len(args) != count:
                raise ValueError(f"{name} takes {count} argument(s), not {len(args)}")
            return form.format(*map(_cpp, args))
    known = f"known are + - * / **, comparisons, a if c else b, and {', '.join(sorted(FUNCTIONS))}"
    raise ValueError(f"{ast.unparse(node)!r} is not understood; {known}")


def _number(value: float) -> str:
    """A number in C++. Raises ValueError for an integer that no float holds."""
    try:
        value = float(value)
    except OverflowError:
        raise ValueError("a whole number of more than 308 digits is too large") from None
    if math.isfinite(value):
        return f"opmath_t({value!r})"
    return "opmath_t(NAN)" if math.isnan(value) else "opmath_t(INFINITY)"


def _evaluate(node: ast.expr, values: dict[str, Any]) -> Any:
    like = next(iter(values.values()))

    def go(inner: ast.expr) -> Any:
        return _evaluate(inner, values)

    def tensor(inner: ast.expr) -> torch.Tensor:
        value = go(inner)
        return value if isinstance(value, torch.Tensor) else like.new_full((), value)

    match node:
        case ast.Constant(value=value):
            return float(value)
        case ast.Name(id=name):
            return CONSTANTS[name] if name in CONSTANTS else values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -go(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return (tensor(operand) == 0).to(like.dtype)
        case ast.UnaryOp(operand=operand):
            return go(operand)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return tensor(left) ** go(right)
        case ast.BinOp(op=op, left=left, right=right):
            return BINARY[type(op)][1](tensor(left), go(right))  # of two numbers too: 1 / 0 is inf
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return COMPARE[type(op)][1](tensor(left), tensor(right)).to(like.dtype)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return torch.where(tensor(test) != 0, tensor(body), tensor(orelse))
        case ast.Call(func=ast.Name(id="where"), args=[test, body, orelse]):
            return torch.where(tensor(test) != 0, tensor(body), tensor(orelse))
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name][2](*map(tensor, args))
    raise AssertionError(ast.dump(node))
