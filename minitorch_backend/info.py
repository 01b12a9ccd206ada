"""``minitorch info``: what this build is and what it runs on."""

import platform

import click
import torch

import minitorch_backend
from minitorch_backend import _C, coverage


def facts() -> dict[str, str]:
    """Name and value of everything that ``minitorch info`` prints."""
    device = torch.minitorch.get_device_properties(0)
    free, total = torch.minitorch.mem_get_info(0)
    operators = coverage.counts(coverage.operators())
    return {
        "minitorch": minitorch_backend.__version__,
        "torch": str(torch.__version__),
        "Python": platform.python_version(),
        "backend": _C.backend_name(),
        "instruction set": _C.isa(),
        "devices": str(torch.minitorch.device_count()),
        "device 0": device.name,
        "memory free": f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB",
        "memory held": f"{torch.minitorch.memory_reserved(0) / 2**20:.1f} MiB",
        "threads": str(torch.get_num_threads()),
        "fallback": _C.fallback_policy().name,
        "operators": f"{operators['own']} with a kernel, {operators['composite']} composed of others, "
        f"{operators['missing']} missing, {operators['refused']} refused by design",
    }


@click.command()
def info() -> None:
    """Print backend, devices, instruction set, versions, memory, and how many operators there are."""
    found = facts()
    width = max(map(len, found))
    for name, value in found.items():  # a line each, also in a narrow terminal: what reads it finds them whole
        click.echo(f"{name:{width}}  {value}")
