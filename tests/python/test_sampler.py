"""Samplers with tensors of parameters: the same seed gives native's samples; gradients of gamma and Dirichlet samples."""

import pytest
import torch
import torch.distributions as D

from tests.python.twin import ASYNCHRONOUS, DEVICE, check, check_error

# The CPU draws with the Mersenne twister, a GPU with Philox.
same_numbers = pytest.mark.skipif(ASYNCHRONOUS, reason="a GPU draws other numbers than the CPU: see test_moments")


def same_draws(fn, *args, exact=True):
    """fn(*args) draws the same on both devices, and leaves the generator in the same state: a second call agrees too."""
    device_args = [a.to(DEVICE) if isinstance(a, torch.Tensor) else a for a in args]
    torch.manual_seed(7)
    native = [fn(*args), fn(*args), torch.rand(3)]
    torch.manual_seed(7)
    ours = [fn(*device_args), fn(*device_args), torch.rand(3, device=DEVICE)]
    for a, b in zip(ours, native, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.device.type == DEVICE
        if exact:
            assert torch.equal(a.cpu(), b)
        else:
            torch.testing.assert_close(a.cpu(), b)


RATES = torch.tensor([[0.0, 0.1, 1.0, 5.5], [9.99, 10.0, 37.0, 1e5]])


@same_numbers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_poisson(dtype):
    rates = RATES.clamp(max=1000).to(dtype)
    same_draws(torch.poisson, rates)
    same_draws(torch.poisson, rates.t())
    same_draws(torch.poisson, rates[:, :1].expand(2, 300))


@same_numbers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gamma_and_dirichlet(dtype):
    alpha = torch.tensor([0.0, 0.01, 0.3, 0.9999, 1.0, 2.5, 17.0, 1e4], dtype=dtype)
    same_draws(torch._standard_gamma, alpha)
    same_draws(torch._standard_gamma, alpha[None].expand(50, 8))
    same_draws(torch._sample_dirichlet, alpha[1:].expand(40, 7), exact=dtype == torch.float32)


@same_numbers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_binomial(dtype):
    count = torch.tensor([0.0, 1.0, 5.0, 40.0, 1000.0, 1e6], dtype=dtype)[:, None]
    p = torch.tensor([0.0, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0], dtype=dtype)
    count, p = torch.broadcast_tensors(count, p)
    same_draws(torch.binomial, count, p)
    same_draws(torch.binomial, count.contiguous().t(), p.contiguous().t())


DISTRIBUTIONS = {
    "Bernoulli": lambda t: D.Bernoulli(t(0.3)),
    "Beta": lambda t: D.Beta(t(1.3), t(0.4)),
    "Binomial": lambda t: D.Binomial(20, t(0.4)),
    "Categorical": lambda t: D.Categorical(t([0.2, 0.5, 0.3])),
    "Cauchy": lambda t: D.Cauchy(t(0.0), t(2.0)),
    "Chi2": lambda t: D.Chi2(t(3.0)),
    "ContinuousBernoulli": lambda t: D.ContinuousBernoulli(t(0.2)),
    "Dirichlet": lambda t: D.Dirichlet(t([0.5, 2.0, 4.0])),
    "Exponential": lambda t: D.Exponential(t(1.5)),
    "FisherSnedecor": lambda t: D.FisherSnedecor(t(3.0), t(5.0)),
    "Gamma": lambda t: D.Gamma(t(2.0), t(0.5)),
    "Geometric": lambda t: D.Geometric(t(0.3)),
    "Gumbel": lambda t: D.Gumbel(t(0.0), t(1.0)),
    "HalfCauchy": lambda t: D.HalfCauchy(t(1.0)),
    "HalfNormal": lambda t: D.HalfNormal(t(1.0)),
    "InverseGamma": lambda t: D.InverseGamma(t(2.0), t(1.0)),
    "Kumaraswamy": lambda t: D.Kumaraswamy(t(1.2), t(2.0)),
    "Laplace": lambda t: D.Laplace(t(0.0), t(1.0)),
    "LogNormal": lambda t: D.LogNormal(t(0.0), t(1.0)),
    "LogisticNormal": lambda t: D.LogisticNormal(t([0.0, 0.3]), t([1.0, 0.5])),
    "Multinomial": lambda t: D.Multinomial(9, t([0.2, 0.5, 0.3])),
    "NegativeBinomial": lambda t: D.NegativeBinomial(t(5.0), t(0.3)),
    "Normal": lambda t: D.Normal(t(0.0), t(1.0)),
    "OneHotCategorical": lambda t: D.OneHotCategorical(t([0.2, 0.8])),
    "Pareto": lambda t: D.Pareto(t(1.0), t(2.0)),
    "Poisson": lambda t: D.Poisson(t(12.0)),
    "RelaxedBernoulli": lambda t: D.RelaxedBernoulli(t(0.5), t(0.3)),
    "StudentT": lambda t: D.StudentT(t(4.0)),
    "Uniform": lambda t: D.Uniform(t(-1.0), t(3.0)),
    "VonMises": lambda t: D.VonMises(t(0.3), t(2.0)),
    "Weibull": lambda t: D.Weibull(t(1.0), t(1.7)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name):
    samples, logs = [], []
    for device in ("cpu", DEVICE):
        distribution = DISTRIBUTIONS[name](lambda v, device=device: torch.tensor(v, device=device))
        torch.manual_seed(3)
        samples.append(distribution.sample((400,)).cpu())
        logs.append(distribution.log_prob(samples[0].to(device)).cpu())
    if not ASYNCHRONOUS:
        torch.testing.assert_close(samples[1], samples[0], rtol=1e-5, atol=1e-6)
    assert samples[1].shape == samples[0].shape
    torch.testing.assert_close(logs[1], logs[0], rtol=1e-4, atol=1e-5)


HEAVY_TAILS = {"Cauchy", "HalfCauchy", "FisherSnedecor", "InverseGamma", "Pareto", "StudentT"}  # compared by quantiles


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_moments(name):
    """Whatever numbers the device draws, they are from native's distribution: means and deviations, or medians, agree."""
    found = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(5)
        make = DISTRIBUTIONS[name](lambda v, device=device: torch.tensor(v, device=device))
        found.append(make.sample((100_000,)).cpu().double())
    native, ours = found
    if name in HEAVY_TAILS:
        for q in (0.1, 0.25, 0.5, 0.75, 0.9):
            # At the median 0.01 is 4.5 standard deviations of the difference of two such samples: 1 in 10^5 by chance.
            assert abs((ours <= native.quantile(q)).double().mean() - q) < 0.01
        return
    deviation = native.std(0)
    assert ((ours.mean(0) - native.mean(0)).abs() <= 8 * deviation * (2 / 100_000) ** 0.5).all()
    torch.testing.assert_close(ours.std(0), deviation, rtol=0.1, atol=0)


def test_gamma_gradient():
    alpha = torch.logspace(-2, 3, 60)[:, None].expand(60, 40).contiguous()
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float64, 1e-7), (torch.float32, 1e-3)):
        sample = torch._standard_gamma(alpha.to(dtype))
        check(torch._standard_gamma_grad, alpha.to(dtype), sample, rtol=tolerance, atol=1e-30)


def test_gradients_of_samples_are_contiguous():
    x = torch.rand(2, 3, 4).permute(2, 1, 0)
    check(torch._standard_gamma_grad, x, x)
    check(torch._dirichlet_grad, x, x, x + 1, rtol=1e-4, atol=1e-5)


def test_dirichlet_gradient():
    # Native computes parts of this in single precision when the tensors are; both are held to double.
    torch.manual_seed(0)
    for low, high in ((-1, 0.5), (0.5, 1.5), (1.5, 3)):
        alpha = 10 ** (torch.rand(500, 3, dtype=torch.float64) * (high - low) + low)
        x, total = torch._sample_dirichlet(alpha), alpha.sum(-1, keepdim=True).expand_as(alpha)
        check(torch._dirichlet_grad, x, alpha, total, rtol=1e-7, atol=1e-9)


@same_numbers
def test_reparameterised_gradients():
    for make in (lambda a: D.Gamma(a, a + 1), lambda a: D.Beta(a, a + 0.5), lambda a: D.Dirichlet(a)):
        grads = []
        for device in ("cpu", DEVICE):
            a = torch.tensor([0.7, 2.0, 9.0], dtype=torch.float64, device=device, requires_grad=True)
            torch.manual_seed(11)
            make(a).rsample((50,)).square().sum().backward()
            grads.append(a.grad.cpu())
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("training", [pytest.param(True, marks=same_numbers), False])
def test_rrelu(dtype, training):
    x = torch.randn(6, 7).to(dtype)
    compare = same_draws if training else check  # evaluation draws nothing
    for view in (x, x.t(), x[:, ::2]):
        compare(lambda v: torch.nn.functional.rrelu(v, 0.1, 0.4, training=training), view)
        compare(lambda v: torch.nn.functional.rrelu_(v.clone(), 0.1, 0.4, training=training), view)
    grads = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(2)
        leaf = x.detach().to(device).requires_grad_()
        torch.nn.functional.rrelu(leaf, 0.1, 0.4, training=training).sum().backward()
        grads.append(leaf.grad.cpu())
    assert torch.equal(*grads)


def test_errors():
    ones = torch.ones(3)
    check_error(torch.poisson, -ones)
    check_error(torch.poisson, ones.int())
    check_error(torch.binomial, ones.int(), ones)
    check_error(torch.binomial, ones, ones.double())
    check_error(torch._standard_gamma, ones.half())
    check_error(torch._sample_dirichlet, ones.half())
    check_error(torch._standard_gamma_grad, ones.half(), ones.half())
    check_error(torch._dirichlet_grad, ones, ones, torch.ones(2))
    check_error(lambda x: torch.ops.aten.rrelu_with_noise(x, torch.ones(2, device=x.device), 0.1, 0.3, True), ones)
    check_error(lambda x: torch.ops.aten.rrelu_with_noise(x, torch.ones_like(x), 0.5, 0.3, True), -ones)
