"""CTC loss and its gradient against native CPU."""

import pytest
import torch
import torch.nn.functional as F

from tests.python.twin import ASYNCHRONOUS, DEVICE, check, check_error

TOLERANCE = {torch.float32: dict(rtol=1e-4, atol=1e-5), torch.float64: dict(rtol=1e-10, atol=1e-10)}


def log_probs(time, batch, classes, dtype=torch.float32):
    torch.manual_seed(time)
    return torch.randn(time, batch, classes, dtype=torch.float64).log_softmax(-1).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("blank", [0, 3])
@pytest.mark.parametrize("concatenated", [False, True])
def test_loss(dtype, reduction, blank, concatenated):
    x = log_probs(12, 4, 6, dtype)
    lengths = [5, 1, 0, 3]
    targets = torch.tensor([[1, 1, 2, 5, 4], [2, 0, 0, 0, 0], [0, 0, 0, 0, 0], [4, 4, 4, 0, 0]])
    if concatenated:
        targets = torch.cat([targets[b, :n] for b, n in enumerate(lengths)])
    if blank == 3:
        targets = targets.where(targets != 3, torch.tensor(0))
    for kind in (torch.long, torch.int):
        check(
            lambda x, t: F.ctc_loss(x, t, [12, 7, 5, 9], lengths, blank, reduction),
            x,
            targets.to(kind),
            **TOLERANCE[dtype],
        )


def test_lengths_as_tensors():
    x, targets = log_probs(10, 2, 5), torch.tensor([[1, 2, 3], [4, 4, 0]])
    for device_lengths in (False, True):
        results = []
        for device in ("cpu", DEVICE):
            leaf = x.detach().to(device).requires_grad_()
            lengths = [torch.tensor(n) for n in ([10, 8], [3, 2])]
            if device_lengths:
                lengths = [n.to(device) for n in lengths]
            loss = F.ctc_loss(leaf, targets.to(device), *lengths)
            loss.backward()
            results.append((loss.cpu(), leaf.grad.cpu()))
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_impossible_targets(zero_infinity):
    """More labels than time steps: infinite loss; no time steps at all."""
    x = log_probs(4, 3, 5)
    targets = torch.tensor([[1, 1, 1, 1], [2, 3, 0, 0], [1, 2, 3, 4]])
    for lengths in ([4, 4, 4], [4, 0, 3]):
        check(
            lambda x, t: F.ctc_loss(x, t, lengths, [4, 2, 4], reduction="none", zero_infinity=zero_infinity),
            x,
            targets,
            **TOLERANCE[torch.float32],
        )
    check(lambda x, t: F.ctc_loss(x, t, [4, 0, 2], [0, 0, 0], reduction="none"), x, targets, **TOLERANCE[torch.float32])


def test_layouts_and_a_long_sequence():
    x = log_probs(40, 3, 9).detach()
    targets = torch.randint(1, 9, (3, 30))
    strided = x.permute(1, 2, 0).contiguous().permute(2, 0, 1).requires_grad_()
    wide = targets.repeat_interleave(2, 1)[:, ::2]
    check(lambda x, t: F.ctc_loss(x, t, [40, 38, 33], [15, 3, 10]), strided, wide, **TOLERANCE[torch.float32])
    check(
        lambda x, t: F.ctc_loss(x, t, [300] * 8, [60] * 8),
        log_probs(300, 8, 30),
        torch.randint(1, 30, (8, 60)),
        **TOLERANCE[torch.float32],
    )


def test_without_a_batch():
    check(lambda x, t: F.ctc_loss(x, t, [6], [2]), log_probs(6, 1, 4).detach()[:, 0], torch.tensor([1, 2]))


@pytest.mark.parametrize("lengths", ["cpu", DEVICE])
def test_gradient_by_transforms_with_lengths_anywhere(lengths):
    x, targets = log_probs(6, 2, 4).detach(), torch.tensor([[1, 2], [3, 1]])
    inputs, labels = torch.tensor([6, 5]), torch.tensor([2, 1])
    native = torch.func.grad(lambda x: F.ctc_loss(x, targets, inputs, labels))(x)
    ours = torch.func.grad(lambda x: F.ctc_loss(x, targets.to(DEVICE), inputs.to(lengths), labels.to(lengths)))
    torch.testing.assert_close(ours(x.to(DEVICE)).cpu(), native, **TOLERANCE[torch.float32])


def test_errors():
    x, targets = log_probs(3, 1, 4).detach(), torch.ones(1, 2, dtype=torch.long)

    def loss(blank=0, inputs=(3,), labels=(2,)):
        return lambda x, t: torch.ops.aten._ctc_loss(x, t, list(inputs), list(labels), blank)

    check_error(loss(blank=4), x, targets)
    check_error(loss(inputs=(4,)), x, targets)
    check_error(loss(inputs=(-1,)), x, targets)
    check_error(loss(labels=(3,)), x, targets)
    check_error(loss(labels=(-1,)), x, targets)
    check_error(loss(inputs=(3, 3)), x, targets)
    check_error(loss(labels=(2, 2)), x, targets)
    check_error(loss(), x[0], targets)
    check_error(loss(), x, targets[0][:1])
    check_error(loss(), x, targets.float())
    check_error(loss(), x.half(), targets)
    bad = (IndexError, "ctc_loss: index 9 is out of bounds") if ASYNCHRONOUS else (RuntimeError, "targets must lie in")
    with pytest.raises(bad[0], match=bad[1]):
        loss()(x.to(DEVICE), torch.full((1, 2), 9, device=DEVICE))
        torch.minitorch.synchronize()
