"""The build, every instruction set in it, and what is refused: a library for another torch, nonsense in variables."""

import ast
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import torch

from minitorch_backend import _load
from minitorch_backend.kernels import compiler

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD_INFO = json.loads((ROOT / "minitorch_backend" / "_build_info.json").read_text())


SEARCH_PATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs code in a new process that finds this source tree."""
    env = {**os.environ, "PYTHONPATH": SEARCH_PATH, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize("first", ["import torch", "import minitorch_backend", "import torch, minitorch_backend"])
def test_the_device_is_there_whatever_is_imported_first(first):
    code = first + "; import torch; print(torch.ones(2, device='minitorch').exp().device.type)"
    result = python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    assert result.stdout.strip() == "minitorch", result.stderr


def test_library_for_another_torch_names_both(tmp_path):
    info = tmp_path / "_build_info.json"
    info.write_text(json.dumps({**BUILD_INFO, "torch": "2.10.0+cpu"}))
    with pytest.raises(ImportError) as error:
        _load.check_build(info)
    assert "2.10.0+cpu" in str(error.value)
    assert str(torch.__version__) in str(error.value)


def test_library_for_another_python_is_refused(tmp_path):
    info = tmp_path / "_build_info.json"
    info.write_text(json.dumps({**BUILD_INFO, "python": "cp27"}))
    with pytest.raises(ImportError, match="cp27"):
        _load.check_build(info)


def test_the_package_has_every_header_that_sources_of_the_user_need():
    """Sources compiled at run time include these; installed there is no source tree to find the rest in."""
    names = compiler.SHARED_HEADERS
    for name in names:
        included = re.findall(r'^#include "([^"]+)"', (ROOT / "csrc" / name).read_text(), re.MULTILINE)
        assert set(included) <= set(names), name
    tree = ast.parse((ROOT / "setup.py").read_text())
    assigned = {n.targets[0].id: n.value for n in tree.body if isinstance(n, ast.Assign)}
    assert ast.literal_eval(assigned["RUNTIME_HEADERS"]) == names


def test_the_check_on_a_gpu_runs_every_test_file_once(tmp_path):
    """Those that take the whole GPU run by themselves."""
    interpreter = tmp_path / "interpreter"
    interpreter.write_text('#!/bin/sh\necho "$@"\n')
    interpreter.chmod(0o755)
    ran = {}
    for part in ("python", "alone"):
        env = {**os.environ, "PYTHON": str(interpreter), "JOBS": "2"}
        subprocess.run([ROOT / "tools/gpu_check.sh", tmp_path / part, part], env=env, check=True, capture_output=True)
        ran[part] = {
            log.stem for log in (tmp_path / part / "python").glob("*.log") if f"/{log.stem}.py" in log.read_text()
        }
        assert (tmp_path / part / "summary.txt").read_text().count("has no result") == len(ran[part])
    assert ran["alone"] == {"test_gpu_hazards", "test_large"}
    assert ran["python"] == {f.stem for f in (ROOT / "tests/python").glob("test_*.py")} - ran["alone"]


def test_the_check_on_a_gpu_records_a_whole_conformance_run(tmp_path):
    """In slices, each of which goes on where the last one stopped."""
    interpreter = tmp_path / "interpreter"
    interpreter.write_text(f'#!/bin/sh\necho "$@"\nMINITORCH_BACKEND=cpu exec {sys.executable} "$@" --op \'^none$\'\n')
    interpreter.chmod(0o755)
    env = {**os.environ, "PYTHON": str(interpreter), "JOBS": "2", "LIMIT_conformance": "100"}
    script = [ROOT / "tools/gpu_check.sh", tmp_path / "results", "conformance"]
    subprocess.run(script, env=env, check=False, capture_output=True)
    options, said = (tmp_path / "results/conformance.log").read_text().splitlines()
    assert said == "no row matches"  # so it understands the options
    whole = f"--whole --samples 2 --jobs 1 --json {tmp_path}/results/conformance.json --resume --seconds 50 --results"
    assert options == f"-m tests.conformance.run {whole}"


def test_package_that_is_not_built_says_how(tmp_path):
    with pytest.raises(ImportError, match="make setup"):
        _load.check_build(tmp_path / "_build_info.json")


@pytest.mark.parametrize(
    ("variable", "allowed"),
    [
        ("MINITORCH_ISA", BUILD_INFO["isas"][:1]),
        ("MINITORCH_FALLBACK", ["error", "warn", "allow"]),
        ("MINITORCH_POISON", ["0", "1"]),
        ("MINITORCH_BACKEND", ["cpu", "cuda"]),
    ],
)
def test_nonsense_in_a_variable_names_what_is_allowed(variable: str, allowed: list[str]):
    code = "import torch, minitorch_backend; torch.empty(3, device='minitorch').histc()"
    done = python(code, **{variable: "nonsense"})
    assert done.returncode == 1, done.stderr
    assert variable in done.stderr and "nonsense" in done.stderr
    for value in allowed:
        assert value in done.stderr


@pytest.mark.parametrize(("variable", "value"), [("MINITORCH_ISAS", "sse9"), ("MINITORCH_CUDA", "yes")])
def test_setup_refuses_nonsense(variable: str, value: str, tmp_path):
    env = {**os.environ, variable: value, "MINITORCH_BUILD_DIR": str(tmp_path / "build")}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path / "lib")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode != 0
    assert variable in done.stderr and value in done.stderr


def test_bare_import_of_torch_brings_the_device():
    """Through the entry point: only where the package is installed, as `make test` does."""
    try:
        importlib.metadata.distribution("minitorch-backend")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("minitorch is not installed in this environment")
    done = python(
        "import torch; print((torch.ones(2, device='minitorch') + 1).cpu().tolist())", TORCH_DEVICE_BACKEND_AUTOLOAD="1"
    )
    assert done.stdout.strip() == "[2.0, 2.0]", done.stderr


CUDA_LIBRARY = ROOT / "minitorch_backend" / "lib" / "libminitorch_cuda.so"
needs_cuda_library = pytest.mark.skipif(not CUDA_LIBRARY.exists(), reason="built without CUDA")


@needs_cuda_library
def test_the_cuda_library_stands_on_its_own():
    """Neither the driver nor CUDA's runtime is needed to load it: machines without a GPU have the same package."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf")
    listed = subprocess.run([readelf, "-d", str(CUDA_LIBRARY)], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(.+)\]", listed)
    assert "libminitorch.so" in needed and not [n for n in needed if "cuda" in n or "cublas" in n or "cudnn" in n]


DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
"""
TOO_OLD = "the NVIDIA driver is too old: it serves CUDA 11.4, this build needs "


@needs_cuda_library
@pytest.mark.parametrize("backend", ["cuda", ""])
@pytest.mark.parametrize(("version", "sentence"), [("11040", TOO_OLD), ("0", "no NVIDIA driver is installed")])
def test_a_driver_that_does_not_serve(version, sentence, backend, tmp_path):
    """One sentence says what is there and what is needed; unless the GPU was asked for, the device is the CPU's."""
    if (cc := shutil.which("cc") or shutil.which("gcc")) is None:
        pytest.skip("no C compiler")
    (tmp_path / "driver.c").write_text(DRIVER.replace("VERSION", version))
    command = [cc, "-shared", "-fPIC", str(tmp_path / "driver.c"), "-o", str(tmp_path / "libcuda.so.1")]
    subprocess.run(command, check=True)
    code = "import torch, minitorch_backend; print(torch.minitorch.get_device_properties().backend)"
    done = python(code, MINITORCH_BACKEND=backend, LD_LIBRARY_PATH=str(tmp_path))
    if backend == "cuda":
        assert done.returncode == 1 and sentence in done.stderr, done.stderr
    else:
        assert done.stdout == "cpu\n", done.stderr
        assert not done.stderr or sentence in done.stderr


@pytest.mark.parametrize("isa", BUILD_INFO["isas"])
def test_every_instruction_set(isa: str):
    """A choice of conformance rows on each instruction set of this build."""
    pytest.importorskip("expecttest", reason="PyTorch's table of operators needs it")
    done = python("import minitorch_backend._C as c; print(c.isa())", MINITORCH_ISA=isa, MINITORCH_BACKEND="cpu")
    if "cannot be used" in done.stderr:
        pytest.skip(f"this processor has no {isa}")
    assert done.stdout.strip() == isa, done.stderr
    operators = (
        "^(exp|add|mul|where|sum|mean|var|softmax|matmul|mm|index_select|sort|cumsum|nn_functional_(gelu|layer_norm))$"
    )
    command = [sys.executable, "-m", "tests.conformance.run", "--op", operators, "--dtype", "float32,bfloat16,int64"]
    command += ["--samples", "4", "--variant", "forward,noncontig,grad"]
    env = {**os.environ, "PYTHONPATH": SEARCH_PATH, "MINITORCH_ISA": isa, "MINITORCH_FALLBACK": "error"}
    env["MINITORCH_BACKEND"] = "cpu"
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
