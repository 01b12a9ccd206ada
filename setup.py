"""Builds minitorch: setup.py asks Python where things are, CMake and Ninja do the rest.

Environment switches (all optional):

MINITORCH_ISAS       CPU instruction sets to build, comma separated (default ``baseline,avx2,avx512``)
MINITORCH_CUDA       ``1`` builds the CUDA library, ``0`` does not (default: when nvcc and a GPU are there)
MINITORCH_CUDA_ARCHS CUDA architectures in CMake's notation (default ``80;90a-real``)
MINITORCH_SANITIZE   ``1`` builds with AddressSanitizer and UndefinedBehaviorSanitizer
MINITORCH_JOBS       parallel compile jobs (default: Ninja's own choice)
MINITORCH_BUILD_DIR  folder for CMake (default ``build/`` and a name from the versions of Python and torch)
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent.resolve()
SUPPORTED_TORCH = ((2, 11), (2, 14))
ISAS = ("baseline", "avx2", "avx512")
RUNTIME_HEADERS = (
    "core/half.h",
    "core/macros.h",
    "kernels/functors/compensated.h",
    "kernels/functors/error_function.h",
    "kernels/functors/math.h",
    "kernels/functors/math_double.h",
    "kernels/functors/math_double_inverse.h",
    "kernels/functors/polynomials.h",
)


def torch_location() -> tuple[pathlib.Path, str]:
    """Directory and version of the installed torch, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "minitorch needs torch to build against. Install it first, then use "
            "'pip install --no-build-isolation .' (or run 'make setup')."
        )
    directory = pathlib.Path(spec.origin).parent
    match = re.search(r"__version__ = '([^']+)'", (directory / "version.py").read_text())
    version = match.group(1) if match else "unknown"
    numbers = tuple(int(n) for n in version.split(".")[:2])
    low, high = SUPPORTED_TORCH
    if not low <= numbers <= high:
        raise SystemExit(
            f"minitorch builds against torch {low[0]}.{low[1]} to {high[0]}.{high[1]}; found torch {version} "
            f"in {directory}."
        )
    return directory, version


def flag(name: str) -> bool | None:
    """The environment switch as a boolean, or None when it is not set."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise SystemExit(f"{name}={value!r} is not understood; allowed are 0 and 1.")
    return None if value == "" else value == "1"


def isas() -> list[str]:
    names = os.environ.get("MINITORCH_ISAS", ",".join(ISAS)).split(",")
    unknown = [name for name in names if name not in ISAS]
    if unknown:
        raise SystemExit(f"MINITORCH_ISAS names {', '.join(unknown)}; allowed are {', '.join(ISAS)}.")
    return names


def build_cuda() -> bool:
    wanted = flag("MINITORCH_CUDA")
    nvcc = shutil.which("nvcc")
    if wanted and not nvcc:
        raise SystemExit("MINITORCH_CUDA=1 was asked for, but no nvcc is on the PATH.")
    return bool(nvcc) and os.path.exists("/dev/nvidia0") if wanted is None else wanted


class CMakeBuild(build_ext):
    """Runs CMake; the libraries land in the package directory (of the source tree when building in place)."""

    def run(self) -> None:
        torch_dir, torch_version = torch_location()
        if self.inplace or self.editable_mode:
            package = ROOT / "minitorch_backend"
        else:
            package = pathlib.Path(self.build_lib).resolve() / "minitorch_backend"
        tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        sanitize = bool(flag("MINITORCH_SANITIZE"))
        default = f"build/{tag}-torch{torch_version}{'-sanitize' if sanitize else ''}"
        build = ROOT / os.environ.get("MINITORCH_BUILD_DIR", default)
        cuda = build_cuda()
        on_off = {True: "ON", False: "OFF"}
        configure = [
            "cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja",
            f"-DMINITORCH_TORCH_DIR={torch_dir}",
            f"-DMINITORCH_PYTHON_INCLUDE={sysconfig.get_paths()['include']}",
            f"-DMINITORCH_EXT_SUFFIX={sysconfig.get_config_var('EXT_SUFFIX')}",
            f"-DMINITORCH_OUTPUT_DIR={package}",
            f"-DMINITORCH_ISAS={';'.join(isas())}",
            f"-DMINITORCH_SANITIZE={on_off[sanitize]}",
            f"-DMINITORCH_CUDA={on_off[cuda]}",
        ]  # fmt: skip
        archs = os.environ.get("MINITORCH_CUDA_ARCHS")  # not set: CMake's default, whatever the folder was built for
        configure.append(f"-DMINITORCH_CUDA_ARCHS={archs}" if archs else "-UMINITORCH_CUDA_ARCHS")
        compile_ = ["cmake", "--build", str(build)]
        if jobs := os.environ.get("MINITORCH_JOBS"):
            compile_ += ["--parallel", jobs]
        package.mkdir(parents=True, exist_ok=True)
        subprocess.run(configure, check=True)
        subprocess.run(compile_, check=True)
        # What sources compiled at run time may include (minitorch_backend/kernels); a source tree uses csrc itself.
        for header in RUNTIME_HEADERS:
            target = package / "kernels" / "include" / "csrc" / header
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "csrc" / header, target)
        info = {"torch": torch_version, "python": tag, "isas": isas(), "cuda": cuda, "sanitize": sanitize}
        (package / "_build_info.json").write_text(json.dumps(info, indent=1) + "\n")

    def get_outputs(self) -> list[str]:
        return []


setup(ext_modules=[Extension("minitorch_backend._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
