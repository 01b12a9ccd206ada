"""What PyTorch's switches mean on a GPU: the precision of float products, deterministic algorithms; and which kernel it
was that failed."""

import pytest
import torch
import torch.nn.functional as F

from tests.python.test_gpu_hazards import run
from tests.python.twin import ASYNCHRONOUS, DEVICE

on_a_gpu = pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")


# ---- Precision of products -------------------------------------------------------------------------------------------


@pytest.fixture
def precision():
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision("highest")


PRODUCTS = {
    "mm": lambda a, b, c: a @ b,
    "transposed": lambda a, b, c: a.t() @ b.t(),
    "addmm": lambda a, b, c: torch.addmm(c, a, b),
    "linear": lambda a, b, c: F.linear(a, b, c),
    "bmm": lambda a, b, c: torch.bmm(a.view(4, 128, 512), b.view(4, 512, 128)),
}


def relative_error(function, *args):
    exact = function(*[a.double() for a in args])
    found = function(*[a.to(DEVICE) for a in args]).cpu().double()
    return ((found - exact).norm() / exact.norm()).item()


def rounding():
    """Below the error of products with factors of tf32; only Hopper's matrix units make use of the permission."""
    return 5e-5 if torch.minitorch.get_device_properties(0).major == 9 else 0


@on_a_gpu
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_floats_round_their_factors_only_when_allowed(precision, name):
    torch.manual_seed(0)
    args = torch.randn(512, 512), torch.randn(512, 512), torch.randn(512)
    assert torch.get_float32_matmul_precision() == "highest"
    assert relative_error(PRODUCTS[name], *args) < 2e-6
    for allowed in ("high", "medium"):  # CUDA has nothing between tf32 and bf16 for either
        precision(allowed)
        assert rounding() < relative_error(PRODUCTS[name], *args) < 1e-3
    precision("highest")
    assert relative_error(PRODUCTS[name], *args) < 2e-6


@on_a_gpu
def test_gradients_of_products_follow_the_switch(precision):
    torch.manual_seed(0)
    a, b = torch.randn(256, 256), torch.randn(256, 256)

    def gradient(a, b):
        a = a.detach().requires_grad_()
        (a @ b).square().sum().backward()
        return a.grad

    assert relative_error(gradient, a, b) < 5e-6
    precision("high")
    assert rounding() < relative_error(gradient, a, b) < 2e-3


@on_a_gpu
def test_products_of_other_types_do_not_care(precision):
    a, b = torch.randn(256, 256, dtype=torch.float64), torch.randn(256, 256, dtype=torch.float64)
    z = torch.complex(a, b).to(torch.complex64)
    before = [(x.to(DEVICE) @ x.to(DEVICE)).cpu() for x in (a, z, a.bfloat16())]
    precision("high")
    after = [(x.to(DEVICE) @ x.to(DEVICE)).cpu() for x in (a, z, a.bfloat16())]
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
    assert relative_error(torch.matmul, a, b) < 1e-14


@on_a_gpu
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_convolutions_of_floats_have_a_switch_of_their_own(memory_format):
    torch.manual_seed(0)
    x = torch.randn(8, 64, 28, 28).contiguous(memory_format=memory_format)
    w = torch.randn(64, 64, 3, 3)

    def convolve(x, w):
        return F.conv2d(x, w, padding=1)

    assert not torch.backends.cudnn.allow_tf32  # as conftest.py has it
    assert relative_error(convolve, x, w) < 2e-6
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        assert 5e-5 < relative_error(convolve, x, w) < 1e-3
    assert relative_error(convolve, x, w) < 2e-6


# ---- Deterministic algorithms ----------------------------------------------------------------------------------------


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


N, FEW = 40_000, 7  # many additions to few places


def places():
    return torch.randint(0, FEW, (N,), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def numbers(*shape):
    """Numbers of all magnitudes, whose sum depends on the order of additions."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(shape, generator=generator) * torch.exp(4 * torch.randn(shape, generator=generator))
    return x.to(DEVICE)


def gradient(function):
    """The gradient of function(x) for numbers of a shape."""

    def call(*shape):
        x = numbers(*shape).requires_grad_()
        y = function(x)
        y.backward(numbers(*y.shape))
        return x.grad

    return call


def zeros(dims=1):
    return torch.zeros((FEW,) + (3,) * (dims - 1), device=DEVICE)


# Those of which native CUDA has two algorithms, or refuses the one it has, and some sums that are split over blocks.
CALLS = {
    "index_add": lambda: zeros().index_add(0, places(), numbers(N)),
    "index_add of rows": lambda: zeros(2).index_add(0, places(), numbers(N, 3)),
    "index_copy": lambda: zeros().index_copy(0, places(), numbers(N)),
    "index_put": lambda: zeros().index_put((places(),), numbers(N)),
    "index_put accumulate": lambda: zeros().index_put((places(),), numbers(N), accumulate=True),
    "index_reduce": lambda: zeros().add(1).index_reduce(0, places(), 1 + 1e-3 * numbers(N).sigmoid(), "prod"),
    "put accumulate": lambda: zeros().put(places(), numbers(N), accumulate=True),
    "scatter": lambda: zeros().scatter(0, places(), numbers(N)),
    "scatter_add": lambda: zeros().scatter_add(0, places(), numbers(N)),
    "scatter_reduce sum": lambda: zeros().scatter_reduce(0, places(), numbers(N), "sum"),
    "scatter_reduce mean": lambda: zeros().scatter_reduce(0, places(), numbers(N), "mean"),
    "scatter_reduce prod": lambda: zeros().add(1).scatter_reduce(0, places(), 1 + 1e-3 * numbers(N).sigmoid(), "prod"),
    "gather gradient": lambda: gradient(lambda x: x.gather(0, places()))(FEW),
    "index gradient": lambda: gradient(lambda x: x[places()])(FEW, 3),
    "index_select gradient": lambda: gradient(lambda x: x.index_select(0, places()))(FEW, 3),
    "take gradient": lambda: gradient(lambda x: x.take(places()))(FEW),
    "repeat_interleave gradient": lambda: gradient(lambda x: x.repeat_interleave(1000))(FEW),
    "expand gradient": lambda: gradient(lambda x: x.expand(N, FEW) * 1)(FEW),
    "embedding gradient": lambda: gradient(lambda x: F.embedding(places(), x))(FEW, 8),
    "embedding_bag gradient": lambda: gradient(lambda x: F.embedding_bag(places().view(-1, 8), x, mode="sum"))(FEW, 8),
    "embedding_bag max gradient": lambda: gradient(lambda x: F.embedding_bag(places().view(-1, 8), x, mode="max"))(
        FEW, 8
    ),
    "bincount": lambda: torch.bincount(places(), numbers(N)),
    "histogram": lambda: torch.histogram(numbers(N).tanh(), 5, weight=numbers(N).abs())[0],
    "histc": lambda: torch.histc(numbers(N), 50, -1, 1),
    "cumsum": lambda: numbers(N).cumsum(0),
    "cumprod": lambda: (1 + 1e-3 * numbers(N).tanh()).cumprod(0),
    "sum": lambda: numbers(300, N // 100).sum(),
    "sum of columns": lambda: numbers(N, 5).sum(0),
    "norm": lambda: numbers(N).norm(),
    "foreach norm": lambda: torch.stack(torch._foreach_norm([numbers(N), numbers(N // 2)])),
    "matmul": lambda: numbers(16, 8192) @ numbers(8192, 16),
    "kthvalue": lambda: numbers(5, 999).kthvalue(7).indices,
    "median": lambda: numbers(5, 999).round().median(1).indices,
    "mode": lambda: numbers(5, 999).round().mode(1).indices,
    "sort": lambda: numbers(5, 999).round().sort(1).indices,
    "topk": lambda: numbers(5, 999).round().topk(9).indices,
    "upsample bilinear gradient": lambda: gradient(lambda x: F.interpolate(x, scale_factor=3, mode="bilinear"))(
        1, 2, 30, 30
    ),
    "upsample bicubic gradient": lambda: gradient(lambda x: F.interpolate(x, scale_factor=3, mode="bicubic"))(
        1, 2, 30, 30
    ),
    "upsample trilinear gradient": lambda: gradient(lambda x: F.interpolate(x, scale_factor=3, mode="trilinear"))(
        1, 2, 9, 9, 9
    ),
    "upsample nearest gradient": lambda: gradient(lambda x: F.interpolate(x, scale_factor=3))(1, 2, 30, 30),
    "reflection pad gradient": lambda: gradient(lambda x: F.pad(x, (20, 20, 20, 20), "reflect"))(1, 2, 30, 30),
    "replication pad gradient": lambda: gradient(lambda x: F.pad(x, (90, 90, 90, 90), "replicate"))(1, 2, 30, 30),
    "max pool gradient": lambda: gradient(lambda x: F.max_pool2d(x, 5, 1))(1, 2, 60, 60),
    "max pool 3d gradient": lambda: gradient(lambda x: F.max_pool3d(x, 3, 1))(1, 2, 12, 12, 12),
    "adaptive max pool gradient": lambda: gradient(lambda x: F.adaptive_max_pool2d(x, 50))(1, 2, 60, 60),
    "average pool 3d gradient": lambda: gradient(lambda x: F.avg_pool3d(x, 3, 1))(1, 2, 12, 12, 12),
    "adaptive average pool gradient": lambda: gradient(lambda x: F.adaptive_avg_pool2d(x, 50))(1, 2, 60, 60),
    "nll_loss 2d": lambda: F.nll_loss(numbers(4, FEW, 100, 100), places().view(4, 100, 100)),
    "ctc_loss gradient": lambda: gradient(
        lambda x: F.ctc_loss(
            x.log_softmax(2), torch.ones(2, 30, dtype=torch.long, device=DEVICE), (80, 80), (30, 20), reduction="none"
        )
    )(80, 2, FEW),
    "conv gradient": lambda: gradient(lambda w: F.conv2d(numbers(16, 8, 20, 20), w, padding=1))(8, 8, 3, 3),
    "transposed conv": lambda: F.conv_transpose2d(numbers(2, 8, 20, 20), numbers(8, 4, 3, 3), stride=2),
    "layer norm gradient": lambda: gradient(lambda w: F.layer_norm(numbers(3000, 64).tanh(), (64,), w))(64),
    "batch norm gradient": lambda: gradient(
        lambda w: F.batch_norm(numbers(64, 5, 20, 20).tanh(), None, None, w, training=True)
    )(5),
    "attention gradient": lambda: gradient(lambda x: F.scaled_dot_product_attention(x, x * 0.5, x + 1, is_causal=True))(
        1, 2, 300, 64
    ),
    "cdist gradient": lambda: gradient(lambda x: torch.cdist(x, numbers(300, 5)))(9, 5),
}


@pytest.mark.parametrize("name", CALLS)
def test_deterministic_algorithms_give_the_same_bits(deterministic, name):
    first = CALLS[name]().nan_to_num()
    for _ in range(4):
        assert torch.equal(CALLS[name]().nan_to_num(), first)


def test_writes_in_any_order_are_refused(deterministic):
    with pytest.raises(RuntimeError, match=r"^put_ does not have a deterministic implementation"):
        zeros().put(places(), numbers(N))


# ---- Indices out of range --------------------------------------------------------------------------------------------

# The operator that an error names: a call with an index of 7 where 5 are allowed.
BAD_INDICES = {
    "index": lambda x, i: x[i],
    "index_put_": lambda x, i: x.index_put_((i,), x[:1].clone()),
    "index_fill_": lambda x, i: x.index_fill_(0, i, 1.0),
    "index_copy_": lambda x, i: x.index_copy_(0, i, x[:1].clone()),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add_(0, i, x[:1].clone()),
    "index_reduce": lambda x, i: x.index_reduce_(0, i, x[:1].clone(), "amax"),
    "take": lambda x, i: x.take(i),
    "put_": lambda x, i: x.put_(i, x[:1].clone()),
    "gather": lambda x, i: x.gather(0, i),
    "scatter": lambda x, i: x.scatter(0, i, 3.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x[:1].clone()),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, x[:1].clone(), "amax"),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x[:, None]),
    "nll_loss target": lambda x, i: F.nll_loss(x[None], i),
    "cross_entropy target": lambda x, i: F.cross_entropy(x[None], i),
    "multi_margin_loss target": lambda x, i: F.multi_margin_loss(x[None], i),
}


@on_a_gpu
@pytest.mark.parametrize("name", BAD_INDICES)
def test_a_bad_index_names_its_operator(name):
    x, i = torch.arange(5.0, device=DEVICE), torch.tensor([7], device=DEVICE)
    torch.minitorch.synchronize()
    with pytest.raises(IndexError, match=rf"^{name}: index 7 is out of bounds for dimension with size 5 "):
        BAD_INDICES[name](x, i)
        torch.minitorch.synchronize()
    torch.minitorch.synchronize()  # raised once
    assert x.sum().item() == 10  # and nothing was written


# ---- Launches that fail ----------------------------------------------------------------------------------------------


@on_a_gpu
@pytest.mark.parametrize(
    ("call", "kernel"),
    [("x.exp()", "the pointwise kernel exp"), ("x.amax()", "the reduction max"), ("x @ x", "a matrix product")],
)
def test_a_kernel_that_fails_is_named(call, kernel):
    """Memory that is not there. With launches that wait the error comes from the call at fault, not from a later one."""
    out = run(
        f"""
import os
y = torch.ones(64, 64, device="minitorch") + 1
storage = torch._C._construct_storage_from_data_pointer(1 << 20, torch.device("minitorch:0"), 64 * 64 * 4)
x = torch.empty(0, device="minitorch").set_(storage, 0, (64, 64), (64, 1))
(y + y).sum().item()
try:
    {call}
    print("no error")
except RuntimeError as error:
    print(error)
print(end="", flush=True)
os._exit(0)  # nothing of the context can be given back
""",
        MINITORCH_LAUNCH_BLOCKING="1",
    )
    assert out.startswith(f"minitorch: launching {kernel} failed: ") and "illegal memory access" in out, out
