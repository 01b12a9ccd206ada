"""The demo's verdict: what makes it fail, and that its exit status and its files say so."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import side_by_side
from side_by_side import BAND, EARLY_STEPS, Result, problems

GOOD = [2.0] * (EARLY_STEPS + 2)


def verdict(losses=GOOD, **ours) -> list[str]:
    reference = Result(losses=GOOD, accuracy=0.99)
    return problems("digits", {"cpu": reference, "minitorch": Result(losses=losses, **{"accuracy": 0.98, **ours})})


def test_agreement_is_no_problem():
    assert verdict() == []
    assert verdict([*GOOD[:-1], 2.0 * (1 + BAND["digits"] / 2)], fallbacks={}) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"losses": [2.01, *GOOD[1:]]}, "in the first"),
        ({"losses": [*GOOD[:-1], 2.0 * (1 + BAND["digits"] * 2)]}, "losses differ by"),
        ({"losses": [*GOOD[:-1], float("nan")]}, "not finite"),
        ({"losses": [*GOOD[:-1], float("inf")]}, "not finite"),
        ({"fallbacks": {"aten::foo": 3}}, "ran on native CPU: aten::foo (3)"),
        ({"accuracy": 0.5}, "accuracy on minitorch is 50.0% (at least 97%)"),
    ],
)
def test_each_failure_is_named(options, problem):
    assert any(problem in found for found in verdict(**options)), verdict(**options)


def test_two_devices_that_both_overflow_do_not_agree():
    both = Result(losses=[*GOOD[:-1], float("inf")])
    assert len(problems("gpt", {"cpu": both, "minitorch": both})) == 2


def test_exit_status_and_files(tmp_path, monkeypatch, capsys):
    """A few steps agree, but cannot reach the accuracy."""
    arguments = ["--no-memory", "--only", "digits", "--steps", "12", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", *arguments])
    assert side_by_side.main() == 1
    output = capsys.readouterr().out
    assert "The devices agree." not in output
    devices = side_by_side.partners()[0]
    assert [f"step {step} of 12" in output for step in (1, 6, 12)] == [True] * 3  # no bar where there is no terminal
    figures = json.loads((tmp_path / "side_by_side.json").read_text())
    assert len(figures["problems"]) == len(devices) and all("accuracy" in problem for problem in figures["problems"])
    assert figures["largest_difference"]["digits"] < side_by_side.EARLY_BAND
    assert figures["results"]["digits"]["minitorch"]["fallbacks"] == {}
    assert [len(figures["results"]["digits"][d]["losses"]) for d in devices] == [12, 12]
    assert (tmp_path / "side_by_side.png").stat().st_size > 1000

    monkeypatch.setattr(side_by_side, "ACCURACY", 0.0)
    assert side_by_side.main() == 0
    assert "The devices agree." in capsys.readouterr().out
    assert json.loads((tmp_path / "side_by_side.json").read_text())["problems"] == []


def test_too_few_steps_to_be_timed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", "--steps", "10"])
    with pytest.raises(SystemExit) as ended:
        side_by_side.main()
    assert ended.value.code == 2 and "--steps must be above 10" in capsys.readouterr().err
