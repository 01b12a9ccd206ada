"""What a result was measured on, and whether the machine was free to measure."""

import contextlib
import os
import pathlib
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import torch

# Settings of ours that change what is measured, with what they are by default; a case that falls back says so itself.
OWN = {
    "MINITORCH_ISA": "", "MINITORCH_POISON": "0", "MINITORCH_MEMORY_LIMIT": "", "MINITORCH_LAUNCH_BLOCKING": "0",
    "MINITORCH_EXPANDABLE_SEGMENTS": "0", "MINITORCH_PEER_ACCESS": "1",
}  # fmt: skip
OTHERS = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "LD_PRELOAD", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS",
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "NVIDIA_TF32_OVERRIDE",
)  # fmt: skip
KIND = ("cpu family", "model", "CPU implementer", "CPU part")  # x86's and Arm's, of /proc/cpuinfo
DRIVER = pathlib.Path("/proc/driver/nvidia/version")
BUSY = 0.15  # share of the processors that others may use while a case is timed


def processor_name(info: pathlib.Path = pathlib.Path("/proc/cpuinfo")) -> str:
    """Its name, with the numbers of its kind: a hypervisor gives processors of several generations one name."""
    facts = {}
    if info.exists():
        first = info.read_text().split("\n\n")[0]  # of the processors
        facts = dict(re.findall(r"^([^\t:]+?)\s*:\s*(.*?)\s*$", first, re.MULTILINE))
    kind = [f"{key.removeprefix('CPU ').removeprefix('cpu ')} {facts[key]}" for key in KIND if facts.get(key)]
    name = facts.get("model name") or platform.processor() or platform.machine()
    return f"{name} ({', '.join(kind)})" if kind else name


def commit() -> str:
    """The source tree's commit, with a + when files differ from it; "" for an installed package."""
    root = pathlib.Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    if not (root / ".git").exists():
        return ""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "csrc", "minitorch_backend", "benchmarks/*.py")
    return git("rev-parse", "HEAD") + ("+" if changed else "")


def driver() -> str:
    """Version of the GPU's driver; "" where there is none."""
    if not DRIVER.exists():
        return ""
    found = re.search(r"Module.*?\s(\d+\.[\d.]+)", DRIVER.read_text(errors="replace"))
    return found.group(1) if found else ""


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The settings among them that change what is measured; one that is empty or as by default is none."""
    found = {name: variables.get(name, "") for name in (*OWN, *OTHERS)}
    return {name: value for name, value in found.items() if value and value != OWN.get(name)}


def describe() -> dict:
    """Machine, versions and commit, as they go into a result file."""
    import minitorch_backend
    from minitorch_backend import _C

    frequency = psutil.cpu_freq()
    properties = torch.minitorch.get_device_properties(0)
    facts = {
        "processor": processor_name(),
        "processors": os.cpu_count(),
        "memory": psutil.virtual_memory().total,
        "system": platform.system(),
        "backend": _C.backend_name(),
        "device": properties.name,
        "isa": _C.isa(),
        "threads": torch.get_num_threads(),
        "clock_mhz": round(frequency.current) if frequency else None,
        "minitorch": minitorch_backend.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "environment": environment(os.environ),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if version := driver():
        facts["driver"] = version
    if torch.cuda.is_available():
        facts["cuda"] = torch.version.cuda
        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


# Results of runs that differ in one of these cannot be compared as if only our code had changed.
SAME_MACHINE = ("processor", "processors", "memory", "device", "backend", "isa", "threads", "gpu")
SAME_VERSION = ("torch", "cuda", "driver")
SAME_POLICY = ("malloc", "environment")
SAME_SIDES = ("rival", "ours", "kernel")  # kernel: a user's file that is one of the sides
SAME_VISITS = ("quick", "thorough")  # of a run that goes on, but not of two that are compared
SAME = (*SAME_MACHINE, *SAME_VERSION, *SAME_POLICY, *SAME_SIDES)
# What files from before these were kept have of them.
MISSING = {"malloc": "default", "environment": {}, "quick": False, "thorough": False}
UNKNOWN = ("memory", "driver")  # ... and what may have been anything in these


def _differ(key: str, one: Any, other: Any) -> bool:
    if key == "memory":  # a kernel keeps some of it for itself, more or less from start to start
        return abs(one - other) > 0.05 * max(one, other)
    return one != other


def differences(a: dict, b: dict, keys: tuple[str, ...] = SAME) -> list[str]:
    """In what two machines, versions, ways to measure or races differ, as sentences."""
    keys = tuple(key for key in keys if key not in UNKNOWN or (key in a and key in b))
    values = [(key, *(facts.get(key, MISSING.get(key)) for facts in (a, b))) for key in keys]
    return [f"{key}: {one} and {other}" for key, one, other in values if _differ(key, one, other)]


@dataclass
class Load:
    """How much of the processors other programs used between two looks, 0 to 1.

    Time stolen by a hypervisor counts as others'. This process and its children, ended or not, do not.
    """

    wall: float
    busy: float
    own: float

    @classmethod
    def now(cls) -> "Load":
        system, process = psutil.cpu_times(), psutil.Process().cpu_times()
        idle = system.idle + getattr(system, "iowait", 0.0)
        total = sum(getattr(system, name) for name in system._fields if not name.startswith("guest"))
        own = process.user + process.system + process.children_user + process.children_system
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                own += sum(child.cpu_times()[:2])
        return cls(time.perf_counter(), total - idle, own)

    def others_until_now(self) -> float:
        later = Load.now()
        wall = (later.wall - self.wall) * (os.cpu_count() or 1)
        return max(0.0, min(1.0, ((later.busy - self.busy) - (later.own - self.own)) / wall)) if wall > 0.05 else 0.0
