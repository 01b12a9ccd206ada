"""Operators of ``kernels.elementwise`` under torch.func, vmap and forward mode, on both devices."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

from minitorch_backend import kernels
from tests.python.own_kernels import cache_of_module, needs_the_cpu  # noqa: F401

X = torch.linspace(-2.0, 2.0, 6, dtype=torch.float64)
TRANSFORMS = {
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x.cos(),)),
    "grad": lambda f, x: torch.func.grad(lambda t: f(t).sum())(x),
    "vjp": lambda f, x: torch.func.vjp(f, x)[1](x.cos()),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x: torch.func.hessian(lambda t: f(t).sum())(x),
    "vmap": lambda f, x: torch.func.vmap(f)(x.expand(3, 6)),
    "vmap of grad": lambda f, x: torch.func.vmap(torch.func.grad(lambda t: f(t).sum()))(x.view(2, 3)),
}


@pytest.fixture(scope="module")
def cube():
    return kernels.elementwise("x * x * x", grad="3 * x * x")


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("device", ["minitorch", "cpu"])
def test_transforms_use_the_derivative_that_was_given(cube, name, device):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*batching rule.*")
        found = TRANSFORMS[name](cube, X.to(device))
    wanted = TRANSFORMS[name](lambda x: x * x * x, X)
    for f, w in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(f.cpu(), w)


@pytest.mark.parametrize("call", [lambda op, x: op(x), lambda op, x: op.overload(x)], ids=["called", "dispatched"])
def test_forward_mode_has_a_tangent(cube, call):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X.to("minitorch"), torch.ones_like(X).to("minitorch"))
        tangent = forward_ad.unpack_dual(call(cube, dual)).tangent
    torch.testing.assert_close(tangent.cpu(), 3 * X * X)


def test_derivatives_of_several_inputs_hold_in_every_mode():
    op = kernels.elementwise("x * y * y", grad=("y * y", "2 * x * y"))
    inputs = [X.to("minitorch").requires_grad_(), X.flip(0)[:, None].to("minitorch").requires_grad_()]
    assert torch.autograd.gradcheck(op, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(op, inputs)


@pytest.mark.parametrize(
    "dims, shapes",
    [
        ((0, None), ((5, 4, 3), (3,))),
        ((None, 1), ((4, 3), (3, 5))),
        ((1, 0), ((4, 5, 3), (5, 3))),
        ((0, 0), ((2, 3), (2,))),
    ],
)
def test_a_batch_of_inputs_of_different_ranks(dims, shapes):
    op = kernels.elementwise("x - 2 * y")
    given = [torch.randn(shape) for shape in shapes]
    found = torch.func.vmap(op, dims)(*(t.to("minitorch") for t in given))
    torch.testing.assert_close(found.cpu(), torch.func.vmap(lambda a, b: a - 2 * b, dims)(*given))


def test_an_operator_without_derivative_says_so_in_every_mode():
    op = kernels.elementwise("x + 1")
    x = X.to("minitorch")
    for call in (lambda: torch.func.grad(lambda t: op(t).sum())(x), lambda: torch.func.jvp(op, (x,), (x,))):
        with pytest.raises(RuntimeError, match="has no gradient"):
            call()


def test_under_a_transform_an_override_keeps_the_operators_derivative():
    x = X.float().to("minitorch")
    wanted = [torch.func.grad(lambda t: F.silu(t).sum())(x), torch.func.jvp(F.silu, (x,), (x,))[1]]
    with kernels.elementwise("x / (1 + exp(-x))", grad="7 * x", override="aten::silu"):
        found = [torch.func.grad(lambda t: F.silu(t).sum())(x), torch.func.jvp(F.silu, (x,), (x,))[1]]
        a = x.clone().requires_grad_()
        F.silu(a).sum().backward()
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w)
    torch.testing.assert_close(a.grad, 7 * x)


@pytest.mark.parametrize(
    "text",
    [
        "(x > 0) / ((x > 0) + (y > 0))", "(x > 0) / 2", "exp(x > y)", "(not x) + (not y)", "True + (x < y)",
        "1 / 2 if (x > 0) - 1 else y", "where(x - y, x, y)", "sign(x) / 2 - y", "x + y / 0", "-(x == y)",
    ],
)  # fmt: skip
def test_comparisons_are_numbers_like_all_others(text):
    op = kernels.elementwise(text)
    given = [torch.tensor([-1.0, 0.0, 0.5, 2.0]), torch.tensor([1.0, -1.0, 0.5, 0.0])][: len(op.body.inputs)]
    torch.testing.assert_close(op(*(t.to("minitorch") for t in given)).cpu(), op(*given), equal_nan=True)


@needs_the_cpu
def test_statics_of_two_kernels_are_apart():
    """Also in what the linker otherwise makes one of: inline functions and members of templates."""
    text = """
inline int& counter() { static int count = START; return count; }
template <class T> struct Table { inline static scalar_t values[4] = {1, 2, 3, 4}; };
void silu(Tensor out, Tensor self) {
  for (int64_t i = 0; i < out.numel; i++) out.ptr<scalar_t>()[i] = counter() + Table<int>::values[i];
}"""
    x = torch.zeros(4, device="minitorch")
    for start in (10, 20):
        with kernels.override("aten::silu", source=text.replace("START", str(start))):
            for dtype in (torch.float32, torch.float64):
                assert F.silu(x.to(dtype)).tolist() == [start + 1, start + 2, start + 3, start + 4]
