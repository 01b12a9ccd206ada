"""Diff between two of torch's own devices, cuda held against cpu, on a machine with a GPU.

    MINITORCH_BACKEND=none python -m tests.compare.cuda

Needs no build of minitorch: this is how a writer of kernels elsewhere uses it. Training runs without a fault must leave
nothing to report, the planted faults that cuda's operators allow must be named, and their replay files must say the same
on both devices. Prints a line each and exits with the number of those that failed.
"""

import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import torch

from minitorch_backend import compare
from minitorch_backend.compare.commands import parse_device
from minitorch_backend.compare.shrink import measure, shrink_file
from tests.compare.faults import FAULTS, planted, run_fault
from tests.compare.models import RUNS

DEVICE = "cuda"
REPLAYED = ("vector tail not computed",)


def unplanted() -> Iterator[tuple[str, str]]:
    for name, run in RUNS.items():
        for thorough in (False, True):
            report = compare.run(lambda run=run: run(DEVICE), subject=DEVICE, thorough=thorough)
            calls = [f.first for f in report.findings]
            found = [
                (c.op, c.verdict, c.detail, c.subject_norm, c.reference_norm, c.condition, c.result) for c in calls
            ]
            problem = report.error or "" if report.ended != "finished" else ""
            notes = [n for n in report.store.notes if "could not" in n or "no such operator" in n]
            what = f"{name}{', thorough' if thorough else ''}: {report.store.compared} calls"
            yield what, problem or "; ".join(map(str, [*found, *notes]))


def faults() -> Iterator[tuple[str, str]]:
    for fault in FAULTS:
        if fault.op.startswith("minitorch::") or "overrideable" in fault.op:
            continue
        try:
            result = run_fault(fault, DEVICE, keep=0)
        except RuntimeError as error:
            yield fault.name, f"cannot be planted: {str(error).splitlines()[0]}"
            continue
        struck = result.first >= 0 or result.report.culprit is not None
        yield fault.name, result.problem() if struck else f"{fault.op} is not called on {DEVICE}"


def replays() -> Iterator[tuple[str, str]]:
    """A replay file written on cuda holds and shrinks while the kernel is wrong, and holds no longer with the right one."""
    for fault in FAULTS:
        if fault.name not in REPLAYED:
            continue
        with tempfile.TemporaryDirectory() as folder:
            with planted(fault, DEVICE):
                with compare.session(subject=DEVICE, replay=folder) as report:
                    RUNS[fault.model](DEVICE, steps=1)
                file = pathlib.Path(report.culprit.replay)
                small = file.with_suffix(".small.py")
                before, after, tries = shrink_file(file, small)
            sizes = " to ".join(str(measure(case)[0]) for case in (before, after))
            for path in (file, small):
                said = subprocess.run([sys.executable, path], capture_output=True, text=True)
                right = said.returncode == 0 and "subject cuda, reference cpu" in said.stdout
                what = f"replay of '{fault.name}', {sizes} bytes in {tries} tries, {path.name}"
                yield what, "" if right else said.stdout + said.stderr


def command() -> Iterator[tuple[str, str]]:
    """The command line, on a script of the user's."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "script.py"
        script.write_text("import torch\nx = torch.randn(9, 9, device='cuda')\n(x @ x).softmax(0).sum().item()\n")
        line = [sys.executable, "-m", "minitorch_backend", "compare", "--subject", DEVICE, "-o", folder, script]
        said = subprocess.run(line, capture_output=True, text=True)
        right = said.returncode == 0 and "nothing to report" in said.stdout
        yield "minitorch compare --subject cuda", "" if right else said.stdout + said.stderr


def main() -> int:
    parse_device(DEVICE)
    torch.backends.cudnn.allow_tf32 = False  # or convolutions are rightly said to be worse than the reference's
    torch.backends.cudnn.deterministic = True
    failed = 0
    print(torch.__version__, torch.cuda.get_device_name())
    for part in (unplanted, faults, replays, command):
        start = time.perf_counter()
        for what, problem in part():
            failed += bool(problem)
            print(f"{'WRONG' if problem else 'right'}  {what}{': ' + problem if problem else ''}", flush=True)
        print(f"{part.__name__}: {time.perf_counter() - start:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
