"""Indexing, gather and scatter: values, layouts, gradients and errors as on native CPU."""

import pytest
import torch
from index_values import ALL, FLOATS, INTS, layouts, values
from twin import ASYNCHRONOUS, check, check_error


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


ROWS = torch.tensor([2, 0, -1, 2, 1])
J = torch.tensor([3, -4, 0, 1, 2])
KEYS = {
    "row": lambda: (ROWS,),
    "column": lambda: (slice(None), J),
    "last": lambda: (Ellipsis, torch.tensor([1, 0])),
    "pair": lambda: (ROWS, J),
    "pair_apart": lambda: (ROWS, slice(None), torch.tensor([0, 1, 1, 0, 1])),
    "triple": lambda: (ROWS, J, torch.tensor([0, 1, 1, 0, 1])),
    "broadcast": lambda: (ROWS[:, None], J[None, :3]),
    "int32": lambda: (ROWS.int(), J.int()),
    "matrix": lambda: (torch.tensor([[0, 1], [2, 0]]),),
    "none": lambda: (None, ROWS, None),
    "empty": lambda: (torch.empty(0, dtype=torch.long),),
    "zero_dim": lambda: (torch.tensor(1),),
    "slices": lambda: (slice(1, 3), ROWS % 2, slice(None, None, 2)),
    "mask_rows": lambda: (torch.tensor([True, False, True]),),
    "mask_2d": lambda: (torch.rand(3, 4) > 0.4,),
    "mask_and_index": lambda: (torch.tensor([True, False, True]), torch.tensor([1, 3])),
    "mask_full": lambda: (torch.rand(3, 4, 2) > 0.5,),
    "mask_none": lambda: (torch.zeros(3, dtype=torch.bool),),
    "mask_scalar": lambda: (torch.tensor(True),),
}


def on(device_of, key):
    return tuple(k.to(device_of.device) if isinstance(k, torch.Tensor) else k for k in key)


@pytest.mark.parametrize("name", KEYS)
def test_index(name):
    key = KEYS[name]()
    for x in layouts(values(3, 4, 2)):
        check(lambda x: x[on(x, key)], x.requires_grad_())


@pytest.mark.parametrize("dtype", ALL)
def test_index_dtypes(dtype):
    x = values(3, 4, 2, dtype=dtype)
    check(lambda x: (x[on(x, (ROWS,))], x[on(x, (ROWS, J))], x[on(x, (slice(None), J))]), x)


def test_index_keeps_cpu_index_semantics():
    check(lambda x: x[ROWS], values(3, 4))  # an index on the CPU is moved
    check(lambda x: torch.ops.aten._unsafe_index(x, [ROWS.to(x.device), None]), values(3, 4))


def test_index_out():
    check(
        lambda x, out: (
            torch.ops.aten.index(
                x,
                [ROWS.to(x.device)],
            )
            if out is None
            else torch.ops.aten.index.Tensor_out(x, [ROWS.to(x.device)], out=out)
        ),
        values(3, 4),
        torch.empty(5, 4),
    )
    check(
        lambda x, out: torch.ops.aten.index.Tensor_out(x, [ROWS.to(x.device)], out=out),
        values(3, 4),
        torch.empty(4, 5).t(),
    )


def test_index_expanded_and_large():
    x = values(1, 300).expand(200, 300)
    rows, columns = torch.randint(-200, 200, (40000,)), torch.randint(-300, 300, (40000,))
    check(lambda x: (x[on(x, (rows, columns))], x[on(x, (rows[:500],))]), x)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    "name", [k for k in KEYS if k not in ("none", "slices", "pair_apart", "last", "column", "mask_scalar")]
)
def test_index_put(name, accumulate):
    key = KEYS[name]()
    x = values(3, 4, 2)
    shape = x[key].shape
    unique = name in ("zero_dim", "empty") or name.startswith("mask")
    value = values(*shape) if accumulate or unique else torch.tensor(3.5)
    for view in layouts(x):
        check(lambda x, v: x.index_put_(on(x, key), v, accumulate=accumulate), view, value)
        check(
            lambda x, v: x.index_put(on(x, key), v, accumulate=accumulate),
            view.detach().requires_grad_(),
            value.requires_grad_(),
            exact=False,
        )
        value = value.detach()


@pytest.mark.parametrize("dtype", ALL)
def test_index_put_accumulate_dtypes(dtype):
    check(
        lambda x, v: x.index_put_((ROWS.to(x.device),), v, accumulate=True),
        values(3, 4, dtype=dtype),
        values(5, 4, dtype=dtype),
        wide=True,
    )


def test_assignment_through_subscript():
    def assign(x, v):
        x[ROWS.to(x.device)[:1], :, 1] = v
        x[x > 1] = 0
        x[0, ..., 1] = 7
        x[:, J.to(x.device)[:2]] = -1
        x[torch.tensor([True, False, True], device=x.device), 1:3] = 5
        return x

    check(assign, values(3, 4, 2), values(4))


def test_index_put_accumulate_is_deterministic():
    index = torch.randint(0, 50, (60000,))
    for shape in [(), (3,), (200,)]:
        # In double, where native does not use atomics either.
        source = values(60000 if not shape or shape[0] < 10 else 6000, *shape, dtype=torch.float64)
        check(
            lambda x, v: x.index_put_((index[: len(v)].to(x.device),), v, accumulate=True),
            torch.zeros(50, *shape, dtype=torch.float64),
            source,
            exact=False,
        )


@pytest.fixture
def writes_in_order():
    """On a GPU order is asked for."""
    torch.use_deterministic_algorithms(ASYNCHRONOUS)
    yield
    torch.use_deterministic_algorithms(False)


def test_last_write_wins(writes_in_order):
    # Native leaves the winner to chance when several threads write, so the expectation is spelled out.
    index, source = torch.randint(0, 30, (70000,)), values(70000)
    expected = torch.zeros(30)
    for position in range(30):
        expected[position] = source[(index == position).nonzero()[-1]]
    x, i, s = torch.zeros(30).to("minitorch"), index.to("minitorch"), source.to("minitorch")
    assert torch.equal(x.scatter(0, i, s).cpu(), expected)
    assert torch.equal(x.index_copy(0, i, s).cpu(), expected)
    assert torch.equal(x.index_put((i,), s).cpu(), expected)


def test_sums_do_not_depend_on_timing(writes_in_order):
    index, source = torch.randint(0, 30, (70000,)), values(70000)
    x, i, s = torch.zeros(30).to("minitorch"), index.to("minitorch"), source.to("minitorch")
    for add in (
        lambda: x.scatter_add(0, i, s),
        lambda: x.index_add(0, i, s),
        lambda: x.index_put((i,), s, accumulate=True),
    ):
        first = add()
        assert all(torch.equal(add(), first) for _ in range(3))
        torch.testing.assert_close(first.cpu(), torch.zeros(30).index_add(0, index, source), rtol=1e-3, atol=1e-3)


BAD_INDEX = {
    "index": lambda x, i: x[i],
    "index_pair": lambda x, i: x[i.clamp(0, 1), i],
    "index_put": lambda x, i: x.index_put_((i,), torch.tensor(1.0, device=x.device)),
    "index_put_accumulate": lambda x, i: x.index_put_((i,), torch.ones(4, device=x.device), accumulate=True),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_select_1": lambda x, i: x.index_select(1, i),
    "index_select_1d": lambda x, i: x[:, 0].index_select(0, i),
    "index_fill": lambda x, i: x.index_fill_(0, i, 2.0),
    "index_copy": lambda x, i: x.index_copy_(0, i, x[:1].expand(i.numel(), 4).clone()),
    "index_add": lambda x, i: x.index_add_(0, i, x[:1].expand(i.numel(), 4).clone()),
    "index_add_alpha": lambda x, i: x.index_add_(0, i, x[:1].expand(i.numel(), 4).clone(), alpha=2),
    "index_add_1d": lambda x, i: x[:, 0].index_add_(0, i, x[0, : i.numel()].clone()),
    "index_reduce": lambda x, i: x.index_reduce_(0, i, x[:1].expand(i.numel(), 4).clone(), "amax"),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter_(0, i[:, None], 1.0),
    "scatter_src": lambda x, i: x.scatter_(0, i[:, None], x.clone()),
    "scatter_add": lambda x, i: x.scatter_add_(0, i[:, None], x.clone()),
    "scatter_reduce": lambda x, i: x.scatter_reduce_(0, i[:, None], x.clone(), "prod"),
    "scatter_value_reduce": lambda x, i: x.scatter_(0, i[:, None], 2.0, reduce="multiply"),
    "take": lambda x, i: x.take(i * 10),
    "put": lambda x, i: x.put_(i * 10, x[0, : i.numel()].clone()),
}


@pytest.mark.parametrize("bad", [[0, 5], [1, -9]])
@pytest.mark.parametrize("name", BAD_INDEX)
def test_bad_index_changes_nothing(name, bad):
    check_error(BAD_INDEX[name], values(3, 4), torch.tensor(bad))


@pytest.mark.parametrize("bad", [-1, 900])
def test_bad_index_far_into_a_sum(bad):
    x, index = values(40, 900), torch.randint(0, 900, (40, 900))
    index[39, 880] = bad
    check_error(lambda x, i: x.scatter_add(1, i, x), x, index)
    check_error(lambda x, i: x.scatter_add_(1, i, x.clone()), x, index)
    check_error(lambda x, i: x.bfloat16().scatter_add(1, i, x.bfloat16()), x, index)


def test_other_index_errors():
    x, i = values(3, 4), torch.tensor([0, 1])
    check_error(lambda x, i: x[i.float()], x, i)
    check_error(lambda x, i: x[i, torch.tensor([0, 1, 2], device=x.device)], x, i)
    check_error(lambda x, i: x[torch.ones(2, dtype=torch.bool, device=x.device)], x, i)
    check_error(lambda x, i: x[i, i, i], x, i)
    check_error(lambda x, i: x.index_put_((i,), x.double()), x, i)
    check_error(lambda x, i: x.index_put_((i,), x[:, :3].clone()), x, i)
    check_error(lambda x, i: x.index_select(0, i.float()), x, i)
    check_error(lambda x, i: x.index_select(0, i[None]), x, i)
    check_error(lambda x, i: x[0, 0].index_select(0, i), x, i)
    check_error(lambda x, i: torch.empty(0, 4, device=x.device).index_select(0, i), x, i)
    if not ASYNCHRONOUS:  # nothing is read, so a GPU looks at no index
        check_error(lambda x, i: torch.empty(3, 0, device=x.device).index_select(0, i * 7), x, i)
    check_error(lambda x, i: torch.index_select(x, 0, i, out=torch.empty(0, dtype=torch.double, device=x.device)), x, i)
    check_error(lambda x, i: x.gather(0, i), x, i)
    check_error(lambda x, i: x.gather(0, i[:, None].float()), x, i)
    check_error(lambda x, i: x.scatter_(0, i[:, None], x.double()), x, i)
    check_error(lambda x, i: x.scatter_(0, i[:, None], x, reduce="nonsense"), x, i)
    check_error(lambda x, i: x.take(i.float()), x, i)
    check_error(lambda x, i: x.put_(i.int(), x[0, :2]), x, i)
    check_error(lambda x, i: x.index_add_(0, i, x), x, i)
    check_error(lambda x, i: x.index_add_(0, i, x[:2].double()), x, i)
    check_error(lambda x, i: x.index_copy_(0, i, x), x, i)
    check_error(lambda x, i: x.index_fill_(0, i.int(), 1.0), x, i)
    check_error(lambda x, i: x.index_fill_(0, i, 1j), x, i)
    check_error(lambda x, i: x[:1].expand(3, 4).scatter_(0, i[:, None], 1.0), x, i)
    check_error(lambda x, i: x.to(torch.complex64).scatter_reduce_(0, i[:, None], x.to(torch.complex64), "amax"), x, i)


def test_devices_must_agree():
    x, i = values(3, 4).to("minitorch"), torch.tensor([0, 1])
    for call in (
        lambda: x.gather(0, i[:, None]),
        lambda: x.index_select(0, i),
        lambda: x.scatter_(0, i[:, None], 1.0),
        lambda: x.index_add_(0, i, x[:2]),
        lambda: torch.masked_select(x, torch.ones(3, 4, dtype=torch.bool)),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            call()


ALONG_DIM = {
    "gather": lambda x, i, s, d: x.gather(d, i),
    "scatter_src": lambda x, i, s, d: x.scatter(d, i, s),
    "scatter_value": lambda x, i, s, d: x.scatter(d, i, 2.5),
    "scatter_add": lambda x, i, s, d: x.scatter_add(d, i, s),
    "take_along_dim": lambda x, i, s, d: torch.take_along_dim(x, i, d),
    **{
        f"scatter_reduce_{op}_{include}": lambda x, i, s, d, op=op, include=include: x.scatter_reduce(
            d, i, s, op, include_self=include
        )
        for op in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    },
}


def unique_index(size, dim, length):
    shape = list(size)
    shape[dim] = length
    order = torch.rand(size).argsort(dim)
    return order.narrow(dim, 0, length)


@pytest.mark.parametrize("name", ALONG_DIM)
def test_along_dim(name):
    fn = ALONG_DIM[name]
    for dim in (0, 1, -1):
        index = unique_index((5, 6, 4), dim, 3)
        source = values(*index.shape)
        for x in layouts(values(5, 6, 4)):
            for i in layouts(index):
                exact = not any(op in name for op in ("prod", "mean"))
                check(
                    lambda x, i, s: fn(x, i, s, dim),
                    x.detach().requires_grad_(),
                    i,
                    source.detach().requires_grad_(),
                    exact=exact,
                )


@pytest.mark.parametrize(
    "name", ["scatter_add", "scatter_reduce_amax_True", "scatter_reduce_prod_False", "scatter_reduce_mean_True"]
)
def test_along_dim_with_duplicates(name):
    index = torch.randint(0, 5, (40, 6))
    check(lambda x, i, s: ALONG_DIM[name](x, i, s, 0), values(5, 6), index, values(40, 6), exact=False)
    check(
        lambda x, i, s: ALONG_DIM[name](x, i, s, 0),
        values(5, 6),
        index[:, :1].expand(40, 6),
        values(40, 6),
        exact=False,
    )
    check(
        lambda x, i, s: ALONG_DIM[name](x, i, s, 0),
        values(5),
        torch.randint(0, 5, (50000,)),
        values(50000).div(100).add(1),
        rtol=2e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("dtype", ALL)
def test_along_dim_dtypes(dtype):
    i = torch.randint(0, 4, (3, 5))
    x, s = values(3, 4, dtype=dtype), values(3, 5, dtype=dtype)
    check(
        lambda x, i, s: (x.gather(1, i), x.gather(1, i.int()), x.scatter_add(1, i, s), x.scatter(1, i[:, :1], s)),
        x,
        i,
        s,
    )
    check(
        lambda x, i, s: (x.scatter(1, i, s, reduce="add"), x.scatter(1, i, s, reduce="multiply")), x, i, s, exact=False
    )
    check(lambda x, i: (x.scatter(1, i, 3, reduce="add"), x.scatter(1, i, 1)), x, i)
    if not dtype.is_complex:
        check(lambda x, i, s: [x.scatter_reduce(1, i, s, op) for op in ("amax", "amin", "sum")], x, i, s)


def test_integers_stay_integers():
    big = 2**62 + 1
    x = torch.tensor([big, big + 2])
    i = torch.tensor([0, 1, 1])
    check(
        lambda x, i: (
            x.gather(0, i),
            x.scatter_add(0, i, x[i] * 0 + 1),
            x.index_add(0, i, x[i] * 0 + 3, alpha=2),
            x.scatter_reduce(0, i, x[i], "prod"),
        ),
        x,
        i,
    )
    check(
        lambda x, i: (x.index_fill(0, i[:1], big + 4), x.scatter(0, i[:1], big + 6), x.masked_fill(x > big, big + 8)),
        x,
        i,
    )


def test_zero_dim_and_empty():
    zero, i0 = torch.tensor(3.0), torch.tensor(0)
    check(
        lambda x, i: (x.gather(0, i), x.scatter(0, i, 5.0), x.index_select(0, i), x.index_fill(0, i, 1.0), x.take(i)),
        zero,
        i0,
    )
    check(
        lambda x, i: (x.index_add(0, i, x), x.index_copy(0, i, x), x.scatter_add(0, i, x), x[i > 5], x[i == 0]),
        zero,
        i0,
    )
    check(lambda x, i: x.gather(0, i), zero, torch.tensor([0, 0]))
    none = torch.empty(0, dtype=torch.long)
    check(
        lambda x, i: (
            x.index_select(1, i),
            x[:, i],
            x.gather(1, i.reshape(3, 0)),
            x.scatter(1, i.reshape(3, 0), 1.0),
            x.take(i),
        ),
        values(3, 4),
        none,
    )
    check(
        lambda x, i: (x.index_add(0, i, x[:0]), x.index_copy(0, i, x[:0]), x.index_fill(0, i, 1.0)), values(3, 4), none
    )
    check(lambda x: (x[x > 0], x.nonzero(), x.flip(0), x.roll(1), x.masked_fill(x > 0, 1)), torch.empty(0, 4))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_vector_index(dim):
    i, unique = torch.tensor([1, 0, 1, 3]), torch.tensor([2, 0, 3])
    for x in layouts(values(4, 5, 4)):
        x = x.requires_grad_()
        check(lambda x, i: (x.index_select(dim, i), x.index_select(dim, i.int())), x, i, exact=False)
        s = x.detach().index_select(dim, i).add(1).requires_grad_()
        u = x.detach().index_select(dim, unique).add(1).requires_grad_()
        check(lambda x, i, s: (x.index_add(dim, i, s), x.index_add(dim, i.int(), s, alpha=-2.5)), x, i, s, exact=False)
        check(lambda x, i, s: x.index_copy(dim, i, s), x, unique, u)
        check(
            lambda x, i: (x.index_fill(dim, i, 2.0), x.index_fill(dim, i - 4, torch.tensor(7.0, device=x.device))), x, i
        )
        for op in ("prod", "mean", "amax", "amin"):
            for include in (True, False):
                check(lambda x, i, s: x.index_reduce(dim, i, s, op, include_self=include), x, i, s, exact=False)


@pytest.mark.parametrize("dtype", ALL)
def test_vector_index_dtypes(dtype):
    # A GPU adds what goes to one element in any order, and 16-bit floats round each sum.
    exact = not (ASYNCHRONOUS and dtype in (torch.bfloat16, torch.float16))
    i = torch.tensor([1, 0, 1, 3])
    x, s = values(4, 3, dtype=dtype), values(4, 3, dtype=dtype)
    check(
        lambda x, i, s: (
            x.index_select(0, i),
            x.index_add(0, i, s),
            x.index_fill(0, i, 1),
            x.index_copy(0, i[1:], s[1:]),
        ),
        x,
        i,
        s,
        exact=exact,
    )
    check(
        lambda x, i, s: (x.index_add(0, i, s, alpha=1 if dtype == torch.bool else 2), x.take(i), x.put(i[1:], s[0])),
        x,
        i,
        s,
        wide=True,
    )
    check(lambda x, i, s: (x[:, 0].index_add(0, i, s[:, 0]), x[:, 0].index_select(0, i)), x, i, s, wide=True)
    if dtype in FLOATS + INTS:
        for op in ("prod", "mean", "amax", "amin"):
            for include in (True, False):
                check(lambda x, i, s: x.index_reduce(0, i, s, op, include_self=include), x, i, s, exact=False)


def test_index_reduce_of_flags():
    i, x, s = torch.tensor([1, 0, 1, 3]), values(4, 3, dtype=torch.bool), values(4, 3, dtype=torch.bool)
    for op in ("prod", "amax", "amin"):
        check(lambda x, i, s: x.index_reduce(0, i, s, op), x, i, s)
        check_error(lambda x, i, s: x.index_reduce(0, i, s, op, include_self=False), x, i, s)
    check_error(lambda x, i, s: x.index_reduce(0, i, s, "mean"), x, i, s)


@pytest.mark.parametrize("accumulate", [False, True])
def test_take_and_put(accumulate):
    i = torch.tensor([[1, -1], [5, 0]])
    for x in layouts(values(4, 3)):
        check(lambda x, i: x.take(i), x.requires_grad_(), i)
        check(lambda x, i, s: x.put_(i, s, accumulate), x.detach(), i, values(2, 2))
    check(
        lambda x, i, s: x.put(i, s, True),
        values(4, 3).requires_grad_(),
        torch.tensor([1, 1, 2]),
        values(3).requires_grad_(),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_unfold(dtype):
    for dim, size, step in [(0, 3, 1), (1, 2, 2), (-1, 3, 2), (1, 1, 4), (0, 7, 1)]:
        x = values(7, 5, 6, dtype=dtype)
        check(lambda x: x.unfold(dim, size, step), x)
        # Native rounds each partial sum of 16-bit floats, ours does not: compare with the sum in double.
        wide = torch.complex128 if dtype.is_complex else torch.float64
        grad = torch.randn_like(x.unfold(dim, size, step))
        expected = torch.ops.aten.unfold_backward(grad.to(wide), x.shape, dim, size, step).to(dtype)
        ours = torch.ops.aten.unfold_backward(grad.to("minitorch"), x.shape, dim, size, step)
        torch.testing.assert_close(ours.cpu(), expected)
    check(lambda x: x.unfold(0, 1, 1), torch.tensor(2.0, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool, torch.complex128])
def test_flip_roll_rotate(dtype):
    for x in layouts(values(4, 3, 5, dtype=dtype)):
        check(lambda x: (x.flip(0), x.flip(1, 2), x.flip(-1, 0, 1), x.fliplr(), x.flipud(), x.flip(())), x)
        check(
            lambda x: (x.roll(1), x.roll(-7, 2), x.roll((1, 2), (0, 2)), x.rot90(), x.rot90(-1, (1, 2)), x.rot90(2)), x
        )
    check(lambda x: (x.flip(0), x.roll(1, 0)), values(4, 3).requires_grad_())
    check(lambda x: x.flip(0), values(1, 3).expand(4, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("inner", [1, 3, 16, 40])
def test_rows_of_several_tables(inner, dtype):
    x = values(7, 11, inner, dtype=dtype)
    index = torch.randint(11, (5,))
    check(lambda x, i: x.index_select(1, i), x, index)
    check(lambda x, i: x[:, i], x, index - 11)
    check(lambda x, i: x.transpose(0, 1).index_select(0, i), x, index)
    check(lambda x, i: x[2:, :, 1:].index_select(1, i), x, index)
    large = values(300, 20, inner, dtype=dtype)  # shared by threads
    check(lambda x, i: x.index_select(1, i), large, torch.randint(20, (90,)))
