"""Numbers of eight bits: conversions bit for bit as native's, filling, reading and printing."""

import pytest
import torch

DEVICE = "minitorch"
FORMATS = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
CODES = torch.arange(256, dtype=torch.uint8)


def same_bytes(device, host):
    assert device.dtype == host.dtype and device.stride() == host.stride()
    assert torch.equal(device.cpu().view(torch.uint8), host.view(torch.uint8))


@pytest.fixture(params=FORMATS, ids=lambda f: str(f).removeprefix("torch.float8_"))
def format(request):
    return request.param


def test_every_number_read(format):
    x = CODES.view(format)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.bool):
        torch.testing.assert_close(x.to(DEVICE).to(dtype).cpu(), x.to(dtype), equal_nan=True, rtol=0, atol=0)
    signs = x.to(DEVICE).float().signbit().cpu()
    assert torch.equal(signs[~x.isnan()], x.float().signbit()[~x.isnan()])


def test_rounding(format):
    """All exponents with mantissas around every tie of every format, NaN and infinity among them."""
    tails = torch.tensor([0, 1, 2, 3], dtype=torch.int64).mul(1 << 19)[:, None] + torch.tensor([-1, 0, 1])
    bits = (torch.arange(1 << 12)[:, None, None] * (1 << 20) + tails).flatten().clamp(0, (1 << 32) - 1)
    x = bits.to(torch.uint32).view(torch.float32)
    same_bytes(x.to(DEVICE).to(format), x.to(format))
    small = x.clamp(-1e4, 1e4).nan_to_num(1.0)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        same_bytes(small.to(dtype).to(DEVICE).to(format), small.to(dtype).to(format))
    for dtype in (torch.int64, torch.uint8, torch.bool):
        integers = torch.tensor([0, 1, 3, 17, 100, 240]).to(dtype)
        same_bytes(integers.to(DEVICE).to(format), integers.to(format))


def test_between_formats(format):
    for other in FORMATS:
        same_bytes(CODES.to(DEVICE).view(format).to(other), CODES.view(format).to(other))


def test_layouts_and_devices(format):
    x = torch.linspace(-4, 4, 24).reshape(4, 6)
    host = x.t()[1:].to(format)
    same_bytes(x.to(DEVICE).t()[1:].to(format), host)
    same_bytes(x.t()[1:].to(device=DEVICE, dtype=format), host)
    assert torch.equal(host.to(DEVICE).to("cpu", torch.float32), host.float())
    target, expected = torch.zeros(3, 4, device=DEVICE), torch.zeros(3, 4)
    target[:, ::2].copy_(host.to(DEVICE)[0, :2])
    expected[:, ::2].copy_(host[0, :2])
    assert torch.equal(target.cpu(), expected)
    assert torch.empty(0, 3, device=DEVICE).to(format).shape == (0, 3)


def test_gradients_pass(format):
    x = torch.tensor([0.3, -2.2], device=DEVICE, requires_grad=True)
    x.to(format).float().sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_filling_and_reading(format):
    for make in (
        lambda d: torch.full((3,), 1.5, dtype=format, device=d),
        lambda d: torch.zeros(3, dtype=format, device=d),
        lambda d: torch.ones(2, 3, dtype=format, device=d)[:, 1:].fill_(4),
        lambda d: torch.tensor([1.0, 0.25], dtype=format, device=d),
    ):
        same_bytes(make(DEVICE).contiguous(), make("cpu").contiguous())
    x = torch.tensor([1.0, 0.5], device=DEVICE).to(format)
    assert x[1].item() == 0.5 and x.tolist() == [1.0, 0.5]
    for value in (1e9, float("inf")):
        messages = []
        for device in ("cpu", DEVICE):
            try:
                messages.append(torch.zeros(2, device=device).to(format).fill_(value).float().tolist())
            except RuntimeError as error:
                messages.append(str(error))
        assert str(messages[0]) == str(messages[1])


@pytest.mark.parametrize("values", [[1.0, 2.0, 0.5], [[0.0, 1.0], [2.0, 4.0]], 1.5, [], [float("nan"), 1.0]])
def test_printing(format, values):
    if format == torch.float8_e8m0fnu and values != []:
        with pytest.raises(NotImplementedError, match=r"Float8_e8m0fnu.*convert this one first"):
            repr(torch.tensor(values).to(format).to(DEVICE))  # PyTorch compares this one as it is, without converting
        return
    x = torch.tensor(values).to(format)
    text = repr(x.to(DEVICE)).replace(f"device='{DEVICE}:0',", "")  # which may have made a line too long
    assert text.split() == repr(x).split()
