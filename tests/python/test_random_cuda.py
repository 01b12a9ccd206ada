"""On a GPU: samplers, and fills beyond 32-bit offsets, draw native CUDA's numbers and use as many of them up."""

import pytest
import torch

from tests.python.twin import DEVICE, NATIVE

if NATIVE != "cuda":
    pytest.skip("needs a GPU and a torch with CUDA", allow_module_level=True)

SIZES = [1, 1000, 100_001]
WIDE = [torch.float32, torch.float64]
LAYOUTS = {
    "dense": lambda t: t,
    "expanded": lambda t: t[:, None].expand(-1, 3),
    "transposed": lambda t: t[:, None].expand(-1, 3).contiguous().t(),
    "strided": lambda t: t.repeat(2)[::2],
}


def same_draws(fn, *args, rtol=0.0):
    """``fn(generator, *args)`` gives the same on both devices, twice in a row, and moves both generators equally far."""
    results, offsets = [], []
    for device in (NATIVE, DEVICE):
        generator = torch.Generator(device).manual_seed(7)
        here = [a.to(device) for a in args]
        for _ in range(2):
            result = fn(generator, *here)
            results.append([r.cpu() for r in (result if isinstance(result, tuple) else (result,))])
            offsets.append(generator.get_offset())
    assert offsets[2:] == offsets[:2]
    for native, ours in zip(results[:2], results[2:], strict=True):
        for expected, actual in zip(native, ours, strict=True):
            assert actual.dtype == expected.dtype and actual.stride() == expected.stride()
            if not torch.equal(actual, expected):
                torch.testing.assert_close(actual, expected, rtol=rtol, atol=0, equal_nan=True)


def spread(n, low, high, dtype, seed=1):
    """n numbers between low and high, evenly in their logarithms."""
    u = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (low * (high / low) ** u).to(dtype)


# ---- Samplers ---------------------------------------------------------------------------------------------------------


def poisson(generator, rate):
    return torch.poisson(rate, generator=generator)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [*WIDE, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_poisson(n, dtype, layout):
    small, large = spread(n, 0.01, 60, dtype), spread(n, 4100, 60_000, dtype)
    small[: n // 10] = 0
    for rates in (small, large, torch.where(torch.arange(n) % 3 == 0, small, large)):
        same_draws(poisson, LAYOUTS[layout](rates))


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_poisson_of_middle_rates(dtype):
    """Other samples than native's, from the same distribution and as many numbers of the generator."""
    for rate in (64.0, 500.0, 4000.0):
        native, ours = torch.Generator(NATIVE).manual_seed(3), torch.Generator(DEVICE).manual_seed(3)
        poisson(native, torch.full((100_000,), rate, dtype=dtype, device=NATIVE))
        sample = poisson(ours, torch.full((100_000,), rate, dtype=dtype, device=DEVICE)).cpu().double()
        assert ours.get_offset() == native.get_offset()
        assert abs(sample.mean() - rate) < 5 * (rate / 100_000) ** 0.5
        assert abs(sample.var() / rate - 1) < 0.03


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_gamma(n, dtype, layout):
    alpha = spread(n, 0.01, 1e4, dtype)
    alpha[: n // 10], alpha[n // 10 : n // 5] = 0, 1
    limit = torch.finfo(dtype).eps
    same_draws(lambda g, a: torch._standard_gamma(a, generator=g), LAYOUTS[layout](alpha), rtol=limit)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (1000, 1), (1000, 3), (20_001, 5), (7, 1000)], ids=str)
def test_dirichlet(shape, dtype):
    alpha = spread(shape[0] * shape[1], 0.05, 50, dtype).reshape(shape)
    limit = 8 * torch.finfo(dtype).eps  # the sum of a row is rounded in another order
    same_draws(lambda g, a: torch._sample_dirichlet(a, generator=g), alpha, rtol=limit)


def binomial(generator, count, p):
    return torch.binomial(count, p, generator=generator)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", WIDE, ids=str)
@pytest.mark.parametrize("n", [*SIZES, 1023, 1024, 1025])
def test_binomial(n, dtype, layout):
    count, p = spread(n, 0.6, 1e6, dtype).round(), spread(n, 1e-4, 1, dtype, seed=2)
    p[1::2] = 1 - p[1::2]
    if n > 9:
        p[3], p[6], count[9] = 0, 1, 0
    same_draws(binomial, LAYOUTS[layout](count), LAYOUTS[layout](p))


@pytest.mark.parametrize("dtype", [*WIDE, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [*SIZES, 3_000_001])  # the last one takes more than one round of the grid
def test_rrelu(n, dtype):
    x = torch.randn(n, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[::5] = 0

    def leak(generator, x):
        noise = torch.zeros_like(x)
        out = torch.ops.aten.rrelu_with_noise(x, noise, 0.1, 1 / 3, True, generator)
        return out, noise

    same_draws(leak, x)


# ---- Beyond 32-bit offsets: native fills such tensors in parts ----------------------------------------------------------

FILLS = {
    "uniform": lambda t, g: t.uniform_(-3, 5, generator=g),
    "normal": lambda t, g: t.normal_(2, 3, generator=g),
    "exponential": lambda t, g: t.exponential_(1.7, generator=g),
    "cauchy": lambda t, g: t.cauchy_(0.5, 2, generator=g),
    "log_normal": lambda t, g: t.log_normal_(0.1, 0.4, generator=g),
    "bernoulli": lambda t, g: t.bernoulli_(0.3, generator=g),
    "geometric": lambda t, g: t.geometric_(0.2, generator=g),
    "random": lambda t, g: t.random_(generator=g),
    "random(to)": lambda t, g: t.random_(100, generator=g),
    "bernoulli(tensor)": lambda t, g: t.bernoulli_(
        torch.linspace(0, 1, t.numel(), device=t.device).reshape(t.shape), generator=g
    ),
}
WIDE_FILLS = {
    "random(wide)": lambda t, g: t.random_(-5, 2**40, generator=g),
    "random(full)": lambda t, g: t.random_(-(2**63), None, generator=g),
}
# Views of memory of that many bytes: their elements are few, and native halves them all the same.
FAR = {
    "line": lambda memory: memory[:: memory.numel() // 70_001],
    "planes": lambda memory: memory.as_strided((9001, 4, 7), (memory.numel() // 9001, 11, 50)),
    "columns": lambda memory: memory.as_strided((5001, 3), (memory.numel() // 5001, 1)).t(),
}


@pytest.mark.parametrize("size", [2**31 + 2**20, 5 * 2**30 + 2**20], ids=["2 GiB", "5 GiB"])
@pytest.mark.parametrize("view", FAR)
def test_far_views(view, size):
    for dtype, fills in (
        (torch.float32, FILLS),
        (torch.float64, FILLS),
        (torch.bfloat16, FILLS),
        (torch.int64, {k: v for k, v in (FILLS | WIDE_FILLS).items() if "random" in k or "bernoulli" in k}),
    ):
        for name, fill in fills.items():

            def draw(generator, dtype=dtype, fill=fill):
                memory = torch.empty(size // dtype.itemsize, dtype=dtype, device=generator.device)
                return fill(FAR[view](memory), generator).contiguous()

            try:
                same_draws(draw)
            except AssertionError as error:
                raise AssertionError(f"{name} of {dtype}: {error}") from error


def test_far_parameters():
    """Poisson and gamma numbers of far parameters do not depend on parts; those of binomial begin anew in each."""

    def line(values):
        far = torch.empty(2**29 + 2**20, device=values.device)
        view = far[:: far.numel() // values.numel()][: values.numel()]
        return view.copy_(values)

    n = 50_001
    same_draws(lambda g, rate: poisson(g, line(rate)), spread(n, 0.1, 60, torch.float32))
    same_draws(
        lambda g, alpha: torch._standard_gamma(line(alpha), generator=g), spread(n, 0.1, 60, torch.float32), rtol=2e-7
    )
    count, p = spread(n, 1, 1000, torch.float32).round(), spread(n, 0.01, 1, torch.float32)
    same_draws(lambda g, count, p: binomial(g, line(count), p), count, p)
    same_draws(lambda g, count, p: binomial(g, line(count), line(p)), count, p)


@pytest.mark.parametrize(
    "fill, n, dtype",
    [("normal", 2**29 + 3, torch.float32), ("bernoulli", 2**31 + 5, torch.uint8), ("random", 2**28 + 9, torch.int64)],
)
def test_large_dense(fill, n, dtype):
    same_draws(lambda g: FILLS[fill](torch.empty(n, dtype=dtype, device=g.device), g))


def test_large_permutation():
    same_draws(lambda g: torch.randperm(2**28 + 3, generator=g, device=g.device))
