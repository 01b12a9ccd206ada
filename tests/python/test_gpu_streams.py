"""Work that overlaps on a GPU: streams that wait for each other, copies under way, memory checks beside side streams,
segments that grow, and what is raised where calls wait."""

import pytest
import torch

from tests.python.test_gpu_hazards import MiB, busy, limit, mt, overlapping, pinned, run  # noqa: F401
from tests.python.twin import ASYNCHRONOUS, DEVICE

pytestmark = pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")


@overlapping
@pytest.mark.parametrize("how", ["wait_stream", "wait_event", "event.wait"])
def test_a_stream_waits_for_another(how):
    side = mt.Stream()
    x = torch.zeros(4 * MiB, device=DEVICE)
    (x + 1).sum()  # a kernel's first launch waits for the device
    mt.synchronize()
    with mt.stream(side):
        busy(200)
        x.add_(3)
        event = side.record_event()
    assert not event.query()
    if how == "wait_stream":
        mt.current_stream().wait_stream(side)
    elif how == "wait_event":
        mt.current_stream().wait_event(event)
    else:
        event.wait()
    y = x + 1
    assert not event.query()  # it is the device that waits
    assert (y == 4).all().item()


@overlapping
@pinned
def test_a_copy_to_pinned_memory_returns_before_it_is_done(pinned):
    x = torch.full((16 * MiB,), 5, dtype=torch.uint8, device=DEVICE)
    host = pinned(0)
    assert host.is_pinned()
    mt.synchronize()
    busy(200)
    host.copy_(x, non_blocking=True)
    done = mt.current_stream().record_event()
    assert not done.query()
    where = host.data_ptr()
    del host
    other = pinned(9)  # the copy is still to be written there
    assert other.data_ptr() != where
    done.synchronize()
    assert (other == 9).all()
    again = pinned(0)
    again.copy_(x, non_blocking=True)
    mt.current_stream().synchronize()
    assert (again == 5).all()


def test_memory_that_torch_cuda_pinned_is_pinned_from_the_start():
    assert run("print(torch.empty(1 << 20, pin_memory=True).is_pinned())") == "True\n"


def test_pinned_memory_by_way_of_numpy():
    """The tensor's storage is NumPy's then: nothing can tell the allocator when the copy is done, so the call waits."""
    pinned = torch.arange(100_000.0, pin_memory=True)
    alias = torch.from_numpy(pinned.numpy())
    for _ in range(20):
        x = alias.to(DEVICE, non_blocking=True)
        assert torch.equal(x.cpu(), pinned)
        alias.copy_(x + 1, non_blocking=True)
        assert alias[-1].item() == pinned[-1].item() == x[-1].item() + 1
    del alias, pinned
    kept = [torch.ones(100_000, pin_memory=True).to(DEVICE, non_blocking=True) for _ in range(5)]
    assert all(k.sum().item() == 100_000 for k in kept)


def test_a_stream_of_torch_cuda():
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    out = run("""
theirs = torch.cuda.Stream()
ours = mt.ExternalStream(theirs.cuda_stream)
assert ours.native_handle == theirs.cuda_stream
with torch.cuda.stream(theirs), mt.stream(ours):
    a = torch.full((1000,), 2.0, device="cuda") * 3
    b = torch.full((1000,), 2.0, device="minitorch") * 4
event = ours.record_event()
event.synchronize()
print(theirs.query(), a.sum().item(), b.sum().item())
""")
    assert out == "True 6000.0 8000.0\n"


def test_memory_checks_leave_other_streams_work_alone():
    """What is freed is checked and filled after the work of its own stream, not before."""
    out = run(
        """
side = mt.Stream()
big = torch.ones(4096, 4096, device="minitorch")
big @ big
with mt.stream(side):
    for trial in range(5):
        x = torch.full((1 << 22,), 3.0, device="minitorch")
        for _ in range(10):
            big @ big
        y = x * 2
        del x
        side.synchronize()
        assert (y == 6).all().item()
mt.synchronize()
print("well")
""",
        MINITORCH_POISON="1",
    )
    assert out == "well\n"


def test_memory_checks_do_not_swallow_a_bad_index():
    out = run(
        """
x = torch.arange(5.0, device="minitorch")
y = x[torch.tensor([7], device="minitorch")]
del y  # its memory is checked
try:
    mt.synchronize()
except IndexError as error:
    print("index 7 is out of bounds" in str(error))
mt.synchronize()
print(x.sum().item())
""",
        MINITORCH_POISON="1",
        MINITORCH_LAUNCH_BLOCKING="0",
    )
    assert out == "True\n10.0\n"


def test_calls_that_wait_raise_what_their_kernels_met():
    out = run(
        """
x = torch.arange(5.0, device="minitorch")
i = torch.tensor([7], device="minitorch")
try:
    x[i]
    print("no error")
except IndexError as error:
    print(str(error).split(" (")[0])
try:
    x.index_add_(0, i, x[:1].clone())
    print("no error")
except IndexError as error:
    print("index 7" in str(error))
print((x + 1).sum().item())
""",
        MINITORCH_LAUNCH_BLOCKING="1",
    )
    assert out == "index: index 7 is out of bounds for dimension with size 5\nTrue\n15.0\n"


def test_segments_that_grow():
    out = run(
        """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).to("minitorch")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
first = last = None
for step in range(60):
    n = 64 + step * 97 % 4000
    x = torch.randn(n, 64, generator=torch.Generator().manual_seed(step)).to("minitorch")
    loss = (model(x) - x[:, :8]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first, last = first or loss.item(), loss.item()
segments = mt.memory_snapshot()
assert last < first / 2, (first, last)
assert all(s["is_expandable"] for s in segments), segments
assert len({(s["segment_type"], s["stream"]) for s in segments}) == len(segments)  # one a pool
with mt.stream(mt.Stream()):
    side = torch.ones(1 << 20, device="minitorch")
mt.synchronize()
assert side.sum().item() == 1 << 20
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="minitorch")
except torch.OutOfMemoryError:
    pass
reserved = mt.memory_reserved()
del x, loss, side, optimizer, model
mt.synchronize()
mt.empty_cache()
assert mt.memory_reserved() < reserved
print(torch.arange(10.0).to("minitorch").sum().item())
""",
        MINITORCH_EXPANDABLE_SEGMENTS="1",
    )
    assert out == "45.0\n"


def test_segments_that_grow_give_back_what_is_free_between_tensors():
    out = run(
        """
MiB = 1 << 20
kept = [torch.full((32 * MiB,), i, dtype=torch.uint8, device="minitorch") for i in range(16)]
whole = mt.memory_reserved()
for turn in range(3):
    del kept[1::2]
    mt.empty_cache()
    less = mt.memory_reserved()
    assert less <= whole - len(kept) * 32 * MiB, (whole, less)
    big = torch.full((300 * MiB,), 99, dtype=torch.uint8, device="minitorch")
    assert [(x.min().item(), x.max().item()) for x in kept] == [(x[5].item(),) * 2 for x in kept]
    assert len({x[0].item() for x in kept}) == len(kept)
    assert big.min().item() == big.max().item() == 99
    assert all(s["is_expandable"] for s in mt.memory_snapshot())
    del big
    mt.empty_cache()
    whole = mt.memory_reserved()
print(sorted(x[-1].item() for x in kept))
""",
        MINITORCH_EXPANDABLE_SEGMENTS="1",
    )
    assert out == "[0, 8]\n"


def test_cached_memory_goes_back_under_pressure(limit):  # noqa: F811
    limit(256 * MiB)
    freed = mt.memory_stats()["num_device_free"]
    ooms = mt.memory_stats()["num_ooms"]
    parts = [torch.empty(60 * MiB, dtype=torch.uint8, device=DEVICE) for _ in range(3)]
    del parts
    whole = torch.full((200 * MiB,), 7, dtype=torch.uint8, device=DEVICE)  # fits into none of the three
    assert (whole[::MiB] == 7).all().item()
    stats = mt.memory_stats()
    assert stats["num_device_free"] > freed and stats["num_ooms"] == ooms


def test_what_products_of_few_tiles_hold():
    """Where k is split over blocks, those of a cluster add their parts without memory."""
    if mt.get_device_properties(0).major < 9:
        pytest.skip("needs clusters of blocks: compute capability 9.0")
    x, w = torch.randn(1024, 512, device=DEVICE), torch.randn(128, 512, device=DEVICE)
    x @ w.t()
    mt.synchronize()
    before = mt.memory_allocated()
    mt.reset_peak_memory_stats()
    y = x @ w.t()
    assert mt.max_memory_allocated() - before <= y.nbytes + 2 * MiB
    torch.testing.assert_close(y.cpu(), x.cpu() @ w.cpu().t(), rtol=1e-4, atol=1e-3)
