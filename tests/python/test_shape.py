"""cat and stack, padding, triangles, repeat, im2col: as on native CPU."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from twin import check, check_error

ALL = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def values(*shape, dtype=torch.float32):
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape).to(dtype)


@pytest.mark.parametrize("dtype", ALL)
def test_cat(dtype):
    a, b = values(2, 3, 4, dtype=dtype), values(2, 3, 4, dtype=dtype)
    for dim in (0, 1, 2, -1, -3):
        check(lambda a, b: (torch.cat([a, b], dim), torch.stack([a, b, a], dim), torch.cat([a], dim)), a, b)
    check(lambda a, b: torch.cat([a.narrow(2, 1, 1), b, a.narrow(2, 0, 2)], 2), a, b)
    check(lambda a, b: torch.cat([a[:, :, ::2], b.transpose(1, 2).contiguous().transpose(1, 2)], 2), a, b)


def test_cat_promotion():
    for first, second in itertools.combinations(ALL, 2):
        check(
            lambda a, b: (torch.cat([a, b]), torch.cat([b, a], 1)),
            values(2, 3, dtype=first),
            values(2, 3, dtype=second),
        )


def test_cat_layouts():
    channels_last = values(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for dim in range(4):
        check(lambda a: torch.cat([a, a], dim), channels_last)
        check(lambda a, b: torch.cat([a, b], dim), channels_last, values(2, 3, 4, 5))
        check(lambda a: torch.stack([a, a], dim), channels_last)
    volume = values(2, 3, 4, 5, 2).to(memory_format=torch.channels_last_3d)
    for dim in range(5):
        check(lambda a: torch.cat([a, a], dim), volume)
    half = values(6, 8)
    check(lambda x: torch.cat((-x[..., 4:], x[..., :4]), -1), half)
    check(lambda x: torch.cat([x[:1].expand(3, 8), x.t()[:, :2].t()], 0), half)
    check(lambda x: torch.cat([x, x.t()], 1), values(4, 4))


def test_cat_sizes():
    check(lambda *t: torch.cat(t), *[values(n) for n in (0, 1, 5, 0, 3)])
    check(lambda *t: torch.cat(t, 1), *[values(3, n) for n in (0, 1, 5, 0, 3)])
    check(lambda a, e: (torch.cat([e, a]), torch.cat([a, e], 1)), values(2, 3), torch.empty(0))
    check(lambda a, b: (torch.cat([a, b]), torch.cat([a, b], 1)), values(0, 4), values(0, 4))
    check(lambda *t: torch.cat(t), *[values(200_000) for _ in range(3)])
    check(lambda *t: torch.cat(t, 1), *[values(1, 90_000) for _ in range(3)])
    check(lambda *t: torch.stack(t, 1), *[values(50_000) for _ in range(4)])
    check(lambda *t: torch.cat(t, 1), *[values(3000, n) for n in (1, 7, 30)])
    check(lambda *t: torch.stack(t), *[torch.tensor(float(i)) for i in range(20)])
    check(lambda a, b: torch.cat([a, b], 1), values(4, 2), values(3, 4).t()[:, :2])


def test_cat_out_and_gradients():
    a, b = values(2, 3), values(4, 3)
    check(lambda a, b, o: torch.cat([a, b], out=o), a, b, torch.empty(6, 3))
    check(lambda a, b, o: torch.cat([a, b], out=o), a, b, torch.empty(3, 6).t())
    check(lambda a, b, o: torch.cat([a, b], out=o), a, b, torch.empty(0, dtype=torch.float64))
    check(lambda a, b, o: torch.cat([a, b], out=o), a, b, torch.empty(7, 6)[1:, ::2])
    check(lambda a, o: torch.stack([a, a], 1, out=o), a, torch.empty(2, 2, 3))
    check(lambda a, b: torch.cat([a, b, a]), a.requires_grad_(), b.requires_grad_(), exact=False)
    check(lambda a, b: torch.stack([a, b[:2]], -1), a, b, exact=False)
    check(
        lambda a: (torch.hstack([a, a]), torch.vstack([a, a]), torch.dstack([a, a]), torch.column_stack([a, a])),
        a,
        exact=False,
    )


def test_cat_errors():
    a = values(2, 3)
    check_error(lambda a: torch.cat([]), a)
    check_error(lambda a: torch.cat([a, a[:, :2]]), a)
    check_error(lambda a: torch.cat([a, a[0]]), a)
    check_error(lambda a: torch.cat([a, a], 2), a)
    check_error(lambda a: torch.cat([a[0, 0], a[0, 0]]), a)
    check_error(lambda a: torch.cat([a, a], out=torch.empty(4, 3, dtype=torch.int64, device=a.device)), a)
    check_error(lambda a: torch.cat([a[:1], a[1:]], out=a), a)
    check_error(lambda a: torch.stack([a, a[:1]]), a)
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([a.to("minitorch"), a])


PADS = {
    1: [(1, 2), (0, 0), (3, 0), (-1, 2)],
    2: [(1, 2, 2, 1), (0, 0, 1, 0), (-1, 1, 2, -1)],
    3: [(1, 2, 2, 1, 1, 0), (2, -1, 0, 0, 1, 1)],
}


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pad(mode, dims):
    shape = (2, 3, 4, 5, 6)[: 2 + dims]
    for pad in PADS[dims]:
        if mode == "circular" and min(pad) < 0:
            continue
        x = values(*shape).requires_grad_()
        check(lambda x: F.pad(x, pad, mode=mode), x, exact=False)
        check(
            lambda x: F.pad(x.transpose(0, -1), pad, mode=mode),
            values(*shape[::-1]).transpose(0, 1).contiguous().transpose(0, 1).requires_grad_(),
            exact=False,
        )
        if mode != "circular" or dims:
            check(lambda x: F.pad(x[0], pad, mode=mode), x, exact=False)
        if dims > 1:
            form = torch.channels_last if dims == 2 else torch.channels_last_3d
            check(lambda x: F.pad(x, pad, mode=mode), x.detach().to(memory_format=form).requires_grad_(), exact=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64])
def test_pad_dtypes(dtype):
    x = values(2, 3, 6, 5, dtype=dtype)
    check(lambda x: F.pad(x, (1, 2), value=2), x)
    if dtype != torch.int64:
        check(lambda x: (F.pad(x, (2, 1, 1, 3), mode="reflect"), F.pad(x, (2, 1, 1, 3), mode="replicate")), x)
        grad = values(2, 3, 10, 8, dtype=dtype)
        for op in (torch.ops.aten.reflection_pad2d_backward, torch.ops.aten.replication_pad2d_backward):
            check(lambda g, x: op(g, x, (2, 1, 1, 3)), grad, x, wide=True)


def test_pad_large_and_out():
    x = values(3, 70, 20, 31)
    for form in (torch.contiguous_format, torch.channels_last):
        check(lambda x: F.pad(x, (3, 3, 2, 2), mode="reflect"), x.to(memory_format=form).requires_grad_(), exact=False)
    check(lambda x, o: torch.ops.aten.replication_pad2d.out(x, (1, 1, 1, 1), out=o), values(1, 2, 3, 4), torch.empty(5))
    check(lambda x, o: torch.ops.aten.reflection_pad2d.out(x, (1, 1, 1, 1), out=o), values(1, 2, 3, 4), torch.empty(0))


def test_pad_errors():
    x = values(2, 3, 4, 5)
    for mode in ("reflect", "replicate"):
        check_error(lambda x: F.pad(x, (5, 1, 1, 1), mode="reflect"), x)
        check_error(lambda x: F.pad(x, (1, 1, 4, 1), mode="reflect"), x)
        check_error(lambda x: F.pad(x, (-3, -3, -3, -3), mode=mode), x)
        check_error(lambda x: F.pad(x[:, :0], (1, 1, 1, 1), mode=mode), x)
        check_error(lambda x: F.pad(x[0, 0], (1, 1, 1, 1), mode=mode), x)
        check_error(lambda x: F.pad(x[0], (9, 1), mode="reflect"), x)
    check_error(lambda x: torch.ops.aten.reflection_pad2d_backward(x, x, (1, 1, 1, 1)), x)
    check_error(lambda x: torch.ops.aten.replication_pad2d_backward(x, x, (1, 1, 1, 1)), x)
    check_error(lambda x: torch.ops.aten.replication_pad3d_backward(x[None], x[None], (0, 0, 0, 0, 1, 1)), x)


@pytest.mark.parametrize("dtype", ALL)
def test_triangles(dtype):
    for shape in [(4, 4), (3, 5), (2, 5, 3), (0, 3), (2, 3, 0)]:
        x = values(*shape, dtype=dtype)
        for k in (0, 1, -1, -2, 9, -9):
            check(lambda x: (x.tril(k), x.triu(k)), x)
            check(lambda x: x.tril_(k), x)
            check(lambda x: x.transpose(-1, -2).triu_(k), x)
    check(lambda x: (x.tril(), x.permute(1, 0, 2).triu(1), x[..., ::2].tril()), values(3, 4, 6, dtype=dtype))
    check(lambda x, o: torch.triu(x, 1, out=o), values(3, 4, dtype=dtype), torch.empty(4, 3, dtype=dtype).t())


@pytest.mark.parametrize(
    "rows, columns", [(3, 4), (4, 3), (3, 3), (0, 3), (3, 0), (1, 9), (9, 1), (700, 300), (300, 700)]
)
def test_triangle_indices(rows, columns):
    for k in {0, 1, -1, columns - rows, columns - 1, 1 - rows, columns // 2, -rows // 2, 1000, -1000}:
        check(
            lambda x: (
                torch.tril_indices(rows, columns, k, device=x.device),
                torch.triu_indices(rows, columns, k, device=x.device, dtype=torch.int32),
            ),
            values(1),
        )
    check_error(lambda x: torch.tril_indices(-1, columns, device=x.device), values(3))


@pytest.mark.parametrize("rows, columns, k", [(2**40, 2, 2 - 2**40), (2**40, 3, 1 - 2**40), (2, 2**22, 2**22 - 3)])
def test_triangle_indices_of_few_elements_in_a_large_matrix(rows, columns, k):
    """Below the diagonal of a tall matrix, and above that of a wide one, there is little."""
    if rows > columns:
        found = torch.tril_indices(rows, columns, k, device="minitorch").cpu() - torch.tensor([[-k], [0]])
        assert torch.equal(found, torch.tril_indices(rows + k, columns))
    else:
        found = torch.triu_indices(rows, columns, k, device="minitorch").cpu() - torch.tensor([[0], [k]])
        assert torch.equal(found, torch.triu_indices(rows, columns - k))


def test_triangle_gradients_and_errors():
    check(lambda x: (x.tril(), x.triu(1)), values(3, 4).requires_grad_(), exact=False)
    check_error(lambda x: x.tril(), values(3))
    check(
        lambda x: (
            torch.diag(x[0]),
            torch.diag(x, 1),
            torch.diagflat(x),
            torch.diag_embed(x),
            torch.diagonal_scatter(x, x[0, :3]),
        ),
        values(3, 4),
    )


def test_repeat():
    x = values(3, 4).requires_grad_()
    check(lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.tile(2), torch.tile(x, (2, 2, 1))), x, exact=False)
    counts = torch.tensor([2, 0, 3])
    check(
        lambda x, c: (
            x.repeat_interleave(c, 0),
            x.repeat_interleave(2, 1),
            x.repeat_interleave(2),
            torch.repeat_interleave(c),
        ),
        x,
        counts,
        exact=False,
    )
    check(
        lambda x, c: (
            torch.repeat_interleave(c.int()),
            torch.repeat_interleave(c, output_size=5),
            x.repeat_interleave(c, 0, output_size=5),
        ),
        x,
        counts,
        exact=False,
    )
    check(lambda c: torch.repeat_interleave(c), torch.randint(0, 5, (20000,)))
    check(lambda c: torch.repeat_interleave(c), torch.empty(0, dtype=torch.long))
    for bad in (torch.tensor([1, -2]), torch.tensor([1.0]), torch.tensor([[1]])):
        check_error(lambda c: torch.repeat_interleave(c), bad)
    check_error(lambda c: torch.ops.aten.repeat_interleave.Tensor(c, output_size=7), counts)


COLUMNS = [
    dict(kernel_size=2), dict(kernel_size=(3, 2), padding=1), dict(kernel_size=2, stride=(2, 1), dilation=(1, 2)),
    dict(kernel_size=3, padding=(2, 1), stride=2, dilation=2),
]  # fmt: skip


@pytest.mark.parametrize("options", COLUMNS)
def test_columns(options):
    for x in (values(2, 3, 6, 7), values(3, 6, 7), values(2, 3, 7, 6).transpose(2, 3)):
        check(lambda x: F.unfold(x, **options), x.requires_grad_(), exact=False)
    columns = F.unfold(values(2, 3, 6, 7), **options)
    check(lambda c: F.fold(c, (6, 7), **options), columns.requires_grad_(), exact=False)
    check(lambda c: F.fold(c[0], (6, 7), **options), columns.detach(), exact=False)
    for dtype in (torch.float64, torch.bfloat16, torch.complex64):
        check(lambda c: F.fold(c, (6, 7), **options), columns.detach().to(dtype), wide=True, exact=False)


def test_column_errors():
    x = values(2, 3, 6, 7)
    check_error(lambda x: F.unfold(x, 9), x)
    check_error(lambda x: F.unfold(x[0, 0], 2), x)
    check_error(lambda x: F.fold(x[0], (6, 7), 2), x)
    check_error(lambda x: F.unfold(x, 2, stride=0), x)
    check(lambda x, o: torch.ops.aten.im2col.out(x, (2, 2), (1, 1), (0, 0), (1, 1), out=o), x, torch.empty(0))


@pytest.mark.parametrize("grad", [False, True])
def test_shuffles_in_every_layout(grad):
    x = values(2, 8, 6, 4)
    layouts = [
        x,
        x.to(memory_format=torch.channels_last),
        values(4, 6, 8, 2).permute(3, 2, 1, 0),
        values(2, 8, 6, 8)[..., ::2],
        values(1, 8, 6, 4).expand(2, 8, 6, 4),
        values(1, 8, 6, 4).to(memory_format=torch.channels_last),
    ]
    for x in layouts:
        x.requires_grad_(grad)
        check(lambda x: F.pixel_shuffle(x, 2), x, exact=False)
        check(lambda x: F.pixel_unshuffle(x, 2), x, exact=False)
        check(lambda x: F.channel_shuffle(x, 4), x, exact=False)
    check(lambda x: F.channel_shuffle(x, 2), values(2, 4, 2, 3, 2).to(memory_format=torch.channels_last_3d))
    check(lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2)), values(2, 1, 4, 2, 2))
    check(lambda x: (F.pixel_shuffle(x, 2), F.channel_shuffle(x, 4)), values(0, 4, 2, 2))
    check_error(lambda x: F.pixel_shuffle(x, 3), layouts[0].detach())
    check_error(lambda x: F.pixel_unshuffle(x, 5), layouts[0].detach())
    check_error(lambda x: F.channel_shuffle(x, 3), layouts[0].detach())
    check_error(lambda x: F.pixel_shuffle(x, 2), values(2, 4, 3, 2, 2).to(memory_format=torch.channels_last_3d))


def test_shuffles_and_splits():
    x = values(2, 8, 6, 4).requires_grad_()
    check(lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x.detach(), 4)), x, exact=False)
    check(
        lambda x: (x.split(3, 1), x.chunk(3, 1), x.tensor_split(3, 2), x.unbind(0), x.hsplit(2), x.split([1, 5, 2], 1)),
        x,
        exact=False,
    )
    check(lambda x: torch.ops.aten.narrow_copy(x.detach(), 1, 2, 3), x)
    check(lambda i: F.one_hot(i, 5), torch.tensor([[0, 4], [2, 1]]))
    check(lambda x: (torch.combinations(x), torch.cartesian_prod(x, x), torch.meshgrid(x, x, indexing="ij")), values(4))
    check(lambda x: (torch.block_diag(x, x), x.new_zeros(2), torch.atleast_3d(x), torch.rot90(x)), values(2, 3))
