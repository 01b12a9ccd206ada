"""Process groups have no collectives for the device: what asks for them says so at once, and everything goes on."""

import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(), reason="needs gloo"
)

PREAMBLE = """
import os, sys, torch, torch.distributed as dist
import minitorch_backend

def refused(f):
    try:
        f()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
    else:
        print("accepted")

def start(backend="gloo"):
    dist.init_process_group(backend, init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=int(sys.argv[3]))

model = torch.nn.Linear(4, 3).to("minitorch")
"""
# A thread of the group's that asks for the interpreter while that ends is ended by it, and with it, now and then, the
# process (std::terminate): what is tested here has been said by then.
END = "\nsys.stdout.flush()\nos._exit(0)\n"


def run(program, tmp_path, processes=1):
    """What each process prints. All of them end by themselves, or the test does after its time."""
    command = [sys.executable, "-c", PREAMBLE + program + END, str(tmp_path / "store")]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    started = [
        subprocess.Popen(
            [*command, str(rank), str(processes)], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for rank in range(processes)
    ]
    try:
        outputs = [process.communicate(timeout=80) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (_, errors) in zip(started, outputs, strict=True):
        assert process.returncode == 0, errors[-2000:]
    return [out for out, _ in outputs]


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("gloo", "No backend type associated with device type minitorch"),
        ("cpu:gloo,minitorch:gloo", "unsupported device type minitorch"),
    ],
)
def test_collectives_and_ddp_refuse(backend, words, tmp_path):
    program = f"""
start({backend!r})
x = torch.ones(3, device="minitorch")
refused(lambda: dist.all_reduce(x))
refused(lambda: dist.broadcast(x, 0))
refused(lambda: torch.nn.parallel.DistributedDataParallel(model))
host = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(host)
print((host.to("minitorch") + x).tolist())
dist.destroy_process_group()
"""
    for out in run(program, tmp_path, processes=2):
        *refusals, last = out.splitlines()
        assert len(refusals) == 3 and all(r.startswith("RuntimeError") and r.endswith(words) for r in refusals), out
        assert last == "[4.0, 4.0, 4.0]"


@pytest.mark.parametrize("kind", ["FullyShardedDataParallel", "fully_shard"])
def test_sharding_refuses(kind, tmp_path):
    program = f"""
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
start()
def a_step():
    sharded = {kind}(torch.nn.Linear(4, 3).to("minitorch"))
    sharded(torch.ones(2, 4, device="minitorch")).sum().backward()
refused(a_step)
print(model(torch.ones(2, 4, device="minitorch")).shape)
dist.destroy_process_group()
"""
    for out in run(program, tmp_path, processes=2):
        refusal, last = out.splitlines()
        assert refusal.endswith("No backend type associated with device type minitorch"), out
        assert last == "torch.Size([2, 3])"


def test_gradients_averaged_through_the_host(tmp_path):
    """What two processes do meanwhile: each has half of the batch, and both end where one process would."""
    program = """
start()
torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
data = torch.randn(8, 4)
expected = torch.autograd.grad(model(data).square().mean(), model.weight)[0]
model.to("minitorch")
half = data.chunk(2)[dist.get_rank()].to("minitorch")
model(half).square().mean().backward()
gradient = model.weight.grad.cpu()
dist.all_reduce(gradient, dist.ReduceOp.SUM)
model.weight.grad.copy_(gradient / 2)
torch.testing.assert_close(model.weight.grad.cpu(), expected)
print("well")
dist.destroy_process_group()
"""
    assert run(program, tmp_path, processes=2) == ["well\n", "well\n"]
