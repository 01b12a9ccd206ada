"""Operators that read values from the device's memory: with native CUDA their callers do not wait for the device, and
with ours neither. What they compute is checked on any device."""

import pytest
import torch
import torch.nn.functional as F

from tests.python.test_gpu_hazards import busy, overlapping
from tests.python.twin import ASYNCHRONOUS, DEVICE, check, check_error, same_error

mt = torch.minitorch
aten = torch.ops.aten


def parameters():
    """Parameters, gradients and the states of any rule."""
    torch.manual_seed(0)
    return [[torch.rand(n, device=DEVICE) for n in (7, 600)] for _ in range(5)]


def adam(lr, name="_fused_adam_", maximize=False):
    params, grads, means, squares, largest = parameters()
    steps = [torch.full((), 3.0, device=DEVICE) for _ in params]
    overload = getattr(getattr(aten, name), "tensor_lr" if isinstance(lr, torch.Tensor) else "default")
    rule = dict(beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=True, maximize=maximize)
    overload(params, grads, means, squares, largest, steps, lr=lr, **rule)
    return params


def sgd(lr):
    params, grads, buffers, *_ = parameters()
    overload = aten._fused_sgd_.tensor_lr if isinstance(lr, torch.Tensor) else aten._fused_sgd_.default
    rule = dict(weight_decay=0.1, momentum=0.9, dampening=0.0, nesterov=True, maximize=False, is_first_step=False)
    overload(params, grads, buffers, lr=lr, **rule)
    return params


def adagrad(lr):
    params, grads, sums, *_ = parameters()
    steps = [torch.full((), 3.0, device=DEVICE) for _ in params]
    overload = aten._fused_adagrad_.tensor_lr if isinstance(lr, torch.Tensor) else aten._fused_adagrad_.default
    overload(params, grads, sums, steps, lr=lr, lr_decay=0.1, weight_decay=0.1, eps=1e-8, maximize=False)
    return params


RULES = {"adam": adam, "adamw": lambda lr: adam(lr, "_fused_adamw_", True), "sgd": sgd, "adagrad": adagrad}


def on_device(*values, dtype=None):
    return torch.tensor(values[0] if len(values) == 1 else values, dtype=dtype, device=DEVICE)


class Operands:
    """What the calls below read, made before the device is kept busy."""

    def __init__(self):
        self.rows = on_device(1, 4, 2, 0)
        self.starts = on_device(0, 1, 3)
        self.ends = on_device(0, 1, 4)
        self.table = torch.rand(5, 8, device=DEVICE)
        self.x = torch.rand(5, 8, device=DEVICE)
        self.mask = self.x > 0.5
        self.one = on_device(1.0)
        self.whole = on_device(1)
        self.rate = on_device(0.01)
        self.factors = torch.linalg.lu_factor(torch.rand(8, 8, device=DEVICE))


CALLS = {
    "embedding_bag": lambda o: F.embedding_bag(o.rows, o.table, o.starts),
    "embedding_bag with a last offset": lambda o: F.embedding_bag(
        o.rows, o.table, o.ends, mode="max", include_last_offset=True
    ),
    "one_hot": lambda o: F.one_hot(o.rows, 5),
    "binary_cross_entropy": lambda o: F.binary_cross_entropy(o.x, o.table),
    "_assert_async": lambda o: torch._assert_async(o.one),
    "multinomial": lambda o: torch.multinomial(o.x, 3),
    "multinomial with replacement": lambda o: torch.multinomial(o.x, 3, replacement=True),
    "fill_": lambda o: o.x.clone().fill_(o.one),
    "fill_ of another dtype": lambda o: o.x.clone().fill_(o.whole),
    "masked_fill_": lambda o: o.x.clone().masked_fill_(o.mask, o.one),
    "masked_fill": lambda o: o.x.masked_fill(o.mask, o.one),
    "a number where a mask is": lambda o: o.x.clone().__setitem__(o.mask, 2.0),
    "lu_solve": lambda o: torch.linalg.lu_solve(*o.factors, o.x.t()),
    "repeat_interleave": lambda o: o.x.repeat_interleave(o.rows.repeat(2)[:5], 0, output_size=8),
    **{name: lambda o, rule=rule: rule(o.rate) for name, rule in RULES.items()},
}


@overlapping
@pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")
@pytest.mark.parametrize("name", CALLS)
def test_the_caller_does_not_wait_for_the_device(name):
    operands = Operands()
    for _ in range(2):  # a kernel's first launch waits for the device, and so may memory that is not in the cache yet
        CALLS[name](operands)
    mt.synchronize()
    for milliseconds in (50, 500):  # once more where this process was held up for so long that the device was done
        busy(milliseconds)
        CALLS[name](operands)
        waits = mt.current_stream().query()
        mt.synchronize()
        if not waits:
            return
    pytest.fail("the device had nothing left to do when the call returned")


# ---- Values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rate_on_the_device_is_that_number(name, dtype):
    rate = torch.tensor(0.013, dtype=dtype)
    for a, b in zip(RULES[name](rate.to(DEVICE)), RULES[name](rate.item()), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(RULES[name](rate)[1], RULES[name](rate.item())[1])  # of the host


FILLED = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex128]


@pytest.mark.parametrize("dtype", FILLED)
def test_a_value_of_the_same_memory_fills(dtype):
    x = torch.arange(60).remainder(5).view(6, 10).to(dtype)
    mask = torch.arange(60).view(6, 10) % 3 == 0
    for layout in (x, x.t().contiguous().t(), x[:, ::2]):
        m = mask[:, : layout.shape[1]]
        for at in ((0, 0), (2, 3)):
            check(lambda x, m, at=at: x.masked_fill_(m, x[at]), layout, m)
            check(lambda x, m, at=at: x.masked_fill_(m[:1], x[at]), layout, m)
            check(lambda x, m, at=at: x.masked_fill(m, x[at]), layout, m)
            check(lambda x, at=at: x.fill_(x[at]), layout)
            check(lambda x, m, at=at: x.__setitem__(m, x[at]), layout, m)
        check(lambda x, m: x.__setitem__(m, 1), layout, m)


@pytest.mark.parametrize("dtype", FILLED)
@pytest.mark.parametrize("value", [1, 2.75, True, 3 + 4j])
def test_a_value_of_another_dtype_fills_as_a_copy(value, dtype):
    if isinstance(value, complex) and not dtype.is_complex:
        return  # native warns, and drops the imaginary part
    check(lambda x, v: x.fill_(v), torch.zeros(3, 4).to(dtype), torch.tensor(value))


def test_sums_of_repeats():
    for counts in ([2, 0, 3], [0, 0, 0], [1]):
        c, total = torch.tensor(counts), sum(counts)
        for kind in (torch.int32, torch.int64):
            check(lambda c, n=total: torch.repeat_interleave(c, output_size=n), c.to(kind))
    wrong = "allocated size does not match required size|repeats can not be negative"
    for counts, size in (([2, 0, 3], 7), ([2, 0, 3], 4), ([-1, 3, 3], 5), ([2, 0, 3], 0)):
        with pytest.raises(RuntimeError, match=wrong):
            torch.repeat_interleave(on_device(*counts), output_size=size)
            mt.synchronize()
    mt.synchronize()


def test_the_first_offset_is_zero():
    table, rows = torch.rand(5, 8, device=DEVICE), on_device(1, 4, 2, 0)
    for mode in ("sum", "mean", "max"):
        for offsets, text in (
            ([1, 2], r"offsets\[0\] has to be 0"),
            ([0, 5], "greater than input's length|offsets must not decrease or pass input's length"),
        ):
            with pytest.raises(RuntimeError, match=text):
                F.embedding_bag(rows, table, on_device(*offsets), mode=mode)
                mt.synchronize()
            with pytest.raises(RuntimeError, match=text):
                F.embedding_bag(rows, table, on_device(*offsets), mode=mode, include_last_offset=True)
                mt.synchronize()
        with pytest.raises(RuntimeError, match="offsets must not decrease"):
            F.embedding_bag(rows, table, on_device(0, 3, 2), mode=mode, include_last_offset=True)
            mt.synchronize()
    mt.synchronize()


def test_what_is_asserted():
    torch._assert_async(on_device(1.0))
    torch._assert_async(on_device(True), "not this")
    for zero in (on_device(0.0), on_device(-0.0), on_device(0), on_device(False), on_device(0j), on_device(0.0)[None]):
        with pytest.raises(RuntimeError, match=r"^Expected Tensor with single nonzero value, but got zero"):
            torch._assert_async(zero)
            mt.synchronize()
        for text in ("a", "b", "a"):
            with pytest.raises(RuntimeError, match=rf"(?m)^{text}( \(found|$)"):
                torch._assert_async(zero, "".join([text]))
                mt.synchronize()
    check_error(lambda x: torch._assert_async(x), torch.ones(2))
    check_error(lambda x: torch._assert_async(x), torch.ones(0))
    mt.synchronize()


def test_classes_outside():
    for classes in ([0, 3], [-1, 0], [7, 1]):
        same_error(lambda c: F.one_hot(c, 3), torch.tensor(classes))
    same_error(lambda c: F.one_hot(c), torch.tensor([-1, 0]))
