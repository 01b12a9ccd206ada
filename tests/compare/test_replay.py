"""Replay files: they hold exactly what the call had, run on a stock torch, and shrink."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

from minitorch_backend import compare
from minitorch_backend.compare import judge, replay
from minitorch_backend.compare.replay_runtime import judge_case
from minitorch_backend.compare.shrink import measure, shrink_file, windows
from tests.compare.faults import FAULTS, Fault, planted
from tests.compare.models import RUNS

BY_NAME = {f.name: f for f in FAULTS}


def record(fault, folder, work):
    """(finding, planted fault) of a run that writes replay files."""
    report = None
    try:
        with compare.session(replay=folder) as report:
            work()
    except RuntimeError:
        pass
    return report.culprit


@pytest.mark.parametrize(
    "name",
    [
        "wrong strides of a result",
        "view that copies",
        "input overwritten",
        "version counter moved",
        "in-place write missed",
        "fp16 accumulation",
        "dropout draws other numbers",
        "running statistics stale",
        "operator raises",
        "causal mask off by one",
        "sum in random order",
        "NaN swallowed",
    ],
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_replay_has_the_verdict_of_the_run(name, tmp_path):
    fault = BY_NAME[name]
    with planted(fault):
        found = record(fault, tmp_path, lambda: RUNS[fault.model]("minitorch", steps=1))
        assert found.first.verdict == fault.verdict and found.replay
        case, subject, reference = replay.load(found.replay)
        assert judge_case(case, subject, reference).verdict == fault.verdict
    # The right kernel agrees on the same inputs.
    assert judge_case(case, subject, reference).verdict not in judge.BAD


def broken_add(right, a, b, *, alpha=1):
    y = right(a, b, alpha=alpha)
    y.view(-1)[-1:] += 1
    return y


BROKEN_ADD = Fault("broken", "CNN", "aten::add.Tensor", judge.SUBJECT_WORSE, broken_add)


def finding_of(folder, work):
    with planted(BROKEN_ADD):
        return record(BROKEN_ADD, folder, work)


def test_inputs_come_back_exactly(tmp_path):
    base = torch.randn(9, 10)
    base[0, 0], base[1, 1], base[2, 2] = float("nan"), float("-inf"), -0.0
    x = base.to("minitorch")
    a, b = x[1:5, 2:8:2].t(), x[2:5, 3:7]  # strides, offsets, one storage
    found = finding_of(tmp_path, lambda: torch.add(a, b, alpha=0.5))
    case, _, _ = replay.load(found.replay)
    args, kwargs, storages = case.build("cpu")
    assert len(storages) == 1 and kwargs == {"alpha": 0.5}
    for mine, original in zip(args, (a, b), strict=True):
        assert (mine.shape, mine.stride(), mine.storage_offset()) == (
            original.shape, original.stride(), original.storage_offset(),
        )  # fmt: skip
        assert judge.same_bits(mine.contiguous(), original.cpu().contiguous())
    assert args[0].untyped_storage().data_ptr() == args[1].untyped_storage().data_ptr()


def run_file(file, *arguments, **environment):
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2]), **environment}
    return subprocess.run([sys.executable, str(file), *arguments], capture_output=True, text=True, env=env)


@pytest.mark.parametrize("size", [20, 40_000], ids=["inline", "safetensors"])
def test_the_file_runs_by_itself(size, tmp_path):
    found = finding_of(tmp_path, lambda: torch.add(torch.randn(size).to("minitorch"), 1))
    assert (pathlib.Path(found.replay).with_suffix(".safetensors").exists()) == (size > 20)
    # The fault is not there in another process, so both devices agree: exit status 0.
    done = run_file(found.replay)
    assert done.returncode == 0 and "recorded verdict: subject worse" in done.stdout, done.stderr
    # Without minitorch: the autoload is off and the package cannot be imported.
    (tmp_path / "minitorch_backend.py").write_text("raise ImportError('not here')\n")
    away = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": str(tmp_path)}
    done = run_file(found.replay, **away)
    assert done.returncode == 0 and "minitorch is not here" in done.stdout, done.stderr
    done = run_file(found.replay, "--subject", "minitorch", **away)
    assert done.returncode == 2 and "no device 'minitorch'" in done.stderr


def test_the_file_exits_with_1_while_the_verdict_holds(tmp_path):
    found = finding_of(tmp_path, lambda: torch.add(torch.randn(20).to("minitorch"), 1))
    # A kernel that is wrong in the other process too.
    plant = "import torch\nlibrary = torch.library.Library('aten', 'IMPL')\n"
    plant += "library.impl('add.Tensor', lambda a, b, alpha=1: a.clone(), 'PrivateUse1')\n"
    file = tmp_path / "planted.py"
    text = pathlib.Path(found.replay).read_text()
    file.write_text(text.replace('if __name__ == "__main__":\n', plant + 'if __name__ == "__main__":\n'))
    done = run_file(file)
    assert done.returncode == 1 and re.search(r"verdict: +subject worse", done.stdout), done.stdout + done.stderr


def test_shrinking_keeps_the_verdict(tmp_path):
    x = torch.randn(8, 30).to("minitorch")
    with planted(BROKEN_ADD):
        found = record(BROKEN_ADD, tmp_path, lambda: torch.add(x[2:, 3:27:2], x[0, :12]))
        before, after, tries = shrink_file(pathlib.Path(found.replay), tmp_path / "small.py", None, None)
        assert judge_case(after, "minitorch", "cpu").verdict == judge.SUBJECT_WORSE
    assert measure(before)[1] == 6 * 12 + 12
    assert measure(after)[1] <= 3 and tries < 200
    assert all(w.offset == 0 for w in windows(after))
    assert judge_case(replay.load(tmp_path / "small.py")[0], "minitorch", "cpu").verdict not in judge.BAD


def test_shrinking_refuses_what_does_not_hold(tmp_path):
    found = finding_of(tmp_path, lambda: torch.add(torch.randn(20).to("minitorch"), 1))
    with pytest.raises(ValueError, match="does not hold: recorded 'subject worse'"):
        shrink_file(pathlib.Path(found.replay), tmp_path / "small.py", None, None)


def test_shrinking_sizes_that_indices_reach_into(tmp_path):
    def wrong(right, weight, index, *args):
        return right(weight, index, *args) + 1

    fault = Fault("wrong", "GPT", "aten::embedding", judge.SUBJECT_WORSE, wrong)
    with planted(fault):
        weight, index = torch.randn(50, 8).to("minitorch"), torch.tensor([[49, 3], [7, 20]]).to("minitorch")
        found = record(fault, tmp_path, lambda: torch.nn.functional.embedding(index, weight))
        _, after, _ = shrink_file(pathlib.Path(found.replay), tmp_path / "small.py")
    assert {w.shape for w in windows(after)} == {(1, 1)}
