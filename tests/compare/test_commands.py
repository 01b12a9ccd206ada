"""minitorch compare on scripts that behave, and on scripts that do not: the report is written and says what happened."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner

from minitorch_backend import cli
from minitorch_backend.compare import script
from minitorch_backend.compare.options import Options
from minitorch_backend.compare.report import write_data
from minitorch_backend.compare.terminal import print_report

ROOT = pathlib.Path(__file__).parents[2]
PRELUDE = "import os, sys\nimport torch\nimport minitorch_backend\nx = torch.linspace(-1, 1, 50).to('minitorch')\ny = x.exp()\n"


def compare(tmp_path, text, *options, arguments=(), prelude=PRELUDE):
    """(finished process, the records of report.jsonl by kind)."""
    file = tmp_path / "script.py"
    file.write_text(prelude + text)
    command = [sys.executable, "-m", "minitorch_backend", "compare", "-o", str(tmp_path / "out"), *options, str(file)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", "MINITORCH_FALLBACK": "error"}
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=env, cwd=tmp_path)
    records: dict[str, list] = {}
    if (tmp_path / "out" / "report.jsonl").exists():
        for line in (tmp_path / "out" / "report.jsonl").read_text().splitlines():
            record = json.loads(line)
            records.setdefault(record["kind"], []).append(record)
        assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
        assert not (tmp_path / "out" / ".work").exists()
    return done, records


def test_a_script_with_arguments(tmp_path):
    text = "import sibling\nprint('got', sys.argv[1:], __name__)\nassert sibling.ok\n"
    (tmp_path / "sibling.py").write_text("ok = True\n")
    done, records = compare(tmp_path, text, arguments=["--lr", "0.1", "file"])
    assert done.returncode == 0, done.stderr
    assert "got ['--lr', '0.1', 'file'] __main__" in done.stdout and "nothing to report" in done.stdout
    assert records["run"][0]["ended"] == "finished" and records["run"][0]["compared"] == 2


def test_findings_are_reported_with_a_replay(tmp_path):
    text = """
library = torch.library.Library("aten", "IMPL")
library.impl("sin", lambda x: x.clone(), "PrivateUse1")
def deep(x):
    return x.sin()
deep(x)
deep(x)
"""
    done, records = compare(tmp_path, text)
    assert done.returncode == 1, done.stderr
    assert records["run"][0]["ended"] == "finished"
    [finding] = records["finding"]
    assert finding["first"]["op"] == "aten::sin" and finding["first"]["verdict"] == "subject worse"
    assert finding["count"] == 2 and finding["side"] == "subject"
    assert finding["first"]["stack"][0].endswith("in deep: return x.sin()")
    assert pathlib.Path(finding["replay"]).exists() or (tmp_path / finding["replay"]).exists()
    assert "aten::sin: subject worse, first at call 2 (forward, step 0)" in done.stdout


def compare_here(tmp_path, monkeypatch, text):
    """The same in this process: (exit status of the script, data of the report)."""
    (tmp_path / "script.py").write_text(PRELUDE + text)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    work = script.prepare("script.py", [], Options(), tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    status = script.child(work)
    data = script.collect(tmp_path / "out", status)
    print_report(data)
    write_data(data, tmp_path / "out")
    return status, data


@pytest.mark.parametrize(
    ("text", "status", "ended"),
    [
        ("raise ValueError('bad luck')\n", 1, "the program raised ValueError: bad luck"),
        ("sys.exit(4)\n", 4, "the program called sys.exit(4)"),
        ("sys.exit(0)\n", 0, "the program called sys.exit(0)"),
        ("raise KeyboardInterrupt\n", 130, "interrupted"),
    ],
    ids=["raises", "exits", "exits with 0", "interrupt"],
)
def test_a_script_that_ends_early(text, status, ended, tmp_path, monkeypatch, capsys):
    done, data = compare_here(tmp_path, monkeypatch, text)
    assert done == status and data["run"]["ended"] == ended and data["run"]["compared"] == 2
    assert ended in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("text", "status", "ended"),
    [
        ("sys.stdout.flush()\nos._exit(7)\n", 3, "the process left with status 7 while or after call 1: aten::exp"),
        (
            "import ctypes\nctypes.string_at(0)\n",
            3,
            "the process was killed by SIGSEGV while or after call 1: aten::exp",
        ),
    ],
    ids=["_exit", "segfault"],
)
def test_a_script_whose_process_dies(text, status, ended, tmp_path):
    done, records = compare(tmp_path, text)
    assert done.returncode == status, done.stdout + done.stderr
    assert records["run"][0]["ended"].startswith(ended)
    assert "Traceback" not in done.stderr or "minitorch_backend/cli" not in done.stderr


def test_what_a_program_does_besides(tmp_path, monkeypatch):
    text = """
pid = os.fork()
if pid == 0:
    x.sin()
    os._exit(0)
os.waitpid(pid, 0)
torch.compile(lambda t: t.cos() + 1, backend="eager")(x)
class Passing(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
with Passing():
    x.tan()
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
"""
    try:
        status, data = compare_here(tmp_path, monkeypatch, text)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
    notes = " ".join(data["notes"])
    assert status == 0 and "forked" in notes and "torch.compile" in notes
    assert "default dtype from torch.float32 to torch.float64" in notes
    assert "deterministic algorithms from False to True" in notes
    assert "a dispatch mode of its own, Passing" in notes
    ops = {o["op"] for o in data["operators"]}
    assert "aten::cos" in ops and "aten::sin" not in ops


def test_workers_that_load_data(tmp_path):
    """Processes that a DataLoader forks are not compared; what they send is."""
    text = """
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return torch.full((3,), float(i)).sin()
total = sum(part.to("minitorch").cosh().sum().item() for part in torch.utils.data.DataLoader(Numbers(), 4, num_workers=2))
assert total > 36
"""
    done, records = compare(tmp_path, text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any("forked" in note["text"] for note in records["note"])
    calls = {o["op"]: o["calls"] for o in records["operator"]}
    assert calls["aten::cosh"] == 3 and "aten::sin" not in calls


def test_a_program_that_does_not_fit_twice(tmp_path, monkeypatch):
    """The memory that one run needs is there, that for its shadow is not: the run goes on without."""
    monkeypatch.setenv("MINITORCH_POISON", "0")  # canaries would not fit once
    text = """
import resource
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20), -1))
kept = [(torch.linspace(-i, i, 4 << 20, device="minitorch") / 3).tanh() for i in range(1, 20)]
print("through")
"""
    done, records = compare(tmp_path, text)
    assert "through" in done.stdout and done.returncode == 0, done.stdout + done.stderr
    assert "finding" not in records
    assert any("memory ran out" in note["text"] and "--streaming" in note["text"] for note in records["note"])


def test_an_operator_that_one_side_lacks(tmp_path, monkeypatch):
    text = """
torch.library.define("compare_test::mine", "(Tensor x) -> Tensor")
torch.library.impl("compare_test::mine", "PrivateUse1", lambda x: x + 1)
torch.library.define("compare_test::theirs", "(Tensor x) -> Tensor")
torch.library.impl("compare_test::theirs", "CPU", lambda x: x + 1)
torch.ops.compare_test.mine(x)
torch.ops.compare_test.theirs(x)
"""
    status, data = compare_here(tmp_path, monkeypatch, text)
    assert status == 1 and "compare_test::mine: the reference has no such operator" in " ".join(data["notes"])
    assert [(f["first"]["op"], f["first"]["verdict"]) for f in data["findings"]] == [
        ("compare_test::theirs", "subject raised")
    ]


def test_a_script_that_never_touches_the_device(tmp_path):
    done, _ = compare(tmp_path, "torch.ones(3)\n", prelude="import torch\n")
    assert done.returncode == 3 and "Nothing was compared: no operator ran on minitorch" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "5:2"], "no step lies in '5:2'"),
        (["--keep", "7"], "not of the form worst=N"),
        (["--only", "("], "Invalid value for '--only'"),
        (["--memory", "lots"], "no number of bytes"),
        (["--every", "0"], "Invalid value for '--every'"),
    ],
)
def test_usage_errors(options, message):
    result = CliRunner().invoke(cli.main, ["compare", *options, __file__])
    assert result.exit_code == 2 and message in result.output


def test_the_progress_line():
    from minitorch_backend.compare.options import Options
    from minitorch_backend.compare.progress import Progress
    from minitorch_backend.compare.recorder import Recorder

    recorder = Recorder(Options(subject="cpu", steps=(0, 10)))
    recorder.store.calls, recorder.store.compared, recorder.where.step = 12345, 600, 4
    text = Progress(recorder, recorder.options).text(seconds=2.0)
    assert text == "12,345 operator calls, 300 compared a second, step 4, about 3 s left"


def test_the_pytest_fixture(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import torch\n"
        "def work():\n    return torch.ones(4, device='minitorch').sin()\n"
        "def test_right(compare_devices):\n    with compare_devices() as report:\n        work()\n    assert report.clean\n"
        "def test_wrong(compare_devices):\n"
        "    library = torch.library.Library('aten', 'IMPL')\n"
        "    library.impl('sin', lambda x: x.clone(), 'PrivateUse1')\n"
        "    with compare_devices():\n        work()\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:minitorch",
        "-p",
        "minitorch_pytest",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "aten::sin: subject worse, first at call 1" in done.stdout and "replay: python" in done.stdout


def test_memory_that_runs_out_is_no_fault_of_an_operator(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITORCH_MEMORY_LIMIT", "64M")
    done, records = compare(tmp_path, "kept = [torch.ones(4 << 20, device='minitorch') for _ in range(8)]\n")
    assert done.returncode == 3 and "finding" not in records
    assert "OutOfMemoryError" in records["run"][0]["ended"]
    assert any("memory" in note["text"] and "--streaming" in note["text"] for note in records["note"])


@pytest.mark.parametrize("device", ["nonsense", "meta"])
def test_a_device_that_is_not_there_is_a_usage_error(tmp_path, device):
    done, records = compare(tmp_path, "", "--subject", device)
    assert done.returncode == 2 and "--subject" in done.stderr and not records
    assert "Traceback" not in done.stderr
