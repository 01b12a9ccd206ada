"""Reductions against native CPU: values, dtypes, layouts, empty and 0-dim inputs, out=, errors."""

import math
import subprocess
import sys

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, check_error

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]


def make(shape, dtype, seed=0):
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) > 0.4
    if dtype in INTS:
        return torch.randint(0 if dtype == torch.uint8 else -20, 20, shape, generator=g).to(dtype)
    if dtype.is_complex:
        return torch.complex(torch.randn(shape, generator=g), torch.randn(shape, generator=g)).to(dtype)
    return torch.randn(shape, generator=g).to(dtype)


def layouts(dtype):
    """Named views, applied on each device: `.to` would make some of them dense."""
    return {
        "contiguous": lambda t: t,
        "transposed": lambda t: t.transpose(0, 2),
        "permuted": lambda t: t.permute(1, 2, 0),
        "sliced": lambda t: t[1:, ::2, 1:-1],
        "expanded": lambda t: t[:, :1, :].expand(-1, 9, -1),
    }


def as_tuple(r):
    return (
        tuple(r)
        if isinstance(r, (tuple, torch.return_types.max)) or (hasattr(r, "values") and not torch.is_tensor(r))
        else (r,)
    )


def check(fn, *tensors, rtol=None, atol=None, view=lambda t: t, exact=False):
    """`exact` compares with native in double: native's own sums of 16-bit floats and of float are no reference."""
    expected = as_tuple(fn(*(view(t) for t in tensors)))
    if exact and tensors[0].dtype in FLOATS:
        dtype = tensors[0].dtype
        expected = tuple(
            r.to(dtype).as_strided(e.shape, e.stride())
            for e, r in zip(expected, as_tuple(fn(*(view(t).double() for t in tensors))), strict=True)
        )
        rtol, atol = (
            torch.finfo(dtype).eps * 2,
            torch.finfo(torch.float32).eps * 3 * view(tensors[0]).abs().sum().item(),
        )
    actual = as_tuple(fn(*(view(t.to("minitorch")) for t in tensors)))
    assert len(expected) == len(actual)
    for e, a in zip(expected, actual, strict=True):
        assert a.device.type == "minitorch" and a.dtype == e.dtype and a.shape == e.shape and a.stride() == e.stride()
        torch.testing.assert_close(a.cpu(), e, rtol=rtol, atol=atol, equal_nan=True)


REDUCTIONS = {
    "sum": (lambda t, **k: t.sum(**k), FLOATS + INTS + COMPLEX + [torch.bool]),
    "nansum": (lambda t, **k: t.nansum(**k), FLOATS + INTS + [torch.bool]),
    "mean": (lambda t, **k: t.mean(**k), FLOATS + COMPLEX),
    "amax": (lambda t, **k: t.amax(**k), FLOATS + INTS + [torch.bool]),
    "amin": (lambda t, **k: t.amin(**k), FLOATS + INTS + [torch.bool]),
    "any": (lambda t, **k: t.any(**k), FLOATS + INTS + COMPLEX + [torch.bool]),
    "all": (lambda t, **k: t.all(**k), FLOATS + INTS + COMPLEX + [torch.bool]),
    "var": (lambda t, **k: t.var(**k), FLOATS + COMPLEX),
    "std": (lambda t, **k: t.std(**k), FLOATS),
    "norm": (lambda t, **k: torch.linalg.vector_norm(t, **k), FLOATS + COMPLEX),
    "count_nonzero": (lambda t, keepdim=None, **k: torch.count_nonzero(t, **k), FLOATS + INTS + COMPLEX + [torch.bool]),
}
DIMS = [None, 0, 1, -1, (0, 1), (0, 2), (0, 1, 2)]
CASES = [(name, dtype) for name, (_, dtypes) in REDUCTIONS.items() for dtype in dtypes]


@pytest.mark.parametrize("name,dtype", CASES, ids=lambda v: str(v).replace("torch.", ""))
def test_reduction(name, dtype):
    fn = REDUCTIONS[name][0]
    t = make((6, 10, 7), dtype)
    for layout in layouts(dtype).values():
        for dim in DIMS:
            for keepdim in (False, True):
                kwargs = {} if dim is None else {"dim": dim, "keepdim": keepdim}
                if dim is None and keepdim:
                    continue
                check(lambda x: fn(x, **kwargs), t, view=layout, exact=name in ("sum", "nansum", "mean"))


@pytest.mark.parametrize("dtype", FLOATS + INTS + COMPLEX + [torch.bool], ids=str)
def test_prod(dtype):
    t = make((4, 5, 3), dtype).clamp(-2, 2) if not dtype.is_complex and dtype != torch.bool else make((4, 5, 3), dtype)
    tol = {"rtol": 2e-2, "atol": 1e-3} if dtype in (torch.bfloat16, torch.float16) else {}
    for layout in layouts(dtype).values():
        check(lambda x: x.prod(), t, view=layout, **tol)
        for dim in (0, 1, 2):
            check(lambda x: x.prod(dim), t, view=layout, **tol)
            check(lambda x: x.prod(dim, keepdim=True), t, view=layout, **tol)


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool], ids=str)
def test_extrema_with_indices(dtype):
    t = make((6, 11, 8), dtype)  # few distinct integers: ties must pick the first
    for layout in layouts(dtype).values():
        for dim in (0, 1, 2):
            for name in ("max", "min"):
                check(lambda x: getattr(x, name)(dim, keepdim=True), t, view=layout)
            check(lambda x: torch.aminmax(x, dim=dim), t, view=layout)
            if dtype != torch.bool:
                check(lambda x: x.argmax(dim), t, view=layout)
                check(lambda x: x.argmin(dim, keepdim=True), t, view=layout)
        for name in ("max", "min", "aminmax"):
            check(lambda x: getattr(x, name)(), t, view=layout)
        if dtype != torch.bool:
            check(lambda x: x.argmax(), t, view=layout)
            check(lambda x: x.argmin(), t, view=layout)


def test_nan_wins_and_is_found_first():
    t = torch.randn(5, 700)
    t[1, 300] = t[1, 650] = math.nan
    t[2] = math.nan
    t[3] = -math.inf
    t[4] = math.inf
    for name in ("max", "min", "argmax", "argmin", "amax", "amin"):
        for view in (lambda x: x, lambda x: x.t().contiguous().t()):
            check(lambda x: getattr(x, name)(1), t, view=view)
        check(lambda x: getattr(x, name)(), t)
    check(lambda x: torch.nansum(x, 1), t[:3])
    check(lambda x: x.amax(0), t)


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, -1, math.inf, -math.inf])
def test_vector_norm_orders(p):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        t = make((5, 300, 4), dtype)
        for dim in (None, 1, (0, 2), 0):
            # Native's power sums of float are off by several units in the sixth digit.
            tol = {"rtol": 6e-6, "atol": 1e-6} if dtype == torch.float32 else {}
            check(lambda x: torch.linalg.vector_norm(x, p, dim=dim), t, **tol)
            check(lambda x: torch.norm(x, p, dim=dim), t, **tol)
    check(lambda x: torch.linalg.vector_norm(x, p, dtype=torch.float64), make((50,), torch.float32))
    if abs(p) != math.inf:
        check(lambda x: torch.linalg.vector_norm(x, p, dim=1), make((5, 30), torch.complex64))


def test_dtype_argument():
    for source in (torch.bool, torch.uint8, torch.int32, torch.bfloat16, torch.float32, torch.float64):
        t = make((40, 9), source)
        for target in (torch.float32, torch.float64, torch.int32, torch.int64, torch.float16):
            check(
                lambda x: x.sum(0, dtype=target), t, **({"rtol": 1e-2, "atol": 1e-2} if target == torch.float16 else {})
            )
            if target.is_floating_point:
                check(
                    lambda x: x.mean(1, dtype=target),
                    t,
                    **({"rtol": 1e-2, "atol": 1e-2} if target == torch.float16 else {}),
                )
    check(lambda x: x.prod(dtype=torch.float64), make((10,), torch.int16))


def test_integers_are_exact():
    t = torch.tensor([2**62, 2**53 + 1, -3, 2**24 + 1])
    check(lambda x: x.sum(), t)
    check(lambda x: x.max(), t)
    check(lambda x: x.argmax(), torch.tensor([2**53, 2**53 + 1]))
    check(lambda x: x.sum(), torch.full((100,), 127, dtype=torch.int8))
    check(lambda x: x.sum(dtype=torch.int8), torch.full((100,), 127, dtype=torch.int8))


@pytest.mark.parametrize("correction", [0, 1, 2, 0.5, 40, 100])
def test_variance_correction(correction):
    t = make((40, 6), torch.float32) * 3 + 1000
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("var", "std", "var_mean", "std_mean"):
            check(lambda x: getattr(torch, name)(x, dim=0, correction=correction), t)
            check(lambda x: getattr(torch, name)(x, dim=1, correction=correction, keepdim=True), t)
            check(lambda x: getattr(torch, name)(x, correction=correction), t)


def test_variance_warns_like_native():
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        torch.ones(1, device="cpu").to("minitorch").var()


def test_sum_is_at_least_as_exact_as_native():
    for shape, dim in (((1 << 20,), 0), ((4096, 300), 0), ((300, 4096), 1)):
        t = torch.rand(shape) + 0.5
        exact = t.double().sum(dim)
        native = (t.sum(dim).double() - exact).abs().mean()
        ours = (t.to("minitorch").sum(dim).cpu().double() - exact).abs().mean()
        assert ours <= 1.5 * native + 1e-7 * exact.abs().mean()


def test_empty_and_scalar():
    for shape, dim in (((0,), 0), ((3, 0), 1), ((0, 3), 0), ((2, 0, 4), 1), ((3, 0), 0)):
        t = torch.empty(shape)
        for name in ("sum", "mean", "prod", "nansum", "any", "all", "norm"):
            f = torch.linalg.vector_norm if name == "norm" else getattr(torch, name)
            check(lambda x: f(x, dim=dim), t)
            check(lambda x: f(x), t)
        check(lambda x: torch.count_nonzero(x, dim=dim), t)
    check(lambda x: x.max(0), torch.empty(3, 0))
    if not ASYNCHRONOUS:
        for dtype in (*FLOATS, *INTS, torch.bool):
            for f in (torch.max, torch.min):
                check(lambda x, f=f: f(x, out=x.new_zeros(())), torch.empty(0, 3, dtype=dtype))
    scalar = torch.tensor(3.5)
    for name in ("sum", "mean", "prod", "max", "min", "argmax", "amax", "any", "all", "aminmax", "norm"):
        check(lambda x: getattr(torch, name)(x), scalar)
    for name in ("sum", "max", "argmin", "amax", "prod"):
        check(lambda x: getattr(torch, name)(x, dim=0), scalar)


def test_out():
    t = make((6, 8), torch.float32)
    d = t.to("minitorch")
    for name in ("sum", "mean", "amax", "prod", "nansum", "var", "std", "argmax"):
        expected = getattr(torch, name)(t, dim=1)
        out = torch.zeros(12, dtype=expected.dtype).to("minitorch")[::2]
        result = getattr(torch, name)(d, dim=1, out=out)
        assert result is out
        torch.testing.assert_close(out.cpu(), expected)
    values, indices = torch.empty(0).to("minitorch"), torch.empty(0, dtype=torch.long).to("minitorch")
    torch.max(d, 1, out=(values, indices))
    torch.testing.assert_close(values.cpu(), t.max(1).values)
    torch.testing.assert_close(indices.cpu(), t.max(1).indices)


ERRORS = {
    "mean_int": lambda x: x.long().mean(),
    "dim_range": lambda x: x.sum(5),
    "duplicate": lambda x: x.sum((0, 0)),
    "max_empty": lambda x: x[:0].max(),
    "argmax_empty": lambda x: x[:, :0].argmax(1),
    "amax_empty": lambda x: x[:0].amax(),
    "inf_norm_empty": lambda x: torch.linalg.vector_norm(x[:0], math.inf),
    "negative_norm_empty": lambda x: torch.linalg.vector_norm(x[:0], -1),
    "var_int": lambda x: x.long().var(),
    "var_mean_int": lambda x: torch.var_mean(x.long()),
    "trace_dim": lambda x: x[0].trace(),
    "wrong_out_dtype": lambda x: torch.amax(x, 0, out=torch.empty(0, dtype=torch.int64, device=x.device)),
    "nansum_complex": lambda x: x.to(torch.complex64).nansum(),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_natives(name):
    t = make((3, 4), torch.float32)
    with pytest.raises(Exception) as native:
        ERRORS[name](t)
    with pytest.raises(type(native.value)) as ours:
        ERRORS[name](t.to("minitorch"))
    assert str(ours.value).splitlines()[0] == str(native.value).splitlines()[0]


def test_large_and_threads_agree():
    t = make((300, 2000), torch.float32)
    d = t.to("minitorch")
    threads = torch.get_num_threads()
    results = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        results.append([d.sum().cpu(), d.sum(0).cpu(), d.sum(1).cpu(), d.var(0).cpu()])
    torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_trace():
    check(torch.trace, make((4, 6), torch.float32))
    check(torch.trace, make((6, 4), torch.int32))


NARROWED = {
    "sum": lambda t, dtype: t.sum(1, dtype=dtype),
    "all": lambda t, dtype: t.sum(dtype=dtype),
    "out": lambda t, dtype: torch.sum(t, 1, out=torch.empty(0, dtype=dtype, device=t.device)),
    "prod": lambda t, dtype: t.prod(1, dtype=dtype),
    "nansum": lambda t, dtype: t.nansum(1, dtype=dtype),
    "nansum out": lambda t, dtype: torch.nansum(t, 1, dtype=dtype, out=torch.empty(0, dtype=dtype, device=t.device)),
}


@pytest.mark.parametrize("name", NARROWED)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64])
def test_fractions_are_converted_before_they_are_added(name, dtype):
    """To bool a half is true, to an integer it is nothing."""
    t = torch.tensor([[0.5, 0.25], [0.0, 0.0], [-0.5, 3.75], [0.0, 1e-9]])
    check(lambda t: NARROWED[name](t, dtype), t)
    check(lambda t: NARROWED[name](t, dtype), t.to(torch.bfloat16))
    if name.startswith("nansum"):
        t[0, 0] = t[1, 1] = float("nan")
        check(lambda t: NARROWED[name](t, dtype), t)


def test_nansum_into_integers_wants_the_dtype():
    check_error(lambda t: torch.nansum(t, 1, out=torch.empty(0, dtype=torch.int64, device=t.device)), torch.ones(2, 3))


def test_a_bool_sum_of_complex_numbers():
    check(lambda t: t.sum(1, dtype=torch.bool), torch.tensor([[0.5j, 0], [0, 0]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_narrow_mean_sums_what_it_was_given(dtype):
    check(lambda t: t.mean(dtype=dtype), torch.tensor([1e6, -1e6, 3.0]))
    check(lambda t: t.mean(1, dtype=dtype), torch.randn(5, 333) + 1)
    check(lambda t: torch.mean(t, 1, out=torch.empty(0, dtype=dtype, device=t.device)), torch.randn(5, 333) + 1)


@pytest.mark.skipif(ASYNCHRONOUS, reason="native CUDA adds bools")
@pytest.mark.parametrize("dtype", [torch.bool, torch.float8_e5m2, torch.uint32])
def test_dtypes_without_a_trace(dtype):
    check_error(torch.trace, torch.ones(3, 3).to(dtype))


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod"])
def test_a_real_sum_of_complex_numbers_warns(reduce):
    script = (
        "import sys, torch, minitorch_backend\n"
        f"torch.ones(3, dtype=torch.complex64, device=sys.argv[1]).{reduce}(0, dtype=torch.float64)"
    )
    for device in ("cpu", "minitorch"):  # it warns once a process
        done = subprocess.run([sys.executable, "-c", script, device], capture_output=True, text=True, check=True)
        assert "discards the imaginary part" in done.stderr


def test_an_empty_complex_mean_is_nan_in_both_parts():
    check(lambda t: torch.view_as_real(t.mean()), torch.zeros(0, dtype=torch.complex64))
    check(lambda t: torch.view_as_real(t.mean(0)), torch.zeros(0, 2, dtype=torch.complex128))


@pytest.mark.skipif(ASYNCHRONOUS, reason="the mean of one infinity beside its variance is native CPU's")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "values", [[math.inf], [-math.inf], [math.nan], [math.inf, 1.0], [math.inf, math.inf]], ids=str
)
def test_moments_of_infinities(values, dtype):
    x = torch.tensor(values, dtype=dtype).repeat(3, 1)
    for name in ("var", "std", "var_mean", "std_mean"):
        op = getattr(torch, name)
        check(lambda x, op=op: op(x, dim=1), x)
        check(lambda x, op=op: op(x, dim=1, correction=0, keepdim=True), x)
        check(lambda x, op=op: op(x, dim=0, correction=0), x[:1].t())
        check(lambda x, op=op: op(x), x[0])
