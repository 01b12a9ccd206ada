"""Calls that a kernel of one's own cannot take go to the original, whatever they bring; those that it can reach it."""

import pytest
import torch
import torch.nn.functional as F

from minitorch_backend import kernels
from tests.python.own_kernels import cache_of_module, needs_the_cpu  # noqa: F401


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    kernels.restore_all()


def loop(name, parameters, value, results="Tensor out"):
    """A kernel that writes ``value``, an expression of i, into each element of out."""
    body = f"for (int64_t i = 0; i < out.numel; i++) out.ptr<scalar_t>()[i] = {value};"
    return f"void {name}({results}{parameters}) {{ {body} }}"


NINES = {  # operators whose result a kernel makes all nines: one that is reached shows
    "aten::add.Tensor": loop("add", ", Tensor, Tensor, double", "9"),
    "aten::mul.Tensor": loop("mul", ", Tensor, Tensor", "9"),
    "aten::gelu": loop("gelu", ", Tensor", "9"),
    "aten::clone": loop("clone", ", Tensor", "9"),
    "aten::bernoulli": loop("bernoulli", ", Tensor", "9"),
    "aten::mm": loop("mm", ", Tensor, Tensor", "9"),
    "aten::repeat": loop("repeat", ", Tensor, IntList", "9"),
    "aten::diag_embed": loop("diag_embed", ", Tensor, int64_t, int64_t, int64_t", "9"),
    "aten::pow.Tensor_Scalar": loop("pow", ", Tensor, double", "9"),
    "aten::sum.dim_IntList": loop("sum", ", Tensor, IntList, bool", "9"),
}
ones = torch.ones
# What is called, and on what: native's result is expected, made by the original.
LEFT_ALONE = {
    "complex tensors": ("aten::add.Tensor", None, torch.add, (ones(3, dtype=torch.complex64), ones(3))),
    "a complex tensor second": ("aten::mul.Tensor", None, torch.mul, (ones(3), ones(3, dtype=torch.complex64))),
    "a complex number": ("aten::mul.Tensor", None, torch.mul, (ones(3), 2j)),
    "a complex exponent": ("aten::pow.Tensor_Scalar", None, torch.pow, (ones(3), 2j)),
    "a complex exponent of integers": ("aten::pow.Tensor_Scalar", None, torch.pow, (ones(3).long(), 2j)),
    "a dtype that is not known": ("aten::clone", None, torch.clone, (ones(3, dtype=torch.uint16),)),
    "many dimensions": ("aten::add.Tensor", None, torch.add, (ones([1] * 12 + [2]), 1.0)),
    "many dimensions by broadcasting": ("aten::mul.Tensor", None, torch.mul, (ones(2), ones([1] * 13))),
    "a text that the kernel does not see": ("aten::gelu", None, lambda x: F.gelu(x, approximate="tanh"), (ones(3),)),
    "a long list": ("aten::repeat", None, lambda x: x.repeat([1] * 13), (ones(3),)),
    "many dimensions of the result alone": ("aten::diag_embed", None, torch.diag_embed, (ones([1] * 11 + [2]),)),
    "another dtype of the result": (
        "aten::sum.dim_IntList", [torch.float32], lambda x: x.sum(0, dtype=torch.float64), (ones(3),),
    ),
    "a seed that the kernel does not see": (
        "aten::bernoulli", None,
        lambda x: torch.bernoulli(x, generator=torch.Generator(x.device).manual_seed(3)) * 0 + 1, (ones(3),),
    ),
    "not asked for": ("aten::add.Tensor", [torch.float32], torch.add, (ones(3), ones(3).double())),
    "not asked for, one operand": ("aten::mm", [torch.float64], torch.mm, (ones(2, 2), ones(2, 2))),
    "a number that no double holds": ("aten::pow.Tensor_Scalar", None, torch.pow, (ones(3).long(), 2**53 + 1)),
}  # fmt: skip


def to_ours(value):
    return value.to("minitorch") if isinstance(value, torch.Tensor) else value


@needs_the_cpu
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_a_compiled_kernel_cannot_take_is_the_original_s(name):
    operator, dtypes, call, given = LEFT_ALONE[name]
    with kernels.override(operator, source=NINES[operator], dtypes=dtypes) as made:
        found, native = call(*map(to_ours, given)), call(*given)
        assert made.calls == 0 and found.dtype == native.dtype
        torch.testing.assert_close(found.cpu(), native)


@needs_the_cpu
@pytest.mark.parametrize("name", LEFT_ALONE)
def test_so_it_is_in_place_and_with_out(name):
    operator, dtypes, call, given = LEFT_ALONE[name]
    if call not in (torch.add, torch.mul, torch.mm, torch.pow):
        pytest.skip("has neither form")
    native = call(*given)
    with kernels.override(operator, source=NINES[operator], dtypes=dtypes) as made:
        out = torch.empty_like(native, device="minitorch")
        call(*map(to_ours, given), out=out)
        torch.testing.assert_close(out.cpu(), native)
        if call is not torch.mm and native.dtype == given[0].dtype and native.shape == given[0].shape:
            target = to_ours(given[0]).clone()
            getattr(target, f"{call.__name__}_")(*map(to_ours, given[1:]))
            torch.testing.assert_close(target.cpu(), native)
        assert made.calls == 0


@needs_the_cpu
def test_a_weight_of_another_dtype_is_not_read_as_the_kernel_s():
    """Layer norm takes a weight of float for 16-bit numbers, and does not promote."""
    source = """void native_layer_norm(Tensor y, Tensor mean, Tensor rstd, Tensor x, IntList, Tensor, Tensor, double) {
      for (int64_t i = 0; i < y.numel; i++) y.ptr<scalar_t>()[i] = 9;
    }"""
    x, weight = torch.randn(4, 8), ones(8)
    with kernels.override("aten::native_layer_norm", source=source, dtypes=[torch.bfloat16]) as made:
        found = F.layer_norm(x.bfloat16().to("minitorch"), (8,), weight.to("minitorch"))
        assert made.calls == 0
        torch.testing.assert_close(found.cpu(), F.layer_norm(x.bfloat16(), (8,), weight))
    both = [torch.bfloat16, torch.float32]  # a kernel that says so looks at each tensor's dtype itself
    with kernels.override("aten::native_layer_norm", source=source, dtypes=both) as made:
        assert F.layer_norm(x.bfloat16().to("minitorch"), (8,), weight.to("minitorch")).eq(9).all() and made.calls == 1


@needs_the_cpu
def test_integers_beside_a_kernel_s_dtype_are_its_indices():
    source = loop("embedding", ", Tensor, Tensor at, int64_t, bool, bool", "1 + at.ptr<int64_t>()[0]")
    with kernels.override("aten::embedding", source=source, dtypes=[torch.float32]) as made:
        found = F.embedding(torch.tensor([4], device="minitorch"), torch.randn(9, 3, device="minitorch"))
        assert made.calls == 1 and found.eq(5).all()


@needs_the_cpu
@pytest.mark.parametrize(
    "given",
    [(ones(3), 2), (torch.tensor(2.0), ones(3)), (ones(3, dtype=torch.uint8), 300), (ones(3), torch.tensor(2.0)),
     (ones(3).bool(), 3), (ones([1] * 12), 1.0)],
    ids=["number", "from the CPU first", "goes round", "from the CPU", "of booleans", "12 dimensions"],
)  # fmt: skip
def test_what_a_compiled_kernel_can_take_reaches_it(given):
    source = loop("add", ", Tensor a, Tensor b, double", "a.ptr<scalar_t>()[i] + b.ptr<scalar_t>()[i]")
    ours = [to_ours(v) if not isinstance(v, torch.Tensor) or v.dim() else v for v in given]
    with kernels.override("aten::add.Tensor", source=source) as made:
        found = torch.add(*ours)
        assert made.calls == 1 and found.device.type == "minitorch"
    torch.testing.assert_close(found.cpu(), torch.add(*given))


@needs_the_cpu
def test_a_number_of_a_higher_kind_is_computed_in_its_kind():
    source = loop("pow", ", Tensor x, double e", "std::pow(double(x.ptr<scalar_t>()[i]), e)")
    with kernels.override("aten::pow.Tensor_Scalar", source=f"#include <cmath>\n{source}") as made:
        for x, exponent in (
            (torch.arange(4), 1.5),
            (torch.arange(4), 3),
            (torch.tensor([True, False]), 2),
            (ones(3), 2),
        ):
            found, native = to_ours(x) ** exponent, x**exponent
            assert found.dtype == native.dtype
            torch.testing.assert_close(found.cpu(), native)
        assert made.calls == 4


@needs_the_cpu
def test_native_refuses_what_native_refuses():
    calls = (
        lambda a, b: torch.add(a, b.cpu()),
        lambda a, b: torch.mm(a, b.double()),
        lambda a, b: a.lerp(b.double(), b),
    )
    a, b = (torch.ones(2, 2, device="minitorch") for _ in range(2))
    for call in calls:
        with pytest.raises(RuntimeError) as before:
            call(a, b)
        with (
            kernels.override("aten::add.Tensor", source=NINES["aten::add.Tensor"]),
            kernels.override("aten::mm", source=NINES["aten::mm"], dtypes=[torch.float32]),
            kernels.elementwise("a + w * (b - a)", override="aten::lerp.Tensor"),
            pytest.raises(RuntimeError) as after,
        ):
            call(a, b)
        assert str(after.value) == str(before.value) and not isinstance(after.value, kernels.KernelError)


@pytest.mark.parametrize("grad", [None, ("b", "a")], ids=["kernel alone", "with gradient"])
@pytest.mark.parametrize(
    "given",
    [(ones(3), 2j), (ones(3), ones(3, dtype=torch.complex64)), (ones(3, dtype=torch.complex64), 2.0),
     (ones(3).long(), 2), (ones(3), ones(3).double())],
    ids=["complex number", "complex second", "complex first", "integers", "not asked for"],
)  # fmt: skip
def test_what_an_expression_cannot_take_is_the_original_s(given, grad):
    with kernels.elementwise("a * b", grad=grad, override="aten::mul.Tensor", dtypes=[torch.float32]) as made:
        found, native = torch.mul(*map(to_ours, given)), torch.mul(*given)
        assert made.calls == 0 and found.dtype == native.dtype
        torch.testing.assert_close(found.cpu(), native)
        for x, factor in ((ones(3), 2), (ones(3).long(), 2.5)):
            torch.testing.assert_close(torch.mul(to_ours(x), factor).cpu(), x * factor)
        assert made.calls == 2


@pytest.mark.parametrize("dim", [12, 13, 20])
def test_an_expression_takes_any_number_of_dimensions(dim):
    x = torch.randn([1] * (dim - 2) + [3, 4])
    op = kernels.elementwise("x * y + 1")
    torch.testing.assert_close(op(to_ours(x), to_ours(x.mT)[..., :1, :1]).cpu(), x * x.mT[..., :1, :1] + 1)
    with kernels.elementwise("2 * x", override="aten::silu") as made:
        torch.testing.assert_close(F.silu(to_ours(x).mT).cpu(), 2 * x.mT)
        assert made.calls == 1


NUMBERS = {
    "aten::pow.Tensor_Scalar": ("x ** p", ("p * x ** (p - 1)", "0 * x"), lambda x: x**2.5),
    "aten::pow.Scalar": ("b ** x", ("0 * x", "log(b) * b ** x"), lambda x: torch.pow(2.5, x)),
    "aten::fmod.Scalar": ("x - d * floor(x / d)", ("1 + 0 * x", "0 * x"), lambda x: torch.fmod(x, 0.75)),
    "aten::leaky_relu": ("2 * x", ("2 + 0 * x",), None),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("with_gradient", [False, True])
def test_numbers_that_a_call_must_give_are_inputs(name, with_gradient):
    text, grad, call = NUMBERS[name]
    call = call or (lambda x: torch.ops.aten.leaky_relu(x) if x.device.type == "minitorch" else 2 * x)
    if name == "aten::leaky_relu" and not with_gradient:
        pytest.skip("its own gradient is another function's")
    native, ours = (torch.linspace(0.5, 3, 7).to(d).requires_grad_() for d in ("cpu", "minitorch"))
    expected = call(native)
    expected.sum().backward()
    with kernels.elementwise(text, grad=grad if with_gradient else None, override=name) as made:
        found = call(ours)
        assert made.calls == 1
        found.sum().backward()
    torch.testing.assert_close(found.detach().cpu(), expected.detach())
    torch.testing.assert_close(ours.grad.cpu(), native.grad)


def test_a_number_in_the_in_place_form():
    x = torch.linspace(0.5, 3, 7)
    with kernels.elementwise("x ** p", grad=("p * x ** (p - 1)", "0 * x"), override="aten::pow.Tensor_Scalar") as made:
        leaf = to_ours(x).requires_grad_()
        (leaf * 1).pow_(2.5).sum().backward()
        assert made.calls == 1
    torch.testing.assert_close(leaf.grad.cpu(), 2.5 * x**1.5)


@pytest.mark.parametrize(
    "operator,text,says",
    [
        ("aten::pow.Tensor_Scalar", "x * x", r"has 2 operands \(self, exponent\), the expression 1 inputs"),
        ("aten::_softmax", "x", r"needs half_to_float \(bool\), which no expression has"),
        ("aten::roll", "x", r"needs shifts \(List\[.*\]\), which no expression has"),
        ("aten::silu", "x * y", r"has 1 operands \(self\), the expression 2 inputs \(x, y\)"),
    ],
)
def test_an_expression_that_could_never_be_called_is_refused(operator, text, says):
    with pytest.raises(ValueError, match=says):
        kernels.elementwise(text, override=operator)
    assert not kernels.active()


@needs_the_cpu
def test_torch_s_default_dtype_counts():
    source = loop("div", ", Tensor a, Tensor b", "a.ptr<scalar_t>()[i] / b.ptr<scalar_t>()[i]")
    integers = torch.arange(1, 5, device="minitorch")
    with kernels.override("aten::div.Tensor", source=source) as made:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            try:
                found, native = integers / integers, integers.cpu() / integers.cpu()
            finally:
                torch.set_default_dtype(torch.float32)
            assert found.dtype == native.dtype == dtype
            torch.testing.assert_close(found.cpu(), native)
        assert made.calls == 3
    with kernels.override("aten::div.Tensor", lambda a, b: a.to(torch.get_default_dtype()) * 0):
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            try:
                assert (integers / integers).dtype == dtype
            finally:
                torch.set_default_dtype(torch.float32)
