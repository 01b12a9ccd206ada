"""The first things to try on a GPU, one by one: each is reported, and a failure does not stop the rest.

Usage: python tools/gpu_smoke.py [name...]      exit status 1 if any fails
"""

import sys
import time
import traceback
from collections.abc import Callable

import torch
import torch.nn.functional as F

import minitorch_backend  # noqa: F401

D = "minitorch"
# PyTorch's default lets convolutions of float round their factors to tf32 on a GPU; native CPU does not round.
torch.backends.cudnn.allow_tf32 = False
CHECKS: dict[str, Callable[[], None]] = {}


def check(f: Callable[[], None]) -> Callable[[], None]:
    CHECKS[f.__name__] = f
    return f


def same(fn: Callable, *args: object, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """fn gives the same on the device as on native CPU."""
    ours = fn(*[a.to(D) if isinstance(a, torch.Tensor) else a for a in args])
    torch.testing.assert_close(ours.cpu(), fn(*args), rtol=rtol, atol=atol, equal_nan=True)


def grads(fn: Callable, *args: torch.Tensor, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """fn and its gradients are the same on the device as on native CPU."""
    native = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
    ours = [a.to(D).detach().requires_grad_(a.is_floating_point()) for a in args]
    expected, result = fn(*native), fn(*ours)
    torch.testing.assert_close(result.detach().cpu(), expected.detach(), rtol=rtol, atol=atol)
    weight = torch.randn_like(expected)
    expected.backward(weight)
    result.backward(weight.to(D))
    for a, b in zip(ours, native, strict=True):
        if b.grad is not None:
            torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=rtol, atol=atol)


@check
def device() -> None:
    print("   ", torch.minitorch.get_device_properties(0), torch.__version__)
    assert torch.minitorch.device_count() >= 1


@check
def round_trip() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        x = torch.randn(37, 53).to(dtype)
        assert torch.equal(x.to(D).cpu(), x)


@check
def strided_copies() -> None:
    x = torch.randn(31, 47, 5)
    for view in (x.t() if x.dim() == 2 else x.transpose(0, 1), x[::2, 1:, ::3], x[:, :1].expand(31, 9, 5)):
        assert torch.equal(view.to(D).cpu(), view)
        y = torch.zeros(view.shape, device=D).transpose(0, 1).contiguous().transpose(0, 1)
        y.copy_(view)
        assert torch.equal(y.cpu(), view)
        z = torch.zeros(view.shape).transpose(0, 1).contiguous().transpose(0, 1)
        z.copy_(view.to(D))
        assert torch.equal(z, view)


@check
def conversions() -> None:
    x = torch.randn(1000) * 50
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool, torch.complex64):
        assert torch.equal(x.to(D).to(dtype).cpu(), x.to(dtype))
        assert torch.equal(torch.empty(1000, dtype=dtype).copy_(x.to(D)), x.to(dtype))


@check
def pinned_and_non_blocking() -> None:
    x = torch.randn(1 << 20).pin_memory()
    y = x.to(D, non_blocking=True)
    z = torch.empty_like(x).copy_(y, non_blocking=True)
    torch.minitorch.synchronize()
    assert torch.equal(z, x)


@check
def item_and_print() -> None:
    x = torch.arange(10, device=D)
    assert x[3].item() == 3 and x.tolist() == list(range(10))
    print("   ", repr(x * 0.5))


@check
def factories() -> None:
    same(lambda: torch.ones(3) * 2)
    for make in (torch.zeros, torch.ones):
        assert torch.equal(make(5, 7, device=D).cpu(), make(5, 7))
    assert torch.equal(torch.full((9,), 3, device=D).cpu(), torch.full((9,), 3))
    assert torch.equal(torch.arange(3, 100, 7, device=D).cpu(), torch.arange(3, 100, 7))
    assert torch.equal(torch.linspace(0, 1, 11, device=D).cpu(), torch.linspace(0, 1, 11))
    assert torch.equal(torch.eye(5, device=D).cpu(), torch.eye(5))


@check
def pointwise() -> None:
    x, y = torch.randn(1001), torch.rand(1001) + 0.5
    for fn in (torch.exp, torch.tanh, torch.neg, torch.relu, torch.sigmoid, F.gelu, F.silu, torch.abs, torch.sin):
        same(fn, x)
    for fn in (torch.add, torch.sub, torch.mul, torch.div, torch.pow, torch.maximum, torch.eq, torch.lt, torch.atan2):
        same(fn, y, x.abs() + 0.1)
    same(lambda a, b: torch.where(a > 0, a, b), x, y)
    same(lambda a: a * 2 + 1, x)
    same(lambda a: a.clamp(-0.5, 0.5), x)
    same(lambda a: a // 3, torch.arange(-10, 10))


@check
def pointwise_layouts() -> None:
    x, y = torch.randn(33, 65), torch.randn(65, 33)
    same(lambda a, b: a + b.t(), x, y)
    same(lambda a, b: a * b[:1].t(), x, y[:, :33])
    same(lambda a: a[::2, 1::3] * 2, x)
    same(lambda a: a + a.to(torch.bfloat16), x)
    same(lambda a: a.to(torch.bfloat16) + a.to(torch.bfloat16), x, rtol=0, atol=0)
    same(lambda a: a.add_(1), torch.randn(1000003))


@check
def reductions() -> None:
    for shape in ((1000,), (37, 1003), (1003, 37), (7, 300, 11), (300000,), (3, 5)):
        x = torch.randn(shape)
        same(torch.sum, x, rtol=1e-4, atol=1e-3)
        for d in range(x.dim()):
            same(lambda a, d=d: a.sum(d), x, rtol=1e-4, atol=1e-3)
            same(lambda a, d=d: a.mean(d), x, rtol=1e-4, atol=1e-5)
            same(lambda a, d=d: a.amax(d), x)
            same(lambda a, d=d: a.argmax(d), x)
            same(lambda a, d=d: a.max(d)[1], x)
            same(lambda a, d=d: a.var(d), x, rtol=1e-4, atol=1e-5)
            same(lambda a, d=d: a.norm(dim=d), x, rtol=1e-4, atol=1e-5)
        same(lambda a: (a > 0).any(), x)
        same(lambda a: (a > 0).sum(), x)
    same(lambda a: a.sum(-1), torch.randn(64, 4096, dtype=torch.bfloat16), rtol=2e-2, atol=2e-1)


@check
def softmax() -> None:
    for shape in ((5, 10), (33, 1000), (3, 5000), (4, 9, 17)):
        grads(lambda a: F.softmax(a, -1), torch.randn(shape))
        grads(lambda a: F.log_softmax(a, -1), torch.randn(shape))
    grads(lambda a: F.softmax(a, 1), torch.randn(40, 9, 40))


@check
def matmul() -> None:
    for m, n, k in ((5, 7, 3), (64, 64, 64), (130, 70, 190), (1, 300, 500), (300, 1, 500), (257, 129, 1000)):
        a, b = torch.randn(m, k), torch.randn(k, n)
        same(torch.mm, a, b, rtol=1e-4, atol=1e-4)
        same(lambda x, y: x.t().mm(y.t()), torch.randn(k, m), torch.randn(n, k), rtol=1e-4, atol=1e-4)
        for dtype in (torch.bfloat16, torch.float16):
            same(torch.mm, a.to(dtype), b.to(dtype), rtol=2e-2, atol=2e-1)
        same(torch.mm, a.double(), b.double())
    same(torch.bmm, torch.randn(6, 17, 33), torch.randn(6, 33, 9), rtol=1e-4, atol=1e-4)
    grads(F.linear, torch.randn(9, 33), torch.randn(17, 33), torch.randn(17))


@check
def convolution() -> None:
    for groups, stride, padding, dilation in ((1, 1, 1, 1), (2, 2, 0, 1), (1, 2, 2, 2), (4, 1, 1, 1)):
        grads(
            lambda x, w, b, g=groups, s=stride, p=padding, d=dilation: F.conv2d(x, w, b, s, p, d, g),
            torch.randn(3, 8, 14, 15), torch.randn(12, 8 // groups, 3, 3), torch.randn(12), atol=1e-3,
        )  # fmt: skip
    grads(F.conv_transpose2d, torch.randn(2, 6, 7, 8), torch.randn(6, 4, 3, 3), atol=1e-3)
    grads(F.conv1d, torch.randn(2, 6, 20), torch.randn(4, 6, 5), atol=1e-3)
    same(F.conv2d, torch.randn(2, 16, 9, 9).bfloat16(), torch.randn(8, 16, 3, 3).bfloat16(), rtol=3e-2, atol=3e-1)


@check
def pooling() -> None:
    x = torch.randn(2, 3, 13, 14)
    grads(lambda a: F.max_pool2d(a, 2), x)
    grads(lambda a: F.avg_pool2d(a, 3, 2, 1), x)
    grads(lambda a: F.adaptive_avg_pool2d(a, 4), x)


@check
def norms() -> None:
    grads(
        lambda x, w, b: F.layer_norm(x, (65,), w, b), torch.randn(33, 65), torch.randn(65), torch.randn(65), atol=1e-4
    )
    grads(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), torch.randn(8, 5, 9, 9), torch.randn(5),
          torch.randn(5), atol=1e-3)  # fmt: skip
    grads(lambda x, w, b: F.group_norm(x, 2, w, b), torch.randn(4, 6, 5, 5), torch.randn(6), torch.randn(6), atol=1e-3)


@check
def losses() -> None:
    x, t = torch.randn(65, 130), torch.randint(0, 130, (65,))
    for kwargs in ({}, {"label_smoothing": 0.1}, {"reduction": "sum"}, {"weight": torch.rand(130)}):

        def loss(a: torch.Tensor, b: torch.Tensor, options: dict = kwargs) -> torch.Tensor:
            return F.cross_entropy(a, b, **{k: v.to(a.device) if isinstance(v, torch.Tensor) else v
                                            for k, v in options.items()})  # fmt: skip

        grads(loss, x, t)
    grads(lambda a, b: F.nll_loss(F.log_softmax(a, 1), b), x, t)
    grads(F.mse_loss, torch.randn(50), torch.randn(50))


@check
def indexing() -> None:
    x, i = torch.randn(50, 7), torch.randint(0, 50, (33,))
    same(lambda a, b: a[b], x, i)
    same(lambda a, b: a.index_select(0, b), x, i)
    grads(lambda a, b: a[b] * 2, x, i)
    same(lambda a, b: a.gather(0, b), x, torch.randint(0, 50, (9, 7)))
    same(lambda a, b: a.scatter_add(0, b, torch.ones(9, 7, device=a.device)), x, torch.randint(0, 50, (9, 7)))
    same(lambda a: a[a > 0], x)
    same(lambda a: (a > 0).nonzero(), x)
    same(lambda a: a.masked_fill(a > 0, 3.0), x)
    grads(F.embedding, torch.randint(0, 20, (6, 8)), torch.randn(20, 12))


@check
def bad_index() -> None:
    x = torch.randn(5, device=D)
    try:
        x[torch.tensor([7], device=D)]
        torch.minitorch.synchronize()
    except IndexError as e:
        print("   ", str(e).splitlines()[0])
    else:
        raise AssertionError("no IndexError")
    assert torch.equal((x * 2).cpu(), x.cpu() * 2)


@check
def shapes() -> None:
    x, y = torch.randn(4, 5, 6), torch.randn(4, 3, 6)
    same(lambda a, b: torch.cat([a, b], 1), x, y)
    same(lambda a, b: torch.cat([a.transpose(0, 1), b.transpose(0, 1)], 0), x, y)
    same(lambda a: torch.stack([a, a]), x)
    same(torch.tril, torch.randn(7, 9))
    same(lambda a: a.flip(1), x)
    same(lambda a: F.pad(a, (1, 2), mode="reflect"), x)


@check
def attention() -> None:
    q, k, v = (torch.randn(2, 3, 37, 64) for _ in range(3))
    grads(lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True), q, k, v, atol=1e-4)
    grads(lambda a, b, c: F.scaled_dot_product_attention(a, b, c), q, k[:, :, :29], v[:, :, :29], atol=1e-4)


@check
def random() -> None:
    if torch.cuda.is_available():
        for make in (torch.rand, torch.randn):
            for n in (5, 1000, 1 << 21):
                for dtype in (torch.float32, torch.float64, torch.bfloat16):
                    torch.manual_seed(3)
                    ours = make(n, device=D, dtype=dtype).cpu()
                    torch.manual_seed(3)
                    native = make(n, device="cuda", dtype=dtype).cpu()
                    assert torch.equal(ours, native), (make, n, dtype, ours[:4], native[:4])
        torch.manual_seed(3)
        ours = torch.randint(0, 1000, (9999,), device=D).cpu()
        torch.manual_seed(3)
        assert torch.equal(ours, torch.randint(0, 1000, (9999,), device="cuda").cpu()), "randint"
    x = torch.ones(100000, device=D)
    y = F.dropout(x, 0.25)
    assert abs(y.mean().item() - 1) < 0.02


@check
def optimizers() -> None:
    for make in (torch.optim.SGD, torch.optim.AdamW):
        for extra in ({}, {"fused": True}):
            results = []
            for device in ("cpu", D):
                torch.manual_seed(0)
                model = torch.nn.Linear(20, 7)
                model.to(device)
                optimizer = make(model.parameters(), lr=0.1, **extra)
                for step in range(3):
                    torch.manual_seed(step)
                    optimizer.zero_grad()
                    model(torch.randn(5, 20).to(device)).square().sum().backward()
                    optimizer.step()
                results.append(model.weight.detach().cpu())
            torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)


@check
def streams_and_events() -> None:
    s = torch.Stream(D)
    a, b = torch.Event(D, enable_timing=True), torch.Event(D, enable_timing=True)
    x = torch.randn(1 << 20, device=D)
    with s:
        s.wait_stream(torch.accelerator.current_stream()) if hasattr(s, "wait_stream") else None
        a.record(s)
        y = x * 2
        y.record_stream(s)
        b.record(s)
    s.synchronize()
    assert a.elapsed_time(b) >= 0
    assert torch.equal(y.cpu(), x.cpu() * 2)


@check
def memory() -> None:
    torch.minitorch.empty_cache()
    before = torch.minitorch.memory_allocated()
    x = torch.empty(1 << 24, device=D)
    assert torch.minitorch.memory_allocated() - before >= 4 << 24
    del x
    assert torch.minitorch.memory_allocated() == before
    try:
        torch.empty(1 << 50, device=D)
    except torch.OutOfMemoryError as e:
        print("   ", str(e)[:120])
    assert torch.equal(torch.ones(3, device=D).cpu(), torch.ones(3))


@check
def beside_native_cuda() -> None:
    if torch.cuda.is_available():
        x = torch.randn(100)
        assert torch.equal((x.to(D) * 2).cpu(), (x.cuda() * 2).cpu())
        assert torch.equal(x.cuda().to(D).cpu(), x) and torch.equal(x.to(D).to("cuda").cpu(), x)


@check
def training() -> None:
    losses = {}
    for device in ("cpu", D):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.Linear(8 * 49, 10),
        ).to(device)  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        x, y = torch.randn(64, 1, 14, 14), torch.randint(0, 10, (64,))
        losses[device] = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    print("   ", [round(v, 4) for v in losses[D]])
    torch.testing.assert_close(torch.tensor(losses[D]), torch.tensor(losses["cpu"]), rtol=1e-2, atol=1e-2)


def main() -> int:
    failed = []
    for name, f in CHECKS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        start = time.perf_counter()
        try:
            torch.manual_seed(0)
            f()
            torch.minitorch.synchronize()
            print(f"ok    {name}  {time.perf_counter() - start:.2f} s", flush=True)
        except Exception:
            failed.append(name)
            print(
                f"FAIL  {name}\n" + "".join("      " + line for line in traceback.format_exc(limit=4).splitlines(True)),
                flush=True,
            )
    print(f"{len(failed)} failed: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
