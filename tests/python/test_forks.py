"""Children that are forked after the package was imported: GPUs are found without a use that a fork would not survive."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

from minitorch_backend import _C, device
from tests.python.twin import ASYNCHRONOUS, NATIVE

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Libraries that say what the environment says, and a program that asks them.
FAKES = {
    "libcuda.so.1": """
#include <stdlib.h>
int cuDriverGetVersion(int* version) { *version = atoi(getenv("DRIVER")); return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return atoi(getenv("DRIVER_STATUS")); }
int cuInit(unsigned flags) { abort(); }
""",
    "libnvidia-ml.so.1": """
#include <stdlib.h>
#include <string.h>
int nvmlInit_v2(void) { return getenv("NVML_BROKEN") != NULL; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = strlen(getenv("GPUS")); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** gpu) { *gpu = getenv("GPUS") + i; return 0; }
int nvmlDeviceGetCudaComputeCapability(void* gpu, int* major, int* minor) {
  *major = *(char*)gpu - '0';
  *minor = 0;
  return 0;
}
int nvmlDeviceGetMigMode(void* gpu, unsigned* now, unsigned* pending) { *now = getenv("MIG") != NULL; return 0; }
""",
}
# For a whole import: a driver that ends the process when something begins to use it, and a system that has its file.
FRAGILE = """
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { return 3; }
int cuInit(unsigned flags) { _exit(7); }
int cuGetProcAddress(const char* name, void** found, int version, unsigned long flags) { _exit(7); }
int cuGetProcAddress_v2(const char* name, void** found, int version, unsigned long flags, void* status) { _exit(7); }
int access(const char* path, int mode) {
  return strcmp(path, "/dev/nvidia-uvm") == 0 ? 0 : faccessat(AT_FDCWD, path, mode, 0);
}
"""
CUDA_LIBRARY = ROOT / "minitorch_backend/lib/libminitorch_cuda.so"
ASK = """
#include <cstdio>
#include "runtime/cuda/installed.h"
int main(int, char** argv) {
  const auto found = minitorch::cuda::installed_gpus(13, argv[1]);
  std::printf("%d %d.%d %d", found.count, found.major, found.minor, minitorch::cuda::driver_in_use());
}
"""


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """What is found of GPUs that the environment describes."""
    folder = tmp_path_factory.mktemp("fakes")
    c, cxx = shutil.which("cc") or shutil.which("gcc"), shutil.which("c++") or shutil.which("g++")
    if c is None or cxx is None:
        pytest.skip("no compiler")
    for name, text in FAKES.items():
        (folder / "fake.c").write_text(text)
        subprocess.run([c, "-shared", "-fPIC", str(folder / "fake.c"), "-o", str(folder / name)], check=True)
    (folder / "ask.cpp").write_text(ASK)
    sources = [str(folder / "ask.cpp"), str(ROOT / "csrc/runtime/cuda/installed.cpp")]
    subprocess.run([cxx, "-std=c++20", f"-I{ROOT / 'csrc'}", *sources, "-o", str(folder / "ask"), "-ldl"], check=True)

    def ask(memory_file="/dev/null", libraries=folder, **environment):
        known = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        env = {**known, "LD_LIBRARY_PATH": str(libraries), "DRIVER": "13000", "DRIVER_STATUS": "3", "GPUS": "99"}
        command = [str(folder / "ask"), memory_file]
        return subprocess.run(command, env={**env, **environment}, check=True, capture_output=True, text=True).stdout

    return ask


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, "2 9.0 0"),
        ({"GPUS": "9"}, "1 9.0 0"),
        ({"GPUS": "8888", "DRIVER": "13020"}, "4 8.0 0"),
        ({"GPUS": "9999", "CUDA_VISIBLE_DEVICES": "3,1,0"}, "3 9.0 0"),
        ({"DRIVER_STATUS": "0"}, "2 9.0 1"),  # somebody has initialised it
    ],
)
def test_gpus_are_counted_without_the_driver(ask, environment, found):
    assert ask(**environment) == found


@pytest.mark.parametrize(
    "environment",
    [
        {"GPUS": ""},
        {"GPUS": "98"},
        {"MIG": "1"},
        {"NVML_BROKEN": "1"},
        {"DRIVER": "12080"},
        {"DRIVER": "0"},
        {"memory_file": "/dev/there_is_none"},
        *(
            {"CUDA_VISIBLE_DEVICES": text}
            for text in ("", "-1", "2", "0,0", "0,", ",0", "0 ,1", "GPU-8932f937", "0,x", "a")
        ),
    ],
    ids=str,
)
def test_the_driver_is_asked_where_the_count_may_be_another(ask, environment):
    assert ask(**environment).startswith("0 ")


def test_the_driver_is_asked_where_a_library_is_missing(ask, tmp_path):
    if NATIVE == "cuda":
        pytest.skip("the system has both libraries")
    assert ask(libraries=tmp_path) == "0 0.0 0"


@pytest.mark.skipif(not CUDA_LIBRARY.exists(), reason="built without CUDA")
def test_importing_is_no_use_of_the_driver(tmp_path):
    if (cc := shutil.which("cc") or shutil.which("gcc")) is None:
        pytest.skip("no C compiler")
    for name, text in (("libcuda.so.1", FRAGILE), ("libnvidia-ml.so.1", FAKES["libnvidia-ml.so.1"])):
        (tmp_path / "fake.c").write_text(text)
        subprocess.run([cc, "-shared", "-fPIC", str(tmp_path / "fake.c"), "-o", str(tmp_path / name)], check=True)
    code = """
import torch, minitorch_backend
from minitorch_backend import _C
assert _C.backend_name() == "cuda" and torch.minitorch.device_count() == 3 and not _C.in_use()
torch.manual_seed(1)
torch.minitorch.memory_allocated(), torch.minitorch.get_rng_state()
(torch.ones(3, requires_grad=True) * 2).detach().share_memory_()
print("imported", flush=True)
torch.minitorch.get_device_properties()
"""
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "MINITORCH_BACKEND": "cuda",
        "LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": str(tmp_path / "libcuda.so.1"),
    }  # fmt: skip
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    for capability in "98":  # one of them has code in this build
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environment, "GPUS": capability * 3}, capture_output=True, text=True,
            cwd=ROOT, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode == 7 and done.stdout == "imported\n":
            return
    pytest.fail(f"exit status {done.returncode}: {done.stdout}{done.stderr}")


def test_a_child_is_a_bad_one_only_after_a_use(monkeypatch):
    monkeypatch.setattr(device, "_in_bad_fork", False)

    def child_says() -> bool:
        if (pid := os.fork()) == 0:
            os._exit(int(device._is_in_bad_fork()))
        return bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    used = False
    monkeypatch.setattr(device._C, "in_use", lambda: used)
    assert not child_says()
    used = True
    assert child_says() and not device._is_in_bad_fork()
    used = False  # a child of that child, where the driver says that it is not initialised
    monkeypatch.setattr(device, "_in_bad_fork", True)
    assert child_says()


@pytest.mark.skipif(ASYNCHRONOUS, reason="the CPU device is never used so")
def test_the_cpu_is_not_in_use():
    torch.ones(3, device="minitorch").exp()
    assert not _C.in_use()


@pytest.mark.skipif(ASYNCHRONOUS, reason="a GPU's context does not survive a fork")
def test_a_forked_child_may_use_the_device():
    code = """
import os, torch, minitorch_backend
big = torch.ones(1 << 20).to("minitorch")
(big + 1).cpu()                      # OpenMP's threads exist now
pid = os.fork()
if pid == 0:
    y = (big * 2).cpu()
    os._exit(0 if float(y[123]) == 2.0 and torch.minitorch.memory_allocated() > 0 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# What a bad child does: its exit status says whether it is told what to do.
TOLD = """
assert torch.minitorch._is_in_bad_fork()
try:
    torch.ones(3).to("minitorch")
except RuntimeError as error:
    os._exit(0 if "spawn" in str(error) else 2)
os._exit(1)
"""


@pytest.mark.skipif(not ASYNCHRONOUS, reason="the CPU device goes on working in a child")
def test_a_forked_child_is_told_to_spawn():
    code = f"""
import os, sys, torch, minitorch_backend
(torch.ones(3).to("minitorch") + 1).cpu()
pid = os.fork()
if pid == 0:
    exec({TOLD!r})
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


WORKS = {
    "minitorch": "x = torch.ones(3, device='minitorch', requires_grad=True); (x * 2).sum().backward(); value = x.grad",
    "cuda": "value = torch.ones(3, device='cuda') * 2",
    "a worker": """
class Twos(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, i): return (torch.ones(3, device='minitorch') * 2).cpu()
value = next(iter(torch.utils.data.DataLoader(Twos(), num_workers=1, multiprocessing_context='fork')))[0]
""",
}


@pytest.mark.skipif(not ASYNCHRONOUS, reason="needs a GPU")
@pytest.mark.parametrize("work", WORKS)
def test_a_child_forked_before_a_use_may_use_the_gpu(work):
    """... and its own children may not."""
    if work == "cuda" and NATIVE != "cuda":
        pytest.skip("this torch has no CUDA")
    code = f"""
import os, torch, minitorch_backend
assert not minitorch_backend._C.in_use()
pid = os.fork()
if pid == 0:
    assert not torch.minitorch._is_in_bad_fork()
    exec({WORKS[work]!r})
    assert value.tolist() == [2.0] * 3
    torch.minitorch.synchronize()
    assert minitorch_backend._C.in_use()
    child = os.fork()
    if child == 0:
        exec({TOLD!r})
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert (torch.ones(3, device="minitorch") * 2).tolist() == [2.0] * 3  # the parent may, too
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
