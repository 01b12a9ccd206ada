"""Pointwise operators: layouts, mixed dtypes, numbers, out=, casts and copies, as on native CPU."""

import itertools

import pytest
import torch
from pointwise_values import COMPLEX, FLOATS, INTS, SPECIAL, close, values
from twin import ASYNCHRONOUS, check, check_error

LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "sliced": lambda x: torch.cat([x, x], -1)[..., 1 : 1 + x.shape[-1]],
    "strided": lambda x: torch.stack([x, x], -1)[..., 1],
    "expanded": lambda x: x[..., :1].expand_as(x),
    "expanded rows": lambda x: x[:1].expand_as(x),
    "channels last": lambda x: x[None].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)[0] if x.ndim == 3 else x,
}


@pytest.mark.parametrize("b", LAYOUTS)
@pytest.mark.parametrize("a", LAYOUTS)
def test_layouts(a, b):
    for shape in ((5, 7), (3, 40, 33)):
        x, y = torch.randn(shape), torch.randn(shape)
        x, y = LAYOUTS[a](x), LAYOUTS[b](y)
        check(torch.mul, x, y)
        check(lambda p, q: torch.where(p > 0, p, q), x, y)
        check(torch.add, x, y.bfloat16())
        close(torch.atan2, x, y)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex128], ids=str)
@pytest.mark.parametrize("row", [1, 2, 3, 4, 5, 8, 16, 33, 64])
def test_short_rows(row, dtype):
    # Layouts that no merging of dimensions makes longer.
    x, y = values(dtype, 60 * row).view(12, 5, row), values(dtype, 60 * row, 1).view(5, 12, row).transpose(0, 1)
    exact = not dtype.is_complex
    if dtype.is_complex:
        x, y = (torch.view_as_complex(torch.view_as_real(t).nan_to_num(0, 1, 1)) for t in (x, y))
    check(lambda p: p.transpose(0, 1).contiguous(), x)
    check(lambda p: p[:, ::2].contiguous(), x)
    check(lambda p: p.repeat_interleave(row, 2), x)
    check(lambda p: p.permute(1, 2, 0).contiguous(), x)
    check(torch.mul, x, y, exact=exact)
    check(lambda p, q: p[:, :1] * q + (p[..., :1] != 0), x, y, exact=exact)
    check(lambda p, q: torch.empty_like(p).transpose(0, 1).copy_(q.transpose(0, 1)), x, y)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1), (40000,), (2, 3, 4, 5, 6, 7)])
def test_shapes(shape):
    close(torch.exp, torch.randn(shape))
    check(torch.add, torch.randn(shape), torch.randn(shape[-1:]))
    check(torch.lt, torch.randn(shape), torch.randn(()))


def test_sixteen_dimensions_that_do_not_merge():
    order = [7, 2, 13, 0, 10, 5, 15, 8, 1, 12, 3, 14, 6, 11, 4, 9]
    x = torch.randn([2] * 16).permute(order)
    y = torch.randn([2, 1] * 8)
    check(torch.mul, x, y)
    check(lambda p, q: torch.where(p > q, p, q.bfloat16()), x, y)
    check(lambda p: p.to(torch.int16).contiguous(), x)
    check(lambda p, q: p.clone(memory_format=torch.contiguous_format).copy_(q), x, y)
    close(lambda p: p.sum(tuple(range(0, 16, 2))), x)
    check(lambda p: p.amax(tuple(range(1, 16, 2))), x)
    check(lambda p: p.cummax(5), x)
    check(lambda p: p.flip(3, 8).argmax(2), x)


ALL = [torch.bool, *INTS, *FLOATS, *COMPLEX]


@pytest.mark.parametrize("a", ALL, ids=str)
def test_mixed_dtypes(a):
    for b in ALL:
        x, y = values(a, 40), values(b, 40, 1)
        if a.is_complex or b.is_complex:  # products of infinities depend on the path inside native
            x, y = (t.nan_to_num(0, 1, 1) if t.is_floating_point() else t for t in (x, y))
        for fn in (torch.add, torch.mul, torch.eq):
            check(fn, x, y, exact=not (a.is_complex or b.is_complex))
            check(fn, x, y[0], exact=not (a.is_complex or b.is_complex))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8], ids=str)
def test_scalar_operands(dtype):
    x = values(dtype)
    for scalar in (3, 1.2345678, torch.tensor(1.2345678), torch.tensor(7, dtype=torch.int64), True):
        for fn in (
            lambda t: t + scalar,
            lambda t: t * scalar,
            lambda t: scalar - t if not isinstance(scalar, bool) else t,
            lambda t: t / scalar,
            lambda t: t > scalar,
            lambda t: torch.maximum(t, torch.as_tensor(scalar).to(t.dtype)),
            lambda t: torch.where(t > 0, t, scalar),
            lambda t: torch.floor_divide(t, scalar),
        ):
            check(fn, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_bounds_and_mixtures(dtype):
    x, y, z = values(dtype), values(dtype, seed=1), values(dtype, seed=2)
    check(lambda t: t.clamp(-1, 2), x)
    check(lambda t: t.clamp(min=1), x)
    check(lambda t: t.clamp(max=1), x)
    check(torch.clamp, x, y, z)
    check(torch.clamp_min, x, y)
    check(torch.addcmul, x, y, z, exact=False)
    if dtype.is_floating_point:
        check(lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), x, y, z, exact=False)
        check(lambda a, b: torch.lerp(a, b, 0.3), x, y, exact=False)
        check(torch.lerp, x, y, z, exact=False)


def test_complex_parts():
    a, b = torch.randn(50), torch.randn(50)
    check(torch.complex, a, b)
    close(torch.polar, a.abs(), b)
    z = torch.randn(50, dtype=torch.complex64)
    for fn in (
        torch.abs,
        torch.angle,
        torch.sgn,
        torch.conj_physical,
        lambda t: t.conj() * t,
        lambda t: t.conj().clone(),
        lambda t: t.real + t.imag,
        lambda t: t.conj().imag + 1,
    ):
        close(fn, z)


def test_frexp_and_ldexp():
    x = torch.tensor([*SPECIAL, 3.7, 1e-40, 1e30])
    x = x[x.isfinite()]
    check(torch.frexp, x)
    check(torch.ldexp, x, torch.arange(len(x)) - 5)
    close(torch.ldexp, x, torch.randn(len(x)))


def test_unsigned_integers():
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        x = torch.tensor([1, 5, torch.iinfo(dtype).max], dtype=dtype)
        check(torch.mul, x, x)
        check(torch.eq, x, x)
        check(torch.bitwise_xor, x, x[:1].clone())
        check(lambda t: t.to(torch.float64), x)


@pytest.mark.parametrize("fn", [torch.add, torch.mul, torch.div])
def test_out(fn):
    x, y = torch.randn(6, 5), torch.randn(6, 5)
    for out in (
        torch.empty(6, 5),
        torch.zeros(6, 10)[:, ::2],
        torch.zeros(5, 6).t(),
        torch.empty(0),
        torch.zeros(6, 5, dtype=torch.float64),
        torch.zeros(6, 5, dtype=torch.complex64),
    ):
        check(lambda a, b, o: fn(a, b, out=o), x, y, out)
    check_error(lambda a, b, o: fn(a, b, out=o), x, y, torch.zeros(6, 5, dtype=torch.int32))


def test_in_place_errors():
    check_error(lambda t: t.expand(4, 3).add_(1), torch.zeros(1, 3))
    check_error(lambda t, u: t.add_(u), torch.zeros(3), torch.zeros(4, 3))
    check_error(lambda t: t.add_(1.5), torch.zeros(3, dtype=torch.int32))
    check_error(lambda t: t[1:].add_(t[:-1]), torch.zeros(9))
    check_error(lambda t: torch.add(t, t, alpha=1.5), torch.zeros(3, dtype=torch.int32))
    check_error(lambda a, b: a + b, torch.zeros(3), torch.zeros(4))


def test_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3).to("minitorch") + torch.ones(3)


@pytest.mark.parametrize("to", ALL, ids=str)
def test_casts(to):
    for dtype in ALL:
        x = values(dtype)
        if dtype.is_floating_point:
            x = x.nan_to_num(0, 0, 0).clamp(0, 100)  # conversions out of range are undefined in native
        check(lambda t: t.to(to), x.real.clone() if dtype.is_complex and not to.is_complex else x)
        check(
            lambda t: t.t().to(to),
            x[:256].reshape(16, 16).real.clone() if dtype.is_complex and not to.is_complex else x[:256].reshape(16, 16),
        )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64, torch.complex128], ids=str)
def test_copies(dtype):
    x = torch.arange(3 * 70 * 130).reshape(3, 70, 130).to(dtype)
    check(lambda t: t.transpose(1, 2).contiguous(), x)
    check(lambda t: t.permute(2, 0, 1).contiguous(), x)
    check(lambda t: t[:, ::3, 1:].clone(memory_format=torch.contiguous_format), x)
    check(lambda t: t[None].to(memory_format=torch.channels_last), x)
    check(lambda t: t.transpose(1, 2).fill_(7), x)
    check(lambda t: t[:, ::2].zero_(), x)
    check(lambda t: t.copy_(t[0].clone()), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("alpha", [2, 0.3, -1.7, 100.0, 1e-3])
def test_a_factor_rounds_as_in_native(alpha, dtype):
    a, b = values(dtype, 4096), values(dtype, 4096, seed=1)  # whole vectors: native's remainder rounds otherwise
    if ASYNCHRONOUS:  # as native CUDA, which rounds neither the factor nor the product
        check(lambda a, b: torch.add(a, b, alpha=alpha), a, b, wide=True)
        check(lambda a, b: torch.sub(a, b, alpha=alpha), a, b, wide=True)
        return
    check(lambda a, b: torch.add(a, b, alpha=alpha), a, b)
    check(lambda a, b: torch.sub(a, b, alpha=alpha), a, b)
    check(lambda a, b: a.view(64, 64).t().clone().add_(b.view(64, 64), alpha=alpha), a, b)
    check(lambda a: torch.add(a, 0.7, alpha=alpha), a)
    check(lambda a, b: torch.add(a, b.float(), alpha=alpha), a, b, exact=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_products_of_all_with_all(dtype):
    """Rows that repeat from group to group beside elements that repeat within a row."""
    for outer, inner in (
        ((3, 130), (5, 16)),
        ((64, 64), (16, 16)),
        ((40, 33), (3, 7)),
        ((4, 5), (300, 3)),
        ((70, 9), (2, 64)),
    ):
        x, y = values(dtype, outer[0] * outer[1]).view(outer), values(dtype, inner[0] * inner[1], 1).view(inner)
        check(torch.kron, x, y)
        check(lambda p, q: p[:, None, :, None] - q[None, :, None, :], x, y)
        check(lambda p, q: torch.where(q[None, :, None, :] > 0, p[:, None, :, None], 1), x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("fn", [torch.add, torch.sub, torch.mul, torch.div])
def test_one_element_beside_a_row(fn, dtype):
    """Numbers, and columns beside matrices, as either operand; rows short and long, and too long for the cache."""
    for shape in ((5, 300), (200, 40), (70000,), (3, 4, 90), ((1 << 22) + 3,)):
        x = torch.rand(shape, dtype=dtype) + 0.5
        for one in (x[..., :1].clone(), torch.tensor(0.1, dtype=torch.float64), torch.tensor(3), x[..., 1:2]):
            check(fn, x, one)
            check(fn, one, x)
        check(lambda x: [fn(x, 0.1), fn(0.1, x) if fn is torch.mul else fn(torch.tensor(0.1), x)], x)
        check(lambda x: x.add_(0.1).mul_(0.3), x)


EXPANDED = {
    "all": lambda x: x[0, 0, 0].expand(3, 4, 5),
    "inner": lambda x: x[:, :1, :1].expand(3, 4, 5),
    "middle": lambda x: x[:, :1].expand(3, 4, 5),
    "turned": lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0)[:, :, :1].expand(3, 4, 5),
}
ORDERED = {
    "turned": lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "reversed": lambda x: x.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "contiguous": lambda x: x,
}
PROMOTING = {
    "add": torch.add,
    "div": torch.div,
    "lt": torch.lt,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "floor_divide": torch.floor_divide,
    "logical_xor": torch.logical_xor,
    "rsub": torch.rsub,
    "addcmul": lambda a, b: torch.addcmul(a, b, b),
    "clamp": torch.clamp,
    "foreach": lambda a, b: torch._foreach_add([a], [b])[0],
    "out": lambda a, b: torch.add(a, b, out=torch.empty(0, dtype=torch.float64, device=a.device)),
}


@pytest.mark.skipif(ASYNCHRONOUS, reason="CUDA's kernels convert as they go, native's as well")
@pytest.mark.parametrize("operator", PROMOTING)
def test_strides_where_an_expanded_operand_is_cast(operator):
    """Native casts before it orders dimensions, so that an expanded operand counts as a dense one."""
    for expanded, ordered in itertools.product(EXPANDED.values(), ORDERED.values()):
        for narrow, wide in ((torch.int64, torch.float64), (torch.float64, torch.int64), (torch.int32, torch.int32)):
            results = []
            for device in ("cpu", "minitorch"):
                a = expanded(torch.arange(1, 61, device=device).reshape(3, 4, 5).to(narrow))
                b = ordered(torch.arange(1, 61, device=device).reshape(3, 4, 5).to(wide) % 7 + 1)
                results += [PROMOTING[operator](a, b), PROMOTING[operator](b, a)]
            for native, ours in zip(results[:2], results[2:], strict=True):
                assert ours.stride() == native.stride()
                torch.testing.assert_close(ours.cpu(), native)
