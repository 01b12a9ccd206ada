"""Sorting, selection and searching against native CPU."""

import bisect
import math

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, check_error

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
ALL = FLOATS + INTS + [torch.bool]
SHAPES = [(6, 10, 7), (3, 50, 4), (2, 3, 700), (5000,), (1, 1)]


def make(shape, dtype, seed=0, nans=True):
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) > 0.5
    if dtype in INTS:
        info = torch.iinfo(dtype)
        return torch.randint(max(info.min, -(2**62)), min(info.max, 2**62), shape, generator=g).to(dtype)
    t = torch.randn(shape, generator=g).to(dtype)
    flat = t.view(-1)
    if t.numel() > 50:
        flat[::13] = 0.0
        flat[5::26] = -0.0
        flat[3::40] = math.inf
        flat[7::45] = -math.inf
        if nans:
            flat[11::50] = math.nan
    return t


def equal(actual, expected):
    assert actual.device.type == "minitorch" and actual.dtype == expected.dtype and actual.shape == expected.shape
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def check(f, *tensors):
    expected, actual = f(*tensors), f(*(t.to("minitorch") for t in tensors))
    if torch.is_tensor(expected):
        expected, actual = (expected,), (actual,)
    for e, a in zip(expected, actual, strict=True):
        equal(a, e)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_stable_sort(dtype, descending):
    for shape in SHAPES:
        t = make(shape, dtype)
        d = t.to("minitorch")
        for dim in range(t.dim()):
            e, a = (torch.sort(x, dim=dim, descending=descending, stable=True) for x in (t, d))
            equal(a.values, e.values)
            equal(a.indices, e.indices)
            assert a.values.stride() == e.values.stride()
            if dtype in FLOATS:  # signs of zeros move with their elements
                assert torch.equal(torch.signbit(a.values.cpu()), torch.signbit(e.values))
    t = make((8, 9, 10), dtype)
    for view in (lambda x: x.transpose(0, 2), lambda x: x[1:, ::2, 3:], lambda x: x[:, :1].expand(-1, 5, -1)):
        for dim in (0, 1, 2):
            check(lambda x: tuple(torch.sort(view(x), dim=dim, descending=descending, stable=True)), t)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64], ids=str)
def test_long_sort_in_parallel(dtype):
    t = make((1 << 17,), dtype)
    check(lambda x: tuple(x.sort(stable=True)), t)
    check(lambda x: tuple(x.sort(stable=True, descending=True)), t)
    check(lambda x: tuple(x.sort(stable=True)), torch.arange(1 << 17).to(dtype) % 300)


def spread(kind, n, dtype):
    """Keys that fill the buckets of a long sort in different ways."""
    g = torch.Generator().manual_seed(7)
    t = torch.rand(n, generator=g, dtype=torch.float64)
    if kind == "tails":  # most close together, few far away: the far ones share buckets
        t = torch.where(t > 0.9, (60 * t - 55).exp(), t * 1e-3 + 1)
    elif kind == "two values":
        t = (t > 0.5).double()
    elif kind == "one bucket":  # too many begin alike
        t = torch.where(t > 0.999, t * 1e9, 3 + t * 1e-6)
    elif kind == "few values":
        t = (t * 900).floor() - 450
    return t.mul(2**20).to(dtype) if not dtype.is_floating_point else t.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("kind", ["even", "tails", "two values", "one bucket", "few values"])
def test_long_sorts_of_any_distribution(kind, dtype):
    for n in (65535, 65536, 200_001):
        t = spread(kind, n, dtype)
        for descending in (False, True):
            check(lambda x: tuple(x.sort(stable=True, descending=descending)), t)


def test_long_sort_of_a_column_by_one_thread():
    t = make((100_000, 3), torch.float32)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        check(lambda x: tuple(x[:, 1].sort(stable=True)), t)
        check(lambda x: tuple(x.sort(dim=0, stable=True)), t)
    finally:
        torch.set_num_threads(threads)


def test_sort_default_argsort_msort():
    t = make((30, 40), torch.float32)
    d = t.to("minitorch")
    equal(d.sort().values, t.sort().values)
    equal(d.sort(0, True).values, t.sort(0, True).values)
    equal(torch.argsort(d, stable=True, dim=1), torch.argsort(t, stable=True, dim=1))
    equal(torch.msort(d), torch.msort(t))
    values, indices = torch.empty(0).to("minitorch"), torch.empty(0, dtype=torch.long).to("minitorch")
    torch.sort(d, dim=0, stable=True, out=(values, indices))
    equal(values, t.sort(dim=0, stable=True).values)
    equal(indices, t.sort(dim=0, stable=True).indices)
    check(lambda x: tuple(x.sort()), torch.tensor(2.0))
    check(lambda x: tuple(x.sort(1)), torch.empty(3, 0))


@pytest.mark.parametrize("shape, dim", [((8000,), 0), ((40, 300), 0), ((40, 300), 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_sort_into_the_input(shape, dim, dtype):
    def into(x):
        x = x.clone()
        return tuple(torch.sort(x, stable=True, dim=dim, out=(x, torch.empty_like(x, dtype=torch.long))))

    check(into, make(shape, dtype))


@pytest.mark.parametrize("dtype", ALL[:-1], ids=str)
@pytest.mark.parametrize("largest", [False, True])
def test_topk(dtype, largest):
    for shape, ks in (((6, 10, 7), (1, 3)), ((2, 3, 700), (1, 5, 100, 3)), ((5000,), (1, 10, 600, 4000, 5000))):
        t = make(shape, dtype)
        d = t.to("minitorch")
        for dim in range(t.dim()):
            for k in (k for k in ks if k <= t.size(dim)):
                for is_sorted in (True, False):
                    e, a = (torch.topk(x, k, dim, largest, is_sorted) for x in (t, d))
                    av, ev = a.values.cpu(), e.values
                    if not is_sorted:
                        av, ev = av.sort(dim).values, ev.sort(dim).values
                    torch.testing.assert_close(av, ev, rtol=0, atol=0, equal_nan=True)
                    torch.testing.assert_close(
                        t.gather(dim, a.indices.cpu()), a.values.cpu(), rtol=0, atol=0, equal_nan=True
                    )
                    i = a.indices.cpu().sort(dim).values
                    assert k == 1 or (i.narrow(dim, 1, k - 1) != i.narrow(dim, 0, k - 1)).all()
    check(lambda x: tuple(x.topk(0)), make((3, 4), dtype))
    check(lambda x: tuple(x.topk(1)), torch.tensor(3).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
def test_selection(dtype):
    for t in (make((6, 11, 8), dtype), make((3, 400, 2), dtype, nans=False)):
        d = t.to("minitorch")
        for dim in (0, 1, 2):
            for keepdim in (False, True):
                for name in ("median", "nanmedian"):
                    check(lambda x: tuple(getattr(torch, name)(x, dim, keepdim)), t)
                for k in (1, 2, t.size(dim)):
                    e, a = (torch.kthvalue(x, k, dim, keepdim) for x in (t, d))
                    equal(a.values, e.values)
                    i = a.indices if keepdim else a.indices.unsqueeze(dim)
                    v = a.values if keepdim else a.values.unsqueeze(dim)
                    torch.testing.assert_close(t.gather(dim, i.cpu()), v.cpu(), rtol=0, atol=0, equal_nan=True)
        for name in ("median", "nanmedian"):
            check(getattr(torch, name), t)
    check(lambda x: tuple(x.median(0)), torch.tensor(5).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool], ids=str)
def test_mode(dtype):
    t = make((7, 30, 5), torch.float32, nans=False).mul(2).round().clamp(-3, 3)
    t = t.abs().to(dtype) if dtype in (torch.uint8, torch.bool) else t.to(dtype)
    d = t.to("minitorch")
    for dim in (0, 1, 2):
        for keepdim in (False, True):
            e, a = (torch.mode(x, dim, keepdim) for x in (t, d))
            equal(a.values, e.values)
            i = a.indices if keepdim else a.indices.unsqueeze(dim)
            v = a.values if keepdim else a.values.unsqueeze(dim)
            assert torch.equal(t.gather(dim, i.cpu()), v.cpu())
    check(lambda x: tuple(torch.mode(x)), torch.tensor(1).to(dtype))


@pytest.mark.parametrize("most", ["first", "last", "none"])
def test_mode_of_a_long_line(most):
    x = torch.arange(200_003) * 7919 % 200_003 // 5  # each number but the last five times, in no order
    if most != "none":
        x[77] = 0 if most == "first" else 39_999
    values, indices = torch.mode(x.to("minitorch"))
    assert values.item() == torch.mode(x).values.item() and x[indices.item()] == values.item()


@pytest.mark.skipif(not ASYNCHRONOUS, reason="where NaNs lead, the CPU's std::sort decides")
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [3, 17, 40, 3000])
def test_mode_among_nans_is_the_most_frequent_number(dtype, size):
    """No two NaNs are equal: one is the mode only where there is no number."""
    for seed, share in ((0, 0.1), (1, 0.5), (2, 0.9), (3, 1.0)):
        g = torch.Generator().manual_seed(seed)
        t = torch.randn(9, size, generator=g).mul(2).round().add(0.0)
        t[torch.rand(9, size, generator=g) < share] = math.nan
        values, indices = torch.mode(t.to(dtype).to("minitorch"), -1)
        for line, value, index in zip(t, values.cpu().float(), indices.cpu(), strict=True):
            numbers = line[~line.isnan()]
            assert value == numbers.mode().values if len(numbers) else value.isnan()
            assert line[index] == value or (line[index].isnan() and value.isnan())


@pytest.mark.skipif(ASYNCHRONOUS, reason="the order of equal elements is that of the CPU's std::sort")
@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("size", [3, 16, 17, 100, 3000])
def test_mode_is_the_same_of_equal_elements(dtype, size):
    for seed, nans in ((0, False), (1, False), (2, True), (3, True)):
        g = torch.Generator().manual_seed(seed)
        t = torch.randn(7, size, generator=g).mul(3).to(dtype)
        if nans and dtype.is_floating_point:
            t[torch.rand(7, size, generator=g) < 0.1] = math.nan
        check(lambda x: tuple(torch.mode(x, -1)), t)
        check(lambda x: tuple(torch.mode(x, -1)), t.t())


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_unique(dtype):
    if dtype in FLOATS:  # every NaN is a value of its own, and native numbers them in no order
        check(lambda x: torch.unique(x, return_counts=True), make((20, 30), dtype))
    t = make((20, 30), dtype, nans=False)
    t = t if dtype == torch.bool or dtype not in INTS else t % 7
    for inverse in (False, True):
        for counts in (False, True):
            check(lambda x: torch.unique(x, return_inverse=inverse, return_counts=counts), t)
            check(lambda x: torch.unique_consecutive(x, return_inverse=inverse, return_counts=counts), t)
            check(lambda x: torch.unique_consecutive(x, return_inverse=inverse, return_counts=counts), t[0])
    small = (make((6, 4, 3), torch.float32, nans=False) > 0).to(dtype)[:, :2]
    for dim in (0, 1, 2):
        check(lambda x: torch.unique(x, dim=dim, return_inverse=True, return_counts=True), small)
        check(lambda x: torch.unique_consecutive(x, dim=dim, return_inverse=True, return_counts=True), small)
        if not ASYNCHRONOUS:  # native's CPU counts without being asked
            check(lambda x: torch.ops.aten.unique_dim(x, dim), small)
            check(lambda x: torch.ops.aten.unique_dim_consecutive(x, dim), small)
    check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), torch.empty(0, dtype=dtype))
    check(lambda x: torch.unique(x, dim=0), torch.empty(0, 3, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
def test_searchsorted_and_bucketize(dtype):
    sequence = make((3, 40), dtype, nans=False).sort(1).values
    values = make((3, 25), dtype, seed=4)
    for right in (False, True):
        for int32 in (False, True):
            check(lambda s, v: torch.searchsorted(s, v, right=right, out_int32=int32), sequence, values)
            check(lambda s, v: torch.searchsorted(s, v, right=right, out_int32=int32), sequence[0].contiguous(), values)
            check(lambda s, v: torch.bucketize(v, s, right=right, out_int32=int32), sequence[1].contiguous(), values)
    shuffled = sequence[:, torch.randperm(40)]
    check(lambda s, v, o: torch.searchsorted(s, v, sorter=o), shuffled, values, shuffled.argsort(1))
    check(lambda s: torch.searchsorted(s, 1), sequence[0].contiguous())
    own = torch.arange(0, 20, 2)
    for written in (0, 1):  # what is searched, or the values
        pair = [own.to("minitorch"), own.flip(0).to("minitorch")]
        torch.searchsorted(*pair, out=pair[written])
        equal(pair[written], torch.searchsorted(own, own.flip(0)))
    check(lambda s: torch.bucketize(1, s), sequence[0].contiguous())
    check(lambda s, v: torch.searchsorted(s, v), torch.tensor([1, 2, 3]), torch.tensor([0.5, 2.0, 7.0]))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("length", [1, 2, 5, 8, 33])
def test_search_among_nans(dtype, length):
    """What is found then depends on the places looked at: native's."""
    values = torch.tensor([-math.inf, -1.0, 0.0, 1.5, math.inf, math.nan], dtype=dtype)
    plain = torch.randn(length, generator=torch.Generator().manual_seed(length)).to(dtype)
    for nans in range(min(length, 4)):
        sequence = plain.sort().values
        sequence[length - nans :] = math.nan
        for side in ("left", "right"):
            check(lambda s, v, side=side: torch.searchsorted(s, v, side=side), sequence, values)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_selections_of_nothing(dtype):
    one = torch.ones((), dtype=dtype)
    for k in (0, 1) if dtype != torch.bool else ():
        check(lambda x, k=k: tuple(x.topk(k, 0)), one)
    empty = torch.ones(0, dtype=dtype)
    if dtype.is_floating_point or dtype == torch.bool:
        check(lambda x: x.median(), empty)


def test_isin():
    for dtype in (torch.float32, torch.int64, torch.uint8):
        elements, few, many = (torch.arange(n).remainder(m).to(dtype) for n, m in ((60, 50), (4, 9), (500, 23)))
        for tests in (few, many, few[:0]):
            for invert in (False, True):
                check(lambda e, t: torch.isin(e, t, invert=invert), elements.view(6, 10), tests)
    check(lambda e: torch.isin(e, 3), torch.arange(6))
    check(lambda t: torch.isin(3, t), torch.arange(6))


def test_bincount():
    t = torch.tensor([1, 5, 1, 0, 5, 5])
    check(lambda x: torch.bincount(x), t)
    check(lambda x: torch.bincount(x, minlength=10), t.to(torch.uint8))
    check(lambda x, w: torch.bincount(x, w), t, torch.rand(6))
    check(lambda x, w: torch.bincount(x, w), t, torch.arange(6))
    check(lambda x: torch.bincount(x, minlength=2), t[:0])


ERRORS = {
    "topk_range": lambda x: x.topk(9),
    "topk_negative": lambda x: x.topk(-1),
    "kth_zero": lambda x: x.kthvalue(0),
    "kth_empty": lambda x: x[:, :0].kthvalue(1),
    "median_empty": lambda x: x[:, :0].median(1),
    "mode_dim": lambda x: x.mode(5),
    "sort_dim": lambda x: x.sort(5),
    "searchsorted_shape": lambda x: torch.searchsorted(x, x[:2]),
    "searchsorted_side": lambda x: torch.searchsorted(x[0], x, side="up"),
    "bucketize_dim": lambda x: torch.bucketize(x, x),
    "bincount_negative": lambda x: torch.bincount(x[0].long() - 10),
    "bincount_float": lambda x: torch.bincount(x[0]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_natives(name):
    t = torch.arange(12.0).view(3, 4)
    with pytest.raises(Exception) as native:
        ERRORS[name](t)
    with pytest.raises(type(native.value)) as ours:
        ERRORS[name](t.to("minitorch"))
    assert str(ours.value).splitlines()[0] == str(native.value).splitlines()[0]


def test_histograms():
    t = torch.cat([torch.randn(500), torch.tensor([2.0, -2.0, 0.0])])
    w = torch.rand(503)
    check(lambda x: torch.histc(x), t)
    check(lambda x: torch.histc(x, bins=7, min=-2, max=2), t)
    check(lambda x: torch.histogram(x, 9).hist, t)
    edges = torch.histogram(t, 9).bin_edges
    torch.testing.assert_close(torch.histogram(t.to("minitorch"), 9).bin_edges.cpu(), edges)
    check(lambda x: torch.histogram(x, 8, range=(-2.0, 2.0), density=True)[1], t)
    edges = torch.tensor([-2.0, -0.5, 0.0, 1.0, 2.0])
    check(lambda x, e: torch.histogram(x, e), t, edges)
    e, a = (
        torch.histogram(t, edges, weight=w, density=True),
        torch.histogram(*(v.to("minitorch") for v in (t, edges)), weight=w.to("minitorch"), density=True),
    )
    torch.testing.assert_close(a.hist.cpu(), e.hist)
    points = torch.randn(200, 2)
    e, a = torch.histogramdd(points, [4, 5]), torch.histogramdd(points.to("minitorch"), [4, 5])
    torch.testing.assert_close(a.hist.cpu(), e.hist)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_wide_unsigned_integers(dtype):
    """Half of them beyond what the signed integers of their size hold."""
    g = torch.Generator().manual_seed(3)
    bits = torch.iinfo(dtype).bits
    signed = {16: torch.int16, 32: torch.int32, 64: torch.int64}[bits]
    few = torch.randint(-4, 4, (5, 300), generator=g).to(signed).view(dtype)
    many = torch.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, (3, 5000), generator=g).to(signed).view(dtype)
    for t in (few, few.t(), many, many[:, ::3]):
        for descending in (False, True):
            check(lambda x, d=descending: x.sort(stable=True, descending=d), t)
        check(lambda x: torch.unique(x, return_inverse=True, return_counts=True), t)
        check(lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), t)
        check(lambda x: torch.unique_consecutive(x, return_counts=True), t)
    if ASYNCHRONOUS:  # native's CPU has no more of them
        numbers = sorted(x & (2**bits - 1) for x in many.view(signed)[0].tolist())
        moved = many[0].to("minitorch")
        assert moved.topk(7).values.tolist() == numbers[:-8:-1]
        assert moved.topk(900, largest=False).values.tolist() == numbers[:900]
        assert moved.kthvalue(1234).values.item() == numbers[1233]
        ordered = moved.sort().values
        assert torch.searchsorted(ordered, ordered).tolist() == [bisect.bisect_left(numbers, x) for x in numbers]
        assert torch.isin(moved, moved[:3]).nonzero().flatten().tolist()[:3] == [0, 1, 2]


HISTOGRAM_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HISTOGRAM_DTYPES)
@pytest.mark.parametrize("bins", [1, 10, 128, 4096])
def test_counts_are_exact(dtype, bins):
    """Enough points for several threads; native counts in the dtype itself, which ends early for 16 bits."""
    t = torch.cat([torch.randn(50000), torch.tensor([float("nan"), float("inf"), -2.0, 2.0])]).to(dtype)
    found = torch.histc(t.to("minitorch"), bins, -2, 2).cpu()
    inside = t[(t >= -2) & (t <= 2)]
    if dtype in (torch.float32, torch.float64):
        torch.testing.assert_close(found, torch.histc(t, bins, -2, 2), rtol=0, atol=0)
    else:
        # One rounding a step, as arithmetic on the dtype has it.
        place = ((inside + 2) * torch.tensor(bins, dtype=dtype) / torch.tensor(4, dtype=dtype)).long()
        expected = torch.bincount(place.clamp(max=bins - 1), minlength=bins)
        torch.testing.assert_close(found, expected.to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [[7], [4, 5], [3, 4, 5]])
@pytest.mark.parametrize("weighted", [False, True])
def test_histograms_of_vectors(dtype, bins, weighted):
    points = torch.randn(30000, len(bins), dtype=dtype)
    weight = torch.rand(30000, dtype=dtype) if weighted else None
    ours = torch.histogramdd(points.to("minitorch"), bins, weight=weight.to("minitorch") if weighted else None)
    native = torch.histogramdd(points, bins, weight=weight)
    for found, expected in zip(ours.bin_edges, native.bin_edges, strict=True):
        torch.testing.assert_close(found.cpu(), expected)
    # Native's sums of weights are in the dtype itself, and err more than the tolerance.
    wide = torch.histogramdd(
        points.double(), [e.double() for e in native.bin_edges], weight=weight.double() if weighted else None
    )
    torch.testing.assert_close(ours.hist.cpu(), wide.hist.to(dtype))
    edges = [torch.tensor([-1.5, -1.0, 0.25, 2.0], dtype=dtype)] * len(bins)
    ours = torch.histogramdd(points.to("minitorch"), [e.to("minitorch") for e in edges])
    torch.testing.assert_close(ours.hist.cpu(), torch.histogramdd(points, edges).hist)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
def test_long_runs_of_neighbours(dtype):
    """Enough elements for several threads, and runs that cross from one thread's part to the next."""
    t = torch.randint(0, 3, (30011,)).sort().values.to(dtype)
    mixed = torch.cat([t, torch.randint(0, 3, (30011,)).to(dtype)])
    for values in (t, mixed):
        check(torch.unique_consecutive, values)
        check(lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), values)


def test_histc_into_a_tensor_on_another_device():
    with pytest.raises(RuntimeError, match="Expected out tensor to have device minitorch:0, but got cpu instead"):
        torch.histc(torch.ones(3, device="minitorch"), 4, out=torch.empty(4))


@pytest.mark.parametrize("q", [[0.5, -1.0], [1.5], [float("nan")], [0.0, 1.0]])
@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
def test_quantile_of_a_tensor_of_fractions(function, q):
    x, q = torch.arange(12.0).reshape(3, 4), torch.tensor(q)
    for dim in (None, 1):
        if q.ge(0).all() and q.le(1).all():
            check(lambda x, q: function(x, q, dim), x.clone().requires_grad_(), q)
        elif not ASYNCHRONOUS:  # a GPU would have to be waited for, so native does not look there either
            check_error(lambda x, q: function(x, q, dim), x, q)
            check_error(lambda x, q: function(x, q, dim, out=q.new_empty(0)), x, q)
    check_error(lambda x: function(x, torch.tensor([0.5], dtype=torch.float64, device=x.device)), x)


@pytest.mark.parametrize("points", [(3, 0), (0, 0), (2, 3, 0)])
def test_histograms_of_points_without_coordinates(points):
    for bins in ([], 3):
        native, ours = (torch.histogramdd(torch.zeros(points, device=d), bins) for d in ("cpu", "minitorch"))
        assert ours.bin_edges == native.bin_edges == ()
        torch.testing.assert_close(ours.hist.cpu(), native.hist)
