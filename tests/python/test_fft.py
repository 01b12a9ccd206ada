"""Fourier transforms: accuracy beside native's against a double or long double reference, layouts, norms, gradients."""

import math

import numpy
import pytest
import torch

from tests.python.twin import check, check_error

# Powers of two, mixed radices, all small primes, a prime that is not smooth, products with such primes, long lines.
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 15, 16, 27, 31, 32, 37, 49, 60, 64, 74, 97, 100, 121, 128, 210, 243, 256]
LENGTHS += [289, 360, 509, 512, 625, 961, 1000, 1009, 1024, 2003, 2048, 4096, 5000, 8192, 10007, 16384]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def reference(x, inverse=False):
    """The transform of the last dimension in long double, by the definition for short lines, else NumPy's."""
    wide = x.numpy().astype(numpy.clongdouble)
    return (numpy.fft.ifft(wide) * x.shape[-1]) if inverse else numpy.fft.fft(wide)


def largest_prime(n):
    p, largest = 2, 1
    while n > 1:
        if n % p:
            p += 1
        else:
            n, largest = n // p, p
    return largest


def allowed(n, dtype, native):
    """Native's error, and a half of it; lengths that go through a convolution may have twice native's error."""
    factor = 1.5 if largest_prime(n) <= 31 else 2
    return max(factor * native, 0.6 * torch.finfo(dtype).eps * math.sqrt(math.log2(n) + 1))


def error(found, truth):
    """Root of the mean squared error, relative to that of the values."""
    difference = found.cpu().numpy().astype(numpy.clongdouble) - truth
    return float(numpy.sqrt((abs(difference) ** 2).mean() / (abs(truth) ** 2).mean()))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("lines", [1, 3, 40])
def test_accuracy_complex(dtype, lines):
    worst = []
    for n in LENGTHS:
        if lines * n > 1 << 18:
            continue
        x = torch.randn(lines, n, dtype=dtype)
        for inverse in (False, True):
            f = (lambda t: torch.fft.ifft(t, norm="forward")) if inverse else torch.fft.fft
            truth = reference(x, inverse)
            ours, native = error(f(x.to("minitorch")), truth), error(f(x), truth)
            if ours > allowed(n, dtype, native):
                worst.append((n, inverse, ours, native))
    assert not worst


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lines", [1, 3, 40])
def test_accuracy_real(dtype, lines):
    worst = []
    for n in LENGTHS:
        if lines * n > 1 << 18:
            continue
        x = torch.randn(lines, n, dtype=dtype)
        truth = reference(x.to(torch.float64).to(torch.complex128))[..., : n // 2 + 1]
        ours, native = error(torch.fft.rfft(x.to("minitorch")), truth), error(torch.fft.rfft(x), truth)
        if ours > allowed(n, dtype, native):
            worst.append(("rfft", n, ours, native))
        spectrum = torch.fft.rfft(x)
        truth = numpy.fft.irfft(spectrum.numpy().astype(numpy.clongdouble), n=n)
        ours = error(torch.fft.irfft(spectrum.to("minitorch"), n=n), truth)
        native = error(torch.fft.irfft(spectrum, n=n), truth)
        if ours > allowed(n, dtype, native):
            worst.append(("irfft", n, ours, native))
    assert not worst


def test_lines_of_different_size_do_not_mix():
    x = torch.randn(32, 64)
    x[::2] *= 1e10
    check(torch.fft.rfft, x[1::2].contiguous(), exact=False, rtol=1e-4, atol=1e-4)
    ours = torch.fft.rfft(x.to("minitorch")).cpu()
    torch.testing.assert_close(ours[1::2], torch.fft.rfft(x[1::2]), rtol=1e-4, atol=1e-4)


LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "permuted": lambda x: x.permute(1, 2, 0),
    "sliced": lambda x: x[:, 1:, ::2],
    "expanded": lambda x: x[:1].expand_as(x),
    "one number": lambda x: x[:1, :1, :1].expand_as(x),
    "conjugated": lambda x: x.conj() if x.is_complex() else x,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [(0,), (1,), (2,), (0, 1), (0, 2), (2, 0), (0, 1, 2)])
def test_layouts(layout, dim):
    view = LAYOUTS[layout]
    options = {"exact": False, "rtol": 1e-10, "atol": 1e-10}
    x = torch.randn(4, 6, 10, dtype=torch.complex128)
    check(lambda t: torch.fft.fftn(view(t), dim=dim), x, **options)
    check(lambda t: torch.fft.ifftn(view(t), dim=dim, norm="ortho"), x, **options)
    check(lambda t: torch.fft.irfftn(view(t), dim=dim), x, **options)
    check(lambda t: torch.fft.hfftn(view(t), dim=dim), x, **options)
    real = x.real.contiguous()
    check(lambda t: torch.fft.fftn(view(t), dim=dim), real, **options)
    check(lambda t: torch.fft.rfftn(view(t), dim=dim, norm="forward"), real, **options)
    check(lambda t: torch.fft.ihfftn(view(t), dim=dim), real, **options)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 21])
def test_padding_and_trimming(n):
    options = {"exact": False, "rtol": 1e-10, "atol": 1e-10}
    x, real = torch.randn(3, 8, dtype=torch.complex128), torch.randn(3, 8, dtype=torch.float64)
    for norm in ("backward", "ortho", "forward"):
        check(lambda t, norm=norm: torch.fft.fft(t, n=n, norm=norm), x, **options)
        check(lambda t, norm=norm: torch.fft.irfft(t, n=n, norm=norm), x, **options)
        check(lambda t, norm=norm: torch.fft.hfft(t, n=n, norm=norm), x, **options)
        check(lambda t, norm=norm: torch.fft.rfft(t, n=n, norm=norm), real, **options)
        check(lambda t, norm=norm: torch.fft.ihfft(t, n=n, norm=norm), real, **options)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_gradients(name):
    dtype = torch.float64 if name in ("rfft", "ihfft") else torch.complex128
    f = getattr(torch.fft, name)
    for n in (1, 2, 7, 12, 37):
        x = torch.randn(2, max(n, 2), dtype=dtype, requires_grad=True)
        check(f, x, exact=False, rtol=1e-9, atol=1e-9)


def test_out_and_kinds():
    options = {"exact": False, "rtol": 1e-10, "atol": 1e-10}
    x = torch.randn(3, 8, dtype=torch.complex128)
    for size in ((3, 8), (0,), (8, 3)):
        check(lambda t, o: torch.fft.fft(t, out=o), x, torch.zeros(size, dtype=torch.complex128), **options)
    check(lambda t, o: torch.fft.fft(t, out=o.mT), x, torch.zeros(8, 3, dtype=torch.complex128), **options)
    check(torch.fft.fft, torch.arange(12).view(3, 4), exact=False, rtol=1e-5, atol=1e-5)
    check(torch.fft.rfft, torch.tensor([True, False, True]), exact=False, rtol=1e-5, atol=1e-5)
    assert torch.fft.fft(torch.zeros(0, 4, dtype=torch.complex64).to("minitorch")).shape == (0, 4)  # native refuses
    for value in ("nan", "inf"):
        y = torch.zeros(2, 8)
        y[0, 3] = float(value)
        assert torch.equal(torch.fft.rfft(y.to("minitorch")).cpu()[1], torch.zeros(5, dtype=torch.complex64))
        assert not torch.isfinite(torch.fft.rfft(y.to("minitorch")).cpu()[0]).all()


def test_errors():
    x = torch.randn(3, 8)
    check_error(lambda t: torch.fft.fft(t, n=0), x)
    check_error(lambda t: torch.fft.fft(t, dim=5), x)
    check_error(lambda t: torch.fft.rfft(t), x.to(torch.complex64))
    check_error(lambda t: torch.fft.ihfft2(t), x.to(torch.complex64))
    check_error(lambda t: torch.fft.fft(t, norm="other"), x)
    check_error(lambda t: torch.fft.fft(t), x.half())
    check_error(lambda t: torch.fft.irfft(t, n=-1), x)
    check_error(torch.fft.fft, torch.zeros(3, 0))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("onesided", [False, True])
def test_stft(center, onesided):
    x = torch.randn(2, 400, dtype=torch.float64)

    def there_and_back(signal):
        window = torch.hann_window(64, dtype=torch.float64).to(signal.device) + 0.1
        s = torch.stft(signal, 64, 16, window=window, center=center, onesided=onesided, return_complex=True)
        return s, torch.istft(s, 64, 16, window=window, center=center, onesided=onesided)

    check(there_and_back, x.requires_grad_(), exact=False, rtol=1e-9, atol=1e-9)


def test_threads_and_cache():
    """One long line uses threads; many lengths in turn do not disturb each other."""
    x = torch.randn(1 << 17, dtype=torch.complex128)
    check(torch.fft.fft, x, exact=False, rtol=1e-9, atol=1e-9)
    lines = [torch.randn(5, n, dtype=torch.complex128) for n in range(1, 60)]
    for y in lines + lines:
        torch.testing.assert_close(torch.fft.fft(y.to("minitorch")).cpu(), torch.fft.fft(y), rtol=1e-10, atol=1e-10)


def finite(tensor):
    return torch.view_as_real(tensor.resolve_conj().cpu()).isfinite()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("at", range(4))
def test_an_infinity_in_four_real_numbers(at, dtype):
    x = torch.randn(4, dtype=dtype)
    x[at] = math.inf
    for f in (torch.fft.rfft, torch.fft.ihfft):
        assert torch.equal(finite(f(x.to("minitorch"))), finite(f(x)))
    spectrum = torch.randn(3, dtype=dtype.to_complex())
    spectrum[at % 3] = math.inf
    for f in (torch.fft.irfft, torch.fft.hfft):
        ours, native = f(spectrum.to("minitorch")).cpu(), f(spectrum)
        assert torch.equal(ours.isnan(), native.isnan()) and torch.equal(ours.isinf(), native.isinf())
