"""CUDA sources without nvcc: compiled by NVRTC, which comes with every CUDA build of torch, launched by the driver.

It takes ``__global__`` functions that we launch. NVRTC has no C++ library; the few standard headers that ours include
are given as texts. Machine code is kept in the cache of compiled libraries, under all text that may have gone into it.
"""

import ctypes
import ctypes.util
import functools
import itertools
import os
import pathlib
import re
from collections.abc import Sequence

import torch

from minitorch_backend.kernels import compiler
from minitorch_backend.kernels.errors import CompileError, KernelError

STANDARD_HEADERS = {
    "cstdint": """#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long long uint64_t; typedef unsigned long long uintptr_t;
""",
    "stdexcept": "",
    "cstring": "",
    "cmath": "",
    "math.h": """#pragma once
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
""",
}


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


def folders() -> list[pathlib.Path]:
    """Where CUDA may be: beside torch, as pip installs it, and in the system."""
    beside = pathlib.Path(torch.__file__).parents[1] / "nvidia"
    found = [*sorted(beside.glob("cu*"), reverse=True), beside / "cuda_nvrtc", beside / "cuda_runtime"]
    return [*found, pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]


@functools.cache
def library() -> ctypes.CDLL:
    """Raises CompileError when there is none."""
    for folder in folders():
        for name in ("lib", "lib64"):
            for path in sorted((folder / name).glob("libnvrtc.so*")):
                for part in path.parent.glob("libnvrtc-builtins.so*"):  # NVRTC asks for it by its bare name
                    ctypes.CDLL(str(part))
                return ctypes.CDLL(str(path))
    if name := ctypes.util.find_library("nvrtc"):
        return ctypes.CDLL(name)
    raise CompileError("no nvcc on the PATH or under $CUDA_HOME, and no NVRTC library beside torch or in the system")


def headers() -> dict[str, str]:
    first, ours = compiler.include_folders()
    texts = {name: (ours / name).read_text() for name in compiler.SHARED_HEADERS}
    return {"minitorch_kernel.h": (first / "minitorch_kernel.h").read_text(), **texts, **STANDARD_HEADERS}


@functools.cache
def version() -> str:
    """Of the library, and which file it is."""
    nvrtc = library()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    path = pathlib.Path(nvrtc._name)
    which = f"{path} {path.stat().st_size}" if path.exists() else str(path)
    return f"{major.value}.{minor.value} {which}"


def cuda_headers() -> list[pathlib.Path]:
    """The folder with CUDA's own headers, if there is one."""
    return [f / "include" for f in folders() if (f / "include" / "cuda_fp16.h").exists()][:1]


def include_folders(flags: Sequence[str]) -> list[pathlib.Path]:
    """Where headers are looked for besides the texts that are given: those of the flags, then CUDA's."""
    named = [pathlib.Path(found.group(1)) for flag in flags if (found := re.match(r"(?:-I|--include-path=)(.+)", flag))]
    apart = [pathlib.Path(b) for a, b in itertools.pairwise(flags) if a in ("-I", "--include-path")]
    return [*named, *apart, *cuda_headers()]


def what_may_be_read(source: str, flags: Sequence[str]) -> str:
    """The source with the text of every header that it names, and those name, whichever branch of an #if they are in.

    NVRTC cannot preprocess alone. A header that it has inside itself belongs to its version.
    """
    given, places = headers(), include_folders(flags)
    texts, todo, seen = [source], [(source, pathlib.Path())], set()
    for flag, name in itertools.pairwise(flags):
        if flag in ("-include", "--pre-include"):
            todo.append((f'#include "{name}"', pathlib.Path()))
    while todo:
        text, home = todo.pop()
        for name in INCLUDE.findall(text):
            if name in given:
                found, path = given[name], pathlib.Path(name)
            else:
                path = next((f / name for f in (home, *places) if (f / name).is_file()), pathlib.Path(name))
                found = path.read_text(errors="replace") if path.is_file() else ""
            if path not in seen:
                seen.add(path)
                texts.append(found)
                todo.append((found, path.parent))
    return "\0".join(texts)


def machine_code(source: str, name: str, architecture: str, flags: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """What ``compile_source`` gives, from the cache if it is there."""
    read = what_may_be_read(source, flags)
    target = compiler.kept_as(".cubin", read, name, architecture, version(), *flags)
    if (kept := compiler.read_kept(target)) is None:
        with compiler.told(f"the kernel {name}"):
            code, lowered = compile_source(source, name, architecture, flags)
        compiler.keep(target, lowered + b"\0" + code)
        return code, lowered
    lowered, _, code = kept.partition(b"\0")
    return code, lowered


def compile_source(source: str, name: str, architecture: str, flags: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """Machine code and the name that the function has in it. Raises CompileError with the compiler's message."""
    nvrtc = library()
    texts = headers()
    program = ctypes.c_void_p()
    bodies = (ctypes.c_char_p * len(texts))(*(t.encode() for t in texts.values()))
    names = (ctypes.c_char_p * len(texts))(*(n.encode() for n in texts))
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), f"{name}.cu".encode(), len(texts), bodies, names)
    try:
        nvrtc.nvrtcAddNameExpression(program, name.encode())
        includes = [f"--include-path={folder}" for folder in cuda_headers()]
        options = [f"--gpu-architecture={architecture}", "-std=c++20", "-DMINITORCH_ARCH=cuda", "-default-device"]
        options += [*includes, *flags]
        given = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), given) != 0:
            raise CompileError(f"the kernel {name} does not compile:\n{_text(nvrtc, 'ProgramLog', program).decode()}")
        lowered = ctypes.c_char_p()
        nvrtc.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered))
        return _text(nvrtc, "CUBIN", program), bytes(lowered.value or b"")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw if what == "CUBIN" else buffer.value


class Function:
    """A ``__global__`` function, loaded into the CUDA context of a device, to which it belongs."""

    def __init__(self, source: str, name: str, flags: Sequence[str] = (), device: int = 0) -> None:
        code, lowered = machine_code(source, name, compiler.cuda_architecture(device), flags)
        self.driver = ctypes.CDLL("libcuda.so.1")
        module, self.handle, self.context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        with torch.minitorch.device(device):
            torch.minitorch.synchronize()  # makes the device's context current in this thread
            self._check(self.driver.cuCtxGetCurrent(ctypes.byref(self.context)))
            self._check(self.driver.cuModuleLoadData(ctypes.byref(module), code))
            self._check(self.driver.cuModuleGetFunction(ctypes.byref(self.handle), module, lowered))

    def _check(self, code: int) -> None:
        if code != 0:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            raise KernelError(f"CUDA: {(text.value or b'unknown error').decode()}")

    def __call__(self, arguments: Sequence[bytes], blocks: int, threads: int, stream: int | None) -> None:
        buffers = [ctypes.create_string_buffer(a, len(a)) for a in arguments]
        pointers = (ctypes.c_void_p * len(buffers))(*(ctypes.addressof(b) for b in buffers))
        # In a thread whose memory came from the allocator's cache no call of CUDA has made it current yet.
        self._check(self.driver.cuCtxSetCurrent(self.context))
        self._check(
            self.driver.cuLaunchKernel(
                self.handle, blocks, 1, 1, threads, 1, 1, 0, ctypes.c_void_p(stream or 0), pointers, None
            )
        )
