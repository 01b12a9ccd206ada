"""Matrix products against native CPU: values, layouts, dtypes, out=, in-place, gradients and errors."""

import itertools

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, DEVICE, check_error, error_of

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
COMPLEX = [torch.complex64, torch.complex128]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def make(shape, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    if dtype in INTS:
        return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=g, dtype=dtype)
    return torch.randn(shape, generator=g, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)


def layouts(t):
    """The same values in different memory: as they are, transposed, sliced with an offset, negative-free strides of 2."""
    last = t.dim() - 1
    yield t
    yield t.transpose(-1, last - 1).contiguous().transpose(-1, last - 1)
    big = torch.zeros([s + 3 for s in t.shape], dtype=t.dtype)
    view = big[tuple(slice(1, s + 1) for s in t.shape)]
    yield view.copy_(t)
    wide = torch.zeros([*list(t.shape[:-1]), 2 * t.shape[-1]], dtype=t.dtype)[..., ::2]
    yield wide.copy_(t)


def to_device(t):
    """Moves the whole storage, so that strides and offset survive."""
    base = t.new_empty(0).set_(t.untyped_storage()) if t.numel() else t
    return base.to(DEVICE).as_strided(t.shape, t.stride(), t.storage_offset()) if t.numel() else t.to(DEVICE)


def check(actual, expected, dtype=None, depth=64):
    dtype = dtype or expected.dtype
    assert actual.device.type == DEVICE and actual.dtype == expected.dtype
    assert actual.shape == expected.shape and actual.stride() == expected.stride()
    if dtype in (torch.float32, torch.complex64):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=2e-6 * depth**0.5)
    elif dtype in (torch.bfloat16, torch.float16):
        # One rounding of results of size sqrt(depth) to 8 or 11 bits, where native may round its own way.
        ulp = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
        torch.testing.assert_close(actual.cpu(), expected, rtol=2 * ulp, atol=ulp * depth**0.5)
    else:
        torch.testing.assert_close(actual.cpu(), expected)


def repeated(rows, columns, dtype, seed):
    """Matrices with a stride of zero: one row, one column or one number for all."""
    for shape in ((1, columns), (rows, 1), (1, 1)):
        yield make(shape, dtype, seed).expand(rows, columns)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX + INTS)
@pytest.mark.parametrize("m, k, n", [(5, 10, 5), (9, 72, 40), (128, 64, 128)])
def test_expanded(dtype, m, k, n):
    """A stride of zero is smaller than that of neighbours and still not the direction in which memory runs."""
    a, b = make((m, k), dtype), make((k, n), dtype, 1)
    for x in (a, *repeated(m, k, dtype, 2)):
        for y in (b, *repeated(k, n, dtype, 3)):
            check(torch.mm(to_device(x), to_device(y)), torch.mm(x, y), depth=4 * k * k)
    for x in repeated(m, k, dtype, 2):
        check(torch.mv(to_device(x), to_device(b[:, 0])), torch.mv(x, b[:, 0]), depth=4 * k * k)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX + INTS)
def test_mm_layouts(dtype):
    a, b = make((17, 33), dtype), make((33, 40), dtype, 1)
    expected = a @ b
    for x, y in itertools.product(layouts(a), layouts(b)):
        check(torch.mm(to_device(x), to_device(y)), expected)


@pytest.mark.parametrize(
    "m,k,n",
    [
        (1, 1, 1),
        (1, 50, 1),
        (1, 64, 300),
        (300, 64, 1),
        (5, 300, 7),
        (3, 2, 130),
        (0, 4, 5),
        (4, 0, 5),
        (4, 5, 0),
        (64, 513, 64),
        (129, 257, 65),
        (2, 1000, 3),
        (16, 9000, 16),  # a small result of a long sum
        (27, 300, 33),
        (60, 40, 50),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
def test_sizes(m, k, n, dtype):
    a, b, c = make((m, k), dtype), make((k, n), dtype, 1), make((m, n), dtype, 2)
    check(torch.mm(a.to(DEVICE), b.to(DEVICE)), torch.mm(a, b), depth=max(k, 1))
    check(torch.mm(a.to(DEVICE), b.t().contiguous().to(DEVICE).t()), torch.mm(a, b), depth=max(k, 1))
    args = dict(alpha=3, beta=2)
    check(
        torch.addmm(c.to(DEVICE), a.to(DEVICE), b.to(DEVICE), **args), torch.addmm(c, a, b, **args), depth=9 * max(k, 1)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex128, torch.int32])
def test_every_operator(dtype):
    a, b, c = make((6, 20), dtype), make((20, 9), dtype, 1), make((6, 9), dtype, 2)
    ba, bb, bc = make((3, 6, 20), dtype), make((3, 20, 9), dtype, 1), make((3, 6, 9), dtype, 2)
    u, v, w = make((20,), dtype), make((20,), dtype, 1), make((6,), dtype, 2)
    scale = dict(alpha=2, beta=3)
    cases = [
        (torch.mm, (a, b), {}),
        (torch.bmm, (ba, bb), {}),
        (torch.addmm, (c, a, b), scale),
        (torch.addmm, (c[0], a, b), scale),
        (torch.addmm, (c[:, :1], a, b), {}),
        (torch.addmm, (c[0, 0], a, b), scale),
        (torch.baddbmm, (bc, ba, bb), scale),
        (torch.baddbmm, (bc[0], ba, bb), scale),
        (torch.baddbmm, (bc, ba, bb), dict(beta=0)),
        (torch.addbmm, (c, ba, bb), scale),
        (torch.addmv, (w, a, u), scale),
        (torch.addmv, (w[0], a, u), scale),
        (torch.mv, (a, u), {}),
        (torch.dot, (u, v), {}),
        (torch.vdot, (u, v), {}),
        (torch.outer, (u, w), {}),
        (torch.addr, (make((20, 6), dtype, 5), u, w), scale),
        (torch.matmul, (ba, bb), {}),
        (torch.matmul, (ba, b), {}),
        (torch.matmul, (ba, u), {}),
        (torch.matmul, (u, bb), {}),
        (torch.matmul, (ba[:, None], bb[None]), {}),
        (torch.nn.functional.linear, (ba, b.t()), {}),
        (torch.nn.functional.linear, (ba, b.t(), c[0]), {}),
        (torch.nn.functional.linear, (a, b.t(), c[0]), {}),
        (torch.nn.functional.linear, (u, b.t(), c[0]), {}),
        (torch.tensordot, (ba, bb), dict(dims=([0, 2], [0, 1]))),
    ]
    for op, args, kwargs in cases:
        expected = op(*args, **kwargs)
        actual = op(*(x.to(DEVICE) for x in args), **kwargs)
        check(actual, expected, depth=800)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_lazy_conjugation(dtype):
    a, b = make((7, 20), dtype), make((20, 21), dtype, 1)
    u, v = make((20,), dtype), make((20,), dtype, 1)
    da, db, du, dv = (t.to(DEVICE) for t in (a, b, u, v))
    check(da.conj() @ db, a.conj() @ b)
    check(db.mH @ da.mH, b.mH @ a.mH)
    check(da @ db.conj(), a @ b.conj())
    check(torch.dot(du.conj(), dv.conj()), torch.dot(u.conj(), v.conj()))
    check(torch.vdot(du.conj(), dv), torch.vdot(u.conj(), v))
    for f in (torch.dot, torch.vdot):  # the result may be conjugated lazily, where native's is
        for x, y, dx, dy in ((u.conj(), v.conj(), du.conj(), dv.conj()), (u, v.conj(), du, dv.conj())):
            check(f(dx, dy), f(x, y))
            assert f(dx, dy).is_conj() == f(x, y).is_conj()
    check(torch.mv(da, du.conj()), torch.mv(a, u.conj()))
    check(torch.addmm(da[:, :1].conj(), da, db), torch.addmm(a[:, :1].conj(), a, b))
    check(torch.mm(da.conj().imag, db.real), torch.mm(a.conj().imag, b.real))
    out = torch.zeros(7, 21, dtype=dtype, device=DEVICE).conj()
    torch.testing.assert_close(torch.mm(da, db, out=out).cpu(), a @ b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_out(dtype):
    a, b = make((5, 8), dtype), make((8, 6), dtype, 1)
    expected = a @ b
    da, db = a.to(DEVICE), b.to(DEVICE)
    for out in layouts(torch.full((5, 6), float("nan"), dtype=dtype)):
        d = to_device(out)
        stride = d.stride()
        assert torch.mm(da, db, out=d) is d
        assert d.stride() == stride
        torch.testing.assert_close(d.cpu(), expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
    grown = torch.empty(0, dtype=dtype, device=DEVICE)
    torch.mm(da, db, out=grown)
    assert grown.shape == (5, 6)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        torch.mm(da, db, out=torch.empty(5, 6, dtype=torch.float64, device=DEVICE))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.mm(da, db, out=torch.zeros(1, 6, dtype=dtype, device=DEVICE).expand(5, 6))
    vector = torch.empty(5, dtype=dtype, device=DEVICE)
    torch.mv(da, db[:, 0], out=vector)
    torch.testing.assert_close(vector.cpu(), torch.mv(a, b[:, 0]), rtol=1e-2, atol=1e-2)


def test_out_is_an_input():
    a, b, c = make((6, 6)), make((6, 6), seed=1), make((6, 6), seed=2)
    for i in range(3):
        args = [t.to(DEVICE) for t in (a, b, c)]
        torch.addmm(*args, out=args[i])
        torch.testing.assert_close(args[i].cpu(), torch.addmm(a, b, c))
    x = make((3, 4, 4))
    d = x.to(DEVICE)
    torch.bmm(d, d, out=d)
    torch.testing.assert_close(d.cpu(), torch.bmm(x, x))
    big = make((8, 8))
    d = big.to(DEVICE)
    torch.mm(d[:4, :4], d[2:6, 2:6], out=d[1:5, 1:5])
    torch.testing.assert_close(d[1:5, 1:5].cpu(), big[:4, :4] @ big[2:6, 2:6])


def test_inplace():
    a, b, c = make((6, 8)), make((8, 5), seed=1), make((6, 5), seed=2)
    ba, bb, bc = make((3, 6, 8)), make((3, 8, 5), seed=1), make((3, 6, 5), seed=2)
    for method, self, args in [
        ("addmm_", c, (a, b)),
        ("addbmm_", c, (ba, bb)),
        ("baddbmm_", bc, (ba, bb)),
        ("addmv_", c[:, 0], (a, b[:, 0])),
        ("addr_", c, (a[:, 0], b[0])),
    ]:
        for host in layouts(self.clone()):
            d = to_device(host)
            getattr(d, method)(*(t.to(DEVICE) for t in args), alpha=2, beta=0.5)
            expected = getattr(host.clone(), method)(*args, alpha=2, beta=0.5)
            torch.testing.assert_close(d.cpu(), expected, rtol=1e-5, atol=1e-5)


def test_beta_zero_ignores_nan():
    nan = torch.full((4, 4), float("nan"))
    a = make((4, 4))
    for op, self, args in [
        (torch.addmm, nan, (a, a)),
        (torch.baddbmm, nan[None], (a[None], a[None])),
        (torch.addmv, nan[0], (a, a[0])),
    ]:
        actual = op(self.to(DEVICE), *(t.to(DEVICE) for t in args), beta=0)
        torch.testing.assert_close(actual.cpu(), op(self, *args, beta=0), rtol=1e-5, atol=1e-5)
    a[0, 0] = float("inf")
    torch.testing.assert_close((a.to(DEVICE) @ nan.to(DEVICE)).cpu(), a @ nan, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
@pytest.mark.parametrize("n", [4, 40, 256])
def test_alpha_zero_ignores_nan(dtype, n):
    """As native CUDA's products, and native CPU's of most sizes: beta times the addend, whatever the factors are."""
    bad = torch.full((n, n), float("nan"), dtype=dtype)
    bad[0] = float("inf")
    added = torch.arange(n * n).view(n, n).remainder(7).to(dtype)
    nan, d = bad.to(DEVICE), added.to(DEVICE)
    for alpha in (0, 0.0, -0.0):
        for beta in (1, 2, 0):
            scale = dict(alpha=alpha, beta=beta)
            addends = (d, nan.t()) if beta == 0 else (d,)
            for addend in addends:
                for actual, expected in [
                    (torch.addmm(addend, nan, nan.t(), **scale), added * beta),
                    (torch.addmm(addend[1], nan, nan, **scale), (added[1] * beta).expand(n, n)),  # as linear's bias
                    (torch.addmv(addend[1], nan, nan[0], **scale), added[1] * beta),
                    (torch.baddbmm(addend[None], nan.expand(3, n, n), nan.expand(3, n, n), **scale), added * beta),
                    (torch.addbmm(addend, nan.expand(3, n, n), nan.expand(3, n, n), **scale), added * beta),
                ]:
                    assert torch.equal(actual.cpu(), expected.expand(actual.shape)), (alpha, beta)
    out = d.clone()
    assert torch.equal(out.addmm_(nan, nan, alpha=0, beta=2).cpu(), added * 2)


def test_alpha_that_rounds_to_zero_ignores_nan():
    nan, one = (torch.full((40, 40), value, device=DEVICE) for value in (float("nan"), 1.0))
    assert torch.equal(torch.addmm(one, nan, nan, alpha=1e-60), one)
    assert torch.addmm(one.double(), nan.double(), nan.double(), alpha=1e-60).isnan().all()


def test_integers_wrap():
    a = torch.full((3, 40), 100, dtype=torch.int8)
    assert torch.equal((a.to(DEVICE) @ a.t().to(DEVICE)).cpu(), a @ a.t())
    big = torch.full((2, 2), 2**62 + 1)
    assert torch.equal((big.to(DEVICE) @ big.to(DEVICE)).cpu(), big @ big)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_accuracy(dtype):
    """No further from the exact result than native is, on sums long enough to tell."""
    a, b = make((60, 3000), dtype), make((3000, 50), dtype, 1)
    exact = a.double() @ b.double()
    ours = ((a.to(DEVICE) @ b.to(DEVICE)).cpu().double() - exact).abs().mean()
    native = ((a @ b).double() - exact).abs().mean()
    assert ours <= 1.2 * native


@pytest.mark.parametrize("op", [torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.mv, torch.dot])
def test_gradients(op):
    shapes = {
        torch.mm: [(5, 6), (6, 7)],
        torch.bmm: [(2, 5, 6), (2, 6, 7)],
        torch.addmm: [(7,), (5, 6), (6, 7)],
        torch.baddbmm: [(2, 5, 7), (2, 5, 6), (2, 6, 7)],
        torch.mv: [(5, 6), (6,)],
        torch.dot: [(6,), (6,)],
    }[op]
    host = [make(s, seed=i).requires_grad_() for i, s in enumerate(shapes)]
    device = [t.detach().to(DEVICE).requires_grad_() for t in host]
    expected = op(*host)
    grad = make(tuple(expected.shape), seed=9)
    actual = op(*device)
    for x, y in zip(
        torch.autograd.grad(actual, device, grad.to(DEVICE)), torch.autograd.grad(expected, host, grad), strict=False
    ):
        torch.testing.assert_close(x.cpu(), y, rtol=1e-5, atol=1e-5)


ERRORS = [
    lambda d, a, b, v: torch.mm(a, b[:2]),
    lambda d, a, b, v: torch.mm(a, v),
    lambda d, a, b, v: torch.mm(a, b.double()),
    lambda d, a, b, v: torch.mm(a.bool(), b.bool()),
    lambda d, a, b, v: torch.addmm(a.double(), a, b),
    lambda d, a, b, v: torch.addmm(a[:2, :3], a, b),
    lambda d, a, b, v: torch.addmm(a, a, b, alpha=1j),
    lambda d, a, b, v: torch.bmm(a[None], b[None].double()),
    lambda d, a, b, v: torch.bmm(a[None].double(), b[None]),
    lambda d, a, b, v: torch.bmm(a[None], a[None, :2]),
    lambda d, a, b, v: torch.bmm(a, a),
    lambda d, a, b, v: torch.baddbmm(a[None].double(), a[None], b[None]),
    lambda d, a, b, v: torch.baddbmm(a[None, :3], a[None], b[None]),
    lambda d, a, b, v: torch.baddbmm(a[None].bool(), a[None].bool(), b[None].bool()),
    lambda d, a, b, v: torch.mv(a, v.double()),
    lambda d, a, b, v: torch.mv(a, v[:2]),
    lambda d, a, b, v: torch.addmv(v[:2], a, v),
    lambda d, a, b, v: torch.addmv(v, v, v),
    lambda d, a, b, v: torch.dot(v, v.double()),
    lambda d, a, b, v: torch.dot(v, v[:2]),
    lambda d, a, b, v: torch.dot(a, v),
    lambda d, a, b, v: torch.vdot(v.bool(), v.bool()),
    lambda d, a, b, v: torch.addbmm(a, a[None], b.expand(2, 4, 4)),
    lambda d, a, b, v: a.clone().addmm_(a[:2], b),
    lambda d, a, b, v: v[0].clone().addr_(v, v),
    lambda d, a, b, v: torch.addr(a, a, v),
    lambda d, a, b, v: torch.addr(a, v, v[0]),
    lambda d, a, b, v: torch.addr(a, v, a, out=torch.empty_like(a)),
    lambda d, a, b, v: torch.addr(a, v[:2], v),
    lambda d, a, b, v: a.clone().addr_(v[:2], v),
    lambda d, a, b, v: a[0].clone().addr_(a, v),
    lambda d, a, b, v: torch.addr(a, v, v, alpha=True),
    lambda d, a, b, v: torch.addr(a.int(), v.int(), v.int(), beta=0.5),
    lambda d, a, b, v: torch.addr(a, v, v, out=torch.empty(1, 4, device=d).expand(4, 4)),
    lambda d, a, b, v: torch.addr(a, v, v, out=a.int()),
    lambda d, a, b, v: torch.nn.functional.linear(a, b.double()),
    lambda d, a, b, v: torch.nn.functional.linear(a, b[:, :2]),
    lambda d, a, b, v: torch.nn.functional.linear(a, b, v[:2]),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors_are_natives(case):
    host = (make((4, 4)), make((4, 4), seed=1), make((4,)))
    with pytest.raises(Exception) as expected:
        ERRORS[case]("cpu", *host)
    with pytest.raises(type(expected.value)) as actual:
        ERRORS[case](DEVICE, *(t.to(DEVICE) for t in host))
    assert str(actual.value).split("\n")[0] == str(expected.value).split("\n")[0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint16, torch.int64, torch.float32, torch.complex64], ids=str)
def test_sums_of_nothing_have_every_dtype(dtype):
    a, b, c = (torch.ones(shape).to(dtype) for shape in ((3, 0), (0, 2), (3, 2)))
    for fn, operands in (
        (torch.mm, (a, b)),
        (torch.bmm, (a[None], b[None])),
        (lambda *t: torch.addmm(*t, beta=0), (c, a, b)),
        (torch.matmul, (a, b)),
    ):
        expected, actual = fn(*operands), fn(*(t.to(DEVICE) for t in operands))
        assert actual.dtype == expected.dtype and torch.equal(actual.cpu(), expected)
    if dtype == torch.bool:
        for t in (c, c.to(DEVICE)):
            with pytest.raises(RuntimeError, match="result type Long can't be cast to the desired output type Bool"):
                torch.addmm(t, a.to(t.device), b.to(t.device))
    else:
        assert torch.equal(torch.addmm(c.to(DEVICE), a.to(DEVICE), b.to(DEVICE)).cpu(), torch.addmm(c, a, b))


def test_mixed_devices():
    a = make((4, 4))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.mm(a.to(DEVICE), a)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.dot(a[0].to(DEVICE), a[0])


WITHOUT_TERMS = {
    "mm": lambda a, b, c: a @ b,
    "addmm": lambda a, b, c: torch.addmm(c, a, b),
    "addmm with beta 0": lambda a, b, c: torch.addmm(c, a, b, beta=0),
    "bmm": lambda a, b, c: a[None] @ b[None],
    "baddbmm": lambda a, b, c: torch.baddbmm(c[None], a[None], b[None]),
    "mv": lambda a, b, c: a @ b[:, 0],
    "addmv": lambda a, b, c: torch.addmv(c[:, 0], a, b[:, 0]),
    "addmv with beta 3": lambda a, b, c: torch.addmv(c[:, 0], a, b[:, 0], beta=3),
    "linear": lambda a, b, c: torch.nn.functional.linear(a, b.t()),
    "inner": lambda a, b, c: torch.inner(a, b.t()),
}


@pytest.mark.skipif(ASYNCHRONOUS, reason="native CUDA has fewer dtypes")
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint16, torch.complex32, torch.float8_e4m3fn, torch.float32])
@pytest.mark.parametrize("name", list(WITHOUT_TERMS))
def test_sums_of_no_terms(name, dtype):
    if dtype == torch.float8_e4m3fn and name not in ("mm", "addmm with beta 0", "bmm", "mv", "linear", "inner"):
        pytest.skip("an addend is multiplied by beta, which native has for some of these only")
    a, b, c = (
        torch.ones(s, dtype=torch.complex64).to(dtype) if dtype.is_complex else torch.ones(s).to(dtype)
        for s in ((3, 0), (0, 4), (3, 4))
    )
    if error_of(WITHOUT_TERMS[name], a, b, c) is not None:
        check_error(WITHOUT_TERMS[name], a, b, c)
        return
    result, native = WITHOUT_TERMS[name](a.to(DEVICE), b.to(DEVICE), c.to(DEVICE)), WITHOUT_TERMS[name](a, b, c)
    assert result.dtype == native.dtype and result.shape == native.shape
    wide = torch.complex64 if dtype.is_complex else torch.float32
    assert torch.equal(result.cpu().to(wide), native.to(wide))


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (5,), (2, 3, 4)])
def test_addr_of_a_matrix_that_does_not_fit(shape):
    check_error(torch.addr, make(shape), make((4,)), make((4,)))
    check_error(lambda c, x, y, out: torch.addr(c, x, y, out=out), make(shape), make((4,)), make((4,)), make((4, 4)))
