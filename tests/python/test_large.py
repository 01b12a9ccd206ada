"""Tensors of more than 2^31 elements on a GPU: every index in a kernel has 64 bits where it needs them.

Results are compared with native CPU in windows: at the beginning, on both sides of element 2^31, and at the end.
"""

import gc

import pytest
import torch
import torch.nn.functional as F

from tests.python.twin import ASYNCHRONOUS, DEVICE

pytestmark = pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")

PERIOD = 251  # of the test pattern; a prime, so that no power of two that goes astray meets its own value
ROWS, COLUMNS = (1 << 21) + 3, 1024
N = ROWS * COLUMNS  # 2^31 + 3072
WINDOWS = [0, (1 << 31) - 500, N - 1000]
GIB = 1 << 30


def needs(gib):
    """Skips where the GPU has less free memory than that."""
    torch.minitorch.empty_cache()
    free = torch.minitorch.mem_get_info()[0] / GIB
    if free < gib:
        pytest.skip(f"needs {gib} GiB of free memory, {free:.0f} are there")


@pytest.fixture(autouse=True)
def give_back():
    yield
    gc.collect()
    torch.minitorch.empty_cache()


def values_at(index):
    return (index % PERIOD).to(torch.uint8)


def pattern(dtype=torch.uint8, n=N):
    """Element i is i modulo PERIOD."""
    x = torch.empty(n, dtype=dtype, device=DEVICE)
    cycle = torch.arange(PERIOD, dtype=torch.int32).to(dtype).to(DEVICE)
    whole = n // PERIOD * PERIOD
    x[:whole].view(-1, PERIOD).copy_(cycle)
    x[whole:].copy_(cycle[: n - whole])
    return x


def check(found, expected, windows=WINDOWS):
    """`expected(index)` gives the elements at these indices of the flattened result."""
    assert found.numel() > 1 << 31
    flat = found.view(-1)
    for start in windows:
        index = torch.arange(start, min(start + 1000, flat.numel()))
        torch.testing.assert_close(flat[index[0] : index[-1] + 1].cpu(), expected(index), rtol=0, atol=0)


def test_pattern_and_casts():
    needs(12)
    x = pattern()
    check(x, values_at)
    assert torch.equal(x[-5:].cpu(), values_at(torch.arange(N - 5, N)))
    wide = x.to(torch.bfloat16)
    check(wide, lambda i: values_at(i).to(torch.bfloat16))
    check(wide.to(torch.uint8), values_at)
    check(x.clone(), values_at)
    assert torch.equal(x, x.clone())


def test_pointwise():
    needs(16)
    x = pattern()
    check(x + x, lambda i: values_at(i) + values_at(i))
    check(x[1:] + x[:-1], lambda i: values_at(i) + values_at(i + 1), [0, (1 << 31) - 500])
    check(x == 7, lambda i: values_at(i) == 7)
    square = x.view(ROWS, COLUMNS)
    bias = torch.arange(COLUMNS, dtype=torch.int32).to(torch.uint8)
    check(square + bias.to(DEVICE), lambda i: values_at(i) + bias[i % COLUMNS])
    column = torch.arange(ROWS, dtype=torch.int32).to(torch.uint8)
    check(square + column.to(DEVICE)[:, None], lambda i: values_at(i) + column[i // COLUMNS])
    turned = square.t()  # strided operands and result
    check((turned * 3).t(), lambda i: values_at(i) * 3)
    half = x.to(torch.float16)
    check(half.add_(x), lambda i: values_at(i).to(torch.float16) * 2)
    check(torch.where(x > 100, x, 1), lambda i: torch.where(values_at(i) > 100, values_at(i), 1))


def test_copies():
    needs(16)
    x = pattern()
    turned = x.view(ROWS, COLUMNS).t()
    check(turned.contiguous(), lambda i: values_at(i % ROWS * COLUMNS + i // ROWS))
    check(x.flip(0), lambda i: values_at(N - 1 - i))
    check(turned.to(torch.bfloat16).t().contiguous(), lambda i: values_at(i).to(torch.bfloat16))
    check(torch.roll(x, 12345), lambda i: values_at((i - 12345) % N))
    y = torch.full((N,), 9, dtype=torch.uint8, device=DEVICE)
    y.view(ROWS, COLUMNS)[:, ::2].copy_(x.view(ROWS, COLUMNS)[:, 1::2])
    check(y, lambda i: torch.where(i % 2 == 0, values_at(i + 1), 9))


def test_a_copy_to_the_host_and_back():
    needs(6)
    x = pattern()
    host = x.cpu()
    assert torch.equal(host[-1000:], values_at(torch.arange(N - 1000, N)))
    assert torch.equal(host[(1 << 31) - 5 : (1 << 31) + 5], values_at(torch.arange((1 << 31) - 5, (1 << 31) + 5)))
    check(host.to(DEVICE), values_at)


def test_reductions():
    needs(16)
    x = pattern()
    whole, rest = divmod(N, PERIOD)
    total = whole * (PERIOD * (PERIOD - 1) // 2) + rest * (rest - 1) // 2
    assert x.sum().item() == total
    assert x.view(ROWS, COLUMNS).sum(1).sum().item() == total
    columns = x.view(ROWS, COLUMNS).sum(0)
    assert columns.sum().item() == total
    assert columns[5].item() == values_at(torch.arange(ROWS) * COLUMNS + 5).long().sum().item()
    assert x.view(COLUMNS, ROWS).sum(0)[-1].item() == values_at(torch.arange(COLUMNS) * ROWS + ROWS - 1).long().sum()
    assert torch.count_nonzero(x).item() == N - whole - (rest > 0)
    x[N - 7] = 255
    assert x.argmax().item() == N - 7 and x.max().item() == 255
    values, at = x.view(ROWS, COLUMNS).max(1)
    assert values[-1].item() == 255 and at[-1].item() == COLUMNS - 7
    half = torch.ones(N, dtype=torch.bfloat16, device=DEVICE)
    half[N - 3] = 1024
    assert half.float().mean().item() == pytest.approx(1 + 1023 / N, rel=1e-6)
    assert half.amax().item() == 1024
    assert abs(torch.var(half.view(ROWS, COLUMNS), 1)[-1].item() - 1023.0**2 / COLUMNS) < 10
    assert torch.linalg.vector_norm(half, float("inf")).item() == 1024


def test_reductions_of_two_dimensions():
    """One of them longer than 32 bits number, and no one with the other."""
    needs(16)
    x = torch.zeros(2, (1 << 32) + 1, dtype=torch.uint8, device=DEVICE)[:, : 1 << 32]
    x[0, 5], x[1, -1] = 3, 4
    assert x.sum().item() == 7 and x.amax().item() == 4 and torch.count_nonzero(x).item() == 2


def test_scans():
    needs(40)
    ones = torch.ones(N, dtype=torch.uint8, device=DEVICE)
    check(torch.cumsum(ones, 0), lambda i: i + 1)
    ones[N - 400] = 7
    values, at = torch.cummax(ones.view(ROWS, COLUMNS), 1)
    assert at[-1, -1].item() == COLUMNS - 400 and values[-1, -1].item() == 7
    down = torch.cumsum(ones.view(ROWS, COLUMNS)[:, :2].contiguous().t(), 1)
    assert down[0, -1].item() == ROWS


def test_indexing():
    needs(24)
    x = pattern()
    index = torch.tensor([0, 5, (1 << 31) - 1, 1 << 31, N - 1, -1])
    expected = values_at(index % N)
    there = index.to(DEVICE)
    assert torch.equal(x[there].cpu(), expected)
    assert torch.equal(torch.take(x, there).cpu(), expected)
    positive = (index % N).to(DEVICE)
    assert torch.equal(x.gather(0, positive).cpu(), expected)
    assert torch.equal(x.index_select(0, positive).cpu(), expected)
    rows = torch.tensor([ROWS - 1, 0, (1 << 21) + 1])
    whole_rows = values_at(rows[:, None] * COLUMNS + torch.arange(COLUMNS))
    square = x.view(ROWS, COLUMNS)
    assert torch.equal(square[rows.to(DEVICE)].cpu(), whole_rows)
    assert torch.equal(square.index_select(0, rows.to(DEVICE)).cpu(), whole_rows)
    assert torch.equal(F.embedding(rows.to(DEVICE), square.to(torch.bfloat16)).cpu(), whole_rows.to(torch.bfloat16))
    y = x.clone()
    y[positive[:5]] = 253
    y.index_add_(0, positive[3:5], torch.ones(2, dtype=torch.uint8, device=DEVICE))
    y.scatter_(0, positive[:1], 252)
    assert torch.equal(y[positive].cpu(), torch.tensor([252, 253, 253, 254, 254, 254], dtype=torch.uint8))
    assert (y != x).sum().item() == 5
    wide = square.index_select(0, torch.arange(ROWS, device=DEVICE).flip(0))
    check(wide, lambda i: values_at((ROWS - 1 - i // COLUMNS) * COLUMNS + i % COLUMNS))
    with pytest.raises(IndexError, match=str(N)):
        x[torch.tensor([N], device=DEVICE)]
        torch.minitorch.synchronize()


def test_masks():
    needs(20)
    x = pattern()
    where = torch.tensor([3, (1 << 31) - 1, 1 << 31, N - 2])
    mask = torch.zeros(N, dtype=torch.bool, device=DEVICE)
    mask[where.to(DEVICE)] = True
    assert torch.equal(mask.nonzero().cpu().view(-1), where)
    assert torch.equal(mask.view(ROWS, COLUMNS).nonzero().cpu(), torch.stack([where // COLUMNS, where % COLUMNS], 1))
    assert torch.equal(x[mask].cpu(), values_at(where))
    assert torch.equal(x.masked_fill(mask, 254)[where.to(DEVICE)].cpu(), torch.full((4,), 254, dtype=torch.uint8))
    check(x.masked_select(~mask), lambda i: values_at(i + 1), [500])
    assert torch.equal(
        x.masked_select(~mask)[-1000:].cpu(),
        values_at(torch.cat([torch.arange(N - 1001, N - 2), torch.tensor([N - 1])])),
    )


def test_cat_and_split():
    needs(16)
    x = pattern()
    first, second = x[: N // 3], x[N // 3 :]
    check(torch.cat([second, first]), lambda i: values_at((i + N // 3) % N))
    square = x.view(ROWS, COLUMNS)
    check(
        torch.cat([square[:, 100:], square[:, :100]], 1),
        lambda i: values_at(i // COLUMNS * COLUMNS + (i + 100) % COLUMNS),
    )
    check(
        torch.stack([x[: N // 2 + 1], x[-(N // 2 + 1) :]], 1),
        lambda i: values_at(i // 2 + i % 2 * (N - N // 2 - 1)),
        [0, (1 << 31) - 500],
    )


@pytest.mark.parametrize("kind", [torch.softmax, torch.log_softmax])
def test_softmax(kind):
    needs(24)
    x = pattern(torch.bfloat16).mul_(1 / 64)

    def expected_rows(rows):
        return kind((values_at(rows[:, None] * COLUMNS + torch.arange(COLUMNS)).bfloat16() * (1 / 64)).float(), 1)

    rows = torch.tensor([0, (1 << 21) - 1, 1 << 21, ROWS - 1])
    y = kind(x.view(ROWS, COLUMNS), 1)
    torch.testing.assert_close(y[rows.to(DEVICE)].float().cpu(), expected_rows(rows), rtol=1e-2, atol=1e-5)
    x = x.view(COLUMNS, ROWS)
    y = kind(x, 0)  # slices with a stride
    for column in (0, ROWS - 1):
        expected = kind(x[:, column].float().cpu(), 0)
        torch.testing.assert_close(y[:, column].float().cpu(), expected, rtol=1e-2, atol=1e-5)


def test_softmax_of_one_slice():
    needs(16)
    x = torch.zeros(N, dtype=torch.bfloat16, device=DEVICE)
    x[N - 2] = 30.0
    y = torch.softmax(x, 0)
    weight = torch.tensor(30.0, dtype=torch.float64).exp()
    assert abs(y[N - 2].item() - (weight / (weight + N - 1)).item()) < 4e-3
    assert abs(y[1 << 31].item() * N - N / (weight + N - 1).item()) < 1e-2


def test_sort():
    needs(60)
    x = pattern()
    values, order = x.sort(stable=True)
    whole, rest = divmod(N, PERIOD)
    counts = torch.tensor([whole + (v < rest) for v in range(PERIOD)])
    ends = counts.cumsum(0)

    def sorted_at(i):
        return torch.searchsorted(ends, i, right=True)

    check(values, lambda i: sorted_at(i).to(torch.uint8))
    check(order, lambda i: sorted_at(i) + PERIOD * (i - (ends - counts)[sorted_at(i)]))


def test_norms():
    needs(24)
    rows = torch.tensor([0, 1 << 21, ROWS - 1])
    x = pattern(torch.bfloat16).mul_(1 / 64).view(ROWS, COLUMNS)
    native = x[rows.to(DEVICE)].cpu()
    for norm in (lambda t: F.layer_norm(t, (COLUMNS,)), lambda t: F.rms_norm(t, (COLUMNS,))):
        y = norm(x)
        torch.testing.assert_close(y[rows.to(DEVICE)].cpu().float(), norm(native.float()), rtol=2e-2, atol=2e-2)
        del y
    y = F.group_norm(x.view(ROWS, 8, COLUMNS // 8), 2)
    expected = F.group_norm(native.float().view(3, 8, COLUMNS // 8), 2)
    torch.testing.assert_close(y[rows.to(DEVICE)].cpu().float(), expected, rtol=2e-2, atol=2e-2)
    del y
    mean, var = torch.full((8,), 1.9), torch.full((8,), 1.3)
    y = F.batch_norm(x.view(ROWS, 8, COLUMNS // 8), mean.to(DEVICE), var.to(DEVICE))
    expected = F.batch_norm(native.float().view(3, 8, COLUMNS // 8), mean, var)
    torch.testing.assert_close(y[rows.to(DEVICE)].cpu().float(), expected, rtol=2e-2, atol=2e-2)


def test_cross_entropy():
    needs(24)
    x = pattern(torch.bfloat16).mul_(1 / 64).view(ROWS, COLUMNS).requires_grad_()
    target = torch.arange(ROWS) % COLUMNS
    loss = F.cross_entropy(x, target.to(DEVICE), reduction="none")
    rows = torch.tensor([0, 1 << 21, ROWS - 1])
    native = x.detach()[rows.to(DEVICE)].cpu().float().requires_grad_()
    expected = F.cross_entropy(native, target[rows], reduction="none")
    torch.testing.assert_close(loss[rows.to(DEVICE)].cpu().float(), expected.detach(), rtol=2e-2, atol=2e-2)
    loss.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad[rows.to(DEVICE)].cpu().float(), native.grad, rtol=2e-2, atol=1e-4)


def test_random():
    needs(20)
    x = torch.empty(N, dtype=torch.bfloat16, device=DEVICE).fill_(-1)
    x.uniform_()
    for start in WINDOWS:
        window = x[start : start + 1000].float().cpu()
        assert 0.4 < window.mean() < 0.6 and window.min() >= 0
    y = F.dropout(torch.ones(N, dtype=torch.bfloat16, device=DEVICE).requires_grad_(), 0.5)
    for start in WINDOWS:
        window = y.detach()[start : start + 1000].float().cpu()
        assert 0.4 < (window == 2).float().mean() < 0.6 and ((window == 0) | (window == 2)).all()


def test_dropout_gradient():
    needs(20)
    x = torch.ones(N, dtype=torch.bfloat16, device=DEVICE).requires_grad_()
    y = F.dropout(x, 0.5)
    y.backward(torch.ones_like(y))
    assert torch.equal(x.grad, y.detach())


def test_pooling_and_upsampling():
    needs(20)
    images = 1 + (1 << 31) // (64 * 64)
    n = images * 64 * 64
    x = pattern(torch.bfloat16, n).view(images, 1, 64, 64)
    last = x[-2:].cpu()
    for pool in (lambda t: F.max_pool2d(t, 2), lambda t: F.avg_pool2d(t, 2), lambda t: F.adaptive_avg_pool2d(t, 3)):
        torch.testing.assert_close(pool(x)[-2:].cpu().float(), pool(last.float()), rtol=1e-2, atol=0)
    small = x[: images // 4 + 1].contiguous()
    del x
    y = F.interpolate(small, scale_factor=2)
    assert y.numel() > 1 << 31
    assert torch.equal(y[-2:].cpu(), F.interpolate(small[-2:].cpu(), scale_factor=2))


def test_products():
    needs(24)
    x = pattern(torch.bfloat16).mul_(1 / 64).view(ROWS, COLUMNS)
    w = torch.randn(COLUMNS, 16).bfloat16()
    rows = torch.tensor([0, 1 << 21, ROWS - 1])
    expected = x[rows.to(DEVICE)].cpu().float() @ w.float()
    torch.testing.assert_close((x @ w.to(DEVICE))[rows.to(DEVICE)].cpu().float(), expected, rtol=2e-2, atol=0.3)
    del x
    a, b = torch.randn(65_544, 8).bfloat16(), torch.randn(8, 32_776).bfloat16()
    product = a.to(DEVICE) @ b.to(DEVICE)
    assert product.numel() > 1 << 31
    expected = a[-3:].float() @ b.float()
    torch.testing.assert_close(product[-3:].cpu().float(), expected, rtol=2e-2, atol=2e-2)


def test_convolutions():
    """More positions than 32 bits number go in pieces of the batch."""
    needs(80)
    images = 3 + (1 << 31) // (64 * 64)
    w = torch.randn(1, 1, 3, 3, generator=torch.Generator().manual_seed(1))
    x = pattern(torch.bfloat16, images * 64 * 64).mul_(1 / 64).view(images, 1, 64, 64)
    last = x[-4:].cpu()
    y = F.conv2d(x, w.bfloat16().to(DEVICE), padding=1)
    torch.testing.assert_close(
        y[-4:].cpu().float(), F.conv2d(last.float(), w.bfloat16().float(), padding=1), rtol=1e-2, atol=2e-2
    )
    del x, y
    torch.minitorch.empty_cache()
    x = torch.ones(images, 1, 64, 64, dtype=torch.float64, device=DEVICE).requires_grad_()
    w = w.double().to(DEVICE).requires_grad_()
    F.conv2d(x, w).sum().backward()
    assert torch.equal(w.grad.cpu(), torch.full((1, 1, 3, 3), images * 62.0 * 62.0, dtype=torch.float64))
    few = torch.ones(1, 1, 64, 64, dtype=torch.float64).requires_grad_()
    F.conv2d(few, w.detach().cpu()).sum().backward()
    for sample in (0, images - 4, images - 1):
        torch.testing.assert_close(x.grad[sample].cpu(), few.grad[0])


def test_one_sample_of_a_convolution():
    """One that has more positions goes in parts."""
    needs(80)
    n = (1 << 31) + 5
    w = torch.randn(1, 1, 3, generator=torch.Generator().manual_seed(1)).bfloat16()
    x = pattern(torch.bfloat16, n).mul_(1 / 64).view(1, 1, n)
    y = F.conv1d(x, w.to(DEVICE), padding=1)
    # At both ends, and where parts of half the size and element 2^31 are.
    for start, end in ((0, 1000), ((1 << 30) - 500, (1 << 30) + 500), ((1 << 31) - 900, n)):
        around = x[..., max(start - 1, 0) : end + 1].cpu().float()
        pad = (int(start == 0), int(end == n))
        torch.testing.assert_close(
            y[..., start:end].cpu().float(), F.conv1d(F.pad(around, pad), w.float()), rtol=1e-2, atol=2e-2
        )
    del x, y
    torch.minitorch.empty_cache()
    x = torch.ones(1, 1, n, dtype=torch.float64, device=DEVICE).requires_grad_()
    w = w.double().to(DEVICE).requires_grad_()
    F.conv1d(x, w, padding=1).sum().backward()
    assert w.grad.flatten().tolist() == [n - 1, n, n - 1]
    left, middle, right = w.detach().cpu().flatten()
    for start in (0, (1 << 30) - 500, n - 1000):
        expected = torch.full((1000,), (left + middle + right).item(), dtype=torch.float64)
        if start == 0:
            expected[0] = left + middle
        if start == n - 1000:
            expected[-1] = middle + right
        torch.testing.assert_close(x.grad[0, 0, start : start + 1000].cpu(), expected)


def test_matrices():
    needs(60)
    n = (1 << 31) + 5
    x = torch.full((n, 1, 1), 4.0, device=DEVICE)
    x[-1], x[0] = 9.0, 16.0
    factors, info = torch.linalg.cholesky_ex(x)
    assert torch.equal(factors[-5:].cpu().view(-1), torch.tensor([2.0, 2.0, 2.0, 2.0, 3.0]))
    assert factors[0].item() == 4 and (factors[1:-1] == 2).all().item() and not info.any().item()


def test_optimizer_step():
    needs(36)
    p = torch.nn.Parameter(torch.ones(N, dtype=torch.bfloat16, device=DEVICE))
    p.grad = torch.ones_like(p)
    torch.optim.SGD([p], lr=0.5, foreach=True).step()
    check(p.detach(), lambda i: torch.full(i.shape, 0.5, dtype=torch.bfloat16))
    torch.optim.AdamW([p], lr=0.25, weight_decay=0.0, fused=True).step()
    for start in WINDOWS:
        assert (p.detach()[start : start + 1000].float() - 0.25).abs().max().item() < 2e-3
