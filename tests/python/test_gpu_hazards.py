"""What goes wrong on a GPU: memory that runs out midway, that others hold, or that another stream still uses; interrupts."""

import contextlib
import functools
import gc
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F

from tests.python.twin import ASYNCHRONOUS, DEVICE

pytestmark = pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")

mt = torch.minitorch
MiB, GiB = 1 << 20, 1 << 30
ROOT = pathlib.Path(__file__).parents[2]


overlapping = pytest.mark.skipif(
    os.environ.get("MINITORCH_LAUNCH_BLOCKING", "0") == "1", reason="with MINITORCH_LAUNCH_BLOCKING=1 nothing overlaps"
)


def environment(**more):
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "MINITORCH_BACKEND": "cuda", **more}


def run(code, **more):
    command = [sys.executable, "-c", "import torch, minitorch_backend\nmt = torch.minitorch\n" + code]
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def limit():
    """limit(bytes): how much more the process may take."""
    total = mt.mem_get_info()[1]

    def set_limit(more):
        gc.collect()
        mt.empty_cache()
        mt.set_per_process_memory_fraction((mt.memory_reserved() + more) / total)

    yield set_limit
    mt.set_per_process_memory_fraction(1.0)


def busy(milliseconds):
    """Keeps the current stream at work for at least about so long, also where other processes use the GPU."""
    x = torch.ones(4096, 4096, device=DEVICE)
    x @ x
    durations = []
    for _ in range(4):
        start, end = mt.Event(enable_timing=True), mt.Event(enable_timing=True)
        start.record()
        x @ x
        end.record()
        end.synchronize()
        durations.append(start.elapsed_time(end))  # with what others did meanwhile: the least of them counts
    for _ in range(int(milliseconds / max(min(durations), 0.01)) + 1):
        x @ x


@overlapping
def test_memory_freed_while_another_stream_uses_it():
    mt.empty_cache()
    side = mt.Stream()
    for milliseconds in (100, 1000):  # once more where this process was held up for so long that there was no overlap
        x = torch.full((4 * MiB,), 3.0, device=DEVICE)
        x[:8] * 2  # a kernel's first launch waits for the device
        mt.synchronize()
        where = x.data_ptr()
        with mt.stream(side):
            busy(milliseconds)
            y = x * 2  # far behind on the side stream
        x.record_stream(side)
        del x
        z = torch.full((4 * MiB,), 7.0, device=DEVICE)  # must not lie where y's kernel still has to read
        overlapped = not side.query()
        side.synchronize()
        assert (y == 6).all().item() and (z == 7).all().item()
        if overlapped:
            break
    assert overlapped and z.data_ptr() != where
    del y, z
    # Once the stream is past it, the memory comes back.
    found = [torch.empty(4 * MiB, device=DEVICE) for _ in range(4)]
    assert where in [t.data_ptr() for t in found]


@overlapping
def test_memory_of_one_stream_is_not_given_to_another():
    side = mt.Stream()
    with mt.stream(side):
        x = torch.ones(8 * MiB, device=DEVICE)
        torch.zeros(8, device=DEVICE).mul_(2)
        where = x.data_ptr()
        busy(50)
        x.mul_(2)
        del x
    y = torch.zeros(8 * MiB, device=DEVICE)
    assert y.data_ptr() != where
    side.synchronize()
    assert (y == 0).all().item()


# pin_memory() asks our allocator; pin_memory=True asks torch.cuda's where torch has CUDA, which is told of our streams.
pinned = pytest.mark.parametrize(
    "pinned",
    [
        lambda value: torch.full((16 * MiB,), value, dtype=torch.uint8).pin_memory(),
        lambda value: torch.full((16 * MiB,), value, dtype=torch.uint8, pin_memory=True),
    ],
    ids=["pin_memory()", "pin_memory=True"],
)


@overlapping
@pinned
def test_a_tensor_waits_for_its_copy_from_pinned_memory(pinned):
    host = pinned(1)
    side = mt.Stream()
    with mt.stream(side):
        busy(100)
        x = host.to(DEVICE, non_blocking=True)
        done = side.record_event()
    overlapped = not done.query()
    del host
    other = pinned(9)  # must not be the memory still being read
    side.synchronize()
    assert (x == 1).all().item() and (other == 9).all()
    assert overlapped


def test_out_of_memory_in_the_middle_of_backward(limit):
    layers = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).to(DEVICE)
    x = torch.randn(8192, 512, device=DEVICE)
    layers(x[:16]).sum().backward()
    expected = [p.grad.clone() for p in layers.parameters()]
    layers.zero_grad(set_to_none=True)
    mt.synchronize()
    gc.collect()
    before = mt.memory_allocated()
    y = x.clone().requires_grad_()
    loss = F.cross_entropy(layers(y), torch.zeros(8192, dtype=torch.int64, device=DEVICE))
    limit(10 * MiB)  # a gradient of 8192 x 512 floats takes 16 MiB
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        loss.backward()
    del loss, y
    layers.zero_grad(set_to_none=True)
    gc.collect()
    assert mt.memory_allocated() == before
    limit(GiB)
    layers(x[:16]).sum().backward()
    for p, e in zip(layers.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, e)


@pytest.mark.parametrize(
    "call",
    [lambda x: x.sort(), lambda x: torch.unique(x), lambda x: x.kthvalue(5)],
    ids=["sort", "unique", "kthvalue"],
)
def test_out_of_memory_within_a_kernel(limit, call):
    """Scratch memory that a kernel asks for runs out with the same exception, and nothing stays held."""
    x = torch.arange(2 * MiB, device=DEVICE).float()
    call(x[:1000])
    mt.synchronize()
    gc.collect()
    before = mt.memory_allocated()
    limit(28 * MiB)
    with pytest.raises(torch.OutOfMemoryError):
        call(x)
    gc.collect()
    assert mt.memory_allocated() == before
    limit(4 * GiB)
    call(x)
    mt.synchronize()


HOG = """
import sys
held = []
size = mt.mem_get_info()[0]
while size > 64 << 20:
    size = min(size, mt.mem_get_info()[0] - (int(sys.argv[1]) << 20))
    if size <= 0:
        break
    try:
        held.append(torch.empty(size, dtype=torch.uint8, device="minitorch"))
    except torch.OutOfMemoryError:
        size //= 2
print("full", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def full_gpu(mebibytes_left):
    """Inside, another process holds the GPU's memory."""
    code = "import torch, minitorch_backend\nmt = torch.minitorch\n" + HOG
    hog = subprocess.Popen(
        [sys.executable, "-c", code, str(mebibytes_left)],
        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if hog.stdout.readline() != "full\n":
            pytest.skip("the other process could not fill the GPU")
        yield
    finally:
        hog.communicate("\n", timeout=60)


def test_a_gpu_full_of_somebody_elses_memory():
    torch.ones(1, device=DEVICE)
    mt.empty_cache()
    with full_gpu(700):
        if mt.mem_get_info()[0] >= 4 * GiB:
            pytest.skip("a third process has given memory back")
        with pytest.raises(torch.OutOfMemoryError) as error:
            torch.empty(4 * GiB, dtype=torch.uint8, device=DEVICE)
        text = str(error.value)
        assert "Tried to allocate 4.00 GiB" in text and "is free" in text
        x = torch.arange(1000.0).to(DEVICE)  # what fits, goes on
        assert x.sum().item() == 499500
    assert torch.ones(4 * GiB, dtype=torch.uint8, device=DEVICE)[-1].item() == 1
    mt.empty_cache()


def test_starting_on_a_full_gpu():
    """A process that finds no room says so at its first tensor, by the exception that is for it."""
    mt.empty_cache()
    with full_gpu(16):
        out = run("""
try:
    x = torch.ones(64 << 20, device="minitorch")
    x.sum().item()
    print("room")
except torch.OutOfMemoryError as error:
    print("OutOfMemoryError", "out of memory" in str(error))
""")
    assert out in ("OutOfMemoryError True\n", "room\n"), out


WORKER = """
import torch, minitorch_backend
x = torch.randn(8192, 8192, device="minitorch").requires_grad_()
try:
    print("begun", flush=True)
    while True:
        y = x
        for _ in range(4):
            y = (y @ x) * 1e-4
        y.sum().backward()
        torch.minitorch.synchronize()
except KeyboardInterrupt:
    pass
z = torch.arange(1000.0).to("minitorch").requires_grad_()
z.square().sum().backward()
assert torch.equal(z.grad.cpu(), torch.arange(1000.0) * 2)
print("well", flush=True)
"""


@pytest.mark.parametrize("after", [0.2, 1.0])
def test_an_interrupt_during_long_work(after):
    # What runs in the background of a shell ignores interrupts, and so would all that it starts.
    hear = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    worker = subprocess.Popen([sys.executable, "-c", WORKER], env=environment(), text=True, preexec_fn=hear, **pipes)
    try:
        assert worker.stdout.readline() == "begun\n"
        time.sleep(after)
        worker.send_signal(signal.SIGINT)
        out, err = worker.communicate(timeout=60)
    finally:
        worker.kill()
    assert worker.returncode == 0 and out == "well\n", err[-2000:]


def test_a_process_that_ends_with_work_and_tensors_left():
    """Tensors that static destructors free, after the driver has gone, end no process badly."""
    out = run("""
import builtins
side = mt.Stream()
x = torch.ones(1 << 20, device="minitorch")
with mt.stream(side):
    for _ in range(200):
        x = x * 1.0001
x.record_stream(mt.default_stream())
builtins.kept = [x, torch.ones(1000, pin_memory=True), mt.Event(), side]
print("end")
""")
    assert out == "end\n"


def test_nothing_of_torch_cuda_is_needed():
    """As with a torch that is built for the CPU only: training runs without asking torch.cuda for anything."""
    out = run("""
def absent(*_, **__):
    raise AssertionError("torch.cuda was asked")
torch.cuda.is_available = lambda: False
torch.cuda.device_count = lambda: 0
torch.cuda._lazy_init = torch.cuda.current_device = torch.cuda.current_stream = absent
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.LazyLinear(3))
model = model.to("minitorch")
x = torch.randn(8, 1, 6, 6).to("minitorch")
model(x)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(30):
    optimizer.zero_grad()
    with torch.autocast("minitorch", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), torch.arange(8, device="minitorch") % 3)
    loss.backward()
    optimizer.step()
print(loss.item() < 0.5, torch.accelerator.current_accelerator().type)
""")
    assert out == "True minitorch\n"


def test_beside_torch_cuda():
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    out = run("""
a, b = torch.randn(512, 512), torch.randn(512, 512)
with torch.cuda.stream(torch.cuda.Stream()), mt.stream(mt.Stream()):
    for _ in range(20):
        theirs = a.cuda() @ b.cuda()
        ours = a.to("minitorch") @ b.to("minitorch")
    torch.testing.assert_close(theirs.cpu(), ours.cpu(), rtol=1e-3, atol=1e-3)
assert torch.cuda.current_device() == 0 and mt.current_device() == 0
mt.empty_cache()
torch.cuda.empty_cache()
torch.testing.assert_close(ours.cpu(), a @ b, rtol=1e-3, atol=1e-3)
print("well")
""")
    assert out == "well\n"
