"""Tensors that go to another process or another library: torch.multiprocessing, DataLoader workers, DLPack."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.python.twin import ASYNCHRONOUS

DEVICE = "minitorch"
# Device memory of a GPU is not shared: a copy is sent, and as with native CUDA a child made by fork cannot use it.
CONTEXT = "spawn" if ASYNCHRONOUS else "fork"
shared_memory = pytest.mark.skipif(ASYNCHRONOUS, reason="a GPU sends copies: see test_a_gpu_sends_copies")

# Each program runs in a process of its own: what goes wrong here hangs, and only a process can be given a time limit.
PREAMBLE = """
import sys, torch, torch.multiprocessing as mp
import minitorch_backend

def child(inbox, outbox, view_of):
    received = inbox.get(timeout=60)
    received[view_of].mul_(10)
    outbox.put("written")
    inbox.get(timeout=60)

def returns(inbox, outbox):
    received = inbox.get(timeout=60)
    received["view"].mul_(10)
    outbox.put(received)
    inbox.get(timeout=60)

class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        return (torch.full((3,), float(i)).to("minitorch") ** 2, {"index": torch.tensor(i, device="minitorch")})

class Broken(Squares):
    def __getitem__(self, i):
        return torch.ones(3, device="minitorch") + torch.ones(4, device="minitorch")
"""


def run(program, script=None):
    """Spawned children import their parent's file: then ``script`` is a path for it."""
    code = PREAMBLE + 'if __name__ == "__main__":\n' + "\n".join("    " + line for line in program.splitlines())
    if script is not None:
        script.write_text(code)
    command = [sys.executable, *(["-c", code] if script is None else [str(script)])]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def check(program, script=None):
    done = run(program, script)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@shared_memory
@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_both_processes_see_what_either_writes(strategy):
    check(f"""
mp.set_sharing_strategy("{strategy}")
context = mp.get_context("fork")
base = torch.arange(6.0).to("minitorch")
inbox, outbox = context.Queue(), context.Queue()
process = context.Process(target=child, args=(inbox, outbox, "view"))
process.start()
inbox.put({{"base": base, "view": base[2:4], "empty": base[:0], "half": base.bfloat16().t()}})
assert outbox.get(timeout=60) == "written"
assert base.tolist() == [0, 1, 20, 30, 4, 5], base
inbox.put(None)
process.join(60)
assert process.exitcode == 0
base.add_(1)
assert (base * 2).tolist() == [2, 4, 42, 62, 10, 12]
""")


@pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")
@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_a_gpu_sends_copies(strategy, tmp_path):
    check(
        f"""
mp.set_sharing_strategy("{strategy}")
context = mp.get_context("spawn")
base = torch.arange(6.0).to("minitorch")
inbox, outbox = context.Queue(), context.Queue()
process = context.Process(target=returns, args=(inbox, outbox))
process.start()
inbox.put({{"base": base, "view": base[2:4], "empty": base[:0], "half": base.bfloat16().t()}})
returned = outbox.get(timeout=60)
assert returned["base"].device == base.device and returned["half"].dtype == torch.bfloat16
assert returned["base"].tolist() == [0, 1, 20, 30, 4, 5], returned
assert base.tolist() == [0, 1, 2, 3, 4, 5], base
inbox.put(None)
process.join(60)
assert process.exitcode == 0
""",
        tmp_path / "copies.py",
    )


@pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")
def test_a_forked_worker_says_what_to_do():
    done = run("""
torch.ones(1, device="minitorch")
list(torch.utils.data.DataLoader(Squares(), num_workers=1, multiprocessing_context="fork"))
""")
    assert done.returncode != 0
    assert "Cannot use a GPU in a forked subprocess" in done.stderr and "'spawn' start method" in done.stderr


def test_a_message_keeps_aliases_and_attributes():
    check(f"""
shared = {not ASYNCHRONOUS}
import io, pickle
from multiprocessing.reduction import ForkingPickler
x = torch.arange(6.0).to("minitorch")
parameter = torch.nn.Parameter(x.clone())
message = ForkingPickler.dumps([x, x[2:].view(2, 2).t(), parameter, torch.empty(0, device="minitorch")])
a, b, p, empty = pickle.loads(message)
assert a.device == x.device and b.stride() == (1, 2) and b.storage_offset() == 2
assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
assert (a.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()) == shared
assert isinstance(p, torch.nn.Parameter) and p.requires_grad and torch.equal(p.cpu(), x.cpu())
assert empty.is_minitorch and empty.numel() == 0
x.add_(1)
assert a[0].item() == shared
a.add_(1)
assert b[0, 0].item() == a[2].item()
x.copy_(torch.arange(1.0, 7))
storage = pickle.loads(ForkingPickler.dumps(x.untyped_storage()))
assert storage.device.type == "minitorch" and storage.nbytes() == 24
assert x.untyped_storage().resize_(48).nbytes() == 48 and x.tolist() == [1, 2, 3, 4, 5, 6]
""")


@pytest.mark.parametrize("context", [pytest.param("fork", marks=shared_memory), "spawn"])
def test_workers_of_a_loader_return_device_tensors(context, tmp_path):
    script = tmp_path / "loader.py"
    script.write_text(
        PREAMBLE
        + f"""
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="{context}")
    for epoch in range(2):
        squares, indices = zip(*((x, rest["index"]) for x, rest in loader))
        assert all(t.device.type == "minitorch" for t in (*squares, *indices))
        assert torch.cat(squares)[:, 1].tolist() == [0, 1, 4, 9, 16, 25]
        assert torch.cat(indices).tolist() == [0, 1, 2, 3, 4, 5]
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_error_in_a_worker_reaches_the_parent(tmp_path):
    done = run(
        f"""
loader = torch.utils.data.DataLoader(Broken(), num_workers=1, multiprocessing_context="{CONTEXT}")
list(loader)
""",
        tmp_path / "broken.py",
    )
    assert done.returncode != 0
    assert "The size of tensor a (3) must match the size of tensor b (4)" in done.stderr


def test_tensors_that_do_not_travel():
    program = """
from multiprocessing.reduction import ForkingPickler
x = torch.ones(3, device="{device}", requires_grad=True)
try:
    ForkingPickler.dumps(x * 2)
except RuntimeError as error:
    print(error)
"""
    ours, native = (check(program.format(device=d)) for d in (DEVICE, "cpu"))
    assert ours == native and "non-leaf tensor" in ours


def test_dlpack_shares_memory():
    x = torch.arange(6.0).to(DEVICE)
    for y in (torch.from_dlpack(x), torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x[2:]))):
        assert y.device == x.device and y.dtype == x.dtype
        y.add_(1)
    assert x.tolist() == [1, 2, 4, 5, 6, 7]
    strided = torch.from_dlpack(x.view(2, 3).t())
    assert strided.stride() == (1, 3) and strided.tolist() == [[1, 5], [2, 6], [4, 7]]
    assert x.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 0)


def test_dlpack_to_and_from_the_host():
    x = torch.arange(3.0).to(DEVICE)
    host = torch.from_dlpack(x, device="cpu")
    assert host.device.type == "cpu" and host.tolist() == [0, 1, 2]
    back = torch.from_dlpack(np.arange(3.0), device=DEVICE)
    assert back.device.type == DEVICE and back.tolist() == [0, 1, 2]
    with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):  # NumPy's own words
        np.from_dlpack(x)
    with pytest.raises(BufferError, match="require gradient"):
        torch.from_dlpack(x.requires_grad_())
