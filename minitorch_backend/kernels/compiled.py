"""Kernels from C++ and CUDA sources: a trampoline with plain arguments around the user's function, called by ctypes.

The user writes a function with the operator's name, results first, then the arguments in the order of the schema:

    void silu(Tensor out, Tensor self) { … }                                     // C++
    void silu(Tensor out, Tensor self, cudaStream_t stream) { f<<<…, stream>>>(…); }   // CUDA
    __global__ void silu(Tensor out, Tensor self) { … }        // CUDA, launched by us: an element of out a thread
"""

import contextlib
import ctypes
import math
import re
import struct
from collections.abc import Sequence
from typing import Any

import torch

from minitorch_backend.kernels import compiler, nvrtc, schema
from minitorch_backend.kernels.errors import CompileError, KernelError

MAX_DIM = 12
TENSOR = struct.Struct(f"<Qqii{MAX_DIM}q{MAX_DIM}q")
LIST = struct.Struct(f"<q{MAX_DIM}q")
BLOCK = 256  # threads of a block when we launch
MESSAGE = 1024
NO_INT = -(2**63)
# c10::ScalarType's numbers, the C++ type, and the type to compute in
CPP = {
    torch.uint8: (0, "uint8_t", "uint8_t"), torch.int8: (1, "int8_t", "int8_t"), torch.int16: (2, "int16_t", "int16_t"),
    torch.int32: (3, "int32_t", "int32_t"), torch.int64: (4, "int64_t", "int64_t"), torch.float16: (5, "Half", "float"),
    torch.float32: (6, "float", "float"), torch.float64: (7, "double", "double"), torch.bool: (11, "bool", "bool"),
    torch.bfloat16: (15, "BFloat16", "float"),
}  # fmt: skip
READ = {
    "Tensor": "minitorch::Tensor",
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "list": "minitorch::IntList",
}

CUDA_PARTS = (
    "#include <cuda_runtime.h>\n",
    "[[maybe_unused]] auto stream = static_cast<cudaStream_t>(handle);\n    ",
    "const cudaError_t launch = cudaGetLastError();\n"
    "    if (launch != cudaSuccess) throw std::runtime_error(cudaGetErrorString(launch));\n    ",
)


def is_global(source: str, name: str) -> bool:
    """Whether the function is one that we launch."""
    return bool(re.search(rf"__global__\s+(?:\w+\s+)*?void\s+(?:__launch_bounds__\([^)]*\)\s*)?{name}\b", source))


def prelude(name: str, dtype: torch.dtype, source: str) -> str:
    """Our header, the types, and the user's source with its own line numbers."""
    _, scalar, compute = CPP[dtype]
    return f"""#include "minitorch_kernel.h"
using namespace minitorch;
using scalar_t = {scalar};
using opmath_t = {compute};
#line 1 "{name}"
{source}
"""


def wrap(source: str, operator: schema.Operator, dtype: torch.dtype, results: int, cuda: bool, entry: str = "") -> str:
    """The translation unit: our header, the user's source, and the trampoline that calls the function in it."""
    entry = entry or operator.base
    kinds = ["Tensor"] * results + [kind for _, kind in schema.kernel_arguments(operator.functional)]
    reads, offset = [], 0
    for kind in kinds:
        size = {"Tensor": TENSOR.size, "list": LIST.size}.get(kind, 8)
        read = f"*reinterpret_cast<const {READ[kind] if kind != 'bool' else 'int64_t'}*>(arguments + {offset})"
        reads.append(f"({read}) != 0" if kind == "bool" else read)
        offset += size
    launched = cuda and is_global(source, entry)
    call = f"{entry}({', '.join(reads)}{', stream' if cuda and not launched else ''})"
    if launched:
        call = f"{entry}<<<blocks, {BLOCK}, 0, stream>>>({', '.join(reads)})"
    header, stream, after = CUDA_PARTS if cuda else ("", "", "")
    return f"""{header}#include <cstring>
{prelude(entry, dtype, source)}#line 1 "call of {entry}"
extern "C" __attribute__((visibility("default")))
int minitorch_call([[maybe_unused]] const char* arguments, [[maybe_unused]] void* handle,
                   [[maybe_unused]] int64_t blocks, char* message) {{
  try {{
    {stream}{call};
    {after}return 0;
  }} catch (const std::exception& error) {{
    std::strncpy(message, error.what(), {MESSAGE - 1});
  }} catch (...) {{
    std::strncpy(message, "an exception that is not a std::exception", {MESSAGE - 1});
  }}
  return 1;
}}
"""


def pack_tensor(t: torch.Tensor | None) -> bytes:
    if t is None:
        return bytes(TENSOR.size)
    dim = t.dim()
    if dim > MAX_DIM:
        raise KernelError(f"a compiled kernel takes tensors of at most {MAX_DIM} dimensions, not {dim}")
    if t.dtype not in CPP:
        raise KernelError(f"a compiled kernel cannot take a tensor of {t.dtype}")
    rest = [0] * (MAX_DIM - dim)
    number = CPP[t.dtype][0]
    return TENSOR.pack(t.data_ptr(), t.numel(), number, dim, *t.shape, *rest, *t.stride(), *rest)


def pack(kind: str, value: Any) -> bytes:
    if kind == "Tensor":
        return pack_tensor(value)
    if kind == "list":
        values = list(value or ())
        return LIST.pack(len(values), *values, *[0] * (MAX_DIM - len(values)))
    if kind == "float":
        return struct.pack("<d", math.nan if value is None else float(value))
    return struct.pack("<q", NO_INT if value is None else int(value))


class CompiledKernel:
    """The user's source, compiled for each dtype when it is first needed.

    ``entry``: the function in it, if that is not named like the operator.
    """

    def __init__(
        self, source: str, operator: schema.Operator, cuda: bool, flags: Sequence[str] = (), entry: str = ""
    ) -> None:
        self.source, self.operator, self.cuda, self.flags = source, operator, cuda, tuple(flags)
        self.entry = entry or operator.base
        self.kinds = [kind for _, kind in schema.kernel_arguments(operator.functional)]
        if "Tensor" not in self.kinds:
            raise LookupError(
                f"{operator.name} takes no tensor, whose dtype a kernel is compiled for: use a Python callable"
            )
        self.results = len(operator.functional._schema.returns)
        self.functions: dict[tuple[torch.dtype, int], Any] = {}

    def prepare(self, dtype: torch.dtype, device: int | None = None) -> Any:
        """The entry point for a dtype on a device (its index; the current one). Raises CompileError.

        GPUs may differ, and a loaded function belongs to one of them.
        """
        key = (dtype, torch.minitorch.current_device() if device is None else device)
        if key not in self.functions:
            if dtype not in CPP:
                raise KernelError(f"a compiled kernel cannot take {dtype}")
            if self.cuda and compiler.nvcc() is None:
                self.functions[key] = self._by_nvrtc(*key)
                return self.functions[key]
            architecture = compiler.cuda_architecture(key[1]) if self.cuda else ""
            text = wrap(self.source, self.operator, dtype, self.results, self.cuda, self.entry)
            try:
                title = f"the kernel for {self.operator.name}"
                library = compiler.library(text, title, self.cuda, self.flags, architecture)
            except CompileError as error:
                raise CompileError(f"{error}\nThe function that is called: {self.signature()}") from None
            function = library.minitorch_call
            function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p]
            self.functions[key] = function
        return self.functions[key]

    def signature(self) -> str:
        """The declaration that the user's function must fit."""
        results = ["Tensor out"] if self.results == 1 else [f"Tensor out{i}" for i in range(self.results)]
        arguments = [
            f"{READ[kind].removeprefix('minitorch::')} {name}"
            for name, kind in schema.kernel_arguments(self.operator.functional)
        ]
        stream = ["cudaStream_t stream"] if self.cuda and not is_global(self.source, self.entry) else []
        return f"void {self.entry}({', '.join(results + arguments + stream)})"

    def _by_nvrtc(self, dtype: torch.dtype, device: int) -> nvrtc.Function:
        name = self.entry
        if not is_global(self.source, name):
            raise CompileError(f"there is no nvcc; NVRTC takes a __global__ function {name}, which is launched for you")
        return nvrtc.Function(prelude(name, dtype, self.source), name, self.flags, device)

    def __call__(self, outputs: list[torch.Tensor], values: list[Any], dtype: torch.dtype) -> None:
        device = outputs[0].device.index or 0
        function = self.functions.get((dtype, device)) or self.prepare(dtype, device)
        parts = [*map(pack_tensor, outputs), *map(pack, self.kinds, values)]
        message = ctypes.create_string_buffer(MESSAGE)
        blocks = min(max(1, -(-outputs[0].numel() // BLOCK)), 2**31 - 1)
        with Stream(outputs[0].device, self.cuda) as handle:
            if isinstance(function, nvrtc.Function):
                function(parts, blocks, BLOCK, handle)
            elif function(b"".join(parts), handle, blocks, message) != 0:
                raise KernelError(
                    f"the kernel for {self.operator.name} failed: {message.value.decode(errors='replace')}"
                )


class Stream:
    """The CUDA handle of a device's current stream. Where it has none, the default stream, between two waits.

    Inside, the device is the current one: a launch goes to that, whatever its stream.
    """

    def __init__(self, device: torch.device, cuda: bool) -> None:
        self.device, self.wait, self.handle = device, False, None
        self.guard: Any = contextlib.nullcontext()
        if not cuda:
            return
        self.guard = getattr(torch, device.type).device(device)
        stream = getattr(torch, device.type).current_stream(device)
        for name in ("cuda_stream", "native_handle"):
            try:
                self.handle = getattr(stream, name)
            except (AttributeError, RuntimeError):
                continue
            return
        self.wait = True

    def __enter__(self) -> int | None:
        self.guard.__enter__()
        if self.wait:
            getattr(torch, self.device.type).synchronize(self.device)
        return self.handle

    def __exit__(self, *exc: object) -> None:
        try:
            if self.wait:
                getattr(torch, self.device.type).synchronize(self.device)
        finally:
            self.guard.__exit__(*exc)
