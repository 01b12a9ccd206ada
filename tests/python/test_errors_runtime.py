"""What the runtime says when it cannot do what was asked: environment variables, builds, missing devices."""

import json
import os
import subprocess
import sys

import pytest
import torch

from minitorch_backend import _load


def fresh(code: str, **environment: str) -> subprocess.CompletedProcess:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)


NONSENSE = [
    ("MINITORCH_BACKEND", "tpu", "cpu, cuda"),
    ("MINITORCH_ISA", "sse9", "baseline, avx2, avx512"),
    ("MINITORCH_FALLBACK", "maybe", "error, warn, allow"),
    ("MINITORCH_POISON", "yes", "0, 1"),
    ("MINITORCH_MEMORY_LIMIT", "lots", "a positive number of bytes"),
    ("MINITORCH_MEMORY_LIMIT", "-1", "a positive number of bytes"),
]


def test_nonsense_in_a_variable_is_an_import_error_that_lists_what_is_allowed():
    """All in one process: a failed import leaves torch as it was, and the next one may succeed."""
    code = f"""
import os, sys, torch
for name, value, allowed in {NONSENSE!r}:
    kept = os.environ.pop(name, "")
    os.environ[name] = value
    try:
        import minitorch_backend
        print("accepted", name, value)
    except ImportError as e:
        assert f"{{name}}={{value!r}} is not understood" in str(e) and allowed in str(e), str(e)
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"
    os.environ[name] = kept
import minitorch_backend
print(torch.ones(2).to("minitorch").device)
"""
    done = fresh(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout == "minitorch:0\n", done.stdout + done.stderr


def test_other_variables_and_empty_ones_are_no_error():
    done = fresh("import minitorch_backend", MINITORCH_WHATEVER="1", MINITORCH_BACKEND="", MINITORCH_ISA="")
    assert done.returncode == 0, done.stderr


def test_a_misspelt_variable_is_told_once():
    done = fresh("import minitorch_backend", MINITORCH_FALBACK="error", MINITORCH_WHATEVER="1")
    assert done.returncode == 0, done.stderr
    told = "MINITORCH_FALBACK is not known to minitorch and has no effect; MINITORCH_FALLBACK is."
    assert done.stderr.count(told) == 1, done.stderr
    assert "WHATEVER" not in done.stderr


def test_cuda_without_a_gpu_says_what_was_looked_for():
    if torch.minitorch.get_device_properties().backend == "cuda":
        pytest.skip("there is a GPU")
    done = fresh("import minitorch_backend", TORCH_DEVICE_BACKEND_AUTOLOAD="0", MINITORCH_BACKEND="cuda")
    assert done.returncode == 1
    assert "MINITORCH_BACKEND=cuda was asked for, but there is no CUDA backend: " in done.stderr


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_an_instruction_set_by_name(isa):
    code = "import torch, minitorch_backend; print(torch.minitorch.get_device_properties().isa)"
    done = fresh(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", MINITORCH_ISA=isa, MINITORCH_BACKEND="cpu")
    if done.returncode == 0:
        assert done.stdout.strip() == isa
    else:
        assert f"MINITORCH_ISA='{isa}' cannot be used; this build on this processor allows: " in done.stderr


def write_info(path, **changes):
    info = {"torch": str(torch.__version__), "python": f"cp{sys.version_info.major}{sys.version_info.minor}", **changes}
    path.write_text(json.dumps(info))
    return path


def test_a_library_built_for_another_torch_names_both(tmp_path):
    with pytest.raises(ImportError) as e:
        _load.check_build(write_info(tmp_path / "info.json", torch="1.2.3"))
    assert "1.2.3" in str(e.value) and str(torch.__version__) in str(e.value)
    _load.check_build(write_info(tmp_path / "info.json"))


def test_a_library_built_for_another_python_or_not_at_all(tmp_path):
    with pytest.raises(ImportError, match="built for cp39"):
        _load.check_build(write_info(tmp_path / "info.json", python="cp39"))
    with pytest.raises(ImportError, match="not built"):
        _load.check_build(tmp_path / "absent.json")


def test_registering_twice_does_nothing():
    _load.register()
    assert torch._C._get_privateuse1_backend_name() == "minitorch"


def test_the_error_of_one_thread_does_not_disturb_another():
    import threading

    errors, results = [], []

    def bad():
        try:
            torch.empty(1, device="minitorch:99")
        except RuntimeError as e:
            errors.append(str(e))

    threads = [threading.Thread(target=bad) for _ in range(4)]
    threads.append(threading.Thread(target=lambda: results.append((torch.ones(2).to("minitorch") + 1).tolist())))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(errors) == 4 and all("minitorch:99" in e for e in errors)
    assert results == [[2.0, 2.0]]
