"""Calls that once crashed the process, wrote where they should not, or computed what native refuses."""

import pytest
import torch
import torch.nn.functional as F

DEVICE = "minitorch"


@pytest.mark.parametrize("shape", [(4, 5, 0), (0, 3), (2, 0, 3)])
def test_aminmax_of_nothing(shape):
    dim = next(d for d, size in enumerate(shape) if size > 0)
    native = torch.zeros(shape).aminmax(dim=dim)
    ours = torch.zeros(shape, device=DEVICE).aminmax(dim=dim)
    assert [t.shape for t in ours] == [t.shape for t in native]


@pytest.mark.parametrize("amsgrad", [True, False])
def test_fused_optimizers_refuse_missing_states(amsgrad):
    one = torch.ones(3, device=DEVICE)
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "maximize": False}
    with pytest.raises(RuntimeError, match="exp_avgs"):
        torch._fused_adam_([one], [one], [], [], [], [], amsgrad=amsgrad, **options)
    with pytest.raises(RuntimeError, match="momentum_buffer_list"):
        torch._fused_sgd_(
            [one],
            [one],
            [],
            weight_decay=0.0,
            momentum=0.9,
            lr=0.1,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=True,
        )


def test_norm_backward_refuses_statistics_of_another_size():
    x, nothing = torch.ones(2, 3, device=DEVICE), torch.ones(0, device=DEVICE)
    with pytest.raises(RuntimeError, match="one mean and one rstd"):
        torch.ops.aten.native_layer_norm_backward(x, x, [3], nothing, nothing, None, None, [True, True, True])
    with pytest.raises(RuntimeError, match="one mean and one rstd"):
        torch.ops.aten._fused_rms_norm_backward(x, x, [3], torch.ones(5, 1, device=DEVICE), None, [True, True])


def test_resize_without_memory_leaves_the_tensor():
    x = torch.arange(6.0, device=DEVICE)
    with pytest.raises(torch.OutOfMemoryError):
        x.resize_(2**46)
    assert x.shape == (6,)
    assert x.sum().item() == 15


@pytest.mark.parametrize(
    "call",
    [
        lambda d: F.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2, device=d)),
        lambda d: F.conv1d(torch.ones(1, 3, 3), torch.ones(3, 3, 1, device=d)),
        lambda d: F.conv2d(torch.ones(1, 1, 3, 3, device=d), torch.ones(1, 1, 2, 2)),
        lambda d: torch.cdist(torch.ones(2, 3, device=d), torch.ones(2, 3)),
        lambda d: torch.cdist(torch.ones(2, 3), torch.ones(2, 3, device=d)),
        lambda d: F.grid_sample(torch.ones(1, 1, 2, 2, device=d), torch.zeros(1, 2, 2, 2), align_corners=False),
    ],
)
def test_a_mix_of_devices_is_refused(call):
    with pytest.raises(RuntimeError, match="same device"):
        call(DEVICE)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.cumsum_(0),
        lambda x: x.cumprod_(0),
        lambda x: torch.sort(x.clone(), out=(x, torch.zeros(4, 3, dtype=torch.long, device=x.device))),
        lambda x: torch.topk(x.clone(), 4, 0, out=(x, torch.zeros(4, 3, dtype=torch.long, device=x.device))),
    ],
)
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_an_expanded_tensor_is_not_written(call, device):
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        call(torch.ones(1, 3, device=device).expand(4, 3))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_output_padding_is_checked(dims):
    convolution = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    texts = []
    for device in ("cpu", DEVICE):
        x, w = torch.ones(1, 1, *[4] * dims, device=device), torch.ones(1, 1, *[2] * dims, device=device)
        with pytest.raises(RuntimeError, match="output padding must be smaller") as error:
            convolution(x, w, output_padding=5)
        texts.append(str(error.value))
    assert texts[0] == texts[1]
