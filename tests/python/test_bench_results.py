"""The benchmark's result files: written visit by visit, read again, and not compared with what they cannot be."""

import json
import math

import pytest
import torch

from minitorch_backend.bench import limits, machine, results
from minitorch_backend.bench.results import Result, Run


def test_result_files_come_back(tmp_path):
    path = tmp_path / "r.jsonl"
    writer = results.Writer(
        path, machine.describe() | {"rival": "cpu"}, limits.Limits({8: 1.0}, {8: 2.0}, {"float32": 3.0})
    )
    result = Result("f/a", "f", rival="cpu", seconds={"cpu": 2.0, "minitorch": 1.0}, ratio=2.0, low=1.9, high=math.inf)
    writer.add(result)
    writer.close()
    run = results.read(path)
    assert run.limits.copy == {8: 1.0} and run.machine["torch"] == torch.__version__
    assert run.results["f/a"].ratio == 2.0 and run.results["f/a"].high is None and run.results["f/a"].estimate is None
    path.write_text("nonsense\n")
    with pytest.raises(ValueError, match=r"r\.jsonl:1 is not a line of a result file"):
        results.read(path)


def test_a_case_has_a_line_a_visit_and_the_last_one_stays(tmp_path):
    path = tmp_path / "r.jsonl"
    writer = results.Writer(path, {"device": "x"}, limits.Limits())
    result = Result("f/a", "f", rival="cpu", ratio=2.0, low=1.9, high=2.1)
    for ratio in (2.0, 2.2):
        figures = [ratio, ratio - 0.1, ratio + 0.1, 0.01]
        result.visits.append(results.Visit("near", 80.0, 9, {"cpu": 2.0, "minitorch": 1.0}, figures, raced=0.5))
        writer.add(result)
    assert len(path.read_text().splitlines()) == 4 and results.read(path).results["f/a"] == result
    writer.close({"near": 0.9})
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == [
        "machine", "limits", "placement", "case",
    ]  # fmt: skip
    assert results.read(path).results["f/a"] == result and list(tmp_path.iterdir()) == [path]


def test_files_of_the_first_format_are_read(tmp_path):
    path = tmp_path / "old.jsonl"
    case = {"kind": "case", "name": "f/a", "family": "f", "rival": "cpu", "ratio": 2.0, "low": 1.9, "high": 2.1}
    limit = {"kind": "limits", "copy": {}, "read": {}, "peak": {}}
    lines = [{"kind": "machine", "format": 1, "device": "x"}, limit, case]
    path.write_text("\n".join(map(json.dumps, lines)))
    old = results.read(path)
    assert old.results["f/a"].visits == [] and old.results["f/a"].placement == ""
    new = Run({"device": "x", "malloc": "default"}, None, {"f/a": Result("f/a", "f", rival="cpu", ratio=1.5, low=1.5,
                                                                        high=1.5, placement="near")})  # fmt: skip
    assert [change.verdict for change in results.compare(old, new)] == ["slower"] and results.refuse(old, new) == ""
    assert "malloc: default and pinned" in results.refuse(old, Run({"device": "x", "malloc": "pinned"}, None, {}))
    lines[0]["format"] = 3
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(ValueError, match="another version of the benchmark"):
        results.read(path)


def test_another_machine_is_refused():
    a, b = Run({"device": "x", "torch": "2.13"}, None, {}), Run({"device": "y", "torch": "2.13"}, None, {})
    assert results.refuse(a, b) == "the runs are not from the same machine and versions: device: x and y"
    assert results.refuse(a, a) == ""
