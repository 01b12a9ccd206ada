"""The thread through every layer: if one of these fails, nothing else is worth running."""

import torch


def test_device_exists():
    assert torch.minitorch.is_available()
    assert torch.device("minitorch:0").type == "minitorch"
    assert torch.accelerator.current_accelerator().type == "minitorch"


def test_round_trip_and_arithmetic():
    x = torch.randn(37, 5)
    d = x.to("minitorch")
    assert d.device.type == "minitorch"
    assert torch.equal(d.cpu(), x)
    torch.testing.assert_close((d.exp() * d + 1).cpu(), x.exp() * x + 1)


def test_layouts_and_promotion():
    x = torch.randn(8, 6)
    d = x.to("minitorch")
    torch.testing.assert_close(
        (d.t()[1:, ::2].neg() + d.t()[1:, ::2].double()).cpu(), -x.t()[1:, ::2] + x.t()[1:, ::2].double()
    )
    i = torch.arange(6).to("minitorch")
    assert torch.equal((i * 2).cpu(), torch.arange(6) * 2)


def test_backward():
    x = torch.randn(10, requires_grad=True)
    d = x.detach().to("minitorch").requires_grad_()
    (x.exp() * x).backward(torch.ones(10))
    (d.exp() * d).backward(torch.ones(10).to("minitorch"))
    torch.testing.assert_close(d.grad.cpu(), x.grad)


def test_fallback_is_an_error_here():
    assert torch.minitorch.fallbacks() == []
