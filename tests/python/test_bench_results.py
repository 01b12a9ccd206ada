"""The benchmark's result files: written visit by visit, read again, and not compared with what they cannot be."""

import json
import math
import pathlib
import re

import pytest
import torch
from click import ClickException
from rich.console import Console

from minitorch_backend.bench import command, limits, machine, results
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


@pytest.mark.parametrize("key", (*machine.SAME_MACHINE, *machine.SAME_VERSION))
def test_whatever_makes_another_machine_or_version_is_refused_by_name(key):
    here = {name: 1 for name in (*machine.SAME_MACHINE, *machine.SAME_VERSION)}
    then = Run(here | {key: 2}, None, {})
    said = results.refuse(then, Run(here, None, {}))
    assert said == f"the runs are not from the same machine and versions: {key}: 2 and 1"
    with pytest.raises(ClickException, match=f"{key}: 2 and 1. --force compares them all the same"):
        command.check_comparable(then, Run(here, None, {}), force=False)
    assert command.check_comparable(then, Run(here, None, {}), force=True) == said


def raced(rival="cpu", ours="minitorch", name="f/a", ratio=2.0, **facts):
    """A run of one case, as it is written and read again."""
    seconds = {rival: 2e-3, ours: 1e-3}
    result = Result(name, "f", rival=rival, seconds=seconds, ratio=ratio, low=ratio, high=ratio)
    return Run({"device": "x", "rival": rival, **facts}, limits.Limits(), {name: result})


@pytest.mark.parametrize(
    "other,says",
    [
        (raced("cpu compiled"), "rival: cpu compiled and cpu"),
        (raced(ours="cpu again"), "ours: cpu again and minitorch"),
        (raced(ours="mine", kernel="mine.py 1234"), "kernel: mine.py 1234 and None"),
        (raced(environment={"MINITORCH_POISON": "1"}), "environment: {'MINITORCH_POISON': '1'} and {}"),
    ],
    ids=["rival", "ours", "kernel", "environment"],
)
def test_another_race_is_refused(other, says, tmp_path):
    """... by what the file says of it, or by its cases in a file from before it did."""
    assert says in results.refuse(other, raced())
    assert says in results.refuse(other, Run({"device": "x", "rival": "cpu", "ours": "minitorch"}, None, {}))
    assert results.refuse(raced(), raced(ours="minitorch", environment={})) == ""


def test_a_comparison_of_nothing_is_an_error():
    console = Console(quiet=True)
    done = list(raced().results.values())
    assert command.gate(done, raced(), raced(), False, console) == []
    assert command.gate(done, raced(name="f/b"), raced(), False, console) == [command.NOTHING_COMPARED]
    with pytest.raises(ClickException, match="rival: cpu compiled and cpu"):
        command.gate(done, raced("cpu compiled"), raced(), False, console)
    (slower,) = command.gate(done, raced("cpu compiled", ratio=3.0), raced(), True, console)
    assert slower.startswith("slower")
    with pytest.raises(ClickException, match="has no case that could be compared"):
        command.check_common(raced(), ["f/b", "f/c"])


def test_a_comparison_that_judges_no_case_is_an_error():
    """Processors that were near in one run and far in the other."""
    console = Console(record=True, width=200)
    old, new = raced(), raced()
    old.results["f/a"].placement, new.results["f/a"].placement = "near", "far"
    for run in (old, new):
        run.results["f/b"] = Result("f/b", "f", rival="cpu", ratio=1.0, low=0.9, high=1.1)
    assert command.gate([], old, new, False, console) == []
    assert "1 of 2 cases were not judged: the processors" in console.export_text()
    new.results["f/b"].name = "f/c"
    del old.results["f/b"]
    assert command.gate([], old, new, False, console) == [command.NOTHING_COMPARED]


WRONG_VALUES = {
    "ratio of text": ({"ratio": "2"}, "ratio is '2', which is not float | None"),
    "no ratio": ({"ratio": 0}, "ratio is 0, not above 0"),
    "negative": ({"low": -1.0}, "low is -1.0, below 0"),
    "not a number": ({"high": math.nan}, "NaN is not a figure"),
    "times": ({"seconds": {"cpu": "1 ms"}}, "seconds is {'cpu': '1 ms'}"),
    "no time": ({"seconds": {"cpu": 0.0}}, "cpu is 0.0, not above 0"),
    "a list": ({"peak": [1, 2]}, "peak is [1, 2]"),
    "truth": ({"rounds": True}, "rounds is True, which is not int"),
    "a name": ({"name": 5}, "name is 5, which is not str"),
    "visits": ({"visits": [{"placement": "near", "latency": None, "rounds": 1, "seconds": {}, "ratio": [1, "2", 3, 0]}]},
               "ratio is [1, '2', 3, 0]"),
    "a visit's ratio": ({"visits": [{"placement": "", "latency": None, "rounds": 1, "seconds": {}, "ratio": [0, 0, 1, 0]}]},
                        "ratio is 0, not above 0"),
    "a limit": (None, "copy is {8: 'fast'}"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_values_that_are_none_are_said(tmp_path, name):
    values, says = WRONG_VALUES[name]
    path = tmp_path / "r.jsonl"
    case = {"kind": "case", "name": "f/a", "family": "f", "ratio": 2.0, "low": 1.9, "high": 2.1}
    limit = {"kind": "limits", "copy": {"8": "fast" if values is None else 1}, "read": {}, "peak": {}}
    lines = [{"kind": "machine", "format": 2}, limit, case | (values or {})]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ValueError, match=r"r\.jsonl:\d is not a line of a result file") as found:
        results.read(path)
    assert says in str(found.value)


def test_a_visit_that_tells_nothing_comes_back(tmp_path):
    visit = results.Visit(
        "near", None, 1, {"cpu": 1.0}, [1.0, 0.0, math.inf, math.inf], {"again": [1.0, 0.0, math.inf, math.inf]}
    )
    known = Result("f/a", "f", ratio=1.0, low=0.0, high=2.0, visits=[visit])
    results.Writer(tmp_path / "r.jsonl", {"device": "x"}, limits.Limits(), [known]).close()
    assert results.read(tmp_path / "r.jsonl").results["f/a"] == known


def test_memory_and_driver_make_a_machine(tmp_path, monkeypatch):
    here = {"memory": 24 * 2**30, "driver": "570.1"}
    assert machine.differences(here, here | {"memory": here["memory"] - 2**20}) == []
    assert machine.differences(here, here | {"memory": 2 * here["memory"]})[0].startswith("memory: ")
    assert machine.differences(here, here | {"driver": "580.2"}) == ["driver: 570.1 and 580.2"]
    assert machine.differences(here, {}) == []  # of files from before these were kept
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "version")
    assert machine.driver() == ""
    for kind in ("Kernel Module ", "Open Kernel Module for x86_64 "):
        machine.DRIVER.write_text(f"NVRM version: NVIDIA UNIX {kind} 580.65.06  Release Build\nGCC version: gcc 12.2\n")
        assert machine.driver() == "580.65.06"


@pytest.mark.parametrize("text", [b"5", b'"abc"', b"null", b"[1]", b"\xff\xfe\x00\x80" * 9, b"{}"])
def test_what_is_no_result_file_is_said(text, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(text + b"\n")
    with pytest.raises(ValueError, match=r"r\.jsonl.* is not a"):
        results.read(path)


def test_processors_of_one_name_are_told_apart(tmp_path):
    info = tmp_path / "cpuinfo"

    def name(text):
        info.write_text(text)
        return machine.processor_name(info)

    x86 = "processor\t: 0\ncpu family\t: {}\nmodel\t\t: 17\nmodel name\t: Abacus\n\nprocessor\t: 1\ncpu family\t: 1\n"
    assert name(x86.format(25)) == "Abacus (family 25, model 17)" != name(x86.format(26))
    assert name("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n").endswith("(implementer 0x41, part 0xd40)")
    assert "(" not in name("") and machine.processor_name(tmp_path / "none") == name("") != ""


def test_every_setting_of_ours_is_noted_or_says_nothing_of_speed():
    source = (pathlib.Path(__file__).parents[2] / "csrc/runtime/environment.cpp").read_text()
    (names,) = re.findall(r"kNames\[\] = \{(.*?)\}", source, re.DOTALL)
    known = {f"MINITORCH_{name}" for name in re.findall(r'"(\w+)"', names)}
    assert known - set(machine.OWN) == {"MINITORCH_BACKEND", "MINITORCH_FALLBACK"} and set(machine.OWN) <= known


def test_settings_as_by_default_are_none():
    given = {"MINITORCH_LAUNCH_BLOCKING": "1", "MINITORCH_POISON": "0", "MINITORCH_PEER_ACCESS": "1", "LD_PRELOAD": ""}
    assert machine.environment(given) == {"MINITORCH_LAUNCH_BLOCKING": "1"}
    given = {"MINITORCH_EXPANDABLE_SEGMENTS": "1", "MINITORCH_PEER_ACCESS": "0", "OMP_NUM_THREADS": "2", "HOME": "/"}
    assert list(machine.environment(given)) == [
        "MINITORCH_EXPANDABLE_SEGMENTS", "MINITORCH_PEER_ACCESS", "OMP_NUM_THREADS",
    ]  # fmt: skip
