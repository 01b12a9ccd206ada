"""Our own differentiable Functions: values and gradients against native, and every transform that PyTorch has."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.python.twin import NATIVE, assert_same_error, error_of

DEVICE = "minitorch"


def clones(*tensors, device=DEVICE):
    return [t.detach().to(device).requires_grad_(t.is_floating_point()) for t in tensors]


# ---- cross-entropy ---------------------------------------------------------------------------------------------------

CROSS_ENTROPY = [
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"ignore_index": 2},
    {"ignore_index": 2, "reduction": "none"},
    {"weight": True},
    {"weight": True, "reduction": "sum", "ignore_index": 1},
    {"label_smoothing": 0.1},
    {"label_smoothing": 0.3, "reduction": "none", "ignore_index": 0},
    {"label_smoothing": 0.2, "weight": True},
    {"label_smoothing": 0.2, "weight": True, "reduction": "sum", "ignore_index": 3},
    {"label_smoothing": 0.2, "weight": True, "ignore_index": 3},
]


def cross_entropy_case(options, dtype, rows=33, classes=10):
    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(rows, classes, generator=generator) * 3).to(dtype)
    target = torch.randint(classes, (rows,), generator=generator)
    weight = torch.rand(classes, generator=generator).to(dtype) if options.get("weight") else None
    return logits, target, weight, {k: v for k, v in options.items() if k != "weight"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("options", CROSS_ENTROPY, ids=str)
def test_cross_entropy(options, dtype):
    logits, target, weight, keywords = cross_entropy_case(options, dtype)
    x = logits.clone().requires_grad_()
    y = logits.to(DEVICE).requires_grad_()
    native = F.cross_entropy(x, target, weight, **keywords)
    ours = F.cross_entropy(y, target.to(DEVICE), None if weight is None else weight.to(DEVICE), **keywords)
    assert ours.dtype == native.dtype
    tolerance = {torch.bfloat16: 0.03, torch.float16: 4e-3}.get(dtype)
    kwargs = {} if tolerance is None else {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(ours.cpu(), native, **kwargs)
    grad = torch.rand_like(native)
    native.backward(grad)
    ours.backward(grad.to(DEVICE))
    torch.testing.assert_close(y.grad.cpu(), x.grad, **kwargs)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (70, 513), (3, 20_000)])
def test_cross_entropy_sizes(shape):
    logits, target, _, _ = cross_entropy_case({}, torch.float32, *shape)
    x, y = logits.clone().requires_grad_(), logits.to(DEVICE).requires_grad_()
    native, ours = F.cross_entropy(x, target), F.cross_entropy(y, target.to(DEVICE))
    torch.testing.assert_close(ours.cpu(), native)
    native.backward()
    ours.backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)


def test_cross_entropy_layouts():
    logits, target, _, _ = cross_entropy_case({}, torch.float32)
    for view in (lambda t: t.t().contiguous().t(), lambda t: torch.cat([t, t], 1)[:, : t.size(1)], lambda t: t[::2]):
        x, y = logits.clone().requires_grad_(), logits.to(DEVICE).requires_grad_()
        rows = view(x).size(0)
        native = F.cross_entropy(view(x), target[:rows])
        ours = F.cross_entropy(view(y), target.to(DEVICE).repeat_interleave(2)[::2][:rows])
        native.backward()
        ours.backward()
        torch.testing.assert_close(ours.cpu(), native)
        torch.testing.assert_close(y.grad.cpu(), x.grad)


def test_cross_entropy_special_values():
    logits = torch.tensor([[1.0, float("-inf"), 2.0], [float("nan"), 0.0, 0.0], [1e4, -1e4, 0.0]])
    target = torch.tensor([0, 1, 0])
    x, y = logits.clone().requires_grad_(), logits.to(DEVICE).requires_grad_()
    native, ours = F.cross_entropy(x, target, reduction="none"), F.cross_entropy(y, target.to(DEVICE), reduction="none")
    torch.testing.assert_close(ours.cpu(), native, equal_nan=True)
    native.sum().backward()
    ours.sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad, equal_nan=True)
    everything_ignored = torch.full((3,), -100)
    assert F.cross_entropy(logits.to(DEVICE), everything_ignored.to(DEVICE)).isnan()


@pytest.mark.parametrize(
    ("logits", "target", "options"),
    [
        (torch.randn(3, 4), torch.tensor([0, 1, 4]), {}),
        (torch.randn(3, 4), torch.tensor([0, -1, 2]), {}),
        (torch.randn(3, 4), torch.tensor([0, 1]), {}),
        (torch.randn(3, 4), torch.tensor([0, 1, 2]), {"weight": torch.ones(3)}),
        (torch.randn(3, 4), torch.tensor([0, 1, 2]), {"label_smoothing": 1.5}),
        (torch.randn(3, 4), torch.tensor([0.0, 1, 2]), {}),
    ],
)
def test_cross_entropy_errors(logits, target, options):
    with pytest.raises(Exception) as native:
        F.cross_entropy(logits, target, **options)
    options = {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    ours = error_of(lambda: F.cross_entropy(logits.to(DEVICE), target.to(DEVICE), **options))
    assert_same_error(ours, native.value)


def test_cross_entropy_other_forms():
    """Class probabilities and spatial logits take PyTorch's composite."""
    logits, probabilities = torch.randn(6, 5), torch.softmax(torch.randn(6, 5), 1)
    torch.testing.assert_close(
        F.cross_entropy(logits.to(DEVICE), probabilities.to(DEVICE)).cpu(), F.cross_entropy(logits, probabilities)
    )
    image, labels = torch.randn(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
    torch.testing.assert_close(
        F.cross_entropy(image.to(DEVICE), labels.to(DEVICE)).cpu(), F.cross_entropy(image, labels)
    )
    torch.testing.assert_close(
        F.cross_entropy(logits[0].to(DEVICE), torch.tensor(2, device=DEVICE)).cpu(),
        F.cross_entropy(logits[0], torch.tensor(2)),
    )


@pytest.mark.parametrize("options", CROSS_ENTROPY, ids=str)
def test_cross_entropy_gradcheck(options):
    logits, target, weight, keywords = cross_entropy_case(options, torch.float64, rows=5, classes=4)
    (x,) = clones(logits)
    weight = None if weight is None else weight.to(DEVICE)
    f = lambda x: F.cross_entropy(x, target.to(DEVICE), weight, **keywords)  # noqa: E731
    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


def test_cross_entropy_keeps_no_probabilities():
    logits = torch.randn(512, 4096, device=DEVICE, requires_grad=True)
    target = torch.randint(4096, (512,), device=DEVICE)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        F.cross_entropy(logits, target)
    assert sum(t.numel() for t in saved if t.data_ptr() != logits.data_ptr()) < 3 * 512


# ---- dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("view", [lambda t: t, lambda t: t.t(), lambda t: t[:, ::2]])
def test_dropout_gradient_uses_the_same_mask(view, dtype):
    x = torch.randn(40, 30).to(dtype)
    y = x.to(DEVICE).requires_grad_()
    torch.manual_seed(4)
    ours = F.dropout(view(y), 0.3)
    grad = torch.randn_like(view(x))
    torch.rand(5, device=DEVICE)  # the generator moves on between the passes
    ours.backward(grad.t().contiguous().t().to(DEVICE))
    kept, expected = ours.detach().cpu() != 0, torch.zeros_like(x)
    view(expected)[kept] = (grad[kept].double() / 0.7).to(dtype)
    torch.testing.assert_close(y.grad.cpu(), expected)
    if NATIVE is None:
        return
    x = x.to(NATIVE).requires_grad_()
    torch.manual_seed(4)
    native = F.dropout(view(x), 0.3)
    assert torch.equal(ours.cpu(), native.cpu())
    if NATIVE == "cpu":  # beside another accelerator PyTorch's engine does not differentiate CUDA tensors
        native.backward(grad)
        assert torch.equal(y.grad.cpu(), x.grad)


def test_dropout_stores_no_mask():
    x = torch.randn(1000, 1000, device=DEVICE, requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        F.dropout(x, 0.5)
    assert sum(t.numel() * t.element_size() for t in saved) < 4096


def test_dropout_gradcheck():
    x = torch.randn(6, 5, dtype=torch.float64, device=DEVICE, requires_grad=True)

    def f(x):
        torch.manual_seed(0)
        return F.dropout(x, 0.4)

    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


# ---- linear ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 7), (2, 1, 3, 7), (0, 7)])
def test_linear(shape, bias, dtype):
    x, w = torch.randn(shape).to(dtype), torch.randn(4, 7).to(dtype)
    operands = [x, w] + ([torch.randn(4).to(dtype)] if bias else [])
    native_inputs = [t.clone().requires_grad_() for t in operands]
    our_inputs = clones(*operands)
    native, ours = F.linear(*native_inputs), F.linear(*our_inputs)
    grad = torch.randn_like(native)
    native.backward(grad)
    ours.backward(grad.to(DEVICE))
    tolerance = {"rtol": 0.02, "atol": 0.05} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(ours.cpu(), native, **tolerance)
    for a, b in zip(our_inputs, native_inputs, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, **tolerance)


def test_linear_needs_only_what_is_asked():
    x, w, b = clones(torch.randn(5, 7), torch.randn(4, 7), torch.randn(4))
    w.requires_grad_(False)
    F.linear(x, w, b).sum().backward()
    assert w.grad is None
    assert x.grad is not None
    assert torch.equal(b.grad.cpu(), torch.full((4,), 5.0))


def test_linear_gradcheck():
    for shape in ((3, 4), (2, 3, 4)):
        x, w, b = clones(
            *(torch.randn(s, dtype=torch.float64) for s in (shape, (2, 4), (2,))),
        )
        assert torch.autograd.gradcheck(F.linear, (x, w, b))
        assert torch.autograd.gradgradcheck(F.linear, (x, w, b))
        assert torch.autograd.gradgradcheck(F.linear, (x, w))


@pytest.mark.parametrize(
    ("x", "w", "b"),
    [
        (torch.randn(3, 4), torch.randn(2, 5), None),
        (torch.randn(3, 4), torch.randn(2, 4).double(), None),
        (torch.randn(3, 4), torch.randn(2, 4), torch.randn(3)),
    ],
)
def test_linear_errors(x, w, b):
    with pytest.raises(RuntimeError):
        F.linear(x, w, b)
    with pytest.raises(RuntimeError):
        F.linear(x.to(DEVICE), w.to(DEVICE), None if b is None else b.to(DEVICE))


# ---- all of them under PyTorch's transforms --------------------------------------------------------------------------

TARGET = torch.tensor([0, 2, 1, 1])


def loss(x, w, b):
    hidden = F.linear(x, w, b)
    return F.cross_entropy(hidden, TARGET.to(x.device), label_smoothing=0.1)


def operands(device, dtype=torch.float32):
    generator = torch.Generator().manual_seed(8)
    return [torch.randn(s, generator=generator).to(device=device, dtype=dtype) for s in ((4, 6), (3, 6), (3,))]


def test_functorch_grad_and_hessian():
    for transform in (torch.func.grad, torch.func.hessian):
        native = transform(lambda x, w, b: loss(x, w, b))(*operands("cpu"))
        ours = transform(lambda x, w, b: loss(x, w, b))(*operands(DEVICE))
        torch.testing.assert_close(ours.cpu(), native)


def test_functorch_vmap():
    def per_example(x, w, b):
        return F.cross_entropy(F.linear(x, w, b), torch.zeros((), dtype=torch.long, device=x.device))

    native = torch.vmap(per_example, in_dims=(0, None, None))(*operands("cpu"))
    ours = torch.vmap(per_example, in_dims=(0, None, None))(*operands(DEVICE))
    torch.testing.assert_close(ours.cpu(), native)
    grads = torch.vmap(torch.func.grad(per_example, argnums=1), in_dims=(0, None, None))
    torch.testing.assert_close(grads(*operands(DEVICE)).cpu(), grads(*operands("cpu")))


def test_forward_mode():
    native = torch.func.jvp(loss, tuple(operands("cpu")), tuple(operands("cpu")))
    ours = torch.func.jvp(loss, tuple(operands(DEVICE)), tuple(operands(DEVICE)))
    for a, b in zip(ours, native, strict=True):
        torch.testing.assert_close(a.cpu(), b)
    import torch.autograd.forward_ad as forward_ad

    x, w, b = operands(DEVICE)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(loss(dual, w, b)).tangent
        assert tangent is not None
        masked = forward_ad.unpack_dual(F.dropout(dual, 0.5)).tangent
        assert set(masked.cpu().unique().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant):
    def f(x, w, b):
        return F.cross_entropy(F.dropout(F.linear(x, w, b), 0.5), TARGET.to(DEVICE))

    results = []
    for wrapped in (f, lambda *a: checkpoint(f, *a, use_reentrant=reentrant)):
        inputs = clones(*operands("cpu"))
        torch.manual_seed(2)
        value = wrapped(*inputs)
        value.backward()
        results.append([value.detach().cpu()] + [t.grad.cpu() for t in inputs])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_compile_aot_eager():
    def f(x, w, b):
        return F.cross_entropy(F.dropout(F.linear(x, w, b).relu(), 0.5), TARGET.to(x.device), label_smoothing=0.1)

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    results = []
    for function in (f, compiled):
        inputs = clones(*operands("cpu"))
        torch.manual_seed(6)
        value = function(*inputs)
        value.backward()
        results.append([value.detach().cpu()] + [t.grad.cpu() for t in inputs])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


DYNAMIC = {
    "linear": lambda x: F.linear(x, torch.ones(3, 6, device=DEVICE), torch.ones(3, device=DEVICE)),
    "dropout": lambda x: F.dropout(x, 0.5),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(x.size(0), dtype=torch.long, device=DEVICE)),
    "rms_norm": lambda x: F.rms_norm(x, (6,), torch.ones(6, device=DEVICE)),
    "lstm": lambda x: torch.lstm(
        x[:, None],
        (torch.zeros(1, 1, 2, device=DEVICE), torch.zeros(1, 1, 2, device=DEVICE)),
        [torch.ones(8, 6, device=DEVICE), torch.ones(8, 2, device=DEVICE)],
        *(False, 1, 0.0, True, False, False),
    )[0],
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_compile_with_sizes_that_vary(name):
    """Sizes are symbols then, for the Meta kernels too."""
    torch._dynamo.reset()
    compiled = torch.compile(DYNAMIC[name], backend="aot_eager", dynamic=True)
    for rows in (5, 9):
        results = []
        for function in (DYNAMIC[name], compiled):
            x = torch.linspace(-1, 1, rows * 6).view(rows, 6).to(DEVICE).requires_grad_()
            torch.manual_seed(6)
            value = function(x)
            value.square().sum().backward()
            results.append((value.detach().cpu(), x.grad.cpu()))
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ops.minitorch.cross_entropy_forward(
            torch.randn(4, 3, device=DEVICE), TARGET.to(DEVICE), None, 1, -100, 0.0
        ),
        lambda: torch.ops.minitorch.dropout_forward(torch.randn(4, 3, device=DEVICE), 0.5),
    ],
)
def test_operators_have_meta_kernels(call):
    from torch._subclasses.fake_tensor import FakeTensorMode

    real = call()
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = call()
    for a, b in zip(real, fake, strict=True):
        assert (a.shape, a.dtype, a.stride(), a.device) == (b.shape, b.dtype, b.stride(), b.device)


# ---- no gradient arrives ---------------------------------------------------------------------------------------------


class Ends(torch.autograd.Function):
    """Passes no gradient on."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


UNDEFINED = {
    "linear": (F.linear, [(4, 3), (5, 3), (5,)]),
    "dropout": (lambda x: F.dropout(x, 0.5), [(4, 4)]),
    "rms norm": (lambda x, w: F.rms_norm(x, (8,), w), [(4, 8), (8,)]),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.tensor([1, 2]).to(x.device)), [(2, 5)]),
    "attention": (F.scaled_dot_product_attention, [(1, 2, 5, 8)] * 3),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), [(4, 8), (8,), (8,)]),
    "convolution": (F.conv2d, [(1, 2, 5, 5), (3, 2, 3, 3), (3,)]),
    "rnn cell": (lambda *p: torch.rnn_tanh_cell(p[0], p[1], p[2], p[3], p[4], p[5]), [(2, 3), (2, 4), (4, 3), (4, 4), (4,), (4,)]),
    "lstm cell": (lambda *p: torch.lstm_cell(p[0], (p[1], p[2]), *p[3:])[0], [(2, 3), (2, 4), (2, 4), (16, 3), (16, 4), (16,), (16,)]),
    "gru cell": (lambda *p: torch.gru_cell(*p), [(2, 3), (2, 4), (12, 3), (12, 4), (12,), (12,)]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDEFINED)
def test_where_no_gradient_arrives_none_leaves(name):
    """Zeros would let an optimizer decay what had no part in the loss."""
    function, shapes = UNDEFINED[name]
    for device in ("cpu", DEVICE):
        leaves = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
        (Ends.apply(function(*leaves)).sum() + 0 * leaves[0].detach().sum()).backward()
        assert [leaf.grad for leaf in leaves] == [None] * len(leaves), device
