"""Calls that once crashed the process, wrote where they should not, or computed what native refuses."""

import os
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F

from minitorch_backend import coverage
from tests.python.twin import check, check_error

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


@pytest.mark.parametrize("p", [float("nan"), -1.0, 2.0])
def test_dropout_with_an_impossible_probability(p):
    check_error(lambda x: torch.native_dropout(x, p, True), torch.ones(3))
    check_error(lambda x: torch.dropout(x, p, True), torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.complex64])
def test_dropout_of_what_is_not_a_float(dtype):
    x = torch.ones(3).to(dtype)
    check_error(lambda x: F.dropout(x, 0.5), x)
    check_error(lambda x: F.dropout(x, 0.5, inplace=True), x)
    if dtype == torch.complex64:
        check(lambda x: torch.native_dropout(x, 0.0, True), x)
    else:
        check_error(lambda x: torch.native_dropout(x, 0.5, True), x)
    check(lambda x: F.dropout(x, 0.0), x)
    check(lambda x: F.dropout(x, 1.0), x)


MANY_DIMENSIONS = {
    "clone": lambda x: x.clone(),
    "add": lambda x: x + x,
    "sum": lambda x: x.sum(),
    "softmax": lambda x: x.softmax(0),
    "flip": lambda x: x.flip(0),
    "cat": lambda x: torch.cat([x, x]),
    "copy": lambda x: torch.empty_like(x).copy_(x),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(),
    "gather": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.long)),
    "nonzero": lambda x: x.nonzero(),
    "index": lambda x: x[torch.zeros(1, dtype=torch.long, device=x.device)],
    "where": lambda x: torch.where(x > 0, x, x),
    "sum of one": lambda x: x.sum(3),
    "amax of one": lambda x: x.amax(3),
    "topk": lambda x: x.topk(1, 0),
    "pad": lambda x: F.pad(x, (1, 1)),
    "unfold": lambda x: x.unfold(0, 1, 1),
    "expand": lambda x: x.expand(2, *x.shape[1:]) * 2,
}


@pytest.mark.parametrize("name", MANY_DIMENSIONS)
@pytest.mark.parametrize("first", [1, 0])
def test_more_than_64_dimensions(name, first):
    x = torch.ones([first] + [1] * 69)
    try:
        ours = MANY_DIMENSIONS[name](x.to(DEVICE))
    except (RuntimeError, IndexError) as error:
        assert "64 dim" in str(error) or _refused_by_native(MANY_DIMENSIONS[name], x), error
        return
    native = MANY_DIMENSIONS[name](x)
    for a, b in zip(torch.utils._pytree.tree_leaves(ours), torch.utils._pytree.tree_leaves(native), strict=True):
        assert torch.equal(a.cpu(), b)


def _refused_by_native(fn, x):
    try:
        fn(x)
    except (RuntimeError, IndexError):
        return True
    return False


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_is_moved_and_refused_by_name(dtype):
    x = torch.tensor([0.5, -2.0, 3.0]).to(dtype)
    for moved in (x.to(DEVICE), x.to(DEVICE).clone(), x.to(DEVICE)[:, None].expand(3, 2).contiguous()[:, 1]):
        assert moved.dtype == dtype and torch.equal(moved.cpu().float(), x.float())
    with pytest.raises(NotImplementedError, match="Float8") as native:
        x + x
    with pytest.raises(NotImplementedError) as ours:
        x.to(DEVICE) + x.to(DEVICE)
    assert str(ours.value) == str(native.value)


def test_policies_that_allow_the_fallback():
    code = """
import torch
sizes = torch.tensor([[2, 3], [1, 2]])
missing = torch.ops.aten._nested_compute_contiguous_strides_offsets
strides, _ = missing(sizes.to("minitorch"))
assert strides.device.type == "minitorch" and torch.equal(strides.cpu(), missing(sizes)[0])
ledger = torch.minitorch.fallbacks()
assert [r.op for r in ledger] == ["aten::_nested_compute_contiguous_strides_offsets"], ledger
assert ledger[0].count == 1 and ledger[0].bytes > 0, ledger
torch.minitorch.fallbacks(clear=True)
missing(sizes.to("minitorch"))
torch.ops.aten._test_functorch_fallback(strides, strides)
assert len(torch.minitorch.fallbacks()) == 2
"""
    for policy in ("warn", "allow"):
        environment = {**os.environ, "MINITORCH_FALLBACK": policy}
        done = subprocess.run(
            [sys.executable, "-c", "import minitorch_backend" + code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("ran on native CPU") == (2 if policy == "warn" else 0)  # once an operator


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.to_sparse_csr(),
        lambda x: x.to_mkldnn(),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    ],
)
def test_layouts_that_do_not_exist_here(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(NotImplementedError, match="minitorch"):
            call(torch.eye(3, device=DEVICE))


def test_cumulative_sums_do_not_become_booleans():
    for call in (torch.cumsum, torch.cumprod):
        check_error(lambda x, out: call(x, 0, out=out), torch.arange(4), torch.zeros(4, dtype=torch.bool))
        check_error(lambda x: call(x, 0, dtype=torch.bool), torch.arange(4))


def test_discarding_an_imaginary_part_is_announced():
    """Native's warning, in both directions between devices; none for bool, which looks at both parts."""
    z = torch.tensor([1 + 2j, 2j])
    torch.set_warn_always(True)
    try:
        for cast in (
            lambda d: z.to(DEVICE).to(d),
            lambda d: z.to(DEVICE, d),
            lambda d: z.to(DEVICE).to("cpu", d),
            lambda d: torch.zeros(2, dtype=d, device=DEVICE).copy_(z),
        ):
            for dtype in (torch.float32, torch.int64, torch.bfloat16):
                with pytest.warns(UserWarning, match="discards the imaginary part"):
                    result = cast(dtype)
                assert result.tolist() == [1, 0]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert cast(torch.bool).tolist() == [True, True]
                cast(torch.complex128)
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (0, 7)])
@pytest.mark.parametrize("number", [True, False])
def test_a_mask_may_index_itself(shape, number):
    def put(x, index, value):
        x[index] = value
        return x

    mask = torch.arange(torch.Size(shape).numel()).reshape(shape) % 2 == 0
    check(lambda m: put(m, m, number), mask)
    check(lambda m, v: put(m, m, v), mask, torch.tensor(number))
    check_error(lambda m: put(m, m, torch.zeros(int(m.sum()), dtype=torch.bool, device=m.device)), torch.ones(3) > 0)
    check(lambda x, m: put(x, (slice(None), m), 2), torch.ones(2, *shape), mask)
    check_error(lambda x, m: put(x, m, 2), torch.ones(5, *shape), mask)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16])
def test_median_of_nothing(dtype):
    for median in (torch.median, torch.nanmedian):
        check(median, torch.empty(0, dtype=dtype))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("letters", ["_", "a-e", "f-m", "n-z"])
def test_every_operator_survives_hostile_arguments(letters, tmp_path):
    """A thinned run; `python -m tests.python.hostile --cases 50` is a long one.

    The limit keeps a GPU from working through tensors that the CPU has no memory for.
    """
    log = tmp_path / "log"
    environment = {**os.environ, "MINITORCH_FALLBACK": "error", "MINITORCH_MEMORY_LIMIT": "8G"}
    command = [sys.executable, "-m", "tests.python.hostile", "--cases", "2", "--log", str(log)]
    command += ["--only", f"^aten::[{letters}]"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    last = log.read_text().splitlines()[-1] if log.exists() else "the start"
    assert done.returncode == 0 and last == "done", f"died in {last} (operator, case): {done.stderr[-500:]}"


aten = torch.ops.aten
OWN_NAMES = {
    "fft of no dimension": lambda x: torch.ops.aten._fft_r2c(x, [], 0, True),
    "fft of a dimension that is not there": lambda x: torch.ops.aten._fft_r2c(x, [7], 0, True),
    "fft of a dimension twice": lambda x: torch.ops.aten._fft_c2c(x + 0j, [0, 0], 0, True),
    "inverse fft of a negative length": lambda x: torch.ops.aten._fft_c2r(x + 0j, [0], 0, -5),
    "item of many": lambda x: torch.ops.aten._local_scalar_dense(x),
    "item of none": lambda x: torch.ops.aten._local_scalar_dense(x[:0]),
    "cummax into others": lambda x: torch.ops.aten._cummax_helper(x, x[:1].clone(), x.long(), 0),
    "masked softmax of two shapes": lambda x: torch.ops.aten._masked_softmax_backward(x, x[:1].clone(), x > 0, 0),
    "log softmax of two shapes": lambda x: aten._log_softmax_backward_data(x[:0], x, 0, torch.float32),
    "cdist of another gradient": lambda x: aten._cdist_backward(x.view(2, 3)[:0], x.view(2, 3), x.view(2, 3), 1.0, x),
    "pdist of a vector": lambda x: aten._pdist_forward(x, 2.0),
    "pdist of few distances": lambda x: aten._pdist_backward(x[:0], x.view(3, 2), 2.0, x[:0]),
    "a factor that is not square": lambda x: aten._cholesky_solve_helper(x.view(2, 3), x.view(3, 2), False),
    "statistics of other channels": lambda x: aten._native_batch_norm_legit(
        x.view(1, 6), None, None, x[:2], x[:2], False, 0.1, 1e-5
    ),
    "gradient of other channels": lambda x: aten.native_batch_norm_backward(
        x.view(1, 6), x.view(1, 6), x[:2], x[:2], x[:2], None, None, False, 1e-5, [True, True, True]
    ),
    "convolution without strides": lambda x: aten.convolution_overrideable(
        x.view(1, 2, 3), x.view(1, 2, 3), None, [], [0], [1], False, [0], 1
    ),
    "convolution in no group": lambda x: aten.convolution_overrideable(
        x.view(1, 2, 3), x.view(1, 2, 3), None, [1], [0], [1], False, [0], 0
    ),
    "convolution of another gradient": lambda x: aten.convolution_backward_overrideable(
        x.view(1, 1, 6), x.view(1, 2, 3), x.view(1, 2, 3), [1], [0], [1], False, [0], 1, [True, True, True]
    ),
    "fractional pooling to nothing": lambda x: aten.fractional_max_pool2d_backward(
        x.view(1, 2, 3), x.view(1, 2, 3), [1, 1], [], torch.zeros(1, 2, 3, dtype=torch.int64, device=x.device)
    ),
    "shuffle of no groups": lambda x: aten.native_channel_shuffle(x.view(1, 2, 3), 0),
    "padding of many dimensions": lambda x: aten.replication_pad1d_backward(
        x[:1].view((1,) * 20), x[:1].view((1,) * 20), [1, -1]
    ),
    "bags of another shape": lambda x: aten._embedding_bag_dense_backward(
        x.view(2, 3), x[:3].long(), x[:2].long(), x[:2].long(), x[:2].long(), 3, False, 0, None
    ),
    "adaptive pooling of another batch": lambda x: aten._adaptive_avg_pool2d_backward(
        x[:1].view(1, 1, 1, 1), x[:1].expand(32768, 1, 2, 2)
    ),
    "adaptive pooling of many dimensions": lambda x: aten._adaptive_avg_pool2d_backward(
        x.view(1, 1, 1, 2, 3), x.view(1, 1, 1, 2, 3)
    ),
    "few folds": lambda x: aten.unfold_backward(x.view(2, 3)[:1], [12, 12], 1, 3, 2),
    "average pooling of another batch": lambda x: aten.avg_pool2d_backward(
        x.view(1, 1, 2, 3), x.view(1, 1, 2, 3).expand(32768, 1, 2, 3), [1, 1], [1, 1], [0, 0], False, True, None
    ),
    "fractional pooling with a negative window": lambda x: aten.fractional_max_pool2d(
        x.view(1, 2, 3), [1, -(2**63)], [1, 1], x[:2].view(1, 1, 2)
    ),
    "grid sampling of another grid": lambda x: aten.grid_sampler_2d_backward(
        x.view(1, 1, 2, 3), x.view(1, 1, 2, 3), x[:2].view(1, 1, 1, 2).expand(1, 2, 32768, 2), 0, 0, False, [True, True]
    ),
    "more segments than results": lambda x: aten._segment_reduce_backward(
        x[:2], x[:2], x, "max", lengths=torch.zeros(1 << 20, dtype=torch.int64, device=x.device)
    ),
    "attention without its logsumexp": lambda x: aten._scaled_dot_product_fused_attention_overrideable_backward(
        *[x.view(1, 1, 2, 3)] * 4, None, [True] * 4, x.view(1, 1, 2, 3), x[:0], None, None, 2, 2, 0.0, False, x, x
    ),
    "attention to fewer keys than values": lambda x: aten._scaled_dot_product_fused_attention_overrideable_backward(
        x.view(1, 1, 2, 3),
        x.view(1, 1, 2, 3),
        x[:3].view(1, 1, 1, 3),
        x.view(1, 1, 2, 3),
        None,
        [True] * 4,
        x.view(1, 1, 2, 3),
        x[:2].view(1, 1, 2),
        None,
        None,
        2,
        2,
        0.0,
        False,
        x,
        x,
    ),
    "pivots of a smaller batch": lambda x: torch.lu_unpack(
        x[:4].view(1, 2, 2).expand(4, 2, 2), torch.ones(1, 2, dtype=torch.int32, device=x.device)
    ),
    "pivots of a larger batch": lambda x: torch.lu_unpack(
        x[:4].view(1, 2, 2), torch.ones(1, 2, dtype=torch.int32, device=x.device).expand(1 << 20, 2)
    ),
    "few pivots": lambda x: torch.lu_unpack(x[:4].view(2, 2), torch.ones(1, dtype=torch.int32, device=x.device)),
    "more elements than there are numbers": lambda x: torch.triu_indices(2**40, 2**40, device=x.device),
}


@pytest.mark.parametrize("name", OWN_NAMES)
def test_helpers_called_by_their_own_names(name):
    with pytest.raises((RuntimeError, IndexError)):
        OWN_NAMES[name](torch.arange(6.0, device=DEVICE))


@pytest.mark.parametrize("pivots", [[0, 1, 2], [1, 2, 4], [1, 2, -3], [-1, 2, 3], [-1, -1, -2], [1, 2, -(2**31)]])
def test_solving_with_pivots_that_no_factorisation_gives(pivots):
    factors, right = torch.eye(3, device=DEVICE), torch.ones(3, 2, device=DEVICE)
    with pytest.raises(RuntimeError, match="Expected pivots as"):
        torch.linalg.ldl_solve(factors, torch.tensor(pivots, dtype=torch.int32, device=DEVICE), right)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_of_rows_without_elements(mode):
    """Native's fast path refuses them, as it does not find its indices."""
    weight, offsets = torch.ones(10, 0, device=DEVICE), torch.tensor([0, 2, 3], device=DEVICE)
    for indices in (torch.tensor([1, 2, 3, 0, 9], device=DEVICE), torch.tensor([0, 0, 0], device=DEVICE)):
        assert aten._embedding_bag(weight, indices, offsets, False, mode)[0].shape == (3, 0)


@pytest.mark.timeout(200)
def test_gradients_survive_spoilt_arguments(tmp_path):
    """A thinned run; `python -m tests.python.hostile_samples --survey` is a long one."""
    environment = {**os.environ, "MINITORCH_FALLBACK": "error", "MINITORCH_POISON": "1"}
    command = [sys.executable, "-m", "tests.python.hostile_samples", "--cases", "3", "--log", str(tmp_path / "log")]
    command += [
        "--overload",
        "backward|_helper|_bag",
        "--only",
        "pool|grid|unfold|ctc|embedding|norm|interpolate|cdist",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert done.returncode == 0 and last == "done", f"died in {last}: {done.stderr[-500:]}"


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64])
def test_pivots_of_any_integers(dtype):
    pivots = torch.arange(1, 4).to(dtype)
    check(torch.linalg.ldl_solve, torch.eye(3), pivots, torch.arange(6.0).reshape(3, 2), strides=False)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_logcumsumexp_of_nothing(shape):
    check(lambda x: aten._logcumsumexp(x, 1), torch.zeros(shape))


@pytest.mark.parametrize("rows, columns, offset", [(2**40, 2, 0), (2**40, 2, 2**62), (3, 2**20, 2**20 - 2)])
def test_indices_of_a_small_triangle(rows, columns, offset):
    ours = torch.triu_indices(rows, columns, offset, device=DEVICE).cpu()
    kept = max(0, columns - offset)
    expected = torch.triu_indices(min(rows, 8), kept, device="cpu") + torch.tensor([[0], [columns - kept]])
    assert torch.equal(ours, expected)


def test_what_is_refused_by_design_exists():
    names = {name.removeprefix("aten::").partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    refused = {name for text in coverage.REFUSED.values() for name in text.split()}
    assert len(refused & names) > 0.8 * len(refused)
