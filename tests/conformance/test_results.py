"""The results of the last whole run are those of this tree's claims, and the pages say what they say."""

import importlib.util
import pathlib

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from minitorch_backend import coverage
from minitorch_backend.bench import machine
from tests import older_torch
from tests.conformance import results
from tests.conformance.checks import applies
from tests.conformance.expected_failures import EXPECTED_FAILURES, Expected, expected_on, reason
from tests.conformance.families import CLAIMED
from tests.conformance.run import record
from tests.conformance.variants import SAMPLES, VARIANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPS = {op.formatted_name: op for op in op_db}

pytestmark = pytest.mark.skipif(older_torch.version(torch.__version__) < (2, 13), reason="results are for torch 2.13")


def test_results_cover_the_claims():
    run = results.read()
    assert tuple(run["variants"]) == VARIANTS and run["about"]["samples"] in ("all", SAMPLES)
    expected = {(op, str(d).removeprefix("torch.")) for op in CLAIMED for d in OPS[op].supported_dtypes("cpu")}
    found = {(op, dtype) for op, dtypes in run["rows"].items() for dtype in dtypes}
    assert found == expected, "run `make conformance` and `make coverage`"


def test_failures_are_those_expected():
    """An expected failure is one in the results, and every other row passes or has nothing to check."""
    used, where = set(), (torch.__version__, "cpu")
    for op, dtypes in results.read()["rows"].items():
        for dtype, letters in dtypes.items():
            for variant, letter in zip(VARIANTS, letters, strict=True):
                why = reason(op, variant, dtype, where)
                if not applies(OPS[op], getattr(torch, dtype), variant):
                    assert letter == "-", (op, dtype, variant)
                elif letter != "-":
                    assert letter == ("p" if why is None else "x"), (op, dtype, variant)
                used.add((op, why) if letter == "x" else None)
    assert {(e.op, e.reason) for e in expected_on(*where)} <= used


def test_failures_on_a_gpu_are_those_expected_there():
    run = results.read(results.CUDA_PATH)
    where = (run["about"]["torch"], "cuda")
    failing = {
        (op, variant, dtype): letter
        for op, dtypes in run["rows"].items()
        for dtype, letters in dtypes.items()
        for variant, letter in zip(VARIANTS, letters, strict=True)
        if letter not in "p-"
    }
    for (op, variant, dtype), letter in failing.items():
        assert letter == ("F" if reason(op, variant, dtype, where) is None else "x"), (op, variant, dtype)
    for e in expected_on(*where):
        assert any(row[0] == e.op and row[1] in e.variants.split() for row in failing), e


def test_an_expected_failure_is_of_its_torch_and_backend():
    e = Expected("exp", "vmap func", "float32", "why", before="2.13", backend="cuda")
    assert e.counts("2.11.0+cu130", "cuda") and e.counts("2.12.1", "cuda")
    assert not e.counts("2.13.0+cpu", "cuda") and not e.counts("2.14.0a0", "cuda") and not e.counts("2.11.0", "cpu")
    anywhere = Expected("exp", "forward", None, "why")
    assert anywhere.counts("2.11.0", "cpu") and anywhere.counts("2.14.0", "cuda")
    assert all(e.before in ("", "2.12", "2.13") and e.backend in ("", "cpu", "cuda") for e in EXPECTED_FAILURES)


def coverage_tool():
    spec = importlib.util.spec_from_file_location("coverage_tool", ROOT / "tools/coverage.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_a_run_on_a_gpu_is_recorded_and_shown(monkeypatch, tmp_path):
    """Beside the CPU's, which stays; with what fails."""
    path = tmp_path / "results-cuda.json"
    facts = {"backend": "cuda", "device": "A GPU", "torch": "2.13.0+cu130", "commit": "c" * 40, "date": "2026-01-02T03"}
    monkeypatch.setattr(machine, "describe", lambda: facts)
    monkeypatch.setattr(results, "CUDA_PATH", path)
    monkeypatch.setattr(results, "PATH", tmp_path / "results.json")
    status = {"forward": "pass", "out": "fail", "errors": "crash"}
    rows = [{"op": "exp", "dtype": "float32", "variant": v, "status": s} for v, s in status.items()]
    record(rows, "2", good=False)
    assert [file.name for file in tmp_path.iterdir()] == ["results-cuda.json"]
    text = "\n".join(coverage_tool().on_cuda(results.read(path)))
    assert "A GPU, torch 2.13.0+cu130, commit cccccccccc, 2026-01-02, at most 2 sample inputs" in text
    assert "3 rows, 1 pass" in text and "2 fail" in text and "- `exp` float32: out, errors" in text


def test_few_rows_are_expected_to_fail():
    total = sum(results.counts(results.read()["rows"]).values(), start=results.collections.Counter())
    assert total["x"] <= 0.01 * (total["p"] + total["x"])


def test_pages_are_current():
    tool = coverage_tool()
    readme = (ROOT / "README.md").read_text()
    assert tool.badge(results.read()) in readme, "run `make coverage`"
    assert tool.page(coverage.operators(), results.read()) == (ROOT / "docs/coverage.md").read_text(), (
        "run `make coverage`"
    )


def test_a_run_on_a_gpu_records_what_fails():
    def row(variant, status):
        return {"op": "exp", "dtype": "float32", "variant": variant, "status": status}

    rows = [row("forward", "pass"), row("noncontig", "fail"), row("layouts", "crash"), row("grad", "none")]
    assert results.table_of(rows, results.on_cuda)["exp"]["float32"] == "pFF" + "-" * (len(VARIANTS) - 3)
    with pytest.raises(KeyError):
        results.table_of(rows)
