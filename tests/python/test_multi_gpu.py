"""Several GPUs: operators run where their tensors are, copies go between them, each has its own memory and numbers."""

import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F

import minitorch_backend
from tests.python.layouts import arrange
from tests.python.test_gpu_hazards import ROOT, environment, run

mt = torch.minitorch
pytestmark = pytest.mark.skipif(
    minitorch_backend._C.backend_name() != "cuda" or mt.device_count() < 2, reason="needs two GPUs"
)

MiB = 1 << 20
FIRST, SECOND = torch.device("minitorch:0"), torch.device("minitorch:1")


@pytest.fixture(autouse=True)
def the_current_device_stays():
    mt.set_device(0)
    yield
    assert mt.current_device() == 0


OPERATORS = {  # called with a matrix of 33 x 65 while the other device is current
    "add": lambda x: x + x,
    "scalar": lambda x: 2 - x,
    "floor_divide": lambda x: x // 0.3,
    "remainder": lambda x: 1.5 % x,
    "in place": lambda x: x.clone().mul_(3).add_(x).clamp_(-1, 1),
    "out": lambda x: torch.add(x, 1, out=torch.empty_like(x)),
    "cast": lambda x: x.half().float(),
    "transposed": lambda x: x.t().contiguous() + 1,
    "where": lambda x: torch.where(x > 0, x, 0.5),
    "masked_fill": lambda x: x.masked_fill(x > 0, 2),
    "sum": lambda x: x.sum(0),
    "argmax": lambda x: x.argmax(1),
    "var": lambda x: x.var(1),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1),
    "topk": lambda x: x.topk(3),
    "unique": lambda x: torch.unique((x * 3).round()),
    "nonzero": lambda x: (x > 0).nonzero(),
    "index": lambda x: x[torch.tensor([3, 1], device=x.device)],
    "index_add": lambda x: x.index_add(0, torch.tensor([3, 1], device=x.device), x[:2]),
    "gather": lambda x: x.gather(1, (x > 0).long()),
    "scatter": lambda x: x.scatter(1, (x > 0).long(), 9.0),
    "embedding": lambda x: F.embedding(torch.tensor([3, 1], device=x.device), x),
    "cat": lambda x: torch.cat([x, x.t().contiguous().t()], 1),
    "flip": lambda x: x.flip(0),
    "matmul": lambda x: x @ x.t(),
    "half matmul": lambda x: (x.bfloat16() @ x.t().bfloat16()).float(),
    "addmm": lambda x: torch.addmm(x @ x.t(), x, x.t()),
    "linear": lambda x: F.linear(x, x, x[:, 0].contiguous()),
    "softmax": lambda x: x.softmax(1),
    "layer_norm": lambda x: F.layer_norm(x, (65,)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(33, device=x.device)),
    "gelu": lambda x: F.gelu(x),
    "conv": lambda x: F.conv2d(x[None, None], x[None, None, :3, :3]),
    "pool": lambda x: F.max_pool2d(x[None], 2),
    "upsample": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "attention": lambda x: F.scaled_dot_product_attention(*[x[None, :, :64].contiguous()] * 3),
    "fft": lambda x: torch.fft.rfft(x),
    "solve": lambda x: torch.linalg.solve(x[:, :33] + 40 * torch.eye(33, device=x.device), x),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.t()),
    "foreach": lambda x: torch._foreach_add([x, x.t().contiguous()], 1),
    "factories": lambda x: torch.arange(10, device=x.device) + torch.linspace(0, 1, 10, device=x.device),
    "like": lambda x: torch.full_like(x, 3) + torch.zeros_like(x),
    "new": lambda x: x.new_ones(3, 4).cumsum(0),
    "bucketize": lambda x: torch.bucketize(x, torch.linspace(-1, 1, 9, device=x.device)),
    "histc": lambda x: torch.histc(x, 10, -1, 1),
    "cdist": lambda x: torch.cdist(x, x.flip(0) + 1),
    "norm": lambda x: torch.linalg.vector_norm(x),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_runs_where_its_tensors_are(name):
    torch.manual_seed(0)
    x = torch.randn(33, 65)
    expected, found = OPERATORS[name](x), OPERATORS[name](x.to(SECOND))
    pairs = zip(
        torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), strict=True
    )  # fmt: skip
    for f, e in pairs:
        assert f.device == SECOND
        torch.testing.assert_close(
            f.cpu(), e, rtol=2e-2 if "half" in name else 1e-4, atol=0.1 if "half" in name else 1e-4
        )


@pytest.mark.parametrize(
    "name", ["add", "matmul", "softmax", "layer_norm", "cross_entropy", "conv", "gelu", "attention"]
)
def test_gradients_are_where_their_tensors_are(name):
    torch.manual_seed(0)
    x = torch.randn(33, 65)
    ours, native = x.to(SECOND).requires_grad_(), x.clone().requires_grad_()
    OPERATORS[name](ours).square().sum().backward()
    OPERATORS[name](native).square().sum().backward()
    assert ours.grad.device == SECOND
    torch.testing.assert_close(ours.grad.cpu(), native.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.timeout(300)
def test_operators_of_all_families_run_where_their_tensors_are():
    """A choice of conformance rows with all tensors on the second device: memory of the one is not within reach of kernels
    that are started on the other."""
    command = [sys.executable, "-m", "tests.conformance.run", "--claimed", "--dtype", "float32,int64,bfloat16"]
    command += ["--samples", "2", "--variant", "forward,out,grad", "--spread", "400", "--jobs", "10"]
    env = environment(MINITORCH_TEST_DEVICE="minitorch:1", MINITORCH_LAUNCH_BLOCKING="1", MINITORCH_FALLBACK="error")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "expanded"])
@pytest.mark.parametrize("current", [0, 1])
def test_copies_between_devices(dtype, layout, current):
    x = arrange(torch.randn(37, 53) if dtype != torch.bool else torch.rand(37, 53) > 0.5, layout).to(dtype)
    with torch.device(f"minitorch:{current}"):
        there = x.to(FIRST)
        moved = there.to(SECOND)
        assert moved.device == SECOND and torch.equal(moved.cpu(), x)
        assert torch.equal(moved.to(FIRST).cpu(), x) and torch.equal(there.to(SECOND, non_blocking=True).cpu(), x)
        target = torch.zeros(53, 37, dtype=dtype, device=SECOND).t()
        target.copy_(there)
        assert torch.equal(target.cpu(), x)
        if dtype == torch.float32:
            wide = torch.zeros(37, 53, dtype=torch.float64, device=SECOND).copy_(there)
            assert torch.equal(wide.cpu(), x.double())


@pytest.mark.parametrize("segments", "01")
@pytest.mark.parametrize("access", "01")
def test_copies_without_peer_access(access, segments):
    """By way of the host, also between segments that grow, which are mapped for the devices that reach each other."""
    out = run(
        """
print(mt.can_device_access_peer(0, 1))
for n in (1, 1000, 1 << 24):
    x = torch.arange(float(n), device="minitorch:0")
    y = x.to("minitorch:1", non_blocking=True) + 1
    x.zero_()
    assert torch.equal(y.cpu(), torch.arange(float(n)) + 1)
    assert torch.equal(y.to("minitorch:0").cpu(), torch.arange(float(n)) + 1)
print("well")
""",
        MINITORCH_PEER_ACCESS=access,
        MINITORCH_EXPANDABLE_SEGMENTS=segments,
    )
    reaches, well = out.split()
    assert well == "well" and (access == "1" or reaches == "False")


def test_a_copy_waits_for_both_devices():
    """The copy sees what is still being computed, and what follows sees the copy."""
    for _ in range(10):
        x = torch.ones(2048, 2048, device=FIRST)
        for _ in range(20):
            x = (x @ x) / 2048
        y = x.to(SECOND, non_blocking=True) + 1
        x.zero_()
        assert (y == 2).all().item()


def test_tensors_of_two_devices_do_not_mix():
    x, y = torch.ones(3, device=FIRST), torch.ones(3, device=SECOND)
    for call in (
        lambda: x + y,
        lambda: torch.cat([x, y]),
        lambda: x @ y,
        lambda: x[y.long()],
        lambda: F.mse_loss(x, y),
    ):
        with pytest.raises(RuntimeError, match=r"same device|minitorch:0 and minitorch:1|minitorch:1 and minitorch:0"):
            call()
    assert torch.equal((x + torch.tensor(2.0)).cpu(), torch.full((3,), 3.0))


def test_a_model_on_two_devices():
    torch.manual_seed(0)
    lower, upper = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)
    x, target = torch.randn(5, 8), torch.tensor([0, 2, 1, 1, 0])
    F.cross_entropy(upper(lower(x).relu()), target).backward()
    expected = [p.grad for m in (lower, upper) for p in m.parameters()]
    for m in (lower, upper):
        m.zero_grad()
    lower.to(FIRST), upper.to(SECOND)
    F.cross_entropy(upper(lower(x.to(FIRST)).relu().to(SECOND)), target.to(SECOND)).backward()
    parameters = [p for m in (lower, upper) for p in m.parameters()]
    for p, e in zip(parameters, expected, strict=True):
        assert p.grad.device == p.device
        torch.testing.assert_close(p.grad.cpu(), e, rtol=1e-4, atol=1e-5)
    before = [p.detach().cpu().clone() for p in parameters]
    for options in ({"foreach": True}, {"fused": True}):
        torch.optim.AdamW(parameters, lr=0.1, **options).step()
    assert all(not torch.equal(p.detach().cpu(), b) for p, b in zip(parameters, before, strict=True))
    assert torch.nn.utils.clip_grad_norm_(parameters, 1.0).device.type == "minitorch"


def test_random_numbers_of_each_device():
    torch.manual_seed(3)
    a, b = torch.rand(100, device=FIRST), torch.rand(100, device=SECOND)
    assert torch.equal(a.cpu(), b.cpu())  # one seed for all, as torch.cuda.manual_seed_all
    assert not torch.equal(torch.rand(100, device=FIRST).cpu(), a.cpu())
    torch.manual_seed(3)
    dropped = [F.dropout(torch.ones(1000, device=d)).cpu() for d in (FIRST, SECOND)]
    assert torch.equal(*dropped)


def test_memory_of_each_device():
    mt.empty_cache()
    before = [mt.memory_allocated(d) for d in (0, 1)]
    x = torch.empty(32 * MiB, dtype=torch.uint8, device=SECOND)
    assert mt.memory_allocated(0) == before[0] and mt.memory_allocated(1) == before[1] + 32 * MiB
    y = x + x
    assert mt.memory_allocated(0) == before[0] and mt.memory_allocated(1) == before[1] + 64 * MiB
    del x, y
    assert mt.memory_allocated(1) == before[1]
    mt.set_per_process_memory_fraction(64 * MiB / mt.mem_get_info(1)[1], 1)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="minitorch:1"):
            torch.empty(256 * MiB, dtype=torch.uint8, device=SECOND)
        torch.empty(256 * MiB, dtype=torch.uint8, device=FIRST)
    finally:
        mt.set_per_process_memory_fraction(1.0, 1)


def test_current_device_and_streams():
    with mt.device(1):
        assert mt.current_device() == 1 and torch.ones(2, device="minitorch").device == SECOND
        stream = mt.Stream()
        assert stream.device == SECOND
    with mt.stream(stream):
        x = torch.ones(1000, device=SECOND) + 1
    stream.synchronize()
    assert x.sum().item() == 2000
    with torch.device(SECOND):
        event = mt.Event()
        event.record(stream)
    mt.default_stream(0).wait_event(event)
    mt.synchronize(1)
    assert event.query()


def test_bad_indices_of_the_second_device():
    x = torch.arange(5.0, device=SECOND)
    with pytest.raises(IndexError, match="index 7"):
        x[torch.tensor([7], device=SECOND)]
        mt.synchronize(1)
    assert x.sum().item() == 10


def test_threads_work_on_their_own_devices():
    failures = []

    def work(index):
        try:
            mt.set_device(index)
            for step in range(50):
                x = torch.full((1000,), float(step), device="minitorch")
                assert x.device.index == index and (x * 2).sum().item() == 2000 * step
        except Exception as error:  # reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k % 2,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


def test_data_parallel_by_hand():
    """Replicas on each device, gradients summed on the first: the same as one model on the whole batch."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(6, 2), torch.randn(8, 6)
    model(x).square().sum().backward()
    expected = [p.grad for p in model.parameters()]
    weights = [p.detach().to(FIRST).requires_grad_() for p in model.parameters()]
    total = 0
    for device, part in zip((FIRST, SECOND), x.chunk(2), strict=True):
        w, b = (p.to(device) for p in weights)
        total = total + F.linear(part.to(device), w, b).square().sum().to(FIRST)
    total.backward()
    for w, e in zip(weights, expected, strict=True):
        torch.testing.assert_close(w.grad.cpu(), e, rtol=1e-4, atol=1e-5)


def test_a_storage_grows_on_the_device_that_is_not_current():
    """What it holds is copied after the work of its own device."""
    for _ in range(5):
        x = torch.ones(2048, 2048, device=SECOND)
        for _ in range(20):
            x = (x @ x) / 2048
        x.add_(2)
        x.untyped_storage().resize_(2 * x.nbytes)
        assert (x == 3).all().item() and x.device == SECOND
