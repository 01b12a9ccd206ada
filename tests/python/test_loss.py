"""Losses against native CPU: values, gradients of first and second order, reductions, dtypes, layouts, errors."""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F

from tests.older_torch import version
from tests.python import twin
from tests.python.twin import ASYNCHRONOUS, DEVICE, FLOATS, check, check_error, same, same_error

aten = torch.ops.aten
REDUCTIONS = ["none", "mean", "sum"]
both = functools.partial(twin.both, differentiable=2)  # weights get no gradient


def data(shape, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64).to(dtype)


# ---- pointwise losses --------------------------------------------------------------------------------------------

POINTWISE = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": F.smooth_l1_loss,
    "smooth_l1_beta": lambda x, y, reduction: F.smooth_l1_loss(x, y, beta=0.3, reduction=reduction),
    "smooth_l1_zero": lambda x, y, reduction: F.smooth_l1_loss(x, y, beta=0.0, reduction=reduction),
    "huber": lambda x, y, reduction: F.huber_loss(x, y, delta=0.7, reduction=reduction),
    "kl_div": lambda x, y, reduction: F.kl_div(x, y.abs() + 0.1, reduction=reduction),
    "kl_div_log": lambda x, y, reduction: F.kl_div(x, y, reduction=reduction, log_target=True),
    "bce_logits": lambda x, y, reduction: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=reduction),
    "poisson": lambda x, y, reduction: F.poisson_nll_loss(x, y.abs(), reduction=reduction),
    "poisson_full": lambda x, y, reduction: F.poisson_nll_loss(x, y.abs() * 3, full=True, reduction=reduction),
    "soft_margin": lambda x, y, reduction: F.soft_margin_loss(x, y.detach().sign(), reduction=reduction),
    "hinge": lambda x, y, reduction: F.hinge_embedding_loss(x, y.detach().sign(), reduction=reduction),
    "gaussian": lambda x, y, reduction: F.gaussian_nll_loss(x, y, torch.full_like(x, 0.7), reduction=reduction),
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_pointwise(name, reduction):
    for x, y in [(data((5, 7)), data((5, 7), seed=1)), (data((7, 5)).t(), data((5, 14), seed=1)[:, ::2])]:
        both(lambda x, y: POINTWISE[name](x, y, reduction=reduction), [x, y], torch.float32)


@pytest.mark.parametrize("name", ["mse", "l1", "smooth_l1", "huber", "bce_logits"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_pointwise_dtypes(name, dtype):
    for reduction in REDUCTIONS:
        both(
            lambda x, y: POINTWISE[name](x, y, reduction=reduction),
            [data((6, 40), dtype), data((6, 40), dtype, 1)],
            dtype,
        )


def test_pointwise_broadcast_and_large():
    both(lambda x, y: F.mse_loss(x, y), [data((300, 401)), data((300, 401), seed=1)], torch.float32)
    with pytest.warns(UserWarning):
        both(lambda x, y: F.mse_loss(x, y, reduction="none"), [data((4, 5)), data((5,), seed=1)], torch.float32)


@pytest.mark.parametrize("name", ["mse", "smooth_l1", "huber", "bce_logits"])
def test_pointwise_second_order(name):
    x, y = data((4, 5), torch.float64), data((4, 5), torch.float64, 1)
    both(lambda x, y: POINTWISE[name](x, y, reduction="mean"), [x, y], torch.float64, second=True)


def test_pointwise_errors():
    x = data((4, 5))
    same_error(lambda x: F.smooth_l1_loss(x, x, beta=-1), x)
    same_error(lambda x: F.huber_loss(x, x, delta=-1), x)
    with pytest.warns(UserWarning):
        same_error(lambda x: F.mse_loss(x, x[:3]), x)


@pytest.mark.parametrize("strided", [False, True])
def test_pointwise_out(strided):
    for op, args in ((aten.mse_loss, ()), (aten.smooth_l1_loss, ()), (aten.huber_loss, ())):
        outs = []
        for device in ("cpu", DEVICE):
            x, y = data((3, 4)).to(device), data((3, 4), seed=1).to(device)
            out = torch.empty(4, 3, device=device).t() if strided else torch.empty(0, device=device)
            op.out(x, y, 0, *args, out=out)
            outs.append(out)
        same(outs[1], outs[0], torch.float32)


# ---- binary cross-entropy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
def test_bce(dtype, reduction, weighted):
    p, y = data((6, 33), dtype).sigmoid(), data((6, 33), dtype, 1).sigmoid()
    if dtype != torch.float16:  # there native's gradient at 0 and 1 is 0 / 0, ours is 0
        p[0, :2] = y[0, :2] = torch.tensor([0.0, 1.0])
    w = data((6, 33), dtype, 2).abs() if weighted else None
    both(lambda p, y, w: F.binary_cross_entropy(p, y.detach(), w, reduction=reduction), [p, y, w], dtype)


def test_bce_extremes_and_layouts():
    p, y = torch.tensor([0.0, 1.0, 1e-30, 1 - 1e-7, 0.5]), torch.tensor([1.0, 0.0, 1.0, 0.0, 0.5])
    both(lambda p, y: F.binary_cross_entropy(p, y.detach(), reduction="none"), [p, y], torch.float32)
    x, z = data((7, 5)).sigmoid().t(), data((5, 14), seed=1).sigmoid()[:, ::2]
    both(lambda p, y: F.binary_cross_entropy(p, y.detach(), reduction="none"), [x, z], torch.float32)
    both(lambda p, y: F.binary_cross_entropy(p, y.detach()), [p[:0], y[:0]], torch.float32)


def test_bce_errors():
    p = torch.rand(3, 4)
    same_error(lambda p, y: F.binary_cross_entropy(p * 2, y), p + 0.5, p)
    same_error(lambda p, y: F.binary_cross_entropy(p, y + 1), p, p)
    same_error(lambda p: F.binary_cross_entropy(p * float("nan"), p), p)
    same_error(lambda p, y: aten.binary_cross_entropy(p, y), p, p.double())
    same_error(lambda p: aten.binary_cross_entropy(p, p), p.int())


# ---- negative log likelihood -------------------------------------------------------------------------------------

NLL_SHAPES = [
    ((7, 5), (7,)),
    ((5,), ()),
    ((2, 5, 3, 4), (2, 3, 4)),
    ((2, 5, 6), (2, 6)),
    ((2, 5, 2, 3, 2), (2, 2, 3, 2)),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shapes", NLL_SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
def test_nll(dtype, shapes, weighted):
    shape, target_shape = shapes
    x = data(shape, dtype).log_softmax(1 if len(shape) > 1 else 0)
    target = torch.randint(0, 5, target_shape)
    if target.dim():
        target.view(-1)[1::3] = 2
    w = data((5,), dtype, 2).abs() + 0.1 if weighted else None
    w = None if w is None else w.to(dtype)
    for reduction, ignore in itertools.product(REDUCTIONS, (-100, 2)):
        if len(target_shape) == 0 and ignore == 2:
            continue
        both(lambda x, t, w: F.nll_loss(x, t, w, ignore_index=ignore, reduction=reduction), [x, target, w], dtype)


def test_nll_layouts_and_targets():
    x, t = data((5, 40)).t(), torch.randint(0, 5, (80,))[::2]
    for reduction in REDUCTIONS:
        both(lambda x, t: F.nll_loss(x, t, reduction=reduction), [x, t], torch.float32)
        both(lambda x, t: F.nll_loss(x, t, reduction=reduction), [x, t.byte()], torch.float32)
    maps = data((2, 5, 4, 6)).contiguous(memory_format=torch.channels_last)
    both(
        lambda x, t: F.nll_loss(x.contiguous(), t),
        [maps, torch.randint(0, 5, (2, 6, 4)).transpose(1, 2)],
        torch.float32,
    )
    both(lambda x, t: F.nll_loss(x, t), [data((5000, 30)), torch.randint(0, 30, (5000,))], torch.float32)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_nll_of_many_rows(reduction):
    """Sums over blocks of rows, in a fixed order."""
    torch.manual_seed(0)
    x, t, w = torch.rand(2, 3, 401, 403), torch.randint(0, 3, (2, 401, 403)), torch.rand(3)
    t[:, ::3] = -100
    for ignored in (0, 300, 401):  # lines whose values are not read
        x[:, :, :ignored], t[:, :ignored] = float("nan"), -100
        expected = F.nll_loss(x.double(), t, w.double(), reduction=reduction).float()
        found = [F.nll_loss(x.to(DEVICE), t.to(DEVICE), w.to(DEVICE), reduction=reduction).cpu() for _ in range(2)]
        torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=0, equal_nan=True)
        torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)


def test_nll_degenerate():
    x = data((4, 5))
    for reduction in REDUCTIONS:
        both(lambda x, t: F.nll_loss(x, t, reduction=reduction), [x, torch.full((4,), -100)], torch.float32)
        both(
            lambda x, t: F.nll_loss(x, t, reduction=reduction), [x[:0], torch.zeros(0, dtype=torch.long)], torch.float32
        )
    both(lambda x, t: F.nll_loss(x, t), [data((0, 5, 2, 2)), torch.zeros(0, 2, 2, dtype=torch.long)], torch.float32)


def test_nll_forward_outputs():
    x, t, w = data((6, 5)), torch.tensor([0, 1, 2, 3, 4, 0]), torch.rand(5)
    for reduction in (0, 1, 2):
        e = aten.nll_loss_forward(x, t, w, reduction, 3)
        a = aten.nll_loss_forward(x.to(DEVICE), t.to(DEVICE), w.to(DEVICE), reduction, 3)
        for one, other in zip(a, e, strict=False):
            same(one, other, torch.float32)


def test_nll_errors():
    x, t = data((4, 5)), torch.tensor([0, 1, 2, 4])
    for reduction in REDUCTIONS:
        same_error(lambda x, t: F.nll_loss(x, t, reduction=reduction), x, torch.tensor([0, 7, 2, 1]))
        same_error(lambda x, t: F.nll_loss(x, t, reduction=reduction), x, torch.tensor([0, 1, -1, 1]))
    if not ASYNCHRONOUS:
        with pytest.raises(IndexError, match=r"^Target 7 is out of bounds\.$"):
            F.nll_loss(x.to(DEVICE), torch.tensor([0, 7, 2, 1]).to(DEVICE))
    same_error(lambda x, t: F.nll_loss(x, t), x, t.int())
    same_error(lambda x, t: F.nll_loss(x, t), x, t.float())
    same_error(lambda x, t: F.nll_loss(x, t), x.int(), t)
    same_error(lambda x, t, w: F.nll_loss(x, t, w), x.half(), t, torch.ones(5))
    same_error(lambda x, t, w: F.nll_loss(x, t, w), x, t, torch.ones(4))
    same_error(lambda x, t: F.nll_loss(x, t), x, t[:3])
    maps, target = data((2, 3, 4, 4)), torch.zeros(2, 4, 4, dtype=torch.long)
    same_error(lambda x, t: F.nll_loss(x, t), maps, target + 3)
    same_error(lambda x, t: F.nll_loss(x, t), maps, target.byte())
    same_error(lambda x, t: F.nll_loss(x, t), maps, target[:, :3])
    same_error(lambda x, t: F.nll_loss(x, t), maps.int(), target)
    same_error(lambda x, t: F.nll_loss(x, t, torch.ones(3, device=x.device).double()), maps, target)
    with pytest.raises(RuntimeError, match="same device"):
        F.nll_loss(x.to(DEVICE), t)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy(reduction):
    x, t = data((6, 5)), torch.randint(0, 5, (6,))
    both(lambda x, t: F.cross_entropy(x, t, reduction=reduction), [x, t], torch.float32)
    both(
        lambda x, t: F.cross_entropy(x, t, ignore_index=2, label_smoothing=0.1, reduction=reduction),
        [x, t],
        torch.float32,
    )
    both(lambda x, p: F.cross_entropy(x, p.softmax(1), reduction=reduction), [x, data((6, 5), seed=2)], torch.float32)
    both(
        lambda x, t: F.cross_entropy(x, t, reduction=reduction),
        [data((2, 5, 3, 3)), torch.randint(0, 5, (2, 3, 3))],
        torch.float32,
    )


# ---- margin losses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [True, False])
def test_multi_margin(dtype, p, weighted):
    w = data((5,), dtype, 3).abs() if weighted else None
    cases = [
        (data((7, 5), dtype), torch.randint(0, 5, (7,))),
        (data((5,), dtype), torch.tensor(2)),
        (data((5,), dtype), torch.tensor([2])),
        (data((5, 9), dtype).t(), torch.randint(0, 5, (18,))[::2]),
    ]
    for reduction, (x, t) in itertools.product(REDUCTIONS, cases):
        both(lambda x, t, w: F.multi_margin_loss(x, t, p, 0.7, w, reduction=reduction), [x, t, w], dtype)


def test_multi_margin_errors():
    x, t = data((4, 5)), torch.tensor([0, 1, 2, 4])
    same_error(lambda x, t: F.multi_margin_loss(x, t), x, t + 1)
    same_error(lambda x, t: F.multi_margin_loss(x, t, p=3), x, t)
    same_error(lambda x, t: torch.ops.aten.multi_margin_loss(x, t, 3), x, t)
    same_error(lambda x, t: F.multi_margin_loss(x, t), x.bfloat16(), t)
    same_error(lambda x, t: F.multi_margin_loss(x, t), x, t.int())
    same_error(lambda x, t: F.multi_margin_loss(x, t), x, t[:3])
    same_error(lambda x, t, w: F.multi_margin_loss(x, t, weight=w), x, t, torch.ones(4))
    same_error(lambda x, t, w: F.multi_margin_loss(x, t, weight=w), x, t, torch.ones(5).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(dtype, reduction):
    t = torch.tensor([[0, 2, -1, 1, 1], [3, -1, 0, 0, 0], [-1, 0, 0, 0, 0], [4, 3, 2, 1, 0]])
    both(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), [data((4, 5), dtype), t], dtype)
    both(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), [data((5,), dtype), t[0]], dtype)
    e = aten.multilabel_margin_loss_forward(data((4, 5)), t, 1)[1]
    assert torch.equal(aten.multilabel_margin_loss_forward(data((4, 5)).to(DEVICE), t.to(DEVICE), 1)[1].cpu(), e)


def test_multilabel_margin_errors():
    x, t = data((2, 3)), torch.tensor([[0, 2, -1], [1, -1, 0]])
    same_error(lambda x, t: F.multilabel_margin_loss(x, t), x, t + 1)
    same_error(lambda x, t: F.multilabel_margin_loss(x, t), x, t - 1)
    same_error(lambda x, t: F.multilabel_margin_loss(x, t), x.bfloat16(), t)
    same_error(lambda x, t: F.multilabel_margin_loss(x, t), x, t.int())
    same_error(lambda x, t: F.multilabel_margin_loss(x, t), x, t[:1])


# ---- modules -----------------------------------------------------------------------------------------------------

A, B, SIGNS = data((6, 5)), data((6, 5), seed=1), data((6,), seed=2).sign()
MODULES = [
    (torch.nn.L1Loss(), [A, B]),
    (torch.nn.MSELoss(), [A, B]),
    (torch.nn.SmoothL1Loss(), [A, B]),
    (torch.nn.HuberLoss(), [A, B]),
    (torch.nn.BCELoss(), [A.sigmoid(), (B > 0).float()]),
    (torch.nn.BCEWithLogitsLoss(), [A, B.sigmoid()]),
    (torch.nn.CrossEntropyLoss(), [A, torch.randint(0, 5, (6,))]),
    (torch.nn.NLLLoss(), [A, torch.randint(0, 5, (6,))]),
    (torch.nn.KLDivLoss(reduction="batchmean"), [A, B.softmax(1)]),
    (torch.nn.PoissonNLLLoss(), [A, B.abs()]),
    (torch.nn.GaussianNLLLoss(), [A, B, A.detach().abs() + 0.1]),
    (torch.nn.HingeEmbeddingLoss(), [A, B.sign()]),
    (torch.nn.SoftMarginLoss(), [A, B.sign()]),
    (torch.nn.MultiLabelSoftMarginLoss(), [A, (B > 0).float()]),
    (torch.nn.CosineEmbeddingLoss(), [A, B, SIGNS]),
    (torch.nn.MarginRankingLoss(), [A[:, 0], B[:, 0], SIGNS]),
    (torch.nn.TripletMarginLoss(), [A, B, data((6, 5), seed=4)]),
    (torch.nn.TripletMarginWithDistanceLoss(), [A, B, data((6, 5), seed=4)]),
    (torch.nn.MultiMarginLoss(), [A, torch.randint(0, 5, (6,))]),
    (torch.nn.MultiLabelMarginLoss(), [A, torch.tensor([[0, 1, -1, 0, 0]] * 6)]),
]


@pytest.mark.parametrize(
    "module, tensors", MODULES, ids=lambda v: type(v).__name__ if isinstance(v, torch.nn.Module) else ""
)
def test_modules(module, tensors):
    if isinstance(
        module,
        (torch.nn.BCELoss, torch.nn.SoftMarginLoss, torch.nn.HingeEmbeddingLoss, torch.nn.MultiLabelSoftMarginLoss),
    ):
        both(lambda x, y: module(x, y.detach()), tensors, torch.float32)
    else:
        both(module, tensors, torch.float32)


@pytest.mark.parametrize("shape", [(4, 5), (2, 5, 3), (2, 5, 2, 3)])
def test_the_first_target_out_of_range_is_named(shape):
    if ASYNCHRONOUS:
        pytest.skip("the device names one of them")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # native's name the one that a thread finds first
    target = torch.zeros(shape[0], *shape[2:], dtype=torch.int64)
    target.view(-1)[1:4] = torch.tensor([7, -100, 9])
    try:
        for reduction in REDUCTIONS:
            check_error(lambda x, t, r=reduction: F.nll_loss(x, t, reduction=r), data(shape), target)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.skipif(version(torch.__version__) < version("2.12"), reason="PyTorch checks the dtype from 2.12 on")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_maps_of_targets_of_another_dtype(dtype):
    check_error(F.nll_loss, data((2, 5, 3)), torch.ones(2, 3, dtype=dtype))
    if dtype == torch.uint8:  # there is none to read
        check(lambda x, t: F.nll_loss(x, t, reduction="sum"), data((0, 5, 3)), torch.ones(0, 3, dtype=dtype))
    else:
        check_error(F.nll_loss, data((0, 5, 3)), torch.ones(0, 3, dtype=dtype))
