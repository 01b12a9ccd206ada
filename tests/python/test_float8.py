"""Numbers of eight bits: conversions bit for bit as native's, filling, reading, moving, equality, printing, products."""

import pytest
import torch

from tests import older_torch
from tests.python.twin import ASYNCHRONOUS, check, check_error

DEVICE = "minitorch"
FORMATS = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
CODES = torch.arange(256, dtype=torch.uint8)

# Native's checks and roundings of products were others before.
products = pytest.mark.skipif(
    older_torch.version(torch.__version__) < (2, 13), reason="products as torch 2.13 has them"
)


def same_bytes(device, host):
    assert device.dtype == host.dtype and device.stride() == host.stride()
    assert torch.equal(device.cpu().view(torch.uint8), host.view(torch.uint8))


@pytest.fixture(params=FORMATS, ids=lambda f: str(f).removeprefix("torch.float8_"))
def format(request):
    return request.param


def test_every_number_read(format):
    x = CODES.view(format)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.bool):
        torch.testing.assert_close(x.to(DEVICE).to(dtype).cpu(), x.to(dtype), equal_nan=True, rtol=0, atol=0)
    signs = x.to(DEVICE).float().signbit().cpu()
    assert torch.equal(signs[~x.isnan()], x.float().signbit()[~x.isnan()])


def test_rounding(format):
    """All exponents with mantissas around every tie of every format, NaN and infinity among them."""
    tails = torch.tensor([0, 1, 2, 3], dtype=torch.int64).mul(1 << 19)[:, None] + torch.tensor([-1, 0, 1])
    bits = (torch.arange(1 << 12)[:, None, None] * (1 << 20) + tails).flatten().clamp(0, (1 << 32) - 1)
    x = bits.to(torch.uint32).view(torch.float32)
    same_bytes(x.to(DEVICE).to(format), x.to(format))
    small = x.clamp(-1e4, 1e4).nan_to_num(1.0)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        same_bytes(small.to(dtype).to(DEVICE).to(format), small.to(dtype).to(format))
    for dtype in (torch.int64, torch.uint8, torch.bool):
        integers = torch.tensor([0, 1, 3, 17, 100, 240]).to(dtype)
        same_bytes(integers.to(DEVICE).to(format), integers.to(format))


def test_between_formats(format):
    for other in FORMATS:
        same_bytes(CODES.to(DEVICE).view(format).to(other), CODES.view(format).to(other))


def test_layouts_and_devices(format):
    x = torch.linspace(-4, 4, 24).reshape(4, 6)
    host = x.t()[1:].to(format)
    same_bytes(x.to(DEVICE).t()[1:].to(format), host)
    same_bytes(x.t()[1:].to(device=DEVICE, dtype=format), host)
    assert torch.equal(host.to(DEVICE).to("cpu", torch.float32), host.float())
    target, expected = torch.zeros(3, 4, device=DEVICE), torch.zeros(3, 4)
    target[:, ::2].copy_(host.to(DEVICE)[0, :2])
    expected[:, ::2].copy_(host[0, :2])
    assert torch.equal(target.cpu(), expected)
    assert torch.empty(0, 3, device=DEVICE).to(format).shape == (0, 3)


def test_gradients_pass(format):
    x = torch.tensor([0.3, -2.2], device=DEVICE, requires_grad=True)
    x.to(format).float().sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_filling_and_reading(format):
    for make in (
        lambda d: torch.full((3,), 1.5, dtype=format, device=d),
        lambda d: torch.zeros(3, dtype=format, device=d),
        lambda d: torch.ones(2, 3, dtype=format, device=d)[:, 1:].fill_(4),
        lambda d: torch.tensor([1.0, 0.25], dtype=format, device=d),
    ):
        same_bytes(make(DEVICE).contiguous(), make("cpu").contiguous())
    x = torch.tensor([1.0, 0.5], device=DEVICE).to(format)
    assert x[1].item() == 0.5 and x.tolist() == [1.0, 0.5]
    for value in (1e9, float("inf")):
        messages = []
        for device in ("cpu", DEVICE):
            try:
                messages.append(torch.zeros(2, device=device).to(format).fill_(value).float().tolist())
            except RuntimeError as error:
                messages.append(str(error))
        assert str(messages[0]) == str(messages[1])


@pytest.mark.parametrize("values", [[1.0, 2.0, 0.5], [[0.0, 1.0], [2.0, 4.0]], 1.5, [], [float("nan"), 1.0]])
def test_printing(format, values):
    x = torch.tensor(values).to(format)
    text = repr(x.to(DEVICE)).replace(f"device='{DEVICE}:0',", "")  # which may have made a line too long
    assert text.split() == repr(x).split()


PICKED, MASK = torch.tensor([2, 0, -1]), torch.tensor([[True], [False], [True]])
MOVED = {
    "index": lambda x, d: x[PICKED.to(d)],
    "index two": lambda x, d: x[PICKED.to(d), PICKED.to(d)],
    "mask": lambda x, d: x[MASK[:, 0].to(d)],
    "masked_select": lambda x, d: x.masked_select(MASK.to(d)),
    "where": lambda x, d: torch.where(MASK.to(d), x, x[0]),
    "index_select": lambda x, d: x.index_select(1, torch.tensor([3, 0], device=d)),
    "index_select of a vector": lambda x, d: x[1].index_select(0, torch.tensor([3, 0], device=d)),
    "embedding": lambda x, d: torch.nn.functional.embedding(torch.tensor([[2, 0]], device=d), x),
    "index_put": lambda x, d: x.clone().index_put_((PICKED.to(d)[:2],), x[:1]),
}


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_moving(format, name, layout):
    x = CODES[60:72].view(format).reshape(3, 4) if layout == "contiguous" else CODES[60:72].view(format).view(4, 3).t()
    if name == "index_put" and format == torch.float8_e8m0fnu:
        with pytest.raises(NotImplementedError, match="Float8_e8m0fnu"):
            MOVED[name](x.to(DEVICE), DEVICE)
        return
    same_bytes(MOVED[name](x.to(DEVICE), DEVICE), MOVED[name](x, "cpu"))


def test_a_bad_index_reads_nothing(format):
    with pytest.raises(IndexError, match=r"index 3 is out of bounds for dimension (0 )?with size 3"):
        CODES[:3].to(DEVICE).view(format)[torch.tensor([3], device=DEVICE)]
        torch.minitorch.synchronize()


@pytest.mark.skipif(not ASYNCHRONOUS, reason="the CPU accumulates")
def test_accumulating_is_refused(format):
    x = CODES[:3].to(DEVICE).view(format)
    with pytest.raises(NotImplementedError, match="not implemented for 'Float8"):
        x.index_put_((torch.tensor([1, 1], device=DEVICE),), x[:2].clone(), accumulate=True)


def test_equality(format):
    x, y = CODES.view(format), CODES.flip(0).view(format)
    for f in (torch.eq, torch.ne):
        for a, b in ((x, y), (x, x), (x[::3], 0.3), (x, 0), (x.view(16, 16).t(), y[:16]), (x, torch.tensor(2.0))):
            other = b.to(DEVICE) if isinstance(b, torch.Tensor) and b.dim() else b
            assert torch.equal(f(a.to(DEVICE), other).cpu(), f(a, b))
        out = torch.zeros(256, dtype=torch.int8, device=DEVICE)
        assert f(x.to(DEVICE), y.to(DEVICE), out=out) is out and torch.equal(out.cpu().bool(), f(x, y))


@pytest.mark.parametrize("name", ["abs", "isnan", "isinf", "isfinite"])
def test_magnitude_and_classes(format, name):
    results = []
    for x in (CODES.to(DEVICE).view(format), CODES.view(format)):
        try:
            results.append(getattr(x, name)().cpu().view(torch.uint8).tolist())
        except NotImplementedError as error:  # native lacks some for some formats
            assert "Float8" in str(error)
            results.append("refused")
    assert results[0] == results[1]


FLOAT8 = torch.float8_e4m3fn


def operands(rows=15, inner=16, columns=32, first=FLOAT8, second=FLOAT8):
    torch.manual_seed(3)
    return torch.randn(rows, inner).to(first), torch.randn(columns, inner).to(second).t()


def one(value=2.0, dtype=torch.float32):
    return torch.tensor(value, dtype=dtype)


ROWS, COLUMNS = torch.arange(1.0, 16).view(15, 1), torch.arange(1.0, 33).view(1, 32)
SCALED = {  # arguments behind the matrices
    "one scale each": ([one(), one(0.5)], {}),
    "a scale with dimensions": ([one().view(1, 1, 1)[0], one().view(1)], {}),
    "rows and columns": ([ROWS, COLUMNS], {}),
    "bias": ([one(), one(), torch.arange(32.0)], {}),
    "bias of another dtype": ([one(), one(), torch.arange(32)], {"out_dtype": torch.bfloat16}),
    "scale of a float8 result": ([one(), one()], {"scale_result": one(4.0), "out_dtype": torch.float8_e5m2}),
    "scale of another result": ([one(), one()], {"scale_result": one(4.0), "out_dtype": torch.float16}),
    **{str(d): ([one(), one()], {"out_dtype": d}) for d in (torch.float32, torch.float64, torch.float16, torch.int32)},
}
REFUSED = {
    "scales of two elements": ([torch.ones(2), one()], {}),
    "scales in double": ([one(dtype=torch.float64), one()], {}),
    "rows without columns": ([ROWS, one()], {}),
    "a short bias": ([one(), one(), torch.ones(31)], {}),
    "a bias with dimensions": ([one(), one(), torch.ones(32, 1)], {}),
    "a scale of the result in double": ([one(), one()], {"scale_result": one(dtype=torch.float64)}),
}


@products
@pytest.mark.parametrize("second", [FLOAT8, torch.float8_e5m2])
@pytest.mark.parametrize("name", SCALED)
def test_scaled_products(name, second):
    args, options = SCALED[name]
    check(lambda *a: torch._scaled_mm(*a[:-1], **a[-1]), *operands(second=second), *args, options, exact=False)


@products
@pytest.mark.parametrize("name", REFUSED)
def test_scaled_products_refused(name):
    args, options = REFUSED[name]
    check_error(lambda *a: torch._scaled_mm(*a[:-1], **a[-1]), *operands(), *args, options)


@products
@pytest.mark.parametrize("sizes", [(0, 16, 32), (15, 0, 32), (1, 7, 3), (129, 300, 65)])
def test_scaled_products_of_any_size(sizes):
    check(lambda a, b, s: torch._scaled_mm(a, b, s, s, out_dtype=torch.float32), *operands(*sizes), one(), exact=False)


@products
def test_scaled_products_of_what_is_no_float8():
    a, b = operands()
    for first, second in ((a.float(), b.float()), (a, b.bfloat16()), (a[None], b), (a, b[None]), (a, b.t())):
        check_error(lambda x, y, s: torch._scaled_mm(x, y, s, s), first, second, one())


@products
def test_scaled_products_into_a_tensor():
    a, b = operands()
    for out in (
        torch.empty(0),
        torch.ones(32, 15).t(),
        torch.ones(15, 32, dtype=torch.int64),
        torch.ones(15, 32).to(FLOAT8),
    ):
        check(lambda x, y, s, o: torch._scaled_mm(x, y, s, s, out=o), a, b, one(), out, exact=False)
    check_error(
        lambda x, y, s, o: torch._scaled_mm(x, y, s, s, out_dtype=torch.half, out=o), a, b, one(), torch.ones(3)
    )


RECIPES = {  # scales, recipe and swizzle of each matrix, bias, dtype, contracted dimensions
    "one scale each": ([one()], [0], [0], [one()], [0], [0], None, torch.bfloat16),
    "rows and columns": ([ROWS], [1], [0], [COLUMNS], [1], [0], torch.ones(32), None),
    "no swizzle named": ([one()], [0], [], [one()], [0], [1], None, torch.float32, [1, 0]),
    "two recipes": ([ROWS], [1], [0], [one()], [0], [0], None, None),
    "recipes of other devices": ([one()], [3], [0], [one()], [3], [0], None, None),
    "no scale": ([], [0], [0], [one()], [0], [0], None, None),
    "no scale of the second": ([one()], [0], [0], [], [0], [0], None, None),
    "swizzled": ([one()], [0], [1], [one()], [0], [0], None, None),
    "too many scales": ([torch.ones(2)], [0], [0], [one()], [0], [0], None, None),
    "rows of another number": ([ROWS[1:]], [1], [0], [COLUMNS], [1], [0], None, None),
    "columns of another number": ([ROWS], [1], [0], [COLUMNS[:, 1:]], [1], [0], None, None),
    "rows in one dimension": ([ROWS[:, 0]], [1], [0], [COLUMNS[0]], [1], [0], None, None),
    "a bias of integers": ([one()], [0], [0], [one()], [0], [0], torch.arange(32), None),
    "one contracted dimension": ([one()], [0], [0], [one()], [0], [0], None, None, [1]),
    "contracted dimensions of two sizes": ([one()], [0], [0], [one()], [0], [0], None, None, [0, 0]),
}


@products
@pytest.mark.parametrize("name", RECIPES)
def test_scaled_products_by_recipe(name):
    product, args = torch.ops.aten._scaled_mm_v2, (*operands(), *RECIPES[name])
    try:
        product(*args)
    except (RuntimeError, ValueError, IndexError):
        check_error(product, *args)
    else:
        check(product, *args, exact=False)


@products
def test_scales_that_are_not_contiguous():
    texts = []
    for device in ("cpu", DEVICE):
        a, b, rows, columns = (t.to(device) for t in (*operands(), ROWS, torch.ones(1, 64)))
        with pytest.raises(ValueError) as first:
            torch._scaled_mm(a, b, rows, columns[:, ::2])
        with pytest.raises(ValueError) as second:
            torch.ops.aten._scaled_mm_v2(a, b, [rows], [1], [0], [columns[:, ::2]], [1], [0], None, None)
        texts.append((str(first.value), str(second.value)))
    assert texts[0] == texts[1]


PRODUCTS = {
    "tensors": lambda t: (t * t.flip(0)).float(),
    "in place": lambda t: t.mul_(t.clone()).float(),
    "broadcast": lambda t: (t * t[:1]).float(),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("format", FORMATS)
def test_products(format, name):
    check(PRODUCTS[name], (torch.randn(5, 7) * 3).to(format))


@pytest.mark.parametrize("format", FORMATS)
def test_no_product_with_a_number(format):
    for call in (lambda t: t * 2, lambda t: t + t, torch.sum, torch.count_nonzero):
        check_error(lambda t: call(t.to(format)), torch.ones(3))


@pytest.mark.parametrize("format", FORMATS)
def test_truth_and_wider_sums(format):
    t = torch.tensor([[0.0, 1.5], [0.0, 0.0], [2.0, -3.0]]).to(format)
    for reduction in (torch.any, torch.all):
        check(reduction, t)
        check(lambda t: reduction(t, 1), t)
    check(lambda t: t.sum(1, dtype=torch.float32), t)
    check(lambda t: t.flip(0).float(), t)


@products
@pytest.mark.parametrize("dtype", FORMATS[:4], ids=str)
def test_products_of_matrices(dtype):
    a, b, c = ((torch.randn(s) * 2).to(dtype) for s in ((5, 7), (7, 6), (5, 6)))
    weight, bias = b.float().t().to(dtype), c[0]
    for fn in (
        lambda a, b, c, w, v: a @ b,
        lambda a, b, c, w, v: torch.addmm(c, a, b),
        lambda a, b, c, w, v: torch.addmm(c, a, b, beta=0.5, alpha=2),
        lambda a, b, c, w, v: torch.addmm(v, a, b),
        lambda a, b, c, w, v: torch.mm(a, b, out=torch.empty_like(c)),
        lambda a, b, c, w, v: c.clone().addmm_(a, b),
        lambda a, b, c, w, v: torch.nn.functional.linear(a, w),
        lambda a, b, c, w, v: torch.nn.functional.linear(a, w, v),
        lambda a, b, c, w, v: torch.addbmm(c, a[None], b[None]),
        lambda a, b, c, w, v: torch.matmul(a[None], b),
        lambda a, b, c, w, v: a.t().contiguous().t() @ b,
        lambda a, b, c, w, v: torch.linalg.multi_dot([a, b, w]),
    ):
        native = fn(a, b, c, weight, bias)
        ours = fn(*(t.to(DEVICE) for t in (a, b, c, weight, bias)))
        assert ours.dtype == native.dtype and ours.stride() == native.stride()
        torch.testing.assert_close(ours.cpu().float(), native.float(), rtol=0, atol=0, equal_nan=True)


@products
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e8m0fnu], ids=str)
def test_products_that_native_refuses(dtype):
    a, b = (torch.ones(3, 3).to(dtype) for _ in range(2))
    calls = [torch.mv, torch.dot, torch.bmm] + ([torch.mm] if dtype == torch.float8_e8m0fnu else [])
    for fn in calls:
        args = {torch.mv: (a, b[0]), torch.dot: (a[0], b[0]), torch.bmm: (a[None], b[None]), torch.mm: (a, b)}[fn]
        with pytest.raises(NotImplementedError) as native:
            fn(*args)
        with pytest.raises(NotImplementedError) as ours:
            fn(*(t.to(DEVICE) for t in args))
        assert str(ours.value) == str(native.value)


@pytest.mark.skipif(ASYNCHRONOUS, reason="on the CPU only")
def test_accumulate(format):
    """Each sum is rounded before the next is added."""
    if format == torch.float8_e8m0fnu:
        check_error(lambda x: x.index_put((torch.tensor([0], device=x.device),), x[:1], True), torch.ones(3).to(format))
        return
    torch.manual_seed(0)
    x, values = torch.randn(5, 3).to(format), torch.randn(40, 3).to(format)
    index = torch.randint(-5, 5, (40,))
    for layout in (x, x.t().contiguous().t()):
        native = layout.clone().index_put_((index,), values, accumulate=True)
        ours = layout.to(DEVICE).index_put_((index.to(DEVICE),), values.to(DEVICE), accumulate=True)
        same_bytes(ours, native)
    columns = torch.randint(3, (40,))
    native = x.clone().index_put_((index, columns), values[0, 0], accumulate=True)
    ours = x.to(DEVICE).index_put_((index.to(DEVICE), columns.to(DEVICE)), values[0, 0].to(DEVICE), accumulate=True)
    same_bytes(ours, native)
    check_error(lambda x: x.index_put((torch.tensor([5], device=x.device),), x[:1], accumulate=True), x)


WRITTEN = {
    "exp": torch.exp,
    "sigmoid of integers": lambda x, out: torch.sigmoid(x.to(torch.int64), out=out),
    "add": lambda x, out: torch.add(x, x.t().contiguous().t(), out=out),
    "add a number": lambda x, out: torch.add(x, 1.5, out=out),
    "integers and floats": lambda x, out: torch.mul(x.to(torch.int32), x, out=out),
    "broadcast": lambda x, out: torch.div(x[0], x, out=out),
    "compare": lambda x, out: torch.lt(x, x.flip(0), out=out),
    "pow": lambda x, out: torch.pow(x, 3, out=out),
    "lerp": lambda x, out: torch.lerp(x, x.flip(0), 0.25, out=out),
    "addcmul": lambda x, out: torch.addcmul(x, x, x, value=0.5, out=out),
    "logical_and": lambda x, out: torch.logical_and(x, x, out=out),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_by_pointwise_operators(name, format):
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.randn(5, 6).abs().to(dtype)
        native, ours = torch.zeros(6, 5).to(format).t(), torch.zeros(6, 5, device=DEVICE).to(format).t()
        WRITTEN[name](x, out=native)
        WRITTEN[name](x.to(DEVICE), out=ours)
        same_bytes(ours, native)
