"""Kernels of your own: in place of an operator of the device, or as a new pointwise one.

    from minitorch_backend import kernels

    with kernels.override("aten::silu", source=open("silu.cpp").read(), dtypes=[torch.float32]):
        torch.nn.functional.silu(x)                      # runs your code

    gelu3 = kernels.elementwise("x * x * x / (1 + abs(x))", grad="x * x * (3 + 2 * abs(x)) / (1 + abs(x)) ** 2")
    gelu3(x).sum().backward()

``minitorch bench --kernel FILE`` diffs such a kernel against native and races it. docs/own-kernel.md is a tutorial.
"""

import pathlib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from minitorch_backend.kernels import compiled, overriding, schema
from minitorch_backend.kernels.errors import CompileError, KernelError
from minitorch_backend.kernels.overriding import Override, active, collect, restore_all
from minitorch_backend.kernels.pointwise import elementwise

__all__ = [
    "CompileError", "KernelError", "Override", "active", "collect", "elementwise", "override", "restore_all",
]  # fmt: skip


def override(
    name: str,
    function: Callable[..., Any] | None = None,
    *,
    source: "str | pathlib.Path | None" = None,
    cuda: "str | pathlib.Path | None" = None,
    triton: Any = None,
    grid: Callable[..., tuple] | None = None,
    constants: dict[str, Any] | None = None,
    dtypes: Iterable[torch.dtype] | None = None,
    strided: bool = False,
    flags: str | Sequence[str] = (),
) -> Override:
    """Replace an operator of the device, at once and until ``restore()``; or for a ``with`` block.

    ``name`` is an aten operator, "aten::silu" or with its overload "aten::add.Tensor". Its in-place and out= forms
    follow. Gradients stay PyTorch's; each of their steps is an operator that may be replaced too. One kernel is given:

    - ``function``: a Python callable with the operator's arguments, which gives its results. When it calls the operator
      itself, that is the original.
    - ``source``: C++, and ``cuda``: CUDA C++; text or a path. A function with the operator's name (without "aten::" and
      overload): results first, then the arguments, ``void silu(Tensor out, Tensor self)``. minitorch_kernel.h, which
      is included already, says what a Tensor is. Tensors arrive contiguous unless ``strided``. Of a CUDA source the
      function takes a ``cudaStream_t`` last, or is a ``__global__`` one with a thread for each element of the result.
      Both together are for both backends.
    - ``triton``: a Triton kernel, called with results, arguments, the number of elements of the result and
      ``constants``, on ``grid(results..., arguments...)``.

    All threads see it, and it may come and go while they call the operator: a call that has begun ends in the kernel
    that it began in. Overrides of one operator form a chain, the newest first, and are restored in any order.

    To a compiled kernel a pointwise operator's tensors come broadcast to the result's shape and promoted to one dtype,
    which is its ``scalar_t``; other operators' come as they are, and ``scalar_t`` is the first one's.

    ``dtypes`` (of the first tensor, or what a compiled pointwise kernel's are promoted to) limits it; other calls go to
    the original. So do those that a compiled kernel cannot take: complex numbers, more than 12 dimensions, floating
    tensors of another dtype than ``dtypes`` where they are not promoted, or an argument that the kernel does not see (a
    text, a generator) and that is not as by default. ``flags`` are the compiler's. Shapes and dtypes of the results are
    those that PyTorch says the operator has; one whose result's shape depends on values cannot be overridden. Raises
    LookupError for a name that means no operator, CompileError with the compiler's message, ValueError when the kernel
    is not for the backend that runs. A kernel that gives something else than the operator raises KernelError when
    called.
    """
    operator = schema.find(name)
    wanted = overriding.check_dtypes(dtypes)
    if function is not None and not callable(function):
        raise TypeError(f"a kernel is a callable, not {type(function).__name__}; give C++ as source=")
    on_cuda = torch.minitorch.get_device_properties(0).backend == "cuda"
    if [function is not None, source is not None or cuda is not None, triton is not None].count(True) != 1:
        raise ValueError("give one of: a callable, source= and/or cuda=, triton=")
    for kind, options in {
        "a callable": {"strided": strided, "flags": flags, "grid": grid, "constants": constants} if function else {},
        "a Triton kernel": {"strided": strided, "flags": flags} if triton is not None else {},
        "C++ or CUDA": {"grid": grid, "constants": constants} if function is None and triton is None else {},
    }.items():
        if useless := [f"{option}=" for option, value in options.items() if value]:
            raise ValueError(f"{', '.join(useless)} would do nothing: the kernel is {kind}")
    if function is not None:
        return overriding.deliver(Override(operator, overriding.run_callable(function), wanted, "Python kernel"))
    if triton is not None:
        if not on_cuda:
            raise ValueError("a Triton kernel needs a GPU; minitorch runs on the CPU here")
        if grid is None:
            raise ValueError("a Triton kernel needs grid=, a function of results and arguments")
        schema.kernel_arguments(operator.functional)  # says what cannot be given to it
        run = overriding.run_triton(triton, grid, dict(constants or {}))
        return overriding.deliver(Override(operator, run, wanted, "Triton kernel", compiles=True))
    chosen = cuda if on_cuda else source
    if chosen is None:
        raise ValueError(f"minitorch runs on the {'GPU: give cuda=' if on_cuda else 'CPU: give source='}")
    if not isinstance(chosen, (str, pathlib.Path)):
        raise TypeError(f"a source is a text or a pathlib.Path, not {type(chosen).__name__}")
    text = chosen.read_text(encoding="utf-8-sig", errors="replace") if isinstance(chosen, pathlib.Path) else chosen
    if "{" not in text and re.fullmatch(r"\S+\.(cpp|cc|cxx|cu|h)", text.strip()):
        raise ValueError(f"{text!r} is taken as a program; give a path as pathlib.Path({text.strip()!r})")
    beside = [f"-I{chosen.resolve().parent}"] if isinstance(chosen, pathlib.Path) else []
    try:
        given = [*beside, *(shlex.split(flags) if isinstance(flags, str) else flags)]
    except ValueError as error:
        raise ValueError(f"flags={flags!r} are no words of a shell: {error}") from None
    kernel = compiled.CompiledKernel(text, operator, on_cuda, given)
    for dtype in wanted or (torch.float32,):
        kernel.prepare(dtype)
    title = "CUDA kernel" if on_cuda else "C++ kernel"
    return overriding.deliver(
        Override(operator, overriding.run_compiled(kernel, strided), wanted, title, compiles=True)
    )
