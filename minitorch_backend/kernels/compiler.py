"""Compiles a user's source at run time and keeps the result, under a hash of everything that it depends on."""

import contextlib
import ctypes
import functools
import hashlib
import os
import pathlib
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator

from minitorch_backend.kernels.errors import CompileError

PACKAGE = pathlib.Path(__file__).resolve().parent
INCLUDE = PACKAGE / "include"
# What a source may include of csrc, with all that those include; setup.py puts them into the package.
SHARED_HEADERS = (
    "core/half.h",
    "core/macros.h",
    "kernels/functors/compensated.h",
    "kernels/functors/error_function.h",
    "kernels/functors/math.h",
    "kernels/functors/math_double.h",
    "kernels/functors/math_double_inverse.h",
    "kernels/functors/polynomials.h",
)
DIGEST = hashlib.sha256().digest_size  # bytes after the end of a file in the cache
TIME_LIMIT = 300.0  # seconds for one run of a compiler
# Told what is compiled, and "" when that is done: whoever watches the time gives a compiler its own.
listeners: list[Callable[[str], None]] = []
# As our own kernels are built; NaN and signed zero keep their meaning.
# What is hidden stays each kernel's own: a static in an inline function or a template is otherwise one for all of them.
HIDDEN = "-fvisibility=hidden"
CXX_FLAGS = ("-std=c++20", "-O3", "-fPIC", HIDDEN, "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-Wall")
NATIVE = "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native"


def include_folders() -> list[pathlib.Path]:
    """The header for users, and our own that it stands on: the source tree's, or the copies that were installed."""
    source = PACKAGE.parents[1] / "csrc"
    return [INCLUDE, source if (source / "core" / "half.h").exists() else INCLUDE / "csrc"]


def cache_folder() -> pathlib.Path:
    """Where compiled kernels are kept: MINITORCH_KERNEL_CACHE, or the user's cache."""
    chosen = os.environ.get("MINITORCH_KERNEL_CACHE")
    if chosen:
        return pathlib.Path(chosen).expanduser()
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "minitorch" / "kernels"


def cxx_variable() -> list[str]:
    """The words of $CXX. Raises CompileError when it has none that a shell would find."""
    try:
        return shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise CompileError(f"no C++ compiler: $CXX is {os.environ['CXX']!r}: {error}") from None


def cxx() -> str:
    """The C++ compiler: $CXX's program, or the first that is there. Raises CompileError when there is none."""
    if chosen := cxx_variable():
        if path := shutil.which(chosen[0]):
            return path
        raise CompileError(f"no C++ compiler: $CXX is {os.environ['CXX']!r}, and there is no program {chosen[0]}")
    for name in ("g++", "c++", "clang++"):
        if path := shutil.which(name):
            return path
    raise CompileError("no C++ compiler: looked for g++, c++ and clang++")


def cxx_words() -> list[str]:
    """What $CXX has after the program: flags, or the compiler that ccache starts."""
    return cxx_variable()[1:]


@functools.cache
def nvcc() -> str | None:
    """CUDA's compiler, if it is there."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")


def cuda_architecture(device: int = 0) -> str:
    """The architecture to compile CUDA for: that of the device with this index."""
    import torch

    major, minor = torch.minitorch.get_device_capability(device)
    return f"sm_{major}{minor}" if major else "native"


@functools.cache
def version(*compiler: str) -> str:
    """What the compiler says it is, and the processor: -march=native means another thing on another one."""
    try:
        done = run_program([*compiler, "--version"], pathlib.Path.cwd())
    except subprocess.TimeoutExpired:
        raise CompileError(f"{' '.join(compiler)} --version did not end within {TIME_LIMIT:g} s") from None
    info = pathlib.Path("/proc/cpuinfo")
    features = (
        next((line for line in info.read_text().splitlines() if line.startswith("flags")), "") if info.exists() else ""
    )
    return done.stdout + platform.machine() + features


@functools.cache
def share_openmp() -> None:
    """Let compiled kernels find the OpenMP that torch has loaded, so that the process keeps one pool of threads."""
    maps = pathlib.Path("/proc/self/maps")
    if not maps.exists():
        return
    for line in maps.read_text().splitlines():
        path = line.split()[-1]
        if "/libgomp" in path or "/libomp" in path or "/libiomp" in path:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            return


def run_program(command: list[str], folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run a compiler. Raises TimeoutExpired after TIME_LIMIT; then, or when interrupted, all that it started ends too.

    A compiler's driver leaves the work to others (cc1plus, the assembler), which would outlive it.
    """
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    with process:  # closes the pipes and waits
        try:
            output, message = process.communicate(timeout=TIME_LIMIT)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, message)


@contextlib.contextmanager
def told(title: str) -> Iterator[None]:
    """Inside, a compiler is at work."""
    for tell in listeners:
        tell(title)
    try:
        yield
    finally:
        for tell in listeners:
            tell("")


def _run(commands: list[list[str]], folder: pathlib.Path, title: str) -> None:
    for command in commands:
        try:
            with told(title):
                done = run_program(command, folder)
        except subprocess.TimeoutExpired:
            raise CompileError(f"{title}: the compiler did not end within {TIME_LIMIT:g} s") from None
        if done.returncode != 0:
            message = (done.stderr or done.stdout).strip()
            raise CompileError(f"{title} does not compile:\n{message}\n({' '.join(command)})")


def library(
    source: str, title: str, cuda: bool = False, flags: tuple[str, ...] = (), architecture: str = ""
) -> ctypes.CDLL:
    """The source, compiled and loaded. Raises CompileError with the compiler's message.

    The same source, flags, headers, compiler and processor are compiled once and then found in the cache.
    ``architecture``: of the GPU, "sm_90"; that of the first one if it is not given.
    """
    path = build(source, title, cuda, tuple(flags), architecture)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:  # a cache that nothing may be run from
        if (code := read_kept(path)) is None or path.parent == pathlib.Path(own_folder().name):
            raise
        warnings.warn(f"compiled kernels are not loaded from {path.parent}: {error}", stacklevel=2)
        return ctypes.CDLL(str(place(pathlib.Path(own_folder().name) / path.name, code)))


def build(
    source: str, title: str, cuda: bool = False, flags: tuple[str, ...] = (), architecture: str = ""
) -> pathlib.Path:
    """The path of the compiled library."""
    includes = [f"-I{folder}" for folder in include_folders()]
    if cuda:
        compiler = nvcc()
        if compiler is None:
            raise CompileError(f"{title}: no nvcc on the PATH or under $CUDA_HOME")
        options = [
            "-std=c++20",
            "-O3",
            f"-arch={architecture or cuda_architecture()}",
            "--expt-relaxed-constexpr",
            "-Xcompiler",
            f"-fPIC,{HIDDEN}",
            "-DMINITORCH_ARCH=cuda",
        ]
    else:
        compiler = cxx()
        options = [*cxx_words(), *CXX_FLAGS, NATIVE, "-DMINITORCH_ARCH=user"]
        share_openmp()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        file = folder / ("kernel.cu" if cuda else "kernel.cpp")
        file.write_text(source, encoding="utf-8")
        start = [compiler, *options, *includes, *flags]
        read = what_is_read(start, file, cuda, title)
        target = kept_as(".so", source, read, version(compiler, *([] if cuda else cxx_words())), *options, *flags)
        if is_whole(target):
            return target
        words = [os.path.realpath(compiler), *([] if cuda else cxx_words())]
        if cuda or any("clang" in pathlib.Path(word).name for word in words) or sys.platform == "darwin":
            commands = [[*start, "-shared", str(file), "-o", "kernel.so"]]
        else:  # linked without -fopenmp: GCC would bring a second OpenMP library
            commands = [
                [*start, "-c", str(file), "-o", "kernel.o"],
                [compiler, *cxx_words(), "-shared", "kernel.o", "-o", "kernel.so"],
            ]
        _run(commands, folder, title)
        code = (folder / "kernel.so").read_bytes()
    return keep(target, code)


def what_is_read(start: list[str], file: pathlib.Path, cuda: bool, title: str) -> str:
    """All text that a compilation reads, headers of the system too, so that one that has changed is another kernel.

    A tenth of a second. nvcc compiles twice, for host and device, with other branches of #if: of its headers the whole
    texts count.
    """
    _run([[*start, "-M" if cuda else "-E", *([] if cuda else ["-P"]), str(file), "-o", "read"]], file.parent, title)
    if not (file.parent / "read").exists():
        raise CompileError(f"{title}: {start[0]} ended well and has written nothing; is it a compiler?")
    text = (file.parent / "read").read_text(encoding="utf-8", errors="replace")
    if not cuda:
        return text
    names = re.findall(r"(?:\\ |[^\s\\])+", text.partition(":")[2])  # a space in a name has a backslash before it
    paths = [file.parent / name.replace("\\ ", " ") for name in names]
    # A #line gives the source another name, under which there is no file.
    return "".join(path.read_text(errors="replace") for path in paths if path != file and path.is_file())


def kept_as(suffix: str, *parts: str) -> pathlib.Path:
    """The name in the cache of what is made from these texts."""
    return cache_folder() / (hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24] + suffix)


def is_whole(path: pathlib.Path) -> bool:
    """Whether a file in the cache is what was written: loading half of a library kills the process."""
    return read_kept(path) is not None


def read_kept(path: pathlib.Path) -> bytes | None:
    """What was kept; None where there is nothing, or something else."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    whole = hashlib.sha256(data[:-DIGEST]).digest() == data[-DIGEST:]
    return data[:-DIGEST] if whole else None


def keep(target: pathlib.Path, code: bytes) -> pathlib.Path:
    """Write a file into the cache in one step, as another process may be doing; the path that it has.

    Where the cache cannot be written to, it goes into a folder of this process.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return place(target, code)
    except OSError as error:
        warnings.warn(f"compiled kernels are not kept, {target.parent} cannot be written to: {error}", stacklevel=2)
        return place(pathlib.Path(own_folder().name) / target.name, code)


def place(target: pathlib.Path, code: bytes) -> pathlib.Path:
    handle, name = tempfile.mkstemp(dir=target.parent)
    try:
        with open(handle, "wb") as file:
            file.write(code + hashlib.sha256(code).digest())
        os.chmod(name, 0o644)  # a cache may be of several users
        os.replace(name, target)
    except OSError:
        pathlib.Path(name).unlink(missing_ok=True)
        raise
    return target


@functools.cache
def own_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="minitorch-kernels-", ignore_cleanup_errors=True)
