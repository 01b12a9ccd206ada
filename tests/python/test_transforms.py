"""Function transforms (vmap, grad, jvp, vjp, jacrev, hessian) over what models are made of, beside native CPU."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.python.twin import NATIVE

DEVICE = "minitorch"


def data(*shape, seed=0):
    torch.manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=torch.float32) * 0.5


WORDS, CLASSES = torch.tensor([[1, 4], [0, 2], [2, 2]]), torch.tensor([[1, 0, 4, 2], [3, 3, 1, 0], [2, 1, 0, 4]])
W, B = data(5, 6, seed=7), data(5, seed=8)
KERNEL, VOLUME = data(4, 2, 3, 3, seed=9), data(2, 4, 3, seed=10)

# name: (function of tensors without the mapped dimension, the mapped tensors). Functions move constants by `.to(x)`.
CASES = {
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        [data(3, 2, 4, 5, 8, seed=i) for i in (1, 2, 3)],
    ),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [data(3, 1, 2, 5, 8, seed=i) for i in (1, 2, 3)],
    ),
    "attention with a mask": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        [*[data(3, 1, 2, 5, 8, seed=i) for i in (1, 2, 3)], data(3, 5, 5)],
    ),
    "linear": (lambda x: F.linear(x, W.to(x), B.to(x)), [data(3, 4, 6)]),
    "linear over weights": (lambda x, w, b: F.linear(x, w, b), [data(3, 4, 6), data(3, 5, 6), data(3, 5)]),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t), [data(3, 4, 5), CLASSES]),
    "smoothed cross entropy": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=0),
        [data(3, 4, 5), CLASSES],
    ),
    "embedding": (lambda w, i: F.embedding(i, w), [data(3, 5, 4), WORDS]),
    "layer norm": (lambda x: F.layer_norm(x, (6,)), [data(3, 4, 6)]),
    "layer norm over weights": (
        lambda x, w, b: F.layer_norm(x, (6,), w, b),
        [data(3, 4, 6), data(3, 6), data(3, 6, seed=1)],
    ),
    "rms norm": (lambda x, w: F.rms_norm(x, (6,), w), [data(3, 4, 6), data(3, 6)]),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [data(3, 2, 4, 5), data(3, 4), data(3, 4, seed=1)]),
    "batch norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        [data(3, 6, 4), data(3, 4), data(3, 4, seed=1)],
    ),
    "convolution": (lambda x: F.conv2d(x, KERNEL.to(x), padding=1), [data(3, 1, 2, 6, 6)]),
    "convolution over kernels": (lambda x, w: F.conv2d(x, w), [data(3, 1, 2, 6, 6), data(3, 4, 2, 3, 3)]),
    "transposed convolution": (lambda x: F.conv_transpose1d(x, VOLUME.to(x), stride=2), [data(3, 1, 2, 6)]),
    "max pooling": (lambda x: F.max_pool2d(x, 2), [data(3, 1, 2, 6, 6)]),
    "average pooling": (lambda x: F.avg_pool2d(x, 2), [data(3, 1, 2, 6, 6)]),
    "softmax": (lambda x: x.softmax(-1), [data(3, 4, 5)]),
    "gelu": (lambda x: F.gelu(x), [data(3, 4, 5)]),
    "products": (lambda a, b: torch.einsum("ij,jk->ik", a, b), [data(3, 4, 5), data(3, 5, 2)]),
    "indexing": (lambda x, i: x[i], [data(3, 5, 4), WORDS]),
    "gather": (lambda x, i: x.gather(1, i), [data(3, 4, 5), CLASSES[:, :, None]]),
    "cumsum": (lambda x: x.cumsum(0), [data(3, 4, 5)]),
    "sort": (lambda x: x.sort(-1).values, [data(3, 4, 5)]),
}
BACKWARD = {  # without forward mode
    "distances": (lambda x, y: torch.cdist(x, y).sum(), [data(3, 4, 5), data(3, 2, 5)]),
    "distances to itself": (lambda x: torch.cdist(x, x, p=1).square().sum(), [data(3, 4, 5)]),
}


def scalar(function):
    return lambda *args: function(*args).square().sum()


def floats(tensors):
    return tuple(i for i, t in enumerate(tensors) if t.is_floating_point())


def tangent(function, tensors):
    """The directional derivative of the first tensor's function along ones."""
    first, rest = tensors[0], tensors[1:]
    return jvp(lambda x: function(x, *rest), (first,), (torch.ones_like(first),))


TRANSFORMS = {
    "vmap": lambda f, tensors: vmap(f)(*tensors),
    "vmap of one": lambda f, tensors: vmap(f, in_dims=(0, *[None] * (len(tensors) - 1)))(
        tensors[0], *[t[0] for t in tensors[1:]]
    ),
    "grad": lambda f, tensors: grad(scalar(f), floats(tensors))(*[t[0] for t in tensors]),
    "vmap of grad": lambda f, tensors: vmap(grad(scalar(f), floats(tensors)))(*tensors),
    "jvp": lambda f, tensors: tangent(f, [t[0] for t in tensors]),
    "vmap of jvp": lambda f, tensors: vmap(lambda *args: tangent(f, args))(*tensors),
    "vjp": lambda f, tensors: (lambda out, pull: pull(torch.ones_like(out)))(
        *vjp(lambda x: f(x, *[t[0] for t in tensors[1:]]), tensors[0][0])
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transform(name, transform):
    function, tensors = CASES[name]
    with sdpa_kernel(SDPBackend.MATH):  # native's fused attention has no forward mode
        native = TRANSFORMS[transform](function, tensors)
    ours = TRANSFORMS[transform](function, [t.to(DEVICE) for t in tensors])
    leaves = zip(torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(native), strict=True)
    for a, b in leaves:
        assert a.device.type == DEVICE
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BACKWARD)
def test_a_jacobian_per_example(name):
    function, tensors = BACKWARD[name]
    native, ours = (vmap(jacrev(function))(*[t.to(device) for t in tensors]) for device in ("cpu", DEVICE))
    torch.testing.assert_close(ours.cpu(), native, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("derivative", [jacrev, jacfwd, hessian])
def test_second_derivatives(derivative):
    def loss(w, x, t):
        q = F.linear(x, w).view(1, 1, 4, 6)
        attended = F.scaled_dot_product_attention(q, q, q).view(4, 6)
        return F.cross_entropy(F.layer_norm(attended, (6,)), t)

    arguments = (data(6, 6), data(4, 6), torch.tensor([0, 5, 2, 2]))
    with sdpa_kernel(SDPBackend.MATH):
        native = derivative(loss)(*arguments)
    ours = derivative(loss)(*[a.to(DEVICE) for a in arguments])
    torch.testing.assert_close(ours.cpu(), native, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("drop", [F.dropout, lambda x: F.alpha_dropout(x, 0.5, True), F.dropout1d])
def test_dropout_under_vmap(drop):
    x = torch.ones(5, 8, 40, device=DEVICE)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(drop)(x)
    torch.manual_seed(0)
    same = vmap(drop, randomness="same")(x)
    assert all(torch.equal(same[0], row) for row in same)
    different = vmap(drop, randomness="different")(x)
    assert not torch.equal(different[0], different[1])
    assert 0.3 < (different == different.max()).float().mean().item() < 0.7


@pytest.mark.skipif(NATIVE is None, reason="needs torch.cuda, whose numbers a GPU draws")
def test_dropout_under_vmap_draws_as_native_does():
    results = []
    for device in (NATIVE, DEVICE):
        torch.manual_seed(0)
        results.append(vmap(lambda x: F.dropout(x, 0.3), randomness="different")(torch.ones(4, 50, device=device)))
    assert torch.equal(results[1].cpu(), results[0].cpu())


def test_a_module_per_example():
    gradients = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        model = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(device)
        parameters = dict(model.named_parameters())

        def loss(p, x):
            return torch.func.functional_call(model, p, (x[None],)).square().mean()

        gradients.append(vmap(grad(loss), in_dims=(None, 0))(parameters, data(3, 4, 8).to(device)))
    for name, native in gradients[0].items():
        torch.testing.assert_close(gradients[1][name].cpu(), native, rtol=1e-4, atol=1e-5)
