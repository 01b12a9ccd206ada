"""Kernels of one's own where it is easy to be wrong: in-place forms, names, dtypes, memory, a damaged cache."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from minitorch_backend import kernels
from minitorch_backend.kernels import compiler, pointwise
from tests.python.own_kernels import cache_of_module, needs_the_cpu, silu_is_back  # noqa: F401

FIVE = "void silu(Tensor out, Tensor x) { auto o = out.ptr<scalar_t>(); for (int64_t i = 0; i < out.numel; i++) o[i] = 5; }"


@pytest.fixture
def x():
    yield torch.linspace(-2, 3, 12).to("minitorch")
    kernels.restore_all()


def test_forms_that_write_refuse_what_native_refuses(x):
    whole = torch.arange(12, device="minitorch")
    with (
        kernels.override("aten::add.Tensor", lambda a, b, alpha=1: torch.mul(a, b)),
        kernels.override("aten::exp", torch.ones_like),
    ):
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
            whole.add_(x)
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
            torch.exp(x, out=whole)
        with pytest.raises(RuntimeError, match="same device"):
            torch.exp(x, out=torch.empty(12))
        with pytest.warns(UserWarning, match="was resized"):
            torch.exp(x, out=torch.empty(3, device="minitorch"))
    assert torch.equal(whole.cpu(), torch.arange(12))


@pytest.mark.parametrize(
    "options,error",
    [
        ({"function": 3}, TypeError),
        ({"function": torch.exp, "dtypes": ["float32"]}, TypeError),
        ({"function": torch.exp, "dtypes": []}, ValueError),
    ],
)
def test_what_could_never_be_called_is_refused(options, error):
    with pytest.raises(error, match=r"callable|dtypes"):
        kernels.override("aten::silu", **options)
    assert not kernels.active()


@needs_the_cpu
def test_compiled_kernels_take_numbers_for_tensors_and_need_a_tensor(x):
    with pytest.raises(LookupError, match="takes no tensor"):
        kernels.override("aten::zeros", source="void zeros(Tensor out, IntList size) {}")
    source = """void add(Tensor out, Tensor x, Tensor y, double) {
      for (int64_t i = 0; i < out.numel; i++)
        out.ptr<scalar_t>()[i] = 10 * x.ptr<scalar_t>()[i] + y.ptr<scalar_t>()[y.numel == 1 ? 0 : i];
    }"""
    with kernels.override("aten::add.Tensor", source=source):
        torch.testing.assert_close((x + 3).cpu(), 10 * x.cpu() + 3)


def test_gradient_of_a_pointwise_override_holds_in_place_too(x):
    with kernels.elementwise("x * x", grad="2 * x", override="aten::silu", dtypes=[torch.float32]) as made:
        leaf = x.clone().requires_grad_()
        F.silu(leaf * 1, inplace=True).sum().backward()
        torch.testing.assert_close(leaf.grad.cpu(), 2 * x.cpu())
        assert made.calls == 1
        with pytest.raises(RuntimeError, match="leaf Variable"):
            F.silu(leaf, inplace=True)
        other = x.double().requires_grad_()
        F.silu(other).sum().backward()
        native = x.cpu().double().requires_grad_()
        F.silu(native).sum().backward()
        torch.testing.assert_close(other.grad.cpu(), native.grad)
    with kernels.elementwise("a * b", grad=("b", "a"), override="aten::add.Tensor"):
        assert torch.equal((x + 2).cpu(), x.cpu() * 2)
        assert torch.equal(torch.add(x, x, alpha=3).cpu(), torch.add(x.cpu(), x.cpu(), alpha=3))


NAMES = ("i", "out", "int", "NULL", "M_PI", "scalar_t", "value_i")


def test_inputs_and_operators_may_have_any_name(x):
    op = kernels.elementwise(" + ".join(f"{k} * {name}" for k, name in enumerate(NAMES)), name="double")
    torch.testing.assert_close(op(*[x] * len(NAMES)).cpu(), x.cpu() * sum(range(len(NAMES))))


@needs_the_cpu
def test_a_name_is_free_after_a_failure(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "cxx", lambda: "/bin/false")
        with pytest.raises(kernels.CompileError):
            kernels.elementwise("2 * x", name="second_attempt")
    assert kernels.elementwise("2 * x", name="second_attempt")


@pytest.mark.parametrize(
    "text",
    ["x * 100000000000000000000000", "min(x, 1e400)", "x if 2 > 1 else 0", "(x > 0) + (x > -9)", "-(x > 0)",
     "where(x, 1, 2)", "not x", "3 if x else x"],
)  # fmt: skip
def test_the_reference_says_what_the_kernel_says(x, text):
    op = kernels.elementwise(text)
    torch.testing.assert_close(op(x).cpu(), op(x.cpu()))


@pytest.mark.parametrize("text", ["x" + " + x" * 3000, "x * 1" + "0" * 400])
def test_too_much_is_said(text):
    with pytest.raises(ValueError, match="too l"):
        kernels.elementwise(text)


def test_mixed_inputs_of_an_elementwise_operator(x):
    op = kernels.elementwise("a * b + 1", name="mixed", grad=("b", "a"))
    single = torch.tensor(2.0, dtype=torch.float64)
    for b in (single, single.to("minitorch"), 2, 2.0, x.half(), torch.arange(12, device="minitorch")):
        for a in (x, x.bfloat16(), torch.arange(12, device="minitorch").double()):
            native = a.cpu() * (b.cpu() if isinstance(b, torch.Tensor) else b) + 1
            assert op(a, b).dtype == op(b, a).dtype == native.dtype and op(b, a).device.type == "minitorch"
            torch.testing.assert_close(op(a, b).cpu(), native)
    with pytest.raises(RuntimeError, match="same device"):
        op(x, torch.ones(12))
    with pytest.raises(ValueError, match="3 derivatives"):
        kernels.elementwise("x * x", grad=("2 * x", "1", "1"))


def test_second_derivatives():
    op = kernels.elementwise("a * a * b + where(a > 0, a, 2 * a)", grad=("2 * a * b + where(a > 0, 1, 2)", "a * a"))
    a, b = (torch.linspace(-1, 2, 5, dtype=torch.float64, device="minitorch").requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(op, (a, b)) and torch.autograd.gradgradcheck(op, (a, b))


CHILD = f"""
import torch, minitorch_backend
from minitorch_backend import kernels
with kernels.override("aten::silu", source={FIVE!r}):
    assert torch.nn.functional.silu(torch.ones(3, device="minitorch")).eq(5).all()
"""


@needs_the_cpu
@pytest.mark.parametrize("damage", [lambda d: b"", lambda d: d[: len(d) // 2], lambda d: d[:-700] + bytes(700)])
def test_a_damaged_library_in_the_cache_is_made_anew(x, damage, tmp_path, monkeypatch):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path))
    kernels.override("aten::silu", source=FIVE).restore()
    (library,) = tmp_path.glob("*")
    good = library.read_bytes()
    library.unlink()
    library.write_bytes(damage(good))
    subprocess.run([sys.executable, "-c", CHILD], check=True, timeout=120)
    assert compiler.is_whole(library) and len(list(tmp_path.glob("*"))) == 1


@needs_the_cpu
def test_a_cache_that_cannot_be_written_is_said(x, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="are not kept"), kernels.override("aten::silu", source=FIVE):
        assert F.silu(x).mean() == 5


@needs_the_cpu
def test_a_changed_header_is_compiled_anew(x, tmp_path):
    source = f'#include "five.h"\n{FIVE.replace("= 5", "= VALUE")}'
    for value in (5, 6):
        (tmp_path / "five.h").write_text(f"#define VALUE {value}\n")
        with kernels.override("aten::silu", source=source, flags=[f"-I{tmp_path}"]):
            assert F.silu(x).mean() == value


CALLS_WITH_NUMBERS = [
    lambda i: i + 1, lambda i: 1 + i, lambda i: i + 1.5, lambda i: i.double() + 1, lambda i: i.clone().add_(1),
    lambda i: torch.add(i, 1, out=torch.empty_like(i)), lambda i: i - 2, lambda i: 2 - i, lambda i: i / 2,
    lambda i: i % 2, lambda i: i * 2.5, lambda i: i[1].half() * 2.5, lambda i: i + True, lambda i: i * 2j,
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS_WITH_NUMBERS)
def test_numbers_go_on_to_the_operator_below(x, call):
    for name in ("add", "sub", "div", "remainder", "mul"):
        kernels.override(f"aten::{name}.Tensor", lambda *a, **b: pytest.fail("not its dtype"), dtypes=[torch.float32])
    native, found = call(torch.arange(3)), call(torch.arange(3, device="minitorch"))
    assert found.dtype == native.dtype and torch.equal(found.cpu(), native)


def test_a_kernel_hands_numbers_to_the_original(x):
    native = x.cpu()
    with kernels.override("aten::mul.Tensor", lambda a, b: a * b) as made:
        assert torch.equal((x * 2).cpu(), native * 2) and torch.equal((3.5 * x).cpu(), native * 3.5)
        assert made.calls == 2
    with kernels.elementwise("x * y", override="aten::mul.Tensor", grad=("y", "x")) as made:
        integers = torch.arange(3, device="minitorch")
        assert torch.equal((integers * 2).cpu(), torch.arange(3) * 2) and made.calls == 0
        assert torch.equal((x * 2).cpu(), native * 2) and made.calls == 1


ADD = """void add(Tensor out, Tensor x, Tensor y, double alpha) {
  auto o = out.ptr<scalar_t>();
  for (int64_t i = 0; i < out.numel; i++) o[i] = x.ptr<scalar_t>()[i] + alpha * y.ptr<scalar_t>()[i];
}"""
AT = """int64_t at(Tensor t, int64_t i) {
  int64_t offset = 0;
  for (int64_t d = t.dim - 1; d >= 0; i /= t.sizes[d--]) offset += i % t.sizes[d] * t.strides[d];
  return offset;
}
"""
OPERANDS = [
    (torch.ones(4), torch.arange(4)),
    (torch.arange(4), torch.ones(4)),
    (torch.arange(3), torch.arange(12.0).view(4, 3)),
    (torch.arange(12).view(4, 3), torch.arange(4, dtype=torch.int32).view(4, 1)),
    (torch.ones(3), torch.tensor(2.5, dtype=torch.float64)),
    (torch.ones(2, dtype=torch.bfloat16), torch.ones(2)),
    (torch.arange(3), 1.5),
]


@needs_the_cpu
@pytest.mark.parametrize("a,b", OPERANDS, ids=range(len(OPERANDS)))
@pytest.mark.parametrize("strided", [False, True])
def test_operands_of_a_compiled_pointwise_kernel_are_broadcast_and_promoted(a, b, strided):
    ours = [t.to("minitorch") if isinstance(t, torch.Tensor) else t for t in (a, b)]
    source = ADD.replace("y.ptr<scalar_t>()[i]", "y.ptr<scalar_t>()[at(y, i)]").replace(
        "x.ptr<scalar_t>()[i]", "x.ptr<scalar_t>()[at(x, i)]"
    )
    with kernels.override("aten::add.Tensor", source=AT + source if strided else ADD, strided=strided) as made:
        found, native = torch.add(*ours), torch.add(a, b)
        assert made.calls == 1 and found.dtype == native.dtype
        torch.testing.assert_close(found.cpu(), native)


@needs_the_cpu
def test_what_is_computed_in_decides_whether_a_compiled_kernel_is_for_a_call(x):
    integers = torch.arange(12, device="minitorch")
    with kernels.override("aten::add.Tensor", source=ADD, dtypes=[torch.float32]) as made:
        assert torch.equal((integers + integers).cpu(), 2 * integers.cpu()) and made.calls == 0
        torch.testing.assert_close((integers + x).cpu(), integers.cpu() + x.cpu())
        assert made.calls == 1
    source = """void where(Tensor out, Tensor c, Tensor a, Tensor b) { for (int64_t i = 0; i < out.numel; i++)
      out.ptr<scalar_t>()[i] = c.ptr<bool>()[i] ? a.ptr<scalar_t>()[i] : b.ptr<scalar_t>()[i]; }"""
    with kernels.override("aten::where.self", source=source) as made:
        found = torch.where(x > 0, x, integers)
        torch.testing.assert_close(found.cpu(), torch.where(x.cpu() > 0, x.cpu(), integers.cpu()))
    source = """void div(Tensor out, Tensor a, Tensor b) { for (int64_t i = 0; i < out.numel; i++)
      out.ptr<scalar_t>()[i] = a.ptr<scalar_t>()[i] / b.ptr<scalar_t>()[i]; }"""
    with kernels.override("aten::div.Tensor", source=source) as made:
        torch.testing.assert_close((integers / 2).cpu(), integers.cpu() / 2)
        assert made.calls == 1


def test_results_with_gradients_are_refused(x):
    weight = torch.ones(12, device="minitorch", requires_grad=True)
    refused = pytest.raises(kernels.KernelError, match="requires gradients")
    with kernels.override("aten::silu", lambda t: torch.empty_like(t).requires_grad_()), refused:
        F.silu(x)
    with kernels.override("aten::silu", lambda t: t * weight):
        assert not F.silu(x).requires_grad


def test_a_step_of_a_gradient_may_be_overridden(x):
    with kernels.override("aten::silu_backward", lambda grad, t: grad * 7) as made:
        leaf = x.clone().requires_grad_()
        F.silu(leaf).sum().backward()
        assert made.calls == 1 and bool((leaf.grad == 7).all())


def test_memory_that_native_refuses_is_refused(x):
    whole = torch.linspace(0, 1, 20, device="minitorch")
    native = whole.cpu()
    with kernels.override("aten::silu", lambda t: t * 0), kernels.override("aten::add.Tensor", lambda a, b: a * 0):
        for call in (
            lambda t: torch.ops.aten.silu.out(t[:10], out=t[5:15]),
            lambda t: torch.ops.aten.silu.out(t[:10], out=t[:1].expand(10)),
            lambda t: t[:10].add_(t[5:15]),
        ):
            with pytest.raises(RuntimeError) as theirs:
                call(native)
            with pytest.raises(RuntimeError) as ours:
                call(whole)
            assert str(ours.value) == str(theirs.value)
        assert torch.equal(whole.cpu(), native)
        torch.ops.aten.silu.out(whole[:10], out=whole[:10])  # the same memory is none of these
        assert bool((whole[:10] == 0).all()) and bool((whole[10:] != 0).all())


@pytest.mark.parametrize("name", ["aten::nonzero", "aten::masked_select", "aten::unique_dim"])
def test_an_operator_whose_shape_depends_on_values_cannot_be_overridden(name):
    with pytest.raises(LookupError, match=f"{name} cannot be overridden: the shape of its result depends on values"):
        kernels.override(name, lambda x: x)


def test_modules_with_an_operator_of_one_s_own_are_copied_and_pickled(x):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = kernels.elementwise("x * x + 1", grad="2 * x", name="copied")

    layer = Layer()
    for other in (copy.deepcopy(layer), copy.copy(layer)):
        assert other.act is layer.act
    again = pickle.loads(pickle.dumps(layer.act))
    assert again is layer.act
    text = pickle.dumps(layer.act)
    program = (
        f"import minitorch_backend, pickle, torch\nop = pickle.loads({text!r})\n"
        "x = torch.full((3,), 2.0, device='minitorch', requires_grad=True)\nop(x).sum().backward()\n"
        "assert op(x)[0] == 5 and x.grad[0] == 4\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
    with pytest.raises(ValueError, match="is another operator here"):
        pointwise._again("copied", "x", {})
    made = kernels.override("aten::silu", lambda t: t * 0)
    assert copy.deepcopy(made) is made is copy.copy(made)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(made)
    copy.deepcopy(made).restore()
    silu_is_back(x)


@pytest.mark.parametrize(
    "call,error,message",
    [
        (lambda: kernels.override(None, torch.exp), TypeError, "the name of an operator is a text"),
        (lambda: kernels.override("aten::name", torch.exp), LookupError, "there is no operator"),
        (lambda: kernels.override("aten::__class__", torch.exp), LookupError, "there is no operator"),
        (lambda: kernels.elementwise("x", grad=5), TypeError, "grad is an expression"),
        (lambda: kernels.elementwise("x", grad=(5,)), TypeError, "grad is an expression"),
        (lambda: kernels.elementwise(None), TypeError, "an expression is a text"),
        pytest.param(
            lambda: kernels.override("aten::silu", source="my/silu.cpp"), ValueError, r"give a path as pathlib\.Path",
            marks=needs_the_cpu,
        ),
    ],
    ids=range(7),
)  # fmt: skip
def test_arguments_of_another_type_are_said(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert not kernels.active()


@needs_the_cpu
def test_flags_may_be_one_text(x):
    source = FIVE.replace("= 5", "= VALUE + TWO")
    with kernels.override("aten::silu", source=source, flags="-O1 -DVALUE=3 -DTWO=2"):
        assert F.silu(x).mean() == 5


@needs_the_cpu
def test_the_compiler_that_is_asked_for_is_the_one(x, monkeypatch):
    there = compiler.cxx()
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(kernels.CompileError, match="there is no program no-such-compiler"):
        kernels.override("aten::silu", source=FIVE + "// once more")
    monkeypatch.setenv("CXX", f"{there} -DVALUE=5 -m64")
    with kernels.override("aten::silu", source=FIVE.replace("= 5", "= VALUE")):
        assert F.silu(x).mean() == 5
    monkeypatch.setenv("CXX", f"env {there}")
    with kernels.override("aten::silu", source=FIVE + "// by way of another program"):
        assert F.silu(x).mean() == 5
